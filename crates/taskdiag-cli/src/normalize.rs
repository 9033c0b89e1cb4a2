//! `taskdiag normalize`.

use std::io::{self, BufRead as _};

use clap::Args as ClapArgs;
use taskdiag::maps::{BuildId, Normalized, Normalizer, Outcome as Place};
use taskdiag::{Absent, ErrorKind, Known, Value};

use crate::choice::OrderOptions;
use crate::maps::{self, address, SOURCES};
use crate::outcome::{is_thread, lacking, lacks, say, say_missing, say_missing_denied, Failure, Outcome};
use crate::output::document::Head;
use crate::output::format::OutputOptions;
use crate::output::listing::{CompositeCell, DefaultColumns, Form, Layout, Listing, ListingColumn};
use crate::output::relation::{columns, Cell, ColumnInfo, Row, NONE};
use crate::output::table::Align;
use crate::output::{cell, text};
use crate::quantity;
use crate::source::{parser, SourceOptions};

/// Turn addresses of a process into file offsets, with the files' build ids
///
/// Prints one row per address, in the given order. An address outside of any file has a reason
/// instead: unmapped, anonymous (heap, stack, or code that the program made), vdso (the kernel's
/// library, which has a build id) or special (other mappings of the kernel).
#[derive(Debug, ClapArgs)]
#[command(mut_arg("source", |arg| arg.value_parser(parser(SOURCES))))]
#[command(after_help = "Examples:\n  \
    taskdiag normalize 1234 0x7f0dcafe0123\n  \
    taskdiag normalize 1234 --json - <addresses")]
pub struct Args {
    /// The process
    #[arg(value_parser = quantity::pid)]
    pid: u32,
    /// Addresses, decimal or hexadecimal with 0x; `-` reads them from standard input, one a line
    #[arg(value_name = "ADDR", required = true)]
    addresses: Vec<String>,
    /// Fields to show, in this order: addr, file_offset, name, build_id, deleted, elf_address,
    /// segment_address, or `all`
    #[arg(short = 'o', long = "fields", value_name = "FIELD,…", help_heading = "Output")]
    fields: Vec<String>,
    #[command(flatten)]
    from: SourceOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// The columns of rows.
pub const RELATION: [ColumnInfo; 7] = columns! {
    "addr": Address, "The address.";
    "file_offset": Bytes, "The offset of the address in the file.";
    "name": Text, "The path of the file, without \" (deleted)\"; [vdso] for the kernel's library.";
    "build_id": Text, "Build id of the file, in hexadecimal.";
    "deleted": Flag, "Whether the file is deleted.";
    "elf_address": Address, "The address in the file's own terms, as its symbols and debug information have it.";
    "segment_address": Address, "The first such address of the segment that it is in.";
};

// The indexes of columns.
const ADDRESS: usize = 0;
const OFFSET: usize = 1;
const NAME: usize = 2;
const BUILD_ID: usize = 3;
const DELETED: usize = 4;
/// The first column for which the segments of the file are read.
const ELF_ADDRESS: usize = 5;

/// The addresses that the arguments give.
fn addresses(words: &[String], input: impl FnOnce() -> io::Result<Vec<String>>) -> Result<Vec<u64>, Failure> {
    let mut input = Some(input);
    let mut addresses = Vec::with_capacity(words.len());
    for word in words {
        if word != "-" {
            addresses.push(address(word)?);
            continue;
        }
        let read = input.take().ok_or("standard input can be read only once")?;
        let lines = read().map_err(|error| format!("reading standard input: {error}"))?;
        for line in lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty()) {
            addresses.push(address(line)?);
        }
    }
    Ok(addresses)
}

pub fn run(args: Args) -> Result<Outcome, Failure> {
    let usual = DefaultColumns {
        table: vec![
            ListingColumn::column("ADDR", ADDRESS),
            ListingColumn::made("OFFSET", &HEX_OFFSET),
            ListingColumn::column("BUILD-ID", BUILD_ID),
            ListingColumn::made("NAME", &NAME_OR_REASON),
        ],
        rows: vec![ADDRESS, OFFSET, NAME, BUILD_ID, DELETED],
    };
    let of = |column: usize| ListingColumn::column(RELATION[column].name, column);
    let layout = Layout::new(&RELATION, &args.fields, &OrderOptions::default(), usual, of)?;
    let addresses = addresses(&args.addresses, || io::stdin().lock().lines().collect())?;
    if is_thread(args.pid) {
        return Err(lacking(args.pid).into());
    }
    let mut handle = maps::handle(&args.from)?;
    let normalized = handle.maps(args.pid).and_then(|mut maps| {
        let segments = layout.rows.iter().any(|&column| column >= ELF_ADDRESS);
        Normalizer::new().segments(segments).normalize(&mut maps, &addresses)
    });
    let normalized = normalized.map_err(|error| match error.kind() {
        ErrorKind::NoSuchTask => lacking(args.pid),
        _ => format!("{error:#}"),
    })?;
    let rows = || {
        addresses
            .iter()
            .zip(&normalized.outcomes)
            .map(|(&address, place)| AddressRow::new(address, place, &normalized))
    };
    let unmapped = normalized
        .outcomes
        .iter()
        .filter(|place| **place == Place::Unmapped)
        .count();
    let counters = [
        ("addresses", addresses.len() as u64),
        ("unmapped", unmapped as u64),
        ("mappings", normalized.mappings as u64),
        ("files", normalized.files.len() as u64),
    ];
    let head = Head::new("normalize", vec![("maps", normalized.source.name())], counters);
    let mut listing = Listing::begin(&layout, Form::from(args.output), &head);
    for row in rows() {
        let _ = listing.row(&row);
    }
    listing.finish(|_| {})?;
    let lacking = |reason| rows().filter(|row| row.build_id == Err(reason)).count() as u64;
    if unmapped > 0 {
        say(format_args!(
            "nothing is mapped at {unmapped} of {} addresses",
            addresses.len()
        ));
    }
    let is_unread = |row: &AddressRow<'_>| matches!(row.elf_address, Err("denied" | "no answer"));
    let missing = say_missing(lacks! {
        rows().filter(is_unread).count() as u64, "address" => "elf addresses: the file of {} can't be read";
        lacking(Absent::Truncated), "address" => "build ids: too long for {}";
        lacking(Absent::NoAnswer), "address" => "build ids: no answer for {} (--patience waits longer)";
    });
    let denied = say_missing_denied(lacks! { lacking(Absent::Denied), "address" => "build ids: denied for {}"; });
    Ok(missing.and(denied).and(Outcome::partial_if(unmapped > 0)))
}

