//! One listing for the rows of all relations: which columns, in which order, how many, and in which
//! form.

use std::io;
use std::ops::ControlFlow;

use taskdiag::{Field, Kind};

use super::cell::{is_number, Cells};
use super::document::Head;
use super::format::{Format, OutputOptions};
use super::owned::{sorted, OwnedRow};
use super::relation::{Absences, ColumnInfo, Row};
use super::rows::{RowOptions, Rows};
use super::table::{terminal_width, Align, Table};
use super::terminal::Style;
use super::Output;
use crate::choice::{unknown, Chosen, OrderOptions, SortBy};
use crate::outcome::Failure;
use crate::ps::specifiers::field_of;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct ListingColumn {
    /// The heading: the column's name with `-o`, otherwise a word in capitals.
    pub heading: &'static str,
    /// What is under it.
    pub content: Content,
    /// The minimum width, for tables that are written before all rows are known.
    pub width: usize,
    /// The style of a cell, by its text.
    pub style: fn(&[u8]) -> Style,
    /// Whether long text loses its beginning: the end of an address is its port.
    pub keeps_end: bool,
}

impl PartialEq for ListingColumn {
    fn eq(&self, other: &ListingColumn) -> bool {
        (self.heading, self.content) == (other.heading, other.content)
    }
}

/// The content of a column of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Content {
    /// A column of the relation.
    Column(usize),
    /// Something that is made of several columns.
    Composite(&'static CompositeCell),
}

/// Something that is made of several columns.
#[derive(Debug)]
pub struct CompositeCell {
    /// The side on which it is aligned.
    pub align: Align,
    /// The columns of the relation that it needs.
    pub needs: &'static [usize],
    /// Appends the cell.
    pub write: fn(&mut Vec<u8>, &dyn Row, &mut Cells),
}

impl PartialEq for CompositeCell {
    fn eq(&self, other: &CompositeCell) -> bool {
        std::ptr::eq(self, other)
    }
}

impl ListingColumn {
    /// A column with this heading.
    pub const fn new(heading: &'static str, content: Content) -> ListingColumn {
        ListingColumn {
            heading,
            content,
            width: 0,
            style: |_| Style::Plain,
            keeps_end: false,
        }
    }

    /// The same, of which the end is kept.
    pub const fn keeping_end(self) -> ListingColumn {
        ListingColumn {
            keeps_end: true,
            ..self
        }
    }

    /// A column of the relation under another heading.
    pub const fn column(heading: &'static str, column: usize) -> ListingColumn {
        ListingColumn::new(heading, Content::Column(column))
    }

    /// Something made, under this heading.
    pub const fn made(heading: &'static str, made: &'static CompositeCell) -> ListingColumn {
        ListingColumn::new(heading, Content::Composite(made))
    }

    /// Appends the cell of a row.
    #[inline]
    pub fn write(
        &self,
        out: &mut Vec<u8>,
        relation: &[ColumnInfo],
        row: &dyn Row,
        cells: &mut Cells,
        absences: &mut Absences,
    ) {
        match self.content {
            Content::Column(column) => cells.cell(out, &relation[column], absences.value(row, column)),
            Content::Composite(made) => {
                for &column in made.needs {
                    let _ = absences.value(row, column);
                }
                (made.write)(out, row, cells);
            }
        }
    }

    /// The side on which it is aligned.
    pub fn align(&self, relation: &[ColumnInfo]) -> Align {
        match self.content {
            Content::Composite(made) => made.align,
            Content::Column(column) if is_number(relation[column].kind) => Align::Right,
            Content::Column(column) if relation[column].kind == Kind::Address => Align::Right,
            Content::Column(_) => Align::Left,
        }
    }
}

/// A table of these columns with room for about `rows` rows, with headings if `header`.
pub fn table(columns: &[ListingColumn], relation: &[ColumnInfo], rows: usize, header: bool) -> Table {
    let mut table = Table::new(columns.iter().map(|shown| shown.align(relation)), rows);
    for (index, shown) in columns.iter().enumerate() {
        table.widen(index, shown.width);
        table.style(index, shown.style);
        if shown.keeps_end {
            table.keep_end(index);
        }
    }
    if header {
        table.headings(columns.iter().map(|shown| shown.heading));
    }
    table
}

/// What is shown without `-o`.
#[derive(Debug)]
pub struct DefaultColumns {
    pub table: Vec<ListingColumn>,
    /// The columns for programs.
    pub rows: Vec<usize>,
}

/// What is shown of a relation, and in which order.
#[derive(Debug)]
pub struct Layout {
    relation: &'static [ColumnInfo],
    /// What `-o` chose.
    pub chosen: Chosen<usize>,
    pub table: Vec<ListingColumn>,
    /// The columns for programs.
    pub rows: Vec<usize>,
    /// The order of the rows; without, as they arrive.
    pub sort: Vec<SortBy<usize>>,
    /// The maximum number of rows.
    pub limit: usize,
}

