//! The rates of tasks: how much their totals grow from one sample to the next.
//!
//! - A rate refers to the time between two samples. A task that was not in the last sample has no
//!   rate, because it is unknown when its totals grew. If it started since then, its whole life
//!   counts.
//! - procfs has processor time in whole clock ticks. If only one of two values is from procfs, the
//!   other one is also rounded down to ticks, so that a change of source does not look like work.
//! - A total that falls has not grown.

use std::collections::HashSet;
use std::time::Duration;

use rustix::time::ClockId;
use taskdiag::{Absent, Field, Fields, Filter, Kind, Query, Snapshot, Task, Value};
use taskdiag_core::filter::HasFields;
use taskdiag_core::identity::{Identity, TICK_NS};
use taskdiag_sys::host::now_ns;

use crate::output::cell::{formatted, Cells};
use crate::output::relation::{column, ColumnInfo};

/// Makes the rates: each has a name, a heading in tables, and the fields from whose growth it is
/// computed.
macro_rules! rates {
    ($($rate:ident $name:literal $heading:literal [$($field:ident)*];)*) => {
        taskdiag_core::named_enum! {
            /// A rate of a task, per second; of processor time, in percent of one processor.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            #[allow(missing_docs)]
            pub enum Rate {
                $($rate => $name,)*
            }
            /// All rates, each at its index.
            pub const ALL;
            /// Its name, in `-o`, `--sort`, JSON and CSV.
            pub fn name;
        }

        impl Rate {
            /// Its heading in tables.
            pub fn heading(self) -> &'static str {
                match self {
                    $(Rate::$rate => $heading,)*
                }
            }

            /// The fields from whose growth it is computed.
            pub fn fields(self) -> &'static [Field] {
                match self {
                    $(Rate::$rate => &[$(Field::$field),*],)*
                }
            }
        }
    };
}

rates! {
    Cpu "cpu_percent" "%CPU" [UtimeNs StimeNs];
    MinFaults "min_faults_per_s" "FAULTS/s" [MinFaults];
    MajFaults "maj_faults_per_s" "MAJOR/s" [MajFaults];
    ReadBytes "read_bytes_per_s" "READ/s" [ReadBytes];
    WriteBytes "write_bytes_per_s" "WRITE/s" [WriteBytes];
    NetBytes "net_bytes_per_s" "NET/s" [NetSentBytes NetReceivedBytes];
    NetSentBytes "net_sent_bytes_per_s" "SENT/s" [NetSentBytes];
    NetReceivedBytes "net_received_bytes_per_s" "RECEIVED/s" [NetReceivedBytes];
    NetSentCount "net_sent_count_per_s" "net_sent_count_per_s" [NetSentCount];
    NetReceivedCount "net_received_count_per_s" "net_received_count_per_s" [NetReceivedCount];
    LoopbackSentBytes "loopback_sent_bytes_per_s" "loopback_sent_bytes_per_s" [LoopbackSentBytes];
    LoopbackReceivedBytes "loopback_received_bytes_per_s" "loopback_received_bytes_per_s" [LoopbackReceivedBytes];
    LoopbackSentCount "loopback_sent_count_per_s" "loopback_sent_count_per_s" [LoopbackSentCount];
    LoopbackReceivedCount "loopback_received_count_per_s" "loopback_received_count_per_s" [LoopbackReceivedCount];
    UnixSentBytes "unix_sent_bytes_per_s" "unix_sent_bytes_per_s" [UnixSentBytes];
    UnixReceivedBytes "unix_received_bytes_per_s" "unix_received_bytes_per_s" [UnixReceivedBytes];
    UnixSentCount "unix_sent_count_per_s" "unix_sent_count_per_s" [UnixSentCount];
    UnixReceivedCount "unix_received_count_per_s" "unix_received_count_per_s" [UnixReceivedCount];
    NetTcpSentBytes "net_tcp_sent_bytes_per_s" "net_tcp_sent_bytes_per_s" [NetTcpSentBytes];
    NetTcpReceivedBytes "net_tcp_received_bytes_per_s" "net_tcp_received_bytes_per_s" [NetTcpReceivedBytes];
    NetUdpSentBytes "net_udp_sent_bytes_per_s" "net_udp_sent_bytes_per_s" [NetUdpSentBytes];
    NetUdpReceivedBytes "net_udp_received_bytes_per_s" "net_udp_received_bytes_per_s" [NetUdpReceivedBytes];
}

