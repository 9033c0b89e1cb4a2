//! Compiles the BPF programs into recipes (`build/`), which the library embeds.

#[allow(dead_code, unused_imports)] // the library uses the rest of it, to read the kernel's types
#[path = "src/btf/mod.rs"]
mod btf;
#[path = "build/mod.rs"]
mod recipes;

use recipes::Source;

/// The objects to embed, each as `recipe::NAME`.
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
        name: "NET",
        file: "net.bpf.c",
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
        name: "FILES_WALK",
        file: "files.bpf.c",
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
    println!("cargo:rerun-if-changed=src/btf");
    recipes::write(SOURCES);
}
