//! The files that processes use.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use taskdiag::files::{AnonKind, Answer, Filter, Kinds, OpenFile, PathMatch, Request, Use, Uses, Wants};
use taskdiag::{Absent, Field, Fields, Kind, Known, Query, Task, Value};

use crate::errors;
use crate::fork;
use crate::query;
use crate::rows::{descriptors, key, Cell, Key, Rows};
use crate::table::{About, Table};

/// What rows can have, as the command's.
pub const KEYS: [Key; 21] = [
    key("pid", Kind::Id),
    key("comm", Kind::Text),
    key("use", Kind::Text),
    key("fd", Kind::Id),
    key("kind", Kind::Text),
    key("anon_kind", Kind::Text),
    key("access", Kind::Text),
    key("open_flags", Kind::Mask),
    key("offset_bytes", Kind::Signed),
    key("size_bytes", Kind::Bytes),
    key("allocated_bytes", Kind::Bytes),
    key("dev_major", Kind::Id),
    key("dev_minor", Kind::Id),
    key("inode", Kind::Id),
    key("nlink", Kind::Count),
    key("deleted", Kind::Flag),
    key("mnt_id", Kind::Id),
    key("name", Kind::Text),
    key("detail", Kind::Text),
    key("user", Kind::Text),
    descriptors("peers"),
];
const COMM: usize = 1;
const ALLOCATED: usize = 10;
const DETAIL: usize = 18;
const USER: usize = 19;
const PEERS: usize = 20;

/// The columns of a call that names none.
pub fn usual() -> Vec<usize> {
    (0..KEYS.len())
        .filter(|key| ![ALLOCATED, DETAIL, USER, PEERS].contains(key))
        .collect()
}

/// What has to be read for a column.
fn wants_of(key: usize) -> Wants {
    match KEYS[key].name {
        "name" => Wants::NAMES,
        "access" | "open_flags" | "offset_bytes" | "mnt_id" => Wants::FLAGS,
        "detail" => Wants::DETAIL,
        "peers" => Wants::PEERS,
        "allocated_bytes" => Wants::SPACE,
        "pid" | "comm" | "use" | "fd" | "user" => Wants::empty(),
        _ => Wants::STAT,
    }
}

/// The kinds that a name stands for.
fn kinds(name: &str) -> PyResult<Kinds> {
    const KINDS: [(&str, Kinds); 8] = [
        ("file", Kinds::FILE),
        ("dir", Kinds::DIR),
        ("char", Kinds::CHAR),
        ("block", Kinds::BLOCK),
        ("fifo", Kinds::FIFO),
        ("socket", Kinds::SOCKET),
        ("link", Kinds::LINK),
        ("anon", Kinds::ANON),
    ];
    let plain = KINDS.iter().find(|(known, _)| *known == name).map(|(_, kinds)| *kinds);
    let anon = AnonKind::ALL.into_iter().find(|kind| kind.name() == name);
    plain.or(anon.map(Kinds::from)).ok_or_else(|| {
        let known = KINDS.iter().map(|(known, _)| *known);
        let known: Vec<&str> = known.chain(AnonKind::ALL.iter().map(|kind| kind.name())).collect();
        errors::invalid(format!("kinds: {name:?} is none; known are {}", known.join(", ")))
    })
}

fn uses(name: &str) -> PyResult<Uses> {
    let found = Use::ALL.into_iter().find(|one| one.name() == name).map(Uses::from);
    found.or((name == "all").then(Uses::all)).ok_or_else(|| {
        let known: Vec<&str> = Use::ALL.iter().map(|one| one.name()).chain(["all"]).collect();
        errors::invalid(format!("uses: {name:?} is none; known are {}", known.join(", ")))
    })
}

/// What a call asks for.
#[derive(Debug)]
pub struct Asked {
    /// The processes.
    pub query: Query,
    request: Request,
    chosen: Vec<usize>,
}

