//! Which process is in which group, and what each counted since its last reading.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use taskdiag::Identity;

use super::matcher::Verdict;
use super::totals::{Counter, Counts, Gauges, Grouping, Threads};

/// The values read for a process.
#[derive(Clone, Debug)]
pub struct Reading {
    pub id: Identity,
    pub ppid: u32,
    /// If this changes, the process may be in other groups: its user and its cgroup.
    pub mark: (Option<u32>, Option<u64>),
    /// Whether some of its values could not be read.
    pub is_partial: bool,
    pub counts: Counts,
    pub now: Gauges,
}

/// The values read for a thread.
#[derive(Clone, Debug)]
pub struct ThreadReading {
    pub process: u32,
    pub id: Identity,
    pub name: String,
    pub counts: Counts,
    pub state: usize,
    pub wchan: String,
}

/// The facts that decide about a process's groups.
#[derive(Clone, Debug)]
pub struct GroupFacts {
    pub id: Identity,
    /// The result of the rules.
    pub verdict: Verdict,
    /// Its groups of the other kinds, in the order of the kinds.
    pub keys: Vec<String>,
    /// Whether one of them may be different next time: a name did not come in time.
    pub is_late: bool,
}

/// A process that has ended, as reported by an event.
#[derive(Clone, Debug)]
pub struct Exit {
    pub id: Identity,
    /// When it ended, in nanoseconds since boot.
    pub time_ns: u64,
    pub ppid: Option<u32>,
    pub runtime_ns: Option<u64>,
    /// What it moved through sockets in all.
    pub network: Counts,
    /// The result of the rules, for a process that was never read.
    pub verdict: Verdict,
    /// Its groups of the other kinds, in the order of the kinds.
    pub keys: Vec<String>,
}

/// How to follow processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A process to which no rule applies is in the group of its parent.
    pub children: bool,
    /// Check processes without a group again at each reading.
    pub recheck: bool,
}

/// The place of a process among the groups of the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Membership {
    /// Not known yet.
    #[default]
    Open,
    /// In no group.
    Ignored,
    In(Arc<str>),
}

#[derive(Debug, Default)]
struct Tracked {
    ppid: u32,
    mark: (Option<u32>, Option<u64>),
    place: Membership,
    /// Its groups of the other kinds; empty until known.
    keys: Vec<Arc<str>>,
    /// Whether to ask for them again.
    is_late: bool,
    /// Its counters at the last reading, which have been added up.
    counts: Option<Counts>,
    /// Whether its counters have been added to a group of the rules.
    is_counted: bool,
    threads: HashMap<Identity, Counts>,
    sample: u64,
}

/// The maximum number of ended processes that are remembered until the next reading, and of
/// departed ones.
const MAX_ENDED: usize = 1 << 18;

/// How long the event of a process's end may come after the first reading without the process.
const LATEST_EVENT_NS: u64 = 60_000_000_000;

/// Follows processes from one reading to the next.
#[derive(Debug, Default)]
pub struct Tracker {
    options: Options,
    /// The groups of the rules, followed by those of the other kinds.
    pub groupings: Vec<Grouping>,
    processes: HashMap<Identity, Tracked>,
    by_pid: HashMap<u32, Identity>,
    /// Processes whose end was counted, and when they ended. They may still be read, as zombies.
    ended: HashMap<Identity, u64>,
    /// Processes that are in no reading any more, and when the first reading without them began.
    /// The events of their ends may not have been read yet.
    departed: HashMap<Identity, (Tracked, u64)>,
    /// When tracking began, in nanoseconds since boot. Earlier counts are ignored.
    first_ns: u64,
    sample: u64,
    /// How often a process of a group was read incompletely.
    pub partial: u64,
    /// Processes that ended and are in no group, because too little is known about them.
    pub unassigned: u64,
    /// Their processor time.
    pub unassigned_ns: u64,
}

impl Tracker {
    /// Starts tracking at this time, in nanoseconds since boot.
    pub fn new(options: Options, groupings: Vec<Grouping>, first_ns: u64) -> Tracker {
        Tracker {
            options,
            groupings,
            first_ns,
            ..Tracker::default()
        }
    }

