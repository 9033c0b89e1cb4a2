//! File systems, block devices and huge pages that a test makes for itself.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::ops::Deref;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use rustix::mount::{mount, unmount, MountFlags, UnmountFlags};

/// A mounted overlay. It is unmounted when this is dropped.
#[derive(Debug)]
pub struct Overlay(PathBuf);

impl Deref for Overlay {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Mounts an overlay of an empty directory over `lower`, in `directory`. Only for a second process,
/// whose mounts are its own.
pub fn overlay(directory: &Path, lower: &Path, options: &str) -> Overlay {
    let [upper, work, merged] = ["upper", "work", "merged"].map(|name| {
        let path = directory.join(name);
        fs::create_dir_all(&path).expect("a directory");
        path
    });
    let options = format!(
        "lowerdir={},upperdir={},workdir={}{options}",
        lower.display(),
        upper.display(),
        work.display()
    );
    let options = CString::new(options).expect("no NUL");
    mount(c"overlay", &merged, c"overlay", MountFlags::empty(), &*options).expect("an overlay");
    Overlay(merged)
}

/// A block device whose content is that of a file: a loop device. It is released when it is dropped
/// and nobody has it open.
#[derive(Debug)]
pub struct BlockDevice {
    pub file: File,
    pub path: PathBuf,
}

impl BlockDevice {
    pub fn of(content: &File) -> BlockDevice {
        const LOOP_CTL_GET_FREE: u64 = 0x4c82;
        const LOOP_CONFIGURE: u64 = 0x4c0a;
        const LO_FLAGS_AUTOCLEAR: u32 = 4;
        let control = File::open("/dev/loop-control").expect("loop devices");
        loop {
            // SAFETY: no pointers.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
            assert!(number >= 0, "a loop device: {}", std::io::Error::last_os_error());
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .expect("a loop device");
            // `struct loop_config`: the descriptor, the size of a block, `struct loop_info64`.
            let mut config = [0_u32; 76];
            config[0] = content.as_raw_fd() as u32;
            config[2 + 13] = LO_FLAGS_AUTOCLEAR;
            // SAFETY: the structure has the kernel's layout.
            match unsafe { libc::ioctl(file.as_raw_fd(), LOOP_CONFIGURE as _, config.as_ptr()) } {
                0 => return BlockDevice { file, path },
                // Another test was faster.
                _ => assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBUSY)),
            }
        }
    }
}

/// The counts of cachestat(2) for a whole file, or the error: cached, dirty, under writeback,
/// evicted and recently evicted pages.
pub fn cachestat(file: &File) -> std::io::Result<[u64; 5]> {
    const SYS_CACHESTAT: libc::c_long = libc::SYS_pidfd_open + 17;
    let (range, mut counts) = ([0_u64; 2], [0_u64; 5]);
    let descriptor = file.as_raw_fd();
    // SAFETY: both structures have the kernel's layout.
    match unsafe { libc::syscall(SYS_CACHESTAT, descriptor, range.as_ptr(), counts.as_mut_ptr(), 0) } {
        0 => Ok(counts),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Huge pages that were added to the pool. They are removed at the end.
#[derive(Debug)]
pub struct HugePages(u64);

impl HugePages {
    const PATH: &str = "/proc/sys/vm/nr_hugepages";

    fn count() -> Result<u64, String> {
        let text = fs::read_to_string(HugePages::PATH).map_err(|error| format!("{}: {error}", HugePages::PATH))?;
        text.trim()
            .parse()
            .map_err(|_| format!("{}: {text:?}", HugePages::PATH))
    }

    pub fn add(count: u64) -> Result<HugePages, String> {
        let before = HugePages::count()?;
        let set = HugePages(before);
        fs::write(HugePages::PATH, (before + count).to_string())
            .map_err(|error| format!("{}: {error}", HugePages::PATH))?;
        match HugePages::count()? {
            now if now == before + count => Ok(set),
            _ => Err("there is no whole huge page of free memory".to_owned()),
        }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(HugePages::PATH, self.0.to_string());
    }
}
