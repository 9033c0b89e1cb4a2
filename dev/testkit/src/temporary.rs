//! Things that a test makes for itself. They are gone when the test ends, however it ends.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory that is removed with its contents when this is dropped.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// A directory of this process, in the directory for temporary files.
    pub fn new(name: &str) -> Directory {
        let path = path(&std::env::temp_dir(), name);
        fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }

    /// A directory that does not exist yet, to be made by the tested code.
    pub fn to_make(parent: &Path, name: &str) -> Directory {
        let path = path(parent, name);
        let _ = fs::remove_dir_all(&path);
        Directory(path)
    }
}

/// A path of its own for each call: tests of a process run at the same time.
fn path(parent: &Path, name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    parent.join(format!("taskdiag-{name}-{}-{number}", std::process::id()))
}

impl Deref for Directory {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
