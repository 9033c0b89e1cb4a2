//! Normalization: from addresses of a process to places in files, which mean the same in every process and after its end.

use std::collections::HashMap;

#[cfg(doc)]
use taskdiag_core::absent::Absent;
use taskdiag_core::error::Result;

use super::bpf::Bpf;
use super::{build_id, BuildId, BuildIds, Device, Found, Known, Mapping, Maps, Source, Wants, VDSO};
use crate::errands::Errands;

/// A file that addresses lie in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// The kernel's name for it, without " (deleted)".
    pub path: Known<Vec<u8>>,
    /// Whether that name is gone; the file may have others.
    pub deleted: bool,
    /// Its device.
    pub device: Device,
    /// Its inode number.
    pub inode: u64,
    /// Its build id. `None`: it has none.
    pub build_id: Known<Option<BuildId>>,
}

/// Why an address has no place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nothing is mapped there.
    Unmapped,
    /// Memory of no file: heap, stack, or what a program has made in it.
    Anonymous,
    /// The kernel's library in the process's memory.
    Vdso {
        /// Where in it.
        offset: u64,
        /// Its build id. `None`: it has none.
        build_id: Known<Option<BuildId>>,
    },
    /// Something else of the kernel's: its data for the library, say, or an address of its own half.
    Special,
}

/// What became of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has a place in a file.
    InFile {
        /// Index into [`Normalized::files`].
        file: usize,
        /// Where in the file.
        offset: u64,
    },
    /// It has none.
    Nowhere(Reason),
}

/// What became of addresses.
#[derive(Clone, Debug)]
pub struct Normalized {
    /// Of each address, in the order given.
    pub outcomes: Vec<Outcome>,
    /// The files they lie in, each once.
    pub files: Vec<MappedFile>,
    /// How many mappings they lie in.
    pub mappings: usize,
    /// Who answered.
    pub source: Source,
}

/// Normalizes addresses: opens the process's maps file, looks each mapping up once that an address lies in.
pub fn normalize(pid: u32, addresses: &[u64]) -> Result<Normalized> {
    Normalizer::new().normalize(&mut Maps::open(pid)?, addresses)
}

/// Normalizes addresses, and lets one choose how. It remembers the build ids that it had to read from files.
#[derive(Debug)]
pub struct Normalizer {
    build_ids: bool,
    known: BuildIds,
    /// Memory for names.
    names: Vec<u8>,
    bpf: Option<Bpf>,
    is_prepared: bool,
}

impl Default for Normalizer {
    fn default() -> Normalizer {
        Normalizer::new()
    }
}

impl Normalizer {
    /// Normalizes with build ids.
    pub fn new() -> Normalizer {
        Normalizer {
            build_ids: true,
            known: BuildIds::default(),
            names: Vec::new(),
            bpf: None,
            is_prepared: false,
        }
    }

    /// Loads BPF, which then answers where it is quicker: for many addresses at a time. Build ids are not among what it knows.
    pub fn prepare(&mut self) -> Result<()> {
        if !self.bpf.as_ref().is_some_and(Bpf::is_ours) {
            self.bpf = Some(Bpf::load()?);
            self.is_prepared = true;
        }
        Ok(())
    }

    /// With or without build ids; those that are not asked for are [`Absent::NotAsked`].
    pub fn build_ids(mut self, wanted: bool) -> Normalizer {
        self.build_ids = wanted;
        self
    }

    /// Normalizes addresses of the process that a handle is for, given in any order.
    pub fn normalize(&mut self, maps: &mut Maps, addresses: &[u64]) -> Result<Normalized> {
        let mut wants = Wants::NAMES;
        wants.set(Wants::BUILD_IDS, self.build_ids);
        if self.is_prepared {
            // A process that did not answer may have kept it.
            self.prepare()?;
        }
        self.lend_to(maps);
        let found = maps.at_each(addresses, wants);
        self.lend_to(maps);
        let found = found?;
        let mut errands = Errands::new(maps.patience);
        Ok(place(addresses, &found, |mapping| {
            build_id::path_leads_to(&mut errands, mapping)
        }))
    }
}

