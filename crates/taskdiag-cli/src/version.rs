//! `taskdiag --version`: the version and build of this program.

use std::fmt::Write as _;

use taskdiag::Handle;

/// The version, the commit if known at build time, and the features.
pub fn text() -> String {
    let mut text = format!("taskdiag {}\n", env!("CARGO_PKG_VERSION"));
    let commit = match env!("TASKDIAG_BUILT_COMMIT") {
        "" => "unknown",
        commit => commit,
    };
    let _ = writeln!(text, "commit: {commit}");
    let bpf = if Handle::new().support().bpf_built.is_yes() {
        "+bpf"
    } else {
        "-bpf"
    };
    let _ = writeln!(text, "features: {bpf}");
    text
}
