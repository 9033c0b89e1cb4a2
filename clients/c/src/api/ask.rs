//! Errors, fields, handles and queries.

use std::ffi::c_char;
use std::ptr;
use std::slice;

use taskdiag::Budget;
use taskdiag_core::setting;

use super::{changed, free, given, made, path, text};
use crate::error::{answered, Code, Error};
use crate::field::{self, Scope};
use crate::fields_gen::REASONS;
use crate::handle::Handle;
use crate::query::{self, Query};

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
        answered(error, || {
            let found = field::named(Scope::of(scope)?, text("name", name)?)?;
            *changed("field", id)? = found;
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
    made(Handle::default)
}

#[no_mangle]
pub unsafe extern "C" fn td_handle_free(handle: *mut Handle) {
    // SAFETY: the header's rules.
    unsafe { free(handle, Handle::free) }
}

#[no_mangle]
pub unsafe extern "C" fn td_handle_source(handle: *mut Handle, name: *const c_char, error: *mut *mut Error) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe { answered(error, || given("handle", handle)?.set_source(text("source", name)?)) }
}

#[no_mangle]
pub unsafe extern "C" fn td_handle_socket(handle: *mut Handle, path: *const c_char, error: *mut *mut Error) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe { answered(error, || given("handle", handle)?.set_socket(self::path(path)?)) }
}

#[no_mangle]
pub unsafe extern "C" fn td_handle_patience(handle: *mut Handle, seconds: f64, error: *mut *mut Error) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe {
        answered(error, || {
            let patience = setting::seconds("patience", seconds)?;
            given("handle", handle)?.set_patience(patience)
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn td_handle_prepare(handle: *mut Handle, query: *const Query, error: *mut *mut Error) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe { answered(error, || given("handle", handle)?.prepare(given("query", query)?)) }
}

// Queries.

#[no_mangle]
pub extern "C" fn td_query_new(scope: u32) -> *mut Query {
    match Scope::of(scope) {
        Ok(scope) => made(|| Query::new(scope)),
        Err(_) => ptr::null_mut(),
    }
}

#[no_mangle]
pub unsafe extern "C" fn td_query_free(query: *mut Query) {
    // SAFETY: the header's rules.
    unsafe { free(query, drop) }
}

#[no_mangle]
pub unsafe extern "C" fn td_query_fields(query: *mut Query, names: *const c_char, error: *mut *mut Error) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe { answered(error, || changed("query", query)?.add_fields(text("fields", names)?)) }
}

#[no_mangle]
pub unsafe extern "C" fn td_query_field(query: *mut Query, id: u32, error: *mut *mut Error) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe { answered(error, || changed("query", query)?.add_field(id)) }
}

#[no_mangle]
pub unsafe extern "C" fn td_query_where(query: *mut Query, expression: *const c_char, error: *mut *mut Error) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe {
        answered(error, || {
            changed("query", query)?.add_condition(text("where", expression)?)
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn td_query_pids(query: *mut Query, pids: *const u32, len: usize, error: *mut *mut Error) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe {
        answered(error, || {
            let pids = match len {
                0 => &[],
                _ if pids.is_null() => return Err(Error::null("pids")),
                _ if len > isize::MAX as usize / size_of::<u32>() => {
                    return Err(Error::invalid(format!("{len} pids are more than memory can hold")));
                }
                _ => slice::from_raw_parts(pids, len),
            };
            changed("query", query)?.these(pids)
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn td_query_children_of(query: *mut Query, pid: u32, error: *mut *mut Error) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe { answered(error, || changed("query", query)?.children_of(pid)) }
}

#[no_mangle]
pub unsafe extern "C" fn td_query_descendants_of(query: *mut Query, pid: u32, error: *mut *mut Error) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe { answered(error, || changed("query", query)?.descendants_of(pid)) }
}

#[no_mangle]
pub unsafe extern "C" fn td_query_uses(query: *mut Query, names: *const c_char, error: *mut *mut Error) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe { answered(error, || changed("query", query)?.add_uses(text("uses", names)?)) }
}

#[no_mangle]
pub unsafe extern "C" fn td_query_kinds(query: *mut Query, names: *const c_char, error: *mut *mut Error) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe { answered(error, || changed("query", query)?.add_kinds(text("kinds", names)?)) }
}

#[no_mangle]
pub unsafe extern "C" fn td_query_deleted(query: *mut Query, error: *mut *mut Error) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe { answered(error, || changed("query", query)?.only_deleted()) }
}

#[no_mangle]
pub unsafe extern "C" fn td_query_path(query: *mut Query, path: *const c_char, error: *mut *mut Error) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe { answered(error, || changed("query", query)?.add_path(self::path(path)?)) }
}

#[no_mangle]
pub unsafe extern "C" fn td_query_threads(query: *mut Query, error: *mut *mut Error) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe { answered(error, || changed("query", query)?.add_threads()) }
}

#[no_mangle]
pub unsafe extern "C" fn td_query_only_changed(query: *mut Query, error: *mut *mut Error) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe { answered(error, || changed("query", query)?.only_changed()) }
}

#[no_mangle]
pub unsafe extern "C" fn td_query_patience(query: *mut Query, seconds: f64, error: *mut *mut Error) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe {
        answered(error, || {
            let patience = setting::seconds("patience", seconds)?;
            changed("query", query)?.set_patience(patience);
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn td_query_budget(
    query: *mut Query,
    seconds: f64,
    max_rss_bytes: u64,
    error: *mut *mut Error,
) -> u32 {
    // SAFETY: the header's rules, here and in the closure.
    unsafe {
        answered(error, || {
            let deadline = query::until("budget", seconds)?;
            let most = (max_rss_bytes != u64::MAX).then_some(max_rss_bytes);
            let budget = Budget::default().deadline(deadline).max_rss_bytes(most);
            changed("query", query)?.set_budget(budget);
            Ok(())
        })
    }
}
