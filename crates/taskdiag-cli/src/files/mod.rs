//! `taskdiag files`.

mod row;
mod sums;

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use taskdiag::files::{AnonKind, Answer, Filter, Kinds, OpenFile, PathMatch, Request, Uses, Wants};
use taskdiag::{Absent, Field, Fields, Handle, Query, Snapshot, Value};

use crate::choice::{Chosen, SortBy};
use crate::listing::{self, Format, Formats, Machine};
use crate::outcome::{no_answer_from, say, who_may, Failure, Outcome};
use crate::output::document::{self, Head};
use crate::output::named::{self, write_total, write_value, Cell, Rows, Total};
use crate::output::names::Names;
use crate::output::people;
use crate::output::table::{terminal_width, Align, Table};
use crate::output::{cell, text, Output};
use crate::quantity;
use crate::selection::Selection;
use crate::source::SourceOptions;
pub use row::KEYS;
use row::{Cells, Kept};
pub use sums::{By, Sum};
use sums::{Name, Sums};

/// The options that select processes.
const SELECTING: [&str; 8] = [
    "pids",
    "children",
    "descendants",
    "users",
    "cgroup",
    "unit",
    "container",
    "filter",
];

/// List what processes have open: descriptors, directories, programs, mapped files
///
/// It never waits for a file system: paths of processes are not walked, and sizes are what the
/// kernel knows already. It takes root, or CAP_SYS_PTRACE, to see the files of another user's
/// process.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag files $$\n  \
    taskdiag files --path /var/log/syslog\n  \
    taskdiag files --path /mnt/usb -o pid,comm,use,name\n  \
    taskdiag files --deleted --sort -allocated_bytes\n  \
    taskdiag files -u www-data --kind socket,epoll --jsonl\n  \
    taskdiag files --by program")]
pub struct Args {
    /// The processes [default: all]
    #[arg(value_name = "PID", value_parser = quantity::pid, conflicts_with_all = SELECTING)]
    named: Vec<u32>,
    #[command(flatten)]
    selection: Selection,
    /// Only these files, what is below these directories, and what is on the file systems that are
    /// mounted at these directories; mapped files, too
    #[arg(long = "path", value_name = "PATH", num_args = 1..)]
    paths: Vec<PathBuf>,
    /// Only files that have no name any more, mapped files, too; with the space that they hold
    #[arg(long)]
    deleted: bool,
    /// Only these kinds: file, dir, char, block, fifo, socket, link, anon, or one of eventfd, epoll,
    /// timerfd, signalfd, inotify, pidfd, bpf, io_uring, userfaultfd, perf, dmabuf, other
    #[arg(long = "kind", value_name = "KIND,…", value_delimiter = ',', value_parser = kind)]
    kinds: Vec<Kinds>,
    /// Only these uses: fd, cwd, root, exe, map, or all [default: all but map, which has mapped
    /// files]
    #[arg(long = "use", value_name = "USE,…", value_delimiter = ',', value_parser = uses)]
    uses: Vec<Uses>,
    /// Add up by this
    #[arg(long, value_enum)]
    by: Option<By>,
    /// Sort by these fields; a minus in front puts the largest first [default: by process]
    #[arg(long, value_name = "[-]FIELD,…", allow_hyphen_values = true)]
    sort: Vec<String>,
    /// At most this many rows, after sorting
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Fields to show, in this order; `all` for all: pid, comm, use, fd, kind, anon_kind, access,
    /// open_flags, offset_bytes, size_bytes, allocated_bytes, dev_major, dev_minor, inode, nlink,
    /// deleted, mnt_id, name, detail; a plus in front adds to those shown without
    #[arg(short = 'o', long = "fields", value_name = "[+]FIELD,…", help_heading = "Output")]
    fields: Vec<String>,
    #[command(flatten)]
    from: SourceOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// Options about output.
#[derive(Clone, Copy, Debug, ClapArgs)]
#[command(next_help_heading = "Output")]
pub struct OutputOptions {
    #[command(flatten)]
    formats: Formats,
    /// Exact numbers in tables: bytes
    #[arg(long)]
    bytes: bool,
    /// No header above tables and CSV
    #[arg(long, visible_alias = "no-headers")]
    no_header: bool,
}

/// Parses the name of a kind.
fn kind(name: &str) -> Result<Kinds, String> {
    const KINDS: [(&str, Kinds); 8] = [
        ("file", Kinds::FILE),
        ("dir", Kinds::DIR),
        ("char", Kinds::CHAR),
        ("block", Kinds::BLOCK),
        ("fifo", Kinds::FIFO),
        ("socket", Kinds::SOCKET),
        ("link", Kinds::LINK),
        ("anon", Kinds::ANON),
    ];
    let plain = KINDS.iter().find(|(known, _)| *known == name).map(|(_, kinds)| *kinds);
    let anon = AnonKind::ALL.into_iter().find(|kind| kind.name() == name);
    plain.or(anon.map(Kinds::from)).ok_or_else(|| {
        let known = KINDS.iter().map(|(known, _)| *known);
        let known: Vec<&str> = known.chain(AnonKind::ALL.iter().map(|kind| kind.name())).collect();
        format!("known are {}", known.join(", "))
    })
}

/// Parses the name of a use.
fn uses(name: &str) -> Result<Uses, String> {
    if name == "all" {
        return Ok(Uses::all());
    }
    let all = taskdiag::files::Use::ALL;
    let found = all.into_iter().find(|one| one.name() == name);
    found.map(Uses::from).ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|one| one.name()).chain(["all"]).collect();
        format!("known are {}", known.join(", "))
    })
}

