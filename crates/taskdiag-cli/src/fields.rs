//! `taskdiag fields`.

use std::io::Write;

use clap::Args as ClapArgs;
use taskdiag::{Field, Group};
use taskdiag_core::field::Info;
use taskdiag_core::proc_values::{self, Coverage};

use crate::outcome::{Failure, Outcome};
use crate::output::table::{Align, Table};
use crate::output::{json, Output};

/// List all fields: their names, groups, units, and where /proc has them
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// As a JSON document
    #[arg(long)]
    json: bool,
    /// As Markdown: what `docs/fields.md` is made with
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Result<Outcome, Failure> {
    let mut output = Output::new();
    match args {
        Args { json: true, .. } => as_json(output.buffer()),
        Args { markdown: true, .. } => as_markdown(output.buffer())?,
        _ => as_table(&mut output)?,
    }
    output.finish()?;
    Ok(Outcome::Complete)
}

/// The parts of a field's description, with their names.
fn parts(info: &Info) -> [(&'static str, &'static str); 7] {
    [
        ("name", info.name),
        ("group", info.group.name()),
        ("kind", info.kind.as_str()),
        ("origin", info.origin),
        ("since", info.since),
        ("access", info.access()),
        ("meaning", info.meaning),
    ]
}

fn as_table(output: &mut Output) -> std::io::Result<()> {
    let headings = ["NAME", "GROUP", "KIND", "IN /PROC/PID", "SINCE", "ACCESS", "MEANING"];
    let mut table = Table::new(headings.map(|_| Align::Left), Field::ALL.len());
    for heading in headings {
        table.cell(|out| out.extend_from_slice(heading.as_bytes()));
    }
    for field in Field::ALL {
        for (_, part) in parts(field.info()) {
            let part = if part.is_empty() { "-" } else { part };
            table.cell(|out| out.extend_from_slice(part.as_bytes()));
        }
    }
    table.write(output, None)
}

fn as_json(out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"schema\":1,\"command\":\"fields\",\"sources\":{},\"counters\":{},\"rows\":[");
    for (index, field) in Field::ALL.iter().enumerate() {
        out.extend_from_slice(if index > 0 { b",\n" } else { b"\n" });
        let parts = parts(field.info()).into_iter().filter(|(_, part)| !part.is_empty());
        json::object(out, parts, |(name, part)| {
            (name, move |out: &mut Vec<u8>| json::string(out, part))
        });
    }
    out.extend_from_slice(b"\n]}\n");
}

/// What stands above the tables of `docs/fields.md`.
const INTRODUCTION: &str = "\
<!-- Made by `taskdiag fields --markdown`; change crates/taskdiag-core/src/field.rs instead. -->

# Fields

Every value that taskdiag knows. The names are the same everywhere: in `-o` and `--sort`, as the keys of JSON rows, as methods
of `Task` in the library. A unit is in the name: `_bytes`, `_ns`, `_count`.

- *In /proc/PID*: where the kernel has the value as text.
- *Since*: the first kernel that has it there; empty for kernels older than any that taskdiag supports.
- *Access*: what it takes to see the value of somebody else's task there: `trace` is the right to trace it (the same user, or
  `CAP_SYS_PTRACE`), `nice` is `CAP_SYS_NICE`; empty is nothing, unless `/proc` is mounted with `hidepid`. Before 6.2
  `fd_count` takes the right to trace, too.

`-o` takes the name of a group for all of its fields, and `all` for all there are but those of group `rollup`, which cost more the
more memory a process has and have to be named ([memory.md](memory.md)). A field comes before a group of the same name. Fields of a
group cost about the same and are read together: what no chosen field belongs to is not read.
";

/// What stands above the list of the kernel's values.
const VALUES: &str = "
# The values of /proc/PID

Every value of `stat`, `status` and other files, with the field that it is, or why it is none.

| file | value | field |
|---|---|---|
";

fn values(out: &mut Vec<u8>) -> std::io::Result<()> {
    out.extend_from_slice(VALUES.as_bytes());
    let named = |file: &'static str| move |&(value, told): &(&'static str, Coverage)| (file, value, told);
    let stat = proc_values::STAT.iter().map(named("stat"));
    let status = proc_values::STATUS.iter().map(named("status"));
    for (file, value, told) in stat.chain(status).chain(proc_values::FILES.iter().copied()) {
        write!(out, "| {file} | {value} | ")?;
        match told {
            Coverage::By(fields) => {
                let names: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
                write!(out, "{}", names.join(", "))?;
            }
            Coverage::Nowhere(reason) => write!(out, "none: {reason}")?,
        }
        out.extend_from_slice(b" |\n");
    }
    Ok(())
}

fn as_markdown(out: &mut Vec<u8>) -> std::io::Result<()> {
    out.extend_from_slice(INTRODUCTION.as_bytes());
    for group in Group::ALL {
        write!(out, "\n## {}\n\n", group.name())?;
        out.extend_from_slice(
            b"| name | values | in /proc/PID | since | access | meaning |\n|---|---|---|---|---|---|\n",
        );
        for info in Field::ALL
            .iter()
            .map(|field| field.info())
            .filter(|info| info.group == group)
        {
            write!(out, "| `{}` |", info.name)?;
            for part in [info.kind.as_str(), info.origin, info.since, info.access(), info.meaning] {
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
