//! `taskdiag ps`, run as a program.

mod common;

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use common::{check_closed_pipe, check_full_disk, free_pid, run, run_as_nobody, status, Run, Sleeper};
use serde_json::json;

/// Check that a misspelt field is wrong usage, and that the message suggests the right names.
#[test]
fn unknown_fields_name_near_ones() {
    for args in [["ps", "-o", "pid,rss_byte"], ["ps", "--sort", "-rss_byte"]] {
        let run = run(&args);
        assert_eq!((run.code, run.stdout.len()), (Some(2), 0));
        assert!(
            run.stderr.contains("unknown field \"rss_byte\"") && run.stderr.contains("rss_bytes"),
            "{}",
            run.stderr
        );
    }
    for args in [
        &["ps", "--colour"][..],
        &["ps", "-p", "x"],
        &["prs"],
        &[],
        &["ps", "-u", "no such user"],
        &["ps", "-o", ""],
        &["ps", "--count", "2"],
    ] {
        let run = run(args);
        assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{args:?}");
        assert!(!run.stderr.is_empty());
    }
}

/// Check that a missing process among several is reported and the others are printed.
#[test]
fn a_missing_process_does_not_hide_the_others() {
    let (here, missing) = (std::process::id().to_string(), free_pid());
    let run = run(&["ps", "-o", "pid", "-p", &format!("{missing},{here}"), "-p", &here]);
    assert_eq!(run.code, Some(1));
    assert_eq!(run.stderr, format!("taskdiag: pid {missing}: no such process\n"));
    let lines: Vec<String> = run.text().lines().map(|line| line.trim().to_owned()).collect();
    assert_eq!(lines, ["PID", &here]);
}

/// Check that long command lines, which all children of a process have without a page of their own,
/// are all there, and are not all in memory at once.
#[test]
fn long_command_lines_need_little_memory() {
    const CHILDREN: usize = 60;
    let script = format!("exec 3<&0; for i in $(seq {CHILDREN}); do (read line <&3) & done; echo; wait");
    let long = vec!["x".repeat(120_000); 15];
    let mut parent = Command::new("sh")
        .args(["-c", &script, "sh"])
        .args(&long)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh");
    let started = parent.stdout.as_mut().expect("a pipe").read_exact(&mut [0]);
    started.expect("all are there");
    for (field, format) in [("cmdline", "--jsonl"), ("cmdline", "--csv"), ("args", "-ww")] {
        let filter = format!("ppid == {}", parent.id());
        let mut command = common::command(&["ps", "-o", field, format, "--where", &filter]);
        let mut listing = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let rows = BufReader::new(listing.stdout.take().expect("a pipe")).split(b'\n');
        let (mut count, mut peak) = (0, String::new());
        for row in rows {
            count += usize::from(row.expect("a row").len() > 15 * 120_000);
            // It waits for somebody to read the others.
            if count == CHILDREN - 2 {
                peak = status(&listing.id().to_string(), "VmHWM");
            }
        }
        assert_eq!(
            (listing.wait().expect("it ends").code(), count),
            (Some(0), CHILDREN),
            "{format}"
        );
        let peak: u64 = peak.trim_end_matches(" kB").trim().parse().expect("a number");
        assert!(peak < 90_000, "{format}: {peak} kB");
    }
    drop(parent.stdin.take());
    parent.wait().expect("it ends");
}

/// Check that many processes can be named, which is implemented differently.
#[test]
fn many_processes_can_be_named() {
    let (here, missing) = (std::process::id(), free_pid());
    let pids: Vec<String> = (1..=200)
        .map(|offset| (offset + 4_000_000_000_u32).to_string())
        .collect();
    let list = format!("{},{here},{missing}", pids.join(","));
    let run = run(&["ps", "-o", "pid", "--no-header", "-p", &list]);
    assert_eq!(run.code, Some(1));
    assert_eq!(run.stderr.lines().count(), 201);
    assert_eq!(run.text().trim(), here.to_string());
}

/// Check that a closed pipe causes no message.
#[test]
fn a_closed_pipe_is_silent() {
    check_closed_pipe(&["ps", "-T", "--jsonl"]);
}

/// Check that a full disk is a reported failure.
#[test]
fn a_full_disk_is_reported() {
    for args in [&["ps"][..], &["ps", "--json"], &["tree"], &["fields"], &["doctor"]] {
        check_full_disk(args);
    }
}

