//! The options of a listing: which fields, which order, which processes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use clap::builder::NonEmptyStringValueParser;
use clap::Args as ClapArgs;
use taskdiag::maps::MapField;
use taskdiag::{files, Field, Fields, Filter, Handle, Kind, ParseError, Query, Task};
use taskdiag_core::field::{named, with_made_of, UnknownField};
use taskdiag_core::filter::Column;
use taskdiag_sys::host::possible_cpus;

use crate::choice::{distinct, order, Chosen, Key, SortBy};
use crate::listing::{Answers, Format};
use crate::outcome::{is_procps, say, Failure, Outcome};
use crate::output::people;
use crate::output::relation::Absences;
use crate::output::table::terminal_width;
use crate::proc;
use crate::ps::columns;
use crate::ps::specifiers::{self, field_of};
use crate::quantity;
use crate::users;
use crate::watch::Rate;

/// The fields that `-o` options name, in order, without duplicates.
pub fn fields(lists: &[String]) -> Result<Vec<Field>, Failure> {
    let names = lists.iter().flat_map(|list| list.split(','));
    let fields = names.map(|name| named(name).or_else(|_| field(name).map(Fields::from)));
    let fields: Vec<Fields> = fields.collect::<Result<_, _>>()?;
    Ok(distinct(fields.iter().flat_map(|fields| fields.iter())))
}

/// The field that has this name, here or in ps(1).
pub fn field(name: &str) -> Result<Field, Failure> {
    let of_ps = |_| Ok(field_of(name).ok_or_else(|| columns::unknown(name))??);
    name.parse().or_else(of_ps)
}

/// The fields that `--sort` options name.
pub fn sort_keys(lists: &[String]) -> Result<Vec<SortBy<Field>>, Failure> {
    SortBy::parse(lists, field)
}

/// Sorts tasks by fields: numbers by value, text by bytes. A task without a value comes last. Equal
/// tasks keep their order. What the order lacks counts for all tasks, those beyond `--limit`, too.
pub fn sort<'a>(tasks: &mut Vec<Task<'a>>, by: &[SortBy<Field>], absences: &mut Absences) {
    sort_by(tasks, by, |task, field| key(task, field, absences));
}

/// The sort key of a task for a field. A missing value counts as an absence.
pub fn key<'a>(task: &Task<'a>, field: Field, absences: &mut Absences) -> Option<Key<'a>> {
    let value = task.value(field);
    if let Err(reason) = value {
        absences.count(field as usize, reason.as_str());
    }
    value.ok().map(Key::from)
}

/// Sorts tasks by several keys. `key_of` gives the key of a task. A task without a key comes last;
/// equal tasks keep their order.
pub fn sort_by<'a, K: Copy>(
    tasks: &mut Vec<Task<'a>>,
    by: &[SortBy<K>],
    mut key_of: impl FnMut(&Task<'a>, K) -> Option<Key<'a>>,
) {
    let order = order(tasks.len(), by, |index, key| key_of(&tasks[index], key).ok_or(()));
    *tasks = order.into_iter().map(|index| tasks[index]).collect();
}

/// The ids of the first processes with this name, for a message.
pub fn pids_named(name: &str) -> Vec<String> {
    let query = Query::processes().fields(Field::Pid | Field::Comm);
    let Ok(snapshot) = proc::handle().query(&query) else {
        return Vec::new();
    };
    let named = snapshot.tasks().filter(|task| task.comm() == Ok(name.as_bytes()));
    let pids = named.filter_map(|task| task.pid().ok());
    pids.map(|pid| pid.to_string()).take(8).collect()
}

/// The options of [`Processes`], for arguments that do not go together with them.
pub const OF_PROCESSES: [&str; 7] = [
    "pids",
    "children",
    "descendants",
    "users",
    "cgroup",
    "unit",
    "container",
];

