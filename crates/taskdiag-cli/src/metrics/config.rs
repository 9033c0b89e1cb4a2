//! The configuration: a YAML file in process-exporter's format.

use std::fmt;
use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use regex::Regex;
use rustix::time::ClockId;
use saphyr::{MarkedYaml, ScalarStyle, ScanError, YamlData, YamlLoader};
use saphyr_parser::{Event, Parser, SpannedEventReceiver as _};
use taskdiag_sys::host::now_ns;

use super::matcher::{Rule, Rules};
use super::template::Template;
use crate::file;
use crate::outcome::message;

/// The maximum size of a file.
const MAX_KIB: u64 = 1024;

/// The default of process-exporter's packages: all programs, by name.
const USUAL: &str = "process_names:\n  - name: \"{{.Comm}}\"\n    cmdline:\n    - '.+'\n";

/// A configuration.
#[derive(Debug)]
pub struct Config {
    /// The rules that assign processes to groups.
    pub rules: Rules,
    /// Parts that may be unintended, with their lines.
    pub warnings: Vec<Wrong>,
}

/// A problem and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    line: usize,
    reason: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// A node of the text, with its place.
type Node<'a> = MarkedYaml<'a>;

fn wrong(node: &Node<'_>, reason: impl Into<String>) -> Wrong {
    Wrong {
        line: node.span.start.line(),
        reason: reason.into(),
    }
}

impl Config {
    /// The default: all programs, by name.
    pub fn usual() -> Config {
        Config::parse(USUAL).expect("it is a configuration")
    }

    /// Reads a file. The error has the file's name and, if the problem is in its text, the line.
    pub fn read(path: &Path) -> Result<Config, String> {
        let name = path.display();
        let opened = file::open(path, OpenOptions::new().read(true)).map_err(|error| message(&error));
        let text = opened.and_then(|file| file::read(&file, MAX_KIB));
        let text = text.map_err(|what| format!("{name}: {what}"))?;
        let text = String::from_utf8(text).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + valid.iter().filter(|&&byte| byte == b'\n').count();
            format!("{name}: line {line}: not UTF-8")
        })?;
        Config::parse(&text).map_err(|wrong| format!("{name}: {wrong}"))
    }

    /// Parses the text of a file.
    pub fn parse(text: &str) -> Result<Config, Wrong> {
        let documents = load(text)?;
        let mut warnings = Vec::new();
        let mut rules = Vec::new();
        let compiler = Compiler::new();
        let Some((root, others)) = documents.split_first() else {
            return Err(Wrong {
                line: 1,
                reason: "empty: process_names is missing, a list of rules".to_owned(),
            });
        };
        let others = others.iter().filter(|other| !is_null(other));
        warnings.extend(others.map(|other| wrong(other, "only the first document of a file counts, not this one")));
        let mut has_rules = false;
        for (key, value) in entries(root, "the file")? {
            match text_of(key)? {
                Some("process_names") => {
                    has_rules = true;
                    for rule in list(value, "process_names")? {
                        rules.push(parse_rule(rule, &compiler, &mut warnings)?);
                    }
                }
                other => warnings.push(unknown(key, other, "process_names")),
            }
        }
        if !has_rules {
            return Err(wrong(root, "process_names is missing, a list of rules"));
        }
        if rules.is_empty() {
            warnings.push(wrong(root, "process_names has no rules: no process is measured"));
        }
        Ok(Config {
            rules: Rules::new(rules),
            warnings,
        })
    }
}

/// Loads the documents of a text. This does not recurse, and it limits the nesting, so that later
/// code does not recurse too deeply.
fn load(text: &str) -> Result<Vec<Node<'_>>, Wrong> {
    const MAX_DEPTH: usize = 32;
    let scanned = |error: &ScanError| Wrong {
        line: error.marker().line(),
        reason: error.info().to_owned(),
    };
    let mut loader = YamlLoader::<Node<'_>>::default();
    // Keep scalars as text: a name may look like a number.
    loader.early_parse(false);
    let mut depth = 0_usize;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| scanned(&error))?;
        match event {
            Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
            Event::SequenceEnd | Event::MappingEnd => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(Wrong {
                line: span.start.line(),
                reason: format!("nested deeper than {MAX_DEPTH} levels"),
            });
        }
        loader.on_event(event, span);
        if let Some(error) = loader.error() {
            return Err(scanned(error));
        }
    }
    Ok(loader.into_documents())
}

