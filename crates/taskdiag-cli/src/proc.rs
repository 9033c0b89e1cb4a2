//! The option `--proc`: which procfs commands read.

use std::path::PathBuf;
use std::sync::OnceLock;

use taskdiag::events::Options;
use taskdiag::{Events, Handle, Proc};

use crate::outcome::Failure;

/// Other programs, such as gopsutil and OpenTelemetry's collector, read it too.
const VARIABLE: &str = "HOST_PROC";

static CHOSEN: OnceLock<Proc> = OnceLock::new();

/// Chooses the procfs, once at the start of the command.
pub fn choose(path: Option<PathBuf>) -> Result<(), Failure> {
    let of_variable = || std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let (path, name) = match path {
        Some(path) => (Some(path), "--proc"),
        None => (of_variable().map(PathBuf::from), VARIABLE),
    };
    if let Some(path) = path {
        let proc = Proc::at(path).map_err(|error| format!("{name}: {error:#}"))?;
        let _ = CHOSEN.set(proc);
    }
    Ok(())
}

/// The procfs that commands read.
pub fn chosen() -> &'static Proc {
    CHOSEN.get_or_init(Proc::default)
}

/// A handle that reads it.
pub fn handle() -> Handle {
    Handle::new().with_proc(chosen().clone())
}

/// The path of a file in it.
pub fn path(name: &str) -> PathBuf {
    chosen().join(name)
}

/// The id of this process in it.
pub fn own_pid() -> u32 {
    // The usual one may be that of another pid namespace; then it answers nothing.
    let outer = chosen().own_pid().filter(|_| chosen().is_outer());
    outer.unwrap_or(std::process::id())
}

/// The option of its mount that hides tasks of others from this process.
pub fn hidden_by() -> Option<&'static str> {
    static OPTION: OnceLock<Option<String>> = OnceLock::new();
    OPTION.get_or_init(|| chosen().hidden_by()).as_deref()
}

/// Fails if events have other ids than the procfs.
pub fn check_events() -> taskdiag::Result<()> {
    chosen().check_ids("events can't be read")
}

/// Opens the event source, whose ids are those of this process's pid namespace.
pub fn events(options: &Options) -> taskdiag::Result<Events> {
    check_events()?;
    Events::open(options)
}
