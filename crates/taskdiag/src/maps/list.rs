//! Many mappings in two pieces of memory: the mappings, and their names.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use taskdiag_core::absent::{Absent, Known};
use taskdiag_core::snapshot::SourceId;

use super::build_id::GoBuildId;
use super::{BuildId, Device, Mapping};

/// Mappings of one or many processes, by ascending process and address.
#[derive(Clone)]
pub struct Mappings {
    source: SourceId,
    entries: Vec<Entry>,
    names: Vec<u8>,
    /// By file, if they were asked for.
    go_build_ids: Option<HashMap<(Device, u64), GoBuildId>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// 0 if it is not known.
    pid: u32,
    /// Without its name and process.
    mapping: Mapping<'static>,
    name: Known<Name>,
}

/// Where a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    start: usize,
    len: usize,
}

impl fmt::Debug for Mappings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mappings")
            .field("source", &self.source)
            .field("len", &self.entries.len())
            .finish_non_exhaustive()
    }
}

impl<'a> IntoIterator for &'a Mappings {
    type Item = Mapping<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Iterator over mappings.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    list: &'a Mappings,
    indexes: Range<usize>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Mapping<'a>;

    fn next(&mut self) -> Option<Mapping<'a>> {
        Some(self.list.get(self.indexes.next()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.indexes.size_hint()
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl Mappings {
    pub(super) fn new(source: SourceId) -> Mappings {
        Mappings {
            source,
            entries: Vec::new(),
            names: Vec::new(),
            go_build_ids: None,
        }
    }

    pub(super) fn set_source(&mut self, source: SourceId) {
        self.source = source;
    }

    /// The source that answered. It is the broker if that opened the files, through which the
    /// kernel answered.
    pub fn source(&self) -> SourceId {
        self.source
    }

    /// The number of mappings.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no mapping.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The mapping at `index`.
    ///
    /// # Panics
    ///
    /// If `index` is not less than [`len`](Mappings::len).
    pub fn get(&self, index: usize) -> Mapping<'_> {
        let entry = &self.entries[index];
        Mapping {
            pid: Some(entry.pid).filter(|&pid| pid != 0),
            name: entry.name.map(|name| self.text(name)),
            go_build_id: self.go_build_ids.as_ref().map(|ids| {
                let file = (entry.mapping.device, entry.mapping.inode);
                ids.get(&file).unwrap_or(&Ok(None))
            }),
            ..entry.mapping
        }
    }

    /// The process of a mapping; 0 if it is not known.
    pub(super) fn pid(&self, index: usize) -> u32 {
        self.entries[index].pid
    }

    /// Keeps the mappings for which this is true.
    pub fn retain(&mut self, keep: impl FnMut(Mapping<'_>) -> bool) {
        let mut kept = self.iter().map(keep).collect::<Vec<bool>>().into_iter();
        self.entries.retain(|_| kept.next().unwrap_or(false));
    }

    /// Iterates over the mappings.
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            list: self,
            indexes: 0..self.len(),
        }
    }

    /// Appends a mapping.
    pub(super) fn push(&mut self, pid: u32, mapping: &Mapping<'_>) {
        let name = mapping.name.map(|name| self.name(name));
        self.push_named(pid, mapping, name);
    }

    /// Appends a mapping whose name was added before.
    pub(super) fn push_named(&mut self, pid: u32, mapping: &Mapping<'_>, name: Known<Name>) {
        self.entries.push(Entry {
            pid,
            mapping: Mapping {
                name: Err(Absent::NotAsked),
                go_build_id: None,
                ..*mapping
            },
            name,
        });
    }

    fn text(&self, name: Name) -> &[u8] {
        &self.names[name.start..][..name.len]
    }

    /// Adds a name. The name of the last mapping is not stored twice, because most files are mapped
    /// in several pieces.
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

    pub(super) fn set_go_build_ids(&mut self, ids: HashMap<(Device, u64), GoBuildId>) {
        self.go_build_ids = Some(ids);
    }

    /// Keeps the first `len` mappings.
    pub(super) fn truncate(&mut self, len: usize) {
        self.entries.truncate(len);
    }

    /// Drops the mappings of some processes. `pids` is sorted.
    pub(super) fn remove_pids(&mut self, pids: &[u32]) {
        self.entries.retain(|entry| pids.binary_search(&entry.pid).is_err());
    }

    /// Sorts the mappings by process, unless they are sorted.
    pub(super) fn sort_by_pid(&mut self) {
        if !self.entries.is_sorted_by_key(|entry| entry.pid) {
            self.entries.sort_by_key(|entry| entry.pid);
        }
    }
}
