//! Tasks as rows of numbers, and rows as records.
//!
//! A row has a column for each member of each attribute of a record (`cpu.utime_ns`), and one for
//! each attribute that is a text or a list (`cmdline`), whose value is the number of a text. Each
//! segment has the names of its columns. A reader uses those that it knows, and reports other
//! fields as unsupported.

use std::collections::HashMap;

use taskdiag_core::absent::Absent;
use taskdiag_core::field::{Field, Fields};
use taskdiag_core::record::{self, attr, AbsentField, Header, Writer};
use taskdiag_core::snapshot::Task;
use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::about::Schema;
use crate::table::Numbers;
use crate::texts::{Interned, Texts};
use crate::Damage;

/// An attribute type that is recorded.
#[derive(Debug)]
struct RecordedPart {
    kind: u16,
    name: &'static str,
    /// The members with their offsets, and the size; `None` if it is a text.
    members: Option<(&'static [(&'static str, usize)], usize)>,
}

macro_rules! parts {
    (numbers { $($kind:ident $name:literal $ty:ident,)* } texts { $($text:ident $text_name:literal,)* }) => {
        /// All attribute types, except the environment, which is never recorded, and those about a
        /// single answer.
        const PARTS: &[RecordedPart] = &[
            $(RecordedPart {
                kind: attr::$kind,
                name: $name,
                members: Some((record::$ty::MEMBERS, size_of::<record::$ty>())),
            },)*
            $(RecordedPart { kind: attr::$text, name: $text_name, members: None },)*
        ];
    };
}

parts! {
    numbers {
        BASE "base" Base,
        TTY "tty" Tty,
        CRED "cred" Cred,
        CPU "cpu" Cpu,
        FAULTS "faults" Faults,
        MEM "mem" Mem,
        OOM "oom" Oom,
        NAMESPACES "namespaces" Namespaces,
        CGROUP "cgroup" Cgroup,
        IO "io" Io,
        NET "net" Net,
        SIGNALS "signals" Signals,
        UMASK "umask" Number,
        FDS "fds" Fds,
        AUDIT "audit" Audit,
        LAYOUT "layout" Layout,
        PERSONALITY "personality" Number,
        ROLLUP "rollup" Rollup,
    }
    texts {
        NAME "name",
        GROUPS "groups",
        AFFINITY "affinity",
        NSPIDS "nspids",
        CGROUP_PATH "cgroup_path",
        LIMITS "limits",
        ARGS "cmdline",
        EXE "exe",
        CWD "cwd",
        ROOT "root",
        WCHAN "wchan",
        SECURITY_LABEL "security_label",
        CGROUPS "cgroups",
        ABSENT "absent",
    }
}

/// The records of a sample are shorter: this is enough for 300,000 processes with all fields.
const MAX_RECORD_BYTES: usize = 1 << 30;

/// Command lines beyond this size of the records are `truncated`. A long one is recorded once for
/// very many processes, but each record has it.
const MAX_WITH_ARGUMENTS: usize = MAX_RECORD_BYTES / 2;

/// Whether a member is recorded. Some are always 0, or derived from others by the reader.
fn is_recorded(part: &str, member: &str) -> bool {
    const MADE: [&str; 3] = ["sum_exec_runtime", "prev_utime", "prev_stime"];
    let is_other = ["reserved", "uncounted"].contains(&member) || part == "cpu" && MADE.contains(&member);
    !is_other
}

/// The columns before those of the attributes.
const PID: usize = 0;
const TID: usize = 1;
const START_NS: usize = 2;
const FLAGS: usize = 3;
const ATTRIBUTES: usize = 4;
const FIRST: [&str; 5] = ["pid", "tid", "start_ns", "flags", "attributes"];

/// Bits of the column `flags`. Records have these flags at other positions, which may change.
const FLAG_BITS: [(u64, u32); 2] = [(1, record::KERNEL_THREAD), (2, record::NO_MM)];

/// A number in an attribute: its place, and its column.
#[derive(Clone, Copy, Debug)]
struct Number {
    offset: usize,
    bytes: usize,
    column: usize,
}

/// The columns of one attribute.
#[derive(Debug, Default)]
struct Columns {
    numbers: Vec<Number>,
    /// The column of a text.
    text: usize,
}

