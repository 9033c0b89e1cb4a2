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
    /// Print Markdown, the lists of docs/fields.md
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

pub fn run(args: Args) -> Result<Outcome, Failure> {
    if args.markdown {
        let mut text = Vec::new();
        as_markdown(&mut text)?;
        return print(text);
    }
    let word = args.word.unwrap_or_default();
    let lower = word.to_lowercase();
    // The meanings have no other word for disks.
    let lower = if lower == "disk" { "storage".to_owned() } else { lower };
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

/// The line of `docs/fields.md` with which the output begins. What stands before it is written by hand.
const BEGIN: &str = "<!-- Made by `taskdiag fields --markdown`, from crates/taskdiag-core/src/field/table.rs. -->\n";

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
    out.extend_from_slice(BEGIN.as_bytes());
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
