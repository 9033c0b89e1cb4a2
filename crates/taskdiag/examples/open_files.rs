//! Prints which processes use a file, files below a directory, or files on a file system.
//!
//! `cargo run --example open_files [PATH]`

use std::ops::ControlFlow;
use std::time::Duration;

use taskdiag::files::{PathMatch, Request, Use};
use taskdiag::{Field, Handle, Query};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).unwrap_or("/dev/null".into());
    let mut request = Request::default();
    request.uses = Use::ALL.into();
    request.paths = vec![PathMatch::new(&path, Duration::from_secs(1))?];
    let mut handle = Handle::new();
    let processes = handle.query(&Query::processes().fields(Field::Comm | Field::StartNs))?;
    let answer = handle.files(&processes, &request, |task, file| {
        let (pid, comm) = (task.pid().unwrap_or(0), task.comm().unwrap_or_default());
        let name = file.name.unwrap_or_default().escape_ascii();
        let used_as = match file.fd {
            Some(fd) => format!("{fd}"),
            None => file.used_as.to_string(),
        };
        println!("{pid:>7} {used_as:>5} {name} ({})", comm.escape_ascii());
        ControlFlow::Continue(())
    })?;
    if answer.denied > 0 {
        eprintln!("{} processes may not be seen", answer.denied);
    }
    Ok(())
}
