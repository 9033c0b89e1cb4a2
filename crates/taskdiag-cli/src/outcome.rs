//! How a command ends: its exit status, and what it says on standard error.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use rustix::process::geteuid;
use rustix::thread::{capabilities, CapabilitySet};

/// How a command ended that did what it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All was answered.
    Complete,
    /// Something asked for was not there or could not be read; standard error has what and why.
    Partial,
}

impl Outcome {
    /// That of two parts together.
    pub fn and(self, other: Outcome) -> Outcome {
        match self {
            Outcome::Complete => other,
            Outcome::Partial => Outcome::Partial,
        }
    }
}

/// Why a command could not do what it was asked to.
#[derive(Debug)]
pub enum Failure {
    /// Wrong usage, or nothing could be answered.
    Unanswered(String),
    /// The answer could not be written.
    Output(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}

impl From<taskdiag::Error> for Failure {
    fn from(error: taskdiag::Error) -> Failure {
        Failure::Unanswered(error.to_string())
    }
}

/// Says something on standard error. If even that fails there is nobody left to tell.
pub fn say(message: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "taskdiag: {message}");
}

/// Who may see what the caller may not.
pub fn who_may() -> &'static str {
    // What processes, their files and the page cache take, one or the other.
    let needed =
        CapabilitySet::SYS_PTRACE | CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER;
    match (geteuid().is_root(), capabilities(None)) {
        (false, _) => "root may: try sudo",
        (true, Ok(held)) if held.effective.contains(needed) => "the kernel keeps it from root too",
        (true, _) => "root may, but this one lacks capabilities, as in containers",
    }
}

/// Says of whom there is no answer.
pub fn no_answer_from(pids: &[u32]) -> String {
    const NAMED: usize = 8;
    let named: Vec<String> = pids.iter().take(NAMED).map(|pid| format!("pid {pid}")).collect();
    match pids.len().saturating_sub(NAMED) {
        0 => format!("no answer from {}", named.join(", ")),
        others => format!("no answer from {} and {others} others", named.join(", ")),
    }
}

/// The exit status, after the reason for it has been said.
pub fn exit_code(result: Result<Outcome, Failure>) -> ExitCode {
    match result {
        Ok(Outcome::Complete) => ExitCode::SUCCESS,
        Ok(Outcome::Partial) => ExitCode::from(1),
        Err(Failure::Unanswered(message)) => {
            say(message);
            ExitCode::from(2)
        }
        // The reader has had enough: `taskdiag ps | head` is no failure.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Failure::Output(error)) => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or(&text);
            say(format_args!("writing the output: {text}"));
            ExitCode::from(1)
        }
    }
}
