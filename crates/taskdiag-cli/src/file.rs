//! Files that the user names: reads whole ones, such as settings, and replaces them. The path may
//! lead to anything.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::outcome::message;

/// Opens a file. Neither opening nor reading waits for the other end of a pipe or for a terminal.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    options.custom_flags(flags.bits() as i32).mode(0o644).open(path)
}

/// Reads a regular file of at most `most_kib` KiB. The error says what is wrong, without the file name.
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

/// The first bytes of a file, at most so many, if it can be read.
pub fn beginning(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The path of the file that a path leads to, which need not exist: the targets of symbolic links in
/// turn. In a directory that everybody may write to, a link or another file than a regular one counts
/// only if its owner is the caller or the owner of the directory, as with `fs.protected_symlinks` and
/// `fs.protected_fifos` of the kernel (proc(5)), whatever those are set to: anybody can put one there.
/// Fails with [`io::ErrorKind::PermissionDenied`] for others, and if links lead nowhere.
pub fn target(path: &Path) -> io::Result<PathBuf> {
    const LINKS: usize = 40;
    const STICKY_AND_WRITABLE: u32 = 0o1002;
    const PROC: u64 = rustix::fs::PROC_SUPER_MAGIC as u64;
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let about = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path),
            about => about?,
        };
        if about.is_file() {
            return Ok(path);
        }
        let directory = match path.parent() {
            Some(directory) if directory != Path::new("") => directory,
            _ => Path::new("."),
        };
        let place = fs::metadata(directory)?;
        let is_trusted = [rustix::process::geteuid().as_raw(), place.uid()].contains(&about.uid());
        if place.mode() & STICKY_AND_WRITABLE == STICKY_AND_WRITABLE && !is_trusted {
            let what = if about.is_symlink() {
                "a symbolic link"
            } else {
                "no regular file"
            };
            let reason = format!("this is {what} of another user in a directory for all users, and may lead anywhere");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        // The links of /proc lead to what has no path, such as a pipe; only open(2) can follow them.
        if !about.is_symlink() || rustix::fs::statfs(directory)?.f_type as u64 == PROC {
            return Ok(path);
        }
        path = directory.join(fs::read_link(&path)?);
    }
    Err(rustix::io::Errno::LOOP.into())
}

/// A file with a temporary name until it is complete, which only the owner may read. It is removed if
/// it is never completed.
#[derive(Debug)]
pub struct Unfinished(Option<PathBuf>);

impl Unfinished {
    /// Creates one for a file of that name. The temporary name has this process's id, so that
    /// neither a concurrent writer nor the remains of a killed one are in the way. It can be guessed,
    /// so nothing of that name is opened.
    pub fn create(path: &Path) -> io::Result<(File, Unfinished)> {
        let mut name = path.to_owned().into_os_string();
        name.push(format!(".{}.unfinished", std::process::id()));
        let name = PathBuf::from(name);
        let _ = fs::remove_file(&name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&name)?;
        Ok((file, Unfinished(Some(name))))
    }

    /// Gives it its name, in place of what has that name.
    pub fn finish(mut self, path: &Path) -> io::Result<()> {
        if let Some(name) = &self.0 {
            fs::rename(name, path)?;
        }
        self.0 = None;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(name) = &self.0 {
            let _ = fs::remove_file(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink, PermissionsExt as _};

    use taskdiag_testkit::temporary::Directory;

    use super::*;

    /// Check that links are followed to where they lead, but not those that another user put into a
    /// directory for all.
    #[test]
    fn links_of_others_are_not_followed() {
        let scratch = Directory::new("links");
        let shared = scratch.join("shared");
        fs::create_dir(&shared).expect("a directory");
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).expect("it is ours");
        let (file, link, second) = (scratch.join("file"), shared.join("link"), scratch.join("second"));
        symlink(&file, &link).expect("a link");
        symlink("shared/link", &second).expect("a link");
        for path in [&file, &link, &second] {
            assert_eq!(target(path).expect("it is ours"), file);
        }
        symlink("self", scratch.join("self")).expect("a link");
        assert!(target(&scratch.join("self")).is_err());
        assert_eq!(
            target(Path::new("/proc/self/fd/1")).expect("it is there"),
            Path::new("/proc/self/fd/1")
        );
        assert!(
            rustix::process::geteuid().is_root(),
            "only root can make a link of another user"
        );
        rustix::fs::mknodat(
            rustix::fs::CWD,
            shared.join("pipe"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .expect("a pipe");
        for name in ["link", "pipe"] {
            lchown(shared.join(name), Some(65534), None).expect("root may");
        }
        for path in [&link, &second, &shared.join("pipe")] {
            let error = target(path).expect_err("it is another's");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{path:?}");
        }
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).expect("it is ours");
        assert_eq!(target(&second).expect("only root writes there"), file);
    }
}
