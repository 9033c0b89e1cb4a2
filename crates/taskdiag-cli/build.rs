//! Finds out which commit is built, for `--version`; without git and without a repository there is
//! none. Fetches the library that draws charts, for `taskdiag report`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    charts();
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

/// Puts the library that draws charts into the directory of the build. cargo gets it like any other
/// package, with its checksum in `charts/Cargo.lock`; that it is no crate to be compiled is all
/// that is different.
fn charts() {
    println!("cargo:rerun-if-changed=charts");
    let package = charts_package(true).or_else(|_| charts_package(false));
    let package = package.unwrap_or_else(|why| {
        panic!("the library that draws charts can't be had: {why}\nWithout network: run `cargo fetch --manifest-path {CHARTS}` before")
    });
    let assets = package.join("src/asset");
    let is_library = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("echarts-") && name.ends_with(".min.js")
    };
    let files = fs::read_dir(&assets).unwrap_or_else(|error| panic!("{}: {error}", assets.display()));
    let found = files.filter_map(|file| Some(file.ok()?.path())).find(is_library);
    let path = found.unwrap_or_else(|| panic!("{}: there is no ECharts in it", assets.display()));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // It becomes the text of an element, which must not end early.
    let lower = text.to_ascii_lowercase();
    assert!(
        !lower.contains("</script") && !lower.contains("<!--"),
        "{}: it can't be in a page",
        path.display()
    );
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("charts.js"), text).expect("the directory of the build can be written to");
}

/// The manifest of the package that depends on the library.
const CHARTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/Cargo.toml");

/// Where cargo has the package.
fn charts_package(is_offline: bool) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let platform = std::env::var("HOST").expect("cargo sets it");
    let mut command = Command::new(cargo);
    command.args([
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--filter-platform",
        &platform,
    ]);
    command
        .args(["--manifest-path", CHARTS])
        .args(is_offline.then_some("--offline"));
    let output = command.output().map_err(|error| format!("running cargo: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut paths = text
        .split("\"manifest_path\":\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    let manifest = paths.find(|path| {
        let directory = path.rsplit('/').nth(1).unwrap_or_default();
        directory == "charming" || directory.starts_with("charming-")
    });
    let directory = manifest.and_then(|path| Path::new(path).parent());
    directory
        .map(Path::to_path_buf)
        .ok_or_else(|| "cargo does not say where charming is".to_owned())
}
