//! Regular expressions and globs.

use regex::bytes::{Regex, RegexBuilder};

use super::comparison::Pattern;

impl Pattern {
    pub(super) fn regex(text: &str) -> Result<Pattern, String> {
        Ok(Pattern {
            regex: compile(text).map_err(|message| format!("not a regular expression: {message}"))?,
            prefix: regex_prefix(text),
        })
    }

    pub(super) fn glob(text: &str) -> Result<Pattern, String> {
        let mut regex = String::from("^");
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            match c {
                '*' => regex.push_str(".*"),
                '?' => regex.push('.'),
                '[' => {
                    let class = rest.as_str();
                    let skip = class.strip_prefix('!').map_or(0, |_| 1);
                    // A bracket right at the start is a member of the class.
                    let first = class[skip..].strip_prefix(']').map_or(0, |_| 1);
                    let end = class[skip + first..]
                        .find(']')
                        .ok_or("a `[` of the pattern is not closed")?;
                    let members = &class[skip..skip + first + end];
                    regex.push_str(if skip == 1 { "[^" } else { "[" });
                    if !members.is_ascii() {
                        return Err("patterns are over bytes: `[ ]` can only have ASCII characters in it".to_owned());
                    }
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
            regex: compile(&regex).map_err(|message| format!("not a pattern: {message}"))?,
            prefix: (text.as_bytes()[..literal].to_vec(), literal == text.len()),
        })
    }
}

/// Patterns match bytes. A dot matches any byte, even a newline; `^` and `$` match the ends of the
/// text.
fn compile(text: &str) -> Result<Regex, String> {
    RegexBuilder::new(text)
        .unicode(false)
        .dot_matches_new_line(true)
        .build()
        .map_err(|error| match error {
            regex::Error::Syntax(message) => {
                let last = message.lines().last().unwrap_or_default();
                last.trim_start_matches("error: ").to_owned()
            }
            other => other.to_string(),
        })
}

/// The beginning of every match, as far as the expression plainly shows it, and whether that is the
/// whole text.
fn regex_prefix(text: &str) -> (Vec<u8>, bool) {
    let Some(anchored) = text.strip_prefix('^').filter(|rest| !rest.contains('|')) else {
        return (Vec::new(), false);
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | ' ' | ':' | ',' | '@');
    let end = anchored.find(|c| !is_plain(c)).unwrap_or(anchored.len());
    let (literal, rest) = anchored.split_at(end);
    // What follows may refer to the last character alone.
    let len = literal.len() - usize::from(rest.starts_with(['*', '?', '{']) && !literal.is_empty());
    (literal.as_bytes()[..len].to_vec(), rest == "$")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Check the known beginnings of matches.
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

    /// Check that a bracket that comes first in a class is a member of it.
    #[test]
    fn brackets_can_be_members() {
        for (glob, matching, other) in [
            ("[]x]y", ["]y", "xy"], ["ay", "y"]),
            ("[!]x]y", ["ay", "!y"], ["]y", "xy"]),
            ("[!a]y]", ["by]", "]y]"], ["ay]", "by"]),
            ("[ab][cd]e", ["ace", "bde"], ["abe", "cde"]),
        ] {
            let pattern = Pattern::glob(glob).unwrap();
            for text in matching {
                assert!(pattern.regex.is_match(text.as_bytes()), "{glob} {text}");
            }
            for text in other {
                assert!(!pattern.regex.is_match(text.as_bytes()), "{glob} {text}");
            }
        }
    }

    proptest! {
        /// Check that every match of a pattern begins with the prefix, and is equal to it if the
        /// prefix is all.
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
