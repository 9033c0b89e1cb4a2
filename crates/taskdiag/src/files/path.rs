//! Which files a path of the caller is about: a file, the files below a directory, or a file
//! system.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags, CWD};
use rustix::io::Errno;
use taskdiag_bpf::files::Match;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::text::process;

use super::{Device, OpenFile};
use crate::readers;

/// What a path leads to, to find the files that are that or are below it.
///
/// - A file: whoever has that file, by whatever name.
/// - A directory: whoever has it or something below it.
/// - The root of a file system, where it is mounted: whoever has something on that file system, by
///   whatever name, or something mounted below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMatch {
    device: Device,
    inode: u64,
    /// The kernel's own numbers, as in `maps`, are those of stat(2).
    is_plain: bool,
    /// If it is a directory.
    tree: Option<Tree>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Tree {
    /// The path from the caller's root, with a slash at its end.
    prefix: Vec<u8>,
    /// The mounts that show it: its own, and those below it. The devices of these, as far as
    /// stat(2) shows them.
    mounts: Vec<u32>,
    devices: Vec<Device>,
    /// It is the root of a file system.
    is_whole: bool,
}

impl PathMatch {
    /// Looks where a path leads. Symbolic links are followed.
    ///
    /// # Errors
    ///
    /// [`System`](ErrorKind::System) or [`Denied`](ErrorKind::Denied) if it leads nowhere,
    /// [`NoAnswer`](ErrorKind::NoAnswer) if a file system does not say so within the patience.
    pub fn new(path: impl AsRef<Path>, patience: Duration) -> Result<PathMatch> {
        let path = path.as_ref().to_owned();
        let shown = path.display().to_string();
        let found = readers::call(0, 0, patience, move || find(&path));
        found.unwrap_or_else(|| {
            Err(Error::new(
                ErrorKind::NoAnswer,
                format!("{shown}: no answer from its file system"),
            ))
        })
    }

    /// Whether a file is that, or below it.
    pub(super) fn is_about(&self, file: &OpenFile<'_>) -> bool {
        let (Ok(device), Ok(inode)) = (file.device, file.inode) else {
            return false;
        };
        if (device, inode) == (self.device, self.inode) {
            return true;
        }
        let Some(tree) = &self.tree else { return false };
        if tree.is_whole && device == self.device {
            return true;
        }
        let is_below = file.name.is_ok_and(|name| name.starts_with(&tree.prefix));
        // A file of the same name in another mount namespace is somewhere else.
        let is_here = || {
            let is_shown = file.mnt_id.is_ok_and(|id| tree.mounts.contains(&id));
            is_shown || device == self.device || tree.devices.contains(&device)
        };
        is_below && is_here()
    }

    /// Whether it is a directory, so that names and mounts decide.
    pub(super) fn is_tree(&self) -> bool {
        self.tree.is_some()
    }

    /// Whether a mapped file may be that, or below it, by what `maps` says.
    pub(super) fn may_be_about(&self, device: Device, inode: u64, name: &[u8]) -> bool {
        if !self.is_plain || (device, inode) == (self.device, self.inode) {
            return true;
        }
        let Some(tree) = &self.tree else { return false };
        tree.is_whole && device == self.device || name.starts_with(&tree.prefix)
    }

    /// The file by the kernel's own numbers. `None` if they do not decide.
    pub(super) fn kernel_match(&self) -> Option<Match> {
        (self.is_plain && self.tree.is_none()).then_some(Match {
            dev_major: self.device.major,
            dev_minor: self.device.minor,
            inode: self.inode,
        })
    }
}

fn find(path: &Path) -> Result<PathMatch> {
    let failed = |errno: Errno| Error::io(path.display().to_string(), errno);
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let place = rustix::fs::openat(CWD, path.as_os_str().as_bytes(), flags, Mode::empty()).map_err(failed)?;
    readers::beat();
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(&place, c"", flags, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID).map_err(failed)?;
    let device = Device {
        major: stat.stx_dev_major,
        minor: stat.stx_dev_minor,
    };
    readers::beat();
    let is_plain = rustix::fs::fstatfs(&place).is_ok_and(|system| PLAIN.contains(&(system.f_type as u64)));
    let is_directory = u32::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFDIR;
    let tree = if is_directory {
        let is_mount = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        let mut tree = tree(place.as_fd(), is_mount).map_err(failed)?;
        let has_mount = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        tree.mounts
            .extend(u32::try_from(stat.stx_mnt_id).ok().filter(|_| has_mount));
        Some(tree)
    } else {
        None
    };
    Ok(PathMatch {
        device,
        inode: stat.stx_ino,
        is_plain,
        tree,
    })
}

