//! The tokens of filter expressions.

use super::comparison::Relation;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// A field, a keyword or another name, which may have dots in it.
    Word(&'a str),
    /// A number, with its unit.
    Number(&'a str),
    /// The text between quotes.
    Text(&'a str),
    Relation(Relation),
    Regex,
    Glob,
    Open,
    Close,
    Comma,
    End,
}

/// A token, and where it begins and ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub kind: Kind<'a>,
    pub start: usize,
    pub end: usize,
}

const OPERATORS: [(&str, Kind<'static>); 11] = [
    ("==", Kind::Relation(Relation::Equal)),
    ("!=", Kind::Relation(Relation::NotEqual)),
    ("<=", Kind::Relation(Relation::LessOrEqual)),
    (">=", Kind::Relation(Relation::GreaterOrEqual)),
    ("~*", Kind::Glob),
    ("<", Kind::Relation(Relation::Less)),
    (">", Kind::Relation(Relation::Greater)),
    ("~", Kind::Regex),
    ("(", Kind::Open),
    (")", Kind::Close),
    (",", Kind::Comma),
];

/// Words that are no names. They may be in capitals, as in SQL.
const KEYWORDS: [&str; 10] = [
    "and",
    "or",
    "not",
    "in",
    "has",
    "within",
    "true",
    "false",
    "unlimited",
    "none",
];

/// The token at `at` or after the white space there. The error has its place and a message.
pub(super) fn next(text: &str, at: usize) -> Result<Token<'_>, (usize, String)> {
    let rest = &text[at..];
    let start = at + (rest.len() - rest.trim_start().len());
    let rest = &text[start..];
    let token = |kind, len: usize| {
        Ok(Token {
            kind,
            start,
            end: start + len,
        })
    };
    let Some(first) = rest.chars().next() else {
        return token(Kind::End, 0);
    };
    if let Some((operator, kind)) = OPERATORS.iter().find(|(operator, _)| rest.starts_with(operator)) {
        return token(*kind, operator.len());
    }
    match first {
        '\'' | '"' => match rest[1..].find(first) {
            Some(len) => token(Kind::Text(&rest[1..=len]), len + 2),
            None => Err((start, "this quote is not closed".to_owned())),
        },
        '-' | '0'..='9' => {
            let len = number_len(rest);
            token(Kind::Number(&rest[..len]), len)
        }
        // ps(1) has `%cpu` and `%mem`.
        'a'..='z' | 'A'..='Z' | '_' | '%' => {
            let is_in_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '+');
            let len = rest[1..].find(|c| !is_in_word(c)).map_or(rest.len(), |len| len + 1);
            let word = &rest[..len];
            let keyword = KEYWORDS.iter().find(|keyword| keyword.eq_ignore_ascii_case(word));
            token(Kind::Word(keyword.copied().unwrap_or(word)), len)
        }
        '=' if rest.starts_with("=~") => Err((
            start,
            "`=~` is not an operator: patterns are compared with `~`".to_owned(),
        )),
        '=' => Err((start, "`=` is not an operator: equality is `==`".to_owned())),
        '&' | '|' | '!' => Err((start, "use `and`, `or` and `not`".to_owned())),
        _ => Err((start, format!("{first:?} has no meaning here: text stands in quotes"))),
    }
}

/// The length of a sign, digits, an optional fraction, and the letters of a unit.
fn number_len(text: &str) -> usize {
    let run = |from: usize| {
        let rest = &text[from..];
        from + rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len())
    };
    let whole = run(1);
    let is_digit = |at: usize| text[at..].starts_with(|c: char| c.is_ascii_digit());
    if text[whole..].starts_with('.') && is_digit(whole + 1) {
        run(whole + 1)
    } else {
        whole
    }
}
