//! The text of `/proc/PID/maps` and `/proc/PID/smaps`: bytes in, values out, no I/O.

use crate::mapping::{Device, Perms, Usage};

/// The line of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // as of a Mapping
pub struct Line<'a> {
    pub start: u64,
    pub end: u64,
    pub perms: Perms,
    pub offset_bytes: u64,
    pub device: Device,
    pub inode: u64,
    /// As it stands there: [`unescape`] makes a name of it.
    pub name: &'a [u8],
}

/// The kernel's page that every process can call, which is in the text of most but is no mapping of theirs.
pub const VSYSCALL: &[u8] = b"[vsyscall]";

/// The addresses at the beginning of a line, and the rest of it. `None` if it is not the line of a mapping.
pub fn range(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (start, rest) = hex(line)?;
    let (end, rest) = hex(rest.strip_prefix(b"-")?)?;
    let rest = rest.strip_prefix(b" ")?;
    (start < end).then_some((start, end, rest))
}

/// All of a line, without its newline.
pub fn line(text: &[u8]) -> Option<Line<'_>> {
    let (start, end, rest) = range(text)?;
    let (perms, rest) = rest.split_at_checked(4)?;
    let (offset_bytes, rest) = hex(rest.strip_prefix(b" ")?)?;
    let (major, rest) = hex(rest.strip_prefix(b" ")?)?;
    let (minor, rest) = hex(rest.strip_prefix(b":")?)?;
    let (inode, rest) = decimal(rest.strip_prefix(b" ")?)?;
    let name_at = rest.iter().position(|&byte| byte != b' ').unwrap_or(rest.len());
    if name_at == 0 && !rest.is_empty() {
        return None;
    }
    Some(Line {
        start,
        end,
        perms: Perms::parse(perms)?,
        offset_bytes,
        device: Device {
            major: u32::try_from(major).ok()?,
            minor: u32::try_from(minor).ok()?,
        },
        inode,
        name: &rest[name_at..],
    })
}

/// Takes in a line of smaps that is not a mapping's own: `Rss:   8 kB`. False if it can't be one.
pub fn detail(line: &[u8], usage: &mut Usage, page_size_bytes: &mut u64) -> bool {
    let Some(colon) = line.iter().position(|&byte| byte == b':') else {
        return false;
    };
    let (key, rest) = (&line[..colon], line[colon + 1..].trim_ascii());
    let kib = || Some(decimal(rest.strip_suffix(b" kB")?.trim_ascii())?.0.saturating_mul(1024));
    let place = match key {
        b"Rss" => &mut usage.rss_bytes,
        b"Shared_Dirty" | b"Private_Dirty" => &mut usage.dirty_bytes,
        b"KernelPageSize" => page_size_bytes,
        _ => return key.first().is_some_and(u8::is_ascii_uppercase),
    };
    let Some(bytes) = kib() else { return false };
    *place = place.saturating_add(bytes);
    true
}

/// Appends a name as it is, from how the text has it: `\012` stands for a newline there, and nothing else is escaped. A name
/// that really has these four bytes can't be told from one with a newline.
pub fn unescape(name: &[u8], out: &mut Vec<u8>) {
    const NEWLINE: &[u8] = b"\\012";
    let mut rest = name;
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        let (plain, tail) = rest.split_at(at);
        out.extend_from_slice(plain);
        match tail.strip_prefix(NEWLINE) {
            Some(after) => {
                out.push(b'\n');
                rest = after;
            }
            None => {
                out.push(b'\\');
                rest = &tail[1..];
            }
        }
    }
    out.extend_from_slice(rest);
}

fn hex(text: &[u8]) -> Option<(u64, &[u8])> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    number(text, 16, 16, digit)
}

fn decimal(text: &[u8]) -> Option<(u64, &[u8])> {
    number(text, 20, 10, |byte| byte.is_ascii_digit().then(|| byte - b'0'))
}

