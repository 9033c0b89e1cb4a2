//! Turns the texts of one task into its record. Pure: the texts may be from another host.

mod missing;
mod plan;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use taskdiag_core::absent::Absent;
use taskdiag_core::field::{Field, Fields, Files, Group, Info, Kind, Member, Place, RecordPlace};
use taskdiag_core::record::{self, attr, AbsentField, Header, Writer};
use taskdiag_core::text::process::{self, IoLine, Line, NamespaceLink, Positions, Stat, Status};
use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::{FromBytes as _, IntoBytes};

pub(super) use plan::{contains, index, Plan, FILES, PATHS};

/// What was read about one task, unparsed.
#[derive(Debug)]
pub(super) struct RawTask<'a> {
    /// The complete texts of files, by [`index`].
    pub texts: [Result<&'a [u8], Absent>; FILES],
    /// Inode numbers, in the order of [`NamespaceLink::NAMES`].
    pub namespaces: [Result<u64, Absent>; NamespaceLink::NAMES.len()],
    pub cgroup_id: Result<u64, Absent>,
    /// The targets of links, in the order of [`PATHS`].
    pub paths: [Result<&'a [u8], Absent>; PATHS.len()],
    pub fd_count: Result<u32, Absent>,
    /// The task is known to have no address space.
    pub no_memory: bool,
}

impl<'a> RawTask<'a> {
    pub(super) const NONE: RawTask<'static> = RawTask {
        texts: [Err(Absent::NotAsked); FILES],
        namespaces: [Err(Absent::NotAsked); NamespaceLink::NAMES.len()],
        cgroup_id: Err(Absent::NotAsked),
        paths: [Err(Absent::NotAsked); PATHS.len()],
        fd_count: Err(Absent::NotAsked),
        no_memory: false,
    };

    pub(super) fn text(&self, file: Files) -> Result<&'a [u8], Absent> {
        self.texts[index(file)]
    }

    pub(super) fn stat(&self) -> Option<Stat<'a>> {
        process::stat(self.text(Files::STAT).ok()?, Positions::BASIC)
    }
}

/// Why there is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRecord {
    /// The task ended.
    Gone,
    /// A text is malformed.
    Malformed,
}

/// The two largest texts of a task. They stay where they are: to move them takes as long as to parse
/// the shorter one.
#[derive(Default)]
struct Texts<'a> {
    stat: Option<Stat<'a>>,
    status: Option<Status<'a>>,
}

/// One task, with the texts parsed that have several numbers.
struct Task<'a> {
    raw: &'a RawTask<'a>,
    stat: Option<&'a Stat<'a>>,
    status: Option<&'a Status<'a>>,
    schedstat: Option<[u64; 3]>,
    io: Option<[u64; IoLine::ALL.len()]>,
    no_memory: bool,
}

impl<'a> Task<'a> {
    fn parse<'t: 'a>(plan: &Plan, raw: &'a RawTask<'t>, texts: &'a mut Texts<'t>) -> Result<Task<'a>, NoRecord> {
        if let Ok(text) = raw.text(Files::STAT) {
            texts.stat = Some(process::stat(text, plan.positions).ok_or(NoRecord::Malformed)?);
        }
        if let Ok(text) = raw.text(Files::STATUS) {
            texts.status = Some(process::status(text, plan.lines));
        }
        let (stat, status) = (texts.stat.as_ref(), texts.status.as_ref());
        // If a task was released, the kernel has no lock with which to read the values of its
        // process for `stat` and `status`.
        let is_released =
            |status: &Status<'_>| status.word(Line::Threads, 0) == Some(0) || status.state() == Some(b'X');
        if stat.is_some_and(Stat::is_released) || status.is_some_and(is_released) {
            return Err(NoRecord::Gone);
        }
        let has_no_size =
            |status: &Status<'_>| plan.lines.contains(Line::VmSize) && !status.found().contains(Line::VmSize);
        let no_memory = raw.no_memory || stat.is_some_and(|stat| !stat.has_memory()) || status.is_some_and(has_no_size);
        Ok(Task {
            raw,
            stat,
            status,
            schedstat: raw.text(Files::SCHEDSTAT).ok().and_then(process::schedstat),
            io: raw.text(Files::IO).ok().and_then(process::io),
            no_memory,
        })
    }

    /// `status`, if it has a line.
    fn status_with(&self, line: Line) -> Option<&Status<'a>> {
        self.status.filter(|status| status.found().contains(line))
    }

    /// The number at a place. `None` if it was not read, is malformed, or this kernel does not print
    /// it.
    fn number(&self, place: &Place) -> Option<u64> {
        let at = usize::from(place.at);
        match place.file {
            Files::STAT => self.stat?.number(at),
            Files::STATUS => self.status?.word(Line::ALL[usize::from(place.at)], place.word),
            Files::SCHEDSTAT => Some(self.schedstat?[at]),
            Files::IO => Some(self.io?[at]),
            Files::NS => self.raw.namespaces[at].ok(),
            Files::FD => self.raw.fd_count.ok().map(u64::from),
            Files::CGROUP => self.raw.cgroup_id.ok(),
            Files::PERSONALITY => self.parsed(place.file, process::mask).map(u64::from),
            Files::NONE | Files::SMAPS_ROLLUP => None,
            file => self.parsed(file, process::number::<i64>).map(|number| number as u64),
        }
    }

    /// Parses a file with `parse`, if it was read.
    fn parsed<T>(&self, file: Files, parse: impl FnOnce(&'a [u8]) -> Option<T>) -> Option<T> {
        parse(self.raw.text(file).ok()?)
    }
}

