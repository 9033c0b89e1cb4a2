//! The page cache of files in exactly known states, compared with mincore page by page; unusual and
//! changing trees; and callers without rights.
//!
//! On kernels without cachestat (before 6.5), mincore answers the same questions, and what it does
//! not know is absent.

mod elsewhere;
mod held;
mod walks;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write as _;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{symlink, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use taskdiag::pagecache::{
    self, map, residency, ByteRange, Finder, Found, Quantity, Seen, Source, State, Totals, Usage, Walk,
};
use taskdiag::{Absent, ErrorKind, Handle, Verdict};
use taskdiag_testkit::{
    cgroup::MemoryGroup,
    child::{self, World, NOBODY},
    kernel, scaled, storage, test_name, Stop,
};

const CAP_FOWNER: u64 = 1 << 3;

fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// A directory that is removed at the end.
struct Scratch(PathBuf, Lifetime);

#[derive(PartialEq)]
enum Lifetime {
    Ours,
    /// Another process made it and will remove it.
    Theirs,
}

impl Scratch {
    /// In the directory for temporary files, which may or may not be on a disk.
    fn new(name: &str) -> Scratch {
        Scratch::below(&std::env::temp_dir(), name)
    }

    /// On a file system without a disk.
    fn in_memory(name: &str) -> Scratch {
        Scratch::below(Path::new("/dev/shm"), name)
    }

    /// A directory that second processes find, too. The first process makes it.
    fn shared(name: &str) -> Scratch {
        match child::part() {
            None => Scratch::in_memory(name),
            Some(_) => {
                let first = std::os::unix::process::parent_id();
                Scratch(
                    PathBuf::from(format!("/dev/shm/taskdiag-{name}-{first}")),
                    Lifetime::Theirs,
                )
            }
        }
    }

    fn below(directory: &Path, name: &str) -> Scratch {
        let path = directory.join(format!("taskdiag-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory for the test");
        // For parts of tests that run as another user.
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("our own directory");
        Scratch(path, Lifetime::Ours)
    }

    fn file(&self, name: &str) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        options.open(self.0.join(name)).expect("a new file")
    }

