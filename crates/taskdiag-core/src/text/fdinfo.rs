//! The parser of `/proc/PID/fdinfo/FD`.

use super::number::{decimal, octal, signed};

/// What `fdinfo` has for every descriptor, and the lines that only some descriptors have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdInfo<'a> {
    /// The offset. Memory devices have negative ones.
    pub offset_bytes: i64,
    /// The flags of open(2), with `O_CLOEXEC` if the descriptor is closed on execve(2).
    pub flags: u32,
    /// The mount that the file was opened on (Linux 3.15).
    pub mnt_id: Option<u32>,
    /// The kernel's own inode number (Linux 5.14). stat(2) returns another number on some file
    /// systems.
    pub inode: Option<u64>,
    /// The other lines.
    pub detail: &'a [u8],
}

/// Parses `fdinfo`.
pub fn fdinfo(text: &[u8]) -> Option<FdInfo<'_>> {
    let (offset, rest) = member(text, b"pos:")?;
    let (flags, rest) = member(rest, b"flags:")?;
    let mut info = FdInfo {
        offset_bytes: signed(offset)?,
        flags: u32::try_from(octal(flags)?).ok()?,
        mnt_id: None,
        inode: None,
        detail: rest,
    };
    if let Some((id, rest)) = member(info.detail, b"mnt_id:") {
        info.mnt_id = Some(decimal(id)?.try_into().ok()?);
        info.detail = rest;
    }
    if let Some((inode, rest)) = member(info.detail, b"ino:") {
        info.inode = Some(decimal(inode)?);
        info.detail = rest;
    }
    Some(info)
}

/// The value of the first line, if it has this key, and the lines after it.
fn member<'a>(text: &'a [u8], key: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let rest = text.strip_prefix(key)?;
    let end = rest.iter().position(|&byte| byte == b'\n')?;
    Some((rest[..end].trim_ascii(), &rest[end + 1..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Check a text of each age, and that an invalid number gives no result.
    #[test]
    fn texts_are_parsed() {
        let text =
            b"pos:\t0\nflags:\t02000002\nmnt_id:\t16\nino:\t1059\neventfd-count:                3\neventfd-id: 7\n";
        let info = fdinfo(text).expect("it is one");
        assert_eq!(
            (info.offset_bytes, info.flags, info.mnt_id, info.inode),
            (0, 0o2_000_002, Some(16), Some(1059))
        );
        assert_eq!(info.detail, b"eventfd-count:                3\neventfd-id: 7\n");
        let old = fdinfo(b"pos:\t-4096\nflags:\t0100000\n").expect("it is one");
        assert_eq!((old.offset_bytes, old.mnt_id, old.detail), (-4096, None, &b""[..]));
        for text in [
            &b""[..],
            b"pos:\t1",
            b"pos:\tx\nflags:\t0\n",
            b"pos:\t0\nflags:\t8\n",
            b"pos:\t0\nflags:\t0\nmnt_id:\t-1\n",
            b"pos:\t0\nflags:\t0\nino:\tx\n",
        ] {
            assert_eq!(fdinfo(text), None, "{}", text.escape_ascii());
        }
    }

    proptest! {
        /// Check that any bytes can be parsed.
        #[test]
        fn any_bytes_parse(text: Vec<u8>) {
            let _ = fdinfo(&text);
        }

        /// Check that lines that look right can be parsed, whatever their values are.
        #[test]
        fn any_lines_parse(lines in r"(pos:\t[-0-9]{0,30}\n)?(flags:\t[0-9]{0,30}\n)?(mnt_id:\t[0-9]{0,30}\n)?(ino:[ -~]{0,30}\n)?") {
            let _ = fdinfo(lines.as_bytes());
        }
    }
}
