//! Runs the fuzz target that the variable `FUZZ` names, with libFuzzer.

#![no_main]

use std::sync::LazyLock;

use taskdiag_fuzz::TARGETS;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let named = std::env::var("FUZZ").expect("FUZZ names a target");
    let target = TARGETS.iter().find(|(name, _)| *name == named);
    target.unwrap_or_else(|| panic!("there is no target {named}")).1
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));
