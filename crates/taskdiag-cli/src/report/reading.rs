//! Reads a time range of a recording: what groups used, and what happened.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use taskdiag::{Absent, Event, Field, Fields, Query, Snapshot, Task, Value};
use taskdiag_core::identity::TICK_NS;
use taskdiag_history::decode::{number, text};
use taskdiag_history::directory::{Tier, TIERS};
use taskdiag_history::events::{IntervalEvents, Sum};
use taskdiag_history::figures::Figure;
use taskdiag_history::piece::Time;
use taskdiag_history::About;

use super::incidents::{
    bursts, innermost, settle, Counts, Forks, FullDisks, Incident, IncidentKind, Kill, Services, Which,
};
use super::present::{names, naming, Memory};
use super::series::{Amounts, Groups, Resource};
use crate::history::library::{far_ns, with_damages, Library};
use crate::history::past::{MachineState, Recorded};
use crate::outcome::Failure;

/// The approximate maximum number of points in a chart. More points than pixels help nobody.
const MAX_POINTS: i64 = 400;

/// A time range with more samples than this is read from a coarser tier, if there is one.
const MAX_SAMPLES: i64 = 2000;

/// How many units and programs are remembered individually with what began and ended. The rest
/// become one sum.
const MAX_SUMS: usize = 4096;

/// How many paths of cgroups are remembered.
const MAX_CGROUPS: usize = 1 << 16;

/// How many OOM kills are named. Others are counted.
const MAX_KILLS: usize = 1 << 12;

/// The recorder reads cgroups every 30 seconds.
const CGROUPS_EVERY_NS: i64 = 30_000_000_000;

/// A point of the charts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// The time, in nanoseconds since 1970.
    pub wall_ns: i64,
    /// Whether there is a sample. If not, the point stands for a time in which nothing was
    /// recorded.
    pub is_known: bool,
    /// The busy processors since the previous point. `None` if there is no sample of the same boot
    /// shortly before.
    pub busy: Option<f64>,
    /// Memory that is not available to new programs, in bytes.
    pub used: Option<u64>,
    /// Whether it is known of any process how much it used of a resource since the previous point.
    pub is_used: [bool; Resource::ALL.len()],
    /// The number of processes whose memory is unknown.
    pub missing: u64,
    /// The number of processes of which the resident size counts, because the proportional one is not
    /// known.
    pub resident: u64,
}

/// The data that were read.
#[derive(Debug, Default)]
pub struct Read {
    /// The name of the tier.
    pub tier: &'static str,
    /// The number of samples.
    pub samples: u64,
    pub points: Vec<Point>,
    /// How the memory of groups is measured.
    pub memory: Memory,
    /// What groups used, in the order of [`GROUPINGS`](super::present::GROUPINGS).
    pub groups: [Groups; 3],
    /// What happened.
    pub incidents: Vec<Incident>,
    /// What started and ended, by unit and program. The entry without names has those beyond the
    /// maximum.
    pub ended: BTreeMap<(Vec<u8>, Vec<u8>), Sum>,
    /// Whether events were recorded.
    pub has_events: bool,
    /// Whether they told the processor time and the peak of the memory of what ended.
    pub is_told: bool,
    /// What is missing from the recording, in its own words.
    pub notes: Vec<String>,
    /// The damage that was found.
    pub damages: Vec<String>,
    /// The boot of the last sample.
    pub boot_id: String,
}

/// A tier that covers part of a time range.
struct Candidate {
    tier: &'static Tier,
    times: Range<i64>,
    every_ns: i64,
}

