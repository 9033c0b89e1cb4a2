//! The suite for the planner: whole commands that choose the source, compared with the same
//! commands with a fixed source.

use std::process::{Command, Stdio};
use std::time::Instant;

use taskdiag_zoo::Farm;

use crate::measure::{median, progress, Effort};
use crate::report::{number, Table};
use crate::tools::Tools;
use crate::{Report, Result};

const SCALES: [usize; 5] = [100, 300, 1_000, 3_000, 10_000];

/// The queries: a name, and the fields.
const QUERIES: [(&str, Option<&str>); 10] = [
    ("base", Some("pid,ppid,pgid,sid,state,comm,threads_count")),
    ("base+cred", Some("pid,ppid,state,comm,uid,euid,gid,cap_effective")),
    ("default", None),
    ("args", Some("pid,cmdline")),
    ("io", Some("pid,read_bytes,write_bytes")),
    ("paths", Some("pid,exe,cwd")),
    ("cgroup", Some("pid,cgroup")),
    ("fds", Some("pid,fd_count")),
    ("limits", Some("pid,limits")),
    ("all", Some("all")),
];

const SOURCES: [&str; 3] = ["auto", "bpf", "procfs"];

/// The choice is good if it takes at most this many times as long as the better source, plus a
/// millisecond.
const TIMES: f64 = 1.25;
const MORE_MS: f64 = 1.0;

/// Measures all cells.
pub fn run(effort: Effort, tools: &Tools, report: &mut Report) -> Result<()> {
    let taskdiag = tools.taskdiag()?;
    report.heading("The planner: whole commands, milliseconds");
    report.line(&format!(
        "Wanted: auto takes at most {TIMES} times as long as the better source, and {MORE_MS} ms. Medians of {} rounds; the ratio is that of medians.",
        effort.rounds
    ));
    let mut table = Table::new(
        &["fields", "processes", "auto", "bpf", "procfs", "auto / better", ""],
        1,
    );
    let mut met = 0;
    for scale in SCALES {
        let farm = Farm::start(scale, 1)?;
        for (name, fields) in QUERIES {
            progress(&format!("{name} of {scale}"));
            let mut rounds: [Vec<f64>; SOURCES.len()] = Default::default();
            for round in 0..effort.rounds {
                for turn in 0..SOURCES.len() {
                    let which = (round + turn) % SOURCES.len();
                    rounds[which].push(time(&taskdiag, SOURCES[which], fields)?);
                }
            }
            let [auto, bpf, procfs] = rounds.map(|rounds| median(&rounds));
            let better = bpf.min(procfs);
            let is_met = auto <= better * TIMES + MORE_MS;
            met += usize::from(is_met);
            table.row([
                name.to_owned(),
                scale.to_string(),
                number(auto),
                number(bpf),
                number(procfs),
                number(auto / better),
                if is_met { "met" } else { "NOT met" }.to_owned(),
            ]);
        }
        drop(farm);
    }
    progress("");
    report.table(&table);
    report.line(&format!("Met in {met} of {} cells.", SCALES.len() * QUERIES.len()));
    Ok(())
}

/// Runs the command once.
fn time(taskdiag: &str, source: &str, fields: Option<&str>) -> Result<f64> {
    let mut command = Command::new(taskdiag);
    command
        .args(["ps", "--csv", "--source", source])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(fields) = fields {
        command.args(["-o", fields]);
    }
    let start = Instant::now();
    let status = command.status()?;
    let took = start.elapsed();
    // 1: something may not be read, here process 1's own files.
    if matches!(status.code(), Some(0 | 1)) {
        Ok(took.as_secs_f64() * 1e3)
    } else {
        Err(format!("{command:?}: {status}").into())
    }
}
