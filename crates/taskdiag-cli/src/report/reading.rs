//! Reading a time of a recording: what groups used, and what happened.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use taskdiag::{Field, Fields, Query, Snapshot, Task, Value};
use taskdiag_core::identity::TICK_NS;
use taskdiag_history::decode::End;
use taskdiag_history::directory::{Tier, TIERS};
use taskdiag_history::events::{Happened, Sum};
use taskdiag_history::figures::Figure;
use taskdiag_history::About;

use super::incidents::{bursts, innermost, Counts, Forks, Incident, Services, What, Which};
use super::present::{names, naming, Memory};
use super::series::{Amounts, Groups};
use crate::history::library::{far_ns, Library, Segment};
use crate::history::past::{Moment, Recorded};
use crate::outcome::Failure;

/// A chart has about as many points at most: more than it has pixels help nobody.
const MOST_POINTS: i64 = 400;

/// More samples than this are read from a coarser tier, if there is one.
const MOST_SAMPLES: i64 = 2000;

/// Units and programs of which it is remembered what began and ended; the rest is one sum.
const MOST_SUMS: usize = 4096;

/// A point of the charts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// When, in nanoseconds since 1970.
    pub wall_ns: i64,
    /// Whether there is a sample. Otherwise it stands for a time in which nothing was recorded.
    pub is_known: bool,
    /// Processors that were busy since the point before, of all; `None` if there is none of the same boot
    /// just before it.
    pub busy: Option<(f64, f64)>,
    /// Memory that is not available to new programs, of all, in bytes.
    pub used: Option<(u64, u64)>,
    /// Processes whose memory is not known.
    pub missing: u64,
}

/// What was read.
#[derive(Debug)]
pub struct Read {
    /// The tier.
    pub tier: &'static Tier,
    /// How many samples.
    pub samples: u64,
    /// The points.
    pub points: Vec<Point>,
    /// What the memory of groups is.
    pub memory: Memory,
    /// What groups used, in the order of [`GROUPINGS`](super::present::GROUPINGS).
    pub groups: [Groups; 3],
    /// What happened.
    pub incidents: Vec<Incident>,
    /// What began and ended, by unit and program. Of those without names there were too many.
    pub ended: BTreeMap<(Vec<u8>, Vec<u8>), Sum>,
    /// Whether events were recorded.
    pub has_events: bool,
    /// What is missing in the recording, by its own words.
    pub notes: Vec<String>,
    /// What is damaged.
    pub damages: Vec<String>,
    /// The boot of the last sample.
    pub boot_id: String,
}

/// A tier that has something of a time.
struct Candidate {
    tier: &'static Tier,
    times: Range<i64>,
    every_ns: i64,
}

/// Which tier to read: the finest that goes back as far as any, and does not have too many samples.
fn choose(library: &Library, times: &Range<i64>) -> Option<Candidate> {
    let mut all: Vec<Candidate> = Vec::new();
    for tier in &TIERS {
        let segments = library.of_tier(tier, times);
        let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
            continue;
        };
        let every_ns = match (tier.every_ns, library.decoder(first)) {
            (0, Ok(Some(decoder))) => decoder.about.every_ns,
            (every_ns, _) => every_ns,
        };
        let end = segments.iter().rev().find_map(|segment| library.last_time(segment));
        let end = end.unwrap_or(last.begin_ns).min(times.end);
        all.push(Candidate {
            tier,
            times: first.begin_ns.max(times.start)..end,
            every_ns: i64::try_from(every_ns).unwrap_or(i64::MAX).max(1),
        });
    }
    let earliest = all.iter().map(|candidate| candidate.times.start).min()?;
    let is_right = |candidate: &Candidate| {
        let span = candidate.times.end.saturating_sub(candidate.times.start);
        let slack = TIERS[2].every_ns as i64;
        candidate.times.start <= earliest.saturating_add(slack) && span / candidate.every_ns <= MOST_SAMPLES
    };
    let right = all.iter().position(is_right).or_else(|| all.len().checked_sub(1))?;
    Some(all.swap_remove(right))
}

