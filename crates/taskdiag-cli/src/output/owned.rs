//! Copies of rows and values, for what is kept until it can be sorted.

use taskdiag::files::Owner;
use taskdiag::{Arguments, Ids, Value};

use super::relation::{Cell, Row, NONE};
use crate::choice::{order, Key, SortBy};

/// A copy of a value of a row, for sorting: of the same kind, or as text.
#[derive(Clone, Debug)]
pub enum OwnedValue {
    Unsigned(u64),
    Signed(i64),
    Mask(u64),
    Flag(bool),
    Float(f64),
    Letter(char),
    Owners(Vec<Owner>),
    Texts(Vec<u8>),
    Ids(Vec<u8>),
    /// Also values of kinds that are not above.
    Text(Vec<u8>),
}

impl OwnedValue {
    /// Copies a value.
    pub fn new(value: Value<'_>) -> OwnedValue {
        match value {
            Value::Unsigned(number) => OwnedValue::Unsigned(number),
            Value::Signed(number) => OwnedValue::Signed(number),
            Value::Mask(bits) => OwnedValue::Mask(bits),
            Value::Flag(flag) => OwnedValue::Flag(flag),
            Value::Float(number) => OwnedValue::Float(number),
            Value::Letter(letter) => OwnedValue::Letter(letter),
            Value::Owners(owners) => OwnedValue::Owners(owners.to_vec()),
            Value::Texts(texts) => OwnedValue::Texts(texts.as_bytes().to_vec()),
            Value::Ids(ids) => OwnedValue::Ids(ids.iter().flat_map(u32::to_ne_bytes).collect()),
            Value::Text(text) => OwnedValue::Text(text.to_vec()),
            other => OwnedValue::Text(other.to_string().into_bytes()),
        }
    }

    pub fn value(&self) -> Value<'_> {
        match self {
            OwnedValue::Unsigned(number) => Value::Unsigned(*number),
            OwnedValue::Signed(number) => Value::Signed(*number),
            OwnedValue::Mask(bits) => Value::Mask(*bits),
            OwnedValue::Flag(flag) => Value::Flag(*flag),
            OwnedValue::Float(number) => Value::Float(*number),
            OwnedValue::Letter(letter) => Value::Letter(*letter),
            OwnedValue::Owners(owners) => Value::Owners(owners),
            OwnedValue::Texts(texts) => Value::Texts(Arguments::new(texts)),
            OwnedValue::Ids(ids) => Value::Ids(Ids::new(ids)),
            OwnedValue::Text(text) => Value::Text(text),
        }
    }
}

/// A copy of a row: the columns that are needed.
#[derive(Clone, Debug)]
pub struct OwnedRow(Vec<(usize, Result<OwnedValue, &'static str>)>);

impl OwnedRow {
    /// Copies these columns, which are in order.
    pub fn new(row: &dyn Row, columns: &[usize]) -> OwnedRow {
        let copy = |&column: &usize| (column, row.cell(column).map(OwnedValue::new));
        OwnedRow(columns.iter().map(copy).collect())
    }
}

impl Row for OwnedRow {
    fn cell(&self, column: usize) -> Cell<'_> {
        let found = self.0.binary_search_by_key(&column, |(column, _)| *column);
        match &self.0[found.map_err(|_| "not asked")?].1 {
            Ok(value) => Ok(value.value()),
            Err(reason) => Err(reason),
        }
    }
}

/// What a cell is sorted by: nothing, if it is a list of no descriptor.
fn key(cell: Cell<'_>) -> Result<Key<'_>, &'static str> {
    match cell? {
        Value::Owners([]) => Err(NONE),
        value => Ok(Key::from(value)),
    }
}

/// The first rows in the order of these keys, at most `limit`.
pub fn sorted<R: Row>(rows: Vec<R>, by: &[SortBy<usize>], limit: usize) -> Vec<R> {
    let order = order(rows.len(), by, |row, column| key(rows[row].cell(column)));
    let mut rows: Vec<Option<R>> = rows.into_iter().map(Some).collect();
    order
        .into_iter()
        .take(limit)
        .filter_map(|row| rows[row].take())
        .collect()
}

#[cfg(test)]
mod tests {
    use taskdiag::Kind;

    use super::super::listing::{chosen, sort_keys};
    use super::super::relation::{column, ColumnInfo};
    use super::*;

    const RELATION: [ColumnInfo; 2] = [column("size_bytes", Kind::Bytes, ""), column("name", Kind::Text, "")];

    /// Check that columns are found by name, and that copies of rows are sorted by them.
    #[test]
    fn rows_are_sorted_by_their_columns() {
        assert_eq!(
            chosen(&["name".to_owned()], &RELATION, &[])
                .expect("a column")
                .keys(&[0, 1]),
            [1]
        );
        assert!(chosen(&["size".to_owned()], &RELATION, &[]).is_err());
        let rows: [[Cell<'_>; 2]; 3] = [(3, "b"), (10, "a"), (3, "c")]
            .map(|(size, name)| [Ok(Value::Unsigned(size)), Ok(Value::Text(name.as_bytes()))]);
        let rows: Vec<OwnedRow> = rows.iter().map(|row| OwnedRow::new(&&row[..], &[0, 1])).collect();
        let by = sort_keys(&["size_bytes,-name".to_owned()], &RELATION, &[]).expect("columns");
        let rows = sorted(rows, &by, 2);
        let names = rows.iter().map(|row| row.cell(1).expect("a name").to_string());
        assert_eq!(names.collect::<String>(), "cb");
    }

    /// Check that lists of descriptors are compared whole, and that those of nobody come last.
    #[test]
    fn descriptors_have_an_order() {
        let owner = |pid, fd| Owner::new(pid, fd, Ok(b"x"));
        let lists = [vec![], vec![owner(300, 9)], vec![owner(2, 256)], vec![owner(300, 8)]];
        let cells = lists.each_ref().map(|owners| [Ok(Value::Owners(owners))]);
        let by = SortBy {
            key: 0,
            descending: false,
        };
        let rows: Vec<OwnedRow> = cells.iter().map(|row| OwnedRow::new(&&row[..], &[0])).collect();
        let sorted = sorted(rows, &[by], 4);
        let fds = sorted.iter().map(|row| match row.cell(0) {
            Ok(Value::Owners([owner])) => Some(owner.fd),
            _ => None,
        });
        assert_eq!(fds.collect::<Vec<_>>(), [Some(256), Some(8), Some(9), None]);
    }
}
