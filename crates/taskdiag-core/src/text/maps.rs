//! The parser of `/proc/PID/maps`, and of single mappings in `/proc/PID/smaps`.

use super::number::{kibibytes, leading_decimal, leading_hexadecimal};
use crate::mapping::{Device, Perms, Usage};

/// The line of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // proc_pid_maps(5) has the meanings
pub struct Line<'a> {
    pub start: u64,
    pub end: u64,
    pub perms: Perms,
    pub offset_bytes: u64,
    pub device: Device,
    pub inode: u64,
    /// Escaped as in the text: see [`unescape`].
    pub name: &'a [u8],
}

/// The name of the vsyscall page. Most processes have it in the text, though it is a mapping of the
/// kernel rather than of the process.
pub const VSYSCALL: &[u8] = b"[vsyscall]";

/// Parses the addresses at the start of a line. Also returns the rest of the line. `None` if it is
/// not the line of a mapping.
pub fn range(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (start, rest) = leading_hexadecimal(line)?;
    let (end, rest) = leading_hexadecimal(rest.strip_prefix(b"-")?)?;
    let rest = rest.strip_prefix(b" ")?;
    (start < end).then_some((start, end, rest))
}

/// Parses the line of a mapping, without its newline.
pub fn line(text: &[u8]) -> Option<Line<'_>> {
    let (start, end, rest) = range(text)?;
    let (perms, rest) = rest.split_at_checked(4)?;
    let (offset_bytes, rest) = leading_hexadecimal(rest.strip_prefix(b" ")?)?;
    let (major, rest) = leading_hexadecimal(rest.strip_prefix(b" ")?)?;
    let (minor, rest) = leading_hexadecimal(rest.strip_prefix(b":")?)?;
    let (inode, rest) = leading_decimal(rest.strip_prefix(b" ")?)?;
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

/// Adds a line of `smaps` that follows the line of a mapping, such as `Rss: 8 kB`. Returns false if
/// it can't be such a line.
pub fn detail(line: &[u8], usage: &mut Usage, page_size_bytes: &mut u64) -> bool {
    let Some(colon) = line.iter().position(|&byte| byte == b':') else {
        return false;
    };
    let (key, rest) = (&line[..colon], &line[colon + 1..]);
    let sum = match key {
        b"Rss" => &mut usage.rss_bytes,
        b"Shared_Dirty" | b"Private_Dirty" => &mut usage.dirty_bytes,
        b"Shared_Hugetlb" | b"Private_Hugetlb" => &mut usage.hugetlb_bytes,
        b"KernelPageSize" => page_size_bytes,
        _ => return key.first().is_some_and(u8::is_ascii_uppercase),
    };
    let Some(bytes) = kibibytes(rest) else { return false };
    *sum = sum.saturating_add(bytes);
    true
}

/// Appends the unescaped form of a name to `out`. The kernel replaces newlines with `\012` and
/// escapes nothing else, so a name that really has these four bytes is taken for one with a
/// newline.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &[u8]) -> Vec<u8> {
        let mut name = Vec::new();
        unescape(text, &mut name);
        name
    }

    /// Check lines as kernels print them: of files, of anonymous memory, of 32-bit processes, of
    /// large device numbers.
    #[test]
    fn lines_are_parsed() {
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

    /// Check that other text is not taken for the line of a mapping.
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

    /// Check that newlines are unescaped, and that other backslashes stay.
    #[test]
    fn names_are_unescaped() {
        assert_eq!(name(b"/a\\012b"), b"/a\nb");
        assert_eq!(name(b"\\012\\012"), b"\n\n");
        assert_eq!(name(b"/a\\b\\01"), b"/a\\b\\01");
        assert_eq!(name(b"\\\\012"), b"\\\n");
        assert_eq!(name(b""), b"");
    }

    /// Check that the relevant lines are added up, and that the others are skipped.
    #[test]
    fn details_are_added_up() {
        let (mut usage, mut page_size) = (Usage::default(), 0);
        for text in [
            "Size:               2048 kB",
            "KernelPageSize:     2048 kB",
            "Rss:                  12 kB",
            "Shared_Dirty:          4 kB",
            "Private_Dirty:         8 kB",
            "Shared_Hugetlb:     2048 kB",
            "Private_Hugetlb:    4096 kB",
            "THPeligible:           0",
            "VmFlags: rd mr mw me ht",
        ] {
            assert!(detail(text.as_bytes(), &mut usage, &mut page_size), "{text}");
        }
        let expected = Usage {
            rss_bytes: 12 << 10,
            dirty_bytes: 12 << 10,
            hugetlb_bytes: 6 << 20,
        };
        assert_eq!((usage, page_size), (expected, 2 << 20));
        for text in ["", "Rss: x kB", "Rss: 1", "no colon", "lower: 1 kB"] {
            assert!(!detail(text.as_bytes(), &mut usage, &mut page_size), "{text}");
        }
    }

    /// Prints a line as the kernel does.
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
        /// Check that any line that the kernel can print is parsed.
        #[test]
        fn printed_lines_are_parsed(
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

        /// Check that no bytes make the parsers panic.
        #[test]
        fn parsers_take_any_bytes(bytes: Vec<u8>) {
            let _ = line(&bytes);
            let _ = detail(&bytes, &mut Usage::default(), &mut 0);
            prop_assert!(name(&bytes).len() <= bytes.len());
        }
    }
}
