//! Runs clang.

use std::env;
use std::io;
use std::path::Path;
use std::process::Command;

use super::Source;

/// Environment variable with the compiler to use.
pub const CLANG: &str = "CLANG";

/// Lines of the compiler's messages that are passed on.
const MESSAGE_LINES: usize = 20;

/// Compiles a source to `object`.
pub fn compile(source: &Source, object: &Path) -> Result<(), String> {
    let clang = env::var_os(CLANG).unwrap_or_else(|| "clang".into());
    let arch = env::var("CARGO_CFG_TARGET_ARCH").map_err(|error| error.to_string())?;
    if env::var("CARGO_CFG_TARGET_ENDIAN").as_deref() != Ok("little") {
        return Err("only little-endian machines are supported".to_owned());
    }
    let output = Command::new(&clang)
        .args(["-target", "bpfel", "-mcpu=v3", "-O2", "-g", "-std=gnu11"])
        .args(["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-sign-compare"])
        .arg(format!("-D__TARGET_ARCH_{}", kernel_arch(&arch)))
        .args(source.defines.iter().map(|define| format!("-D{define}")))
        // Debian keeps asm/ where only a compiler for the machine looks: one that runs on it, and one that runs on others.
        .args(["-idirafter", &format!("/usr/include/{arch}-linux-gnu")])
        .args(["-idirafter", &format!("/usr/{arch}-linux-gnu/include")])
        .args(["-I", "bpf", "-c", "-o"])
        .arg(object)
        .arg(Path::new("bpf").join(source.file))
        .output()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "clang is not installed".to_owned(),
            _ => format!("clang: {error}"),
        })?;
    let messages = String::from_utf8_lossy(&output.stderr);
    let shown: Vec<_> = messages.lines().take(MESSAGE_LINES).collect();
    if !output.status.success() {
        return Err(format!("clang failed ({})\n{}", output.status, shown.join("\n")));
    }
    for line in shown {
        println!("cargo:warning={line}");
    }
    Ok(())
}

/// The kernel's name for an architecture, which libbpf's headers use.
fn kernel_arch(rust_arch: &str) -> &str {
    match rust_arch {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        "riscv64" => "riscv",
        "powerpc64" => "powerpc",
        "loongarch64" => "loongarch",
        other => other,
    }
}
