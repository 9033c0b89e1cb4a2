//! Totals of groups of processes: counters that never fall, current values, and which groups have
//! their own series.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use taskdiag::Absent;

/// The name for everything without its own series. What has this name itself is part of it.
pub const OTHER: &str = "other";

/// A counter of processes or threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    UserNs,
    SystemNs,
    ReadBytes,
    WriteBytes,
    MajorFaults,
    MinorFaults,
    Voluntary,
    Nonvoluntary,
    NetSent,
    NetReceived,
    LoopbackSent,
    LoopbackReceived,
    UnixSent,
    UnixReceived,
    /// Processor time that processes used between their last reading and their end.
    UnsampledNs,
    /// Processes that ended, according to events.
    Ended,
}

/// The number of counters.
const COUNTERS: usize = Counter::Ended as usize + 1;

/// Counters; each may be unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([Option<u64>; COUNTERS]);

impl Counts {
    /// The value of a counter, if known.
    pub fn get(&self, counter: Counter) -> Option<u64> {
        self.0[counter as usize]
    }

    /// Sets a counter, if the value is known.
    pub fn set(&mut self, counter: Counter, value: Result<u64, Absent>) {
        let known = &mut self.0[counter as usize];
        *known = value.ok().or(*known);
    }

    /// Adds to a counter.
    pub fn raise(&mut self, counter: Counter, by: u64) {
        let known = self.0[counter as usize].get_or_insert(0);
        *known = known.saturating_add(by);
    }

    /// The increase since `before`. A counter that fell counts as unchanged.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts(std::array::from_fn(|index| {
            Some(self.0[index]?.saturating_sub(before.0[index]?))
        }))
    }

    /// The same counters, set to 0.
    pub fn zeroed(&self) -> Counts {
        Counts(self.0.map(|known| known.and(Some(0))))
    }

    /// Adds the known counters.
    pub fn add(&mut self, other: &Counts) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = more.map_or(*sum, |more| Some(sum.unwrap_or(0).saturating_add(more)));
        }
    }

    /// Replaces the counters that are known in `newer`.
    pub fn renew(&mut self, newer: &Counts) {
        for (known, newer) in self.0.iter_mut().zip(newer.0) {
            *known = newer.or(*known);
        }
    }
}

/// The states that are distinguished.
pub const STATES: [&str; 5] = ["Running", "Sleeping", "Waiting", "Zombie", "Other"];

/// The index of a state's letter in [`STATES`].
pub fn state_index(letter: char) -> usize {
    ['R', 'S', 'D', 'Z']
        .iter()
        .position(|&known| known == letter)
        .unwrap_or(4)
}

/// Current values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gauges {
    pub processes: u64,
    pub threads: u64,
    pub resident_bytes: u64,
    pub virtual_bytes: u64,
    pub swapped_bytes: u64,
    pub pss_bytes: u64,
    pub swap_pss_bytes: u64,
    /// Processes whose proportional set size is in the sum.
    pub with_pss: u64,
    /// Processes that have memory, but whose proportional set size is not in the sum.
    pub without_pss: u64,
    pub descriptors: u64,
    /// Processes whose descriptors are in the sum.
    pub with_descriptors: u64,
    pub worst_fd_ratio: f64,
    /// The start time of the oldest process, in seconds since 1970.
    pub oldest_start_s: Option<u64>,
    /// The number of threads by state; the number of processes where threads are not read.
    pub states: [u64; STATES.len()],
    /// The number of waiting threads, by the kernel function in which they wait.
    pub wchans: BTreeMap<String, u64>,
}

/// The maximum number of kernel functions in a group. The rest is added up as "other".
pub const MAX_WCHANS: usize = 64;

