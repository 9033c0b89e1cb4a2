//! `taskdiag metrics`, run as a program.

#[path = "../common/mod.rs"]
mod common;
mod exporter;
mod prometheus;

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{run, wait_until_it_sleeps, Sleeper};
use exporter::{ask, receive, Directory, Exporter, Labels, Scrape};
use taskdiag_testkit::child::{self, World};
use taskdiag_testkit::{storage, temporary, test_name};
use taskdiag_zoo::{margin, run_first, Zoo};

/// A configuration with one group for the processes of each name.
fn named(directory: &Directory, names: &[&str]) -> String {
    let items: String = names.iter().map(|name| format!("  - '{name}'\n")).collect();
    directory.file(
        "named.yml",
        &format!("process_names:\n- name: '{{{{.Comm}}}}'\n  comm:\n{items}"),
    )
}

/// Check that names can have the path in each hierarchy of cgroups, in the kernel's order.
#[test]
fn names_have_all_cgroups() {
    let directory = Directory::new();
    let sleeper = Sleeper::start(&mut Command::new(directory.program("/bin/sleep", b"tdm-cgroups")));
    let rules = "process_names:\n- name: '{{.Comm}} {{.Cgroups}}'\n  comm: [tdm-cgroups]\n";
    let exporter = Exporter::start(&["--config", &directory.file("cgroups.yml", rules)]);
    let text = proc(&sleeper.pid(), "cgroup");
    let paths: Vec<&str> = text.lines().flat_map(|line| line.splitn(3, ':').nth(2)).collect();
    let name = format!("tdm-cgroups [{}]", paths.join(" "));
    assert_eq!(exporter.scrape().group("num_procs", &name, &[]), 1.0);
}

/// Check that the exporter in a container has the values of the host's processes, and its own.
#[test]
fn a_container_has_the_metrics_of_its_host() {
    let (directory, proc) = (Directory::new(), temporary::Directory::new("metrics-proc"));
    let sleeper = Sleeper::start(&mut Command::new(directory.program("/bin/sleep", b"tdm-host")));
    let pid = sleeper.pid();
    let config = named(&directory, &["tdm-host"]);
    let mut command = common::in_container(&proc);
    command.args([env!("CARGO_BIN_EXE_taskdiag"), "metrics", "--listen", "127.0.0.1:0"]);
    let exporter = Exporter::run(command.args(["--config", &config]).env("HOST_PROC", &*proc));
    let scrape = exporter.scrape();
    let rss = common::status(&pid, "VmRSS");
    let rss: f64 = rss.trim_end_matches(" kB").parse().expect("a size");
    assert_eq!(scrape.group("num_procs", "tdm-host", &[]), 1.0);
    assert_eq!(
        scrape.group("memory_bytes", "tdm-host", &[("memtype", "resident")]),
        rss * 1024.0
    );
    assert_eq!(scrape.value("taskdiag_metrics_events", &[]), Some(0.0));
    assert!(scrape.value("process_resident_memory_bytes", &[]) > Some(0.0));
}

fn proc(pid: &str, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).expect("the process exists")
}

