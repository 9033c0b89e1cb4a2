//! Which source answers: a pure function of the question and of what is known about kernel and
//! process.

use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::snapshot::SourceId;

use super::{Filter, Perms, Wants};

/// A question about one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// The mappings of this many addresses. `mappings` is the number of mappings of the process, if
    /// known.
    LookUp { addresses: usize, mappings: Option<usize> },
    /// All mappings that pass.
    Walk(Filter),
}

/// What is known before a process is queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// The only source that may answer.
    pub forced: Option<SourceId>,
    /// Whether the kernel has the ioctl; `None` before the first attempt.
    pub has_ioctl: Option<bool>,
    /// The BPF program that walks over mappings is loaded.
    pub walks: bool,
}

/// Costs in nanoseconds (`docs/benchmarks.md`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// A look-up by ioctl.
    query: u64,
    /// The name of the mapping that it finds.
    query_name: u64,
    /// A mapping that the ioctl skips because of a filter.
    passed_over: u64,
    /// A run of the BPF program, and the check afterwards.
    run: u64,
    /// A mapping that it returns, and its share of the names that are queried.
    walked_up: u64,
    /// A mapping that it skips.
    walked_over: u64,
}

impl Default for Cost {
    fn default() -> Cost {
        Cost {
            query: 240,
            query_name: 160,
            passed_over: 35,
            run: 2_000,
            walked_up: 200,
            walked_over: 25,
        }
    }
}

/// The percentage of an ordinary process's mappings that pass a filter.
fn share(filter: Filter) -> u64 {
    let shares = [
        (filter.perms.contains(Perms::SHARED), 5),
        (filter.perms.contains(Perms::EXEC), 25),
        (filter.perms.contains(Perms::WRITE), 35),
        (filter.file_backed, 75),
    ];
    let least = shares.into_iter().find(|(is_asked, _)| *is_asked);
    least.map_or(100, |(_, share)| share)
}

/// Chooses the source that answers.
pub(super) fn plan(question: Question, wants: Wants, facts: &Facts, cost: &Cost) -> Result<SourceId> {
    if let Some(forced) = facts.forced {
        return match forced {
            SourceId::Procmap if facts.has_ioctl == Some(false) => Err(Error::new(
                ErrorKind::Unsupported,
                "this kernel has no PROCMAP_QUERY (it came with Linux 6.11)",
            )),
            SourceId::Procmap | SourceId::Bpf if wants.contains(Wants::USAGE) => Err(Error::new(
                ErrorKind::Unsupported,
                "resident and dirty sizes are only in the text",
            )),
            forced => Ok(forced),
        };
    }
    // A line of text takes less time than a look-up with a name, 300 ns instead of 400 ns. But the
    // kernel omits mappings from its text while others change (docs/maps.md).
    if wants.contains(Wants::USAGE) || facts.has_ioctl == Some(false) {
        return Ok(SourceId::Procfs);
    }
    if wants.contains(Wants::PAGE_SIZES) {
        return Ok(SourceId::Procmap);
    }
    let query = cost.query
        + if wants.contains(Wants::NAMES) {
            cost.query_name
        } else {
            0
        };
    let (by_ioctl, by_walk) = match question {
        Question::LookUp { addresses, mappings } => {
            // One look-up finds all addresses of a mapping.
            let found = mappings.map_or(addresses, |mappings| addresses.min(mappings)) as u64;
            (found * query, found * cost.walked_up)
        }
        Question::Walk(filter) => {
            let share = share(filter);
            let by_walk = share * cost.walked_up + (100 - share) * cost.walked_over;
            (share * query + (100 - share) * cost.passed_over, by_walk)
        }
    };
    if facts.walks && cost.run + by_walk < by_ioctl {
        Ok(SourceId::Bpf)
    } else {
        Ok(SourceId::Procmap)
    }
}

/// What is known before all processes are queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MachineFacts {
    /// The only source that may answer.
    pub forced: Option<SourceId>,
    /// The BPF program is loaded.
    pub is_loaded: bool,
    /// The program can be loaded, as far as is known.
    pub can_load: bool,
    /// How many tasks the machine has, if known.
    pub tasks: Option<u32>,
}