/// Chooses the tier to read: the finest that goes back as far as any other and does not have too
/// many samples.
fn choose(library: &Library, times: &Range<i64>) -> Option<Candidate> {
    let mut all: Vec<Candidate> = Vec::new();
    for tier in &TIERS {
        let segments = library.of_tier(tier, times);
        // Files may be damaged, and others have that time.
        let end = segments.iter().rev().find_map(|segment| library.last_time(segment));
        let (Some(first), Some(end)) = (segments.first(), end) else {
            continue;
        };
        // It is longer than that of the tier if the recorder's is.
        let every_ns = match library.decoder(first) {
            Ok(Some(decoder)) => decoder.about.every_ns,
            _ => tier.every_ns,
        };
        all.push(Candidate {
            tier,
            times: first.begin_ns.max(times.start)..end.min(times.end),
            every_ns: i64::try_from(every_ns).unwrap_or(i64::MAX).max(1),
        });
    }
    let earliest = all.iter().map(|candidate| candidate.times.start).min()?;
    let latest = all.iter().map(|candidate| candidate.times.end).max()?;
    let is_right = |candidate: &Candidate| {
        let span = candidate.times.end.saturating_sub(candidate.times.start);
        let slack = TIERS[2].every_ns as i64;
        candidate.times.start <= earliest.saturating_add(slack)
            && candidate.times.end >= latest.saturating_sub(candidate.every_ns.max(TIERS[1].every_ns as i64))
            && span / candidate.every_ns <= MAX_SAMPLES
    };
    let right = all.iter().position(is_right).or_else(|| all.len().checked_sub(1))?;
    Some(all.swap_remove(right))
}

/// Reads what was recorded in a time range.
pub fn read(library: &Library, times: &Range<i64>) -> Result<Read, Failure> {
    let nothing = format!(
        "{0}: nothing was recorded in that time: `taskdiag history {0}` shows what there is",
        library.path.display()
    );
    let Some(candidate) = choose(library, times) else {
        return Err(nothing.into());
    };
    let span = candidate.times.end.saturating_sub(candidate.times.start);
    let mut reader = Reader {
        // If each sample is a point, the points need not be at regular times.
        step_ns: Some(span / MAX_POINTS).filter(|step| *step > candidate.every_ns),
        times: times.clone(),
        read: Read {
            tier: candidate.tier.name,
            is_told: true,
            ..Read::default()
        },
        ..Reader::default()
    };
    for segment in library.of_tier(candidate.tier, times) {
        let result = match library.recorded(segment) {
            Ok(Some(recorded)) => reader.segment(recorded),
            Ok(None) => Ok(()),
            Err(damage) => Err(damage),
        };
        if let Err(damage) = result {
            reader.read.damages.push(format!("{}: {damage}", segment.name));
        }
    }
    if !reader.read.points.iter().any(|point| point.is_known) {
        return Err(with_damages(&nothing, &reader.read.damages).into());
    }
    reader.end_of_boot();
    let mut read = reader.read;
    let apart_ns = far_ns((span / MAX_POINTS).max(candidate.every_ns).unsigned_abs());
    read.incidents = settle(read.incidents, CGROUPS_EVERY_NS.saturating_add(apart_ns));
    read.incidents.extend(bursts(reader.forks));
    read.incidents.sort_by_key(|incident| incident.wall_ns);
    Ok(read)
}

/// The unit and the name of processes that ended. A path stands for the unit of those in none.
pub type Ended = (Vec<u8>, Vec<u8>);

/// What grows while a process lives, and makes [`Amounts`]: processor time in nanoseconds, bytes
/// read and written, bytes received and sent. `None` if it is unknown.
type Used = [Option<u64>; 3];

const GROWS: [Resource; 3] = [Resource::Processors, Resource::Disk, Resource::Network];

const DISK: [Field; 2] = [Field::ReadBytes, Field::WriteBytes];
const NETWORK: [Field; 2] = [Field::NetSentBytes, Field::NetReceivedBytes];

/// What is known of a process at a point.
struct ProcessUse {
    used: Used,
    ppid: u32,
    /// Its unit and name as events have them.
    of: Ended,
}

impl ProcessUse {
    fn new(task: &Task<'_>) -> ProcessUse {
        let number = |field: Field| match task.value(field) {
            Ok(Value::Unsigned(number)) => Some(number),
            _ => None,
        };
        let sum = |[one, other]: [Field; 2]| Some(number(one)?.saturating_add(number(other)?));
        ProcessUse {
            used: [used_ns(task), sum(DISK), sum(NETWORK)],
            ppid: task.ppid().unwrap_or(0),
            of: ended(task),
        }
    }
}

