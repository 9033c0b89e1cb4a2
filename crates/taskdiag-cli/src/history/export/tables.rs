//! The tables of an export: their columns, and how a sample becomes rows.

use std::fmt::Write as _;

use taskdiag::{Event, EventField, Field, Kind, Task, Value};
use taskdiag_history::decode;
use taskdiag_history::events::IntervalEvents;
use taskdiag_history::figures::Figure;

use super::sheet::{Cell, Cells, Type};
use crate::events;
use crate::history::past::MachineState;
use crate::output::relation::{column, columns, list_of, ColumnInfo};

/// A table: its name, its columns, and the columns by which its rows are sorted.
#[derive(Clone, Copy, Debug)]
pub struct TableInfo {
    /// Its name, and the name of its directory.
    pub name: &'static str,
    /// What a row represents.
    pub rows: &'static str,
    pub columns: fn() -> Vec<ColumnInfo>,
    /// Indexes of columns.
    pub order: &'static [usize],
}

pub const TABLES: [TableInfo; 5] = [PROCESSES, EVENTS, PROGRAMS, CGROUPS, MEMORY];

/// Formats all tables and their columns as Markdown.
pub fn markdown() -> String {
    let mut text = String::new();
    for table in TABLES {
        let _ = write!(
            text,
            "`{}`: a row for {}.\n\n| column | type | what |\n|---|---|---|\n",
            table.name, table.rows
        );
        for ColumnInfo {
            name, kind, meaning, ..
        } in (table.columns)()
        {
            let _ = writeln!(text, "| `{name}` | {} | {meaning} |", Type::of(kind).sql());
        }
        text.push('\n');
    }
    text
}

const TIME: ColumnInfo = column("time", Kind::Time, "when the sample was taken");

/// `start_time` depends on the clock at the time of the sample, so it differs a little between
/// samples.
const START_NS: ColumnInfo = column(
    "start_ns",
    Kind::Nanoseconds,
    "when the process started, since the machine booted: with pid and boot_id, which it is",
);
const BOOT_ID: ColumnInfo = column("boot_id", Kind::Text, "which boot of the machine it was");

const START_TIME: ColumnInfo = column("start_time", Kind::Time, "when the process started");

pub const PROCESSES: TableInfo = TableInfo {
    name: "processes",
    rows: "each process in a sample",
    columns: || {
        let of_field = |field| match field {
            Field::StartNs => START_TIME,
            field => ColumnInfo::of_task(field),
        };
        let fields = FIELDS.into_iter().map(of_field);
        [TIME].into_iter().chain(fields).chain([START_NS, BOOT_ID]).collect()
    },
    order: &[1, 27, 0],
};

pub const EVENTS: TableInfo = TableInfo {
    name: "events",
    rows: "each exec and each exit",
    columns: || {
        let of_field = |field| match field {
            EventField::StartNs => START_TIME,
            field => events::RELATION[field as usize],
        };
        let time = column("time", Kind::Time, "when it happened");
        let fields = EVENT_FIELDS.into_iter().map(of_field);
        [time].into_iter().chain(fields).chain([START_NS, BOOT_ID]).collect()
    },
    order: &[0],
};

pub const PROGRAMS: TableInfo = TableInfo {
    name: "programs",
    rows: "each program and unit whose processes began or ended since the last sample",
    columns: || {
        let others = columns! {
            "unit": Text, "systemd unit, or the path of the cgroup if it is in none";
            "program": Text, "name of the processes";
            "forks_count": Count, "processes that began";
            "execs_count": Count, "programs that were executed";
            "ended_count": Count, "processes that ended";
            "unseen_count": Count, "of these, those that are in no sample";
            "failed_count": Count, "of those that ended, those with a code but 0 or by a signal";
            "runtime_ns": Nanoseconds, "processor time of those that ended; NULL if the events did not tell";
            "peak_rss_bytes": Bytes, "the largest peak of resident memory among them; NULL if the events did not tell";
            "net_sent_bytes": Bytes, "what those that ended sent to other machines in all; NULL if it was not counted";
            "net_received_bytes": Bytes, "what those that ended received from other machines in all; NULL if it was not counted";
        };
        std::iter::once(TIME).chain(others).collect()
    },
    order: &[1, 2, 0],
};