impl Asked {
    /// What a call asks for, of the processes of `query`.
    ///
    /// # Errors
    ///
    /// For names that are not known, and a path that leads nowhere.
    pub fn new(
        py: Python<'_>,
        query: Query,
        chosen: Vec<usize>,
        given: [Option<&Bound<'_, PyAny>>; 2],
        deleted: bool,
        paths: &[PathBuf],
    ) -> PyResult<Asked> {
        let mut fields = Fields::from(Field::StartNs);
        for (key, field) in [(COMM, Field::Comm), (USER, Field::User)] {
            if chosen.contains(&key) {
                fields |= field;
            }
        }
        let mut request = Request::default();
        request.wants = chosen.iter().map(|&key| wants_of(key)).collect();
        let mut filter = Filter::default();
        let [given_uses, given_kinds] = given;
        if let Some(names) = given_uses {
            filter.uses = query::names(names)?
                .iter()
                .map(|name| uses(name))
                .collect::<PyResult<_>>()?;
        } else if deleted || !paths.is_empty() {
            filter.uses = Uses::all();
        }
        if let Some(names) = given_kinds {
            filter.kinds = Some(
                query::names(names)?
                    .iter()
                    .map(|name| kinds(name))
                    .collect::<PyResult<_>>()?,
            );
        }
        filter.deleted = deleted;
        for path in paths {
            // A file server may not answer.
            let found = fork::ask(py, || PathMatch::new(path, Duration::from_millis(200)))?;
            filter.paths.push(found.map_err(|error| errors::of(&error))?);
        }
        request.filter = filter;
        Ok(Asked {
            query: query.fields(fields),
            request,
            chosen,
        })
    }

    /// Asks.
    ///
    /// # Errors
    ///
    /// Those of the library.
    pub fn ask(&self, state: &mut query::State) -> taskdiag::Result<Table> {
        state.handle.query_into(&self.query, &mut state.snapshot)?;
        let mut rows = Rows::new(&KEYS, &self.chosen);
        let answer = state.handle.files(&state.snapshot, &self.request, |task, file| {
            rows.push_with(|column, key| match key {
                PEERS => column.push_owners(of_descriptor(file.peers)),
                key => column.push(cell(task, file, key)),
            });
            ControlFlow::Continue(())
        })?;
        Ok(rows.finish(about(&answer, state.snapshot.missing())))
    }
}

fn about(answer: &Answer, missing: &[u32]) -> About {
    About {
        sources: vec![("files", answer.source.name())],
        counters: vec![
            ("files", answer.files),
            ("denied", answer.denied),
            ("gone", answer.gone),
            ("changed", answer.changed),
            ("undecided", answer.undecided),
            ("malformed", answer.malformed),
            ("deferred", answer.deferred),
            ("no_answer", answer.silent.len() as u64),
        ],
        missing: missing.to_vec(),
    }
}

fn known<T>(value: Known<T>, make: impl Fn(T) -> Value<'static>) -> Cell<'static> {
    value.map(make).map_err(Absent::as_str)
}

/// A value that only descriptors have.
fn of_descriptor<T>(value: Known<Option<T>>) -> Result<T, &'static str> {
    value.map_err(Absent::as_str)?.ok_or("none")
}

fn word(word: &'static str) -> Value<'static> {
    Value::Text(word.as_bytes())
}

fn cell<'a>(task: &Task<'a>, file: &OpenFile<'a>, key: usize) -> Cell<'a> {
    let number = |number: u32| Value::Unsigned(number.into());
    match key {
        0 => task.pid().map(number).map_err(Absent::as_str),
        1 => task.comm().map(Value::Text).map_err(Absent::as_str),
        2 => Ok(word(file.used_as.name())),
        3 => of_descriptor(Ok(file.fd)).map(number),
        4 => known(file.kind, |kind| word(kind.name())),
        5 => of_descriptor(file.kind.map(|kind| kind.anon())).map(|kind| word(kind.name())),
        6 => of_descriptor(file.access()).map(|access| word(access.name())),
        7 => of_descriptor(file.open_flags).map(|flags| Value::Mask(flags.into())),
        8 => of_descriptor(file.offset_bytes).map(Value::Signed),
        9 => known(file.size_bytes, Value::Unsigned),
        10 => known(file.allocated_bytes, Value::Unsigned),
        11 => known(file.device, |device| number(device.major)),
        12 => known(file.device, |device| number(device.minor)),
        13 => known(file.inode, Value::Unsigned),
        14 => known(file.nlink, number),
        15 => known(file.is_deleted(), Value::Flag),
        16 => known(file.mnt_id, number),
        17 => file.name.map(Value::Text).map_err(Absent::as_str),
        18 => of_descriptor(file.detail).map(Value::Text),
        _ => task.user().map(Value::Text).map_err(Absent::as_str),
    }
}
