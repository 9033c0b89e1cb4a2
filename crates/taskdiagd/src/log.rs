//! Messages on standard error, with syslog levels where journald reads them. The broker never waits
//! for the reader of its messages: a message that does not fit is lost.

use std::fmt;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use rustix::event::PollFlags;
use taskdiag_core::escape;

use crate::sys;

taskdiag_core::named_enum! {
    /// How important a message is, as a syslog(3) number.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum Level {
        /// The broker does not work.
        Error = 3 => "error",
        /// The broker works, but somebody should look.
        Warning = 4 => "warning",
        /// What happens to the broker.
        Info = 6 => "info",
        /// What happens to clients.
        Debug = 7 => "debug",
    }
    const ALL;
    /// The name.
    fn name;
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);
static IS_JOURNAL: AtomicBool = AtomicBool::new(false);

impl Level {
    /// The level of this name.
    pub fn parse(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// Sets the level; less important messages are left out.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Finds out whether journald reads the messages: systemd sets a variable if it does.
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
    // It may quote arguments of the command line, or names of others.
    let message = escape::line(&message.to_string());
    let mut line = if IS_JOURNAL.load(Ordering::Relaxed) {
        format!("<{}>{message}", level as u8)
    } else {
        format!("taskdiagd: {}: {message}", level.name())
    };
    line.truncate(floor_char_boundary(&line, MAX_LINE - 1));
    line.push('\n');
    let stderr = std::io::stderr();
    if sys::poll_now(stderr.as_fd(), PollFlags::OUT).is_ok_and(|events| !events.is_empty()) {
        let _ = rustix::io::write(&stderr, line.as_bytes());
    }
}

/// The length of the longest prefix of `text` that ends at a character: `str::floor_char_boundary`
/// of Rust 1.91.
fn floor_char_boundary(text: &str, max: usize) -> usize {
    let max = max.min(text.len());
    (0..=max).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}
