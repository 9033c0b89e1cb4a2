//! How a command ends: its exit status, and its messages on standard error.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::process::geteuid;
use rustix::thread::{capabilities, CapabilitySet};
use taskdiag::{Absent, Error, Undecided};
use taskdiag_sys::host::is_initial_user_namespace;

use crate::output::{terminal, text, Output};
use crate::{history, proc};

/// How a command that could run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All was answered.
    Complete,
    /// Something asked for was missing or could not be read; standard error says what and why.
    Partial,
}

impl Outcome {
    /// Partial if something is missing.
    pub fn partial_if(is_missing: bool) -> Outcome {
        if is_missing {
            Outcome::Partial
        } else {
            Outcome::Complete
        }
    }

    /// The outcome of two parts together.
    pub fn and(self, other: Outcome) -> Outcome {
        match self {
            Outcome::Complete => other,
            Outcome::Partial => Outcome::Partial,
        }
    }
}

/// Locks what threads share. It stays usable after a thread has panicked.
pub fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a command could not run.
#[derive(Debug)]
pub enum Failure {
    /// Wrong usage, or nothing could be answered.
    Unanswered(String),
    /// Like `Unanswered`, for pgrep and pkill with correct usage.
    Fatal(String),
    /// The answer could not be written.
    Output(io::Error),
}

impl Failure {
    pub fn message(&self) -> String {
        match self {
            Failure::Unanswered(message) | Failure::Fatal(message) => message.clone(),
            Failure::Output(error) => message(error),
        }
    }

    /// The same failure. If nothing was answered, the message is followed by `more`.
    pub fn with(self, more: &str) -> Failure {
        match self {
            Failure::Unanswered(message) => Failure::Unanswered(message + more),
            failure => failure,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}

/// A message says why nothing could be answered.
impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure::Unanswered(message)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Failure {
        Failure::Unanswered(message.to_owned())
    }
}

impl From<taskdiag::Error> for Failure {
    fn from(error: taskdiag::Error) -> Failure {
        Failure::Unanswered(format!("{error:#}"))
    }
}

/// The name that messages begin with, and whether it is that of a link.
pub static LINK: OnceLock<&'static str> = OnceLock::new();

/// Sets the name of the link through which the program was started.
pub fn start_through(link: &'static str) {
    let _ = LINK.set(link);
}

/// Whether the program stands in for one of procps: ps, pgrep or pkill.
pub fn is_procps() -> bool {
    LINK.get().is_some_and(|&link| link != "top")
}

/// Writes a message to standard error. A failure to do so is ignored: there is nowhere else to
/// report it.
pub fn say(message: impl fmt::Display) {
    let message = text::message(&without_numbers(&message.to_string()));
    let name = LINK.get().unwrap_or(&"taskdiag");
    let mut message = format!("{name}: {message}");
    if let Some(width) = terminal::error_width() {
        let lines = message.lines().flat_map(|line| text::wrapped(line, width));
        message = lines.collect::<Vec<_>>().join("\n");
    }
    let _ = writeln!(io::stderr(), "{message}");
}

/// Who may see what was denied to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhoMay {
    /// Root, if this process is not root.
    Root,
    /// Root with capabilities that this process lacks.
    WholeRoot,
    /// Root of an outer user namespace.
    OuterRoot,
    /// Nobody: this process already has every right.
    Nobody,
}

impl WhoMay {
    /// Who may see what was denied to this process.
    pub fn see_denied() -> WhoMay {
        let held = capabilities(None).map(|sets| sets.effective);
        WhoMay::beyond(geteuid().is_root(), held.ok(), is_initial_user_namespace())
    }

    fn beyond(is_root: bool, held: Option<CapabilitySet>, is_initial: bool) -> WhoMay {
        // Access to processes, their files and the page cache depends on these.
        let needed =
            CapabilitySet::SYS_PTRACE | CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER;
        match (is_root, held.is_some_and(|held| held.contains(needed)), is_initial) {
            (false, ..) => WhoMay::Root,
            (true, false, _) => WhoMay::WholeRoot,
            (true, true, false) => WhoMay::OuterRoot,
            (true, true, true) => WhoMay::Nobody,
        }
    }
}

/// What the user can do.
impl fmt::Display for WhoMay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WhoMay::Root => "root may: try sudo",
            WhoMay::WholeRoot => "root may, but this one lacks capabilities, as in containers",
            WhoMay::OuterRoot => "root outside of this user namespace may",
            WhoMay::Nobody => "the kernel denies it even to root",
        })
    }
}

