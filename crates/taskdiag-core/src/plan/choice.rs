//! The one way to choose a source: the cheapest that can answer, or the only one that may.

use std::fmt::Display;

use super::Cost;
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::SourceId;
use crate::support::{refusal_kind, Fact};

/// The cost of a source that answers only if it is forced, or no other one can.
pub const LAST: u64 = u64::MAX;

/// A source, and the time in nanoseconds that it takes, or why it can't answer.
pub type Candidate<'a, S = SourceId> = (S, std::result::Result<u64, &'a Fact>);

/// Chooses the cheapest source, and of equal ones the first. `forced` is the only one that may
/// answer. `what` it is to do, for messages.
pub fn choose<S>(what: &str, forced: Option<S>, candidates: &[Candidate<'_, S>]) -> Result<S>
where
    S: Copy + PartialEq + Display,
{
    let Some(forced) = forced else {
        let able = candidates
            .iter()
            .filter_map(|&(source, cost)| Some((source, cost.ok()?)));
        return able
            .min_by_key(|&(_, cost)| cost)
            .map(|(source, _)| source)
            .ok_or_else(|| {
                let facts: Vec<&Fact> = candidates.iter().filter_map(|&(_, cost)| cost.err()).collect();
                let why: Vec<String> = facts.iter().map(|fact| fact.sentence()).collect();
                Error::new(
                    refusal_kind(&facts),
                    format!("no source can {what}: {}", why.join("; ")),
                )
            });
    };
    match candidates.iter().find(|&&(source, _)| source == forced) {
        Some((_, Ok(_))) => Ok(forced),
        Some((_, Err(fact))) => {
            let message = format!("the source {forced} can't {what}: {}", fact.sentence());
            Err(Error::new(refusal_kind(&[fact]), message))
        }
        None => {
            let others: Vec<String> = candidates.iter().map(|(source, _)| source.to_string()).collect();
            let message = format!("the source {forced} does not {what}: {} do", others.join(", "));
            Err(Error::new(ErrorKind::Unsupported, message))
        }
    }
}

/// A question about many processes that one BPF program can answer by itself, and procfs one
/// process after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkChoice {
    /// The program is loaded.
    pub is_loaded: bool,
    /// It can be loaded, as far as is known.
    pub can_load: bool,
    /// Procfs denies the caller values that BPF shows.
    pub is_denied: bool,
    /// The number of processes.
    pub processes: u64,
    /// How much longer procfs takes for each, in nanoseconds.
    pub procfs_extra_ns: u64,
}

impl WalkChoice {
    /// Chooses the source. `forced` and `what` as for [`choose`].
    pub fn source(&self, what: &str, forced: Option<SourceId>, cost: &Cost) -> Result<SourceId> {
        let by_bpf = match (self.is_loaded, self.can_load) {
            (false, false) => LAST,
            _ if self.is_denied && self.processes > 0 => 0,
            (true, _) => cost.walk_ns,
            (false, true) => cost.load_ns + cost.walk_ns,
        };
        let candidates = [
            (SourceId::Procfs, Ok(self.processes * self.procfs_extra_ns)),
            (SourceId::Bpf, Ok(by_bpf)),
            // Only for those who ask it about processes, too.
            (SourceId::Broker, Ok(LAST)),
        ];
        choose(what, forced, &candidates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the cheapest source is chosen, of equal ones the first, and only the forced one if
    /// there is one; and that errors say why, or who else answers.
    #[test]
    fn the_cheapest_answers_or_the_forced_one() {
        let [procfs, bpf, broker] = [SourceId::Procfs, SourceId::Bpf, SourceId::Broker];
        let no = Fact::denied("CAP_BPF is missing", "run as root");
        let chosen = |costs: [_; 2]| choose("answer", None, &[(procfs, costs[0]), (bpf, costs[1])]);
        assert_eq!(chosen([Ok(2), Ok(1)]).ok(), Some(bpf));
        assert_eq!(chosen([Ok(1), Ok(1)]).ok(), Some(procfs));
        assert_eq!(chosen([Err(&no), Ok(LAST)]).ok(), Some(bpf));
        let none = chosen([Err(&no), Err(&no)]).expect_err("there is none");
        assert_eq!(none.kind(), ErrorKind::Denied);
        let forced = |source| choose("answer", Some(source), &[(procfs, Ok(LAST)), (bpf, Err(&no))]);
        assert_eq!(forced(procfs).ok(), Some(procfs));
        let message = |source| forced(source).expect_err("it can't").to_string();
        assert_eq!(
            message(bpf),
            "the source bpf can't answer: CAP_BPF is missing (run as root)"
        );
        assert_eq!(message(broker), "the source broker does not answer: procfs, bpf do");
    }

    /// Check that a walk over many processes is worth loading, one over few is not, and that a
    /// caller without the right to trace gets more from BPF, whatever the cost.
    #[test]
    fn many_processes_are_worth_loading() {
        let cost = Cost::default();
        let many = WalkChoice {
            is_loaded: false,
            can_load: true,
            is_denied: false,
            processes: 5000,
            procfs_extra_ns: cost.files_ns,
        };
        let source = |walk: WalkChoice| walk.source("answer", None, &cost).expect("a source");
        let few = WalkChoice { processes: 20, ..many };
        let one = WalkChoice { processes: 1, ..many };
        for (walk, chosen) in [
            (many, SourceId::Bpf),
            (few, SourceId::Procfs),
            (WalkChoice { is_loaded: true, ..few }, SourceId::Bpf),
            (WalkChoice { is_loaded: true, ..one }, SourceId::Procfs),
            (
                WalkChoice {
                    can_load: false,
                    ..many
                },
                SourceId::Procfs,
            ),
            (WalkChoice { is_denied: true, ..one }, SourceId::Bpf),
            (
                WalkChoice {
                    is_denied: true,
                    processes: 0,
                    ..one
                },
                SourceId::Procfs,
            ),
            (
                WalkChoice {
                    is_denied: true,
                    can_load: false,
                    ..one
                },
                SourceId::Procfs,
            ),
            (
                WalkChoice {
                    procfs_extra_ns: cost.mappings_ns,
                    ..many
                },
                SourceId::Bpf,
            ),
            (
                WalkChoice {
                    procfs_extra_ns: cost.mappings_ns,
                    processes: 100,
                    ..many
                },
                SourceId::Procfs,
            ),
            (
                WalkChoice {
                    procfs_extra_ns: cost.mapped_ns,
                    processes: 300,
                    ..many
                },
                SourceId::Procfs,
            ),
        ] {
            assert_eq!(source(walk), chosen, "{walk:?}");
        }
    }
}