/// The options of [`Selection`].
pub const SELECTING: [&str; 9] = {
    let [pids, children, descendants, users, cgroup, unit, container] = OF_PROCESSES;
    [
        pids,
        children,
        descendants,
        users,
        cgroup,
        unit,
        container,
        "filter",
        "ignore_ancestors",
    ]
};

/// What a --where says that filters other rows than tasks.
pub const ONLY_IF: &str = "for which this is true, as in `ps --where`. Several must all be true. Fields are those";

/// Which processes: the options of all commands that have processes.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct Processes {
    /// Only these processes
    #[arg(short = 'p', long = "pid", value_name = "PID,…", value_delimiter = ',', value_parser = quantity::pid)]
    pub pids: Vec<u32>,
    /// Only the children of this process
    #[arg(long, value_name = "PID", value_parser = quantity::pid, conflicts_with = "pids")]
    children: Option<u32>,
    /// Only the descendants of this process: its children, their children, and so on
    #[arg(long, value_name = "PID", value_parser = quantity::pid, conflicts_with_all = ["pids", "children"])]
    descendants: Option<u32>,
    /// Only tasks of these effective users, by name or number
    #[arg(short = 'u', long = "user", value_name = "USER,…", value_delimiter = ',')]
    users: Vec<String>,
    /// Only tasks in this cgroup of the unified hierarchy or in one below it; a path as in the
    /// field cgroup
    #[arg(long, value_name = "PATH")]
    cgroup: Option<OsString>,
    /// Only tasks of this systemd unit, of the system or of a user; a name without a dot means a
    /// service
    #[arg(long, value_name = "UNIT", value_parser = NonEmptyStringValueParser::new())]
    unit: Option<String>,
    /// Only tasks in this container, by its name or the first digits of its id
    #[arg(long, value_name = "CONTAINER", value_parser = NonEmptyStringValueParser::new())]
    container: Option<String>,
}

/// The options that select tasks.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct Selection {
    #[command(flatten)]
    pub processes: Processes,
    /// Only tasks for which this is true: == != < <= > >= with numbers (1.5G, 2h), text in quotes
    /// or other fields, in ( ), ~ (regular expression), ~* (glob), has (capabilities, signals,
    /// lists), and, or, not, ( ). A comparison with a missing value is neither true nor false. Several
    /// must all be true
    #[arg(long = "where", value_name = "EXPR")]
    filter: Vec<String>,
    /// Leave out this command and its ancestors, such as sudo and sh. A --where that reads names or
    /// arguments leaves out this command in any case
    #[arg(long, conflicts_with = "pids")]
    ignore_ancestors: bool,
}

/// The expression that is true if all of these are.
pub fn all_of(expressions: &[String]) -> Option<String> {
    match expressions {
        [] => None,
        [only] => Some(only.clone()),
        all => Some(format!("({})", all.join(") and ("))),
    }
}

impl Selection {
    /// The query for the selected tasks. `is_past`: those of a recording.
    pub fn query(&self, threads: bool, is_past: bool) -> Result<Query, Failure> {
        self.narrow(self.processes.whole(threads)?, is_past, within_cgroup)
    }

    /// Restricts a query to the tasks that the other options select.
    pub fn narrow(&self, query: Query, is_past: bool, within: fn(&[u8]) -> Filter) -> Result<Query, Failure> {
        self.narrow_rows(query, is_past, within, &|_| None)
    }

    /// The same for rows that have columns of their own.
    pub fn narrow_rows(
        &self,
        query: Query,
        is_past: bool,
        within: fn(&[u8]) -> Filter,
        column: &dyn Fn(&str) -> Option<Result<Column, String>>,
    ) -> Result<Query, Failure> {
        let query = self.narrow_unfiltered(query, is_past, within)?;
        let Some(expression) = all_of(&self.filter) else {
            return Ok(query);
        };
        let filter = parse_filter_of(&expression, is_past, column).map_err(|error| format!("--where: {error}"))?;
        narrow_with(query, checked(filter, is_past), is_past)
    }

