//! Queries that fill tables, and events as they happen.

use std::ffi::{c_char, c_int};

use super::{exclusive_ref, free, path, shared_ref, text};
use crate::error::{catch_panic, report_result, Code, Error, Result};
use crate::events::Events;
use crate::field::Scope;
use crate::handle::Handle;
use crate::query::{self, Query};
use crate::table::Table;

/// Fills the table that `table` points to; creates it if there is none.
///
/// # Safety
///
/// The header's rules.
unsafe fn filled(table: *mut *mut Table, fill: impl FnOnce(&mut Table) -> Result<()>) -> Result<()> {
    // SAFETY: the header's rules.
    let place = unsafe { exclusive_ref("table", table)? };
    // SAFETY: the header's rules.
    match unsafe { place.as_mut() } {
        Some(table) => fill(table),
        None => {
            let mut table = Table::default();
            fill(&mut table)?;
            *place = Box::into_raw(Box::new(table));
            Ok(())
        }
    }
}

/// Returns the code of `work`, which fills a table. After an error, or a panic, the table has
/// nothing.
///
/// # Safety
///
/// The header's rules.
unsafe fn filling(table: *mut *mut Table, error: *mut *mut Error, work: impl FnOnce() -> Result<()>) -> u32 {
    // SAFETY: the header's rules.
    let code = unsafe { report_result(error, work) };
    if code != Code::Ok as u32 {
        // SAFETY: the header's rules; `work` is over.
        if let Some(table) = unsafe { table.as_mut().and_then(|place| place.as_mut()) } {
            catch_panic((), || *table = Table::default());
        }
    }
    code
}

/// Makes a query, and puts the answer into a table.
///
/// # Safety
///
/// The header's rules.
unsafe fn ask(handle: *mut Handle, query: &Query, table: *mut *mut Table) -> Result<()> {
    // SAFETY: the header's rules.
    unsafe {
        let handle = shared_ref("handle", handle)?;
        filled(table, |table| handle.ask(query, table))
    }
}

/// Queries rows of a scope with these fields, chosen by `narrow`.
///
/// # Safety
///
/// The header's rules.
unsafe fn ask_for(
    scope: Scope,
    handle: *mut Handle,
    names: *const c_char,
    table: *mut *mut Table,
    error: *mut *mut Error,
    narrow: impl FnOnce(&mut Query) -> Result<()>,
) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe {
        filling(table, error, || {
            let mut query = Query::new(scope);
            query.add_fields(text("fields", names)?)?;
            narrow(&mut query)?;
            ask(handle, &query, table)
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn td_ask(
    handle: *mut Handle,
    query: *const Query,
    table: *mut *mut Table,
    error: *mut *mut Error,
) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe { filling(table, error, || ask(handle, shared_ref("query", query)?, table)) }
}

/// Functions that query rows, each with its scope. The condition may be NULL.
macro_rules! ask_for_scopes {
    ($($name:ident: $scope:ident;)*) => {$(
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            handle: *mut Handle,
            names: *const c_char,
            expression: *const c_char,
            table: *mut *mut Table,
            error: *mut *mut Error,
        ) -> u32 {
            // SAFETY: the header's rules, here and in the closure.
            unsafe {
                ask_for(Scope::$scope, handle, names, table, error, |query| {
                    if expression.is_null() {
                        return Ok(());
                    }
                    query.add_condition(text("where", expression)?)
                })
            }
        }
    )*};
}

ask_for_scopes! {
    td_processes: Processes;
    td_threads: Threads;
    td_sockets: Sockets;
    td_files: Files;
}

#[no_mangle]
pub unsafe extern "C" fn td_maps(
    handle: *mut Handle,
    pid: u32,
    names: *const c_char,
    table: *mut *mut Table,
    error: *mut *mut Error,
) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe { ask_for(Scope::Maps, handle, names, table, error, |query| query.these(&[pid])) }
}

#[no_mangle]
pub unsafe extern "C" fn td_cachestat(
    handle: *mut Handle,
    path: *const c_char,
    names: *const c_char,
    table: *mut *mut Table,
    error: *mut *mut Error,
) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe {
        ask_for(Scope::Cache, handle, names, table, error, |query| {
            query.add_path(self::path(path)?)
        })
    }
}

// Events.

#[no_mangle]
pub unsafe extern "C" fn td_events_open(
    query: *const Query,
    source: *const c_char,
    events: *mut *mut Events,
    error: *mut *mut Error,
) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe {
        report_result(error, || {
            let place = exclusive_ref("events", events)?;
            let source = if source.is_null() {
                "auto"
            } else {
                text("source", source)?
            };
            *place = Box::into_raw(Box::new(Events::open(shared_ref("query", query)?, source)?));
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn td_events_next(
    events: *mut Events,
    timeout: f64,
    table: *mut *mut Table,
    error: *mut *mut Error,
) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe {
        filling(table, error, || {
            let events = shared_ref("events", events)?;
            let timeout = query::until("timeout", timeout)?;
            filled(table, |table| events.next(timeout, table))
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn td_events_fd(events: *const Events) -> c_int {
    // SAFETY: the header's rules.
    unsafe { events.as_ref() }.map_or(-1, Events::fd)
}

#[no_mangle]
pub unsafe extern "C" fn td_events_free(events: *mut Events) {
    // SAFETY: the header's rules.
    unsafe { free(events, Events::free) }
}