impl Layout {
    /// What options choose. `of` gives the column of a table for a column that `-o` names.
    pub fn new(
        relation: &'static [ColumnInfo],
        fields: &[String],
        order: &OrderOptions,
        usual: DefaultColumns,
        of: impl Fn(usize) -> ListingColumn,
    ) -> Result<Layout, Failure> {
        let chosen = chosen(fields, relation, &usual.table)?;
        let sort = sort_keys(&order.sort, relation, &usual.table)?;
        Ok(Layout {
            relation,
            table: chosen.columns(usual.table, of),
            rows: chosen.keys(&usual.rows),
            chosen,
            sort,
            limit: order.limit(),
        })
    }

    /// Whether `-o` or `--sort` names a column.
    pub fn names(&self, column: usize) -> bool {
        self.chosen.contains(column) || self.sort.iter().any(|by| by.key == column)
    }

    /// The columns that must be read.
    pub fn needs(&self, format: Format) -> Vec<usize> {
        let mut needs: Vec<usize> = match format {
            Format::Machine(_) => self.rows.clone(),
            Format::Table => self.table.iter().flat_map(|shown| shown.content.needs()).collect(),
        };
        needs.extend(self.sort.iter().map(|by| by.key));
        needs.sort_unstable();
        needs.dedup();
        needs
    }
}

impl Content {
    /// The columns of the relation that it needs.
    pub fn needs(self) -> impl Iterator<Item = usize> {
        let (own, made) = match self {
            Content::Column(column) => (Some(column), &[][..]),
            Content::Composite(made) => (None, made.needs),
        };
        own.into_iter().chain(made.iter().copied())
    }
}

/// The columns that `-o` options name, maybe as the headings of `table`.
pub fn chosen(lists: &[String], relation: &[ColumnInfo], table: &[ListingColumn]) -> Result<Chosen<usize>, Failure> {
    Chosen::parse(lists, |name| match name {
        "all" => Ok((0..relation.len()).collect()),
        name => Ok(vec![index(name, relation, table)?]),
    })
}

/// The columns that `--sort` options name, maybe as the headings of `table`.
pub fn sort_keys(
    lists: &[String],
    relation: &[ColumnInfo],
    table: &[ListingColumn],
) -> Result<Vec<SortBy<usize>>, Failure> {
    SortBy::parse(lists, |name| index(name, relation, table))
}

/// The column of the relation that has this heading in a table, in any case. What is made of several
/// stands for none of them.
pub fn headed(name: &str, table: &[ListingColumn]) -> Option<usize> {
    let shown = table.iter().find(|shown| shown.heading.eq_ignore_ascii_case(name))?;
    let mut needs = shown.content.needs();
    needs.next().filter(|_| needs.next().is_none())
}

fn index(name: &str, relation: &[ColumnInfo], table: &[ListingColumn]) -> Result<usize, Failure> {
    let is_named = |column: &ColumnInfo, name: &str| column.name.eq_ignore_ascii_case(name);
    let place = |name: &str| relation.iter().position(|column| is_named(column, name));
    // Headings of what is made of several columns, or is shown only sometimes.
    let of_heading = || match &*name.to_lowercase().replace('-', "_") {
        "held" => place("allocated_bytes"),
        "recv_q" => place("recv_queue_bytes"),
        "send_q" => place("send_queue_bytes"),
        _ => None,
    };
    let of_ps = || of_heading().or_else(|| place(field_of(name)?.ok()?.name()));
    let is_of_owner = || name == "fd" || name.parse::<Field>().is_ok() || field_of(name).is_some();
    match place(name).or_else(|| headed(name, table)).or_else(of_ps) {
        Some(column) => Ok(column),
        None if place("owners").is_some() && is_of_owner() => Err(format!(
            "{name} is of the owners, which `-o owners` shows; --where takes their pid, comm and fd"
        )
        .into()),
        None => Err(unknown("field", name, relation.iter().map(|column| column.name))),
    }
}

/// How rows are written.
#[derive(Debug)]
pub struct Form {
    /// Table, JSON or CSV.
    pub format: Format,
    /// Writes the cells of tables.
    pub cells: Cells,
    /// Whether tables and CSV have a header.
    pub header: bool,
    /// Whether names stand beside numbers for programs.
    pub named: bool,
    /// Whether rows of a table are written before all are known, so that nobody waits.
    pub streams: bool,
}

impl From<OutputOptions> for Form {
    fn from(options: OutputOptions) -> Form {
        Form::new(options.format(), Cells::new(options.bytes, false), !options.no_header)
    }
}

impl Form {
    /// Rows that are written when all are known, without names beside numbers.
    pub fn new(format: Format, cells: Cells, header: bool) -> Form {
        Form {
            format,
            cells,
            header,
            named: false,
            streams: false,
        }
    }
}

