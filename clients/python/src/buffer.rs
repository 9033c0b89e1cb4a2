//! The buffer protocol: shares numbers in memory, without copying them.

use std::ffi::{c_int, CStr};
use std::ptr;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use taskdiag_core::column::{Column as Memory, Type};

use crate::column::Column;

/// The numbers of a column: their address, their size, and their format as in the struct module.
struct Numbers {
    start: *const u8,
    size: isize,
    format: &'static CStr,
}

fn numbers(memory: &Memory<i32>) -> Option<Numbers> {
    let bits = memory.numbers.as_ptr().cast();
    let (start, size, format) = match memory.of {
        Type::U64 => (bits, 8, c"Q"),
        Type::I64 => (bits, 8, c"q"),
        Type::F64 => (bits, 8, c"d"),
        Type::U8 => (memory.bytes.as_ptr(), 1, c"?"),
        _ => return None,
    };
    Some(Numbers { start, size, format })
}

/// The size of a number; 0 if the values are not numbers of one size.
pub fn item_size(values: &Column) -> isize {
    numbers(&values.memory).map_or(0, |numbers| numbers.size)
}

/// Shares the numbers of `owner`'s values. `layout` is the number of values and the size of one.
///
/// # Safety
///
/// `view` is NULL or writable, as getbufferproc of the Python/C API requires. `values` and `layout`
/// live as long as `owner`, and never change.
pub unsafe fn export(
    owner: &Bound<'_, PyAny>,
    values: &Column,
    layout: &[isize; 2],
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("there is no place for the view"));
    }
    // SAFETY: the caller guarantees that it is writable. After an error, no object may be in it.
    unsafe { (*view).obj = ptr::null_mut() };
    if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
        return Err(PyBufferError::new_err("columns can't be written to"));
    }
    let Some(numbers) = numbers(&values.memory) else {
        let message = format!("{} has no numbers of one size: to_list() or Arrow have it", values.name);
        return Err(PyBufferError::new_err(message));
    };
    if values.memory.missing > 0 {
        return Err(PyBufferError::new_err(format!(
            "{} of the {} values of {name} are absent, and numbers in memory can't say so. Say what stands for \
             them: column({name:?}, absent={}); column({name:?}).valid says where they are",
            values.memory.missing,
            values.len,
            if values.memory.of == Type::U8 { "False" } else { "0" },
            name = values.name,
        )));
    }
    let wants = |flag: c_int| flags & flag == flag;
    debug_assert_eq!(layout[1], numbers.size);
    // SAFETY: `view` is writable. It points into memory that lives as long as the owner and never
    // changes, and it holds a reference to the owner. It is read-only.
    unsafe {
        let view = &mut *view;
        view.buf = numbers.start.cast_mut().cast();
        view.len = layout[0] * numbers.size;
        view.itemsize = numbers.size;
        view.readonly = 1;
        view.ndim = 1;
        view.format = if wants(ffi::PyBUF_FORMAT) {
            numbers.format.as_ptr().cast_mut()
        } else {
            ptr::null_mut()
        };
        view.shape = if wants(ffi::PyBUF_ND) {
            ptr::from_ref(&layout[0]).cast_mut()
        } else {
            ptr::null_mut()
        };
        view.strides = if wants(ffi::PyBUF_STRIDES) {
            ptr::from_ref(&layout[1]).cast_mut()
        } else {
            ptr::null_mut()
        };
        view.suboffsets = ptr::null_mut();
        view.internal = ptr::null_mut();
        view.obj = owner.clone().into_ptr();
    }
    Ok(())
}
