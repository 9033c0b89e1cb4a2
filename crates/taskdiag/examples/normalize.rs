//! Prints the file to which an address of a process belongs, and the offset in the file, as
//! profilers need them.
//!
//! `cargo run --example normalize [PID ADDRESS...]`

use taskdiag::maps::{Normalizer, Outcome};
use taskdiag::Handle;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Result<Vec<u64>, _> = std::env::args().skip(1).map(|word| number(&word)).collect();
    let numbers = numbers?;
    let (pid, addresses) = match numbers.split_first() {
        Some((&pid, addresses)) => (u32::try_from(pid)?, addresses.to_vec()),
        // This program, and the start of its main().
        None => (std::process::id(), vec![main as *const () as u64]),
    };
    let mut maps = Handle::new().maps(pid)?;
    let normalized = Normalizer::new().normalize(&mut maps, &addresses)?;
    for (address, outcome) in addresses.iter().zip(&normalized.outcomes) {
        match *outcome {
            Outcome::InFile { file, offset } => {
                let file = &normalized.files[file];
                let path = file.path.as_deref().map(|path| path.escape_ascii().to_string());
                println!("{address:#x} {offset:#x} {path:?} {:?}", file.build_id);
            }
            other => println!("{address:#x} {other:?}"),
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
