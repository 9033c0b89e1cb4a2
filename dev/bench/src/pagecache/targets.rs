//! The targets for the page cache, and the measurements.

use super::{files, Scene, WINDOWS};
use crate::measure::{least_and_most, Entry};
use crate::report::Table;
use crate::targets::Bound::{self, AtLeast, AtMost};
use crate::targets::{figures, Measured};

/// A comparison.
#[derive(Clone, Copy, Debug)]
enum Figure {
    /// The time of the first contender, multiplied, relative to the other's time.
    Times(&'static str, f64, &'static str),
    /// Microseconds.
    Micros(&'static str),
    /// System calls per file of the tree, without those that the same directories need without
    /// files.
    CallsPerFile(&'static str, &'static str),
    /// The peak memory, in MiB.
    Peak(&'static str),
}

/// A target.
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

/// Compares the measurements with the targets.
pub fn table(scene: Scene, entries: &[Entry]) -> Table {
    let mut table = Table::new(&["target", "wanted", "measured", "min – max of rounds", ""], 1);
    for target in TARGETS.iter().filter(|target| target.scene == scene) {
        let (measured, reason) = match measured(target.figure, entries) {
            Ok(measured) => (Some(measured), None),
            Err(reason) => (None, Some(reason)),
        };
        // As it is shown: two figures after the point.
        let shown = measured
            .as_ref()
            .map(|measured| (measured.middle * 100.0).round() / 100.0);
        let [wanted, middle, spread, _] = target.bound.cells(measured);
        let verdict = target.bound.verdict(shown).to_owned();
        table.row([
            target.claim.to_owned(),
            wanted,
            middle,
            reason.unwrap_or(spread),
            verdict,
        ]);
    }
    table
}

fn measured(figure: Figure, entries: &[Entry]) -> Result<Measured, String> {
    let single = |middle| Measured { middle, ends: None };
    match figure {
        Times(slow, times, fast) => {
            let ratios = Measured::ratio(&figures(entries, slow)?.rounds, &figures(entries, fast)?.rounds);
            Ok(Measured {
                middle: ratios.middle * times,
                ends: ratios.ends.map(|(least, most)| (least * times, most * times)),
            })
        }
        Micros(name) => {
            let figures = figures(entries, name)?;
            let (least, most) = least_and_most(&figures.rounds);
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
