//! `taskdiag net`, and the network fields of other commands, run as a program beside a known sender.

mod common;

use std::io::{Read as _, Write as _};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{run, run_as_nobody, run_with_two_capabilities, Recorder, Recording, Run};

/// Runs commands while this process sends 100 bytes again and again, through UNIX sockets, and some
/// through the loopback interface.
fn while_sending(check: impl FnOnce(&str)) {
    let is_over = AtomicBool::new(false);
    let (mut one, mut other) = UnixStream::pair().expect("a pair");
    let nearby = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    nearby
        .connect(nearby.local_addr().expect("an address"))
        .expect("it is connected");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                one.write_all(&[1; 100]).expect("it is sent");
                other.read_exact(&mut [0; 100]).expect("it is received");
                nearby.send(&[1; 10]).expect("it is sent");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            check(&format!("pid == {}", std::process::id()));
        }));
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

const FIELDS: &str = "pid,unix_sent_bytes,unix_received_bytes,unix_sent_count,unix_sent_bytes_per_s,net_sent_bytes";

/// Check totals and rates of one process, in one sample and in several, and that a process without
/// traffic of the kind that is shown is left out.
#[test]
fn senders_are_shown() {
    while_sending(|filter| {
        let document = run(&["net", "--where", filter, "-o", FIELDS, "--json"]).json();
        assert_eq!(document["command"], "net");
        let rows = document["rows"].as_array().expect("rows");
        let [row] = &rows[..] else { panic!("{rows:?}") };
        let sent = row["unix_sent_bytes"].as_u64().expect("a number");
        assert!(sent > 0 && sent % 100 == 0, "{row}");
        // Others send meanwhile, and bytes are counted before calls.
        let count = row["unix_sent_count"].as_u64().expect("a number");
        assert!(count.abs_diff(sent / 100) <= 2, "{row}");
        assert!(row["unix_sent_bytes_per_s"].as_f64().expect("a rate") > 0.0);
        assert_eq!(row["net_sent_bytes"], 0);

        let none = run(&["net", "--where", filter, "--json"]).json();
        assert_eq!(none["rows"].as_array().map(Vec::len), Some(0));
        let told = run(&["net", "--where", filter]).stderr;
        assert!(told.contains("but within this one: -o +loopback_"), "{told}");

        let several = [
            "net",
            "--watch",
            "0.1",
            "--count",
            "3",
            "--where",
            filter,
            "-o",
            "unix_sent_bytes",
            "--csv",
        ];
        let text = run(&several).complete();
        let counts: Vec<u64> = text
            .lines()
            .skip(1)
            .map(|line| {
                line.rsplit(',')
                    .next()
                    .and_then(|count| count.parse().ok())
                    .expect(line)
            })
            .collect();
        assert!(
            counts.len() == 3 && counts.is_sorted() && counts[2] > counts[0],
            "{text}"
        );
    });
}

/// Check that `watch` counts if its columns need it, and that a listing says who would count.
#[test]
fn other_commands_have_the_fields() {
    while_sending(|filter| {
        let watched = run(&[
            "watch",
            "-n",
            "2",
            "-d",
            "0.2",
            "--where",
            filter,
            "-o",
            "unix_sent_bytes_per_s",
            "--csv",
        ]);
        let rate: f64 = watched
            .complete()
            .lines()
            .last()
            .and_then(|line| line.rsplit(',').next()?.parse().ok())
            .expect("a rate");
        assert!(rate > 0.0);
        let args = [
            "watch",
            "-n",
            "2",
            "-d",
            "0.2",
            "--where",
            filter,
            "-o",
            "pid",
            "--sort",
            "-unix_sent_bytes",
        ];
        let sorted = run(&[&args[..], &["--csv"]].concat());
        assert_eq!((sorted.code, sorted.stderr.as_str()), (Some(0), ""));
        let left_out = run(&["ps", "--where", "net_sent_bytes >= 0", "-o", "pid"]);
        assert_eq!(left_out.code, Some(1), "{left_out:?}");
        assert!(left_out.stderr.contains("left out"), "{left_out:?}");
        let Run { code, stderr, .. } = run(&["ps", "--where", filter, "-o", "pid,net_sent_bytes"]);
        assert_eq!(code, Some(1));
        assert!(
            stderr.contains("net_sent_bytes: not counted") && stderr.contains("taskdiag pin --net"),
            "{stderr}"
        );
    });
}

