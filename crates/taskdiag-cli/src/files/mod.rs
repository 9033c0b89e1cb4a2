//! `taskdiag files`.

mod detail;
mod report;
mod row;
mod sums;

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use taskdiag::files::{FileField, KernelUse, Kind, PathMatch, Request, Use};
use taskdiag::{Field, Fields, Query, Set, Snapshot, Value};

use crate::choice::{Chosen, SortBy, SumKey};
use crate::listing::{Answers, Format};
use crate::outcome::{say, Failure, Outcome};
use crate::output::cell::{self, is_number};
use crate::output::format::OutputOptions;
use crate::output::named::{self, write_value};
use crate::output::table::Align;
use crate::output::Cell;
use crate::quantity;
use crate::selection::{Selection, SELECTING};
use crate::source::SourceOptions;
use report::Report;
use row::Cells;
pub use row::KEYS;
pub use sums::{By, Sum};

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
    /// Only these kinds: file, dir, char, block, fifo, socket, link, anon, or one of eventfd,
    /// epoll, timerfd, signalfd, inotify, pidfd, bpf, io_uring, userfaultfd, perf, dmabuf, other
    #[arg(long = "kind", value_name = "KIND,…", value_delimiter = ',', value_parser = str::parse::<Set<Kind>>)]
    kinds: Vec<Set<Kind>>,
    /// Only these uses: fd, cwd, root, exe, map, or all [default: all but map, which has mapped
    /// files]
    #[arg(long = "use", value_name = "USE,…", value_delimiter = ',', value_parser = str::parse::<Set<Use>>)]
    uses: Vec<Set<Use>>,
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
    /// deleted, mnt_id, name, detail, bpf_type, bpf_name, user, peers, tid; a plus in front adds to
    /// those shown without
    #[arg(short = 'o', long = "fields", value_name = "[+]FIELD,…", help_heading = "Output")]
    fields: Vec<String>,
    #[command(flatten)]
    from: SourceOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// What to show.
enum Shown {
    /// Files: the columns of a table, or the keys for machine-readable output.
    Files {
        columns: Vec<Column>,
        keys: Vec<usize>,
        sort: Vec<SortBy<usize>>,
    },
    /// Sums.
    Sums(By, Vec<SortBy<SumKey>>),
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
    /// The descriptor number, or the use; after the thread, if it is only that thread's.
    FdOrUse,
    /// The kind; for a kernel object, which one.
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
            Show::Key(key) if !is_number(KEYS[key].kind) => Align::Left,
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
            Show::FdOrUse => &[row::USE, row::FD, row::TID],
            Show::ObjectOrKind => &[row::KIND, row::ANON_KIND],
            Show::Device => &[row::MAJOR, row::MINOR],
        }
    }

    fn write(&self, out: &mut Vec<u8>, cells: &Cells<'_>, exact: bool) {
        if matches!(self.show, Show::FdOrUse) && cells[row::TID].is_ok() {
            write_value(out, &KEYS[row::TID], cells[row::TID], exact);
            out.push(b'/');
        }
        let mut write = |key: usize, value: Cell<'_>| write_value(out, &KEYS[key], value, exact);
        match self.show {
            Show::FdOrUse => write(row::USE, row::fd_or_use(cells)),
            Show::ObjectOrKind => write(row::KIND, row::object_or_kind(cells)),
            Show::Device => match (cells[row::MAJOR], cells[row::MINOR]) {
                (Ok(Value::Unsigned(major)), Ok(Value::Unsigned(minor))) => {
                    cell::formatted(out, format_args!("{major}:{minor}"));
                }
                _ => out.push(b'-'),
            },
            Show::Key(key) => match cells[key] {
                Ok(Value::Text(lines)) if key == row::DETAIL => {
                    let words = detail::words(lines);
                    write(key, Ok(Value::Text(words.as_deref().map_or(lines, str::as_bytes))));
                }
                value => write(key, value),
            },
        }
    }
}

/// The default columns.
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

