//! The files that processes use.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use pyo3::prelude::*;
use taskdiag::files::{Answer, FileField, Filter, PathMatch, Request, Row, Use};
use taskdiag::{Error, Field, Fields, Query, Set};
use taskdiag_core::set::Member;

use crate::errors;
use crate::fork;
use crate::query;
use crate::rows::{keys, Key, Rows};
use crate::table::{About, Table};

/// What rows can have, as the command's.
pub const KEYS: [Key; FileField::ALL.len()] = keys!(FileField: Peers);

/// The columns of a call that names none.
pub fn usual() -> Vec<usize> {
    Request::default().fields.iter().map(|field| field as usize).collect()
}

/// The sets that names stand for, put together.
fn named<T: Member>(names: &Bound<'_, PyAny>, argument: &str) -> PyResult<Set<T>>
where
    Set<T>: FromStr<Err = Error>,
{
    let unknown = |name: &str, error| errors::invalid(format!("{argument}: {name:?} is none; {error}"));
    let names = query::names(names)?;
    names
        .iter()
        .map(|name| name.parse::<Set<T>>().map_err(|error| unknown(name, error)))
        .collect()
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
        let asked = chosen.iter().map(|&index| FileField::ALL[index]);
        let of_tasks: Fields = asked.clone().filter_map(FileField::of_tasks).collect();
        let mut request = Request::default();
        request.fields = asked.collect();
        let mut filter = Filter::default();
        let [given_uses, given_kinds] = given;
        if let Some(names) = given_uses {
            filter.uses = named(names, "uses")?;
        } else if deleted || !paths.is_empty() {
            filter.uses = Use::ALL.into();
        }
        if let Some(names) = given_kinds {
            filter.kinds = Some(named(names, "kinds")?);
        }
        filter.deleted = deleted;
        for path in paths {
            // A file server may not answer.
            let found = fork::ask(py, || PathMatch::new(path, Duration::from_millis(200)))?;
            filter.paths.push(found.map_err(|error| errors::of(&error))?);
        }
        request.filter = filter;
        Ok(Asked {
            query: query.fields(of_tasks | Field::StartNs),
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
            let row = Row::new(task, file);
            rows.push_with(|column, index| {
                let field = FileField::ALL[index];
                column.push_found(row.descriptors(field), row.value(field));
            });
            ControlFlow::Continue(())
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
