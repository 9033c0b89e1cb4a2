//! What an answer about files says besides the files.

use taskdiag_core::snapshot::SourceId;

/// Who answered about files, how many there were, and what is missing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answer {
    /// Who answered.
    pub source: SourceId,
    /// How many files were passed on.
    pub files: u64,
    /// How many processes the caller may not see the files of.
    pub denied: u64,
    /// How many processes the caller may not see the mapped files of, but all others.
    pub maps_denied: u64,
    /// How many processes ended before or while their files were read.
    pub gone: u64,
    /// How many descriptors led to one file after the other while they were read, so that no
    /// answer fitted together. They are left out.
    pub changed: u64,
    /// How many files are left out because a value that decides about the filter is not known.
    pub undecided: u64,
    /// How many answers of the kernel made no sense. Anything but 0 is a defect.
    pub malformed: u64,
    /// How many processes BPF could not answer about exactly. procfs was asked about some of their
    /// files.
    pub deferred: u64,
    /// How long the longest run of the BPF program took, in nanoseconds. RCU waits for a run to end.
    pub longest_run_ns: u64,
    /// Processes of which something did not come within the patience, ascending: their mapped
    /// files, or the sizes and kinds of some files.
    pub silent: Vec<u32>,
}

impl Answer {
    pub(super) fn new(source: SourceId) -> Answer {
        Answer {
            source,
            files: 0,
            denied: 0,
            maps_denied: 0,
            gone: 0,
            changed: 0,
            undecided: 0,
            malformed: 0,
            deferred: 0,
            longest_run_ns: 0,
            silent: Vec::new(),
        }
    }

    /// The counters with their names, in the order of a report.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let named = [
            ("files", self.files),
            ("denied", self.denied),
            ("maps_denied", self.maps_denied),
            ("gone", self.gone),
            ("changed", self.changed),
            ("undecided", self.undecided),
            ("malformed", self.malformed),
            ("deferred", self.deferred),
            ("no_answer", self.silent.len() as u64),
            ("longest_run_ns", self.longest_run_ns),
        ];
        named.into_iter()
    }
}
