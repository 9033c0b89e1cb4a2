//! Prints all processes: their ids, owners, memory and names. `cargo run --example ps`

use std::io::{self, Write as _};

use taskdiag::{Absent, Field, Handle, Query};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let fields = Field::Uid | Field::State | Field::RssBytes | Field::Comm;
    let snapshot = Handle::new().query(&Query::processes().fields(fields))?;
    let mut out = io::stdout().lock();
    writeln!(out, "{:>7} {:>5} S {:>10} COMMAND", "PID", "UID", "RSS KiB")?;
    for task in snapshot.tasks() {
        let rss = match task.rss_bytes() {
            Ok(bytes) => (bytes / 1024).to_string(),
            // A kernel thread has no memory, which is not the same as 0 bytes of it.
            Err(Absent::NoMemory) => "-".to_owned(),
            Err(reason) => reason.to_string(),
        };
        let (pid, uid, state) = (task.pid()?, task.uid()?, task.state()?);
        // A process chooses its name, which may be any bytes: escape it for the terminal.
        writeln!(
            out,
            "{pid:>7} {uid:>5} {state} {rss:>10} {}",
            task.comm()?.escape_ascii()
        )?;
    }
    Ok(())
}