/// Reads what was recorded in a time.
pub fn read(library: &Library, times: &Range<i64>) -> Result<Read, Failure> {
    let nothing = format!(
        "{0}: nothing was recorded in that time: `taskdiag history {0}` shows what there is",
        library.path().display()
    );
    let Some(candidate) = choose(library, times) else {
        return Err(Failure::Unanswered(nothing));
    };
    let span = candidate.times.end.saturating_sub(candidate.times.start);
    let mut reader = Reader {
        // If there is a point for each, their rhythm need not be that of a clock.
        step_ns: Some(span / MOST_POINTS).filter(|step| *step > candidate.every_ns),
        far_ns: far_ns((span / MOST_POINTS).max(candidate.every_ns).unsigned_abs()),
        times: times.clone(),
        query: None,
        snapshot: Snapshot::default(),
        before: None,
        last: None,
        forks: Vec::new(),
        oom: Counts::default(),
        oom_machine: Counts::default(),
        services: Services::default(),
        read: Read {
            tier: candidate.tier,
            samples: 0,
            points: Vec::new(),
            memory: Memory::Rss,
            groups: Default::default(),
            incidents: Vec::new(),
            ended: BTreeMap::new(),
            has_events: false,
            notes: Vec::new(),
            damages: Vec::new(),
            boot_id: String::new(),
        },
    };
    for segment in library.of_tier(candidate.tier, times) {
        if let Err(damage) = reader.segment(library, segment) {
            reader.read.damages.push(format!("{}: {damage}", segment.name));
        }
    }
    if !reader.read.points.iter().any(|point| point.is_known) {
        let mut message = nothing;
        for damage in &reader.read.damages {
            message += &format!("\n{damage}");
        }
        return Err(Failure::Unanswered(message));
    }
    let mut read = reader.read;
    read.incidents.extend(bursts(reader.forks));
    read.incidents.sort_by_key(|incident| incident.wall_ns);
    Ok(read)
}

/// The counters at a point.
struct Before {
    boot_id: String,
    wall_ns: i64,
    boot_ns: u64,
    /// Processor time of each process.
    used_ns: HashMap<Which, u64>,
    /// Clock ticks of the machine: busy, and all.
    ticks: Option<(u64, u64)>,
}

struct Reader {
    times: Range<i64>,
    /// The time between two points; `None`: every sample is one.
    step_ns: Option<i64>,
    /// What is further apart has a gap between.
    far_ns: i64,
    /// `None` before the first segment.
    query: Option<Query>,
    snapshot: Snapshot,
    before: Option<Before>,
    /// The boot and the time since it of the sample that was read last.
    last: Option<(String, u64)>,
    forks: Vec<Forks>,
    oom: Counts,
    oom_machine: Counts,
    services: Services,
    read: Read,
}

