//! Rows of mappings, for people and in machine-readable output.

use std::io;

use taskdiag::maps::{BuildId, MapField, Row};
use taskdiag::{Absent, Kind, Known, Value};

use super::Args;
use crate::choice::Chosen;
use crate::listing::Machine;
use crate::output::document::Head;
use crate::output::named::{keys_of, write_value, RowKey, Rows};
use crate::output::table::{terminal_width, Align, Table};
use crate::output::Cell;
use crate::output::{cell, Output};

/// The keys of rows: [`MapField::ALL`].
pub const KEYS: [RowKey; MapField::ALL.len()] = keys_of!(MapField);

const PID: usize = MapField::Pid as usize;
const START: usize = MapField::Start as usize;
const END: usize = MapField::End as usize;
const SIZE: usize = MapField::SizeBytes as usize;
const PERMS: usize = MapField::Perms as usize;
const OFFSET: usize = MapField::OffsetBytes as usize;
const MAJOR: usize = MapField::DevMajor as usize;
const MINOR: usize = MapField::DevMinor as usize;
const INODE: usize = MapField::Inode as usize;
const NAME: usize = MapField::Name as usize;
/// The index of the build id among [`KEYS`].
pub const BUILD_ID: usize = MapField::BuildId as usize;
/// The index of the build id of Go.
pub const GO_BUILD_ID: usize = MapField::GoBuildId as usize;
/// The index of the page size.
pub const PAGE_SIZE: usize = MapField::PageSizeBytes as usize;
/// The index of the resident size.
pub const RSS: usize = MapField::RssBytes as usize;
/// The index of the dirty size.
pub const DIRTY: usize = MapField::DirtyBytes as usize;
/// The index of the resident size of huge pages.
pub const HUGETLB: usize = MapField::HugetlbBytes as usize;

/// The keys of machine-readable output without `-o`.
pub fn usual_keys(args: &Args) -> Vec<usize> {
    let mut keys = vec![PID, START, END, PERMS, OFFSET, MAJOR, MINOR, INODE, NAME];
    keys.extend(args.build_id.then_some(BUILD_ID));
    keys.push(PAGE_SIZE);
    if args.usage {
        keys.extend([RSS, DIRTY, HUGETLB]);
    }
    keys
}

/// The value under one of [`KEYS`].
pub fn found<'a>(row: &'a Row<'_>, key: usize) -> Cell<'a> {
    row.value(MapField::ALL[key]).map_err(Absent::as_str)?.ok_or("none")
}

/// A build id, whose text is `written`.
pub fn build_id_cell(id: Known<Option<BuildId>>, written: &str) -> Cell<'_> {
    match id {
        Ok(Some(_)) => Ok(Value::Text(written.as_bytes())),
        Ok(None) => Err("none"),
        Err(reason) => Err(reason.as_str()),
    }
}

/// Writes rows in machine-readable output.
pub fn write_machine<'a>(
    machine: Machine,
    head: &Head<'_>,
    keys: &[usize],
    rows: impl Iterator<Item = Row<'a>>,
    header: bool,
) -> io::Result<()> {
    let names = keys.iter().map(|&key| KEYS[key].name).collect();
    let mut output = Rows::begin(machine, head, names, header);
    for row in rows {
        let cells: Vec<Cell<'_>> = keys.iter().map(|&key| found(&row, key)).collect();
        output.row(&cells)?;
    }
    output.finish()
}

/// A column of the table.
#[derive(Clone, Copy)]
struct MapColumn {
    heading: &'static str,
    show: Show,
}

#[derive(Clone, Copy)]
enum Show {
    Key(usize),
    /// Both numbers of the device.
    Device,
}

impl MapColumn {
    fn of(key: usize) -> MapColumn {
        MapColumn {
            heading: KEYS[key].name,
            show: Show::Key(key),
        }
    }

    fn align(&self) -> Align {
        match self.show {
            Show::Key(key) if KEYS[key].kind == Kind::Text => Align::Left,
            _ => Align::Right,
        }
    }
}

/// The table without `-o`.
fn usual_columns(args: &Args) -> Vec<MapColumn> {
    let column = |heading, key| MapColumn {
        heading,
        show: Show::Key(key),
    };
    let mut columns = Vec::new();
    if args.named.len() != 1 {
        columns.push(column("PID", PID));
    }
    columns.extend([column("START", START), column("END", END), column("SIZE", SIZE)]);
    if args.usage {
        columns.extend([column("RSS", RSS), column("DIRTY", DIRTY), column("HUGETLB", HUGETLB)]);
    }
    columns.extend([column("PERMS", PERMS), column("OFFSET", OFFSET)]);
    columns.push(MapColumn {
        heading: "DEV",
        show: Show::Device,
    });
    columns.push(column("INODE", INODE));
    if args.build_id {
        columns.push(column("BUILD-ID", BUILD_ID));
    }
    columns.push(column("NAME", NAME));
    columns
}

/// Writes the table for people.
pub fn write_table<'a>(args: &Args, chosen: &Chosen<usize>, rows: impl Iterator<Item = Row<'a>>) -> io::Result<()> {
    let columns = chosen.columns(usual_columns(args), MapColumn::of);
    let mut table = Table::new(columns.iter().map(MapColumn::align), 0);
    if !args.output.no_header {
        table.headings(columns.iter().map(|column| column.heading));
    }
    for row in rows {
        for column in &columns {
            table.cell(|out| match column.show {
                Show::Device => {
                    if let (Ok(major), Ok(minor)) = (found(&row, MAJOR), found(&row, MINOR)) {
                        cell::formatted(out, format_args!("{major}:{minor}"));
                    }
                }
                Show::Key(key) => match (key, found(&row, key)) {
                    (OFFSET, Ok(Value::Unsigned(offset))) => cell::formatted(out, format_args!("{offset:#x}")),
                    // An anonymous mapping has no name.
                    (NAME, Ok(Value::Text(b""))) => {}
                    (_, found) => write_value(out, &KEYS[key], found, args.output.bytes),
                },
            });
        }
    }
    let mut output = Output::new();
    table.write(&mut output, terminal_width())?;
    output.finish()
}