/// The columns of this version's records.
#[derive(Debug)]
pub struct Layout {
    schema: Schema,
    parts: Vec<Columns>,
    /// For each attribute type, the index of its part.
    by_kind: [Option<u8>; 64],
    utime: usize,
    stime: usize,
    age: usize,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout::new()
    }
}

impl Layout {
    /// Lays out the columns.
    pub fn new() -> Layout {
        let mut names: Vec<String> = FIRST.map(str::to_owned).into();
        let mut parts = Vec::new();
        let mut by_kind = [None; 64];
        for (index, part) in PARTS.iter().enumerate() {
            by_kind[usize::from(part.kind)] = Some(index as u8);
            let mut columns = Columns::default();
            match part.members {
                None => {
                    columns.text = names.len();
                    names.push(part.name.to_owned());
                }
                Some((members, size)) => {
                    let ends = members.iter().skip(1).map(|&(_, offset)| offset).chain([size]);
                    for (&(member, offset), end) in members.iter().zip(ends) {
                        if !is_recorded(part.name, member) {
                            continue;
                        }
                        // A name of 16 bytes takes two columns.
                        for (word, offset) in (offset..end).step_by(8).enumerate() {
                            columns.numbers.push(Number {
                                offset,
                                bytes: (end - offset).min(8),
                                column: names.len(),
                            });
                            let suffix = if word == 0 { String::new() } else { format!(".{word}") };
                            names.push(format!("{}.{member}{suffix}", part.name));
                        }
                    }
                }
            }
            parts.push(columns);
        }
        let find = |name: &str| {
            names
                .iter()
                .position(|known| known == name)
                .expect("a member of a record")
        };
        let (utime, stime, age) = (find("cpu.utime_ns"), find("cpu.stime_ns"), find("rollup.age_ns"));
        let schema = Schema {
            columns: names,
            attributes: PARTS.iter().map(|part| part.name.to_owned()).collect(),
            fields: Field::ALL.iter().map(|field| field.name().to_owned()).collect(),
        };
        Layout {
            schema,
            parts,
            by_kind,
            utime,
            stime,
            age,
        }
    }

    /// The description of the columns in a segment.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Makes the row of a task. `before` is its row in the previous sample.
    pub(crate) fn row(
        &self,
        task: &Task<'_>,
        now_ns: u64,
        before: Option<&Numbers>,
        texts: &mut Interned,
        row: &mut Vec<u64>,
    ) {
        row.clear();
        row.resize(self.schema.columns.len(), 0);
        let header = task.record().header();
        row[PID] = header.pid.get().into();
        row[TID] = header.tid.get().into();
        row[START_NS] = header.start_ns.get();
        for (bit, flag) in FLAG_BITS {
            row[FLAGS] |= if task.record().has(flag) { bit } else { 0 };
        }
        let mut absent: Vec<u8> = Vec::new();
        for attribute in task.attributes() {
            let Some(index) = self.by_kind.get(usize::from(attribute.kind)).copied().flatten() else {
                continue;
            };
            let (part, columns) = (&PARTS[usize::from(index)], &self.parts[usize::from(index)]);
            if attribute.kind == attr::ABSENT {
                absent.extend_from_slice(attribute.payload);
            } else if attribute.kind == attr::ARGS && !texts.has_room_for(attribute.payload) {
                absent.extend_from_slice(absent_field(Field::Cmdline, Absent::Truncated as u16).as_bytes());
            } else if row[ATTRIBUTES] >> index & 1 == 0 {
                row[ATTRIBUTES] |= 1 << index;
                if part.members.is_none() {
                    let before = before.map(|row| row[columns.text]);
                    row[columns.text] = texts.number_like(attribute.payload, before);
                } else {
                    columns.each(attribute.payload, |column, value| row[column] = value);
                }
            }
            match attribute.kind {
                attr::CPU => {
                    if let Ok((cpu, _)) = record::Cpu::ref_from_prefix(attribute.payload) {
                        (row[self.utime], row[self.stime]) = cpu.scaled_times();
                    }
                }
                // Record when it was read, to the second: the age would change in every sample.
                attr::ROLLUP => {
                    let read_ns = now_ns.saturating_sub(row[self.age]);
                    let known = before.map(|row| row[self.age]);
                    row[self.age] = known
                        .filter(|known| known.abs_diff(read_ns) < 1_000_000_000)
                        .unwrap_or(read_ns);
                }
                _ => {}
            }
        }
        if !absent.is_empty() {
            let index = self.by_kind[usize::from(attr::ABSENT)].expect("it is one of the parts");
            let column = self.parts[usize::from(index)].text;
            row[ATTRIBUTES] |= 1 << index;
            row[column] = texts.number_like(&absent, before.map(|row| row[column]));
        }
    }

