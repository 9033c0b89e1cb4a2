//! Which tasks are meant: expressions over fields.
//!
//! A filter decides with three values: a comparison with a value that is absent is neither true nor false, and a task is in the
//! answer only if the whole expression is true of it. So `rss_bytes < 1M` leaves kernel threads out, and so does
//! `not rss_bytes < 1M`.

mod kernel;
mod parse;

use std::fmt;

use regex::bytes::Regex;

use crate::absent::Absent;
use crate::field::{Field, Fields, Group};
use crate::snapshot::Counters;
use crate::value::Value;

pub use parse::ParseError;

pub use kernel::KernelTests;

/// An expression over fields, such as `uid == 0 and not kernel_thread and comm ~ '^ssh'`.
///
/// ```
/// # mod taskdiag { pub use taskdiag_core::{field::Field, filter::{Filter, ParseError}, query::Query}; }
/// use taskdiag::{Field, Filter, Query};
///
/// let filter = Filter::parse("state == 'D' or rss_bytes > 1G")?;
/// let query = Query::processes().fields(Field::Comm).filter(filter);
/// # Ok::<(), taskdiag::ParseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Filter(Expression);

#[derive(Clone, Debug)]
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
}

/// Writes it so that it can stand between others.
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

/// One comparison.
#[derive(Clone, Debug)]
struct Test {
    field: Field,
    comparison: Comparison,
    /// The test as it was written.
    text: String,
}

