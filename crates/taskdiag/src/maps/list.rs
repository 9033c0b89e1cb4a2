//! Many mappings in two pieces of memory: the mappings, and their names.

use taskdiag_core::absent::Absent;

use super::{BuildId, Known, Mapping, Source};

/// Mappings of one process or of many, in the order of processes and addresses.
#[derive(Clone, Debug)]
pub struct Mappings {
    source: Source,
    entries: Vec<Entry>,
    names: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    pid: u32,
    /// Without its name.
    mapping: Mapping<'static>,
    name: Known<Name>,
}

/// Where a name stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    start: usize,
    len: usize,
}

impl Mappings {
    pub(super) fn new(source: Source) -> Mappings {
        Mappings {
            source,
            entries: Vec::new(),
            names: Vec::new(),
        }
    }

    /// Who answered.
    pub fn source(&self) -> Source {
        self.source
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// One of them, `index` being below [`len`](Mappings::len).
    pub fn get(&self, index: usize) -> Mapping<'_> {
        let entry = &self.entries[index];
        Mapping {
            name: entry.name.map(|name| self.text(name)),
            ..entry.mapping
        }
    }

    /// The process that one of them is of; 0 if all are of one that only a descriptor was known of.
    pub fn pid(&self, index: usize) -> u32 {
        self.entries[index].pid
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Mapping<'_>> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Appends a mapping.
    pub(super) fn push(&mut self, pid: u32, mapping: &Mapping<'_>) {
        let name = mapping.name.map(|name| self.name(name));
        self.push_named(pid, mapping, name);
    }

    /// Appends a mapping whose name is among ours already.
    pub(super) fn push_named(&mut self, pid: u32, mapping: &Mapping<'_>, name: Known<Name>) {
        self.entries.push(Entry {
            pid,
            mapping: Mapping {
                name: Err(Absent::NotAsked),
                ..*mapping
            },
            name,
        });
    }

    fn text(&self, name: Name) -> &[u8] {
        &self.names[name.start..][..name.len]
    }

    /// Takes in a name. That of the mapping before is not stored twice: most files are mapped in several pieces.
    pub(super) fn name(&mut self, name: &[u8]) -> Name {
        if let Some(Ok(last)) = self.entries.last().map(|entry| entry.name) {
            if self.text(last) == name {
                return last;
            }
        }
        let start = self.names.len();
        self.names.extend_from_slice(name);
        Name { start, len: name.len() }
    }

    pub(super) fn set_name(&mut self, index: usize, name: Known<Name>) {
        self.entries[index].name = name;
    }

    pub(super) fn set_build_id(&mut self, index: usize, id: Known<Option<BuildId>>) {
        self.entries[index].mapping.build_id = id;
    }

    /// Keeps the first `len`.
    pub(super) fn truncate(&mut self, len: usize) {
        self.entries.truncate(len);
    }

    /// Leaves out what is of some processes, which are in order.
    pub(super) fn remove_pids(&mut self, pids: &[u32]) {
        self.entries.retain(|entry| pids.binary_search(&entry.pid).is_err());
    }

    /// Brings processes into the order of their numbers.
    pub(super) fn sort_by_pid(&mut self) {
        if !self.entries.is_sorted_by_key(|entry| entry.pid) {
            self.entries.sort_by_key(|entry| entry.pid);
        }
    }
}
