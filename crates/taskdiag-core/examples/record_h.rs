//! Prints the record as a C header.

fn main() {
    print!("{}", taskdiag_core::record::header::text());
}
