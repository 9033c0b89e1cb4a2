//! Parsers of the kernel's text files, which take any bytes.

pub mod cgroup;
pub mod fdinfo;
pub mod maps;
pub mod net;
mod number;
pub mod process;
pub mod smaps;
pub mod terminals;
pub mod unit;
