//! Build ids of ELF files: a returned build id is part of the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use taskdiag::maps::fuzz::build_id;

fuzz_target!(|data: &[u8]| {
    if let Some(id) = build_id(data) {
        let id = id.as_bytes();
        assert!((1..=20).contains(&id.len()));
        assert!(data.windows(id.len()).any(|window| window == id));
    }
});
