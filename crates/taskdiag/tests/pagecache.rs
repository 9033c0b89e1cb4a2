//! The page cache of files whose state is known exactly, against mincore page by page; trees that are strange or change; and
//! what callers without rights are told.
//!
//! On kernels without cachestat (before 6.5) the same is asked of mincore, and that it says what it can't give.

use rustix::io::Errno;
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
use taskdiag::pagecache::processes::{Finder, Held};
use taskdiag::pagecache::{
    cachestat, map, mincore, residency, ByteRange, Counts, Found, Quantity, Refusal, Seen, Source, State, Totals, Walk,
};
use taskdiag::{Absent, ErrorKind, Handle, Verdict};
use taskdiag_testkit::{
    child::{self, World, NOBODY},
    kernel, scaled, test_name,
};

const CAP_FOWNER: u64 = 1 << 3;

fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// A directory that is gone when the test is.
struct Scratch(PathBuf, Lifetime);

#[derive(PartialEq)]
enum Lifetime {
    Ours,
    /// Another process made it and will remove it.
    Theirs,
}

impl Scratch {
    /// In the directory for temporary files, which is on a disk or not.
    fn new(name: &str) -> Scratch {
        Scratch::below(&std::env::temp_dir(), name)
    }

    /// On a file system without a disk.
    fn in_memory(name: &str) -> Scratch {
        Scratch::below(Path::new("/dev/shm"), name)
    }