/// What is shown.
enum Shown {
    /// Files: the columns of a table, or the keys for programs.
    Files {
        columns: Vec<Column>,
        keys: Vec<usize>,
        sort: Vec<SortBy<usize>>,
    },
    /// Sums.
    Sums(By, Vec<SortBy<sums::SumKey>>),
}

/// A column of the table.
#[derive(Clone, Copy, Debug)]
struct Column {
    heading: &'static str,
    show: Show,
}

#[derive(Clone, Copy, Debug)]
enum Show {
    Key(usize),
    /// The number of the descriptor, or the use.
    FdOrUse,
    /// The kind, or which object of the kernel it is.
    ObjectOrKind,
    /// Both numbers of the device.
    Device,
}

impl Column {
    fn of(key: usize) -> Column {
        Column {
            heading: KEYS[key].name,
            show: Show::Key(key),
        }
    }

    fn align(&self) -> Align {
        match self.show {
            Show::Key(key) if !KEYS[key].kind.is_number() => Align::Left,
            Show::ObjectOrKind => Align::Left,
            _ => Align::Right,
        }
    }

    fn keys(&self) -> &'static [usize] {
        const EACH: [usize; KEYS.len()] = {
            let mut each = [0; KEYS.len()];
            let mut key = 0;
            while key < each.len() {
                each[key] = key;
                key += 1;
            }
            each
        };
        match self.show {
            Show::Key(key) => &EACH[key..=key],
            Show::FdOrUse => &[row::USE, row::FD],
            Show::ObjectOrKind => &[row::KIND, row::ANON_KIND],
            Show::Device => &[row::MAJOR, row::MINOR],
        }
    }

    fn write(&self, out: &mut Vec<u8>, cells: &Cells<'_>, exact: bool) {
        match self.show {
            Show::FdOrUse => write_value(out, &KEYS[row::USE], row::fd_or_use(cells), exact),
            Show::ObjectOrKind => write_value(out, &KEYS[row::KIND], row::object_or_kind(cells), exact),
            Show::Device => match (cells[row::MAJOR], cells[row::MINOR]) {
                (Ok(Value::Unsigned(major)), Ok(Value::Unsigned(minor))) => {
                    cell::formatted(out, format_args!("{major}:{minor}"));
                }
                _ => out.push(b'-'),
            },
            Show::Key(key) => write_value(out, &KEYS[key], cells[key], exact),
        }
    }
}

/// The table without `-o`.
fn usual_columns(deleted: bool) -> Vec<Column> {
    let column = |heading, show| Column { heading, show };
    vec![
        column("PID", Show::Key(row::PID)),
        column("COMMAND", Show::Key(row::COMM)),
        column("FD", Show::FdOrUse),
        column("ACCESS", Show::Key(row::ACCESS)),
        column("KIND", Show::ObjectOrKind),
        if deleted {
            column("HELD", Show::Key(row::ALLOCATED))
        } else {
            column("SIZE", Show::Key(row::SIZE))
        },
        column("DEV", Show::Device),
        column("INODE", Show::Key(row::INODE)),
        column("NAME", Show::Key(row::NAME)),
    ]
}

