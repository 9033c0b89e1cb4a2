//! Writes events, row by row as they arrive.

use std::io;

use taskdiag::events::{EventSource, Lost};
use taskdiag::{Event, EventField, Group, Kind, Value};

use super::Args;
use crate::choice::OrderOptions;
use crate::outcome::Failure;
use crate::output::cell::{formatted, Cells};
use crate::output::document::{counters, Head};
use crate::output::listing::{CompositeCell, Content, DefaultColumns, Form, Layout, Listing, ListingColumn};
use crate::output::relation::{columns_of, list_of, Absences, Cell, ColumnInfo, Row};
use crate::output::table::Align;
use crate::output::terminal::Style;
use crate::output::text;

/// The columns of events: [`EventField::ALL`].
pub const RELATION: [ColumnInfo; EventField::ALL.len()] = columns_of!(EventField::ALL);

const fn column(heading: &'static str, field: EventField, width: usize) -> ListingColumn {
    ListingColumn {
        width,
        ..ListingColumn::column(heading, field as usize)
    }
}

/// The table without `-o`. With `--threads`, it also has thread ids. Rows are written before later
/// ones are known, so a column starts with a typical width.
const COLUMNS: [ListingColumn; 8] = [
    ListingColumn {
        width: 12,
        ..ListingColumn::made("TIME", &TIME)
    },
    column("EVENT", EventField::Event, 5),
    column("PID", EventField::Pid, 7),
    column("TID", EventField::Tid, 7),
    column("PPID", EventField::Ppid, 7),
    ListingColumn {
        width: 8,
        ..ListingColumn::made("USER", &USER)
    },
    column("NAME", EventField::Comm, 15),
    ListingColumn {
        style: detail_style,
        ..ListingColumn::made("DETAIL", &DETAIL)
    },
];

/// The fields for programs without `-o`.
const FIELDS: [EventField; 14] = list_of! {
    EventField: Event, TimeNs, Pid, Tid, Ppid, StartNs, Uid, Comm, Filename, ExitCode, TermSignal, OomKilled,
    RuntimeNs, PeakRssBytes,
};

/// The column of a field that `-o` names.
fn shown(index: usize) -> ListingColumn {
    let field = EventField::ALL[index];
    let width = match field.kind() {
        Kind::Nanoseconds => 19,
        Kind::Text => 15,
        Kind::Bytes => 9,
        _ => 7,
    };
    with_style(column(field.name(), field, width.max(field.name().len())))
}

fn with_style(shown: ListingColumn) -> ListingColumn {
    let style: fn(&[u8]) -> Style = |kind| match kind {
        b"fork" => Style::Green,
        b"exec" => Style::Cyan,
        _ => Style::Dim,
    };
    match shown.content {
        Content::Column(column) if column == EventField::Event as usize => ListingColumn { style, ..shown },
        _ => shown,
    }
}

fn detail_style(detail: &[u8]) -> Style {
    match detail {
        b"code 0" => Style::Plain,
        _ if detail.starts_with(b"code ") => Style::Yellow,
        _ if detail.starts_with(b"signal ") => Style::Red,
        _ => Style::Plain,
    }
}

/// What is said to those who ask for arguments.
const NO_ARGUMENTS: &str =
    "; events have no arguments, because neither the kernel's tracepoint nor its connector has them: `taskdiag ps -p PID -o args` \
     shows them while the process runs, with --history DIR if a sample has it";

/// What options choose.
pub fn layout(args: &Args) -> Result<Layout, Failure> {
    let is_usual = |shown: &ListingColumn| args.threads || shown.content != Content::Column(EventField::Tid as usize);
    let usual = DefaultColumns {
        table: COLUMNS.into_iter().map(with_style).filter(is_usual).collect(),
        rows: FIELDS.iter().map(|&field| field as usize).collect(),
    };
    let is_of_arguments = |name: &str| ["cmdline", "args", "cmd", "command"].contains(&&name.to_lowercase()[..]);
    let mut names = args.fields.iter().flat_map(|list| list.split([',', '+']));
    let more = if names.any(is_of_arguments) { NO_ARGUMENTS } else { "" };
    Layout::new(&RELATION, &args.fields, &OrderOptions::default(), usual, shown).map_err(|failure| failure.with(more))
}