/// Check that sums add up what processes moved to other machines. A socket that is bound to no
/// address counts as if it led there. Another process sends, as other tests here say that this one
/// sends nothing.
#[test]
fn traffic_is_added_up() {
    let code = "import socket as s, time; u = s.socket(s.AF_INET, s.SOCK_DGRAM); u.bind(('0.0.0.0', 0))\n\
        to = ('127.0.0.1', u.getsockname()[1]); print(flush=True)\n\
        while True: u.sendto(b'x' * 1000, to); u.recv(1000); time.sleep(0.001)";
    let mut sender = Command::new("/usr/bin/python3")
        .args(["-c", code])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("python3");
    let begun = sender.stdout.as_mut().map(|out| out.read(&mut [0]));
    let filter = format!("pid == {}", sender.id());
    let sums = run(&["net", "--where", &filter, "--by", "user,program", "--jsonl"]);
    let refused = run(&["net", "--by", "user", "-o", "pid"]);
    sender.kill().expect("it is there");
    sender.wait().expect("it ends");
    assert!(matches!(begun, Some(Ok(1))), "{begun:?}");
    let lines = json_lines(&sums);
    let [sample, sum] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(
        (&sample["rows"], &sum["processes_count"], &sum["euid"]),
        (&1.into(), &1.into(), &0.into())
    );
    for field in ["net_sent_bytes", "net_received_bytes"] {
        let bytes = sum[field].as_u64().expect("a number");
        assert!(bytes > 0 && bytes % 1000 == 0, "{sum}");
    }
    assert!(sum["net_sent_bytes_per_s"].as_u64() > Some(0), "{sum}");
    assert!(
        refused.code == Some(2) && refused.stderr.contains("the same sums"),
        "{refused:?}"
    );
}

/// Check that nothing is counted for a source that would not have it.
#[test]
fn some_sources_have_no_traffic() {
    let refused = run(&["net", "--source", "procfs"]);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("procfs has no network traffic"),
        "{}",
        refused.stderr
    );
}

/// Check that two capabilities suffice, and that who may not count is told so.
#[test]
fn counting_needs_rights() {
    if let Some(counted) = run_with_two_capabilities(&["net", "-d", "0.01", "-n", "1", "--json"]) {
        assert_eq!(
            (counted.code, counted.json()["sources"]["net"].as_str()),
            (Some(0), Some("bpf"))
        );
    }
    let Some(refused) = run_as_nobody(&["net"]) else { return };
    assert_eq!((refused.code, refused.stdout.len()), (Some(2), 0));
    assert!(refused.stderr.contains("CAP_BPF"), "{}", refused.stderr);
}

