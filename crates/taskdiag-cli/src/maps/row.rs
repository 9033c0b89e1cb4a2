//! Rows of mappings, for people and for programs.

use std::io;

use taskdiag::maps::{BuildId, Mapping};
use taskdiag::{Absent, Kind, Known, Value};

use super::Args;
use crate::choice::Chosen;
use crate::listing::Machine;
use crate::output::document::Head;
use crate::output::named::{key, write_value, Cell, RowKey, Rows};
use crate::output::table::{terminal_width, Align, Table};
use crate::output::{cell, Output};

/// What rows have.
pub const KEYS: [RowKey; 14] = [
    key("pid", Kind::Id, "The process."),
    key("start", Kind::Address, "The first address."),
    key("end", Kind::Address, "The first address behind it."),
    key("size_bytes", Kind::Bytes, "Its length."),
    key(
        "perms",
        Kind::Text,
        "Permissions as /proc/PID/maps has them: r, w, x, and p (private) or s (shared).",
    ),
    key("offset_bytes", Kind::Bytes, "Where it begins in its file."),
    key(
        "dev_major",
        Kind::Id,
        "Major number of the device of its file; 0 without a file.",
    ),
    key("dev_minor", Kind::Id, "Minor number of that device."),
    key("inode", Kind::Id, "Inode number of its file; 0 without a file."),
    key(
        "name",
        Kind::Text,
        "The kernel's own text: a path, with \" (deleted)\" if it is gone, or a word in brackets.",
    ),
    key(
        "build_id",
        Kind::Text,
        "Build id of its file, in hexadecimal. With --build-id.",
    ),
    key("page_size_bytes", Kind::Bytes, "Size of its pages."),
    key("rss_bytes", Kind::Bytes, "What of it is in memory. With -x."),
    key("dirty_bytes", Kind::Bytes, "What of that is dirty. With -x."),
];

const PID: usize = 0;
const START: usize = 1;
const END: usize = 2;
const SIZE: usize = 3;
const PERMS: usize = 4;
const OFFSET: usize = 5;
const MAJOR: usize = 6;
const MINOR: usize = 7;
const INODE: usize = 8;
const NAME: usize = 9;
/// The index of the build id among [`KEYS`].
pub const BUILD_ID: usize = 10;
/// The index of the page size.
pub const PAGE_SIZE: usize = 11;
/// The index of the resident size.
pub const RSS: usize = 12;
/// The index of the dirty size.
pub const DIRTY: usize = 13;

/// The keys for programs without `-o`.
pub fn usual_keys(args: &Args) -> Vec<usize> {
    let mut keys = vec![PID, START, END, PERMS, OFFSET, MAJOR, MINOR, INODE, NAME];
    keys.extend(args.build_id.then_some(BUILD_ID));
    keys.push(PAGE_SIZE);
    if args.usage {
        keys.extend([RSS, DIRTY]);
    }
    keys
}

/// A mapping of a process.
pub struct Row<'a> {
    pid: u32,
    mapping: Mapping<'a>,
    perms: String,
    build_id: String,
}

impl<'a> Row<'a> {
    /// A row.
    pub fn new(pid: u32, mapping: Mapping<'a>) -> Row<'a> {
        Row {
            pid,
            perms: mapping.perms.to_string(),
            build_id: match mapping.build_id {
                Ok(Some(id)) => id.to_string(),
                _ => String::new(),
            },
            mapping,
        }
    }

    /// The value under one of [`KEYS`].
    pub fn cell(&self, key: usize) -> Cell<'_> {
        let mapping = &self.mapping;
        let number = |number: u64| Ok(Value::Unsigned(number));
        let known = |value: Known<u64>| value.map(Value::Unsigned).map_err(Absent::as_str);
        match key {
            PID => number(self.pid.into()),
            START => Ok(Value::Mask(mapping.start)),
            END => Ok(Value::Mask(mapping.end)),
            SIZE => number(mapping.end - mapping.start),
            PERMS => Ok(Value::Text(self.perms.as_bytes())),
            OFFSET => number(mapping.offset_bytes),
            MAJOR => number(mapping.device.major.into()),
            MINOR => number(mapping.device.minor.into()),
            INODE => number(mapping.inode),
            NAME => mapping.name.map(Value::Text).map_err(Absent::as_str),
            BUILD_ID => build_id_cell(mapping.build_id, &self.build_id),
            PAGE_SIZE => known(mapping.page_size_bytes),
            RSS => known(mapping.usage.map(|usage| usage.rss_bytes)),
            _ => known(mapping.usage.map(|usage| usage.dirty_bytes)),
        }
    }
}

/// A build id, of which `written` is the text.
pub fn build_id_cell(id: Known<Option<BuildId>>, written: &str) -> Cell<'_> {
    match id {
        Ok(Some(_)) => Ok(Value::Text(written.as_bytes())),
        Ok(None) => Err("none"),
        Err(reason) => Err(reason.as_str()),
    }
}

/// Writes rows for programs.
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
        let cells: Vec<Cell<'_>> = keys.iter().map(|&key| row.cell(key)).collect();
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
        columns.extend([column("RSS", RSS), column("DIRTY", DIRTY)]);
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
                    let device = row.mapping.device;
                    cell::formatted(out, format_args!("{}:{}", device.major, device.minor));
                }
                Show::Key(OFFSET) => cell::formatted(out, format_args!("{:#x}", row.mapping.offset_bytes)),
                // An anonymous mapping has no name.
                Show::Key(NAME) if row.mapping.name == Ok(b"") => {}
                Show::Key(key) => write_value(out, &KEYS[key], row.cell(key), args.output.bytes),
            });
        }
    }
    let mut output = Output::new();
    table.write(&mut output, terminal_width())?;
    output.finish()
}
