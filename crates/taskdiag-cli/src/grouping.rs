//! Sums of rows, by what their processes have in common or by something of their own.

use std::collections::HashMap;
use std::io;

use taskdiag::sockets::{Family, State};
use taskdiag::{Absent, Field, Fields, Known, Task, Value};

use crate::choice::{distinct, unknown, OrderOptions, SortBy};
use crate::outcome::Failure;
use crate::output::document::{Head, Sample};
use crate::output::format::{Format, Machine};
use crate::output::listing::Form;
use crate::output::names::Names;
use crate::output::relation::{columns, Cell, ColumnInfo, IN_NONE};
use crate::output::rows::{write_total, RowOptions, Rows};
use crate::output::table::{terminal_width, Align, Table};
use crate::output::{people, text, Output};
/// The parser of `--by`, which takes several with commas between them.
pub use crate::source::parser as by_parser;
use crate::source::Choices;

/// What rows are added up by.
#[derive(Debug)]
pub struct Grouping {
    /// The name for `--sort`.
    pub name: &'static str,
    /// The heading in tables.
    pub heading: &'static str,
    /// The columns of the names for programs.
    pub columns: &'static [ColumnInfo],
    /// The fields of processes that determine the group; none if something else does.
    pub fields: &'static [Field],
    /// The group of a process.
    pub of: fn(&Task<'_>) -> Result<Name, Absent>,
}

const fn of_process(
    heading: &'static str,
    columns: &'static [ColumnInfo],
    fields: &'static [Field],
    of: fn(&Task<'_>) -> Result<Name, Absent>,
) -> Grouping {
    Grouping {
        name: columns[columns.len() - 1].name,
        heading,
        columns,
        fields,
        of,
    }
}

impl PartialEq for Grouping {
    fn eq(&self, other: &Grouping) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Grouping {}

impl Grouping {
    /// Something that is not of a process, under its columns.
    pub const fn own(heading: &'static str, columns: &'static [ColumnInfo]) -> Grouping {
        of_process(heading, columns, &[], |_| Err(Absent::Unsupported))
    }

    /// Whether the group is that of a process.
    pub fn is_of_process(&self) -> bool {
        !self.fields.is_empty()
    }

    /// The group of a process, or why it is unknown.
    pub fn name_of(&self, task: &Task<'_>) -> Name {
        (self.of)(task).unwrap_or_else(|reason| Name::None(reason.as_str()))
    }
}

/// The word for `--by`, the grouping, and the help.
pub type GroupingChoice = (&'static str, &'static Grouping, &'static str);

/// A choice of groupings for `--by`, with their help.
pub type Groupings = Choices<&'static Grouping>;

/// The fields of processes that groupings need.
pub fn fields(by: &[&Grouping]) -> Fields {
    by.iter().flat_map(|by| by.fields).copied().collect()
}

fn text_of(name: Result<&[u8], Absent>) -> Result<Name, Absent> {
    Ok(Name::Text(name?.to_vec()))
}

/// Effective user.
pub static USER: Grouping = of_process(
    "USER",
    &columns! {
        "euid": User, "The effective user id.";
        "user": Text, "The name of that user.";
    },
    &[Field::Euid],
    |task| Ok(Name::User(task.euid()?)),
);

pub static PROGRAM: Grouping = of_process(
    "PROGRAM",
    &columns! { "program": Text, "The file name of the executable; the name of the process where that is denied."; },
    &[Field::Exe, Field::Comm],
    |task| text_of(program(task)),
);

static SCRIPT: Grouping = of_process(
    "SCRIPT",
    &columns! {
        "script": Text, "The file name of the script that an interpreter runs; of other processes the program.";
    },
    &[Field::Exe, Field::Comm, Field::Cmdline],
    |task| text_of(script(task)),
);

pub static UNIT: Grouping = of_process(
    "UNIT",
    &columns! { "unit": Text, "The systemd unit, of the system or of a user."; },
    &[Field::Unit, Field::UserUnit],
    |task| text_of(unit(task)),
);

pub static CONTAINER: Grouping = of_process(
    "CONTAINER",
    &columns! { "container": Text, "The name of the container, or its id."; },
    &[Field::ContainerName, Field::ContainerId],
    |task| text_of(container(task)),
);

static POD: Grouping = of_process(
    "POD",
    &columns! { "pod": Text, "The UID of the Kubernetes pod."; },
    &[Field::PodUid],
    |task| text_of(task.pod_uid()),
);

static CGROUP: Grouping = of_process(
    "CGROUP",
    &columns! { "cgroup": Text, "The cgroup of the unified hierarchy."; },
    &[Field::Cgroup],
    |task| text_of(task.cgroup()),
);

/// What every sum of processes can be by.
pub const OF_PROCESSES: [GroupingChoice; 7] = [
    (
        "program",
        &PROGRAM,
        "File name of the executable; the name of the process where that is denied",
    ),
    (
        "script",
        &SCRIPT,
        "File name of the script that an interpreter runs; otherwise the program",
    ),
    ("user", &USER, "Effective user"),
    ("unit", &UNIT, "The systemd unit, of the system or of a user"),
    ("container", &CONTAINER, "The container: its name, or its id"),
    ("pod", &POD, "The Kubernetes pod, by its UID"),
    ("cgroup", &CGROUP, "Cgroup of the unified hierarchy"),
];

/// The groupings of processes, and those of a command's own: `ALL` in all.
pub const fn with<const ALL: usize>(own: &[GroupingChoice]) -> [GroupingChoice; ALL] {
    assert!(ALL == OF_PROCESSES.len() + own.len(), "none may be lost");
    let mut all = [OF_PROCESSES[0]; ALL];
    let mut index = 0;
    while index < ALL {
        all[index] = match OF_PROCESSES.len() {
            count if index < count => OF_PROCESSES[index],
            count => own[index - count],
        };
        index += 1;
    }
    all
}

/// The file name of a process's executable; the name of the process where that is denied.
pub fn program<'a>(task: &Task<'a>) -> Result<&'a [u8], Absent> {
    let path = match task.exe() {
        Ok(path) => path.strip_suffix(b" (deleted)").unwrap_or(path),
        // It may contain slashes that are not part of a path: kworker/0:1.
        Err(_) => return task.comm(),
    };
    Ok(path.rsplit(|&byte| byte == b'/').next().unwrap_or(path))
}

/// The names of programs that run scripts begin with one of these.
const INTERPRETERS: [&[u8]; 9] = [
    b"python", b"perl", b"ruby", b"node", b"php", b"bash", b"dash", b"sh", b"lua",
];

/// The file name of the script that a process runs: for an interpreter its first argument that is no
/// option, for others the program.
fn script<'a>(task: &Task<'a>) -> Result<&'a [u8], Absent> {
    let program = program(task)?;
    if !INTERPRETERS.iter().any(|name| program.starts_with(name)) {
        return Ok(program);
    }
    let mut arguments = task.cmdline()?.iter().skip(1);
    let first = arguments.find(|argument| !argument.is_empty());
    let path = first.filter(|argument| !argument.starts_with(b"-"));
    Ok(path.map_or(program, |path| path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)))
}

