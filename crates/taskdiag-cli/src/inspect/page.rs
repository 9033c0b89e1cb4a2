//! The content of the page about a process: a pure function of the collected facts.

use taskdiag::{Absent, Arguments, Field, Snapshot, Task};
use taskdiag_core::text::unit::Setting;

use super::cgroup::{self, Text};
use super::sections::{Section, NAMESPACES, SECTIONS};
use super::unit;
use crate::maps::FileSum;
use crate::output::owned::OwnedValue;
use crate::output::relation::Row as _;

/// Why something is missing, as a word.
pub type Reason = &'static str;

/// A value, or why it is missing.
pub type Cell = Result<OwnedValue, Reason>;

/// A limit; `None` is unlimited.
pub fn limit(limit: Option<u64>) -> OwnedValue {
    limit.map_or_else(|| OwnedValue::Text(b"unlimited".into()), OwnedValue::Unsigned)
}

/// The collected facts about a process.
#[derive(Debug)]
pub struct Facts {
    /// The process, with [`fields_of_process`](super::sections::fields_of_process).
    pub process: Snapshot,
    /// The caller's own process, with its namespaces.
    pub own: Result<Snapshot, Reason>,
    /// Its parent, the parent of that, and so on.
    pub parents: Vec<Snapshot>,
    pub threads: Result<Snapshot, Reason>,
    /// The number of threads of its real user.
    pub user_threads: Result<u64, Reason>,
    /// The files of its cgroup: [`cgroup::files`].
    pub cgroup: Vec<Text>,
    /// The settings of its unit.
    pub settings: Result<Vec<Setting>, Reason>,
    pub mappings: Result<Vec<FileSum>, Reason>,
    /// Its descriptors, by kind.
    pub files: Result<Vec<OfKind>, Reason>,
    /// Its sockets, with the values of the section.
    pub sockets: Result<Rows, Reason>,
    /// The names of the requested variables; empty for all. `None`: not requested.
    pub environ: Option<Vec<String>>,
}

/// Descriptors of one kind of file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfKind {
    pub kind: Result<&'static str, Reason>,
    /// The number of descriptors.
    pub count: u64,
    /// The number of those whose file has no name any more.
    pub deleted: Result<u64, Reason>,
}

/// The rows of a section, each with a cell for each of its columns. A section that is no list has one.
pub type Rows = Vec<Vec<Cell>>;

#[derive(Debug)]
pub struct PagePart {
    pub section: Section,
    /// Its content.
    pub body: Result<Rows, Reason>,
}

/// The page, section by section. `None` if the process is not among the facts.
pub fn page(facts: &Facts) -> Option<Vec<PagePart>> {
    let task = facts.process.tasks().next()?;
    let parts = SECTIONS.iter().filter_map(|&(section, _)| {
        let body = body(section, facts, &task)?;
        Some(PagePart { section, body })
    });
    Some(parts.collect())
}

fn body(section: Section, facts: &Facts, task: &Task<'_>) -> Option<Result<Rows, Reason>> {
    let values = |task: Task<'_>| -> Vec<Cell> {
        let cell = |&field: &Field| task.cell(field as usize).map(OwnedValue::new);
        section.fields().iter().map(cell).collect()
    };
    let rows = match section {
        Section::Parents => {
            let parents = facts.parents.iter().flat_map(|parent| parent.tasks().next());
            Ok(parents.map(values).collect())
        }
        Section::Threads => found(&facts.threads).map(|threads| threads.tasks().map(values).collect()),
        Section::Unit => found(&facts.settings).map(|settings| unit::compare(settings, task)),
        Section::Limits => limits(task, facts.user_threads),
        Section::CgroupUse => match facts.cgroup.iter().find(|text| text.is_ok()) {
            Some(_) => Ok(vec![cgroup::used(&facts.cgroup)]),
            None => Err(why_no_cgroup(facts)),
        },
        Section::Pressure => cgroup::pressures(&facts.cgroup),
        Section::Namespaces => Ok(namespaces(facts, task)),
        Section::Mappings => found(&facts.mappings).map(|sums| mappings(sums)),
        Section::Network => {
            let counted = task.net_since_ns().map_err(Absent::as_str);
            counted.map(|_| vec![values(*task)])
        }
        Section::Files => found(&facts.files).map(|kinds| files(kinds)),
        Section::Sockets => facts.sockets.clone(),
        Section::Environ => {
            let names = facts.environ.as_ref()?;
            let environ = task.environ().map_err(Absent::as_str);
            environ.map(|environ| variables(environ, names))
        }
        _ => Ok(vec![values(*task)]),
    };
    Some(rows)
}

/// What was found, or why nothing was.
fn found<T>(found: &Result<T, Reason>) -> Result<&T, Reason> {
    found.as_ref().map_err(|reason| *reason)
}

