//! The data of a page, in the form that its script reads.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde_json::{json, Value};
use taskdiag::pagecache::{self, Quantity, Source};
use taskdiag_history::events::Sum;

use super::commands::Command;
use super::incidents::{Forks, Incident, IncidentKind};
use super::present::{Present, GROUPINGS};
use super::reading::{Ended, Point, Read};
use super::series::{Amounts, Groups, LargestGroups, Resource, Series, MAX_SERIES};
use crate::grouping::Name;
use crate::mem::{Account, AccountLine};
use crate::outcome::counted;
use crate::output::people;
use crate::output::relation::NONE;
use crate::output::text::escaped;

/// How many processes are shown individually. Others are summed by group.
const MAX_PROCESSES: usize = 400;

/// How many groups the remaining processes are summed into. Further groups become one.
const MAX_RESTS: usize = 200;

/// How many incidents are shown. Others are only counted.
const MAX_INCIDENTS: usize = 500;

/// How many programs that began and ended are shown. Others become one row.
const MAX_ENDED: usize = 60;

/// The page cache of a directory.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The directory itself, and its subdirectories: the path of each, and the sum of the files below.
    pub rows: Vec<(Vec<u8>, pagecache::Sum)>,
    /// The number of files and directories that could not be read.
    pub failed: u64,
}

