//! Prints how much of a file is in memory, and which processes have it open or mapped.
//!
//! `cargo run --example file_cache [PATH]`

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use taskdiag::pagecache::{residency, ByteRange, Finder, Seen, Source};
use taskdiag::{Handle, Query};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = match std::env::args_os().nth(1) {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe()?,
    };
    let path = path.canonicalize()?;
    let file = File::open(&path)?;
    match residency(&file, ByteRange::ALL) {
        Ok(residency) => println!(
            "{}: {:.0} % of {} bytes",
            path.display(),
            residency.fraction() * 100.0,
            file.metadata()?.size()
        ),
        // Since Linux 6.14 this needs the right to change the file.
        Err(error) => println!("{}: {error:#}", path.display()),
    }
    for task in &Handle::new().query(&Query::processes())? {
        let pid = task.pid()?;
        let mut finder = Finder::new(Source::of_this_host(), ByteRange::ALL, Duration::from_millis(200));
        let mut is_held = false;
        let held = finder.held_files(pid, &mut Seen::default(), &mut |held| {
            is_held |= held.path == path.as_os_str().as_encoded_bytes();
        });
        match held {
            Ok(()) if is_held => println!("  process {pid} has it open or mapped"),
            Ok(()) => {}
            // The process may have ended, or belong to another user.
            Err(error) => eprintln!("  {error:#}"),
        }
    }
    Ok(())
}
