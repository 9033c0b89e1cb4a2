//! Normalization: from addresses of a process to places in files.

use std::collections::HashMap;
use std::fmt;

use taskdiag_core::absent::{Absent, Known};
use taskdiag_core::error::Result;
use taskdiag_core::set::Set;
use taskdiag_core::snapshot::SourceId;

use super::bpf::Bpf;
use super::{build_id, BuildId, BuildIds, Device, Found, MapField, Mapping, Maps, Segment, VDSO};
use crate::errands::Errands;

/// A file that contains some of the addresses.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MappedFile {
    /// The kernel's name for it, without " (deleted)".
    pub path: Known<Vec<u8>>,
    /// Whether the file no longer has this name. It may have others.
    pub deleted: bool,
    /// The device.
    pub device: Device,
    /// The inode number.
    pub inode: u64,
    /// The build id; `None` if there is none.
    pub build_id: Known<Option<BuildId>>,
    /// What of it is loaded into memory, if it is an ELF file. [`Absent::NotAsked`] without
    /// [`Normalizer::segments`].
    pub segments: Known<Vec<Segment>>,
}

impl MappedFile {
    /// The address in the file's own terms of the byte at an offset: as its symbols and its debug
    /// information have it, also in a file that was split off. Comes with the segment that it is
    /// in; `None` if it is in none.
    pub fn elf_address(&self, offset: u64) -> Known<Option<(u64, Segment)>> {
        let segments = self.segments.as_deref().map_err(|reason| *reason)?;
        let of = |segment: &Segment| {
            let within = offset.checked_sub(segment.offset_bytes)?;
            (within < segment.size_bytes).then_some((segment.address.wrapping_add(within), *segment))
        };
        Ok(segments.iter().find_map(of))
    }
}

impl fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.as_deref().map(|path| path.escape_ascii().to_string());
        f.debug_struct("MappedFile")
            .field("path", &path)
            .field("deleted", &self.deleted)
            .field("device", &self.device)
            .field("inode", &self.inode)
            .field("build_id", &self.build_id)
            .field("segments", &self.segments)
            .finish()
    }
}

/// The result for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The address is in a file.
    InFile {
        /// Index into [`Normalized::files`].
        file: usize,
        /// The offset in the file, in bytes.
        offset: u64,
    },
    /// The address is in the library that the kernel maps into each process (vdso(7)).
    Vdso {
        /// The offset in the library, in bytes.
        offset: u64,
        /// The build id; `None` if there is none.
        build_id: Known<Option<BuildId>>,
    },
    /// The address is in memory without a file: heap, stack, or code that a program generated.
    Anonymous,
    /// The address is in other memory of the kernel: its data for the vdso, or its own half of the
    /// address space.
    Special,
    /// Nothing is mapped there.
    Unmapped,
}

/// The results for some addresses.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Normalized {
    /// The outcome of each address, in the order given.
    pub outcomes: Vec<Outcome>,
    /// The files of the addresses, each once.
    pub files: Vec<MappedFile>,
    /// How many mappings contain the addresses.
    pub mappings: usize,
    /// The source that answered, as [`Mappings::source`](super::Mappings::source) has it.
    pub source: SourceId,
}

/// Turns addresses of processes into places in files, which mean the same in every process, and
/// still do after the process has ended. It remembers the build ids that it reads from files.
pub struct Normalizer {
    build_ids: bool,
    segments: bool,
    known: BuildIds,
    /// Memory for names.
    names: Vec<u8>,
    bpf: Option<Bpf>,
    is_prepared: bool,
}

impl fmt::Debug for Normalizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Normalizer")
            .field("build_ids", &self.build_ids)
            .field("segments", &self.segments)
            .field("is_prepared", &self.is_prepared)
            .finish_non_exhaustive()
    }
}

impl Default for Normalizer {
    fn default() -> Normalizer {
        Normalizer::new()
    }
}

impl Normalizer {
    /// A normalizer that finds build ids.
    pub fn new() -> Normalizer {
        Normalizer {
            build_ids: true,
            segments: false,
            known: BuildIds::default(),
            names: Vec::new(),
            bpf: None,
            is_prepared: false,
        }
    }

    /// Loads BPF, which then answers where it is faster: for many addresses at once. Needs
    /// `CAP_BPF` and `CAP_PERFMON` (Linux 6.11).
    ///
    /// # Errors
    ///
    /// As [`Handle::prepare_maps`](crate::Handle::prepare_maps).
    pub fn prepare(&mut self) -> Result<()> {
        if !self.bpf.as_ref().is_some_and(Bpf::is_ours) {
            self.bpf = Some(Bpf::load()?);
            self.is_prepared = true;
        }
        Ok(())
    }

    /// Whether to find build ids. Otherwise they are [`Absent::NotAsked`].
    pub fn build_ids(mut self, wanted: bool) -> Normalizer {
        self.build_ids = wanted;
        self
    }

