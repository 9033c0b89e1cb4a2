//! The text of `/proc/PID/maps` and `smaps` as task_diag's structures. Pure: bytes in, payloads of attributes out.

use taskdiag_core::text::maps as text;
use taskdiag_protocol::wire::{Vma, VmaStat};
use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::IntoBytes as _;

use crate::encode::page_size;

/// The longest payload of one attribute: more mappings go into another.
const PAYLOAD: usize = 48 << 10;

/// The longest name. Longer ones are left out.
const NAME: usize = 4096;

/// `VmFlags` in the order of task_diag's bits; the letters of proc(5). Bits that no letters stand for are not told.
const FLAGS: [&str; 28] = [
    "rd", "wr", "ex", "sh", "mr", "mw", "me", "ms", "gd", "pf", "dw", "mp", "lo", "io", "sr", "rr", "dc", "de", "ac",
    "nr", "ht", "ar", "dd", "sd", "mm", "hg", "nh", "mg",
];

/// The longest line: a range, numbers, and a path, in which a byte may take four.
const LINE: usize = 4 * 4096 + 256;

/// Makes payloads of attributes from a text that comes in parts.
#[derive(Debug, Default)]
pub struct Payloads {
    open: Vec<u8>,
    mapping: Option<Mapping>,
    with_stat: bool,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
}

#[derive(Debug, Default)]
struct Mapping {
    vma: Vma,
    stat: VmaStat,
    name: Vec<u8>,
}

impl Payloads {
    /// For smaps if resident sizes are wanted.
    pub fn new(with_stat: bool) -> Payloads {
        Payloads {
            with_stat,
            ..Payloads::default()
        }
    }

    /// Takes the next part, and tells of the payloads that are full. Lines that make no sense are left out.
    pub fn take<E>(&mut self, text: &[u8], told: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut rest = text;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let (line, behind) = (&rest[..end], &rest[end + 1..]);
            rest = behind;
            if self.line.is_empty() {
                self.take_line(line, told)?;
                continue;
            }
            let mut whole = std::mem::take(&mut self.line);
            if whole.len() + line.len() <= LINE {
                whole.extend_from_slice(line);
                self.take_line(&whole, told)?;
            }
            whole.clear();
            self.line = whole;
        }
        // One that is longer is none of the kernel's, and left out.
        let room = (LINE + 1).saturating_sub(self.line.len());
        self.line.extend_from_slice(&rest[..rest.len().min(room)]);
        Ok(())
    }

    /// Tells of what is left.
    pub fn finish<E>(mut self, told: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        self.put(told)?;
        if self.open.is_empty() {
            Ok(())
        } else {
            told(&self.open)
        }
    }

    fn take_line<E>(&mut self, line: &[u8], told: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        match mapping(line) {
            Some(mapping) => {
                self.put(told)?;
                self.mapping = Some(mapping);
            }
            None => {
                if let Some(mapping) = &mut self.mapping {
                    detail(line, mapping);
                }
            }
        }
        Ok(())
    }

    fn put<E>(&mut self, told: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let Some(Mapping { mut vma, stat, name }) = self.mapping.take() else {
            return Ok(());
        };
        let mut len = size_of::<Vma>();
        if self.with_stat {
            vma.stat_off = U16::new(len as u16);
            vma.stat_len = U16::new(size_of::<VmaStat>() as u16);
            len += size_of::<VmaStat>();
        }
        if !name.is_empty() && name.len() <= NAME {
            vma.name_off = U16::new(len as u16);
            vma.name_len = U16::new(name.len() as u16 + 1);
            len += name.len() + 1;
        }
        let whole = len.next_multiple_of(4);
        vma.vma_len = U16::new(whole as u16);
        if self.open.len() + whole > PAYLOAD {
            told(&self.open)?;
            self.open.clear();
        }
        let start = self.open.len();
        self.open.extend_from_slice(vma.as_bytes());
        if self.with_stat {
            self.open.extend_from_slice(stat.as_bytes());
        }
        if vma.name_len.get() > 0 {
            self.open.extend_from_slice(&name);
        }
        self.open.resize(start + whole, 0);
        Ok(())
    }
}

fn decimal(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The line of a mapping.
fn mapping(line: &[u8]) -> Option<Mapping> {
    let line = text::line(line)?;
    // task_diag names files and special mappings, and makes up no names for stacks and heaps.
    let is_made_up = matches!(line.name, b"[heap]" | b"[stack]") || line.name.starts_with(b"[anon");
    let mut name = Vec::new();
    if !is_made_up {
        text::unescape(line.name, &mut name);
    }
    Some(Mapping {
        vma: Vma {
            start: U64::new(line.start),
            end: U64::new(line.end),
            // Read, write, execute, shared: the same bits.
            vm_flags: U64::new(line.perms.bits().into()),
            pgoff: U64::new(line.offset_bytes / page_size()),
            major: U32::new(line.device.major),
            minor: U32::new(line.device.minor),
            inode: U64::new(line.inode),
            ..Vma::default()
        },
        stat: VmaStat::default(),
        name,
    })
}

/// `Key:   number kB`, or `VmFlags: rd ex mr`.
fn detail(line: &[u8], mapping: &mut Mapping) {
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
    let place = match key {
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
    // Fixed point: 12 bits behind the point.
    let shift = if key == b"Pss" { 12 } else { 0 };
    *place = U64::new(bytes.saturating_mul(1 << shift));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::FromBytes as _;

    use super::*;

    /// The payloads of a text that comes in parts of some length.
    fn payloads(text: &[u8], with_stat: bool, part: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut told = |payload: &[u8]| -> Result<(), ()> {
            all.push(payload.to_vec());
            Ok(())
        };
        let mut payloads = Payloads::new(with_stat);
        for part in text.chunks(part) {
            payloads.take(part, &mut told).unwrap();
        }
        payloads.finish(&mut told).unwrap();
        all
    }

    const TEXT: &[u8] = b"00400000-0048b000 r-xp 00001000 fd:01 1234       /tmp/a b\\012c (deleted)\n\
        Rss:                 100 kB\nPss:                  50 kB\nAnonHugePages:         0 kB\nVmFlags: rd ex mr mw me sd \n\
        7ffc0000-7ffd0000 rw-p 00000000 00:00 0                          [stack]\nRss: 8 kB\n\
        7fff0000-7fff2000 r-xp 00000000 00:00 0                          [vdso]\n";

    /// Check what comes of a text: names, sizes and flags, and the way from one to the next.
    #[test]
    fn mappings_are_told() {
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
            (0x400000, 1, 0xfd, 1)
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
        /// Check that any text is survived, and that no payload is too long for an attribute.
        #[test]
        fn any_text_is_survived(text: Vec<u8>, with_stat: bool, copies in 1..1000_usize) {
            let text = [TEXT, &text[..]].concat().repeat(copies);
            for payload in payloads(&text, with_stat, 1 << 16) {
                prop_assert!(payload.len() <= PAYLOAD);
            }
        }

        /// Check that the parts in which a text comes make no difference, and that the bytes between what is told are zero.
        #[test]
        fn parts_make_no_difference(part in 1..300_usize, copies in 1..20_usize) {
            let text = TEXT.repeat(copies);
            prop_assert_eq!(payloads(&text, true, part), payloads(&text, true, text.len()));
        }
    }
}
