//! From text to expressions: a lexer and a parser by recursive descent.

use std::fmt;

use regex::bytes::RegexBuilder;

use super::{Comparison, Expression, Filter, Pattern, Relation, Test};
use crate::field::{Field, Kind, UnknownField};

/// Why a text is no expression, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// What is wrong.
    pub message: String,
    /// How many bytes stand before the place.
    pub at: usize,
    text: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = self.text[..self.at].chars().count();
        let line: String = self
            .text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        write!(f, "{}\n  {line}\n  {:column$}^", self.message, "")
    }
}

impl std::error::Error for ParseError {}

/// However deep parentheses and `not` may be nested: what anybody writes, and no stack is too small for.
const DEEPEST: u32 = 100;

type Result<T> = std::result::Result<T, ParseError>;

/// Finds the number that a name stands for.
type Names<'a> = &'a dyn Fn(Field, &[u8]) -> Option<u32>;

#[doc(hidden)]
pub fn parse(text: &str, names: Names<'_>) -> Result<Filter> {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
        names,
    };
    let expression = parser.any()?;
    match parser.peek()? {
        Token { kind: Kinds::End, .. } => Ok(Filter(expression)),
        token => Err(parser.error(token.start, "`and`, `or` or the end is missing here")),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kinds<'a> {
    Word(&'a str),
    Number(&'a str),
    Text(&'a str),
    Relation(Relation),
    Regex,
    Glob,
    Open,
    Close,
    End,
}

#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    kind: Kinds<'a>,
    start: usize,
    end: usize,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
    names: Names<'a>,
}

impl<'a> Parser<'a> {
    fn error(&self, at: usize, message: impl Into<String>) -> ParseError {
        ParseError {
            message: message.into(),
            at,
            text: self.text.to_owned(),
        }
    }

    /// The next token, which stays.
    fn peek(&self) -> Result<Token<'a>> {
        let rest = &self.text[self.at..];
        let start = self.at + (rest.len() - rest.trim_start().len());
        let rest = &self.text[start..];
        let token = |kind, len: usize| {
            Ok(Token {
                kind,
                start,
                end: start + len,
            })
        };
        let while_true = |test: fn(char) -> bool| rest.find(|c| !test(c)).unwrap_or(rest.len());
        let Some(first) = rest.chars().next() else {
            return token(Kinds::End, 0);
        };
        for (operator, kind) in [
            ("==", Kinds::Relation(Relation::Equal)),
            ("!=", Kinds::Relation(Relation::NotEqual)),
            ("<=", Kinds::Relation(Relation::LessOrEqual)),
            (">=", Kinds::Relation(Relation::GreaterOrEqual)),
            ("~*", Kinds::Glob),
            ("<", Kinds::Relation(Relation::Less)),
            (">", Kinds::Relation(Relation::Greater)),
            ("~", Kinds::Regex),
            ("(", Kinds::Open),
            (")", Kinds::Close),
        ] {
            if rest.starts_with(operator) {
                return token(kind, operator.len());
            }
        }
        match first {
            '\'' | '"' => match rest[1..].find(first) {
                Some(len) => token(Kinds::Text(&rest[1..=len]), len + 2),
                None => Err(self.error(start, "this quote is not closed")),
            },
            '-' | '0'..='9' => {
                let len = 1 + rest[1..]
                    .find(|c: char| !c.is_ascii_alphanumeric())
                    .unwrap_or(rest.len() - 1);
                token(Kinds::Number(&rest[..len]), len)
            }
            'a'..='z' | 'A'..='Z' | '_' => {
                let len = while_true(|c| c.is_ascii_alphanumeric() || c == '_');
                token(Kinds::Word(&rest[..len]), len)
            }
            '=' => Err(self.error(start, "`=` is no operator; equality is `==`")),
            '&' | '|' | '!' => Err(self.error(start, "use `and`, `or` and `not`")),
            _ => Err(self.error(start, format!("{first:?} has no meaning here"))),
        }
    }

    fn take(&mut self) -> Result<Token<'a>> {
        let token = self.peek()?;
        self.at = token.end;
        Ok(token)
    }

    /// Takes the next token if it is this word.
    fn take_word(&mut self, word: &str) -> Result<bool> {
        let token = self.peek()?;
        let is_it = token.kind == Kinds::Word(word);
        if is_it {
            self.at = token.end;
        }
        Ok(is_it)
    }

    fn any(&mut self) -> Result<Expression> {
        let mut parts = vec![self.all()?];
        while self.take_word("or")? {
            parts.push(self.all()?);
        }
        Ok(one_or(parts, Expression::Any))
    }

    fn all(&mut self) -> Result<Expression> {
        let mut parts = vec![self.not()?];
        while self.take_word("and")? {
            parts.push(self.not()?);
        }
        Ok(one_or(parts, Expression::All))
    }

    fn not(&mut self) -> Result<Expression> {
        let start = self.peek()?.start;
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error(start, format!("nested deeper than {DEEPEST} levels")));
        }
        let expression = if self.take_word("not")? {
            Expression::Not(Box::new(self.not()?))
        } else if self.peek()?.kind == Kinds::Open {
            self.take()?;
            let inner = self.any()?;
            let close = self.take()?;
            if close.kind != Kinds::Close {
                return Err(self.error(close.start, "`)` is missing here"));
            }
            inner
        } else {
            Expression::Test(self.test()?)
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn test(&mut self) -> Result<Test> {
        let name = self.take()?;
        let Kinds::Word(word) = name.kind else {
            return Err(self.error(name.start, "the name of a field is missing here"));
        };
        let field: Field = word
            .parse()
            .map_err(|error: UnknownField| self.error(name.start, error.to_string()))?;
        let kind = field.info().kind;
        let operator = self.peek()?;
        let comparison = match operator.kind {
            Kinds::Relation(relation) => {
                self.take()?;
                self.operand(field, relation)?
            }
            Kinds::Regex | Kinds::Glob => {
                self.take()?;
                if !is_text(kind) {
                    let message = format!("{field} is no text ({}): it has no patterns", kind.as_str());
                    return Err(self.error(operator.start, message));
                }
                let operand = self.take()?;
                let Kinds::Text(text) = operand.kind else {
                    return Err(self.error(operand.start, "a pattern in quotes is missing here"));
                };
                let pattern = match operator.kind {
                    Kinds::Glob => Pattern::glob(text),
                    _ => Pattern::regex(text),
                };
                Comparison::Pattern(pattern.map_err(|message| self.error(operand.start, message))?)
            }
            _ if kind == Kind::Flag => Comparison::Number(Relation::Equal, 1),
            _ => {
                let message = format!("a comparison of {field} is missing here: == != < <= > >= ~ ~*");
                return Err(self.error(operator.start, message));
            }
        };
        Ok(Test {
            field,
            comparison,
            text: self.text[name.start..self.at].to_owned(),
        })
    }

    fn operand(&mut self, field: Field, relation: Relation) -> Result<Comparison> {
        let kind = field.info().kind;
        let token = self.take()?;
        let wrong = |what: &str| self.error(token.start, format!("{field} is compared with {what}"));
        match token.kind {
            _ if kind == Kind::Limits => Err(self.error(token.start, format!("{field} can't be compared"))),
            Kinds::Text(text) if is_text(kind) => Ok(Comparison::Text(relation, text.as_bytes().to_vec())),
            _ if is_text(kind) => Err(wrong("text in quotes")),
            Kinds::Word(word @ ("true" | "false")) if kind == Kind::Flag => {
                Ok(Comparison::Number(relation, (word == "true").into()))
            }
            _ if kind == Kind::Flag => Err(wrong("`true` or `false`")),
            Kinds::Number(text) => number(text, kind)
                .map(|number| Comparison::Number(relation, number))
                .map_err(|message| self.error(token.start, message)),
            Kinds::Text(text) if matches!(kind, Kind::User | Kind::GroupId) => {
                match (self.names)(field, text.as_bytes()) {
                    Some(number) => Ok(Comparison::Number(relation, number.into())),
                    None => Err(self.error(token.start, format!("no {} has the name {text:?}", kind.as_str()))),
                }
            }
            _ => Err(wrong("a number")),
        }
    }
}

