//! Known address spaces.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use libc::{MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, PROT_EXEC, PROT_NONE, PROT_READ, PROT_WRITE};

use super::Species;
use crate::facts::Facts;
use crate::keeper::{fork_child, Doing as _, Keeper};
use crate::sys::{self, page_size};

pub(super) const SPECIES: &[Species] = species! {
    "mappings":
        "mappings of every kind at known addresses: deleted files, names with newlines, named memory, huge pages" =>
        strange;
};

/// Where the known mappings begin. Neither programs nor the kernel place anything near there on
/// their own.
const BASE: usize = 0x2000_0000_0000;
/// The distance between two of them.
const STEP: usize = 0x100_0000;

const READ: i32 = PROT_READ;
const READ_WRITE: i32 = PROT_READ | PROT_WRITE;

/// Makes mappings at the known places, and records what the kernel must show of them.
struct Layout {
    next: usize,
    lines: Vec<Vec<u8>>,
}

impl Layout {
    /// Maps some pages at the next place.
    fn map(&mut self, pages: usize, protection: i32, flags: i32, file: Option<(&File, usize)>) -> io::Result<usize> {
        let at = self.next;
        self.next += STEP;
        sys::map_at(
            at,
            pages * page_size(),
            protection,
            flags,
            file.map(|(file, offset)| (file.as_raw_fd(), offset)),
        )?;
        Ok(at)
    }

    /// Records a mapping: permissions as letters, offset in its file, and name.
    fn note(&mut self, at: usize, pages: usize, perms: &str, offset: usize, name: &[u8]) {
        let range = format!("{at:x}-{:x} {perms} {offset:x} ", at + pages * page_size());
        self.lines.push([range.as_bytes(), name].concat());
    }
}

fn new_file(path: &Path) -> io::Result<File> {
    fs::write(path, vec![7; 8 * page_size()])?;
    File::options().read(true).write(true).open(path)
}

fn strange(keeper: &mut Keeper) -> io::Result<Facts> {
    let dir = keeper.dir()?.to_owned();
    fork_child(|report| {
        let mut layout = Layout {
            next: BASE,
            lines: Vec::new(),
        };
        files(&mut layout, &dir).doing("mapping files")?;
        memory(&mut layout).doing("mapping memory")?;
        report.facts.mappings = Some(layout.lines);
        Ok(())
    })
}

fn files(layout: &mut Layout, dir: &Path) -> io::Result<()> {
    let name = |path: &Path, more: &[u8]| [path.as_os_str().as_bytes(), more].concat();

    let gone = dir.join("gone for\ngood");
    let file = new_file(&gone)?;
    fs::remove_file(&gone)?;
    let at = layout.map(2, READ | PROT_EXEC, MAP_PRIVATE, Some((&file, page_size())))?;
    layout.note(at, 2, "r-xp", page_size(), &name(&gone, b" (deleted)"));

    // The middle one of three pages gets different permissions, which makes three mappings of one
    // file.
    let there = dir.join("a name\nof \\ two lines");
    let file = new_file(&there)?;
    let at = layout.map(3, READ, MAP_PRIVATE, Some((&file, 2 * page_size())))?;
    sys::protect(at + page_size(), page_size(), READ_WRITE)?;
    for (page, perms) in ["r--p", "rw-p", "r--p"].into_iter().enumerate() {
        layout.note(
            at + page * page_size(),
            1,
            perms,
            (2 + page) * page_size(),
            &name(&there, b""),
        );
    }
    let at = layout.map(1, READ_WRITE, MAP_SHARED, Some((&file, 0)))?;
    layout.note(at, 1, "rw-s", 0, &name(&there, b""));

    let alive = dir.join("alive (deleted)");
    let file = new_file(&alive)?;
    let at = layout.map(1, READ, MAP_PRIVATE, Some((&file, 0)))?;
    layout.note(at, 1, "r--p", 0, &name(&alive, b""));

    let file = sys::memory_file(c"in memory\n")?;
    file.set_len(4 * page_size() as u64)?;
    let at = layout.map(4, READ_WRITE, MAP_SHARED, Some((&file, 0)))?;
    layout.note(at, 4, "rw-s", 0, b"/memfd:in memory\n (deleted)");
    Ok(())
}

fn memory(layout: &mut Layout) -> io::Result<()> {
    const MADV_GUARD_INSTALL: i32 = 102;
    let private = MAP_PRIVATE | MAP_ANONYMOUS;

    let at = layout.map(4, READ_WRITE | PROT_EXEC, private, None)?;
    layout.note(at, 4, "rwxp", 0, b"");

    let at = layout.map(2, PROT_NONE, private, None)?;
    layout.note(at, 2, "---p", 0, b"");

    // Guard pages within one mapping (Linux 6.13). Elsewhere they are ordinary pages.
    let at = layout.map(8, READ_WRITE, private, None)?;
    let _ = sys::advise(at + page_size(), page_size(), MADV_GUARD_INSTALL);
    layout.note(at, 8, "rw-p", 0, b"");

    let at = layout.map(1, READ_WRITE, private, None)?;
    // Linux 5.17 with CONFIG_ANON_VMA_NAME.
    let name: &[u8] = match sys::name_memory(at, page_size(), c"a name (deleted)") {
        Ok(()) => b"[anon:a name (deleted)]",
        Err(_) => b"",
    };
    layout.note(at, 1, "rw-p", 0, name);

    let at = layout.map(1, READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, None)?;
    layout.note(at, 1, "rw-s", 0, b"/dev/zero (deleted)");

    let at = layout.map(1, READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, None)?;
    // Linux 6.2 with CONFIG_ANON_VMA_NAME.
    let name: &[u8] = match sys::name_memory(at, page_size(), c"shared") {
        Ok(()) => b"[anon_shmem:shared]",
        Err(_) => b"/dev/zero (deleted)",
    };
    layout.note(at, 1, "rw-s", 0, name);

    let at = layout.next;
    layout.next += STEP;
    if sys::system_v_memory(at, 2 * page_size()).is_ok() {
        layout.note(at, 2, "rw-s", 0, b"/SYSV00000000 (deleted)");
    }

    // Not touched, so no huge page needs to be available.
    let pages = (2 << 20) / page_size();
    let huge = layout.map(
        pages,
        READ_WRITE,
        private | libc::MAP_HUGETLB | libc::MAP_NORESERVE,
        None,
    );
    if let Ok(at) = huge {
        layout.note(at, pages, "rw-p", 0, b"/anon_hugepage (deleted)");
    }
    Ok(())
}

/// A process with `count` mappings or slightly more. Of each three, one is code of a file, one is
/// other data of the file, and one is memory.
pub(crate) fn many(count: usize) -> io::Result<Facts> {
    fork_child(|report| {
        let file = File::open("/proc/self/exe")?;
        let present = fs::read_to_string("/proc/self/maps")?.lines().count();
        for index in 0..count.saturating_sub(present) + 8 {
            let at = BASE + index * page_size();
            let of_file = Some((file.as_raw_fd(), (index % 64) * page_size()));
            match index % 3 {
                0 => sys::map_at(at, page_size(), READ | PROT_EXEC, MAP_PRIVATE, of_file)?,
                1 => sys::map_at(at, page_size(), READ, MAP_PRIVATE, of_file)?,
                _ => sys::map_at(at, page_size(), READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, None)?,
            }
        }
        report.set_comm(b"mappings")
    })
}