/// Whether network traffic is to be counted for what is shown.
pub fn has_network(layout: &Layout) -> bool {
    let is_counted = |column: usize| {
        let field = EventField::ALL[column].of_tasks();
        field.is_some_and(|field| field.group() == Group::Net)
    };
    let of_table = layout.table.iter().flat_map(|shown| shown.content.needs());
    of_table.chain(layout.rows.iter().copied()).any(is_counted)
}

fn cell(row: &dyn Row, field: EventField) -> Cell<'_> {
    row.cell(field as usize)
}

/// The time of day.
static TIME: CompositeCell = CompositeCell {
    // Like numbers, times are never cut.
    align: Align::Right,
    needs: &[EventField::TimeNs as usize],
    write: |out, row, cells| {
        cells.cell(
            out,
            &RELATION[EventField::TimeNs as usize],
            cell(row, EventField::TimeNs),
        )
    },
};

/// The name of the effective user.
static USER: CompositeCell = CompositeCell {
    align: Align::Left,
    needs: &[EventField::Euid as usize],
    write: |out, row, cells| match cell(row, EventField::Euid) {
        Ok(Value::Unsigned(uid)) => text::escape(out, cells.names.user(uid as u32)),
        _ => out.push(b'-'),
    },
};

/// The main values of this kind of event.
static DETAIL: CompositeCell = CompositeCell {
    align: Align::Left,
    needs: &[EventField::Filename as usize],
    write: detail,
};

fn detail(out: &mut Vec<u8>, row: &dyn Row, _: &mut Cells) {
    let number = |field| match cell(row, field) {
        Ok(Value::Unsigned(number)) => Some(number as i64),
        Ok(Value::Signed(number)) => Some(number),
        _ => None,
    };
    let is = |field| cell(row, field) == Ok(Value::Flag(true));
    match cell(row, EventField::Event) {
        Ok(Value::Text(b"fork")) => {
            let (caller, parent) = (number(EventField::CallerPid), number(EventField::Ppid));
            let is_thread = is(EventField::Thread);
            if let (Some(caller), Some(parent), false) = (caller, parent, is_thread) {
                if caller != parent {
                    formatted(out, format_args!("called by {caller}"));
                }
            }
        }
        Ok(Value::Text(b"exec")) => match cell(row, EventField::Filename) {
            Ok(Value::Text(name)) => text::escape(out, name),
            _ => out.push(b'-'),
        },
        Ok(Value::Text(b"exit")) => match (number(EventField::ExitCode), number(EventField::TermSignal)) {
            (Some(code), _) => formatted(out, format_args!("code {code}")),
            (None, Some(signal)) => {
                formatted(out, format_args!("signal {signal}"));
                if is(EventField::CoreDumped) {
                    out.extend_from_slice(b", core dumped");
                } else if is(EventField::OomKilled) {
                    out.extend_from_slice(b" of the OOM killer");
                }
            }
            (None, None) => out.push(b'-'),
        },
        _ => out.push(b'-'),
    }
}

/// The form of the rows.
fn form(args: &Args) -> Form {
    let cells = Cells::new(args.bytes, args.names);
    Form {
        named: args.names,
        streams: true,
        ..Form::new(args.formats.format(), cells, !args.no_header)
    }
}

/// Begins to write events of a source.
pub fn begin<'a>(args: &Args, layout: &'a Layout, source: EventSource) -> io::Result<Listing<'a>> {
    let name = source.to_string();
    let head = Head::streaming("events", vec![("events", name.as_str())]);
    let mut listing = Listing::begin(layout, form(args), &head);
    listing.flush()?;
    Ok(listing)
}

/// Writes the text after the rows. Returns the missing values of fields that events have.
pub fn end(listing: Listing<'_>, told: u64, lost: Lost) -> io::Result<Absences> {
    let counted = [
        ("events", Value::Unsigned(told)),
        ("lost", Value::Unsigned(lost.count)),
        ("lost_is_exact", Value::Flag(lost.is_exact)),
    ];
    listing.finish(|out| counters(out, &counted))
}

/// Writes an event. Fails if it could not be written.
pub fn row(listing: &mut Listing<'_>, event: &Event<'_>) -> io::Result<()> {
    let _ = listing.row(event);
    listing.failed()
}
