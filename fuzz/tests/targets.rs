//! The fuzz targets on their seeds, on changed seeds and on random bytes. The inputs are the same in
//! every run: `TASKDIAG_FUZZ_SEED` is a number that chooses others, `TASKDIAG_TEST_SCALE` a
//! percentage of their number.

use std::num::NonZeroU64;
use std::path::PathBuf;

use taskdiag_fuzz::TARGETS;
use taskdiag_testkit::numbers::Numbers;
use taskdiag_testkit::scaled;

/// No input is longer, as for libFuzzer.
const LONGEST: usize = 4096;

/// Tells the input if a target panics.
struct Input<'a>(&'a str, &'a [u8]);

impl Drop for Input<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the target {} fails for b\"{}\"", self.0, self.1.escape_ascii());
        }
    }
}

/// The seeds of a target, in an order that is always the same.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let files = directory.read_dir().unwrap_or_else(|error| panic!("{target}: {error}"));
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("a seed")).collect()
}

/// A number below `limit`: small ones are likelier.
fn small(numbers: &mut Numbers, limit: usize) -> usize {
    let most = limit >> numbers.below(limit.ilog2() as usize + 1);
    numbers.below(most)
}

fn random(numbers: &mut Numbers, limit: usize) -> Vec<u8> {
    (0..small(numbers, limit)).map(|_| numbers.number() as u8).collect()
}

/// A seed in which some parts give way to parts of seeds, to random bytes, or to nothing.
fn changed(numbers: &mut Numbers, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut input = seeds[numbers.below(seeds.len())].clone();
    for _ in 0..=small(numbers, 4) {
        let new = if numbers.below(4) == 0 {
            random(numbers, 8)
        } else {
            let seed = &seeds[numbers.below(seeds.len())];
            let from = numbers.below(seed.len());
            seed[from..].iter().copied().take(small(numbers, 32)).collect()
        };
        let start = numbers.below(input.len() + 1);
        let rest = input.len() - start;
        let len = match numbers.below(8) {
            0 => rest,
            1..4 => new.len(),
            4..6 => 0,
            _ => small(numbers, 32),
        };
        input.splice(start..start + len.min(rest), new);
    }
    input.truncate(LONGEST);
    input
}

#[test]
fn no_input_makes_a_target_panic() {
    let seed = std::env::var("TASKDIAG_FUZZ_SEED").map(|seed| seed.parse().map(NonZeroU64::get));
    let seed = seed.map_or(0x9e37_79b9_7f4a_7c15, |seed| seed.expect("a number above 0"));
    for (name, run) in TARGETS {
        let mut numbers = Numbers(seed);
        let seeds = seeds(name);
        let run_on = |bytes: &[u8]| {
            let _input = Input(name, bytes);
            run(bytes);
        };
        seeds.iter().for_each(|seed| run_on(seed));
        // These take ten times as long as others.
        let is_slow = ["history", "records"].contains(&name);
        let runs = if is_slow { 500 } else { 3000 };
        for _ in 0..scaled(runs) {
            run_on(&changed(&mut numbers, &seeds));
            run_on(&random(&mut numbers, LONGEST + 1));
        }
    }
}
