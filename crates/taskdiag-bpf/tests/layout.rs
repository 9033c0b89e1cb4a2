//! Check that a C compiler gives the structures of `bpf/record.h` and `bpf/record_gen.h` the layout
//! that they have in Rust.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use taskdiag_core::record::header;

/// The structures and constants that C has from Rust.
fn layout() -> Vec<(String, usize)> {
    let mut layout = Vec::new();
    let (constants, structures) = header::all();
    for structure in structures {
        layout.push((format!("sizeof(struct {})", structure.name), structure.size()));
        layout.extend(structure.members().map(|(offset, member)| {
            let expression = format!("offsetof(struct {}, {})", structure.name, member.name);
            (expression, offset)
        }));
    }
    layout.extend(
        constants
            .iter()
            .map(|constant| (constant.name.to_owned(), constant.value as usize)),
    );
    layout
}

/// Check the memory of the program that reads mappings.
#[test]
fn walks_over_mappings_have_the_same_layout() {
    use taskdiag_bpf::vma_walk as walk;

    let layout = [
        ("sizeof(struct td_vma_walk)", walk::WALK_SIZE),
        ("offsetof(struct td_vma_walk, op)", walk::POSITION),
        ("offsetof(struct td_vma_walk, addresses)", walk::ADDRESSES_AT),
        ("offsetof(struct td_vma_walk, records)", walk::RECORDS_AT),
    ];
    check(layout.map(|(name, value)| (name.to_owned(), value)).to_vec(), &[]);
}

/// Check the memory of the program that reads open files.
#[test]
fn open_files_have_the_same_layout() {
    use taskdiag_bpf::files;

    let layout = [
        ("sizeof(struct td_files_walk)", files::WALK_SIZE),
        ("offsetof(struct td_files_walk, list)", files::LIST_AT),
        ("offsetof(struct td_files_walk, records)", files::RECORDS_AT),
    ];
    check(layout.map(|(name, value)| (name.to_owned(), value)).to_vec(), &[]);
}

/// Check the sizes, offsets and constants of records and events, and of the memory of programs.
#[test]
fn records_have_the_same_layout() {
    check(layout(), &[]);
}

/// Check the memory of the programs that read tasks.
#[test]
fn walks_have_the_same_layout() {
    use taskdiag_bpf::{reader, walk};

    let number = |name: &str, value: usize| (name.to_owned(), value);
    let layout = vec![
        number("sizeof(struct td_reader)", walk::READER_SIZE as usize),
        number("offsetof(struct td_reader, scratch)", walk::SCRATCH),
        number("offsetof(struct td_reader, walk)", walk::POSITION),
        number("offsetof(struct td_reader, walk.list)", walk::LIST),
    ];
    check(layout, &["-DTD_WALKS=1"]);
    let called = [("sizeof(struct td_reader)".to_owned(), reader::CALLED_SIZE as usize)];
    check(called.to_vec(), &[]);
}

/// Check that the header is the one that the definitions give.
#[test]
fn the_header_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/record_gen.h");
    let header = std::fs::read_to_string(path).expect("the header");
    assert!(header == header::text(), "{path} is not current: run make records");
}

/// Compiles a static assertion for each expression.
fn check(layout: Vec<(String, usize)>, options: &[&str]) {
    let mut source = "#include <linux/types.h>\n#include <stddef.h>\n".to_owned();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/record.h");
    writeln!(source, "#include {path:?}").unwrap();
    for (expression, value) in layout {
        writeln!(source, "_Static_assert({expression} == {value}, \"{expression}\");").unwrap();
    }
    let mut compiler = Command::new("cc")
        .args(["-fsyntax-only", "-x", "c"])
        .args(options)
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cc is installed, because Rust links with it");
    let mut input = compiler.stdin.take().expect("the standard input is a pipe");
    input.write_all(source.as_bytes()).expect("cc reads its input");
    drop(input);
    let output = compiler.wait_with_output().expect("cc ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