/// The total that a rate is computed from: user and system time, or a number and 0.
pub type Total = [u64; 2];

impl Rate {
    pub fn named(name: &str) -> Option<Rate> {
        Rate::ALL.into_iter().find(|rate| rate.name() == name)
    }

    /// Its column: behind the fields of tasks.
    pub fn column(self) -> usize {
        Field::ALL.len() + self as usize
    }

    /// What is known about its column.
    pub fn info(self) -> ColumnInfo {
        let kind = match self.fields()[0].info().kind {
            Kind::Bytes => Kind::Bytes,
            _ => Kind::Percent,
        };
        column(self.name(), kind, "Since the last sample.")
    }

    /// Appends it for people; `-` if there is none.
    pub fn write(self, out: &mut Vec<u8>, value: Option<f64>, cells: &mut Cells) {
        match value {
            Some(bytes) if self.info().kind == Kind::Bytes && !cells.exact => cells.size(out, bytes as u64),
            Some(rate) => formatted(out, format_args!("{rate:.1}")),
            None => out.push(b'-'),
        }
    }

    /// The total whose growth it is.
    pub fn total(self, task: &Task<'_>) -> Result<Total, Absent> {
        let mut total = [0; 2];
        for (part, &field) in total.iter_mut().zip(self.fields()) {
            if let Value::Unsigned(value) = task.value(field)? {
                *part = value;
            }
        }
        Ok(total)
    }

    /// How much a total has grown.
    pub fn growth(self, then: Total, now: Total) -> u64 {
        let is_in_ticks = |total: Total| total.iter().all(|time| time % TICK_NS == 0);
        let unit = match self {
            Rate::Cpu if is_in_ticks(then) || is_in_ticks(now) => TICK_NS,
            _ => 1,
        };
        let whole = |[one, other]: Total| (one / unit).saturating_add(other / unit);
        whole(now).saturating_sub(whole(then)).saturating_mul(unit)
    }

    /// The rate for a growth in some time.
    pub fn of(self, growth: u64, time: Duration) -> f64 {
        let per_second = growth as f64 / time.as_secs_f64();
        match self {
            Rate::Cpu => per_second / 1e9 * 100.0,
            _ => per_second,
        }
    }
}

/// Takes from a query the filter that can be decided only when rates are known, if there is one:
/// while watching, `cpu_percent` refers to the time since the previous sample. The query keeps the
/// part of its filter that does not read `cpu_percent`. The other fields that the filter reads are
/// added to `fields`.
pub fn take_filter(query: &mut Query, fields: &mut Fields) -> Option<Filter> {
    let filter = query.filter.take()?;
    query.filter = filter.part_without(|field| field == Field::CpuPercent);
    if !filter.fields().contains(Field::CpuPercent) {
        return None;
    }
    *fields |= filter.fields().without(Field::CpuPercent);
    Some(filter)
}

/// A task as filters see it, with its processor time since the previous sample, if known.
struct Rated<'a>(&'a Task<'a>, Option<f64>);

impl HasFields for Rated<'_> {
    fn value(&self, field: Field) -> Result<Value<'_>, Absent> {
        match field {
            Field::CpuPercent => self.1.map(Value::Float).ok_or(Absent::NotAsked),
            field => self.0.value(field),
        }
    }
}

/// Whether a filter from [`take_filter`] is true for a task with this [`Rate::Cpu`].
pub fn is_true_of(filter: &Filter, task: &Task<'_>, cpu_percent: Option<f64>) -> bool {
    filter.decide(&Rated(task, cpu_percent)) == Some(true)
}

/// Why a task that has a total has no rate.
const NO_EARLIER_SAMPLE: &str = "no earlier sample";

/// The rates of a task.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Each at its index; NaN where unknown.
    values: [f64; Rate::ALL.len()],
    /// Whether it used processor time, as far as known.
    pub is_busy: bool,
}

impl Rates {
    pub fn get(&self, rate: Rate) -> Option<f64> {
        let value = self.values[rate as usize];
        (!value.is_nan()).then_some(value)
    }

