//! Reads whole files that the user names, such as settings. The path may lead to anything.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

use crate::outcome::message;

/// Opens a file. Neither opening nor reading waits for the other end of a pipe or for a terminal.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    options.custom_flags(flags.bits() as i32).mode(0o644).open(path)
}

/// Reads a regular file of at most `most_kib` KiB.
///
/// # Errors
///
/// Fails with what is wrong, without the file name.
pub fn read(file: &File, most_kib: u64) -> Result<Vec<u8>, String> {
    let failed = |error: io::Error| message(&error);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err("this is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let mut limited = file.take((most_kib << 10) + 1);
    limited.read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > most_kib << 10 {
        return Err(format!("this is larger than {most_kib} KiB, the limit of such a file"));
    }
    Ok(bytes)
}