/// No attribute of numbers is longer.
const MAX_PART_BYTES: usize = 256;

/// What [`Encoder::put_numbers`] needs of a row of the field table, close together.
#[derive(Debug)]
struct Number {
    places: [Place; 2],
    member: Member,
    is_ticks: bool,
    is_shared: bool,
    needs_memory: bool,
}

/// The fields of a group that are numbers in attributes, those of one attribute together.
fn numbers(group: Group) -> &'static [Number] {
    static NUMBERS: LazyLock<[Vec<Number>; Group::ALL.len()]> = LazyLock::new(|| {
        let number = |field: Field| match *field.info() {
            Info {
                places,
                record: RecordPlace::Member(member),
                kind,
                ..
            } => Some(Number {
                places,
                member,
                is_ticks: kind == Kind::Nanoseconds && places[0].file == Files::STAT,
                is_shared: field.is_shared_by_threads(),
                needs_memory: field.needs_memory(),
            }),
            _ => None,
        };
        Group::ALL.map(|group| Fields::of_group(group).iter().filter_map(number).collect())
    });
    &NUMBERS[group as usize]
}

/// The fields of a group that are whole attributes.
fn payloads(group: Group) -> &'static [(Field, u16)] {
    static PAYLOADS: LazyLock<[Vec<(Field, u16)>; Group::ALL.len()]> = LazyLock::new(|| {
        let payload = |field: Field| match field.info().record {
            RecordPlace::Payload(attribute) => Some((field, attribute)),
            _ => None,
        };
        Group::ALL.map(|group| Fields::of_group(group).iter().filter_map(payload).collect())
    });
    &PAYLOADS[group as usize]
}

/// What stays the same from task to task.
#[derive(Debug)]
pub(super) struct Encoder {
    ticks_per_second: u64,
    /// Memory for lists that are made from a text.
    list: Vec<u8>,
}

const NS_PER_SECOND: u64 = 1_000_000_000;

impl Encoder {
    pub(super) fn new(ticks_per_second: u64) -> Encoder {
        Encoder {
            ticks_per_second: ticks_per_second.max(1),
            list: Vec::new(),
        }
    }

    fn nanoseconds(&self, ticks: u64) -> u64 {
        let hz = self.ticks_per_second;
        // In two parts: ticks times 10^9 exceed 64 bits after 5 years of 100 Hz, and 128-bit
        // divisions are slow.
        let seconds = (ticks / hz).saturating_mul(NS_PER_SECOND);
        seconds.saturating_add(ticks % hz * NS_PER_SECOND / hz)
    }

    fn list<const N: usize>(&mut self, items: impl Iterator<Item = [u8; N]>) -> &[u8] {
        self.list.clear();
        items.for_each(|item| self.list.extend_from_slice(&item));
        &self.list
    }

    /// Appends the record of the task `tid` of process `pid`. `live` is what was read about another
    /// thread, which has what threads share, if the first one has ended.
    pub(super) fn encode(
        &mut self,
        plan: &Plan,
        (pid, tid): (u32, u32),
        (raw, live): (&RawTask<'_>, Option<&RawTask<'_>>),
        records: &mut Vec<u8>,
    ) -> Result<(), NoRecord> {
        let (mut texts, mut texts_of_live) = (Texts::default(), Texts::default());
        let task = Task::parse(plan, raw, &mut texts)?;
        let live = live
            .map(|live| Task::parse(plan, live, &mut texts_of_live))
            .transpose()?;
        let live = live.as_ref().unwrap_or(&task);
        let mut header = Header {
            pid: U32::new(pid),
            tid: U32::new(tid),
            ..Header::default()
        };
        let mut flags = 0;
        if let Some(stat) = task.stat {
            header.start_ns = U64::new(self.nanoseconds(stat.start_ticks()));
            if stat.is_kernel_thread() {
                flags |= record::KERNEL_THREAD;
            }
        }
        if live.no_memory {
            flags |= record::NO_MM;
        }
        let mut record = Writer::new(records);
        for group in plan.groups.iter() {
            self.put(group, (&task, live), &mut record);
        }
        if self.put_absent(plan, (&task, live), &mut record) {
            flags |= record::HAS_ABSENT;
        }
        header.flags = U32::new(flags);
        record.finish(header);
        Ok(())
    }