    /// Begins a reading made at this time, in nanoseconds since boot. Returns the processes about
    /// which more must be read.
    pub fn begin(&mut self, began_ns: u64, readings: &[Reading]) -> Vec<u32> {
        self.sample += 1;
        let mut wanted = Vec::new();
        let others = self.groupings.len() - 1;
        for reading in readings {
            self.by_pid.insert(reading.id.tid(), reading.id);
            let tracked = self.processes.entry(reading.id).or_insert_with(|| Tracked {
                mark: reading.mark,
                is_late: true,
                ..Tracked::default()
            });
            tracked.sample = self.sample;
            tracked.ppid = reading.ppid;
            let has_moved = others > 0 && (tracked.is_late || tracked.mark != reading.mark);
            let is_open = match tracked.place {
                Membership::Open => true,
                Membership::Ignored => self.options.recheck,
                Membership::In(_) => false,
            };
            tracked.mark = reading.mark;
            if is_open || has_moved {
                wanted.push(reading.id.tid());
            }
        }
        self.forget_gone(began_ns);
        wanted
    }

    /// Removes processes that were not in the reading. What is known of them is kept until the
    /// event of their end.
    fn forget_gone(&mut self, began_ns: u64) {
        let sample = self.sample;
        self.departed
            .retain(|_, (_, since_ns)| began_ns.saturating_sub(*since_ns) < LATEST_EVENT_NS);
        let gone = self.processes.iter().filter(|(_, tracked)| tracked.sample != sample);
        let gone: Vec<Identity> = gone.map(|(id, _)| *id).collect();
        for id in gone {
            let Some(mut tracked) = self.processes.remove(&id) else {
                continue;
            };
            if !self.ended.contains_key(&id) && self.departed.len() < MAX_ENDED {
                tracked.threads = HashMap::new();
                self.departed.insert(id, (tracked, began_ns));
            }
        }
        let (processes, departed) = (&self.processes, &self.departed);
        self.by_pid
            .retain(|_, id| processes.contains_key(id) || departed.contains_key(id));
        self.ended
            .retain(|id, ended_ns| *ended_ns >= began_ns || processes.contains_key(id));
    }

    /// Assigns processes to groups.
    pub fn learn(&mut self, found: Vec<GroupFacts>) {
        let mut unmatched = Vec::new();
        for GroupFacts {
            id,
            verdict,
            keys,
            is_late,
        } in found
        {
            let Some(tracked) = self.processes.get_mut(&id) else {
                continue;
            };
            tracked.is_late = is_late;
            tracked.keys = keys
                .iter()
                .zip(self.groupings.iter_mut().skip(1))
                .map(|(key, grouping)| grouping.name(key))
                .collect();
            if matches!(tracked.place, Membership::In(_)) {
                continue;
            }
            match verdict {
                Verdict::Group(name) => tracked.place = Membership::In(self.groupings[0].name(&name)),
                // With recheck, the process may have been ignored until now.
                Verdict::None => {
                    tracked.place = Membership::Open;
                    unmatched.push(id);
                }
                Verdict::Unknown => {}
            }
        }
        let pending: HashSet<Identity> = unmatched.iter().copied().collect();
        for id in unmatched {
            self.place_by_parent(id, &pending);
        }
    }

    /// Puts a process to which no rule applies into the group of its nearest ancestor that has one,
    /// and also the ancestors in between.
    fn place_by_parent(&mut self, id: Identity, pending: &HashSet<Identity>) {
        // No process has as many ancestors.
        const MAX_ANCESTORS: usize = 4096;
        let mut line = vec![id];
        let mut place = Membership::Ignored;
        while let Some(parent) = self.parent(line[line.len() - 1]) {
            match self.processes.get(&parent).map(|tracked| &tracked.place) {
                Some(Membership::Open) if pending.contains(&parent) && line.len() < MAX_ANCESTORS => line.push(parent),
                Some(Membership::In(name)) => {
                    place = Membership::In(name.clone());
                    break;
                }
                _ => break,
            }
        }
        for id in line {
            if let Some(tracked) = self.processes.get_mut(&id) {
                tracked.place = place.clone();
            }
        }
    }

    /// The parent of a process, if processes without a rule inherit the group of their parent.
    fn parent(&self, id: Identity) -> Option<Identity> {
        let ppid = self.processes.get(&id).filter(|_| self.options.children)?.ppid;
        self.by_pid.get(&ppid).copied()
    }