    /// One that second processes find too: made by the first.
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
        // For parts of tests that run as somebody else.
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

/// Which pages of a file are resident, asked in another way than the library does.
fn resident(file: &File, pages: u64) -> Vec<bool> {
    let len = (pages * page_size()) as usize;
    let mut answer = vec![0_u8; pages as usize];
    // SAFETY: a new mapping, which is asked about in its length and then removed; `answer` has a byte for each page.
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

/// Counts as this kernel's best source gives them; what it can't give is 0 here and checked to be absent.
fn counts(file: &File, range: ByteRange) -> Counts {
    let usage = Source::of_this_host().ask(file, range).expect("an answer");
    match usage.counts() {
        Ok(counts) => {
            assert!(has_cachestat());
            assert_eq!(Ok(counts), cachestat(file, range));
            counts
        }
        Err(reason) => {
            assert!(!has_cachestat());
            assert_eq!(reason, Absent::Unsupported);
            for quantity in &Quantity::ALL[2..] {
                assert_eq!(usage.bytes(*quantity), Err(Absent::Unsupported));
            }
            Counts {
                cached: usage.cached_pages(),
                ..Counts::default()
            }
        }
    }
}

/// Checks every page by each source alone, both sources over the whole, and the map.
#[track_caller]
fn check_pages(file: &File, expected: &BTreeSet<u64>, pages: u64) {
    let seen = resident(file, pages);
    let told: BTreeSet<u64> = (0..pages).filter(|&page| seen[page as usize]).collect();
    assert_eq!(&told, expected, "the test's own mincore");
    assert_eq!(counts(file, range(0, pages)).cached, expected.len() as u64);
    assert_eq!(mincore(file, ByteRange::ALL), Ok(expected.len() as u64));
    for page in 0..pages {
        let cached = u64::from(expected.contains(&page));
        assert_eq!(counts(file, range(page, 1)).cached, cached, "page {page}");
        assert_eq!(mincore(file, range(page, 1)), Ok(cached), "page {page}");
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
    assert_eq!(answer, Ok(()));
    assert_eq!((next, &mapped), (pages, expected));
}

/// Check that cachestat is used where the kernel has it, that it is `unsupported` elsewhere and mincore answers, and that the
/// facts about the host say so.
#[test]
fn the_source_is_that_of_the_kernel() {
    let scratch = Scratch::new("source");
    let file = scratch.file("file");
    write_pages(&file, 0, 3);
    let fact = Handle::new().support().cachestat.clone();
    if has_cachestat() {
        assert_eq!(Source::of_this_host(), Source::Cachestat);
        assert_eq!(cachestat(&file, ByteRange::ALL).map(|counts| counts.cached), Ok(3));
        assert_eq!(fact.verdict, Verdict::Yes);
    } else {
        assert_eq!(Source::of_this_host(), Source::Mincore);
        assert_eq!(cachestat(&file, ByteRange::ALL), Err(Refusal::NoSuchCall));
        assert_eq!(Refusal::NoSuchCall.absent(), Absent::Unsupported);
        assert_eq!(fact.verdict, Verdict::No, "{fact:?}");
        assert!(fact.why.contains("6.5") && fact.remedy.contains("mincore"), "{fact:?}");
    }
    assert_eq!(mincore(&file, ByteRange::ALL), Ok(3));
}

/// Check a file that is written, synced and dropped. Where there is no disk, nothing is ever dirty or dropped.
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
        // The kernel may have begun to write on its own.
        assert_eq!(written.dirty + written.writeback, if on_disk { PAGES } else { 0 });
        let part = counts(&file, range(5, 7));
        assert_eq!(
            (part.cached, part.dirty + part.writeback),
            (7, if on_disk { 7 } else { 0 })
        );

        file.sync_all().expect("writing to disk");
        let clean = Counts {
            cached: PAGES,
            ..Counts::default()
        };
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

/// Check that exactly those pages are cached that were read, or written where there is no disk to read from.
#[test]
fn parts_are_told_apart() {
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
        // Without dividing, what is not all alike is mixed.
        let mut states = Vec::new();
        let answer = map(Source::of_this_host(), &file, range(3, 3), 64, &mut |run| {
            states.push(run.state)
        });
        assert_eq!((answer, states.len()), (Ok(()), 1));
        assert_ne!(states[0], State::Uncached);
    }
}

/// Check that of a vast sparse file the few pages are found, and at once.
#[test]
fn sparse_files_take_no_time() {
    for scratch in places("sparse") {
        let file = scratch.file("file");
        let (pages, page) = ((2_u64 << 40) / page_size(), (1_u64 << 40) / page_size() + 5);
        file.set_len(pages * page_size()).expect("a sparse file");
        write_pages(&file, page, 2);
        if !has_cachestat() {
            // mincore would look at every one of its pages.
            assert_eq!(mincore(&file, range(page - 1000, 2000)), Ok(2));
            continue;
        }
        let started = Instant::now();
        assert_eq!(
            residency(&file, ByteRange::ALL).map(|answer| (answer.cached_pages, answer.pages)),
            Ok((2, pages))
        );
        let mut runs = Vec::new();
        let answer = map(Source::Cachestat, &file, ByteRange::ALL, 1, &mut |run| {
            runs.push((run.first_page, run.pages))
        });
        assert_eq!(answer, Ok(()));
        assert_eq!(runs, [(0, page), (page, 2), (page + 2, pages - page - 2)]);
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    }
}

/// Check huge pages: they count where they are asked about, also beyond the end of the file.
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
        assert_eq!(mincore(&file, ByteRange::ALL), Ok(cached));
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
    let expected = Counts {
        cached: 9,
        ..Counts::default()
    };
    assert_eq!(counts(&memory, ByteRange::ALL), expected);
    check_pages(&memory, &(0..9).collect(), 9);
}

/// Check that files of huge pages, which mincore would call uncached, are refused by both sources.
#[test]
fn hugetlbfs_is_refused() {
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::HUGETLB;
    let memory = File::from(rustix::fs::memfd_create(c"taskdiag", flags).expect("hugetlbfs"));
    memory.set_len(2 << 20).expect("no page is needed for that");
    let expected = if has_cachestat() {
        Refusal::NoPageCache
    } else {
        Refusal::NoSuchCall
    };
    assert_eq!(cachestat(&memory, ByteRange::ALL), Err(expected));
    assert_eq!(mincore(&memory, ByteRange::ALL), Err(Refusal::NoPageCache));
    assert_eq!(Refusal::NoPageCache.absent(), Absent::Unsupported);
}

/// Check what the kernel says of descriptors that are no files to ask about, and of ranges beyond them.
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
        assert_eq!(cachestat(&path_only, ByteRange::ALL), Err(Refusal::NoSuchCall));
        assert!(matches!(mincore(&path_only, ByteRange::ALL), Err(Refusal::Other(_))));
        return;
    }
    assert_eq!(cachestat(&path_only, ByteRange::ALL), Err(Refusal::Other(Errno::BADF)));
    assert_eq!(cachestat(&writer, ByteRange::ALL).map(|counts| counts.cached), Ok(2));
    assert_eq!(cachestat(&pipe, ByteRange::ALL), Ok(Counts::default()));
    assert_eq!(
        cachestat(File::open("/").expect("a root"), ByteRange::ALL),
        Ok(Counts::default())
    );
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
            cachestat(&file, range).map(|counts| counts.cached),
            Ok(cached),
            "{offset} {len}"
        );
    }
    assert_eq!(ByteRange::new(1, u64::MAX), None);
}

