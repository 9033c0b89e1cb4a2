//! Compares snapshots with the kernel's text, which is read before and after them.

use std::collections::{BTreeMap, BTreeSet};

use taskdiag::{Absent, Field, Handle, Query, Scope, Snapshot, SourceId, Task};

use super::cgroup_mount;
use super::text::{self, plain, since_boot_ns, Id, Plain, Said, Side, Text, TICK_NS};

/// How often a changing value is read again, until it is the same before and after our answer.
const ROUNDS: usize = 40;

/// How many values of a field may match only after they are read again because their tasks ran in
/// between: this many, plus one for every `MISFITS_OF` values.
const MISFITS: usize = 8;
const MISFITS_OF: usize = 100;

/// How often the text of a task that ran is read again for a value that it may have shown in
/// between. Some tasks run between any two readings.
const READINGS: usize = 300;

/// How our value relates to the text before and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nature {
    /// All three are the same.
    Fixed,
    /// Ours lies between the two.
    Growing,
    /// As `Growing`, but the value is a part of a growing sum that the kernel divides. While the
    /// task runs, the part may be slightly off.
    Divided,
    /// Ours is one of the two, unless the task ran and the value changed and changed back.
    Moving,
    /// As `Moving`, but the value also changes while the task does not run: others reclaim and
    /// share its memory, or open its files.
    Shared,
}

