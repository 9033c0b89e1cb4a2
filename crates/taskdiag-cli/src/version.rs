//! `taskdiag --version`: the version and build of this program.

use std::fmt::Write as _;

use taskdiag::Handle;

use crate::outcome::LINK;

/// The version, with the name of a link, the commit if known at build time, and the features.
pub fn text() -> String {
    let from = LINK.get().map(|link| format!("{link} from ")).unwrap_or_default();
    let mut text = format!("{from}taskdiag {}\n", env!("CARGO_PKG_VERSION"));
    let commit = match env!("TASKDIAG_BUILT_COMMIT") {
        "" => "unknown",
        commit => commit,
    };
    let _ = writeln!(text, "commit: {commit}");
    text += "features:";
    for (feature, is_on) in [
        ("bpf", Handle::new().support().bpf_built.is_yes()),
        ("history", cfg!(feature = "history")),
        ("metrics", cfg!(feature = "metrics")),
        ("top", cfg!(feature = "top")),
    ] {
        let _ = write!(text, " {}{feature}", if is_on { '+' } else { '-' });
    }
    text.push('\n');
    text
}
