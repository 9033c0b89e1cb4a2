//! `taskdiag mem`.

mod account;
mod progress;
mod report;
mod sums;
mod system;

use std::time::Duration;

use clap::Args as ClapArgs;
use taskdiag::{Budget, Field, Fields, Query, Value};
use taskdiag_core::field::MEMORY_FIELDS;

use crate::choice::{OrderOptions, SortBy};
use crate::grouping::{self, Grouping, SumLayout};
use crate::history::PastOptions;
use crate::listing::{Format, Options};
use crate::outcome::{Failure, Outcome};
use crate::output::cell::{Cells, Scale};
use crate::output::listing::{headed, CompositeCell, Form, ListingColumn};
use crate::output::table::Align;
use crate::output::tasks::{self, shown_as};
use crate::quantity::{self, Limit};
use crate::rhythm::Rhythm;
use crate::selection::{self, Selection, SELECTING};
pub use account::{Account, Line as AccountLine, FIELDS as SYSTEM_FIELDS};
use report::Report;
pub use sums::Sum;
pub use system::{Tally as SystemTally, RELATION as SYSTEM_RELATION};

/// Show what memory processes really cost: proportional (PSS) and unique (USS) sizes
///
/// RSS counts a page for every process that has it mapped. PSS divides the page among them, so that
/// the sizes of all processes add up. USS counts only pages that no other process has mapped. Pages
/// of hugetlbfs are in none of these; where a process has some, they have their own columns. To
/// find these sizes, the kernel walks the page tables of the process, which takes longer the more
/// memory it has. So the smallest processes are read first; those that do not fit into --deadline,
/// or are larger than --max-rss, are left out and reported. All sizes of a row come from that walk:
/// SWAP and RSS are the fields rollup_swap_bytes and rollup_rss_bytes; of a recording without PSS,
/// they are the kernel's counters, swap_bytes and rss_bytes. If processes are missing from a sum, the
/// sum says so. Kernel threads and zombies have no memory and are not listed. The largest
/// PSS comes first.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag mem --limit 10\n  \
    taskdiag mem --by program --scale M\n  \
    taskdiag mem -u www-data --total --json\n  \
    taskdiag mem --watch 2 --limit 20\n  \
    taskdiag mem --system")]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// One row for each of these instead of for each process
    #[arg(long, value_name = "KEY,…", value_delimiter = ',', conflicts_with = "total",
        value_parser = grouping::by_parser(&grouping::OF_PROCESSES))]
    by: Vec<&'static Grouping>,
    /// Only the sum over all processes
    #[arg(long, conflicts_with_all = ["sort", "limit"])]
    total: bool,
    /// How the processes, the page cache and the kernel add up to the machine's memory, and what
    /// remains unexplained
    #[arg(long, conflicts_with_all = SELECTING, conflicts_with_all = ["by", "total", "limit", "watch"])]
    system: bool,
    #[command(flatten)]
    order: OrderOptions,
    /// Leave out processes that have not been read after this time, or `none`
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = quantity::duration_or_none)]
    deadline: Limit<Duration>,
    /// Leave out processes with more resident memory, or `none`
    #[arg(long, value_name = "SIZE", default_value = "16G", value_parser = quantity::size_or_none)]
    max_rss: Limit<u64>,
    /// With --watch: read a process again after this time, even if it shows no sign of change
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = quantity::duration)]
    max_age: Duration,
    /// Show samples at this interval
    #[arg(long, value_name = "SECONDS", conflicts_with = "MomentOptions", value_parser = quantity::interval)]
    watch: Option<Duration>,
    /// With --watch: end after this many samples
    #[arg(short = 'n', long, value_name = "N", value_parser = quantity::count, requires = "watch")]
    count: Option<u64>,
    /// The unit of all sizes in tables [default: whichever fits]
    #[arg(
        long,
        value_enum,
        value_name = "UNIT",
        conflicts_with = "bytes",
        help_heading = "Output"
    )]
    scale: Option<Scale>,
    #[command(flatten)]
    past: PastOptions,
    #[command(flatten)]
    options: Options,
}

impl Args {
    fn budget(&self) -> Budget {
        Budget::default()
            .deadline(self.deadline.0)
            .max_rss_bytes(self.max_rss.0)
            .max_age(self.max_age)
    }

    fn query(&self) -> Result<Query, Failure> {
        Ok(self.selection.query(false, self.past.is_given())?.budget(self.budget()))
    }

    fn form(&self) -> Form {
        self.options.form(self.cells())
    }

    fn cells(&self) -> Cells {
        Cells::new(self.options.bytes, self.options.names).in_scale(self.scale)
    }
}

/// The table without `-o`.
const COLUMNS: [ListingColumn; 7] = [
    shown_as("PID", Field::Pid),
    ListingColumn::made("USER", &tasks::USER),
    shown_as("SWAP", Field::RollupSwapBytes),
    shown_as("USS", Field::UssBytes),
    shown_as("PSS", Field::PssBytes),
    shown_as("RSS", Field::RollupRssBytes),
    ListingColumn::made("COMMAND", &tasks::COMMAND),
];

