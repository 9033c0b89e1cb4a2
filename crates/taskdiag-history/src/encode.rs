//! Writing a segment.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write as _};

use taskdiag_core::identity::Identity;
use taskdiag_core::snapshot::Snapshot;

use crate::about::{self, About};
use crate::events::{self, Happened};
use crate::figures::{self, Figure, Figures, Part, Written};
use crate::piece::{self, Time};
use crate::table::{Changes, Table};
use crate::tasks::Layout;
use crate::texts::Interned;
use crate::{Damage, MOST_BYTES, MOST_VALUES};

/// The compression level of zstd. Higher ones save a few percent and take twice the time.
const LEVEL: i32 = 3;

const TOO_MUCH: Damage = Damage("there is more in a sample than can be recorded");

/// What a machine was like at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The moment.
    pub time: Time,
    /// The processes; if there is `others`, those that ran since the sample before, or are new.
    pub tasks: &'a Snapshot,
    /// All processes, with those values that can change while a process does not run. A process that
    /// is in neither has ended; one that is here alone and was not there before is new, and in no
    /// sample until it is in `tasks`.
    pub others: Option<&'a Snapshot>,
    /// Figures of the machine and of cgroups, and names.
    pub figures: &'a [Part<'a>],
    /// What happened since the sample before.
    pub happened: &'a Happened,
}

/// Writes a segment, as pieces of bytes.
pub struct Encoder {
    layout: Layout,
    expected: Vec<Vec<usize>>,
    texts: Interned,
    table: Table,
    slots: HashMap<Identity, Slot>,
    free: BTreeSet<u32>,
    next_slot: u32,
    generation: u64,
    figures: Written,
    compressor: zstd::stream::write::Encoder<'static, Vec<u8>>,
    body: Vec<u8>,
    row: Vec<u64>,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder")
            .field("tasks", &self.slots.len())
            .finish_non_exhaustive()
    }
}

/// Where a task's row is, and in which sample the task was last.
#[derive(Clone, Copy, Debug)]
struct Slot {
    slot: u32,
    seen: u64,
}

impl Encoder {
    /// Begins a segment: appends its first bytes and its first piece.
    ///
    /// # Errors
    ///
    /// If zstd has no memory.
    pub fn begin(about: &About, time: Time, out: &mut Vec<u8>) -> io::Result<Encoder> {
        let layout = Layout::new();
        let mut encoder = Encoder {
            expected: layout.schema().columns.iter().map(|(_, from)| from.clone()).collect(),
            layout,
            texts: Interned::default(),
            table: Table::default(),
            slots: HashMap::new(),
            free: BTreeSet::new(),
            next_slot: 0,
            generation: 0,
            figures: Written::default(),
            compressor: zstd::stream::write::Encoder::new(Vec::new(), LEVEL)?,
            body: Vec::new(),
            row: Vec::new(),
        };
        out.extend_from_slice(&piece::MAGIC);
        about::encode(about, encoder.layout.schema(), &mut encoder.body);
        encoder.append(time, out)?;
        Ok(encoder)
    }

    /// Appends the piece of a sample. After an error the segment can't go on.
    ///
    /// # Errors
    ///
    /// If zstd has no memory, or the sample is larger than [`MOST_BYTES`].
    pub fn sample(&mut self, sample: &Sample<'_>, out: &mut Vec<u8>) -> io::Result<()> {
        let changes = self.changes(sample);
        if self.slots.len() * self.expected.len() > MOST_VALUES {
            return Err(io::Error::other(TOO_MUCH));
        }
        let mut rows = Vec::new();
        self.table.encode(changes, &self.expected, &mut rows);
        let mut figures = Vec::new();
        self.figures.encode(sample.figures, &mut self.texts, &mut figures);
        let mut happened = Vec::new();
        events::encode(sample.happened, &mut self.texts, &mut happened);
        self.body.clear();
        // What follows names these.
        self.texts.encode(&mut self.body);
        for part in [rows, figures, happened] {
            self.body.extend_from_slice(&part);
        }
        self.append(sample.time, out)
    }

    /// Roughly the memory that the texts of this segment take.
    pub fn text_bytes(&self) -> usize {
        self.texts.bytes
    }