/// The user unit or system unit of a process.
pub fn unit<'a>(task: &Task<'a>) -> Result<&'a [u8], Absent> {
    first_text([task.user_unit(), task.unit()])
}

/// The name of the container of a process, or its id.
pub fn container<'a>(task: &Task<'a>) -> Result<&'a [u8], Absent> {
    first_text([task.container_name(), task.container_id()])
}

/// The first text that is known and not empty; otherwise the second.
fn first_text(texts: [Result<&[u8], Absent>; 2]) -> Result<&[u8], Absent> {
    let known = texts.iter().find(|text| text.is_ok_and(|text| !text.is_empty()));
    known.copied().unwrap_or(texts[1])
}

/// The name of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// A user id.
    User(u32),
    /// Any bytes.
    Text(Vec<u8>),
    /// A protocol and a port.
    Port(String, u32),
    /// A state and a family of sockets.
    State(State, Family),
    /// There is no name, or it is unknown; the reason.
    None(&'static str),
}

impl Name {
    /// Calls `each` with the values under the columns of `grouping`.
    fn cells<'a>(&'a self, grouping: &Grouping, names: &'a mut Names, mut each: impl FnMut(Cell<'a>)) {
        let word = |word: &'static str| Ok(Value::Text(word.as_bytes()));
        match self {
            Name::User(uid) => {
                each(Ok(Value::Unsigned((*uid).into())));
                each(names.user_name(*uid).map(Value::Text).ok_or("no name"));
            }
            Name::Text(name) => each(Ok(Value::Text(name))),
            Name::Port(protocol, port) => {
                each(Ok(Value::Text(protocol.as_bytes())));
                each(Ok(Value::Unsigned((*port).into())));
            }
            Name::State(state, family) => {
                each(word(family.name()));
                each(word(state.name()));
            }
            Name::None(reason) => grouping.columns.iter().for_each(|_| each(Err(reason))),
        }
    }

    /// Appends the name for people.
    pub fn write(&self, out: &mut Vec<u8>, names: &mut Names) {
        match self {
            Name::User(uid) => text::escape(out, names.user(*uid)),
            Name::Text(name) if name.is_empty() => out.extend_from_slice(IN_NONE.as_bytes()),
            Name::Text(name) => text::escape(out, name),
            Name::Port(protocol, port) => {
                out.extend_from_slice(protocol.as_bytes());
                out.push(b':');
                people::number(out, *port);
            }
            Name::State(state, family) => out.extend_from_slice(format!("{state} {family}").as_bytes()),
            Name::None(_) => out.push(b'-'),
        }
    }
}