/// Check that the values of a group equal those in the kernel's own files for its processes.
#[test]
fn values_are_those_of_the_kernel() {
    let directory = Directory::new();
    let program = directory.program("/bin/sleep", b"tdm-values");
    let sleepers = [(); 3].map(|()| Sleeper::start(&mut Command::new(&program)));
    let config = named(&directory, &["tdm-values"]);
    let exporter = Exporter::start(&["--config", &config]);
    // These tests need root: other users get no events.
    let scrape = exporter.scrape_until(|scrape| scrape.value("taskdiag_metrics_events", &[]) == Some(1.0));
    let sum = |value: &dyn Fn(&str) -> u64| sleepers.iter().map(|sleeper| value(&sleeper.pid())).sum::<u64>() as f64;
    let kib = |pid: &str, key: &str| {
        let text = common::status(pid, key);
        text.trim_end_matches(" kB").parse::<u64>().expect("a size") * 1024
    };
    let stat = |pid: &str, index: usize| -> u64 {
        let text = proc(pid, "stat");
        let rest = text.rsplit_once(')').expect("a name").1.to_owned();
        rest.split_whitespace()
            .nth(index - 3)
            .and_then(|word| word.parse().ok())
            .expect("a number")
    };
    let group = |name: &str, more: &[(&str, &str)]| scrape.group(name, "tdm-values", more);
    assert_eq!(group("num_procs", &[]), 3.0);
    assert_eq!(group("num_threads", &[]), 3.0);
    assert_eq!(
        group("memory_bytes", &[("memtype", "resident")]),
        sum(&|pid| kib(pid, "VmRSS"))
    );
    assert_eq!(
        group("memory_bytes", &[("memtype", "virtual")]),
        sum(&|pid| stat(pid, 23))
    );
    assert_eq!(
        group("memory_bytes", &[("memtype", "swapped")]),
        sum(&|pid| kib(pid, "VmSwap"))
    );
    let descriptors = |pid: &str| fs::read_dir(format!("/proc/{pid}/fd")).expect("its files").count() as u64;
    assert_eq!(group("open_filedesc", &[]), sum(&descriptors));
    let pid = sleepers[0].pid();
    let limits = proc(&pid, "limits");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("a limit");
    let soft: f64 = line
        .split_whitespace()
        .nth(3)
        .and_then(|word| word.parse().ok())
        .expect("a number");
    assert_eq!(group("worst_fd_ratio", &[]), descriptors(&pid) as f64 / soft);
    let boot = fs::read_to_string("/proc/stat").expect("/proc is mounted");
    let boot: u64 = boot
        .lines()
        .find_map(|line| line.strip_prefix("btime "))
        .expect("btime")
        .parse()
        .expect("a number");
    let oldest = sleepers
        .iter()
        .map(|sleeper| stat(&sleeper.pid(), 22))
        .min()
        .expect("some");
    assert_eq!(group("oldest_start_time_seconds", &[]), (boot + oldest / 100) as f64);
    let states =
        ["Running", "Sleeping", "Waiting", "Zombie", "Other"].map(|state| group("states", &[("state", state)]));
    assert_eq!(states, [0.0, 3.0, 0.0, 0.0, 0.0]);
    // What they did before the exporter started does not count.
    for name in ["read_bytes_total", "major_page_faults_total", "minor_page_faults_total"] {
        assert_eq!(group(name, &[]), 0.0, "{name}");
    }
    assert_eq!(scrape.seconds("tdm-values"), 0.0);
    assert_eq!(scrape.value("taskdiag_metrics_stale", &[]), Some(0.0));
    let own = scrape
        .value("process_resident_memory_bytes", &[])
        .expect("its own memory");
    assert!(own > 1e6 && own < 200e6, "{own}");
}

