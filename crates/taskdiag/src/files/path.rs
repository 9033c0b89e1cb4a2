//! Which files a path from the caller selects: one file, the files below a directory, or the files
//! of a file system.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags, CWD};
use rustix::io::Errno;
use taskdiag_bpf::files::Match;
use taskdiag_core::absent::{Absent, Known};
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::text::process;
use taskdiag_sys::host::proc_file;
use taskdiag_sys::isolated::{Failed, WorkFiles};

use super::procfs::own_link;
use super::{first, Device, OpenFile};
use crate::errands::{numbers, put_numbers, Errands};

/// The target of a path, for finding files that are the target or below it.
///
/// - A file: selects it by any of its names.
/// - A directory: selects it and everything below it.
/// - The root of a file system, where it is mounted: selects everything on that file system, by any
///   name, and everything on mounts below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMatch {
    device: Device,
    inode: u64,
    /// The path from the caller's root.
    path: Vec<u8>,
    /// The kernel's own number of the file system.
    kernel_device: Device,
    /// The kernel's own numbers, as in `maps`, equal those of stat(2).
    is_plain: bool,
    /// Set for a directory.
    tree: Option<Tree>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Tree {
    /// The path from the caller's root, with a slash at its end.
    prefix: Vec<u8>,
    /// The mounts that show it: its own, and those below it. Then the devices of these, as far as
    /// stat(2) shows them.
    mounts: Vec<u32>,
    devices: Vec<Device>,
    /// It is the root of a file system.
    is_whole: bool,
}