    fn narrow_unfiltered(&self, query: Query, is_past: bool, within: fn(&[u8]) -> Filter) -> Result<Query, Failure> {
        let query = self.processes.narrow(query, within)?;
        if self.ignore_ancestors && !is_past {
            return without(query, &own(true));
        }
        Ok(query)
    }

    /// The query for the selected tasks of which files are listed, or for these processes, and the
    /// filter for the files.
    pub fn query_for_files(&self, named: &[u32]) -> Result<(Query, Option<files::Filter>), Failure> {
        let parse = |text: &str| files::Filter::parse_with_aliases(text, &numbers(false), &alias);
        self.query_for_rows(named, parse, files::Filter::part_of_tasks)
    }

    /// The same for mappings.
    pub fn query_for_mappings(&self, named: &[u32]) -> Result<(Query, Option<Filter>), Failure> {
        let own = || MapField::ALL.iter().copied().filter(|&field| field != MapField::Pid);
        // Headings and the words of ps are theirs, too: `SIZE`, `rss`.
        let is_meant = |field: &MapField, word: &str| {
            let name = field.name();
            [name, name.trim_end_matches("_bytes")].contains(&word.to_lowercase().as_str())
        };
        let column = |word: &str| Some(Ok(Column::from(own().find(|field| is_meant(field, word))?)));
        let known = || {
            own()
                .map(MapField::name)
                .chain(Field::ALL.iter().map(|field| field.name()))
        };
        let alias = |word: &str| alias(word).or_else(|| Some(Err(UnknownField::new(word, known()).to_string())));
        let parse = |text: &str| Filter::parse_with_columns(text, &numbers(false), &alias, &column);
        self.query_for_rows(named, parse, Filter::part_of_tasks)
    }

    fn query_for_rows<F>(
        &self,
        named: &[u32],
        parse: impl Fn(&str) -> Result<F, ParseError>,
        part_of_tasks: impl Fn(&F) -> Option<Filter>,
    ) -> Result<(Query, Option<F>), Failure> {
        let query = if named.is_empty() {
            self.processes.whole(false)?
        } else {
            Query::these(named.iter().copied())
        };
        let query = self.narrow_unfiltered(query, false, within_cgroup)?;
        let Some(expression) = all_of(&self.filter) else {
            return Ok((query, None));
        };
        let filter = parse(&expression).map_err(|error| format!("--where: {error}"))?;
        let query = match part_of_tasks(&filter) {
            Some(part) => narrow_with(query, checked(part, false), false)?,
            None => query,
        };
        Ok((query, Some(filter)))
    }

    /// The expression of all `--where`.
    pub fn expression(&self) -> Option<String> {
        all_of(&self.filter)
    }

    /// Whether any option was given that selects processes only.
    pub fn selects_processes(&self) -> bool {
        self.processes.is_given() || self.ignore_ancestors
    }

    /// Whether any option was given.
    pub fn is_given(&self) -> bool {
        self.selects_processes() || !self.filter.is_empty()
    }

    /// Whether any option but `--pid`, `--children` and `--descendants` was given.
    pub fn is_narrowed(&self) -> bool {
        self.processes.is_narrowed() || !self.filter.is_empty()
    }

    /// Whether the options name processes, or kernel threads.
    pub fn may_mean_kernel(&self) -> bool {
        let of_kernel = |filter: &String| filter.contains(Field::KernelThread.name());
        self.processes.names_processes() || self.filter.iter().any(of_kernel)
    }
}

impl Processes {
    /// The query for the selected tasks.
    pub fn query(&self, threads: bool) -> Result<Query, Failure> {
        self.narrow(self.whole(threads)?, within_cgroup)
    }

    fn whole(&self, threads: bool) -> Result<Query, Failure> {
        Ok(match self.scope(threads)? {
            Some(query) => query,
            None if threads => Query::threads(),
            None => Query::processes(),
        })
    }