/// The counters at a point.
struct Before {
    boot_id: String,
    wall_ns: i64,
    boot_ns: u64,
    /// What is known of each process that has not ended.
    used: HashMap<Which, ProcessUse>,
    /// Clock ticks of the machine: those in which a processor was busy, and all.
    ticks: Option<(u64, u64)>,
}

#[derive(Default)]
struct Reader {
    times: Range<i64>,
    /// The time between two points. `None`: every sample is a point.
    step_ns: Option<i64>,
    /// The next sample has a gap before it if it is further from the last one than this.
    far_ns: i64,
    /// `None` before the first segment.
    query: Option<Query>,
    snapshot: Snapshot,
    before: Option<Before>,
    /// When the first sample after the last point was taken.
    after_ns: Option<i64>,
    /// The boot id and the time since boot of the sample that was read last.
    last: Option<(String, u64)>,
    forks: Vec<Forks>,
    oom: Counts,
    oom_machine: Counts,
    /// Processes that the OOM killer ended, each with the id of its cgroup and when that was.
    killed: Vec<(Option<u64>, i64, Kill)>,
    /// The paths of cgroups, by id.
    cgroups: HashMap<u64, Vec<u8>>,
    services: Services,
    full_disks: FullDisks,
    /// What those used that ended since the previous point. Events do not tell what they read and wrote.
    ended: HashMap<Ended, [u64; GROWS.len()]>,
    /// What each process may still get of its children that ended before the previous point: they may
    /// have been zombies then.
    inherited: HashMap<u32, u64>,
    /// The processes of single events among them. A sample may have one that ends just then.
    exited: HashSet<Which>,
    /// Units with processes that failed since the previous point.
    failed: HashSet<Vec<u8>>,
    read: Read,
}

impl Reader {
    /// Reads a segment. The error describes the damage.
    fn segment(&mut self, mut recorded: Recorded) -> Result<(), String> {
        let query = self.begin(&recorded.decoder.about, recorded.decoder.fields());
        let boot_id = recorded.decoder.about.boot_id.clone();
        if self.last.as_ref().is_some_and(|(before, _)| *before != boot_id) {
            self.end_of_boot();
        }
        // Between two segments, the samples of either may be the rarer ones.
        let far_ns = far_ns(recorded.decoder.about.every_ns);
        self.far_ns = self.far_ns.max(far_ns);
        while recorded.pass()? {
            let time = recorded.decoder.time;
            let next = recorded.decoder.next_time().map(|next| next.wall_ns);
            if time.wall_ns >= self.times.end {
                return Ok(());
            }
            if time.wall_ns < self.times.start {
                // A sample before the time range matters only if the first point is compared with
                // it.
                if next.is_none_or(|next| next >= self.times.start) {
                    self.point(&mut recorded, &query, false)?;
                }
                self.last = Some((boot_id.clone(), time.boot_ns));
                continue;
            }
            self.read.samples += 1;
            self.after_ns.get_or_insert(time.wall_ns);
            let since_ns = match &self.last {
                Some((before, boot_ns)) if *before == boot_id => Some(time.boot_ns.saturating_sub(*boot_ns)),
                _ => None,
            };
            self.happened(&recorded.decoder.happened, time, since_ns);
            self.last = Some((boot_id.clone(), time.boot_ns));
            let is_last_of_step = |next: i64| {
                let step = |wall_ns: i64| self.step_ns.map(|step_ns| wall_ns.div_euclid(step_ns));
                let is_before_gap = next.saturating_sub(time.wall_ns) > far_ns;
                self.step_ns.is_none() || step(next) != step(time.wall_ns) || next >= self.times.end || is_before_gap
            };
            if next.is_none_or(is_last_of_step) {
                self.point(&mut recorded, &query, true)?;
                self.far_ns = far_ns;
            }
        }
        Ok(())
    }