fn why_no_cgroup(facts: &Facts) -> Reason {
    let reasons = facts.cgroup.iter().filter_map(|text| text.as_ref().err());
    reasons.copied().next().unwrap_or(Absent::Unsupported).as_str()
}

/// A row for each limit: its soft and hard value and the current use. `user_threads` is the current
/// use of `nproc`.
pub fn limits(task: &Task<'_>, user_threads: Result<u64, Reason>) -> Result<Rows, Reason> {
    const SECOND: u64 = 1_000_000_000;
    let used = |limit: &str| -> Result<u64, Reason> {
        let used = match limit {
            "cpu" => task
                .utime_ns()
                .and_then(|user| Ok(user.saturating_add(task.stime_ns()?) / SECOND)),
            "data" => task.data_bytes(),
            "stack" => task.stack_bytes(),
            "rss" => task.rss_bytes(),
            "nproc" => return user_threads,
            "nofile" => task.fd_count().map(u64::from),
            "memlock" => task.locked_bytes(),
            "as" => task.vsize_bytes(),
            "sigpending" => task.sig_queued_count(),
            // That of nice is about what the process may ask for: it is no measure of the nice value.
            "rtprio" => task.rt_priority().map(u64::from),
            _ => return Err("none"),
        };
        used.map_err(Absent::as_str)
    };
    let limits = task.limits().map_err(Absent::as_str)?;
    let row = |(name, soft, hard): (&'static str, Option<u64>, Option<u64>)| {
        let used = used(name);
        let percent = match (used, soft) {
            (Err(reason), _) => Err(reason),
            (_, None | Some(0)) => Err("none"),
            (Ok(used), Some(soft)) => Ok(OwnedValue::Float(used as f64 * 100.0 / soft as f64)),
        };
        vec![
            Ok(OwnedValue::Text(name.into())),
            Ok(limit(soft)),
            Ok(limit(hard)),
            used.map(OwnedValue::Unsigned),
            percent,
        ]
    };
    Ok(limits.iter().map(row).collect())
}

fn namespaces(facts: &Facts, task: &Task<'_>) -> Rows {
    let own = facts.own.as_ref().ok().and_then(|own| own.tasks().next());
    let row = |(name, field): (&'static str, Field)| {
        let theirs = task.value(field).map_err(Absent::as_str);
        let ours = match (&facts.own, own.as_ref()) {
            (Err(reason), _) => Err(*reason),
            (_, None) => Err("gone"),
            (_, Some(own)) => own.value(field).map_err(Absent::as_str),
        };
        let is_own = theirs.and_then(|theirs| Ok(OwnedValue::Flag(theirs == ours?)));
        vec![Ok(OwnedValue::Text(name.into())), theirs.map(OwnedValue::new), is_own]
    };
    NAMESPACES.into_iter().map(row).collect()
}

/// A row for each sum of mappings.
pub fn mappings(sums: &[FileSum]) -> Rows {
    let known = |bytes: Result<u64, Absent>| bytes.map(OwnedValue::Unsigned).map_err(Absent::as_str);
    let row = |sum: &FileSum| {
        vec![
            known(sum.rss_bytes),
            Ok(OwnedValue::Unsigned(sum.size_bytes)),
            known(sum.dirty_bytes),
            known(sum.hugetlb_bytes),
            Ok(OwnedValue::Unsigned(sum.mappings)),
            Ok(OwnedValue::Text(sum.name.clone())),
        ]
    };
    sums.iter().map(row).collect()
}

fn files(kinds: &[OfKind]) -> Rows {
    let row = |of: &OfKind| {
        vec![
            of.kind.map(|kind| OwnedValue::Text(kind.into())),
            Ok(OwnedValue::Unsigned(of.count)),
            of.deleted.map(OwnedValue::Unsigned),
        ]
    };
    kinds.iter().map(row).collect()
}

/// The variables of an environment with these names, in the order of the environment; all if there
/// are no names. A requested variable that does not exist has no value.
pub fn variables(environ: Arguments<'_>, names: &[String]) -> Rows {
    let row = |name: &[u8], value: Option<&[u8]>| {
        let value = value.map(|value| OwnedValue::Text(value.into()));
        vec![Ok(OwnedValue::Text(name.into())), value.ok_or("none")]
    };
    let split = |entry: &[u8]| -> (Vec<u8>, Option<Vec<u8>>) {
        match entry.iter().position(|&byte| byte == b'=') {
            Some(at) => (entry[..at].to_vec(), Some(entry[at + 1..].to_vec())),
            None => (entry.to_vec(), None),
        }
    };
    let all: Vec<_> = environ.iter().map(split).collect();
    let is_asked = |name: &[u8]| names.is_empty() || names.iter().any(|asked| asked.as_bytes() == name);
    let found = all.iter().filter(|(name, _)| is_asked(name));
    let mut rows: Rows = found.map(|(name, value)| row(name, value.as_deref())).collect();
    let is_missing = |asked: &&String| all.iter().all(|(name, _)| name != asked.as_bytes());
    rows.extend(names.iter().filter(is_missing).map(|name| row(name.as_bytes(), None)));
    rows
}

