//! The `-o` and `--sort` options, for the rows of any command.

use std::borrow::Cow;
use std::cmp::Ordering;

use clap::Args;
use taskdiag::files::Owner;
use taskdiag::{CpuSet, Ids, Limits, Value};
use taskdiag_core::field::near;
use taskdiag_core::filter::or_near;

use crate::outcome::Failure;

/// These, each once, in the order in which they come first.
pub fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut each = Vec::new();
    for item in items {
        if !each.contains(&item) {
            each.push(item);
        }
    }
    each
}

/// The items that `-o` chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen<T> {
    /// In order, without duplicates.
    pub items: Vec<T>,
    /// Whether they are added to the items shown without `-o`.
    adds: bool,
}

impl<T: Copy + PartialEq> Chosen<T> {
    /// Parses lists of names; `parse` gives the items that a name stands for. A list that starts
    /// with `+` adds to the lists before it, or to the items shown without `-o`.
    pub fn parse(lists: &[String], parse: impl Fn(&str) -> Result<Vec<T>, Failure>) -> Result<Chosen<T>, Failure> {
        let names = lists
            .iter()
            .flat_map(|list| list.strip_prefix('+').unwrap_or(list).split(','));
        let items: Vec<Vec<T>> = names.map(parse).collect::<Result<_, _>>()?;
        Ok(Chosen {
            items: distinct(items.into_iter().flatten()),
            adds: lists.first().is_none_or(|list| list.starts_with('+')),
        })
    }

    /// The keys for machine-readable output. `usual` are the keys without `-o`.
    pub fn keys(&self, usual: &[T]) -> Vec<T> {
        let usual = usual.iter().filter(|_| self.adds);
        distinct(usual.chain(&self.items).copied())
    }

    /// The columns of a table. `usual` are the columns without `-o`. Added columns come before the
    /// last of these, which has the longest text.
    pub fn columns<C>(&self, usual: impl IntoIterator<Item = C>, column: impl Fn(T) -> C) -> Vec<C> {
        let mut columns: Vec<C> = usual.into_iter().filter(|_| self.adds).collect();
        let end = columns.len().saturating_sub(1);
        columns.splice(end..end, self.items.iter().map(|&item| column(item)));
        columns
    }

    /// Whether this item was chosen.
    pub fn contains(&self, item: T) -> bool {
        self.items.contains(&item)
    }
}

/// In which order rows come, and how many.
#[derive(Clone, Debug, Default, Args)]
pub struct OrderOptions {
    /// Sort by these fields; a minus in front puts the largest first. Rows without a value come last
    #[arg(long, value_name = "[-]FIELD,…", allow_hyphen_values = true)]
    pub sort: Vec<String>,
    /// At most this many rows, after sorting; of each sample, when watching
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

impl OrderOptions {
    /// All rows, sorted by these.
    pub fn sorted_by(keys: &[&str]) -> OrderOptions {
        OrderOptions {
            sort: keys.iter().map(|&key| key.to_owned()).collect(),
            limit: None,
        }
    }

    /// The maximum number of rows.
    pub fn limit(&self) -> usize {
        self.limit.unwrap_or(usize::MAX)
    }
}

/// One key to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortBy<T> {
    pub key: T,
    /// Whether the largest comes first.
    pub descending: bool,
}

impl<T> SortBy<T> {
    /// Parses lists of keys. A minus in front of a key puts the largest first.
    pub fn parse(lists: &[String], parse: impl Fn(&str) -> Result<T, Failure>) -> Result<Vec<SortBy<T>>, Failure> {
        let names = lists.iter().flat_map(|list| list.split(','));
        names.map(|name| SortBy::one(name, &parse)).collect()
    }

    /// Parses one key.
    pub fn one(name: &str, parse: impl Fn(&str) -> Result<T, Failure>) -> Result<SortBy<T>, Failure> {
        Ok(SortBy {
            key: parse(name.strip_prefix(['-', '+']).unwrap_or(name))?,
            descending: name.starts_with('-'),
        })
    }

    /// Compares two rows by their values for this key. A row without a value comes last in either
    /// direction.
    pub fn compare<V, E>(&self, a: Result<V, E>, b: Result<V, E>, order: impl Fn(&V, &V) -> Ordering) -> Ordering {
        match (a, b) {
            (Ok(a), Ok(b)) if self.descending => order(&b, &a),
            (Ok(a), Ok(b)) => order(&a, &b),
            (a, b) => b.is_ok().cmp(&a.is_ok()),
        }
    }
}