fn nature(field: Field, is_kernel_thread: bool) -> Nature {
    match field {
        // A worker's name says what it works on, and its nice value is that of its pool.
        Field::Comm | Field::Nice if is_kernel_thread => Nature::Moving,
        Field::UtimeNs | Field::StimeNs => Nature::Divided,
        Field::CutimeNs
        | Field::CstimeNs
        | Field::RuntimeNs
        | Field::RunDelayNs
        | Field::VoluntarySwitches
        | Field::InvoluntarySwitches
        | Field::GuestNs
        | Field::CguestNs
        | Field::BlockDelayNs
        | Field::TimeslicesCount
        | Field::ReadChars
        | Field::WriteChars
        | Field::ReadSyscalls
        | Field::WriteSyscalls
        | Field::ReadBytes
        | Field::WriteBytes
        | Field::CancelledWriteBytes
        | Field::ElapsedNs
        | Field::MinFaults
        | Field::MajFaults
        | Field::ChildMinFaults
        | Field::ChildMajFaults
        | Field::PeakVsizeBytes => Nature::Growing,
        Field::State
        | Field::Flags
        | Field::Wchan
        | Field::Stat
        | Field::CpuPercent
        | Field::Priority
        | Field::Processor
        | Field::Tpgid
        | Field::SigPending
        | Field::SigSharedPending
        | Field::SigBlocked => Nature::Moving,
        Field::ThreadsCount
        | Field::FdCount
        | Field::FdTableSize
        | Field::SigQueuedCount
        | Field::VsizeBytes
        | Field::RssBytes
        | Field::RssAnonBytes
        | Field::RssFileBytes
        | Field::RssShmemBytes
        | Field::SwapBytes
        | Field::PeakRssBytes
        | Field::TextBytes
        | Field::DataBytes
        | Field::StackBytes
        | Field::LibBytes
        | Field::LockedBytes
        | Field::PinnedBytes
        | Field::PageTableBytes
        | Field::HugetlbBytes
        | Field::OomScore
        | Field::MemPercent
        // Other users' terminals come and go.
        | Field::Tty => Nature::Shared,
        // The strictest, so that a new field is one of these until somebody looks at it.
        _ => Nature::Fixed,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Right,
    /// The value may have changed. Look again.
    Unclear,
    Wrong,
}

fn judge(nature: Nature, is_quiet: bool, before: &Said, ours: &Said, after: &Said) -> Verdict {
    if ours == before || ours == after {
        return Verdict::Right;
    }
    if let (Ok(Plain::Number(before)), Ok(Plain::Number(ours)), Ok(Plain::Number(after))) = (before, ours, after) {
        let is_between = before.min(after) < ours && ours < before.max(after);
        match nature {
            Nature::Growing if before <= after => return if is_between { Verdict::Right } else { Verdict::Wrong },
            Nature::Divided | Nature::Moving | Nature::Shared if is_between => return Verdict::Right,
            _ => {}
        }
    }
    match nature {
        _ if before != after => Verdict::Unclear,
        Nature::Fixed | Nature::Growing => Verdict::Wrong,
        Nature::Divided | Nature::Moving if is_quiet => Verdict::Wrong,
        Nature::Divided | Nature::Moving | Nature::Shared => Verdict::Unclear,
    }
}

/// Whether the text of a task shows a value sooner or later. If not, the task did not have it between
/// two readings either.
fn is_shown(id: Id, start_ticks: u64, field: Field, value: &Said) -> bool {
    (0..READINGS).any(|_| {
        let text = Text::read(id, Side::After).filter(|text| text.start_ticks() == start_ticks);
        text.is_some_and(|text| text.says(id, field) == *value)
    })
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Report {
    pub tasks: usize,
    /// For each field, the number of correct values and of correct absences.
    pub counts: BTreeMap<Field, (usize, usize)>,
    /// Values that the text denies this process and BPF gives.
    pub beyond_text: usize,
    /// For each field, the values that equalled the text neither before nor after, and may have
    /// been correct in between. They are read again. If the task ran, a value that its text shows
    /// at another time is none.
    pub misfits: BTreeMap<Field, Vec<String>>,
    /// Such values.
    pub moved: usize,
    /// Processor times of which the handle keeps a part that it gave earlier.
    pub kept: usize,
    pub wrong: Vec<String>,
    pub rounds: usize,
}

impl Report {
    /// Fails unless everything was correct and each field had a value for at least `least` tasks.
    pub fn check(&self, what: &str, least: usize) {
        let values: usize = self.counts.values().map(|(values, _)| values).sum();
        let absent: usize = self.counts.values().map(|(_, absent)| absent).sum();
        println!(
            "{what}: {} tasks, {values} values and {absent} absences compared, {} that the text denies, {} moved, {} kept, {} rounds",
            self.tasks, self.beyond_text, self.moved, self.kept, self.rounds
        );
        for (field, (values, absent)) in &self.counts {
            let misfits = self.misfits.get(field).map_or(0, Vec::len);
            println!("  {field:<22} {values:>6} values {absent:>6} absent {misfits:>6} misfits");
        }
        self.check_misfits(what);
        let shown: Vec<&str> = self.wrong.iter().take(40).map(String::as_str).collect();
        assert!(
            self.wrong.is_empty(),
            "{what}: {} wrong:\n{}",
            self.wrong.len(),
            shown.join("\n")
        );
        let no_cgroups = cgroup_mount().is_none();
        let no_labels = std::fs::read("/proc/self/attr/current").is_err();
        for field in crate::fields().iter() {
            let (values, absent) = self.counts.get(&field).copied().unwrap_or_default();
            let compared = match field {
                Field::Cgroup | Field::CgroupId if no_cgroups => absent,
                Field::SecurityLabel if no_labels => absent,
                // Most tasks have none.
                Field::Tpgid | Field::Loginuid | Field::AuditSession => values + absent,
                field if field.info().made_of.contains(&Field::Cgroup) && no_cgroups => values + absent,
                _ => values,
            };
            assert!(
                compared >= least,
                "{what}: {field} was compared for {compared} tasks only"
            );
        }
    }
}

impl Report {
    /// Fails if more values did not match at first than changing values explain. A value that is
    /// wrong only now and then also matches in the end.
    fn check_misfits(&self, what: &str) {
        for (field, misfits) in &self.misfits {
            let (values, absent) = self.counts.get(field).copied().unwrap_or_default();
            let allowed = MISFITS + (values + absent) / MISFITS_OF;
            let shown: Vec<&str> = misfits.iter().take(10).map(String::as_str).collect();
            assert!(
                misfits.len() <= allowed,
                "{what}: {field} did not fit {} times, {allowed} may be chance:\n{}",
                misfits.len(),
                shown.join("\n")
            );
        }
    }
}

/// The tasks of a scope as `/proc` lists them.
fn listed(scope: Scope) -> Vec<Id> {
    match scope {
        Scope::Processes => text::processes(),
        Scope::Threads => text::processes()
            .into_iter()
            .flat_map(|id| text::threads_of(id.pid))
            .collect(),
        Scope::Process(pid) => vec![Id::process(pid)],
        Scope::ThreadsOf(pid) => text::threads_of(pid),
        Scope::ChildrenOf(pid) => {
            let is_child = |id: &Id| Text::read(*id, Side::Before).is_some_and(|text| text.stat(4) == Ok(pid.into()));
            text::processes().into_iter().filter(is_child).collect()
        }
        Scope::DescendantsOf(_) | Scope::Listed | Scope::ThreadsOfListed => panic!("no oracle for {scope:?}"),
    }
}

fn texts(ids: impl IntoIterator<Item = Id>, side: Side) -> BTreeMap<Id, Text> {
    ids.into_iter()
        .filter_map(|id| Some((id, Text::read(id, side)?)))
        .collect()
}

/// Ticks from boot until now in the time namespace of this process: the start time that `/proc`
/// would show for a task that starts now.
fn now_ticks() -> u64 {
    since_boot_ns() as u64 / TICK_NS
}

/// The positions of a snapshot's rows. Records tasks that are in it twice.
fn places(snapshot: &Snapshot, is_thread: bool, wrong: &mut Vec<String>) -> BTreeMap<Id, usize> {
    let mut places = BTreeMap::new();
    for (index, task) in snapshot.tasks().enumerate() {
        let (pid, tid) = (task.pid().expect("a pid"), task.tid().expect("a tid"));
        if let Some(first) = places.insert(Id { pid, tid, is_thread }, index) {
            let (first, second) = (snapshot.task(first).start_ns(), task.start_ns());
            wrong.push(format!(
                "task {pid}/{tid} is there twice, started at {first:?} and {second:?}"
            ));
        }
    }
    places
}

/// Makes this process keep the memory that it frees. Otherwise it would be larger during a query
/// than before and after.
fn keep_freed_memory() {
    // SAFETY: numbers only.
    let set = unsafe {
        [
            libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX),
            libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20),
        ]
    };
    assert_eq!(set, [1, 1]);
}

