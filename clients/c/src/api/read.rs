//! Tables: values of rows, and whole columns.

use std::ffi::{c_char, CStr};
use std::ptr;
use std::slice;

use taskdiag::Absent;
use taskdiag_core::column::{reason, Type};

use super::{free, text};
use crate::table::{Column, Table};

/// A byte string: `td_text`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Text {
    data: *const c_char,
    len: usize,
}

impl Text {
    const EMPTY: Text = Text {
        data: c"".as_ptr(),
        len: 0,
    };

    fn new(bytes: &[u8]) -> Text {
        if bytes.is_empty() {
            return Text::EMPTY;
        }
        Text {
            data: bytes.as_ptr().cast(),
            len: bytes.len(),
        }
    }
}

/// Numbers: `td_ids`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Ids {
    data: *const u32,
    len: usize,
}

/// All texts of a column: `td_texts`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Texts {
    offsets: *const u64,
    bytes: *const c_char,
}

/// All lists of a column: `td_id_lists`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IdLists {
    offsets: *const u64,
    ids: *const u32,
}

#[no_mangle]
pub unsafe extern "C" fn td_table_free(table: *mut Table) {
    // SAFETY: the header's rules.
    unsafe { free(table, drop) }
}

#[no_mangle]
pub unsafe extern "C" fn td_table_len(table: *const Table) -> usize {
    // SAFETY: the header's rules.
    unsafe { table.as_ref() }.map_or(0, |table| table.len)
}

/// Returns a list, and stores its length if the caller wants it.
///
/// # Safety
///
/// The header's rules.
unsafe fn list(list: &[u32], len: *mut usize) -> *const u32 {
    // SAFETY: the header's rules.
    if let Some(place) = unsafe { len.as_mut() } {
        *place = list.len();
    }
    list.as_ptr()
}

#[no_mangle]
pub unsafe extern "C" fn td_table_fields(table: *const Table, len: *mut usize) -> *const u32 {
    // SAFETY: the header's rules.
    unsafe { list(table.as_ref().map_or(&[], |table| &table.ids), len) }
}

#[no_mangle]
pub unsafe extern "C" fn td_table_missing(table: *const Table, len: *mut usize) -> *const u32 {
    // SAFETY: the header's rules.
    unsafe { list(table.as_ref().map_or(&[], |table| &table.missing), len) }
}

#[no_mangle]
pub unsafe extern "C" fn td_table_source(table: *const Table, id: u32) -> *const c_char {
    // SAFETY: the header's rules.
    let source = unsafe { table.as_ref() }.and_then(|table| table.source(id));
    source.map_or(ptr::null(), CStr::as_ptr)
}

#[no_mangle]
pub unsafe extern "C" fn td_table_counter(table: *const Table, name: *const c_char, otherwise: u64) -> u64 {
    // SAFETY: the header's rules.
    let (table, name) = unsafe { (table.as_ref(), text("name", name)) };
    let count = table.zip(name.ok()).and_then(|(table, name)| table.counter(name));
    count.unwrap_or(otherwise)
}

// Values of rows.

/// The column of a field, if the table has it.
///
/// # Safety
///
/// The header's rules.
unsafe fn column<'a>(table: *const Table, id: u32) -> Option<&'a Column> {
    // SAFETY: the header's rules.
    unsafe { table.as_ref() }?.column(id)
}

/// Picks from the values of a field, if the row has one.
///
/// # Safety
///
/// The header's rules.
unsafe fn of_row<'a, T>(
    table: *const Table,
    row: usize,
    id: u32,
    pick: impl FnOnce(&'a Column) -> Option<T>,
) -> Option<T> {
    // SAFETY: the header's rules.
    let column = unsafe { column(table, id) }?;
    (*column.reasons.get(row)? == 0).then(|| pick(column))?
}

#[no_mangle]
pub unsafe extern "C" fn td_absent_of(table: *const Table, row: usize, id: u32) -> u32 {
    // SAFETY: the header's rules.
    let known = unsafe { column(table, id) }.and_then(|column| column.reasons.get(row).copied());
    known.unwrap_or(reason(Absent::NotAsked)).into()
}

/// The bits of a number of this type.
fn bits(column: &Column, row: usize, of: Type) -> Option<u64> {
    column.numbers.get(row).copied().filter(|_| column.of == of)
}

#[no_mangle]
pub unsafe extern "C" fn td_u64(table: *const Table, row: usize, id: u32, otherwise: u64) -> u64 {
    let pick = |column: &Column| match column.of {
        Type::U64 => column.numbers.get(row).copied(),
        Type::U8 => column.bytes.get(row).copied().map(u64::from),
        _ => None,
    };
    // SAFETY: the header's rules.
    unsafe { of_row(table, row, id, pick) }.unwrap_or(otherwise)
}

