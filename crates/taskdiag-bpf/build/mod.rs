//! From C to recipes. clang compiles each source to an ELF object. What the library needs of it at
//! run time is written as Rust constants to `$OUT_DIR/recipes.rs`, which `src/recipe.rs` includes.

mod clang;
mod core_relocation;
mod emit;
mod object_file;
mod program;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// A C source, compiled with some definitions.
pub struct Source {
    /// The name of the recipe, a Rust constant.
    pub name: &'static str,
    /// The path below `bpf/`.
    pub file: &'static str,
    /// Definitions for the preprocessor, `NAME=VALUE`.
    pub defines: &'static [&'static str],
    /// Whether only tests use it.
    pub only_for_tests: bool,
}

/// The environment variable that makes a build fail if the BPF programs can't be compiled. Without
/// it, the library is built without BPF programs, and reports why.
const REQUIRE_BPF: &str = "TASKDIAG_REQUIRE_BPF";

/// Set by cargo where the programs are wanted.
const PROGRAMS: &str = "CARGO_FEATURE_PROGRAMS";

/// Writes the recipes of all sources.
pub fn write(sources: &[Source]) {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed={REQUIRE_BPF}");
    println!("cargo:rerun-if-env-changed={}", clang::CLANG);
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let text: String = sources
        .iter()
        .map(|source| {
            if env::var_os(PROGRAMS).is_none() {
                return emit::recipe(source, &Err("the feature `bpf` is off".to_owned()));
            }
            let recipe = compile(source, &out_dir);
            if let Err(reason) = &recipe {
                report(source, reason);
            }
            emit::recipe(source, &recipe)
        })
        .collect();
    fs::write(out_dir.join("recipes.rs"), text).expect("OUT_DIR is writable");
}

fn compile(source: &Source, out_dir: &Path) -> Result<program::Recipe, String> {
    let object = out_dir.join(format!("{}.bpf.o", source.name.to_lowercase()));
    clang::compile(source, &object)?;
    let bytes = fs::read(&object).map_err(|error| format!("{}: {error}", object.display()))?;
    program::recipe(&bytes)
}

/// The name of a file that never exists.
const NEVER_THERE: &str = "bpf/never-there";

fn report(source: &Source, reason: &str) {
    let what = format!("BPF program {} ({})", source.name, source.file);
    if env::var_os(REQUIRE_BPF).is_some_and(|value| value == "1") {
        panic!("{what}: {reason}");
    }
    for line in reason.lines() {
        println!("cargo:warning={what} is left out: {line}");
    }
    // What must be installed is not a file of this project. Cargo runs this script again each time,
    // because a file that it watches never exists.
    println!("cargo:rerun-if-changed={NEVER_THERE}");
}