/// The content of a page.
#[derive(Debug)]
pub struct Contents {
    /// The introduction.
    pub about: String,
    /// Notes about missing or damaged data.
    pub notes: Vec<String>,
    /// The initial grouping of processes.
    pub by: &'static str,
    /// What groups used over time, if it was recorded.
    pub read: Option<Read>,
    /// The processes of one moment.
    pub present: Present,
    /// The page cache of directories.
    pub caches: Vec<Tree>,
    /// Incidents from the kernel's log.
    pub logged: Vec<Incident>,
    /// See [`super::commands`].
    pub commands: Vec<(&'static str, Vec<Command>)>,
}

/// The data of a page.
pub fn document(contents: Contents) -> Value {
    let (is_past, present) = (contents.read.is_some(), contents.present);
    let (points, groups, mut incidents, memory, ended) = match contents.read {
        Some(read) => {
            let ended = read.has_events.then_some((read.ended, read.is_told));
            (read.points, read.groups, read.incidents, read.memory, ended)
        }
        // There is nothing over time, but the largest groups still have colours.
        None => (Vec::new(), of_moment(&present), Vec::new(), present.memory, None),
    };
    for logged in contents.logged {
        match incidents.iter_mut().find(|one| one.is_same_kill(&logged)) {
            Some(same) => same.learn(&logged),
            None => incidents.push(logged),
        }
    }
    incidents.sort_by_key(|incident| (incident.rank(), Reverse(incident.wall_ns)));
    let groupings: Vec<Value> = GROUPINGS
        .iter()
        .zip(groups)
        .map(|((_, by, _), groups)| over_time(by.name, groups.choose(points.len().max(1), MAX_SERIES), &points))
        .collect();
    let (listed, left) = incidents.split_at(incidents.len().min(MAX_INCIDENTS));
    let pair = |(command, behind): Command| json!([command, behind]);
    let commands: serde_json::Map<String, Value> = contents
        .commands
        .into_iter()
        .map(|(id, commands)| (id.to_owned(), commands.into_iter().map(pair).collect()))
        .collect();
    json!({
        "about": contents.about,
        "notes": contents.notes,
        "by": contents.by,
        "memory": memory.name(),
        "at": crate::history::exact(present.wall_ns),
        "times": points.iter().map(|point| ms(point.wall_ns)).collect::<Vec<i64>>(),
        "known": points.iter().map(|point| point.is_known).collect::<Vec<bool>>(),
        "used": values(&points, |_, point| point.used.map(Value::from)),
        "groupings": groupings,
        "incidents": listed.iter().map(incident).collect::<Vec<Value>>(),
        "incidents_text": incidents_text(is_past, left.len()),
        "present": moment(&present),
        "cache": contents.caches.iter().map(cached).collect::<Vec<Value>>(),
        "ended": ended.map(|(ended, is_told)| ended_rows(ended.into_iter().collect(), is_told)),
        "ended_text": format!(
            "Programs whose processes started or ended, by unit; most starts first. In no sample: processes that \
             started and ended between two samples. Failed: ended with an exit code other than 0, or by a signal. \
             Processor time: of the processes that ended, since their start. At most {MAX_ENDED} programs are listed."
        ),
        "commands": commands,
    })
}

/// The groups of one moment.
fn of_moment(present: &Present) -> [Groups; 3] {
    let mut groups: [Groups; 3] = Default::default();
    for (index, groups) in groups.iter_mut().enumerate() {
        let used = present.processes.iter().map(|process| {
            let mut amounts = Amounts::default();
            amounts[Resource::Memory as usize] = process.bytes as f64;
            match &process.groups[index] {
                Name::Text(text) => (Ok(&text[..]), amounts),
                Name::None(why) => (Err(*why), amounts),
                _ => (Err(NONE), amounts),
            }
        });
        groups.add(0, used);
    }
    groups
}

fn ms(wall_ns: i64) -> i64 {
    wall_ns.div_euclid(1_000_000)
}

/// A name: a text; `null` for processes that are in no group; `false` for processes whose group is
/// unknown.
fn name(name: &Name) -> Value {
    match name {
        Name::Text(text) if text.is_empty() => Value::Null,
        Name::Text(text) => escaped(text).into(),
        _ => false.into(),
    }
}

fn text_or_null(bytes: &[u8]) -> Value {
    name(&Name::Text(bytes.to_vec()))
}

/// The name of a unit, or the path of a cgroup that is in none: in the root there is no unit.
fn unit_or_null(unit: &[u8]) -> Value {
    text_or_null(if unit == b"/" { b"" } else { unit })
}

/// Rounds to four decimals, which keeps a page small.
fn rounded(number: f64) -> Value {
    json!((number * 1e4).round() / 1e4)
}

/// The values at points; `null` where there is none.
fn values(points: &[Point], value: impl Fn(usize, &Point) -> Option<Value>) -> Value {
    let of = |(index, point): (usize, &Point)| value(index, point).filter(|_| point.is_known).unwrap_or(Value::Null);
    points.iter().enumerate().map(of).collect()
}

fn over_time(by: &str, chosen: LargestGroups, points: &[Point]) -> Value {
    let all = || chosen.groups.iter().map(|(_, series)| series).chain([&chosen.rest]);
    let unattributed = |index: usize, point: &Point| {
        let busy = point.busy?;
        let used: f64 = all().map(|series| series[index][Resource::Processors as usize]).sum();
        // Clock ticks and the times of processes are measured in different ways.
        Some(rounded((busy - used).max(0.0)))
    };
    let mut grouping = json!({
        "by": by,
        "names": chosen.groups.iter().map(|(of, _)| name(of)).collect::<Vec<Value>>(),
        "rest_count": chosen.rest_count,
        "unattributed": values(points, unattributed),
    });
    for resource in Resource::ALL {
        let amount = |series: &Series, index: usize, point: &Point| {
            let amount = series[index][resource as usize];
            match resource {
                Resource::Processors => point.busy.map(|_| rounded(amount)),
                Resource::Memory => Some(json!(amount as u64)),
                Resource::Disk | Resource::Network => point.is_used[resource as usize].then(|| json!(amount as u64)),
            }
        };
        let rows = all().map(|series| values(points, |index, point| amount(series, index, point)));
        grouping[resource.name()] = rows.collect();
    }
    grouping
}

fn moment(present: &Present) -> Value {
    let (listed, rest) = present.processes.split_at(present.processes.len().min(MAX_PROCESSES));
    let process = |process: &super::present::Process| {
        json!({
            "pid": process.pid,
            "comm": escaped(&process.comm),
            "user": process.user,
            "bytes": process.bytes,
            "is_resident": process.is_resident,
            "used_ns": process.used_ns,
            "groups": process.groups.each_ref().map(name),
        })
    };
    let rests: Vec<Value> = (0..GROUPINGS.len())
        .map(|grouping| {
            let mut sums: HashMap<&Name, (u64, u64)> = HashMap::new();
            for process in rest {
                let sum = sums.entry(&process.groups[grouping]).or_default();
                *sum = (sum.0 + 1, sum.1 + process.bytes);
            }
            let mut sums: Vec<(&Name, (u64, u64))> = sums.into_iter().collect();
            sums.sort_by(|(a_name, (_, a)), (b_name, (_, b))| b.cmp(a).then_with(|| a_name.cmp(b_name)));
            let others = sums.split_off(sums.len().min(MAX_RESTS));
            let row = |of: Value, (count, bytes): (u64, u64)| json!([of, count, bytes]);
            let mut rows: Vec<Value> = sums.into_iter().map(|(of, sum)| row(name(of), sum)).collect();
            if !others.is_empty() {
                let sum = others
                    .iter()
                    .fold((0, 0), |sum, (_, more)| (sum.0 + more.0, sum.1 + more.1));
                rows.push(row(json!({ "others": others.len() }), sum));
            }
            rows.into()
        })
        .collect();
    let missing = [
        (&present.missing, "left out, whose memory is not known"),
        (
            &present.resident,
            "with resident size, because the proportional one is not known",
        ),
    ];
    let missing = missing
        .into_iter()
        .filter(|(reasons, _)| !reasons.is_empty())
        .map(|(reasons, what)| {
            let each: Vec<String> = reasons.iter().map(|(why, count)| format!("{why}: {count}")).collect();
            let all = counted(reasons.values().sum(), "process");
            format!(" {all} {what} ({}).", each.join(", "))
        });
    json!({
        "ms": ms(present.wall_ns),
        "memory": present.memory.name(),
        "processes": listed.iter().map(process).collect::<Vec<Value>>(),
        "rest": rests,
        "account": present.account.as_ref().map(account),
        "missing": missing.collect::<String>(),
    })
}

fn account(account: &Account) -> Value {
    let line = |line: &AccountLine| {
        json!({
            "name": line.name,
            "part_of": if line.part_of.is_empty() { Value::Null } else { line.part_of.into() },
            "bytes": line.bytes.ok(),
            "why": line.bytes.err().map(|why| why.as_str()),
            "meaning": line.meaning,
        })
    };
    json!({
        "total": account.total_bytes,
        "lines": account.lines.iter().map(line).collect::<Vec<Value>>(),
    })
}

fn cached(tree: &Tree) -> Value {
    let row = |(path, sum): &(Vec<u8>, pagecache::Sum)| {
        let usage = sum.usage(Source::of_this_host());
        let bytes = |quantity| usage.and_then(|usage| usage.bytes(quantity)).ok();
        json!({
            "path": escaped(path),
            "cached": bytes(Quantity::Cached),
            "dirty": bytes(Quantity::Dirty),
            "size": sum.size_bytes,
            "files": sum.files,
            "missing": sum.files - sum.answered,
        })
    };
    json!({ "failed": tree.failed, "rows": tree.rows.iter().map(row).collect::<Vec<Value>>() })
}

fn incidents_text(is_past: bool, left: usize) -> String {
    if !is_past {
        return "Kills for lack of memory, if the kernel's log names any.".to_owned();
    }
    let more = match left {
        0 => String::new(),
        left => format!(" Not listed: {left} more."),
    };
    format!(
        "Kills for lack of memory, as events or the kernel's log, if it is of the same boot, name them; others as the kernel \
         counts them for each cgroup (memory.events) and for the machine. Services all of whose processes were replaced; \
         file systems on disks of which 95 % are used; boots; gaps in the recording. Samples before which at least 20 processes a second began, and five times as many as \
         usual, in one row for each unit and program.{more}"
    )
}

/// The last component of a cgroup's path, if it is a unit.
fn unit_of(cgroup: &[u8]) -> Option<Value> {
    let last = cgroup.rsplit(|&byte| byte == b'/').next()?;
    let is_unit = [&b".service"[..], b".scope"]
        .iter()
        .any(|ending| last.ends_with(ending));
    is_unit.then(|| escaped(last).into())
}

fn incident(incident: &Incident) -> Value {
    let processes = |count: u64| counted(count, "process");
    let (kind, text, unit, program) = match &incident.what {
        IncidentKind::OomInCgroup(cgroup, count) => {
            let text = format!("{} killed for lack of memory in {}", processes(*count), escaped(cgroup));
            ("oom", text, unit_of(cgroup), None)
        }
        IncidentKind::OomInMachine(count) => {
            let text = format!("{} killed for lack of memory, in no recorded cgroup", processes(*count));
            ("oom", text, None, None)
        }
        IncidentKind::OomKill(kill) => {
            let place = match &kill.cgroup {
                Some(cgroup) => format!("in {}", escaped(cgroup)),
                None => "in a cgroup of which no point has a process".to_owned(),
            };
            let says = if kill.is_logged { ", says the kernel's log" } else { "" };
            let comm = escaped(&kill.comm);
            let text = format!("{comm} (pid {}) killed for lack of memory {place}{says}", kill.pid);
            ("oom", text, kill.cgroup.as_deref().and_then(unit_of), Some(comm))
        }
        IncidentKind::Forks(bursts) => {
            let Forks { unit, program, .. } = &bursts[0];
            let often = match bursts.len() {
                1 => String::new(),
                times => format!("{times} times: "),
            };
            let sum = |part: fn(&Forks) -> u64| bursts.iter().map(part).sum::<u64>();
            let text = format!(
                "{often}{} started, {:.0} per second{}; {} of them are {} of {}",
                processes(sum(|forks| forks.count)),
                bursts.iter().map(Forks::rate).fold(0.0, f64::max),
                if bursts.len() > 1 { " at most" } else { "" },
                sum(|forks| forks.most),
                escaped(program),
                match &unit[..] {
                    b"" | b"/" => "no unit".to_owned(),
                    unit => escaped(unit),
                }
            );
            ("forks", text, Some(unit_or_null(unit)), Some(escaped(program)))
        }
        IncidentKind::Restart(unit) => {
            let unit = escaped(unit);
            ("restart", format!("{unit} restarted"), Some(unit.into()), None)
        }
        IncidentKind::FullDisk(path, percent, free) => {
            let free = people::size_text(*free);
            let text = format!("{} is full: {percent} % used, {free} free", escaped(path));
            ("disk", text, None, None)
        }
        IncidentKind::Boot => ("boot", "the machine started".to_owned(), None, None),
        IncidentKind::Gap(until_ns) => {
            let seconds = (until_ns - incident.wall_ns) as f64 / 1e9;
            ("gap", format!("nothing was recorded for {seconds:.1} s"), None, None)
        }
    };
    let mut row = json!({ "ms": ms(incident.wall_ns), "kind": kind, "text": text });
    if let IncidentKind::Forks(bursts) = &incident.what {
        row["times"] = bursts.iter().map(|forks| ms(forks.wall_ns)).collect();
    }
    if let Some(unit) = unit {
        row["unit"] = unit;
    }
    if let Some(program) = program {
        row["program"] = program.into();
    }
    row
}

/// The rows of what began and ended. `is_told`: the events told processor times and peaks.
fn ended_rows(mut all: Vec<(Ended, Sum)>, is_told: bool) -> Value {
    all.sort_by(|(a_name, a), (b_name, b)| {
        let rank = |sum: &Sum| (sum.forks_count.max(sum.ended_count), sum.runtime_ns);
        rank(b).cmp(&rank(a)).then_with(|| a_name.cmp(b_name))
    });
    let others = all.split_off(all.len().min(MAX_ENDED));
    let row = |unit: Value, program: Value, sum: &Sum| {
        let is_told = is_told && sum.ended_count > 0;
        json!({
            "unit": unit,
            "program": program,
            "forks": sum.forks_count,
            "execs": sum.execs_count,
            "ended": sum.ended_count,
            "unseen": sum.unseen_count,
            "failed": sum.failed_count,
            "runtime_ns": is_told.then_some(sum.runtime_ns),
            "peak": is_told.then_some(sum.peak_rss_bytes),
        })
    };
    let mut rows: Vec<Value> = all
        .iter()
        .map(|((unit, program), sum)| row(unit_or_null(unit), text_or_null(program), sum))
        .collect();
    if !others.is_empty() {
        let mut sum = Sum::default();
        others.iter().for_each(|(_, more)| sum.add(*more));
        rows.push(row(Value::Null, Value::Null, &sum));
    }
    rows.into()
}

#[cfg(test)]
mod tests {
    use super::super::present::{Memory, Reasons};
    use super::*;

