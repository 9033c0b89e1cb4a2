//! Finds out which commit is built, for `--version`. Without git and without a repository there is
//! none.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=TASKDIAG_COMMIT");
    let commit = std::env::var("TASKDIAG_COMMIT")
        .ok()
        .or_else(packaged)
        .or_else(checked_out);
    let commit = commit.unwrap_or_default();
    let is_commit = commit.len() >= 7 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    let short = if is_commit { &commit[..commit.len().min(12)] } else { "" };
    println!("cargo:rustc-env=TASKDIAG_BUILT_COMMIT={short}");
}

/// The commit that `cargo package` wrote down.
fn packaged() -> Option<String> {
    let text = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    rest.split('"').nth(1).map(str::to_owned)
}

/// The commit that is checked out, if this directory is part of our repository, and not of another
/// one that has it inside.
fn checked_out() -> Option<String> {
    let here = std::env::current_dir().ok()?;
    let root = here.parent()?.parent()?;
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    // What changes with a commit, and with a checkout of another branch. A file that is missing
    // would always count as changed.
    let branch = git(root, &["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        let path = root.join(git(root, &["rev-parse", "--git-path", name])?);
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    git(root, &["rev-parse", "HEAD"])
}

fn git(directory: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(directory).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.is_empty()).then(|| text.trim().to_owned())
}
