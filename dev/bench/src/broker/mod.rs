//! The broker: what an unprivileged client gets, and how fast, compared with reading `/proc` itself
//! and with BPF in the client's process.

pub mod client;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use client::Client;
use rustix::process::Pid;
use rustix::thread::CpuSet;
use taskdiag::{Handle, Query, Snapshot, SourceId};

use crate::measure::{median, progress, Effort};
use crate::report::{number, Table};
use crate::{Report, Result};

/// The benchmark's own broker.
struct Broker {
    child: Child,
    directory: PathBuf,
}

impl Broker {
    fn start(name: &str, args: &[&str]) -> Result<Broker> {
        let program = std::env::current_exe()?.with_file_name("taskdiagd");
        let directory = std::env::temp_dir().join(format!("taskdiag-bench-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let socket = directory.join("socket");
        let child = Command::new(&program)
            .arg("--socket")
            .arg(&socket)
            .args(["--log-level", "warning"])
            .args(args)
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let broker = Broker { child, directory };
        for _ in 0..200 {
            if broker.handle().query(&Query::process(std::process::id())).is_ok() {
                return Ok(broker);
            }
            sleep(Duration::from_millis(25));
        }
        Err("the broker does not begin".into())
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    fn handle(&self) -> Handle {
        Handle::new().with_source(SourceId::Broker).with_socket(self.socket())
    }

    /// A number from the broker's status.
    fn status(&self, key: &str) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        Ok(line
            .and_then(|line| line.split_ascii_whitespace().next())
            .ok_or("no such line")?
            .parse()?)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// What to measure, in turn.
const CONTENDERS: [(&str, &str); 3] = [
    ("status", "the client's own loop: open, read, close /proc/PID/status"),
    ("bpf", "BPF in a process of root's: all processes"),
    ("broker", "the broker"),
];

/// Measures everything.
pub fn run(effort: Effort, report: &mut Report) -> Result<()> {
    make_room()?;
    report.heading("The broker, asked by an unprivileged client");
    let broker = Broker::start("broker", &[])?;
    idle(&broker, report)?;
    dumps(effort, &broker, report)?;
    crowds(effort, &broker, report)
}

/// Raises the kernel's limits for the client's processes.
fn make_room() -> Result<()> {
    for (name, least) in [("pid_max", 100_000_u64), ("threads-max", 100_000)] {
        let path = Path::new("/proc/sys/kernel").join(name);
        if fs::read_to_string(&path)?.trim().parse::<u64>()? < least {
            fs::write(&path, least.to_string())?;
        }
    }
    Ok(())
}

fn idle(broker: &Broker, report: &mut Report) -> Result<()> {
    sleep(Duration::from_millis(300));
    let before = broker.status("voluntary_ctxt_switches:")?;
    sleep(Duration::from_secs(2));
    let woken = broker.status("voluntary_ctxt_switches:")? - before;
    let resident = broker.status("VmRSS:")?;
    report.line(&format!(
        "Idle: woken {woken} times in 2 s (target: 0), {:.1} MiB resident (target: under 8, {}).",
        resident as f64 / 1024.0,
        verdict(woken == 0 && resident < 8 << 10)
    ));
    Ok(())
}

fn dumps(effort: Effort, broker: &Broker, report: &mut Report) -> Result<()> {
    const PROCESSES: usize = 30_000;
    let mut client = Client::start(PROCESSES)?;
    let socket = broker.socket();
    let mut bpf = Handle::new().with_source(SourceId::Bpf);
    bpf.prepare(client::fields())?;
    let query = Query::processes().fields(client::fields());
    let mut snapshot = Snapshot::default();
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); CONTENDERS.len()];
    let mut rows = [0; CONTENDERS.len()];
    // The first round warms up.
    for round in 0..=effort.rounds {
        progress(&format!("broker, round {round} of {}", effort.rounds));
        for turn in 0..CONTENDERS.len() {
            let index = (round + turn) % CONTENDERS.len();
            let (took, count) = match CONTENDERS[index].0 {
                "bpf" => {
                    let start = Instant::now();
                    bpf.query_into(&query, &mut snapshot)?;
                    crate::library::read_rows(&snapshot, false);
                    (start.elapsed().as_secs_f64(), snapshot.len())
                }
                name => {
                    let said = client.ask(name, &socket)?;
                    (said.value, said.rows)
                }
            };
            if round > 0 {
                times[index].push(took);
                rows[index] = count;
            }
        }
    }
    progress("");
    report.line(&format!(
        "Base and cred of {PROCESSES} idle processes of the client's user; {} rounds, medians.",
        effort.rounds
    ));
    let ratio = |slow: usize, fast: usize| {
        let pairs = times[slow].iter().zip(&times[fast]);
        median(&pairs.map(|(slow, fast)| slow / fast).collect::<Vec<_>>())
    };
    let mut table = Table::new(&["who", "ms", "rows", "status loop /", "/ BPF", "target", "what"], 1);
    for (index, (name, about)) in CONTENDERS.iter().enumerate() {
        let (gain, loss) = (ratio(0, index), ratio(index, 1));
        let target = match *name {
            "broker" => format!("12x: {}", verdict(gain >= 12.0)),
            _ => "–".to_owned(),
        };
        table.row([
            (*name).to_owned(),
            number(median(&times[index]) * 1e3),
            rows[index].to_string(),
            format!("{gain:.1}x"),
            format!("{loss:.2}x"),
            target,
            (*about).to_owned(),
        ]);
    }
    report.table(&table);
    round_trips(effort, broker, &mut client, report)
}

/// One process, there and back. Waking a thread on another processor takes long in virtual
/// machines, and the scheduler does not move either side. So both cases are measured, next to a
/// plain echo.
fn round_trips(effort: Effort, broker: &Broker, client: &mut Client, report: &mut Report) -> Result<()> {
    let usable = rustix::thread::sched_getaffinity(None)?;
    let mut usable_cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| usable.is_set(cpu));
    let first = usable_cpus.next().ok_or("no processor")?;
    for (place, second) in [("one processor", Some(first)), ("two processors", usable_cpus.next())] {
        let Some(second) = second else {
            report.line(&format!(
                "One process, there and back, on {place}: not measured, there is one."
            ));
            continue;
        };
        stay_on(broker.child.id(), &only(first))?;
        stay_on(client.id(), &only(second))?;
        let (mut trips, mut echoes) = (Vec::new(), Vec::new());
        for round in 0..=effort.rounds {
            let trip = client.ask("one", &broker.socket())?.value;
            let echo = client::echo(&only(first), &only(second))?;
            if round > 0 {
                trips.push(trip * 1e6);
                echoes.push(echo * 1e6);
            }
        }
        let trip = median(&trips);
        report.line(&format!(
            "One process, there and back, client and broker on {place}: {trip:.1} µs (target: at most 30, {}); an echo over such a socket: {:.1} µs.",
            verdict(trip <= 30.0),
            median(&echoes)
        ));
    }
    stay_on(broker.child.id(), &usable)?;
    stay_on(client.id(), &usable)
}

fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

fn stay_on(process: u32, cpus: &CpuSet) -> Result<()> {
    Ok(rustix::thread::sched_setaffinity(Pid::from_raw(process as i32), cpus)?)
}

fn crowds(effort: Effort, broker: &Broker, report: &mut Report) -> Result<()> {
    const PROCESSES: usize = 10_000;
    let alone = Broker::start("alone", &["--no-sharing"])?;
    let mut client = Client::start(PROCESSES)?;
    let mut bpf = Handle::new().with_source(SourceId::Bpf);
    let snapshot = bpf.query(&Query::processes().fields(client::fields()))?;
    let bytes = snapshot.counters().record_bytes as usize;
    let (mut shared, mut single, mut packets) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=effort.rounds.min(5) {
        progress(&format!("broker, crowd {round}"));
        packets.push(client::crowd_of_packets(bytes)?);
        shared.push(client.ask("crowd", &broker.socket())?.value);
        single.push(client.ask("crowd", &alone.socket())?.value);
    }
    progress("");
    let ratios: Vec<f64> = shared
        .iter()
        .zip(&single)
        .map(|(shared, single)| shared / single)
        .collect();
    report.line(&format!(
        "16 clients that ask for all {PROCESSES} processes at once: {:.0} answers a second, {:.0} with a pass for each: {:.1}x (target: 500 a second, {}).",
        median(&shared),
        median(&single),
        median(&ratios),
        verdict(median(&shared) >= 500.0)
    ));
    report.line(&format!(
        "One thread that has answers of as many bytes ({bytes}) ready, and does nothing but send them in such packets: {:.0} answers a second.",
        median(&packets)
    ));
    Ok(())
}

fn verdict(met: bool) -> &'static str {
    if met {
        "met"
    } else {
        "**not met**"
    }
}