    fn put(&mut self, group: Group, (task, live): (&Task<'_>, &Task<'_>), record: &mut Writer<'_>) {
        for part in numbers(group).chunk_by(|one, other| one.member.attribute == other.member.attribute) {
            self.put_numbers(part, (task, live), record);
        }
        if let (Group::Base, Some(stat)) = (group, task.stat) {
            // What `comm` has no room for.
            if stat.comm.len() >= size_of_val(&record::Base::default().comm) {
                record.put(attr::NAME, 0, stat.comm);
            }
        }
        for &(field, attribute) in payloads(group) {
            let task = if field.is_shared_by_threads() { live } else { task };
            if let Some(payload) = self.payload(&field.info().places[0], attribute, task) {
                record.put(attribute, 0, payload);
            }
        }
    }

    /// The payload of an attribute that is one value. `None` if it is missing.
    fn payload<'b>(&'b mut self, place: &Place, attribute: u16, task: &Task<'b>) -> Option<&'b [u8]> {
        if place.file == Files::STATUS {
            let line = Line::ALL[usize::from(place.at)];
            let status = task.status_with(line)?;
            return Some(match line {
                Line::Cpus_allowed => self.list(status.processors().map(u64::to_ne_bytes)),
                _ => self.list(status.ids(line).map(u32::to_ne_bytes)),
            });
        }
        if let Some(which) = PATHS.iter().position(|&path| path == place.file) {
            return task.raw.paths[which].ok();
        }
        let text = task.raw.text(place.file).ok()?;
        match attribute {
            attr::CGROUP_PATH => process::cgroup(text),
            attr::CGROUPS => Some(process::cgroups(text)),
            attr::LIMITS => {
                let limits = process::limits(text)?.into_iter().flat_map(|(soft, hard)| [soft, hard]);
                Some(self.list(limits.map(u64::to_ne_bytes)))
            }
            attr::WCHAN => Some(process::wchan(text)),
            attr::SECURITY_LABEL => Some(process::security_label(text)),
            // Those from the task's memory. They are empty for a task without memory.
            _ => Some(text).filter(|text| !(text.is_empty() && task.no_memory)),
        }
    }

    /// Appends an attribute of numbers, if there are any.
    fn put_numbers(&self, numbers: &[Number], (task, live): (&Task<'_>, &Task<'_>), record: &mut Writer<'_>) {
        let mut payload = [0; MAX_PART_BYTES];
        let mut part = None;
        for number in numbers {
            let (member, [place, other]) = (number.member, &number.places);
            let task = if number.is_shared { live } else { task };
            if task.no_memory && number.needs_memory {
                continue;
            }
            let Some(mut value) = task.number(place).or_else(|| task.number(other)) else {
                continue;
            };
            if number.is_ticks {
                value = self.nanoseconds(value);
            }
            let to = &mut payload[member.offset..][..member.size];
            match member.size {
                8 => to.copy_from_slice(&value.to_ne_bytes()),
                4 if value <= u32::MAX.into() || i32::try_from(value as i64).is_ok() => {
                    to.copy_from_slice(&(value as u32).to_ne_bytes());
                }
                1 => to[0] = value as u8,
                // The kernel prints no such number.
                _ => continue,
            }
            part = Some(member);
        }
        let Some(part) = part else { return };
        let payload = &mut payload[..part.len];
        if let (attr::BASE, Some(stat), Ok(base)) = (part.attribute, task.stat, record::Base::mut_from_bytes(payload)) {
            // The last byte is for the NUL that ends the name.
            let short = stat.comm.len().min(base.comm.len() - 1);
            base.comm[..short].copy_from_slice(&stat.comm[..short]);
        }
        if let (attr::CPU, Ok(cpu)) = (part.attribute, record::Cpu::mut_from_bytes(payload)) {
            // The kernel has already scaled these two. With a run time of 0, readers of the record
            // take the values of `prev_*`.
            (cpu.prev_utime, cpu.prev_stime) = (cpu.utime_ns, cpu.stime_ns);
        }
        record.put(part.attribute, 0, payload);
    }

    /// Records which fields are absent for reasons of their own. Returns whether there are any.
    fn put_absent(&mut self, plan: &Plan, (task, live): (&Task<'_>, &Task<'_>), record: &mut Writer<'_>) -> bool {
        // Nearly all tasks have everything.
        if missing::has_all(plan, task) && missing::has_all(plan, live) {
            return false;
        }
        let absent = plan.fields.iter().filter_map(|field| {
            let task = if field.is_shared_by_threads() { live } else { task };
            if task.no_memory && field.needs_memory() {
                return None;
            }
            let reason = missing::reason(field, task)?;
            let entry = AbsentField {
                field: U16::new(field as u16),
                reason: U16::new(reason as u16),
            };
            let mut bytes = [0; size_of::<AbsentField>()];
            bytes.copy_from_slice(entry.as_bytes());
            Some(bytes)
        });
        let absent = self.list(absent);
        if !absent.is_empty() {
            record.put(attr::ABSENT, 0, absent);
        }
        !absent.is_empty()
    }
}
