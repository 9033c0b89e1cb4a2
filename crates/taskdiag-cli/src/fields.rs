//! `taskdiag fields`.

use std::io::Write;
use std::sync::LazyLock;

use clap::Args as ClapArgs;
use taskdiag::{Field, Group, Kind, Value};
use taskdiag_core::field::{files_of, Files};
use taskdiag_core::proc_values::{self, Coverage};

use crate::listing::{Format, Formats};
use crate::outcome::{Failure, Outcome};
use crate::output::document::Head;
use crate::output::named::{self, key, RowKey, Rows};
use crate::output::table::{terminal_width, Align, Table};
use crate::output::Cell;
use crate::output::Output;

/// List all fields: their names, groups, units, and where /proc has them
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Print Markdown, as in docs/fields.md
    #[arg(long, conflicts_with_all = ["json", "jsonl", "csv", "fields", "sort", "limit"])]
    markdown: bool,
    /// Sort by these keys; a minus in front puts the largest first [default: in the order of `-o
    /// all`]
    #[arg(long, value_name = "[-]KEY,…", allow_hyphen_values = true)]
    sort: Vec<String>,
    /// At most this many rows, after sorting
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// What to show, in this order: name, group, kind, origin, since, access, meaning, or `all`; a
    /// plus in front adds
    #[arg(short = 'o', long = "fields", value_name = "[+]KEY,…", help_heading = "Output")]
    fields: Vec<String>,
    #[command(flatten, next_help_heading = "Output")]
    formats: Formats,
    /// No header above tables and CSV
    #[arg(long, visible_alias = "no-headers", help_heading = "Output")]
    no_header: bool,
}

/// The keys of rows.
pub const KEYS: [RowKey; 7] = [
    key("name", Kind::Text, "The name, everywhere."),
    key("group", Kind::Text, "The group: fields that are read together."),
    key("kind", Kind::Text, "The kind of the values, with their unit."),
    key(
        "origin",
        Kind::Text,
        "Where /proc/PID has the value as text, or the fields that it is derived from.",
    ),
    key(
        "since",
        Kind::Text,
        "The first kernel version that has it there; absent if all supported kernels do.",
    ),
    key(
        "access",
        Kind::Text,
        "The right needed to see it for another user's task; absent if none.",
    ),
    key("meaning", Kind::Text, "What it means."),
];

/// The columns of the table without `-o`: name, group, kind and meaning.
const USUAL: [usize; 4] = [0, 1, 2, 6];

/// Runs the command.
pub fn run(args: Args) -> Result<Outcome, Failure> {
    if args.markdown {
        let mut output = Output::new();
        as_markdown(output.buffer())?;
        output.finish()?;
        return Ok(Outcome::Complete);
    }
    let chosen = named::chosen(&args.fields, &KEYS)?;
    let sort = named::sort_keys(&args.sort, &KEYS)?;
    let mut fields = Field::ALL.to_vec();
    fields.sort_by(|a, b| named::compare(&sort, a, b, cell));
    fields.truncate(args.limit.unwrap_or(usize::MAX));
    let header = !args.no_header;
    match args.formats.format() {
        Format::Table if args.fields.is_empty() => write_table(&fields, header)?,
        Format::Table => {
            let shown = chosen.keys(&USUAL);
            let keys: Vec<RowKey> = shown.iter().map(|&index| KEYS[index]).collect();
            let rows = fields
                .iter()
                .map(|field| shown.iter().map(|&index| cell(field, index)).collect());
            named::write_table(&keys, rows, false, header)?;
        }
        Format::Machine(machine) => {
            let shown = chosen.keys(&(0..KEYS.len()).collect::<Vec<usize>>());
            let keys = shown.iter().map(|&index| KEYS[index].name).collect();
            let mut rows = Rows::begin(machine, &Head::new("fields", Vec::new(), []), keys, header);
            for field in &fields {
                let cells: Vec<Cell<'_>> = shown.iter().map(|&index| cell(field, index)).collect();
                rows.row(&cells)?;
            }
            rows.finish()?;
        }
    }
    Ok(Outcome::Complete)
}

/// The value of a field under one of [`KEYS`].
fn cell(field: &Field, index: usize) -> Cell<'_> {
    let info = field.info();
    let parts = [
        info.name,
        info.group.name(),
        info.kind.as_str(),
        origin(*field),
        info.since,
        access(*field),
        info.meaning,
    ];
    match parts[index] {
        "" => Err("none"),
        text => Ok(Value::Text(text.as_bytes())),
    }
}

/// The privilege needed to see the field of another user's task in `/proc`: none, `trace` (the
/// right to trace the task), or `nice` (`CAP_SYS_NICE`).
fn access(field: Field) -> &'static str {
    const TRACE: Files = Files::NS
        .union(Files::IO)
        .union(Files::ENVIRON)
        .union(Files::PERSONALITY)
        .union(Files::EXE)
        .union(Files::CWD)
        .union(Files::ROOT)
        .union(Files::SMAPS_ROLLUP);
    let files = files_of(field);
    if TRACE.contains(files) && !files.is_empty() || field.info().kind == Kind::Address {
        "trace"
    } else if files == Files::TIMERSLACK_NS {
        "nice"
    } else {
        ""
    }
}

/// Where `/proc` has a field, or what the field is derived from.
fn origin(field: Field) -> &'static str {
    static MADE_OF: LazyLock<Vec<String>> = LazyLock::new(|| {
        let names = |field: &Field| {
            field
                .info()
                .made_of
                .iter()
                .map(|field| field.name())
                .collect::<Vec<_>>()
        };
        Field::ALL
            .iter()
            .map(|field| format!("from {}", names(field).join(", ")))
            .collect()
    });
    match field.info().made_of {
        [] => field.info().origin,
        _ => &MADE_OF[field as usize],
    }
}