    /// Whether a process is in a group of any kind.
    fn is_in_group(&self, reading: &Reading) -> bool {
        let tracked = self.processes.get(&reading.id);
        tracked.is_some_and(|tracked| matches!(tracked.place, Membership::In(_)) || !tracked.keys.is_empty())
    }

    /// The ids of the processes read that are in a group.
    pub fn in_groups(&self, readings: &[Reading]) -> Vec<u32> {
        let in_group = readings.iter().filter(|reading| self.is_in_group(reading));
        in_group.map(|reading| reading.id.tid()).collect()
    }

    /// Of these, the ids of those with several threads.
    pub fn with_threads(&self, readings: &[Reading]) -> Vec<u32> {
        let several = readings.iter().filter(|reading| reading.now.threads > 1);
        let in_group = several.filter(|reading| self.is_in_group(reading));
        in_group.map(|reading| reading.id.tid()).collect()
    }

    /// The number of processes for which it is not known yet whether they are in a group.
    pub fn undecided(&self) -> u64 {
        let open = |tracked: &&Tracked| tracked.place == Membership::Open;
        self.processes.values().filter(open).count() as u64
    }

    /// Adds up a reading. `threads` are the threads of [`with_threads`](Tracker::with_threads).
    pub fn update(&mut self, readings: &[Reading], threads: &[ThreadReading]) {
        self.groupings.iter_mut().for_each(Grouping::begin);
        let mut of_process: HashMap<u32, Vec<&ThreadReading>> = HashMap::new();
        for thread in threads {
            of_process.entry(thread.process).or_default().push(thread);
        }
        for reading in readings {
            let threads = of_process.remove(&reading.id.tid()).unwrap_or_default();
            self.update_process(reading, &threads);
        }
    }

    fn update_process(&mut self, reading: &Reading, threads: &[&ThreadReading]) {
        let first_ns = self.first_ns;
        let Some(tracked) = self.processes.get_mut(&reading.id) else {
            return;
        };
        let is_new = reading.id.has_started_since(first_ns);
        let has_ended = self.ended.contains_key(&reading.id);
        let from = |before: Option<&Counts>, now: &Counts, is_new: bool| match before {
            Some(before) => now.since(before),
            None if is_new => *now,
            None => now.zeroed(),
        };
        let mut now = reading.now.clone();
        let mut counted = from(tracked.counts.as_ref(), &reading.counts, is_new);
        let mut by_thread = Vec::new();
        let (mut switches, mut all_switches) = (Counts::default(), Counts::default());
        if threads.len() > 1 {
            now.states = Default::default();
            now.wchans.clear();
            let leader = tracked.counts;
            for thread in threads {
                now.states[thread.state] += 1;
                if !thread.wchan.is_empty() {
                    now.add_wchan(&thread.wchan, 1);
                }
                let is_new = thread.id.has_started_since(first_ns);
                // While it was the only thread, its counters were those of the process.
                let as_process = leader.as_ref().filter(|_| thread.id == reading.id);
                let since = from(tracked.threads.get(&thread.id).or(as_process), &thread.counts, is_new);
                add_switches(&mut switches, &since);
                add_switches(&mut all_switches, &thread.counts);
                by_thread.push((thread.name.as_str(), since));
            }
            counted.renew(&switches);
        }
        let mut kept: HashMap<Identity, Counts> = HashMap::with_capacity(threads.len());
        for thread in threads {
            let mut counts = tracked.threads.remove(&thread.id).unwrap_or_default();
            counts.renew(&thread.counts);
            kept.insert(thread.id, counts);
        }
        tracked.threads = kept;
        // The group may become known later than the process. It then gets all that was counted
        // since the process started.
        let mut for_group = match (tracked.is_counted, is_new) {
            (false, true) => {
                let mut all = reading.counts;
                all.renew(&all_switches);
                all
            }
            _ => counted,
        };
        if has_ended {
            counted = counted.zeroed();
            for_group = for_group.zeroed();
        }
        tracked.counts.get_or_insert_default().renew(&reading.counts);
        if let Membership::In(name) = &tracked.place {
            tracked.is_counted = true;
            self.partial += u64::from(reading.is_partial);
            let grouping = &mut self.groupings[0];
            grouping.add(name, &for_group, &now);
            add_threads(grouping, name, &by_thread);
        }
        for (name, grouping) in tracked.keys.iter().zip(self.groupings.iter_mut().skip(1)) {
            grouping.add(name, &counted, &now);
            add_threads(grouping, name, &by_thread);
        }
    }

