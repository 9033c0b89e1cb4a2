//! From text to expressions: a parser by recursive descent.

use jiff::Zoned;

use super::comparison::{Class, Column, Comparison, Limit, Operand, Pattern, Relation, Subject, Test};
use super::message::{compared_with, comparisons_of, has_names, is_account, named, or_near, shown_kind, ParseError};
use super::token::{self, Kind, Token};
use super::{literal, network, words, Expression, Filter};
use crate::field::{near, shortened, Field, UnknownField};
use crate::names::{self, CAPABILITIES, SIGNALS};
use crate::value::Limits;

/// How deep parentheses and `not` may be nested: more than anybody writes, and few enough for any
/// stack.
const MAX_DEPTH: u32 = 100;

type Result<T> = std::result::Result<T, ParseError>;

/// Finds the number of a user or group by its name.
type Names<'a> = &'a dyn Fn(Field, &[u8]) -> Option<u32>;

/// Finds the field for another name, or says why the name does not stand for one field.
type Aliases<'a> = &'a dyn Fn(&str) -> Option<std::result::Result<Field, String>>;

/// Finds a field of rows that are no tasks, or says that there is none.
type Columns<'a> = &'a dyn Fn(&str) -> Option<std::result::Result<Column, String>>;

pub(super) fn parse(text: &str, names: Names<'_>, aliases: Aliases<'_>, columns: Columns<'_>) -> Result<Filter> {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
        names,
        aliases,
        columns,
    };
    let expression = parser.any()?;
    match parser.peek()? {
        Token { kind: Kind::End, .. } => Ok(Filter::new(expression)),
        token => Err(parser.not_the_end(token)),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
    names: Names<'a>,
    aliases: Aliases<'a>,
    columns: Columns<'a>,
}

impl<'a> Parser<'a> {
    fn error(&self, at: usize, message: impl Into<String>) -> ParseError {
        ParseError {
            message: message.into(),
            at,
            text: self.text.to_owned(),
        }
    }

    /// The error that `what` was expected in place of `token`.
    fn expected(&self, what: &str, token: Token<'_>) -> ParseError {
        self.error(token.start, format!("expected {what}, found {}", self.shown(token)))
    }

    /// The error about a token where the expression could end. A unit or sign may be meant.
    fn not_the_end(&self, token: Token<'_>) -> ParseError {
        let mut error = self.expected("`and`, `or` or the end", token);
        let before = self.text[..token.start].trim_end();
        if before.ends_with(|last: char| last.is_ascii_digit()) {
            error.message += match token.kind {
                Kind::Word("%") => "; percent are numbers without this sign",
                Kind::Word(_) => "; a unit has no space before it, as in 100M",
                _ => "",
            };
        }
        error
    }

    /// A token, for messages.
    fn shown(&self, token: Token<'_>) -> String {
        match token.kind {
            Kind::End => "the end".to_owned(),
            _ => format!("`{}`", shortened(&self.text[token.start..token.end])),
        }
    }

