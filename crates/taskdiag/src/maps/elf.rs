//! The build id of an ELF file, from its notes, as the kernel finds it: in the segments of type `PT_NOTE`.
//!
//! Files are anybody's, so nothing in them is believed: every offset and length is checked, and how much is read is limited
//! whatever the file says. Both widths and both byte orders are read.

use std::io;

use super::build_id::BuildId;

/// Where bytes come from: a file, or the memory of a process.
pub(super) trait ReadAt {
    /// Reads up to `buffer.len()` bytes at `offset`. Fewer are the end.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
}

impl ReadAt for [u8] {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..));
        let rest = rest.unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

/// The most bytes of notes that are looked at in one file. Real ones have a few hundred.
const MOST_NOTES: u64 = 1 << 20;

const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;

/// In the header, a number of program headers that says that the real one stands elsewhere.
const PN_XNUM: u64 = 0xffff;

/// How numbers are written in this file.
#[derive(Clone, Copy, Debug)]
struct Form {
    wide: bool,
    big: bool,
}

impl Form {
    fn u16(self, bytes: &[u8], at: usize) -> Option<u64> {
        let bytes = bytes.get(at..at + 2)?.try_into().ok()?;
        let value = if self.big {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        };
        Some(value.into())
    }

    fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(if self.big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }

    /// A number as wide as the file's addresses.
    fn word(self, bytes: &[u8], at: usize) -> Option<u64> {
        if !self.wide {
            return self.u32(bytes, at).map(u64::from);
        }
        let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
        Some(if self.big {
            u64::from_be_bytes(bytes)
        } else {
            u64::from_le_bytes(bytes)
        })
    }

    /// One of two offsets, the first for 32 bits.
    fn at(self, narrow: usize, wide: usize) -> usize {
        if self.wide {
            wide
        } else {
            narrow
        }
    }
}

/// Where a segment of notes lies.
#[derive(Clone, Copy, Debug)]
struct Notes {
    offset: u64,
    len: u64,
    /// What notes are padded to.
    align: usize,
}