impl PathMatch {
    /// Resolves a path. Symbolic links are followed.
    ///
    /// # Errors
    ///
    /// [`System`](ErrorKind::System) or [`Denied`](ErrorKind::Denied) if the path can't be
    /// resolved, [`NoAnswer`](ErrorKind::NoAnswer) if a file system does not respond within the
    /// patience, [`NoThread`](ErrorKind::NoThread) if no process can be started and the kernel does
    /// not have the path in its cache.
    pub fn new(path: impl AsRef<Path>, patience: Duration) -> Result<PathMatch> {
        let path = path.as_ref();
        // A thread that walks a path may wait for a server, and then not even a fatal signal ends
        // the wait.
        let mut errands = Errands::new(patience);
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Failed::Errno(Errno::INVAL));
        let found = name.and_then(|name| match errands.run(find, [0; 3], &name, None) {
            // No process can be started. What the kernel knows already needs none.
            Err(Failed::Errno(Errno::AGAIN)) => {
                errands.stay_here();
                PathTarget::from_bytes(errands.run(find, [1, 0, 0], &name, None)?)
            }
            found => PathTarget::from_bytes(found?),
        });
        match found {
            Err(Failed::Errno(Errno::AGAIN | Errno::NOSYS)) if errands.is_here() => {
                let error = Error::not_read(None, Absent::NoThread);
                Err(Error::new(error.kind(), format!("{}: {error}", path.display())))
            }
            Ok(place) => {
                let mounts = std::fs::read(proc_file("self/mountinfo")).unwrap_or_default();
                Ok(place.seen_by(&mounts))
            }
            Err(Failed::Errno(errno)) => Err(Error::io(path.display().to_string(), errno)),
            Err(Failed::Silent) => Err(Error::new(
                ErrorKind::NoAnswer,
                format!("{}: no answer from its file system", path.display()),
            )),
        }
    }

    /// A whole file system, by its device as in stat(2), wherever it is mounted.
    pub(crate) fn file_system(device: u64) -> PathMatch {
        let device = Device {
            major: rustix::fs::major(device),
            minor: rustix::fs::minor(device),
        };
        PathMatch {
            device,
            inode: 0,
            path: Vec::new(),
            kernel_device: device,
            is_plain: false,
            tree: Some(Tree {
                // No path starts like this.
                prefix: b"\0".to_vec(),
                mounts: Vec::new(),
                devices: Vec::new(),
                is_whole: true,
            }),
        }
    }

    /// Whether a file is the target or below it, or why that is not known.
    pub(super) fn is_about(&self, file: &OpenFile<'_>) -> Known<bool> {
        let (device, inode) = (file.device?, file.inode?);
        if (device, inode) == (self.device, self.inode) {
            return Ok(true);
        }
        let Some(tree) = &self.tree else { return Ok(false) };
        if tree.is_whole && device == self.device {
            return Ok(true);
        }
        // A file of the same name in another mount namespace is at another place.
        let is_device_here = device == self.device || tree.devices.contains(&device);
        let is_mount_here = || Ok(tree.mounts.contains(&file.mnt_id?));
        let is_here = if is_device_here { Ok(true) } else { is_mount_here() };
        let is_below = file.name.map(|name| name.starts_with(&tree.prefix));
        first(false, [is_here, is_below])
    }

    /// Whether the file that a UNIX socket is bound to is the target or below it. `name` is what the
    /// process gave to bind(2): a path from its own root, or from a working directory that is not
    /// known any more.
    pub(crate) fn is_about_socket(&self, (device, inode): (Device, u32), name: Option<&[u8]>) -> Known<bool> {
        let name = name.filter(|name| name.starts_with(b"/")).ok_or(Absent::Unsupported);
        let is_on_device = device == self.kernel_device;
        match &self.tree {
            None if self.is_plain => Ok(is_on_device && inode == self.inode as u32),
            None => first(false, [Ok(is_on_device), name.map(|name| name == self.path)]),
            Some(tree) if tree.is_whole && is_on_device => Ok(true),
            Some(tree) => {
                let is_here = is_on_device || tree.devices.contains(&device);
                first(false, [Ok(is_here), name.map(|name| name.starts_with(&tree.prefix))])
            }
        }
    }

    /// Whether the kernel's use of a path is one of the target, or below it.
    pub(super) fn is_part(&self, path: &[u8]) -> bool {
        match &self.tree {
            None => path == self.path,
            // Not its own mount point.
            Some(tree) => path.starts_with(&tree.prefix) && path != self.path,
        }
    }

    /// Whether the target is a directory, so that names and mounts decide.
    pub(super) fn is_tree(&self) -> bool {
        self.tree.is_some()
    }

    /// Whether a mapped file may be the target or below it, according to `maps`.
    pub(super) fn may_be_about(&self, device: Device, inode: u64, name: &[u8]) -> bool {
        if !self.is_plain || (device, inode) == (self.device, self.inode) {
            return true;
        }
        let Some(tree) = &self.tree else { return false };
        tree.is_whole && device == self.device || name.starts_with(&tree.prefix)
    }

    /// The file by the kernel's own numbers. `None` if these numbers do not decide.
    pub(super) fn kernel_match(&self) -> Option<Match> {
        (self.is_plain && self.tree.is_none()).then_some(kernel_match(self.device, self.inode))
    }
}

/// A file by the kernel's own numbers.
pub(super) fn kernel_match(device: Device, inode: u64) -> Match {
    Match {
        dev_major: device.major,
        dev_minor: device.minor,
        inode,
    }
}

/// What a path leads to.
#[derive(Clone, Debug)]
struct PathTarget {
    device: Device,
    inode: u64,
    /// Its mount, if the kernel reports it (Linux 5.8), and whether it is the root of that mount.
    mount: Option<u32>,
    is_mount: bool,
    is_directory: bool,
    /// The path from the caller's root.
    path: Vec<u8>,
}

/// An errand: resolves a path. Writes numbers, followed by the path from the caller's root. Only the
/// lookup of the path itself can wait; if the first number is 1, it fails instead (Linux 5.12).
fn find(
    _: &mut WorkFiles,
    [is_cached, ..]: [u64; 3],
    path: &CStr,
    room: &mut [u8],
) -> std::result::Result<usize, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let place = match is_cached {
        0 => rustix::fs::openat(CWD, path, flags, Mode::empty()),
        _ => rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED),
    }?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(&place, c"", flags, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
    let has_mount = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    let is_directory = u32::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFDIR;
    let about = [
        stat.stx_dev_major.into(),
        stat.stx_dev_minor.into(),
        stat.stx_ino,
        if has_mount { stat.stx_mnt_id } else { u64::MAX },
        stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT).into(),
        is_directory.into(),
    ];
    let len = put_numbers(about, room);
    match own_link(&place, &mut room[len..]) {
        Err(errno) if is_directory => Err(errno),
        // Only the directory of a tree has to have a name.
        path => Ok(len + path.unwrap_or(0)),
    }
}

