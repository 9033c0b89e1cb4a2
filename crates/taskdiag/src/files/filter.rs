//! Selects files: expressions over their fields and those of their processes.

use std::fmt;

use taskdiag_core::absent::{Absent, Known};
use taskdiag_core::counters::Undecided;
use taskdiag_core::field::{Field, Fields, UnknownField};
use taskdiag_core::filter::{Column, Filter as OfTasks, HasFields, ParseError};
use taskdiag_core::set::Set;
use taskdiag_core::value::Value;

use super::{FileField, Row};

/// An expression over fields of files and of the processes that have them, such as
/// `kind == 'socket' and comm == 'nginx'`.
///
/// The language is that of [`Filter::parse`](crate::Filter::parse). Where both have a field of the same
/// name, it is that of the file. The query for the processes must ask for
/// [`task_fields`](Filter::task_fields).
#[derive(Clone, Debug)]
pub struct Filter(OfTasks);

impl Filter {
    /// Parses an expression.
    pub fn parse(text: &str) -> Result<Filter, ParseError> {
        let is_account = |field| matches!(field, Field::User | Field::Group);
        Filter::parse_with_aliases(text, &|field, _| is_account(field).then_some(0), &|_| None)
    }

    /// The fields of tasks that it reads.
    pub fn task_fields(&self) -> Fields {
        self.0.fields()
    }

    /// The fields of files that it reads.
    pub(super) fn fields(&self) -> Set<FileField> {
        self.0
            .columns()
            .into_iter()
            .map(|index| FileField::ALL[index])
            .collect()
    }

    /// Whether it is true for a file. Counts one about which absent values leave that open.
    pub(super) fn admits(&self, row: &Row<'_>, undecided: &mut Undecided) -> bool {
        self.0.admits(row, undecided)
    }
}

/// For the other crates of this project.
#[doc(hidden)]
impl Filter {
    /// Parses an expression with names of users and groups, and with other names of fields of tasks.
    pub fn parse_with_aliases(
        text: &str,
        name: &dyn Fn(Field, &[u8]) -> Option<u32>,
        alias: &dyn Fn(&str) -> Option<Result<Field, String>>,
    ) -> Result<Filter, ParseError> {
        // Those of tasks are compared as such, and lists of descriptors are not compared.
        let is_own = |field: &FileField| field.of_tasks().is_none() && *field != FileField::Peers;
        let own = || FileField::ALL.iter().copied().filter(is_own);
        // Headings of the listing are names, too: `SIZE`, `HELD`.
        let column = |word: &str| {
            let word = word.to_ascii_lowercase().replace("held", "allocated");
            let is_meant = |field: &FileField| [&*word, &format!("{word}_bytes")].contains(&field.name());
            Some(Ok(Column::from(own().find(is_meant)?)))
        };
        let known = || {
            own()
                .map(FileField::name)
                .chain(Field::ALL.iter().map(|field| field.name()))
        };
        let alias = |word: &str| alias(word).or_else(|| Some(Err(UnknownField::new(word, known()).to_string())));
        OfTasks::parse_with_columns(text, name, &alias, &column).map(Filter)
    }

    /// The part of it that reads fields of tasks only. `None` if there is none.
    pub fn part_of_tasks(&self) -> Option<OfTasks> {
        self.0.part_of_tasks()
    }

    /// Whether it reads what files are used for: then all uses are looked at.
    pub fn reads_use(&self) -> bool {
        self.fields().contains(FileField::Use)
    }
}

/// Writes an expression that parses to the same filter.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl HasFields for Row<'_> {
    fn value(&self, field: Field) -> Result<Value<'_>, Absent> {
        self.task().value(field)
    }

    fn column_value(&self, index: usize) -> Known<Value<'_>> {
        Row::value(self, FileField::of_index(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check which fields a filter reads, and that mistakes name the fields of both.
    #[test]
    fn fields_are_of_files_or_tasks() {
        let filter =
            Filter::parse("kind == 'socket' and comm == 'x' and (fd > 2 or rss_bytes > 1M)").expect("a filter");
        assert_eq!(filter.fields(), FileField::Kind | FileField::Fd);
        assert_eq!(filter.task_fields(), Field::Comm | Field::RssBytes);
        let part = filter.part_of_tasks().expect("a part");
        assert_eq!(part.to_string(), "comm == 'x'");
        let again = Filter::parse(&filter.to_string()).expect("the same");
        assert_eq!(again.to_string(), filter.to_string());
        let message = |text| Filter::parse(text).expect_err(text).to_string();
        assert!(
            message("knd == 'x'").contains("near it are: kind"),
            "{}",
            message("knd == 'x'")
        );
        assert!(message("kind == 'EPOLL'").contains("here it is anon_kind == 'epoll'"));
        assert!(message("peers == 1").contains("unknown field"));
        assert!(message("kind == 1").contains("text in quotes"));
        assert!(message("size_bytes > 5s").contains("units of bytes"));
    }
}