/// The build id of an ELF file; `None` if it is no ELF file, is damaged, or has none. Errors are those of reading.
pub(super) fn build_id(file: &(impl ReadAt + ?Sized)) -> io::Result<Option<BuildId>> {
    let mut header = [0; 64];
    let len = file.read_at(0, &mut header)?;
    let Some((form, table, count, entry)) = program_headers(file, &header[..len])? else {
        return Ok(None);
    };
    let mut budget = MOST_NOTES;
    for index in 0..count {
        let mut bytes = [0; 56];
        let bytes = &mut bytes[..form.at(32, 56)];
        let Some(at) = index.checked_mul(entry).and_then(|offset| table.checked_add(offset)) else {
            break;
        };
        // The file ends before its table does.
        if file.read_at(at, bytes)? < bytes.len() {
            break;
        }
        let Some(notes) = note_segment(form, bytes) else {
            continue;
        };
        if let Some(found) = search(file, form, notes, &mut budget)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The form of the file; offset, number and size of its program headers.
fn program_headers(file: &(impl ReadAt + ?Sized), header: &[u8]) -> io::Result<Option<(Form, u64, u64, u64)>> {
    let read = || {
        let form = match header.strip_prefix(b"\x7fELF")? {
            [class @ (1 | 2), order @ (1 | 2), ..] => Form {
                wide: *class == 2,
                big: *order == 2,
            },
            _ => return None,
        };
        let table = form.word(header, form.at(28, 32))?;
        let entry = form.u16(header, form.at(42, 54))?;
        let count = form.u16(header, form.at(44, 56))?;
        let sections = form.word(header, form.at(32, 40))?;
        (entry >= form.at(32, 56) as u64).then_some((form, table, count, entry, sections))
    };
    let Some((form, table, mut count, entry, sections)) = read() else {
        return Ok(None);
    };
    if count == PN_XNUM {
        // `sh_info` of the first section.
        let mut info = [0; 4];
        let Some(at) = sections.checked_add(form.at(28, 44) as u64) else {
            return Ok(None);
        };
        if file.read_at(at, &mut info)? < info.len() {
            return Ok(None);
        }
        // No more than what fits into the field it does not stand in: a file of billions of headers is no program.
        count = form.u32(&info, 0).map_or(0, u64::from).min(PN_XNUM);
    }
    Ok(Some((form, table, count, entry)))
}

fn note_segment(form: Form, bytes: &[u8]) -> Option<Notes> {
    if form.u32(bytes, 0)? != PT_NOTE {
        return None;
    }
    Some(Notes {
        offset: form.word(bytes, form.at(4, 8))?,
        len: form.word(bytes, form.at(16, 32))?,
        align: if form.word(bytes, form.at(28, 48))? == 8 { 8 } else { 4 },
    })
}

/// Looks through the notes of a segment, for no more than `budget` bytes.
fn search(file: &(impl ReadAt + ?Sized), form: Form, notes: Notes, budget: &mut u64) -> io::Result<Option<BuildId>> {
    let mut at = 0_u64;
    while at < notes.len && *budget > 0 {
        // A note's header, the name, and the longest id.
        let mut bytes = [0; 12 + 4 + 20];
        let Some(offset) = notes.offset.checked_add(at) else {
            break;
        };
        let room = (notes.len - at).min(bytes.len() as u64) as usize;
        let len = file.read_at(offset, &mut bytes[..room])?;
        let bytes = &bytes[..len];
        let (Some(name_len), Some(id_len), Some(kind)) = (form.u32(bytes, 0), form.u32(bytes, 4), form.u32(bytes, 8))
        else {
            break;
        };
        if kind == NT_GNU_BUILD_ID && name_len == 4 && bytes.get(12..16) == Some(b"GNU\0") {
            let id = bytes.get(16..).and_then(|rest| rest.get(..id_len as usize));
            if let Some(id) = id.and_then(BuildId::new) {
                return Ok(Some(id));
            }
        }
        let name_end = padded(12 + u64::from(name_len), notes.align);
        let step = padded(name_end + u64::from(id_len), notes.align);
        at = at.saturating_add(step);
        *budget = budget.saturating_sub(step);
    }
    Ok(None)
}

fn padded(len: u64, align: usize) -> u64 {
    len.next_multiple_of(align as u64)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    /// A file with some notes in one segment, put together by hand.
    #[derive(Clone, Debug)]
    struct Made {
        form: Form,
        align: usize,
        /// Type, name, content.
        notes: Vec<(u32, Vec<u8>, Vec<u8>)>,
        extended: bool,
    }

    impl Made {
        fn word(&self, value: u64, out: &mut Vec<u8>) {
            if self.form.wide {
                self.put(&value.to_be_bytes(), out)
            } else {
                self.put(&(value as u32).to_be_bytes(), out)
            }
        }

        fn put(&self, big_endian: &[u8], out: &mut Vec<u8>) {
            if self.form.big {
                out.extend(big_endian)
            } else {
                out.extend(big_endian.iter().rev())
            }
        }

        fn bytes(&self) -> Vec<u8> {
            let form = self.form;
            let (header, entry, section) = (form.at(52, 64), form.at(32, 56), form.at(40, 64));
            let notes_at = header + 2 * entry + section;
            let mut notes = Vec::new();
            for (kind, name, content) in &self.notes {
                for value in [name.len() as u32, content.len() as u32, *kind] {
                    self.put(&value.to_be_bytes(), &mut notes);
                }
                for part in [name, content] {
                    notes.extend(part);
                    notes.resize(notes.len().next_multiple_of(self.align), 0);
                }
            }
            let mut file = b"\x7fELF".to_vec();
            file.extend([if form.wide { 2 } else { 1 }, if form.big { 2 } else { 1 }, 1]);
            file.resize(24, 0);
            self.word(0, &mut file);
            self.word(header as u64, &mut file);
            self.word((header + 2 * entry) as u64, &mut file);
            self.put(&[0; 4], &mut file);
            let count = if self.extended { PN_XNUM as u16 } else { 2 };
            for value in [header as u16, entry as u16, count, section as u16, 1, 0] {
                self.put(&value.to_be_bytes(), &mut file);
            }
            assert_eq!(file.len(), header);
            // One segment of another type, then that of the notes.
            for kind in [1_u32, PT_NOTE] {
                self.put(&kind.to_be_bytes(), &mut file);
                if form.wide {
                    self.put(&[0; 4], &mut file);
                }
                for value in [notes_at, 0, 0, notes.len(), notes.len()] {
                    self.word(value as u64, &mut file);
                }
                if !form.wide {
                    self.put(&[0; 4], &mut file);
                }
                self.word(self.align as u64, &mut file);
            }
            let info_at = file.len() + form.at(28, 44);
            file.resize(info_at, 0);
            self.put(&2_u32.to_be_bytes(), &mut file);
            file.resize(notes_at, 0);
            file.extend(notes);
            file
        }
    }

    const FORMS: [Form; 4] = [
        Form {
            wide: false,
            big: false,
        },
        Form { wide: false, big: true },
        Form { wide: true, big: false },
        Form { wide: true, big: true },
    ];

    fn made(form: Form, align: usize, id: &[u8]) -> Made {
        let property = (5, b"GNU\0".to_vec(), vec![1; 16]);
        let foreign = (NT_GNU_BUILD_ID, b"Go\0\0".to_vec(), vec![2; 20]);
        let wanted = (NT_GNU_BUILD_ID, b"GNU\0".to_vec(), id.to_vec());
        Made {
            form,
            align,
            notes: vec![property, foreign, wanted],
            extended: false,
        }
    }

    /// Check files of both widths and byte orders, with both paddings, and with the number of headers in either place.
    #[test]
    fn all_forms_are_read() {
        for form in FORMS {
            for (align, len, extended) in [
                (4, 20, false),
                (8, 20, true),
                (4, 1, true),
                (8, 16, false),
                (4, 7, false),
            ] {
                let id: Vec<u8> = (1..=len).collect();
                let file = Made {
                    extended,
                    ..made(form, align, &id)
                }
                .bytes();
                let found = build_id(&file[..]).expect("memory is read");
                assert_eq!(found, BuildId::new(&id), "{form:?} {align} {len}");
            }
        }
    }

    /// Check that ids the kernel would not take are none, and that the executable of this test has one or none without fuss.
    #[test]
    fn ids_are_like_the_kernels() {
        for id in [&[][..], &[1; 21]] {
            assert_eq!(
                build_id(&made(FORMS[2], 4, id).bytes()[..]).expect("memory is read"),
                None
            );
        }
        for bytes in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", &[0x7f; 100]] {
            assert_eq!(build_id(bytes).expect("memory is read"), None);
        }
    }

    /// Check that a file that ends anywhere is read up to there.
    #[test]
    fn truncated_files_are_survived() {
        for form in FORMS {
            let file = made(form, 4, &[7; 20]).bytes();
            for len in 0..file.len() {
                assert_eq!(
                    build_id(&file[..len]).expect("memory is read"),
                    None,
                    "{len} of {}",
                    file.len()
                );
            }
        }
    }

    /// Counts what is read of a file that goes on for ever.
    struct Endless<'a> {
        head: &'a [u8],
        reads: Cell<u32>,
    }

    impl ReadAt for Endless<'_> {
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
            self.reads.set(self.reads.get() + 1);
            buffer.fill(0);
            self.head.read_at(offset, buffer)?;
            Ok(buffer.len())
        }
    }

    /// Check that a file can't keep the reader busy: with notes without content up to the end of all addresses, or with as
    /// many headers as can be said.
    #[test]
    fn hostile_files_end() {
        let mut file = made(FORMS[2], 4, &[7; 20]).bytes();
        file.truncate(64 + 2 * 56);
        // The size of the segment.
        file[64 + 56 + 32..][..8].copy_from_slice(&u64::MAX.to_le_bytes());
        let endless = Endless {
            head: &file,
            reads: Cell::new(0),
        };
        assert_eq!(build_id(&endless).expect("memory is read"), None);
        assert!(endless.reads.get() < 100_000, "{} reads", endless.reads.get());
        // The number of headers.
        file[56..58].copy_from_slice(&u16::MAX.to_le_bytes());
        file[40..48].copy_from_slice(&8_u64.to_le_bytes());
        let endless = Endless {
            head: &file,
            reads: Cell::new(0),
        };
        assert_eq!(build_id(&endless).expect("memory is read"), None);
        assert!(endless.reads.get() < 300_000, "{} reads", endless.reads.get());
    }

    fn forms() -> impl Strategy<Value = Form> {
        (any::<bool>(), any::<bool>()).prop_map(|(wide, big)| Form { wide, big })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Check that any bytes behind the mark of an ELF file are survived.
        #[test]
        fn any_bytes_are_survived(form in forms(), rest in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut file = vec![0x7f, b'E', b'L', b'F', 1 + u8::from(form.wide), 1 + u8::from(form.big)];
            file.extend(rest);
            let _ = build_id(&file[..]).expect("memory is read");
        }

        /// Check that a file with some bytes spoilt is survived, and that what is found then is in it.
        #[test]
        fn spoilt_files_are_survived(
            form in forms(), align in prop_oneof![Just(4_usize), Just(8)],
            spoilt in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        ) {
            let mut file = made(form, align, &[7; 20]).bytes();
            for (index, byte) in spoilt {
                let at = index.index(file.len());
                file[at] = byte;
            }
            if let Some(found) = build_id(&file[..]).expect("memory is read") {
                prop_assert!(file.windows(found.as_bytes().len()).any(|window| window == found.as_bytes()));
            }
        }
    }
}