/// Reports that something was denied, and who may see it. What nobody may see does not count as
/// missing.
pub fn say_denied(message: impl fmt::Display) -> Outcome {
    let who = WhoMay::see_denied();
    say(format_args!("{message} ({who})"));
    match who {
        WhoMay::Nobody => Outcome::Complete,
        _ => Outcome::Partial,
    }
}

/// What an answer lacks, a line for each kind: how many, of what, and a message with `{}` for these.
macro_rules! lacks {
    ($($count:expr, $noun:expr => $text:expr;)*) => { [$(($count, $noun, $text)),*] };
}
pub(crate) use lacks;

/// Reports what an answer lacks. Says nothing of what it lacks none of.
pub fn say_missing<'a>(lacks: impl IntoIterator<Item = (u64, &'a str, &'a str)>) -> Outcome {
    let mut outcome = Outcome::Complete;
    for (count, noun, text) in lacks.into_iter().filter(|lack| lack.0 > 0) {
        say(text.replacen("{}", &counted(count, noun), 1));
        outcome = Outcome::Partial;
    }
    outcome
}

/// The same of what was denied.
pub fn say_missing_denied<'a>(lacks: impl IntoIterator<Item = (u64, &'a str, &'a str)>) -> Outcome {
    let lacks = lacks.into_iter().filter(|lack| lack.0 > 0);
    let outcomes = lacks.map(|(count, noun, text)| say_denied(text.replacen("{}", &counted(count, noun), 1)));
    outcomes.fold(Outcome::Complete, Outcome::and)
}

/// Reports the rows, each a `noun`, that a filter left out because a value that it needs is absent.
pub fn say_undecided(undecided: Undecided, noun: &str) -> Outcome {
    use Absent::{Denied, NoAnswer, NoThread, NotCounted, OverBudget, Truncated, Unsupported};
    let of = |reason| undecided.of(reason);
    let left = |of, why: &str| format!("{{}} left out: the filter needs {}, which {why}", undecided.field(of));
    let unsupported = match history::shown() {
        Some(_) => "was not recorded (`taskdiag record` has -o and --pss-budget)",
        None => "is not available (`taskdiag doctor` says what is)",
    };
    let missing = say_missing(lacks! {
        of(Unsupported), noun => &left(Unsupported, unsupported)[..];
        of(Truncated), noun => &left(Truncated, "is too long to be read")[..];
        of(OverBudget), noun => &left(OverBudget, "would take longer than the limits allow")[..];
        of(NoAnswer), noun => &left(NoAnswer, "did not come in time (--patience waits longer)")[..];
        of(NotCounted), noun => &left(NotCounted, "is counted by nobody (`taskdiag pin --net` begins to)")[..];
        of(NoThread), noun => &left(NoThread, &format!("was not read: {}", Error::NO_THREAD))[..];
    });
    missing.and(say_missing_denied(
        lacks! { of(Denied), noun => &left(Denied, "may not be seen")[..]; },
    ))
}

/// What is said where the procfs hides tasks.
pub fn hidden() -> Option<String> {
    let path = proc::chosen().path().display();
    proc::hidden_by()
        .map(|option| format!("tasks of other users, if any, are left out: {path} is mounted with {option}"))
}

/// Reports that the procfs hides tasks, if it does. The programs of procps say nothing of them.
pub fn say_hidden() -> Outcome {
    match hidden() {
        Some(message) if !is_procps() => say_denied(message),
        _ => Outcome::Complete,
    }
}

/// What is said of a process that an answer lacks. The broker does not show what the caller may not
/// trace, and `/proc` usually does.
pub fn lacking(pid: u32) -> String {
    let is_ours = proc::chosen().own_pid() == Some(proc::own_pid());
    let is_process = match process_of(pid) {
        Ok(process) if process != pid && history::shown().is_none() => {
            return format!("pid {pid}: it is a thread of process {process}");
        }
        Ok(_) => is_ours,
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied && is_ours,
    };
    let is_past = history::shown().is_some();
    match (WhoMay::see_denied(), proc::hidden_by()) {
        (who, _) if is_process && !is_past => {
            format!("pid {pid}: you may not see it ({who})")
        }
        (who, Some(option)) if !is_past => format!(
            "pid {pid}: no such process, or {} ({option}) hides it ({who})",
            proc::chosen().path().display()
        ),
        _ => format!("pid {pid}: no such process"),
    }
}

