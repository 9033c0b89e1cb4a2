//! The buffer protocol: shares numbers in memory, without copying them.

use std::ffi::{c_int, CStr};
use std::ptr;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::column::{Column, Data};

/// The numbers of a column: their address, their size, and their format as in the struct module.
struct Numbers {
    start: *const u8,
    size: isize,
    format: &'static CStr,
}

fn numbers(data: &Data) -> Option<Numbers> {
    let (start, size, format) = match data {
        Data::Unsigned(values) | Data::Mask(values) => (values.inner().as_ptr(), 8, c"Q"),
        Data::Signed(values) => (values.inner().as_ptr(), 8, c"q"),
        Data::Float(values) => (values.inner().as_ptr(), 8, c"d"),
        Data::Flag(values) => (values.inner().as_ptr(), 1, c"?"),
        Data::Text(_) | Data::TextLists(..) | Data::NumberLists(..) | Data::LimitLists(..) | Data::OwnerLists(..) => {
            return None
        }
    };
    Some(Numbers { start, size, format })
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
    let Some(numbers) = numbers(&values.data) else {
        let message = format!("{} has no numbers of one size: to_list() or Arrow have it", values.name);
        return Err(PyBufferError::new_err(message));
    };
    if values.absent_count() > 0 {
        return Err(PyBufferError::new_err(format!(
            "{} of the {} values of {name} are absent, and numbers in memory can't say so. Say what stands for \
             them: column({name:?}, absent={}); column({name:?}).valid says where they are",
            values.absent_count(),
            values.len,
            if matches!(values.data, Data::Flag(_)) {
                "False"
            } else {
                "0"
            },
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
