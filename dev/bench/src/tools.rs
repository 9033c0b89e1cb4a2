//! The programs that contenders need, and why one is missing.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The directory of this executable.
    beside: PathBuf,
}

impl Tools {
    /// Knows where to search.
    pub fn find() -> Result<Tools> {
        let beside = env::current_exe()?.parent().unwrap_or(Path::new(".")).to_owned();
        Ok(Tools { beside })
    }

    /// The path of taskdiag.
    pub fn taskdiag(&self) -> Result<String> {
        there(&self.beside.join("taskdiag"), "build it")
    }

    /// The path of the broker.
    pub fn taskdiagd(&self) -> Result<String> {
        there(&self.beside.join("taskdiagd"), "build it")
    }

    /// Debian's process-exporter, which `dev/prometheus.sh` downloads.
    pub fn process_exporter(&self) -> Result<String> {
        let root = self.beside.ancestors().nth(2).unwrap_or(Path::new("."));
        let program = root.join(".cache/prometheus/usr/bin/prometheus-process-exporter");
        there(&program, "run dev/prometheus.sh")
    }

    /// A Python with psutil: the system's, or that of the virtual environment that `setup.sh`
    /// creates.
    pub fn python(&self) -> Result<String> {
        let target = self.beside.parent().unwrap_or(Path::new("."));
        let venv = target.join("bench-venv/bin/python3").display().to_string();
        let mut pythons = ["python3".to_owned(), venv].into_iter();
        let found = pythons.find(|python| said(python, &["-c", "import psutil; print()"]).is_some());
        found.ok_or_else(|| "no Python with psutil: run dev/bench/setup.sh".into())
    }

    /// The versions of the available programs, for the report.
    pub fn versions(&self) -> Vec<String> {
        const SCRIPT: &str =
            "import sys, psutil; print('psutil', psutil.__version__, 'on Python', *sys.version.split()[:1])";
        let debian = |package: &str| {
            said(
                "dpkg-query",
                &["--show", "--showformat=${Package} ${Version}\n", package],
            )
        };
        let locked = |package: &str| {
            let lock = include_str!("../../../Cargo.lock");
            let entry = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?.1;
            Some(format!("{package} crate {}", entry.split('"').next()?))
        };
        let mut versions = vec![
            self.taskdiag()
                .ok()
                .and_then(|taskdiag| said(&taskdiag, &["--version"])),
            said("ps", &["--version"]),
            self.python().ok().and_then(|python| said(&python, &["-c", SCRIPT])),
            said("fincore", &["--version"]),
        ];
        versions.extend(["lsof", "iproute2", "psmisc", "htop", "btop", "atop", "vmtouch", "smem"].map(debian));
        versions.extend(["procfs", "blazesym"].map(locked));
        versions.into_iter().flatten().collect()
    }
}

fn there(program: &Path, advice: &str) -> Result<String> {
    if program.is_file() {
        Ok(program.display().to_string())
    } else {
        Err(format!("no {}: {advice}", program.display()).into())
    }
}

/// A command's words: `taskdiag`, `process-exporter` and `SUBJECT` stand for others.
pub fn words_of(words: &[String], tools: &Tools, subject: &str) -> Result<Vec<String>> {
    let mut argv: Vec<String> = words.iter().map(|word| word.replace("SUBJECT", subject)).collect();
    match argv[0].as_str() {
        "taskdiag" => argv[0] = tools.taskdiag()?,
        "process-exporter" => argv[0] = tools.process_exporter()?,
        _ => {}
    }
    Ok(argv)
}

/// The first line that a command prints, if it succeeds.
pub fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| first_line(&text))?
}

/// The first line of a text.
pub fn first_line(text: &str) -> Option<String> {
    text.lines().next().map(str::to_owned)
}
