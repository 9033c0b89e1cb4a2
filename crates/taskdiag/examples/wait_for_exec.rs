//! Waits until any process executes a program, and prints which one. As root:
//!
//! `cargo run --example wait_for_exec NAME`

use std::time::{Duration, Instant};

use taskdiag::events::{EventKind, Events, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).ok_or("usage: wait_for_exec NAME")?;
    let mut events = Events::open(&Options::default())?;
    println!("waiting for {name}");
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        events.wait(Some(Duration::from_secs(1)), None)?;
        for event in events.read()? {
            if event.kind() == EventKind::Exec && event.comm() == Ok(name.as_bytes()) {
                println!("process {} executes it", event.pid());
                return Ok(());
            }
        }
        if events.lost().count > 0 {
            return Err("events were lost, and it may have been one of them".into());
        }
    }
    Err("no process executed it within a minute".into())
}
