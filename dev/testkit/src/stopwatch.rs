//! Measurement of time that does not depend on what else the machine does.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A clock that stands still while a thread waits for a processor that others have. So what it
/// shows is how long threads slept or computed, on a busy machine as on an idle one.
#[derive(Debug)]
pub struct Stopwatch {
    began: Instant,
    /// The directories of threads.
    threads: Vec<PathBuf>,
    /// The directories of processes, all of whose threads count.
    processes: Vec<PathBuf>,
    /// By thread: how long it had waited at first, and at last.
    waited: BTreeMap<PathBuf, (u64, u64)>,
}

impl Stopwatch {
    /// Starts one for the calling thread.
    pub fn of_thread() -> Stopwatch {
        Stopwatch::start(vec![own_thread()], Vec::new())
    }

    /// Starts one for the calling thread and for all threads of a process.
    pub fn of_thread_and(pid: u32) -> Stopwatch {
        Stopwatch::start(vec![own_thread()], vec![format!("/proc/{pid}").into()])
    }

    /// Starts one for all threads of this process.
    pub fn of_process() -> Stopwatch {
        Stopwatch::start(Vec::new(), vec!["/proc/self".into()])
    }

    fn start(threads: Vec<PathBuf>, processes: Vec<PathBuf>) -> Stopwatch {
        let mut stopwatch = Stopwatch {
            began: Instant::now(),
            threads,
            processes,
            waited: BTreeMap::new(),
        };
        stopwatch.look(true);
        // The time in which the above waited for a processor does not count either.
        stopwatch.began = Instant::now();
        stopwatch
    }

    /// Reads how long each thread has waited. Of a thread that ends what was read last counts, so
    /// this is called now and then while threads of the process may end.
    pub fn tick(&mut self) {
        self.look(false);
    }

    fn look(&mut self, is_first: bool) {
        let of_processes = self
            .processes
            .iter()
            .flat_map(|process| fs::read_dir(process.join("task")));
        let threads = of_processes.flatten().flatten().map(|thread| thread.path());
        for thread in self.threads.iter().cloned().chain(threads) {
            // Time on a processor, time of waiting for one (in nanoseconds), number of runs.
            let Ok(text) = fs::read_to_string(thread.join("schedstat")) else {
                continue;
            };
            let waited = text.split(' ').nth(1).and_then(|word| word.parse().ok());
            let waited: u64 = waited.unwrap_or_else(|| panic!("schedstat: {text:?}"));
            let first = if is_first { waited } else { 0 };
            self.waited.entry(thread).or_insert((first, waited)).1 = waited;
        }
    }

    /// How long threads have waited for a processor. Where several waited at a time, all count.
    pub fn waited(&mut self) -> Duration {
        self.tick();
        Duration::from_nanos(self.waited.values().map(|(first, last)| last - first).sum())
    }

    /// The time since the start without these.
    pub fn elapsed(&mut self) -> Duration {
        let elapsed = self.began.elapsed();
        elapsed.saturating_sub(self.waited())
    }
}

fn own_thread() -> PathBuf {
    // SAFETY: a system call without arguments.
    let tid = unsafe { libc::gettid() };
    format!("/proc/self/task/{tid}").into()
}