/// Whether BPF knows more than the text of a task: a value, or that a zombie has none.
fn is_beyond_text((before, after): (&Text, &Text), (said, says): (&Said, &Said), ours: &Said) -> bool {
    if *said != Err(Absent::Denied) || says != said || ours == said {
        return false;
    }
    match ours {
        Ok(_) => true,
        Err(Absent::Gone) => before.is_zombie() || after.is_zombie(),
        Err(Absent::NoMemory) => before.is_kernel_thread() || before.is_zombie() || after.is_zombie(),
        Err(_) => false,
    }
}

/// User and system time as the text counts them.
fn task_times(task: &Task) -> Option<(i128, i128)> {
    let [utime, stime] = [Field::UtimeNs, Field::StimeNs].map(|field| Some(plain(field, task.value(field).ok()?)));
    match (utime?, stime?) {
        (Plain::Number(utime), Plain::Number(stime)) => Some((utime, stime)),
        _ => None,
    }
}

/// Whether a handle keeps a part of the processor time that it gave earlier and that is greater than
/// the kernel's, while the sum is the kernel's. Until its first tick in the system, all time of a task
/// is user time, later perhaps none is. Neither the kernel nor a handle lowers a part that it gave, so
/// whoever reads last before that tick has the greater part from then on.
fn has_kept_part((before, after): (&Text, &Text), times: (i128, i128), earlier: (i128, i128)) -> bool {
    let texts = [before, after].map(|text| Some((text.stat(14).ok()?, text.stat(15).ok()?)));
    let [Some(before), Some(after)] = texts else {
        return false;
    };
    let is_kept = times.0 == earlier.0 && times.0 > before.0.max(after.0)
        || times.1 == earlier.1 && times.1 > before.1.max(after.1);
    // Both parts are whole ticks, so that their sum may have lost one.
    is_kept && (before.0 + before.1 - 1..=after.0 + after.1 + 1).contains(&(times.0 + times.1))
}

/// The verdict about a value that is not judged as its nature says.
fn exception(id: Id, field: Field, (before, after): (&Text, &Text), (said, ours): (&Said, &Said)) -> Option<Verdict> {
    let is_own = id.pid == std::process::id();
    match (field, said, ours) {
        // The calling thread sleeps during the query while reader threads look at it. To itself it
        // looks different.
        (Field::State | Field::Stat | Field::Wchan | Field::TimerSlackNs, ..) if is_own => Some(Verdict::Right),
        // Dividend and divisor both grow, so the quotient need not lie between those before and
        // after.
        (Field::CpuPercent, _, Ok(Plain::Number(ours))) => {
            let is_possible = text::possible_cpu_percent(before, after).contains(ours);
            Some(if is_possible { Verdict::Right } else { Verdict::Wrong })
        }
        // This process has a few files open for the snapshot itself.
        (Field::FdCount, Ok(Plain::Number(said)), Ok(Plain::Number(ours)))
            if is_own && (0..=6).contains(&(ours - said)) =>
        {
            Some(Verdict::Right)
        }
        _ => None,
    }
}

