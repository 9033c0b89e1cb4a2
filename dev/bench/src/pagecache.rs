//! The page cache: files and trees that are made for it.
//!
//! Contenders name their files relative to the working directory, which contains the files during
//! the measurement. So another process that runs a contender again also finds them.

use std::env;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{fstat, openat, FileType, Mode, OFlags, RawDir, CWD};
use rustix::path::Arg;
use taskdiag::pagecache::{ByteRange, Found, Seen, Source, Walk};
use taskdiag_sys::pagecache::Mapping;

use crate::case::Bound::AtMost;
use crate::case::Value::{CallsPerRow, Peak, Time};
use crate::case::{call, command, single, timed, times, Case, Contender, Counts, Runner, Stage};
use crate::served::Scratch;
use crate::tools::said;
use crate::{Result, Sizes};

/// The files of the large tree; that of the small one has a tenth.
const MILLION: usize = 1_000_000;

/// The part of the sparse file that others can look at: the whole file takes too long.
const WINDOW: u64 = 16 << 30;

/// With a scale, trees have that many files, and no file has 8 GiB.
#[rustfmt::skip]
pub fn cases(sizes: &Sizes) -> Vec<Case> {
    let million = sizes.or(&[MILLION])[0];
    let (files, directories, mib) = (million / 10, (million / 1000).max(1), (million / 100).clamp(1, 8 << 10));
    let sparse = case("a sparse file of 2 TiB with one page in it".to_owned(), 1, sparse).of(vec![
        call("sparse/library", "cachestat of an open file", |_| whole("sparse", Source::Cachestat)),
        command("sparse/taskdiag", "taskdiag cache sparse", "taskdiag cache sparse"),
        command("sparse/taskdiag-map", "taskdiag cache --map sparse", "taskdiag cache --map sparse"),
        call("sparse/mincore-window", "mmap, mincore, munmap of the first 16 GiB", |_| mincore("sparse", WINDOW)),
        command("sparse/vmtouch-window", "vmtouch -p 0-16G sparse", "vmtouch -p 0-16G sparse"),
    ], vec![single("milliseconds", Time, "sparse/library", AtMost(0.1))]);

    let title = format!("a file of {}, all of it cached", if mib == 8 << 10 { "8 GiB".to_owned() } else { format!("{mib} MiB") });
    let big = case(title, 1, move || big(mib)).of(vec![
        call("big/library", "cachestat of an open file", |_| whole("big", Source::Cachestat)),
        call("big/library-mincore", "the library's mincore of an open file", |_| whole("big", Source::Mincore)),
        command("big/taskdiag", "taskdiag cache big", "taskdiag cache big"),
        call("big/mincore", "mmap, mincore, munmap", |_| mincore("big", u64::MAX)),
        command("big/fincore", "fincore big", "fincore big"),
        command("big/vmtouch", "vmtouch big", "vmtouch big"),
    ], vec![times("times as fast as mincore", "big/mincore", "big/library", 5.0)]);

    let title = format!("{files} cached files of 4 to 12 KiB in {directories} directories, filled one by one");
    let tree = case(title, files, move || make_tree("tree", files, directories, |index, _, each| index / each)).of(vec![
        call("tree/library", "a walk, each file reported", |_| walk("tree", Walk::new())),
        call("tree/library-1-thread", "a walk by one thread, each file reported", |_| walk("tree", Walk::new().threads(1))),
        command("tree/taskdiag", "taskdiag cache tree", "taskdiag cache tree"),
        command("tree/taskdiag-sum", "taskdiag cache -s tree", "taskdiag cache -s tree"),
        mincore_walk("tree/mincore-walk", "tree"),
        command("tree/fincore", "fincore of all, named by xargs from a list", "xargs -0 -a list fincore --bytes --noheadings"),
        command("tree/vmtouch", "vmtouch tree", "vmtouch tree"),
    ], vec![
        times("a walk: times as fast as the mincore walk", "tree/mincore-walk", "tree/library", 3.0),
        times("by one thread: times as fast as the mincore walk", "tree/mincore-walk", "tree/library-1-thread", 1.0),
        times("taskdiag cache: times as fast as the mincore walk", "tree/mincore-walk", "tree/taskdiag", 3.0),
        times("taskdiag cache: times as fast as fincore", "tree/fincore", "tree/taskdiag", 2.0),
        times("taskdiag cache -s: times as fast as vmtouch", "tree/vmtouch", "tree/taskdiag-sum", 2.0),
        single("system calls for each file", CallsPerRow, "tree/library", AtMost(4.0)),
    ]);

    let title = "the same files, but made in each directory in turn".to_owned();
    let scattered = case(title, files, move || make_tree("scattered", files, directories, in_turn)).of(vec![
        call("scattered/library", "a walk, each file reported", |_| walk("scattered", Walk::new())),
        command("scattered/taskdiag", "taskdiag cache scattered", "taskdiag cache scattered"),
        mincore_walk("scattered/mincore-walk", "scattered"),
    ], vec![
        times("a walk: times as fast as the mincore walk", "scattered/mincore-walk", "scattered/library", 3.0),
        times("taskdiag cache: times as fast as the mincore walk", "scattered/mincore-walk", "scattered/taskdiag", 3.0),
    ]);

    let title = format!("{million} empty files in {directories} directories");
    let large = case(title, million, move || make_tree("million", million, directories, in_turn)).counting(Counts::Memory, "file").of(vec![
        command("million/taskdiag", "taskdiag cache million", "taskdiag cache million"),
        command("million/taskdiag-json", "taskdiag cache --json million", "taskdiag cache --json million"),
        command("million/taskdiag-top", "taskdiag cache --sort -cached_bytes --limit 100 million",
            "taskdiag cache --sort -cached_bytes --limit 100 million"),
        command("million/vmtouch", "vmtouch million", "vmtouch million"),
    ], vec![
        single("peak MiB, without --sort", Peak, "million/taskdiag", AtMost(64.0)),
        single("peak MiB, as JSON", Peak, "million/taskdiag-json", AtMost(64.0)),
    ]);
    vec![sparse, big, tree, scattered, large]
}