/// The default keys for machine-readable output.
fn usual_keys(deleted: bool) -> Vec<usize> {
    let mut usual = Request::default().fields;
    if deleted {
        usual |= FileField::AllocatedBytes;
    }
    usual.iter().map(|field| field as usize).collect()
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

    /// The keys to read.
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

    /// The fields of processes to read.
    fn fields(&self, format: Format) -> Fields {
        let fields = Fields::from(Field::StartNs);
        match self {
            Shown::Sums(by, _) => fields | by.grouping().fields.iter().copied().collect::<Fields>(),
            Shown::Files { .. } => {
                let keys = self.keys(format);
                let of_tasks = |&key: &usize| FileField::ALL[key].of_tasks();
                fields | keys.iter().filter_map(of_tasks).collect::<Fields>()
            }
        }
    }
}

impl Args {
    fn query(&self) -> Result<Query, Failure> {
        if self.named.is_empty() {
            self.selection.query(false, false)
        } else {
            Ok(Query::these(self.named.iter().copied()))
        }
    }

    fn request(&self, shown: &Shown) -> Result<(Request, Outcome), Failure> {
        let format = self.output.format();
        let mut request = Request::default();
        let fields = shown.keys(format).into_iter().map(|key| FileField::ALL[key]);
        request.fields = fields.collect();
        if matches!(shown, Shown::Sums(By::Path, _)) {
            request.fields |= FileField::Name;
        }
        if self.deleted {
            request.fields |= FileField::Nlink | FileField::AllocatedBytes;
        }
        if !self.uses.is_empty() {
            request.uses = self.uses.iter().copied().collect();
        } else if self.deleted || !self.paths.is_empty() {
            request.uses = Use::ALL.into();
        }
        request.deleted = self.deleted;
        if !self.kinds.is_empty() {
            request.kinds = Some(self.kinds.iter().copied().collect());
        }
        let mut outcome = Outcome::Complete;
        for path in &self.paths {
            match PathMatch::new(path, self.from.patience()) {
                Ok(found) => {
                    say_kernel_uses(path, &found.kernel_uses());
                    request.paths.push(found);
                }
                Err(error) => {
                    say(format_args!("{error:#}"));
                    outcome = Outcome::Partial;
                }
            }
        }
        if request.paths.is_empty() && !self.paths.is_empty() {
            return Err(Failure::Unanswered("none of the paths leads to a file".to_owned()));
        }
        Ok((request, outcome))
    }
}

/// Tells what keeps the files of a path busy, and is no process.
fn say_kernel_uses(path: &Path, uses: &[KernelUse]) {
    const NAMED: usize = 8;
    if uses.is_empty() {
        return;
    }
    let name = |one: &KernelUse| format!("{} {}", one.by, one.path.escape_ascii());
    let mut named: Vec<String> = uses.iter().take(NAMED).map(name).collect();
    if uses.len() > NAMED {
        named.push(format!("and {} more", uses.len() - NAMED));
    }
    say(format_args!(
        "{}: also in use by the kernel: {}",
        path.display(),
        named.join(", ")
    ));
}

/// Runs the command.
pub fn run(args: Args) -> Result<Outcome, Failure> {
    let shown = Shown::new(&args)?;
    let format = args.output.format();
    let query = args.query()?.fields(shown.fields(format));
    let mut handle = args.from.handle();
    // An older broker lists processes, but not their files: report that before querying. This also
    // reports a missing /proc, which looking up paths needs.
    handle.prepare_files(&Snapshot::default())?;
    let (request, outcome) = args.request(&shown)?;
    let processes = Answers::ask(&mut handle, &query)?;
    let mut report = Report::new(&args, &request, &processes);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the default keys, and that each is a column.
    #[test]
    fn usual_keys_are_what_is_cheap() {
        let keys = usual_keys(false);
        let without = [
            FileField::AllocatedBytes,
            FileField::Detail,
            FileField::BpfType,
            FileField::BpfName,
            FileField::User,
            FileField::Peers,
        ];
        assert_eq!(keys.len(), KEYS.len() - without.len());
        assert!(without.iter().all(|&field| !keys.contains(&(field as usize))));
        assert_eq!(usual_keys(true).len(), keys.len() + 1);
        for (key, known) in KEYS.iter().enumerate() {
            assert_eq!(Column::of(key).keys(), [key], "{}", known.name);
        }
    }
}
