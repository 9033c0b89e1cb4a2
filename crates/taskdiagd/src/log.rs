//! Messages on standard error, with the levels that journald understands at the start of lines. Nobody waits for whoever reads them:
//! what there is no room for is left out.

use std::fmt;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use rustix::event::PollFlags;

use crate::sys;

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
static IS_JOURNAL: AtomicBool = AtomicBool::new(false);

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

/// Finds out who reads. systemd sets this where lines may begin with a level.
pub fn begin() {
    IS_JOURNAL.store(std::env::var_os("JOURNAL_STREAM").is_some(), Ordering::Relaxed);
}

/// The longest line: a pipe that can be written to has room for as much.
const LINE: usize = 1024;

/// Writes a message, unless it matters too little.
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
    line.truncate(cut(&line, LINE - 1));
    line.push('\n');
    let stderr = std::io::stderr();
    if sys::events_now(stderr.as_fd(), PollFlags::OUT).is_ok_and(|events| !events.is_empty()) {
        let _ = rustix::io::write(&stderr, line.as_bytes());
    }
}

/// The longest whole beginning of a text.
fn cut(text: &str, most: usize) -> usize {
    let most = most.min(text.len());
    (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}