    /// A rate of this task. The error says in a word why it is missing.
    pub fn of(&self, rate: Rate, task: &Task<'_>) -> Result<f64, &'static str> {
        let why = || rate.total(task).map_or_else(Absent::as_str, |_| NO_EARLIER_SAMPLE);
        self.get(rate).ok_or_else(why)
    }
}

/// When a sample was taken.
#[derive(Clone, Copy, Debug)]
pub struct SampleTime {
    /// When the kernel was asked, since boot. Comparable with start times.
    asked_ns: u64,
    /// When the answer was complete, by a clock that stops while the machine sleeps.
    answered_ns: u64,
    /// How long the machine has slept.
    asleep_ns: u64,
}

impl SampleTime {
    /// The time since an earlier sample.
    pub fn since(&self, before: &SampleTime) -> Duration {
        Duration::from_nanos(self.answered_ns.saturating_sub(before.answered_ns))
    }

    /// Whether a task started after this moment.
    pub fn precedes(&self, task: Identity) -> bool {
        task.has_started_since(self.asked_ns)
    }

    /// The moment of a recorded sample, `boot_ns` after the machine booted.
    pub fn recorded(boot_ns: u64) -> SampleTime {
        SampleTime {
            asked_ns: boot_ns,
            answered_ns: boot_ns,
            asleep_ns: 0,
        }
    }

    /// When the tasks of the sample were read: other values of them can take seconds.
    pub fn of_tasks(self, snapshot: &Snapshot) -> SampleTime {
        match snapshot.read_ns {
            0 => self,
            read_ns => SampleTime {
                answered_ns: read_ns.saturating_sub(self.asleep_ns),
                ..self
            },
        }
    }

    /// Takes a sample, and returns it with its moment.
    pub fn of<T>(take: impl FnOnce() -> T) -> (T, SampleTime) {
        let asked_ns = now_ns(ClockId::Boottime);
        let taken = take();
        let answered_ns = now_ns(ClockId::Monotonic);
        let moment = SampleTime {
            asked_ns,
            answered_ns,
            asleep_ns: now_ns(ClockId::Boottime).saturating_sub(answered_ns),
        };
        (taken, moment)
    }
}

/// The totals of earlier samples, from which rates are computed.
///
/// Samples are in the order of ids, and most tasks stay, so the position of a task is nearly always the
/// one after the previous match. Nothing is hashed, and only totals that were asked for are kept.
#[derive(Debug, Default)]
pub struct LastSamples {
    /// The rates whose totals were in the last sample.
    kept: Vec<Rate>,
    /// The tasks in ascending order, with their places among the totals.
    tasks: Vec<(Identity, usize)>,
    /// The totals of all tasks. Those of one task are in the order of `kept`.
    totals: Vec<Option<Total>>,
    before: Option<SampleTime>,
    lacks_idle: bool,
}

impl LastSamples {
    /// A history without samples. `lacks_idle` means that samples leave out exactly the tasks that
    /// did nothing, so that what is known about a missing task remains valid.
    pub fn new(lacks_idle: bool) -> LastSamples {
        LastSamples {
            lacks_idle,
            ..LastSamples::default()
        }
    }

    /// Adds a sample of a period, of which the first totals of each task count. `before` is the time
    /// of the sample before.
    pub fn begin(&mut self, snapshot: &Snapshot, now: SampleTime, before: Option<SampleTime>) {
        self.before.get_or_insert(now);
        self.keep(Rate::ALL.to_vec());
        let known = self.tasks.len();
        for task in snapshot.tasks() {
            let identity = Identity::of(task.record().header());
            if self.find(identity, 0, known).is_none() {
                let is_new = before.is_some_and(|before| before.precedes(identity));
                let total = |rate: Rate| if is_new { Some([0; 2]) } else { rate.total(&task).ok() };
                self.push(identity, total);
            }
        }
        self.sort();
    }

