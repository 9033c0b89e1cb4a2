//! The build ids of an ELF file, from its notes: in the segments of type `PT_NOTE`, as the kernel
//! finds it (`lib/buildid.c`), or else in the sections of type `SHT_NOTE`. Go's linker writes it
//! where no segment is.
//!
//! Anybody can write such a file. The crate `object` checks every length against what was read, and
//! this module limits how much is read, whatever the file says. It reads both widths and both byte
//! orders.

use std::fmt;
use std::io;

use object::elf::{FileHeader32, FileHeader64, NT_GNU_BUILD_ID, PN_XNUM, PT_LOAD, PT_NOTE, SHT_NOTE};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader as _, SectionHeader as _};
use object::{pod, Endianness};
use taskdiag_core::absent::{Absent, Known};

/// The build id that a linker wrote into a file, which distinguishes it from every other file
/// (ld(1), `--build-id`). Displays in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId {
    len: u8,
    bytes: [u8; MAX_BUILD_ID_BYTES],
}

/// The longest build id that is kept. Linkers write up to 20 bytes; mold has a choice of 32, as
/// many as SHA-256, and `--build-id=0x…` of any number.
const MAX_BUILD_ID_BYTES: usize = 32;

impl BuildId {
    /// A build id of 1 to 32 bytes; `None` for other lengths.
    pub fn new(id: &[u8]) -> Option<BuildId> {
        if id.is_empty() || id.len() > MAX_BUILD_ID_BYTES {
            return None;
        }
        let mut bytes = [0; MAX_BUILD_ID_BYTES];
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

/// A part of an ELF file that is loaded into memory: a program header of type `PT_LOAD` (elf(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Segment {
    /// Where it begins in the file.
    pub offset_bytes: u64,
    /// Its length in the file.
    pub size_bytes: u64,
    /// The address that the linker gave it, in whose terms symbols and debug information are.
    pub address: u64,
}

/// A source of bytes: a file, or the memory of a process.
pub(super) trait ReadAt {
    /// Reads up to `buffer.len()` bytes at `offset`. Fewer bytes mean the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
}

impl ReadAt for &[u8] {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..));
        let rest = rest.unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

/// The maximum number of bytes of notes to read from one file. Real files have a few hundred.
const MAX_NOTES: usize = 1 << 20;

/// Each segment counts as at least this many bytes, so that a file can't cause many small reads.
const MIN_NOTES: usize = 256;

/// The maximum number of program headers, and of section headers, to read from one file: as many as
/// the field in the header can hold. A file that claims more is not a program.
const MAX_HEADERS: usize = PN_XNUM as usize;

/// The name of the notes that GNU tools write, NUL included.
const GNU: &[u8] = b"GNU\0";

/// The name of the notes that Go's linker writes, and the type of the one with its build id.
const GO: &[u8] = b"Go\0\0";
const NT_GO_BUILD_ID: u32 = 4;

/// The longest build id of Go that is kept: the linker writes 83 bytes, or what `-buildid` says.
const LONGEST_OF_GO: usize = 256;

/// The build id of an ELF file. `None`: the file is not ELF, is damaged, or has no build id.
/// [`Absent::Truncated`]: it is longer than any that is kept. An error means that the file could
/// not be read.
pub(super) fn build_id(file: &dyn ReadAt) -> io::Result<Known<Option<BuildId>>> {
    let found = note(file, NT_GNU_BUILD_ID, GNU)?;
    Ok(found.map(|id| BuildId::new(&id).ok_or(Absent::Truncated)).transpose())
}

/// The build id that Go's linker wrote into an ELF file, as [`build_id`].
pub(super) fn go_build_id(file: &dyn ReadAt) -> io::Result<Known<Option<Vec<u8>>>> {
    Ok(match note(file, NT_GO_BUILD_ID, GO)? {
        Some(id) if id.len() > LONGEST_OF_GO => Err(Absent::Truncated),
        id => Ok(id),
    })
}

/// The content of the first note of this type and name that is not empty.
fn note(file: &dyn ReadAt, kind: u32, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let header = read(file, 0, size_of::<FileHeader64<Endianness>>())?;
    if let Ok(header) = FileHeader64::<Endianness>::parse(&header[..]) {
        search(file, header, kind, name)
    } else if let Ok(header) = FileHeader32::<Endianness>::parse(&header[..]) {
        search(file, header, kind, name)
    } else {
        Ok(None)
    }
}