    /// Reads a segment's description of itself. Returns the query for it; the first segment decides
    /// how memory is measured.
    fn begin(&mut self, about: &About, fields: Fields) -> Query {
        for note in &about.notes {
            if !self.read.notes.contains(note) {
                self.read.notes.push(note.clone());
            }
        }
        let read = &mut self.read;
        let query = self.query.get_or_insert_with(|| {
            let has_pss = fields.contains(Field::PssBytes);
            read.memory = if has_pss { Memory::Pss } else { Memory::Rss };
            let counters = Field::Pid | Field::Ppid | Field::StartNs | Field::UtimeNs | Field::StimeNs;
            let end = Field::Comm | Field::State | Field::ThreadsCount;
            let cgroup = Field::CgroupId | Field::Cgroup;
            let moved = Fields::from_iter(DISK.into_iter().chain(NETWORK));
            Query::processes()
                .fields(naming() | counters | moved | end | cgroup | read.memory.field() | Field::RssBytes)
        });
        query.clone()
    }

    /// Adds what happened between two samples.
    fn happened(&mut self, happened: &IntervalEvents, time: Time, since_ns: Option<u64>) {
        self.kills(happened, time.wall_ns.saturating_sub_unsigned(time.boot_ns));
        let mut forks = Forks {
            wall_ns: time.wall_ns,
            ms: since_ns.unwrap_or(0) / 1_000_000,
            ..Forks::default()
        };
        for ((unit, program), sum) in &happened.sums {
            self.read.has_events = true;
            forks.count += sum.forks_count;
            if sum.forks_count > forks.most {
                forks.most = sum.forks_count;
                (forks.unit, forks.program) = (unit.clone(), program.clone());
            }
            if sum.failed_count > 0 {
                self.failed.insert(unit.clone());
            }
            let used = self.ended.entry((unit.clone(), program.clone())).or_default();
            used[0] += sum.runtime_ns;
            used[2] += sum.net_sent_bytes.saturating_add(sum.net_received_bytes);
            let ended = &mut self.read.ended;
            let mut of = (unit.clone(), program.clone());
            if ended.len() >= MAX_SUMS && !ended.contains_key(&of) {
                of = Default::default();
            }
            ended.entry(of).or_default().add(*sum);
        }
        // For the first sample, the time since the sample before it is unknown.
        if forks.ms > 0 {
            self.forks.push(forks);
        }
    }

    /// Notes how processes that ended were named, and which of them the OOM killer killed.
    fn kills(&mut self, happened: &IntervalEvents, boot_ns: i64) {
        let events = || happened.events.iter().filter_map(|bytes| Event::decode(bytes));
        // A process is counted by the name that it had in the end.
        for event in events() {
            let (Ok(start_ns), Ok(_)) = (event.start_ns(), event.runtime_ns()) else {
                continue;
            };
            let which = (event.pid(), start_ns);
            if let Some(known) = self.before.as_mut().and_then(|before| before.used.get_mut(&which)) {
                known.of.1 = event.comm().unwrap_or_default().to_vec();
            }
            self.exited.insert(which);
        }
        for event in events().filter(|event| event.oom_killed() == Ok(true)) {
            if self.killed.len() >= MAX_KILLS {
                return;
            }
            let kill = Kill {
                pid: event.pid(),
                comm: event.comm().unwrap_or_default().to_vec(),
                cgroup: None,
                is_logged: false,
            };
            let wall_ns = boot_ns.saturating_add_unsigned(event.time_ns());
            self.killed.push((event.cgroup_id().ok(), wall_ns, kill));
        }
    }

    /// Finds the cgroups of the killed processes. An id of a cgroup is valid for one boot.
    fn end_of_boot(&mut self) {
        for (cgroup_id, wall_ns, mut kill) in self.killed.drain(..) {
            kill.cgroup = cgroup_id.and_then(|id| self.cgroups.get(&id).cloned());
            self.read.incidents.push(Incident {
                wall_ns,
                what: IncidentKind::OomKill(kill),
            });
        }
        self.cgroups.clear();
    }