/// File systems on which stat(2) returns the numbers of the kernel's inode.
const PLAIN: [&[u8]; 10] = [
    b"ext2",
    b"ext3",
    b"ext4",
    b"xfs",
    b"f2fs",
    b"tmpfs",
    b"devtmpfs",
    b"ramfs",
    b"rootfs",
    b"devpts",
];

impl PathTarget {
    fn from_bytes(bytes: &[u8]) -> std::result::Result<PathTarget, Failed> {
        let read = numbers(bytes).zip(bytes.get(6 * 8..));
        let ([major, minor, inode, mount, is_mount, is_directory], path) = read.ok_or(Failed::Errno(Errno::IO))?;
        Ok(PathTarget {
            device: Device {
                major: major as u32,
                minor: minor as u32,
            },
            inode,
            mount: u32::try_from(mount).ok(),
            is_mount: is_mount != 0,
            is_directory: is_directory != 0,
            path: path.to_vec(),
        })
    }

    /// The target of the path for a process that sees these mounts (`mountinfo`).
    fn seen_by(self, mounts: &[u8]) -> PathMatch {
        let own = process::mounts(mounts).find(|mount| Some(mount.id) == self.mount);
        let is_whole = self.is_mount && own.is_some_and(|own| own.root == b"/");
        PathMatch {
            device: self.device,
            inode: self.inode,
            is_plain: own.is_some_and(|own| PLAIN.contains(&own.kind)),
            kernel_device: own.map_or(self.device, |own| own.device),
            tree: self
                .is_directory
                .then(|| tree(self.path.clone(), self.mount, is_whole, mounts)),
            path: self.path,
        }
    }
}