/// The keys for programs without `-o`.
fn usual_keys(deleted: bool) -> Vec<usize> {
    let mut keys = row::USUAL_KEYS.to_vec();
    if deleted {
        let size = keys.iter().position(|&key| key == row::SIZE).unwrap_or(0);
        keys.insert(size + 1, row::ALLOCATED);
    }
    keys
}

/// What has to be read for a key.
fn wants_of(key: usize) -> Wants {
    match key {
        row::NAME => Wants::NAMES,
        row::ACCESS | row::OPEN_FLAGS | row::OFFSET | row::MNT_ID => Wants::FLAGS,
        row::DETAIL => Wants::DETAIL,
        row::ALLOCATED => Wants::SPACE,
        row::PID | row::COMM | row::USE | row::FD => Wants::empty(),
        _ => Wants::STAT,
    }
}

impl Shown {
    fn new(args: &Args) -> Result<Shown, Failure> {
        if let Some(by) = args.by {
            if !args.fields.is_empty() {
                return Err(Failure::Unanswered(
                    "-o chooses fields of files; --by always shows the same sums".to_owned(),
                ));
            }
            return Ok(Shown::Sums(by, sums::sort_keys(&args.sort, by)?));
        }
        let chosen: Chosen<usize> = named::chosen(&args.fields, &KEYS)?;
        Ok(Shown::Files {
            columns: chosen.columns(usual_columns(args.deleted), Column::of),
            keys: chosen.keys(&usual_keys(args.deleted)),
            sort: named::sort_keys(&args.sort, &KEYS)?,
        })
    }

    /// The keys that are read.
    fn keys(&self, format: Format) -> Vec<usize> {
        match self {
            Shown::Sums(..) => vec![row::SIZE, row::ALLOCATED],
            Shown::Files { columns, keys, sort } => {
                let shown: Vec<usize> = match format {
                    Format::Table => columns.iter().flat_map(Column::keys).copied().collect(),
                    Format::Machine(_) => keys.clone(),
                };
                shown.into_iter().chain(sort.iter().map(|by| by.key)).collect()
            }
        }
    }

    /// The fields of processes that are read.
    fn fields(&self, format: Format) -> Fields {
        let fields = Fields::from(Field::StartNs);
        match self {
            Shown::Sums(by, _) => fields | by.fields().iter().copied().collect::<Fields>(),
            Shown::Files { .. } if self.keys(format).contains(&row::COMM) => fields | Field::Comm,
            Shown::Files { .. } => fields,
        }
    }
}

impl Args {
    fn query(&self) -> Result<Query, Failure> {
        if self.named.is_empty() {
            self.selection.query(false)
        } else {
            Ok(Query::these(self.named.iter().copied()))
        }
    }

    fn request(&self, shown: &Shown) -> Result<(Request, Outcome), Failure> {
        let format = self.output.formats.format();
        let mut request = Request::default();
        request.wants = shown.keys(format).into_iter().map(wants_of).collect();
        if matches!(shown, Shown::Sums(By::Path, _)) {
            request.wants |= Wants::NAMES;
        }
        if self.deleted {
            request.wants |= Wants::STAT | Wants::SPACE;
        }
        let mut filter = Filter::default();
        if !self.uses.is_empty() {
            filter.uses = self.uses.iter().copied().collect();
        } else if self.deleted || !self.paths.is_empty() {
            filter.uses = Uses::all();
        }
        filter.deleted = self.deleted;
        if !self.kinds.is_empty() {
            filter.kinds = Some(self.kinds.iter().copied().collect());
        }
        let mut outcome = Outcome::Complete;
        for path in &self.paths {
            match PathMatch::new(path, self.from.patience()) {
                Ok(found) => filter.paths.push(found),
                Err(error) => {
                    say(format_args!("{error:#}"));
                    outcome = Outcome::Partial;
                }
            }
        }
        if filter.paths.is_empty() && !self.paths.is_empty() {
            return Err(Failure::Unanswered("none of the paths leads to a file".to_owned()));
        }
        request.filter = filter;
        Ok((request, outcome))
    }
}

