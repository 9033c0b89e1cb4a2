//! One comparison of a filter: its subject, its operand, and whether it is true.

use std::fmt;

use regex::bytes::Regex;

use super::network::{self, Network};
use super::HasFields;
use crate::absent::{Absent, Known};
use crate::field::{Field, Fields, Group, Kind};
use crate::text::process::hierarchies;
use crate::value::{Limits, Value};

/// One comparison.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Test {
    pub subject: Subject,
    pub comparison: Comparison,
    /// The source text of the test.
    pub text: String,
}

/// The subject of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// A field.
    Field(Field),
    /// One number of [`Field::Limits`], such as `limits.nofile.soft`.
    Limit(Limit),
    /// A field of rows that are no tasks.
    Column(Column),
}

/// A field of rows that are no tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its index among the fields of its rows.
    pub index: usize,
    /// Its name in expressions.
    pub name: &'static str,
    /// The kind of its values.
    pub kind: Kind,
}

/// A soft or hard resource limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    /// Its index in [`Limits::NAMES`].
    pub index: usize,
    pub is_hard: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Comparison {
    Is(Relation, Operand),
    /// Whether such a row has no such value.
    None(bool),
    /// Equal to one of these.
    In(Vec<Operand>),
    /// All bits of this mask are set.
    Has(u64),
    Matches(Pattern),
    /// In the cgroup with this path, or in one below it.
    Within(Vec<u8>),
}

/// The value that a subject is compared with.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operand {
    /// In the unit of the field. Percentages are in thousandths.
    Number(i128),
    Text(Vec<u8>),
    Network(Network),
    /// The same task's value of another field.
    Value(Subject),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A regular expression over bytes, or a glob made into one.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub regex: Regex,
    /// The text with which every match begins, and whether it is all of the match.
    pub prefix: (Vec<u8>, bool),
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.regex.as_str() == other.regex.as_str()
    }
}

/// The class of values. Values of the same class can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Number,
    Bytes,
    Nanoseconds,
    Percent,
    Flag,
    Text,
    Time,
    IpAddress,
    Address,
    Mask,
    Capabilities,
    Signals,
    /// All limits together. They can't be compared.
    Limits,
}

impl Subject {
    /// The field of tasks, if the subject is one.
    pub(super) fn field(self) -> Option<Field> {
        match self {
            Subject::Field(field) => Some(field),
            Subject::Limit(_) => Some(Field::Limits),
            Subject::Column(_) => None,
        }
    }

    /// The name of its field.
    pub(super) fn name(self) -> &'static str {
        self.column()
            .map_or_else(|| self.field().map_or("", Field::name), |column| column.name)
    }

    /// Whether it is a field of tasks that is derived from others.
    pub(super) fn is_derived(self) -> bool {
        self.field().is_some_and(|field| field.group() == Group::Derived)
    }

    /// The field of other rows, if the subject is one.
    pub(super) fn column(self) -> Option<Column> {
        match self {
            Subject::Column(column) => Some(column),
            _ => None,
        }
    }

    /// The kind of a field's values.
    pub(super) fn field_kind(self) -> Kind {
        match self {
            Subject::Field(field) => field.info().kind,
            Subject::Limit(_) => Kind::Limits,
            Subject::Column(column) => column.kind,
        }
    }

    /// The kind of its values, for messages.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Subject::Limit(_) => "a limit",
            subject => subject.field_kind().as_str(),
        }
    }

    /// Whether it has several values. The comparison is then true if it is true for one of them.
    pub(super) fn is_list(self) -> bool {
        matches!(self.field_kind(), Kind::Ids | Kind::Cpus)
    }

    pub(super) fn class(self) -> Class {
        if let Subject::Limit(limit) = self {
            return limit.class();
        }
        if self
            .column()
            .is_some_and(|column| matches!(column.name, "local_addr" | "remote_addr"))
        {
            return Class::IpAddress;
        }
        match self.field_kind() {
            Kind::Id
            | Kind::User
            | Kind::GroupId
            | Kind::Count
            | Kind::Signed
            | Kind::Mode
            | Kind::Ids
            | Kind::Cpus => Class::Number,
            Kind::Bytes => Class::Bytes,
            Kind::Nanoseconds => Class::Nanoseconds,
            Kind::Percent => Class::Percent,
            Kind::Flag => Class::Flag,
            Kind::Letter | Kind::Text | Kind::Texts => Class::Text,
            Kind::Time => Class::Time,
            Kind::Address => Class::Address,
            Kind::Mask => Class::Mask,
            Kind::Capabilities => Class::Capabilities,
            Kind::Signals => Class::Signals,
            Kind::Limits => Class::Limits,
        }
    }

    pub(super) fn value<R: HasFields>(self, row: &R) -> Known<Value<'_>> {
        match self {
            Subject::Field(field) => row.value(field),
            Subject::Column(column) => row.column_value(column.index),
            Subject::Limit(limit) => match row.value(Field::Limits)? {
                Value::Limits(limits) => limit.of(limits).map(Value::Unsigned).ok_or(Absent::Unsupported),
                _ => Err(Absent::Unsupported),
            },
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Field(field) => field.fmt(f),
            Subject::Column(column) => f.write_str(column.name),
            Subject::Limit(Limit { index, is_hard }) => {
                let which = if *is_hard { "hard" } else { "soft" };
                write!(f, "limits.{}.{which}", Limits::NAMES[*index])
            }
        }
    }
}

impl Limit {
    /// The value of `unlimited`: no limit is larger.
    pub(super) const UNLIMITED: u64 = u64::MAX;

    fn class(self) -> Class {
        match Limits::NAMES[self.index] {
            "data" | "stack" | "core" | "rss" | "memlock" | "as" | "fsize" | "msgqueue" => Class::Bytes,
            _ => Class::Number,
        }
    }

