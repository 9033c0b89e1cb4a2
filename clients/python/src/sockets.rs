//! The sockets of the machine.

use pyo3::prelude::*;
use pyo3::types::PyString;
use taskdiag::sockets::{Answer, Filter, Kind, Request, Row, SocketField};
use taskdiag::Query;
use taskdiag_core::column::reason;
use taskdiag_core::setting;
use taskdiag_core::socket::state_named;

use crate::errors;
use crate::query;
use crate::rows::{keys, Key, Rows};
use crate::table::{About, Table};

/// The possible columns, as in the command.
pub const KEYS: [Key; SocketField::ALL.len()] = keys!(SocketField: Owners | Peers);

/// The default columns: all except peers and, without `info`, TCP's information about connections.
pub fn usual(info: bool) -> Vec<usize> {
    let usual = Request::default().fields;
    let is_usual = |&index: &usize| {
        let field = SocketField::ALL[index];
        usual.contains(field) || info && field.is_of_tcp()
    };
    (0..KEYS.len()).filter(is_usual).collect()
}

/// The request of a call.
#[derive(Debug)]
pub struct Asked {
    /// The processes that may be owners.
    pub query: Query,
    request: Request,
    chosen: Vec<usize>,
}

/// The selection of sockets.
#[derive(Debug, Default)]
pub struct Narrowed<'a, 'py> {
    /// The names of kinds.
    pub kinds: Option<&'a Bound<'py, PyAny>>,
    /// The names of states.
    pub states: Option<&'a Bound<'py, PyAny>>,
    /// A filter.
    pub filter: Option<&'a Bound<'py, PyString>>,
    /// Ports at either end.
    pub ports: Vec<u16>,
    /// Only sockets that wait for a peer.
    pub listening: bool,
    /// Only sockets that one of the processes owns.
    pub owned: bool,
    /// Only sockets in the caller's own network namespace.
    pub own_netns: bool,
}

impl Asked {
    /// Creates the request, with the processes of `query` as possible owners.
    ///
    /// # Errors
    ///
    /// If a name is unknown, or the text is not a filter.
    pub fn new(query: Query, chosen: Vec<usize>, narrowed: Narrowed<'_, '_>) -> PyResult<Asked> {
        let mut request = Request::default();
        let fields = chosen.iter().map(|&index| SocketField::ALL[index]);
        request.fields = fields.collect();
        if let Some(names) = narrowed.kinds {
            request.kinds = query::names(names)?
                .iter()
                .map(|name| errors::checked(setting::one_of("kinds", name, &Kind::ALL, Kind::name)))
                .collect::<PyResult<_>>()?;
        }
        if let Some(names) = narrowed.states {
            request.states = query::names(names)?
                .iter()
                .map(|name| errors::checked(setting::known("states", name, state_named)))
                .collect::<PyResult<_>>()?;
        }
        if let Some(expression) = narrowed.filter {
            let filter = Filter::parse(query::expression(expression)?).map_err(|error| errors::not_a_filter(&error))?;
            request.filter = Some(filter);
        }
        request.ports = narrowed.ports;
        request.listening = narrowed.listening;
        request.owned = narrowed.owned;
        request.own_namespace = narrowed.own_netns;
        Ok(Asked { query, request, chosen })
    }

    /// Makes the query.
    ///
    /// # Errors
    ///
    /// Errors of the library.
    pub fn ask(&self, state: &mut query::State) -> taskdiag::Result<Table> {
        if self.request.has_owners() {
            state.handle.query_into(&self.query, &mut state.snapshot)?;
        }
        let mut rows = Rows::new(&KEYS, &self.chosen);
        let (snapshot, request) = (&state.snapshot, &self.request);
        let answer = state.handle.with_patience_of(&self.query, |handle| {
            handle.sockets(snapshot, request, |socket| {
                let row = Row::new(socket);
                rows.push_with(|column, index| column.push(row.value(SocketField::ALL[index]).map_err(reason)));
                rows.goes_on()
            })
        })?;
        let missing = if self.request.has_owners() {
            state.snapshot.missing().to_vec()
        } else {
            Vec::new()
        };
        Ok(rows.finish(about(&answer, missing)))
    }
}

fn about(answer: &Answer, missing: Vec<u32>) -> About {
    About {
        sources: answer.unsupported.iter().map(|&list| (list, "unsupported")).collect(),
        counters: answer.named().collect(),
        missing,
    }
}