/// Values that are missing in rows that were written, by reason.
#[derive(Clone, Copy, Debug, Default)]
struct Missing {
    denied: u64,
    silent: u64,
    truncated: u64,
}

impl Missing {
    fn count(&mut self, file: &OpenFile<'_>) {
        let values = [
            file.name.err(),
            file.nlink.err(),
            file.open_flags.err(),
            file.detail.err(),
        ];
        let has = |reason: Absent| values.contains(&Some(reason));
        self.denied += u64::from(has(Absent::Denied));
        self.silent += u64::from(has(Absent::NoAnswer));
        self.truncated += u64::from(has(Absent::Truncated));
    }
}

/// Runs the command.
pub fn run(args: Args) -> Result<Outcome, Failure> {
    let shown = Shown::new(&args)?;
    let format = args.output.formats.format();
    let query = args.query()?.fields(shown.fields(format));
    let (request, outcome) = args.request(&shown)?;
    let mut handle = args.from.handle();
    // The broker lists processes, but not their files: say so before it is asked.
    handle.prepare_files(&Snapshot::default())?;
    let processes = listing::Answers::ask(&mut handle, &query)?;
    let mut report = Report {
        args: &args,
        request: &request,
        processes: &processes,
        total: Sum::default(),
        missing: Missing::default(),
    };
    let answer = match &shown {
        Shown::Files { columns, keys, sort } => match format {
            Format::Table => report.table(&mut handle, columns, sort)?,
            Format::Machine(machine) => report.rows(&mut handle, machine, keys, sort)?,
        },
        Shown::Sums(by, sort) => report.sums(&mut handle, format, *by, sort)?,
    };
    let outcome = outcome
        .and(processes.report(&[]))
        .and(args.selection.check_cgroup(&handle, &processes));
    Ok(outcome.and(report.report(&answer)))
}

/// Writes an answer.
struct Report<'a> {
    args: &'a Args,
    request: &'a Request,
    processes: &'a listing::Answers,
    /// Of all files, those beyond `--limit`, too.
    total: Sum,
    missing: Missing,
}