/// Check that counters contain what processes did since the exporter started, and do not fall when
/// the processes end.
#[test]
fn counters_grow_and_do_not_fall() {
    let directory = Directory::new();
    let program = directory.program("/bin/sh", b"tdm-busy");
    let exporter = Exporter::start(&["--config", &named(&directory, &["tdm-busy"])]);
    let mut busy = Command::new(&program)
        .args([
            "-c",
            "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo done; read x; exec sleep 0",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut done = [0; 5];
    busy.stdout
        .as_mut()
        .expect("a pipe")
        .read_exact(&mut done)
        .expect("it is done");
    wait_until_it_sleeps(&busy.id().to_string());
    let before = exporter.scrape();
    let text = proc(&busy.id().to_string(), "stat");
    let words: Vec<f64> = text
        .rsplit_once(')')
        .expect("a name")
        .1
        .split_whitespace()
        .map(|word| word.parse().unwrap_or(0.0))
        .collect();
    let kernels = (words[11] + words[12]) / 100.0;
    let ours = before.seconds("tdm-busy");
    assert!(
        ours > 0.05 && (ours - kernels).abs() <= 0.021,
        "{ours} s, {kernels} s in stat"
    );
    assert_eq!(before.group("minor_page_faults_total", "tdm-busy", &[]), words[7]);
    drop(busy.stdin.take());
    busy.wait().expect("it ends");
    let after = exporter.scrape_until(|scrape| scrape.group("num_procs", "tdm-busy", &[]) == 0.0);
    for name in [
        "minor_page_faults_total",
        "major_page_faults_total",
        "read_bytes_total",
        "write_bytes_total",
    ] {
        let value = |scrape: &Scrape| scrape.group(name, "tdm-busy", &[]);
        assert!(value(&after) >= value(&before), "{name}");
    }
    assert!(
        after.seconds("tdm-busy") >= ours,
        "{} s after {ours} s",
        after.seconds("tdm-busy")
    );
    assert_eq!(after.group("memory_bytes", "tdm-busy", &[("memtype", "resident")]), 0.0);
}

/// Check that processes which start and end between two scrapes count once each, with the time that
/// they ran.
#[test]
fn the_short_lived_count() {
    const RUNS: u32 = 30;
    let directory = Directory::new();
    // No other process has this name.
    let name = &format!("tdm-{}", std::process::id());
    let program = directory.program("/bin/sh", name.as_bytes());
    let exporter = Exporter::start(&["--by", "user"]);
    exporter.scrape_until(|scrape| scrape.value("taskdiag_metrics_events", &[]) == Some(1.0));
    let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; read line </proc/self/schedstat; echo $line";
    let mut ran_ns = 0;
    for _ in 0..RUNS {
        let output = Command::new(&program).args(["-c", script]).output().expect("a shell");
        let text = String::from_utf8(output.stdout).expect("numbers");
        ran_ns += text
            .split(' ')
            .next()
            .and_then(|word| word.parse::<u64>().ok())
            .expect("a time");
    }
    let ended = |scrape: &Scrape| scrape.value("taskdiag_namegroup_ended_processes_total", &[("groupname", name)]);
    let scrape = exporter.scrape_until(|scrape| ended(scrape) == Some(RUNS.into()));
    assert_eq!(scrape.group("num_procs", name, &[]), 0.0);
    let (ours, theirs) = (scrape.seconds(name), ran_ns as f64 / 1e9);
    assert!(
        ours >= theirs * 0.95 && ours <= theirs * 1.5 + 0.1,
        "{ours} s, {theirs} s as they saw it"
    );
    let of_users: f64 = scrape
        .all("taskdiag_user_ended_processes_total")
        .map(|(_, value)| value)
        .sum();
    assert!(of_users >= f64::from(RUNS), "{of_users}");
}

/// Check that the network traffic of a group is that of its processes, to the byte: of those that are
/// there and of those that start and end between two scrapes; and that it is left out if asked to.
#[test]
fn traffic_counts() {
    const RUNS: u32 = 5;
    let directory = Directory::new();
    // No other process has this name.
    let name = &format!("tdn-{}", std::process::id());
    let program = directory.program("/usr/bin/python3", name.as_bytes());
    let exporter = Exporter::start(&[]);
    let without = Exporter::start(&["--no-network"]);
    exporter.scrape_until(|scrape| scrape.value("taskdiag_metrics_events", &[]) == Some(1.0));
    let moves = "import socket as s; a, b = s.socketpair(); a.send(b'x' * 1000); b.recv(2000)";
    let stays = format!("{moves}; print(flush=True); input()");
    let mut stays = Command::new(&program)
        .args(["-c", &stays])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    stays
        .stdout
        .as_mut()
        .expect("a pipe")
        .read_exact(&mut [0])
        .expect("it moved");
    for _ in 0..RUNS {
        assert!(Command::new(&program)
            .args(["-c", moves])
            .status()
            .expect("python3")
            .success());
    }
    let moved = |scrape: &Scrape, scope: &str, direction: &str| {
        let labels = [("groupname", name.as_str()), ("scope", scope), ("direction", direction)];
        scrape.value("taskdiag_namegroup_network_bytes_total", &labels)
    };
    let ended = |scrape: &Scrape| scrape.value("taskdiag_namegroup_ended_processes_total", &[("groupname", name)]);
    let scrape = exporter.scrape_until(|scrape| ended(scrape) == Some(RUNS.into()));
    for direction in ["sent", "received"] {
        assert_eq!(moved(&scrape, "unix", direction), Some(f64::from(1000 * (RUNS + 1))));
        assert_eq!(moved(&scrape, "net", direction), Some(0.0));
    }
    assert_eq!(
        without.scrape().all("taskdiag_namegroup_network_bytes_total").count(),
        0
    );
    // What was read before the end counts once.
    stays.stdin.take().expect("a pipe").write_all(b"\n").expect("it waits");
    assert!(stays.wait().expect("it ends").success());
    let scrape = exporter.scrape_until(|scrape| ended(scrape) == Some((RUNS + 1).into()));
    assert_eq!(moved(&scrape, "unix", "sent"), Some(f64::from(1000 * (RUNS + 1))));
}

/// Check that names that could break the format each become one label, and stay different.
#[test]
fn hostile_names_stay_labels() {
    let directory = Directory::new();
    let names: [&[u8]; 5] = [
        b"<script>\"",
        b"a\nb 1\\",
        b"\xff\xfe",
        b"\xff\xfd",
        "\u{e9}{x=\"y\"}".as_bytes(),
    ];
    let sleepers = names.map(|name| Sleeper::start(&mut Command::new(directory.program("/bin/sleep", name))));
    let exporter = Exporter::start(&[]);
    let scrape = exporter.scrape();
    let labels = ["<script>\"", "a\nb 1\\", "\\xff\\xfe", "\\xff\\xfd", "\u{e9}{x=\"y\"}"];
    for label in labels {
        assert_eq!(scrape.group("num_procs", label, &[]), 1.0, "{label:?}");
    }
    let accept = "Accept: application/openmetrics-text; version=1.0.0\r\n";
    let answer = exporter.get("/metrics", accept);
    assert!(answer
        .head
        .contains("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert!(answer.body.ends_with("# EOF\n"));
    let open = Scrape::parse(&answer.body);
    for label in labels {
        assert_eq!(open.group("num_procs", label, &[]), 1.0, "{label:?}");
    }
    drop(sleepers);
}

/// Check that a wrong configuration is rejected with file, line and reason, and that one without
/// effect is reported.
#[test]
fn wrong_configurations_are_refused() {
    let directory = Directory::new();
    let wrong = directory.file("wrong.yml", "process_names:\n- comm: [a]\n- cmdline: ['(']\n");
    let ended = run(&["metrics", "--config", &wrong]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains(&format!("{wrong}: line 3: cmdline: ")),
        "{}",
        ended.stderr
    );
    let ended = run(&["metrics", "--config", "/nonexistent"]);
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (Some(2), "taskdiag: /nonexistent: No such file or directory\n")
    );
    let (fifo, endless) = (directory.file("fifo", ""), directory.file("endless", ""));
    std::fs::remove_file(&fifo).expect("a file");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a fifo");
    let file = std::fs::File::options().write(true).open(&endless);
    file.and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    for (path, said) in [
        (fifo.as_str(), "not a regular file"),
        ("/dev/zero", "not a regular file"),
        (&endless, "larger than 1024 KiB"),
    ] {
        let ended = run(&["metrics", "--config", path]);
        assert!(
            ended.code == Some(2) && ended.stderr.contains(said),
            "{path}: {}",
            ended.stderr
        );
    }
    for args in [
        &["--listen", "nowhere"][..],
        &["--pss-budget", "200%"],
        &["--by", "planet"],
        &["--listen", "/dev/null/x"],
    ] {
        let ended = run(&[&["metrics"], args].concat());
        assert!(
            ended.code == Some(2) && !ended.stderr.is_empty(),
            "{args:?}: {}",
            ended.stderr
        );
    }
}

/// Check that clients that send nothing, too much, or half a request, or never read the answer,
/// neither delay others nor make the exporter grow.
#[test]
fn hostile_clients_hold_nobody() {
    let _turn = run_first();
    let exporter = Exporter::start(&["--fresh-for", "1000"]);
    exporter.scrape();
    let (memory, descriptors) = (exporter.resident_bytes(), exporter.descriptors());
    let mut slow = Vec::new();
    for index in 0..300 {
        let mut stream = exporter.connect();
        match index % 3 {
            0 => {}
            1 => stream
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: ")
                .expect("it listens"),
            // Never reads the answer.
            _ => stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it listens"),
        }
        slow.push(stream);
        if index % 50 == 0 {
            let began = Instant::now();
            exporter.scrape();
            assert!(
                began.elapsed() < Duration::from_secs(2) * margin().as_secs() as u32,
                "{:?}",
                began.elapsed()
            );
        }
    }
    let began = Instant::now();
    exporter.scrape();
    assert!(
        began.elapsed() < Duration::from_secs(2) * margin().as_secs() as u32,
        "{:?}",
        began.elapsed()
    );
    let dropped = [("reason", "too many connections")];
    let name = "taskdiag_metrics_dropped_connections_total";
    exporter.scrape_until(|scrape| scrape.value(name, &dropped) > Some(100.0));
    assert!(
        exporter.descriptors() <= descriptors + 40,
        "{} descriptors",
        exporter.descriptors()
    );
    assert!(
        exporter.resident_bytes() < memory + (16 << 20),
        "{} bytes",
        exporter.resident_bytes()
    );
    drop(slow);
    // Larger than any request.
    let mut huge = exporter.connect();
    let _ = huge.write_all(b"GET /metrics HTTP/1.1\r\na: ");
    let _ = huge.write_all(&vec![b'x'; 1 << 16]);
    assert_eq!(receive(&mut huge).status, 431);
    let mut nonsense = exporter.connect();
    nonsense
        .write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        .expect("it listens");
    assert_eq!(receive(&mut nonsense).status, 400);
    for (path, status) in [("/metrics", 200), ("/", 200), ("/-/healthy", 200), ("/x", 404)] {
        assert_eq!(exporter.get(path, "").status, status, "{path}");
    }
    // A request that stops halfway is dropped in time.
    let mut half = exporter.connect();
    half.write_all(b"GET /").expect("it listens");
    let began = Instant::now();
    // A read alone may be interrupted.
    assert_eq!(half.read_to_end(&mut Vec::new()).expect("its end"), 0);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(exporter.end("-TERM").0, Some(0));
}

/// Check methods, paths, and requests that are sent together: a connection has one answer.
#[test]
fn requests_have_their_answers() {
    let exporter = Exporter::start(&[]);
    let answer = |request: &str| {
        let mut stream = exporter.connect();
        stream.write_all(request.as_bytes()).expect("it listens");
        receive(&mut stream)
    };
    for (request, status) in [
        ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", 200),
        ("GET /metrics/ HTTP/1.1\r\n\r\n", 404),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\nsomething", 405),
        ("CONNECT x:1 HTTP/1.1\r\n\r\n", 405),
        ("GET /metrics HTTP/9.9\r\n\r\n", 400),
        ("GET /-/healthy HTTP/1.1\r\n\r\nGET /x HTTP/1.1\r\n\r\n", 200),
    ] {
        let answer = answer(request);
        assert_eq!(answer.status, status, "{request}");
        assert!(
            answer.head.contains("Connection: close") || request.contains("/1.0"),
            "{}",
            answer.head
        );
        assert_eq!(
            answer.head.contains("Allow: GET, HEAD"),
            status == 405,
            "{}",
            answer.head
        );
    }
    let head = answer("HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(
        head.status == 200 && head.body.is_empty() && !head.head.contains("Content-Length: 0"),
        "{}",
        head.head
    );
    assert_eq!(
        answer(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200))).status,
        431
    );
    // The answers before this one.
    let scrape = exporter.scrape();
    for (code, count) in [("200", 3.0), ("400", 1.0), ("404", 1.0), ("405", 2.0), ("431", 1.0)] {
        let answers = scrape.value("taskdiag_metrics_answers_total", &[("code", code)]);
        assert_eq!(answers, Some(count), "{code}");
    }
}

/// Check that a client that never reads its answer is dropped.
#[test]
fn who_never_reads_is_dropped() {
    let directory = Directory::new();
    let sleeper = Sleeper::start(&mut Command::new(directory.program("/bin/sleep", b"tdm-slow")));
    // The answer is larger than what the kernel keeps for the client.
    let config = format!(
        "process_names:\n- name: '{}'\n  comm: [tdm-slow]\n",
        "x".repeat(100_000)
    );
    let config = directory.file("long.yml", &config);
    let path = directory.0.join("metrics.sock");
    let place = path.to_str().expect("UTF-8");
    let exporter = Exporter::run(&mut common::command(&[
        "metrics", "--listen", place, "--config", &config,
    ]));
    let connect = || UnixStream::connect(&path).expect("it listens");
    let mut slow = connect();
    slow.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it listens");
    let began = Instant::now();
    let dropped = || {
        let scrape = Scrape::parse(&ask(&mut connect(), "/metrics", "").body);
        scrape.value(
            "taskdiag_metrics_dropped_connections_total",
            &[("reason", "slow to take")],
        )
    };
    while dropped() != Some(1.0) {
        assert!(began.elapsed() < exporter::PATIENCE, "it is kept");
        std::thread::sleep(Duration::from_millis(200));
    }
    drop((sleeper, exporter));
}

/// Check that a scrape ends in time with earlier values while a process blocks its reader, and that
/// later scrapes have new values.
#[test]
fn a_scrape_ends_in_time() {
    let _turn = run_first();
    let exporter = Exporter::start(&["--patience", "6", "--deadline", "0.5"]);
    exporter.scrape_until(|scrape| scrape.value("taskdiag_metrics_stale", &[]) == Some(0.0));
    let zoo = Zoo::new().expect("a zoo");
    let holder = zoo.start("holds-lock").expect("a holder");
    let began = Instant::now();
    let scrape = exporter.scrape();
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(400) && took < Duration::from_secs(4) + margin(),
        "{took:?}"
    );
    assert_eq!(scrape.value("taskdiag_metrics_stale", &[]), Some(1.0));
    assert!(scrape.value("taskdiag_metrics_sample_age_seconds", &[]) > Some(0.3));
    // Prometheus sends its timeout, which may be shorter.
    let began = Instant::now();
    let answer = exporter.get("/metrics", "X-Prometheus-Scrape-Timeout-Seconds: 0.2\r\n");
    assert_eq!(
        Scrape::parse(&answer.body).value("taskdiag_metrics_stale", &[]),
        Some(1.0)
    );
    assert!(began.elapsed() < Duration::from_secs(4) + margin());
    drop(holder);
    let scrape = exporter.scrape_until(|scrape| scrape.value("taskdiag_metrics_stale", &[]) == Some(0.0));
    assert!(scrape.value("taskdiag_metrics_stale_answers_total", &[]) >= Some(2.0));
}