/// Check that somebody who may read a file but not change it is told nothing, by neither source; and who else is told.
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
                let expected = if is_told { Ok(1) } else { Err(Refusal::Denied) };
                assert_eq!(mincore(&file, ByteRange::ALL), expected, "mincore of {name}");
                // What mincore says by itself is the lie.
                assert_eq!(resident(&file, 1), [true]);
                let cached = cachestat(&file, ByteRange::ALL).map(|counts| counts.cached);
                match kernel() {
                    (..=6, ..=4) => assert_eq!(cached, Err(Refusal::NoSuchCall)),
                    // Told everybody before the right was wanted, in 6.14 and in 6.12.12.
                    (6, 5..=11) => assert_eq!(cached, Ok(1)),
                    _ => assert_eq!(cached, expected, "cachestat of {name}"),
                }
                let asked = residency(&file, ByteRange::ALL).map(|answer| answer.cached_pages);
                assert_eq!(asked, expected, "{name}");
            }
        });
    }
}

/// Check that pages are evicted when memory is short, and counted as that. Without a disk nothing can be evicted.
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
    let group = MemoryGroup::new();
    group.join();
    write_pages(&file, 0, PAGES);
    file.sync_all().expect("writing to disk");
    assert_eq!(counts(&file, ByteRange::ALL).cached, PAGES);
    group.shrink();
    let after = counts(&file, ByteRange::ALL);
    println!("{after:?}");
    assert!(after.evicted > 0 && after.cached < PAGES, "{after:?}");
    assert!(
        after.recently_evicted <= after.evicted && after.cached + after.evicted <= PAGES,
        "{after:?}"
    );
    assert_eq!(mincore(&file, ByteRange::ALL), Ok(after.cached));
}

/// A cgroup with a limit on memory, of whichever version there is; this process returns to the root when it is dropped.
struct MemoryGroup {
    path: PathBuf,
    limit: &'static str,
}

impl MemoryGroup {
    fn new() -> MemoryGroup {
        let (root, limit) = if Path::new("/sys/fs/cgroup/memory/cgroup.procs").exists() {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
            ("/sys/fs/cgroup", "memory.high")
        };
        let path = Path::new(root).join(format!("taskdiag-test-{}", std::process::id()));
        fs::create_dir(&path).expect("a cgroup");
        MemoryGroup { path, limit }
    }

    fn join(&self) {
        fs::write(self.path.join("cgroup.procs"), std::process::id().to_string()).expect("joining our own cgroup");
    }

    fn shrink(&self) {
        fs::write(self.path.join(self.limit), (8 << 20).to_string()).expect("a limit");
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::write(self.path.join(self.limit), "-1");
        let root = self.path.parent().expect("a parent");
        let _ = fs::write(root.join("cgroup.procs"), std::process::id().to_string());
        let _ = fs::remove_dir(&self.path);
    }
}

type Bytes = Result<u64, Absent>;

/// What a walk has found.
#[derive(Debug, Default)]
struct Harvest {
    /// By path: sizes and cached bytes.
    files: BTreeMap<Vec<u8>, (Bytes, Bytes)>,
    twice: Vec<Vec<u8>>,
    directories: BTreeMap<Vec<u8>, (usize, u64, u64)>,
    failed: BTreeMap<Vec<u8>, Errno>,
    most_descriptors: usize,
}

