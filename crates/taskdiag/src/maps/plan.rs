//! Which source answers: a pure function of the question and of what is known of kernel and
//! process.

use taskdiag_core::error::{Error, ErrorKind, Result};

use super::{Filter, Source, Wants};

/// A question about one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// The mappings of so many addresses. `mappings` is how many the process has, if that is known.
    LookUp { addresses: usize, mappings: Option<usize> },
    /// All mappings that pass.
    Walk(Filter),
}

/// What is known before a process is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// The only source that may answer.
    pub forced: Option<Source>,
    /// Whether the kernel has the ioctl; `None` until it was tried.
    pub has_ioctl: Option<bool>,
    /// The BPF program that walks over mappings is loaded.
    pub walks: bool,
}

/// What things take, in nanoseconds (`docs/benchmarks.md`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// A look-up by ioctl.
    query: u64,
    /// The name of what it finds.
    query_name: u64,
    /// A mapping that the ioctl passes over because of a filter.
    passed_over: u64,
    /// A run of the BPF program, and the check afterwards.
    run: u64,
    /// A mapping that it returns, and its share of the names that are asked for.
    walked_up: u64,
    /// A mapping that it passes over.
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

/// How many of a hundred mappings of an ordinary process pass a filter.
fn share(filter: Filter) -> u64 {
    let shares = [
        (Filter::SHARED, 5),
        (Filter::EXECUTABLE, 25),
        (Filter::WRITABLE, 35),
        (Filter::FILE_BACKED, 75),
    ];
    let least = shares.into_iter().find(|(flag, _)| filter.contains(*flag));
    least.map_or(100, |(_, share)| share)
}

/// Chooses the source that answers.
pub(super) fn plan(question: Question, wants: Wants, facts: &Facts, cost: &Cost) -> Result<Source> {
    if let Some(forced) = facts.forced {
        return match forced {
            Source::Procmap if facts.has_ioctl == Some(false) => Err(Error::new(
                ErrorKind::Unsupported,
                "this kernel has no PROCMAP_QUERY (it came with Linux 6.11)",
            )),
            Source::Procmap | Source::Bpf if wants.contains(Wants::USAGE) => Err(Error::new(
                ErrorKind::Unsupported,
                "resident and dirty sizes are only in the text",
            )),
            forced => Ok(forced),
        };
    }
    // A line of text takes less time than a look-up with a name, 300 ns to 400 ns. But the kernel
    // leaves mappings out of its text while others change (docs/maps.md).
    if wants.contains(Wants::USAGE) || facts.has_ioctl == Some(false) {
        return Ok(Source::Procfs);
    }
    if wants.contains(Wants::PAGE_SIZES) {
        return Ok(Source::Procmap);
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
        Ok(Source::Bpf)
    } else {
        Ok(Source::Procmap)
    }
}

/// What is known before all processes are asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MachineFacts {
    /// The only source that may answer.
    pub forced: Option<Source>,
    /// The BPF program is loaded.
    pub is_loaded: bool,
    /// It can be loaded, as far as is known.
    pub can_load: bool,
    /// How many tasks the machine has, if known.
    pub tasks: Option<u32>,
}

