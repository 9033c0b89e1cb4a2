//! The `-o` and `--sort` options, for the rows of any command.

use std::cmp::Ordering;
use std::io;
use std::ops::ControlFlow;

use crate::outcome::Failure;

/// The items that `-o` chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen<T> {
    /// In order, without duplicates.
    items: Vec<T>,
    /// Whether they are added to the items shown without `-o`.
    adds: bool,
}

impl<T: Copy + PartialEq> Chosen<T> {
    /// Parses lists of names; `parse` gives the items that a name stands for. A list that starts
    /// with `+` adds to the lists before it, or to the items shown without `-o`.
    pub fn parse(lists: &[String], parse: impl Fn(&str) -> Result<Vec<T>, Failure>) -> Result<Chosen<T>, Failure> {
        let mut items = Vec::new();
        let mut adds = lists.is_empty();
        for (index, list) in lists.iter().enumerate() {
            let rest = list.strip_prefix('+');
            adds |= index == 0 && rest.is_some();
            for name in rest.unwrap_or(list).split(',') {
                for item in parse(name)? {
                    if !items.contains(&item) {
                        items.push(item);
                    }
                }
            }
        }
        Ok(Chosen { items, adds })
    }

    /// The keys for machine-readable output. `usual` are the keys without `-o`.
    pub fn keys(&self, usual: &[T]) -> Vec<T> {
        let usual = usual.iter().filter(|_| self.adds);
        let mut keys: Vec<T> = usual.copied().collect();
        for &item in &self.items {
            if !keys.contains(&item) {
                keys.push(item);
            }
        }
        keys
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

    /// The items that were chosen or added.
    pub fn items(&self) -> &[T] {
        &self.items
    }
}

/// One key to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortBy<T> {
    /// The key.
    pub key: T,
    /// Whether the largest comes first.
    pub descending: bool,
}

impl<T> SortBy<T> {
    /// Parses lists of keys. A minus in front of a key puts the largest first.
    pub fn parse(lists: &[String], parse: impl Fn(&str) -> Result<T, Failure>) -> Result<Vec<SortBy<T>>, Failure> {
        let names = lists.iter().flat_map(|list| list.split(','));
        let by = |name: &str| {
            Ok(SortBy {
                key: parse(name.strip_prefix(['-', '+']).unwrap_or(name))?,
                descending: name.starts_with('-'),
            })
        };
        names.map(by).collect()
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

/// Rows that arrive one by one, up to a limit. They are written at once, or kept until they can be
/// sorted.
#[derive(Debug)]
pub struct InOrder<K> {
    is_sorted: bool,
    limit: usize,
    written: usize,
    kept: Vec<K>,
    failure: Option<io::Error>,
}

impl<K> InOrder<K> {
    /// No rows yet. Without a limit, all rows are written.
    pub fn new(is_sorted: bool, limit: Option<usize>) -> InOrder<K> {
        InOrder {
            is_sorted,
            limit: limit.unwrap_or(usize::MAX),
            written: 0,
            kept: Vec::new(),
            failure: None,
        }
    }

    /// Takes a row; `keep` makes the value to sort. Breaks when no more rows are needed.
    pub fn take(&mut self, keep: impl FnOnce() -> K, write: impl FnOnce() -> io::Result<()>) -> ControlFlow<()> {
        if self.is_sorted {
            self.kept.push(keep());
            return ControlFlow::Continue(());
        }
        if self.written < self.limit {
            self.written += 1;
            self.failure = write().err();
        }
        if self.has_failed() || self.written == self.limit {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Whether a row could not be written.
    pub fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Writes the kept rows, or returns the error of the row that could not be written.
    pub fn finish(
        mut self,
        compare: impl FnMut(&K, &K) -> Ordering,
        write: impl FnMut(K) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Some(error) = self.failure {
            return Err(error);
        }
        self.kept.sort_by(compare);
        self.kept.into_iter().take(self.limit).try_for_each(write)
    }
}

/// The key that sums are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumKey {
    /// One of the numbers, by its index.
    Number(usize),
    /// The name of the group.
    Name,
}

/// The keys that `--sort` options name for sums. The key of the groups is called `name`; `numbers`
/// are the other keys. Without options, the keys are `usual`.
pub fn sum_keys(
    lists: &[String],
    usual: &str,
    name: &str,
    numbers: &[&'static str],
) -> Result<Vec<SortBy<SumKey>>, Failure> {
    let usual = [usual.to_owned()];
    let lists = if lists.is_empty() { &usual } else { lists };
    SortBy::parse(lists, |key| match numbers.iter().position(|number| *number == key) {
        Some(index) => Ok(SumKey::Number(index)),
        None if key == name => Ok(SumKey::Name),
        None => Err(unknown(
            "key of sums",
            key,
            [name].into_iter().chain(numbers.iter().copied()),
        )),
    })
}

/// Sorts sums. A sum without a value comes last; equal sums are sorted by name.
pub fn sort_sums<N: Ord, S, E: Copy, const COUNT: usize>(
    sums: &mut [(N, S)],
    orders: &[SortBy<SumKey>],
    numbers: impl Fn(&S) -> [Result<u64, E>; COUNT],
) {
    sums.sort_by(|(a, a_sum), (b, b_sum)| {
        let by_key = |by: &SortBy<SumKey>| match by.key {
            SumKey::Number(index) => by.compare(numbers(a_sum)[index], numbers(b_sum)[index], Ord::cmp),
            SumKey::Name => by.compare(Ok::<_, E>(a), Ok(b), Ord::cmp),
        };
        let order = orders.iter().map(by_key).find(|order| order.is_ne());
        order.unwrap_or_else(|| a.cmp(b))
    });
}

/// The failure for an unknown name, with the known ones.
pub fn unknown<'a>(what: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Failure {
    let known: Vec<&str> = known.into_iter().collect();
    Failure::Unanswered(format!("unknown {what} {name:?}; known are {}", known.join(", ")))
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

    /// Check that rows are written at once or sorted, that the limit applies to both, and that
    /// nothing is written after a failure.
    #[test]
    fn rows_come_in_order() {
        let run = |is_sorted: bool, limit: Option<usize>, fails_at: usize| {
            let mut rows = InOrder::new(is_sorted, limit);
            let mut written = Vec::new();
            let mut write = |row: usize| {
                written.push(row);
                if row == fails_at {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                Ok(())
            };
            let taken = [3, 1, 2].into_iter().take_while(|&row| {
                let flow = rows.take(|| row, || write(row));
                flow.is_continue()
            });
            let taken = taken.count();
            let result = rows.finish(usize::cmp, &mut write);
            (written, taken, result.is_ok())
        };
        assert_eq!(run(false, None, 9), (vec![3, 1, 2], 3, true));
        assert_eq!(run(false, Some(2), 9), (vec![3, 1], 1, true));
        assert_eq!(run(false, None, 1), (vec![3, 1], 1, false));
        assert_eq!(run(true, None, 9), (vec![1, 2, 3], 3, true));
        assert_eq!(run(true, Some(2), 9), (vec![1, 2], 3, true));
        assert_eq!(run(true, None, 2), (vec![1, 2], 3, false));
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
}