/// Compares every field of every task of `scope`. Values that change are read again until they
/// match, at most `ROUNDS` times. `handle` uses one thread, because this process is among the
/// tasks.
pub fn compare(handle: &mut Handle, source: SourceId, scope: Scope) -> Report {
    keep_freed_memory();
    let mut report = Report::default();
    let mut snapshot = Snapshot::default();
    let query = Query::new(scope).fields(crate::fields());
    let mut unclear: Option<BTreeMap<Id, BTreeSet<Field>>> = None;
    let mut last_seen = BTreeMap::new();
    let mut given = BTreeMap::new();
    while report.rounds < ROUNDS && unclear.as_ref().is_none_or(|unclear| !unclear.is_empty()) {
        report.rounds += 1;
        let began = now_ticks();
        let ids: Vec<Id> = match &unclear {
            None => listed(scope),
            Some(unclear) => unclear.keys().copied().collect(),
        };
        let before = texts(ids, Side::Before);
        handle
            .query_into(&query, &mut snapshot)
            .unwrap_or_else(|error| panic!("{source} {scope:?}: {error}"));
        let after = texts(before.keys().copied(), Side::After);
        let rows = places(&snapshot, scope.is_threads(), &mut report.wrong);
        if unclear.is_none() {
            check_snapshot(&snapshot, source, &mut report.wrong);
            check_set(&snapshot, &rows, &before, scope, began, &mut report.wrong);
        }
        let mut next: BTreeMap<Id, BTreeSet<Field>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (&id, before) in &before {
            let Some(after) = after
                .get(&id)
                .filter(|after| after.start_ticks() == before.start_ticks())
            else {
                continue;
            };
            let Some(&row) = rows.get(&id) else {
                report.wrong.push(format!(
                    "task {id:?} was there before and after and is not in the snapshot"
                ));
                continue;
            };
            let fields: Vec<Field> = match &unclear {
                None => crate::fields().iter().collect(),
                Some(unclear) => unclear[&id].iter().copied().collect(),
            };
            report.tasks += usize::from(unclear.is_none());
            let is_quiet = before.is_quiet_until(id, after);
            let task = snapshot.task(row);
            for field in fields {
                let ours = task.value(field).map(|value| plain(field, value));
                let (said, says) = (before.says(id, field), after.says(id, field));
                if source == SourceId::Bpf && is_beyond_text((before, after), (&said, &says), &ours) {
                    report.beyond_text += usize::from(ours.is_ok());
                    continue;
                }
                let nature = nature(field, before.is_kernel_thread());
                let verdict = exception(id, field, (before, after), (&said, &ours))
                    .unwrap_or_else(|| judge(nature, is_quiet, &said, &ours, &says));
                if verdict == Verdict::Right {
                    let (values, absent) = report.counts.entry(field).or_default();
                    *if ours.is_ok() { values } else { absent } += 1;
                    continue;
                }
                let times = (nature == Nature::Divided).then(|| task_times(&task)).flatten();
                if let Some((times, earlier)) = times.zip(given.get(&id)) {
                    if has_kept_part((before, after), times, *earlier) {
                        report.kept += 1;
                        continue;
                    }
                }
                let story = format!(
                    "{source} {scope:?}: {}/{} ({}) {field}: {} instead of {} before and {} after{}",
                    id.pid,
                    id.tid,
                    before.comm().unwrap_or_default().escape_ascii(),
                    show(&ours),
                    show(&said),
                    show(&says),
                    if is_quiet { ", and it did not run" } else { "" },
                );
                match verdict {
                    Verdict::Wrong => report.wrong.push(story),
                    _ => {
                        // A query takes memory, which this process does not have before and after.
                        let is_own = id.pid == std::process::id() && nature == Nature::Shared;
                        // It changes once for all that have it: the processes of a user, or the
                        // threads of a process.
                        let owner = match field {
                            Field::SigQueuedCount => 0,
                            _ if nature == Nature::Shared => id.pid,
                            _ => id.tid,
                        };
                        if !is_own && seen.insert((field, owner)) {
                            let start_ticks = before.start_ticks();
                            if nature == Nature::Moving && is_shown(id, start_ticks, field, &ours) {
                                report.moved += 1;
                            } else {
                                report.misfits.entry(field).or_default().push(story.clone());
                            }
                        }
                        last_seen.insert((id, field), story);
                        next.entry(id).or_default().insert(field);
                    }
                }
            }
        }
        let times = |(&id, &row): (&Id, &usize)| Some((id, task_times(&snapshot.task(row))?));
        given = rows.iter().filter_map(times).collect();
        unclear = Some(next);
    }
    for (id, fields) in unclear.into_iter().flatten() {
        for field in fields {
            report
                .wrong
                .push(format!("{} (never matched)", last_seen[&(id, field)]));
        }
    }
    report
}

