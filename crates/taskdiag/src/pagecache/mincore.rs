//! mincore(2), without its false answers.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::fs::{fstat, fstatfs};
use rustix::io::Errno;
use taskdiag_sys::pagecache::Mapping;

use super::{page_size, size, ByteRange, Refusal};

/// How many pages are mapped at a time.
const WINDOW: u64 = 1 << 18;

/// How many pages one call asks about. The answers are on the stack.
const CALL: usize = 8 << 10;

/// At this distance beyond its end, in bytes, a file certainly has no page, not even as part of a
/// huge page.
const BEYOND: u64 = 1 << 30;

const HUGETLBFS_MAGIC: u64 = 0x958458f6;

/// Counts the cached pages of a file in the part that `range` touches, up to the end of the file.
/// Fails with `TIMEDOUT` if that takes until `end`: it takes longer the larger the file is, even if it
/// has no pages.
pub(super) fn cached_pages(
    file: BorrowedFd<'_>,
    range: ByteRange,
    end: Option<Instant>,
) -> std::result::Result<u64, Refusal> {
    if fstatfs(file)?.f_type as u64 == HUGETLBFS_MAGIC {
        return Err(Refusal::NoPageCache);
    }
    let size = size(file, &fstat(file)?)?;
    check_truth(file, size)?;
    let (first, pages) = range.pages(size);
    let mut cached = 0;
    let mut window = first;
    while window < first + pages {
        let len = WINDOW.min(first + pages - window);
        cached += cached_in_window(file, window, len as usize)?;
        window += len;
        if window < first + pages && end.is_some_and(|end| Instant::now() > end) {
            return Err(Errno::TIMEDOUT.into());
        }
    }
    Ok(cached)
}

/// Fails if the kernel answers "all resident" because the caller lacks the right to know
/// (`mm/mincore.c`). The kernel then answers this even for a page that can't exist. Checking the
/// right here would be less certain, because of user namespaces and mapped ids.
fn check_truth(file: BorrowedFd<'_>, size: u64) -> std::result::Result<(), Refusal> {
    let page_size = page_size();
    let beyond = size.next_multiple_of(page_size) + BEYOND;
    let mut resident = [0];
    Mapping::new(file, beyond, page_size as usize)?.mincore(0, &mut resident)?;
    match resident[0] & 1 {
        0 => Ok(()),
        _ => Err(Refusal::Denied),
    }
}

fn cached_in_window(file: BorrowedFd<'_>, first: u64, pages: usize) -> std::result::Result<u64, Errno> {
    let page_size = page_size();
    let mapping = Mapping::new(file, first * page_size, pages * page_size as usize)?;
    let mut resident = [0; CALL];
    let mut cached = 0;
    for from in (0..pages).step_by(CALL) {
        let resident = &mut resident[..CALL.min(pages - from)];
        mapping.mincore(from, resident)?;
        cached += resident.iter().map(|&byte| u64::from(byte & 1)).sum::<u64>();
    }
    Ok(cached)
}