/// The findings about an address.
struct AddressRow<'a> {
    address: u64,
    file_offset: Result<u64, &'static str>,
    name: Result<&'a [u8], &'static str>,
    /// `None` if the mapping can't have one.
    build_id: Known<Option<BuildId>>,
    written_build_id: String,
    deleted: Result<bool, &'static str>,
    /// With the first one of the segment.
    elf_address: Result<(u64, u64), &'static str>,
}

impl<'a> AddressRow<'a> {
    fn new(address: u64, place: &Place, normalized: &'a Normalized) -> AddressRow<'a> {
        let nowhere = |reason| AddressRow {
            address,
            file_offset: Err(reason),
            name: Err(reason),
            build_id: Ok(None),
            written_build_id: String::new(),
            deleted: Err(reason),
            elf_address: Err(reason),
        };
        let mut row = match *place {
            Place::InFile { file, offset } => {
                let file = &normalized.files[file];
                AddressRow {
                    address,
                    file_offset: Ok(offset),
                    name: file.path.as_deref().map_err(|reason| reason.as_str()),
                    build_id: file.build_id,
                    written_build_id: String::new(),
                    deleted: Ok(file.deleted),
                    elf_address: match file.elf_address(offset) {
                        Ok(Some((address, segment))) => Ok((address, segment.address)),
                        Ok(None) => Err("none"),
                        Err(reason) => Err(reason.as_str()),
                    },
                }
            }
            Place::Vdso { build_id, .. } => AddressRow {
                name: Ok(b"[vdso]"),
                build_id,
                ..nowhere("vdso")
            },
            Place::Unmapped => nowhere("unmapped"),
            Place::Anonymous => nowhere("anonymous"),
            _ => nowhere("special"),
        };
        if let Ok(Some(id)) = row.build_id {
            row.written_build_id = id.to_string();
        }
        row
    }
}

impl Row for AddressRow<'_> {
    fn cell(&self, column: usize) -> Cell<'_> {
        match column {
            ADDRESS => Ok(Value::Mask(self.address)),
            OFFSET => self.file_offset.map(Value::Unsigned),
            NAME => self.name.map(Value::Text),
            BUILD_ID => match (self.name, self.build_id) {
                (Err(reason), Ok(None)) => Err(reason),
                (_, Ok(None)) => Err(NONE),
                (_, Ok(Some(_))) => Ok(Value::Text(self.written_build_id.as_bytes())),
                (_, Err(reason)) => Err(reason.as_str()),
            },
            DELETED => self.deleted.map(Value::Flag),
            ELF_ADDRESS => self.elf_address.map(|(address, _)| Value::Mask(address)),
            _ => self.elf_address.map(|(_, first)| Value::Mask(first)),
        }
    }
}

/// The offset in the file, in hexadecimal like the addresses.
static HEX_OFFSET: CompositeCell = CompositeCell {
    align: Align::Right,
    needs: &[OFFSET],
    write: |out, row, cells| match row.cell(OFFSET) {
        Ok(Value::Unsigned(offset)) if !cells.exact => cell::formatted(out, format_args!("{offset:#x}")),
        other => cells.cell(out, &RELATION[OFFSET], other),
    },
};

/// The name of the file, or why the address is in none.
static NAME_OR_REASON: CompositeCell = CompositeCell {
    align: Align::Left,
    needs: &[NAME, DELETED],
    write: |out, row, _| match row.cell(NAME) {
        Ok(name) => {
            if let Value::Text(name) = name {
                text::escape(out, name);
            }
            if row.cell(DELETED) == Ok(Value::Flag(true)) {
                out.extend_from_slice(b" (deleted)");
            }
        }
        Err(reason) => cell::formatted(out, format_args!("({reason})")),
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str], input: &str) -> Result<Vec<u64>, String> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let read = || Ok(input.lines().map(str::to_owned).collect());
        addresses(&words, read).map_err(|failure| format!("{failure:?}"))
    }

    /// Check that addresses come from arguments and standard input, in order, and that standard
    /// input is read only once.
    #[test]
    fn addresses_come_from_both_places() {
        assert_eq!(words(&["1", "-", "0x2"], "0x10\n\n 17 \n"), Ok(vec![1, 16, 17, 2]));
        assert_eq!(words(&["-"], ""), Ok(vec![]));
        assert!(words(&["-", "-"], "1").is_err_and(|error| error.contains("only once")));
        assert!(words(&["-"], "cafe").is_err_and(|error| error.contains("0xcafe")));
    }
}
