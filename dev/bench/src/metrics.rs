//! The cost of a scrape: `taskdiag metrics` compared with process-exporter, both with all programs
//! as groups.
//!
//! All exporters run at the same time, and are scraped one after the other. The processor time of a
//! scrape is that of the whole process between two moments, divided by the number of scrapes.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use taskdiag_zoo::Farm;

use crate::measure::{least_and_most, median, peak_kib, processor_time, progress, Effort};
use crate::report::{number, Table};
use crate::targets::Bound;
use crate::tools::Tools;
use crate::{Report, Result};

const PROCESSES: usize = 10_000;

/// The target: how many times cheaper a scrape must be.
const TARGET: f64 = 40.0;

/// How long an exporter may take to listen, and to answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// The configuration for both: that of process-exporter's packages.
const CONFIG: &str = "process_names:\n- name: '{{.Comm}}'\n  cmdline:\n  - '.+'\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contender {
    Theirs,
    TheirsLight,
    Ours,
    OursLight,
    Procfs,
}

const CONTENDERS: [Contender; 5] = [
    Contender::Theirs,
    Contender::TheirsLight,
    Contender::Ours,
    Contender::OursLight,
    Contender::Procfs,
];

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Contender::Theirs => "process-exporter",
            Contender::TheirsLight => "process-exporter -gather-smaps=false -threads=false",
            Contender::Ours => "taskdiag metrics",
            Contender::OursLight => "taskdiag metrics --threads=false",
            Contender::Procfs => "taskdiag metrics --source procfs",
        }
    }

    /// The number of scrapes per round.
    fn scrapes(self) -> u32 {
        match self {
            Contender::Theirs | Contender::TheirsLight => 2,
            _ => 10,
        }
    }

    fn start(self, tools: &Tools, config: &str) -> Result<Exporter> {
        let port = free_port()?;
        let address = format!("127.0.0.1:{port}");
        let mut command = match self {
            Contender::Theirs | Contender::TheirsLight => {
                let mut command = Command::new(tools.process_exporter()?);
                command.args([&format!("-web.listen-address={address}"), "-config.path", config]);
                if self == Contender::TheirsLight {
                    command.args(["-gather-smaps=false", "-threads=false"]);
                }
                command
            }
            _ => {
                let mut command = Command::new(tools.taskdiag()?);
                command.args([
                    "metrics",
                    "--listen",
                    &address,
                    "--config",
                    config,
                    "--fresh-for",
                    "0.01",
                ]);
                match self {
                    Contender::OursLight => command.arg("--threads=false"),
                    Contender::Procfs => command.args(["--source", "procfs"]),
                    _ => &mut command,
                };
                command
            }
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let exporter = Exporter { child, address };
        let began = Instant::now();
        while TcpStream::connect(&exporter.address).is_err() {
            if began.elapsed() > PATIENCE {
                return Err(format!("{} does not listen", self.name()).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        // The first scrapes find out about all processes.
        exporter.scrape()?;
        exporter.scrape()?;
        Ok(exporter)
    }
}

/// A free port, outside of the range that the kernel gives to clients: a client that connects to a
/// port in that range before a server listens may connect to itself.
fn free_port() -> Result<u16> {
    let mut ports = 20_000..30_000;
    let free = ports.find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    Ok(free.ok_or("no port is free")?)
}

/// A running exporter, which ends when dropped.
struct Exporter {
    child: Child,
    address: String,
}

impl Exporter {
    /// Scrapes. Returns the number of processes in the answer.
    fn scrape(&self) -> Result<f64> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nX-Prometheus-Scrape-Timeout-Seconds: 100\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let lines = text
            .lines()
            .filter(|line| line.starts_with("namedprocess_namegroup_num_procs{"));
        let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(counts.sum())
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The measurements of a contender.
#[derive(Default)]
struct Figures {
    exporter: Option<Exporter>,
    /// Milliseconds of processor time per scrape, round by round.
    used: Vec<f64>,
    /// Milliseconds until the answer, the slowest scrape of each round.
    took: Vec<f64>,
    processes: f64,
    peak_kib: u64,
    /// Why it could not take part.
    refused: Option<String>,
}

/// Measures all contenders.
pub fn run(effort: Effort, tools: &Tools, report: &mut Report) -> Result<()> {
    let config = std::env::temp_dir().join(format!("taskdiag-bench-{}.yml", std::process::id()));
    std::fs::write(&config, CONFIG)?;
    let measured = measure_all(effort, tools, &config.display().to_string());
    std::fs::remove_file(&config)?;
    let (figures, rounds) = measured?;
    report.heading(&format!("Metrics of {PROCESSES} processes for Prometheus"));
    report.line(&format!(
        "Processor time of a scrape, in {rounds} rounds of 10 scrapes (of process-exporter 2), one exporter after the other; all \
         programs as groups (`{{{{.Comm}}}}`), all processes known from earlier scrapes."
    ));
    report.table(&table(&figures));
    let refused = figures.iter().filter_map(|figures| figures.refused.clone());
    report.list(&refused.collect::<Vec<_>>());
    report.line("Targets: the ratios of each round.");
    report.table(&targets(&figures));
    Ok(())
}

fn measure_all(effort: Effort, tools: &Tools, config: &str) -> Result<(Vec<Figures>, usize)> {
    let rounds = if effort.single { 2 } else { effort.rounds };
    let _farm = Farm::start(PROCESSES, 1)?;
    let mut all: Vec<Figures> = CONTENDERS.iter().map(|_| Figures::default()).collect();
    for (contender, figures) in CONTENDERS.iter().zip(&mut all) {
        progress(&format!("metrics: starting {}", contender.name()));
        match contender.start(tools, config) {
            Ok(exporter) => figures.exporter = Some(exporter),
            Err(error) => figures.refused = Some(format!("{}: not run, {error}", contender.name())),
        }
    }
    for round in 0..rounds {
        for turn in 0..CONTENDERS.len() {
            let index = (round + turn) % CONTENDERS.len();
            progress(&format!(
                "metrics, round {} of {rounds}: {}",
                round + 1,
                CONTENDERS[index].name()
            ));
            measure(CONTENDERS[index], &mut all[index])?;
        }
    }
    progress("");
    Ok((all, rounds))
}

fn measure(contender: Contender, figures: &mut Figures) -> Result<()> {
    let Some(exporter) = &figures.exporter else {
        return Ok(());
    };
    let pid = exporter.child.id();
    let before = processor_time(pid)?;
    let mut slowest = 0.0_f64;
    for _ in 0..contender.scrapes() {
        // Longer than a sample counts as fresh.
        thread::sleep(Duration::from_millis(30));
        let began = Instant::now();
        figures.processes = exporter.scrape()?;
        slowest = slowest.max(began.elapsed().as_secs_f64() * 1e3);
    }
    let used = (processor_time(pid)? - before).as_secs_f64() * 1e3;
    figures.used.push(used / f64::from(contender.scrapes()));
    figures.took.push(slowest);
    figures.peak_kib = peak_kib(pid)?;
    Ok(())
}

fn table(figures: &[Figures]) -> Table {
    let headings = [
        "exporter",
        "ms of processor time",
        "min",
        "max",
        "ms until the answer, the slowest",
        "peak RSS MiB",
        "processes",
    ];
    let mut table = Table::new(&headings, 1);
    for (contender, figures) in CONTENDERS.iter().zip(figures) {
        if figures.used.is_empty() {
            continue;
        }
        let (least, most) = least_and_most(&figures.used);
        let slowest = least_and_most(&figures.took).1;
        let mib = figures.peak_kib as f64 / 1024.0;
        let numbers = [median(&figures.used), least, most, slowest, mib, figures.processes].map(number);
        table.row(std::iter::once(contender.name().to_owned()).chain(numbers));
    }
    table
}

fn targets(figures: &[Figures]) -> Table {
    let mut table = Table::new(&["target", "wanted", "median", "worst", ""], 1);
    let of = |contender: Contender| {
        let index = CONTENDERS.iter().position(|&other| other == contender);
        index.map_or(&[][..], |index| &figures[index].used)
    };
    for (claim, theirs, ours, bound) in [
        (
            "processor time of process-exporter as a multiple",
            Contender::Theirs,
            Contender::Ours,
            Some(Bound::AtLeast(TARGET)),
        ),
        (
            "the same without proportional sizes and threads",
            Contender::TheirsLight,
            Contender::OursLight,
            None,
        ),
        (
            "process-exporter, by ours through procfs",
            Contender::Theirs,
            Contender::Procfs,
            None,
        ),
    ] {
        let pairs = of(theirs).iter().zip(of(ours));
        let ratios: Vec<f64> = pairs.map(|(theirs, ours)| theirs / ours).collect();
        let wanted = bound.map_or_else(|| "–".to_owned(), Bound::text);
        if ratios.is_empty() {
            table.row([
                claim.to_owned(),
                wanted,
                "–".to_owned(),
                "–".to_owned(),
                "not measured".to_owned(),
            ]);
            continue;
        }
        let (median, worst) = (median(&ratios), least_and_most(&ratios).0);
        let verdict = match bound {
            None => "",
            Some(bound) => bound.verdict(Some(median)),
        };
        table.row([
            claim.to_owned(),
            wanted,
            number(median),
            number(worst),
            verdict.to_owned(),
        ]);
    }
    table
}