/// Check that every source agrees with /proc about a process, in a complete document.
#[test]
fn json_agrees_with_proc() {
    let sleeper = Sleeper::new("a \"name\"\n");
    let pid = sleeper.pid();
    for source in ["auto", "procfs"] {
        let run = run(&[
            "ps",
            "--json",
            "--source",
            source,
            "-p",
            &pid,
            "-o",
            "pid,ppid,comm,cmdline,uid,cap_effective,kernel_thread,affinity",
        ]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
        let document = run.json();
        assert_eq!((&document["schema"], &document["command"]), (&json!(1), &json!("ps")));
        assert!(document["sources"]["base"].is_string() && document["sources"]["mem"].is_null());
        assert!(document["counters"]["tasks"].is_u64());
        let mask = u64::from_str_radix(&status(&pid, "CapEff"), 16).expect("a mask");
        let uid: u32 = status(&pid, "Uid")
            .split_whitespace()
            .next()
            .expect("four ids")
            .parse()
            .expect("a number");
        let expected = json!([{
            "pid": pid.parse::<u32>().expect("a number"), "ppid": std::process::id(), "comm": "sleep",
            "cmdline": ["a \"name\"\n", "1000"], "uid": uid, "cap_effective": format!("{mask:#x}"),
            "kernel_thread": false, "affinity": status(&pid, "Cpus_allowed_list"),
        }]);
        assert_eq!(document["rows"], expected);
    }
}

/// Check that JSON lines have only the rows, with the default fields, and that missing values have
/// a reason.
#[test]
fn json_lines_have_reasons_for_what_is_missing() {
    let text = run(&["ps", "--jsonl"]).complete();
    let rows: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row"))
        .collect();
    assert!(rows.len() > 1);
    for row in &rows {
        assert!(
            row["pid"].is_u64() && row["comm"].is_string() | row["comm"].is_object(),
            "{row}"
        );
        assert!(
            row["rss_bytes"].is_u64() != row["absent"]["rss_bytes"].is_string(),
            "{row}"
        );
    }
}

/// Check that text that is not UTF-8 survives in JSON, and is harmless in a table.
#[test]
fn strange_names_are_lossless_in_json_and_harmless_in_tables() {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::OsStr::from_bytes(b"\xff\x1b[31m,\"x\"\r\n");
    let sleeper = Sleeper::start(Command::new("sleep").arg0(name));
    let pid = sleeper.pid();
    let rows = run(&["ps", "--json", "-p", &pid, "-o", "cmdline"]).json();
    assert_eq!(
        rows["rows"][0]["cmdline"],
        json!([{"base64": "/xtbMzFtLCJ4Ig0K"}, "1000"])
    );
    // This table has reversible escapes. That of ps has a question mark for a byte that is not UTF-8,
    // and takes what follows as ASCII, with a dot for each control character.
    let table = run(&["ps", "--where", &format!("pid == {pid}")]).complete();
    assert!(table.ends_with("\\xff\\x1b[31m,\"x\"\\r\\n 1000\n"), "{table}");
    assert_eq!(table.lines().count(), 2);
    let table = run(&["ps", "-f", "-p", &pid]).complete();
    assert!(table.ends_with("?.[31m,\"x\".  1000\n"), "{table}");
    assert_eq!(table.lines().count(), 2);
    let csv = run(&["ps", "--csv", "-p", &pid, "-o", "comm,cmdline"]);
    assert_eq!(csv.stdout, b"comm,cmdline\nsleep,\"\xff\x1b[31m,\"\"x\"\"\r\n 1000\"\n");
}

/// Check the order and number of rows, and that fields used only for sorting are not shown.
#[test]
fn rows_are_sorted_then_limited() {
    let sizes = |args: &[&str]| -> Vec<u64> {
        let args = [&["ps", "--csv", "--no-header", "-o", "rss_bytes", "--sort"], args].concat();
        run(&args)
            .complete()
            .lines()
            .map(|line| line.parse().unwrap_or(0))
            .collect()
    };
    let largest = sizes(&["-rss_bytes,pid", "--limit", "3"]);
    assert_eq!(largest.len(), 3);
    assert!(largest.is_sorted_by(|a, b| a >= b) && largest[2] > 0, "{largest:?}");
    let smallest = sizes(&["rss_bytes", "--limit", "3"]);
    assert!(smallest.is_sorted() && smallest[0] > 0, "{smallest:?}");
    let by_hidden = run(&["ps", "--csv", "-o", "comm", "--sort=-start_ns", "--limit", "1"]).complete();
    assert_eq!(by_hidden.lines().next(), Some("comm"));
}

/// Check that users are selected by effective id, by name or number.
#[test]
fn users_are_filtered_by() {
    let by_name = run(&["ps", "-u", "root", "-o", "euid", "--csv", "--no-header"]).complete();
    assert!(!by_name.is_empty() && by_name.lines().all(|euid| euid == "0"));
    let nobody_has_it = run(&["ps", "-u", "4000000000", "-o", "pid", "--csv", "--no-header"]);
    assert_eq!((nobody_has_it.code, nobody_has_it.text().as_str()), (Some(1), ""));
}

/// Check that threads have their own rows, and that children agree with the kernel.
#[test]
fn threads_and_children_have_rows() {
    let here = std::process::id().to_string();
    let (send, receive) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || receive.recv());
    let tids = run(&["ps", "-T", "-p", &here, "-o", "tid", "--csv", "--no-header"]).complete();
    assert!(tids.lines().count() >= 2, "{tids}");
    drop(send);
    let _ = thread.join();

    let sleeper = Sleeper::new("child");
    let children = run(&["ps", "--children", &here, "-o", "pid", "--csv", "--no-header"]).complete();
    assert!(children.lines().any(|pid| pid == sleeper.pid()), "{children}");
    let none = run(&["ps", "--children", &sleeper.pid(), "-o", "pid", "--csv", "--no-header"]).complete();
    assert_eq!(none, "");
    let missing = run(&["ps", "--children", &free_pid(), "-o", "pid"]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("no such process"));
}