/// Check that each of many scrapes that wait has an answer: those for which there is no room get
/// earlier values at once.
#[test]
fn no_scrape_is_dropped() {
    const SCRAPES: usize = 40;
    let exporter = Exporter::start(&["--patience", "3", "--deadline", "30"]);
    let zoo = Zoo::new().expect("a zoo");
    let holder = zoo.start("holds-lock").expect("a holder");
    let clients = [(); SCRAPES].map(|()| {
        let mut stream = exporter.connect();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it listens");
        stream
    });
    for mut client in clients {
        assert_eq!(receive(&mut client).status, 200);
    }
    drop(holder);
}

/// Check that groups beyond the maximum are added up, and that nothing is lost.
#[test]
fn the_rest_is_other() {
    let directory = Directory::new();
    let names = ["tdm-a", "tdm-b", "tdm-c", "tdm-d"];
    let start = |name: &&str| Sleeper::start(&mut Command::new(directory.program("/bin/sleep", name.as_bytes())));
    let sleepers: Vec<Sleeper> = names.iter().map(start).collect();
    let config = named(&directory, &names);
    let whole = Exporter::start(&["--config", &config]).scrape();
    let few = Exporter::start(&["--config", &config, "--top", "2"]).scrape();
    for name in [
        "namedprocess_namegroup_num_procs",
        "namedprocess_namegroup_memory_bytes",
        "namedprocess_namegroup_open_filedesc",
    ] {
        let sum = |scrape: &Scrape| scrape.all(name).map(|(_, value)| value).sum::<f64>();
        assert_eq!(sum(&whole), sum(&few), "{name}");
    }
    assert_eq!(few.all("namedprocess_namegroup_num_procs").count(), 3);
    assert_eq!(few.group("num_procs", "other", &[]), 2.0);
    drop(sleepers);
}

