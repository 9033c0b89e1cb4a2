//! Which group a process belongs to: the rules of the configuration.

use std::borrow::Cow;
use std::collections::HashSet;

use regex::Regex;

use super::facts::{Captures, Facts};
use super::template::{base, Template};

/// A rule: the conditions for belonging to a group.
#[derive(Debug)]
pub struct Rule {
    /// The name of the group.
    pub name: Template,
    /// The process name must be one of these.
    pub comm: Option<HashSet<Vec<u8>>>,
    /// The first argument must be one of these programs: a path, or the last component of one.
    pub exe: Option<Vec<Vec<u8>>>,
    /// All of these expressions must match.
    pub cmdline: Option<Vec<Regex>>,
}

/// The result of applying the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The process belongs to this group.
    Group(String),
    /// No rule applies.
    None,
    /// The result depends on an unknown fact.
    Unknown,
}

/// The rules. The first one that applies decides.
#[derive(Debug)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// Creates the rules, in this order.
    pub fn new(rules: Vec<Rule>) -> Rules {
        Rules(rules)
    }

    /// Whether there are no rules.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether names of groups refer to cgroups.
    pub fn need_cgroup(&self) -> bool {
        self.0.iter().any(|rule| rule.name.needs().cgroup)
    }

    /// Applies the rules to a process.
    pub fn group(&self, facts: &Facts<'_>) -> Verdict {
        for rule in &self.0 {
            match rule.group(facts) {
                Verdict::None => {}
                verdict => return verdict,
            }
        }
        Verdict::None
    }
}

impl Rule {
    fn group(&self, facts: &Facts<'_>) -> Verdict {
        if self.comm.as_ref().is_some_and(|names| !names.contains(facts.comm)) {
            return Verdict::None;
        }
        let mut is_known = true;
        match (&self.exe, facts.arguments) {
            (None, _) => {}
            (Some(_), None) => is_known = false,
            (Some(programs), Some(arguments)) => {
                if !arguments.first().is_some_and(|first| is_one_of(programs, first)) {
                    return Verdict::None;
                }
            }
        }
        let mut captures = Captures::new();
        match (&self.cmdline, facts.arguments) {
            (None, _) => {}
            // A program has at least one argument.
            (Some(expressions), None) => is_known &= expressions.iter().all(is_true_of_any_text),
            (Some(expressions), Some(arguments)) => {
                let line = arguments.join(&b' ');
                let line = text(&line);
                for expression in expressions {
                    let Some(found) = expression.captures(&line) else {
                        return Verdict::None;
                    };
                    for (name, group) in expression.capture_names().zip(found.iter()) {
                        let text = group.map_or("", |group| group.as_str());
                        captures.insert(name.unwrap_or_default().to_owned(), text.to_owned());
                    }
                }
            }
        }
        let needs = self.name.needs();
        is_known &= facts.arguments.is_some() || !needs.cmdline;
        is_known &= facts.cgroups.is_some() || !needs.cgroup;
        is_known &= facts.user.is_some() || !needs.user;
        if is_known {
            Verdict::Group(self.name.name(facts, &captures))
        } else {
            Verdict::Unknown
        }
    }
}

/// The text to which expressions apply. As in Go, each byte that is not UTF-8 is U+FFFD.
fn text(line: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(line) {
        return text.into();
    }
    let mut text = String::new();
    for chunk in line.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text.into()
}

/// Whether a first argument names one of some programs.
fn is_one_of(programs: &[Vec<u8>], first: &[u8]) -> bool {
    programs.iter().any(|program| {
        if program.contains(&b'/') {
            program == first
        } else {
            program == base(first)
        }
    })
}