impl Gauges {
    /// Adds the values of another process or group.
    pub fn add(&mut self, other: &Gauges) {
        self.processes += other.processes;
        self.threads += other.threads;
        self.resident_bytes += other.resident_bytes;
        self.virtual_bytes = self.virtual_bytes.saturating_add(other.virtual_bytes);
        self.swapped_bytes += other.swapped_bytes;
        self.pss_bytes += other.pss_bytes;
        self.swap_pss_bytes += other.swap_pss_bytes;
        self.with_pss += other.with_pss;
        self.without_pss += other.without_pss;
        self.descriptors += other.descriptors;
        self.with_descriptors += other.with_descriptors;
        self.worst_fd_ratio = self.worst_fd_ratio.max(other.worst_fd_ratio);
        let oldest = self.oldest_start_s.into_iter().chain(other.oldest_start_s);
        self.oldest_start_s = oldest.min();
        for (sum, other) in self.states.iter_mut().zip(other.states) {
            *sum += other;
        }
        for (name, count) in &other.wchans {
            self.add_wchan(name, *count);
        }
    }

    /// Adds threads that wait in a kernel function.
    pub fn add_wchan(&mut self, name: &str, count: u64) {
        let has_room = self.wchans.len() < MAX_WCHANS || self.wchans.contains_key(name);
        let name = if has_room { name } else { OTHER };
        *self.wchans.entry(name.to_owned()).or_default() += count;
    }
}

/// The threads with one name in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Threads {
    pub counts: Counts,
    /// How many there are.
    pub count: u64,
}

impl Threads {
    fn add(&mut self, other: &Threads) {
        self.counts.add(&other.counts);
        self.count += other.count;
    }
}

/// A group as it is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    pub counts: Counts,
    pub now: Gauges,
    pub threads: BTreeMap<String, Threads>,
}

#[derive(Debug, Default)]
struct GroupState {
    group: Group,
    /// The counts since the last picture.
    fresh: Counts,
    fresh_threads: HashMap<String, Threads>,
    is_shown: bool,
    /// Whether to forget it.
    is_over: bool,
}

/// The limits on the number of series.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Groups with their own series.
    pub groups: usize,
    /// Names of threads, in all groups together.
    pub thread_names: usize,
    /// Forget groups that have no processes.
    pub remove_empty: bool,
}

/// The groups of one kind, such as programs or units.
#[derive(Debug, Default)]
pub struct Grouping {
    limits: Limits,
    groups: HashMap<Arc<str>, GroupState>,
    other: Group,
    /// The number of groups that lost their series to others.
    pub displaced: u64,
}

impl Grouping {
    /// Creates an empty grouping.
    pub fn new(limits: Limits) -> Grouping {
        Grouping {
            limits,
            ..Grouping::default()
        }
    }

    /// Begins a reading: resets current values.
    pub fn begin(&mut self) {
        for kept in self.groups.values_mut() {
            kept.group.now = Gauges::default();
            kept.group.threads.values_mut().for_each(|threads| threads.count = 0);
        }
        self.other.now = Gauges::default();
        self.other.threads.values_mut().for_each(|threads| threads.count = 0);
    }

    /// Interns the name of a group.
    pub fn name(&mut self, name: &str) -> Arc<str> {
        match self.groups.get_key_value(name) {
            Some((name, _)) => name.clone(),
            None => name.into(),
        }
    }

    /// Adds the counts and current values of a process.
    pub fn add(&mut self, name: &Arc<str>, counted: &Counts, now: &Gauges) {
        if &**name == OTHER {
            self.other.counts.add(counted);
            self.other.now.add(now);
            return;
        }
        let kept = self.kept(name);
        kept.fresh.add(counted);
        kept.group.now.add(now);
    }

    /// Adds threads with one name.
    pub fn add_threads(&mut self, name: &Arc<str>, thread: &str, threads: &Threads) {
        if &**name == OTHER {
            return self.other.threads.entry(OTHER.to_owned()).or_default().add(threads);
        }
        let fresh = &mut self.kept(name).fresh_threads;
        match fresh.get_mut(thread) {
            Some(sum) => sum.add(threads),
            None => {
                fresh.insert(thread.to_owned(), threads.clone());
            }
        }
    }

    /// Adds the counts of a process that has ended. Between two pictures there can be any number of
    /// names, but memory is bounded: those above the limit are added to "other".
    pub fn add_ended(&mut self, name: &Arc<str>, counted: &Counts) {
        let is_full = self.groups.len() >= 4 * self.limits.groups + 1024;
        match self.groups.get_mut(name) {
            Some(kept) => kept.fresh.add(counted),
            None if is_full || &**name == OTHER => self.other.counts.add(counted),
            None => self.kept(name).fresh.add(counted),
        }
    }

