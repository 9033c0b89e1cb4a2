//! Parsers of the kernel's text files, which take any bytes.

pub mod fdinfo;
pub mod maps;
mod number;
pub mod process;
pub mod smaps;
pub mod terminals;