pub const CGROUPS: TableInfo = TableInfo {
    name: "cgroups",
    rows: "each number of a cgroup",
    columns: || {
        columns! {
            "time": Time, "when it was read";
            "cgroup": Text, "path";
            "key": Text, "file and name: cpu.stat.usage_usec";
            "value": Count, "the kernel's number, in its unit";
        }
        .to_vec()
    },
    order: &[1, 2, 0],
};

pub const MEMORY: TableInfo = TableInfo {
    name: "memory",
    rows: "each number of the machine",
    columns: || {
        let others = columns! {
            "source": Text, "meminfo, vmstat, cpu, stat, load, pressure, cgroups, or `disk:` and a mount point";
            "key": Text, "name";
            "value": Count,
                "bytes in meminfo and of disks, clock ticks in cpu, hundredths in load, a number of cgroups, else the kernel's unit";
        };
        std::iter::once(TIME).chain(others).collect()
    },
    order: &[1, 2, 0],
};

/// The fields in rows of processes.
pub const FIELDS: [Field; 26] = list_of! {
    Field: Pid, Ppid, StartNs, Comm, Cmdline, Exe, State, Uid, User, Unit, ContainerId, ContainerName, Cgroup,
    ThreadsCount, RssBytes, PssBytes, SwapBytes, VsizeBytes, UtimeNs, StimeNs, MinFaults, MajFaults, ReadBytes,
    WriteBytes, FdCount, OomScoreAdj,
};

/// The fields in rows of events, after the time.
const EVENT_FIELDS: [EventField; 13] = list_of! {
    EventField: Event, Pid, Ppid, StartNs, Uid, Comm, Filename, ExitCode, TermSignal, OomKilled, RuntimeNs,
    PeakRssBytes, CgroupId,
};

fn micros(ns: i64) -> Cell {
    Cell::Number(ns.div_euclid(1000))
}

fn text(bytes: &[u8]) -> Cell {
    Cell::Text(String::from_utf8_lossy(bytes).into_owned())
}

fn cell(value: Value<'_>) -> Cell {
    match value {
        Value::Unsigned(number) => number.into(),
        Value::Signed(number) => Cell::Number(number),
        Value::Flag(flag) => u64::from(flag).into(),
        Value::Letter(letter) => Cell::Text(letter.to_string()),
        Value::Text(bytes) => text(bytes),
        Value::Texts(arguments) => {
            let words: Vec<String> = arguments
                .iter()
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect();
            Cell::Text(words.join(" "))
        }
        _ => Cell::None,
    }
}

/// The row of a process.
pub fn process(task: &Task<'_>, moment: &MachineState) -> Cells {
    let since_boot = |ns: i64| micros(moment.boot_ns().saturating_add(ns));
    let known = |field| task.value(field).map_or(Cell::None, cell);
    let value = |field: &Field| match *field {
        Field::StartNs => task.start_ns().map_or(Cell::None, since_boot),
        field => known(field),
    };
    let time = micros(moment.time.wall_ns);
    let which = [known(Field::StartNs), text(moment.about.boot_id.as_bytes())];
    std::iter::once(time)
        .chain(FIELDS.iter().map(value))
        .chain(which)
        .collect()
}

/// The rows of events.
pub fn events(happened: &IntervalEvents, moment: &MachineState) -> Vec<Cells> {
    let since_boot = |ns: i64| micros(moment.boot_ns().saturating_add(ns));
    let row = |event: Event<'_>| {
        let known = |field| event.value(field).map_or(Cell::None, cell);
        let value = |field: EventField| match field {
            EventField::StartNs => event.start_ns().map_or(Cell::None, since_boot),
            field => known(field),
        };
        let which = [known(EventField::StartNs), text(moment.about.boot_id.as_bytes())];
        std::iter::once(since_boot(event.time_ns() as i64))
            .chain(EVENT_FIELDS.map(value))
            .chain(which)
            .collect()
    };
    happened
        .events
        .iter()
        .filter_map(|bytes| Event::decode(bytes))
        .map(row)
        .collect()
}

