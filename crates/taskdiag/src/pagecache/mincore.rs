//! mincore(2), made to tell the truth or nothing.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{fstat, fstatfs};
use rustix::io::Errno;
use taskdiag_sys::pagecache::Mapping;

use super::{page_size, ByteRange, Refusal};

/// Pages mapped at a time.
const WINDOW: u64 = 1 << 18;

/// Pages asked about in one call: their answers stand on the stack.
const CALL: usize = 8 << 10;

/// How far beyond the end of a file there is no page of it for certain, not even of a huge one that reaches beyond the end.
const BEYOND: u64 = 1 << 30;

const HUGETLBFS_MAGIC: u64 = 0x958458f6;

/// Counts the cached pages of a file in the part that `range` touches, up to the end of the file: mincore(2), which has to
/// map the file and answers with a byte for each page. The file has to be open for reading.
///
/// Other than cachestat, it counts pages only once they have been read. It knows nothing of dirty, written and evicted pages.
pub fn mincore(file: impl AsFd, range: ByteRange) -> Result<u64, Refusal> {
    let file = file.as_fd();
    if fstatfs(file)?.f_type as u64 == HUGETLBFS_MAGIC {
        return Err(Refusal::NoPageCache);
    }
    let size = fstat(file)?.st_size as u64;
    tell_lies_apart(file, size)?;
    let (first, pages) = range.pages(size);
    let mut cached = 0;
    let mut window = first;
    while window < first + pages {
        let len = WINDOW.min(first + pages - window);
        cached += cached_in_window(file, window, len as usize)?;
        window += len;
    }
    Ok(cached)
}

/// Fails if the kernel would answer "all resident" whatever is so, because the caller lacks the right to know. Then it says
/// so of a page too that can't be there, which is surer than to do again what the kernel does to check rights, with its user
/// namespaces and mapped ids.
fn tell_lies_apart(file: BorrowedFd<'_>, size: u64) -> Result<(), Refusal> {
    let page_size = page_size();
    let beyond = size.next_multiple_of(page_size) + BEYOND;
    let mut resident = [0];
    Mapping::new(file, beyond, page_size as usize)?.mincore(0, &mut resident)?;
    match resident[0] & 1 {
        0 => Ok(()),
        _ => Err(Refusal::Denied),
    }
}

fn cached_in_window(file: BorrowedFd<'_>, first: u64, pages: usize) -> Result<u64, Errno> {
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