fn number(text: &[u8], most_digits: usize, base: u64, digit: impl Fn(u8) -> Option<u8>) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    let mut at = 0;
    while let Some(digit) = text.get(at).copied().and_then(&digit) {
        if at == most_digits {
            return None;
        }
        value = value.checked_mul(base)?.checked_add(digit.into())?;
        at += 1;
    }
    (at > 0).then_some((value, &text[at..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &[u8]) -> Vec<u8> {
        let mut name = Vec::new();
        unescape(text, &mut name);
        name
    }

    /// Check lines as kernels print them: of files, of memory without a name, of 32-bit processes, of large devices.
    #[test]
    fn lines_are_read() {
        let text = b"7f5e8c021000-7f5e8c022000 r-xs 00001000 fe:00 247026                     /tmp/a  b (deleted)";
        let expected = Line {
            start: 0x7f5e_8c02_1000,
            end: 0x7f5e_8c02_2000,
            perms: Perms::READ | Perms::EXEC | Perms::SHARED,
            offset_bytes: 0x1000,
            device: Device { major: 0xfe, minor: 0 },
            inode: 247_026,
            name: b"/tmp/a  b (deleted)",
        };
        assert_eq!(line(text), Some(expected));
        let bare = line(b"08048000-08049000 rw-p 00000000 00:00 0 ").expect("a line");
        assert_eq!((bare.start, bare.name, bare.inode), (0x0804_8000, &b""[..], 0));
        assert_eq!(
            line(b"08048000-08049000 ---p 00000000 00:00 0"),
            line(b"08048000-08049000 ---p 00000000 00:00 0 ")
        );
        let large = line(b"1000-2000 ---p ffffffffff600000 103:fffff 18446744073709551615 x").expect("a line");
        assert_eq!(
            (large.device.major, large.device.minor, large.inode),
            (0x103, 0xfffff, u64::MAX)
        );
    }

    /// Check that what is no line of a mapping is none.
    #[test]
    fn other_text_is_refused() {
        for text in [
            &b""[..],
            b"Rss:    8 kB",
            b"2000-1000 r--p 0 0:0 0",
            b"1000-1000 r--p 0 0:0 0",
            b"1000-2000 r--q 0 0:0 0",
            b"1000-2000 r--p 0 0:0",
            b"1000-2000 r--p 0 0:0 x",
            b"1000-2000 r--p 0 0:0 1name",
            b"1000-10000000000000000 r--p 0 0:0 1",
            b"1000-2000 r--p 0 0:0 18446744073709551616",
            b"1000-2000 r--p 0 100000000:0 0",
        ] {
            assert_eq!(line(text), None, "{}", text.escape_ascii());
        }
    }

    /// Check that newlines come back, and that other backslashes stay.
    #[test]
    fn names_are_unescaped() {
        assert_eq!(name(b"/a\\012b"), b"/a\nb");
        assert_eq!(name(b"\\012\\012"), b"\n\n");
        assert_eq!(name(b"/a\\b\\01"), b"/a\\b\\01");
        assert_eq!(name(b"\\\\012"), b"\\\n");
        assert_eq!(name(b""), b"");
    }

    /// Check the lines of smaps that matter, and that the others are passed over.
    #[test]
    fn details_are_added_up() {
        let (mut usage, mut page_size) = (Usage::default(), 0);
        for text in [
            "Size:               2048 kB",
            "KernelPageSize:     2048 kB",
            "Rss:                  12 kB",
            "Shared_Dirty:          4 kB",
            "Private_Dirty:         8 kB",
            "THPeligible:           0",
            "VmFlags: rd mr mw me ht",
        ] {
            assert!(detail(text.as_bytes(), &mut usage, &mut page_size), "{text}");
        }
        let expected = Usage {
            rss_bytes: 12 << 10,
            dirty_bytes: 12 << 10,
        };
        assert_eq!((usage, page_size), (expected, 2 << 20));
        for text in ["", "Rss: x kB", "Rss: 1", "no colon", "lower: 1 kB"] {
            assert!(!detail(text.as_bytes(), &mut usage, &mut page_size), "{text}");
        }
    }

    /// A line as the kernel makes it, from the values of a mapping.
    fn printed(line: &Line<'_>, padding: usize) -> Vec<u8> {
        let mut text = format!(
            "{:08x}-{:08x} {} {:08x} {:02x}:{:02x} {} ",
            line.start, line.end, line.perms, line.offset_bytes, line.device.major, line.device.minor, line.inode
        )
        .into_bytes();
        text.resize(text.len() + padding, b' ');
        for &byte in line.name {
            match byte {
                b'\n' => text.extend_from_slice(b"\\012"),
                byte => text.push(byte),
            }
        }
        text
    }

    proptest! {
        /// Check that whatever the kernel can print is read back.
        #[test]
        fn lines_come_back(
            start in 0..u64::MAX, len in 1..u64::MAX, perms in 0..16_u8, offset_bytes: u64, major: u32, minor: u32, inode: u64,
            name in "(/[ -\\[\\]-~\n\u{e9}]{0,40})?", padding in 0..30_usize,
        ) {
            let line = Line {
                start,
                end: start.saturating_add(len),
                perms: Perms::from_bits_truncate(perms),
                offset_bytes,
                device: Device { major, minor },
                inode,
                name: name.as_bytes(),
            };
            let text = printed(&line, padding);
            let read = super::line(&text).expect("a line");
            prop_assert_eq!(self::name(read.name), line.name);
            prop_assert_eq!(Line { name: line.name, ..read }, line);
        }

        /// Check that any bytes are read without a panic.
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ = line(&bytes);
            let _ = detail(&bytes, &mut Usage::default(), &mut 0);
            prop_assert!(name(&bytes).len() <= bytes.len());
        }
    }
}
