//! The exporter compared with Debian's Prometheus and process-exporter, which `dev/prometheus.sh`
//! installs. `make test-metrics` runs these tests.

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use taskdiag_zoo::Zoo;

use crate::common::Sleeper;
use crate::exporter::{ask, Directory, Exporter, Scrape, PATIENCE};

/// A program from Debian.
fn debians(name: &str) -> PathBuf {
    let directory = std::env::var_os("TASKDIAG_PROMETHEUS").expect("TASKDIAG_PROMETHEUS, which make test-metrics sets");
    Path::new(&directory).join(name)
}

/// A free port, outside of the range that the kernel gives to clients: a client that connects to a
/// port in that range before a server listens may connect to itself.
fn free_port() -> u16 {
    let mut ports = 20_000..30_000;
    let free = ports.find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    free.expect("a port")
}

/// A server, killed when dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(command: &mut Command, port: u16) -> Server {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let server = Server {
            child: child.expect("the program"),
            port,
        };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < PATIENCE, "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn process_exporter(config: &str) -> Server {
        let port = free_port();
        let mut command = Command::new(debians("prometheus-process-exporter"));
        command.arg(format!("-web.listen-address=127.0.0.1:{port}"));
        Server::start(command.args(["-config.path", config]), port)
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("it listens");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stream, &mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains(" 200 ") || head.contains(" 503 "), "{path}: {text}");
        body.to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const CONFIG: &str = r#"
process_names:
- name: "{{.ExeBase}}:{{.Matches.Index}}"
  exe: [tdm-cmdline]
  cmdline: ['-c .*index=(?P<Index>\d+)']
- name: "{{.Username}} {{.Comm}}"
  comm: [tdm-idle]
- comm: [tdm-parent]
- name: threads
  cmdline: [threads-5]
- name: "{{.ExeFull}} {{.Matches}}"
  cmdline: ['tdm-(?P<What>full)', 'f(u)ll']
"#;

/// A process with children that end with it.
struct Family(Child);

impl Family {
    fn start(command: &mut Command) -> Family {
        let family = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn();
        Family(family.expect("the program"))
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.0.wait();
    }
}

/// Starts processes for each rule, which do some work and then rest.
fn load(directory: &Directory) -> Vec<Family> {
    let work = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let cmdline = directory.program("/bin/sh", b"tdm-cmdline");
    let idle = directory.program("/bin/sleep", b"tdm-idle");
    let parent = directory.program("/bin/sh", b"tdm-parent");
    let full = directory.program("/bin/sleep", b"tdm-full");
    let mut families = Vec::new();
    for index in [1, 2, 2] {
        let script = format!("index={index}; {work}; cat /etc/passwd >/dev/null; sleep 1000");
        families.push(Family::start(Command::new(&cmdline).args(["-c", &script])));
    }
    families.extend((0..5).map(|_| Family::start(Command::new(&idle).arg("1000"))));
    // Its child is not in a group of its own.
    let script = format!("{work}; sleep 1000; true");
    families.push(Family::start(Command::new(&parent).args(["-c", &script])));
    families.push(Family::start(Command::new(&full).arg("1000")));
    families
}

/// Check that both exporters have the same values for the same processes, with the same
/// configuration.
#[test]
#[ignore = "make test-metrics brings Debian's programs"]
fn process_exporter_says_the_same() {
    let directory = Directory::new();
    let config = directory.file("config.yml", CONFIG);
    let theirs = Server::process_exporter(&config);
    let ours = Exporter::start(&["--config", &config]);
    // process-exporter counts a process from its start only if it started after the exporter, and
    // knows the time of boot only to the second.
    std::thread::sleep(Duration::from_millis(1500));
    let _load = load(&directory);
    let zoo = Zoo::new().expect("a zoo");
    let _threads = zoo.start("threads-5").expect("threads");
    // Until all processes rest.
    let mut before = String::new();
    let began = Instant::now();
    let (their, our) = loop {
        assert!(began.elapsed() < PATIENCE * 4, "they never rest: {before}");
        std::thread::sleep(Duration::from_millis(1500));
        let their = theirs.get("/metrics");
        let our = ours.scrape();
        let cpu: Vec<&str> = their
            .lines()
            .filter(|line| line.contains("cpu_seconds_total{") || line.contains("context_switches_total{"))
            .collect();
        let now = cpu.join("\n");
        if now == before {
            break (Scrape::parse(&their), our);
        }
        before = now;
    };
    let processors = std::thread::available_parallelism().expect("processors").get() as f64;
    let mut compared = std::collections::BTreeMap::<&str, u32>::new();
    for (name, labels, value) in &their.0 {
        let Some(metric) = name.strip_prefix("namedprocess_namegroup_") else {
            continue;
        };
        // The intended differences: see docs/from-process-exporter.md.
        if metric == "threads_wchan" || metric.starts_with("thread_") && metric != "thread_count" {
            continue;
        }
        if labels
            .get("memtype")
            .is_some_and(|kind| kind.starts_with("proportional"))
        {
            continue;
        }
        let pairs: Vec<(&str, &str)> = labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let our = our
            .value(name, &pairs)
            .unwrap_or_else(|| panic!("{name} {labels:?} is not there: {value}"));
        let processes = their.group("num_procs", &labels["groupname"], &[]);
        let tolerance = match (metric, labels.get("memtype").map(String::as_str)) {
            // Whole ticks there, for each process.
            ("cpu_seconds_total", _) => 0.0101 * processes,
            // stat misses what the kernel has counted per processor, up to 32 pages of three kinds
            // (Linux 6.2). taskdiag uses status, which values_are_those_of_the_kernel checks.
            ("memory_bytes", Some("resident")) => processes * processors * 3.0 * 32.0 * 4096.0,
            _ => 0.0,
        };
        // The first of several threads counts twice there. One process of this group has several.
        let is_twice = metric == "states" && labels["groupname"] == "threads" && labels["state"] == "Sleeping";
        let value = if is_twice { value - 1.0 } else { *value };
        assert!(
            (our - value).abs() <= tolerance,
            "{name} {labels:?}: {our}, {value} in process-exporter"
        );
        *compared.entry(metric).or_default() += 1;
    }
    assert!(compared.len() >= 14, "{compared:?}");
    let groups = [
        "root tdm-idle",
        "tdm-cmdline:1",
        "tdm-cmdline:2",
        "tdm-parent",
        "threads",
    ];
    for group in groups {
        assert!(their.group("num_procs", group, &[]) >= 1.0, "{group}");
    }
    assert_eq!(their.all("namedprocess_namegroup_num_procs").count(), groups.len() + 1);
    assert!(our.seconds("tdm-cmdline:2") > 0.05);
    println!("compared: {compared:?}");
}