    /// Learns which cgroup has which path: an event has the id alone.
    fn learn_cgroups(&mut self) {
        for task in self.snapshot.tasks() {
            let (Ok(id), Ok(path)) = (task.cgroup_id(), task.cgroup()) else {
                continue;
            };
            if self.cgroups.len() < MAX_CGROUPS && !self.cgroups.contains_key(&id) {
                self.cgroups.insert(id, path.to_vec());
            }
        }
    }

    /// Makes a point of the last sample that was read; or, without `is_shown`, only the values to
    /// compare the next point with.
    fn point(&mut self, recorded: &mut Recorded, query: &Query, is_shown: bool) -> Result<(), String> {
        recorded.arrive()?;
        let answered = taskdiag::answer_past(recorded, query, &mut self.snapshot);
        answered.map_err(|error| format!("{error:#}"))?;
        let moment = recorded.moment.clone();
        // The proc connector tells no times of what ended.
        let source = text(&moment.figures, b"sources", b"events");
        let is_told = source.is_some_and(|source| source != b"connector");
        let now = Before {
            boot_id: moment.about.boot_id.clone(),
            wall_ns: moment.time.wall_ns,
            boot_ns: moment.time.boot_ns,
            used: self
                .snapshot
                .tasks()
                .filter(|task| !(is_told && is_zombie(task)))
                .filter_map(|task| Some((which(&task)?, ProcessUse::new(&task))))
                .filter(|(which, _)| !self.exited.contains(which))
                .collect(),
            ticks: ticks(&moment),
        };
        self.learn_cgroups();
        self.read.is_told &= is_told || source.is_none();
        if is_shown {
            self.gap(&now, moment.boot_ns());
            self.incidents(&moment);
            self.add_point(&now, &moment);
        }
        self.ended.clear();
        self.exited.clear();
        self.read.boot_id.clone_from(&now.boot_id);
        (self.before, self.after_ns) = (Some(now), None);
        Ok(())
    }

    /// If nothing was recorded for a long time before a point, adds an incident and forgets the
    /// earlier values.
    fn gap(&mut self, now: &Before, boot_ns: i64) {
        let Some(before) = &self.before else { return };
        let is_other_boot = before.boot_id != now.boot_id;
        // This point can be a later sample than the one that ended the gap.
        let end_ns = self.after_ns.unwrap_or(now.wall_ns);
        let is_far = end_ns.saturating_sub(before.wall_ns) > self.far_ns;
        if is_other_boot || is_far {
            let (wall_ns, what) = if is_other_boot {
                (boot_ns, IncidentKind::Boot)
            } else {
                (before.wall_ns, IncidentKind::Gap(end_ns))
            };
            self.read.incidents.push(Incident { wall_ns, what });
            self.read.points.push(Point {
                wall_ns: before.wall_ns.saturating_add(1_000_000),
                ..Point::default()
            });
            self.before = None;
        }
        if is_other_boot {
            (self.oom, self.oom_machine, self.services) = Default::default();
        }
    }

