//! Uses of files by the kernel itself, which no process has open.

use std::fs;

use taskdiag_core::text::process::{mounts, swaps, unescape};
use taskdiag_sys::host::proc_file;

use super::PathMatch;

/// A use of a file or a directory by the kernel itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelUse {
    /// What uses it: a loop device such as `loop0`, `swap`, or `mount`.
    pub by: String,
    /// The backing file, the swap file, or the mount point, from the caller's root.
    pub path: Vec<u8>,
}

impl PathMatch {
    /// What the kernel itself uses of the target, or below it: backing files of loop devices, swap
    /// files and mount points. They keep a file system busy, and no process has them open.
    pub fn kernel_uses(&self) -> Vec<KernelUse> {
        let read = |name: &str| fs::read(proc_file(name)).unwrap_or_default();
        let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let loops = devices.filter_map(|device| {
            let mut file = fs::read(device.path().join("loop/backing_file")).ok()?;
            // A line.
            file.pop();
            Some((device.file_name().to_string_lossy().into_owned(), file))
        });
        let (swap_text, mount_text) = (read("swaps"), read("self/mountinfo"));
        let of = |by: &'static str| move |path: &[u8]| (by.to_owned(), unescape(path).collect());
        let found = loops
            .chain(swaps(&swap_text).map(of("swap")))
            .chain(mounts(&mount_text).map(|mount| mount.point).map(of("mount")));
        found
            .filter(|(_, path)| self.is_part(path))
            .map(|(by, path)| KernelUse { by, path })
            .collect()
    }
}
