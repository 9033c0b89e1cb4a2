//! Which source answers: a pure function of the question and of what is known about kernel and
//! process.

use taskdiag_core::error::Result;
use taskdiag_core::plan::{choose, Cost, LAST};
use taskdiag_core::snapshot::SourceId;
use taskdiag_core::support::Fact;

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
    static NO_IOCTL: Fact = Fact::missing("this kernel has no PROCMAP_QUERY (it came with Linux 6.11)");
    static ONLY_TEXT: Fact = Fact::missing("resident and dirty sizes are only in the text");
    let map_ns = cost.map_ns + u64::from(wants.contains(Wants::NAMES)) * cost.map_name_ns;
    let (by_ioctl, by_walk) = match question {
        Question::LookUp { addresses, mappings } => {
            // One look-up finds all addresses of a mapping.
            let found = mappings.map_or(addresses, |mappings| addresses.min(mappings)) as u64;
            (found * map_ns, found * cost.map_walked_ns)
        }
        Question::Walk(filter) => {
            let (share, rest) = (share(filter), 100 - share(filter));
            (
                share * map_ns + rest * cost.map_skipped_ns,
                share * cost.map_walked_ns + rest * cost.map_passed_ns,
            )
        }
    };
    let has_no_ioctl = facts.has_ioctl == Some(false);
    let (by_ioctl, by_bpf) = match wants {
        wants if wants.contains(Wants::USAGE) => (Err(&ONLY_TEXT), Err(&ONLY_TEXT)),
        wants if !facts.walks || has_no_ioctl || wants.contains(Wants::PAGE_SIZES) => (Ok(by_ioctl), Ok(LAST)),
        _ => (Ok(by_ioctl), Ok(cost.map_walk_ns + by_walk)),
    };
    let candidates = [
        (
            SourceId::Procmap,
            by_ioctl.and_then(|cost| if has_no_ioctl { Err(&NO_IOCTL) } else { Ok(cost) }),
        ),
        // A line of text takes less time than a look-up with a name, 300 ns instead of 400 ns. But the
        // kernel omits mappings from its text while others change (docs/maps.md).
        (SourceId::Procfs, Ok(LAST)),
        (SourceId::Bpf, by_bpf),
    ];
    choose("answer about mappings", facts.forced, &candidates)
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
}
