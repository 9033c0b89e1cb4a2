//! Templates of group names, as in process-exporter's configuration: text with fields such as
//! `{{.Comm}}` and `{{.Matches.Port}}`.

use std::fmt::Write as _;

use super::facts::{Captures, Facts};

/// A template for the name of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Comm,
    ExeBase,
    ExeFull,
    Username,
    Pid,
    StartTime,
    /// All captures.
    Matches,
    /// One capture, as a field.
    Match(String),
    /// One capture, with `index`.
    Indexed(String),
    Cgroups,
    Cgroup(usize),
}

/// What a name needs to know about a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Its arguments.
    pub cmdline: bool,
    pub cgroup: bool,
    /// The name of its user.
    pub user: bool,
    /// Its id or its start time: each process is a group of its own.
    pub itself: bool,
}

impl Template {
    /// Parses a template.
    pub fn parse(text: &str) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, action)) = rest.split_once("{{") {
            let (action, after) = action
                .split_once("}}")
                .ok_or_else(|| format!("{{{{ without }}}} in {text:?}"))?;
            let is_marker = |at: Option<char>| at.is_some_and(char::is_whitespace);
            let trims_before = action.starts_with('-') && is_marker(action.chars().nth(1));
            let trims_after = action.ends_with('-') && is_marker(action.chars().rev().nth(1));
            let action = if trims_before { &action[1..] } else { action };
            let action = if trims_after {
                &action[..action.len() - 1]
            } else {
                action
            };
            let before = if trims_before { before.trim_end() } else { before };
            rest = if trims_after { after.trim_start() } else { after };
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            pieces.extend(parse_action(action.trim())?);
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Template(pieces))
    }

    /// What the template needs to know about a process.
    pub fn needs(&self) -> Needs {
        let has = |wanted: &[Piece]| self.0.iter().any(|piece| wanted.contains(piece));
        Needs {
            cmdline: has(&[Piece::ExeBase, Piece::ExeFull, Piece::Matches]) || self.captures().next().is_some(),
            cgroup: self
                .0
                .iter()
                .any(|piece| matches!(piece, Piece::Cgroups | Piece::Cgroup(_))),
            user: has(&[Piece::Username]),
            itself: has(&[Piece::Pid, Piece::StartTime]),
        }
    }

    /// The names of the captures that it uses.
    pub fn captures(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Match(name) | Piece::Indexed(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The name for a process.
    pub fn name(&self, facts: &Facts<'_>, captures: &Captures) -> String {
        let mut name = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => name.push_str(text),
                Piece::Comm => push_bytes(&mut name, facts.comm),
                Piece::ExeBase => push_bytes(&mut name, base(facts.exe())),
                Piece::ExeFull => push_bytes(&mut name, facts.exe()),
                Piece::Username => push_bytes(&mut name, facts.user.unwrap_or_default()),
                Piece::Pid => {
                    let _ = write!(name, "{}", facts.pid);
                }
                Piece::StartTime => name.push_str(&facts.start_time()),
                Piece::Matches => {
                    let all: Vec<String> = captures.iter().map(|(key, value)| format!("{key}:{value}")).collect();
                    let _ = write!(name, "map[{}]", all.join(" "));
                }
                Piece::Match(key) => name.push_str(captures.get(key).map_or("<no value>", String::as_str)),
                Piece::Indexed(key) => name.push_str(captures.get(key).map_or("", String::as_str)),
                Piece::Cgroups => {
                    name.push('[');
                    push_bytes(&mut name, &facts.cgroup_paths().join(&b' '));
                    name.push(']');
                }
                Piece::Cgroup(index) => match facts.cgroup_paths().get(*index) {
                    Some(path) => push_bytes(&mut name, path),
                    // Go's template also ends here, and keeps what it has written.
                    None => break,
                },
            }
        }
        name
    }
}

fn parse_action(action: &str) -> Result<Option<Piece>, String> {
    if action.starts_with("/*") && action.ends_with("*/") {
        return Ok(None);
    }
    let wrong = || {
        format!(
            "{{{{{action}}}}} is not understood: a name can have .Comm, .ExeBase, .ExeFull, .Username, .PID, .StartTime, \
             .Matches, .Matches.NAME, .Cgroups, index .Matches \"NAME\" and index .Cgroups N"
        )
    };
    let words: Vec<&str> = action.split_whitespace().collect();
    let piece = match words.as_slice() {
        [".Comm"] => Piece::Comm,
        [".ExeBase"] => Piece::ExeBase,
        [".ExeFull"] => Piece::ExeFull,
        [".Username"] => Piece::Username,
        [".PID"] => Piece::Pid,
        [".StartTime"] => Piece::StartTime,
        [".Matches"] => Piece::Matches,
        [".Cgroups"] => Piece::Cgroups,
        ["index", ".Cgroups", number] => Piece::Cgroup(number.parse().map_err(|_| wrong())?),
        ["index", ".Matches", quoted] => {
            let name = quoted.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
            Piece::Indexed(
                name.filter(|name| !name.contains(['"', '\\']))
                    .ok_or_else(wrong)?
                    .to_owned(),
            )
        }
        [word] => {
            let name = word.strip_prefix(".Matches.").ok_or_else(wrong)?;
            let is_name = !name.is_empty() && name.chars().all(|one| one.is_alphanumeric() || one == '_');
            Piece::Match(is_name.then(|| name.to_owned()).ok_or_else(wrong)?)
        }
        _ => return Err(wrong()),
    };
    Ok(Some(piece))
}