/// Check that threads have metrics by name, that states count threads, and that both can be left
/// out.
#[test]
fn threads_have_names() {
    let zoo = Zoo::new().expect("a zoo");
    let animal = zoo.start("threads-5").expect("threads");
    let pid = animal.pid.to_string();
    let comm = proc(&pid, "comm").trim_end().to_owned();
    let directory = Directory::new();
    // Other tests have such processes.
    let group = format!("{comm}-{pid}");
    let config = format!("process_names:\n- name: '{{{{.Comm}}}}-{{{{.PID}}}}'\n  comm:\n  - '{comm}'\n");
    let config = directory.file("pid.yml", &config);
    let scrape = Exporter::start(&["--config", &config]).scrape();
    let mut names = std::collections::BTreeMap::<String, u64>::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).expect("its threads") {
        let text = fs::read_to_string(entry.expect("a thread").path().join("comm")).expect("its name");
        *names.entry(text.trim_end().to_owned()).or_default() += 1;
    }
    assert!(names.values().sum::<u64>() > 1);
    let name = "namedprocess_namegroup_thread_count";
    for (thread, count) in &names {
        let labels = [("groupname", group.as_str()), ("threadname", thread.as_str())];
        assert_eq!(scrape.value(name, &labels), Some(*count as f64), "{thread}");
    }
    let own = |labels: &Labels| labels.get("groupname") == Some(&group);
    assert_eq!(scrape.all(name).filter(|(labels, _)| own(labels)).count(), names.len());
    let sum = |scrape: &Scrape, name: &str| scrape.all(name).map(|(_, value)| value).sum::<f64>();
    let states = "namedprocess_namegroup_states";
    assert_eq!(sum(&scrape, states), sum(&scrape, "namedprocess_namegroup_num_threads"));
    let without = Exporter::start(&["--config", &config, "--threads=false"]).scrape();
    assert_eq!(without.all(name).count(), 0);
    assert_eq!(sum(&without, states), sum(&without, "namedprocess_namegroup_num_procs"));
}

