//! Prints the file and the offset in it that an address of a process belongs to, which profilers
//! need.
//!
//! `cargo run --example normalize [PID ADDRESS...]`

use taskdiag::maps::{normalize, Outcome};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Result<Vec<u64>, _> = std::env::args().skip(1).map(|word| number(&word)).collect();
    let numbers = numbers?;
    let (pid, addresses) = match numbers.split_first() {
        Some((&pid, addresses)) => (u32::try_from(pid)?, addresses.to_vec()),
        // This program, and the beginning of its main().
        None => (std::process::id(), vec![main as *const () as u64]),
    };
    let normalized = normalize(pid, &addresses)?;
    for (address, outcome) in addresses.iter().zip(&normalized.outcomes) {
        match *outcome {
            Outcome::InFile { file, offset } => {
                let file = &normalized.files[file];
                let path = file.path.as_deref().map(|path| path.escape_ascii().to_string());
                println!("{address:#x} {offset:#x} {path:?} {:?}", file.build_id);
            }
            Outcome::Nowhere(reason) => println!("{address:#x} {reason:?}"),
        }
    }
    Ok(())
}

fn number(word: &str) -> Result<u64, std::num::ParseIntError> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    }
}
