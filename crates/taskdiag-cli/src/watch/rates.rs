//! The rates of tasks: how much their totals grow from one sample to the next.
//!
//! - A rate refers to the time between two samples. A task that was not in the last sample has no
//!   rate, because it is unknown when its totals grew. If it started since then, its whole life
//!   counts.
//! - procfs has processor time in whole clock ticks. If only one of two values is from procfs, the
//!   other one is also rounded down to ticks, so that a change of source does not look like work.
//! - A total that falls has not grown.

use std::collections::{HashMap, HashSet};
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
pub const NO_EARLIER_SAMPLE: &str = "no earlier sample";

/// The rates of a task. The error says in a word why one is missing.
pub type Rates = [Result<f64, &'static str>; Rate::ALL.len()];

/// What a task did since the last sample.
#[derive(Clone, Copy, Debug)]
pub struct Activity {
    pub rates: Rates,
    /// Whether it used processor time, as far as known.
    pub is_busy: bool,
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

/// The totals of a task, or why one is missing.
type Totals = [Result<Total, Absent>; Rate::ALL.len()];

/// The totals of a task that begins.
const ZERO: Totals = [Ok([0; 2]); Rate::ALL.len()];

/// The totals of earlier samples, from which rates are computed.
#[derive(Debug)]
pub struct LastSamples {
    known: HashMap<Identity, Totals>,
    before: Option<SampleTime>,
    lacks_idle: bool,
}

impl LastSamples {
    /// A history without samples. `lacks_idle` means that samples leave out exactly the tasks that
    /// did nothing, so that what is known about a missing task remains valid.
    pub fn new(lacks_idle: bool) -> LastSamples {
        LastSamples {
            known: HashMap::new(),
            before: None,
            lacks_idle,
        }
    }

    /// Adds a sample of a period, of which the first totals of each task count. `before` is the time
    /// of the sample before.
    pub fn begin(&mut self, snapshot: &Snapshot, now: SampleTime, before: Option<SampleTime>) {
        self.before.get_or_insert(now);
        for task in snapshot.tasks() {
            let identity = Identity::of(task.record().header());
            let is_new = before.is_some_and(|before| before.precedes(identity));
            self.known.entry(identity).or_insert_with(|| {
                if is_new {
                    ZERO
                } else {
                    Rate::ALL.map(|rate| rate.total(&task))
                }
            });
        }
    }

    /// What the tasks of a sample did since the last one.
    pub fn add(&mut self, snapshot: &Snapshot, now: SampleTime) -> Vec<Activity> {
        let now = now.of_tasks(snapshot);
        let before = self.before.replace(now);
        let earlier = if self.lacks_idle {
            HashMap::new()
        } else {
            std::mem::take(&mut self.known)
        };
        self.known.reserve(earlier.len());
        let activities = snapshot.tasks().map(|task| {
            let identity = Identity::of(task.record().header());
            let totals = Rate::ALL.map(|rate| rate.total(&task));
            let known = self.known.insert(identity, totals);
            let known = known.or_else(|| earlier.get(&identity).copied());
            let is_new = |before: SampleTime| before.precedes(identity);
            let then = match known {
                None if before.is_some_and(is_new) => Some(ZERO),
                known => known,
            };
            let rates = rates(&totals, then.as_ref(), before, now);
            Activity {
                rates,
                is_busy: known.is_none() || rates[Rate::Cpu as usize] != Ok(0.0),
            }
        });
        activities.collect()
    }

    /// Forgets all tasks but these.
    pub fn retain(&mut self, there: &HashSet<Identity>) {
        self.known.retain(|identity, _| there.contains(identity));
    }
}

fn rates(totals: &Totals, then: Option<&Totals>, before: Option<SampleTime>, now: SampleTime) -> Rates {
    std::array::from_fn(|index| {
        let total = totals[index].map_err(Absent::as_str)?;
        let (Some(then), Some(before)) = (then, before) else {
            return Err(NO_EARLIER_SAMPLE);
        };
        let then = then[index].map_err(|_| NO_EARLIER_SAMPLE)?;
        let rate = Rate::ALL[index];
        let time = now.since(&before);
        Ok(rate.of(rate.growth(then, total), time))
    })
}

#[cfg(test)]
mod tests {
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
                    let activities = history.add(&snapshot, moment);
                    assert_eq!(activities.len(), 1);
                    activities[0]
                });
                assert_eq!(first.rates[..5], [Err(NO_EARLIER_SAMPLE); 5]);
                assert!(first.is_busy);
                assert_eq!(second.rates[..5], [Ok(0.0); 5], "{sources:?}");
                assert!(!second.is_busy);
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
                history.add(&snapshot, moment)
            });
            let expected = if lacks_idle { Ok(0.0) } else { Err(NO_EARLIER_SAMPLE) };
            assert_eq!(activities[2][0].rates[..5], [expected; 5]);
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
        let percent = history.add(&snapshot, now)[0].rates[0].expect("a rate");
        let life = snapshot.task(0).utime_ns().expect("a time") + snapshot.task(0).stime_ns().expect("a time");
        let expected = Rate::Cpu.of(life, now.of_tasks(&snapshot).since(&before));
        assert!(percent == expected && percent > 0.0, "{percent} {expected}");

        let mut history = LastSamples::new(false);
        std::thread::sleep(Duration::from_millis(20));
        let (_, before) = SampleTime::of(|| ());
        history.add(&Snapshot::default(), before);
        let (snapshot, now) = SampleTime::of(|| stopped.sample(SourceId::Procfs));
        assert_eq!(history.add(&snapshot, now)[0].rates[..5], [Err(NO_EARLIER_SAMPLE); 5]);
    }
}
