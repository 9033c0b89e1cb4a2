//! Lists of processes and threads.

use std::hint::black_box;
use std::thread::sleep;
use std::time::{Duration, Instant};

use procfs::process::Process;
use taskdiag::{Field, Fields, Filter, Group, Handle, Query, Snapshot, SourceId};
use taskdiag_zoo::Farm;

use crate::case::Bound::{AtLeast, AtMost};
use crate::case::Value::{BytesPerRow, Calls, Slowest, Time};
use crate::case::{
    call, command, psutil, ratio, single, timed, times, Case, Contender, Counts, Run, Runner, Stage, Target,
};
use crate::loops::{self, Visit};
use crate::{Result, Sizes};

/// The columns of ps that are closest to the groups base and cred.
const PS_COLUMNS: &str = "pid,ppid,pgid,sid,stat,nlwp,ruid,euid,suid,fuid,rgid,egid,sgid,fgid,comm";

/// The sizes. With 100, existing processes count; otherwise the farm is in addition to them.
const SIZES: [usize; 4] = [100, 1_000, 10_000, 30_000];

pub fn cases(sizes: &Sizes) -> Vec<Case> {
    let mut cases: Vec<Case> = sizes.or(&SIZES).into_iter().map(of_processes).collect();
    let processes = sizes.0.first().copied().unwrap_or(2_000);
    cases.push(of_threads(processes, 5));
    cases
}

/// All files, links and directories that contain fields.
#[rustfmt::skip]
const ALL_FILES: &[Visit] = {
    use Visit::{Link, Look, Read};
    &[
        Read("stat"), Read("status"), Read("schedstat"), Read("cmdline"), Read("oom_score_adj"), Read("oom_score"),
        Read("cgroup"), Read("io"), Read("limits"), Read("environ"), Read("loginuid"), Read("sessionid"),
        Read("personality"), Read("timerslack_ns"), Link("exe"), Link("cwd"), Link("root"), Link("ns/pid"),
        Link("ns/pid_for_children"), Link("ns/mnt"), Link("ns/net"), Link("ns/user"), Link("ns/uts"), Link("ns/ipc"),
        Link("ns/cgroup"), Link("ns/time"), Look("fd"),
    ]
};

fn of_processes(size: usize) -> Case {
    let title = match size {
        ..=100 => format!("About {size} processes"),
        _ => format!("{size} idle processes"),
    };
    let case = Case::new(title, move || {
        let present = if size <= 100 { settled_census()?.0 } else { 0 };
        stage(size.saturating_sub(present), 1)
    });
    case.counting(Counts::All, "task").of(contenders(), targets(size))
}

/// A farm, when an earlier one is gone.
fn stage(processes: usize, threads_each: usize) -> Result<Stage> {
    settled_census()?;
    let farm = match processes {
        0 => None,
        _ => Some(Farm::start(processes, threads_each)?),
    };
    let (all_processes, all_threads) = settled_census()?;
    let stage = Stage {
        title: format!(" ({all_processes} processes, {all_threads} threads in all)"),
        rows: if threads_each > 1 { all_threads } else { all_processes },
        ..Stage::default()
    };
    Ok(stage.keep(farm))
}

/// Counts processes and threads once an earlier farm is gone, or after some seconds.
fn settled_census() -> Result<(usize, usize)> {
    let mut before = loops::census()?;
    for _ in 0..20 {
        sleep(Duration::from_millis(250));
        let now = loops::census()?;
        if now.0.abs_diff(before.0) <= 1 {
            return Ok(now);
        }
        before = now;
    }
    Ok(before)
}