/// How many rows of a table that streams are written together. Columns of later rows can only be
/// wider.
const ROWS_AT_ONCE: usize = 1000;

/// How many rows beyond the limit are kept before they are sorted and the excess is dropped.
const SLACK: usize = 4096;

/// Rows while they are being written.
pub struct Listing<'a> {
    layout: &'a Layout,
    cells: Cells,
    streams: bool,
    sink: Sink,
    /// The columns that a kept row needs.
    needs: Vec<usize>,
    kept: Vec<OwnedRow>,
    /// How many rows have been written.
    pub written: usize,
    failure: Option<io::Error>,
    /// Values that were missing in the written rows.
    pub absences: Absences,
}

enum Sink {
    Table {
        table: Box<Table>,
        output: Output,
        /// How many rows of the table have not been written.
        waiting: usize,
    },
    Rows(Box<Rows>),
}

impl<'a> Listing<'a> {
    /// A listing without rows.
    pub fn begin(layout: &'a Layout, form: Form, head: &Head<'_>) -> Listing<'a> {
        let sink = match form.format {
            Format::Machine(machine) => {
                let columns = layout.rows.iter().map(|&column| layout.relation[column]);
                let options = RowOptions {
                    header: form.header,
                    named: form.named,
                    samples: false,
                };
                Sink::Rows(Box::new(Rows::begin(machine, head, columns, options)))
            }
            Format::Table => {
                let table = table(&layout.table, layout.relation, 0, form.header);
                Sink::Table {
                    table: Box::new(table),
                    output: Output::default(),
                    waiting: 0,
                }
            }
        };
        Listing {
            needs: layout.needs(form.format),
            layout,
            cells: form.cells,
            streams: form.streams,
            sink,
            kept: Vec::new(),
            written: 0,
            failure: None,
            absences: Absences::default(),
        }
    }

    /// Makes long text in the last column of a table wrap.
    pub fn wrap(&mut self) {
        if let Sink::Table { table, .. } = &mut self.sink {
            table.wrap();
        }
    }

    /// Takes a row. Breaks when no more rows are needed.
    pub fn row(&mut self, row: &dyn Row) -> ControlFlow<()> {
        if !self.layout.sort.is_empty() {
            self.kept.push(OwnedRow::new(row, &self.needs));
            if self.kept.len() >= self.layout.limit.saturating_mul(2).saturating_add(SLACK) {
                self.sort();
            }
            return ControlFlow::Continue(());
        }
        if self.written < self.layout.limit {
            self.failure = self.write(row).err();
        }
        if self.has_failed() || self.written >= self.layout.limit {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Whether a row could not be written.
    pub fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// The error of a row that could not be written.
    pub fn failed(&mut self) -> io::Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    fn sort(&mut self) {
        self.kept = sorted(std::mem::take(&mut self.kept), &self.layout.sort, self.layout.limit);
    }

    fn write(&mut self, row: &dyn Row) -> io::Result<()> {
        self.written += 1;
        let (cells, absences) = (&mut self.cells, &mut self.absences);
        match &mut self.sink {
            Sink::Rows(rows) => {
                let columns = &self.layout.rows;
                rows.row(|index| absences.value(row, columns[index]))
            }
            Sink::Table { table, waiting, .. } => {
                for shown in &self.layout.table {
                    table.cell(|out| shown.write(out, self.layout.relation, row, cells, absences));
                }
                *waiting += 1;
                if self.streams && *waiting == ROWS_AT_ONCE {
                    self.write_table()?;
                }
                Ok(())
            }
        }
    }

    fn write_table(&mut self) -> io::Result<()> {
        if let Sink::Table { table, output, waiting } = &mut self.sink {
            *waiting = 0;
            table.write(output, terminal_width())?;
            table.clear();
        }
        Ok(())
    }

    /// Writes the rows so far.
    pub fn flush(&mut self) -> io::Result<()> {
        self.write_table()?;
        match &mut self.sink {
            Sink::Table { output, .. } => output.flush(),
            Sink::Rows(rows) => rows.flush(),
        }
    }

    /// Writes the rows that were kept to be sorted, and gives each to `each`. Returns the table, if it
    /// is one.
    pub fn end_rows(&mut self, mut each: impl FnMut(&dyn Row)) -> io::Result<Option<&mut Table>> {
        self.failed()?;
        self.sort();
        for row in std::mem::take(&mut self.kept) {
            self.write(&row)?;
            each(&row);
        }
        Ok(match &mut self.sink {
            Sink::Table { table, .. } => Some(table),
            Sink::Rows(_) => None,
        })
    }

    /// Writes the end. `write` appends more members of a JSON document, each preceded by a comma.
    pub fn finish(mut self, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<Absences> {
        self.end_rows(|_| {})?;
        self.write_table()?;
        match self.sink {
            Sink::Table { output, .. } => output.finish()?,
            Sink::Rows(rows) => rows.finish_with(write)?,
        }
        Ok(self.absences)
    }
}