/// The table for people. Long meanings continue on the next line.
fn write_table(fields: &[Field], header: bool) -> std::io::Result<()> {
    let mut table = Table::new(USUAL.map(|_| Align::Left), fields.len()).wrapping();
    if header {
        table.headings(["NAME", "GROUP", "KIND", "MEANING"]);
    }
    for field in fields {
        for index in USUAL {
            table.cell(|out| match cell(field, index) {
                Ok(Value::Text(text)) => out.extend_from_slice(text),
                _ => out.push(b'-'),
            });
        }
    }
    let mut output = Output::new();
    table.write(&mut output, terminal_width())?;
    output.finish()
}

/// The introduction of `docs/fields.md`.
const INTRODUCTION: &str = "\
<!-- Made by `taskdiag fields --markdown`; change crates/taskdiag-core/src/field/table.rs instead. -->

# Fields

All values that taskdiag can show. Each has the same name everywhere: in `-o` and `--sort`, as key
of JSON rows, as method of `Task` in the library, in filters ([filters.md](filters.md)). The name
ends in the unit: `_bytes`, `_ns`, `_count`.

- *In /proc/PID*: where the kernel has the value as text. Derived fields have *made of* instead: the
  fields that their values are derived from, which are read for them.
- *Since*: the first kernel version that has it there; empty if all supported kernels have it.
- *Access*: the right needed to see the value for another user's task. `trace` is the right to trace
  the task (the same user, or `CAP_SYS_PTRACE`), `nice` is `CAP_SYS_NICE`. Empty means that no right
  is needed, unless `/proc` is mounted with `hidepid`. Before Linux 6.2, `fd_count` also needs the
  right to trace.

`-o` takes the name of a group for all of its fields, and `all` for every cheap field. These fields
are not cheap, and must be named:

- the group `rollup`, which takes longer the more memory a process has ([memory.md](memory.md));
- the group `text`, which only `/proc` has, in separate files for each task;
- `environ`, which is in the memory of processes, is large, and may hold secrets;
- `user` and `group`, for which the user database of this host may ask the network;
- `container_name` and `container_runtime`, which may need files of container runtimes.

If a field and a group have the same name, the name means the field. The fields of a group cost
about the same and are read together. A group without chosen fields is not read.

If a derived field depends on an absent field, it is absent for the same reason. For a task without
a terminal, unit, container or pod, the value is an empty text, which filters can compare:
`container_id == ''`.

A command line or an environment of more than 8 MiB is absent as `truncated`. Once an answer has
128 MiB of values from `/proc`, so are those of more than 32 KiB: the processes of one user can not
fill the memory of the caller.

A separate thread looks up each name of a user, group or container once, and again after five
minutes. An answer waits ten times as long for names as for a process: 2 seconds, unless
`--patience` is given. A name that is still missing then is absent as `no answer`, and appears in a
later answer.

Units, containers and pods are found by the names of cgroups, no matter who created the cgroups. If
version 1 hierarchies are in use, the unified hierarchy is asked first, then systemd's own, then the
others: the first path that names a unit, a slice, a container or a pod decides. For that, `cgroup`
of each process is read from `/proc`, also where BPF programs answer the rest.

A process whose first thread has ended while others live is in state `Z`, as in `/proc`, and its
`threads_count` is above 1. What the threads share is then that of one that lives: memory, arguments
and environment, addresses, paths, open files and namespaces. The files of the process in `/proc` are
those of the first thread, and have nothing of this.
";

/// The introduction of the list of the kernel's values.
const VALUES: &str = "
# The values of /proc/PID

Every value of `stat`, `status` and other files: the field that has it, or why no field has it.

| file | value | field |
|---|---|---|
";

fn values(out: &mut Vec<u8>) -> std::io::Result<()> {
    out.extend_from_slice(VALUES.as_bytes());
    for (file, value, coverage) in proc_values::all() {
        write!(out, "| {file} | {value} | ")?;
        let fields = match coverage {
            Coverage::Named => proc_values::named(file, value),
            Coverage::By(fields) => fields.to_vec(),
            Coverage::Nowhere(reason) => {
                writeln!(out, "none: {reason} |")?;
                continue;
            }
        };
        let names: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
        writeln!(out, "{} |", names.join(", "))?;
    }
    Ok(())
}

fn as_markdown(out: &mut Vec<u8>) -> std::io::Result<()> {
    out.extend_from_slice(INTRODUCTION.as_bytes());
    for group in Group::ALL {
        write!(out, "\n## {}\n\n", group.name())?;
        let place = if group == Group::Derived {
            "made of"
        } else {
            "in /proc/PID"
        };
        writeln!(
            out,
            "| name | values | {place} | since | access | meaning |\n|---|---|---|---|---|---|"
        )?;
        for &field in Field::ALL.iter().filter(|field| field.group() == group) {
            let info = field.info();
            write!(out, "| `{}` |", info.name)?;
            let place = match info.made_of {
                [] => info.origin.to_owned(),
                fields => fields
                    .iter()
                    .map(|field| format!("`{field}`"))
                    .collect::<Vec<_>>()
                    .join(", "),
            };
            for part in [info.kind.as_str(), &place, info.since, access(field), info.meaning] {
                match part {
                    "" => out.extend_from_slice(b" |"),
                    part => write!(out, " {} |", part.replace('|', "\\|"))?,
                }
            }
            out.push(b'\n');
        }
    }
    values(out)
}