#[derive(Clone, Debug)]
enum Comparison {
    Number(Relation, i128),
    Text(Relation, Vec<u8>),
    Pattern(Pattern),
    /// The path of a cgroup: it, or one below.
    Within(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Relation {
    fn holds<T: Ord + ?Sized>(self, a: &T, b: &T) -> bool {
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

/// A regular expression over bytes, or a glob made into one.
#[derive(Clone, Debug)]
struct Pattern {
    regex: Regex,
    /// What each text that it matches begins with; and whether that is all of it.
    prefix: (Vec<u8>, bool),
}

/// Something with fields: a task, or what a test puts in its place.
#[doc(hidden)]
pub trait HasFields {
    fn value(&self, field: Field) -> Result<Value<'_>, Absent>;
}

impl HasFields for crate::snapshot::Task<'_> {
    fn value(&self, field: Field) -> Result<Value<'_>, Absent> {
        crate::snapshot::Task::value(self, field)
    }
}

impl Filter {
    /// Parses an expression: `==  !=  <  <=  >  >=`, `~` for a regular expression and `~*` for a glob, `and  or  not  ( )`, text in
    /// single or double quotes. Numbers may have a unit (`1G`, `500ms`). A list is compared member by member: one that
    /// compares is enough, and for `!=` none may be equal. A list of texts is compared as one text with blanks between them.
    pub fn parse(text: &str) -> Result<Filter, ParseError> {
        parse::parse(text, &|_, _| None)
    }

    /// The same, where text may stand for a number: `name` is asked for the number of a user or group of this name.
    pub fn parse_with_names(text: &str, name: &dyn Fn(Field, &[u8]) -> Option<u32>) -> Result<Filter, ParseError> {
        parse::parse(text, name)
    }

    /// Tasks whose `field`, a number, is one of these.
    pub fn one_of(field: Field, numbers: &[u32]) -> Filter {
        let test = |&number: &u32| {
            Expression::Test(Test {
                field,
                comparison: Comparison::Number(Relation::Equal, number.into()),
                text: format!("{field} == {number}"),
            })
        };
        Filter(Expression::Any(numbers.iter().map(test).collect()))
    }

    /// Tasks in a cgroup of the unified hierarchy or in one below it. The path is as [`Field::Cgroup`] has it.
    pub fn within_cgroup(path: &[u8]) -> Filter {
        let path = match path.strip_suffix(b"/") {
            Some(path) if !path.is_empty() => path,
            _ => path,
        };
        Filter(Expression::Test(Test {
            field: Field::Cgroup,
            comparison: Comparison::Within(path.to_vec()),
            text: format!("cgroup within {:?}", String::from_utf8_lossy(path)),
        }))
    }

    /// Tasks that both filters are true of.
    pub fn and(self, other: Filter) -> Filter {
        Filter(Expression::All(vec![self.0, other.0]))
    }

    /// The fields that it looks at.
    pub fn fields(&self) -> Fields {
        let mut fields = Fields::NONE;
        self.0.each_test(&mut |test| fields.insert(test.field));
        fields
    }

    /// Whether it is true of a task; `None` if that depends on a value that is absent.
    #[doc(hidden)]
    pub fn decide(&self, row: &impl HasFields) -> Option<bool> {
        self.0.decide(row)
    }

    /// Whether it is true of a task, which is counted as a candidate; and where that can't be known, as undecided.
    #[doc(hidden)]
    pub fn admits(&self, row: &impl HasFields, counters: &mut Counters) -> bool {
        counters.candidates += 1;
        self.decide(row).unwrap_or_else(|| {
            let is_kept_back = |field| {
                let value = row.value(field);
                matches!(
                    value,
                    Err(Absent::Denied
                        | Absent::Unsupported
                        | Absent::Truncated
                        | Absent::OverBudget
                        | Absent::NoAnswer)
                )
            };
            counters.undecided += u64::from(self.fields().iter().any(is_kept_back));
            false
        })
    }

    /// The parts that must all be true.
    fn conjuncts(&self) -> Vec<Conjunct<'_>> {
        let mut conjuncts = Vec::new();
        let mut left = vec![Conjunct {
            expression: &self.0,
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

    /// The parts of it that look only at what is cheap to read of a task; `None` if there is none, or nothing else.
    #[doc(hidden)]
    pub fn cheap_part(&self) -> Option<Filter> {
        let is_cheap = |part: &Conjunct<'_>| {
            let mut is_cheap = true;
            part.expression
                .each_test(&mut |test| is_cheap &= is_cheap_group(test.field.group()));
            is_cheap
        };
        let conjuncts = self.conjuncts().into_iter();
        let cheap: Vec<Expression> = conjuncts.filter(is_cheap).map(Conjunct::into_expression).collect();
        (!cheap.is_empty()).then_some(Filter(Expression::All(cheap)))
    }

    /// The parts of it that don't look at `group`; `None` if there is none.
    #[doc(hidden)]
    pub fn part_without(&self, group: Group) -> Option<Filter> {
        let looks = |part: &Conjunct<'_>| {
            let mut looks = false;
            part.expression
                .each_test(&mut |test| looks |= test.field.group() == group);
            looks
        };
        let conjuncts = self.conjuncts().into_iter();
        let parts: Vec<Expression> = conjuncts
            .filter(|part| !looks(part))
            .map(Conjunct::into_expression)
            .collect();
        (!parts.is_empty()).then_some(Filter(Expression::All(parts)))
    }

    /// What the kernel's side can decide of it: tasks that fail are no candidates.
    #[doc(hidden)]
    pub fn kernel_tests(&self, cgroup_id: &dyn Fn(&[u8]) -> Option<u64>) -> KernelTests {
        kernel::tests(&self.conjuncts(), cgroup_id)
    }
}

/// Groups that procfs has in `stat` and `status`, and that cost BPF no copy out of a process's memory.
fn is_cheap_group(group: Group) -> bool {
    matches!(
        group,
        Group::Base | Group::Tty | Group::Cred | Group::Groups | Group::Faults | Group::Signals
    )
}

/// Writes what it means, fully in parentheses.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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
                Expression::Test(test) => write!(f, "not {}", test.text),
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
}

/// `decisive` if one part is; its opposite if all parts are that; else unknown.
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

impl Test {
    fn decide(&self, row: &impl HasFields) -> Option<bool> {
        let value = row.value(self.field).ok()?;
        Some(match &self.comparison {
            Comparison::Number(relation, number) => compare_numbers(*relation, value, *number)?,
            Comparison::Text(relation, text) => with_text(value, |bytes| relation.holds(bytes, text.as_slice()))?,
            Comparison::Pattern(pattern) => with_text(value, |bytes| pattern.regex.is_match(bytes))?,
            Comparison::Within(path) => with_text(value, |bytes| is_within(bytes, path))?,
        })
    }
}

fn is_within(path: &[u8], above: &[u8]) -> bool {
    match path.strip_prefix(above) {
        Some(rest) => rest.is_empty() || rest[0] == b'/' || above == b"/",
        None => false,
    }
}

fn compare_numbers(relation: Relation, value: Value<'_>, number: i128) -> Option<bool> {
    let any = |mut members: Box<dyn Iterator<Item = i128> + '_>| match relation {
        Relation::NotEqual => members.all(|member| member != number),
        _ => members.any(|member| relation.holds(&member, &number)),
    };
    Some(match value {
        Value::Unsigned(value) | Value::Mask(value) => relation.holds(&value.into(), &number),
        Value::Signed(value) => relation.holds(&value.into(), &number),
        Value::Flag(flag) => relation.holds(&flag.into(), &number),
        Value::Ids(ids) => any(Box::new(ids.iter().map(i128::from))),
        Value::Cpus(cpus) => any(Box::new(cpus.iter().map(|cpu| cpu as i128))),
        Value::Letter(_) | Value::Text(_) | Value::Texts(_) | Value::Limits(_) => return None,
    })
}

