//! The programs that contenders and counters need, and why one is missing.

use std::cell::OnceCell;
use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::Result;

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The directory of this executable.
    beside: PathBuf,
    taskdiag: PathBuf,
    python: OnceCell<Option<String>>,
}

impl Tools {
    /// Knows where to search.
    pub fn find(taskdiag: Option<&Path>) -> Result<Tools> {
        let beside = env::current_exe()?.parent().unwrap_or(Path::new(".")).to_owned();
        let taskdiag = taskdiag.map_or_else(|| beside.join("taskdiag"), Path::to_owned);
        Ok(Tools {
            beside,
            taskdiag,
            python: OnceCell::new(),
        })
    }

    /// The same, with absolute paths.
    pub fn absolute(&self) -> Result<Tools> {
        Ok(Tools {
            taskdiag: std::path::absolute(&self.taskdiag)?,
            ..self.clone()
        })
    }

    /// The path of taskdiag.
    pub fn taskdiag(&self) -> Result<String> {
        if self.taskdiag.is_file() {
            Ok(self.taskdiag.display().to_string())
        } else {
            Err(format!("no {}: build it, or say --taskdiag PATH", self.taskdiag.display()).into())
        }
    }

    /// Debian's process-exporter, which `dev/prometheus.sh` downloads.
    pub fn process_exporter(&self) -> Result<String> {
        let root = self.beside.ancestors().nth(2).unwrap_or(Path::new("."));
        let program = root.join(".cache/prometheus/usr/bin/prometheus-process-exporter");
        if program.is_file() {
            Ok(program.display().to_string())
        } else {
            Err(format!("no {}: run dev/prometheus.sh", program.display()).into())
        }
    }

    /// A Python with psutil: the system's, or that of the virtual environment that `setup.sh`
    /// creates.
    pub fn python(&self) -> Result<String> {
        let python = self.python.get_or_init(|| {
            let venv = self
                .beside
                .parent()?
                .join("bench-venv/bin/python3")
                .display()
                .to_string();
            ["python3".to_owned(), venv]
                .into_iter()
                .find(|python| runs(python, &["-c", "import psutil"]))
        });
        Ok(python.clone().ok_or("no Python with psutil: run dev/bench/setup.sh")?)
    }

    /// The versions of the available programs, for the report.
    pub fn versions(&self) -> Vec<String> {
        const SCRIPT: &str =
            "import sys, psutil; print('psutil', psutil.__version__, 'on Python', *sys.version.split()[:1])";
        let said = [
            self.taskdiag()
                .ok()
                .and_then(|taskdiag| said(&taskdiag, &["--version"])),
            said("ps", &["--version"]),
            self.python().ok().and_then(|python| said(&python, &["-c", SCRIPT])),
            said("fincore", &["--version"]),
            said("dpkg-query", &["--show", "--showformat=lsof ${Version}\n", "lsof"]),
            said("htop", &["--version"]),
            said("dpkg-query", &["--show", "--showformat=btop ${Version}\n", "btop"]),
            said(
                "dpkg-query",
                &["--show", "--showformat=vmtouch ${Version}\n", "vmtouch"],
            ),
            said("dpkg-query", &["--show", "--showformat=smem ${Version}\n", "smem"]),
            locked_version("procfs").map(|version| format!("procfs crate {version}")),
            locked_version("blazesym").map(|version| format!("blazesym {version}")),
        ];
        said.into_iter().flatten().collect()
    }
}

/// Whether a command succeeds.
pub fn runs(program: &str, args: &[&str]) -> bool {
    status(program, args).is_ok_and(|status| status.success())
}

/// Runs a command whose answer may be partial, because processes come and go.
pub fn answer(program: &str, args: &[&str]) -> Result<()> {
    let status = status(program, args)?;
    match status.code() {
        Some(0 | 1) => Ok(()),
        _ => Err(format!("{program}: {status}").into()),
    }
}

fn status(program: &str, args: &[&str]) -> io::Result<ExitStatus> {
    let mut command = Command::new(program);
    command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).status()
}

/// The first line that a command prints.
pub fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.lines().next()?.to_owned())
}

fn locked_version(package: &str) -> Option<&'static str> {
    let lock = include_str!("../../../Cargo.lock");
    let entry = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?.1;
    entry.split('"').next()
}