impl Reader {
    /// Reads a segment. The error says what is damaged.
    fn segment(&mut self, library: &Library, segment: &Segment) -> Result<(), String> {
        let Some(decoder) = library.decoder(segment)? else {
            return Ok(());
        };
        let query = self.begin(&decoder.about, decoder.fields());
        let boot_id = decoder.about.boot_id.clone();
        let mut recorded = Recorded::quiet(decoder).map_err(|damage| damage.to_string())?;
        loop {
            match recorded.pass()? {
                None => {}
                Some(End::Whole) => return Ok(()),
                Some(End::Torn(bytes)) => {
                    return Err(format!("its last sample was not written completely ({bytes} bytes)"));
                }
            }
            let time = recorded.decoder().time;
            let next = recorded.decoder().next_time().map(|next| next.wall_ns);
            if time.wall_ns >= self.times.end {
                return Ok(());
            }
            if time.wall_ns < self.times.start {
                // What is before the time counts as far as the first point is compared with it.
                if next.is_none_or(|next| next >= self.times.start) {
                    self.point(&mut recorded, &query, false)?;
                }
                self.last = Some((boot_id.clone(), time.boot_ns));
                continue;
            }
            self.read.samples += 1;
            let since_ns = match &self.last {
                Some((before, boot_ns)) if *before == boot_id => Some(time.boot_ns.saturating_sub(*boot_ns)),
                _ => None,
            };
            self.happened(recorded.happened(), time.wall_ns, since_ns);
            self.last = Some((boot_id.clone(), time.boot_ns));
            let is_last_of_step = |next: i64| {
                let step = |wall_ns: i64| self.step_ns.map(|step_ns| wall_ns.div_euclid(step_ns));
                self.step_ns.is_none() || step(next) != step(time.wall_ns) || next >= self.times.end
            };
            if next.is_none_or(is_last_of_step) {
                self.point(&mut recorded, &query, true)?;
            }
        }
    }

