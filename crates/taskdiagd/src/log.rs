//! Messages on standard error, with the levels that journald understands at the start of lines.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

/// How much a message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// It does not work.
    Error = 3,
    /// It works, but somebody should look.
    Warning = 4,
    /// What happens to the daemon.
    Info = 6,
    /// What happens to clients.
    Debug = 7,
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);

impl Level {
    /// The level of a name.
    pub fn parse(name: &str) -> Option<Level> {
        Some(match name {
            "error" => Level::Error,
            "warning" => Level::Warning,
            "info" => Level::Info,
            "debug" => Level::Debug,
            _ => return None,
        })
    }
}

/// Leaves out what matters less.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Writes a message, unless it matters too little.
pub fn log(level: Level, message: fmt::Arguments<'_>) {
    use std::io::Write as _;
    if level as u8 > LEVEL.load(Ordering::Relaxed) {
        return;
    }
    let name = match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
    };
    // systemd sets this where lines may begin with a level.
    let mut out = std::io::stderr().lock();
    let _ = match std::env::var_os("JOURNAL_STREAM") {
        Some(_) => writeln!(out, "<{}>{message}", level as u8),
        None => writeln!(out, "taskdiagd: {name}: {message}"),
    };
}