fn unknown(key: &Node<'_>, name: Option<&str>, known: &str) -> Wrong {
    let name = name.unwrap_or("null");
    wrong(
        key,
        format!("{name} is not known here and has no effect; known: {known}"),
    )
}

fn parse_rule(node: &Node<'_>, compiler: &Compiler, warnings: &mut Vec<Wrong>) -> Result<Rule, Wrong> {
    let (mut name, mut comm, mut exe, mut cmdline) = (None, None, None, None);
    for (key, value) in entries(node, "a rule")? {
        match text_of(key)? {
            Some("name") => {
                name = text_of(value)?
                    .filter(|text| !text.is_empty())
                    .map(|text| (value, text))
            }
            Some("comm") => comm = texts(value, "comm")?,
            Some("exe") => exe = texts(value, "exe")?,
            Some("cmdline") => cmdline = texts(value, "cmdline")?,
            Some("<<") => return Err(wrong(key, "merge keys (<<) are not supported: write the lists out")),
            other => warnings.push(unknown(key, other, "name, comm, exe, cmdline")),
        }
    }
    if comm.is_none() && exe.is_none() && cmdline.is_none() {
        return Err(wrong(node, "this rule has none of comm, exe and cmdline"));
    }
    let bytes = |list: Vec<(&Node<'_>, &str)>| -> Vec<Vec<u8>> {
        list.into_iter().map(|(_, text)| text.as_bytes().to_vec()).collect()
    };
    let template = match name {
        Some((node, text)) => Template::parse(text).map_err(|reason| wrong(node, format!("name: {reason}")))?,
        None => Template::parse("{{.ExeBase}}").expect("it is a template"),
    };
    let compile = |(node, text): &(&Node<'_>, &str)| {
        let compiled = compiler.compile(text);
        compiled.map_err(|reason| wrong(node, format!("cmdline: {reason}")))
    };
    let expressions: Vec<Regex> = cmdline.iter().flatten().map(compile).collect::<Result<_, _>>()?;
    let names = || {
        expressions
            .iter()
            .flat_map(|expression| expression.capture_names().flatten())
    };
    if let Some(missing) = template
        .captures()
        .find(|&wanted| !names().any(|known| known == wanted))
    {
        let at = name.map_or(node, |(node, _)| node);
        warnings.push(wrong(
            at,
            format!("no cmdline expression of this rule has a group (?P<{missing}>…)"),
        ));
    }
    Ok(Rule {
        name: template,
        comm: comm.map(|list| bytes(list).into_iter().collect()),
        exe: exe.map(bytes),
        cmdline: cmdline.is_some().then_some(expressions),
    })
}

/// Compiles the regular expressions of a file. One takes a quarter of a second if it repeats a
/// large class a hundred times, and a file has room for thousands. So all of them share a time
/// limit.
struct Compiler {
    /// The thread's processor time at the start, in nanoseconds.
    began_ns: u64,
}

impl Compiler {
    /// The limit on processor time. Two thousand usual expressions take a third of a second.
    const MAX_TIME: Duration = Duration::from_secs(3);

    fn new() -> Compiler {
        let began_ns = now_ns(ClockId::ThreadCPUTime);
        Compiler { began_ns }
    }

    fn compile(&self, text: &str) -> Result<Regex, String> {
        let expression = Regex::new(text).map_err(|error| in_one_line(&error))?;
        let took_ns = now_ns(ClockId::ThreadCPUTime) - self.began_ns;
        if Duration::from_nanos(took_ns) > Compiler::MAX_TIME {
            return Err(format!(
                "the expressions up to here take more than {} seconds of processor time to compile: shorten \
                 repetitions of large classes, such as \\w{{100}}",
                Compiler::MAX_TIME.as_secs()
            ));
        }
        Ok(expression)
    }
}

/// Formats the error of an invalid expression as one line, without the marks below the expression.
fn in_one_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let mut parts = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.chars().all(|one| one == '^'));
    let first = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    format!("{first} {}", rest.join(" ")).trim().to_owned()
}