fn harvest(walk: Walk, root: &Path) -> (Harvest, Totals) {
    let mut harvest = Harvest::default();
    let totals = walk
        .run(root, &mut Seen::default(), &AtomicBool::new(false), &mut |found| {
            match found {
                Found::File(file) => {
                    let cached = file.usage.and_then(|usage| usage.bytes(Quantity::Cached));
                    let before = harvest.files.insert(file.path.to_vec(), (file.size_bytes, cached));
                    if before.is_some() {
                        harvest.twice.push(file.path.to_vec());
                    }
                }
                Found::Directory(directory) => {
                    let entry = (directory.depth, directory.sum.files, directory.sum.size_bytes);
                    harvest.directories.insert(directory.path.to_vec(), entry);
                }
                Found::Failed(failed) => {
                    harvest.failed.insert(failed.path.to_vec(), failed.errno);
                }
                Found::Tick(_) => harvest.most_descriptors = harvest.most_descriptors.max(descriptors()),
            }
            ControlFlow::Continue(())
        })
        .expect("a root");
    assert!(harvest.twice.is_empty(), "{:?}", harvest.twice);
    (harvest, totals)
}

/// How many descriptors are open in the largest table that a thread of this process has.
fn descriptors() -> usize {
    let threads = fs::read_dir("/proc/self/task").expect("our own");
    let tables = threads.flatten().map(|thread| fs::read_dir(thread.path().join("fd")));
    // A thread may have ended since.
    tables.flatten().map(Iterator::count).max().unwrap_or(0)
}

/// Check that every regular file is found once with its size and cache; that nothing else is opened, followed or waited for.
#[test]
fn strange_trees_are_walked() {
    let scratch = Scratch::in_memory("strange");
    let root = &scratch.0;
    let names: [&[u8]; 6] = [
        b"plain",
        b"new\nline",
        b"\xff\xfe",
        b" ",
        b"\x1b[31m",
        "größe".as_bytes(),
    ];
    fs::create_dir_all(root.join("a/b/c")).expect("directories");
    for (index, name) in names.iter().enumerate() {
        fs::write(root.join("a/b").join(OsStr::from_bytes(name)), vec![0; index + 1]).expect("a file");
    }
    fs::write(root.join("a/linked"), [0; 100]).expect("a file");
    fs::hard_link(root.join("a/linked"), root.join("another name")).expect("a link");
    symlink("..", root.join("a/up")).expect("a link");
    symlink("linked", root.join("a/link to a file")).expect("a link");
    for kind in [libc::S_IFIFO, libc::S_IFSOCK] {
        let path = root.join(format!("a/{kind:o}"));
        let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
        // SAFETY: the path ends with a NUL.
        assert_eq!(unsafe { libc::mknod(path.as_ptr(), kind | 0o600, 0) }, 0);
    }
    let (harvest_of_files, totals) = harvest(Walk::new(), root);
    let mut expected: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for (index, name) in names.iter().enumerate() {
        let path = root.join("a/b").join(OsStr::from_bytes(name));
        expected.insert(path.into_os_string().into_vec(), index as u64 + 1);
    }
    let mut linked = 0;
    for (path, &(size, cached)) in &harvest_of_files.files {
        if size == Ok(100) {
            linked += 1;
        } else {
            assert_eq!(
                size.ok(),
                expected.remove(path),
                "{}",
                OsStr::from_bytes(path).display()
            );
        }
        assert_eq!(cached, Ok(page_size()));
    }
    assert!(
        expected.is_empty() && harvest_of_files.failed.is_empty(),
        "{expected:?}"
    );
    assert_eq!(
        (linked, totals.linked, totals.sum.files, totals.directories),
        (1, 1, 7, 4)
    );
    assert_eq!((totals.gone, totals.failed, totals.sum.size_bytes), (0, 0, 121));

    let walk = Walk {
        each_file: false,
        ..Walk::new()
    };
    let (of_directories, again) = harvest(walk, root);
    assert!(of_directories.files.is_empty());
    assert_eq!(again, totals);
    let path = |name: &str| root.join(name).into_os_string().into_vec();
    assert_eq!(of_directories.directories[&path("a/b")], (2, 6, 21));
    assert_eq!(of_directories.directories[&path("a/b/c")], (3, 0, 0));
    assert_eq!(of_directories.directories.values().map(|entry| entry.1).sum::<u64>(), 7);

    // A PATH may be a link, but nothing that is neither a file nor a directory.
    symlink("a", root.join("link")).expect("a link");
    assert_eq!(harvest(Walk::new(), &root.join("link")).1.sum.files, 7);
    let refused = |path: &Path| {
        let result = Walk::new().run(path, &mut Seen::default(), &AtomicBool::new(false), &mut |_| {
            ControlFlow::Continue(())
        });
        result.expect_err("a refusal")
    };
    assert_eq!(refused(&root.join(format!("a/{:o}", libc::S_IFIFO))), Errno::INVAL);
    assert_eq!(refused(Path::new("/dev/null")), Errno::INVAL);
    assert_eq!(refused(&root.join("missing")), Errno::NOENT);
}