    fn add_point(&mut self, now: &Before, moment: &MachineState) {
        let point = self.read.points.len();
        let (mut missing, mut resident) = (0, 0);
        let elapsed_ns = self
            .before
            .as_ref()
            .map(|before| now.boot_ns.saturating_sub(before.boot_ns));
        let mut inherited = self
            .before
            .as_ref()
            .map(|before| inherited(before, now))
            .unwrap_or_default();
        let mut used = Vec::new();
        let mut is_used = [false; Resource::ALL.len()];
        for task in self.snapshot.tasks() {
            let memory = self.read.memory.of(&task).map(|(bytes, why)| {
                resident += u64::from(why.is_some());
                bytes
            });
            missing += u64::from(memory.is_err_and(|why| why != Absent::NoMemory));
            let known = self.before.as_ref().zip(which(&task));
            let mut grown = known.map_or([None; GROWS.len()], |(before, which)| grown(before, now, which));
            // Who waits for a child gets what it read and wrote, which counted for the child.
            for of_children in [&mut self.inherited, &mut inherited] {
                let (pid, Some(bytes)) = (task.pid().unwrap_or(0), grown[1]) else {
                    continue;
                };
                if let Some(own) = of_children
                    .get(&pid)
                    .and_then(|of_children| bytes.checked_sub(*of_children))
                {
                    grown[1] = Some(own);
                    of_children.remove(&pid);
                }
            }
            for (resource, _) in GROWS.into_iter().zip(grown).filter(|(_, grown)| grown.is_some()) {
                is_used[resource as usize] = true;
            }
            let mut amounts = per_second(grown.map(Option::unwrap_or_default), elapsed_ns);
            amounts[Resource::Memory as usize] = memory.unwrap_or(0) as f64;
            used.push((names(&task), amounts));
        }
        self.inherited = inherited;
        // What is not told, such as the container, has no group.
        let mut ended = Vec::new();
        if let Some(before) = &self.before {
            // Up to the previous point they are counted as long as they were seen.
            for (_, ProcessUse { used: seen, of, .. }) in gone(before, now) {
                for (index, seen) in seen.iter().enumerate() {
                    take_seen(&mut self.ended, of, index, seen.unwrap_or(0));
                }
            }
            ended.extend(self.ended.iter().map(|((unit, name), used)| {
                let unit = match &unit[..] {
                    // An event does not tell the unit of the user's manager.
                    b"" => None,
                    unit if unit.starts_with(b"user@") => None,
                    [b'/', ..] => Some(&b""[..]),
                    unit => Some(unit),
                };
                let name = Some(&name[..]).filter(|name| !name.is_empty());
                ([name, unit, None], per_second(*used, elapsed_ns))
            }));
        }
        for (index, groups) in self.read.groups.iter_mut().enumerate() {
            let ended = ended
                .iter()
                .filter_map(|(names, amounts)| Some((Ok(names[index]?), *amounts)));
            let used = used.iter().map(|(names, amounts)| (names[index], *amounts));
            groups.add(point, used.chain(ended));
        }
        let ticks = self.before.as_ref().and_then(|before| before.ticks).zip(now.ticks);
        let busy = ticks.zip(elapsed_ns).map(|((before, now), elapsed_ns)| {
            processors(before, now, elapsed_ns, moment.figure("stat", "processors"))
        });
        let of_meminfo = |name| moment.figure("meminfo", name);
        let used = of_meminfo("MemTotal").zip(of_meminfo("MemAvailable"));
        let used = used.map(|(total, available)| total.saturating_sub(available));
        self.read.points.push(Point {
            wall_ns: now.wall_ns,
            is_known: true,
            busy,
            used,
            is_used,
            missing,
            resident,
        });
    }

    /// Finds incidents since the previous point in the figures and processes.
    fn incidents(&mut self, moment: &MachineState) {
        let wall_ns = moment.time.wall_ns;
        let mut add = |wall_ns, what| self.read.incidents.push(Incident { wall_ns, what });
        let kills = moment.figures.iter().filter_map(|((object, key), figure)| {
            let path = object.strip_prefix(b"cgroup:")?;
            match figure {
                Figure::Number(count) if **key == *b"memory.events.oom_kill" => Some((path, *count)),
                _ => None,
            }
        });
        let in_cgroups = innermost(self.oom.grown(kills));
        let machine = moment.figure("vmstat", "oom_kill");
        let in_machine = self.oom_machine.grown(machine.iter().map(|&count| (&b""[..], count)));
        for (path, count) in in_cgroups {
            add(wall_ns, IncidentKind::OomInCgroup(path, count));
        }
        for (_, count) in in_machine {
            add(wall_ns, IncidentKind::OomInMachine(count));
        }
        for ((object, key), figure) in &moment.figures {
            let (Some(path), Figure::Number(used), b"used_bytes") = (object.strip_prefix(b"disk:"), figure, &**key)
            else {
                continue;
            };
            let free = number(&moment.figures, object, b"free_bytes").unwrap_or(0);
            if let Some(percent) = self.full_disks.fills(path, *used, free) {
                add(wall_ns, IncidentKind::FullDisk(path.to_vec(), percent, free));
            }
        }
        let services = self
            .snapshot
            .tasks()
            .filter_map(|task| Some((task.unit().ok()?, which(&task)?)));
        let failed = std::mem::take(&mut self.failed);
        for (unit, start_ns) in self.services.restarted(wall_ns, services, &failed) {
            add(moment.boot_ns().saturating_add(start_ns), IncidentKind::Restart(unit));
        }
    }
}

