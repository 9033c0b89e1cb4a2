//! What the options of a listing mean: fields, orders, users.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use taskdiag::{CpuSet, Ids, Limits};
use taskdiag::{Field, Fields, Filter, Group, Handle, Kind, Query, Task, Value};

use crate::listing::Answers;
use crate::outcome::{say, Failure, Outcome};
use crate::output::Absences;

/// The fields that `-o` options name, in order, each once.
pub fn fields(lists: &[String]) -> Result<Vec<Field>, Failure> {
    let mut fields = Vec::new();
    for name in lists.iter().flat_map(|list| list.split(',')) {
        for field in named(name)? {
            if !fields.contains(&field) {
                fields.push(field);
            }
        }
    }
    Ok(fields)
}

/// The fields that one name stands for: a field, a group, or all. A field comes before a group of the same name.
fn named(name: &str) -> Result<Vec<Field>, Failure> {
    let error = match name.parse::<Field>() {
        Ok(field) => return Ok(vec![field]),
        Err(error) => error,
    };
    if name == "all" {
        return Ok(Fields::all().iter().collect());
    }
    match Group::ALL.into_iter().find(|group| group.name() == name) {
        Some(group) => Ok(Field::ALL
            .iter()
            .copied()
            .filter(|field| field.group() == group)
            .collect()),
        None => Err(unknown(&error)),
    }
}

fn unknown(error: &taskdiag_core::field::UnknownField) -> Failure {
    Failure::Unanswered(format!("{error}\n`taskdiag fields` lists all fields and groups"))
}

/// One field to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// The field.
    pub field: Field,
    /// Whether the largest comes first.
    pub descending: bool,
}

/// The fields that `--sort` options name.
pub fn sort_keys(lists: &[String]) -> Result<Vec<SortKey>, Failure> {
    let names = lists.iter().flat_map(|list| list.split(','));
    names
        .map(|name| {
            let descending = name.starts_with('-');
            let field = name.strip_prefix(['-', '+']).unwrap_or(name).parse();
            Ok(SortKey {
                field: field.map_err(|error| unknown(&error))?,
                descending,
            })
        })
        .collect()
}

/// Sorts tasks: numbers by value, text by its bytes, tasks without a value last. Equal ones keep their order.
pub fn sort<'a>(tasks: &mut Vec<Task<'a>>, by: &[SortKey], absences: &mut Absences, counted: impl Fn(Field) -> bool) {
    if by.is_empty() {
        return;
    }
    let mut keys = Vec::with_capacity(tasks.len() * by.len());
    for task in tasks.iter() {
        for key in by {
            let value = task.value(key.field);
            if let (Err(reason), true) = (value, counted(key.field)) {
                absences.count(key.field, reason);
            }
            keys.push(value.ok().map(Key::from));
        }
    }
    let keys_of = |index: usize| &keys[index * by.len()..][..by.len()];
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by(|&a, &b| {
        let pairs = by.iter().zip(keys_of(a).iter().zip(keys_of(b)));
        pairs
            .map(|(key, (a, b))| compare(a, b, key.descending))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    });
    *tasks = order.into_iter().map(|index| tasks[index]).collect();
}

fn compare(a: &Option<Key<'_>>, b: &Option<Key<'_>>, descending: bool) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) if descending => b.compare(a),
        (Some(a), Some(b)) => a.compare(b),
        // Whichever way the others go.
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