/// Check that trees which are deeper than a path may be long, and wider than any list of directories, are walked whole with
/// few descriptors.
#[test]
fn deep_and_wide_trees_are_walked_whole() {
    const DEEP: usize = 72;
    const SIDES: usize = 140;
    let wide = scaled(6000).max(1000);
    let scratch = Scratch::in_memory("deep");
    let name = "n".repeat(60);
    // At each level there are more directories than may wait. In one of both trees, whichever it is on this kernel, the one
    // that goes on is listed last, when the list is full: a thread goes down into it, as far as it may.
    for is_first in [true, false] {
        let tree = scratch.0.join(format!("first-{is_first}"));
        fs::create_dir(&tree).expect("a directory");
        let mut directory = OwnedFd::from(File::open(&tree).expect("our own"));
        for _ in 0..DEEP {
            if is_first {
                make_directory(&directory, &name);
            }
            for side in 0..SIDES {
                make_directory(&directory, &side.to_string());
            }
            if !is_first {
                make_directory(&directory, &name);
            }
            directory = open_directory(&directory, &name);
            let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
            rustix::fs::openat(&directory, "file", flags, 0o644.into()).expect("a file");
        }
    }
    let wide_root = scratch.0.join("wide");
    for index in 0..wide {
        let path = wide_root.join(index.to_string()).join("x");
        fs::create_dir_all(&path).expect("directories");
        fs::write(path.join("file"), b"").expect("a file");
    }
    for threads in [1, 2, 5] {
        let walk = Walk { threads, ..Walk::new() };
        let started_with = descriptors();
        let (found, totals) = harvest(walk, &scratch.0);
        assert_eq!((found.failed.len(), totals.gone), (0, 0), "{:?}", found.failed);
        assert_eq!(found.files.len(), 2 * DEEP + wide);
        let directories = 1 + 2 * (1 + DEEP * (1 + SIDES)) + 1 + 2 * wide;
        assert_eq!(totals.directories as usize, directories);
        assert!(found.files.keys().any(|path| path.len() > DEEP * name.len()));
        let most = found.most_descriptors.saturating_sub(started_with);
        println!("{threads} threads: at most {most} descriptors");
        // All directories that may wait, and for each thread the levels that it goes down and the files that it closes
        // together. Other tests of this process open some too.
        assert!(most < 128 + threads * (20 + 16) + 100, "{most} descriptors");
    }
}

fn make_directory(above: &impl AsFd, name: &str) {
    rustix::fs::mkdirat(above, name, 0o755.into()).expect("a directory");
}

fn open_directory(above: &impl AsFd, name: &str) -> OwnedFd {
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::openat(above, name, flags, 0.into()).expect("a directory")
}

/// Check that directories mounted into themselves are read once, that other file systems are left out when asked, and
/// `/proc` always.
#[test]
fn mounts_make_no_loops() {
    child::run(test_name!(), "mounts", World::default(), || {
        let scratch = Scratch::in_memory("mounts");
        let root = &scratch.0;
        for name in ["a/loop", "a/b", "other", "proc"] {
            fs::create_dir_all(root.join(name)).expect("directories");
        }
        fs::write(root.join("a/b/file"), b"x").expect("a file");
        let mount = |source: &Path, target: &str, kind: &std::ffi::CStr, flags| {
            let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).expect("no NUL");
            let (source, target) = (text(source), text(&root.join(target)));
            // SAFETY: all texts end with a NUL.
            let result = unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, ptr::null()) };
            assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        };
        mount(Path::new("tmpfs"), "other", c"tmpfs", 0);
        mount(Path::new("proc"), "proc", c"proc", 0);
        fs::write(root.join("other/file"), b"x").expect("a file");
        mount(root, "a/loop", c"none", libc::MS_BIND | libc::MS_REC);
        let (found, totals) = harvest(Walk::new(), root);
        assert_eq!(found.files.len(), 2, "{found:?}");
        assert_eq!((totals.sum.files, totals.again), (2, 1));
        assert!(totals.other_file_systems >= 1, "{totals:?}");
        let walk = Walk {
            one_file_system: true,
            ..Walk::new()
        };
        let (found, totals) = harvest(walk, root);
        assert_eq!((found.files.len(), totals.other_file_systems), (1, 2), "{totals:?}");
        for name in ["a/loop", "other", "proc"] {
            unmount(&root.join(name));
        }
    });
}

