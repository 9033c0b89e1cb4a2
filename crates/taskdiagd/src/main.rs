//! `taskdiagd`, the broker. All its code is in the library, where fuzz targets can call it.

use std::process::ExitCode;

fn main() -> ExitCode {
    taskdiagd::main(std::env::args_os())
}
