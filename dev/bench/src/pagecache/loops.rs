//! mincore as plain C programs use it: each file is mapped as a whole, with one byte per page.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::ptr;
use std::time::Instant;

use crate::run::{Run, Runner};
use crate::Result;

/// Examines an open file, or its first `most` bytes.
pub fn file(name: &str, most: u64) -> Result<Runner> {
    let file = File::open(name)?;
    let len = file.metadata()?.len().min(most);
    let mut resident = Vec::new();
    Ok(Box::new(move || {
        let start = Instant::now();
        std::hint::black_box(cached(file.as_raw_fd(), len as usize, &mut resident)?);
        Ok(Run::new(start.elapsed(), 1))
    }))
}

/// Examines all files below a directory, with one thread.
pub fn tree(root: &'static str) -> Result<Runner> {
    let root = CString::new(root)?;
    Ok(Box::new(move || {
        let start = Instant::now();
        let mut found = Found::default();
        walk(libc::AT_FDCWD, &root, &mut found)?;
        std::hint::black_box(found.cached);
        Ok(Run::new(start.elapsed(), found.files))
    }))
}

#[derive(Default)]
struct Found {
    files: usize,
    cached: usize,
    resident: Vec<u8>,
}

/// Counts cached pages.
fn cached(file: RawFd, len: usize, resident: &mut Vec<u8>) -> io::Result<usize> {
    if len == 0 {
        return Ok(0);
    }
    resident.resize(len.div_ceil(4096), 0);
    // SAFETY: a new mapping, queried for its whole length and then removed; there is one byte per
    // page.
    unsafe {
        let start = libc::mmap(ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file, 0);
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let result = libc::mincore(start, len, resident.as_mut_ptr());
        libc::munmap(start, len);
        match result {
            0 => Ok(resident.iter().filter(|&&byte| byte & 1 != 0).count()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn walk(above: RawFd, name: &CStr, found: &mut Found) -> io::Result<()> {
    // SAFETY: the name ends in a NUL. The stream owns the descriptor and is not used after it is
    // closed. Each entry is read before the next one is requested.
    unsafe {
        let descriptor = libc::openat(
            above,
            name.as_ptr(),
            libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC,
        );
        let stream = libc::fdopendir(descriptor);
        if stream.is_null() {
            return Err(io::Error::last_os_error());
        }
        loop {
            let entry = libc::readdir64(stream);
            if entry.is_null() {
                break;
            }
            let name = CStr::from_ptr((*entry).d_name.as_ptr());
            match (*entry).d_type {
                libc::DT_DIR if !matches!(name.to_bytes(), b"." | b"..") => walk(descriptor, name, found)?,
                libc::DT_REG => visit(descriptor, name, found)?,
                _ => {}
            }
        }
        libc::closedir(stream);
    }
    Ok(())
}

fn visit(directory: RawFd, name: &CStr, found: &mut Found) -> io::Result<()> {
    // SAFETY: the name ends in a NUL, an all-zero stat is valid, and this function owns the
    // descriptor.
    unsafe {
        let file = libc::openat(directory, name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut stat = std::mem::zeroed::<libc::stat>();
        libc::fstat(file, &mut stat);
        let pages = cached(file, stat.st_size as usize, &mut found.resident);
        libc::close(file);
        found.cached += pages?;
    }
    found.files += 1;
    Ok(())
}
