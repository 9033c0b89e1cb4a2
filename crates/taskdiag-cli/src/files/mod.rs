//! `taskdiag files`.

mod detail;
mod report;
mod row;
mod sums;

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use taskdiag::files::{FileField, Filter, KernelUse, Kind, PathMatch, Request, Use};
use taskdiag::{Field, Fields, Set, Snapshot};

use crate::choice::{OrderOptions, SortBy};
use crate::grouping::{self, Grouping, Groupings, SumLayout};
use crate::listing::{Answers, Format};
use crate::outcome::{say, Failure, Outcome};
use crate::output::format::OutputOptions;
use crate::output::listing::{DefaultColumns, Layout, ListingColumn};
use crate::quantity;
use crate::selection::{Selection, OF_PROCESSES, ONLY_IF};
use crate::source::SourceOptions;
use report::Report;
pub use row::RELATION;
pub use sums::{Sum, OWN};

/// List what processes have open: descriptors, directories, programs, mapped files
///
/// It never waits for a file system: paths of processes are not walked, and sizes are what the
/// kernel knows already. --where chooses files, too, by their fields and those of their processes. It
/// takes root, or CAP_SYS_PTRACE, to see the files of another user's process. Rows are in the order of
/// their processes.
#[derive(Debug, ClapArgs)]
#[command(mut_arg("filter", |arg| arg.help(format!("Only files {ONLY_IF} of files and of their processes"))))]
#[command(after_help = "Examples:\n  \
    taskdiag files $$\n  \
    taskdiag files --path /var/log/syslog\n  \
    taskdiag files --path /mnt/usb -o pid,comm,use,name\n  \
    taskdiag files --deleted --sort -allocated_bytes\n  \
    taskdiag files -u www-data --kind socket,epoll --jsonl\n  \
    taskdiag files --where \"kind == 'fifo' and access == 'w' and comm ~ '^nginx'\"\n  \
    taskdiag files --by program")]
pub struct Args {
    /// The processes [default: all]
    #[arg(value_name = "PID", value_parser = quantity::pid, conflicts_with_all = OF_PROCESSES)]
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
    /// Add up by these
    #[arg(long, value_name = "KEY,…", value_delimiter = ',', value_parser = grouping::by_parser(GROUPINGS))]
    by: Vec<&'static Grouping>,
    #[command(flatten)]
    order: OrderOptions,
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

/// What `--by` takes.
const GROUPINGS: &Groupings = &grouping::with::<11>(&sums::OWN);

/// What to show.
enum Content {
    Files(Layout),
    Sums(SumLayout),
}

/// What is shown without `-o`.
pub fn usual(deleted: bool) -> DefaultColumns {
    let mut fields = Request::default().fields;
    if deleted {
        fields |= FileField::AllocatedBytes;
    }
    DefaultColumns {
        table: vec![
            ListingColumn::column("PID", row::PID),
            ListingColumn::column("COMMAND", row::COMM),
            ListingColumn::made("FD", &row::FD_OR_USE),
            ListingColumn::column("ACCESS", row::ACCESS),
            ListingColumn::made("KIND", &row::OBJECT_OR_KIND),
            if deleted {
                ListingColumn::column("HELD", row::ALLOCATED).keeping_end()
            } else {
                ListingColumn::column("SIZE", row::SIZE)
            },
            ListingColumn::made("DEV", &row::DEVICE),
            ListingColumn::column("INODE", row::INODE),
            ListingColumn::column("NAME", row::NAME),
        ],
        rows: fields.iter().map(|field| field as usize).collect(),
    }
}

impl Content {
    fn new(args: &Args) -> Result<Content, Failure> {
        if !args.by.is_empty() {
            grouping::only_sums(&args.fields, "files")?;
            let layout = SumLayout::new::<Sum>(&args.by, &args.order, "-opens_count")?;
            return Ok(Content::Sums(layout));
        }
        let usual = usual(args.deleted);
        let layout = Layout::new(&RELATION, &args.fields, &args.order, usual, row::shown)?;
        Ok(Content::Files(layout))
    }