    fn point(wall_ns: i64, busy: Option<f64>) -> Point {
        Point {
            wall_ns,
            is_known: true,
            busy,
            ..Point::default()
        }
    }

    /// Check that an unknown value is not a number, that no name can be mistaken for the marks of
    /// no group and of an unknown group, and that time used by no process is shown as such.
    #[test]
    fn unknown_values_are_no_numbers() {
        let points = [
            point(1_000_000, None),
            point(2_000_000, Some(3.5)),
            Point::default(),
            point(4_000_000, Some(1.0)),
        ];
        let mut groups = Groups::default();
        let used = |processors, memory| [processors, memory, 0.0, 0.0];
        groups.add(0, [(Ok(&b"a\n"[..]), used(0.0, 7.0))].into_iter());
        groups.add(
            1,
            [(Ok(&b"a\n"[..]), used(1.25, 8.0)), (Ok(&b""[..]), used(0.0, 1.0))].into_iter(),
        );
        groups.add(3, [(Err("denied"), used(1.5, 0.5))].into_iter());
        let value = over_time("program", groups.choose(4, 1), &points);
        assert_eq!(value["names"], json!(["a\\n"]));
        assert_eq!(value["rest_count"], json!(2));
        assert_eq!(
            value["processors"],
            json!([[null, 1.25, null, 0.0], [null, 0.0, null, 1.5]])
        );
        assert_eq!(value["memory"], json!([[7, 8, null, 0], [0, 1, null, 0]]));
        assert_eq!(value["unattributed"], json!([null, 2.25, null, 0.0]));
        let names = [
            Name::Text(Vec::new()),
            Name::None("gone"),
            Name::Text(b"false".to_vec()),
        ];
        assert_eq!(names.map(|one| name(&one)), [Value::Null, json!(false), json!("false")]);
    }