/// The columns of sums, a line for each: its name, the kind of its numbers, its heading in tables, and
/// what the numbers mean. Sums of a column of the rows follow: that column, and the heading.
macro_rules! sum_columns {
    (
        $($name:literal: $kind:ident, $heading:literal, $meaning:literal;)*
        $(column $column:expr, $sum:literal;)*
    ) => {
        &[
            $(($crate::output::relation::column($name, taskdiag::Kind::$kind, $meaning), $heading),)*
            $(($column, $sum),)*
        ]
    };
}
pub(crate) use sum_columns;

/// Something added up.
pub trait Sum: Default {
    /// The columns of its numbers, and their headings in tables; without one, a table has no such
    /// column.
    const COLUMNS: &'static [(ColumnInfo, &'static str)];

    /// The numbers, in the order of the columns.
    fn numbers(&self) -> Vec<Known<u64>>;

    /// Appends a number for people.
    fn write(&self, out: &mut Vec<u8>, column: usize, form: &mut Form) {
        form.cells.cell(out, &Self::COLUMNS[column].0, self.cells()[column]);
    }

    /// Whether tables have a column, with this sum of all rows.
    fn has(&self, column: usize) -> bool {
        !Self::COLUMNS[column].1.is_empty()
    }

    /// The columns of its numbers.
    fn columns() -> Vec<ColumnInfo> {
        Self::COLUMNS.iter().map(|(column, _)| *column).collect()
    }

    /// The numbers for programs.
    fn cells(&self) -> Vec<Cell<'static>> {
        let cell = |number: Known<u64>| number.map(Value::Unsigned).map_err(Absent::as_str);
        self.numbers().into_iter().map(cell).collect()
    }
}

/// What sums are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SumKey {
    /// One of the numbers, by its index.
    Number(usize),
    /// The name of one of the groups, by its index.
    Name(usize),
}