#[rustfmt::skip]
fn contenders() -> Vec<Contender> {
    let walk = |name, about, visits: &'static [Visit]| {
        call(name, about, move |_| timed(move || Ok(loops::processes(visits)?)))
    };
    let with_args = || base_and_cred().fields(of(&[Group::Base, Group::Cred, Group::Args]));
    vec![
        walk("loop/stat", "open, read, close /proc/PID/stat", &[Visit::Read("stat")]),
        walk("loop/status", "open, read, close /proc/PID/status", &[Visit::Read("status")]),
        walk("loop/status+cmdline", "the same, and cmdline", &[Visit::Read("status"), Visit::Read("cmdline")]),
        call("library/bpf", "base+cred, the snapshot's memory used again",
            |_| again(SourceId::Bpf, base_and_cred())),
        call("library/bpf-fresh", "base+cred, a new snapshot each time", |_| {
            let mut handle = prepared(SourceId::Bpf, &base_and_cred())?;
            Ok(Box::new(move || {
                let start = Instant::now();
                let run = ask(&mut handle, &base_and_cred(), &mut Snapshot::default())?;
                // With freeing it.
                Ok(Run { took: start.elapsed(), ..run })
            }))
        }),
        call("library/bpf-first", "base+cred, a new handle: with loading", |_| Ok(Box::new(||
            ask(&mut Handle::new().with_source(SourceId::Bpf), &base_and_cred(), &mut Snapshot::default())))),
        call("library/bpf+args-cold", "base+cred+args, loaded, nothing read before", move |_| Ok(Box::new(move ||
            ask(&mut prepared(SourceId::Bpf, &with_args())?, &with_args(), &mut Snapshot::default())))),
        call("library/bpf+args-again", "base+cred+args, asked again", move |_| again(SourceId::Bpf, with_args())),
        call("library/procfs", "base+cred from procfs", |_| again(SourceId::Procfs, base_and_cred())),
        walk("loop/all-files", "all files, links and directories that have our fields", ALL_FILES),
        call("library/bpf-all", "all groups", |_| again(SourceId::Bpf, Query::processes().fields(Fields::all()))),
        call("library/bpf-base", "base alone",
            |_| again(SourceId::Bpf, Query::processes().fields(of(&[Group::Base])))),
        call("library/bpf-where-uid", "base+io+args of 1 % of the processes, by uid", |_| {
            let filter = Filter::parse(&format!("uid == {}", Farm::OTHER_USER))?;
            let fields = of(&[Group::Base, Group::Io]) | Field::Cmdline;
            again(SourceId::Bpf, Query::processes().fields(fields).filter(filter))
        }),
        call("library/bpf-ten", "base+cred of ten processes, listed by pid",
            |_| again(SourceId::Bpf, Query::these(ten()?).fields(of(&[Group::Base, Group::Cred])))),
        call("procfs-crate/all_processes", "all_processes(), stat(), status()", |_| timed(|| {
            // Without processes that end in between, and those that the crate can't read.
            let is_read = |process: &Process| black_box(process.stat()).is_ok() && black_box(process.status()).is_ok();
            Ok(procfs::process::all_processes()?.flatten().filter(is_read).count())
        })),
        psutil("psutil/base+cred", "process_iter(8 attributes), interpreter running", "base+cred"),
        command("command/ps-eo", "ps -eo, columns of base+cred", &format!("ps -eo {PS_COLUMNS}")),
        command("command/ps-aux", "ps aux", "ps aux"),
        command("command/taskdiag", "taskdiag ps, nothing loaded before", "taskdiag ps"),
        command("command/taskdiag-procfs", "taskdiag ps --source procfs", "taskdiag ps --source procfs"),
        command("command/taskdiag-base+cred", "taskdiag ps -o base,cred", "taskdiag ps -o base,cred"),
    ]
}

#[rustfmt::skip]
fn targets(size: usize) -> Vec<Target> {
    let single = |claim: &str, value, of: &str, most| single(claim, value, of, AtMost(most));
    let all = [
        (30_000, times("base+cred: times as fast as the status loop", "loop/status", "library/bpf", 20.0)),
        (30_000, times("base+cred: times as fast as the stat loop", "loop/stat", "library/bpf", 14.0)),
        (30_000, single("base+cred: the slowest round as a multiple of the median", Slowest, "library/bpf", 1.6)),
        (30_000, times("base+cred, new snapshot: times as fast as the status loop", "loop/status", "library/bpf-fresh", 20.0)),
        (30_000, times("with args, cold: times as fast as the status+cmdline loop", "loop/status+cmdline", "library/bpf+args-cold", 2.0)),
        (30_000, times("with args, again: times as fast as the status+cmdline loop", "loop/status+cmdline", "library/bpf+args-again", 15.0)),
        (30_000, single("base+cred: system calls", Calls, "library/bpf", 250.0)),
        (30_000, single("base+cred: bytes a task", BytesPerRow, "library/bpf", 400.0)),
        (10_000, times("all groups: times as fast as a loop over the same files", "loop/all-files", "library/bpf-all", 10.0)),
        (30_000, ratio("1 % by uid, with command lines and io: times as long as base of all", Time, "library/bpf-where-uid", &["library/bpf-base"], AtMost(1.5))),
        (30_000, single("ten processes by pid: milliseconds", Time, "library/bpf-ten", 0.01)),
        (30_000, times("taskdiag ps, nothing loaded before: times as fast as ps aux", "command/ps-aux", "command/taskdiag", 6.0)),
        (size, times("procfs source: times as fast as the procfs crate", "procfs-crate/all_processes", "library/procfs", 1.3)),
        (size, times("taskdiag ps --source procfs: times as fast as ps aux", "command/ps-aux", "command/taskdiag-procfs", 1.0)),
        (size, times("procfs source, as a call: times as fast as ps -eo", "command/ps-eo", "library/procfs", 1.0)),
    ];
    let here = |(at, target): (usize, Target)| match target.claim.as_str() {
        "taskdiag ps, nothing loaded before: times as fast as ps aux" if size == 100 => Target {
            bound: AtLeast(1.0),
            ..target
        },
        _ => Target {
            elsewhere: (at != size).then(|| format!("at {at}")),
            ..target
        },
    };
    all.into_iter().map(here).collect()
}