fn show(said: &Said) -> String {
    match said {
        Ok(Plain::Bytes(bytes)) => {
            format!(
                "{} bytes \"{}\"",
                bytes.len(),
                bytes[..bytes.len().min(80)].escape_ascii()
            )
        }
        Ok(Plain::List(list)) if list.len() > 20 => format!("a list of {}", list.len()),
        Ok(value) => format!("{value:?}"),
        Err(reason) => format!("absent ({reason})"),
    }
}

fn check_snapshot(snapshot: &Snapshot, source: SourceId, wrong: &mut Vec<String>) {
    if snapshot.counters().malformed != 0 {
        wrong.push(format!("malformed records: {:?}", snapshot.counters()));
    }
    if snapshot.counters().tasks != snapshot.len() as u64 {
        wrong.push(format!("{} rows, but {:?}", snapshot.len(), snapshot.counters()));
    }
    for (group, answer) in snapshot.answers() {
        let cgroups_missing = answer == Err(Absent::Unsupported) && group == taskdiag::Group::Cgroup;
        // No other source reads the memory of processes or has texts.
        let source = match group {
            taskdiag::Group::Args | taskdiag::Group::Env | taskdiag::Group::Text => SourceId::Procfs,
            _ => source,
        };
        if answer != Ok(source) && (!cgroups_missing || cgroup_mount().is_some()) {
            wrong.push(format!("{group:?} was answered by {answer:?} instead of {source}"));
        }
    }
}

/// Checks that tasks that are in the snapshot, but were not listed before it, have started since.
fn check_set(
    snapshot: &Snapshot,
    rows: &BTreeMap<Id, usize>,
    before: &BTreeMap<Id, Text>,
    scope: Scope,
    began: u64,
    wrong: &mut Vec<String>,
) {
    for (id, &row) in rows {
        let start = snapshot.task(row).start_ns().expect("a start") as u64 / TICK_NS;
        let is_known = before.get(id).is_some_and(|text| text.start_ticks() == start);
        // A task that was orphaned in between may have become a child of the given process.
        if !is_known && start < began && !matches!(scope, Scope::ChildrenOf(_)) {
            wrong.push(format!(
                "{id:?}, which started at {start}, was not there at {began}, before the snapshot"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a task that ran may have had what its text shows at another time, and nothing else.
    #[test]
    fn a_task_had_only_what_its_text_shows() {
        let thread = std::thread::spawn(|| loop {
            std::thread::sleep(std::time::Duration::from_micros(100));
            let until = std::time::Instant::now() + std::time::Duration::from_micros(100);
            while std::time::Instant::now() < until {}
        });
        let pid = std::process::id();
        let shows = |tid: u32, state: char| {
            let id = Id {
                pid,
                tid,
                is_thread: true,
            };
            let start = Text::read(id, Side::Before).expect("our thread").start_ticks();
            [start, start + 1].map(|start| is_shown(id, start, Field::State, &Ok(Plain::Letter(state))))
        };
        let moves = |tid: &u32| ['R', 'S'].map(|state| shows(*tid, state)) == [[true, false]; 2];
        // Where others want the processors, it is seen in one state for a while.
        let moving = || {
            text::threads_of(pid)
                .into_iter()
                .map(|id| id.tid)
                .filter(moves)
                .collect()
        };
        let tried = (0..100).map(|_| moving()).find(|moving: &Vec<u32>| !moving.is_empty());
        let moving = tried.expect("a thread in both states");
        assert!(!thread.is_finished());
        assert!(moving.iter().all(|&tid| shows(tid, 'T') == [false; 2]));
    }
}
