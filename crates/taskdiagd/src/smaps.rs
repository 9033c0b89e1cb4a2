//! The text of `/proc/PID/maps` and `smaps` as task_diag's structures. Pure: bytes in, payloads of attributes out.

use taskdiag::broker::wire::{Vma, VmaStat};
use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::IntoBytes as _;

/// The longest payload of one attribute: more mappings go into another.
const PAYLOAD: usize = 48 << 10;

/// The longest name. Longer ones are left out.
const NAME: usize = 4096;

const PAGE: u64 = 4096;

/// `VmFlags` in the order of task_diag's bits; the letters of proc(5). Bits that no letters stand for are not told.
const FLAGS: [&str; 28] = [
    "rd", "wr", "ex", "sh", "mr", "mw", "me", "ms", "gd", "pf", "dw", "mp", "lo", "io", "sr", "rr", "dc", "de", "ac",
    "nr", "ht", "ar", "dd", "sd", "mm", "hg", "nh", "mg",
];

/// Payloads of attributes: as many as it takes.
#[derive(Debug, Default)]
pub struct Payloads {
    done: Vec<Vec<u8>>,
    open: Vec<u8>,
    mapping: Option<Mapping>,
    with_stat: bool,
}

#[derive(Debug, Default)]
struct Mapping {
    vma: Vma,
    stat: VmaStat,
    name: Vec<u8>,
}

impl Payloads {
    /// Makes the payloads of a text; of smaps, if resident sizes are wanted. Lines that make no sense are left out.
    pub fn of(text: &[u8], with_stat: bool) -> Vec<Vec<u8>> {
        let mut payloads = Payloads {
            with_stat,
            ..Payloads::default()
        };
        for line in text.split(|&byte| byte == b'\n') {
            match mapping(line) {
                Some(mapping) => {
                    payloads.put();
                    payloads.mapping = Some(mapping);
                }
                None => {
                    if let Some(mapping) = &mut payloads.mapping {
                        detail(line, mapping);
                    }
                }
            }
        }
        payloads.put();
        if !payloads.open.is_empty() {
            payloads.done.push(payloads.open);
        }
        payloads.done
    }

    fn put(&mut self) {
        let Some(Mapping { mut vma, stat, name }) = self.mapping.take() else {
            return;
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
            self.done.push(std::mem::take(&mut self.open));
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
    }
}

fn hex(text: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

fn decimal(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// `start-end perms offset major:minor inode name`
fn mapping(line: &[u8]) -> Option<Mapping> {
    let mut words = line.splitn(6, |&byte| byte == b' ');
    let range = words.next()?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (hex(&range[..dash])?, hex(&range[dash + 1..])?);
    let perms: [u8; 4] = words.next()?.try_into().ok()?;
    let offset = hex(words.next()?)?;
    let device = words.next()?;
    let colon = device.iter().position(|&byte| byte == b':')?;
    let (major, minor) = (hex(&device[..colon])?, hex(&device[colon + 1..])?);
    let inode = decimal(words.next()?)?;
    let name = words.next().unwrap_or_default().trim_ascii_start();
    let flag = |letter: u8, at: usize, bit: u32| u64::from(perms[at] == letter) << bit;
    let flags = flag(b'r', 0, 0) | flag(b'w', 1, 1) | flag(b'x', 2, 2) | flag(b's', 3, 3);
    // task_diag names files and special mappings, and makes up no names for stacks and heaps.
    let is_made_up = matches!(name, b"[heap]" | b"[stack]") || name.starts_with(b"[anon");
    Some(Mapping {
        vma: Vma {
            start: U64::new(start),
            end: U64::new(end),
            vm_flags: U64::new(flags),
            pgoff: U64::new(offset / PAGE),
            major: U32::new(major as u32),
            minor: U32::new(minor as u32),
            inode: U64::new(inode),
            ..Vma::default()
        },
        stat: VmaStat::default(),
        name: if is_made_up { Vec::new() } else { unescaped(name) },
    })
}

/// A newline stands as `\012` in names.
fn unescaped(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, behind)) = rest.split_first() {
        match rest.strip_prefix(b"\\012") {
            Some(behind) => {
                out.push(b'\n');
                rest = behind;
            }
            None => {
                out.push(byte);
                rest = behind;
            }
        }
    }
    out
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

    const TEXT: &[u8] = b"00400000-0048b000 r-xp 00001000 fd:01 1234       /tmp/a b\\012c (deleted)\n\
        Rss:                 100 kB\nPss:                  50 kB\nAnonHugePages:         0 kB\nVmFlags: rd ex mr mw me sd \n\
        7ffc0000-7ffd0000 rw-p 00000000 00:00 0                          [stack]\nRss: 8 kB\n\
        7fff0000-7fff2000 r-xp 00000000 00:00 0                          [vdso]\n";

    /// Check what comes of a text: names, sizes and flags, and the way from one to the next.
    #[test]
    fn mappings_are_told() {
        let payloads = Payloads::of(TEXT, true);
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
        assert_eq!(Payloads::of(TEXT, false)[0].len(), 3 * 64 + 24 + 8);
    }

    proptest! {
        /// Check that any text is survived, and that no payload is too long for an attribute.
        #[test]
        fn any_text_is_survived(text: Vec<u8>, with_stat: bool, copies in 1..1000_usize) {
            let text = [TEXT, &text[..]].concat().repeat(copies);
            for payload in Payloads::of(&text, with_stat) {
                prop_assert!(payload.len() <= PAYLOAD);
            }
        }
    }
}
