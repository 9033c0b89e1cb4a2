//! What we set out to reach with the page cache, and what was measured.

use super::{files, Scene, WINDOWS};
use crate::measure::Entry;
use crate::report::{number, Table};
use crate::targets::Bound::{self, AtLeast, AtMost};
use crate::targets::{figures, ratios, Measured};

/// What is compared.
#[derive(Clone, Copy, Debug)]
enum Figure {
    /// The time of the first one, so many times over, as a multiple of the other's.
    Times(&'static str, f64, &'static str),
    /// Microseconds.
    Micros(&'static str),
    /// System calls a file of the tree, without those that the same directories take without files.
    CallsPerFile(&'static str, &'static str),
    /// The most memory, in MiB.
    Peak(&'static str),
}

/// A line of what we set out to reach.
#[derive(Debug)]
struct Target {
    scene: Scene,
    claim: &'static str,
    figure: Figure,
    bound: Bound,
}

const fn target(scene: Scene, claim: &'static str, figure: Figure, bound: Bound) -> Target {
    Target {
        scene,
        claim,
        figure,
        bound,
    }
}

use Figure::{CallsPerFile, Micros, Peak, Times};
use Scene::{Big, Million, Scattered, Sparse, Tree};

#[rustfmt::skip]
const TARGETS: &[Target] = &[
    target(Sparse, "times as fast as mincore of the whole, scaled from 16 GiB", Times("sparse/mincore-window", WINDOWS, "sparse/library"), AtLeast(4000.0)),
    target(Sparse, "microseconds", Micros("sparse/library"), AtMost(100.0)),
    target(Big, "times as fast as mincore", Times("big/mincore", 1.0, "big/library"), AtLeast(5.0)),
    target(Tree, "a walk: times as fast as the mincore walk", Times("tree/mincore-walk", 1.0, "tree/library"), AtLeast(3.0)),
    target(Tree, "by one thread: times as fast as the mincore walk", Times("tree/mincore-walk", 1.0, "tree/library-1-thread"), AtLeast(1.0)),
    target(Tree, "taskdiag cache: times as fast as the mincore walk", Times("tree/mincore-walk", 1.0, "tree/taskdiag"), AtLeast(3.0)),
    target(Tree, "taskdiag cache: times as fast as fincore", Times("tree/fincore", 1.0, "tree/taskdiag"), AtLeast(2.0)),
    target(Tree, "taskdiag cache -s: times as fast as vmtouch", Times("tree/vmtouch", 1.0, "tree/taskdiag-sum"), AtLeast(2.0)),
    target(Tree, "system calls a regular file", CallsPerFile("tree/library", "tree/library-no-files"), AtMost(4.0)),
    target(Scattered, "a walk: times as fast as the mincore walk", Times("scattered/mincore-walk", 1.0, "scattered/library"), AtLeast(3.0)),
    target(Scattered, "taskdiag cache: times as fast as the mincore walk", Times("scattered/mincore-walk", 1.0, "scattered/taskdiag"), AtLeast(3.0)),
    target(Million, "peak MiB, without --sort", Peak("million/taskdiag"), AtMost(64.0)),
    target(Million, "peak MiB, as JSON", Peak("million/taskdiag-json"), AtMost(64.0)),
];

/// Compares what was measured with what we set out to reach.
pub fn table(scene: Scene, entries: &[Entry]) -> Table {
    let mut table = Table::new(&["target", "wanted", "measured", "min – max of rounds", ""], 1);
    for target in TARGETS.iter().filter(|target| target.scene == scene) {
        let claim = target.claim.to_owned();
        table.row(match measured(target.figure, entries) {
            Ok(measured) => {
                // As it is shown: two figures after the point.
                let middle = (measured.middle * 100.0).round() / 100.0;
                let verdict = if target.bound.holds(middle) { "met" } else { "NOT met" };
                let cells = [claim, target.bound.text(), number(measured.middle), measured.spread()];
                let [claim, bound, middle, spread] = cells;
                [claim, bound, middle, spread, verdict.to_owned()]
            }
            Err(reason) => [
                claim,
                target.bound.text(),
                "–".to_owned(),
                reason,
                "not measured".to_owned(),
            ],
        });
    }
    table
}

fn measured(figure: Figure, entries: &[Entry]) -> Result<Measured, String> {
    let single = |middle| Measured { middle, ends: None };
    match figure {
        Times(slow, times, fast) => {
            let ratios = ratios(figures(entries, slow)?, figures(entries, fast)?);
            Ok(Measured {
                middle: ratios.middle * times,
                ends: ratios.ends.map(|(least, most)| (least * times, most * times)),
            })
        }
        Micros(name) => {
            let figures = figures(entries, name)?;
            let least = figures.rounds.iter().copied().fold(f64::INFINITY, f64::min);
            let most = figures.rounds.iter().copied().fold(0.0, f64::max);
            Ok(Measured {
                middle: figures.median() * 1e3,
                ends: Some((least * 1e3, most * 1e3)),
            })
        }
        CallsPerFile(name, without) => {
            let calls = |name| figures(entries, name)?.counts.calls.clone();
            Ok(single(
                calls(name)?.saturating_sub(calls(without)?) as f64 / files::TREE as f64,
            ))
        }
        Peak(name) => Ok(single(figures(entries, name)?.counts.peak_kib.clone()? as f64 / 1024.0)),
    }
}