/// The segments of an ELF file that are loaded into memory; none if it is not ELF. An error means
/// that the file could not be read.
pub(super) fn loaded(file: &dyn ReadAt) -> io::Result<Vec<Segment>> {
    let header = read(file, 0, size_of::<FileHeader64<Endianness>>())?;
    if let Ok(header) = FileHeader64::<Endianness>::parse(&header[..]) {
        loaded_by(file, header)
    } else if let Ok(header) = FileHeader32::<Endianness>::parse(&header[..]) {
        loaded_by(file, header)
    } else {
        Ok(Vec::new())
    }
}

fn loaded_by<Elf: Header>(file: &dyn ReadAt, header: &Elf) -> io::Result<Vec<Segment>> {
    let Ok(endian) = header.endian() else {
        return Ok(Vec::new());
    };
    let table = program_headers(file, header, endian)?;
    let segments = entries::<Elf::ProgramHeader>(&table).iter();
    let loaded = segments.filter(|segment| segment.p_type(endian) == PT_LOAD);
    let loaded = loaded.map(|segment| Segment {
        offset_bytes: segment.p_offset(endian).into(),
        size_bytes: segment.p_filesz(endian).into(),
        address: segment.p_vaddr(endian).into(),
    });
    Ok(loaded.collect())
}

/// The header of a file of either width.
trait Header: FileHeader<Endian = Endianness> {}

impl<Elf: FileHeader<Endian = Endianness>> Header for Elf {}

/// A part of a file with notes: a segment or a section.
struct Notes<Elf: FileHeader> {
    offset: u64,
    size: u64,
    align: Elf::Word,
}

/// Searches the notes of a file.
fn search<Elf: Header>(file: &dyn ReadAt, header: &Elf, kind: u32, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let Ok(endian) = header.endian() else {
        return Ok(None);
    };
    let mut budget = MAX_NOTES;
    for find in [segments::<Elf>, sections::<Elf>] {
        for notes in find(file, header, endian)? {
            if budget == 0 {
                return Ok(None);
            }
            let len = budget.min(usize::try_from(notes.size).unwrap_or(usize::MAX));
            budget = budget.saturating_sub(len.max(MIN_NOTES));
            let bytes = read(file, notes.offset, len)?;
            // Notes are padded to 4 bytes unless the part of the file says 8.
            let is_wide = Into::<u64>::into(notes.align) == 8;
            let align = if is_wide { notes.align } else { Elf::Word::default() };
            let Ok(mut notes) = NoteIterator::<Elf>::new(endian, align, &bytes) else {
                continue;
            };
            while let Ok(Some(note)) = notes.next() {
                let is_wanted = note.n_type(endian) == kind && note.name_bytes() == name;
                if is_wanted && !note.desc().is_empty() {
                    return Ok(Some(note.desc().to_vec()));
                }
            }
        }
    }
    Ok(None)
}

/// The program headers of a file, as bytes.
fn program_headers<Elf: Header>(file: &dyn ReadAt, header: &Elf, endian: Endianness) -> io::Result<Vec<u8>> {
    let mut count = usize::from(header.e_phnum(endian));
    if count == usize::from(PN_XNUM) {
        // The number does not fit there.
        let first = first_section(file, header, endian)?;
        count = MAX_HEADERS.min(first.map_or(0, |first| first.sh_info(endian) as usize));
    }
    let size = header.e_phentsize(endian);
    table::<Elf::ProgramHeader>(file, header.e_phoff(endian).into(), size, count)
}

/// The note segments of a file.
fn segments<Elf: Header>(file: &dyn ReadAt, header: &Elf, endian: Endianness) -> io::Result<Vec<Notes<Elf>>> {
    let table = program_headers(file, header, endian)?;
    let segments = entries::<Elf::ProgramHeader>(&table).iter();
    let notes = segments.filter(|segment| segment.p_type(endian) == PT_NOTE);
    let notes = notes.map(|segment| Notes {
        offset: segment.p_offset(endian).into(),
        size: segment.p_filesz(endian).into(),
        align: segment.p_align(endian),
    });
    Ok(notes.collect())
}