    /// The query for the processes that `--pid`, `--children` and `--descendants` name.
    pub fn scope(&self, threads: bool) -> Result<Option<Query>, Failure> {
        Ok(match (self.children, self.descendants, self.pids.as_slice()) {
            (None, None, []) => None,
            (None, None, pids) if threads => Some(Query::threads_of_these(pids.iter().copied())),
            (None, None, pids) => Some(Query::these(pids.iter().copied())),
            _ if threads => {
                let message = "--children and --descendants list processes, not their threads: leave out -T, or name the processes with -p";
                return Err(message.into());
            }
            (Some(pid), ..) => Some(Query::children_of(pid)),
            (None, Some(pid), _) => Some(Query::descendants_of(pid)),
        })
    }

    /// Restricts a query to the tasks that the other options select.
    pub fn narrow(&self, mut query: Query, within: fn(&[u8]) -> Filter) -> Result<Query, Failure> {
        let users = users::users(&self.users)?;
        if !users.is_empty() {
            query = query.filter(Filter::one_of(Field::Euid, &users));
        }
        if let Some(path) = &self.cgroup {
            query = query.filter(within(path.as_bytes()));
        }
        if let Some(name) = &self.unit {
            query = query.filter(in_unit(name)?);
        }
        if let Some(name) = &self.container {
            query = query.filter(in_container(name)?);
        }
        Ok(query)
    }

    /// Whether any option was given.
    pub fn is_given(&self) -> bool {
        self.names_processes() || self.is_narrowed()
    }

    fn names_processes(&self) -> bool {
        !self.pids.is_empty() || self.children.is_some() || self.descendants.is_some()
    }

    /// Whether any option but `--pid`, `--children` and `--descendants` was given.
    pub fn is_narrowed(&self) -> bool {
        !self.users.is_empty() || self.cgroup.is_some() || self.unit.is_some() || self.container.is_some()
    }

    /// Reports a `--cgroup` that does not exist, and a unit or container that has no process, if no task was
    /// found; to people, also a process for a user.
    pub fn check_found(&self, handle: &mut Handle, answers: &Answers) -> Outcome {
        let is_pid = |user: &&String| user.parse::<u32>().is_ok() && proc::path(user).exists();
        let is_told = answers.snapshot.is_empty() && terminal_width().is_some() && !is_procps();
        for user in self.users.iter().filter(is_pid).filter(|_| is_told) {
            say(format_args!(
                "-u {user}: that user has no process; -p {user} chooses the process"
            ));
        }
        let outcome = Outcome::partial_if(answers.snapshot.is_empty() && self.say_empty_groups(handle));
        match &self.cgroup {
            Some(path) if answers.snapshot.is_empty() && handle.is_cgroup(path.as_bytes()) == Some(false) => {
                say(format_args!(
                    "cgroup {path:?}: no such cgroup (`taskdiag ps -o cgroup` shows those that have processes)"
                ));
                Outcome::Partial
            }
            _ => outcome,
        }
    }

    /// Says which of `--unit` and `--container` has no process. Whether it said so.
    pub fn say_empty_groups(&self, handle: &mut Handle) -> bool {
        let unit = self
            .unit
            .iter()
            .map(|name| ("unit", name, in_unit(name), "unit,user_unit"));
        let container = self.container.iter();
        let container = container.map(|name| ("container", name, in_container(name), "container_name"));
        let mut said = false;
        for (what, name, filter, fields) in unit.chain(container) {
            let query = filter.map(|filter| Query::processes().filter(filter));
            let found = query.ok().and_then(|query| handle.query(&query).ok());
            if found.is_some_and(|found| found.is_empty() && found.counters().undecided.total() == 0) {
                said = true;
                say(format_args!(
                    "{what} {name:?}: it has no process (`taskdiag ps -o {fields}` shows those that have some)"
                ));
            }
        }
        said
    }
}

