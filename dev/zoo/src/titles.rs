//! Animals that rewrite their command line. They run in a freshly exec'd process, whose argument
//! area has a known size.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStringExt;
use std::slice;

use crate::arg_area::{joined, move_args, ArgArea};
use crate::facts::Facts;
use crate::sys::{self, page_size};

/// What /proc/PID/cmdline shows of an argument area that is directly followed by an environment.
///
/// If the last byte of the area is not NUL, the kernel takes its content for a title that was
/// written over it: one string, which may extend into the environment, cut off after a page.
/// Otherwise it shows the area, whatever is in it.
fn shown(memory: &[u8], args_len: usize) -> Vec<u8> {
    if memory[args_len - 1] == 0 {
        return memory[..args_len].to_vec();
    }
    let page = &memory[..memory.len().min(page_size())];
    let end = page.iter().position(|&byte| byte == 0).map_or(page.len(), |at| at + 1);
    page[..end].to_vec()
}

/// Writes a title over the arguments, and over the environment if the title is longer, as
/// setproctitle does. Returns what /proc/PID/cmdline shows from now on.
pub(crate) fn write_in_place(title: &[u8]) -> io::Result<Vec<u8>> {
    let area = ArgArea::of_this_process()?;
    let args_len = area.arg_end - area.arg_start;
    // SAFETY: callers have read what they need from the environment and keep no reference into it.
    let memory = unsafe { area.bytes() };
    let end = title.len().max(args_len - 1);
    if end >= memory.len() {
        let text = format!("a title of {} bytes does not fit into {}", title.len(), memory.len());
        return Err(io::Error::other(text));
    }
    memory[..title.len()].copy_from_slice(title);
    memory[title.len()..=end].fill(0);
    Ok(shown(memory, args_len))
}

/// Rewrites the title in the way that `role` names.
pub(crate) fn rewrite(role: &str, facts: &mut Facts) -> io::Result<()> {
    let raw = match role {
        "title-short" => write_in_place(b"zoo: idle")?,
        "title-into-environment" => {
            write_in_place(&[b"zoo: a title longer than the arguments ".repeat(8), b"!".into()].concat())?
        }
        "title-long" => {
            let area = ArgArea::of_this_process()?;
            write_in_place(&vec![b'x'; area.arg_end - area.arg_start])?
        }
        "title-moved" => {
            let title = b"zoo: moved\0second\0";
            let at = anonymous(title)?;
            move_args(at, at + title.len())?;
            title.to_vec()
        }
        "title-nowhere" => {
            let at = ArgArea::of_this_process()?.arg_start;
            move_args(at, at)?;
            Vec::new()
        }
        // The kernel reads command lines only from anonymous memory.
        "title-moved-to-file" => {
            let program = File::open("/proc/self/exe")?;
            let at = sys::map(page_size(), libc::MAP_PRIVATE, Some(program.as_raw_fd()))?;
            sys::touch(at, page_size(), false);
            move_args(at as usize, at as usize + 64)?;
            Vec::new()
        }
        "title-under-file" => hide_pages()?,
        _ => {
            return Err(io::Error::other(format!(
                "unknown role {role:?}: is the zoo binary out of date?"
            )))
        }
    };
    facts.cmdline = None;
    facts.cmdline_raw = Some(raw);
    Ok(())
}

/// Puts a copy of `bytes` into fresh anonymous memory.
fn anonymous(bytes: &[u8]) -> io::Result<usize> {
    let at = sys::map(page_size(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None)?;
    // SAFETY: a fresh writable page that nothing else refers to.
    let page = unsafe { slice::from_raw_parts_mut(at, page_size()) };
    page[..bytes.len()].copy_from_slice(bytes);
    Ok(at as usize)
}

/// Maps a file over the second and third page of the arguments. What /proc shows ends where the
/// file begins.
fn hide_pages() -> io::Result<Vec<u8>> {
    let args: Vec<Vec<u8>> = std::env::args_os().map(OsStringExt::into_vec).collect();
    let before = joined(&args);
    let area = ArgArea::of_this_process()?;
    let first = area.arg_start.next_multiple_of(page_size());
    if first + 2 * page_size() > area.arg_end {
        return Err(io::Error::other("the arguments are too short"));
    }
    let program = File::open("/proc/self/exe")?;
    // SAFETY: these pages hold nothing but argument strings, which this process does not look at
    // again.
    unsafe { sys::map_over(first as *mut u8, 2 * page_size(), Some(program.as_raw_fd()))? };
    Ok(before[..first - area.arg_start].to_vec())
}
