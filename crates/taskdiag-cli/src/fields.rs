//! `taskdiag fields`.

use std::io::Write;
use std::sync::LazyLock;

use clap::Args as ClapArgs;
use taskdiag::{Field, Group};
use taskdiag_core::proc_values;

use crate::choice::OrderOptions;
use crate::listing::Formats;
use crate::outcome::{print, Failure, Outcome};
use crate::output::cell::Cells;
use crate::output::document::Head;
use crate::output::listing::{DefaultColumns, Form, Layout, Listing, ListingColumn};
use crate::output::relation::{columns, text_or_none, Cell, ColumnInfo, Row};
use crate::ps::specifiers::{self, Specifier};

/// List all fields: their names, groups, units, and where /proc has them
///
/// In the order of `-o all`. Other rows have theirs: `taskdiag schema sockets`, files, maps, cache.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Only fields of this group, whose name or meaning has a word that begins so, or that ps(1) has by
    /// this name
    #[arg(value_name = "WORD")]
    word: Option<String>,
    /// Print Markdown, as in docs/fields.md
    #[arg(long, conflicts_with_all = ["word", "json", "jsonl", "csv", "fields", "sort", "limit"])]
    markdown: bool,
    #[command(flatten)]
    order: OrderOptions,
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

/// The columns of rows.
pub const RELATION: [ColumnInfo; 7] = columns! {
    "name": Text, "The name, everywhere.";
    "group": Text, "The group: fields that are read together.";
    "kind": Text, "The kind of the values, with their unit.";
    "origin": Text, "Where /proc/PID has the value as text, or the fields that it is derived from.";
    "since": Text, "The first kernel version that has it there; absent if all supported kernels do.";
    "access": Text, "The right needed to see it for another user's task; absent if none.";
    "meaning": Text, "What it means.";
};

/// Words that people look for, and what they are in the meanings.
const IN_MEANINGS: [(&str, &str); 6] = [
    ("disk", "storage"),
    ("owner", "user"),
    ("ram", "memory"),
    ("service", "unit"),
    ("status", "state"),
    ("uptime", "elapsed"),
];

pub fn run(args: Args) -> Result<Outcome, Failure> {
    if args.markdown {
        let mut text = Vec::new();
        as_markdown(&mut text)?;
        return print(text);
    }
    let word = args.word.unwrap_or_default();
    let lower = word.to_lowercase();
    let in_meanings = IN_MEANINGS.iter().find(|(said, _)| *said == lower);
    let lower = in_meanings.map_or(lower, |(_, meant)| (*meant).to_owned());
    let of_ps = Specifier::named(&lower).map_or(&[][..], |specifier| specifier.stands_for);
    let has_word = |text: &str| {
        let text = text.to_lowercase();
        let mut found = text.match_indices(&lower);
        found.any(|(at, _)| !text[..at].ends_with(char::is_alphanumeric))
    };
    let is_meant = |field: &Field| {
        let info = field.info();
        let is_listed = info.group.name() == lower || of_ps.contains(field);
        is_listed || has_word(info.name) || has_word(info.meaning)
    };
    let fields: Vec<Field> = Field::ALL.iter().copied().filter(is_meant).collect();
    if fields.is_empty() {
        let of_ps = specifiers::field_of(&lower).and_then(Result::err);
        let wrong = of_ps.unwrap_or_else(|| specifiers::unknown(&word).to_string());
        let others = "`taskdiag schema sockets` has those of sockets; the same with files, maps, cache";
        return Err(format!("{wrong}\n`taskdiag fields` lists all; {others}").into());
    }
    let of = |column: usize| ListingColumn::column(RELATION[column].name, column);
    let headings = [("NAME", 0), ("GROUP", 1), ("KIND", 2), ("MEANING", 6)];
    let table = headings.map(|(heading, column)| match args.fields.as_slice() {
        [] => ListingColumn::column(heading, column),
        _ => of(column),
    });
    let usual = DefaultColumns {
        table: table.to_vec(),
        rows: (0..RELATION.len()).collect(),
    };
    let layout = Layout::new(&RELATION, &args.fields, &args.order, usual, of)?;
    let form = Form::new(args.formats.format(), Cells::new(false, false), !args.no_header);
    let mut listing = Listing::begin(&layout, form, &Head::new("fields", Vec::new(), []));
    if args.fields.is_empty() {
        listing.wrap();
    }
    for field in fields {
        if listing.row(&FieldRow(field)).is_break() {
            break;
        }
    }
    listing.finish(|_| {})?;
    Ok(Outcome::Complete)
}

struct FieldRow(Field);

impl Row for FieldRow {
    fn cell(&self, column: usize) -> Cell<'_> {
        let info = self.0.info();
        let parts = [
            info.name,
            info.group.name(),
            info.kind.as_str(),
            origin(self.0),
            info.since,
            self.0.right(),
            info.meaning,
        ];
        text_or_none(parts[column])
    }
}

/// Where `/proc` has a field, or what the field is derived from.
fn origin(field: Field) -> &'static str {
    static MADE_OF: LazyLock<Vec<String>> = LazyLock::new(|| {
        let made_of = |field: &Field| {
            let names: Vec<&str> = field.info().made_of.iter().map(|field| field.name()).collect();
            format!("from {}", names.join(", "))
        };
        Field::ALL.iter().map(made_of).collect()
    });
    match field.info().made_of {
        [] => field.info().origin,
        _ => &MADE_OF[field as usize],
    }
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
fill the memory of the caller. `ps` and `tree` read these processes again, one by one.

A separate thread looks up each name of a user, group or container once, and again after five
minutes. An answer waits ten times as long for names as for a process: 2 seconds, unless
`--patience` is given. A name that is still missing then is absent as `no answer`, and appears in a
later answer.

Units, containers and pods are found by the names of cgroups, no matter who created the cgroups. If
version 1 hierarchies are in use, the unified hierarchy is asked first, then systemd's own, then the
others: the first path that names a unit, a slice, a container or a pod decides. For that, `cgroup`
of each process is read from `/proc`, also where BPF programs answer the rest.

A process whose first thread has ended while others live is in state `Z`, as in `/proc`, and its
`threads_count` is above 1. What the threads share is then that of one that lives, if possible one
that the reader may trace: memory, arguments and environment, addresses, paths, open files and
namespaces. The files of the process in `/proc` are those of the first thread, and have nothing of
this. Its cgroup, and so unit and container, is that of the first thread, as in `/proc/PID/cgroup`:
where it was when it ended. The kernel moves only living threads to another cgroup; `ps -L` has the
cgroup of each.
";

/// The introduction of the list of the kernel's values.
const VALUES: &str = "
# The values of /proc/PID

Every value of `stat`, `status` and other files: the field that has it, or why no field has it.

| file | value | field |
|---|---|---|
";

/// The names of fields in Markdown.
fn quoted(fields: &[Field]) -> String {
    let names: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
    names.join(", ")
}

fn values(out: &mut Vec<u8>) -> std::io::Result<()> {
    out.extend_from_slice(VALUES.as_bytes());
    for (file, value, coverage) in proc_values::all() {
        let fields = match coverage {
            Ok(fields) => quoted(&fields),
            Err(reason) => format!("none: {reason}"),
        };
        writeln!(out, "| {file} | {value} | {fields} |")?;
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
                fields => quoted(fields),
            };
            for part in [info.kind.as_str(), &place, info.since, field.right(), info.meaning] {
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