impl Normalizer {
    /// Gives a handle what is ours, for a question, and takes it back at the second time.
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

/// Makes places of mappings. `path_leads_to` tells whether the name of a mapping, taken as a path, leads to its file.
fn place(addresses: &[u64], found: &Found, mut path_leads_to: impl FnMut(&Mapping<'_>) -> bool) -> Normalized {
    let mut files = Files {
        files: Vec::new(),
        by_inode: HashMap::new(),
        sorted: 0,
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
            return Outcome::Nowhere(if is_kernels(address) {
                Reason::Special
            } else {
                Reason::Unmapped
            });
        };
        let offset = address - start;
        match meaning {
            Meaning::File(file) => Outcome::InFile {
                file,
                offset: file_offset.wrapping_add(offset),
            },
            Meaning::Anonymous => Outcome::Nowhere(Reason::Anonymous),
            Meaning::Vdso(build_id) => Outcome::Nowhere(Reason::Vdso { offset, build_id }),
            Meaning::Special => Outcome::Nowhere(Reason::Special),
        }
    };
    Normalized {
        outcomes: addresses.iter().zip(&found.places).map(outcome).collect(),
        files: files.files,
        mappings: found.mappings.len(),
        source: found.mappings.source(),
    }
}

/// Memory of no file has no name, or one that says what it is used for.
fn is_anonymous(name: &[u8]) -> bool {
    name.is_empty() || name == b"[heap]" || name.starts_with(b"[stack") || name.starts_with(b"[anon:")
}

/// Whether an address is in the half of all addresses that is the kernel's: no process has anything there of its own.
fn is_kernels(address: u64) -> bool {
    address >> 63 == 1
}

/// The files that were met.
struct Files {
    files: Vec<MappedFile>,
    /// For each inode, the file that was added last; not until it is looked for.
    by_inode: HashMap<(Device, u64), usize>,
    /// How many files are in there.
    sorted: usize,
}

impl Files {
    fn index(&mut self, mapping: &Mapping<'_>, path_leads_to: impl FnOnce(&Mapping<'_>) -> bool) -> usize {
        // A file can be called so, too.
        let before_deleted = mapping.name.ok().and_then(|name| name.strip_suffix(b" (deleted)"));
        let is_same = |file: &MappedFile| {
            (file.device, file.inode) == (mapping.device, mapping.inode)
                && match &file.path {
                    Ok(path) if file.deleted => Some(&path[..]) == before_deleted,
                    path => path.as_deref().map_err(|reason| *reason) == mapping.name,
                }
        };
        let known = match self.files.last() {
            // Most files are mapped in one piece.
            Some(last) if is_same(last) => Some(self.files.len() - 1),
            Some(_) => match self.latest((mapping.device, mapping.inode)) {
                Some(latest) if is_same(&self.files[latest]) => Some(latest),
                // It has several names.
                Some(_) => self.files.iter().position(is_same),
                None => None,
            },
            None => None,
        };
        if let Some(index) = known {
            let known = &mut self.files[index].build_id;
            // One mapping of a file can have failed to give what another one gives.
            if !matches!(known, Ok(Some(_))) {
                *known = mapping.build_id;
            }
            return index;
        }
        let (path, deleted) = match before_deleted {
            Some(path) if !path_leads_to(mapping) => (Ok(path), true),
            _ => (mapping.name, false),
        };
        self.files.push(MappedFile {
            path: path.map(<[u8]>::to_vec),
            deleted,
            device: mapping.device,
            inode: mapping.inode,
            build_id: mapping.build_id,
        });
        self.files.len() - 1
    }

    /// The file of this inode that was added last.
    fn latest(&mut self, inode: (Device, u64)) -> Option<usize> {
        let added = self.files.iter().enumerate().skip(self.sorted);
        self.by_inode
            .extend(added.map(|(index, file)| ((file.device, file.inode), index)));
        self.sorted = self.files.len();
        self.by_inode.get(&inode).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::mapping;
    use super::super::Mappings;
    use super::*;

    fn found(mappings: &[Mapping<'_>], places: &[Option<usize>]) -> Found {
        let mut list = Mappings::new(Source::Procfs);
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

    /// Check that each address gets its offset in its file, in the order given, and that a file is in the table once.
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

    /// Check that a file that is called so is not taken for a deleted one.
    #[test]
    fn files_can_be_called_deleted() {
        let found = found(&[mapping(0x1000, 0x2000, b"/a (deleted)")], &[Some(0)]);
        let file = &place(&[0x1000], &found, |_| true).files[0];
        assert_eq!((file.path.as_deref(), file.deleted), (Ok(&b"/a (deleted)"[..]), false));
    }

    /// Check the reasons for which an address has no place in a file.
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
        let reasons = [
            Reason::Anonymous,
            Reason::Anonymous,
            Reason::Anonymous,
            Reason::Special,
            Reason::Vdso {
                offset: 0x123,
                build_id: Ok(id),
            },
            Reason::Unmapped,
            Reason::Special,
        ];
        assert_eq!(normalized.outcomes, reasons.map(Outcome::Nowhere));
        assert!(normalized.files.is_empty());
    }
}