fn which(task: &Task<'_>) -> Option<Which> {
    Some((task.pid().ok()?, task.start_ns().ok()?))
}

/// Whether a process has ended, so that an event has its processor time. A first thread may end
/// before its process.
fn is_zombie(task: &Task<'_>) -> bool {
    matches!(task.state(), Ok('Z' | 'X')) && task.threads_count().is_ok_and(|count| count <= 1)
}

/// The unit and name that an event about this process has.
fn ended(task: &Task<'_>) -> Ended {
    let text = |text: Result<&[u8], Absent>| text.unwrap_or_default().to_vec();
    let unit = Some(text(task.unit())).filter(|unit| !unit.is_empty());
    (unit.unwrap_or_else(|| text(task.cgroup())), text(task.comm()))
}

pub fn used_ns(task: &Task<'_>) -> Option<u64> {
    Some(task.utime_ns().ok()?.saturating_add(task.stime_ns().ok()?))
}

/// What a process used since the previous point. A process that began since then has used all of it
/// since. It is unknown for a process that existed then but was not seen.
fn grown(before: &Before, now: &Before, which: Which) -> Used {
    let Some(ProcessUse { used, .. }) = now.used.get(&which) else {
        return [None; GROWS.len()];
    };
    let is_new = which.1.saturating_add(TICK_NS as i64) >= before.boot_ns as i64;
    let before = match before.used.get(&which) {
        Some(before) => before.used,
        None if is_new => [Some(0); GROWS.len()],
        None => return [None; GROWS.len()],
    };
    std::array::from_fn(|index| Some(used[index]?.saturating_sub(before[index]?)))
}