/// The last component of a path, like Go's filepath.Base.
pub fn base(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    match (path.is_empty(), end) {
        (true, _) => b".",
        (false, 0) => b"/",
        (false, end) => path[..end].rsplit(|&byte| byte == b'/').next().unwrap_or_default(),
    }
}

/// Appends bytes as the value of a label. Invalid UTF-8 becomes `\xNN`, as do controls: labels are
/// shown on terminals and pages. Line ends are escaped with the label.
pub fn push_bytes(text: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\n' => text.push(character),
                _ if character.is_control() => {
                    let _ = write!(text, "\\x{:02x}", u32::from(character));
                }
                _ => text.push(character),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
}

/// Converts bytes to the value of a label.
pub fn label(bytes: &[u8]) -> String {
    let mut text = String::new();
    push_bytes(&mut text, bytes);
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn facts<'a>(comm: &'a [u8], arguments: &'a [&'a [u8]]) -> Facts<'a> {
        Facts {
            pid: 7,
            comm,
            arguments: Some(arguments),
            user: Some(b"www"),
            start_ns: 1_250_000_000,
            boot: jiff::Timestamp::from_second(1_500_000_000).expect("a time"),
            cgroups: Some(b"5:cpu,cpuacct:/a b\n1:name=systemd:/c:d\n0::/a.slice/b.service\n"),
        }
    }

    /// Check each field, and the texts between them.
    #[test]
    fn fields_become_text() {
        let captures: Captures = [("", "whole"), ("Port", "80")]
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let arguments: &[&[u8]] = &[b"/usr/sbin/nginx:", b"x"];
        let facts = facts(b"nginx", arguments);
        for (template, name) in [
            ("", ""),
            ("plain", "plain"),
            ("{{.Comm}}", "nginx"),
            ("a{{ .ExeBase }}b", "anginx:b"),
            ("{{.ExeFull}}:{{.Matches.Port}}", "/usr/sbin/nginx::80"),
            ("{{index .Matches \"Port\"}}", "80"),
            ("{{.Matches}}", "map[:whole Port:80]"),
            ("{{.Matches.Other}}", "<no value>"),
            ("a{{index .Matches \"Other\"}}b", "ab"),
            ("{{.Username}}-{{.PID}}", "www-7"),
            ("{{.StartTime}}", "2017-07-14 02:40:01.25 +0000 UTC"),
            (
                "{{.Cgroups}} {{index .Cgroups 2}} {{index .Cgroups 1}}",
                "[/a b /c:d /a.slice/b.service] /a.slice/b.service /c:d",
            ),
            ("a{{index .Cgroups 3}}b", "a"),
            ("a {{- .Comm -}} b", "anginxb"),
            ("{{/* nothing */}}x", "x"),
        ] {
            let parsed = Template::parse(template).unwrap_or_else(|wrong| panic!("{template}: {wrong}"));
            assert_eq!(parsed.name(&facts, &captures), name, "{template}");
        }
    }

    /// Check that unknown fields are refused, and that the message names them.
    #[test]
    fn other_actions_are_refused() {
        for template in [
            "{{.Comm",
            "{{}}",
            "{{.comm}}",
            "{{if .Comm}}x{{end}}",
            "{{.Matches.}}",
            "{{.Comm | printf}}",
            "{{index .Cgroups x}}",
            "{{index .Matches \"a\\\"\"}}",
            "{{-.Comm}}",
        ] {
            let wrong = Template::parse(template).expect_err(template);
            assert!(wrong.contains("{{"), "{template}: {wrong}");
        }
    }

    /// Check the last components of paths.
    #[test]
    fn bases_are_those_of_go() {
        for (path, last) in [
            ("", "."),
            ("/", "/"),
            ("///", "/"),
            ("a", "a"),
            ("a/", "a"),
            ("/a/b//", "b"),
            ("-bash", "-bash"),
        ] {
            assert_eq!(base(path.as_bytes()), last.as_bytes(), "{path}");
        }
    }

    /// Check that names of any bytes become text, and that different names with invalid UTF-8 stay
    /// different.
    #[test]
    fn names_that_are_no_text_stay_different() {
        assert_eq!(label(b"a\xffb"), "a\\xffb");
        assert_ne!(label(b"\xfe"), label(b"\xff"));
        assert_eq!(label("<script>\n\"é\\".as_bytes()), "<script>\n\"é\\");
    }

    proptest! {
        /// Check that any template is parsed or refused, and that a name can always be made.
        #[test]
        fn any_template_is_parsed(text in ".{0,40}", braces in "[{}. a-zA-Z\\-/*\"]{0,30}", comm: Vec<u8>, first: Vec<u8>) {
            for text in [text, braces] {
                if let Ok(template) = Template::parse(&text) {
                    let arguments: &[&[u8]] = &[&first];
                    let _ = template.name(&facts(&comm, arguments), &Captures::new());
                    prop_assert!(text.contains("{{") || template.name(&facts(b"", &[]), &Captures::new()) == text);
                }
            }
        }
    }
}
