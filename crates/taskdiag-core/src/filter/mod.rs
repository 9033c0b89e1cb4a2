//! Selects tasks: expressions over fields. `docs/filters.md` describes the language.
//!
//! A filter has three values. A comparison with an absent value is neither true nor false, and a
//! task is in the answer only if the whole expression is true for it. So `rss_bytes < 1M` leaves
//! kernel threads out, and so does `not rss_bytes < 1M`.

mod comparison;
mod kernel;
mod literal;
mod message;
mod network;
mod parse;
mod pattern;
mod socket;
#[cfg(test)]
pub(crate) mod tests;
mod token;
mod words;

use std::fmt;

use crate::absent::Absent;
use crate::counters::Undecided;
use crate::field::{Field, Fields, Group};
use crate::snapshot::Snapshot;
use crate::value::Value;

use comparison::{Comparison, Operand, Relation, Subject, Test};

pub use comparison::Column;
pub use kernel::KernelTests;
pub use literal::{binary_unit, moment};
pub use message::{or_near, ParseError};
pub use socket::SocketFilter;

/// An expression over fields, such as `uid == 0 and not kernel_thread and comm ~ '^ssh'`.
///
/// ```
/// # mod taskdiag { pub use taskdiag_core::{field::Field, filter::{Filter, ParseError}, query::Query}; }
/// use taskdiag::{Field, Filter, Query};
///
/// let filter = Filter::parse("state == 'D' or rss_bytes > 1.5G or uid != euid")?;
/// let query = Query::processes().fields(Field::Comm).filter(filter);
/// # Ok::<(), taskdiag::ParseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Filter {
    expression: Expression,
    /// It is a part of a filter whose rest is decided later: rows that it leaves open stay, because the
    /// rest may be false for them.
    is_part: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Expression {
    All(Vec<Expression>),
    Any(Vec<Expression>),
    Not(Box<Expression>),
    Test(Test),
}

/// One of the parts of a filter that must all be true.
#[derive(Clone, Copy, Debug)]
struct Conjunct<'a> {
    expression: &'a Expression,
    is_negated: bool,
}

impl Conjunct<'_> {
    fn into_expression(self) -> Expression {
        if self.is_negated {
            Expression::Not(Box::new(self.expression.clone()))
        } else {
            self.expression.clone()
        }
    }

    /// Whether it reads a field for which `is_one` is true.
    fn looks_at(&self, is_one: impl Fn(Field) -> bool) -> bool {
        let mut looks = false;
        self.expression
            .each_test(&mut |test| looks |= test.fields().iter().any(&is_one));
        looks
    }
}

/// Writes it in a form that can be joined with other parts.
impl fmt::Display for Conjunct<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_negated, self.expression) {
            (true, Expression::Test(test)) => write!(f, "not {}", test.text),
            (true, other) => write!(f, "not ({other})"),
            (false, Expression::Test(test)) => f.write_str(&test.text),
            (false, other) => write!(f, "({other})"),
        }
    }
}

/// Something with fields: a task, or a stand-in for a test.
pub trait HasFields {
    /// The value of a field, or why it is absent.
    fn value(&self, field: Field) -> Result<Value<'_>, Absent>;

    /// The value of a field of other rows.
    fn column_value(&self, _: usize) -> Result<Value<'_>, Absent> {
        Err(Absent::NotAsked)
    }
}

impl HasFields for crate::snapshot::Task<'_> {
    fn value(&self, field: Field) -> Result<Value<'_>, Absent> {
        crate::snapshot::Task::value(self, field)
    }
}