    /// Counts a process that has ended.
    pub fn end(&mut self, exit: Exit) {
        if self.ended.len() >= MAX_ENDED {
            return self.leave_unassigned(&exit);
        }
        let departed = self.departed.remove(&exit.id).map(|(tracked, _)| tracked);
        let tracked = self.processes.get(&exit.id).or(departed.as_ref());
        let read = tracked.and_then(|tracked| tracked.counts);
        let read_ns = read.map_or(0, |counts| {
            let times = [Counter::UserNs, Counter::SystemNs];
            times.iter().filter_map(|&counter| counts.get(counter)).sum()
        });
        let mut counted = Counts::default();
        counted.raise(Counter::Ended, 1);
        let is_counted = read.is_some() || exit.id.has_started_since(self.first_ns);
        if let Some(runtime_ns) = exit.runtime_ns.filter(|_| is_counted) {
            counted.raise(Counter::UnsampledNs, runtime_ns.saturating_sub(read_ns));
        }
        if is_counted {
            let read = read.unwrap_or_else(|| exit.network.zeroed());
            counted.add(&exit.network.since(&read));
        }
        // `None`: unknown.
        let place = match (tracked.map(|tracked| &tracked.place), &exit.verdict) {
            (Some(Membership::In(name)), _) => Some(Some(name.clone())),
            (Some(Membership::Ignored), _) => Some(None),
            (_, Verdict::Group(name)) => Some(Some(self.groupings[0].name(name))),
            (_, Verdict::None) => Some(self.place_of_parent(exit.ppid)),
            (_, Verdict::Unknown) => None,
        };
        let keys = match tracked {
            Some(tracked) if !tracked.keys.is_empty() => tracked.keys.clone(),
            _ => {
                let groupings = self.groupings.iter_mut().skip(1);
                groupings
                    .zip(&exit.keys)
                    .map(|(grouping, key)| grouping.name(key))
                    .collect()
            }
        };
        match place {
            Some(Some(name)) => self.groupings[0].add_ended(&name, &counted),
            Some(None) => {}
            None => self.leave_unassigned(&exit),
        }
        for (name, grouping) in keys.iter().zip(self.groupings.iter_mut().skip(1)) {
            grouping.add_ended(name, &counted);
        }
        self.ended.insert(exit.id, exit.time_ns);
    }

    fn place_of_parent(&self, ppid: Option<u32>) -> Option<Arc<str>> {
        let parent = self.by_pid.get(&ppid.filter(|_| self.options.children)?)?;
        let departed = || self.departed.get(parent).map(|(tracked, _)| tracked);
        match &self.processes.get(parent).or_else(departed)?.place {
            Membership::In(name) => Some(name.clone()),
            _ => None,
        }
    }

    fn leave_unassigned(&mut self, exit: &Exit) {
        self.unassigned += 1;
        self.unassigned_ns = self.unassigned_ns.saturating_add(exit.runtime_ns.unwrap_or(0));
    }
}

/// Adds context switches, which the kernel counts only per thread.
fn add_switches(sum: &mut Counts, counts: &Counts) {
    for counter in [Counter::Voluntary, Counter::Nonvoluntary] {
        if let Some(count) = counts.get(counter) {
            sum.raise(counter, count);
        }
    }
}

fn add_threads(grouping: &mut Grouping, name: &Arc<str>, threads: &[(&str, Counts)]) {
    for (thread, counts) in threads {
        let one = Threads {
            counts: *counts,
            count: 1,
        };
        grouping.add_threads(name, thread, &one);
    }
}

#[cfg(test)]
mod tests {
    use super::super::totals::Limits;
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn id(pid: u32, start_s: u64) -> Identity {
        Identity::new(pid, start_s * SECOND)
    }

    fn counts(user: u64) -> Counts {
        let mut counts = Counts::default();
        counts.set(Counter::UserNs, Ok(user));
        counts.set(Counter::Voluntary, Ok(user));
        counts
    }

    fn reading(id: Identity, ppid: u32, user: u64) -> Reading {
        Reading {
            id,
            ppid,
            mark: (Some(0), Some(1)),
            is_partial: false,
            counts: counts(user),
            now: Gauges {
                processes: 1,
                threads: 1,
                ..Gauges::default()
            },
        }
    }