fn tree(mut prefix: Vec<u8>, own: Option<u32>, is_whole: bool, mounts: &[u8]) -> Tree {
    if !prefix.ends_with(b"/") {
        prefix.push(b'/');
    }
    let mut tree = Tree {
        prefix,
        mounts: own.into_iter().collect(),
        devices: Vec::new(),
        is_whole,
    };
    for mount in process::mounts(mounts) {
        let point: Vec<u8> = process::unescape(mount.point).collect();
        if point.starts_with(&tree.prefix) {
            tree.mounts.push(mount.id);
            if !tree.devices.contains(&mount.device) {
                tree.devices.push(mount.device);
            }
        }
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;

    fn named<'a>(name: &'a [u8], device: Device, inode: u64) -> OpenFile<'a> {
        OpenFile {
            used_as: Use::Cwd,
            fd: None,
            tid: None,
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
            peers: Ok(None),
            bpf_name: Ok(None),
        }
    }

    /// Check which files are selected by a file, a directory and the root of a file system.
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
            path: b"/x".to_vec(),
            kernel_device: here,
            is_plain: true,
            tree: None,
        };
        let is_about = |place: &PathMatch, name: &str, device, inode| {
            place.is_about(&named(name.as_bytes(), device, inode)) == Ok(true)
        };
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
        assert_eq!(place.is_about(&by_mount), Ok(true));
        assert!(place.may_be_about(other, 1, b"/a/b") && !place.may_be_about(here, 1, b"/ab"));
        assert!(place.may_be_about(here, 7, b"") && place.kernel_match().is_none());
        assert!(!is_about(&place, "/ab", here, 1) && !is_about(&place, "/a/b", other, 1));
        let unknown = OpenFile {
            inode: Err(Absent::Denied),
            ..named(b"/a/b", here, 1)
        };
        assert_eq!(place.is_about(&unknown), Err(Absent::Denied));
        // An unknown name may have any beginning, where the beginning matters.
        let unnamed = |device| OpenFile {
            name: Err(Absent::Truncated),
            ..named(b"", device, 1)
        };
        assert_eq!(place.is_about(&unnamed(here)), Err(Absent::Truncated));
        assert_eq!(place.is_about(&unnamed(other)), Ok(false));
        place.tree.as_mut().expect("a tree").is_whole = true;
        assert!(is_about(&place, "/elsewhere", here, 1) && !is_about(&place, "/elsewhere", below, 1));
    }

    /// Check that a socket is found by its file where the kernel's numbers are those of stat(2), and
    /// otherwise by its name and the kernel's file system, and that a relative name is not known.
    #[test]
    fn paths_are_about_sockets() {
        let (here, other) = (Device { major: 8, minor: 1 }, Device { major: 0, minor: 9 });
        let mut place = PathMatch {
            device: here,
            inode: 1 << 32 | 7,
            path: b"/a".to_vec(),
            kernel_device: here,
            is_plain: true,
            tree: None,
        };
        let is_about = |place: &PathMatch, device, inode, name: &str| {
            place.is_about_socket((device, inode), Some(name.as_bytes()))
        };
        let unknown = Err(Absent::Unsupported);
        assert_eq!(is_about(&place, here, 7, "other"), Ok(true));
        assert_eq!(
            (is_about(&place, here, 8, "/a"), is_about(&place, other, 7, "/a")),
            (Ok(false), Ok(false))
        );
        (place.is_plain, place.kernel_device) = (false, other);
        assert_eq!(
            (is_about(&place, other, 8, "/a"), is_about(&place, other, 7, "/b")),
            (Ok(true), Ok(false))
        );
        assert_eq!(
            (is_about(&place, other, 7, "a"), is_about(&place, here, 7, "a")),
            (unknown, Ok(false))
        );
        place.tree = Some(tree(b"/a".to_vec(), None, false, b""));
        assert_eq!(
            (is_about(&place, other, 1, "/a/b"), is_about(&place, here, 1, "/a/b")),
            (Ok(true), Ok(false))
        );
        assert_eq!(
            (is_about(&place, other, 1, "b"), is_about(&place, other, 1, "/ab")),
            (unknown, Ok(false))
        );
        place.tree.as_mut().expect("a tree").is_whole = true;
        assert_eq!(is_about(&place, other, 1, "b"), Ok(true));
    }

    /// Check the result for a place and the mounts that the caller sees.
    #[test]
    fn mounts_decide_what_is_below() {
        let mounts = b"20 1 8:1 / / rw - ext4 /dev/a rw\n\
            30 20 0:40 / /a rw - btrfs /dev/b rw\n\
            31 20 0:41 / /a rw - tmpfs tmp rw\n\
            32 31 0:42 /part /a/b\\040c rw shared:1 - fuse.x x rw\n\
            33 20 0:43 / /ab rw - xfs /dev/c rw\n";
        let place = |mount, is_mount, directory: Option<&str>| {
            let place = PathTarget {
                device: Device { major: 0, minor: 41 },
                inode: 1,
                mount,
                is_mount,
                is_directory: directory.is_some(),
                path: directory.unwrap_or("/x").as_bytes().to_vec(),
            };
            place.seen_by(mounts)
        };
        let whole = place(Some(31), true, Some("/a"));
        let tree = whole.tree.expect("a directory");
        assert_eq!((&tree.prefix[..], tree.is_whole), (&b"/a/"[..], true));
        assert_eq!(tree.mounts, [31, 32]);
        assert_eq!(tree.devices, [Device { major: 0, minor: 42 }]);
        assert!(whole.is_plain);
        let whole = |mount, is_mount| place(mount, is_mount, Some("/a")).tree.expect("a directory").is_whole;
        // A part of a file system, a directory that is not a mount point, a mount of another
        // namespace.
        assert!(!whole(Some(32), true) && !whole(Some(31), false) && !whole(Some(99), true) && !whole(None, true));
        let is_plain = |mount| place(mount, false, None).is_plain;
        assert!(is_plain(Some(20)) && is_plain(Some(33)));
        assert!(!is_plain(Some(30)) && !is_plain(Some(32)) && !is_plain(Some(99)) && !is_plain(None));
        let root = place(Some(20), true, Some("/")).tree.expect("a directory");
        assert_eq!((&root.prefix[..], root.is_whole), (&b"/"[..], true));
    }

    /// Check that paths of this host are found, and that a path that does not exist is an error.
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