    fn kept(&mut self, name: &Arc<str>) -> &mut GroupState {
        if !self.groups.contains_key(name) {
            self.groups.insert(name.clone(), GroupState::default());
        }
        self.groups.get_mut(name).expect("it was inserted")
    }

    /// Decides which groups are shown, and sums up the rest. New counts go to the series that shows
    /// the group now, so no counter falls and nothing is counted twice.
    pub fn picture(&mut self) -> Vec<(Arc<str>, Group)> {
        self.choose();
        let remove_empty = self.limits.remove_empty;
        for kept in self.groups.values_mut() {
            let fresh = std::mem::take(&mut kept.fresh);
            let is_empty = kept.group.now.processes == 0;
            // What counted since the last picture is in this one, also if its processes have ended.
            kept.is_over = is_empty && (!kept.is_shown || remove_empty && fresh == Counts::default());
            if kept.is_shown {
                kept.group.counts.add(&fresh);
                continue;
            }
            self.other.counts.add(&fresh);
            self.other.now.add(&kept.group.now);
            for threads in std::mem::take(&mut kept.fresh_threads).into_values() {
                self.other.threads.entry(OTHER.to_owned()).or_default().add(&threads);
            }
        }
        self.admit_threads();
        self.groups.retain(|_, kept| !kept.is_over);
        let shown = self.groups.iter().filter(|(_, kept)| kept.is_shown);
        let mut shown: Vec<(Arc<str>, Group)> = shown.map(|(name, kept)| (name.clone(), kept.group.clone())).collect();
        if self.other != Group::default() {
            shown.push((OTHER.into(), self.other.clone()));
        }
        shown.sort_by(|(a, _), (b, _)| a.cmp(b));
        shown
    }

    /// Chooses the groups to show: those that use most. A group that is shown keeps its place until
    /// another one uses half as much again, because series that come and go are of little use.
    fn choose(&mut self) {
        if self.groups.len() <= self.limits.groups {
            self.groups.values_mut().for_each(|kept| kept.is_shown = true);
            return;
        }
        let busy = |counts: &Counts| {
            let times = [Counter::UserNs, Counter::SystemNs, Counter::UnsampledNs];
            times.iter().filter_map(|&counter| counts.get(counter)).sum::<u64>()
        };
        let all = self.groups.values();
        let (time, bytes) = all.fold((0, 0), |(time, bytes), kept| {
            (time + busy(&kept.fresh), bytes + kept.group.now.resident_bytes)
        });
        let mut ranks: Vec<(bool, f64, Arc<str>)> = Vec::with_capacity(self.groups.len());
        for (name, kept) in &self.groups {
            let share = busy(&kept.fresh) as f64 / time.max(1) as f64
                + kept.group.now.resident_bytes as f64 / bytes.max(1) as f64;
            let share = if kept.is_shown { share * 1.5 } else { share };
            ranks.push((kept.group.now.processes > 0, share, name.clone()));
        }
        ranks.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
        for (index, (_, _, name)) in ranks.iter().enumerate() {
            let is_shown = index < self.limits.groups;
            let kept = self.groups.get_mut(name).expect("it is there");
            if kept.is_shown && !is_shown {
                self.displaced += u64::from(kept.group.now.processes > 0 || !self.limits.remove_empty);
                // If it returns, its threads start again: meanwhile their counts go to "other".
                kept.group.threads.clear();
            }
            kept.is_shown = is_shown;
        }
    }

