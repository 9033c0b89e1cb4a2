//! Rows of mappings.

use taskdiag::maps::{MapField, Row as MapRow};
use taskdiag::{Absent, Value};

use super::Args;
use crate::output::cell::formatted;
use crate::output::listing::{CompositeCell, DefaultColumns, ListingColumn};
use crate::output::relation::{columns_of, Cell, ColumnInfo, Row};
use crate::output::table::Align;

/// The columns of rows: [`MapField::ALL`].
pub const RELATION: [ColumnInfo; MapField::ALL.len()] = {
    let mut columns = columns_of!(MapField::ALL);
    // An anonymous mapping has no name.
    columns[NAME].empty = "";
    columns
};

// The indexes of columns.
const PID: usize = MapField::Pid as usize;
const START: usize = MapField::Start as usize;
const END: usize = MapField::End as usize;
pub const SIZE: usize = MapField::SizeBytes as usize;
const PERMS: usize = MapField::Perms as usize;
const OFFSET: usize = MapField::OffsetBytes as usize;
const MAJOR: usize = MapField::DevMajor as usize;
const MINOR: usize = MapField::DevMinor as usize;
const INODE: usize = MapField::Inode as usize;
pub const NAME: usize = MapField::Name as usize;
pub const BUILD_ID: usize = MapField::BuildId as usize;
pub const GO_BUILD_ID: usize = MapField::GoBuildId as usize;
pub const PAGE_SIZE: usize = MapField::PageSizeBytes as usize;
pub const RSS: usize = MapField::RssBytes as usize;
pub const DIRTY: usize = MapField::DirtyBytes as usize;
pub const HUGETLB: usize = MapField::HugetlbBytes as usize;

impl Row for MapRow<'_> {
    fn cell(&self, column: usize) -> Cell<'_> {
        self.value(MapField::ALL[column]).map_err(Absent::as_str)
    }
}

/// The column of a table for a column that `-o` names.
pub fn shown(column: usize) -> ListingColumn {
    match column {
        OFFSET => ListingColumn::made(RELATION[OFFSET].name, &HEX_OFFSET),
        column => ListingColumn::column(RELATION[column].name, column),
    }
}

/// The offset in the file, in hexadecimal like the addresses.
static HEX_OFFSET: CompositeCell = CompositeCell {
    align: Align::Right,
    needs: &[OFFSET],
    write: |out, row, _| match row.cell(OFFSET) {
        Ok(Value::Unsigned(offset)) => formatted(out, format_args!("{offset:#x}")),
        _ => out.push(b'-'),
    },
};

/// Both numbers of the device.
static DEVICE: CompositeCell = CompositeCell {
    align: Align::Right,
    needs: &[MAJOR, MINOR],
    write: |out, row, _| {
        if let (Ok(major), Ok(minor)) = (row.cell(MAJOR), row.cell(MINOR)) {
            formatted(out, format_args!("{major}:{minor}"));
        }
    },
};

/// What is shown without `-o`.
pub fn usual(args: &Args) -> DefaultColumns {
    let mut rows = vec![PID, START, END, PERMS, OFFSET, MAJOR, MINOR, INODE, NAME];
    rows.extend(args.build_id.then_some(BUILD_ID));
    rows.push(PAGE_SIZE);
    let column = ListingColumn::column;
    let mut table = Vec::new();
    if args.named.len() != 1 {
        table.push(column("PID", PID));
    }
    table.extend([column("START", START), column("END", END), column("SIZE", SIZE)]);
    if args.usage {
        rows.extend([RSS, DIRTY, HUGETLB]);
        table.extend([column("RSS", RSS), column("DIRTY", DIRTY), column("HUGETLB", HUGETLB)]);
    }
    table.extend([
        column("PERMS", PERMS),
        ListingColumn::made("OFFSET", &HEX_OFFSET),
        ListingColumn::made("DEV", &DEVICE),
        column("INODE", INODE),
    ]);
    if args.build_id {
        table.push(column("BUILD-ID", BUILD_ID));
    }
    table.push(column("NAME", NAME));
    DefaultColumns { table, rows }
}