/// The filter for tasks in a cgroup of any hierarchy on this host.
pub fn within_cgroup(path: &[u8]) -> Filter {
    if Handle::has_cgroup1() {
        Filter::within_any_cgroup(path)
    } else {
        Filter::within_cgroup(path)
    }
}

/// Restricts a query to the tasks for which an expression is true. The arguments of this command
/// have whatever the expression looks for, so it leaves itself out of what it finds by names or
/// arguments, as pgrep(1) does.
pub fn narrow_by(query: Query, expression: &str, is_past: bool) -> Result<Query, Failure> {
    narrow_with(query, filter(expression, is_past)?, is_past)
}

/// What is said of an order by the number of a processor.
pub const SORTED_BY_PROCESSOR: &str =
    "cpu is the number of a processor; --sort -cpu_percent sorts by the share of time";

/// Says to people that an order is that by the number of a processor.
pub fn check_order(format: Format, mut keys: impl Iterator<Item = Field>) {
    if format == Format::Table && keys.any(|key| key == Field::Processor) {
        say(SORTED_BY_PROCESSOR);
    }
}

/// Says what may be meant otherwise in a filter.
pub fn checked(filter: Filter, is_past: bool) -> Filter {
    for doubt in doubts(&filter, is_past) {
        say(format_args!("--where: {doubt}"));
    }
    filter
}

/// What may be meant otherwise: the number of a processor for the share of its time, bytes for the KiB
/// of ps, nanoseconds for seconds.
pub fn doubts(filter: &Filter, is_past: bool) -> Vec<String> {
    let mut doubts = Vec::new();
    let last = possible_cpus() - 1;
    let is_none = |&number: &i128| number > last.into();
    if !is_past && filter.compared_with(Field::Processor).iter().any(is_none) {
        doubts.push(format!(
            "cpu is the number of a processor, here at most {last}; the share of time is cpu_percent"
        ));
    }
    let text = filter.to_string();
    let words: Vec<&str> = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    // It is one more behind `>`.
    let plain = |number: i128| {
        let mut maybe = [number, number - 1].into_iter();
        maybe.find(|number| words.contains(&number.to_string().as_str()))
    };
    let small = |field, below| {
        let compared = filter.compared_with(field).into_iter();
        compared.filter(|number| (2..below).contains(number)).find_map(plain)
    };
    for (word, field) in [("rss", Field::RssBytes), ("vsz", Field::VsizeBytes)] {
        if let Some(bytes) = small(field, 1 << 20).filter(|_| words.contains(&word)) {
            doubts.push(format!(
                "{word} is in bytes, here {}; for KiB, as in ps, write a K behind the number",
                people::size_text(bytes as u64)
            ));
        }
    }
    let is_time = |field: &&Field| field.info().kind == Kind::Nanoseconds;
    for &named in Field::ALL.iter().filter(is_time) {
        let is_word = |word: &&&str| field(word).is_ok_and(|meant| meant == named);
        // A clock tick, the unit of /proc, is ten milliseconds.
        let meant = small(named, 10_000_000).and_then(|ns| Some((ns, words.iter().find(is_word)?)));
        if let Some((ns, word)) = meant {
            doubts.push(format!(
                "{word} is in nanoseconds, here {ns} ns; for seconds write {ns}s"
            ));
        }
    }
    doubts
}

fn narrow_with(query: Query, filter: Filter, is_past: bool) -> Result<Query, Failure> {
    let looks_at = with_made_of(filter.fields());
    let names = [Field::Comm, Field::Cmdline, Field::Exe, Field::Environ];
    let finds_itself = names.iter().any(|&field| looks_at.contains(field));
    let query = if finds_itself && !is_past && !query.scope.is_listed() {
        without(query, &own(false))?
    } else {
        query
    };
    Ok(query.filter(filter))
}

/// The query without some processes.
pub fn without(query: Query, pids: &[u32]) -> Result<Query, Failure> {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    Ok(query.filter(filter(&format!("pid not in ({})", pids.join(", ")), false)?))
}