    /// Makes the row of a task that has only some attributes. The other values are those of its row
    /// in the previous sample, `before`. False if nothing changed: the row then stays empty.
    pub(crate) fn update(&self, task: &Task<'_>, before: &Numbers, texts: &mut Interned, row: &mut Vec<u64>) -> bool {
        row.clear();
        let mut set = |column: usize, value: u64| {
            if row.is_empty() && before[column] != value {
                row.extend_from_slice(before);
            }
            if let Some(cell) = row.get_mut(column) {
                *cell = value;
            }
        };
        let mut attributes = before[ATTRIBUTES];
        for attribute in task.attributes() {
            let index = self.by_kind.get(usize::from(attribute.kind)).copied().flatten();
            let Some(index) = index.filter(|_| attribute.kind != attr::ABSENT) else {
                continue;
            };
            let columns = &self.parts[usize::from(index)];
            attributes |= 1 << index;
            if PARTS[usize::from(index)].members.is_none() {
                let number = texts.number_like(attribute.payload, Some(before[columns.text]));
                set(columns.text, number);
            } else {
                columns.each(attribute.payload, &mut set);
            }
        }
        set(ATTRIBUTES, attributes);
        !row.is_empty()
    }
}

impl Columns {
    /// Passes each number of an attribute with its column. A short attribute does not have all.
    fn each(&self, payload: &[u8], mut set: impl FnMut(usize, u64)) {
        for number in &self.numbers {
            if let Some(bytes) = payload.get(number.offset..number.offset + number.bytes) {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                set(number.column, u64::from_ne_bytes(word));
            }
        }
    }
}

/// How to convert the rows of a segment to records of this version.
#[derive(Debug)]
pub struct Reading {
    layout: Layout,
    /// For each of our columns, the segment's column.
    columns: Vec<Option<usize>>,
    /// For each part, its bit in the segment.
    bits: Vec<Option<u32>>,
    /// The field of each number in lists of absent values.
    fields: Vec<Option<Field>>,
}

impl Reading {
    /// Prepares to read a segment.
    ///
    /// # Errors
    ///
    /// If it lacks a column that every segment has.
    pub fn new(schema: &Schema) -> Result<Reading, Damage> {
        let layout = Layout::new();
        let places: HashMap<&str, usize> = schema
            .columns
            .iter()
            .enumerate()
            .map(|(index, name)| (name.as_str(), index))
            .collect();
        let columns: Vec<Option<usize>> = layout
            .schema
            .columns
            .iter()
            .map(|name| places.get(name.as_str()).copied())
            .collect();
        if columns[..FIRST.len()].contains(&None) {
            return Err(Damage("it has no column that says which process a row is of"));
        }
        let bit = |part: &RecordedPart| schema.attributes.iter().position(|name| name == part.name);
        Ok(Reading {
            columns,
            bits: PARTS.iter().map(|part| bit(part).map(|bit| bit as u32)).collect(),
            fields: schema.fields.iter().map(|name| field(name)).collect(),
            layout,
        })
    }

    /// The thread id, by which answers are sorted.
    pub(crate) fn tid(&self, row: &Numbers) -> u32 {
        self.value(row, TID).unwrap_or(0) as u32
    }

    fn value(&self, row: &Numbers, column: usize) -> Option<u64> {
        self.columns[column].map(|column| row[column])
    }

