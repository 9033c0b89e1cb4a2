//! Which procfs is read: `/proc`, or another one.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, CWD};
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::text::process;
use taskdiag_sys::host::use_proc;

const PROC_MAGIC: u64 = 0x9fa0;

/// What makes its ids those of the caller.
pub(crate) const SHARE: &str = "share the pid namespace of the host (--pid=host, hostPID: true)";

/// A mounted procfs: `/proc` by default.
///
/// A container may have that of its host at `/host/proc`. All ids in a procfs are those of the pid
/// namespace in which it was mounted. If that is an outer one, the ids mean other processes to
/// system calls, so only procfs answers.
#[derive(Clone, Debug)]
pub struct Proc {
    path: Arc<Path>,
    is_outer: bool,
}

impl Default for Proc {
    fn default() -> Proc {
        Proc {
            path: Arc::from(Path::new("/proc")),
            is_outer: false,
        }
    }
}

impl Proc {
    /// The procfs that is mounted at `path`.
    ///
    /// # Errors
    ///
    /// - [`Denied`](ErrorKind::Denied) or [`System`](ErrorKind::System) if it can't be opened.
    /// - [`Unsupported`](ErrorKind::Unsupported) if it is not a procfs, or its pid namespace does
    ///   not contain this process.
    pub fn at(path: impl AsRef<Path>) -> Result<Proc> {
        let path = path.as_ref();
        let absolute = std::path::absolute(path);
        let path = absolute.map_err(|error| Error::io(format!("can't open {}", path.display()), error))?;
        let mut proc = Proc {
            path: path.into(),
            is_outer: true,
        };
        proc.open()?;
        let status = std::fs::read(proc.join("self/status"));
        let status = status.map_err(|error| Error::io(proc.join("self/status").display().to_string(), error))?;
        proc.is_outer = namespaces(&status).is_some_and(|count| count > 1);
        use_proc(&proc.path);
        Ok(proc)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its ids are those of an outer pid namespace.
    pub fn is_outer(&self) -> bool {
        self.is_outer
    }

    /// The id of this process in it.
    pub fn own_pid(&self) -> Option<u32> {
        let target = std::fs::read_link(self.join("self")).ok()?;
        process::task_id(target.as_os_str().as_encoded_bytes())
    }

    /// Why its ids can't be passed to system calls.
    pub(crate) fn why_no_ids(&self) -> Option<String> {
        let why = || format!("the ids in {} are those of an outer pid namespace", self.path.display());
        self.is_outer.then(why)
    }

    /// Opens its directory.
    pub(crate) fn open(&self) -> Result<OwnedFd> {
        let path = self.path.display();
        let remedy = if &*self.path == Path::new("/proc") {
            "mount it with: mount -t proc proc /proc"
        } else {
            "give the directory at which the host's /proc is mounted, such as /host/proc"
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, &*self.path, flags, Mode::empty())
            .map_err(|errno| Error::io(format!("can't open {path} ({remedy})"), errno))?;
        let kind = rustix::fs::fstatfs(&directory).map_err(|errno| Error::io(path.to_string(), errno))?;
        if kind.f_type as u64 != PROC_MAGIC {
            let message = format!("{path} is not the kernel's procfs: {remedy}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        // All ids in it are those of the pid namespace in which it was mounted. That must be the
        // caller's, or an outer one if this was asked for.
        let own = rustix::process::getpid().as_raw_nonzero().get() as u32;
        match self.own_pid() {
            Some(pid) if pid == own || self.is_outer => Ok(directory),
            None if !self.join("uptime").exists() => {
                let message = format!("{path} is no whole procfs, but a directory in one: {remedy}");
                Err(Error::new(ErrorKind::Unsupported, message))
            }
            _ => {
                let message = format!("{path} shows another pid namespace than the caller's: {remedy}");
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        }
    }
}

/// For the other crates of this project.
#[doc(hidden)]
impl Proc {
    /// Fails if its ids mean other processes to system calls, or none.
    pub fn check_ids(&self, what: &str) -> Result<()> {
        match self.why_no_ids() {
            Some(why) => Err(Error::new(ErrorKind::Unsupported, format!("{what}: {why}: {SHARE}"))),
            None => Ok(()),
        }
    }

    /// The path of a file in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Fails if this process can't ask it: it is none, or shows another pid namespace.
    pub fn check(&self) -> Result<()> {
        self.open().map(drop)
    }
}

/// In how many pid namespaces a task is, from that of the procfs inward, according to its `status`.
pub(crate) fn namespaces(status: &[u8]) -> Option<usize> {
    let mut lines = status.split(|&byte| byte == b'\n');
    let ids = lines.find_map(|line| line.strip_prefix(b"NSpid:"))?;
    Some(std::str::from_utf8(ids).ok()?.split_whitespace().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the usual procfs is that of the caller, and that a line with several ids is that of
    /// an outer one.
    #[test]
    fn the_usual_procfs_is_not_outer() {
        let proc = Proc::at("/proc").expect("/proc is mounted");
        assert!(!proc.is_outer() && proc.check_ids("nothing").is_ok());
        assert_eq!(proc.own_pid(), Some(std::process::id()));
        let status = |line: &str| namespaces(format!("Name:\tNSpid: 1 2\n{line}\nNSpgid:\t1\t2\t3\n").as_bytes());
        assert_eq!(["NSpid:\t7", "NSpid:\t70\t1"].map(status), [Some(1), Some(2)]);
        // The kernel has no pid namespaces.
        assert_eq!(status("Pid:\t7"), None);
    }
}