fn one_or(mut parts: Vec<Expression>, join: fn(Vec<Expression>) -> Expression) -> Expression {
    match parts.len() {
        1 => parts.remove(0),
        _ => join(parts),
    }
}

fn is_text(kind: Kind) -> bool {
    matches!(kind, Kind::Letter | Kind::Text | Kind::Texts)
}

/// A number, decimal or hexadecimal, with a unit that fits the kind.
fn number(text: &str, kind: Kind) -> std::result::Result<i128, String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (radix, digits) = match digits.strip_prefix("0x") {
        Some(digits) => (16, digits),
        None => (10, digits),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let (digits, unit) = digits.split_at(end);
    let factor: i128 = match (kind, unit) {
        (_, "") => 1,
        (Kind::Bytes, "K") => 1 << 10,
        (Kind::Bytes, "M") => 1 << 20,
        (Kind::Bytes, "G") => 1 << 30,
        (Kind::Bytes, "T") => 1 << 40,
        (Kind::Nanoseconds, "us") => 1_000,
        (Kind::Nanoseconds, "ms") => 1_000_000,
        (Kind::Nanoseconds, "s") => 1_000_000_000,
        (Kind::Nanoseconds, "m") => 60_000_000_000,
        (Kind::Nanoseconds, "h") => 3_600_000_000_000,
        (Kind::Bytes, unit) => return Err(format!("the units of bytes are K, M, G and T, not {unit:?}")),
        (Kind::Nanoseconds, unit) => return Err(format!("the units of time are us, ms, s, m and h, not {unit:?}")),
        (_, unit) => return Err(format!("this number has no unit such as {unit:?}")),
    };
    let value = u64::from_str_radix(digits, radix).map_err(|_| format!("{text:?} is no number of 64 bits"))?;
    Ok(sign * i128::from(value) * factor)
}