/// The process that a process or thread of this id belongs to.
pub fn process_of(id: u32) -> io::Result<u32> {
    let status = std::fs::read(proc::path(&format!("{id}/status")))?;
    let status = String::from_utf8_lossy(&status);
    let process = status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:\t")?.parse().ok());
    process.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Whether it is the id of a thread that is not the first of its process. `/proc` has files for it, and
/// they are those of its process; but commands are about processes.
pub fn is_thread(id: u32) -> bool {
    process_of(id).is_ok_and(|process| process != id)
}

/// The failure of a command that needs a thread.
pub fn no_thread(error: io::Error) -> Failure {
    Failure::Unanswered(format!("can't start a thread: {}", message(&error)))
}

/// Reports the processes that do not answer, if any.
pub fn say_silent(pids: &[u32]) -> Outcome {
    if pids.is_empty() {
        return Outcome::Complete;
    }
    say(no_answer_from(pids));
    Outcome::Partial
}

/// A message that names the processes that do not answer.
pub fn no_answer_from(pids: &[u32]) -> String {
    const NAMED: usize = 8;
    let named: Vec<String> = pids.iter().take(NAMED).map(|pid| format!("pid {pid}")).collect();
    match pids.len().saturating_sub(NAMED) {
        0 => format!("no answer from {}", named.join(", ")),
        others => format!("no answer from {} and {others} more", named.join(", ")),
    }
}

/// A count with its noun; `one` is the singular: `1 file`, `2 processes`.
pub fn counted(count: u64, one: &str) -> String {
    let ending = match count {
        1 => "",
        _ if one.ends_with('s') => "es",
        _ => "s",
    };
    format!("{count} {one}{ending}")
}

/// The message of an error, without its number.
pub fn message(error: &dyn std::error::Error) -> String {
    without_numbers(&error.to_string())
}

/// A message without the number of an error, whose text says the same.
fn without_numbers(text: &str) -> String {
    let (before, number) = text.split_once(" (os error ").unwrap_or((text, ""));
    before.to_owned() + number.split_once(')').map_or("", |(_, rest)| rest)
}

/// Prints a text, which is the whole answer.
pub fn print(text: impl AsRef<[u8]>) -> Result<Outcome, Failure> {
    let mut output = Output::default();
    output.buffer.extend_from_slice(text.as_ref());
    output.finish()?;
    Ok(Outcome::Complete)
}

/// Reports a failure, and returns the exit status.
pub fn exit_code(result: Result<Outcome, Failure>) -> ExitCode {
    match result {
        Ok(Outcome::Complete) => ExitCode::SUCCESS,
        Ok(Outcome::Partial) => ExitCode::from(1),
        Err(Failure::Unanswered(message)) => {
            say(message);
            ExitCode::from(2)
        }
        Err(Failure::Fatal(message)) => {
            say(message);
            ExitCode::from(3)
        }
        // The reader closed the pipe, as in `taskdiag ps | head`: not a failure.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Failure::Output(error)) => {
            say(format_args!("writing the output: {}", self::message(&error)));
            ExitCode::from(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the plural, also for a count of zero.
    #[test]
    fn numbers_have_plurals() {
        let all = [0, 1, 2].map(|count| (counted(count, "file"), counted(count, "process")));
        let texts = [
            ("0 files", "0 processes"),
            ("1 file", "1 process"),
            ("2 files", "2 processes"),
        ];
        assert_eq!(
            all,
            texts.map(|(files, processes)| (files.to_owned(), processes.to_owned()))
        );
    }

    /// Check that a message offers more rights only if the process lacks some.
    #[test]
    fn who_may_is_who_has_more() {
        let all = Some(CapabilitySet::all());
        let few = Some(CapabilitySet::all() - CapabilitySet::SYS_PTRACE);
        for (is_root, held, is_initial, who) in [
            (false, all, true, WhoMay::Root),
            (true, few, true, WhoMay::WholeRoot),
            (true, None, true, WhoMay::WholeRoot),
            (true, few, false, WhoMay::WholeRoot),
            (true, all, false, WhoMay::OuterRoot),
            (true, all, true, WhoMay::Nobody),
        ] {
            assert_eq!(WhoMay::beyond(is_root, held, is_initial), who);
        }
    }
}