    /// The rates of a sample's tasks since the last one.
    pub fn add(&mut self, snapshot: &Snapshot, now: SampleTime) -> Vec<Rates> {
        let now = now.of_tasks(snapshot);
        let before = self.before.replace(now);
        let fields = snapshot.fields();
        let is_there = |rate: &Rate| rate.fields().iter().all(|&field| fields.contains(field));
        // A sample without tasks may be without fields, too.
        if !snapshot.is_empty() {
            self.keep(Rate::ALL.into_iter().filter(is_there).collect());
        }
        let known = self.tasks.len();
        let mut is_in = vec![false; known];
        let mut next = 0;
        let rates = snapshot.tasks().map(|task| {
            let identity = Identity::of(task.record().header());
            let then = self.find(identity, next, known);
            match then {
                Some(index) => (next, is_in[index]) = (index + 1, true),
                None => {
                    let is_new = before.is_some_and(|before| before.precedes(identity));
                    self.push(identity, |_| is_new.then_some([0; 2]));
                }
            }
            let (_, place) = self.tasks[then.unwrap_or(self.tasks.len() - 1)];
            let mut values = [f64::NAN; Rate::ALL.len()];
            for (column, &rate) in self.kept.iter().enumerate() {
                let total = rate.total(&task).ok();
                let earlier = std::mem::replace(&mut self.totals[place * self.kept.len() + column], total);
                if let (Some(earlier), Some(total), Some(before)) = (earlier, total, before) {
                    values[rate as usize] = rate.of(rate.growth(earlier, total), now.since(&before));
                }
            }
            let is_busy = then.is_none() || values[Rate::Cpu as usize] != 0.0;
            Rates { values, is_busy }
        });
        let rates = rates.collect();
        if !self.lacks_idle && is_in.contains(&false) {
            let mut is_in = is_in.into_iter();
            self.retain_by(|_| is_in.next().unwrap_or(true));
        }
        self.sort();
        rates
    }

    /// Forgets all tasks but these.
    pub fn retain(&mut self, there: &HashSet<Identity>) {
        self.retain_by(|identity| there.contains(identity));
    }

    /// Keeps the totals of these rates.
    fn keep(&mut self, kept: Vec<Rate>) {
        if kept != self.kept {
            let of_task = |totals: &[Option<Total>]| -> Vec<Option<Total>> {
                let column = |rate| self.kept.iter().position(|other| other == rate);
                kept.iter().map(|rate| totals[column(rate)?]).collect()
            };
            self.totals = match self.kept.len() {
                0 => vec![None; self.tasks.len() * kept.len()],
                count => self.totals.chunks(count).flat_map(of_task).collect(),
            };
            self.kept = kept;
        }
    }

    /// The position of a task among the first `known`, which is probably `next`.
    fn find(&self, identity: Identity, next: usize, known: usize) -> Option<usize> {
        let tasks = &self.tasks[..known];
        if tasks.get(next).is_some_and(|(other, _)| *other == identity) {
            return Some(next);
        }
        tasks.binary_search_by_key(&identity, |(other, _)| *other).ok()
    }

    fn push(&mut self, identity: Identity, total: impl Fn(Rate) -> Option<Total>) {
        self.tasks.push((identity, self.tasks.len()));
        self.totals.extend(self.kept.iter().map(|&rate| total(rate)));
    }

    fn retain_by(&mut self, mut is_kept: impl FnMut(&Identity) -> bool) {
        let count = self.kept.len();
        self.tasks.retain(|(identity, _)| is_kept(identity));
        let totals = self
            .tasks
            .iter()
            .flat_map(|(_, place)| &self.totals[place * count..][..count]);
        self.totals = totals.copied().collect();
        self.tasks
            .iter_mut()
            .zip(0..)
            .for_each(|((_, place), index)| *place = index);
    }