/// The note sections of a file.
fn sections<Elf: Header>(file: &dyn ReadAt, header: &Elf, endian: Endianness) -> io::Result<Vec<Notes<Elf>>> {
    let mut count = usize::from(header.e_shnum(endian));
    if count == 0 && Into::<u64>::into(header.e_shoff(endian)) != 0 {
        // The number does not fit there.
        let first = first_section(file, header, endian)?;
        let size = first.map_or(0, |first| first.sh_size(endian).into());
        count = MAX_HEADERS.min(usize::try_from(size).unwrap_or(usize::MAX));
    }
    let size = header.e_shentsize(endian);
    let table = table::<Elf::SectionHeader>(file, header.e_shoff(endian).into(), size, count)?;
    let sections = entries::<Elf::SectionHeader>(&table).iter();
    let notes = sections.filter(|section| section.sh_type(endian) == SHT_NOTE);
    let notes = notes.map(|section| Notes {
        offset: section.sh_offset(endian).into(),
        size: section.sh_size(endian).into(),
        align: section.sh_addralign(endian),
    });
    Ok(notes.collect())
}

/// The first section header, which has the numbers that do not fit into the header of the file.
fn first_section<Elf: Header>(
    file: &dyn ReadAt,
    header: &Elf,
    endian: Endianness,
) -> io::Result<Option<Elf::SectionHeader>> {
    let bytes = read(file, header.e_shoff(endian).into(), size_of::<Elf::SectionHeader>())?;
    Ok(entries::<Elf::SectionHeader>(&bytes).first().copied())
}

/// The bytes of a table of headers; none if its entries have another size.
fn table<T>(file: &dyn ReadAt, offset: u64, entry: u16, count: usize) -> io::Result<Vec<u8>> {
    if usize::from(entry) != size_of::<T>() {
        return Ok(Vec::new());
    }
    read(file, offset, count * size_of::<T>())
}

/// The whole entries of a table.
fn entries<T: pod::Pod>(table: &[u8]) -> &[T] {
    pod::slice_from_bytes(table, table.len() / size_of::<T>()).map_or(&[], |(entries, _)| entries)
}

