//! The output of `taskdiag files`: rows or sums, and what is missing.

use std::collections::HashMap;
use std::ops::ControlFlow;

use taskdiag::files::{Answer, OpenFile, Request, Row};
use taskdiag::{Absent, Error, Handle, Value};

use super::row::{self, RELATION};
use super::sums::{own_name, Sum};
use super::Args;
use crate::grouping::{Name, Sum as _, SumLayout};
use crate::listing::Answers;
use crate::outcome::{
    counted, lacks, say, say_missing, say_missing_denied, say_silent, say_undecided, Failure, Outcome,
};
use crate::output::cell;
use crate::output::document::{self, Head};
use crate::output::listing::{Content, Form, Layout, Listing, ListingColumn};
use crate::output::rows::write_total;
use crate::output::table::Table;

const UNKNOWN_USES: &str = "{} of files that are not known, in no count of files";

/// The reasons why values are missing that are counted.
const REASONS: [Absent; 4] = [Absent::Denied, Absent::NoAnswer, Absent::NoThread, Absent::Truncated];

/// Writes an answer.
pub(super) struct Report<'a> {
    args: &'a Args,
    request: &'a Request,
    processes: &'a Answers,
    /// The sum of all files, including those beyond `--limit`.
    total: Sum,
    /// The number of written rows that lack a value, for each of [`REASONS`].
    missing: [u64; REASONS.len()],
}

impl<'a> Report<'a> {
    pub(super) fn new(args: &'a Args, request: &'a Request, processes: &'a Answers) -> Report<'a> {
        Report {
            args,
            request,
            processes,
            total: Sum::default(),
            missing: [0; REASONS.len()],
        }
    }

    /// Counts the values that a file lacks.
    fn count_missing(missing: &mut [u64; REASONS.len()], file: &OpenFile<'_>) {
        let values = [
            file.name.err(),
            file.kind.err(),
            file.nlink.err(),
            file.allocated_bytes.err(),
            file.open_flags.err(),
            file.detail.err(),
            file.peers.err(),
        ];
        for (count, reason) in missing.iter_mut().zip(REASONS) {
            *count += u64::from(values.contains(&Some(reason)));
        }
    }

    /// Writes the files, in the order of processes or sorted.
    pub(super) fn files(&mut self, handle: &mut Handle, layout: &Layout) -> Result<Answer, Failure> {
        let needs_total = self.args.deleted;
        let head = self.head(handle)?;
        let mut listing = Listing::begin(layout, Form::from(self.args.output), &head);
        let answer = handle.files(&self.processes.snapshot, self.request, |task, file| {
            if needs_total {
                self.total.add(task, file);
            }
            Report::count_missing(&mut self.missing, file);
            match listing.row(&Row::new(task, file)) {
                ControlFlow::Break(()) if needs_total && !listing.has_failed() => ControlFlow::Continue(()),
                flow => flow,
            }
        })?;
        if let (Some(table), true) = (listing.end_rows(|_| {})?, needs_total) {
            self.total_row(table, &layout.table);
        }
        listing.finish(|out| {
            document::counts(out, answer.named());
            if needs_total {
                write_total(out, Some((&Sum::columns(), &self.total.cells())));
            }
        })?;
        Ok(answer)
    }

    /// The last row of a table of deleted files. Each file counts once, no matter how often it is
    /// open.
    fn total_row(&self, table: &mut Table, columns: &[ListingColumn]) {
        let [_, processes, _, files] = self.total.counts();
        let mut cells = Form::from(self.args.output).cells;
        for (index, shown) in columns.iter().enumerate() {
            table.cell(|out| match shown.content {
                Content::Column(row::ALLOCATED) => {
                    let bytes = self.total.deleted_bytes().map(Value::Unsigned);
                    cells.cell(out, &RELATION[row::ALLOCATED], bytes.map_err(Absent::as_str));
                }
                Content::Column(row::NAME) => {
                    cell::formatted(
                        out,
                        format_args!("{}, held by {}", counted(files, "file"), counted(processes, "process")),
                    );
                }
                _ if index == 0 => out.extend_from_slice(b"total"),
                _ => {}
            });
        }
    }

    fn head(&self, handle: &mut Handle) -> Result<Head<'static>, Failure> {
        let source = handle.prepare_files(&self.processes.snapshot)?;
        Ok(Head::streaming("files", vec![("files", source.name())]))
    }

    /// Writes sums.
    pub(super) fn sums(&mut self, handle: &mut Handle, layout: &SumLayout) -> Result<Answer, Failure> {
        let head = self.head(handle)?;
        let mut sums: HashMap<Vec<Name>, Sum> = HashMap::new();
        let answer = handle.files(&self.processes.snapshot, self.request, |task, file| {
            self.total.add(task, file);
            Report::count_missing(&mut self.missing, file);
            let names = layout.names(task, |by| own_name(by, &Row::new(task, file)));
            sums.entry(names).or_default().add(task, file);
            ControlFlow::Continue(())
        })?;
        layout.write(sums, &self.total, Form::from(self.args.output), &head, |out| {
            document::counts(out, answer.named());
        })?;
        Ok(answer)
    }

    /// Reports what is missing.
    pub(super) fn report(&self, answer: &Answer) -> Outcome {
        let [denied, silent, no_thread, truncated] = self.missing;
        let unknown = self.total.unknown;
        // For denied values, a message below decides whether the answer is incomplete.
        let unknown_and_denied = if unknown <= denied { unknown } else { 0 };
        if unknown_and_denied > 0 {
            say(UNKNOWN_USES.replacen("{}", &counted(unknown, "use"), 1));
        }
        let no_thread_for_lists = format!("{{}} of UNIX sockets not read: {}", Error::NO_THREAD);
        let missing = say_missing(lacks! {
            answer.no_thread, "process" => "files of {} missing: can't start a thread to read them";
            answer.namespaces_no_thread, "list" => &no_thread_for_lists;
            answer.namespaces_unread, "list" => "{} of UNIX sockets not read: those bound to these paths are missing";
            answer.changed, "descriptor" => "{} left out: each led to one file after the other while it was read";
            answer.malformed, "invalid answer" => "{} of the kernel left out: please report this";
            no_thread, "file" => "values missing for {}: can't start a thread to read them";
            silent, "file" => "values without an answer for {} (--patience waits longer)";
            truncated, "file" => "no names of {}: too long to be read";
            unknown - unknown_and_denied, "use" => UNKNOWN_USES;
        });
        let denied = say_missing_denied(lacks! {
            answer.denied, "process" => "files of {} missing: you may not see them";
            answer.maps_denied, "process" => "mapped files of {} left out: you may not see them";
            answer.namespaces_denied, "network namespace" => "UNIX sockets of {} left out: you may not enter them";
            denied, "file" => "values denied for {}";
        });
        let unplaced = answer.unplaced_sockets;
        if unplaced > 0 {
            // Where they are is not asked for, and nobody knows it.
            say(format_args!(
                "{} left out, bound by a relative name: it is not known whether the path has them",
                counted(unplaced, "UNIX socket")
            ));
        }
        let undecided = answer.undecided.without(Absent::Unsupported, unplaced);
        say_silent(&answer.silent)
            .and(missing)
            .and(say_undecided(undecided, "file"))
            .and(denied)
    }
}