/// Check that a directory that can't be walked is named, once.
#[test]
fn a_missing_directory_is_named() {
    let directory = Directory::new();
    let path = directory.0.join("cached");
    std::fs::create_dir(&path).expect("a directory");
    let name = path.to_str().expect("UTF-8");
    let exporter = Exporter::start(&["--cache", name, "--cache-every", "0.1"]);
    let age = |scrape: &Scrape| scrape.value("taskdiag_directory_age_seconds", &[("directory", name)]);
    exporter.scrape_until(|scrape| age(scrape).is_some());
    std::fs::remove_dir(&path).expect("it is empty");
    exporter.scrape_until(|scrape| age(scrape) > Some(1.0));
    let (_, said) = exporter.end("-TERM");
    assert_eq!(said.matches(&format!("--cache {name}: ")).count(), 1, "{said}");
    assert!(said.contains("No such file"), "{said}");
}

/// Check that users, units and directories are exported on request, and PSS if it may cost
/// something.
#[test]
fn more_is_told_on_request() {
    let directory = Directory::new();
    directory.file("cached", &"x".repeat(100_000));
    let path = directory.0.to_str().expect("UTF-8");
    let exporter = Exporter::start(&["--by", "user,unit,container,pod", "--pss-budget", "2s", "--cache", path]);
    let labels = [("directory", path)];
    let scrape = exporter.scrape_until(|scrape| scrape.value("taskdiag_directory_files", &labels).is_some());
    assert_eq!(scrape.value("taskdiag_directory_files", &labels), Some(1.0));
    assert_eq!(scrape.value("taskdiag_directory_size_bytes", &labels), Some(100_000.0));
    assert!(scrape.value("taskdiag_directory_cached_bytes", &labels) >= Some(0.0));
    let groups = |prefix: &str| -> f64 { scrape.all(prefix).map(|(_, value)| value).sum() };
    let all = groups("taskdiag_user_num_procs");
    assert!(all > 2.0);
    for kind in ["unit", "container", "pod"] {
        assert_eq!(groups(&format!("taskdiag_{kind}_num_procs")), all, "{kind}");
    }
    let pss: f64 = scrape
        .all("namedprocess_namegroup_memory_bytes")
        .filter(|(labels, _)| labels["memtype"] == "proportionalResident")
        .map(|(_, value)| value)
        .sum();
    assert!(pss > 1e6, "{pss}");
    let plain = Exporter::start(&[]).scrape();
    assert!(!plain
        .all("namedprocess_namegroup_memory_bytes")
        .any(|(labels, _)| labels["memtype"].starts_with("proportional")));
}