    /// The next token, which stays the next one.
    fn peek(&self) -> Result<Token<'a>> {
        token::next(self.text, self.at).map_err(|(at, message)| self.error(at, message))
    }

    fn take(&mut self) -> Result<Token<'a>> {
        let token = self.peek()?;
        self.at = token.end;
        Ok(token)
    }

    /// Takes the next token if it is this one.
    fn take_if(&mut self, kind: Kind<'_>) -> Result<bool> {
        let token = self.peek()?;
        let is_it = token.kind == kind;
        if is_it {
            self.at = token.end;
        }
        Ok(is_it)
    }

    /// Takes the next token, which must be of this kind.
    fn expect(&mut self, kind: Kind<'_>, name: &str) -> Result<()> {
        let token = self.peek()?;
        if self.take_if(kind)? {
            Ok(())
        } else {
            Err(self.expected(name, token))
        }
    }

    fn any(&mut self) -> Result<Expression> {
        let mut parts = vec![self.all()?];
        while self.take_if(Kind::Word("or"))? {
            parts.push(self.all()?);
        }
        Ok(one_or(parts, Expression::Any))
    }

    fn all(&mut self) -> Result<Expression> {
        let mut parts = vec![self.not()?];
        while self.take_if(Kind::Word("and"))? {
            parts.push(self.not()?);
        }
        Ok(one_or(parts, Expression::All))
    }

    fn not(&mut self) -> Result<Expression> {
        let start = self.peek()?.start;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(start, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let expression = if self.take_if(Kind::Word("not"))? {
            Expression::Not(Box::new(self.not()?))
        } else if self.take_if(Kind::Open)? {
            let inner = self.any()?;
            self.expect(Kind::Close, "`)`")?;
            inner
        } else {
            self.test()?
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn test(&mut self) -> Result<Expression> {
        let name = self.take()?;
        let Kind::Word(word) = name.kind else {
            return Err(self.expected("the name of a field", name));
        };
        let subject = self.subject(word).map_err(|message| self.error(name.start, message))?;
        if self.take_if(Kind::Word("not"))? {
            self.expect(Kind::Word("in"), "`in`")?;
            let list = self.peek()?.start;
            let comparison = Comparison::In(self.list(subject)?);
            let text = format!("{word} in {}", &self.text[list..self.at]);
            return Ok(Expression::Not(Box::new(Expression::Test(Test {
                subject,
                comparison,
                text,
            }))));
        }
        let comparison = self.comparison(subject)?;
        Ok(Expression::Test(Test {
            subject,
            comparison,
            text: self.text[name.start..self.at].to_owned(),
        }))
    }

    fn comparison(&mut self, subject: Subject) -> Result<Comparison> {
        let operator = self.peek()?;
        let is_flag = subject.class() == Class::Flag;
        match operator.kind {
            Kind::Relation(relation) => {
                self.take()?;
                match relation {
                    Relation::Equal | Relation::NotEqual if self.take_if(Kind::Word("none"))? => {
                        Ok(Comparison::None(relation == Relation::Equal))
                    }
                    _ => Ok(Comparison::Is(relation, self.operand(subject, relation)?)),
                }
            }
            Kind::Word("in") => {
                self.take()?;
                Ok(Comparison::In(self.list(subject)?))
            }
            Kind::Word("has") => {
                self.take()?;
                self.member(subject, operator.start)
            }
            Kind::Word("within") => {
                self.take()?;
                self.cgroup(subject, operator.start)
            }
            Kind::Regex | Kind::Glob => {
                self.take()?;
                self.pattern(subject, operator)
            }
            _ if is_flag => Ok(Comparison::Is(Relation::Equal, Operand::Number(1))),
            _ => Err(self.expected(&comparisons_of(subject), operator)),
        }
    }

    /// The subject that a word names: a field or a limit.
    fn subject(&self, word: &str) -> std::result::Result<Subject, String> {
        if let Some(column) = (self.columns)(word) {
            return column.map(Subject::Column);
        }
        if let Some(rest) = word.strip_prefix("limits.") {
            return limit(rest).map(Subject::Limit);
        }
        let field = word.parse().or_else(|error: UnknownField| {
            let alias = (self.aliases)(word);
            alias.unwrap_or_else(|| Err(error.to_string()))
        });
        field.map(Subject::Field)
    }

    /// The operands in parentheses after `in`. A network alone needs none.
    fn list(&mut self, subject: Subject) -> Result<Vec<Operand>> {
        if subject.class() == Class::IpAddress && matches!(self.peek()?.kind, Kind::Text(_)) {
            return Ok(vec![self.operand(subject, Relation::Equal)?]);
        }
        self.expect(Kind::Open, "`(`")?;
        let mut operands = vec![self.operand(subject, Relation::Equal)?];
        while self.take_if(Kind::Comma)? {
            operands.push(self.operand(subject, Relation::Equal)?);
        }
        self.expect(Kind::Close, "`,` or `)`")?;
        Ok(operands)
    }

    fn pattern(&mut self, subject: Subject, operator: Token<'_>) -> Result<Comparison> {
        if !matches!(subject.class(), Class::Text | Class::Time | Class::IpAddress) {
            let message = format!("{subject} is not text ({}): it has no patterns", subject.kind());
            return Err(self.error(operator.start, message));
        }
        let operand = self.take()?;
        let Kind::Text(text) = operand.kind else {
            return Err(self.expected("a pattern in quotes", operand));
        };
        let pattern = match operator.kind {
            Kind::Glob => Pattern::glob(text),
            _ => Pattern::regex(text),
        };
        pattern
            .map(Comparison::Matches)
            .map_err(|message| self.error(operand.start, message))
    }

    fn cgroup(&mut self, subject: Subject, operator: usize) -> Result<Comparison> {
        if !matches!(subject, Subject::Field(Field::Cgroup | Field::Cgroups)) {
            return Err(self.error(operator, "only `cgroup` and `cgroups` have `within`"));
        }
        let operand = self.take()?;
        match operand.kind {
            Kind::Text(path) => Ok(Comparison::Within(super::without_last_slash(path.as_bytes()).to_vec())),
            _ => Err(self.expected("the path of a cgroup in quotes", operand)),
        }
    }

    /// The operand of `has`: a member of a set or of a list.
    fn member(&mut self, subject: Subject, operator: usize) -> Result<Comparison> {
        if subject.is_list() {
            return Ok(Comparison::Is(Relation::Equal, self.operand(subject, Relation::Equal)?));
        }
        let class = subject.class();
        if !matches!(class, Class::Capabilities | Class::Signals) {
            let message = format!("{subject} is not a set or list ({}): it has no members", subject.kind());
            return Err(self.error(operator, message));
        }
        let token = self.take()?;
        let what = match class {
            Class::Capabilities => "a capability",
            _ => "a signal",
        };
        let (Kind::Word(name) | Kind::Text(name) | Kind::Number(name)) = token.kind else {
            return Err(self.expected(&format!("the name or number of {what}"), token));
        };
        let bit = match class {
            Class::Capabilities => names::capability(name).ok_or_else(|| near(name, CAPABILITIES)),
            _ => names::signal(name)
                .map(|signal| signal - 1)
                .ok_or_else(|| near(name, SIGNALS)),
        };
        bit.map(|bit| Comparison::Has(1 << bit)).map_err(|near| {
            let message = format!("{:?} is not {what}{}", shortened(name), or_near(&near));
            self.error(token.start, message)
        })
    }

    fn operand(&mut self, subject: Subject, relation: Relation) -> Result<Operand> {
        let mut token = self.take()?;
        let at = |message| self.error(token.start, message);
        if let (Kind::Text(text), Relation::Equal | Relation::NotEqual) = (token.kind, relation) {
            if is_account(subject) {
                self.number(subject, text).map_err(at)?;
            }
            token.kind = Kind::Text(words::meant(subject, text).map_err(at)?);
        }
        self.operand_in(subject, token).map_err(at)
    }

    /// The operand for `subject` that a token stands for.
    fn operand_in(&self, subject: Subject, token: Token<'_>) -> std::result::Result<Operand, String> {
        let class = subject.class();
        match (class, token.kind) {
            (Class::Limits, _) => Err(format!(
                "{subject} can't be compared as a whole: name one of them, as in `limits.nofile.soft`"
            )),
            (Class::Flag, Kind::Word(word @ ("true" | "false"))) => Ok(Operand::Number((word == "true").into())),
            (_, Kind::Word("unlimited")) if matches!(subject, Subject::Limit(_)) => {
                Ok(Operand::Number(Limit::UNLIMITED.into()))
            }
            (_, Kind::Word(word)) => self.other(subject, word),
            (Class::Text, Kind::Text(text)) => Ok(Operand::Text(text.as_bytes().to_vec())),
            (Class::IpAddress, Kind::Text(text)) => {
                let message = || {
                    format!(
                        "{:?} is no address and no network such as '10.0.0.0/8' or '::1'",
                        shortened(text)
                    )
                };
                network::operand(text.as_bytes()).ok_or_else(message)
            }
            (Class::Time, Kind::Text(text)) => literal::time(text, Zoned::now).map(Operand::Text),
            (Class::Text | Class::IpAddress | Class::Time | Class::Flag, _) => {
                Err(self.not_compared_with(subject, token))
            }
            (_, Kind::Number(text)) => literal::number(text, class).map(Operand::Number),
            (_, Kind::Text(name)) if has_names(subject) => Ok(Operand::Number(self.number(subject, name)?.into())),
            _ => Err(self.not_compared_with(subject, token)),
        }
    }

    /// The number of a user or group.
    fn number(&self, subject: Subject, name: &str) -> std::result::Result<u32, String> {
        // For sockets, only users have names.
        let number = (self.names)(subject.field().unwrap_or(Field::Uid), name.as_bytes());
        number.ok_or_else(|| format!("no {} has the name {:?}", named(subject), shortened(name)))
    }

    fn not_compared_with(&self, subject: Subject, token: Token<'_>) -> String {
        format!("{}, found {}", compared_with(subject), self.shown(token))
    }

    /// The operand for `subject` that is another value of the same task.
    fn other(&self, subject: Subject, word: &str) -> std::result::Result<Operand, String> {
        let in_quotes = match subject.class() {
            _ if word == "none" => "; `none` goes with == and != only".to_owned(),
            Class::Text => format!("; as text, write '{}' in quotes", shortened(word)),
            _ if has_names(subject) && self.number(subject, word).is_ok() => {
                format!("; for the {} of that name, write '{word}' in quotes", named(subject))
            }
            _ => String::new(),
        };
        let other = self
            .subject(word)
            .map_err(|error| format!("{}: {error}{in_quotes}", compared_with(subject)))?;
        if other.is_list() {
            Err(format!("{other} is a list: it can only stand on the left"))
        } else if other.class() == subject.class() && is_account(other) == is_account(subject) {
            Ok(Operand::Value(other))
        } else {
            let (mine, theirs) = (shown_kind(subject), shown_kind(other));
            Err(format!(
                "{subject} ({mine}) can't be compared with {other} ({theirs}){in_quotes}"
            ))
        }
    }
}

/// The limit that is named after `limits.`.
fn limit(name: &str) -> std::result::Result<Limit, String> {
    let (name, which) = name.split_once('.').unwrap_or((name, ""));
    let Some(index) = Limits::NAMES.iter().position(|&known| known == name) else {
        return Err(format!(
            "{:?} is not a limit{}",
            shortened(name),
            or_near(&near(name, Limits::NAMES))
        ));
    };
    match which {
        "soft" | "hard" => Ok(Limit {
            index,
            is_hard: which == "hard",
        }),
        _ => Err(format!(
            "a limit is soft or hard: `limits.{name}.soft`, `limits.{name}.hard`"
        )),
    }
}

fn one_or(mut parts: Vec<Expression>, join: fn(Vec<Expression>) -> Expression) -> Expression {
    match parts.len() {
        1 => parts.remove(0),
        _ => join(parts),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(text: &str) -> String {
        Filter::parse(text).unwrap_err().to_string()
    }

    /// Check that errors are reported at their place.
    #[test]
    fn mistakes_are_pointed_at() {
        assert_eq!(
            message("uid = 0"),
            "column 5: `=` is not an operator: equality is `==`\n  uid = 0\n      ^"
        );
        for (text, part, at) in [
            ("", "expected the name of a field, found the end", 0),
            (
                "uid",
                "expected a comparison of uid: == != < <= > >= in, found the end",
                3,
            ),
            (
                "uid == ",
                "expected a number, a name in quotes or another field to compare uid with, found the end",
                7,
            ),
            ("uid == 'nobody there'", "no user id has the name", 7),
            ("comm in (none, 'a')", "`none` goes with == and != only", 9),
            (
                "rss_bytes > 100 M",
                "found `M`; a unit has no space before it, as in 100M",
                16,
            ),
            (
                "cpu_percent > 50%",
                "found `%`; percent are numbers without this sign",
                16,
            ),
            ("groups has 'nobody there'", "no group id has the name", 11),
            ("groups has ", "expected a number, a name in quotes", 11),
            ("pid == ", "expected a number or another field to compare pid with", 7),
            ("sig_blocked has ", "expected the name or number of a signal", 16),
            ("sig_blocked has sys_admin", "is not a signal", 16),
            ("cap_effective has TERM", "is not a capability", 18),
            ("uid == 1.x", "no meaning", 8),
            ("uid == 5K", "no unit such as", 7),
            ("uid == 1.5", "fraction", 7),
            ("rss_bytes > 5X", "units of bytes", 12),
            ("rss_bytes > 1.5", "fraction", 12),
            ("utime_ns > 5X", "units of time", 11),
            ("uid == 99999999999999999999", "not a number of 64 bits", 7),
            ("rss == 5", "rss_bytes", 0),
            (
                "comm == sshd",
                "near it are: sgid, suid; as text, write 'sshd' in quotes",
                8,
            ),
            (
                "user == root",
                "user (name) can't be compared with root (text); as text, write 'root' in quotes",
                8,
            ),
            ("exe == /bin/sh", "text stands in quotes", 7),
            ("comm ~ '('", "not a regular expression", 7),
            ("comm ~* '['", "not closed", 8),
            ("comm == 'a", "not closed", 8),
            ("uid ~ '0'", "is not text", 4),
            ("kernel_thread == 1", "`true`, `false` or another field", 17),
            ("limits == 1", "can't be compared", 10),
            ("(uid == 0", "expected `)`, found the end", 9),
            ("uid == 0 pid == 1", "expected `and`, `or` or the end, found `pid`", 9),
            ("uid == 0 && pid == 1", "use `and`", 9),
            ("é", "no meaning", 0),
            ("uid == euidd", "near it are: euid", 7),
            ("uid == comm", "uid (user id) can't be compared with comm (text)", 7),
            ("rss_bytes > utime_ns", "can't be compared", 12),
            ("gid == groups", "can only stand on the left", 7),
            ("uid in 5", "expected `(`, found `5`", 7),
            ("uid in ()", "expected a number", 8),
            ("uid in (5", "expected `,` or `)`, found the end", 9),
            ("uid in (5 6)", "expected `,` or `)`, found `6`", 10),
            ("uid not 5", "expected `in`, found `5`", 8),
            ("uid not in ('nobody there')", "no user id has the name", 12),
            ("cap_effective has sysadmin", "near it are: sys_admin", 18),
            (
                "cap_effective has ",
                "expected the name or number of a capability, found the end",
                18,
            ),
            ("sig_blocked has TERMS", "near it are: TERM", 16),
            ("uid has 5", "it has no members", 4),
            ("comm within '/'", "only `cgroup` and `cgroups`", 5),
            ("cgroup within /", "no meaning", 14),
            ("limits.nofil.soft == 1", "near it are: nofile", 0),
            ("limits.nofile == 1", "`limits.nofile.hard`", 0),
            ("limits.nofile.soft == 1K", "no unit such as", 22),
            ("start_time > 'noon'", "not a time such as", 13),
            ("start_time > 5", "a time in quotes", 13),
            ("start_time > '2026-02-30'", "not a time such as", 13),
            ("start_time > '99999-01-01'", "not a time such as", 13),
            ("comm ~ 5", "expected a pattern in quotes, found `5`", 7),
            ("groups 5", "== != < <= > >= in has, found `5`", 7),
            ("cgroup 5", "== != < <= > >= in ~ ~* within, found `5`", 7),
            ("comm ~* '[é]'", "ASCII", 8),
            ("comm ~* '[z-a]'", "not a pattern", 8),
            ("comm == 'é' é", "'é' has no meaning", 13),
        ] {
            let error = Filter::parse(text).unwrap_err();
            assert!(error.message.contains(part), "{text}: {}", error.message);
            assert_eq!(error.at, at, "{text}");
        }
        let deep = "not ".repeat(200) + "kernel_thread";
        assert!(message(&deep).contains("nested deeper"));
        let two = Filter::parse("comm == 'é' and uidd == 0").unwrap_err();
        assert_eq!((two.at, two.column()), (17, 17));
    }

    /// Check that the deepest filters print as text that can be parsed.
    #[test]
    fn deepest_filters_come_back() {
        let levels = MAX_DEPTH as usize - 1;
        for text in [
            "not ".repeat(levels) + "kernel_thread",
            "not (".repeat(levels / 2) + "uid == 1 or uid == 2" + &")".repeat(levels / 2),
        ] {
            let printed = Filter::parse(&text).unwrap().to_string();
            assert_eq!(Filter::parse(&printed).unwrap().to_string(), printed);
        }
    }

    /// Check that megabytes of any text are refused or parsed in little time, with short messages.
    #[test]
    fn huge_texts_have_short_messages() {
        const LONG: usize = 1 << 20;
        let long = |part: &str| part.repeat(LONG / part.len());
        for (text, part) in [
            (long("a"), "unknown field"),
            (long("("), "nested deeper"),
            (long("not "), "nested deeper"),
            (long(" "), "found the end"),
            (long("\n"), "found the end"),
            (long("é"), "no meaning"),
            (long("'"), "name of a field"),
            (format!("comm == '{}", long("x")), "not closed"),
            (format!("'{}'", long("x")), "expected the name of a field, found `'xxx"),
            (format!("uid == {}", long("9")), "not a number"),
            (format!("uid == 0x{}", long("f")), "not a number"),
            (format!("uid == -{}", long("0")), "not a number"),
            (format!("rss_bytes > 1.{}G", long("9")), "not a number"),
            (format!("rss_bytes > 1{}", long("K")), "not a number"),
            (format!("uid == {}", long("euid")), "to compare uid with: unknown field"),
            (format!("uid == '{}'", long("x")), "no user id has the name"),
            (format!("start_time > '{}'", long("2")), "not a time"),
            (format!("start_time > '{}'", long("é")), "not a time"),
            (format!("cap_effective has {}", long("x")), "not a capability"),
            (format!("sig_blocked has '{}'", long("é")), "not a signal"),
            (format!("limits.{}.soft == 1", long("x")), "not a limit"),
            (format!("comm ~ '{}'", "(".repeat(LONG / 8)), "not a regular expression"),
            (
                format!("comm ~ '{}'", "a{99}".repeat(LONG / 40)),
                "not a regular expression",
            ),
            (format!("comm ~* '{}'", long("[a]")), "not a pattern"),
            (format!("uid in ({}", long("1, ")), "expected a number"),
            (format!("{}uid = 0", long("uid == 0 or ")), "not an operator"),
        ] {
            let began = std::time::Instant::now();
            let error = Filter::parse(&text).expect_err(part);
            let message = error.to_string();
            let began = began.elapsed();
            assert!(
                message.contains(part) && message.len() < 1000,
                "{part}: {message:.1000}"
            );
            assert!(began.as_secs() < 20, "{part}: {began:?}");
        }
        let alternatives = long("uid == 1 or ") + "uid == 2";
        let filter = Filter::parse(&alternatives).unwrap();
        assert_eq!(filter.fields(), Field::Uid.into());
        assert_eq!(filter.to_string(), alternatives);
    }

    /// Check that other names can stand for fields, that names of fields take precedence, and that
    /// an alias can report an error.
    #[test]
    fn fields_have_aliases() {
        let aliases = |name: &str| match name {
            "rss" | "uid" => Some(Ok(Field::RssBytes)),
            "%mem" => Some(Ok(Field::MemPercent)),
            "time" => Some(Err("time is two fields".to_owned())),
            _ => None,
        };
        let parse = |text: &str| Filter::parse_with_columns(text, &|_, _| None, &aliases, &|_| None);
        assert_eq!(parse("rss > 1M").unwrap().fields(), Field::RssBytes.into());
        assert_eq!(
            parse("%mem > 1 and uid == 0").unwrap().fields(),
            Field::MemPercent | Field::Uid
        );
        assert!(parse("rss_bytes > rss").is_ok());
        let error = parse("pid == 1 and time > 1").unwrap_err();
        assert_eq!((error.message.as_str(), error.at), ("time is two fields", 13));
        assert!(parse("nosuch > 1").unwrap_err().message.contains("nosuch"));
        assert!(Filter::parse("rss > 1M").is_err());
    }

    /// Check that keywords may be in capitals, and that they print as others.
    #[test]
    fn keywords_may_be_in_capitals() {
        let parsed = Filter::parse("uid == 0 AND NOT kernel_thread OR pid NOT IN (1) and kernel_thread == TRUE");
        let same = "(uid == 0 and not kernel_thread) or (not pid in (1) and kernel_thread == TRUE)";
        assert_eq!(parsed.unwrap().to_string(), same);
    }

    /// Check that names stand for numbers if the caller's function knows them.
    #[test]
    fn operands_have_names() {
        let names = |field, name: &[u8]| (field == Field::Uid && name == b"www").then_some(33);
        let filter = Filter::parse_with_names("uid in (0, 'www')", &names).unwrap();
        let row = super::super::tests::Made(vec![(Field::Uid, Ok(crate::value::Value::Unsigned(33)))]);
        assert_eq!(filter.decide(&row), Some(true));
    }

    /// Check that the expressions in the documentation are valid: those in tables, in commands, and
    /// in blocks of their own.
    #[test]
    fn documented_filters_are_right() {
        let document = include_str!("../../../../docs/filters.md");
        let names = |_, _: &[u8]| Some(7);
        let mut count = 0;
        let mut check = |expression: &str| {
            let parsed = Filter::parse_with_names(expression, &names);
            count += 1;
            parsed.unwrap_or_else(|error| panic!("{error}"));
        };
        let mut blocks = document.split("```");
        while let (Some(text), block) = (blocks.next(), blocks.next()) {
            let examples = text.split("| examples |").nth(1).unwrap_or_default();
            for row in examples.lines().filter(|line| line.starts_with("| ")) {
                let cell = row.rsplit(" | ").next().unwrap_or_default();
                cell.split('`').skip(1).step_by(2).for_each(&mut check);
            }
            match block.and_then(|block| block.split_once('\n')) {
                Some(("filter", lines)) => lines.lines().for_each(&mut check),
                Some((_, lines)) if !lines.contains("is not a capability") => {
                    let options = lines
                        .lines()
                        .filter_map(|line| line.split("--where \"").nth(1)?.split('"').next());
                    options.for_each(&mut check);
                }
                _ => {}
            }
        }
        assert!(count > 35, "{count} expressions");
    }

    /// Words that expressions are made of, and some that are invalid.
    const WORDS: [&str; 42] = [
        "uid",
        "euid",
        "comm",
        "exe",
        "rss_bytes",
        "kernel_thread",
        "cap_effective",
        "groups",
        "limits.nofile.soft",
        "limits.as.hard",
        "start_time",
        "cgroup",
        "and",
        "or",
        "not",
        "in",
        "has",
        "within",
        "(",
        ")",
        ",",
        "==",
        "!=",
        "~",
        "~*",
        "<",
        "'a.*'",
        "\"it's\"",
        "'['",
        "7",
        "1G",
        "1.5G",
        "-3",
        "0x1f",
        "unlimited",
        "true",
        "sys_admin",
        "'2026-11-23 03:12'",
        "\n",
        "é",
        "'",
        "uid == 0",
    ];

    proptest! {
        /// Check that any text is either parsed or refused, with the place of the error within it.
        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC{0,40}") {
            if let Err(error) = Filter::parse(&text) {
                prop_assert!(text.is_char_boundary(error.at));
                let _ = error.to_string();
            }
        }

        /// Check the same with texts that are nearly expressions, and that a displayed filter
        /// parses to the same filter.
        #[test]
        fn expressions_are_parsed_or_refused(words in proptest::collection::vec(proptest::sample::select(&WORDS[..]), 0..16)) {
            let text = words.join(" ");
            match Filter::parse(&text) {
                Ok(filter) => prop_assert_eq!(&Filter::parse(&filter.to_string()).unwrap().expression, &filter.expression),
                Err(error) => prop_assert!(text.is_char_boundary(error.at)),
            }
        }

        /// Check with valid expressions that a displayed filter parses to the same filter.
        #[test]
        fn displayed_filters_are_the_same(text in super::super::tests::expression()) {
            let filter = Filter::parse(&text).unwrap();
            prop_assert_eq!(&Filter::parse(&filter.to_string()).unwrap().expression, &filter.expression);
        }
    }
}
