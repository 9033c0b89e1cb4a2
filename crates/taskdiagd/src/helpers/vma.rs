//! Turns the text of `/proc/PID/maps` and `smaps` into task_diag's structures. No I/O: text in,
//! payloads of attributes out.

use taskdiag_core::text::maps as text;
use taskdiag_protocol::wire::{Vma, VmaStat};
use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::IntoBytes as _;

/// The longest payload of one attribute. Further mappings go into another one.
const MAX_PAYLOAD: usize = 48 << 10;

/// The longest name. Longer names are left out.
const MAX_NAME: usize = 4096;

/// The letters of `VmFlags` (proc(5)) in the order of task_diag's bits. Flags with other letters
/// are left out.
const FLAGS: [&str; 28] = [
    "rd", "wr", "ex", "sh", "mr", "mw", "me", "ms", "gd", "pf", "dw", "mp", "lo", "io", "sr", "rr", "dc", "de", "ac",
    "nr", "ht", "ar", "dd", "sd", "mm", "hg", "nh", "mg",
];

/// The longest line: addresses, numbers, and a path in which each byte may take four (`\012`). The
/// kernel prints no longer lines.
const MAX_LINE: usize = 4 * 4096 + 256;

/// Turns a text that arrives in parts into payloads of attributes.
#[derive(Debug, Default)]
pub struct VmaEncoder {
    payload: Vec<u8>,
    mapping: Option<Mapping>,
    with_stat: bool,
    /// The start of a line whose end has not arrived.
    line: Vec<u8>,
}

#[derive(Debug, Default)]
struct Mapping {
    vma: Vma,
    stat: VmaStat,
    name: Vec<u8>,
}

impl VmaEncoder {
    /// An encoder for the text of `maps`, or of `smaps` and its sizes if `with_stat`.
    pub fn new(with_stat: bool) -> VmaEncoder {
        VmaEncoder {
            with_stat,
            ..VmaEncoder::default()
        }
    }

    /// Takes the next part of the text, and calls `emit` with each full payload. Skips lines that
    /// the kernel would not print.
    pub fn push<E>(&mut self, text: &[u8], emit: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut rest = text;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let (line, behind) = (&rest[..end], &rest[end + 1..]);
            rest = behind;
            if self.line.is_empty() {
                self.push_line(line, emit)?;
                continue;
            }
            let mut whole = std::mem::take(&mut self.line);
            if whole.len() + line.len() <= MAX_LINE {
                whole.extend_from_slice(line);
                self.push_line(&whole, emit)?;
            }
            whole.clear();
            self.line = whole;
        }
        // A longer line is not kept in full, and is skipped.
        let room = (MAX_LINE + 1).saturating_sub(self.line.len());
        self.line.extend_from_slice(&rest[..rest.len().min(room)]);
        Ok(())
    }

    /// Ends the text, and calls `emit` with the last payload.
    pub fn finish<E>(mut self, emit: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        self.put_mapping(emit)?;
        if self.payload.is_empty() {
            Ok(())
        } else {
            emit(&self.payload)
        }
    }

    fn push_line<E>(&mut self, line: &[u8], emit: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        match parse_mapping(line) {
            Some(mapping) => {
                self.put_mapping(emit)?;
                // Only the text has the page of the kernel. It is no mapping of the process.
                self.mapping = Some(mapping).filter(|mapping| mapping.name != text::VSYSCALL);
            }
            None => {
                if let Some(mapping) = &mut self.mapping {
                    parse_detail(line, mapping);
                }
            }
        }
        Ok(())
    }

    /// Appends the mapping whose lines are complete.
    fn put_mapping<E>(&mut self, emit: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let Some(Mapping { mut vma, stat, name }) = self.mapping.take() else {
            return Ok(());
        };
        let mut len = size_of::<Vma>();
        if self.with_stat {
            vma.stat_off = U16::new(len as u16);
            vma.stat_len = U16::new(size_of::<VmaStat>() as u16);
            len += size_of::<VmaStat>();
        }
        if !name.is_empty() && name.len() <= MAX_NAME {
            vma.name_off = U16::new(len as u16);
            vma.name_len = U16::new(name.len() as u16 + 1);
            len += name.len() + 1;
        }
        let whole = len.next_multiple_of(4);
        vma.vma_len = U16::new(whole as u16);
        if self.payload.len() + whole > MAX_PAYLOAD {
            emit(&self.payload)?;
            self.payload.clear();
        }
        let start = self.payload.len();
        self.payload.extend_from_slice(vma.as_bytes());
        if self.with_stat {
            self.payload.extend_from_slice(stat.as_bytes());
        }
        if vma.name_len.get() > 0 {
            self.payload.extend_from_slice(&name);
        }
        self.payload.resize(start + whole, 0);
        Ok(())
    }
}