/// What a value is compared by.
#[derive(Debug)]
pub enum Key<'a> {
    /// A number, by its value.
    Number(i128),
    /// A number with a fraction, by its value.
    Float(f64),
    /// Text, by its bytes.
    Text(Cow<'a, [u8]>),
    /// A list, by its members.
    Ids(Ids<'a>),
    /// A set, by its members.
    Cpus(CpuSet<'a>),
    /// Limits, one after the other.
    Limits(Limits<'a>),
}

impl Key<'_> {
    /// The order of two values of one column.
    pub fn compare(&self, other: &Key<'_>) -> Ordering {
        match (self, other) {
            (Key::Number(a), Key::Number(b)) => a.cmp(b),
            (Key::Float(a), Key::Float(b)) => a.total_cmp(b),
            (Key::Text(a), Key::Text(b)) => a.cmp(b),
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
            Value::Float(value) => Key::Float(value),
            Value::Flag(value) => Key::Number(value.into()),
            Value::Letter(letter) => Key::Number(u32::from(letter).into()),
            Value::Text(bytes) => Key::Text(bytes.into()),
            Value::Texts(texts) => Key::Text(texts.as_bytes().into()),
            Value::Ids(ids) => Key::Ids(ids),
            Value::Cpus(cpus) => Key::Cpus(cpus),
            Value::Limits(limits) => Key::Limits(limits),
            // By their processes, then by the numbers of descriptors.
            Value::Owners(owners) => {
                let bytes = |owner: &Owner| [owner.pid, owner.fd].map(u32::to_be_bytes).concat();
                Key::Text(Cow::Owned(owners.iter().flat_map(bytes).collect()))
            }
            _ => Key::Text(Cow::Borrowed(b"")),
        }
    }
}

/// The indices of rows in order. `key_of` gives a key of a row; a row without one comes last, and
/// rows that are equal by all keys keep their order.
pub fn order<'k, K: Copy, E>(
    rows: usize,
    by: &[SortBy<K>],
    mut key_of: impl FnMut(usize, K) -> Result<Key<'k>, E>,
) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows).collect();
    if by.is_empty() {
        return order;
    }
    let mut keys = Vec::with_capacity(rows * by.len());
    for row in 0..rows {
        keys.extend(by.iter().map(|by| key_of(row, by.key)));
    }
    let keys_of = |row: usize| &keys[row * by.len()..][..by.len()];
    order.sort_by(|&a, &b| {
        let pairs = by.iter().zip(keys_of(a).iter().zip(keys_of(b)));
        pairs
            .map(|(by, (a, b))| by.compare(a.as_ref(), b.as_ref(), |a, b| a.compare(b)))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    });
    order
}

/// The failure for an unknown name, with the known ones.
pub fn unknown<'a>(what: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Failure {
    let known: Vec<&str> = known.into_iter().collect();
    // One letter is near any other.
    let near = near(name, known.iter().copied().filter(|_| name.len() > 1));
    Failure::Unanswered(format!(
        "unknown {what} {name:?}{}; known are {}",
        or_near(&near),
        known.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(lists: &[&str]) -> Chosen<usize> {
        let lists: Vec<String> = lists.iter().map(|&list| list.to_owned()).collect();
        let parse = |name: &str| match name {
            "all" => Ok(vec![0, 1, 2]),
            name => Ok(vec![name.parse().map_err(|_| unknown("field", name, ["0", "1"]))?]),
        };
        Chosen::parse(&lists, parse).expect("numbers")
    }

    /// Check that names choose, that a plus adds, and that no item comes twice.
    #[test]
    fn names_choose_or_add() {
        let keys = |lists: &[&str]| chosen(lists).keys(&[7, 8]);
        assert_eq!(keys(&[]), [7, 8]);
        assert_eq!(keys(&["1,0", "1"]), [1, 0]);
        assert_eq!(keys(&["2,all"]), [2, 0, 1]);
        assert_eq!(keys(&["+1,7"]), [7, 8, 1]);
        assert_eq!(keys(&["0", "+1"]), [0, 1]);
        let columns = |lists: &[&str]| chosen(lists).columns(["A", "Z"], |item| ["0", "1", "2"][item]);
        assert_eq!(columns(&[]), ["A", "Z"]);
        assert_eq!(columns(&["+1,2"]), ["A", "1", "2", "Z"]);
        assert_eq!(columns(&["2"]), ["2"]);
        let none = Chosen::parse(&["x".to_owned()], |name| {
            Err::<Vec<u8>, _>(unknown("field", name, ["a", "b"]))
        });
        assert!(
            format!("{none:?}").contains("unknown field \\\"x\\\"; known are a, b"),
            "{none:?}"
        );
    }

    /// Check the order of values, and that rows without a value come last in either direction.
    #[test]
    fn rows_without_a_value_come_last() {
        let parse = |name: &str| name.parse::<u8>().map_err(|_| unknown("key", name, []));
        let keys = SortBy::parse(&["1,-2".to_owned(), "+3".to_owned()], parse).expect("numbers");
        let expected = [(1, false), (2, true), (3, false)];
        assert_eq!(
            keys.iter().map(|by| (by.key, by.descending)).collect::<Vec<_>>(),
            expected
        );
        let compare = |by: &SortBy<u8>, a, b| by.compare(a, b, u8::cmp);
        assert_eq!(compare(&keys[0], Ok(1), Ok::<_, ()>(2)), Ordering::Less);
        assert_eq!(compare(&keys[1], Ok(1), Ok::<_, ()>(2)), Ordering::Greater);
        for by in &keys {
            assert_eq!(compare(by, Err(()), Ok(2)), Ordering::Greater);
            assert_eq!(compare(by, Ok(2), Err(())), Ordering::Less);
            assert_eq!(compare(by, Err(()), Err(())), Ordering::Equal);
        }
    }

    /// Check that values are compared by what they are: numbers and fractions by value, lists and
    /// sets by their members.
    #[test]
    fn values_have_an_order() {
        let key = |value: Value<'static>| Key::from(value);
        let order = |a, b| key(a).compare(&key(b));
        assert_eq!(order(Value::Unsigned(9), Value::Unsigned(10)), Ordering::Less);
        assert_eq!(order(Value::Signed(-1), Value::Unsigned(0)), Ordering::Less);
        assert_eq!(order(Value::Float(0.5), Value::Float(0.25)), Ordering::Greater);
        assert_eq!(order(Value::Text(b"a"), Value::Text(b"b")), Ordering::Less);
        let (nine, ten) = ([9_u8, 0, 0, 0], [10_u8, 0, 0, 0, 1, 0, 0, 0]);
        let ids = |bytes: &[u8]| Key::Ids(Ids::new(bytes)).compare(&Key::Ids(Ids::new(&ten)));
        assert_eq!((ids(&nine), ids(&ten)), (Ordering::Less, Ordering::Equal));
    }
}