/// The processes that ended since the previous point.
fn gone<'a>(before: &'a Before, now: &'a Before) -> impl Iterator<Item = (u32, &'a ProcessUse)> {
    let gone = |(which, known): (&Which, &'a ProcessUse)| (!now.used.contains_key(which)).then_some((which.0, known));
    before.used.iter().filter_map(gone)
}

/// What was read and written, up to the previous point, by children that ended since, for each process
/// that may have waited for them. One that ended, too, has passed it on.
fn inherited(before: &Before, now: &Before) -> HashMap<u32, u64> {
    /// No longer chain of processes ends at once, unless a recording is made up.
    const MAX_CHAIN: usize = 64;
    let parents: HashMap<u32, u32> = gone(before, now).map(|(pid, child)| (pid, child.ppid)).collect();
    let mut inherited = HashMap::new();
    for (pid, child) in gone(before, now) {
        let ancestors = std::iter::successors(Some(pid), |pid| parents.get(pid).copied());
        let heir = ancestors.take(MAX_CHAIN).last().unwrap_or(pid);
        let bytes: &mut u64 = inherited.entry(heir).or_default();
        *bytes = bytes.saturating_add(child.used[1].unwrap_or(0));
    }
    inherited
}

/// Takes from what ended what an earlier point has of a process: from those of its unit and name, and
/// the rest from those of one of them. An event has the last name, and no unit if the cgroup is gone.
fn take_seen(ended: &mut HashMap<Ended, [u64; GROWS.len()]>, of: &Ended, index: usize, mut seen: u64) {
    let mut take = |used: &mut [u64; GROWS.len()]| {
        let part = used[index].min(seen);
        used[index] -= part;
        seen -= part;
        seen == 0
    };
    if ended.get_mut(of).is_some_and(&mut take) {
        return;
    }
    let is_near = |other: &Ended| other.1 == of.1 || other.0 == of.0;
    let near = ended
        .iter_mut()
        .filter(|(other, used)| used[index] > 0 && is_near(other));
    let mut near: Vec<_> = near.map(|(other, used)| (other.1 == of.1, used)).collect();
    near.sort_unstable_by_key(|(has_name, used)| std::cmp::Reverse((*has_name, used[index])));
    let _ = near.into_iter().any(|(_, used)| take(used));
}

/// The amounts of what was used in this time.
fn per_second(used: [u64; GROWS.len()], elapsed_ns: Option<u64>) -> Amounts {
    let mut amounts = Amounts::default();
    if let Some(elapsed_ns @ 1..) = elapsed_ns {
        for (resource, used) in GROWS.into_iter().zip(used) {
            // Of processor time, nanoseconds in a nanosecond are processors.
            let unit = if resource == Resource::Processors { 1.0 } else { 1e9 };
            amounts[resource as usize] = used as f64 * unit / elapsed_ns as f64;
        }
    }
    amounts
}

/// The processors that were busy between two counts of ticks, on average. Ticks are compared with
/// ticks: the time between the samples is not exactly that between the counts. A recording without the
/// number of processors has it to the nearest one.
fn processors(before: (u64, u64), now: (u64, u64), elapsed_ns: u64, all: Option<u64>) -> f64 {
    let busy = now.0.saturating_sub(before.0) as f64;
    // Idle time can go down.
    let ticks = (now.1.saturating_sub(before.1) as f64).max(busy).max(1.0);
    let counted = (ticks * TICK_NS as f64 / elapsed_ns.max(1) as f64).round().max(1.0);
    busy / ticks * all.map_or(counted, |all| all as f64)
}

/// Clock ticks of the machine: those in which a processor was busy, and all.
fn ticks(moment: &MachineState) -> Option<(u64, u64)> {
    let of = |names: &[&str]| {
        let ticks = names.iter().map(|name| moment.figure("cpu", name).unwrap_or(0));
        ticks.fold(0, u64::saturating_add)
    };
    moment.figure("cpu", "user")?;
    // Time of guests is included in user and nice.
    let busy = of(&["user", "nice", "system", "irq", "softirq"]);
    Some((busy, busy.saturating_add(of(&["idle", "iowait", "steal"]))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that no more processors are busy than there are, whatever the time between the samples.
    #[test]
    fn processors_are_at_most_all() {
        for (now, all, shown) in [
            ((282, 287), None, 182.0 / 185.0 * 2.0),
            ((282, 287), Some(4), 182.0 / 185.0 * 4.0),
            ((182, 185), None, 82.0 / 83.0),
            ((282, 90), Some(2), 2.0),
            ((100, 102), Some(2), 0.0),
        ] {
            assert_eq!(processors((100, 102), now, 825_000_000, all), shown, "{now:?} {all:?}");
        }
    }

    /// Check that what was seen of a process is taken from what ended, also if the end is told with
    /// another name or without the unit, and from nothing else.
    #[test]
    fn what_was_seen_is_counted_once() {
        let of = |unit: &str, name: &str| (unit.as_bytes().to_vec(), name.as_bytes().to_vec());
        let all = || {
            HashMap::from([
                (of("u", "a"), [5, 0, 0]),
                (of("", "b"), [7, 0, 0]),
                (of("v", "c"), [9, 0, 0]),
            ])
        };
        for (seen_of, seen, left) in [
            (of("u", "a"), 3, [2, 7, 9]),
            (of("u", "b"), 4, [5, 3, 9]),
            (of("u", "b"), 8, [4, 0, 9]),
            (of("v", "x"), 10, [5, 7, 0]),
            (of("x", "x"), 10, [5, 7, 9]),
        ] {
            let mut ended = all();
            take_seen(&mut ended, &seen_of, 0, seen);
            let keys = [of("u", "a"), of("", "b"), of("v", "c")];
            assert_eq!(keys.map(|key| ended[&key][0]), left, "{seen_of:?}");
        }
    }
}