    /// The fields of files to read.
    fn needs(&self, format: Format) -> Set<FileField> {
        match self {
            Content::Sums(layout) => {
                let own: Set<FileField> = layout.by.iter().filter_map(|by| sums::field_of(by)).collect();
                own | FileField::SizeBytes | FileField::AllocatedBytes
            }
            Content::Files(layout) => layout
                .needs(format)
                .into_iter()
                .map(|column| FileField::ALL[column])
                .collect(),
        }
    }

    /// The fields of processes to read.
    fn fields(&self, format: Format) -> Fields {
        Field::StartNs
            | match self {
                Content::Sums(layout) => grouping::fields(&layout.by),
                Content::Files(_) => self.needs(format).iter().filter_map(FileField::of_tasks).collect(),
            }
    }
}

impl Args {
    fn request(&self, content: &Content, filter: Option<Filter>) -> Result<(Request, Outcome), Failure> {
        let mut request = Request::default();
        request.filter = filter;
        request.fields = content.needs(self.output.format());
        if self.deleted {
            request.fields |= FileField::Nlink | FileField::AllocatedBytes;
        }
        if !self.uses.is_empty() {
            request.uses = self.uses.iter().copied().collect();
        } else if self.deleted || !self.paths.is_empty() || request.filter.as_ref().is_some_and(Filter::reads_use) {
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
                // --path takes all words behind it.
                Err(error) if path.to_str().is_some_and(|word| word.parse::<u32>().is_ok()) => {
                    let message = format!("{error:#}\ntip: -p {} chooses a process", path.display());
                    return Err(message.into());
                }
                Err(error) if self.paths.len() == 1 => return Err(error.into()),
                Err(error) => {
                    say(format_args!("{error:#}"));
                    outcome = Outcome::Partial;
                }
            }
        }
        if request.paths.is_empty() && !self.paths.is_empty() {
            return Err("no path is left to ask about".into());
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

pub fn run(args: Args) -> Result<Outcome, Failure> {
    let mut content = Content::new(&args)?;
    let format = args.output.format();
    let (query, filter) = args.selection.query_for_files(&args.named)?;
    let of_filter = filter.as_ref().map_or(Fields::NONE, Filter::task_fields);
    let query = query.fields(content.fields(format) | of_filter);
    let mut handle = args.from.handle();
    // An older broker lists processes, but not their files: report that before querying. This also
    // reports a missing /proc, which looking up paths needs.
    handle.prepare_files(&Snapshot::default())?;
    let (request, outcome) = args.request(&content, filter)?;
    // Mapped files are read of many processes at a time, before all else.
    if let (Content::Files(layout), true) = (&mut content, request.uses.contains(Use::Map)) {
        let (key, descending) = (row::PID, false);
        let usual = layout.sort.is_empty().then_some(SortBy { key, descending });
        layout.sort.extend(usual);
    }
    let processes = Answers::ask(&mut handle, &query)?;
    let mut report = Report::new(&args, &request, &processes);
    let answer = match &content {
        Content::Files(layout) => report.files(&mut handle, layout)?,
        Content::Sums(layout) => report.sums(&mut handle, layout)?,
    };
    let outcome = outcome
        .and(processes.report(&[]))
        .and(args.selection.processes.check_found(&mut handle, &processes));
    Ok(outcome.and(report.report(&answer)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only what is cheap is shown without `-o`.
    #[test]
    fn usual_columns_are_cheap() {
        let rows = usual(false).rows;
        let without = [
            FileField::AllocatedBytes,
            FileField::Detail,
            FileField::BpfType,
            FileField::BpfName,
            FileField::User,
            FileField::Peers,
        ];
        assert_eq!(rows.len(), RELATION.len() - without.len());
        assert!(without.iter().all(|&field| !rows.contains(&(field as usize))));
        assert_eq!(usual(true).rows.len(), rows.len() + 1);
    }
}
