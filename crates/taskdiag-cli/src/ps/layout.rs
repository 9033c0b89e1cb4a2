//! The columns or fields of the answer, and the query for them.

use taskdiag::{Field, Fields, Filter, Handle, Query};
use taskdiag_core::field::{PROCESS_FIELDS, THREAD_FIELDS};

use super::columns::{self, ColumnContent, Vocabulary};
use super::sort::{self, PsKey};
use super::{query, Args};
use crate::choice::SortBy;
use crate::listing::{Format, Machine};
use crate::outcome::Failure;
use crate::output::listing::ListingColumn;
use crate::output::tasks::{self, shown_as};
use crate::selection;

/// The table without `-o`.
const PROCESSES: [ListingColumn; 12] = [
    ListingColumn::made("USER", &tasks::USER),
    shown_as("PID", Field::Pid),
    shown_as("PPID", Field::Ppid),
    shown_as("%CPU", Field::CpuPercent),
    shown_as("%MEM", Field::MemPercent),
    shown_as("STATE", Field::State),
    ListingColumn::made("TTY", &tasks::TERMINAL),
    ListingColumn::made("START", &tasks::START),
    ListingColumn::made("TIME", &tasks::TIME),
    shown_as("RSS", Field::RssBytes),
    shown_as("VSIZE", Field::VsizeBytes),
    ListingColumn::made("COMMAND", &tasks::COMMAND),
];

/// The table of threads without `-o`.
const THREADS: [ListingColumn; 9] = [
    ListingColumn::made("USER", &tasks::USER),
    shown_as("PID", Field::Pid),
    shown_as("TID", Field::Tid),
    shown_as("STATE", Field::State),
    ListingColumn::made("TTY", &tasks::TERMINAL),
    ListingColumn::made("START", &tasks::START),
    ListingColumn::made("TIME", &tasks::TIME),
    shown_as("NAME", Field::Comm),
    ListingColumn::made("COMMAND", &tasks::COMMAND),
];

/// What programs get besides the usual fields: the same as text that people know.
const FOR_PEOPLE: [Field; 2] = [Field::User, Field::StartTime];

/// The layout of the answer.
#[derive(Debug)]
pub enum TaskLayout {
    /// A table of this project's own columns.
    Table(Vec<ListingColumn>),
    /// Lines in the layout of ps.
    Lines(Vec<columns::Column>),
    /// For programs.
    Machine(Machine, Vec<Field>),
}

impl TaskLayout {
    /// The layout that the arguments choose.
    pub fn new(args: &Args) -> Result<TaskLayout, Failure> {
        let (options, ps_options) = (&args.options, &args.ps_options);
        let is_threads = args.threads;
        let default_columns = || {
            if is_threads {
                THREADS.to_vec()
            } else {
                PROCESSES.to_vec()
            }
        };
        let mut lists = options.fields.clone();
        lists.splice(..0, ps_options.preset.preloaded.clone());
        let usual = |vocabulary| match vocabulary {
            Vocabulary::Ps if ps_options.is_given => columns::preset(ps_options),
            Vocabulary::Ps => default_columns().into_iter().map(columns::Column::from).collect(),
            Vocabulary::Fields if ps_options.preset.is_format() => columns::preset(ps_options),
            Vocabulary::Fields => {
                let fields: &[Field] = if is_threads { &THREAD_FIELDS } else { &PROCESS_FIELDS };
                FOR_PEOPLE
                    .iter()
                    .chain(fields)
                    .map(|&field| columns::Column::from(tasks::shown(field)))
                    .collect()
            }
        };
        let vocabulary = match options.format() {
            Format::Table => Vocabulary::Ps,
            Format::Machine(_) => Vocabulary::Fields,
        };
        let columns = if lists.is_empty() {
            usual(vocabulary)
        } else {
            columns::named(&lists, vocabulary, || usual(vocabulary))?
        };
        if let Format::Machine(machine) = options.format() {
            return Ok(TaskLayout::Machine(machine, columns::fields(&columns)));
        }
        let native = |column: &columns::Column| match column.shows {
            ColumnContent::Native(shown) if column.width.is_none() && column.header == shown.heading => Some(shown),
            _ => None,
        };
        let layout = match columns.iter().map(native).collect() {
            Some(native) if ps_options.forest.is_none() => TaskLayout::Table(native),
            _ => TaskLayout::Lines(columns),
        };
        Ok(layout)
    }

    /// Also shows what tasks are sorted by, before the command.
    fn show_keys(&mut self, sort: &[SortBy<PsKey>]) {
        for by in sort {
            let needs: Vec<Field> = by.key.needs().iter().collect();
            let [field] = needs[..] else { continue };
            if self.fields().contains(field) {
                continue;
            }
            match self {
                TaskLayout::Table(columns) => columns.insert(columns.len() - 1, tasks::shown(field)),
                TaskLayout::Machine(_, fields) => fields.push(field),
                TaskLayout::Lines(_) => {}
            }
        }
    }

    /// The fields that it shows.
    pub fn fields(&self) -> Fields {
        match self {
            TaskLayout::Table(columns) => tasks::fields(columns),
            TaskLayout::Lines(columns) => columns
                .iter()
                .fold(Fields::NONE, |fields, column| fields | column.shows.needs()),
            TaskLayout::Machine(_, fields) => fields.iter().copied().collect(),
        }
    }
}

/// What the arguments mean.
#[derive(Debug)]
pub struct PsRequest {
    pub query: Query,
    /// The order of the rows.
    pub sort: Vec<SortBy<PsKey>>,
    /// The maximum number of rows.
    pub limit: usize,
    /// What is shown about them.
    pub shown: TaskLayout,
}

impl PsRequest {
    /// Whether a command line or an environment decides which rows there are, or their order.
    pub fn has_texts_in_tests(&self) -> bool {
        let filter = self.query.filter.as_ref().map(Filter::fields).unwrap_or_default();
        let read = self.sort.iter().fold(filter, |fields, by| fields | by.key.needs());
        let read = Query::processes().fields(read).fields_read();
        read.contains(Field::Cmdline) || read.contains(Field::Environ)
    }

    /// What the arguments ask for.
    pub fn new(args: &Args) -> Result<PsRequest, Failure> {
        let mut shown = TaskLayout::new(args)?;
        let vocabulary = match shown {
            TaskLayout::Machine(..) => Vocabulary::Fields,
            TaskLayout::Table(_) | TaskLayout::Lines(_) => Vocabulary::Ps,
        };
        let sort = sort::keys(&args.order.sort, vocabulary)?;
        if args.options.fields.is_empty() && !args.ps_options.preset.is_format() {
            shown.show_keys(&sort);
        }
        let by_field = sort.iter().filter_map(|by| by.key.field());
        selection::check_order(args.options.format(), by_field);
        let mut fields = sort.iter().fold(shown.fields(), |fields, by| fields | by.key.needs());
        let ps_options = &args.ps_options;
        if ps_options.forest.is_some() {
            fields |= Field::Ppid | Field::StartNs;
        }
        if ps_options.modifiers.environment {
            fields |= Field::Environ;
        }
        if fields.contains(Field::Cgroup) && Handle::has_cgroup1() {
            fields |= Field::Cgroups;
        }
        let query = query(args)?.fields(fields);
        Ok(PsRequest {
            query,
            sort,
            limit: args.order.limit(),
            shown,
        })
    }
}
