//! The files that processes use.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use pyo3::prelude::*;
use taskdiag::files::{Answer, FileField, PathMatch, Request, Row, Use};
use taskdiag::{Error, Field, Fields, Query, Set};
use taskdiag_core::column::reason;
use taskdiag_core::set::Member;
use taskdiag_core::setting;

use crate::errors;
use crate::fork;
use crate::query;
use crate::rows::{keys, Key, Rows};
use crate::table::{About, Table};

/// The possible columns, as in the command.
pub const KEYS: [Key; FileField::ALL.len()] = keys!(FileField: Peers);

/// The default columns.
pub fn usual() -> Vec<usize> {
    Request::default().fields.iter().map(|field| field as usize).collect()
}

/// Parses names to a set.
fn named<T: Member>(names: &Bound<'_, PyAny>, argument: &str) -> PyResult<Set<T>>
where
    Set<T>: FromStr<Err = Error>,
{
    let names = query::names(names)?;
    names
        .iter()
        .map(|name| errors::checked(setting::known(argument, name, str::parse::<Set<T>>)))
        .collect()
}

/// The request of a call.
#[derive(Debug)]
pub struct Asked {
    /// The processes.
    pub query: Query,
    request: Request,
    chosen: Vec<usize>,
}

impl Asked {
    /// Creates the request, for the processes of `query`.
    ///
    /// # Errors
    ///
    /// If a name is unknown, or a path does not exist.
    pub fn new(
        py: Python<'_>,
        query: Query,
        chosen: Vec<usize>,
        given: [Option<&Bound<'_, PyAny>>; 2],
        deleted: bool,
        paths: &[PathBuf],
    ) -> PyResult<Asked> {
        let asked = chosen.iter().map(|&index| FileField::ALL[index]);
        let of_tasks: Fields = asked.clone().filter_map(FileField::of_tasks).collect();
        let mut request = Request::default();
        request.fields = asked.collect();
        let [given_uses, given_kinds] = given;
        if let Some(names) = given_uses {
            request.uses = named(names, "uses")?;
        } else if deleted || !paths.is_empty() {
            request.uses = Use::ALL.into();
        }
        if let Some(names) = given_kinds {
            request.kinds = Some(named(names, "kinds")?);
        }
        request.deleted = deleted;
        for path in paths {
            // The file server may not answer.
            let found = fork::ask(py, || PathMatch::new(path, Duration::from_millis(200)))?;
            request.paths.push(found.map_err(|error| errors::of(&error))?);
        }
        Ok(Asked {
            query: query.fields(of_tasks | Field::StartNs),
            request,
            chosen,
        })
    }

    /// Makes the query.
    ///
    /// # Errors
    ///
    /// Errors of the library.
    pub fn ask(&self, state: &mut query::State) -> taskdiag::Result<Table> {
        state.handle.query_into(&self.query, &mut state.snapshot)?;
        let mut rows = Rows::new(&KEYS, &self.chosen);
        let (snapshot, request) = (&state.snapshot, &self.request);
        let answer = state.handle.with_patience_of(&self.query, |handle| {
            handle.files(snapshot, request, |task, file| {
                let row = Row::new(task, file);
                rows.push_with(|column, index| column.push(row.value(FileField::ALL[index]).map_err(reason)));
                rows.goes_on()
            })
        })?;
        Ok(rows.finish(about(&answer, state.snapshot.missing())))
    }
}

fn about(answer: &Answer, missing: &[u32]) -> About {
    About {
        sources: vec![("files", answer.source.name())],
        counters: answer.named().collect(),
        missing: missing.to_vec(),
    }
}
