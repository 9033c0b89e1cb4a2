//! Metrics for Prometheus: `taskdiag metrics` compared with process-exporter, both with all programs
//! as groups. All exporters run at the same time, and are scraped one after the other.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use taskdiag_zoo::Farm;

use crate::case::{call, ratio, times, Bound, Case, Contender, Counts, Run, Stage, Value};
use crate::measure::{peak_kib, processor_time};
use crate::served::{Running, Scratch};
use crate::tools::words_of;
use crate::{Result, Sizes};

const PROCESSES: usize = 10_000;

/// How long an exporter may take to listen, and to answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// The configuration for both: that of process-exporter's packages.
const CONFIG: &str = "process_names:\n- name: '{{.Comm}}'\n  cmdline:\n  - '.+'\n";

#[rustfmt::skip]
pub fn cases(sizes: &Sizes) -> Vec<Case> {
    let processes = sizes.or(&[PROCESSES])[0];
    let title = format!("Metrics of {processes} processes for Prometheus");
    let mut case = Case::new(title, move || {
        let directory = Scratch::make(&env::temp_dir())?;
        let config = directory.0.join("config.yml");
        fs::write(&config, CONFIG)?;
        let stage = Stage {
            least: processes,
            ..Stage::default()
        };
        Ok(stage.subject(config.display()).keep(directory).keep(Farm::start(processes, 1)?))
    });
    case.note = "Processor time of a scrape, the mean of 10 (of process-exporter 2) in a round, one exporter after the \
                 other; all programs as groups (`{{.Comm}}`), all processes known from earlier scrapes. Peak RSS is that of \
                 the program that was measured."
        .to_owned();
    case.row = "process";
    case.counts = Counts::Nothing;
    let theirs = "-web.listen-address=ADDRESS -config.path SUBJECT";
    let ours = "metrics --listen ADDRESS --config SUBJECT --fresh-for 0.01";
    let light = "-gather-smaps=false -threads=false";
    let (exporter, exporter_light) = ("process-exporter", format!("process-exporter {light}"));
    let (metrics, metrics_light) = ("taskdiag metrics", "taskdiag metrics --threads=false");
    let procfs = "taskdiag metrics --source procfs";
    case.contenders = vec![
        exporting(exporter, 2, format!("process-exporter {theirs}")),
        exporting(&exporter_light, 2, format!("process-exporter {theirs} {light}")),
        exporting(metrics, 10, format!("taskdiag {ours}")),
        exporting(metrics_light, 10, format!("taskdiag {ours} --threads=false")),
        exporting(procfs, 10, format!("taskdiag {ours} --source procfs")),
    ];
    let claim = "processor time of process-exporter as a multiple";
    let light_claim = "the same without proportional sizes and threads";
    case.targets = vec![
        times(claim, exporter, metrics, 40.0),
        ratio(light_claim, Value::Time, &exporter_light, &[metrics_light], Bound::Any),
        ratio("process-exporter, by ours through procfs", Value::Time, exporter, &[procfs], Bound::Any),
    ];
    vec![case]
}

/// An exporter: its processor time for a scrape.
fn exporting(name: &str, scrapes: u32, words: String) -> Contender {
    call(name, "", move |context| {
        let address = format!("127.0.0.1:{}", free_port()?);
        let words: Vec<String> = words
            .replace("ADDRESS", &address)
            .split(' ')
            .map(str::to_owned)
            .collect();
        let argv = words_of(&words, &context.tools, &context.subject)?;
        let exporter = Exporter::start(&argv, address)?;
        Ok(Box::new(move || {
            let pid = exporter.child.0.id();
            let (before, mut rows) = (processor_time(pid)?, 0);
            for _ in 0..scrapes {
                // Longer than a sample counts as fresh.
                thread::sleep(Duration::from_millis(30));
                rows = exporter.scrape()?;
            }
            Ok(Run {
                took: (processor_time(pid)? - before) / scrapes,
                rows,
                peak_kib: peak_kib(pid)?,
                bytes: 0,
            })
        }))
    })
}

/// A free port, outside of the range that the kernel gives to clients: a client that connects to a
/// port in that range before a server listens may connect to itself.
fn free_port() -> Result<u16> {
    let mut ports = 20_000..30_000;
    let free = ports.find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    Ok(free.ok_or("no port is free")?)
}

/// A running exporter.
struct Exporter {
    child: Running,
    address: String,
}

impl Exporter {
    fn start(argv: &[String], address: String) -> Result<Exporter> {
        let mut command = Command::new(&argv[0]);
        let child = Running::start(command.args(&argv[1..]))?;
        let exporter = Exporter { child, address };
        let began = Instant::now();
        while TcpStream::connect(&exporter.address).is_err() {
            if began.elapsed() > PATIENCE {
                return Err("it does not listen".into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        // The first scrape finds out about all processes.
        exporter.scrape()?;
        Ok(exporter)
    }

    /// Scrapes. Returns the number of processes in the answer.
    fn scrape(&self) -> Result<usize> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nX-Prometheus-Scrape-Timeout-Seconds: 100\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let lines = text
            .lines()
            .filter(|line| line.starts_with("namedprocess_namegroup_num_procs{"));
        let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(counts.sum::<f64>() as usize)
    }
}