/// The ids of this process and, if wanted, of its ancestors.
pub fn own(with_ancestors: bool) -> Vec<u32> {
    let mut own = vec![proc::own_pid()];
    let mut handle = proc::handle();
    let mut parent_of = |pid: u32| {
        let found = handle.query(&Query::these([pid]).fields(Field::Ppid)).ok()?;
        found.tasks().next()?.ppid().ok().filter(|&parent| parent != 0)
    };
    while let Some(parent) = own.last().filter(|_| with_ancestors).and_then(|&pid| parent_of(pid)) {
        // Ids are reused, so two tasks may appear to be each other's parent.
        if own.contains(&parent) {
            break;
        }
        own.push(parent);
    }
    own
}

/// The filter for tasks of a unit.
fn in_unit(name: &str) -> Result<Filter, Failure> {
    let suffix = if name.contains('.') { "" } else { ".service" };
    let name = quoted("--unit", &format!("{name}{suffix}"))?;
    filter(&format!("unit == {name} or user_unit == {name}"), false)
}

/// The filter for tasks in a container.
fn in_container(name: &str) -> Result<Filter, Failure> {
    /// The minimum that container runtimes accept, and the digits of a whole id, which is no name.
    const DIGITS: usize = 4;
    const WHOLE: usize = 64;
    let text = quoted("--container", name)?;
    let is_id = name.len() >= DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id && name.len() == WHOLE {
        return filter(&format!("container_id == {}", text.to_ascii_lowercase()), false);
    }
    if is_id {
        let begin = quoted("--container", &format!("{}*", name.to_ascii_lowercase()))?;
        return filter(&format!("container_name == {text} or container_id ~* {begin}"), false);
    }
    filter(&format!("container_name == {text}"), false)
}

/// A text as a quoted string of a filter expression.
fn quoted(option: &str, text: &str) -> Result<String, Failure> {
    match text {
        text if !text.contains('\'') => Ok(format!("'{text}'")),
        text if !text.contains('"') => Ok(format!("\"{text}\"")),
        text => Err(format!("{option}: {text:?} has both kinds of quotes").into()),
    }
}

/// The fields of tasks that `-o` options name.
pub fn chosen_fields(lists: &[String]) -> Result<Chosen<Field>, Failure> {
    Chosen::parse(lists, |name| fields(&[name.to_owned()]))
}

/// The filter of `--where`. It may name users and groups, and use specifiers of ps(1) for fields. Fails
/// if it looks for a name that no account has, unless that is of a recording.
pub fn filter(expression: &str, is_past: bool) -> Result<Filter, Failure> {
    parse_filter(expression, is_past).map_err(|error| Failure::Unanswered(format!("--where: {error}")))
}

/// Like [`filter`], with the error and its position.
pub fn parse_filter(expression: &str, is_past: bool) -> Result<Filter, ParseError> {
    parse_filter_of(expression, is_past, &|_| None)
}

/// Like [`parse_filter`], for rows that have columns of their own.
fn parse_filter_of(
    expression: &str,
    is_past: bool,
    column: &dyn Fn(&str) -> Option<Result<Column, String>>,
) -> Result<Filter, ParseError> {
    let alias = |name: &str| alias(name).or_else(|| Some(Err(specifiers::unknown(name).to_string())));
    Filter::parse_with_columns(expression, &numbers(is_past), &alias, column)
}

/// The field that another name stands for in an expression.
fn alias(name: &str) -> Option<Result<Field, String>> {
    let of_rate = |_| format!("{name} is a rate, for -o and --sort: `taskdiag watch --sort -{name} --limit 10`");
    let rate = Rate::named(name).map(of_rate);
    rate.map(Err).or_else(|| field_of(name))
}