fn decimal(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses the first line of a mapping. `None` if the line is not one.
fn parse_mapping(line: &[u8]) -> Option<Mapping> {
    let line = text::line(line)?;
    // task_diag has names for files and special mappings, and none for stacks and heaps.
    let has_no_name = matches!(line.name, b"[heap]" | b"[stack]") || line.name.starts_with(b"[anon");
    let mut name = Vec::new();
    if !has_no_name {
        text::unescape(line.name, &mut name);
    }
    Some(Mapping {
        vma: Vma {
            start: U64::new(line.start),
            end: U64::new(line.end),
            // The bits for read, write, execute and shared are the same.
            vm_flags: U64::new(line.perms.bits().into()),
            // Bytes: the patches shift the kernel's vm_pgoff.
            pgoff: U64::new(line.offset_bytes),
            major: U32::new(line.device.major),
            minor: U32::new(line.device.minor),
            inode: U64::new(line.inode),
            ..Vma::default()
        },
        stat: VmaStat::default(),
        name,
    })
}

/// Parses another line of a mapping: `Key:   number kB`, or `VmFlags: rd ex mr`.
fn parse_detail(line: &[u8], mapping: &mut Mapping) {
    let Some(colon) = line.iter().position(|&byte| byte == b':') else {
        return;
    };
    let (key, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    if key == b"VmFlags" {
        let set = |word: &[u8]| {
            FLAGS
                .iter()
                .position(|flag| flag.as_bytes() == word)
                .map_or(0, |bit| 1_u64 << bit)
        };
        let flags = value
            .split(|&byte| byte == b' ')
            .map(set)
            .fold(0, |flags, flag| flags | flag);
        mapping.vma.vm_flags = U64::new(mapping.vma.vm_flags.get() | flags);
        return;
    }
    let stat = &mut mapping.stat;
    let field = match key {
        b"Rss" => &mut stat.resident,
        b"Pss" => &mut stat.pss,
        b"Shared_Clean" => &mut stat.shared_clean,
        b"Shared_Dirty" => &mut stat.shared_dirty,
        b"Private_Clean" => &mut stat.private_clean,
        b"Private_Dirty" => &mut stat.private_dirty,
        b"Referenced" => &mut stat.referenced,
        b"Anonymous" => &mut stat.anonymous,
        b"AnonHugePages" => &mut stat.anonymous_thp,
        b"Swap" => &mut stat.swap,
        _ => return,
    };
    let number = value
        .strip_suffix(b" kB")
        .and_then(|number| decimal(number.trim_ascii()));
    let bytes = number.unwrap_or(0).saturating_mul(1024);
    // Pss is in 4096ths of a byte.
    let shift = if key == b"Pss" { 12 } else { 0 };
    *field = U64::new(bytes.saturating_mul(1 << shift));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::FromBytes as _;

    use super::*;

    /// The payloads of a text that arrives in parts of `part` bytes.
    fn payloads(text: &[u8], with_stat: bool, part: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut emit = |payload: &[u8]| -> Result<(), ()> {
            all.push(payload.to_vec());
            Ok(())
        };
        let mut encoder = VmaEncoder::new(with_stat);
        for part in text.chunks(part) {
            encoder.push(part, &mut emit).unwrap();
        }
        encoder.finish(&mut emit).unwrap();
        all
    }

    const TEXT: &[u8] = b"00400000-0048b000 r-xp 00001000 fd:01 1234       /tmp/a b\\012c (deleted)\n\
        Rss:                 100 kB\nPss:                  50 kB\nAnonHugePages:         0 kB\nVmFlags: rd ex mr mw me sd \n\
        7ffc0000-7ffd0000 rw-p 00000000 00:00 0                          [stack]\nRss: 8 kB\n\
        7fff0000-7fff2000 r-xp 00000000 00:00 0                          [vdso]\n\
        ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\nRss: 4 kB\n";

    /// Check names, sizes, offsets and flags of mappings, that each mapping links to the next, and
    /// that the kernel's page for old system calls is none.
    #[test]
    fn mappings_are_encoded() {
        let payloads = payloads(TEXT, true, TEXT.len());
        assert_eq!(payloads.len(), 1);
        let (mut rest, mut found) = (&payloads[0][..], Vec::new());
        while let Ok((vma, _)) = Vma::read_from_prefix(rest) {
            let (at, len) = (usize::from(vma.name_off.get()), usize::from(vma.name_len.get()));
            let stat = VmaStat::read_from_prefix(&rest[vma.stat_off.get().into()..]).unwrap().0;
            found.push((vma, stat, rest[at..at + len].to_vec()));
            rest = &rest[vma.vma_len.get().into()..];
        }
        assert_eq!(found.len(), 3);
        let (vma, stat, name) = &found[0];
        assert_eq!(
            (vma.start.get(), vma.pgoff.get(), vma.major.get(), vma.minor.get()),
            (0x400000, 0x1000, 0xfd, 1)
        );
        assert_eq!(name, b"/tmp/a b\nc (deleted)\0");
        assert_eq!((stat.resident.get(), stat.pss.get()), (100 << 10, 50 << 22));
        assert_eq!(vma.vm_flags.get(), 0b0111_0101 | 1 << 23);
        assert_eq!((&found[1].2[..], found[1].0.vm_flags.get()), (&b""[..], 3));
        assert_eq!(found[2].2, b"[vdso]\0");
        assert_eq!(
            super::tests::payloads(TEXT, false, TEXT.len())[0].len(),
            3 * 64 + 24 + 8
        );
    }

    proptest! {
        /// Check that no text causes a panic, and that no payload is too long for an attribute.
        #[test]
        fn any_text_is_encoded(text: Vec<u8>, with_stat: bool, copies in 1..1000_usize) {
            let text = [TEXT, &text[..]].concat().repeat(copies);
            for payload in payloads(&text, with_stat, 1 << 16) {
                prop_assert!(payload.len() <= MAX_PAYLOAD);
            }
        }

        /// Check that the payloads do not depend on how the text is split.
        #[test]
        fn parts_make_no_difference(part in 1..300_usize, copies in 1..20_usize) {
            let text = TEXT.repeat(copies);
            prop_assert_eq!(payloads(&text, true, part), payloads(&text, true, text.len()));
        }
    }
}