    /// Whether to read the segments of each file, for [`MappedFile::elf_address`].
    pub fn segments(mut self, wanted: bool) -> Normalizer {
        self.segments = wanted;
        self
    }

    /// Normalizes addresses of the process of `maps`, given in any order. Looks up each mapping that
    /// contains an address once.
    ///
    /// # Errors
    ///
    /// As [`Maps::at`].
    pub fn normalize(&mut self, maps: &mut Maps, addresses: &[u64]) -> Result<Normalized> {
        let mut fields = Set::from(MapField::Name);
        fields.extend(self.build_ids.then_some(MapField::BuildId));
        if self.is_prepared {
            // A reader that did not return still has the program.
            self.prepare()?;
        }
        self.lend_to(maps);
        let found = maps.at_each(addresses, fields);
        self.lend_to(maps);
        let found = found?;
        let mut errands = Errands::new(maps.patience);
        let mut normalized = place(addresses, &found, |mapping| {
            build_id::path_leads_to(&mut errands, mapping)
        });
        if self.segments {
            for file in &mut normalized.files {
                let is_it = |mapping: &Mapping<'_>| (mapping.device, mapping.inode) == (file.device, file.inode);
                // It may be found through one mapping, and not through another.
                for mapping in found.mappings.iter().filter(is_it) {
                    file.segments = build_id::segments(&mut errands, maps.directory().as_deref(), &mapping);
                    if file.segments.is_ok() {
                        break;
                    }
                }
            }
        }
        Ok(normalized)
    }

    /// Lends what the normalizer keeps to a handle, and takes it back on the second call.
    fn lend_to(&mut self, maps: &mut Maps) {
        std::mem::swap(&mut maps.build_ids, &mut self.known);
        let Some(mut space) = maps.space() else { return };
        std::mem::swap(&mut space.names, &mut self.names);
        if self.is_prepared {
            std::mem::swap(&mut space.bpf, &mut self.bpf);
        }
    }
}

/// What a mapping means for the addresses in it.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    File(usize),
    Anonymous,
    Vdso(Known<Option<BuildId>>),
    Special,
}