/// Finds the number of a user or group by its name. Any account may be in a recording.
fn numbers(is_past: bool) -> impl Fn(Field, &[u8]) -> Option<u32> {
    // The name of an id without one is its number.
    let is_number = |name: &[u8]| !name.is_empty() && name.iter().all(u8::is_ascii_digit);
    move |field, name| match (field, field.info().kind) {
        (Field::User | Field::Group, _) if is_past || is_number(name) => Some(0),
        (Field::User, _) | (_, Kind::User) => users::user_named(name),
        _ => users::group_named(name),
    }
}

#[cfg(test)]
mod tests {
    use taskdiag::Fields;

    use super::*;

    fn names(lists: &[&str]) -> Result<Vec<Field>, String> {
        let lists: Vec<String> = lists.iter().map(|&list| list.to_owned()).collect();
        fields(&lists).map_err(|failure| format!("{failure:?}"))
    }

    /// Check that groups stand for their fields, that a field takes precedence over a group of the
    /// same name, and that no field comes twice.
    #[test]
    fn names_are_of_fields_then_groups() {
        assert_eq!(names(&["comm,pid", "pid"]), Ok(vec![Field::Comm, Field::Pid]));
        assert_eq!(names(&["groups,cgroup"]), Ok(vec![Field::Groups, Field::Cgroup]));
        assert_eq!(names(&["oom"]), Ok(vec![Field::OomScoreAdj, Field::OomScore]));
        assert_eq!(names(&["all"]), Ok(Fields::all().iter().collect()));
        assert!(names(&["rollup"]).is_ok_and(|fields| fields.contains(&Field::PssBytes)));
        assert_eq!(names(&["rss,%cpu"]), Ok(vec![Field::RssBytes, Field::CpuPercent]));
        assert!(names(&["time"]).is_err_and(|error| error.contains("use one of utime_ns, stime_ns")));
        assert!(names(&["rsss"]).is_err_and(|error| error.contains("near it are: rss")));
        assert!(names(&["pid,"]).is_err());
    }

    /// Check the directions of sort keys.
    #[test]
    fn sort_keys_have_directions() {
        let keys = sort_keys(&["-rss_bytes,+comm".to_owned(), "pid".to_owned()]).expect("fields");
        let keys: Vec<_> = keys.iter().map(|by| (by.key, by.descending)).collect();
        assert_eq!(
            keys,
            [(Field::RssBytes, true), (Field::Comm, false), (Field::Pid, false)]
        );
    }

    /// Check that the lists of options have all of them.
    #[test]
    fn options_are_listed() {
        let listed = |command: clap::Command| -> Vec<String> {
            let arguments = command.get_arguments();
            arguments.map(|argument| argument.get_id().to_string()).collect()
        };
        assert_eq!(listed(Processes::augment_args(clap::Command::new("x"))), OF_PROCESSES);
        assert_eq!(listed(Selection::augment_args(clap::Command::new("x"))), SELECTING);
    }

    /// Check that a unit is a service unless its name says otherwise, and that a container is named
    /// by its name or by enough digits of its id.
    #[test]
    fn units_and_containers_are_names() {
        let same = |made: Result<Filter, Failure>, text: &str| {
            let made = made.unwrap_or_else(|failure| panic!("{failure:?}"));
            let expected = Filter::parse(text).expect(text);
            assert_eq!(format!("{made:?}"), format!("{expected:?}"));
        };
        same(in_unit("ssh"), "unit == 'ssh.service' or user_unit == 'ssh.service'");
        same(in_unit("a.slice"), "unit == 'a.slice' or user_unit == 'a.slice'");
        same(in_container("web"), "container_name == 'web'");
        same(in_container("abc"), "container_name == 'abc'");
        same(in_container("it's"), "container_name == \"it's\"");
        same(
            in_container("ABCD0123"),
            "container_name == 'ABCD0123' or container_id ~* 'abcd0123*'",
        );
        let id = "0A".repeat(32);
        same(in_container(&id), &format!("container_id == '{}'", id.to_lowercase()));
        assert!(in_unit("'\"").is_err());
    }
}