    fn has_disk(&self) -> bool {
        const TMPFS: u64 = 0x0102_1994;
        const RAMFS: u64 = 0x8584_58f6;
        let kind = rustix::fs::statfs(&self.0).expect("a file system").f_type as u64;
        kind != TMPFS && kind != RAMFS
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.1 == Lifetime::Ours {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

fn places(name: &str) -> [Scratch; 2] {
    [Scratch::new(name), Scratch::in_memory(name)]
}

fn has_cachestat() -> bool {
    kernel() >= (6, 5)
}

fn range(first: u64, pages: u64) -> ByteRange {
    ByteRange::new(first * page_size(), pages * page_size()).expect("a range")
}

fn write_pages(file: &File, first: u64, pages: u64) {
    let page = vec![b'x'; page_size() as usize];
    for index in first..first + pages {
        file.write_all_at(&page, index * page_size()).expect("room");
    }
}

fn drop_cache(file: &File) {
    file.sync_all().expect("writing to disk");
    // SAFETY: no pointers.
    let result = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(result, 0);
}

/// Which pages of a file are resident, determined in another way than in the library.
fn resident(file: &File, pages: u64) -> Vec<bool> {
    let len = (pages * page_size()) as usize;
    let mut answer = vec![0_u8; pages as usize];
    // SAFETY: a new mapping, which is queried in its length and then removed; `answer` has a byte
    // for each page.
    unsafe {
        let start = libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(start, libc::MAP_FAILED);
        assert_eq!(libc::mincore(start, len, answer.as_mut_ptr()), 0);
        libc::munmap(start, len);
    }
    answer.into_iter().map(|byte| byte & 1 != 0).collect()
}

const NO_SUCH_CALL: &str = "this kernel does not have the system call that asks about the page cache";
const NO_PAGE_CACHE: &str = "the file system does not use the page cache";

/// The five counts of cachestat(2), in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

impl Counts {
    fn of(usage: &Usage) -> Result<Counts, Absent> {
        let page = rustix::param::page_size() as u64;
        let pages = |quantity| Ok(usage.bytes(quantity)? / page);
        Ok(Counts {
            cached: pages(Quantity::Cached)?,
            dirty: pages(Quantity::Dirty)?,
            writeback: pages(Quantity::Writeback)?,
            evicted: pages(Quantity::Evicted)?,
            recently_evicted: pages(Quantity::RecentlyEvicted)?,
        })
    }
}

fn cachestat(file: impl AsFd, range: ByteRange) -> taskdiag::Result<Counts> {
    let usage = Source::Cachestat.ask(file, range)?;
    Ok(Counts::of(&usage).expect("all counts"))
}

/// The cached pages that mincore(2) counts.
fn mincore(file: impl AsFd, range: ByteRange) -> taskdiag::Result<u64> {
    Ok(Source::Mincore.ask(file, range)?.cached_pages())
}

/// The error for something unsupported, as text.
fn refusal<T: std::fmt::Debug>(answer: taskdiag::Result<T>) -> String {
    let error = answer.expect_err("a refusal");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    format!("{error:#}")
}

/// An answer, or the kind of its error.
fn plain<T>(answer: taskdiag::Result<T>) -> Result<T, ErrorKind> {
    answer.map_err(|error| error.kind())
}

/// The errno that caused an error.
fn errno(error: &taskdiag::Error) -> Option<i32> {
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<std::io::Error>()?.raw_os_error()
}

/// Counts of cached pages only.
fn cached(pages: u64) -> Counts {
    Counts {
        cached: pages,
        ..Counts::default()
    }
}

/// Counts from this kernel's best source. Values that it does not know are 0 here, and checked to
/// be absent.
fn counts(file: &File, range: ByteRange) -> Counts {
    let usage = Source::of_this_host().ask(file, range).expect("an answer");
    match Counts::of(&usage) {
        Ok(counts) => {
            assert!(has_cachestat());
            assert_eq!(Ok(counts), plain(cachestat(file, range)));
            counts
        }
        Err(reason) => {
            assert!(!has_cachestat());
            assert_eq!(reason, Absent::Unsupported);
            for quantity in &Quantity::ALL[2..] {
                assert_eq!(usage.bytes(*quantity), Err(Absent::Unsupported));
            }
            cached(usage.cached_pages())
        }
    }
}

/// Checks every page with each source, both sources over the whole file, and the map.
#[track_caller]
fn check_pages(file: &File, expected: &BTreeSet<u64>, pages: u64) {
    let seen = resident(file, pages);
    let told: BTreeSet<u64> = (0..pages).filter(|&page| seen[page as usize]).collect();
    assert_eq!(&told, expected, "the test's own mincore");
    assert_eq!(counts(file, range(0, pages)).cached, expected.len() as u64);
    assert_eq!(plain(mincore(file, ByteRange::ALL)), Ok(expected.len() as u64));
    for page in 0..pages {
        let cached = u64::from(expected.contains(&page));
        assert_eq!(counts(file, range(page, 1)).cached, cached, "page {page}");
        assert_eq!(plain(mincore(file, range(page, 1))), Ok(cached), "page {page}");
    }
    let mut mapped = BTreeSet::new();
    let mut next = 0;
    let mut before = None;
    let answer = map(Source::of_this_host(), file, ByteRange::ALL, 1, &mut |run| {
        assert_eq!(run.first_page, next);
        assert_ne!(before, Some(run.state == State::Uncached), "runs that are one");
        before = Some(run.state == State::Uncached);
        next += run.pages;
        if run.state != State::Uncached {
            mapped.extend(run.first_page..next);
        }
    });
    answer.expect("an answer");
    assert_eq!((next, &mapped), (pages, expected));
}

/// Check that cachestat answers if the kernel has it, that otherwise it is unsupported and mincore
/// answers, and that the facts about the host say so.
#[test]
fn the_source_depends_on_the_kernel() {
    let scratch = Scratch::new("source");
    let file = scratch.file("file");
    write_pages(&file, 0, 3);
    let fact = Handle::new().support().cachestat.clone();
    if has_cachestat() {
        assert_eq!(Source::of_this_host(), Source::Cachestat);
        assert_eq!(
            plain(cachestat(&file, ByteRange::ALL)).map(|counts| counts.cached),
            Ok(3)
        );
        assert_eq!(fact.verdict, Verdict::Yes);
    } else {
        assert_eq!(Source::of_this_host(), Source::Mincore);
        assert_eq!(refusal(cachestat(&file, ByteRange::ALL)), NO_SUCH_CALL);
        assert_eq!(fact.verdict, Verdict::No, "{fact:?}");
        assert!(fact.why.contains("6.5") && fact.remedy.contains("mincore"), "{fact:?}");
    }
    assert_eq!(plain(mincore(&file, ByteRange::ALL)), Ok(3));
}

/// Check a file that is written, synced and dropped. Without a disk, nothing is ever dirty or
/// dropped.
#[test]
fn files_are_written_synced_and_dropped() {
    const PAGES: u64 = 21;
    for scratch in places("written") {
        let file = scratch.file("file");
        assert_eq!(counts(&file, ByteRange::ALL), Counts::default());
        write_pages(&file, 0, PAGES);
        file.set_len(PAGES * page_size() - 1).expect("a shorter file");
        let all: BTreeSet<u64> = (0..PAGES).collect();
        check_pages(&file, &all, PAGES);
        let written = counts(&file, ByteRange::ALL);
        let on_disk = scratch.has_disk() && has_cachestat();
        println!("{}: on a disk: {on_disk}, {written:?}", scratch.0.display());
        // The kernel may have started to write on its own.
        assert_eq!(written.dirty + written.writeback, if on_disk { PAGES } else { 0 });
        let part = counts(&file, range(5, 7));
        assert_eq!(
            (part.cached, part.dirty + part.writeback),
            (7, if on_disk { 7 } else { 0 })
        );

        file.sync_all().expect("writing to disk");
        let clean = cached(PAGES);
        assert_eq!(counts(&file, ByteRange::ALL), clean);
        check_pages(&file, &all, PAGES);
        let answer = residency(&file, range(5, 100)).expect("an answer");
        assert_eq!((answer.cached_pages, answer.pages, answer.fraction()), (16, 16, 1.0));

        drop_cache(&file);
        if scratch.has_disk() {
            assert_eq!(counts(&file, ByteRange::ALL), Counts::default());
            check_pages(&file, &BTreeSet::new(), PAGES);
            assert_eq!(residency(&file, ByteRange::ALL).expect("an answer").fraction(), 0.0);
        } else {
            assert_eq!(counts(&file, ByteRange::ALL), clean)
        }
    }
}

/// Check that exactly those pages are cached that were read, or that were written if there is no
/// disk to read from.
#[test]
fn cached_parts_are_found() {
    const PAGES: u64 = 70;
    let wanted: BTreeSet<u64> = [0, 3, 4, 5, 31, 32, 64, 69].into();
    for scratch in places("parts") {
        let file = scratch.file("file");
        if scratch.has_disk() {
            write_pages(&file, 0, PAGES);
            drop_cache(&file);
            // SAFETY: no pointers.
            let advised = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
            assert_eq!(advised, 0);
            for page in &wanted {
                file.read_exact_at(&mut [0], page * page_size()).expect("the page");
            }
        } else {
            file.set_len(PAGES * page_size()).expect("a sparse file");
            wanted.iter().for_each(|&page| write_pages(&file, page, 1));
        }
        check_pages(&file, &wanted, PAGES);
        // Without splitting, pages of different states are mixed.
        let mut states = Vec::new();
        let answer = map(Source::of_this_host(), &file, range(3, 3), 64, &mut |run| {
            states.push(run.state)
        });
        answer.expect("an answer");
        assert_eq!(states.len(), 1);
        assert_ne!(states[0], State::Uncached);
    }
}

/// Check that the few pages of a vast sparse file are found, and fast.
#[test]
fn sparse_files_take_little_time() {
    for scratch in places("sparse") {
        let file = scratch.file("file");
        let (pages, page) = ((2_u64 << 40) / page_size(), (1_u64 << 40) / page_size() + 5);
        file.set_len(pages * page_size()).expect("a sparse file");
        write_pages(&file, page, 2);
        if !has_cachestat() {
            // mincore would look at every one of its pages.
            assert_eq!(plain(mincore(&file, range(page - 1000, 2000))), Ok(2));
            continue;
        }
        let started = Instant::now();
        let answer = residency(&file, ByteRange::ALL).expect("an answer");
        assert_eq!((answer.cached_pages, answer.pages), (2, pages));
        let mut runs = Vec::new();
        let answer = map(Source::Cachestat, &file, ByteRange::ALL, 1, &mut |run| {
            runs.push((run.first_page, run.pages))
        });
        answer.expect("an answer");
        assert_eq!(runs, [(0, page), (page, 2), (page + 2, pages - page - 2)]);
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    }
}

/// Check huge pages: they count within the requested range, even beyond the end of the file.
#[test]
fn huge_pages_count_whole() {
    child::run(test_name!(), "huge", World::default(), || {
        let scratch = Scratch::new("huge");
        let path = CString::new(scratch.0.as_os_str().as_bytes()).expect("no NUL");
        // SAFETY: all texts end with a NUL.
        let mounted = unsafe {
            libc::mount(
                c"tmpfs".as_ptr(),
                path.as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                c"huge=always".as_ptr().cast(),
            )
        };
        assert_eq!(mounted, 0, "{}", std::io::Error::last_os_error());
        let huge_bytes: u64 = 2 << 20;
        let file = scratch.file("file");
        file.set_len(2 * huge_bytes + 1).expect("room");
        write_pages(&file, 0, 1);
        write_pages(&file, huge_bytes / page_size() * 2, 1);
        let meminfo = fs::read_to_string("/proc/meminfo").expect("meminfo");
        let huge = meminfo
            .lines()
            .find(|line| line.starts_with("ShmemHugePages:"))
            .expect("a line");
        assert!(!huge.contains(" 0 kB"), "no huge page was made: {huge}");
        let pages = (2 * huge_bytes).div_ceil(page_size()) + 1;
        let seen = resident(&file, pages);
        let cached = seen.iter().filter(|&&page| page).count() as u64;
        assert!(cached > 2, "{cached} pages");
        assert_eq!(counts(&file, range(0, pages)).cached, cached);
        assert_eq!(plain(mincore(&file, ByteRange::ALL)), Ok(cached));
        for (page, &is_cached) in (0..).zip(&seen) {
            assert_eq!(
                counts(&file, range(page, 1)).cached,
                u64::from(is_cached),
                "page {page}"
            );
        }
        if has_cachestat() {
            let whole = counts(&file, ByteRange::ALL).cached;
            println!(
                "{cached} of {pages} pages are cached, and {} beyond the end",
                whole - cached
            );
            assert!(whole >= cached);
        }
        unmount(&scratch.0);
    });
}

fn unmount(path: &Path) {
    rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH).expect("our own mount");
}

/// Check files without a name, and in memory.
#[test]
fn files_need_no_name() {
    for scratch in places("unnamed") {
        let file = scratch.file("file");
        write_pages(&file, 0, 9);
        fs::remove_file(scratch.0.join("file")).expect("our own file");
        assert_eq!(counts(&file, ByteRange::ALL).cached, 9);
    }
    let memory = File::from(rustix::fs::memfd_create(c"taskdiag", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd"));
    write_pages(&memory, 0, 9);
    let expected = cached(9);
    assert_eq!(counts(&memory, ByteRange::ALL), expected);
    check_pages(&memory, &(0..9).collect(), 9);
}

/// Check that both sources refuse files of hugetlbfs, which mincore would call uncached.
#[test]
fn hugetlbfs_is_refused() {
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::HUGETLB;
    let memory = File::from(rustix::fs::memfd_create(c"taskdiag", flags).expect("hugetlbfs"));
    memory.set_len(2 << 20).expect("no page is needed for that");
    let expected = if has_cachestat() { NO_PAGE_CACHE } else { NO_SUCH_CALL };
    assert_eq!(refusal(cachestat(&memory, ByteRange::ALL)), expected);
    assert_eq!(refusal(mincore(&memory, ByteRange::ALL)), NO_PAGE_CACHE);
}

/// Check what the kernel reports about descriptors that are not regular files, and about ranges
/// beyond the end.
#[test]
fn the_kernel_checks_in_its_order() {
    let scratch = Scratch::new("order");
    let path = scratch.0.join("file");
    let file = scratch.file("file");
    write_pages(&file, 0, 2);
    let open = |flags: i32| {
        File::from(OwnedFd::from(
            OpenOptions::new()
                .read(true)
                .custom_flags(flags)
                .open(&path)
                .expect("it"),
        ))
    };
    let writer = OpenOptions::new().write(true).open(&path).expect("it");
    let (pipe, _other) = std::io::pipe().expect("a pipe");
    let path_only = open(libc::O_PATH);
    if !has_cachestat() {
        assert_eq!(refusal(cachestat(&path_only, ByteRange::ALL)), NO_SUCH_CALL);
        assert_eq!(plain(mincore(&path_only, ByteRange::ALL)), Err(ErrorKind::System));
        return;
    }
    let error = cachestat(&path_only, ByteRange::ALL).expect_err("a refusal");
    assert_eq!((error.kind(), errno(&error)), (ErrorKind::System, Some(libc::EBADF)));
    let counts = |file: &dyn AsFd| cachestat(file, ByteRange::ALL).expect("an answer");
    assert_eq!(counts(&writer).cached, 2);
    assert_eq!(counts(&pipe), Counts::default());
    assert_eq!(counts(&File::open("/").expect("a root")), Counts::default());
    for (offset, len, cached) in [
        (0, 1, 1),
        (page_size() - 1, 2, 2),
        (page_size(), 0, 1),
        (2 * page_size(), 0, 0),
        (u64::MAX, 0, 0),
        (0, u64::MAX, 2),
    ] {
        let range = ByteRange::new(offset, len).expect("a range");
        assert_eq!(
            plain(cachestat(&file, range)).map(|counts| counts.cached),
            Ok(cached),
            "{offset} {len}"
        );
    }
    assert_eq!(ByteRange::new(1, u64::MAX), None);
}

/// Check that a caller that may read a file but not change it gets no answer from either source,
/// and which callers get one.
#[test]
fn the_right_to_change_a_file_is_needed() {
    let scratch = Scratch::shared("rights");
    let directory = &scratch.0;
    if child::part().is_none() {
        for (name, mode) in [("foreign", 0o644), ("anybody's", 0o666)] {
            let mut file = File::create(directory.join(name)).expect("a new file");
            file.write_all(b"x").expect("room");
            file.set_permissions(Permissions::from_mode(mode))
                .expect("our own file");
        }
        fs::write(directory.join("own"), b"x").expect("room");
        std::os::unix::fs::chown(directory.join("own"), Some(NOBODY), Some(NOBODY)).expect("root may");
    }
    let world = |capabilities| World {
        user: Some(NOBODY),
        capabilities,
        ..World::default()
    };
    for (name, capabilities) in [("nobody", 0), ("owner of all", CAP_FOWNER)] {
        child::run(test_name!(), name, world(capabilities), || {
            for name in ["foreign", "anybody's", "own"] {
                let file = File::open(directory.join(name)).expect("everybody may read it");
                let is_told = name != "foreign" || capabilities != 0;
                let expected = if is_told { Ok(1) } else { Err(ErrorKind::Denied) };
                assert_eq!(plain(mincore(&file, ByteRange::ALL)), expected, "mincore of {name}");
                // The answer of mincore itself is false.
                assert_eq!(resident(&file, 1), [true]);
                let cached = plain(cachestat(&file, ByteRange::ALL)).map(|counts| counts.cached);
                match kernel() {
                    (..=6, ..=4) => assert_eq!(cached, Err(ErrorKind::Unsupported)),
                    // Everybody got an answer before the right was required, in 6.14 and in
                    // 6.12.12.
                    (6, 5..=11) => assert_eq!(cached, Ok(1)),
                    _ => assert_eq!(cached, expected, "cachestat of {name}"),
                }
                let asked = plain(residency(&file, ByteRange::ALL)).map(|answer| answer.cached_pages);
                assert_eq!(asked, expected, "{name}");
            }
        });
    }
}

/// Check that pages are evicted when memory is short, and counted as evicted. Without a disk
/// nothing can be evicted.
#[test]
fn evicted_pages_leave_a_trace() {
    const PAGES: u64 = 4096;
    let scratch = Scratch::new("evicted");
    let file = scratch.file("file");
    if !has_cachestat() || !scratch.has_disk() {
        write_pages(&file, 0, 4);
        assert_eq!(counts(&file, ByteRange::ALL).evicted, 0);
        return;
    }
    // The limit applies to a whole process. Memory of other tests would count, and that process
    // would be killed if nothing else can be evicted.
    // would be killed if there is nothing else to evict.
    child::run(test_name!(), "alone", World::default(), || {
        let group = MemoryGroup::new("pages");
        group.join();
        write_pages(&file, 0, PAGES);
        file.sync_all().expect("writing to disk");
        assert_eq!(counts(&file, ByteRange::ALL).cached, PAGES);
        group.shrink(8 << 20);
        let after = counts(&file, ByteRange::ALL);
        println!("{after:?}");
        assert!(after.evicted > 0 && after.cached < PAGES, "{after:?}");
        assert!(
            after.recently_evicted <= after.evicted && after.cached + after.evicted <= PAGES,
            "{after:?}"
        );
        assert_eq!(plain(mincore(&file, ByteRange::ALL)), Ok(after.cached));
    });
}
