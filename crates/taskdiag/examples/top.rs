//! Prints the processes that used the most processor time in the last second, five times.
//!
//! `cargo run --example top`

use std::collections::HashMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use taskdiag::{Field, Handle, Identity, Query, Snapshot};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let query = Query::processes().fields(Field::UtimeNs | Field::StimeNs | Field::Comm | Field::StartNs);
    let mut handle = Handle::new();
    let mut snapshot = Snapshot::default();
    let mut before: HashMap<Identity, u64> = HashMap::new();
    let mut last = Instant::now();
    for _ in 0..6 {
        handle.query_into(&query, &mut snapshot)?;
        let elapsed_ns = last.elapsed().as_nanos() as f64;
        last = Instant::now();
        let mut used = Vec::new();
        let mut now = HashMap::new();
        for task in snapshot.tasks() {
            let total_ns = task.utime_ns()? + task.stime_ns()?;
            // Another process may have got the same id. An identity also has the start time.
            let identity = task.identity()?;
            if let Some(then_ns) = before.get(&identity) {
                used.push((total_ns - then_ns, task.pid()?, task.comm()?));
            }
            now.insert(identity, total_ns);
        }
        used.sort_unstable_by(|a, b| b.cmp(a));
        for (ns, pid, comm) in used.iter().take(5) {
            println!(
                "{:6.1} % {pid:>7} {}",
                *ns as f64 / elapsed_ns * 100.0,
                comm.escape_ascii()
            );
        }
        println!();
        before = now;
        sleep(Duration::from_secs(1));
    }
    Ok(())
}