/// Which sums to make, and how to write them.
#[derive(Debug)]
pub struct SumLayout {
    pub by: Vec<&'static Grouping>,
    sort: Vec<SortBy<SumKey>>,
    limit: usize,
}

/// Fails if `-o` chooses fields of the rows that are added up.
pub fn only_sums(fields: &[String], of: &str) -> Result<(), Failure> {
    let message = || format!("-o chooses fields of {of}; --by always shows the same sums");
    fields.first().map_or(Ok(()), |_| Err(message().into()))
}

impl SumLayout {
    /// What options choose. Without `--sort`, the keys are `usual`.
    pub fn new<S: Sum>(by: &[&'static Grouping], order: &OrderOptions, usual: &str) -> Result<SumLayout, Failure> {
        let by = distinct(by.iter().copied());
        let usual = vec![usual.to_owned()];
        let sort = if order.sort.is_empty() { &usual } else { &order.sort };
        let names = || by.iter().map(|by| by.name);
        let numbers = || S::COLUMNS.iter().map(|(column, _)| column.name);
        let sort = SortBy::parse(sort, |key| {
            // Headings are names, too: `processes`, and `rss_bytes` as of the rows that are added up.
            let key = Some(key)
                .filter(|key| !key.eq_ignore_ascii_case("count"))
                .unwrap_or("processes");
            let is_heading = |heading: &str| heading.eq_ignore_ascii_case(key.strip_suffix("_bytes").unwrap_or(key));
            let of_heading = || S::COLUMNS.iter().position(|(_, heading)| is_heading(heading));
            let number = numbers().position(|number| number == key).or_else(of_heading);
            let number = number.map(SumKey::Number);
            let is_key = |by: &&Grouping| by.name == key || by.heading.eq_ignore_ascii_case(key);
            let name = || by.iter().position(is_key).map(SumKey::Name);
            number
                .or_else(name)
                .ok_or_else(|| unknown("key of sums", key, names().chain(numbers())))
        })?;
        Ok(SumLayout {
            by,
            sort,
            limit: order.limit(),
        })
    }

    /// The names of the groups of a process. `own` names those that are not of a process.
    pub fn names(&self, task: &Task<'_>, own: impl Fn(&Grouping) -> Name) -> Vec<Name> {
        let name = |by: &&Grouping| if by.is_of_process() { by.name_of(task) } else { own(by) };
        self.by.iter().map(name).collect()
    }

    /// Sorts sums: one without a value comes last; equal ones are in the order of their names. Without
    /// groups there is only the total.
    pub fn sort<S: Sum>(&self, sums: HashMap<Vec<Name>, S>) -> Vec<(Vec<Name>, S)> {
        let sums = sums.into_iter().filter(|_| !self.by.is_empty());
        let mut sums: Vec<_> = sums.map(|(name, sum)| (name, sum.numbers(), sum)).collect();
        sums.sort_by(|(a, a_numbers, _), (b, b_numbers, _)| {
            let by_key = |by: &SortBy<SumKey>| match by.key {
                SumKey::Number(index) => by.compare(a_numbers[index], b_numbers[index], Ord::cmp),
                SumKey::Name(index) => by.compare(Ok::<_, ()>(&a[index]), Ok(&b[index]), |a, b| a.cmp(b)),
            };
            let order = self.sort.iter().map(by_key).find(|order| order.is_ne());
            order.unwrap_or_else(|| a.cmp(b))
        });
        sums.truncate(self.limit);
        sums.into_iter().map(|(name, _, sum)| (name, sum)).collect()
    }

    /// Writes sums and their total. `end` appends more members of a JSON document.
    pub fn write<S: Sum>(
        &self,
        sums: HashMap<Vec<Name>, S>,
        total: &S,
        mut form: Form,
        head: &Head<'_>,
        end: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<()> {
        let Format::Machine(machine) = form.format else {
            let mut output = Output::default();
            let mut table = self.table(&self.sort(sums), total, &mut form);
            table.write(&mut output, terminal_width())?;
            return output.finish();
        };
        let mut rows = self.begin::<S>(machine, form.header, head, false);
        self.write_rows(sums, total, &mut rows, None)?;
        rows.finish_with(|out| {
            end(out);
            self.write_total(total, out);
        })
    }

    /// Begins to write sums for programs, of one sample or of several.
    pub fn begin<S: Sum>(&self, machine: Machine, header: bool, head: &Head<'_>, samples: bool) -> Rows {
        let of_names = self.by.iter().flat_map(|by| by.columns.iter().copied());
        let options = RowOptions {
            header,
            named: false,
            samples,
        };
        Rows::begin(machine, head, of_names.chain(S::columns()), options)
    }

    /// Writes the sums of one sample. Without groups, the total is the only row.
    pub fn write_rows<S: Sum>(
        &self,
        sums: HashMap<Vec<Name>, S>,
        total: &S,
        rows: &mut Rows,
        sample: Option<Sample<'_>>,
    ) -> io::Result<()> {
        let sums = self.sort(sums);
        if let Some(sample) = sample {
            rows.sample(sample, if self.by.is_empty() { 1 } else { sums.len() })?;
        }
        if self.by.is_empty() {
            let cells = total.cells();
            rows.row(|index| cells[index])?;
        }
        let mut names: Vec<Names> = self.by.iter().map(|_| Names::default()).collect();
        for (name, sum) in &sums {
            let mut cells: Vec<Cell<'_>> = Vec::new();
            for ((name, by), names) in name.iter().zip(&self.by).zip(&mut names) {
                name.cells(by, names, |cell| cells.push(cell));
            }
            cells.extend(sum.cells());
            rows.row(|index| cells[index])?;
        }
        Ok(())
    }

    /// Appends the total as a member of a document, unless it is the only row.
    pub fn write_total<S: Sum>(&self, total: &S, out: &mut Vec<u8>) {
        if !self.by.is_empty() {
            write_total(out, Some((&S::columns(), &total.cells())));
        }
    }

    /// The table of sums; the last row is the total.
    pub fn table<S: Sum>(&self, sums: &[(Vec<Name>, S)], total: &S, form: &mut Form) -> Table {
        let shown: Vec<usize> = (0..S::COLUMNS.len()).filter(|&column| total.has(column)).collect();
        let aligns = shown.iter().map(|_| Align::Right);
        // Without groups, a column still says that it is the total.
        let columns = self.by.len().max(1);
        let aligns = aligns.chain((0..columns).map(|_| Align::Left));
        let mut table = Table::new(aligns, sums.len() + 1);
        if form.header {
            let numbers = shown.iter().map(|&column| S::COLUMNS[column].1);
            let names = (0..columns).map(|index| self.by.get(index).map_or("", |by| by.heading));
            table.headings(numbers.chain(names));
        }
        let mut names = Names::default();
        for (name, sum) in sums.iter().map(|(name, sum)| (Some(name), sum)).chain([(None, total)]) {
            for &column in &shown {
                table.cell(|out| sum.write(out, column, form));
            }
            for index in 0..columns {
                table.cell(|out| match name {
                    Some(name) => name[index].write(out, &mut names),
                    None if index == 0 => out.extend_from_slice(b"total"),
                    None => {}
                });
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the first known text that is not empty names the group.
    #[test]
    fn empty_names_give_way() {
        let name = |texts| first_text(texts).map(|name| name == b"x");
        assert_eq!(name([Ok(b"x"), Ok(b"y")]), Ok(true));
        assert_eq!(name([Ok(b""), Ok(b"x")]), Ok(true));
        assert_eq!(name([Err(Absent::Denied), Ok(b"x")]), Ok(true));
        assert_eq!(first_text([Ok(b""), Ok(b"")]), Ok(&b""[..]));
        assert_eq!(
            first_text([Err(Absent::Gone), Err(Absent::Denied)]),
            Err(Absent::Denied)
        );
    }
}