#[cfg(test)]
mod tests {
    use taskdiag::{Handle, Query, Value};

    use super::super::sections::fields_of_process;
    use super::*;

    /// Facts about this process.
    pub fn facts() -> Facts {
        let pid = std::process::id();
        let fields = fields_of_process() | Field::Environ;
        let mut handle = Handle::new();
        let mut query = |query: Query| handle.query(&query).expect("our own process");
        Facts {
            process: query(Query::process(pid).fields(fields)),
            own: Ok(query(Query::process(pid).fields(fields))),
            parents: Vec::new(),
            threads: Err("no answer"),
            user_threads: Ok(3),
            cgroup: vec![Err(Absent::Gone); cgroup::files().len()],
            settings: Err("none"),
            mappings: Err("denied"),
            files: Ok(vec![OfKind {
                kind: Ok("fifo"),
                count: 2,
                deleted: Ok(0),
            }]),
            sockets: Ok(Vec::new()),
            environ: None,
        }
    }

    fn part(parts: &[PagePart], section: Section) -> &Result<Rows, Reason> {
        &parts
            .iter()
            .find(|part| part.section == section)
            .expect("a section")
            .body
    }

    fn row<'a>(parts: &'a [PagePart], section: Section, name: &str) -> &'a [Cell] {
        let rows = part(parts, section).as_ref().expect("a list");
        let is_named = |row: &&Vec<Cell>| {
            let first = row[0].as_ref().map(OwnedValue::value);
            first == Ok(Value::Text(name.as_bytes()))
        };
        rows.iter().find(is_named).expect("a row")
    }

    /// Check that missing sections have their reasons, and that the others are there.
    #[test]
    fn missing_sections_have_reasons() {
        let facts = facts();
        let parts = page(&facts).expect("a process");
        let reason = |section| part(&parts, section).as_ref().err().copied();
        assert_eq!(reason(Section::Threads), Some("no answer"));
        assert_eq!(reason(Section::Mappings), Some("denied"));
        assert_eq!(reason(Section::CgroupUse), Some("gone"));
        assert_eq!((reason(Section::Unit), reason(Section::Memory)), (Some("none"), None));
        assert!(parts.iter().all(|part| part.section != Section::Environ));
        assert_eq!(parts.len(), SECTIONS.len() - 1);
    }

    /// Check that limits are shown next to their current use.
    #[test]
    fn limits_are_compared() {
        let facts = facts();
        let parts = page(&facts).expect("a process");
        let value = |name: &str, at: usize| -> Result<Value<'static>, Reason> {
            match row(&parts, Section::Limits, name)[at].as_ref() {
                Ok(kept) => match kept.value() {
                    Value::Unsigned(number) => Ok(Value::Unsigned(number)),
                    Value::Float(number) => Ok(Value::Float(number)),
                    _ => Err("another value"),
                },
                Err(reason) => Err(*reason),
            }
        };
        assert_eq!(value("nproc", 3), Ok(Value::Unsigned(3)));
        let task = facts.process.task(0);
        assert_eq!(
            value("nofile", 3),
            Ok(Value::Unsigned(task.fd_count().expect("a number").into()))
        );
        assert_eq!(value("core", 3), Err("none"));
        let (_, soft, _) = task.limits().expect("limits").iter().nth(7).expect("nofile");
        match soft {
            Some(soft) => assert_eq!(value("nofile", 1), Ok(Value::Unsigned(soft))),
            None => assert_eq!(value("nofile", 4), Err("none")),
        }
    }

    /// Check that a namespace that is also the caller's is recognized.
    #[test]
    fn namespaces_are_compared() {
        let mut facts = facts();
        let is_own = |facts: &Facts| row(&page(facts).expect("a process"), Section::Namespaces, "net")[2].clone();
        assert!(is_own(&facts).is_ok_and(|own| own.value() == Value::Flag(true)));
        facts.own = Err("denied");
        assert!(is_own(&facts).is_err_and(|reason| reason == "denied"));
    }

    /// Check that only requested variables are shown, and that a variable may have no value.
    #[test]
    fn variables_are_chosen() {
        let environ = Arguments::new(b"A=1\0B=x=y\0C\0A=2\0");
        let shown = |names: &[&str]| -> Vec<String> {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let text = |cell: &Cell| match cell {
                Ok(kept) => kept.value().to_string(),
                Err(reason) => format!("({reason})"),
            };
            let rows = variables(environ, &names);
            rows.iter()
                .map(|row| row.iter().map(text).collect::<Vec<_>>().join(" "))
                .collect()
        };
        assert_eq!(shown(&[]), ["A 1", "B x=y", "C (none)", "A 2"]);
        assert_eq!(shown(&["B", "D"]), ["B x=y", "D (none)"]);
    }
}
