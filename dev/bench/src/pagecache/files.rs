//! The files that the suite examines.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::Scene;
use crate::measure::progress;
use crate::tools::said;
use crate::Result;

/// The size of the sparse file.
pub const SPARSE: u64 = 2 << 40;

/// The number of files in the tree.
pub const TREE: usize = 100_000;

/// The number of files in the large tree.
pub const MILLION: usize = 1_000_000;

/// The number of directories in either tree.
const DIRECTORIES: usize = 1000;

const BIG: u64 = 8 << 30;

/// A directory with the files of a scene. It is the working directory until dropped.
#[derive(Debug)]
pub struct Files {
    directory: PathBuf,
    before: PathBuf,
}

impl Files {
    /// Creates the files, and leaves them cached and clean.
    pub fn make(scene: Scene) -> Result<Files> {
        progress("making files");
        // No disk unless necessary: inodes without data are quick to create in memory.
        let place = match scene {
            Scene::Million => PathBuf::from("/dev/shm"),
            _ => env::temp_dir(),
        };
        let directory = place.join(format!("taskdiag-bench-files.{}", std::process::id()));
        fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let files = Files {
            directory,
            before: env::current_dir()?,
        };
        env::set_current_dir(&files.directory)?;
        match scene {
            Scene::Sparse => sparse()?,
            Scene::Big => big()?,
            Scene::Tree => {
                tree(Path::new("tree"), TREE, by_directory, some_pages)?;
                tree(Path::new("empty"), 0, by_directory, some_pages)?;
                list()?;
            }
            Scene::Scattered => tree(Path::new("scattered"), TREE, in_turn, some_pages)?,
            Scene::Million => tree(Path::new("million"), MILLION, in_turn, |_| 0)?,
        }
        // SAFETY: no arguments.
        unsafe { libc::sync() };
        progress("");
        Ok(files)
    }

    /// The file system that contains the files.
    pub fn place(&self) -> String {
        let kind = said("stat", &["--file-system", "--format=%T", "."]);
        format!("on {}", kind.as_deref().unwrap_or("an unknown file system"))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = env::set_current_dir(&self.before);
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            eprintln!("{}: {error}", self.directory.display());
        }
    }
}

fn sparse() -> io::Result<()> {
    let file = File::create("sparse")?;
    file.set_len(SPARSE)?;
    file.write_all_at(b"x", SPARSE / 2)
}

fn big() -> io::Result<()> {
    let mut file = File::create("big")?;
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..BIG / piece.len() as u64 {
        file.write_all(&piece)?;
    }
    file.sync_all()
}

/// Creates a tree of files, one after the other. `place` gives the directory of each, `size` its
/// length.
fn tree(root: &Path, files: usize, place: fn(usize) -> usize, size: fn(usize) -> usize) -> io::Result<()> {
    let content = [b'x'; 16 << 10];
    for index in 0..DIRECTORIES {
        fs::create_dir_all(directory(root, index))?;
    }
    for index in 0..files {
        fs::write(
            directory(root, place(index)).join(format!("file-{index}")),
            &content[..size(index)],
        )?;
    }
    Ok(())
}

/// Fills one directory after the other, as unpacking an archive does.
fn by_directory(index: usize) -> usize {
    index / (TREE / DIRECTORIES)
}

/// One file in each directory, then the next: the kernel's objects for one directory are far apart.
fn in_turn(index: usize) -> usize {
    index % DIRECTORIES
}

fn some_pages(index: usize) -> usize {
    (4 << 10) + index % 3 * (4 << 10)
}

fn directory(root: &Path, index: usize) -> PathBuf {
    root.join(format!("{}/{}", index % 10, index))
}

/// Writes the names of the files in the tree, each ending in a NUL.
fn list() -> io::Result<()> {
    let mut list = io::BufWriter::new(File::create("list")?);
    for index in 0..TREE {
        let path = directory(Path::new("tree"), by_directory(index)).join(format!("file-{index}"));
        write!(list, "{}\0", path.display())?;
    }
    list.flush()
}