/// Check a directory on an overlay, as in a container: the kernel only says how much of its files
/// is cached.
#[test]
fn directories_on_overlays_are_cached() {
    child::run(test_name!(), "overlay", World::default(), || {
        let directory = Directory::new();
        let lower = directory.0.join("lower");
        fs::create_dir(&lower).expect("a directory");
        fs::write(lower.join("cached"), "x".repeat(100_000)).expect("room");
        let merged = storage::overlay(&directory.0, &lower, "");
        let path = merged.to_str().expect("UTF-8");
        let exporter = Exporter::start(&["--cache", path]);
        let labels = [("directory", path)];
        let scrape = exporter.scrape_until(|scrape| scrape.value("taskdiag_directory_files", &labels).is_some());
        let pages = 100_000_usize.div_ceil(rustix::param::page_size());
        let bytes = (pages * rustix::param::page_size()) as f64;
        assert_eq!(scrape.value("taskdiag_directory_cached_bytes", &labels), Some(bytes));
        assert_eq!(scrape.value("taskdiag_directory_dirty_bytes", &labels), None);
        assert_eq!(scrape.value("taskdiag_directory_missing_files", &labels), Some(0.0));
    });
}

/// Check the UNIX socket: who may connect, that the socket of a killed exporter is replaced, that a
/// socket in use is not, and that the socket is removed at the end.
#[test]
fn it_listens_at_a_unix_socket() {
    let directory = Directory::new();
    let path = directory.0.join("metrics.sock");
    let place = path.to_str().expect("UTF-8");
    let start = || Exporter::run(&mut common::command(&["metrics", "--listen", place]));
    drop(start());
    assert!(path.exists(), "it was killed");
    let exporter = start();
    assert_eq!(
        fs::metadata(&path).expect("the socket").permissions().mode() & 0o777,
        0o660
    );
    let mut stream = UnixStream::connect(&path).expect("it listens");
    let answer = ask(&mut stream, "/metrics", "");
    assert!(
        Scrape::parse(&answer.body).value("taskdiag_build_info", &[("version", env!("CARGO_PKG_VERSION"))])
            == Some(1.0)
    );
    let second = run(&["metrics", "--listen", place]);
    assert!(
        second.code == Some(2) && second.stderr.contains("Address already in use"),
        "{}",
        second.stderr
    );
    assert_eq!(exporter.end("-INT"), (Some(0), String::new()));
    assert!(!path.exists());
}

