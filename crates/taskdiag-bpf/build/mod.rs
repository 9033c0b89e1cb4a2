//! From C to recipes: clang makes an ELF object of each program source, which is reduced to what the library needs at run
//! time and written as Rust constants (`$OUT_DIR/recipes.rs`, included by `src/source/bpf/recipe.rs`).

mod clang;
mod core_relocation;
mod emit;
mod object_file;
mod program;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// One program source, compiled with some definitions.
pub struct Source {
    /// Name of the recipe, a Rust constant.
    pub name: &'static str,
    /// Path below `bpf/`.
    pub file: &'static str,
    /// Definitions for the preprocessor, `NAME=VALUE`.
    pub defines: &'static [&'static str],
    /// The library itself does without it.
    pub only_for_tests: bool,
}

/// Without this variable a build without clang succeeds: the library then says why it has no BPF.
const REQUIRE_BPF: &str = "TASKDIAG_REQUIRE_BPF";

/// Writes the recipes of all sources.
pub fn write(sources: &[Source]) {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed={REQUIRE_BPF}");
    println!("cargo:rerun-if-env-changed={}", clang::CLANG);
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let text: String = sources
        .iter()
        .map(|source| {
            let recipe = cook(source, &out_dir);
            if let Err(reason) = &recipe {
                complain(source, reason);
            }
            emit::recipe(source, &recipe)
        })
        .collect();
    fs::write(out_dir.join("recipes.rs"), text).expect("OUT_DIR is writable");
}

fn cook(source: &Source, out_dir: &Path) -> Result<program::Recipe, String> {
    let object = out_dir.join(format!("{}.bpf.o", source.name.to_lowercase()));
    clang::compile(source, &object)?;
    let bytes = fs::read(&object).map_err(|error| format!("{}: {error}", object.display()))?;
    program::recipe(&bytes)
}

fn complain(source: &Source, reason: &str) {
    let what = format!("BPF program {} ({})", source.name, source.file);
    if env::var_os(REQUIRE_BPF).is_some_and(|value| value == "1") {
        panic!("{what}: {reason}");
    }
    for line in reason.lines() {
        println!("cargo:warning={what} left out: {line}");
    }
}
