//! Build ids of ELF files: a returned build id is part of the file.

use taskdiag::maps::elf_build_id;

pub fn run(data: &[u8]) {
    if let Some(id) = elf_build_id(data) {
        let id = id.as_bytes();
        assert!((1..=32).contains(&id.len()));
        assert!(data.windows(id.len()).any(|window| window == id));
    }
}