/// Check that what the caller may not read is said, and the rest found.
#[test]
fn unreadable_parts_are_said() {
    let scratch = Scratch::shared("unreadable");
    let root = &scratch.0;
    if child::part().is_none() {
        for name in ["open", "closed"] {
            fs::create_dir(root.join(name)).expect("a directory");
            fs::write(root.join(name).join("file"), b"abc").expect("a file");
        }
        fs::write(root.join("open/secret"), b"secret").expect("a file");
        fs::set_permissions(root.join("open/secret"), Permissions::from_mode(0o600)).expect("our own");
        fs::set_permissions(root.join("closed"), Permissions::from_mode(0o700)).expect("our own");
        fs::write(root.join("open/own"), b"x").expect("a file");
        std::os::unix::fs::chown(root.join("open/own"), Some(NOBODY), None).expect("root may");
    }
    let world = World {
        user: Some(NOBODY),
        ..World::default()
    };
    child::run(test_name!(), "nobody", world, || {
        let (found, totals) = harvest(Walk::new(), root);
        let path = |name: &str| root.join(name).into_os_string().into_vec();
        assert_eq!(found.failed, [(path("closed"), Errno::ACCESS)].into());
        let denied = |size| (Ok(size), Err(Absent::Denied));
        let expected = [
            (path("open/file"), denied(3)),
            (path("open/own"), (Ok(1), Ok(page_size()))),
            (path("open/secret"), denied(6)),
        ];
        assert_eq!(found.files, expected.into());
        assert_eq!((totals.sum.denied, totals.sum.answered, totals.failed), (2, 1, 1));
        assert_eq!(
            totals
                .sum
                .usage(Source::of_this_host())
                .map(|usage| usage.cached_pages()),
            Ok(1)
        );
    });
}