impl Filter {
    /// Parses an expression.
    ///
    /// - `==  !=  <  <=  >  >=` compare with a number, with text in single or double quotes, or
    ///   with another field.
    /// - `== none` and `!= none` tell whether the row has such a value at all: `loginuid == none`,
    ///   `rss_bytes != none`.
    /// - `in ( , )` and `not in ( , )` compare with several values.
    /// - Addresses are equal to a network that has them: `remote_addr in '10.0.0.0/8'`. IPv4 within
    ///   IPv6 (`::ffff:10.0.0.1`) counts as IPv4.
    /// - `~` takes a regular expression, `~*` a glob, in quotes.
    /// - `has` tests for a member of a set or list: `cap_effective has sys_admin`, `sig_blocked has
    ///   TERM`, `groups has 4`.
    /// - `within` tests for a cgroup: `cgroup within '/system.slice'`, and with `cgroups` in any
    ///   hierarchy.
    /// - `and`, `or`, `not` and parentheses join comparisons. A field that is true or false stands
    ///   alone.
    ///
    /// Sizes have the units `K`, `M`, `G`, `T`, `P`, `E` (powers of 1024; `MB` and `MiB` are `M`),
    /// times `ns`, `us`, `ms`, `s`, `m`, `h`, `d`. Both may have a fraction: `1.5G`.
    /// `limits.nofile.soft` is one resource limit. [`Field::StartTime`] is compared with RFC 3339
    /// times, with local times such as `'2026-11-23 03:12'` or `'03:12'` of today, for which this reads
    /// the system's time zone, or with so long ago: `'-2h'`.
    ///
    /// A comparison is true for a list if it is true for one member; `!=` is true if no member is
    /// equal. A list of texts is compared as one text, with spaces between its members.
    pub fn parse(text: &str) -> Result<Filter, ParseError> {
        Filter::parse_with_names(text, &|_, _| None)
    }

    /// Parses an expression in which quoted names of users and groups stand for their numbers.
    /// `name` finds the number for a field and a name.
    pub fn parse_with_names(text: &str, name: &dyn Fn(Field, &[u8]) -> Option<u32>) -> Result<Filter, ParseError> {
        let name = |field, text: &[u8]| match field {
            Field::User | Field::Group => Some(0),
            id => name(id, text),
        };
        Filter::parse_with_columns(text, &name, &|_| None, &|_| None)
    }

    /// Tasks whose `field`, a number, has one of these values.
    pub fn one_of(field: Field, numbers: &[u32]) -> Filter {
        let mut operands: Vec<Operand> = numbers.iter().map(|&number| Operand::Number(number.into())).collect();
        let (comparison, text) = match numbers {
            [number] => (
                Comparison::Is(Relation::Equal, operands.remove(0)),
                format!("{field} == {number}"),
            ),
            numbers => {
                let words: Vec<String> = numbers.iter().map(u32::to_string).collect();
                (Comparison::In(operands), format!("{field} in ({})", words.join(", ")))
            }
        };
        Filter::new(Expression::Test(Test {
            subject: Subject::Field(field),
            comparison,
            text,
        }))
    }

    /// Tasks in a cgroup of the unified hierarchy, or in one below it. The path has the form of
    /// [`Field::Cgroup`].
    pub fn within_cgroup(path: &[u8]) -> Filter {
        Filter::within(Field::Cgroup, path)
    }

    /// Like [`within_cgroup`](Filter::within_cgroup), in any hierarchy: [`Field::Cgroups`].
    pub fn within_any_cgroup(path: &[u8]) -> Filter {
        Filter::within(Field::Cgroups, path)
    }

    fn within(field: Field, path: &[u8]) -> Filter {
        let path = without_last_slash(path);
        Filter::new(Expression::Test(Test {
            subject: Subject::Field(field),
            comparison: Comparison::Within(path.to_vec()),
            text: format!("{field} within {:?}", String::from_utf8_lossy(path)),
        }))
    }

    /// Tasks for which both filters are true.
    pub fn and(self, other: Filter) -> Filter {
        Filter::new(Expression::All(vec![self.expression, other.expression]))
    }

    /// The fields that it reads.
    pub fn fields(&self) -> Fields {
        let mut fields = Fields::NONE;
        self.expression.each_test(&mut |test| fields |= test.fields());
        fields
    }