/// Chooses the source that answers about all processes.
pub(super) fn plan_machine(facts: &MachineFacts) -> SourceId {
    /// The time that loading takes, in nanoseconds.
    const LOAD: u64 = 8_000_000;
    /// The time that BPF saves for each task, in nanoseconds: opening, reading and closing its maps
    /// file, and parsing some thirty lines, less BPF's own time.
    const SAVED: u64 = 10_000;
    let pays_off = facts.tasks.is_some_and(|tasks| u64::from(tasks) * SAVED > LOAD);
    match facts.forced {
        Some(forced) => forced,
        None if facts.is_loaded || facts.can_load && pays_off => SourceId::Bpf,
        None => SourceId::Procfs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: Facts = Facts {
        forced: None,
        has_ioctl: None,
        walks: false,
    };

    fn planned(question: Question, wants: Wants, facts: &Facts) -> Option<SourceId> {
        plan(question, wants, facts, &Cost::default()).ok()
    }

    /// Check that the ioctl answers about addresses and lists while BPF is not loaded.
    #[test]
    fn the_ioctl_answers_without_bpf() {
        for (addresses, mappings) in [(1, None), (64, Some(5000)), (1024, Some(30))] {
            let question = Question::LookUp { addresses, mappings };
            assert_eq!(planned(question, Wants::NAMES, &UNKNOWN), Some(SourceId::Procmap));
        }
        for filter in [Filter::default(), Perms::EXEC.into()] {
            let question = Question::Walk(filter);
            assert_eq!(planned(question, Wants::NAMES, &UNKNOWN), Some(SourceId::Procmap));
        }
    }

    /// Check that BPF, if it is loaded, answers about many addresses and lists, but not about few.
    #[test]
    fn many_addresses_are_asked_of_bpf() {
        let facts = Facts { walks: true, ..UNKNOWN };
        let look_up = |addresses| Question::LookUp {
            addresses,
            mappings: None,
        };
        assert_eq!(planned(look_up(1), Wants::NAMES, &facts), Some(SourceId::Procmap));
        assert_eq!(planned(look_up(64), Wants::NAMES, &facts), Some(SourceId::Bpf));
        let all = Question::Walk(Filter::default());
        assert_eq!(planned(all, Wants::NAMES, &facts), Some(SourceId::Bpf));
        assert_eq!(planned(look_up(64), Wants::PAGE_SIZES, &facts), Some(SourceId::Procmap));
        assert_eq!(planned(all, Wants::USAGE, &facts), Some(SourceId::Procfs));
    }

    /// Check that a value that only one source has comes from that source, and that the text
    /// answers on a kernel without the ioctl.
    #[test]
    fn sources_are_asked_for_what_they_have() {
        let old = Facts {
            has_ioctl: Some(false),
            ..UNKNOWN
        };
        for question in [
            Question::Walk(Filter::default()),
            Question::LookUp {
                addresses: 1,
                mappings: None,
            },
        ] {
            assert_eq!(planned(question, Wants::NAMES, &old), Some(SourceId::Procfs));
            assert_eq!(planned(question, Wants::USAGE, &UNKNOWN), Some(SourceId::Procfs));
            assert_eq!(planned(question, Wants::PAGE_SIZES, &UNKNOWN), Some(SourceId::Procmap));
            assert_eq!(planned(question, Wants::BUILD_IDS, &old), Some(SourceId::Procfs));
        }
    }

    /// Check that a forced source answers or fails.
    #[test]
    fn forced_sources_are_not_replaced() {
        let forced = |source, has_ioctl| Facts {
            forced: Some(source),
            has_ioctl,
            walks: false,
        };
        let walk = Question::Walk(Filter::default());
        for source in [SourceId::Procmap, SourceId::Bpf, SourceId::Procfs] {
            assert_eq!(planned(walk, Wants::NAMES, &forced(source, None)), Some(source));
        }
        assert_eq!(
            planned(walk, Wants::NAMES, &forced(SourceId::Procmap, Some(false))),
            None
        );
        assert_eq!(planned(walk, Wants::USAGE, &forced(SourceId::Bpf, None)), None);
    }

    /// Check that BPF answers about all processes if it is loaded, or worth loading.
    #[test]
    fn large_machines_are_worth_loading() {
        let facts = MachineFacts {
            forced: None,
            is_loaded: false,
            can_load: true,
            tasks: Some(5000),
        };
        assert_eq!(plan_machine(&facts), SourceId::Bpf);
        assert_eq!(
            plan_machine(&MachineFacts {
                tasks: Some(50),
                ..facts
            }),
            SourceId::Procfs
        );
        assert_eq!(plan_machine(&MachineFacts { tasks: None, ..facts }), SourceId::Procfs);
        assert_eq!(
            plan_machine(&MachineFacts {
                can_load: false,
                ..facts
            }),
            SourceId::Procfs
        );
        let loaded = MachineFacts {
            is_loaded: true,
            tasks: Some(50),
            ..facts
        };
        assert_eq!(plan_machine(&loaded), SourceId::Bpf);
    }
}
