//! Errors: a code and a text.

use std::ffi::{CStr, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};

use taskdiag::{ErrorKind, ParseError, UnknownField};
use taskdiag_core::escape;

/// Codes: the name, the number and the text of each.
macro_rules! codes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// The codes of `td_code`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Code {
            $($name = $number),*
        }

        impl Code {
            /// The code in words. Kinds of errors of the library have the library's names.
            pub fn name(code: u32) -> &'static CStr {
                match code {
                    $($number => $text,)*
                    _ => c"unknown",
                }
            }
        }
    };
}

codes! {
    Ok = 0, c"ok";
    NoSuchTask = 1, c"no such task";
    NoMemory = 2, c"no memory";
    Denied = 3, c"denied";
    Unsupported = 4, c"unsupported";
    NoAnswer = 5, c"no answer";
    Malformed = 6, c"malformed";
    InvalidInput = 7, c"invalid input";
    System = 8, c"system error";
    Forked = 9, c"forked";
    Internal = 10, c"internal error";
    NoThread = 11, c"no thread";
}

/// Why a function failed: `td_error`.
#[derive(Debug)]
pub struct Error {
    /// The kind of error.
    pub code: Code,
    /// The message for users.
    pub message: CString,
}

/// The result of a function in this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with this message, in one line without control characters.
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error {
            code,
            // A path or a name in it may have any characters.
            message: CString::new(escape::line(&message.into())).unwrap_or_default(),
        }
    }

    /// An invalid argument.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(Code::InvalidInput, message)
    }

    /// A pointer that must not be NULL.
    pub fn null(what: &str) -> Error {
        Error::invalid(format!("{what} is NULL"))
    }
}

impl From<taskdiag::Error> for Error {
    fn from(error: taskdiag::Error) -> Error {
        let code = match error.kind() {
            ErrorKind::NoSuchTask => Code::NoSuchTask,
            ErrorKind::NoMemory => Code::NoMemory,
            ErrorKind::Denied => Code::Denied,
            ErrorKind::Unsupported => Code::Unsupported,
            ErrorKind::NoAnswer => Code::NoAnswer,
            ErrorKind::NoThread => Code::NoThread,
            ErrorKind::Malformed => Code::Malformed,
            ErrorKind::InvalidInput => Code::InvalidInput,
            _ => Code::System,
        };
        Error::new(code, format!("{error:#}"))
    }
}

impl From<UnknownField> for Error {
    fn from(error: UnknownField) -> Error {
        Error::invalid(error.to_string())
    }
}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Error {
        // In one line: without the expression and the mark below it.
        Error::invalid(format!("not a filter: column {}: {}", error.column(), error.message))
    }
}

/// Returns the result of `work`, or `otherwise` if it panics: a panic must not reach C.
pub fn catch_panic<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        // Dropping the payload of a panic may panic again.
        std::mem::forget(payload);
        otherwise
    })
}

/// Returns the code for the result of `work`. Stores the error in `error` unless that is NULL.
///
/// # Safety
///
/// `error` must be NULL or writable.
pub unsafe fn report_result(error: *mut *mut Error, work: impl FnOnce() -> Result<()>) -> u32 {
    let result = catch_panic(None, || Some(work())).unwrap_or_else(|| {
        let message = "a defect in libtaskdiag, whose message is on standard error: please report it";
        Err(Error::new(Code::Internal, message))
    });
    let code = result.as_ref().err().map_or(Code::Ok, |error| error.code);
    if !error.is_null() {
        let made = result
            .err()
            .map_or(std::ptr::null_mut(), |error| Box::into_raw(Box::new(error)));
        // SAFETY: the caller's promise.
        unsafe { error.write(made) };
    }
    code as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that codes are named like the library's kinds of errors.
    #[test]
    fn codes_are_named_as_in_the_library() {
        for kind in [
            ErrorKind::NoSuchTask,
            ErrorKind::NoMemory,
            ErrorKind::Denied,
            ErrorKind::Unsupported,
            ErrorKind::NoAnswer,
            ErrorKind::NoThread,
            ErrorKind::Malformed,
            ErrorKind::InvalidInput,
            ErrorKind::System,
        ] {
            let mut names = (0..=Code::NoThread as u32).map(Code::name);
            assert!(names.any(|name| name.to_str() == Ok(kind.as_str())), "{kind:?}");
        }
        assert_eq!(Code::name(Code::NoThread as u32 + 1), c"unknown");
    }

    /// Check that a panic becomes an error, and that the place for the error is optional.
    #[test]
    fn panics_become_errors() {
        let mut error = std::ptr::null_mut();
        // SAFETY: the place is on the stack.
        let code = unsafe { report_result(&mut error, || panic!("on purpose")) };
        assert_eq!(code, Code::Internal as u32);
        // SAFETY: it was made by `answered`.
        let error = unsafe { Box::from_raw(error) };
        assert_eq!(error.code, Code::Internal);
        // SAFETY: NULL is allowed.
        let code = unsafe { report_result(std::ptr::null_mut(), || Err(Error::invalid("a\0b"))) };
        assert_eq!(code, Code::InvalidInput as u32);
        assert_eq!(
            Error::invalid("ä\0\n\x1b\u{85}b").message.as_c_str(),
            c"ä\\x00\\n\\x1b\\u{85}b"
        );
    }
}
