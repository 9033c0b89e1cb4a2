//! The sockets of the machine.

use std::ops::ControlFlow;

use pyo3::prelude::*;
use taskdiag::sockets::{Answer, Filter, Kinds, Request, Row, SocketField, State, Where};
use taskdiag::Query;
use taskdiag_core::socket::state_named;

use crate::errors;
use crate::query;
use crate::rows::{keys, Key, Rows};
use crate::table::{About, Table};

/// What rows can have, as the command's.
pub const KEYS: [Key; SocketField::ALL.len()] = keys!(SocketField: Owners | Peers);

/// The columns of a call that names none: all but other ends and what TCP knows of connections.
pub fn usual(info: bool) -> Vec<usize> {
    let usual = Request::default().fields;
    let is_usual = |&index: &usize| {
        let field = SocketField::ALL[index];
        usual.contains(field) || info && field.is_of_tcp()
    };
    (0..KEYS.len()).filter(is_usual).collect()
}

fn kinds(name: &str) -> PyResult<Kinds> {
    const KINDS: [(&str, Kinds); 7] = [
        ("tcp", Kinds::TCP),
        ("udp", Kinds::UDP),
        ("raw", Kinds::RAW),
        ("unix", Kinds::UNIX),
        ("netlink", Kinds::NETLINK),
        ("packet", Kinds::PACKET),
        ("vsock", Kinds::VSOCK),
    ];
    let found = KINDS.iter().find(|(known, _)| *known == name);
    found.map(|(_, kinds)| *kinds).ok_or_else(|| {
        let known = KINDS.map(|(known, _)| known).join(", ");
        errors::invalid(format!("kinds: {name:?} is none; known are {known}"))
    })
}

fn state(name: &str) -> PyResult<State> {
    state_named(name).map_err(|known| errors::invalid(format!("states: {name:?} is none; {known}")))
}

/// What a call asks for.
#[derive(Debug)]
pub struct Asked {
    /// The processes that may be owners.
    pub query: Query,
    request: Request,
    chosen: Vec<usize>,
}

/// What narrows an answer down.
#[derive(Debug, Default)]
pub struct Narrowed<'a, 'py> {
    /// The names of kinds.
    pub kinds: Option<&'a Bound<'py, PyAny>>,
    /// The names of states.
    pub states: Option<&'a Bound<'py, PyAny>>,
    /// An expression.
    pub filter: Option<&'a str>,
    /// Ports at either end.
    pub ports: Vec<u16>,
    /// Only those that wait for a peer.
    pub listening: bool,
    /// Only those that one of the processes has.
    pub owned: bool,
    /// Only those of the caller's own network namespace.
    pub own_netns: bool,
}

impl Asked {
    /// What a call asks for, with the processes of `query`.
    ///
    /// # Errors
    ///
    /// For names that are not known, and a text that is no filter.
    pub fn new(query: Query, chosen: Vec<usize>, narrowed: Narrowed<'_, '_>) -> PyResult<Asked> {
        let mut request = Request::default();
        let fields = chosen.iter().map(|&index| SocketField::ALL[index]);
        request.fields = fields.collect();
        if let Some(names) = narrowed.kinds {
            request.kinds = query::names(names)?
                .iter()
                .map(|name| kinds(name))
                .collect::<PyResult<_>>()?;
        }
        if let Some(names) = narrowed.states {
            request.states = query::names(names)?
                .iter()
                .map(|name| state(name))
                .collect::<PyResult<_>>()?;
        }
        if let Some(expression) = narrowed.filter {
            let filter = Filter::parse(expression).map_err(|error| errors::not_a_filter(&error))?;
            request.filter = Some(filter);
        }
        request.ports = narrowed.ports;
        request.listening = narrowed.listening;
        request.owned = narrowed.owned;
        if narrowed.own_netns {
            request.place = Where::Here;
        }
        Ok(Asked { query, request, chosen })
    }

    /// Asks.
    ///
    /// # Errors
    ///
    /// Those of the library.
    pub fn ask(&self, state: &mut query::State) -> taskdiag::Result<Table> {
        if self.request.has_owners() {
            state.handle.query_into(&self.query, &mut state.snapshot)?;
        }
        let mut rows = Rows::new(&KEYS, &self.chosen);
        let answer = state.handle.sockets(&state.snapshot, &self.request, |socket| {
            let row = Row::new(socket);
            rows.push_with(|column, index| {
                let field = SocketField::ALL[index];
                column.push_found(row.descriptors(field), row.value(field));
            });
            ControlFlow::Continue(())
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