impl Pattern {
    fn regex(text: &str) -> std::result::Result<Pattern, String> {
        Ok(Pattern {
            regex: compile(text)?,
            prefix: regex_prefix(text),
        })
    }

    fn glob(text: &str) -> std::result::Result<Pattern, String> {
        let mut regex = String::from("^");
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            match c {
                '*' => regex.push_str(".*"),
                '?' => regex.push('.'),
                '[' => {
                    let class = rest.as_str();
                    // A bracket that comes first is a member.
                    let skip = class.strip_prefix('!').map_or(0, |_| 1);
                    let first = class[skip..].strip_prefix(']').map_or(0, |_| 1);
                    let end = class[skip + first..]
                        .find(']')
                        .ok_or("a `[` of the pattern is not closed")?;
                    let members = &class[skip..skip + first + end];
                    regex.push_str(if skip == 1 { "[^" } else { "[" });
                    for member in members.chars() {
                        if !member.is_alphanumeric() && member != '-' {
                            regex.push('\\');
                        }
                        regex.push(member);
                    }
                    regex.push(']');
                    rest = class[skip + first + end + 1..].chars();
                }
                other => regex.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
            }
        }
        regex.push('$');
        let literal = text.find(['*', '?', '[']).unwrap_or(text.len());
        Ok(Pattern {
            regex: compile(&regex)?,
            prefix: (text.as_bytes()[..literal].to_vec(), literal == text.len()),
        })
    }
}

/// Patterns are over bytes: a dot is any byte, a newline too, and the ends are those of the text.
fn compile(text: &str) -> std::result::Result<regex::bytes::Regex, String> {
    RegexBuilder::new(text)
        .unicode(false)
        .dot_matches_new_line(true)
        .build()
        .map_err(|error| match error {
            regex::Error::Syntax(message) => {
                let last = message.lines().last().unwrap_or_default();
                format!("not a regular expression: {}", last.trim_start_matches("error: "))
            }
            other => format!("not a regular expression: {other}"),
        })
}