    /// Check that incidents name what they are about, so that a selection can filter them.
    #[test]
    fn incidents_are_of_groups() {
        let row = |what| {
            incident(&Incident {
                wall_ns: 5_000_000,
                what,
            })
        };
        let oom = row(IncidentKind::OomInCgroup(b"/system.slice/db.service".to_vec(), 2));
        assert_eq!((&oom["unit"], &oom["ms"]), (&json!("db.service"), &json!(5)));
        assert_eq!(
            oom["text"],
            "2 processes killed for lack of memory in /system.slice/db.service"
        );
        assert!(row(IncidentKind::OomInCgroup(b"/user.slice".to_vec(), 1))
            .get("unit")
            .is_none());
        let burst = |wall_ns, count| Forks {
            wall_ns,
            count,
            ms: 5000,
            unit: b"a.service".to_vec(),
            program: b"sh".to_vec(),
            most: 400,
        };
        let twice = row(IncidentKind::Forks(vec![burst(5_000_000, 500), burst(9_000_000, 1000)]));
        assert_eq!(twice["times"], json!([5, 9]));
        assert_eq!(
            twice["text"],
            "2 times: 1500 processes started, 200 per second at most; 800 of them are sh of a.service"
        );
        let forks = row(IncidentKind::Forks(vec![burst(5_000_000, 500)]));
        assert_eq!((&forks["unit"], &forks["program"]), (&json!("a.service"), &json!("sh")));
        assert_eq!(
            forks["text"],
            "500 processes started, 100 per second; 400 of them are sh of a.service"
        );
    }