/// Turns addresses into places. `path_leads_to` tells whether the name of a mapping, as a path,
/// leads to its file.
fn place(addresses: &[u64], found: &Found, mut path_leads_to: impl FnMut(&Mapping<'_>) -> bool) -> Normalized {
    let mut files = Files {
        files: Vec::new(),
        by_inode: HashMap::new(),
    };
    let meanings: Vec<(u64, u64, Meaning)> = found
        .mappings
        .iter()
        .map(|mapping| {
            let meaning = match mapping.name {
                _ if mapping.is_file_backed() => Meaning::File(files.index(&mapping, &mut path_leads_to)),
                Ok(VDSO) => Meaning::Vdso(mapping.build_id),
                Ok(name) if is_anonymous(name) => Meaning::Anonymous,
                _ => Meaning::Special,
            };
            (mapping.start, mapping.offset_bytes, meaning)
        })
        .collect();
    let outcome = |(&address, place): (&u64, &Option<usize>)| {
        let Some((start, file_offset, meaning)) = place.map(|place| meanings[place]) else {
            return if is_kernels(address) {
                Outcome::Special
            } else {
                Outcome::Unmapped
            };
        };
        let offset = address - start;
        match meaning {
            Meaning::File(file) => Outcome::InFile {
                file,
                offset: file_offset.wrapping_add(offset),
            },
            Meaning::Anonymous => Outcome::Anonymous,
            Meaning::Vdso(build_id) => Outcome::Vdso { offset, build_id },
            Meaning::Special => Outcome::Special,
        }
    };
    Normalized {
        outcomes: addresses.iter().zip(&found.places).map(outcome).collect(),
        files: files.files,
        mappings: found.mappings.len(),
        source: found.mappings.source(),
    }
}

/// Memory without a file has no name, or a name that tells its use.
fn is_anonymous(name: &[u8]) -> bool {
    name.is_empty() || name == b"[heap]" || name.starts_with(b"[stack") || name.starts_with(b"[anon:")
}

/// Whether an address is in the kernel's half of the address space, where no process has memory.
fn is_kernels(address: u64) -> bool {
    address >> 63 == 1
}

/// The files of mappings.
struct Files {
    files: Vec<MappedFile>,
    /// For each inode, the file that was added last.
    by_inode: HashMap<(Device, u64), usize>,
}

impl Files {
    fn index(&mut self, mapping: &Mapping<'_>, path_leads_to: impl FnOnce(&Mapping<'_>) -> bool) -> usize {
        // An existing file may have such a name.
        let before_deleted = mapping.name.ok().and_then(|name| name.strip_suffix(b" (deleted)"));
        let is_same = |file: &MappedFile| {
            (file.device, file.inode) == (mapping.device, mapping.inode)
                && match &file.path {
                    Ok(path) if file.deleted => Some(&path[..]) == before_deleted,
                    path => path.as_deref().map_err(|reason| *reason) == mapping.name,
                }
        };
        let inode = (mapping.device, mapping.inode);
        let known = match self.by_inode.get(&inode) {
            Some(&latest) if is_same(&self.files[latest]) => Some(latest),
            // It has several names.
            Some(_) => self.files.iter().position(is_same),
            None => None,
        };
        if let Some(index) = known {
            let known = &mut self.files[index].build_id;
            // Reading the build id through another mapping may have failed.
            if !matches!(known, Ok(Some(_))) {
                *known = mapping.build_id;
            }
            return index;
        }
        let (path, deleted) = match before_deleted {
            Some(path) if !path_leads_to(mapping) => (Ok(path), true),
            _ => (mapping.name, false),
        };
        self.by_inode.insert(inode, self.files.len());
        self.files.push(MappedFile {
            path: path.map(<[u8]>::to_vec),
            deleted,
            device: mapping.device,
            inode: mapping.inode,
            build_id: mapping.build_id,
            segments: Err(Absent::NotAsked),
        });
        self.files.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::mapping;
    use super::super::Mappings;
    use super::*;

    fn found(mappings: &[Mapping<'_>], places: &[Option<usize>]) -> Found {
        let mut list = Mappings::new(SourceId::Procfs);
        mappings.iter().for_each(|mapping| list.push(1, mapping));
        Found {
            places: places.to_vec(),
            mappings: list,
        }
    }

    fn anonymous(start: u64, end: u64, name: &[u8]) -> Mapping<'_> {
        Mapping {
            device: Device::default(),
            inode: 0,
            offset_bytes: 0,
            ..mapping(start, end, name)
        }
    }

    /// Check that each address gets its offset in its file, in the order given, and that each file
    /// is listed once.
    #[test]
    fn addresses_become_offsets() {
        let mappings = [
            mapping(0x1000, 0x2000, b"/a"),
            mapping(0x3000, 0x5000, b"/a"),
            Mapping {
                inode: 43,
                ..mapping(0x6000, 0x7000, b"/b (deleted)")
            },
            mapping(0x8000, 0x9000, b"/another name of a"),
        ];
        let addresses = [0x3001, 0x6fff, 0x1000, 0x8002];
        let normalized = place(
            &addresses,
            &found(&mappings, &[Some(1), Some(2), Some(0), Some(3)]),
            |_| false,
        );
        let in_file = |file, offset| Outcome::InFile { file, offset };
        assert_eq!(
            normalized.outcomes,
            [
                in_file(0, 0x3001),
                in_file(1, 0x6fff),
                in_file(0, 0x1000),
                in_file(2, 0x8002)
            ]
        );
        let files: Vec<_> = normalized
            .files
            .iter()
            .map(|file| (file.path.clone().expect("a name"), file.deleted, file.inode))
            .collect();
        let expected: [(&[u8], bool, u64); 3] = [
            (b"/a", false, 42),
            (b"/b", true, 43),
            (b"/another name of a", false, 42),
        ];
        assert_eq!(
            files,
            expected.map(|(path, deleted, inode)| (path.to_vec(), deleted, inode))
        );
    }

    /// Check that a file whose name ends in " (deleted)" does not count as deleted.
    #[test]
    fn files_can_have_deleted_in_their_names() {
        let found = found(&[mapping(0x1000, 0x2000, b"/a (deleted)")], &[Some(0)]);
        let file = &place(&[0x1000], &found, |_| true).files[0];
        assert_eq!((file.path.as_deref(), file.deleted), (Ok(&b"/a (deleted)"[..]), false));
    }

    /// Check the reasons why an address is in no file.
    #[test]
    fn addresses_without_files_have_reasons() {
        let id = BuildId::new(b"id");
        let mappings = [
            anonymous(0x1000, 0x2000, b""),
            anonymous(0x2000, 0x3000, b"[heap]"),
            anonymous(0x3000, 0x4000, b"[anon:a [vdso]]"),
            anonymous(0x4000, 0x5000, b"[vvar]"),
            Mapping {
                build_id: Ok(id),
                ..anonymous(0x5000, 0x6000, b"[vdso]")
            },
        ];
        let addresses = [0x1000, 0x2000, 0x3000, 0x4000, 0x5123, 0x9000, 0xffff_ffff_ff60_0000];
        let places: Vec<_> = (0..5).map(Some).chain([None, None]).collect();
        let normalized = place(&addresses, &found(&mappings, &places), |_| false);
        let outcomes = [
            Outcome::Anonymous,
            Outcome::Anonymous,
            Outcome::Anonymous,
            Outcome::Special,
            Outcome::Vdso {
                offset: 0x123,
                build_id: Ok(id),
            },
            Outcome::Unmapped,
            Outcome::Special,
        ];
        assert_eq!(normalized.outcomes, outcomes);
        assert!(normalized.files.is_empty());
    }
}