#[rustfmt::skip]
fn of_threads(processes: usize, threads_each: usize) -> Case {
    let title = format!("{processes} idle processes with {threads_each} threads each");
    let query = || Query::threads().fields(of(&[Group::Base, Group::Cred]));
    let claim = "threads, base+cred: times as fast as the status loop";
    Case::new(title, move || stage(processes, threads_each)).counting(Counts::All, "task").of(
        vec![
            call("loop/thread-status", "open, read, close /proc/PID/task/TID/status",
                |_| timed(|| Ok(loops::threads(Visit::Read("status"))?))),
            call("library/bpf-threads", "base+cred of threads", move |_| again(SourceId::Bpf, query())),
            call("library/procfs-threads", "base+cred of threads from procfs", move |_| again(SourceId::Procfs, query())),
            command("command/ps-eLo", "ps -eLo, columns of base+cred", &format!("ps -eLo {PS_COLUMNS}")),
            command("command/taskdiag-threads", "taskdiag ps -T", "taskdiag ps -T"),
        ],
        vec![times(claim, "loop/thread-status", "library/bpf-threads", 20.0)],
    )
}

/// The fields of groups.
pub fn of(groups: &[Group]) -> Fields {
    let fields = Field::ALL.iter().copied();
    fields.filter(|field| groups.contains(&field.group())).collect()
}

/// The query that most contenders are measured with.
pub fn base_and_cred() -> Query {
    Query::processes().fields(of(&[Group::Base, Group::Cred]))
}

/// A handle that has loaded everything for the query, but read nothing.
fn prepared(source: SourceId, query: &Query) -> Result<Handle> {
    let mut handle = Handle::new().with_source(source);
    if source == SourceId::Bpf {
        handle.prepare(query.fields)?;
    }
    Ok(handle)
}

/// Repeats a query, with the memory of the previous answer.
pub fn again(source: SourceId, query: Query) -> Result<Runner> {
    repeat(prepared(source, &query)?, query)
}

/// Repeats a query with a handle.
pub fn repeat(mut handle: Handle, query: Query) -> Result<Runner> {
    let mut snapshot = Snapshot::default();
    ask(&mut handle, &query, &mut snapshot)?;
    Ok(Box::new(move || ask(&mut handle, &query, &mut snapshot)))
}

/// Asks, and reads part of every row, so that the time includes decoding.
fn ask(handle: &mut Handle, query: &Query, snapshot: &mut Snapshot) -> Result<Run> {
    let first = |bytes: &[u8]| bytes.first().map_or(0, |&byte| u64::from(byte));
    let start = Instant::now();
    handle.query_into(query, snapshot)?;
    let mut sum = 0_u64;
    for task in snapshot.tasks() {
        for number in [task.pid(), task.uid(), task.ppid()].into_iter().flatten() {
            sum = sum.wrapping_add(number.into());
        }
        sum = sum.wrapping_add(task.comm().map_or(0, first));
        sum = sum.wrapping_add(task.cmdline().map_or(0, |args| first(args.as_bytes())));
    }
    black_box(sum);
    Ok(Run {
        took: start.elapsed(),
        rows: snapshot.len(),
        bytes: snapshot.counters().record_bytes.unwrap_or_default(),
        peak_kib: 0,
    })
}

/// Ten processes of the farm, spread over it.
fn ten() -> Result<Vec<u32>> {
    let snapshot = Handle::new().query(&Query::processes().filter(Filter::parse("comm == 'zoo'")?))?;
    let pids: Vec<u32> = snapshot.tasks().filter_map(|task| task.pid().ok()).collect();
    match pids.len() {
        ..10 => Err("there are no ten processes to choose from".into()),
        len => Ok((0..10).map(|index| pids[index * len / 10]).collect()),
    }
}
