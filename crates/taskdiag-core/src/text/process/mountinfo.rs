//! The parser of `/proc/PID/mountinfo`.

use super::super::number::decimal;
use crate::mapping::Device;

/// A mount. Its paths are escaped: see [`unescape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount<'a> {
    /// Its id.
    pub id: u32,
    /// The device of its file system.
    pub device: Device,
    /// The part of the file system that is mounted.
    pub root: &'a [u8],
    /// Where it is mounted.
    pub point: &'a [u8],
    /// The type of the file system.
    pub kind: &'a [u8],
    /// The options of the file system.
    pub options: &'a [u8],
}

/// Parses `mountinfo`. Skips lines that do not describe a mount.
pub fn mounts(text: &[u8]) -> impl Iterator<Item = Mount<'_>> {
    text.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut words = line.split(|&byte| byte == b' ');
        let id = decimal(words.next()?)?.try_into().ok()?;
        let device = words.nth(1)?;
        let colon = device.iter().position(|&byte| byte == b':')?;
        let device = Device {
            major: decimal(&device[..colon])?.try_into().ok()?,
            minor: decimal(&device[colon + 1..])?.try_into().ok()?,
        };
        let (root, point) = (words.next()?, words.next()?);
        // Optional fields follow, then a dash, then the file system type and its source.
        words.find(|word| word == b"-")?;
        let kind = words.next()?;
        Some(Mount {
            id,
            device,
            root,
            point,
            kind,
            options: words.nth(1).unwrap_or_default(),
        })
    })
}

/// The mount points of a cgroup hierarchy, except those that show only a part of it: the one of
/// version 1 with a controller, or the unified one. The paths are escaped.
pub fn cgroup_mounts<'a>(text: &'a [u8], controller: Option<&'a str>) -> impl Iterator<Item = &'a [u8]> {
    let is_of = move |mount: &Mount<'_>| match controller {
        None => mount.kind == b"cgroup2",
        Some(name) => mount.kind == b"cgroup" && has_controller(mount.options, name),
    };
    let is_whole = |mount: &Mount<'_>| mount.root == b"/";
    mounts(text).filter(is_whole).filter(is_of).map(|mount| mount.point)
}

/// Whether a controller is in a list: options of a mount, or the controllers of
/// [`hierarchies`](super::hierarchies).
pub fn has_controller(list: &[u8], name: &str) -> bool {
    list.split(|&byte| byte == b',').any(|other| other == name.as_bytes())
}

/// The files and devices in `/proc/swaps`. Their paths are escaped, too.
pub fn swaps(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    // The first line has the names of the columns.
    let lines = text.split(|&byte| byte == b'\n').skip(1);
    lines.filter_map(|line| {
        line.split(|&byte| byte == b' ' || byte == b'\t')
            .next()
            .filter(|path| !path.is_empty())
    })
}

/// The bytes of a path in `mountinfo`, where the kernel replaces blanks, tabs, newlines and
/// backslashes with a backslash and three octal digits.
pub fn unescape(text: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mut rest = text;
    std::iter::from_fn(move || {
        if let [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] = rest {
            rest = tail;
            return Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
        }
        let (&first, tail) = rest.split_first()?;
        rest = tail;
        Some(first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the parts of a mount, and that lines that do not describe one are skipped.
    #[test]
    fn mounts_have_parts() {
        let text =
            b"31 23 0:28 /a /b\\040c rw shared:1 - tmpfs tmpfs rw\nx 23 0:28 / / rw - tmpfs tmpfs rw\n31 23 028 / /\n";
        let found: Vec<Mount<'_>> = mounts(text).collect();
        let expected = Mount {
            id: 31,
            device: Device { major: 0, minor: 28 },
            root: b"/a",
            point: b"/b\\040c",
            kind: b"tmpfs",
            options: b"rw",
        };
        assert_eq!(found, [expected]);
    }

    /// Check that swap files and devices are found.
    #[test]
    fn swaps_have_paths() {
        let text = b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
            /dev/vda2                               partition\t1048572\t\t0\t\t-2\n\
            /a\\040b\tfile\t\t1020\t\t0\t\t-3\n";
        assert!(swaps(text).eq([&b"/dev/vda2"[..], b"/a\\040b"]));
        assert_eq!(swaps(b"").count() + swaps(b"Filename Type\n").count(), 0);
    }

    /// Check that a mount of the whole unified hierarchy, or of one with a controller, is found under
    /// any name, and no other mount.
    #[test]
    fn mounts_of_cgroups() {
        let text = b"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n40 31 0:37 / /cpu rw - cgroup cgroup rw,cpu\n\
            41 31 0:38 /part /part rw - cgroup2 cgroup2 rw\n42 31 0:38 / /a\\040b\\134 rw shared:1 master:2 - cgroup2 cgroup2 rw\n";
        let paths: Vec<Vec<u8>> = cgroup_mounts(text, None).map(|path| unescape(path).collect()).collect();
        assert_eq!(paths, [b"/a b\\"]);
        assert!(cgroup_mounts(text, Some("cpu")).eq([b"/cpu"]));
        assert_eq!(cgroup_mounts(text, Some("cpuacct")).count(), 0);
    }
}