    fn tracker(options: Options) -> Tracker {
        let limits = Limits {
            groups: 100,
            thread_names: 100,
            remove_empty: false,
        };
        Tracker::new(
            options,
            vec![Grouping::new(limits), Grouping::new(limits)],
            100 * SECOND,
        )
    }

    const USUAL: Options = Options {
        children: true,
        recheck: false,
    };

    /// Reads processes. `names` has the groups that the rules assign to some of them.
    fn read(tracker: &mut Tracker, began_s: u64, readings: &[Reading], names: &[(u32, &str)]) -> Vec<u32> {
        let wanted = tracker.begin(began_s * SECOND, readings);
        let of = |pid: u32| names.iter().find(|(named, _)| *named == pid).map(|(_, name)| *name);
        let found = readings.iter().filter(|reading| wanted.contains(&reading.id.tid()));
        let found = found.map(|reading| GroupFacts {
            id: reading.id,
            verdict: of(reading.id.tid()).map_or(Verdict::None, |name| Verdict::Group(name.to_owned())),
            keys: vec!["unit".to_owned()],
            is_late: false,
        });
        tracker.learn(found.collect());
        tracker.update(readings, &[]);
        wanted
    }

    /// The groups of a kind: name, number of processes, user time, number of ended processes, and
    /// their time.
    fn groups(tracker: &mut Tracker, kind: usize) -> Vec<(String, u64, u64, u64, u64)> {
        let picture = tracker.groupings[kind].picture();
        let get = |counts: &Counts, counter| counts.get(counter).unwrap_or(0);
        let row = |(name, group): &(Arc<str>, super::super::totals::Group)| {
            let counts = &group.counts;
            let ended = (get(counts, Counter::Ended), get(counts, Counter::UnsampledNs));
            (
                name.to_string(),
                group.now.processes,
                get(counts, Counter::UserNs),
                ended.0,
                ended.1,
            )
        };
        picture.iter().map(row).collect()
    }

    fn line(name: &str, processes: u64, user: u64) -> (String, u64, u64, u64, u64) {
        (name.to_owned(), processes, user, 0, 0)
    }

    /// Check that counts before the first reading are ignored, that later ones are counted, and
    /// that nothing falls when processes end.
    #[test]
    fn increments_count() {
        let mut tracker = tracker(USUAL);
        let old = id(10, 5);
        assert_eq!(read(&mut tracker, 100, &[reading(old, 1, 50)], &[(10, "a")]), [10]);
        assert_eq!(groups(&mut tracker, 0), [line("a", 1, 0)]);
        let new = id(11, 101);
        let readings = [reading(old, 1, 57), reading(new, 1, 20)];
        assert_eq!(read(&mut tracker, 110, &readings, &[(11, "a")]), [11]);
        assert_eq!(groups(&mut tracker, 0), [line("a", 2, 27)]);
        assert_eq!(groups(&mut tracker, 1), [line("unit", 2, 27)]);
        read(&mut tracker, 120, &[reading(old, 1, 57)], &[]);
        assert_eq!(groups(&mut tracker, 0), [line("a", 1, 27)]);
        read(&mut tracker, 130, &[], &[]);
        assert_eq!(groups(&mut tracker, 0), [line("a", 0, 27)]);
        // The pid is used again.
        read(&mut tracker, 140, &[reading(id(10, 135), 1, 3)], &[(10, "a")]);
        assert_eq!(groups(&mut tracker, 0), [line("a", 1, 30)]);
        assert_eq!(groups(&mut tracker, 1), [line("unit", 1, 30)]);
    }

    /// Check that children of a group are in it, also children of children that appear with them,
    /// and that children of ignored processes are ignored.
    #[test]
    fn children_are_in_the_group_of_their_parents() {
        for children in [true, false] {
            let mut tracker = tracker(Options { children, ..USUAL });
            let readings = [
                reading(id(5, 1), 6, 0),
                reading(id(6, 1), 7, 0),
                reading(id(7, 1), 1, 0),
                reading(id(8, 1), 1, 0),
                reading(id(9, 1), 8, 0),
                reading(id(1, 0), 0, 0),
            ];
            read(&mut tracker, 100, &readings, &[(7, "a"), (9, "b")]);
            let expected = if children { 3 } else { 1 };
            assert_eq!(groups(&mut tracker, 0), [line("a", expected, 0), line("b", 1, 0)]);
            // Decisions stay: test a later child of an ignored process and of a group.
            let mut readings = readings.to_vec();
            readings.extend([reading(id(20, 101), 8, 0), reading(id(21, 101), 5, 0)]);
            assert_eq!(read(&mut tracker, 110, &readings, &[]), [20, 21]);
            let expected = if children { 4 } else { 1 };
            assert_eq!(groups(&mut tracker, 0), [line("a", expected, 0), line("b", 1, 0)]);
        }
    }

