//! The functions of `taskdiag.h`.
//!
//! The header states what callers must guarantee: pointers to objects are NULL or come from this
//! library and were not freed, texts end with a NUL, lists are as long as stated, and places for
//! results are writable. `SAFETY: the header's rules` refers to this.

mod answer;
mod ask;
mod read;

use std::ffi::{c_char, CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::ptr;

use crate::error::{catch_panic, Error, Result};

/// The object at a pointer.
///
/// # Safety
///
/// The header's rules.
unsafe fn shared_ref<'a, T>(what: &str, pointer: *const T) -> Result<&'a T> {
    // SAFETY: the header's rules.
    unsafe { pointer.as_ref() }.ok_or_else(|| Error::null(what))
}

/// The object at a pointer, for writing.
///
/// # Safety
///
/// The header's rules.
unsafe fn exclusive_ref<'a, T>(what: &str, pointer: *mut T) -> Result<&'a mut T> {
    // SAFETY: the header's rules.
    unsafe { pointer.as_mut() }.ok_or_else(|| Error::null(what))
}

/// A text from C.
///
/// # Safety
///
/// The header's rules.
unsafe fn bytes<'a>(what: &str, text: *const c_char) -> Result<&'a [u8]> {
    if text.is_null() {
        return Err(Error::null(what));
    }
    // SAFETY: the header's rules.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// A text from C, in UTF-8.
///
/// # Safety
///
/// The header's rules.
unsafe fn text<'a>(what: &str, text: *const c_char) -> Result<&'a str> {
    // SAFETY: the header's rules.
    let bytes = unsafe { bytes(what, text) }?;
    std::str::from_utf8(bytes).map_err(|_| Error::invalid(format!("{what} is not UTF-8")))
}

/// A path from C.
///
/// # Safety
///
/// The header's rules.
unsafe fn path(path: *const c_char) -> Result<PathBuf> {
    // SAFETY: the header's rules.
    let bytes = unsafe { bytes("path", path) }?;
    Ok(PathBuf::from(OsStr::from_bytes(bytes)))
}

/// Drops an object of this library.
///
/// # Safety
///
/// The header's rules.
unsafe fn free<T>(pointer: *mut T, end: impl FnOnce(Box<T>)) {
    if !pointer.is_null() {
        // SAFETY: the header's rules.
        let object = unsafe { Box::from_raw(pointer) };
        catch_panic((), || end(object));
    }
}

fn boxed<T>(make: impl FnOnce() -> T) -> *mut T {
    catch_panic(ptr::null_mut(), || Box::into_raw(Box::new(make())))
}
