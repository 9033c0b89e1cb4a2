//! `make install` and `make uninstall`.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use common::{copy_program, run};
use taskdiag_testkit::temporary::Directory;

/// Runs make in the repository, with the programs of a directory.
#[track_caller]
fn make(target: &str, programs: &Path, root: &Path) {
    let mut command = Command::new("make");
    command.args([
        "-C",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../.."),
        target,
        "PREFIX=/usr",
    ]);
    command.arg(format!("PROGRAMS={}", programs.display()));
    command.arg(format!("DESTDIR={}", root.display()));
    // Independent of the make that runs the tests.
    command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    let output = command.output().expect("make");
    assert!(output.status.success(), "{output:?}");
}

/// The files below a directory, with their modes.
fn files(root: &Path) -> BTreeSet<(String, u32)> {
    let mut files = BTreeSet::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let entry = entry.expect("an entry");
            let metadata = entry.metadata().expect("its metadata");
            if metadata.is_dir() {
                left.push(entry.path());
                continue;
            }
            let path = entry.path();
            let name = path.strip_prefix(root).expect("below").to_str().expect("UTF-8");
            files.insert((name.to_owned(), metadata.permissions().mode() & 0o7777));
        }
    }
    files
}

/// Check which files are installed, that the programs are stripped and run, that the unit starts
/// the installed program, and that uninstalling leaves nothing.
#[test]
fn everything_is_installed_and_removed() {
    let directory = Directory::new("install");
    let (programs, root) = (directory.join("programs"), directory.join("root"));
    fs::create_dir(&programs).expect("a directory");
    let command = Path::new(env!("CARGO_BIN_EXE_taskdiag"));
    copy_program(command, &programs.join("taskdiag")).expect("a copy");
    // The tests of this package do not build these files. Any content works.
    fs::write(programs.join("LICENSE-CRATES"), "MIT\n").expect("a file");
    let library = format!("libtaskdiag.so.{}", env!("CARGO_PKG_VERSION"));
    for name in ["taskdiagd", "libtaskdiag.so.0", &library] {
        copy_program(Path::new("/bin/true"), &programs.join(name)).expect("a copy");
    }
    make("install", &programs, &root);

    let installed = files(&root);
    let mut expected = BTreeSet::new();
    let mut expect = |path: &str, mode: u32| expected.insert((format!("usr/{path}"), mode));
    expect("bin/taskdiag", 0o755);
    expect("sbin/taskdiagd", 0o755);
    expect(&format!("lib/{library}"), 0o755);
    // Symbolic links to it.
    expect("lib/libtaskdiag.so.0", 0o777);
    expect("lib/libtaskdiag.so", 0o777);
    for page in run(&["man"]).complete().lines() {
        expect(&format!("share/man/man1/{page}"), 0o644);
    }
    for path in [
        "share/man/man8/taskdiagd.8",
        "share/bash-completion/completions/taskdiag",
        "share/zsh/site-functions/_taskdiag",
        "share/fish/vendor_completions.d/taskdiag.fish",
        "include/taskdiag.h",
        "include/taskdiag_gen.h",
        "lib/pkgconfig/taskdiag.pc",
        "lib/systemd/system/taskdiag-metrics.service",
        "lib/systemd/system/taskdiag-record.service",
        "lib/systemd/system/taskdiagd.service",
        "lib/systemd/system/taskdiagd.socket",
        "lib/sysusers.d/taskdiagd.conf",
        "share/licenses/taskdiag/LICENSE-APACHE",
        "share/licenses/taskdiag/LICENSE-MIT",
        "share/licenses/taskdiag/LICENSE-GPL-2.0",
        "share/licenses/taskdiag/LICENSE-BSD-2-CLAUSE",
        "share/licenses/taskdiag/LICENSE-CRATES",
        "share/doc/taskdiag/README.md",
        "share/doc/taskdiag/CHANGELOG.md",
        "share/doc/taskdiag/SECURITY.md",
        "share/doc/taskdiag/grafana/taskdiag-processes.json",
    ] {
        expect(path, 0o644);
    }
    let (documents, others): (BTreeSet<_>, BTreeSet<_>) = installed
        .into_iter()
        .partition(|(path, _)| path.starts_with("usr/share/doc/taskdiag/docs/"));
    assert_eq!(others, expected);
    assert!(
        documents.len() > 20 && documents.iter().all(|(_, mode)| *mode == 0o644),
        "{documents:?}"
    );

    let program = root.join("usr/bin/taskdiag");
    let size = |path: &Path| fs::metadata(path).expect("a file").len();
    assert!(size(&program) < size(command));
    let output = Command::new(&program).arg("--version").output().expect("it runs");
    assert!(output.status.success());
    let unit = fs::read_to_string(root.join("usr/lib/systemd/system/taskdiagd.service")).expect("the unit");
    assert!(unit.contains("\nExecStart=/usr/sbin/taskdiagd"), "{unit}");

    make("uninstall", &programs, &root);
    assert_eq!(files(&root), BTreeSet::new());
}