    /// Appends a piece with any bytes in the place of a sample, for tests of reading.
    ///
    /// # Errors
    ///
    /// As [`sample`](Encoder::sample).
    #[doc(hidden)]
    pub fn append_body(&mut self, time: Time, body: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.body.clear();
        self.body.extend_from_slice(body);
        self.append(time, out)
    }

    fn append(&mut self, time: Time, out: &mut Vec<u8>) -> io::Result<()> {
        if self.body.len() > MOST_BYTES {
            return Err(io::Error::other(TOO_MUCH));
        }
        self.compressor.write_all(&self.body)?;
        self.compressor.flush()?;
        let compressed = std::mem::take(self.compressor.get_mut());
        piece::append(out, time, &compressed);
        Ok(())
    }

    /// Finds out which tasks have changed, began and ended.
    fn changes(&mut self, sample: &Sample<'_>) -> Changes {
        let mut changes = Changes::default();
        self.generation += 1;
        let mut new = Vec::new();
        for task in sample.tasks.tasks() {
            let identity = Identity::of(task.record().header());
            let before = match self.meet(identity) {
                Some((slot, true)) => self.table.row(slot).map(|row| (slot, row)),
                Some((_, false)) => continue,
                None => None,
            };
            let row_before = before.map(|(_, row)| row);
            self.layout
                .row(&task, sample.time.boot_ns, row_before, &mut self.texts, &mut self.row);
            match before {
                Some((_, row)) if **row == self.row[..] => {}
                Some((slot, _)) => changes.changed.push((slot, self.row.as_slice().into())),
                None => new.push((identity, self.row.as_slice().into())),
            }
        }
        for task in sample.others.iter().flat_map(|others| others.tasks()) {
            let met = self.meet(Identity::of(task.record().header()));
            let Some((slot, true)) = met else { continue };
            let Some(row) = self.table.row(slot) else { continue };
            if self.layout.update(&task, row, &mut self.texts, &mut self.row) {
                changes.changed.push((slot, self.row.as_slice().into()));
            }
        }
        self.end_others(&mut changes.ended);
        for (identity, row) in new {
            let slot = self.free.pop_first().unwrap_or_else(|| {
                self.next_slot += 1;
                self.next_slot - 1
            });
            let seen = self.generation;
            // A second task with the same identity is no task: ids are in a snapshot once.
            if self.slots.insert(identity, Slot { slot, seen }).is_none() {
                changes.new.push((slot, row));
            }
        }
        changes.new.sort_unstable_by_key(|&(slot, _)| slot);
        changes.changed.sort_unstable_by_key(|&(slot, _)| slot);
        changes
    }

    /// The slot of a task that was in the sample before, and whether it was not met in this one yet.
    fn meet(&mut self, task: Identity) -> Option<(u32, bool)> {
        let known = self.slots.get_mut(&task)?;
        let before = std::mem::replace(&mut known.seen, self.generation);
        Some((known.slot, before != self.generation))
    }

    /// Gives the slots of tasks that are not in this sample free.
    fn end_others(&mut self, ended: &mut Vec<u32>) {
        let generation = self.generation;
        self.slots.retain(|_, slot| {
            let is_there = slot.seen == generation;
            if !is_there {
                ended.push(slot.slot);
            }
            is_there
        });
        ended.sort_unstable();
        self.free.extend(ended.iter());
    }
}

/// Adds to the figures who answered which group, and what was counted.
pub fn add_answers(snapshot: &Snapshot, into: &mut Figures) {
    for (group, answer) in snapshot.answers() {
        let (object, figure) = match answer {
            Ok(source) => ("sources", Figure::Text(source.name().as_bytes().into())),
            Err(reason) => ("absent", Figure::Number(reason as u64)),
        };
        figures::set(into, object.as_bytes(), group.name().as_bytes(), figure);
    }
    for (name, count) in snapshot.counters().named().filter(|&(name, _)| COUNTED.contains(&name)) {
        figures::set(into, b"counters", name.as_bytes(), Figure::Number(count));
    }
}

/// The counters of a snapshot that say what is missing in it.
pub(crate) const COUNTED: [&str; 6] = ["gone", "denied", "no_answer", "over_budget", "hidden", "malformed"];
