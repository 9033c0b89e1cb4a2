//! Messages about errors in an expression.

use std::fmt;

use super::comparison::{Class, Subject};
use crate::error::{Error, ErrorKind};
use crate::field::{Field, Kind};

/// Why a text is not an expression, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// What is wrong.
    pub message: String,
    /// The offset of the error in bytes.
    pub at: usize,
    pub(super) text: String,
}

impl ParseError {
    /// The column of the error in characters, from 1.
    pub fn column(&self) -> usize {
        self.text[..self.at].chars().count() + 1
    }
}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Error {
        Error::new(ErrorKind::InvalidInput, "not a filter").caused_by(error)
    }
}

/// Writes the column and the message, and below it the expression with a mark at the error. Of a
/// long expression, only the part near the error is written.
impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// How many characters to show before and after the error.
        const NEAR: usize = 60;
        let column = self.column();
        let first = column.saturating_sub(NEAR + 1);
        let mut rest = self.text.chars().skip(first);
        let mut line = String::from(if first > 0 { "…" } else { "" });
        let mark = column - 1 - first + line.chars().count();
        let shown = rest.by_ref().take(column - first + NEAR);
        line.extend(shown.map(|c| if c.is_control() { ' ' } else { c }));
        line.push_str(if rest.next().is_some() { "…" } else { "" });
        write!(f, "column {column}: {}\n  {line}\n  {:mark$}^", self.message, "")
    }
}

impl std::error::Error for ParseError {}

/// What may follow a comparison operator after `subject`.
pub(super) fn compared_with(subject: Subject) -> String {
    let what = match subject.class() {
        Class::Text => "text in quotes",
        Class::IpAddress => "an address or a network in quotes",
        Class::Time => "a time in quotes",
        Class::Flag => "`true`, `false`",
        _ if has_names(subject) => "a number, a name in quotes",
        _ => "a number",
    };
    format!("expected {what} or another field to compare {subject} with")
}

/// The comparison operators that a subject allows.
pub(super) fn comparisons_of(subject: Subject) -> String {
    let mut text = format!("a comparison of {subject}: == != < <= > >= in");
    if matches!(subject.class(), Class::Text | Class::Time | Class::IpAddress) {
        text.push_str(" ~ ~*");
    }
    if subject.is_list() || matches!(subject.class(), Class::Capabilities | Class::Signals) {
        text.push_str(" has");
    }
    if matches!(subject, Subject::Field(Field::Cgroup | Field::Cgroups)) {
        text.push_str(" within");
    }
    text
}

/// Whether names of users or groups may stand for its numbers.
pub(super) fn has_names(subject: Subject) -> bool {
    match subject {
        Subject::Field(Field::Groups) => true,
        subject => matches!(subject.field_kind(), Kind::User | Kind::GroupId),
    }
}

/// Whether it is the name of an account, which is no other text: `root` is one, and a field.
pub(super) fn is_account(subject: Subject) -> bool {
    matches!(subject, Subject::Field(Field::User | Field::Group))
}

/// The kind of a subject, for messages.
pub(super) fn shown_kind(subject: Subject) -> &'static str {
    if is_account(subject) {
        "name"
    } else {
        subject.kind()
    }
}

/// What has names that a subject is compared with.
pub(super) fn named(subject: Subject) -> &'static str {
    match subject {
        Subject::Field(account @ (Field::User | Field::Group)) => account.name(),
        Subject::Field(Field::Groups) => Kind::GroupId.as_str(),
        subject => subject.kind(),
    }
}

/// The suggestion to add to a message about an unknown name.
pub fn or_near(near: &[&str]) -> String {
    if near.is_empty() {
        String::new()
    } else {
        format!("; near it are: {}", near.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only the part near the error of a long expression is shown, with the mark below
    /// it.
    #[test]
    fn long_expressions_are_cut_around_the_place() {
        let near = "0123456789".repeat(6);
        for (before, begins) in [("", ""), ("x", "…")] {
            for (behind, ends) in [("", ""), ("x", "…")] {
                let error = ParseError {
                    message: "here".to_owned(),
                    at: before.len() + near.len(),
                    text: format!("{before}{near}!{near}{behind}"),
                };
                let column = before.len() + 61;
                let line = format!("{begins}{near}!{near}{ends}");
                let mark = " ".repeat(before.len() + 60) + "^";
                let shown = format!("column {column}: here\n  {line}\n  {mark}");
                assert_eq!(error.to_string(), shown);
            }
        }
    }
}