#[no_mangle]
pub unsafe extern "C" fn td_i64(table: *const Table, row: usize, id: u32, otherwise: i64) -> i64 {
    // SAFETY: the header's rules.
    unsafe { of_row(table, row, id, |column| bits(column, row, Type::I64)) }.map_or(otherwise, |bits| bits as i64)
}

#[no_mangle]
pub unsafe extern "C" fn td_f64(table: *const Table, row: usize, id: u32, otherwise: f64) -> f64 {
    // SAFETY: the header's rules.
    unsafe { of_row(table, row, id, |column| bits(column, row, Type::F64)) }.map_or(otherwise, f64::from_bits)
}

#[no_mangle]
pub unsafe extern "C" fn td_text_of(table: *const Table, row: usize, id: u32) -> Text {
    // SAFETY: the header's rules.
    unsafe { of_row(table, row, id, |column| Some(column.text(row))) }.map_or(Text::EMPTY, Text::new)
}

#[no_mangle]
pub unsafe extern "C" fn td_ids_of(table: *const Table, row: usize, id: u32) -> Ids {
    // SAFETY: the header's rules.
    let ids = unsafe { of_row(table, row, id, |column| Some(column.ids(row))) }.unwrap_or_default();
    Ids {
        data: ids.as_ptr(),
        len: ids.len(),
    }
}

#[no_mangle]
pub unsafe extern "C" fn td_limits_of(table: *const Table, row: usize, id: u32) -> *const u64 {
    // SAFETY: the header's rules.
    let limits = unsafe { of_row(table, row, id, |column| column.limits(row)) };
    limits.map_or(ptr::null(), <[u64]>::as_ptr)
}

#[no_mangle]
pub unsafe extern "C" fn td_text_next(rest: *mut Text, item: *mut Text) -> bool {
    // SAFETY: the header's rules.
    let (Some(rest), Some(item)) = (unsafe { rest.as_mut() }, unsafe { item.as_mut() }) else {
        return false;
    };
    if rest.len == 0 || rest.data.is_null() {
        return false;
    }
    // SAFETY: the header's rules.
    let bytes: &[u8] = unsafe { slice::from_raw_parts(rest.data.cast(), rest.len) };
    let end = bytes.iter().position(|&byte| byte == 0);
    *item = Text::new(&bytes[..end.unwrap_or(bytes.len())]);
    *rest = Text::new(end.map_or(&[], |end| &bytes[end + 1..]));
    true
}

// Columns.

/// The values of a column, one per row; NULL if the table has no such column of this type.
///
/// # Safety
///
/// The header's rules.
unsafe fn all<T>(table: *const Table, id: u32, of: Type) -> *const T {
    // SAFETY: the header's rules.
    match unsafe { column(table, id) }.filter(|column| column.of == of) {
        Some(column) if of == Type::U8 => column.bytes.as_ptr().cast(),
        Some(column) => column.numbers.as_ptr().cast(),
        None => ptr::null(),
    }
}

#[no_mangle]
pub unsafe extern "C" fn td_column_absent(table: *const Table, id: u32) -> *const u8 {
    // SAFETY: the header's rules.
    unsafe { column(table, id) }.map_or(ptr::null(), |column| column.reasons.as_ptr())
}

#[no_mangle]
pub unsafe extern "C" fn td_column_absent_count(table: *const Table, id: u32) -> usize {
    // SAFETY: the header's rules.
    let (table, column) = unsafe { (table.as_ref(), column(table, id)) };
    // Without the column, no row has a value.
    column.map_or(table.map_or(0, |table| table.len), |column| column.missing)
}

/// Functions that return a whole column.
macro_rules! columns {
    ($($name:ident: $variant:ident of $type:ty;)*) => {$(
        #[no_mangle]
        pub unsafe extern "C" fn $name(table: *const Table, id: u32) -> *const $type {
            // SAFETY: the header's rules.
            unsafe { all(table, id, Type::$variant) }
        }
    )*};
}

columns! {
    td_column_u64: U64 of u64;
    td_column_i64: I64 of i64;
    td_column_f64: F64 of f64;
    td_column_u8: U8 of u8;
    td_column_limits: Limits of u64;
}

#[no_mangle]
pub unsafe extern "C" fn td_column_texts(table: *const Table, id: u32) -> Texts {
    // SAFETY: the header's rules.
    match unsafe { column(table, id) } {
        Some(column) if column.of == Type::Text => Texts {
            offsets: column.ends.as_ptr(),
            bytes: column.bytes.as_ptr().cast(),
        },
        _ => Texts {
            offsets: ptr::null(),
            bytes: ptr::null(),
        },
    }
}

#[no_mangle]
pub unsafe extern "C" fn td_column_ids(table: *const Table, id: u32) -> IdLists {
    // SAFETY: the header's rules.
    match unsafe { column(table, id) } {
        Some(column) if column.of == Type::Ids => IdLists {
            offsets: column.ends.as_ptr(),
            ids: column.ids.as_ptr(),
        },
        _ => IdLists {
            offsets: ptr::null(),
            ids: ptr::null(),
        },
    }
}