/// Whether this is a known expression that matches every nonempty text.
fn is_true_of_any_text(expression: &Regex) -> bool {
    let text = expression.as_str();
    let text = text.strip_prefix('^').unwrap_or(text);
    let text = text.strip_suffix('$').unwrap_or(text);
    matches!(text, "" | "." | ".+" | ".*")
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;

    fn facts<'a>(comm: &'a [u8], arguments: Option<&'a [&'a [u8]]>) -> Facts<'a> {
        Facts {
            pid: 1,
            comm,
            arguments,
            user: Some(b"root"),
            start_ns: 0,
            boot: Timestamp::UNIX_EPOCH,
            cgroups: None,
        }
    }

    fn rule(name: &str, comm: &[&str], exe: &[&str], cmdline: &[&str]) -> Rule {
        let bytes = |list: &[&str]| list.iter().map(|one| one.as_bytes().to_vec()).collect::<Vec<_>>();
        Rule {
            name: Template::parse(name).expect("a template"),
            comm: (!comm.is_empty()).then(|| bytes(comm).into_iter().collect()),
            exe: (!exe.is_empty()).then(|| bytes(exe)),
            cmdline: (!cmdline.is_empty()).then(|| {
                cmdline
                    .iter()
                    .map(|one| Regex::new(one).expect("an expression"))
                    .collect()
            }),
        }
    }

    fn group(name: &str) -> Verdict {
        Verdict::Group(name.to_owned())
    }

    /// Check that the first matching rule decides, that names are alternatives, and that all
    /// expressions must match.
    #[test]
    fn the_first_rule_decides() {
        let rules = Rules::new(vec![
            rule(
                "{{.ExeFull}}:{{.Matches.Cfg}}",
                &[],
                &["/bin/db", "web"],
                &["-c\\s+(?P<Cfg>\\S+)", "x"],
            ),
            rule("{{.ExeBase}}", &["db", "sh"], &[], &[]),
            rule("rest", &[], &[], &[".+"]),
        ]);
        let cases: [(&str, &[&str], Verdict); 8] = [
            ("db", &["/bin/db", "-c", "x.conf"], group("/bin/db:x.conf")),
            ("db", &["/usr/bin/db", "-c", "x.conf"], group("db")),
            ("w", &["/opt/web", "-c", "x"], group("/opt/web:x")),
            ("w", &["/opt/web", "-c", "y"], group("rest")),
            ("sh", &["-sh"], group("-sh")),
            ("sh", &[], group("sh")),
            ("none", &[], Verdict::None),
            ("", &[""], Verdict::None),
        ];
        for (comm, arguments, verdict) in cases {
            let arguments: Vec<&[u8]> = arguments.iter().map(|argument| argument.as_bytes()).collect();
            assert_eq!(
                rules.group(&facts(comm.as_bytes(), Some(&arguments))),
                verdict,
                "{comm} {arguments:?}"
            );
        }
    }

    /// Check that a rule that cannot be decided without arguments also leaves the later rules
    /// undecided.
    #[test]
    fn what_is_not_known_is_not_guessed() {
        let all = Rules::new(vec![rule("{{.Comm}}", &[], &[], &[".+"])]);
        assert_eq!(all.group(&facts(b"true", None)), group("true"));
        assert_eq!(all.group(&facts(b"kworker", Some(&[]))), Verdict::None);
        let some = Rules::new(vec![
            rule("x", &["sh"], &[], &["-c"]),
            rule("{{.Comm}}", &["sh", "true"], &[], &[]),
            rule("{{.ExeBase}}", &["ls"], &[], &[]),
        ]);
        for (comm, verdict) in [
            ("sh", Verdict::Unknown),
            ("true", group("true")),
            ("ls", Verdict::Unknown),
            ("cp", Verdict::None),
        ] {
            assert_eq!(some.group(&facts(comm.as_bytes(), None)), verdict, "{comm}");
        }
    }

    /// Check that a group that is named after the user waits for the user's name.
    #[test]
    fn a_late_name_is_waited_for() {
        let rules = Rules::new(vec![
            rule("{{.Username}}", &["a"], &[], &[]),
            rule("b", &["b"], &[], &[]),
        ]);
        for (comm, known, unknown) in [("a", group("root"), Verdict::Unknown), ("b", group("b"), group("b"))] {
            let facts = facts(comm.as_bytes(), Some(&[]));
            assert_eq!(rules.group(&facts), known);
            assert_eq!(rules.group(&Facts { user: None, ..facts }), unknown);
        }
    }

    /// Check that unnamed groups take their place among the captures, as in Go.
    #[test]
    fn captures_have_names() {
        let rules = Rules::new(vec![rule("{{.Matches}}", &[], &[], &["(a)(?P<n>b)?"])]);
        let arguments: &[&[u8]] = &[b"xa"];
        assert_eq!(rules.group(&facts(b"", Some(arguments))), group("map[:a n:]"));
    }

    /// Check that bytes that are not UTF-8 do not hide a process from a rule.
    #[test]
    fn any_byte_is_a_character() {
        let rules = Rules::new(vec![rule("{{.Matches.X}}", &[], &[], &["^(?P<X>\\S{3}.)$"])]);
        let arguments: &[&[u8]] = &[b"a\xe2\x82", b"", b"\xff"];
        assert_eq!(rules.group(&facts(b"", Some(arguments))), Verdict::None);
        let arguments: &[&[u8]] = &[b"a\xe2\x82\xff"];
        assert_eq!(
            rules.group(&facts(b"", Some(arguments))),
            group("a\u{fffd}\u{fffd}\u{fffd}")
        );
    }

    proptest! {
        /// Check that processes with any arguments are decided, and that arguments never contradict
        /// a decision made without them.
        #[test]
        fn any_process_is_decided(comm: Vec<u8>, arguments: Vec<Vec<u8>>) {
            let rules = Rules::new(vec![
                rule("a", &["a"], &["b"], &["c"]),
                rule("{{.Comm}}", &["b"], &[], &[]),
                rule("{{.ExeBase}}{{.Matches}}", &[], &[], &["(?P<x>[a-f]+).*"]),
                rule("{{.Comm}}", &[], &[], &[".*"]),
            ]);
            let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
            let known = rules.group(&facts(&comm, Some(&arguments)));
            prop_assert_ne!(&known, &Verdict::Unknown);
            match rules.group(&facts(&comm, None)) {
                Verdict::Unknown => {}
                guess if arguments.is_empty() => { let _ = guess; }
                guess => prop_assert_eq!(guess, known),
            }
        }
    }
}