/// Check that promtool finds nothing wrong, and suggests nothing.
#[test]
#[ignore = "make test-metrics brings Debian's programs"]
fn promtool_finds_nothing_wrong() {
    let directory = Directory::new();
    let hostile = directory.program("/bin/sleep", b"\"\n\\{}=<\xff\xc3");
    let _sleeper = Sleeper::start(&mut Command::new(hostile));
    let zoo = Zoo::new().expect("a zoo");
    let _threads = zoo.start("threads-5").expect("threads");
    let exporter = Exporter::start(&["--by", "unit,user", "--pss-budget", "1s", "--wchan", "--cache", "/etc"]);
    exporter.scrape_until(|scrape| scrape.all("taskdiag_directory_files").count() > 0);
    let body = exporter.get("/metrics", "").body;
    let mut promtool = Command::new(debians("promtool"))
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool");
    promtool
        .stdin
        .take()
        .expect("a pipe")
        .write_all(body.as_bytes())
        .expect("it reads");
    let output = promtool.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success() && said.is_empty(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}

/// The queries of the dashboard, with their panels.
fn dashboard() -> Vec<(String, String)> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/grafana/taskdiag-processes.json"
    );
    let text = fs::read_to_string(path).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("it is JSON");
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expr = target["expr"].as_str().expect("a query");
            let expr = expr.replace("$__rate_interval", "10s").replace("$groupname", ".*");
            assert!(!expr.contains('$'), "{expr}");
            queries.push((panel["title"].as_str().expect("a title").to_owned(), expr));
        }
    }
    queries
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The options of the systemd unit.
fn options_of_unit() -> Vec<String> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/systemd/taskdiag-metrics.service"
    );
    let unit = fs::read_to_string(path).expect("the unit");
    let options = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/taskdiag metrics "));
    let options = options.expect("options").replace("%%", "%");
    options.split(' ').map(str::to_owned).collect()
}

/// Check that Prometheus scrapes the exporter, and that each query of the dashboard has an answer with
/// the options of the systemd unit and a directory.
#[test]
#[ignore = "make test-metrics brings Debian's programs"]
fn prometheus_answers_the_queries_of_the_dashboard() {
    let directory = Directory::new();
    let cached = directory.0.to_str().expect("UTF-8");
    let unit = options_of_unit();
    let mut options: Vec<&str> = unit.iter().map(String::as_str).collect();
    options.extend(["--cache", cached]);
    let exporter = Exporter::start(&options);
    let config = directory.file(
        "prometheus.yml",
        &format!(
            "global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\nscrape_configs:\n- job_name: taskdiag\n  static_configs:\n  - targets: ['{}']\n",
            exporter.address()
        ),
    );
    let port = free_port();
    let mut command = Command::new(debians("prometheus"));
    command
        .arg(format!("--config.file={config}"))
        .arg(format!("--storage.tsdb.path={cached}/tsdb"));
    let prometheus = Server::start(command.arg(format!("--web.listen-address=127.0.0.1:{port}")), port);
    let _load = load(&directory);
    let hostile = Sleeper::start(&mut Command::new(directory.program("/bin/sleep", b"<script>\"\n")));
    let zoo = Zoo::new().expect("a zoo");
    let _threads = zoo.start("threads-5").expect("threads");
    let answer = |query: &str| -> Vec<Value> {
        let body = prometheus.get(&format!("/api/v1/query?query={}", encoded(query)));
        let document: Value = serde_json::from_str(&body).unwrap_or_default();
        document["data"]["result"].as_array().cloned().unwrap_or_default()
    };
    let mut left = dashboard();
    assert!(left.len() > 25);
    left.push(("up".to_owned(), "up == 1".to_owned()));
    left.push((
        "a name".to_owned(),
        r#"namedprocess_namegroup_num_procs{groupname="<script>\"\n"} == 1"#.to_owned(),
    ));
    let began = Instant::now();
    while !left.is_empty() {
        assert!(began.elapsed() < 2 * PATIENCE, "no answers: {left:#?}");
        std::thread::sleep(Duration::from_secs(1));
        let _ = Command::new("true").status();
        left.retain(|(_, query)| answer(query).is_empty());
    }
    drop(hostile);
    let format = answer("scrape_samples_scraped");
    assert!(!format.is_empty());
    let mut stream = exporter.connect();
    let own = ask(&mut stream, "/metrics", "").body;
    assert!(!own.contains("taskdiag_metrics_answers_total{code=\"400\"}"));
}