/// Reads `len` bytes at `offset`, or as many as there are.
fn read(file: &dyn ReadAt, offset: u64, len: usize) -> io::Result<Vec<u8>> {
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

    /// A handmade file with some notes in one segment, or in a section that no segment covers.
    #[derive(Clone, Debug)]
    struct Made {
        form: Form,
        align: usize,
        /// Type, name, content.
        notes: Vec<(u32, Vec<u8>, Vec<u8>)>,
        extended: bool,
        /// No segment covers the notes.
        uncovered: bool,
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
            let notes_at = header + 2 * entry + 2 * section;
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
            let (segments, sections) = if self.extended { (PN_XNUM, 0) } else { (2, 2) };
            for value in [header as u16, entry as u16, segments, section as u16, sections, 0] {
                self.put(&value.to_be_bytes(), &mut file);
            }
            assert_eq!(file.len(), header);
            // One segment of another type, then that of the notes.
            for kind in [1_u32, if self.uncovered { 1 } else { PT_NOTE }] {
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
            // The first section has the numbers of both kinds of headers.
            for (kind, offset, size, info) in [(0_u32, 0, 2, 2_u32), (SHT_NOTE, notes_at, notes.len(), 0)] {
                let start = file.len();
                self.put(&[0; 4], &mut file);
                self.put(&kind.to_be_bytes(), &mut file);
                for value in [0, 0, offset, size] {
                    self.word(value as u64, &mut file);
                }
                self.put(&[0; 4], &mut file);
                self.put(&info.to_be_bytes(), &mut file);
                self.word(self.align as u64, &mut file);
                file.resize(start + section, 0);
            }
            assert_eq!(file.len(), notes_at);
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
        let property = (5, GNU.to_vec(), vec![1; 16]);
        let foreign = (NT_GNU_BUILD_ID, GO.to_vec(), vec![2; 20]);
        let wanted = (NT_GNU_BUILD_ID, b"GNU\0".to_vec(), id.to_vec());
        Made {
            form,
            align,
            notes: vec![property, foreign, wanted],
            extended: false,
            uncovered: false,
        }
    }

    /// Check files of both widths and byte orders, with both paddings, with the numbers of headers
    /// in either place, and with notes in a segment or in a section alone.
    #[test]
    fn all_forms_are_read() {
        for form in FORMS {
            for (align, len, extended) in [
                (4, 20, false),
                (8, 20, true),
                (4, 1, true),
                (8, 16, false),
                (4, 7, false),
                (4, 21, false),
                (8, 32, true),
            ] {
                for uncovered in [false, true] {
                    let id: Vec<u8> = (1..=len).collect();
                    let file = Made {
                        extended,
                        uncovered,
                        ..made(form, align, &id)
                    }
                    .bytes();
                    let id = BuildId::new(&id);
                    assert!(id.is_some());
                    assert_eq!(found(&file), Ok(id), "{form:?} {align} {len} {uncovered}");
                }
            }
        }
    }

    fn found(file: &[u8]) -> Known<Option<BuildId>> {
        build_id(&file).expect("memory is read")
    }

    /// Check that an empty id is none, and that one that is too long to be kept is not said to be
    /// none; and that files of other kinds have none.
    #[test]
    fn ids_have_a_length() {
        assert_eq!(found(&made(FORMS[2], 4, &[]).bytes()), Ok(None));
        for len in [33, 64, 4000] {
            assert_eq!(found(&made(FORMS[2], 4, &vec![1; len]).bytes()), Err(Absent::Truncated));
        }
        for bytes in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", &[0x7f; 100]] {
            assert_eq!(found(bytes), Ok(None));
        }
    }

    /// Check that the build id of Go is found beside the other one, and that one that is too long to
    /// be kept is not said to be none.
    #[test]
    fn go_has_its_own_ids() {
        for (len, expected) in [
            (0, Ok(None)),
            (83, Ok(Some(vec![b'g'; 83]))),
            (256, Ok(Some(vec![b'g'; 256]))),
            (257, Err(Absent::Truncated)),
        ] {
            let mut file = made(FORMS[2], 4, &[7; 20]);
            file.notes.push((NT_GO_BUILD_ID, GO.to_vec(), vec![b'g'; len]));
            assert_eq!(go_build_id(&file.bytes().as_slice()).expect("memory is read"), expected);
            assert_eq!(found(&file.bytes()), Ok(BuildId::new(&[7; 20])));
        }
        let without = made(FORMS[2], 4, &[7; 20]).bytes();
        assert_eq!(go_build_id(&without.as_slice()).expect("memory is read"), Ok(None));
    }

    /// Check that segments are found in files of all forms, and none in other files.
    #[test]
    fn segments_are_read() {
        for form in FORMS {
            for extended in [false, true] {
                let file = Made {
                    extended,
                    ..made(form, 4, &[7; 20])
                }
                .bytes();
                let notes_at = form.at(52 + 2 * 32 + 2 * 40, 64 + 2 * 56 + 2 * 64) as u64;
                let segment = Segment {
                    offset_bytes: notes_at,
                    size_bytes: file.len() as u64 - notes_at,
                    address: 0,
                };
                assert_eq!(loaded(&file.as_slice()).expect("memory is read"), [segment], "{form:?}");
            }
        }
        assert_eq!(loaded(&&b"#!/bin/sh\n"[..]).expect("memory is read"), []);
    }

    /// Check that a truncated file is read up to its end.
    #[test]
    fn truncated_files_are_read_to_their_end() {
        for form in FORMS {
            let file = made(form, 4, &[7; 20]).bytes();
            for len in 0..file.len() {
                assert_eq!(found(&file[..len]), Ok(None), "{len} of {}", file.len());
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
            assert_eq!(build_id(self).expect("memory is read"), Ok(None));
            // Two tables, the first section for each, and the header.
            let most = MAX_NOTES / MIN_NOTES + 5;
            assert!(self.reads.get() as usize <= most, "{} reads", self.reads.get());
            let most = MAX_NOTES + MAX_HEADERS * (56 + 64) + 256;
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
        // As many sections.
        let mut sections = file.clone();
        sections[60..62].copy_from_slice(&u16::MAX.to_le_bytes());
        Endless::new(&sections).check();
        // All of them are segments with a single byte.
        file[64 + 32..][..8].copy_from_slice(&1_u64.to_le_bytes());
        file[56..58].copy_from_slice(&(PN_XNUM - 1).to_le_bytes());
        let segment = file[64..64 + 56].to_vec();
        file.truncate(64);
        file.extend(segment.repeat(MAX_HEADERS - 1));
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
            let _ = found(&file);
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
            if let Ok(Some(found)) = found(&file) {
                prop_assert!(file.windows(found.as_bytes().len()).any(|window| window == found.as_bytes()));
            }
        }
    }
}
