//! Why a whole query failed.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use crate::absent::Absent;

/// What went wrong, and where possible what to do about it.
///
/// `{}` prints only the message, `{:#}` also its cause. [`source`](StdError::source) returns the
/// cause, which is an [`io::Error`] if a system call failed.
///
/// A missing *value* is not an error but an [`Absent`].
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

crate::named_enum! {
    /// The kinds of [`Error`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum ErrorKind {
        /// There is no such process or thread, or it is hidden from the caller.
        NoSuchTask => "no such task",
        /// The process has no address space: it is a kernel thread or a zombie, or it has ended or
        /// replaced its memory by execve(2).
        NoMemory => "no memory",
        /// The caller lacks a permission.
        Denied => "denied",
        /// This kernel can't do it, or this host is not configured for it.
        Unsupported => "unsupported",
        /// A process kept its reader waiting longer than the patience.
        NoAnswer => "no answer",
        /// No thread or process can be started to read what may wait.
        NoThread => "no thread",
        /// A source sent invalid data.
        Malformed => "malformed",
        /// The caller asked for something that does not exist, such as an unknown field or a file
        /// of another kind.
        InvalidInput => "invalid input",
        /// A system call failed for another reason.
        System => "system error",
    }
    /// The kind in a few words.
    pub fn as_str;
    impl Display;
}

impl Error {
    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// For the other crates of this project.
#[doc(hidden)]
impl Error {
    /// An error that no system call caused.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error {
            kind,
            message: message.into(),
            source: None,
        }
    }

    /// A failed system call. `what` names the operation; the kind follows from `cause`.
    pub fn io(what: impl Into<String>, cause: impl Into<io::Error>) -> Error {
        let cause = cause.into();
        let kind = match cause.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => ErrorKind::Denied,
            Some(libc::ESRCH) => ErrorKind::NoSuchTask,
            Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::ENOTTY) => ErrorKind::Unsupported,
            _ => ErrorKind::System,
        };
        Error::new(kind, what).caused_by(cause)
    }

    pub fn no_such_process(pid: u32) -> Error {
        let message = format!("no process with pid {pid} (it may have ended, or be hidden from you)");
        Error::new(ErrorKind::NoSuchTask, message)
    }

    pub fn no_answer(pid: Option<u32>) -> Error {
        let message = match pid {
            Some(pid) => format!("no answer from pid {pid}"),
            None => "no answer from the process".to_owned(),
        };
        Error::new(ErrorKind::NoAnswer, message)
    }

    /// What may wait for a process was not read, for this reason.
    pub fn not_read(pid: Option<u32>, reason: Absent) -> Error {
        match reason {
            Absent::NoThread => Error::new(ErrorKind::NoThread, Error::NO_THREAD),
            _ => Error::no_answer(pid),
        }
    }

    /// The message where no thread can be started.
    pub const NO_THREAD: &'static str = "can't start a thread to read what may wait (the limit of threads: ulimit -u, \
        pids.max; or a filter of system calls)";

    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if f.alternate() {
            let mut cause = self.source();
            while let Some(error) = cause {
                write!(f, ": {error}")?;
                cause = error.source();
            }
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// A result whose error is an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Finds the value with this name. The error lists the known names.
pub(crate) fn named<T>(name: &str, known: impl Iterator<Item = (&'static str, T)> + Clone) -> Result<T> {
    let found = known.clone().find(|(known, _)| *known == name);
    found.map(|(_, value)| value).ok_or_else(|| {
        let known: Vec<&str> = known.map(|(name, _)| name).collect();
        Error::new(ErrorKind::InvalidInput, format!("known are {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Field;
    use crate::filter::Filter;

    /// Check that a message and its cause are each printed once, and that the cause can be reached.
    #[test]
    fn causes_are_chained() {
        let denied = || Error::io("/proc/1/io", io::Error::from_raw_os_error(libc::EACCES));
        assert_eq!(denied().kind(), ErrorKind::Denied);
        assert_eq!(denied().to_string(), "/proc/1/io");
        assert_eq!(format!("{:#}", denied()), "/proc/1/io: Permission denied (os error 13)");
        let error = denied();
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.and_then(io::Error::raw_os_error), Some(libc::EACCES));
        let outer = format!("{:#}", Error::new(ErrorKind::System, "outer").caused_by(denied()));
        assert_eq!(outer, "outer: /proc/1/io: Permission denied (os error 13)");
        assert!(Error::no_such_process(7).source().is_none());
    }

    /// Check that `?` converts the errors of parsers.
    #[test]
    fn refused_names_and_filters_are_errors() {
        let field = || -> Result<Field> { Ok("rss".parse::<Field>()?) };
        let filter = || -> Result<Filter> { Ok(Filter::parse("rss >")?) };
        let errors = [field().unwrap_err(), filter().unwrap_err()];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.source().is_some(), "{error:#}");
        }
        assert!(format!("{:#}", field().unwrap_err()).contains("rss_bytes"));
    }
}
