//! Encoding a segment.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write as _};

use taskdiag_core::identity::Identity;
use taskdiag_core::room;
use taskdiag_core::snapshot::Snapshot;

use crate::about::{self, About};
use crate::coder::Writer;
use crate::events::IntervalEvents;
use crate::figures::{self, Figure, FigureEncoder, Figures, Part};
use crate::piece::{self, Time};
use crate::table::{Changes, Table};
use crate::tasks::Layout;
use crate::texts::Interned;
use crate::{Damage, MAX_BYTES};

/// The compression level of zstd. Higher ones save a few percent and take twice the time.
const LEVEL: i32 = 3;

/// The state of a machine at one time.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// When the sample was taken.
    pub time: Time,
    /// The processes. If there is `others`, only those that are new or ran since the previous
    /// sample.
    pub tasks: &'a Snapshot,
    /// All processes, with the values that can change while a process does not run. A process in
    /// neither snapshot has ended. A process that is only here and was not in the previous sample
    /// is new, but not recorded until it is in `tasks`.
    pub others: Option<&'a Snapshot>,
    /// Figures of the machine and of cgroups, and names.
    pub figures: &'a [Part<'a>],
    /// What happened since the previous sample.
    pub happened: &'a IntervalEvents,
}

/// Encodes a segment as pieces.
pub struct Encoder {
    layout: Layout,
    texts: Interned,
    table: Table,
    slots: HashMap<Identity, Slot>,
    /// For each slot, the task's last record in [`Sample::others`], unless `tasks` set the row
    /// since. An identical record changes nothing.
    others: Vec<Vec<u8>>,
    free: BTreeSet<u32>,
    next_slot: u32,
    generation: u64,
    figures: FigureEncoder,
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

/// The slot of a task's row, and the last sample with the task.
#[derive(Clone, Copy, Debug)]
struct Slot {
    slot: u32,
    seen: u64,
}

impl Encoder {
    /// Begins a segment: appends its magic number and its first piece.
    ///
    /// # Errors
    ///
    /// If zstd cannot allocate memory.
    pub fn begin(about: &About, time: Time, out: &mut Vec<u8>) -> io::Result<Encoder> {
        let layout = Layout::new();
        let mut encoder = Encoder {
            texts: Interned::default(),
            table: Table::new(layout.schema().columns.len()),
            layout,
            slots: HashMap::new(),
            others: Vec::new(),
            free: BTreeSet::new(),
            next_slot: 0,
            generation: 0,
            figures: FigureEncoder::default(),
            compressor: zstd::stream::write::Encoder::new(Vec::new(), LEVEL)?,
            body: Vec::new(),
            row: Vec::new(),
        };
        out.extend_from_slice(&piece::MAGIC);
        about::encode(about, encoder.layout.schema(), &mut encoder.body);
        encoder.append(time, out)?;
        Ok(encoder)
    }

    /// Appends a sample as a piece. After an error, the segment cannot be continued.
    ///
    /// # Errors
    ///
    /// If zstd cannot allocate memory, or the sample is larger than [`MAX_BYTES`].
    pub fn sample(&mut self, sample: &Sample<'_>, out: &mut Vec<u8>) -> io::Result<()> {
        let numbers = self.numbers(sample).map_err(io::Error::other)?;
        room::empty(&mut self.body);
        self.texts.encode(&mut self.body);
        self.body.extend_from_slice(&numbers);
        self.append(sample.time, out)
    }

    fn numbers(&mut self, sample: &Sample<'_>) -> Result<Vec<u8>, Damage> {
        let changes = self.changes(sample);
        let mut coder = Writer::default();
        self.table.code(changes, &mut coder)?;
        self.figures.encode(sample.figures, &mut self.texts, &mut coder)?;
        sample.happened.encode(&mut self.texts, &mut coder)?;
        Ok(coder.finish())
    }

    /// The approximate memory that the texts of this segment take.
    pub fn text_bytes(&self) -> usize {
        self.texts.bytes
    }

    /// Appends a piece with arbitrary bytes instead of a sample's texts and numbers, for decoder
    /// tests.
    ///
    /// # Errors
    ///
    /// As for [`sample`](Encoder::sample).
    #[doc(hidden)]
    pub fn append_body(&mut self, time: Time, body: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.body.clear();
        self.body.extend_from_slice(body);
        self.append(time, out)
    }

    /// Appends a piece: `body`, compressed.
    fn append(&mut self, time: Time, out: &mut Vec<u8>) -> io::Result<()> {
        if self.body.len() > MAX_BYTES {
            return Err(io::Error::other(Damage(
                "there is more in a sample than can be recorded",
            )));
        }
        self.compressor.write_all(&self.body)?;
        self.compressor.flush()?;
        piece::append(out, time, self.compressor.get_ref());
        room::empty(self.compressor.get_mut());
        Ok(())
    }

    /// Determines which tasks changed, started and ended.
    fn changes(&mut self, sample: &Sample<'_>) -> Changes {
        let mut changes = Changes::default();
        self.generation += 1;
        let mut new = Vec::new();
        for task in sample.tasks.tasks() {
            let identity = Identity::of(task.record().header());
            let before = match self.meet(identity) {
                Some((slot, true)) => {
                    self.other(slot).clear();
                    self.table.row(slot).map(|row| (slot, row))
                }
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
            let record = task.sole_record().unwrap_or_default();
            let other = self.other(slot);
            if !record.is_empty() && *other == record {
                continue;
            }
            other.clear();
            other.extend_from_slice(record);
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
            // Ignore a second task with the same identity: ids are unique in a snapshot.
            if self.slots.insert(identity, Slot { slot, seen }).is_none() {
                changes.new.push((slot, row));
            }
        }
        changes.new.sort_unstable_by_key(|&(slot, _)| slot);
        changes.changed.sort_unstable_by_key(|&(slot, _)| slot);
        changes
    }

    /// The last record from [`others`](Encoder::others) in a slot.
    fn other(&mut self, slot: u32) -> &mut Vec<u8> {
        let slot = slot as usize;
        if slot >= self.others.len() {
            self.others.resize(slot + 1, Vec::new());
        }
        &mut self.others[slot]
    }

    /// The slot of a known task, and whether this is its first appearance in the current sample.
    fn meet(&mut self, task: Identity) -> Option<(u32, bool)> {
        let known = self.slots.get_mut(&task)?;
        let before = std::mem::replace(&mut known.seen, self.generation);
        Some((known.slot, before != self.generation))
    }

    /// Frees the slots of tasks that are not in this sample.
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

/// Adds which source answered each group, and the counters, to the figures.
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

/// The counters of a snapshot that tell what is missing in it.
const COUNTED: [&str; 6] = ["gone", "denied", "no_answer", "over_budget", "hidden", "malformed"];