/// The rows of the sums by unit and program.
pub fn programs(happened: &IntervalEvents, moment: &MachineState) -> Vec<Cells> {
    // The proc connector reports neither of the two for processes that ended.
    let is_told = decode::text(&moment.figures, b"sources", b"events") != Some(b"connector");
    let told = |number: u64| if is_told { number.into() } else { Cell::None };
    let is_counted = moment
        .about
        .fields
        .iter()
        .any(|name| name == Field::NetSentBytes.name());
    let counted = |number: u64| if is_counted { told(number) } else { Cell::None };
    let row = |((unit, program), sum): (&(Vec<u8>, Vec<u8>), &taskdiag_history::events::Sum)| {
        vec![
            micros(moment.time.wall_ns),
            text(unit),
            text(program),
            sum.forks_count.into(),
            sum.execs_count.into(),
            sum.ended_count.into(),
            sum.unseen_count.into(),
            sum.failed_count.into(),
            told(sum.runtime_ns),
            told(sum.peak_rss_bytes),
            counted(sum.net_sent_bytes),
            counted(sum.net_received_bytes),
        ]
    };
    happened.sums.iter().map(row).collect()
}

/// The rows of the machine's figures.
pub fn machine(moment: &MachineState) -> Vec<Cells> {
    const MACHINE: [&[u8]; 6] = [b"meminfo", b"vmstat", b"cpu", b"stat", b"load", b"pressure"];
    let is_told = |object: &[u8], key: &[u8]| {
        MACHINE.contains(&object)
            || object.starts_with(b"disk:")
            || (object, key) == (&b"cgroups"[..], &b"left_out_count"[..])
    };
    figures(moment, micros(moment.time.wall_ns), |object, key| {
        is_told(object, key).then_some(object)
    })
}

/// The rows of the figures of cgroups. They are not read for each sample: `read_before` is when
/// those of the previous sample were read, and none are returned again.
pub fn cgroups(moment: &MachineState, read_before: &mut Option<u64>) -> Vec<Cells> {
    let read_ns = moment.figure("cgroups", "read_ns");
    let read_ns = read_ns.unwrap_or(moment.time.boot_ns);
    let before = read_before.replace(read_ns);
    // Figures that are older than the interval are in the file before this one.
    let age_ns = moment.time.boot_ns.saturating_sub(read_ns);
    if before.map_or(age_ns > moment.about.every_ns, |before| before == read_ns) {
        return Vec::new();
    }
    let time = micros(moment.boot_ns().saturating_add_unsigned(read_ns));
    figures(moment, time, |object, _| object.strip_prefix(b"cgroup:"))
}

/// The rows of figures. `of` is what a figure is of; `None` if it has no row.
fn figures(moment: &MachineState, time: Cell, of: impl for<'a> Fn(&'a [u8], &[u8]) -> Option<&'a [u8]>) -> Vec<Cells> {
    let mut rows = Vec::new();
    for ((object, key), figure) in &moment.figures {
        if let (Figure::Number(number), Some(of)) = (figure, of(object, key)) {
            rows.push(vec![time.clone(), text(of), text(key), (*number).into()]);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that rows of processes have a cell for each heading, named as the field.
    #[test]
    fn headings_are_fields() {
        let names: Vec<&str> = (PROCESSES.columns)().iter().skip(1).map(|column| column.name).collect();
        let fields = FIELDS.map(|field| match field {
            Field::StartNs => "start_time",
            field => field.name(),
        });
        let (first, which) = names.split_at(fields.len());
        assert_eq!((first, which), (&fields[..], &["start_ns", "boot_id"][..]));
        assert_eq!((PROCESSES.columns)()[PROCESSES.order[1]].name, "start_ns");
    }
}
