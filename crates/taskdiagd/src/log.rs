//! Messages on standard error, with the levels of syslog where journald reads them. The broker
//! never waits for whoever reads them: a message for which there is no room is lost.

use std::fmt;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use rustix::event::PollFlags;

use crate::sys;

/// How important a message is, by its number in syslog(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// The broker does not work.
    Error = 3,
    /// The broker works, but somebody should look.
    Warning = 4,
    /// What happens to the broker.
    Info = 6,
    /// What happens to clients.
    Debug = 7,
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);
static IS_JOURNAL: AtomicBool = AtomicBool::new(false);

impl Level {
    /// The level of this name.
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

/// Leaves out less important messages.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Finds out whether journald reads the messages: systemd sets this variable then.
pub fn begin() {
    IS_JOURNAL.store(std::env::var_os("JOURNAL_STREAM").is_some(), Ordering::Relaxed);
}

/// The longest line. A pipe that poll(2) reports as writable has room for it.
const MAX_LINE: usize = 1024;

/// Writes a message, unless it is less important than the level.
pub fn log(level: Level, message: fmt::Arguments<'_>) {
    if level as u8 > LEVEL.load(Ordering::Relaxed) {
        return;
    }
    let name = match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
    };
    let mut line = if IS_JOURNAL.load(Ordering::Relaxed) {
        format!("<{}>{message}", level as u8)
    } else {
        format!("taskdiagd: {name}: {message}")
    };
    line.truncate(floor_char_boundary(&line, MAX_LINE - 1));
    line.push('\n');
    let stderr = std::io::stderr();
    if sys::poll_now(stderr.as_fd(), PollFlags::OUT).is_ok_and(|events| !events.is_empty()) {
        let _ = rustix::io::write(&stderr, line.as_bytes());
    }
}

/// The longest whole beginning of a text: `str::floor_char_boundary` of Rust 1.91.
fn floor_char_boundary(text: &str, max: usize) -> usize {
    let max = max.min(text.len());
    (0..=max).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}