/// The entries of a mapping. Null counts as an empty one.
fn entries<'n, 'a>(node: &'n Node<'a>, what: &str) -> Result<Vec<(&'n Node<'a>, &'n Node<'a>)>, Wrong> {
    match &node.data {
        YamlData::Mapping(mapping) => Ok(mapping.iter().collect()),
        _ if is_null(node) => Ok(Vec::new()),
        _ => Err(wrong(node, format!("{what} is not a mapping of keys to values"))),
    }
}

/// The items of a list. Null counts as an empty one.
fn list<'n, 'a>(node: &'n Node<'a>, what: &str) -> Result<&'n [Node<'a>], Wrong> {
    match &node.data {
        YamlData::Sequence(items) => Ok(items),
        _ if is_null(node) => Ok(&[]),
        _ => Err(wrong(
            node,
            format!("{what} is not a list: its items begin with \"- \""),
        )),
    }
}

/// The texts of a list, each with its place; `None` for null.
#[allow(clippy::type_complexity)]
fn texts<'n, 'a>(node: &'n Node<'a>, what: &str) -> Result<Option<Vec<(&'n Node<'a>, &'n str)>>, Wrong> {
    if is_null(node) {
        return Ok(None);
    }
    let items = list(node, what)?.iter();
    let texts: Result<Vec<_>, Wrong> = items
        .map(|item| Ok((item, text_of(item)?.unwrap_or_default())))
        .collect();
    Ok(Some(texts?))
}

fn is_null(node: &Node<'_>) -> bool {
    matches!(&node.data, YamlData::Representation(text, ScalarStyle::Plain, None)
        if matches!(&**text, "" | "~" | "null" | "Null" | "NULL"))
}