/// What tasks are ordered by.
enum Key<'a> {
    Number(i128),
    Bytes(&'a [u8]),
    Ids(Ids<'a>),
    Cpus(CpuSet<'a>),
    Limits(Limits<'a>),
}

impl Key<'_> {
    fn compare(&self, other: &Key<'_>) -> Ordering {
        match (self, other) {
            (Key::Number(a), Key::Number(b)) => a.cmp(b),
            (Key::Bytes(a), Key::Bytes(b)) => a.cmp(b),
            (Key::Ids(a), Key::Ids(b)) => a.iter().cmp(b.iter()),
            (Key::Cpus(a), Key::Cpus(b)) => a.iter().cmp(b.iter()),
            (Key::Limits(a), Key::Limits(b)) => a.iter().cmp(b.iter()),
            _ => Ordering::Equal,
        }
    }
}

impl<'a> From<Value<'a>> for Key<'a> {
    fn from(value: Value<'a>) -> Key<'a> {
        match value {
            Value::Unsigned(value) | Value::Mask(value) => Key::Number(value.into()),
            Value::Signed(value) => Key::Number(value.into()),
            Value::Flag(value) => Key::Number(value.into()),
            Value::Letter(letter) => Key::Number(u32::from(letter).into()),
            Value::Text(bytes) => Key::Bytes(bytes),
            Value::Texts(texts) => Key::Bytes(texts.as_bytes()),
            Value::Ids(ids) => Key::Ids(ids),
            Value::Cpus(cpus) => Key::Cpus(cpus),
            Value::Limits(limits) => Key::Limits(limits),
        }
    }
}

/// Keeps of a query the tasks that `--user`, `--cgroup` and `--where` choose.
pub fn narrow(
    mut query: Query,
    names: &[String],
    cgroup: Option<&OsStr>,
    expression: Option<&str>,
) -> Result<Query, Failure> {
    let users = users(names)?;
    if !users.is_empty() {
        query = query.filter(Filter::one_of(Field::Euid, &users));
    }
    if let Some(path) = cgroup {
        query = query.filter(Filter::within_cgroup(path.as_bytes()));
    }
    if let Some(expression) = expression {
        query = query.filter(filter(expression)?);
    }
    Ok(query)
}

/// Says whether something that `--cgroup` names is a cgroup at all, where nothing is in it.
pub fn check_cgroup(handle: &Handle, cgroup: Option<&OsStr>, answers: &Answers) -> Outcome {
    match cgroup {
        Some(path) if answers.snapshot().is_empty() && handle.is_cgroup(path.as_bytes()) == Some(false) => {
            say(format_args!(
                "cgroup {path:?}: no such cgroup (`taskdiag ps -o cgroup` shows those that have processes)"
            ));
            Outcome::Partial
        }
        _ => Outcome::Complete,
    }
}

/// What `--where` says. Names in it stand for users and groups.
fn filter(expression: &str) -> Result<Filter, Failure> {
    let number = |field: Field, name: &[u8]| {
        let name = OsStr::from_bytes(name);
        match field.info().kind {
            Kind::User => uzers::get_user_by_name(name).map(|user| user.uid()),
            _ => uzers::get_group_by_name(name).map(|group| group.gid()),
        }
    };
    Filter::parse_with_names(expression, &number).map_err(|error| Failure::Unanswered(format!("--where: {error}")))
}

/// The ids of users given by name or number.
pub fn users(names: &[String]) -> Result<Vec<u32>, Failure> {
    names.iter().map(|name| user(name)).collect()
}

/// A name comes before a number: a user may be called `1000`.
fn user(name: &str) -> Result<u32, Failure> {
    if let Some(user) = uzers::get_user_by_name(OsStr::new(name)) {
        return Ok(user.uid());
    }
    name.parse().map_err(|_| {
        Failure::Unanswered(format!(
            "unknown user {name:?}\n`getent passwd` lists those that this host knows; a number does as well"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(lists: &[&str]) -> Result<Vec<Field>, String> {
        let lists: Vec<String> = lists.iter().map(|&list| list.to_owned()).collect();
        fields(&lists).map_err(|failure| format!("{failure:?}"))
    }

    /// Check that groups stand for their fields, that a field of the same name comes first, and that nothing comes twice.
    #[test]
    fn names_are_of_fields_then_groups() {
        assert_eq!(names(&["comm,pid", "pid"]), Ok(vec![Field::Comm, Field::Pid]));
        assert_eq!(names(&["groups,cgroup"]), Ok(vec![Field::Groups, Field::Cgroup]));
        assert_eq!(names(&["oom"]), Ok(vec![Field::OomScoreAdj, Field::OomScore]));
        assert_eq!(names(&["all"]), Ok(Fields::all().iter().collect()));
        assert!(names(&["rollup"]).is_ok_and(|fields| fields.contains(&Field::PssBytes)));
        assert!(names(&["rss"]).is_err_and(|error| error.contains("rss_bytes")));
        assert!(names(&["pid,"]).is_err());
    }

    /// Check the directions of sort keys.
    #[test]
    fn sort_keys_have_directions() {
        let keys = sort_keys(&["-rss_bytes,+comm".to_owned(), "pid".to_owned()]).expect("fields");
        let keys: Vec<_> = keys.iter().map(|key| (key.field, key.descending)).collect();
        assert_eq!(
            keys,
            [(Field::RssBytes, true), (Field::Comm, false), (Field::Pid, false)]
        );
    }

    /// Check that numbers go by value, text by bytes, and that tasks without a value come last either way.
    #[test]
    fn missing_values_come_last() {
        let key = |value: u64| Some(Key::from(Value::Unsigned(value)));
        assert_eq!(compare(&key(9), &key(10), false), Ordering::Less);
        assert_eq!(compare(&key(9), &key(10), true), Ordering::Greater);
        assert_eq!(
            compare(
                &Some(Key::from(Value::Text(b"b"))),
                &Some(Key::from(Value::Text(b"ab"))),
                false
            ),
            Ordering::Greater
        );
        for descending in [false, true] {
            assert_eq!(compare(&None, &key(0), descending), Ordering::Greater);
            assert_eq!(compare(&key(0), &None, descending), Ordering::Less);
            assert_eq!(compare(&None, &None, descending), Ordering::Equal);
        }
    }

    /// Check that users have names and numbers.
    #[test]
    fn users_are_names_or_numbers() {
        let ids = users(&["root".to_owned(), "12345678".to_owned()]);
        assert_eq!(ids.expect("root is known"), [0, 12_345_678]);
        assert!(users(&["no such user".to_owned()]).is_err());
    }
}