fn with_text(value: Value<'_>, test: impl FnOnce(&[u8]) -> bool) -> Option<bool> {
    Some(match value {
        Value::Letter(letter) => test(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        Value::Text(bytes) => test(bytes),
        Value::Texts(texts) => {
            let bytes = texts.as_bytes();
            let mut joined = bytes.strip_suffix(b"\0").unwrap_or(bytes).to_vec();
            joined
                .iter_mut()
                .filter(|byte| **byte == 0)
                .for_each(|byte| *byte = b' ');
            test(&joined)
        }
        _ => return None,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::value::{Arguments, Ids};

    /// A row made of what a test says.
    pub(crate) struct Made(pub Vec<(Field, Result<Value<'static>, Absent>)>);

    impl HasFields for Made {
        fn value(&self, field: Field) -> Result<Value<'_>, Absent> {
            let found = self.0.iter().find(|(has, _)| *has == field);
            found.map_or(Err(Absent::NotAsked), |(_, value)| *value)
        }
    }

    fn sshd() -> Made {
        Made(vec![
            (Field::Pid, Ok(Value::Unsigned(7))),
            (Field::Groups, Ok(Value::Ids(Ids::new(&[4, 0, 0, 0, 10, 0, 0, 0])))),
            (Field::Uid, Ok(Value::Unsigned(0))),
            (Field::Nice, Ok(Value::Signed(-5))),
            (Field::KernelThread, Ok(Value::Flag(false))),
            (Field::State, Ok(Value::Letter('S'))),
            (Field::Comm, Ok(Value::Text(b"sshd"))),
            (Field::Cgroup, Ok(Value::Text(b"/system.slice/ssh.service"))),
            (
                Field::Cmdline,
                Ok(Value::Texts(Arguments::new(b"sshd\0-D\0-p\x0022\0"))),
            ),
            (Field::RssBytes, Err(Absent::NoMemory)),
        ])
    }

    fn decided(text: &str) -> Option<bool> {
        Filter::parse(text)
            .unwrap_or_else(|error| panic!("{text}: {error}"))
            .decide(&sshd())
    }

    /// Check comparisons of every kind.
    #[test]
    fn comparisons_compare() {
        for (text, expected) in [
            ("pid == 7", true),
            ("pid != 7", false),
            ("groups == 4", true),
            ("groups == 5", false),
            ("groups != 4", false),
            ("groups != 5", true),
            ("groups > 9", true),
            ("nice < 0", true),
            ("nice >= -5", true),
            ("nice >= -4", false),
            ("nice > -5", false),
            ("nice > -6", true),
            ("nice < -5", false),
            ("nice < -4", true),
            ("nice <= -5", true),
            ("nice <= -6", false),
            ("uid == 0 and not kernel_thread and comm ~ '^ssh'", true),
            ("kernel_thread == false", true),
            ("kernel_thread", false),
            ("state == 'S'", true),
            ("state ~ \"[DR]\"", false),
            ("comm == 'sshd'", true),
            ("comm < 'ssha'", false),
            ("comm ~* 'ss?d'", true),
            ("comm ~* 'ss'", false),
            ("comm ~* 's*'", true),
            ("comm ~* '[a-s]shd'", true),
            ("comm ~ 'h'", true),
            ("cmdline == 'sshd -D -p 22'", true),
            ("cmdline ~ '-p [0-9]+$'", true),
            ("(pid == 1 or pid == 7) and (uid == 1 or nice == -5)", true),
            ("not (pid == 7 and uid == 1)", true),
            ("pid == 0x7", true),
        ] {
            assert_eq!(decided(text), Some(expected), "{text}");
        }
    }

    /// Check that what is absent makes a comparison neither true nor false, and that the rest may decide all the same.
    #[test]
    fn absent_values_decide_nothing() {
        assert_eq!(decided("rss_bytes > 1M"), None);
        assert_eq!(decided("not rss_bytes > 1M"), None);
        assert_eq!(decided("rss_bytes > 1M or pid == 7"), Some(true));
        assert_eq!(decided("rss_bytes > 1M and pid == 8"), Some(false));
        assert_eq!(decided("rss_bytes > 1M and pid == 7"), None);
    }

    /// Check that what is absent for a reason that the reader can't help is counted as undecided, and nothing else is.
    #[test]
    fn undecided_tasks_are_counted() {
        let row = |rss: Absent| Made(vec![(Field::Pid, Ok(Value::Unsigned(7))), (Field::RssBytes, Err(rss))]);
        let mut counters = Counters::default();
        let mut admits = |text: &str, rss| {
            let admitted = Filter::parse(text).unwrap().admits(&row(rss), &mut counters);
            (admitted, counters.candidates, counters.undecided)
        };
        assert_eq!(admits("pid == 7", Absent::Denied), (true, 1, 0));
        assert_eq!(admits("pid == 8", Absent::Denied), (false, 2, 0));
        assert_eq!(admits("rss_bytes > 1", Absent::Denied), (false, 3, 1));
        assert_eq!(admits("rss_bytes > 1", Absent::NoMemory), (false, 4, 1));
        assert_eq!(admits("rss_bytes > 1", Absent::NoAnswer), (false, 5, 2));
    }

    /// Check that a filter knows what it looks at, and its parts that don't look at a group.
    #[test]
    fn filters_know_what_they_look_at() {
        let filter = Filter::parse("uid == 0 and (comm ~ 'x' or pss_bytes > 1) and not cmdline ~ 'y'").unwrap();
        let fields = Field::Uid | Field::Comm | Field::PssBytes | Field::Cmdline;
        assert_eq!(filter.fields(), fields);
        let without = |group| filter.part_without(group).map(|part| part.to_string());
        assert_eq!(
            without(Group::Rollup),
            Some("uid == 0 and not cmdline ~ 'y'".to_owned())
        );
        assert_eq!(
            without(Group::Args),
            Some("uid == 0 and (comm ~ 'x' or pss_bytes > 1)".to_owned())
        );
        let all = Filter::parse("pss_bytes > 1").unwrap();
        assert!(all.part_without(Group::Rollup).is_none());
    }

    /// Check that cgroups lie in others by whole names.
    #[test]
    fn cgroups_lie_in_others() {
        let within = |path: &str| Filter::within_cgroup(path.as_bytes()).decide(&sshd());
        for path in ["/", "/system.slice", "/system.slice/", "/system.slice/ssh.service"] {
            assert_eq!(within(path), Some(true), "{path}");
        }
        for path in ["/system", "/system.slice/ssh", "/user.slice"] {
            assert_eq!(within(path), Some(false), "{path}");
        }
    }

    /// Check that only the parts that need nothing dear are looked at first.
    #[test]
    fn cheap_parts_come_first() {
        let cheap = |text: &str| Filter::parse(text).unwrap().cheap_part().map(|part| part.to_string());
        assert_eq!(cheap("uid == 0 and cmdline ~ 'x'"), Some("uid == 0".to_owned()));
        assert_eq!(cheap("uid == 0 or cmdline ~ 'x'"), None);
        assert_eq!(
            cheap("cmdline ~ 'x' and (pid == 1 or pid == 2) and not comm == 'a'"),
            Some("(pid == 1 or pid == 2) and not comm == 'a'".to_owned())
        );
        assert_eq!(
            Filter::one_of(Field::Euid, &[1, 2]).to_string(),
            "euid == 1 or euid == 2"
        );
    }
}