/// What every match begins with, as far as the expression says so plainly, and whether that is all of the text.
fn regex_prefix(text: &str) -> (Vec<u8>, bool) {
    let Some(anchored) = text.strip_prefix('^').filter(|rest| !rest.contains('|')) else {
        return (Vec::new(), false);
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | ' ' | ':' | ',' | '@');
    let end = anchored.find(|c| !is_plain(c)).unwrap_or(anchored.len());
    let (literal, rest) = anchored.split_at(end);
    // What follows may be about the last character alone.
    let len = literal.len() - usize::from(rest.starts_with(['*', '?', '{']) && !literal.is_empty());
    (literal.as_bytes()[..len].to_vec(), rest == "$")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(text: &str) -> String {
        Filter::parse(text).unwrap_err().to_string()
    }

    /// Check that mistakes are named where they are.
    #[test]
    fn mistakes_are_pointed_at() {
        assert_eq!(
            message("uid = 0"),
            "`=` is no operator; equality is `==`\n  uid = 0\n      ^"
        );
        for (text, part, at) in [
            ("", "name of a field", 0),
            ("uid", "a comparison of uid", 3),
            ("uid == ", "with a number", 7),
            ("uid == 'nobody there'", "no user id has the name", 7),
            ("uid == 5K", "no unit such as", 7),
            ("rss_bytes > 5X", "units of bytes", 12),
            ("uid == 99999999999999999999", "no number of 64 bits", 7),
            ("rss == 5", "rss_bytes", 0),
            ("comm == sshd", "text in quotes", 8),
            ("comm ~ '('", "not a regular expression", 7),
            ("comm ~* '['", "not closed", 8),
            ("comm == 'a", "not closed", 8),
            ("uid ~ '0'", "is no text", 4),
            ("kernel_thread == 1", "`true` or `false`", 17),
            ("limits == 1", "can't be compared", 10),
            ("(uid == 0", "`)` is missing", 9),
            ("uid == 0 pid == 1", "`and`, `or` or the end", 9),
            ("uid == 0 && pid == 1", "use `and`", 9),
            ("é", "no meaning", 0),
        ] {
            let error = Filter::parse(text).unwrap_err();
            assert!(error.message.contains(part), "{text}: {}", error.message);
            assert_eq!(error.at, at, "{text}");
        }
        let deep = "not ".repeat(200) + "kernel_thread";
        assert!(message(&deep).contains("nested deeper"));
    }

    /// Check that units multiply, and names stand for numbers where somebody knows them.
    #[test]
    fn operands_have_units_and_names() {
        assert_eq!(number("2K", Kind::Bytes), Ok(2048));
        assert_eq!(number("-3", Kind::Signed), Ok(-3));
        assert_eq!(number("0xff", Kind::Mask), Ok(255));
        assert_eq!(number("5ms", Kind::Nanoseconds), Ok(5_000_000));
        assert!(number("-", Kind::Id).is_err());
        assert!(number("0x", Kind::Id).is_err());
        let names = |field, name: &[u8]| (field == Field::Uid && name == b"www").then_some(33);
        let filter = Filter::parse_with_names("uid == 'www'", &names).unwrap();
        let row = super::super::tests::Made(vec![(Field::Uid, Ok(crate::value::Value::Unsigned(33)))]);
        assert_eq!(filter.decide(&row), Some(true));
    }

    /// Check what is known of the beginning of matches.
    #[test]
    fn patterns_have_prefixes() {
        for (regex, prefix, is_all) in [
            ("^ssh", "ssh", false),
            ("^ssh$", "ssh", true),
            ("^ssh*", "ss", false),
            ("^ssh?d", "ss", false),
            ("^ss{2}", "s", false),
            ("^ssh.*", "ssh", false),
            ("^a|b", "", false),
            ("ssh", "", false),
            ("^[s]", "", false),
            ("^$", "", true),
            ("^ssh+", "ssh", false),
        ] {
            assert_eq!(regex_prefix(regex), (prefix.into(), is_all), "{regex}");
        }
        let glob = |text| Pattern::glob(text).unwrap().prefix;
        assert_eq!(glob("ab*"), (b"ab".to_vec(), false));
        assert_eq!(glob("ab"), (b"ab".to_vec(), true));
        assert_eq!(glob("[a]b"), (Vec::new(), false));
    }

    proptest! {
        /// Check that any text is parsed or refused, with a place in it.
        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC{0,40}") {
            if let Err(error) = Filter::parse(&text) {
                prop_assert!(text.is_char_boundary(error.at));
                let _ = error.to_string();
            }
        }

        /// Check the same of texts that are nearly expressions.
        #[test]
        fn expressions_are_parsed_or_refused(words in proptest::collection::vec(
            prop_oneof!["uid", "comm", "rss_bytes", "and", "or", "not", "\\(", "\\)", "==", "~", "~\\*", "<", "'a.*'", "7", "1G", "'\\["],
            0..12,
        )) {
            let text = words.join(" ");
            if let Ok(filter) = Filter::parse(&text) {
                // What it means can be read again, and means the same.
                let again = Filter::parse(&filter.to_string()).unwrap();
                prop_assert_eq!(again.to_string(), filter.to_string());
            }
        }

        /// Check that every match of a pattern begins with the prefix, and is it if it is all.
        #[test]
        fn matches_begin_with_the_prefix(regex in "\\^?[ab]{0,3}[.*?$+]?[ab]?\\$?", text in "[abc]{0,5}") {
            let Ok(pattern) = Pattern::regex(&regex) else { return Ok(()) };
            if pattern.regex.is_match(text.as_bytes()) {
                let (prefix, is_all) = &pattern.prefix;
                prop_assert!(text.as_bytes().starts_with(prefix));
                prop_assert!(!is_all || text.as_bytes() == &prefix[..]);
            }
        }
    }
}