impl Report<'_> {
    /// Passes each row to `each`, which says whether it is enough: in the order of processes, or
    /// sorted.
    fn each_row(
        &mut self,
        handle: &mut Handle,
        sort: &[SortBy<usize>],
        mut each: impl FnMut(&Cells<'_>) -> std::io::Result<()>,
    ) -> Result<Answer, Failure> {
        let limit = self.args.limit.unwrap_or(usize::MAX);
        let needs_total = self.args.deleted;
        let (mut kept, mut rows, mut failure) = (Vec::new(), 0, None);
        let answer = handle.files(self.processes.snapshot(), self.request, |task, file| {
            if needs_total {
                self.total.add(task, file);
            }
            self.missing.count(file);
            let cells = row::cells(task, file);
            if !sort.is_empty() {
                kept.push(Kept::new(&cells));
                return ControlFlow::Continue(());
            }
            if rows < limit {
                rows += 1;
                if let Err(error) = each(&cells) {
                    failure = Some(error);
                    return ControlFlow::Break(());
                }
            }
            if rows == limit && !needs_total {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        if let Some(error) = failure {
            return Err(error.into());
        }
        kept.sort_by(|a, b| named::compare(sort, a, b, |row, key| row.cell(key)));
        for row in kept.iter().take(limit) {
            each(&row.cells())?;
        }
        Ok(answer)
    }

    fn table(&mut self, handle: &mut Handle, columns: &[Column], sort: &[SortBy<usize>]) -> Result<Answer, Failure> {
        let (exact, header, deleted) = (self.args.output.bytes, !self.args.output.no_header, self.args.deleted);
        let mut table = Table::new(columns.iter().map(Column::align), 0);
        if header {
            table.headings(columns.iter().map(|column| column.heading));
        }
        let answer = self.each_row(handle, sort, |cells| {
            for column in columns {
                table.cell(|out| column.write(out, cells, exact));
            }
            Ok(())
        })?;
        if deleted {
            self.total_row(&mut table, columns);
        }
        let mut output = Output::new();
        table.write(&mut output, terminal_width())?;
        output.finish()?;
        Ok(answer)
    }

    /// The last row of a table of deleted files: each counts once, however often it is open.
    fn total_row(&self, table: &mut Table, columns: &[Column]) {
        let [_, processes, _, files, bytes] = self.total.numbers();
        for (index, column) in columns.iter().enumerate() {
            table.cell(|out| match column.show {
                Show::Key(row::ALLOCATED) if self.args.output.bytes => people::number(out, bytes),
                Show::Key(row::ALLOCATED) => people::size(out, bytes),
                Show::Key(row::NAME) => {
                    cell::formatted(out, format_args!("{files} files, held by {processes} processes"));
                }
                _ if index == 0 => out.extend_from_slice(b"total"),
                _ => {}
            });
        }
    }

    fn rows(
        &mut self,
        handle: &mut Handle,
        machine: Machine,
        keys: &[usize],
        sort: &[SortBy<usize>],
    ) -> Result<Answer, Failure> {
        let names = keys.iter().map(|&key| KEYS[key].name).collect();
        let head = self.head(handle)?;
        let mut output = Rows::begin(machine, &head, names, !self.args.output.no_header);
        let answer = self.each_row(handle, sort, |cells| {
            let row: Vec<Cell<'_>> = keys.iter().map(|&key| cells[key]).collect();
            output.row(&row)
        })?;
        let total = self.args.deleted.then(|| self.total.cells());
        let total: Total<'_> = total.as_ref().map(|cells| (&Sum::KEYS[..], &cells[..]));
        output.finish_with(|out| {
            document::counters(out, &counters(&answer));
            write_total(out, total);
        })?;
        Ok(answer)
    }

    fn head(&self, handle: &mut Handle) -> Result<Head<'static>, Failure> {
        let source = handle.prepare_files(self.processes.snapshot())?;
        Ok(Head::streaming("files", vec![("files", source.name())]))
    }

    fn sums(
        &mut self,
        handle: &mut Handle,
        format: Format,
        by: By,
        sort: &[SortBy<sums::SumKey>],
    ) -> Result<Answer, Failure> {
        let head = self.head(handle)?;
        let mut sums = Sums::new(by);
        let answer = handle.files(self.processes.snapshot(), self.request, |task, file| {
            self.total.add(task, file);
            self.missing.count(file);
            sums.add(task, file);
            ControlFlow::Continue(())
        })?;
        let mut sums = sums.sorted(sort);
        sums.truncate(self.args.limit.unwrap_or(usize::MAX));
        let mut names = Names::default();
        match format {
            Format::Table => self.sum_table(by, &sums, &mut names)?,
            Format::Machine(machine) => {
                let keys = by.keys().iter().copied().chain(Sum::KEYS).collect();
                let mut rows = Rows::begin(machine, &head, keys, !self.args.output.no_header);
                for (name, sum) in &sums {
                    let user = match name {
                        Name::User(uid) => names.user_name(*uid).map(<[u8]>::to_vec),
                        _ => None,
                    };
                    let mut cells: Vec<Cell<'_>> = match name {
                        Name::User(uid) => {
                            let name = user.as_deref().map(Value::Text).ok_or("no name");
                            vec![Ok(Value::Unsigned((*uid).into())), name]
                        }
                        Name::Text(name) => vec![Ok(Value::Text(name))],
                        Name::None(reason) => by.keys().iter().map(|_| Err(reason.as_str())).collect(),
                    };
                    cells.extend(sum.cells());
                    rows.row(&cells)?;
                }
                let total = self.total.cells();
                rows.finish_with(|out| {
                    document::counters(out, &counters(&answer));
                    write_total(out, Some((&Sum::KEYS, &total)));
                })?;
            }
        }
        Ok(answer)
    }

    fn sum_table(&self, by: By, sums: &[(Name, Sum)], names: &mut Names) -> Result<(), Failure> {
        let headings = ["OPEN", "PROCESSES", "FILES", "DELETED", "HELD"];
        let aligns = headings.iter().map(|_| Align::Right).chain([Align::Left]);
        let mut table = Table::new(aligns, sums.len() + 1);
        if !self.args.output.no_header {
            table.headings(headings.into_iter().chain([by.heading()]));
        }
        let exact = self.args.output.bytes;
        let numbers = |table: &mut Table, sum: &Sum| {
            let [counts @ .., bytes] = sum.numbers();
            for count in counts {
                table.cell(|out| people::number(out, count));
            }
            table.cell(|out| {
                if exact {
                    people::number(out, bytes);
                } else {
                    people::size(out, bytes);
                }
            });
        };
        for (name, sum) in sums {
            numbers(&mut table, sum);
            table.cell(|out| match name {
                Name::User(uid) => text::escape(out, names.user(*uid)),
                Name::Text(name) if name.is_empty() => out.extend_from_slice(b"\"\""),
                Name::Text(name) => text::escape(out, name),
                Name::None(_) => out.push(b'-'),
            });
        }
        numbers(&mut table, &self.total);
        table.cell(|out| out.extend_from_slice(b"total"));
        let mut output = Output::new();
        table.write(&mut output, terminal_width())?;
        Ok(output.finish()?)
    }

    /// Says what is missing.
    fn report(&self, answer: &Answer) -> Outcome {
        let mut outcome = Outcome::Complete;
        let mut lacks = |message: String| {
            say(message);
            outcome = Outcome::Partial;
        };
        match answer.denied {
            0 => {}
            1 => lacks(format!("1 process left out: you may not see its files ({})", who_may())),
            count => lacks(format!(
                "{count} processes left out: you may not see their files ({})",
                who_may()
            )),
        }
        if !answer.silent.is_empty() {
            lacks(no_answer_from(&answer.silent));
        }
        match answer.undecided {
            0 => {}
            count => lacks(format!(
                "{count} files left out: what they are filtered by may not be seen ({}), or did not come in time",
                who_may()
            )),
        }
        match answer.changed {
            0 => {}
            count => lacks(format!(
                "{count} descriptors left out: they led to one file after the other while they were read"
            )),
        }
        match answer.malformed {
            0 => {}
            count => lacks(format!(
                "{count} answers of the kernel made no sense and were left out: please report this"
            )),
        }
        let Missing {
            denied,
            silent,
            truncated,
        } = self.missing;
        if denied > 0 {
            lacks(format!("values denied for {denied} files ({})", who_may()));
        }
        if silent > 0 {
            lacks(format!(
                "values without an answer for {silent} files (--patience waits longer)"
            ));
        }
        if truncated > 0 {
            lacks(format!("names of {truncated} files are too long to be read"));
        }
        if self.total.unknown() > 0 {
            lacks(format!(
                "{} uses are of files that are not known, and in no count of files",
                self.total.unknown()
            ));
        }
        outcome
    }
}

/// What was counted.
fn counters(answer: &Answer) -> [(&'static str, Value<'static>); 9] {
    [
        ("files", answer.files),
        ("denied", answer.denied),
        ("gone", answer.gone),
        ("changed", answer.changed),
        ("undecided", answer.undecided),
        ("malformed", answer.malformed),
        ("deferred", answer.deferred),
        ("no_answer", answer.silent.len() as u64),
        ("longest_run_ns", answer.longest_run_ns),
    ]
    .map(|(name, count)| (name, Value::Unsigned(count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that kinds and uses have names, and that an unknown one is an error that has them.
    #[test]
    fn kinds_and_uses_have_names() {
        assert_eq!(kind("socket"), Ok(Kinds::SOCKET));
        assert_eq!(kind("anon"), Ok(Kinds::ANON));
        assert_eq!(kind("epoll"), Ok(Kinds::from(AnonKind::Epoll)));
        assert!(kind("sock").is_err_and(|error| error.contains("socket") && error.contains("eventfd")));
        assert_eq!(uses("cwd"), Ok(Uses::CWD));
        assert_eq!(uses("all"), Ok(Uses::all()));
        assert!(uses("mem").is_err_and(|error| error.contains("map")));
    }

    /// Check that only what is shown is read.
    #[test]
    fn only_what_is_shown_is_read() {
        let wants = |keys: &[usize]| keys.iter().copied().map(wants_of).collect::<Wants>();
        assert_eq!(wants(&[row::PID, row::FD, row::COMM, row::USE]), Wants::empty());
        assert_eq!(wants(&[row::NAME, row::ACCESS]), Wants::NAMES | Wants::FLAGS);
        assert_eq!(wants(&row::USUAL_KEYS), Wants::NAMES | Wants::FLAGS | Wants::STAT);
        assert_eq!(wants(&[row::DETAIL]), Wants::DETAIL);
        for (key, known) in KEYS.iter().enumerate() {
            assert_eq!(Column::of(key).keys(), [key], "{}", known.name);
        }
    }
}