/// The text of a scalar; `None` for null.
fn text_of<'n>(node: &'n Node<'_>) -> Result<Option<&'n str>, Wrong> {
    match &node.data {
        _ if is_null(node) => Ok(None),
        YamlData::Representation(text, ..) => Ok(Some(text)),
        YamlData::Tagged(_, inner) => text_of(inner),
        _ => Err(wrong(node, "text is expected here, not a list or a mapping")),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::super::facts::Facts;
    use super::super::matcher::Verdict;
    use super::*;

    fn group(config: &Config, comm: &str, arguments: &[&str]) -> Verdict {
        let arguments: Vec<&[u8]> = arguments.iter().map(|argument| argument.as_bytes()).collect();
        config.rules.group(&Facts {
            pid: 1,
            comm: comm.as_bytes(),
            arguments: Some(&arguments),
            user: Some(b"root"),
            start_ns: 0,
            boot: Timestamp::UNIX_EPOCH,
            cgroups: None,
        })
    }

    fn named(name: &str) -> Verdict {
        Verdict::Group(name.to_owned())
    }

    /// Check that the examples in process-exporter's documentation mean the same here.
    #[test]
    fn examples_of_process_exporter_are_accepted() {
        let config = Config::parse(
            r#"
process_names:
  # comm is the second field of /proc/<pid>/stat minus parens.
  - comm:
    - bash
  - exe:
    - postgres
    - /usr/local/bin/prometheus
  - name: "{{.ExeFull}}:{{.Matches.Cfgfile}}"
    exe:
    - /usr/local/bin/process-exporter
    cmdline:
    - -config.path\s+(?P<Cfgfile>\S+)
  - exe:
    - /sbin/upstart
    cmdline:
    - --user
    name: upstart:-user
"#,
        )
        .expect("it is a configuration");
        assert_eq!(config.warnings, []);
        for (comm, arguments, verdict) in [
            ("bash", &["-bash"][..], named("-bash")),
            ("postgres", &["/usr/lib/postgres", "-D"], named("postgres")),
            ("prometheus", &["/usr/local/bin/prometheus"], named("prometheus")),
            ("prometheus", &["/usr/bin/prometheus"], Verdict::None),
            (
                "process-exp",
                &["/usr/local/bin/process-exporter", "-config.path", "a.yml"],
                named("/usr/local/bin/process-exporter:a.yml"),
            ),
            ("upstart", &["/sbin/upstart", "--user"], named("upstart:-user")),
            ("upstart", &["/sbin/upstart"], Verdict::None),
        ] {
            assert_eq!(group(&config, comm, arguments), verdict, "{comm} {arguments:?}");
        }
        let usual = Config::usual();
        assert_eq!(group(&usual, "sh", &["sh"]), named("sh"));
        assert_eq!(group(&usual, "kthreadd", &[]), Verdict::None);
    }

    /// Check that problems are reported with their line.
    #[test]
    fn wrong_files_are_refused_with_the_line() {
        for (text, line, reason) in [
            ("", 1, "process_names is missing"),
            ("# nothing\n", 1, "process_names is missing"),
            ("x: 1\n", 1, "process_names is missing"),
            ("- a\n", 1, "not a mapping"),
            ("process_names: 5\n", 1, "not a list"),
            ("process_names:\n- name: x\n", 2, "none of comm, exe and cmdline"),
            ("process_names:\n- name: x\n  comm: bash\n", 3, "comm is not a list"),
            ("process_names:\n- comm:\n  - [a]\n", 3, "text is expected"),
            (
                "process_names:\n- comm: [a]\n- cmdline:\n  - ok\n  - '(a'\n",
                5,
                "unclosed group",
            ),
            (
                "process_names:\n- comm: [a]\n  name: '{{.Com}}'\n",
                3,
                "{{.Com}} is not understood",
            ),
            ("process_names:\n- comm: [a\n", 3, ""),
            ("process_names:\n- comm: [a]\n  comm: [b]\n", 3, "uplicat"),
            ("process_names:\n- comm: *x\n", 2, "anchor"),
            ("process_names:\n\t- comm: [a]\n", 2, ""),
            ("a: &a {comm: [x]}\nprocess_names:\n- <<: *a\n", 3, "merge keys"),
        ] {
            let wrong = Config::parse(text).expect_err(text);
            assert_eq!(wrong.line, line, "{text:?}: {wrong}");
            assert!(wrong.reason.contains(reason), "{text:?}: {wrong}");
            assert!(!wrong.to_string().contains('\n'), "{wrong}");
        }
        let deep = format!("process_names: {}", "[".repeat(100_000));
        let reason = Config::parse(&deep).expect_err("deep").reason;
        assert!(reason.contains("nested") || reason.contains("recursion"), "{reason}");
    }

    /// Check that expressions that take long to compile are refused quickly.
    #[test]
    fn large_expressions_are_refused() {
        let text = format!("process_names:\n{}", "- cmdline: ['\\pL{100}']\n".repeat(2000));
        let began_ns = now_ns(ClockId::ThreadCPUTime);
        let wrong = Config::parse(&text).expect_err("large expressions");
        let took = Duration::from_nanos(now_ns(ClockId::ThreadCPUTime) - began_ns);
        assert!(wrong.reason.contains("processor time") && wrong.line > 2, "{wrong}");
        assert!(took < Compiler::MAX_TIME * 10, "{took:?}");
    }

    /// Check that parts without effect are reported, and that names that look like numbers are
    /// texts.
    #[test]
    fn what_has_no_effect_is_told() {
        let config = Config::parse(
            "process_names:\n- comm: [007, yes, null]\n  name: 1.50\n  coms: []\n\
             - name: '{{.Matches.X}}'\n  cmdline: ['(?P<Y>.)']\nother: 1\n",
        )
        .expect("a configuration");
        let lines: Vec<usize> = config.warnings.iter().map(|warning| warning.line).collect();
        assert_eq!(lines, [4, 5, 7], "{:?}", config.warnings);
        for comm in ["007", "yes", ""] {
            assert_eq!(group(&config, comm, &["x"]), named("1.50"), "{comm}");
        }
        assert_eq!(group(&config, "7", &["x"]), named("<no value>"));
        let several = Config::parse("process_names:\n- comm: [a]\n---\nprocess_names:\n- comm: [b]\n---\n");
        let several = several.expect("a configuration").warnings;
        assert_eq!(
            several.iter().map(|one| one.line).collect::<Vec<_>>(),
            [4],
            "{several:?}"
        );
        let none = Config::parse("process_names: []\n").expect("a configuration");
        assert_eq!((none.rules.is_empty(), none.warnings.len()), (true, 1));
    }

    proptest! {
        /// Check that any text is parsed or refused.
        #[test]
        fn any_text_is_parsed(text in ".{0,200}", like in "(process_names|- |  |name|comm|cmdline|exe|: |\n|[\\[\\]{}&*!|>'\"#a]){0,40}") {
            let _ = Config::parse(&text);
            let _ = Config::parse(&like);
            let _ = Config::parse(&format!("process_names:\n- comm:\n  - {text}\n  name: {like}"));
        }
    }
}
