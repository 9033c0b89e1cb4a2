//! Compares snapshots with the kernel's text, read before and after them.

use std::collections::{BTreeMap, BTreeSet};

use taskdiag::{Absent, Field, Handle, Query, Scope, Snapshot, SourceId};

use super::cgroup_mount;
use super::text::{self, plain, Id, Plain, Said, Side, Text, TICK_NS};

/// How often a value that moves is read again, until it is the same before our answer and after it.
const ROUNDS: usize = 40;

/// How many values of a field may fit only when they are read again, because their tasks ran meanwhile: this many,
/// and one more for every `MISFITS_OF` values.
const MISFITS: usize = 8;
const MISFITS_OF: usize = 100;

/// How our value is related to what the text says before and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nature {
    /// All three are the same.
    Fixed,
    /// Ours lies between the two.
    Growing,
    /// As `Growing`, but it is a part that the kernel divides off a growing sum. While the task runs, the part may be
    /// a little off.
    Divided,
    /// Ours is one of the two, unless the task ran and the value moved and moved back.
    Moving,
    /// As `Moving`, but the value also moves while the task does not run: others reclaim and share its memory, or open
    /// its files.
    Shared,
}

fn nature(field: Field, is_kernel_thread: bool) -> Nature {
    match field {
        // A worker's name tells what it works at, and its nice value is its pool's.
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
        // Terminals of others come and go.
        | Field::Tty
        | Field::PssBytes
        | Field::UssBytes
        | Field::PssDirtyBytes
        | Field::PssAnonBytes
        | Field::PssFileBytes
        | Field::PssShmemBytes
        | Field::SharedCleanBytes
        | Field::SharedDirtyBytes
        | Field::PrivateCleanBytes
        | Field::PrivateDirtyBytes
        | Field::ReferencedBytes
        | Field::AnonymousBytes
        | Field::KsmBytes
        | Field::LazyfreeBytes
        | Field::AnonHugeBytes
        | Field::ShmemHugeBytes
        | Field::FileHugeBytes
        | Field::SharedHugetlbBytes
        | Field::PrivateHugetlbBytes
        | Field::SwapPssBytes
        | Field::RollupRssBytes
        | Field::RollupSwapBytes
        | Field::RollupLockedBytes
        | Field::RollupAgeNs => Nature::Shared,
        Field::Pid
        | Field::Tid
        | Field::Ppid
        | Field::TracerPid
        | Field::Pgid
        | Field::Sid
        | Field::Comm
        | Field::StartNs
        | Field::KernelThread
        | Field::ExitSignal
        | Field::TtyNr
        | Field::Uid
        | Field::Euid
        | Field::Suid
        | Field::Fsuid
        | Field::Gid
        | Field::Egid
        | Field::Sgid
        | Field::Fsgid
        | Field::CapInheritable
        | Field::CapPermitted
        | Field::CapEffective
        | Field::CapBounding
        | Field::CapAmbient
        | Field::NoNewPrivs
        | Field::Seccomp
        | Field::Groups
        | Field::Nice
        | Field::RtPriority
        | Field::Policy
        | Field::Affinity
        | Field::Cmdline
        | Field::OomScoreAdj
        | Field::NsPid
        | Field::NsPidForChildren
        | Field::NsMnt
        | Field::NsNet
        | Field::NsUser
        | Field::NsUts
        | Field::NsIpc
        | Field::NsCgroup
        | Field::NsTime
        | Field::Nspids
        | Field::CgroupId
        | Field::Cgroup
        | Field::TimerSlackNs
        | Field::SigIgnored
        | Field::SigCaught
        | Field::Limits
        | Field::Environ
        | Field::Exe
        | Field::Cwd
        | Field::Root
        | Field::Umask
        | Field::Loginuid
        | Field::AuditSession
        | Field::StartCode
        | Field::EndCode
        | Field::StartData
        | Field::EndData
        | Field::StartBrk
        | Field::StartStack
        | Field::ArgStart
        | Field::ArgEnd
        | Field::EnvStart
        | Field::EnvEnd
        | Field::Personality
        | Field::SecurityLabel
        | Field::User
        | Field::Group
        | Field::StartTime
        | Field::Unit
        | Field::UserUnit
        | Field::Slice
        | Field::ContainerId
        | Field::ContainerName
        | Field::ContainerRuntime
        | Field::PodUid => Nature::Fixed,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Right,
    /// Maybe the value moved: to be looked at again.
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

/// What a comparison came to.
#[derive(Debug, Default)]
pub struct Report {
    pub tasks: usize,
    /// For each field: values that were right, and absences that were.
    pub counts: BTreeMap<Field, (usize, usize)>,
    /// Values that the text keeps from us and BPF gives.
    pub beyond_text: usize,
    /// For each field, the values that were neither what the text said before nor what it said after, and may have
    /// been right in between. They are read again.
    pub misfits: BTreeMap<Field, Vec<String>>,
    pub wrong: Vec<String>,
    pub rounds: usize,
}

impl Report {
    /// Fails unless all was right, and unless each field had a value for at least `least` tasks.
    pub fn check(&self, what: &str, least: usize) {
        let values: usize = self.counts.values().map(|(values, _)| values).sum();
        let absent: usize = self.counts.values().map(|(_, absent)| absent).sum();
        println!(
            "{what}: {} tasks, {values} values and {absent} absences compared, {} that the text denies, {} rounds",
            self.tasks, self.beyond_text, self.rounds
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
                // They are absent also where containers may be in hierarchies of version 1.
                field if field.info().made_of.contains(&Field::Cgroup) => values + absent,
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
    /// Fails if more values did not fit at first than moving ones explain. A value that is wrong only now and then also
    /// fits in the end.
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

/// Ticks from boot until now, in the time namespace of this process: what `/proc` would say of a task that starts now.
fn now_ticks() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now) };
    assert_eq!(result, 0);
    (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64) / TICK_NS
}

/// Where the rows of a snapshot are. Tells of tasks that are in it twice.
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

/// Keeps memory that this process frees in the process. Otherwise its size would be larger during a query than before
/// and after.
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

/// Compares every field of every task of `scope`. Values that move are read again until they match, or `ROUNDS` times.
/// `handle` uses one thread, because this process is among the tasks.
pub fn compare(handle: &mut Handle, source: SourceId, scope: Scope) -> Report {
    keep_freed_memory();
    let mut report = Report::default();
    let mut snapshot = Snapshot::default();
    let query = Query::new(scope).fields(crate::fields());
    let mut unclear: Option<BTreeMap<Id, BTreeSet<Field>>> = None;
    let mut last_seen = BTreeMap::new();
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
        let mut has_queued_misfit = false;
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
                if source == SourceId::Bpf && said == Err(Absent::Denied) && says == said && ours != said {
                    // BPF knows more than the text tells: a value, or that a zombie has none.
                    let has_none = match ours {
                        Err(Absent::Gone) => before.is_zombie() || after.is_zombie(),
                        Err(Absent::NoMemory) => before.is_kernel_thread() || before.is_zombie() || after.is_zombie(),
                        _ => false,
                    };
                    if ours.is_ok() || has_none {
                        report.beyond_text += usize::from(ours.is_ok());
                        continue;
                    }
                }
                let nature = nature(field, before.is_kernel_thread());
                let mut verdict = judge(nature, is_quiet, &said, &ours, &says);
                // The dividend and the divisor both grow, so that the quotient need not lie between those of before and after.
                if let (Field::CpuPercent, Ok(Plain::Number(ours))) = (field, &ours) {
                    let is_possible = text::possible_cpu_percent(before, after).contains(ours);
                    verdict = if is_possible { Verdict::Right } else { Verdict::Wrong };
                }
                // This process has a few files open for the snapshot itself.
                if let (Field::FdCount, Ok(Plain::Number(said)), Ok(Plain::Number(ours))) = (field, &said, &ours) {
                    if id.pid == std::process::id() && (0..=6).contains(&(ours - said)) {
                        verdict = Verdict::Right;
                    }
                }
                // The thread that asks sleeps meanwhile, and reader threads look at it. It looks different to itself.
                let of_threads = matches!(field, Field::State | Field::Stat | Field::Wchan | Field::TimerSlackNs);
                if of_threads && id.pid == std::process::id() {
                    verdict = Verdict::Right;
                }
                if verdict == Verdict::Right {
                    let (values, absent) = report.counts.entry(field).or_default();
                    *if ours.is_ok() { values } else { absent } += 1;
                    continue;
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
                        // Asking takes memory, which this process does not have before and after.
                        let is_own = id.pid == std::process::id() && nature == Nature::Shared;
                        // All processes of a user have the same number: it changes once for all of them.
                        let is_known = field == Field::SigQueuedCount && has_queued_misfit;
                        has_queued_misfit |= field == Field::SigQueuedCount;
                        if !is_own && !is_known {
                            report.misfits.entry(field).or_default().push(story.clone());
                        }
                        last_seen.insert((id, field), story);
                        next.entry(id).or_default().insert(field);
                    }
                }
            }
        }
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
        // No other source reads the memory of processes, or has texts.
        let source = match group {
            taskdiag::Group::Args | taskdiag::Group::Env | taskdiag::Group::Text => SourceId::Procfs,
            _ => source,
        };
        if answer != Ok(source) && (!cgroups_missing || cgroup_mount().is_some()) {
            wrong.push(format!("{group:?} was answered by {answer:?} instead of {source}"));
        }
    }
}

/// Checks that tasks which are in the snapshot, but were not listed before it, have started since.
fn check_set(
    snapshot: &Snapshot,
    rows: &BTreeMap<Id, usize>,
    before: &BTreeMap<Id, Text>,
    scope: Scope,
    began: u64,
    wrong: &mut Vec<String>,
) {
    for (id, &row) in rows {
        let start = snapshot.task(row).start_ns().expect("a start") / TICK_NS;
        let is_known = before.get(id).is_some_and(|text| text.start_ticks() == start);
        // A task that was orphaned meanwhile may have become a child of the one asked about.
        if !is_known && start < began && !matches!(scope, Scope::ChildrenOf(_)) {
            wrong.push(format!(
                "{id:?}, which started at {start}, was not there at {began}, before the snapshot"
            ));
        }
    }
}