    /// Check that a cycle of parents, which cannot exist, does not cause an endless loop.
    #[test]
    fn circles_end() {
        let mut tracker = tracker(USUAL);
        let readings = [
            reading(id(5, 1), 6, 0),
            reading(id(6, 1), 5, 0),
            reading(id(7, 1), 7, 0),
        ];
        read(&mut tracker, 100, &readings, &[]);
        assert_eq!(groups(&mut tracker, 0), []);
    }

    /// Check that with recheck an ignored process can enter a group, with all its counts if it
    /// started after tracking began.
    #[test]
    fn the_ignored_are_looked_at_again() {
        for recheck in [true, false] {
            let mut tracker = tracker(Options {
                recheck,
                children: false,
            });
            read(&mut tracker, 100, &[], &[]);
            let process = id(10, 105);
            read(&mut tracker, 110, &[reading(process, 1, 5)], &[]);
            let wanted = read(&mut tracker, 120, &[reading(process, 1, 8)], &[(10, "a")]);
            assert_eq!(wanted.len(), usize::from(recheck));
            let expected = if recheck { vec![line("a", 1, 8)] } else { vec![] };
            assert_eq!(groups(&mut tracker, 0), expected);
        }
    }

    /// Check that a process that moves counts in its new group from then on, and is looked up
    /// again.
    #[test]
    fn a_process_can_move() {
        let mut tracker = tracker(USUAL);
        let mut process = reading(id(10, 1), 1, 5);
        read(&mut tracker, 100, &[process.clone()], &[(10, "a")]);
        process.mark.1 = Some(2);
        assert_eq!(read(&mut tracker, 110, &[process.clone()], &[(10, "b")]), [10]);
        assert_eq!(
            groups(&mut tracker, 0),
            [line("a", 1, 0)],
            "its group of the rules is decided once"
        );
        assert_eq!(read(&mut tracker, 120, &[process], &[]), Vec::<u32>::new());
    }

    /// Check that a group whose name was late is asked for again, and that the process moves there.
    #[test]
    fn a_late_name_is_asked_for_again() {
        let mut tracker = tracker(USUAL);
        let process = id(10, 101);
        for (began_s, user, name, is_late) in [(110, 5, "(unknown)", true), (120, 8, "www", false)] {
            let readings = [reading(process, 1, user)];
            assert_eq!(tracker.begin(began_s * SECOND, &readings), [10]);
            tracker.learn(vec![GroupFacts {
                id: process,
                verdict: Verdict::Group("a".to_owned()),
                keys: vec![name.to_owned()],
                is_late,
            }]);
            tracker.update(&readings, &[]);
        }
        assert_eq!(groups(&mut tracker, 1), [line("(unknown)", 0, 5), line("www", 1, 3)]);
        assert!(tracker.begin(130 * SECOND, &[reading(process, 1, 9)]).is_empty());
    }

    fn exit(id: Identity, time_s: u64, runtime: u64, verdict: Verdict) -> Exit {
        Exit {
            id,
            time_ns: time_s * SECOND,
            ppid: Some(10),
            runtime_ns: Some(runtime),
            network: Counts::default(),
            verdict,
            keys: vec!["unit".to_owned()],
        }
    }

