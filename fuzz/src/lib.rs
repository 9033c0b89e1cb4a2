//! The fuzz targets: what each one does with some bytes. libFuzzer runs them (`make fuzz`), and a
//! property test.

#![allow(missing_docs)] // its users are near

mod answers;
mod cgroups;
mod elf;
mod filters;
mod history;
mod maps;
mod messages;
mod process;
mod records;
mod requests;
mod sockets;
mod units;

use arbitrary::{Result, Unstructured};

/// The name of a target, and what it does. It panics if something is wrong.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: [Target; 12] = [
    ("answers", answers::run),
    ("cgroups", cgroups::run),
    ("elf", elf::run),
    ("filters", filters::run),
    ("history", history::run),
    ("maps", maps::run),
    ("messages", messages::run),
    ("process", process::run),
    ("records", records::run),
    ("requests", requests::run),
    ("sockets", sockets::run),
    ("units", units::run),
];

/// Changes up to two bytes of what was made from the input.
fn change(input: &mut Unstructured<'_>, bytes: &mut [u8]) -> Result<()> {
    for _ in 0..input.int_in_range(0..=2)? {
        let at = input.int_in_range(0..=bytes.len().max(1) - 1)?;
        if let Some(byte) = bytes.get_mut(at) {
            *byte = input.arbitrary()?;
        }
    }
    Ok(())
}