    fn sort(&mut self) {
        if !self.tasks.is_sorted() {
            self.tasks.sort_unstable();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::process::{Child, Command};

    use rustix::process::{kill_process, Pid, Signal};
    use taskdiag::{Handle, Query, SourceId};

    use super::*;

    /// Check that processor time becomes a percentage, and the rest a number per second.
    #[test]
    fn growth_becomes_rates() {
        let two_seconds = Duration::from_secs(2);
        assert_eq!(Rate::Cpu.of(1_000_000_000, two_seconds), 50.0);
        assert_eq!(Rate::ReadBytes.of(4096, two_seconds), 2048.0);
    }

    /// Check that a total that falls has not grown, and that ticks are compared with ticks.
    #[test]
    fn growth_is_work() {
        assert_eq!(Rate::MinFaults.growth([7, 0], [9, 0]), 2);
        assert_eq!(Rate::MinFaults.growth([9, 0], [7, 0]), 0);
        assert_eq!(Rate::Cpu.growth([1, u64::MAX], [2, u64::MAX]), 0);
        let (exact, in_ticks) = ([19_999_999, 9_999_999], [10_000_000, 0]);
        assert_eq!(Rate::Cpu.growth(in_ticks, exact), 0);
        assert_eq!(Rate::Cpu.growth(exact, in_ticks), 0);
        assert_eq!(Rate::Cpu.growth(exact, [20_000_000, 10_000_000]), 20_000_000);
        assert_eq!(Rate::Cpu.growth(exact, [20_000_000, 10_000_001]), 3);
    }

    /// A process that used processor time and is now stopped.
    struct Stopped(Child);

    impl Stopped {
        fn new() -> Stopped {
            let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
            let stopped = Stopped(child.expect("sh exists"));
            let stat = |index: usize| -> String {
                let stat = std::fs::read_to_string(format!("/proc/{}/stat", stopped.0.id())).expect("it runs");
                let rest = stat.rsplit(')').next().expect("a name");
                rest.split_whitespace().nth(index).expect("a value").to_owned()
            };
            while stat(11).parse::<u64>().expect("ticks") < 30 {
                std::thread::sleep(Duration::from_millis(10));
            }
            let pid = Pid::from_child(&stopped.0);
            kill_process(pid, Signal::STOP).expect("it is ours");
            while stat(0) != "T" {
                std::thread::sleep(Duration::from_millis(1));
            }
            // It is in state T a moment before it leaves the processor.
            std::thread::sleep(Duration::from_millis(50));
            stopped
        }

        fn sample(&self, source: SourceId) -> Snapshot {
            let fields = Rate::ALL.into_iter().flat_map(Rate::fields).copied();
            let fields = fields.chain([Field::StartNs]).collect::<taskdiag::Fields>();
            let query = Query::process(self.0.id()).fields(fields);
            let snapshot = Handle::new().with_source(source).query(&query);
            snapshot.unwrap_or_else(|error| panic!("these tests need root and BPF: {error}"))
        }
    }

    impl Drop for Stopped {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// The first rates of the only task of a sample, and whether it is busy.
    fn told(rates: &[Rates], snapshot: &Snapshot) -> ([Result<f64, &'static str>; 5], bool) {
        assert_eq!(rates.len(), 1);
        let rate = |index: usize| rates[0].of(Rate::ALL[index], &snapshot.task(0));
        (std::array::from_fn(rate), rates[0].is_busy)
    }

    /// Check that a process that did nothing has rates of 0 and is not busy, whichever source
    /// answered before and after.
    #[test]
    fn a_change_of_the_source_is_no_work() {
        let stopped = Stopped::new();
        for sources in [
            [SourceId::Procfs, SourceId::Bpf],
            [SourceId::Bpf, SourceId::Procfs],
            [SourceId::Bpf, SourceId::Bpf],
        ] {
            for lacks_idle in [false, true] {
                let mut history = LastSamples::new(lacks_idle);
                let [first, second] = sources.map(|source| {
                    let (snapshot, moment) = SampleTime::of(|| stopped.sample(source));
                    told(&history.add(&snapshot, moment), &snapshot)
                });
                assert_eq!(first, ([Err(NO_EARLIER_SAMPLE); 5], true));
                assert_eq!(second, ([Ok(0.0); 5], false), "{sources:?}");
            }
        }
    }

    /// Check that a task that was left out of a sample has no rates in the next one, unless only
    /// idle tasks are left out.
    #[test]
    fn who_was_left_out_has_no_rates() {
        let stopped = Stopped::new();
        for lacks_idle in [false, true] {
            let mut history = LastSamples::new(lacks_idle);
            let activities = [true, false, true].map(|is_in| {
                let take = || {
                    if is_in {
                        stopped.sample(SourceId::Procfs)
                    } else {
                        Snapshot::default()
                    }
                };
                let (snapshot, moment) = SampleTime::of(take);
                let rates = history.add(&snapshot, moment);
                is_in.then(|| told(&rates, &snapshot).0)
            });
            let expected = if lacks_idle { Ok(0.0) } else { Err(NO_EARLIER_SAMPLE) };
            assert_eq!(activities[2], Some([expected; 5]));
        }
    }

    /// Check that the whole life of a task counts exactly if it started after the last sample.
    #[test]
    fn who_is_new_has_rates() {
        let mut history = LastSamples::new(false);
        let (_, before) = SampleTime::of(|| ());
        history.add(&Snapshot::default(), before);
        let stopped = Stopped::new();
        let (snapshot, now) = SampleTime::of(|| stopped.sample(SourceId::Procfs));
        let percent = history.add(&snapshot, now)[0].get(Rate::Cpu).expect("a rate");
        let life = snapshot.task(0).utime_ns().expect("a time") + snapshot.task(0).stime_ns().expect("a time");
        let expected = Rate::Cpu.of(life, now.of_tasks(&snapshot).since(&before));
        assert!(percent == expected && percent > 0.0, "{percent} {expected}");

        let mut history = LastSamples::new(false);
        std::thread::sleep(Duration::from_millis(20));
        let (_, before) = SampleTime::of(|| ());
        history.add(&Snapshot::default(), before);
        let (snapshot, now) = SampleTime::of(|| stopped.sample(SourceId::Procfs));
        let rates = history.add(&snapshot, now);
        assert_eq!(told(&rates, &snapshot).0, [Err(NO_EARLIER_SAMPLE); 5]);
    }

    fn busy() -> Child {
        let busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        busy.expect("sh exists")
    }

    fn survey(pids: &[u32], fields: Fields) -> (Snapshot, SampleTime) {
        let query = Query::these(pids.iter().copied()).fields(fields | Field::StartNs);
        SampleTime::of(|| Handle::new().query(&query).expect("an answer"))
    }

    /// The totals of the last sample, each found by its task.
    #[derive(Default)]
    struct Hashed {
        known: HashMap<Identity, [Option<Total>; Rate::ALL.len()]>,
        before: Option<SampleTime>,
    }

    impl Hashed {
        fn add(&mut self, snapshot: &Snapshot, now: SampleTime) -> Vec<[Option<f64>; Rate::ALL.len()]> {
            let now = now.of_tasks(snapshot);
            let before = self.before.replace(now);
            let earlier = std::mem::take(&mut self.known);
            let rates = snapshot.tasks().map(|task| {
                let identity = Identity::of(task.record().header());
                let totals = Rate::ALL.map(|rate| rate.total(&task).ok());
                self.known.insert(identity, totals);
                let is_new = before.is_some_and(|before| before.precedes(identity));
                let then = earlier.get(&identity).copied();
                let then = then.or(is_new.then_some([Some([0; 2]); Rate::ALL.len()]));
                Rate::ALL.map(|rate| {
                    let growth = rate.growth(then?[rate as usize]?, totals[rate as usize]?);
                    Some(rate.of(growth, now.since(&before?)))
                })
            });
            rates.collect()
        }
    }

    /// Check rates: of tasks that existed before, that are new, that were left out once, and after
    /// the fields changed.
    #[test]
    fn rates_are_those_of_the_same_task() {
        let mut children = [busy(), busy(), busy()];
        let [a, b, c] = [0, 1, 2].map(|index: usize| children[index].id());
        let cpu: Fields = Field::UtimeNs | Field::StimeNs;
        let (mut last, mut history) = (LastSamples::new(false), Hashed::default());
        let mut seen = 0;
        for (pids, fields) in [
            (vec![a, b], cpu),
            (vec![a, b, c], cpu | Field::MinFaults),
            (vec![b, c], cpu | Field::MinFaults),
            (vec![a, b, c], Field::MinFaults.into()),
            (vec![a, b, c], cpu),
        ] {
            std::thread::sleep(Duration::from_millis(300));
            let (snapshot, moment) = survey(&pids, fields);
            let rates = last.add(&snapshot, moment);
            let expected = history.add(&snapshot, moment);
            for (rates, expected) in rates.iter().zip(&expected) {
                for rate in Rate::ALL {
                    assert_eq!(rates.get(rate), expected[rate as usize], "{rate:?}");
                    seen += u32::from(rates.get(rate).is_some_and(|rate| rate > 0.0));
                }
            }
        }
        assert!(seen >= 2, "{seen}");
        for child in &mut children {
            child.kill().expect("it is ours");
            child.wait().expect("it ends");
        }
    }
}
