//! The progress of a slow query, on a terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use taskdiag::memory::Progress;

/// The time before the first line, and between two lines.
const INTERVAL: Duration = Duration::from_millis(300);

/// Shows on standard error how many processes have been read, until dropped.
#[derive(Debug)]
pub struct ProgressLine(Option<(Sender<()>, JoinHandle<()>)>);

impl ProgressLine {
    /// Starts, if standard error is a terminal.
    pub fn begin(progress: Arc<Progress>) -> ProgressLine {
        if !io::stderr().is_terminal() {
            return ProgressLine(None);
        }
        let (end, ended) = channel();
        let thread = thread::Builder::new().spawn(move || {
            let mut is_shown = false;
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let (done, total) = progress.now();
                let _ = write!(io::stderr(), "\r\x1b[K{done} of {total} processes");
                is_shown = true;
            }
            if is_shown {
                let _ = write!(io::stderr(), "\r\x1b[K");
            }
        });
        ProgressLine(thread.ok().map(|thread| (end, thread)))
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.0.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}