    /// Check that ended processes count once: those never read, those that were read, and those
    /// read once more as zombies.
    #[test]
    fn the_ended_count_once() {
        let mut tracker = tracker(USUAL);
        let (parent, known) = (reading(id(10, 1), 1, 0), reading(id(11, 102), 10, 30));
        read(&mut tracker, 100, std::slice::from_ref(&parent), &[(10, "a")]);
        read(&mut tracker, 110, &[parent.clone(), known.clone()], &[(11, "b")]);
        let short = id(12, 112);
        for one in [
            exit(id(9, 99), 105, 1000, Verdict::Group("c".to_owned())),
            exit(short, 113, 5, Verdict::Group("c".to_owned())),
            exit(id(13, 112), 113, 6, Verdict::None),
            exit(id(14, 112), 113, 7, Verdict::Unknown),
            exit(known.id, 114, 32, Verdict::Unknown),
        ] {
            tracker.end(one);
        }
        let row = |name: &str, processes, user, ended, ns| (name.to_owned(), processes, user, ended, ns);
        let zombies = [parent.clone(), reading(known.id, 10, 33), reading(short, 10, 5)];
        read(&mut tracker, 120, &zombies, &[(12, "c")]);
        let expected = [row("a", 1, 0, 1, 6), row("b", 1, 30, 1, 2), row("c", 1, 0, 2, 5)];
        assert_eq!(groups(&mut tracker, 0), expected);
        assert_eq!(groups(&mut tracker, 1), [row("unit", 3, 30, 5, 20)]);
        read(&mut tracker, 130, &[parent], &[]);
        let expected = [row("a", 1, 0, 1, 6), row("b", 0, 30, 1, 2), row("c", 0, 0, 2, 5)];
        assert_eq!(groups(&mut tracker, 0), expected);
        assert_eq!((tracker.unassigned, tracker.unassigned_ns), (1, 7));
        assert!(tracker.ended.is_empty());
    }

    /// Check that a process whose end is reported after a reading without it counts once, in the
    /// group that it had, and so do its children; and that memory for such processes is bounded.
    #[test]
    fn ends_may_be_reported_late() {
        let mut tracker = tracker(USUAL);
        let [parent, silent] = [10, 12].map(|pid| reading(id(pid, 101), 1, 30));
        read(&mut tracker, 110, &[parent.clone(), silent], &[(10, "a"), (12, "a")]);
        read(&mut tracker, 120, &[], &[]);
        tracker.end(exit(id(11, 111), 119, 5, Verdict::None));
        tracker.end(exit(parent.id, 119, 32, Verdict::Unknown));
        let row = |name: &str| (name.to_owned(), 0, 60, 2, 7);
        assert_eq!(groups(&mut tracker, 0), [row("a")]);
        assert_eq!(groups(&mut tracker, 1), [row("unit")]);
        assert_eq!(tracker.unassigned, 0);
        read(&mut tracker, 180, &[], &[]);
        assert!(tracker.departed.is_empty() && tracker.by_pid.is_empty());
    }

    fn thread(process: u32, id: Identity, name: &str, user: u64) -> ThreadReading {
        ThreadReading {
            process,
            id,
            name: name.to_owned(),
            counts: counts(user),
            state: 1,
            wchan: String::new(),
        }
    }

    /// Check that context switches are summed over threads, and that none counts twice when a
    /// process gets a second thread.
    #[test]
    fn switches_are_those_of_all_threads() {
        let mut tracker = tracker(USUAL);
        let switches = |tracker: &mut Tracker| {
            let picture = tracker.groupings[0].picture();
            picture[0].1.counts.get(Counter::Voluntary)
        };
        read(&mut tracker, 100, &[], &[]);
        let mut process = reading(id(10, 101), 1, 5);
        read(&mut tracker, 110, &[process.clone()], &[(10, "a")]);
        assert_eq!(switches(&mut tracker), Some(5));
        process.now.threads = 2;
        process.counts = counts(8);
        tracker.begin(120 * SECOND, &[process.clone()]);
        assert_eq!(tracker.with_threads(&[process.clone()]), [10]);
        let threads = [thread(10, id(10, 101), "main", 8), thread(10, id(11, 115), "w", 100)];
        tracker.update(&[process.clone()], &threads);
        assert_eq!(switches(&mut tracker), Some(5 + 3 + 100));
        let picture = tracker.groupings[0].picture();
        let shown: Vec<_> = picture[0]
            .1
            .threads
            .iter()
            .map(|(name, threads)| (name.as_str(), threads.count))
            .collect();
        assert_eq!(shown, [("main", 1), ("w", 1)]);
        assert_eq!(picture[0].1.now.states, [0, 2, 0, 0, 0]);
        process.now.threads = 1;
        process.counts = counts(9);
        tracker.begin(130 * SECOND, &[process.clone()]);
        tracker.update(&[process], &[]);
        assert_eq!(switches(&mut tracker), Some(5 + 3 + 100 + 1));
    }
}
