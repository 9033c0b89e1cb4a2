//! Which source answers about files: a pure function of what is known.

use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::snapshot::SourceId;

/// What is known before files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// The only source that may answer.
    pub forced: Option<SourceId>,
    /// The BPF program is loaded.
    pub is_loaded: bool,
    /// The program can be loaded, as far as is known.
    pub can_load: bool,
    /// Procfs denies the caller the files of no process. BPF never does.
    pub sees_values: bool,
    /// The number of processes whose files are asked for.
    pub processes: usize,
}

/// The time that loading takes, in nanoseconds.
const LOAD: u64 = 8_000_000;
/// The time that BPF saves for each process, in nanoseconds: some ten system calls for each of its
/// files.
const SAVED: u64 = 160_000;
/// The number of processes from which a loaded program is faster: it must run at least once.
const WORTH_A_RUN: usize = 2;

/// Chooses the source that answers.
pub(super) fn plan(facts: &Facts) -> Result<SourceId> {
    match facts.forced {
        Some(source @ (SourceId::Bpf | SourceId::Procfs | SourceId::Broker)) => Ok(source),
        Some(source) => Err(Error::new(
            ErrorKind::Unsupported,
            format!("the source {source} does not answer about open files: bpf, procfs and broker do"),
        )),
        None if !facts.sees_values && facts.processes > 0 && (facts.is_loaded || facts.can_load) => Ok(SourceId::Bpf),
        None if facts.is_loaded && facts.processes >= WORTH_A_RUN => Ok(SourceId::Bpf),
        None if facts.can_load && facts.processes as u64 * SAVED > LOAD => Ok(SourceId::Bpf),
        None => Ok(SourceId::Procfs),
    }
}

/// Whether loading the program that finds which processes map a file pays off, compared with
/// reading the text of all mappings.
pub(super) fn is_worth_a_walk(processes: usize) -> bool {
    /// The time that the program saves for each process, in nanoseconds.
    const SAVED: u64 = 20_000;
    processes as u64 * SAVED > LOAD
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that BPF answers about many processes, that a forced source is not replaced, and that
    /// unsuitable sources do not answer.
    #[test]
    fn many_processes_are_worth_loading() {
        let facts = Facts {
            forced: None,
            is_loaded: false,
            can_load: true,
            sees_values: true,
            processes: 5000,
        };
        let planned = |facts: Facts| plan(&facts).expect("a source");
        assert_eq!(planned(facts), SourceId::Bpf);
        let few = Facts { processes: 20, ..facts };
        assert_eq!(planned(few), SourceId::Procfs);
        assert_eq!(planned(Facts { is_loaded: true, ..few }), SourceId::Bpf);
        let one = Facts {
            is_loaded: true,
            processes: 1,
            ..facts
        };
        assert_eq!(planned(one), SourceId::Procfs);
        assert_eq!(
            planned(Facts {
                can_load: false,
                ..facts
            }),
            SourceId::Procfs
        );
        for source in [SourceId::Bpf, SourceId::Procfs, SourceId::Broker] {
            let forced = Facts {
                forced: Some(source),
                ..one
            };
            assert_eq!(planned(forced), source);
        }
        // A caller without the right to trace sees more through BPF, whatever the cost.
        let capable = Facts {
            sees_values: false,
            processes: 1,
            ..facts
        };
        assert_eq!(planned(capable), SourceId::Bpf);
        assert_eq!(
            planned(Facts {
                processes: 0,
                ..capable
            }),
            SourceId::Procfs
        );
        assert_eq!(
            planned(Facts {
                can_load: false,
                ..capable
            }),
            SourceId::Procfs
        );
        assert!(is_worth_a_walk(5000) && !is_worth_a_walk(300));
        let smaps = Facts {
            forced: Some(SourceId::Smaps),
            ..facts
        };
        assert_eq!(plan(&smaps).expect_err("it does not").kind(), ErrorKind::Unsupported);
    }
}
