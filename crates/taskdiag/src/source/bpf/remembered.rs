//! Arguments that earlier passes of a handle brought.
//!
//! Copying arguments out of a process is the dearest thing that a pass does. The program remembers for each task what its
//! run time, its context switches and its argument area were when it last copied, and if none of that
//! changed the task has not run since and can't have rewritten them: the program then sends only the number, the slot,
//! under which it sent them before. Here is what the slots stand for.

use std::sync::Arc;

use crate::record::{attr, Record};
use crate::record::{ARGS_KEPT, ARGS_SAME};
use crate::snapshot::{title, Remembered, Snapshot};

/// A slot that nothing was sent under.
const HOLE: Remembered = Remembered {
    chunk: u32::MAX,
    len: 0,
    offset: 0,
};

/// More chunks than this are joined into one.
const MAX_CHUNKS: usize = 64;

#[derive(Debug)]
pub(crate) struct ArgumentMemory {
    /// Counted up to make the programs forget; 0 stands for nothing remembered.
    epoch: u32,
    /// By number; holes have no chunk.
    slots: Vec<Remembered>,
    chunks: Vec<Arc<[u8]>>,
}

impl Default for ArgumentMemory {
    fn default() -> ArgumentMemory {
        ArgumentMemory {
            epoch: 1,
            slots: Vec::new(),
            chunks: Vec::new(),
        }
    }
}

impl ArgumentMemory {
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The number that the next new arguments get.
    pub(crate) fn next_slot(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Forgets everything, and makes the program forget.
    pub(crate) fn forget(&mut self) {
        self.epoch = self.epoch.wrapping_add(1).max(1);
        self.slots.clear();
        self.chunks.clear();
    }

    /// Keeps the new arguments of `snapshot`, and gives its rows those that did not change.
    pub(crate) fn take_in(&mut self, snapshot: &mut Snapshot) {
        let mut fresh = Vec::new();
        let chunk = self.chunks.len() as u32;
        let known = self.slots.len();
        for row in &mut snapshot.rows {
            let Some((record, _)) = Record::split_first(&snapshot.records[row.record..]) else {
                continue;
            };
            if record.has(ARGS_SAME) {
                row.more(&mut snapshot.more).remembered = slot(record, attr::ARGS_SAME)
                    .and_then(|slot| self.slots.get(slot))
                    .copied();
                snapshot.counters.remembered += 1;
            } else if record.has(ARGS_KEPT) {
                let (Some(slot), Some(args)) = (slot(record, attr::ARGS_SLOT), record.attribute(attr::ARGS)) else {
                    continue;
                };
                // Two walkers number in turn, in whatever order they come, so there can be holes.
                if slot < known || slot > known + snapshot_limit(&snapshot.records) {
                    continue;
                }
                let args = match record.has(crate::record::TITLE) {
                    true => title(args.payload),
                    false => args.payload,
                };
                if slot >= self.slots.len() {
                    self.slots.resize(slot + 1, HOLE);
                }
                self.slots[slot] = Remembered {
                    chunk,
                    offset: fresh.len(),
                    len: args.len() as u32,
                };
                fresh.extend_from_slice(args);
            }
        }
        if !fresh.is_empty() {
            self.chunks.push(fresh.into());
        }
        snapshot.remembered.clone_from(&self.chunks);
        // Tasks that ended leave their slots behind. The next pass brings everything once more when these prevail.
        if self.chunks.len() > MAX_CHUNKS || self.slots.len() > 4 * snapshot.rows.len() + 4096 {
            self.forget();
        }
    }
}

/// No pass takes more slots than twice its records.
fn snapshot_limit(records: &[u8]) -> usize {
    2 * (records.len() / size_of::<crate::record::Header>()) + 1024
}

fn slot(record: Record<'_>, kind: u16) -> Option<usize> {
    let payload = record.attribute(kind)?.payload;
    Some(u64::from_ne_bytes(payload.try_into().ok()?) as usize)
}