fn case(title: String, files: usize, make: impl Fn() -> Result<()> + 'static) -> Case {
    let in_memory = files > 100_000;
    let stage = move || {
        // No disk unless necessary: inodes without data are quick to create in memory.
        let place = if in_memory { "/dev/shm".into() } else { env::temp_dir() };
        let directory = Scratch::make(&place)?;
        let inside = Inside(env::current_dir()?);
        env::set_current_dir(&directory.0)?;
        make()?;
        rustix::fs::sync();
        let kind = said("stat", &["--file-system", "--format=%T", "."]).unwrap_or_default();
        let stage = Stage {
            title: format!(", on {kind}"),
            rows: files,
            ..Stage::default()
        };
        Ok(stage.keep(inside).keep(directory))
    };
    Case::new(format!("Page cache: {title}"), stage).counting(Counts::All, "file")
}

/// Leaves the directory with the files when dropped, before it is removed.
struct Inside(PathBuf);

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = env::set_current_dir(&self.0);
    }
}

fn sparse() -> Result<()> {
    let file = File::create("sparse")?;
    file.set_len(2 << 40)?;
    Ok(file.write_all_at(b"x", 1 << 40)?)
}

fn big(mib: usize) -> Result<()> {
    let mut file = File::create("big")?;
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..mib {
        file.write_all(&piece)?;
    }
    Ok(file.sync_all()?)
}

/// Where a file of a tree is: from its index, the number of directories, and the files of each.
type Place = fn(usize, usize, usize) -> usize;

/// One file in each directory, then the next: the kernel's objects for one directory are far apart.
fn in_turn(index: usize, directories: usize, _: usize) -> usize {
    index % directories
}

/// Creates a tree of files, and a list of them. Files of the large tree are empty.
fn make_tree(root: &str, files: usize, directories: usize, place: Place) -> Result<()> {
    let content = [b'x'; 12 << 10];
    let directory = |index: usize| Path::new(root).join(format!("{}/{index}", index % 10));
    for index in 0..directories {
        fs::create_dir_all(directory(index))?;
    }
    let mut list = io::BufWriter::new(File::create("list")?);
    for index in 0..files {
        let path = directory(place(index, directories, files.div_ceil(directories))).join(format!("file-{index}"));
        let size = if root == "million" {
            0
        } else {
            (index % 3 + 1) * (4 << 10)
        };
        fs::write(&path, &content[..size])?;
        write!(list, "{}\0", path.display())?;
    }
    Ok(list.flush()?)
}

/// Queries all of an open file.
fn whole(name: &str, source: Source) -> Result<Runner> {
    let file = File::open(name)?;
    timed(move || Ok(source.ask(&file, ByteRange::ALL).map(|_| 1)?))
}

fn walk(root: &'static str, walk: Walk) -> Result<Runner> {
    timed(move || {
        let totals = walk.run(root.as_ref(), &mut Seen::default(), &Default::default(), &mut |found| {
            if let Found::File(file) = found {
                black_box(&file.path);
            }
            ControlFlow::Continue(())
        })?;
        Ok(totals.sum.files as usize)
    })
}

/// mincore of an open file, or of its first `most` bytes, as plain C programs use it: the file is
/// mapped as a whole, with one byte per page.
fn mincore(name: &str, most: u64) -> Result<Runner> {
    let file = File::open(name)?;
    let len = file.metadata()?.len().min(most);
    let mut resident = Vec::new();
    timed(move || {
        black_box(cached(file.as_fd(), len as usize, &mut resident)?);
        Ok(1)
    })
}

/// The same of all files below a directory, with one thread.
fn mincore_walk(name: &str, root: &'static str) -> Contender {
    call(name, "open, fstat, mmap, mincore, munmap, close of each", move |_| {
        let mut resident = Vec::new();
        timed(move || Ok(visit(CWD, Path::new(root), &mut resident)?))
    })
}

/// Looks at all files below a directory. Returns their number.
fn visit(above: impl AsFd, name: impl Arg, resident: &mut Vec<u8>) -> io::Result<usize> {
    let directory = openat(
        above,
        name,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut room = [MaybeUninit::uninit(); 32 << 10];
    let (mut entries, mut files) = (RawDir::new(&directory, &mut room), 0);
    while let Some(entry) = entries.next().transpose()? {
        let name = entry.file_name();
        match entry.file_type() {
            FileType::Directory if !matches!(name.to_bytes(), b"." | b"..") => {
                files += visit(&directory, name, resident)?
            }
            FileType::RegularFile => {
                let file = openat(&directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
                black_box(cached(file.as_fd(), fstat(&file)?.st_size as usize, resident)?);
                files += 1;
            }
            _ => {}
        }
    }
    Ok(files)
}

/// Counts cached pages.
fn cached(file: BorrowedFd<'_>, len: usize, resident: &mut Vec<u8>) -> io::Result<usize> {
    if len == 0 {
        return Ok(0);
    }
    resident.resize(len.div_ceil(rustix::param::page_size()), 0);
    Mapping::new(file, 0, len)?.mincore(0, resident)?;
    Ok(resident.iter().filter(|&&byte| byte & 1 != 0).count())
}