/// Check that a user without privileges gets the values that `/proc` shows, and a report of the
/// rest.
#[test]
fn nobody_gets_what_proc_shows() {
    if fs::metadata("/proc/self").expect("/proc is mounted").uid() != 0 {
        eprintln!("not root: nothing tested");
        return;
    }
    let directory = Directory::new();
    fs::set_permissions(&*directory.0, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let program = directory.program(env!("CARGO_BIN_EXE_taskdiag"), b"tdm-nobody");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let sleeper = Sleeper::start(&mut Command::new(directory.program("/bin/sleep", b"tdm-roots")));
    let mut command = Command::new(&program);
    command.args(["metrics", "--listen", "127.0.0.1:0", "--source", "procfs"]);
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    let exporter = Exporter::run(&mut command);
    let scrape = exporter.scrape_until(|scrape| scrape.value("taskdiag_metrics_events", &[]) == Some(0.0));
    assert_eq!(scrape.group("num_procs", "tdm-roots", &[]), 1.0);
    let labels = [("groupname", "tdm-roots")];
    assert_eq!(
        scrape.value("namedprocess_namegroup_read_bytes_total", &labels),
        None,
        "it is denied, not 0"
    );
    let missing = [("field", "read_bytes"), ("reason", "denied")];
    assert!(scrape.value("taskdiag_metrics_missing_values", &missing) >= Some(1.0));
    assert!(scrape.value("namedprocess_scrape_partial_errors", &[]) >= Some(1.0));
    assert!(scrape.group("read_bytes_total", "tdm-nobody", &[]) >= 0.0);
    drop(sleeper);
}

/// Check that the documents have a line for each metric.
#[test]
fn all_metrics_are_documented() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")).expect("the page");
    let exporter = Exporter::start(&["--by", "user,unit", "--pss-budget", "1s", "--cache", "/etc", "--wchan"]);
    exporter.scrape_until(|scrape| scrape.all("taskdiag_directory_files").count() > 0);
    let body = exporter.get("/metrics", "").body;
    let names: Vec<&str> = body
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    assert!(names.len() > 40);
    for name in names {
        let kinds = [
            "namedprocess_namegroup_",
            "taskdiag_namegroup_",
            "taskdiag_unit_",
            "taskdiag_user_",
        ];
        let rest = kinds.iter().find_map(|kind| name.strip_prefix(kind)).unwrap_or(name);
        let is_there = [rest.to_owned(), format!("taskdiag_namegroup_{rest}")]
            .iter()
            .any(|name| text.contains(&format!("`{name}`")));
        assert!(is_there, "docs/metrics.md lacks {name}");
    }
}