/// Check that of a tree that changes all the time the files that stay are found, each once, and that no walk fails or blocks.
#[test]
fn changing_trees_keep_what_stays() {
    const STEADY: usize = 200;
    let scratch = Scratch::in_memory("changing");
    let root = &scratch.0;
    for index in 0..STEADY {
        let directory = root.join(format!("steady/{}", index % 10));
        fs::create_dir_all(&directory).expect("directories");
        fs::write(directory.join(index.to_string()), b"x").expect("a file");
    }
    let stop = AtomicBool::new(false);
    let changes = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (stop, changes) = (&stop, &changes);
            scope.spawn(move || {
                for turn in 0.. {
                    let directory = root.join(format!("steady/{}/moving-{thread}-{}", turn % 10, turn % 7));
                    let _ = fs::create_dir_all(directory.join("deeper"));
                    let file = directory.join("deeper/file");
                    let _ = fs::write(&file, b"y");
                    let _ = fs::remove_file(&file);
                    // A name that was a file's is a FIFO's now: opening it would wait for a writer.
                    let path = CString::new(file.as_os_str().as_bytes()).expect("no NUL");
                    // SAFETY: the path ends with a NUL.
                    unsafe { libc::mkfifo(path.as_ptr(), 0o600) };
                    let _ = fs::rename(&directory, root.join(format!("renamed-{thread}")));
                    let _ = fs::remove_dir_all(root.join(format!("renamed-{thread}")));
                    let _ = fs::remove_dir_all(&directory);
                    changes.fetch_add(1, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let mut gone = 0;
        for _ in 0..scaled(200) {
            let (found, totals) = harvest(Walk::new(), root);
            gone += totals.gone;
            assert!(found.failed.is_empty(), "{:?}", found.failed);
            let is_steady = |path: &&Vec<u8>| !path.ends_with(b"file");
            assert_eq!(found.files.keys().filter(is_steady).count(), STEADY);
        }
        stop.store(true, Ordering::Relaxed);
        println!(
            "{} changes, {gone} files and directories went while they were looked at",
            changes.load(Ordering::Relaxed)
        );
    });
    assert!(changes.load(Ordering::Relaxed) > 0);
}

/// Check that the threads of a walk hold nothing open that is the caller's, nor anything of the tree when the walk has ended.
#[test]
fn walks_hold_nothing_of_the_caller() {
    let world = World::default();
    child::run(test_name!(), "mounts", world, || {
        let scratch = Scratch::in_memory("held");
        let root = scratch.0.join("mounted");
        fs::create_dir(&root).expect("a directory");
        let target = CString::new(root.as_os_str().as_bytes()).expect("no NUL");
        for turn in 0..20 {
            // SAFETY: all texts end with a NUL.
            let result = unsafe { libc::mount(c"tmpfs".as_ptr(), target.as_ptr(), c"tmpfs".as_ptr(), 0, ptr::null()) };
            assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
            for index in 0..500 {
                let directory = root.join((index / 50).to_string());
                fs::create_dir_all(&directory).expect("directories");
                fs::write(directory.join(index.to_string()), b"").expect("a file");
            }
            let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).expect("a pipe");
            let mut writer = Some(writer);
            let mut left = None;
            let walk = Walk {
                threads: 4,
                ..Walk::new()
            };
            let totals = walk.run(&root, &mut Seen::default(), &AtomicBool::new(false), &mut |_| {
                // The end of what is read shows that nobody has the pipe for writing.
                if writer.take().is_some() {
                    left = Some(rustix::io::read(&reader, &mut [0; 1]));
                }
                ControlFlow::Continue(())
            });
            assert_eq!(totals.expect("a root").sum.files, 500);
            assert_eq!(left, Some(Ok(0)), "turn {turn}");
            // Fails while anything of it is open.
            rustix::mount::unmount(&root, rustix::mount::UnmountFlags::empty()).expect("nothing open");
        }
    });
}

/// Check that a tree is walked whole whose root only the calling thread finds under its path.
#[test]
fn roots_may_be_known_to_the_caller_alone() {
    let scratch = Scratch::in_memory("alone");
    for index in 0..100 {
        let directory = scratch.0.join((index % 10).to_string());
        fs::create_dir_all(&directory).expect("directories");
        fs::write(directory.join(index.to_string()), b"").expect("a file");
    }
    let root = File::open(&scratch.0).expect("our own");
    let path = PathBuf::from(format!("/proc/thread-self/fd/{}", root.as_raw_fd()));
    for threads in [1, 4] {
        let (found, totals) = harvest(Walk { threads, ..Walk::new() }, &path);
        assert_eq!((found.files.len(), totals.directories), (100, 11), "{totals:?}");
    }
}

/// Check that a walk ends when it is cancelled or the caller has had enough, with what was found until then.
#[test]
fn walks_can_be_ended() {
    let scratch = Scratch::in_memory("ended");
    let count = scaled(20_000).max(4_000);
    for index in 0..count {
        let directory = scratch.0.join((index / 100).to_string());
        fs::create_dir_all(&directory).expect("directories");
        fs::write(directory.join(index.to_string()), b"").expect("a file");
    }
    let cancel = AtomicBool::new(false);
    let mut told = 0_u64;
    let totals = Walk::new()
        .run(&scratch.0, &mut Seen::default(), &cancel, &mut |found| {
            told += u64::from(matches!(found, Found::File(_)));
            cancel.store(true, Ordering::Relaxed);
            ControlFlow::Continue(())
        })
        .expect("a root");
    // What was found before the threads noticed is told.
    assert_eq!(totals.sum.files, told);
    assert!(told > 0 && told < count as u64, "{told} of {count}");

    let mut told = 0;
    let totals = Walk::new()
        .run(
            &scratch.0,
            &mut Seen::default(),
            &AtomicBool::new(false),
            &mut |found| {
                told += u64::from(matches!(found, Found::File(_)));
                match told {
                    10.. => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                }
            },
        )
        .expect("a root");
    assert_eq!(told, 10);
    assert!(totals.sum.files < count as u64, "{totals:?}");
}

fn held_files(pid: u32, seen: &mut Seen, each: &mut dyn FnMut(Held<'_>)) -> Result<(), taskdiag::Error> {
    let patience = std::time::Duration::from_secs(5);
    Finder::new(Source::of_this_host(), ByteRange::ALL, patience).held_files(pid, seen, each)
}

/// Check that the files a process holds are found: open, mapped only, deleted, in memory; with and without the right to follow
/// its mappings. What is no regular file is left alone.
#[test]
fn held_files_are_found() {
    let world = |user| World {
        user,
        ..World::default()
    };
    for (name, user) in [("root", None), ("nobody", Some(NOBODY))] {
        child::run(test_name!(), name, world(user), || {
            let scratch = Scratch::in_memory(&format!("held-{name}"));
            let open = scratch.file("open\nfile");
            write_pages(&open, 0, 2);
            let deleted = scratch.file("deleted");
            write_pages(&deleted, 0, 3);
            fs::remove_file(scratch.0.join("deleted")).expect("our own");
            let memory = rustix::fs::memfd_create(c"memory", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
            write_pages(&File::from(memory.try_clone().expect("a copy")), 0, 4);
            let mapped = scratch.file("mapped");
            write_pages(&mapped, 0, 5);
            // SAFETY: a new mapping, which stays.
            let start = unsafe {
                let len = 5 * page_size() as usize;
                libc::mmap(
                    ptr::null_mut(),
                    len,
                    libc::PROT_READ,
                    libc::MAP_SHARED,
                    mapped.as_raw_fd(),
                    0,
                )
            };
            assert_ne!(start, libc::MAP_FAILED);
            drop(mapped);
            // SAFETY: a new descriptor, or none.
            let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
            // SAFETY: nobody else has it.
            let _event = (event >= 0).then(|| unsafe { OwnedFd::from_raw_fd(event) });
            let mut found = BTreeMap::new();
            let mut seen = Seen::default();
            held_files(std::process::id(), &mut seen, &mut |held| {
                let cached = held.usage.map(|usage| usage.cached_pages());
                let before = found.insert(held.path.to_vec(), cached);
                assert!(before.is_none(), "{} twice", OsStr::from_bytes(held.path).display());
            })
            .expect("our own files");
            let path = |name: &str| scratch.0.join(name).into_os_string().into_vec();
            for (path, pages) in [
                (path("open\nfile"), 2),
                (path("deleted (deleted)"), 3),
                (b"/memfd:memory (deleted)".to_vec(), 4),
                (path("mapped"), 5),
            ] {
                assert_eq!(
                    found.get(&path),
                    Some(&Ok(pages)),
                    "{}: {found:?}",
                    OsStr::from_bytes(&path).display()
                );
            }
            assert!(!found.keys().any(|path| path.starts_with(b"anon_inode")));
            // Nothing twice between calls, either.
            let mut again = 0;
            held_files(std::process::id(), &mut seen, &mut |held| {
                again += usize::from(held.usage.is_ok())
            })
            .expect("again");
            assert_eq!(again, 0);
        });
    }
    // A kernel thread has none, and is there all the same.
    if child::part().is_none() {
        assert_eq!(fs::read("/proc/2/comm").expect("a process"), b"kthreadd\n");
        held_files(2, &mut Seen::default(), &mut |held| panic!("{held:?}")).expect("no files");
    }
    let error = held_files(u32::MAX, &mut Seen::default(), &mut |_| {}).expect_err("no such process");
    assert_eq!(error.kind(), ErrorKind::NoSuchTask);
}

/// Check that somebody else's process is not looked into.
#[test]
fn files_of_others_are_denied() {
    let world = World {
        user: Some(NOBODY),
        ..World::default()
    };
    child::run(test_name!(), "nobody", world, || {
        let root = std::os::unix::process::parent_id();
        let owner = fs::metadata(format!("/proc/{root}")).expect("the parent").uid();
        assert_ne!(owner, NOBODY);
        let error = held_files(root, &mut Seen::default(), &mut |_| {}).expect_err("a refusal");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    });
}
