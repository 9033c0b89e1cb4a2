//! Runs clang.

use std::env;
use std::io;
use std::path::Path;
use std::process::Command;

use super::Source;

/// The environment variable with the compiler to use.
pub const CLANG: &str = "CLANG";

/// The maximum number of lines of the compiler's messages that are shown.
const MESSAGE_LINES: usize = 20;

/// Compiles a source to `object`.
pub fn compile(source: &Source, object: &Path) -> Result<(), String> {
    let clang = env::var_os(CLANG).unwrap_or_else(|| "clang".into());
    let arch = env::var("CARGO_CFG_TARGET_ARCH").map_err(|error| error.to_string())?;
    if env::var("CARGO_CFG_TARGET_ENDIAN").as_deref() != Ok("little") {
        return Err("BPF needs a little-endian machine".to_owned());
    }
    let output = Command::new(&clang)
        .args(["-target", "bpfel", "-mcpu=v3", "-O2", "-g", "-std=gnu11"])
        .args(["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-sign-compare"])
        .arg(format!("-D__TARGET_ARCH_{}", kernel_arch(&arch)))
        .args(source.defines.iter().map(|define| format!("-D{define}")))
        // Where Debian has the architecture's asm/ for native compilers, and for cross compilers.
        .args(["-idirafter", &format!("/usr/include/{arch}-linux-gnu")])
        .args(["-idirafter", &format!("/usr/{arch}-linux-gnu/include")])
        .args(["-I", "bpf", "-c", "-o"])
        .arg(object)
        .arg(Path::new("bpf").join(source.file))
        .output()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("{} is not installed", Path::new(&clang).display()),
            _ => format!("running {}: {error}", Path::new(&clang).display()),
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

/// The kernel's name of an architecture, which libbpf's headers use.
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