/// The lines of `--jsonl`.
fn json_lines(run: &Run) -> Vec<serde_json::Value> {
    let text = std::str::from_utf8(&run.stdout).expect("it is UTF-8");
    text.lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

/// Check that a recording says who used the network in a period: the bytes and rates of a process
/// that was there, and those of one that lived between two samples; and that it leaves them out if
/// asked to.
#[test]
fn recordings_have_the_network() {
    let (with, without) = (Recording::new("net"), Recording::new("no net"));
    // It counts before its first sample.
    let recorder = Recorder::start(&with, &["--every", "0.5"]);
    let other = Recorder::start(&without, &["--every", "0.5", "--no-network"]);
    let (dir, without) = (with.path(), without.path());
    let short =
        "import socket as s; a, b = s.socketpair(); a.send(b'x' * 4321); b.recv(9999); a, b = s.socket(), s.socket()";
    let long = "import socket as s, select, sys; a, b = s.socketpair()\n\
        while not select.select([sys.stdin], [], [], 0.1)[0]: a.send(b'x' * 1000); b.recv(9999)";
    let python = |code: &str| {
        Command::new("/usr/bin/python3")
            .args(["-c", code])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("python3")
    };
    // It is in samples, and moves something between the last of them and its end.
    let late = "import socket as s, sys; a, b = s.socketpair(); sys.stdin.read(); a.send(b'x' * 5000); b.recv(9999)";
    let (mut short, mut long, mut late) = (python(short), python(long), python(late));
    let pids = [&short, &long, &late].map(|child| u64::from(child.id()));
    recorder.wait_for_samples(3);
    for child in [&mut short, &mut long, &mut late] {
        assert!(child.wait().expect("it ends").success());
    }
    recorder.end();
    other.end();

    let fields = "pid,unix_sent_bytes,unix_sent_bytes_per_s";
    let net = run(&["net", "--history", dir, "-o", fields, "--json"]).json();
    let rows = net["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["pid"] == pids[1]).expect("it was there");
    let sent = row["unix_sent_bytes"].as_u64().expect("a number");
    assert!(
        sent > 0 && sent % 1000 == 0 && row["unix_sent_bytes_per_s"].as_f64() > Some(0.0),
        "{row}"
    );
    let totals = run(&["net", "--history", dir, "-o", "pid,unix_sent_bytes", "--json"]).json();
    let rows = totals["rows"].as_array().expect("rows");
    let of_late = rows.iter().find(|row| row["pid"] == pids[2]).expect("it was there");
    assert_eq!(of_late["unix_sent_bytes"], 5000);
    let filter = format!("pid == {}", pids[1]);
    let ps = [
        "ps",
        "--history",
        dir,
        "--from",
        "-1h",
        "--where",
        &filter,
        "-o",
        fields,
        "--jsonl",
    ];
    let lines = json_lines(&run(&ps));
    assert_eq!(
        lines[1]["unix_sent_bytes_per_s"], row["unix_sent_bytes_per_s"],
        "{lines:?}"
    );

    let exits = [
        "events",
        "--history",
        dir,
        "--kind",
        "exit",
        "-o",
        "pid,unix_sent_bytes,unix_received_bytes",
        "--jsonl",
    ];
    let lines = json_lines(&run(&exits));
    let exit = lines.iter().find(|line| line["pid"] == pids[0]).expect("it ended");
    assert_eq!(
        (exit["unix_sent_bytes"].as_u64(), exit["unix_received_bytes"].as_u64()),
        (Some(4321), Some(4321))
    );

    let none = run(&["ps", "--history", without, "-o", "pid,unix_sent_bytes", "--json"]).json();
    assert!(
        none["rows"][0]
            .get("unix_sent_bytes")
            .is_none_or(serde_json::Value::is_null),
        "{none}"
    );
    let none = run(&["net", "--history", without]);
    assert_eq!(none.code, Some(2));
    assert!(none.stderr.contains("has no network traffic"), "{}", none.stderr);
    let refused = run(&["ps", "-o", "write_bytes_per_s"]);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("--history DIR with --from"),
        "{}",
        refused.stderr
    );
}

/// Check sums by the other end: of all, with a filter, and with keys of processes; and what sockets
/// say of living connections.
#[test]
fn traffic_is_added_up_by_the_other_end() {
    let network = "ip link add d0 type veth peer name d1 && ip addr add 10.9.8.1/24 dev d0 && ip link set d0 up && \
        ip link set d1 up && ip neigh add 10.9.8.7 lladdr 02:00:00:00:00:01 dev d0 && exec /usr/bin/python3 -c";
    let code = "import socket as s, time, sys; u = s.socket(s.AF_INET, s.SOCK_DGRAM); u.connect(('10.9.8.7', 999))\n\
        print(flush=True)\nwhile True: u.send(b'x' * 1000); time.sleep(0.01)";
    let mut sender = Command::new("unshare")
        .args(["--net", "sh", "-c", &format!("{network} \"$0\""), code])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("unshare");
    let begun = sender.stdout.as_mut().map(|out| out.read(&mut [0]));
    let pid = format!("pid == {}", sender.id());
    let answers = std::panic::catch_unwind(|| {
        let sums = |by: &str, filter: &str| {
            run(&["net", "-d", "0.3", "-n", "1", "--by", by, "--where", filter, "--json"]).json()
        };
        let rows = ["remote_addr", "remote_port,program", "protocol"].map(|by| sums(by, &pid)["rows"].clone());
        let all = run(&["net", "--by", "remote_addr", "--json"]).json();
        let sockets = run(&["sockets", "--by", "remote_addr", "--info", "--udp", "--json"]).json();
        let (none, past) = (
            sums("remote_addr", "pid == 1"),
            run(&["net", "--by", "protocol", "--history", "/tmp"]),
        );
        let top = [
            "top",
            "-b",
            "-n",
            "1",
            "-d",
            "0.3",
            "--by",
            "user",
            "--where",
            &pid,
            "--sort",
            "-net_bytes_per_s",
        ];
        // Times there are others than those of the kernel.
        let net = ["--by", "program,remote_addr", "--where", &pid, "--no-header"];
        let elsewhere = Command::new("unshare")
            .args([
                "--time",
                "--boottime",
                "100000",
                "--fork",
                env!("CARGO_BIN_EXE_taskdiag"),
                "net",
            ])
            .args(net)
            .output()
            .expect("unshare");
        let elsewhere = String::from_utf8_lossy(&elsewhere.stdout).into_owned();
        assert!(
            elsewhere.contains("10.9.8.7") && elsewhere.contains("python"),
            "{elsewhere}"
        );
        (rows, all, sockets, none, past, run(&top).complete())
    });
    sender.kill().expect("it is there");
    sender.wait().expect("it ends");
    assert!(matches!(begun, Some(Ok(1))), "{begun:?}");
    let ([by_addr, by_port, by_protocol], all, sockets, none, past, top) = answers.expect("answers");
    for (rows, key, value) in [
        (&by_addr, "remote_addr", serde_json::json!("10.9.8.7")),
        (&by_port, "remote_port", 999.into()),
        (&by_protocol, "protocol", "udp".into()),
    ] {
        let [row] = rows.as_array().expect("rows").as_slice() else {
            panic!("{rows}")
        };
        let sent = row["net_sent_bytes"].as_u64().expect("a number");
        assert_eq!((&row[key], row["processes_count"].as_u64()), (&value, Some(1)), "{row}");
        assert!(sent > 0 && sent % 1000 == 0 && row["net_received_bytes"] == 0, "{row}");
        assert!(row["net_sent_bytes_per_s"].as_u64() > Some(0), "{row}");
    }
    assert!(by_port[0]["program"]
        .as_str()
        .is_some_and(|name| name.starts_with("python")));
    let with_end = |rows: &serde_json::Value| {
        let rows = rows.as_array().expect("rows");
        rows.iter()
            .find(|row| row["remote_addr"] == "10.9.8.7")
            .cloned()
            .expect("it is there")
    };
    assert_eq!(with_end(&all["rows"])["absent"]["processes_count"], "not asked");
    assert_eq!(with_end(&sockets["rows"])["sockets_count"], 1);
    assert_eq!(none["rows"].as_array().map(Vec::len), Some(0));
    let sums: Vec<&str> = top.lines().skip_while(|line| !line.contains("NET/s")).collect();
    assert!(
        sums.len() == 2 && sums[1].contains('K') && sums[1].ends_with("root"),
        "{top}"
    );
    assert_eq!(past.code, Some(2));
    assert!(past.stderr.contains("are about now"), "{}", past.stderr);
}
