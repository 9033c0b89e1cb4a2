//! The targets for memory maps, and the measurements.

use super::{Case, Entry, BATCHES, SIZES};
use crate::report::Table;
use crate::targets::{Bound, Measured};

/// A target: the second contender must be this many times as fast as the first.
#[derive(Debug)]
struct Target {
    claim: &'static str,
    case: Case,
    slow: &'static str,
    fast: &'static str,
    least: f64,
}

const fn target(claim: &'static str, case: Case, slow: &'static str, fast: &'static str, least: f64) -> Target {
    Target {
        claim,
        case,
        slow,
        fast,
        least,
    }
}

fn targets() -> Vec<Target> {
    let look_up = |batch| Case::LookUp { size: 5_000, batch };
    let mut targets = vec![
        target(
            "64 addresses, times as fast as the text",
            look_up(64),
            "text",
            "taskdiag",
            40.0,
        ),
        target(
            "one address, times as fast as the text",
            look_up(1),
            "text",
            "taskdiag",
            100.0,
        ),
    ];
    for batch in BATCHES {
        let case = Case::Normalize { size: 300, batch };
        targets.push(target(
            "normalizing, times as fast as the text",
            case,
            "text",
            "taskdiag",
            5.0,
        ));
        targets.push(target(
            "normalizing with BPF loaded, times as fast as the text",
            case,
            "text",
            "taskdiag, bpf loaded",
            5.0,
        ));
    }
    for size in SIZES {
        for batch in BATCHES {
            let case = Case::Normalize { size, batch };
            targets.push(target(
                "normalizing, times as fast as blazesym's ioctl",
                case,
                "blazesym ioctl",
                "taskdiag",
                1.0,
            ));
            targets.push(target(
                "with build ids, times as fast as blazesym's ioctl",
                case,
                "blazesym ioctl, build ids",
                "taskdiag, build ids",
                1.0,
            ));
        }
    }
    for size in SIZES {
        targets.push(target(
            "executable mappings of one process",
            Case::List { size },
            "text",
            "taskdiag",
            1.0,
        ));
    }
    targets.push(target(
        "executable mappings of all processes",
        Case::Machine,
        "text",
        "taskdiag bpf, loaded",
        5.0,
    ));
    targets
}

/// Compares the measurements with the targets.
pub fn table(entries: &[Entry]) -> Table {
    let mut table = Table::new(&["target", "case", "wanted", "measured", "min – max of rounds", ""], 2);
    for target in targets() {
        let rounds = |name: &str| {
            let entry = entries
                .iter()
                .find(|entry| entry.case == target.case && entry.name == name);
            entry.map(|entry| &entry.rounds)
        };
        let measured = rounds(target.slow).zip(rounds(target.fast));
        let measured = measured.map(|(slow, fast)| Measured::ratio(slow, fast));
        let begin = [target.claim.to_owned(), said(target.case)];
        table.row(begin.into_iter().chain(Bound::AtLeast(target.least).cells(measured)));
    }
    table
}

fn said(case: Case) -> String {
    match case {
        Case::LookUp { size, batch } | Case::Normalize { size, batch } => format!("{batch} in {size} mappings"),
        Case::List { size } => format!("{size} mappings"),
        Case::Machine => "all processes".to_owned(),
    }
}