/// Chooses the source that answers about all processes.
pub(super) fn plan_machine(facts: &MachineFacts) -> Source {
    /// The time that loading takes, in nanoseconds.
    const LOAD: u64 = 8_000_000;
    /// The time that BPF saves for each task, in nanoseconds: opening, reading and closing its maps
    /// file, and parsing some thirty lines, less BPF's own time.
    const SAVED: u64 = 10_000;
    match facts {
        MachineFacts {
            forced: Some(forced), ..
        } => *forced,
        MachineFacts { is_loaded: true, .. } => Source::Bpf,
        MachineFacts {
            can_load: true,
            tasks: Some(tasks),
            ..
        } if u64::from(*tasks) * SAVED > LOAD => Source::Bpf,
        _ => Source::Procfs,
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

    fn planned(question: Question, wants: Wants, facts: &Facts) -> Option<Source> {
        plan(question, wants, facts, &Cost::default()).ok()
    }

    /// Check that the ioctl answers about addresses and lists while BPF is not loaded.
    #[test]
    fn the_ioctl_answers_without_bpf() {
        for (addresses, mappings) in [(1, None), (64, Some(5000)), (1024, Some(30))] {
            let question = Question::LookUp { addresses, mappings };
            assert_eq!(planned(question, Wants::NAMES, &UNKNOWN), Some(Source::Procmap));
        }
        for filter in [Filter::empty(), Filter::EXECUTABLE] {
            let question = Question::Walk(filter);
            assert_eq!(planned(question, Wants::NAMES, &UNKNOWN), Some(Source::Procmap));
        }
    }

    /// Check that BPF answers about many addresses, and lists, where it is loaded, but not about
    /// few.
    #[test]
    fn many_addresses_are_asked_of_bpf() {
        let facts = Facts { walks: true, ..UNKNOWN };
        let look_up = |addresses| Question::LookUp {
            addresses,
            mappings: None,
        };
        assert_eq!(planned(look_up(1), Wants::NAMES, &facts), Some(Source::Procmap));
        assert_eq!(planned(look_up(64), Wants::NAMES, &facts), Some(Source::Bpf));
        let all = Question::Walk(Filter::empty());
        assert_eq!(planned(all, Wants::NAMES, &facts), Some(Source::Bpf));
        assert_eq!(planned(look_up(64), Wants::PAGE_SIZES, &facts), Some(Source::Procmap));
        assert_eq!(planned(all, Wants::USAGE, &facts), Some(Source::Procfs));
    }

    /// Check that what only one source has is asked of that one, and that the text answers on a
    /// kernel without the ioctl.
    #[test]
    fn sources_are_asked_for_what_they_have() {
        let old = Facts {
            has_ioctl: Some(false),
            ..UNKNOWN
        };
        for question in [
            Question::Walk(Filter::empty()),
            Question::LookUp {
                addresses: 1,
                mappings: None,
            },
        ] {
            assert_eq!(planned(question, Wants::NAMES, &old), Some(Source::Procfs));
            assert_eq!(planned(question, Wants::USAGE, &UNKNOWN), Some(Source::Procfs));
            assert_eq!(planned(question, Wants::PAGE_SIZES, &UNKNOWN), Some(Source::Procmap));
            assert_eq!(planned(question, Wants::BUILD_IDS, &old), Some(Source::Procfs));
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
        let walk = Question::Walk(Filter::empty());
        for source in [Source::Procmap, Source::Bpf, Source::Procfs] {
            assert_eq!(planned(walk, Wants::NAMES, &forced(source, None)), Some(source));
        }
        assert_eq!(planned(walk, Wants::NAMES, &forced(Source::Procmap, Some(false))), None);
        assert_eq!(planned(walk, Wants::USAGE, &forced(Source::Bpf, None)), None);
    }

    /// Check that BPF answers about all processes where it is loaded, or worth loading.
    #[test]
    fn large_machines_are_worth_loading() {
        let facts = MachineFacts {
            forced: None,
            is_loaded: false,
            can_load: true,
            tasks: Some(5000),
        };
        assert_eq!(plan_machine(&facts), Source::Bpf);
        assert_eq!(
            plan_machine(&MachineFacts {
                tasks: Some(50),
                ..facts
            }),
            Source::Procfs
        );
        assert_eq!(plan_machine(&MachineFacts { tasks: None, ..facts }), Source::Procfs);
        assert_eq!(
            plan_machine(&MachineFacts {
                can_load: false,
                ..facts
            }),
            Source::Procfs
        );
        let loaded = MachineFacts {
            is_loaded: true,
            tasks: Some(50),
            ..facts
        };
        assert_eq!(plan_machine(&loaded), Source::Bpf);
    }
}