    /// Takes in what a segment says of itself. Returns what is asked of it, which the first one decides.
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
            let counters = Field::Pid | Field::StartNs | Field::UtimeNs | Field::StimeNs;
            Query::processes().fields(naming() | counters | read.memory.field())
        });
        query.clone()
    }

    /// Adds what happened between two samples.
    fn happened(&mut self, happened: &Happened, wall_ns: i64, since_ns: Option<u64>) {
        let mut forks = Forks {
            wall_ns,
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
            let ended = &mut self.read.ended;
            let mut of = (unit.clone(), program.clone());
            if ended.len() >= MOST_SUMS && !ended.contains_key(&of) {
                of = Default::default();
            }
            ended.entry(of).or_default().add(*sum);
        }
        // Of the first sample it is not known how long after the one before it was.
        if forks.ms > 0 {
            self.forks.push(forks);
        }
    }

    /// Makes a point of the sample that was read last, or only what the next point is compared with.
    fn point(&mut self, recorded: &mut Recorded, query: &Query, is_shown: bool) -> Result<(), String> {
        recorded.arrive()?;
        let answered = taskdiag::answer_past(recorded, query, &mut self.snapshot);
        answered.map_err(|error| format!("{error:#}"))?;
        let moment = recorded.moment().clone();
        let now = Before {
            boot_id: moment.about.boot_id.clone(),
            wall_ns: moment.time.wall_ns,
            boot_ns: moment.time.boot_ns,
            used_ns: self
                .snapshot
                .tasks()
                .filter_map(|task| Some((which(&task)?, used_ns(&task)?)))
                .collect(),
            ticks: ticks(&moment),
        };
        if is_shown {
            self.gap(&now, moment.boot_ns());
            self.incidents(&moment);
            self.add_point(&now, &moment);
        }
        self.read.boot_id.clone_from(&now.boot_id);
        self.before = Some(now);
        Ok(())
    }

    /// If nothing was recorded for long before a point, says so, and forgets what was before.
    fn gap(&mut self, now: &Before, boot_ns: i64) {
        let Some(before) = &self.before else { return };
        let is_other_boot = before.boot_id != now.boot_id;
        let is_far = now.wall_ns.saturating_sub(before.wall_ns) > self.far_ns;
        if is_other_boot {
            self.read.incidents.push(Incident {
                wall_ns: boot_ns,
                what: What::Boot,
            });
        } else if is_far {
            self.read.incidents.push(Incident {
                wall_ns: before.wall_ns,
                what: What::Gap(now.wall_ns),
            });
        }
        if is_other_boot || is_far {
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

    fn add_point(&mut self, now: &Before, moment: &Moment) {
        let point = self.read.points.len();
        let mut missing = 0;
        let elapsed_ns = self
            .before
            .as_ref()
            .map(|before| now.boot_ns.saturating_sub(before.boot_ns));
        let mut used = Vec::new();
        for task in self.snapshot.tasks() {
            let memory = match task.value(self.read.memory.field()) {
                Ok(Value::Unsigned(bytes)) => bytes as f64,
                Err(taskdiag::Absent::NoMemory) => 0.0,
                _ => {
                    missing += 1;
                    0.0
                }
            };
            let grown_ns = self
                .before
                .as_ref()
                .zip(which(&task))
                .and_then(|(before, which)| grown_ns(before, now, which));
            let processors = match (grown_ns, elapsed_ns) {
                (Some(grown_ns), Some(elapsed_ns @ 1..)) => grown_ns as f64 / elapsed_ns as f64,
                _ => 0.0,
            };
            used.push((names(&task), Amounts { processors, memory }));
        }
        for (index, groups) in self.read.groups.iter_mut().enumerate() {
            groups.add(point, used.iter().map(|(names, amounts)| (names[index], *amounts)));
        }
        let ticks = self.before.as_ref().and_then(|before| before.ticks).zip(now.ticks);
        let busy = ticks.zip(elapsed_ns).map(|((before, now), elapsed_ns)| {
            let grown = |before: u64, now: u64| {
                now.saturating_sub(before).saturating_mul(TICK_NS) as f64 / elapsed_ns.max(1) as f64
            };
            (grown(before.0, now.0), grown(before.1, now.1))
        });
        let of_meminfo = |name| moment.figure("meminfo", name);
        let used = of_meminfo("MemTotal").zip(of_meminfo("MemAvailable"));
        self.read.points.push(Point {
            wall_ns: now.wall_ns,
            is_known: true,
            busy,
            used: used.map(|(total, available)| (total.saturating_sub(available), total)),
            missing,
        });
    }

    /// What figures and processes say of what happened since the point before.
    fn incidents(&mut self, moment: &Moment) {
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
        let in_machine: u64 = in_machine.iter().map(|(_, count)| count).sum();
        let explained: u64 = in_cgroups.iter().map(|(_, count)| count).sum();
        for (path, count) in in_cgroups {
            add(wall_ns, What::OomInCgroup(path, count));
        }
        if in_machine > explained {
            add(wall_ns, What::OomInMachine(in_machine - explained));
        }
        let services = self
            .snapshot
            .tasks()
            .filter_map(|task| Some((task.unit().ok()?, which(&task)?)));
        for (unit, start_ns) in self.services.restarted(services) {
            add(moment.boot_ns().saturating_add_unsigned(start_ns), What::Restart(unit));
        }
    }
}

fn which(task: &Task<'_>) -> Option<Which> {
    Some((task.pid().ok()?, task.start_ns().ok()?))
}

fn used_ns(task: &Task<'_>) -> Option<u64> {
    Some(task.utime_ns().ok()?.saturating_add(task.stime_ns().ok()?))
}

/// The processor time of a process since the point before. One that began since has used all of its time
/// since; of one that was not seen then although it was there, that is not known.
fn grown_ns(before: &Before, now: &Before, which: Which) -> Option<u64> {
    let used_ns = *now.used_ns.get(&which)?;
    match before.used_ns.get(&which) {
        Some(used_before) => Some(used_ns.saturating_sub(*used_before)),
        None => (which.1.saturating_add(TICK_NS) >= before.boot_ns).then_some(used_ns),
    }
}

/// Clock ticks of the machine: those in which a processor did something, and all.
fn ticks(moment: &Moment) -> Option<(u64, u64)> {
    let of = |names: &[&str]| {
        let ticks = names.iter().map(|name| moment.figure("cpu", name).unwrap_or(0));
        ticks.fold(0, u64::saturating_add)
    };
    moment.figure("cpu", "user")?;
    // Time of guests is in user and nice, too.
    let busy = of(&["user", "nice", "system", "irq", "softirq"]);
    Some((busy, busy.saturating_add(of(&["idle", "iowait", "steal"]))))
}
