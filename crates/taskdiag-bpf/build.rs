//! Turns the BPF programs into recipes (`build/`), which the library embeds.

#[allow(dead_code)] // reads the kernel's types at run time, and the programs' own here
#[path = "src/btf/mod.rs"]
mod btf;
#[path = "build/mod.rs"]
mod recipes;

use recipes::Source;

/// One entry for each object to embed: `recipe::NAME` in the library.
const SOURCES: &[Source] = &[
    Source {
        name: "TASK_CALLED",
        file: "task.bpf.c",
        defines: &["TD_WALKS=0"],
        only_for_tests: false,
    },
    Source {
        name: "TASK_WALK",
        file: "task.bpf.c",
        defines: &["TD_WALKS=1"],
        only_for_tests: false,
    },
    Source {
        name: "EVENTS",
        file: "events.bpf.c",
        defines: &[],
        only_for_tests: false,
    },
    Source {
        name: "VMA_WALK",
        file: "vma.bpf.c",
        defines: &[],
        only_for_tests: false,
    },
    Source {
        name: "LOADER_TEST",
        file: "tests/loader.bpf.c",
        defines: &[],
        only_for_tests: true,
    },
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=src/btf/mod.rs");
    recipes::write(SOURCES);
}