    /// Check that what matters most comes first, and of that the newest, that a kill in the kernel's
    /// log, too, is told once and with its cgroup.
    #[test]
    fn what_matters_leads() {
        let kill = |wall_ns, cgroup: Option<&str>, is_logged| Incident {
            wall_ns,
            what: IncidentKind::OomKill(super::super::incidents::Kill {
                pid: 7,
                comm: b"eater".to_vec(),
                cgroup: cgroup.map(|path| path.as_bytes().to_vec()),
                is_logged,
            }),
        };
        let at = |wall_ns, what| Incident { wall_ns, what };
        let contents = Contents {
            about: String::new(),
            notes: Vec::new(),
            by: "program",
            read: None,
            present: Present {
                wall_ns: 0,
                memory: Memory::Rss,
                processes: Vec::new(),
                resident: Reasons::new(),
                missing: Reasons::new(),
                account: None,
            },
            caches: Vec::new(),
            logged: vec![
                at(1_000_000, IncidentKind::Forks(vec![Forks::default()])),
                at(2_000_000, IncidentKind::Boot),
                at(3_000_000, IncidentKind::Restart(b"a.service".to_vec())),
                kill(4_000_000, None, false),
                kill(5_000_000, Some("/a.service"), true),
                at(6_000_000, IncidentKind::Restart(b"b.service".to_vec())),
            ],
            commands: Vec::new(),
        };
        let data = document(contents);
        let incidents = data["incidents"].as_array().expect("a list");
        let kinds: Vec<&str> = incidents.iter().filter_map(|one| one["kind"].as_str()).collect();
        assert_eq!(kinds, ["oom", "restart", "restart", "boot", "forks"]);
        assert_eq!(incidents[1]["ms"], 6);
        assert_eq!(
            incidents[0]["text"],
            "eater (pid 7) killed for lack of memory in /a.service"
        );
    }

    /// Check that with very many programs the others become one row, and that sums lose nothing.
    #[test]
    fn other_programs_are_one_row() {
        let sum = |forks_count| Sum {
            forks_count,
            ended_count: forks_count / 99,
            ..Sum::default()
        };
        let all = (0..100_u64).map(|number| ((b"u".to_vec(), number.to_string().into_bytes()), sum(number)));
        let untold = ended_rows(all.clone().collect(), false);
        assert!(untold[0]["peak"].is_null() && untold[MAX_ENDED]["runtime_ns"].is_null());
        let rows = ended_rows(all.collect(), true);
        assert_eq!(rows[0]["runtime_ns"], json!(0));
        assert!(rows[1]["runtime_ns"].is_null() && rows[1]["peak"].is_null());
        let rows = rows.as_array().expect("rows");
        assert_eq!(rows.len(), MAX_ENDED + 1);
        assert_eq!(
            (&rows[0]["program"], &rows[MAX_ENDED]["program"]),
            (&json!("99"), &Value::Null)
        );
        let forks: u64 = rows.iter().filter_map(|row| row["forks"].as_u64()).sum();
        assert_eq!(forks, (0..100).sum::<u64>());
    }
}