    fn of(self, limits: Limits<'_>) -> Option<u64> {
        let (_, soft, hard) = limits.iter().nth(self.index)?;
        let limit = if self.is_hard { hard } else { soft };
        Some(limit.unwrap_or(Limit::UNLIMITED))
    }
}

impl Relation {
    pub(super) fn holds<T: Ord + ?Sized>(self, a: &T, b: &T) -> bool {
        match self {
            Relation::Equal => a == b,
            Relation::NotEqual => a != b,
            Relation::Less => a < b,
            Relation::LessOrEqual => a <= b,
            Relation::Greater => a > b,
            Relation::GreaterOrEqual => a >= b,
        }
    }
}

impl Test {
    /// The fields that it looks at.
    pub(super) fn fields(&self) -> Fields {
        self.subjects().filter_map(Subject::field).collect()
    }

    /// What it looks at.
    pub(super) fn subjects(&self) -> impl Iterator<Item = Subject> + '_ {
        let others = self.operands().iter().filter_map(|operand| match operand {
            Operand::Value(subject) => Some(*subject),
            _ => None,
        });
        std::iter::once(self.subject).chain(others)
    }

    /// What it compares with.
    pub(super) fn operands(&self) -> &[Operand] {
        match &self.comparison {
            Comparison::Is(_, operand) => std::slice::from_ref(operand),
            Comparison::In(operands) => operands,
            _ => &[],
        }
    }

    /// Whether the test is true for a row. `None` if that depends on an absent value.
    pub(super) fn decide(&self, row: &impl HasFields) -> Option<bool> {
        let value = match (&self.comparison, self.subject.value(row)) {
            (Comparison::None(is_none), Err(Absent::NotApplicable | Absent::NoMemory)) => return Some(*is_none),
            (_, value) => value.ok()?,
        };
        match &self.comparison {
            // A derived field is empty for a task that has none, and so are the names of other rows.
            Comparison::None(is_none) => {
                let can_be_empty = self.subject.is_derived() || self.subject.column().is_some();
                Some(*is_none == (can_be_empty && matches!(value, Value::Text(b""))))
            }
            Comparison::Is(relation, operand) => compare(*relation, value, operand, row),
            Comparison::In(operands) => {
                let mut decided = Some(false);
                for operand in operands {
                    match compare(Relation::Equal, value, operand, row) {
                        Some(true) => return Some(true),
                        Some(false) => {}
                        None => decided = None,
                    }
                }
                decided
            }
            Comparison::Has(bits) => match value {
                Value::Mask(mask) => Some(mask & bits == *bits),
                _ => None,
            },
            Comparison::Matches(pattern) => with_text(value, |bytes| pattern.regex.is_match(bytes)),
            Comparison::Within(path) if self.subject == Subject::Field(Field::Cgroups) => with_text(value, |lines| {
                hierarchies(lines).any(|(_, of_task)| is_within(of_task, path))
            }),
            Comparison::Within(path) => with_text(value, |bytes| is_within(bytes, path)),
        }
    }
}

fn compare(relation: Relation, value: Value<'_>, operand: &Operand, row: &impl HasFields) -> Option<bool> {
    match operand {
        Operand::Number(number) => compare_numbers(relation, value, *number),
        Operand::Text(text) => with_text(value, |bytes| relation.holds(bytes, text.as_slice())),
        Operand::Network(network) => with_text(value, |bytes| network.relates(relation, bytes))?,
        Operand::Value(subject) => {
            let other = subject.value(row).ok()?;
            if subject.class() == Class::IpAddress {
                let operand = with_text(other, network::operand)??;
                return compare(relation, value, &operand, row);
            }
            match number(other) {
                Some(number) => compare_numbers(relation, value, number),
                None => with_text(value, |bytes| with_text(other, |other| relation.holds(bytes, other)))?,
            }
        }
    }
}

fn is_within(path: &[u8], above: &[u8]) -> bool {
    match path.strip_prefix(above) {
        Some(rest) => rest.is_empty() || rest[0] == b'/' || above == b"/",
        None => false,
    }
}

/// The value as a number, if it is a single one. Percentages are in thousandths.
fn number(value: Value<'_>) -> Option<i128> {
    match value {
        Value::Unsigned(value) | Value::Mask(value) => Some(value.into()),
        Value::Signed(value) => Some(value.into()),
        Value::Flag(flag) => Some(flag.into()),
        Value::Float(percent) => Some((percent * 1000.0).round() as i128),
        _ => None,
    }
}

/// Whether the relation holds for a number, or for a member of a list. A list is unequal if no
/// member is equal.
fn compare_numbers(relation: Relation, value: Value<'_>, number_given: i128) -> Option<bool> {
    let any = |mut members: Box<dyn Iterator<Item = i128> + '_>| match relation {
        Relation::NotEqual => members.all(|member| member != number_given),
        _ => members.any(|member| relation.holds(&member, &number_given)),
    };
    match value {
        Value::Ids(ids) => Some(any(Box::new(ids.iter().map(i128::from)))),
        Value::Cpus(cpus) => Some(any(Box::new(cpus.iter().map(|cpu| cpu as i128)))),
        value => number(value).map(|value| relation.holds(&value, &number_given)),
    }
}

/// Tests the value as text, if it is text. A list of texts is tested as one text with spaces
/// between its members.
fn with_text<T>(value: Value<'_>, test: impl FnOnce(&[u8]) -> T) -> Option<T> {
    Some(match value {
        Value::Letter(letter) => test(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        Value::Text(bytes) => test(bytes),
        Value::Texts(texts) => {
            let mut joined = Vec::new();
            texts.join(&mut joined);
            test(&joined)
        }
        _ => return None,
    })
}
