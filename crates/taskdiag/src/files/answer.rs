//! What an answer about files reports besides the files.

use taskdiag_core::counters::{counts, Undecided};
use taskdiag_core::snapshot::SourceId;

/// The source that answered, the number of files, and what is missing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answer {
    /// The source that answered.
    pub source: SourceId,
    /// Files that were passed on.
    pub files: u64,
    /// Processes whose files the caller may not see, or those of one of their threads.
    pub denied: u64,
    /// Processes whose mapped files the caller may not see, although it may see their other files.
    pub maps_denied: u64,
    /// Processes of which files were not read, because no thread could be started.
    pub no_thread: u64,
    /// Processes that ended before or while their files were read.
    pub gone: u64,
    /// Descriptors left out because they referred to one file after another while they were read,
    /// so that the values did not belong together.
    pub changed: u64,
    /// Files left out because a value that decides about the filter is not known.
    pub undecided: Undecided,
    /// Those of them that are UNIX sockets bound by a relative name: nobody knows any more what it was
    /// relative to.
    pub unplaced_sockets: u64,
    /// Network namespaces that the caller may not enter. UNIX sockets there that are bound to files of
    /// the request's paths are missing.
    pub namespaces_denied: u64,
    /// Lists of UNIX sockets that were not read, because no thread or process could be started.
    pub namespaces_no_thread: u64,
    /// Lists of UNIX sockets that were not read for another reason.
    pub namespaces_unread: u64,
    /// Invalid answers of the kernel. Anything but 0 is a defect.
    pub malformed: u64,
    /// Processes that BPF could not answer about exactly, so procfs answered for some of their
    /// files.
    pub deferred: u64,
    /// The duration of the longest run of the BPF program, in nanoseconds. RCU waits for a run to
    /// end. `None` if none ran.
    pub longest_run_ns: Option<u64>,
    /// Processes with values that were not read within the patience, ascending: their mapped files,
    /// or the sizes and kinds of some files.
    pub silent: Vec<u32>,
}

impl Answer {
    pub(super) fn new(source: SourceId) -> Answer {
        Answer {
            source,
            files: 0,
            denied: 0,
            maps_denied: 0,
            no_thread: 0,
            gone: 0,
            changed: 0,
            undecided: Undecided::default(),
            unplaced_sockets: 0,
            namespaces_denied: 0,
            namespaces_no_thread: 0,
            namespaces_unread: 0,
            malformed: 0,
            deferred: 0,
            longest_run_ns: None,
            silent: Vec::new(),
        }
    }

    /// The counters with their names, in the order of a report. Those that nobody counted are left
    /// out.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let before = counts!(self: files, denied, maps_denied, no_thread, gone, changed);
        let after = counts!(self: namespaces_denied, namespaces_no_thread, namespaces_unread, malformed, deferred);
        let named = before.into_iter().chain(self.undecided.named()).chain(after);
        let named = named.chain([
            ("no_answer", Some(self.silent.len() as u64)),
            ("longest_run_ns", self.longest_run_ns),
        ]);
        named.filter_map(|(name, count)| Some((name, count?)))
    }
}
