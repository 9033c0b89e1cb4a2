//! Errors, fields, handles and queries.

use std::ffi::c_char;
use std::ptr;
use std::slice;

use taskdiag::Budget;
use taskdiag_core::setting;

use super::{boxed, exclusive_ref, free, path, shared_ref, text};
use crate::error::{report_result, Code, Error, Result};
use crate::field::{self, Scope};
use crate::fields_gen::REASONS;
use crate::handle::Handle;
use crate::query::{self, Query};

/// Functions that do something with an object, their first argument, and report errors.
macro_rules! setters {
    ($object:ident: $type:ty, $access:ident; $($name:ident($($argument:ident: $of:ty),*) => $work:expr;)*) => {$(
        #[no_mangle]
        pub unsafe extern "C" fn $name($object: $type, $($argument: $of,)* error: *mut *mut Error) -> u32 {
            // SAFETY: the header's rules, here and in the closure.
            unsafe {
                report_result(error, || {
                    let $object = $access(stringify!($object), $object)?;
                    $work
                })
            }
        }
    )*};
}

#[no_mangle]
pub extern "C" fn td_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

// Errors.

#[no_mangle]
pub extern "C" fn td_code_name(code: u32) -> *const c_char {
    Code::name(code).as_ptr()
}

#[no_mangle]
pub unsafe extern "C" fn td_error_code(error: *const Error) -> u32 {
    // SAFETY: the header's rules.
    unsafe { error.as_ref() }.map_or(Code::Ok, |error| error.code) as u32
}

#[no_mangle]
pub unsafe extern "C" fn td_error_message(error: *const Error) -> *const c_char {
    // SAFETY: the header's rules.
    unsafe { error.as_ref() }
        .map_or(c"", |error| error.message.as_c_str())
        .as_ptr()
}

#[no_mangle]
pub unsafe extern "C" fn td_error_free(error: *mut Error) {
    // SAFETY: the header's rules.
    unsafe { free(error, drop) }
}

// Fields.

#[no_mangle]
pub unsafe extern "C" fn td_field_by_name(
    scope: u32,
    name: *const c_char,
    id: *mut u32,
    error: *mut *mut Error,
) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe {
        report_result(error, || {
            let found = field::named(Scope::of(scope)?, text("name", name)?)?;
            *exclusive_ref("field", id)? = found;
            Ok(())
        })
    }
}

#[no_mangle]
pub extern "C" fn td_field_next(id: u32) -> u32 {
    field::next(id)
}

#[no_mangle]
pub extern "C" fn td_field_name(id: u32) -> *const c_char {
    field::row(id).map_or(ptr::null(), |row| row.name.as_ptr())
}

#[no_mangle]
pub extern "C" fn td_field_meaning(id: u32) -> *const c_char {
    field::row(id).map_or(ptr::null(), |row| row.meaning.as_ptr())
}

#[no_mangle]
pub extern "C" fn td_field_kind(id: u32) -> u32 {
    field::row(id).map_or(0, |row| field::kind_number(row.kind()))
}

#[no_mangle]
pub extern "C" fn td_field_type(id: u32) -> u32 {
    field::row(id).map_or(0, |row| row.value_type() as u32)
}

#[no_mangle]
pub extern "C" fn td_absent_name(reason: u32) -> *const c_char {
    REASONS
        .iter()
        .find(|(number, _)| *number == reason)
        .map_or(c"unknown", |(_, name)| name)
        .as_ptr()
}

// Handles.

#[no_mangle]
pub extern "C" fn td_handle_new() -> *mut Handle {
    boxed(Handle::default)
}

#[no_mangle]
pub unsafe extern "C" fn td_handle_free(handle: *mut Handle) {
    // SAFETY: the header's rules.
    unsafe { free(handle, Handle::free) }
}

setters! {
    handle: *mut Handle, shared_ref;
    td_handle_source(name: *const c_char) => handle.set_source(text("source", name)?);
    td_handle_socket(path: *const c_char) => handle.set_socket(self::path(path)?);
    td_handle_patience(seconds: f64) => handle.set_patience(setting::seconds("patience", seconds)?);
    td_handle_prepare(query: *const Query) => handle.prepare(shared_ref("query", query)?);
}

// Queries.

#[no_mangle]
pub extern "C" fn td_query_new(scope: u32) -> *mut Query {
    match Scope::of(scope) {
        Ok(scope) => boxed(|| Query::new(scope)),
        Err(_) => ptr::null_mut(),
    }
}

#[no_mangle]
pub unsafe extern "C" fn td_query_free(query: *mut Query) {
    // SAFETY: the header's rules.
    unsafe { free(query, drop) }
}

setters! {
    query: *mut Query, exclusive_ref;
    td_query_fields(names: *const c_char) => query.add_fields(text("fields", names)?);
    td_query_field(id: u32) => query.add_field(id);
    td_query_where(expression: *const c_char) => query.add_condition(text("where", expression)?);
    td_query_pids(pids: *const u32, len: usize) => query.these(numbers("pids", pids, len)?);
    td_query_children_of(pid: u32) => query.children_of(pid);
    td_query_descendants_of(pid: u32) => query.descendants_of(pid);
    td_query_uses(names: *const c_char) => query.add_uses(text("uses", names)?);
    td_query_kinds(names: *const c_char) => query.add_kinds(text("kinds", names)?);
    td_query_deleted() => query.only_deleted();
    td_query_path(path: *const c_char) => query.add_path(self::path(path)?);
    td_query_threads() => query.add_threads();
    td_query_only_changed() => query.only_changed();
    td_query_patience(seconds: f64) => {
        query.tasks.patience = Some(setting::seconds("patience", seconds)?);
        Ok(())
    };
    td_query_budget(seconds: f64, max_rss_bytes: u64) => {
        let deadline = query::until("budget", seconds)?;
        let most = (max_rss_bytes != u64::MAX).then_some(max_rss_bytes);
        query.tasks.budget = Budget::default().deadline(deadline).max_rss_bytes(most);
        Ok(())
    };
}

/// Numbers from C.
///
/// # Safety
///
/// The header's rules.
unsafe fn numbers<'a>(what: &str, list: *const u32, len: usize) -> Result<&'a [u32]> {
    match len {
        0 => Ok(&[]),
        _ if list.is_null() => Err(Error::null(what)),
        _ if len > isize::MAX as usize / size_of::<u32>() => {
            Err(Error::invalid(format!("{len} {what} are more than memory can hold")))
        }
        // SAFETY: the header's rules.
        _ => Ok(unsafe { slice::from_raw_parts(list, len) }),
    }
}
