//! The kernel's texts: bytes in, values out, whatever the bytes are.

pub mod maps;
pub mod process;
pub mod smaps;
