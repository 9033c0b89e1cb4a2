//! The build id of an ELF file, from its notes, as the kernel finds it (`lib/buildid.c`): in the
//! segments of type `PT_NOTE`.
//!
//! Anybody can write such a file. The crate `object` checks every length against what was read, and
//! this module limits how much is read, whatever the file says. It reads both widths and both byte
//! orders.

use std::fmt;
use std::io;

use object::elf::{FileHeader32, FileHeader64, NT_GNU_BUILD_ID, PN_XNUM, PT_NOTE};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader as _, SectionHeader as _};
use object::{pod, Endianness};
use taskdiag_sys::procmap::BUILD_ID_MAX;

/// The build id that a linker wrote into a file, which distinguishes it from every other file
/// (ld(1), `--build-id`). Displays in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId {
    len: u8,
    bytes: [u8; BUILD_ID_MAX],
}

impl BuildId {
    /// A build id of 1 to 20 bytes; `None` for other lengths, which the kernel does not accept
    /// either.
    pub fn new(id: &[u8]) -> Option<BuildId> {
        if id.is_empty() || id.len() > BUILD_ID_MAX {
            return None;
        }
        let mut bytes = [0; BUILD_ID_MAX];
        bytes[..id.len()].copy_from_slice(id);
        Some(BuildId {
            len: id.len() as u8,
            bytes,
        })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

/// A source of bytes: a file, or the memory of a process.
pub(super) trait ReadAt {
    /// Reads up to `buffer.len()` bytes at `offset`. Fewer bytes mean the end of the file.
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

/// The maximum number of bytes of notes to read from one file. Real files have a few hundred.
const MOST_NOTES: usize = 1 << 20;

/// Each segment counts as at least this many bytes, so that a file can't cause many small reads.
const LEAST_NOTES: usize = 256;

/// The maximum number of program headers to read from one file: as many as the field in the header
/// can hold. A file that claims more is not a program.
const MOST_HEADERS: usize = PN_XNUM as usize;

/// The name of the notes that GNU tools write, NUL included.
const GNU: &[u8] = b"GNU\0";

/// The build id of an ELF file. `None`: the file is not ELF, is damaged, or has no build id. An
/// error means that the file could not be read.
pub(super) fn build_id(file: &(impl ReadAt + ?Sized)) -> io::Result<Option<BuildId>> {
    let header = read(file, 0, size_of::<FileHeader64<Endianness>>())?;
    if let Ok(header) = FileHeader64::<Endianness>::parse(&header[..]) {
        search(file, header)
    } else if let Ok(header) = FileHeader32::<Endianness>::parse(&header[..]) {
        search(file, header)
    } else {
        Ok(None)
    }
}

/// Searches the note segments of a file.
fn search<Elf>(file: &(impl ReadAt + ?Sized), header: &Elf) -> io::Result<Option<BuildId>>
where
    Elf: FileHeader<Endian = Endianness>,
{
    let entry = size_of::<Elf::ProgramHeader>();
    let Ok(endian) = header.endian() else {
        return Ok(None);
    };
    if usize::from(header.e_phentsize(endian)) != entry {
        return Ok(None);
    }
    let count = header_count(file, header, endian)?;
    let table = read(file, header.e_phoff(endian).into(), count * entry)?;
    let Ok((segments, _)) = pod::slice_from_bytes::<Elf::ProgramHeader>(&table, table.len() / entry) else {
        return Ok(None);
    };
    let mut budget = MOST_NOTES;
    for segment in segments.iter().filter(|segment| segment.p_type(endian) == PT_NOTE) {
        if budget == 0 {
            break;
        }
        let size: u64 = segment.p_filesz(endian).into();
        let len = budget.min(usize::try_from(size).unwrap_or(usize::MAX));
        budget = budget.saturating_sub(len.max(LEAST_NOTES));
        let bytes = read(file, segment.p_offset(endian).into(), len)?;
        // Notes are padded to 4 bytes unless the segment says 8.
        let align = segment.p_align(endian);
        let is_wide = Into::<u64>::into(align) == 8;
        let align = if is_wide { align } else { Elf::Word::default() };
        let Ok(mut notes) = NoteIterator::<Elf>::new(endian, align, &bytes) else {
            continue;
        };
        while let Ok(Some(note)) = notes.next() {
            if note.n_type(endian) == NT_GNU_BUILD_ID && note.name_bytes() == GNU {
                if let Some(id) = BuildId::new(note.desc()) {
                    return Ok(Some(id));
                }
            }
        }
    }
    Ok(None)
}

/// The number of program headers of a file, at most [`MOST_HEADERS`]. A number that does not fit
/// into the file's header is in `sh_info` of the first section header.
fn header_count<Elf>(file: &(impl ReadAt + ?Sized), header: &Elf, endian: Endianness) -> io::Result<usize>
where
    Elf: FileHeader<Endian = Endianness>,
{
    let count = header.e_phnum(endian);
    if count != PN_XNUM {
        return Ok(count.into());
    }
    let section = read(file, header.e_shoff(endian).into(), size_of::<Elf::SectionHeader>())?;
    let count = pod::from_bytes::<Elf::SectionHeader>(&section).map_or(0, |(section, _)| section.sh_info(endian));
    Ok(MOST_HEADERS.min(count as usize))
}

/// Reads `len` bytes at `offset`, or as many as there are.
fn read(file: &(impl ReadAt + ?Sized), offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let len = file.read_at(offset, &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    /// How a file encodes its numbers.
    #[derive(Clone, Copy, Debug)]
    struct Form {
        wide: bool,
        big: bool,
    }

    impl Form {
        /// One of two sizes or offsets, the first for 32 bits.
        fn at(self, narrow: usize, wide: usize) -> usize {
            if self.wide {
                wide
            } else {
                narrow
            }
        }
    }

    /// A handmade file with some notes in one segment.
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
            let count = if self.extended { PN_XNUM } else { 2 };
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

    /// Check files of both widths and byte orders, with both paddings, and with the number of
    /// headers in either place.
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

    /// Check that ids of a length that the kernel does not accept are ignored, and so are files of
    /// other kinds.
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

    /// Check that a truncated file is read up to its end.
    #[test]
    fn truncated_files_are_read_to_their_end() {
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

    /// An endless file, which counts the bytes read from it.
    struct Endless<'a> {
        head: &'a [u8],
        reads: Cell<u32>,
        bytes: Cell<usize>,
    }

    impl<'a> Endless<'a> {
        fn new(head: &'a [u8]) -> Endless<'a> {
            Endless {
                head,
                reads: Cell::new(0),
                bytes: Cell::new(0),
            }
        }

        /// Searches it, and checks that no more was read than the limits allow.
        fn check(&self) {
            assert_eq!(build_id(self).expect("memory is read"), None);
            let most = MOST_NOTES / LEAST_NOTES + 3;
            assert!(self.reads.get() as usize <= most, "{} reads", self.reads.get());
            let most = MOST_NOTES + MOST_HEADERS * 56 + 256;
            assert!(self.bytes.get() <= most, "{} bytes", self.bytes.get());
        }
    }

    impl ReadAt for Endless<'_> {
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
            self.reads.set(self.reads.get() + 1);
            self.bytes.set(self.bytes.get() + buffer.len());
            buffer.fill(0);
            self.head.read_at(offset, buffer)?;
            Ok(buffer.len())
        }
    }

    /// Check that no file keeps the reader busy: not with notes up to the highest address, not with
    /// a second such segment, not with as many headers as a file can claim, and not with as many
    /// segments.
    #[test]
    fn hostile_files_end() {
        let mut file = made(FORMS[2], 4, &[7; 20]).bytes();
        file.truncate(64 + 2 * 56);
        // The size of the segment.
        file[64 + 56 + 32..][..8].copy_from_slice(&u64::MAX.to_le_bytes());
        Endless::new(&file).check();
        // Both segments are like this.
        file.copy_within(64 + 56..64 + 2 * 56, 64);
        Endless::new(&file).check();
        // The number of headers.
        file[56..58].copy_from_slice(&u16::MAX.to_le_bytes());
        file[40..48].copy_from_slice(&8_u64.to_le_bytes());
        Endless::new(&file).check();
        // All of them are segments with a single byte.
        file[64 + 32..][..8].copy_from_slice(&1_u64.to_le_bytes());
        file[56..58].copy_from_slice(&(PN_XNUM - 1).to_le_bytes());
        let segment = file[64..64 + 56].to_vec();
        file.truncate(64);
        file.extend(segment.repeat(MOST_HEADERS - 1));
        Endless::new(&file).check();
    }

    fn forms() -> impl Strategy<Value = Form> {
        (any::<bool>(), any::<bool>()).prop_map(|(wide, big)| Form { wide, big })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Check that any bytes after the magic number of ELF can be read.
        #[test]
        fn any_bytes_are_survived(form in forms(), rest in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut file = vec![0x7f, b'E', b'L', b'F', 1 + u8::from(form.wide), 1 + u8::from(form.big)];
            file.extend(rest);
            let _ = build_id(&file[..]).expect("memory is read");
        }

        /// Check that a damaged file can be read, and that a build id found in it is part of it.
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