/// Check that sizes are for people unless exact numbers are requested.
#[test]
fn tables_have_sizes_for_people_or_exact_ones() {
    let here = std::process::id().to_string();
    let shown = run(&["ps", "-p", &here, "-o", "rss_bytes", "--no-header"]).complete();
    assert!(shown.trim().ends_with(['K', 'M', 'G']), "{shown}");
    let exact = run(&["ps", "-p", &here, "-o", "rss_bytes", "--no-header", "--bytes"]).complete();
    assert!(exact.trim().parse::<u64>().is_ok(), "{exact}");
    let table = run(&["ps", "--where", &format!("pid == {here}"), "--no-header", "--bytes"]).complete();
    let start = table.split_whitespace().nth(7).expect("a start");
    assert!(start.contains(':') || start.starts_with(char::is_alphabetic), "{table}");
}

/// Check that the statistics name the source, on standard error.
#[test]
fn statistics_say_who_answered() {
    let here = std::process::id().to_string();
    let run = run(&[
        "ps",
        "--source",
        "procfs",
        "--stats",
        "-p",
        &here,
        "-o",
        "pid,comm,cmdline",
    ]);
    assert_eq!(run.code, Some(0));
    let line = run.stderr.strip_prefix("taskdiag: 1 task in ").expect(&run.stderr);
    assert!(line.ends_with(" ms (base, args: procfs)\n"), "{line}");
}

/// Check that a forced source that can't answer fails with the reason.
#[test]
fn bpf_is_refused_to_nobody() {
    let Some(run) = run_as_nobody(&["ps", "--source", "bpf"]) else {
        return;
    };
    assert_eq!((run.code, run.stdout.len()), (Some(2), 0));
    assert!(
        run.stderr.starts_with("taskdiag: ") && run.stderr.contains("CAP_"),
        "{}",
        run.stderr
    );
}

/// Check that the user nobody gets all values that it may see, and a message about the rest.
#[test]
fn nobody_is_told_what_was_denied() {
    let Some(run) = run_as_nobody(&["ps"]) else { return };
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    let Some(run) = run_as_nobody(&["ps", "-o", "pid,ns_net", "--json"]) else {
        return;
    };
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr.starts_with("taskdiag: ns_net: denied for ") && run.stderr.contains(" tasks (root may: try sudo"),
        "{}",
        run.stderr
    );
    let document = run.json();
    let rows = document["rows"].as_array().expect("rows");
    assert!(
        rows.iter().any(|row| row["absent"]["ns_net"] == "denied") && rows.iter().any(|row| row["ns_net"].is_u64())
    );
}

