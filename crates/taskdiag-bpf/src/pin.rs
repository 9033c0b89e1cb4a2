//! Pinned programs, which handles of any process can use without loading one.
//!
//! A program reads every task, whoever owns it, so only root can open the pins. Their path contains
//! the versions of the record and of the program, so a library finds only programs that it could
//! have loaded itself.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::field::Groups;
use taskdiag_core::record;
use taskdiag_sys::bpf::object_pin;

use crate::load::kernel_btf;
use crate::network::{Network, COUNTERS, TABLE};
use crate::pass::{load_called, PINNED, READERS};
use crate::recipe;

const BPF_FS: &str = "/sys/fs/bpf";
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;

/// The directory of the pinned programs.
pub fn directory() -> PathBuf {
    Path::new(BPF_FS).join(format!("taskdiag-{}-{:016x}", record::ABI, digest()))
}

/// A version of the programs: FNV-1a over their instructions, 64 bits at a time.
fn digest() -> u64 {
    let recipes = [&recipe::TASK_CALLED, &recipe::NET].into_iter().flatten();
    let programs = recipes.flat_map(|recipe| recipe.programs);
    programs
        .flat_map(|program| program.instructions)
        .fold(0xcbf2_9ce4_8422_2325, |hash, &instruction| {
            (hash ^ instruction).wrapping_mul(0x100_0000_01b3)
        })
}

/// Pins the programs, and returns their directory. They stay until [`unpin`] or the next boot. With
/// `network`, some count what processes send and receive.
pub fn pin(network: bool) -> Result<PathBuf> {
    let directory = directory();
    mount_bpf_fs()?;
    let network = network.then(Network::count).transpose()?;
    let table = network.as_ref().map(Network::table);
    let (program, readers) = load_called(Groups::ALL.or(Groups::TESTABLE), kernel_btf()?.bytes(), table)?;
    remove(&directory).map_err(|error| failed(&directory, error))?;
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&directory)
        .map_err(|error| failed(&directory, error))?;
    // The map of readers comes last: if it exists, the pins are complete.
    let counted = network.iter().flat_map(Network::objects);
    let objects = counted.chain([(PINNED, program.as_fd()), (READERS, readers.as_fd())]);
    for (name, object) in objects {
        let path = directory.join(name);
        let text = CString::new(path.as_os_str().as_bytes()).expect("the path has no NUL");
        if let Err(error) = object_pin(object, &text) {
            let _ = remove(&directory);
            return Err(failed(&path, error));
        }
    }
    Ok(directory)
}

/// Removes the pinned programs, and returns their directory. `None` if there were none.
pub fn unpin() -> Result<Option<PathBuf>> {
    let directory = directory();
    match remove(&directory) {
        Ok(true) => Ok(Some(directory)),
        Ok(false) => Ok(None),
        Err(error) => Err(failed(&directory, error)),
    }
}

fn remove(directory: &Path) -> io::Result<bool> {
    if let Some(network) = Network::pinned(directory) {
        network.end();
    }
    for name in [READERS, PINNED, TABLE].into_iter().chain(COUNTERS) {
        was_removed(fs::remove_file(directory.join(name)))?;
    }
    was_removed(fs::remove_dir(directory))
}

/// False if there was nothing to remove.
fn was_removed(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Mounts the BPF file system if it is not mounted.
pub fn mount_bpf_fs() -> Result<()> {
    match rustix::fs::statfs(BPF_FS) {
        Ok(found) if found.f_type == BPF_FS_MAGIC => Ok(()),
        Ok(_) => rustix::mount::mount(
            "bpf",
            BPF_FS,
            "bpf",
            MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
            None,
        )
        .map_err(|error| {
            Error::io(
                format!("mounting the BPF file system on {BPF_FS} (only root can do that)"),
                io::Error::from(error),
            )
        }),
        Err(error) => Err(failed(Path::new(BPF_FS), error.into())),
    }
}

fn failed(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Error::new(
            ErrorKind::Denied,
            format!("{}: {error}; only root can pin and unpin programs", path.display()),
        ),
        _ => Error::io(path.display().to_string(), error),
    }
}