    /// The parts that must all be true.
    fn conjuncts(&self) -> Vec<Conjunct<'_>> {
        let mut conjuncts = Vec::new();
        let mut left = vec![Conjunct {
            expression: &self.expression,
            is_negated: false,
        }];
        while let Some(part) = left.pop() {
            match (part.expression, part.is_negated) {
                (Expression::All(parts), false) | (Expression::Any(parts), true) => {
                    left.extend(parts.iter().rev().map(|expression| Conjunct { expression, ..part }));
                }
                (Expression::Not(expression), is_negated) => left.push(Conjunct {
                    expression,
                    is_negated: !is_negated,
                }),
                _ => conjuncts.push(part),
            }
        }
        conjuncts
    }

    /// The parts for which `is_wanted` is true. `None` if there are none.
    fn new(expression: Expression) -> Filter {
        Filter {
            expression,
            is_part: false,
        }
    }

    fn part(&self, is_wanted: impl Fn(&Conjunct<'_>) -> bool) -> Option<Filter> {
        let wanted = self.conjuncts().into_iter().filter(is_wanted);
        let parts: Vec<Expression> = wanted.map(Conjunct::into_expression).collect();
        (!parts.is_empty()).then(|| Filter::new(Expression::All(parts)))
    }

    /// Whether the kernel's side can decide any part of it, provided that its cgroups exist.
    pub(crate) fn has_kernel_tests(&self) -> bool {
        !self.kernel_tests(&|_| Some(1)).tests.is_empty()
    }
}

/// For the other crates of this project.
#[doc(hidden)]
impl Filter {
    /// Parses an expression in which names that are not names of fields may be aliases, whose fields
    /// `alias` finds. `column` finds the fields of rows that have their own, before those of tasks.
    /// What [`Field::User`] and [`Field::Group`] are compared with must be known to `name`, too.
    pub fn parse_with_columns(
        text: &str,
        name: &dyn Fn(Field, &[u8]) -> Option<u32>,
        alias: &dyn Fn(&str) -> Option<std::result::Result<Field, String>>,
        column: &dyn Fn(&str) -> Option<std::result::Result<Column, String>>,
    ) -> Result<Filter, ParseError> {
        parse::parse(text, name, alias, column)
    }

    /// The numbers that a field is compared with; `> 1` is `>= 2`.
    pub fn compared_with(&self, field: Field) -> Vec<i128> {
        let mut compared = Vec::new();
        self.expression.each_test(&mut |test| {
            let more = i128::from(matches!(test.comparison, Comparison::Is(Relation::Greater, _)));
            let operands = test.operands().iter().filter(|_| test.subject == Subject::Field(field));
            compared.extend(operands.filter_map(|operand| match operand {
                Operand::Number(number) => Some(number + more),
                _ => None,
            }));
        });
        compared
    }

    /// The indices of the fields of other rows that it reads.
    pub fn columns(&self) -> Vec<usize> {
        let mut columns = Vec::new();
        self.expression.each_test(&mut |test| {
            columns.extend(test.subjects().filter_map(Subject::column).map(|column| column.index))
        });
        columns
    }

    /// The part of it that reads fields of tasks only. `None` if there is none.
    pub fn part_of_tasks(&self) -> Option<Filter> {
        self.part(|part| {
            let mut is_of_tasks = true;
            let mut visit = |test: &Test| is_of_tasks &= !test.subjects().any(|subject| subject.column().is_some());
            part.expression.each_test(&mut visit);
            is_of_tasks
        })
    }

    /// Whether it is true for a task. `None` if that depends on an absent value.
    pub fn decide(&self, row: &impl HasFields) -> Option<bool> {
        self.expression.decide(row)
    }

    /// The filter as a part of another one: rows that it leaves open stay, because the rest of the other
    /// may be false for them.
    #[must_use]
    pub fn into_part(mut self) -> Filter {
        self.is_part = true;
        self
    }

    /// Whether it is true for a row. Counts it as undecided if it could be, but for values that are
    /// absent for a reason that the caller may be able to remove.
    pub fn admits(&self, row: &impl HasFields, undecided: &mut Undecided) -> bool {
        self.decide(row).unwrap_or_else(|| {
            if self.is_part {
                return true;
            }
            let mut lacks = Vec::new();
            if self.expression.may_be(true, row, &mut lacks) {
                undecided.count(lacks);
            }
            false
        })
    }

    /// Drops the tasks for which it is not true, and counts them.
    pub fn retain(&self, snapshot: &mut Snapshot) {
        let mut counters = snapshot.counters;
        counters.candidates += snapshot.len() as u64;
        snapshot.retain(|task| self.admits(task, &mut counters.undecided));
        snapshot.counters = counters;
    }

    /// The part of it that reads only fields that are cheap to read. `None` if there is none.
    pub fn cheap_part(&self) -> Option<Filter> {
        self.part_without(|field| !is_cheap_group(field.group()))
    }

