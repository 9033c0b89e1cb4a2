//! Errors: a code and a text.

use std::ffi::{CStr, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};

use taskdiag::{ErrorKind, ParseError, UnknownField};
use taskdiag_core::escape;

/// The codes of `td_code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    Ok = 0,
    NoSuchTask = 1,
    NoMemory = 2,
    Denied = 3,
    Unsupported = 4,
    NoAnswer = 5,
    Malformed = 6,
    InvalidInput = 7,
    System = 8,
    Forked = 9,
    Internal = 10,
    NoThread = 11,
}

impl Code {
    const ALL: [Code; 12] = [
        Code::Ok,
        Code::NoSuchTask,
        Code::NoMemory,
        Code::Denied,
        Code::Unsupported,
        Code::NoAnswer,
        Code::Malformed,
        Code::InvalidInput,
        Code::System,
        Code::Forked,
        Code::Internal,
        Code::NoThread,
    ];

    /// The code in words. Kinds of errors of the library have the library's names.
    pub fn name(code: u32) -> &'static CStr {
        let known = Code::ALL.into_iter().find(|&known| known as u32 == code);
        known.map_or(c"unknown", |code| match code {
            Code::Ok => c"ok",
            Code::NoSuchTask => c"no such task",
            Code::NoMemory => c"no memory",
            Code::Denied => c"denied",
            Code::Unsupported => c"unsupported",
            Code::NoAnswer => c"no answer",
            Code::Malformed => c"malformed",
            Code::InvalidInput => c"invalid input",
            Code::System => c"system error",
            Code::Forked => c"forked",
            Code::Internal => c"internal error",
            Code::NoThread => c"no thread",
        })
    }
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
pub fn guarded<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
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
pub unsafe fn answered(error: *mut *mut Error, work: impl FnOnce() -> Result<()>) -> u32 {
    let result = guarded(None, || Some(work())).unwrap_or_else(|| {
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
            let names = Code::ALL.map(|code| Code::name(code as u32).to_str().unwrap_or_default());
            assert_eq!(names.iter().filter(|&&name| name == kind.as_str()).count(), 1);
        }
        assert_eq!(Code::name(Code::ALL.len() as u32), c"unknown");
    }

    /// Check that a panic becomes an error, and that the place for the error is optional.
    #[test]
    fn panics_become_errors() {
        let mut error = std::ptr::null_mut();
        // SAFETY: the place is on the stack.
        let code = unsafe { answered(&mut error, || panic!("on purpose")) };
        assert_eq!(code, Code::Internal as u32);
        // SAFETY: it was made by `answered`.
        let error = unsafe { Box::from_raw(error) };
        assert_eq!(error.code, Code::Internal);
        // SAFETY: NULL is allowed.
        let code = unsafe { answered(std::ptr::null_mut(), || Err(Error::invalid("a\0b"))) };
        assert_eq!(code, Code::InvalidInput as u32);
        assert_eq!(
            Error::invalid("ä\0\n\x1b\u{85}b").message.as_c_str(),
            c"ä\\x00\\n\\x1b\\u{85}b"
        );
    }
}