    /// Gives threads of shown groups series by name, up to the limit. Other threads of a group
    /// share one series.
    fn admit_threads(&mut self) {
        let named = |kept: &GroupState| kept.group.threads.keys().filter(|name| *name != OTHER).count();
        let names = |groups: &HashMap<Arc<str>, GroupState>| groups.values().map(named).sum::<usize>();
        let news = |kept: &GroupState| {
            kept.fresh_threads
                .keys()
                .filter(|name| !kept.group.threads.contains_key(*name))
                .count()
        };
        let wanted = names(&self.groups) + self.groups.values().map(news).sum::<usize>();
        if wanted > self.limits.thread_names {
            // Names without threads give way.
            for kept in self.groups.values_mut() {
                let fresh = &kept.fresh_threads;
                kept.group
                    .threads
                    .retain(|name, _| fresh.contains_key(name) || name == OTHER);
            }
        }
        let mut room = self.limits.thread_names.saturating_sub(names(&self.groups));
        let mut sorted: Vec<&Arc<str>> = self.groups.keys().collect();
        sorted.sort();
        let sorted: Vec<Arc<str>> = sorted.into_iter().cloned().collect();
        for name in sorted {
            let kept = self.groups.get_mut(&name).expect("it is there");
            let mut fresh: Vec<(String, Threads)> = kept.fresh_threads.drain().collect();
            fresh.sort_by(|(a, _), (b, _)| a.cmp(b));
            for (thread, threads) in fresh {
                let is_known = kept.group.threads.contains_key(&thread);
                let thread = if is_known || room > 0 { thread } else { OTHER.to_owned() };
                room -= usize::from(!is_known && room > 0);
                kept.group.threads.entry(thread).or_default().add(&threads);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts(user: u64) -> Counts {
        let mut counts = Counts::default();
        counts.set(Counter::UserNs, Ok(user));
        counts
    }

    fn gauges(bytes: u64) -> Gauges {
        Gauges {
            processes: 1,
            resident_bytes: bytes,
            ..Gauges::default()
        }
    }

    fn grouping(groups: usize, thread_names: usize) -> Grouping {
        Grouping::new(Limits {
            groups,
            thread_names,
            remove_empty: false,
        })
    }

    /// Check that an unknown counter is not 0, and not lost when it becomes known again.
    #[test]
    fn what_is_not_known_is_not_zero() {
        let mut before = Counts::default();
        before.set(Counter::UserNs, Ok(5));
        before.set(Counter::ReadBytes, Err(Absent::Denied));
        let mut now = before;
        now.set(Counter::UserNs, Ok(7));
        now.set(Counter::ReadBytes, Ok(100));
        let since = now.since(&before);
        assert_eq!(
            (since.get(Counter::UserNs), since.get(Counter::ReadBytes)),
            (Some(2), None)
        );
        assert_eq!(
            before.since(&now).get(Counter::UserNs),
            Some(0),
            "a counter that fell did not grow"
        );
        let mut kept = now;
        kept.renew(&before);
        assert_eq!(
            (kept.get(Counter::UserNs), kept.get(Counter::ReadBytes)),
            (Some(5), Some(100))
        );
        assert_eq!(now.zeroed().get(Counter::ReadBytes), Some(0));
    }

    /// Check that the largest groups are shown, that the others are summed up, and that a group
    /// keeps its place while it is nearly as large.
    #[test]
    fn the_rest_is_added_up() {
        let mut grouping = grouping(2, 0);
        let sizes = |grouping: &mut Grouping, sizes: [u64; 3]| {
            grouping.begin();
            for (name, size) in ["a", "b", "c"].into_iter().zip(sizes) {
                let name = grouping.name(name);
                grouping.add(&name, &counts(size), &gauges(size));
            }
            let picture = grouping.picture();
            picture
                .into_iter()
                .map(|(name, group)| {
                    (
                        name.to_string(),
                        group.now.resident_bytes,
                        group.counts.get(Counter::UserNs),
                    )
                })
                .collect::<Vec<_>>()
        };
        let line = |name: &str, bytes, user| (name.to_owned(), bytes, Some(user));
        assert_eq!(
            sizes(&mut grouping, [10, 20, 30]),
            [line("b", 20, 20), line("c", 30, 30), line("other", 10, 10)]
        );
        assert_eq!(
            sizes(&mut grouping, [25, 20, 30]),
            [line("b", 20, 40), line("c", 30, 60), line("other", 25, 35)]
        );
        assert_eq!(
            sizes(&mut grouping, [90, 20, 30]),
            [line("a", 90, 90), line("c", 30, 90), line("other", 20, 55)]
        );
        assert_eq!(grouping.displaced, 1);
        grouping.begin();
        for name in ["a", "c"] {
            let name = grouping.name(name);
            grouping.add(&name, &counts(1), &gauges(1));
        }
        assert_eq!(grouping.picture().len(), 3);
        assert_eq!(grouping.displaced, 1, "what has ended is not displaced again");
    }

    /// Check that a group without processes keeps its counters, unless it should be removed.
    #[test]
    fn empty_groups_stay() {
        for remove_empty in [false, true] {
            let mut grouping = grouping(2, 0);
            grouping.limits.remove_empty = remove_empty;
            let name = grouping.name("a");
            grouping.add(&name, &counts(7), &gauges(1));
            assert_eq!(grouping.picture().len(), 1);
            grouping.begin();
            let picture = grouping.picture();
            if remove_empty {
                assert!(picture.is_empty());
            } else {
                let counts = picture[0].1.counts;
                assert_eq!((picture[0].1.now.processes, counts.get(Counter::UserNs)), (0, Some(7)));
            }
            // What came and ended between two pictures is in one.
            let name = grouping.name("short");
            grouping.add_ended(&name, &counts(3));
            let is_there = |grouping: &mut Grouping| {
                let picture = grouping.picture();
                picture
                    .iter()
                    .any(|(name, group)| &**name == "short" && group.counts == counts(3))
            };
            assert!(is_there(&mut grouping));
            grouping.begin();
            assert_eq!(is_there(&mut grouping), !remove_empty);
        }
    }

    /// Check that the number of thread names is bounded, and that no thread is lost.
    #[test]
    fn thread_names_are_bounded() {
        let mut grouping = grouping(4, 3);
        let name = grouping.name("a");
        for round in 0..5 {
            grouping.begin();
            grouping.add(&name, &counts(1), &gauges(1));
            for index in 0..10 {
                let threads = Threads {
                    counts: counts(1),
                    count: 1,
                };
                grouping.add_threads(&name, &format!("worker-{round}-{index}"), &threads);
            }
            let picture = grouping.picture();
            let threads = &picture[0].1.threads;
            assert_eq!(threads.len(), 4);
            assert_eq!(threads.values().map(|threads| threads.count).sum::<u64>(), 10);
            assert_eq!(threads[OTHER].count, 7);
        }
    }

    proptest! {
        /// Check that no counter falls while its series is shown without a break, that series grow
        /// by no more than was counted, and that their number stays within the limit.
        #[test]
        fn counters_never_fall(rounds in prop::collection::vec(prop::collection::vec((0_u8..12, 1_u64..100, 0_u64..100), 0..12), 1..12)) {
            let mut grouping = grouping(3, 0);
            let mut before: HashMap<String, u64> = HashMap::new();
            for processes in rounds {
                grouping.begin();
                let mut counted = 0;
                for (name, user, bytes) in processes {
                    let name = if name == 0 { OTHER.to_owned() } else { format!("g{name}") };
                    let name = grouping.name(&name);
                    grouping.add(&name, &counts(user), &gauges(bytes));
                    counted += user;
                }
                let picture = grouping.picture();
                prop_assert!(picture.len() <= 4);
                let now: HashMap<String, u64> = picture
                    .iter()
                    .map(|(name, group)| (name.to_string(), group.counts.get(Counter::UserNs).unwrap_or(0)))
                    .collect();
                let mut grown = 0;
                for (name, &value) in &now {
                    let Some(&then) = before.get(name) else { continue };
                    prop_assert!(value >= then, "{} fell from {} to {}", name, then, value);
                    grown += value - then;
                }
                prop_assert!(grown <= counted);
                let is_same = before.len() == now.len() && before.keys().all(|name| now.contains_key(name));
                prop_assert!(!is_same || grown == counted);
                before = now;
            }
        }

        /// Check that ended processes with any number of names take bounded memory.
        #[test]
        fn names_of_the_ended_are_bounded(names in 1_usize..20_000) {
            let mut grouping = grouping(2, 0);
            for index in 0..names {
                let name = grouping.name(&index.to_string());
                grouping.add_ended(&name, &counts(1));
            }
            prop_assert!(grouping.groups.len() <= 2048);
            let picture = grouping.picture();
            let sum: u64 = picture.iter().filter_map(|(_, group)| group.counts.get(Counter::UserNs)).sum();
            prop_assert_eq!(sum, names as u64);
            prop_assert!(grouping.groups.len() <= 2);
        }
    }
}