/// Check that root gets what only `/proc` denies.
#[test]
fn what_bpf_shows_is_not_denied() {
    let values = run(&["ps", "-p", "1", "-o", "pid,exe,cwd,read_bytes", "--csv", "--no-header"]).complete();
    assert!(values.starts_with("1,/") && !values.contains(",,"), "{values}");
    for ask in [
        &["ps", "-p", "1", "--where", "exe ~ 'no-such-program'"][..],
        &["sockets", "-p", "1"],
    ] {
        run(ask).complete();
    }
    let uses = run(&["files", "-p", "1", "-o", "use", "--csv"]).complete();
    assert!(uses.lines().any(|line| line == "exe"), "{uses}");
}

/// Check that root with all capabilities gets status 0 even if a value is denied: some kernels show
/// process 1 to nobody. Root without capabilities gets status 1.
#[test]
fn what_nobody_may_see_is_no_failure() {
    let ask = ["ps", "-p", "1", "-o", "pid,exe", "--source", "procfs"];
    let is_hidden = std::fs::read_link("/proc/1/exe").is_err();
    for ask in [
        &ask[..],
        &["files", "1"],
        &["maps", "1"],
        &["maps", "-p", "1"],
        &["ps", "-p", "1", "--where", "exe ~ 'no-such-program'"],
        &["files", "-p", "1", "--where", "exe ~ 'no-such-program'"],
        &["files", "1", "--deleted"],
        &["files", "1", "--path", "/proc/sys"],
    ] {
        // By itself each of them takes BPF, to which the kernel shows more.
        let by_procfs = [ask, &["--source", "procfs"]].concat();
        let all = run(if ask[0] == "maps" || ask.contains(&"--source") {
            ask
        } else {
            &by_procfs
        });
        assert_eq!(
            (all.code, all.stderr.contains("even to root")),
            (Some(0), is_hidden),
            "{all:?}"
        );
        assert!(!all.stderr.contains("sudo"), "{all:?}");
    }
    let mut few = Command::new("setpriv");
    few.args(["--bounding-set", "-sys_ptrace", "--inh-caps", "-all"]);
    let few = Run::new(
        few.arg(env!("CARGO_BIN_EXE_taskdiag"))
            .args(ask)
            .output()
            .expect("util-linux has it"),
    );
    assert_eq!(few.code, Some(1), "{few:?}");
    assert!(few.stderr.contains("lacks capabilities"), "{few:?}");
}

/// Check that the message for root of a user namespace says who may see the denied values.
#[test]
fn root_of_a_user_namespace_is_told_who_may() {
    let sleeper = Sleeper::new("outside");
    let pid = sleeper.pid();
    for ask in [
        &["ps", "-p", &pid, "-o", "pid,exe"][..],
        &["files", &pid],
        &["maps", &pid],
    ] {
        let mut inside = Command::new("unshare");
        inside
            .args(["--user", "--map-root-user", env!("CARGO_BIN_EXE_taskdiag")])
            .args(ask);
        let run = Run::new(inside.output().expect("util-linux has it"));
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(
            run.stderr.contains("(root outside of this user namespace may)"),
            "{run:?}"
        );
    }
}

/// Check that memory limits are sorted by size, unlimited last, and scheduling classes by the
/// kernel's numbers, as in ps(1).
#[test]
fn limits_and_classes_are_sorted_by_their_numbers() {
    let sleeping = |command: &[&str]| Sleeper::start(Command::new(command[0]).args(&command[1..]).arg("sleep"));
    let few = sleeping(&["prlimit", "--rss=2000000"]);
    let many = sleeping(&["prlimit", "--rss=10000000"]);
    let (batch, idle) = (sleeping(&["chrt", "-b", "0"]), sleeping(&["chrt", "-i", "0"]));
    let pids = [&few, &many, &batch, &idle].map(Sleeper::pid);
    // Until each process has reached its final state.
    let is_sleep = |pid: &String| status(pid, "Name") == "sleep";
    while !pids.iter().all(is_sleep) {
        std::thread::yield_now();
    }
    let sorted = |key: &str, of: &[&String]| {
        let of: Vec<&str> = of.iter().map(|pid| pid.as_str()).collect();
        let text = run(&["ps", "-o", "pid=", "--sort", key, "-p", &of.join(",")]).complete();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let [few, many, batch, idle] = &pids;
    assert_eq!(
        sorted("lim", &[batch, many, few]),
        [few, many, batch].map(String::clone)
    );
    assert_eq!(
        sorted("-lim", &[few, batch, many]),
        [batch, many, few].map(String::clone)
    );
    for key in ["class", "policy", "cls"] {
        assert_eq!(
            sorted(key, &[idle, batch, few]),
            [few, batch, idle].map(String::clone),
            "{key}"
        );
    }
}