/// File systems whose stat(2) shows the numbers that the kernel's inode has (linux/magic.h): ext2 to
/// ext4, XFS, tmpfs, ramfs, F2FS, devpts.
const PLAIN: [u64; 6] = [0xef53, 0x5846_5342, 0x0102_1994, 0x8584_58f6, 0xf2f5_2010, 0x1cd1];

fn tree(directory: BorrowedFd<'_>, is_mount: bool) -> std::result::Result<Tree, Errno> {
    let mut prefix = super::procfs::own_link(directory)?;
    if !prefix.ends_with(b"/") {
        prefix.push(b'/');
    }
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut tree = Tree {
        mounts: Vec::new(),
        devices: Vec::new(),
        is_whole: false,
        prefix,
    };
    for mount in process::mounts(&mounts) {
        let mut point: Vec<u8> = process::unescape(mount.point).collect();
        if !point.ends_with(b"/") {
            point.push(b'/');
        }
        if point == tree.prefix {
            // The last mount there hides the others.
            tree.is_whole = is_mount && mount.root == b"/";
        } else if point.starts_with(&tree.prefix) {
            tree.mounts.push(mount.id);
            if !tree.devices.contains(&mount.device) {
                tree.devices.push(mount.device);
            }
        }
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;

    fn named<'a>(name: &'a [u8], device: Device, inode: u64) -> OpenFile<'a> {
        OpenFile {
            used_as: Use::Cwd,
            fd: None,
            open_flags: Ok(None),
            offset_bytes: Ok(None),
            mnt_id: Ok(1),
            kind: Ok(Kind::File),
            size_bytes: Ok(0),
            allocated_bytes: Ok(0),
            device: Ok(device),
            inode: Ok(inode),
            nlink: Ok(1),
            name: Ok(name),
            detail: Ok(None),
        }
    }

    /// Check which files a file, a directory and the root of a file system are about.
    #[test]
    fn paths_are_about_files() {
        let (here, below, other) = (
            Device { major: 8, minor: 1 },
            Device { major: 0, minor: 9 },
            Device { major: 0, minor: 8 },
        );
        let mut place = PathMatch {
            device: here,
            inode: 7,
            is_plain: true,
            tree: None,
        };
        let is_about =
            |place: &PathMatch, name: &str, device, inode| place.is_about(&named(name.as_bytes(), device, inode));
        assert!(is_about(&place, "/whatever", here, 7));
        assert!(!is_about(&place, "/a", other, 7) && !is_about(&place, "/a", here, 8));
        place.tree = Some(Tree {
            prefix: b"/a/".to_vec(),
            mounts: vec![5],
            devices: vec![below],
            is_whole: false,
        });
        assert!(is_about(&place, "/a", here, 7) && is_about(&place, "/a/b", here, 1));
        assert!(is_about(&place, "/a/b (deleted)", here, 1) && is_about(&place, "/a/mnt/c", below, 1));
        let by_mount = OpenFile {
            mnt_id: Ok(5),
            ..named(b"/a/b", other, 1)
        };
        assert!(place.is_about(&by_mount));
        assert!(place.may_be_about(other, 1, b"/a/b") && !place.may_be_about(here, 1, b"/ab"));
        assert!(place.may_be_about(here, 7, b"") && place.kernel_match().is_none());
        assert!(!is_about(&place, "/ab", here, 1) && !is_about(&place, "/a/b", other, 1));
        let unknown = OpenFile {
            inode: Err(Absent::Denied),
            ..named(b"/a/b", here, 1)
        };
        assert!(!place.is_about(&unknown));
        place.tree.as_mut().expect("a tree").is_whole = true;
        assert!(is_about(&place, "/elsewhere", here, 1) && !is_about(&place, "/elsewhere", below, 1));
    }

    /// Check that paths of this host are found, and that what leads nowhere is an error.
    #[test]
    fn paths_lead_somewhere() {
        let patience = Duration::from_secs(5);
        let null = PathMatch::new("/dev/null", patience).expect("it exists");
        assert_eq!(null.tree, None);
        let root = PathMatch::new("/proc", patience)
            .expect("it exists")
            .tree
            .expect("a directory");
        assert_eq!((&root.prefix[..], root.is_whole), (&b"/proc/"[..], true));
        let error = PathMatch::new("/no/such/path", patience).expect_err("it leads nowhere");
        assert_eq!(error.kind(), ErrorKind::System);
    }
}
