//! Why a query as a whole has no answer.

use std::fmt;
use std::io;

/// What went wrong, with what to do about it where there is something to do.
///
/// A missing *value* is not an error but an [`Absent`](crate::absent::Absent).
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    cause: Option<io::Error>,
}

/// The kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No such process or thread, or it is hidden from the caller.
    NoSuchTask,
    /// There is an address space no more, or never was one: a kernel thread, a zombie, a process that ended or called exec.
    NoMemory,
    /// The caller lacks a right.
    Denied,
    /// This kernel, or this host as it is set up, can't do it.
    Unsupported,
    /// A process kept what asking about it takes for longer than the patience.
    NoAnswer,
    /// A source answered with something that can't be right.
    Malformed,
    /// A system call failed for another reason.
    System,
}

impl Error {
    #[doc(hidden)]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error {
            kind,
            message: message.into(),
            cause: None,
        }
    }

    /// An error of the kind that `cause` is of, about `what`.
    #[doc(hidden)]
    pub fn io(what: impl Into<String>, cause: impl Into<io::Error>) -> Error {
        let cause = cause.into();
        let kind = match cause.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => ErrorKind::Denied,
            Some(libc::ESRCH) => ErrorKind::NoSuchTask,
            Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::ENOTTY) => ErrorKind::Unsupported,
            _ => ErrorKind::System,
        };
        Error {
            kind,
            message: what.into(),
            cause: Some(cause),
        }
    }

    #[doc(hidden)]
    pub fn no_such_process(pid: u32) -> Error {
        let message = format!("no process with pid {pid} (it may have ended, or be hidden from you)");
        Error::new(ErrorKind::NoSuchTask, message)
    }

    #[doc(hidden)]
    pub fn no_answer(pid: Option<u32>) -> Error {
        let message = match pid {
            Some(pid) => format!("no answer from pid {pid}"),
            None => "no answer from the process".to_owned(),
        };
        Error::new(ErrorKind::NoAnswer, message)
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(cause) => write!(f, "{}: {cause}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}

/// A result whose error is an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