    /// The part of it that reads no field for which `is_one` is true. `None` if there is none.
    pub fn part_without(&self, is_one: impl Fn(Field) -> bool) -> Option<Filter> {
        self.part(|part| !part.looks_at(&is_one))
    }

    /// The part of it that the kernel's side can decide. Tasks that fail these tests are not
    /// candidates.
    pub fn kernel_tests(&self, cgroup_id: &dyn Fn(&[u8]) -> Option<u64>) -> KernelTests {
        kernel::tests(&self.conjuncts(), cgroup_id)
    }
}

/// The path of a cgroup without a slash at the end.
fn without_last_slash(path: &[u8]) -> &[u8] {
    match path.strip_suffix(b"/") {
        Some(path) if !path.is_empty() => path,
        _ => path,
    }
}

/// Groups that procfs reads from `stat` and `status`, and that BPF reads without copying from the
/// memory of a process.
fn is_cheap_group(group: Group) -> bool {
    matches!(
        group,
        Group::Base | Group::Tty | Group::Cred | Group::Groups | Group::Faults | Group::Signals
    )
}

/// Writes an expression that parses to the same filter, provided that the filter was parsed.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt(f)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |f: &mut fmt::Formatter<'_>, parts: &[Expression], word: &str| {
            for (index, part) in parts.iter().enumerate() {
                if index > 0 {
                    write!(f, " {word} ")?;
                }
                match part {
                    Expression::Test(_) | Expression::Not(_) => part.fmt(f)?,
                    _ if parts.len() == 1 => part.fmt(f)?,
                    _ => write!(f, "({part})")?,
                }
            }
            Ok(())
        };
        match self {
            Expression::All(parts) => joined(f, parts, "and"),
            Expression::Any(parts) => joined(f, parts, "or"),
            Expression::Not(part) => match part.as_ref() {
                // Parentheses would nest deeper than in the parsed text.
                Expression::Test(_) | Expression::Not(_) => write!(f, "not {part}"),
                other => write!(f, "not ({other})"),
            },
            Expression::Test(test) => f.write_str(&test.text),
        }
    }
}

impl Expression {
    fn each_test(&self, visit: &mut impl FnMut(&Test)) {
        match self {
            Expression::All(parts) | Expression::Any(parts) => parts.iter().for_each(|part| part.each_test(visit)),
            Expression::Not(part) => part.each_test(visit),
            Expression::Test(test) => visit(test),
        }
    }

    fn decide(&self, row: &impl HasFields) -> Option<bool> {
        match self {
            Expression::All(parts) => first_or_all(parts, row, false),
            Expression::Any(parts) => first_or_all(parts, row, true),
            Expression::Not(part) => part.decide(row).map(|is_true| !is_true),
            Expression::Test(test) => test.decide(row),
        }
    }

    /// Whether it could be `wanted` with values that the caller may be able to get. Adds these, and
    /// the reasons why they are absent.
    fn may_be(&self, wanted: bool, row: &impl HasFields, lacks: &mut Vec<(Absent, &'static str)>) -> bool {
        let (parts, needs_all) = match self {
            Expression::All(parts) => (parts, wanted),
            Expression::Any(parts) => (parts, !wanted),
            Expression::Not(part) => return part.may_be(!wanted, row, lacks),
            Expression::Test(test) => {
                let before = lacks.len();
                let absent = |subject: Subject| Some((subject.value(row).err()?, subject.name()));
                let absent = test.subjects().filter_map(absent);
                lacks.extend(absent.filter(|(reason, _)| Absent::REMOVABLE.contains(reason)));
                return test
                    .decide(row)
                    .map_or(lacks.len() > before, |is_true| is_true == wanted);
            }
        };
        let possible = parts.iter().filter(|part| part.may_be(wanted, row, lacks)).count();
        possible == parts.len() || possible > 0 && !needs_all
    }
}

/// `decisive` if one part has that value; its opposite if all parts have the opposite; otherwise
/// unknown.
fn first_or_all(parts: &[Expression], row: &impl HasFields, decisive: bool) -> Option<bool> {
    let mut is_known = true;
    for part in parts {
        match part.decide(row) {
            Some(decided) if decided == decisive => return Some(decisive),
            Some(_) => {}
            None => is_known = false,
        }
    }
    is_known.then_some(!decisive)
}