    /// Appends the record of a row, with the fields `missing` as unsupported.
    pub(crate) fn put(
        &self,
        row: &Numbers,
        now_ns: u64,
        missing: Fields,
        texts: &Texts,
        records: &mut Vec<u8>,
    ) -> Result<(), Damage> {
        let attributes = self.value(row, ATTRIBUTES).unwrap_or(0);
        let flag_bits = self.value(row, FLAGS).unwrap_or(0);
        let mut flags = FLAG_BITS.iter().fold(
            0,
            |flags, &(bit, flag)| if flag_bits & bit != 0 { flags | flag } else { flags },
        );
        let mut absent: Vec<AbsentField> = missing
            .iter()
            .map(|field| absent_field(field, Absent::Unsupported as u16))
            .collect();
        let mut bytes = records.len();
        let mut writer = Writer::new(records);
        let mut payload = Vec::new();
        for ((part, columns), bit) in PARTS.iter().zip(&self.layout.parts).zip(&self.bits) {
            if bit.is_none_or(|bit| attributes >> bit & 1 == 0) {
                continue;
            }
            let Some((_, size)) = part.members else {
                let text = self.value(row, columns.text).unwrap_or(0);
                let text = texts.get(text)?;
                if part.kind == attr::ABSENT {
                    self.read_absent(text, &mut absent);
                } else if part.kind == attr::ARGS && bytes + text.len() > MAX_WITH_ARGUMENTS {
                    absent.push(absent_field(Field::Cmdline, Absent::Truncated as u16));
                } else {
                    bytes += text.len();
                    if bytes > MAX_RECORD_BYTES {
                        return Err(Damage("the processes have longer texts than any that are recorded"));
                    }
                    writer.put(part.kind, 0, text);
                }
                continue;
            };
            payload.clear();
            payload.resize(size, 0);
            for number in &columns.numbers {
                let value = self.value(row, number.column).unwrap_or(record::NO_NUMBER);
                let bytes = &mut payload[number.offset..][..number.bytes];
                bytes.copy_from_slice(&value.to_ne_bytes()[..number.bytes]);
            }
            match part.kind {
                attr::CPU => complete_cpu(&mut payload),
                attr::ROLLUP => age(&mut payload, now_ns),
                _ => {}
            }
            writer.put(part.kind, 0, &payload);
        }
        if !absent.is_empty() {
            writer.put(attr::ABSENT, 0, absent.as_bytes());
            flags |= record::HAS_ABSENT;
        }
        writer.finish(Header {
            flags: U32::new(flags),
            pid: U32::new(self.value(row, PID).unwrap_or(0) as u32),
            tid: U32::new(self.tid(row)),
            start_ns: U64::new(self.value(row, START_NS).unwrap_or(0)),
            ..Header::default()
        });
        Ok(())
    }

    fn read_absent(&self, text: &[u8], absent: &mut Vec<AbsentField>) {
        for entry in text.chunks_exact(4) {
            let (field, reason) = (
                u16::from_ne_bytes([entry[0], entry[1]]),
                u16::from_ne_bytes([entry[2], entry[3]]),
            );
            let field = self.fields.get(usize::from(field)).copied().flatten();
            absent.extend(field.map(|field| absent_field(field, reason)));
        }
    }
}

/// The field with this name. Parsing it would look for a similar name, which takes long for very
/// many or very long ones.
pub(crate) fn field(name: &str) -> Option<Field> {
    Field::ALL.iter().copied().find(|field| field.name() == name)
}

fn absent_field(field: Field, reason: u16) -> AbsentField {
    AbsentField {
        field: U16::new(field as u16),
        reason: U16::new(reason),
    }
}

/// The recorded times are those that the kernel reports, so nothing is left to scale.
fn complete_cpu(payload: &mut [u8]) {
    if let Ok((cpu, _)) = record::Cpu::mut_from_prefix(payload) {
        (cpu.prev_utime, cpu.prev_stime) = (cpu.utime_ns, cpu.stime_ns);
        cpu.sum_exec_runtime = U64::new(cpu.utime_ns.get().saturating_add(cpu.stime_ns.get()));
    }
}

fn age(payload: &mut [u8], now_ns: u64) {
    if let Ok((rollup, _)) = record::Rollup::mut_from_prefix(payload) {
        rollup.age_ns = U64::new(now_ns.saturating_sub(rollup.age_ns.get()));
    }
}