/// In the table without `-o`, behind the sizes, if a process has pages of hugetlbfs.
const HUGETLB: [ListingColumn; 2] = [
    shown_as("HUGETLB", Field::PrivateHugetlbBytes),
    shown_as("SHARED-HUGETLB", Field::SharedHugetlbBytes),
];

/// In the table of `--watch` without `-o`, the column before the command.
const AGE: ListingColumn = ListingColumn::made("AGE", &AGE_IN_SECONDS);

/// The age of a process's values, in seconds.
static AGE_IN_SECONDS: CompositeCell = CompositeCell {
    align: Align::Right,
    needs: &[Field::RollupAgeNs as usize],
    write: |out, row, cells| match row.cell(Field::RollupAgeNs as usize) {
        Ok(Value::Unsigned(ns)) if !cells.exact => {
            out.extend_from_slice(format!("{:.1}s", ns as f64 / 1e9).as_bytes());
        }
        other => cells.cell(out, &tasks::RELATION[Field::RollupAgeNs as usize], other),
    },
};

/// The column of a field that `-o` names.
fn shown(field: Field) -> ListingColumn {
    match field {
        Field::RollupAgeNs => ListingColumn::made(field.name(), &AGE_IN_SECONDS),
        field => tasks::shown(field),
    }
}

/// The kind of rows.
enum RowKind {
    /// Processes: columns of a table, or fields of machine-readable output.
    Processes {
        columns: Vec<ListingColumn>,
        fields: Vec<Field>,
        sort: Vec<SortBy<Field>>,
    },
    /// Sums, or only the total.
    Sums(SumLayout),
}

impl RowKind {
    fn new(args: &Args) -> Result<RowKind, Failure> {
        let chosen = selection::chosen_fields(&args.options.fields)?;
        if !chosen.items.is_empty() && (args.total || !args.by.is_empty()) {
            return Err("-o chooses fields of processes; --by and --total always show the same sums".into());
        }
        if args.total || !args.by.is_empty() {
            let layout = SumLayout::new::<Sum>(&args.by, &args.order, "-pss_bytes,-rollup_rss_bytes")?;
            return Ok(RowKind::Sums(layout));
        }
        let sort = match args.order.sort.as_slice() {
            // Recordings may have no PSS.
            [] => [Field::PssBytes, Field::RssBytes][..1 + usize::from(args.past.is_given())]
                .iter()
                .map(|&key| SortBy { key, descending: true })
                .collect(),
            lists => {
                let table = [&COLUMNS[..], &HUGETLB, &[AGE]].concat();
                SortBy::parse(lists, |name| match headed(name, &table) {
                    Some(column) => Ok(Field::ALL[column]),
                    None => selection::field(name),
                })?
            }
        };
        selection::check_order(args.options.format(), sort.iter().map(|by| by.key));
        let mut columns = COLUMNS.to_vec();
        if args.watch.is_some() {
            columns.insert(columns.len() - 1, AGE);
        }
        Ok(RowKind::Processes {
            columns: chosen.columns(columns, shown),
            fields: chosen.keys(&MEMORY_FIELDS),
            sort,
        })
    }

    /// The fields to ask for.
    fn fields(&self, format: Format) -> Fields {
        let mut asked: Fields = sums::FIELDS.into_iter().collect();
        match self {
            RowKind::Processes { columns, fields, sort } => {
                match format {
                    Format::Table => asked |= tasks::fields(columns),
                    Format::Machine(_) => asked |= fields.iter().copied().collect::<Fields>(),
                }
                asked |= sort.iter().map(|by| by.key).collect::<Fields>();
            }
            RowKind::Sums(layout) => asked |= grouping::fields(&layout.by),
        }
        asked
    }
}

pub fn run(args: Args) -> Result<Outcome, Failure> {
    if args.system {
        return system::run(&args);
    }
    let kind = RowKind::new(&args)?;
    let counters = [Field::RssBytes, Field::SwapBytes].into_iter();
    let counters: Fields = counters.filter(|_| args.past.is_given()).collect();
    let query = args.query()?.fields(kind.fields(args.options.format()) | counters);
    let mut report = Report::new(&args, kind);
    let Some(interval) = args.watch else {
        let (mut handle, whole) = args.past.handle(args.options.format(), || args.options.from.handle())?;
        return Ok(whole.and(report.sample(&mut handle, &query, None)?));
    };
    args.options.check_endless(args.count)?;
    let mut handle = args.options.from.handle_for_many();
    let mut outcome = Outcome::Complete;
    let mut rhythm = Rhythm::new(interval);
    for sample in 0..args.count.unwrap_or(u64::MAX) {
        if sample > 0 {
            rhythm.wait();
        }
        outcome = outcome.and(report.sample(&mut handle, &query, Some(sample))?);
    }
    report.finish(args.count.unwrap_or_default())?;
    Ok(outcome)
}
