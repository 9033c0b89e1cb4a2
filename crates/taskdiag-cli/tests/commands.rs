//! `tree`, `fields`, `doctor`, `pin`, help and version, run as programs.

mod common;

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use common::{check_closed_pipe, command, free_pid, run, run_as_nobody, run_on_terminal, Run, Sleeper};
use rustix::process::{setrlimit, Resource, Rlimit};
use serde_json::{json, Value};
use taskdiag_testkit::cgroup::MemoryGroup;
use taskdiag_testkit::temporary::{Directory, Killed};

/// Check that a process is below its parent, in the table and in JSON.
#[test]
fn children_are_below_their_parents() {
    let here = std::process::id().to_string();
    let sleeper = Sleeper::new("leaf");
    let text = run(&["tree", &here]).complete();
    let root = text.lines().nth(1).expect("a row");
    assert!(root.trim_start().starts_with(&here), "{text}");
    let leaf = text.lines().find(|line| line.trim_start().starts_with(&sleeper.pid()));
    assert!(leaf.is_some_and(|line| line.contains("─leaf 1000")), "{text}");
    let ascii = run(&["tree", "--ascii", "-o", "uid", &here]).complete();
    assert!(ascii.is_ascii() && ascii.contains("-leaf 1000"), "{ascii}");

    let document = run(&["tree", "--json", &here]).json();
    let rows = document["rows"].as_array().expect("rows");
    assert_eq!((&document["command"], &rows[0]["depth"]), (&json!("tree"), &json!(0)));
    let leaf = rows
        .iter()
        .find(|row| row["pid"] == sleeper.pid().parse::<u32>().expect("a number"))
        .expect("the leaf");
    assert_eq!((&leaf["depth"], leaf["ppid"].to_string()), (&json!(1), here));
}

/// Check that the tree contains every process once, and that a missing process is reported.
#[test]
fn the_tree_has_every_process() {
    let text = run(&["tree", "--csv", "--no-header", "-o", "pid"]).complete();
    let mut pids: Vec<&str> = text
        .lines()
        .map(|line| line.split(',').next().unwrap_or(line))
        .collect();
    let count = pids.len();
    pids.sort_unstable();
    pids.dedup();
    assert!(pids.len() == count && count > 1);
    let missing = run(&["tree", &free_pid()]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("no such process"), "{}", missing.stderr);
}

/// Check that every command tells of a thread's id which process it is of, to all users, and that 0 is the
/// id of no process.
#[test]
fn ids_of_threads_and_0_are_told() {
    let (pid, tid) = (
        std::process::id(),
        rustix::thread::gettid().as_raw_nonzero().to_string(),
    );
    let commands = [
        &["ps", "-p"][..],
        &["ps", "--children"],
        &["ps", "--descendants"],
        &["mem", "-p"],
        &["watch", "-n", "1", "-p"],
        &["tree"],
        &["files"],
        &["sockets"],
        &["maps"],
        &["inspect"],
        &["cache", "--of-process"],
        &["cache", "--by", "user", "--of-process"],
        &["normalize"],
    ];
    for command in commands {
        let addresses = if command[0] == "normalize" {
            &["0x1000"][..]
        } else {
            &[]
        };
        let of = |id| [command, &[id], addresses].concat();
        let said = format!("pid {tid}: it is a thread of process {pid}");
        for run in [Some(run(&of(&tid))), run_as_nobody(&of(&tid))].into_iter().flatten() {
            let is_told = run.stderr.matches(&said).count() == 1 && !run.stderr.contains("you may not");
            assert!(is_told && run.code != Some(0), "{command:?} {run:?}");
        }
        let run = run(&of("0"));
        assert!(
            run.code == Some(2) && run.stderr.contains("\"0\" is not a"),
            "{command:?} {run:?}"
        );
    }
    let twice = format!("{pid},{pid}");
    let said = format!("pid {pid}: you may not see the files it holds");
    if let Some(run) = run_as_nobody(&["cache", "--of-process", &twice]) {
        assert_eq!(run.stderr.matches(&said).count(), 1, "{run:?}");
    }
}

/// Check that children are sorted by the given fields, and that rows are limited after sorting.
#[test]
fn trees_are_sorted() {
    let here = std::process::id().to_string();
    let _sleepers = [Sleeper::new("first"), Sleeper::new("second")];
    let children = |args: &[&str]| -> Vec<u64> {
        let document = run(&[&["tree", "--json", "-o", "pid,start_ns", &here], args].concat()).json();
        let rows = document["rows"].as_array().expect("rows").clone();
        let children = rows.iter().filter(|row| row["depth"] == 1);
        children.map(|row| row["start_ns"].as_u64().expect("a time")).collect()
    };
    let ascending = children(&["--sort", "start_ns"]);
    assert!(ascending.len() >= 2 && ascending.is_sorted(), "{ascending:?}");
    let descending = children(&["--sort", "-start_ns"]);
    assert!(descending.is_sorted_by(|a, b| a >= b), "{descending:?}");
    let limited = run(&["tree", "--limit", "2", "--no-header", &here]).complete();
    assert_eq!(limited.lines().count(), 2, "{limited}");
    assert_eq!(run(&["tree", "--sort", "colour"]).code, Some(2));
    let row = &run(&["tree", "--json", "-o", "+nice", &here]).json()["rows"][0];
    assert!(
        row["nice"].is_i64() && row["ppid"].is_u64() && row["depth"] == 0,
        "{row}"
    );
}

/// Check that a long chain of processes is drawn, with the depth as a number instead of too many
/// branches.
#[test]
fn deep_trees_are_drawn() {
    // Each shell starts the next one and waits. The last one reads until its standard input is
    // closed.
    let script = r#"[ "$1" -eq 0 ] && { echo ready; read x; exit; }; sh -c "$0" "$0" $(($1 - 1)); :"#;
    let mut child = Command::new("sh")
        .args(["-c", script, script, "150"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh exists");
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("it says so");
    let text = run(&["tree", &child.id().to_string()]).complete();
    drop(child.stdin.take());
    let _ = child.wait();
    assert_eq!(text.lines().count(), 152);
    assert!(
        text.lines().last().is_some_and(|line| line.contains("(150) └─")),
        "{text}"
    );
}

/// Check that all fields are listed in all formats, and that they can be chosen, sorted and
/// limited.
#[test]
fn all_fields_are_listed() {
    let text = run(&["fields"]).complete();
    assert!(text.lines().any(|line| line.starts_with("rss_bytes ")));
    let document = run(&["fields", "--json"]).json();
    let rows = document["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), text.lines().count() - 1);
    assert_eq!((&rows[0]["name"], &rows[0]["group"]), (&json!("pid"), &json!("base")));
    let lines = run(&["fields", "--jsonl"]).complete();
    assert_eq!(lines.lines().count(), rows.len());
    let csv = run(&["fields", "--csv", "-o", "name,since", "--sort", "-name", "--limit", "2"]).complete();
    let names: Vec<&str> = csv.lines().collect();
    assert_eq!((names[0], names.len()), ("name,since", 3), "{csv}");
    assert!(names[1] > names[2], "{csv}");
    let added = run(&["fields", "-o", "+since", "--limit", "1"]).complete();
    assert!(added.starts_with("name group kind"), "{added}");
    for (word, some) in [
        ("RSS", "rss_bytes "),
        ("resident", "rss_bytes "),
        ("args", "cmdline "),
        ("%MEM", "mem_percent "),
        ("psr", "cpu "),
        ("io", "read_bytes "),
        ("disk", "read_bytes "),
        ("namespaces", "ns_net "),
    ] {
        let found = run(&["fields", word]).complete();
        assert!(found.lines().any(|line| line.starts_with(some)), "{word}: {found}");
        assert!(found.lines().count() < 40, "{word}: {found}");
    }
    let unknown = run(&["fields", "rss_byte_"]);
    assert!(
        unknown.code == Some(2)
            && unknown
                .stderr
                .contains("unknown field \"rss_byte_\"; near it are: rss_bytes"),
        "{unknown:?}"
    );
    for (word, said) in [("RÉ", "unknown field \"RÉ\""), ("tmout", "tmout has no value on Linux")] {
        let unknown = run(&["fields", word]);
        assert!(unknown.code == Some(2) && unknown.stderr.contains(said), "{unknown:?}");
    }
    let unknown = run(&["fields", "-o", "nam"]);
    assert_eq!(unknown.code, Some(2));
    assert!(
        unknown
            .stderr
            .contains("unknown field \"nam\"; near it are: name; known are name,"),
        "{}",
        unknown.stderr
    );
}

/// Check that docs/fields.md is up to date with the table of fields.
#[test]
fn the_documentation_of_fields_is_fresh() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fields.md");
    let documented = std::fs::read_to_string(path).unwrap_or_default();
    let made = run(&["fields", "--markdown"]).complete();
    assert!(
        made.starts_with("<!-- Made by") && documented.ends_with(&made),
        "docs/fields.md is not up to date: make docs"
    );
}

/// Check that the doctor has a verdict on every fact and knows which source would answer, with and
/// without privileges.
#[test]
fn the_doctor_has_a_verdict_on_everything() {
    let text = run(&["doctor"]).complete();
    for part in ["kernel", "procfs", "bpf-load", "The sources for"] {
        assert!(text.contains(part), "{text}");
    }
    for run in [Some(run(&["doctor", "--json"])), run_as_nobody(&["doctor", "--json"])]
        .into_iter()
        .flatten()
    {
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
        let document = run.json();
        let rows = document["rows"].as_array().expect("rows");
        assert!(
            rows.iter()
                .all(|row| row["fact"].is_string() && row["verdict"].is_string() && row["why"].is_string()),
            "{document}"
        );
        assert!(
            document["sources"]["base"].is_string() && document["machine"].is_string(),
            "{document}"
        );
    }
}

/// Check that no remedy gives everybody the rights of the command without saying where.
#[test]
fn the_doctor_recommends_no_rights_for_all() {
    let Some(run) = run_as_nobody(&["doctor", "--json"]) else {
        return;
    };
    let document = run.json();
    let remedies = document["rows"].as_array().expect("rows").iter();
    let remedies = remedies.filter_map(|row| Some((row["fact"].as_str()?, row["remedy"].as_str()?)));
    let remedies: Vec<(&str, &str)> = remedies.collect();
    for (fact, remedy) in &remedies {
        let before = remedy.split("setcap").next().unwrap_or_default();
        assert!(
            !remedy.contains("setcap") || before.contains("on a machine of one user"),
            "{fact}: {remedy}"
        );
    }
    let is_broker = |(fact, remedy): &(&str, &str)| *fact == "bpf-load" && remedy.contains("broker");
    assert!(remedies.iter().any(is_broker), "{remedies:?}");
}

/// Check that the doctor tries the broker at the given socket.
#[test]
fn the_doctor_tries_the_broker() {
    let path = std::env::temp_dir().join(format!("taskdiag-test-{}.sock", std::process::id()));
    let socket = path.to_str().expect("the path is UTF-8");
    let fact = || {
        let document = run(&["doctor", "--json", "--socket", socket]).json();
        let rows = document["rows"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["fact"] == "broker").expect("a verdict");
        assert_eq!(row["verdict"], "no", "{row}");
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        (text("why"), text("remedy"))
    };
    let (why, remedy) = fact();
    assert!(why.starts_with(&format!("no broker answers at {socket}: ")), "{why}");
    assert_eq!(remedy, format!("start it as root: taskdiagd --socket {socket}"));
    // A socket of another kind does not belong to a broker.
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let (why, _) = fact();
    drop(listener);
    std::fs::remove_file(&path).expect("it is ours");
    assert!(why.contains(socket) && !why.contains("not tried"), "{why}");
}

/// Check that the doctor in a pid namespace counts the tasks of that namespace.
#[test]
fn the_doctor_counts_the_tasks_of_its_namespace() {
    let tasks = |run: Run| run.json()["counters"]["tasks"].as_u64().expect("a number");
    let mut command = Command::new("unshare");
    command.args([
        "--fork",
        "--pid",
        "--mount-proc",
        env!("CARGO_BIN_EXE_taskdiag"),
        "doctor",
        "--json",
    ]);
    assert_eq!(tasks(Run::new(command.output().expect("unshare exists"))), 1);
    let _sleeper = Sleeper::new("one more");
    assert!(tasks(run(&["doctor", "--json"])) > 2);
}

/// Check that --socket alone selects the broker, for every command that can use it.
#[test]
fn a_socket_means_the_broker() {
    let socket = std::env::temp_dir().join(format!("taskdiag-test-no-{}.sock", std::process::id()));
    let socket = socket.to_str().expect("the path is UTF-8");
    for args in [
        &["ps"][..],
        &["tree"],
        &["watch", "--count", "1"],
        &["mem"],
        &["mem", "--system"],
        &["maps", "1"],
        &["normalize", "1", "1"],
        &["doctor"],
    ] {
        let run = run(&[args, &["--socket", socket]].concat());
        assert_eq!(run.code, Some(2), "{args:?}");
        assert!(
            run.stderr.contains(&format!("no broker answers at {socket}: "))
                && run
                    .stderr
                    .contains(&format!("start it as root: taskdiagd --socket {socket}")),
            "{args:?}: {}",
            run.stderr
        );
    }
    run(&["ps", "-p", "1", "--socket", socket, "--source", "procfs"]).complete();
    // The sockets of most other programs.
    let _listener = UnixListener::bind(socket).expect("a socket");
    for args in [&["ps"][..], &["maps", "1"], &["sockets"]] {
        let run = run(&[args, &["--socket", socket]].concat());
        assert_eq!(run.code, Some(2), "{args:?}");
        assert!(
            run.stderr.contains(&format!("the server at {socket} is not a broker")),
            "{args:?}: {}",
            run.stderr
        );
    }
    std::fs::remove_file(socket).expect("it is ours");
}

/// Check that the version describes the build: the version first, then the commit and the features.
#[test]
fn the_version_says_what_was_built() {
    for option in ["-V", "--version"] {
        let text = run(&[option]).complete();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            (lines.len(), lines[0]),
            (3, concat!("taskdiag ", env!("CARGO_PKG_VERSION"))),
            "{text}"
        );
        let commit = lines[1].strip_prefix("commit: ").expect("a commit");
        let is_commit = commit.len() == 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_commit || commit == "unknown", "{text}");
        let features = lines[2]
            .strip_prefix("features: +bpf")
            .or(lines[2].strip_prefix("features: -bpf"));
        assert_eq!(features, Some(" +history +metrics +top"), "{text}");
    }
    let directory = std::env::temp_dir().join(format!("taskdiag-links-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    for (name, option) in [("ps", "-V"), ("pgrep", "-V"), ("pkill", "--version"), ("top", "-V")] {
        let link = directory.join(name);
        std::os::unix::fs::symlink(command(&[]).get_program(), &link).expect("a link");
        let output = std::process::Command::new(&link).arg(option).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.starts_with(&format!("{name} from taskdiag ")), "{name}: {text}");
    }
    std::fs::remove_dir_all(&directory).expect("it is ours");
}

/// Check that pinning reports why it can't be done, and what to do.
#[test]
fn nobody_can_pin() {
    let Some(run) = run_as_nobody(&["pin"]) else { return };
    assert_eq!((run.code, run.stdout.len()), (Some(2), 0));
    assert!(
        run.stderr.starts_with("taskdiag: ") && run.stderr.contains("taskdiag doctor"),
        "{}",
        run.stderr
    );
}

const COMMANDS: &str =
    "ps tree watch top cache events files inspect maps mem metrics net normalize sockets pgrep pkill \
                        record history report fields doctor pin unpin schema man completions";

/// Check that all commands have help, which can be requested in two ways.
#[test]
fn commands_have_help() {
    let all = run(&["help"]).complete();
    let listed = all.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    // The other lines continue a description.
    let listed = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let listed: Vec<&str> = listed.filter(|name| !name.is_empty()).collect();
    assert_eq!(listed.join(" "), format!("{COMMANDS} help"));
    for name in COMMANDS.split(' ') {
        let help = run(&["help", name]).complete();
        assert!(help.contains(&format!("Usage: taskdiag {name}")), "{help}");
        assert_eq!(run(&[name, "--help"]).complete(), help, "{name}");
    }
    let unknown = run(&["help", "prs"]);
    assert_eq!((unknown.code, unknown.stdout.len()), (Some(2), 0));
    assert!(unknown.stderr.contains("prs"), "{}", unknown.stderr);
    let none = run(&[]);
    assert_eq!(none.code, Some(2));
    assert!(none.stderr.contains("Usage: taskdiag"), "{}", none.stderr);
}

/// Check that options of several commands have the same names everywhere.
#[test]
fn commands_share_a_vocabulary() {
    let has = |name: &str, option: &str| {
        let help = run(&[name, "-h"]).complete();
        let mut words = help.split([' ', ',', '\n', '[']);
        words.any(|word| word == option)
    };
    for (option, names) in [
        (
            "--json",
            "ps tree cache events files inspect maps mem normalize sockets history fields doctor",
        ),
        (
            "--jsonl",
            "ps tree watch cache events files inspect maps mem normalize sockets fields doctor",
        ),
        (
            "--csv --no-header",
            "ps tree watch cache events files maps mem normalize sockets fields doctor",
        ),
        (
            "-o",
            "ps tree watch top cache events files maps mem normalize sockets record fields",
        ),
        ("--sort --limit", "ps tree watch cache files maps mem sockets fields"),
        (
            "--bytes",
            "ps tree watch top cache events files inspect maps mem normalize sockets",
        ),
        ("--count", "ps watch top events mem record"),
        ("--color", COMMANDS),
    ] {
        for option in option.split(' ') {
            for name in names.split(' ') {
                assert!(has(name, option), "{name} {option}");
            }
        }
    }
}

/// Check that all commands end silently if their output has no reader, in each format.
#[test]
fn closed_pipes_are_silent() {
    let here = std::process::id().to_string();
    for args in [
        &["tree"][..],
        &["tree", "--json"],
        &["watch", "-d", "0.01"],
        &["watch", "-d", "0.01", "--jsonl"],
        &["watch", "-d", "0.01", "--csv"],
        &["mem", "-p", &here],
        &["mem", "--watch", "0.01", "-p", &here, "--jsonl"],
        &["maps", &here],
        &["normalize", &here, "0xffffffffff600000", "--json"],
        &["cache", "/proc/self/exe"],
        &["cache", "--map", "/proc/self/exe", "--csv"],
        &["fields"],
        &["fields", "--markdown"],
        &["doctor"],
        &["doctor", "--json"],
        &["--version"],
        &["schema", "tasks"],
    ] {
        check_closed_pipe(args);
    }
}

/// Check that an answer for which there is no standard output is a failure, as for other tools, and
/// that nothing is missing where nothing is written.
#[test]
fn a_closed_output_is_a_failure() {
    let closed = |args: &[&str]| {
        let mut shell = std::process::Command::new("sh");
        let program = common::command(&[]).get_program().to_owned();
        shell.args(["-c", "exec \"$@\" >&-", "sh"]).arg(program).args(args);
        Run::new(shell.output().expect("a shell"))
    };
    for args in [
        &["ps"][..],
        &["ps", "--json"],
        &["files", "1"],
        &["fields"],
        &["--version"],
        &["ps", "--help"],
        &["report", "-o", "-"],
    ] {
        let run = closed(args);
        let said = "taskdiag: writing the output: Bad file descriptor\n";
        assert_eq!((run.code, run.stderr.as_str()), (Some(1), said), "{args:?}");
    }
    let found = closed(&["pgrep", "."]);
    assert_eq!(
        (found.code, found.stderr.contains("Bad file")),
        (Some(3), true),
        "{found:?}"
    );
    let quiet = closed(&["pgrep", "td-nobody-here"]);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(1), ""));
}

/// Check that wrong usage names the option, what it takes, and ends with status 2.
#[test]
fn wrong_usage_names_the_option() {
    for (args, part) in [
        (
            &["watch", "-d", "0"][..],
            "'--delay <SECONDS>': the shortest time is 0.01 seconds",
        ),
        (
            &["watch", "-d", "soon"],
            "give seconds, or a number with ms, s, m, h or d",
        ),
        (
            &["ps", "--watch", "1e300"],
            "'--watch <SECONDS>': \"1e300\" is not a time",
        ),
        (&["mem", "--watch=-1"], "'--watch <SECONDS>': \"-1\" is not a time"),
        (&["mem", "--scale", "X"], "possible values: B, K, M, G"),
        (&["mem", "--deadline", "soon"], ", or none"),
        (&["ps", "--patience", "0"], "the shortest time is 0.01 seconds"),
        (
            &["ps", "--source", "magic"],
            "possible values: auto, bpf, procfs, broker",
        ),
        (
            &["cache", "--source", "bpf", "."],
            "possible values: auto, cachestat, mincore",
        ),
        (
            &["maps", "--source", "x", "1"],
            "possible values: auto, procmap, bpf, procfs, broker",
        ),
        (
            &["events", "--source", "procfs"],
            "possible values: auto, bpf, connector",
        ),
        (&["tree", "--color", "blue"], "possible values: auto, always, never"),
        (&["maps", "--all", "1"], "--all"),
        (&["maps", "--children", "1", "1"], "--children"),
        (&["files", "--unit", "ssh", "1"], "--unit"),
        (&["sockets", "-u", "root", "1"], "--user"),
        (&["mem", "--system", "--where", "pid == 1"], "--where"),
        (&["maps", "-o", "sizes", "1"], "size_bytes"),
        (&["maps", "--sort", "sizes", "1"], "size_bytes"),
        (&["maps", "--all", "-o", "rss_bytes"], "--all has no rss_bytes"),
        (&["normalize", "1", "0", "-o", "offsets"], "file_offset"),
        (&["schema", "colours"], "known are tasks,"),
    ] {
        let run = run(args);
        assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{args:?}");
        assert!(run.stderr.contains(part), "{args:?}: {}", run.stderr);
    }
}

/// Check that help that can't be written is a failure, but a closed pipe is not.
#[test]
fn help_that_is_not_written_is_a_failure() {
    for args in [&["ps", "--help"][..], &["help", "pkill"], &["--help"]] {
        let full = std::fs::File::create("/dev/full").expect("/dev/full exists");
        let run = Run::new(common::command(args).stdout(full).output().expect("it runs"));
        assert_eq!(run.code, Some(1), "{args:?}");
        assert!(run.stderr.contains("output"), "{args:?}: {}", run.stderr);
    }
}

/// Check that a source that does not count something has no such counter, rather than 0.
#[test]
fn what_nobody_counts_is_no_counter() {
    let own = std::process::id().to_string();
    for (source, counts) in [("procfs", false), ("bpf", true)] {
        for (args, counters) in [
            (&["ps"][..], &["record_bytes", "reads"][..]),
            (&["ps", "-p", &own], &["record_bytes", "reads"]),
            (&["inspect", &own], &["record_bytes", "reads"]),
            (&["files", "-p", &own], &["longest_run_ns"]),
        ] {
            let args = [args, &["--source", source, "--json"]].concat();
            let counted = &run(&args).json()["counters"];
            for counter in counters {
                assert_eq!(
                    counted[counter].as_u64() > Some(0),
                    counts,
                    "{args:?}: {counter}: {counted}"
                );
                assert_eq!(counted[counter].is_null(), !counts, "{args:?}: {counter}: {counted}");
            }
            assert!(
                counted["gone"].is_u64() && counted["malformed"] == 0,
                "{args:?}: {counted}"
            );
        }
        let longest = &run(&["ps", "--source", source, "--json"]).json()["counters"]["longest_run_ns"];
        assert!(counts || longest.is_null(), "{longest}");
        assert_ne!(longest, 0, "{source}");
    }
}

/// Check a process that is older than the zero of its reader's time namespace: its start is
/// negative, and everything that is computed from it is as outside of the namespace.
#[test]
fn starts_can_be_before_the_zero_of_the_clock() {
    let mut sleeper = std::process::Command::new("sleep");
    let name = &format!("old-{}", std::process::id());
    std::os::unix::process::CommandExt::arg0(&mut sleeper, name);
    // A time of its start is from two clocks, for ps in whole seconds: near a full ten seconds it is
    // written in two ways.
    let wall_ms = || {
        let wall = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        wall.tv_sec * 1000 + wall.tv_nsec / 1_000_000
    };
    let sleeper = loop {
        let before = wall_ms();
        let sleeper = Sleeper::start(&mut sleeper);
        let after = wall_ms();
        if before % 10_000 > 1200 && after % 10_000 < 8800 && after - before < 9000 {
            break sleeper;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    };
    let pid = &sleeper.pid();
    // This one runs.
    let runs = ["-c", "while :; do :; done"];
    let runner = Sleeper::run(std::process::Command::new("sh").args(runs));
    std::thread::sleep(std::time::Duration::from_millis(100));
    let directory = common::Recording::new("commands-time");
    let directory = directory.path();
    // The zero is now: the kernel takes no clock that is negative.
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let offset_ns = -(now.tv_sec * 1_000_000_000 + now.tv_nsec);
    let offset = format!("boottime {} {}", -now.tv_sec - 1, 1_000_000_000 - now.tv_nsec);
    let inside = |args: &str| {
        let program = env!("CARGO_BIN_EXE_taskdiag");
        let mut shell = std::process::Command::new("sh");
        // Only the shell's child is in the namespace.
        shell.args(["-c", &format!("{program} {args}; exit $?")]);
        let offset = offset.clone();
        let unshare = move || {
            // SAFETY: a system call without pointers.
            if unsafe { libc::unshare(libc::CLONE_NEWTIME) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
            std::fs::write("/proc/self/timens_offsets", &offset)
        };
        // SAFETY: the child has this thread only, and no other thread holds a lock meanwhile but
        // that of the allocator, which fork(2) of glibc gives back.
        unsafe { std::os::unix::process::CommandExt::pre_exec(&mut shell, unshare) };
        Run::new(shell.output().expect("a shell"))
    };
    let fields = "pid,start_ns,elapsed_ns,start_time,cpu_percent";
    let row_of = |run: Run| {
        assert_eq!(run.code, Some(0), "{run:?}");
        run.json()["rows"][0].clone()
    };
    let number = |row: &serde_json::Value, key: &str| row[key].as_i64().unwrap_or_else(|| panic!("{key}: {row}"));
    for source in ["procfs", "bpf"] {
        let args = ["ps", "-p", pid, "--json", "-o", fields, "--source", source];
        let before = row_of(run(&args));
        let seen = row_of(inside(&args.join(" ")));
        let after = row_of(run(&args));
        let tick = 10_000_000;
        let start = number(&before, "start_ns") + offset_ns;
        assert!(start < 0, "{before}");
        assert!(
            (number(&seen, "start_ns") - start).abs() <= tick,
            "{source}: {seen} {before}"
        );
        let elapsed = number(&before, "elapsed_ns") - tick..=number(&after, "elapsed_ns") + tick;
        assert!(
            elapsed.contains(&number(&seen, "elapsed_ns")),
            "{source}: {seen} {before} {after}"
        );
        assert!(
            seen["cpu_percent"].as_f64() <= before["cpu_percent"].as_f64(),
            "{source}: {seen} {before}"
        );
        // The clocks are read one after the other.
        let [seen, expected] = [&seen, &before].map(|row| row["start_time"].as_str().expect("a time")[..18].to_owned());
        assert_eq!(seen, expected, "{source}");
    }
    // The text that ps shows, which has minutes, and the program's own columns.
    for args in [
        "ps -o stime=,etimes= -p",
        "ps --no-header -o start_time,elapsed_ns,user -p",
    ] {
        let words = |text: String| text.split_ascii_whitespace().next().expect("a time")[..5].to_owned();
        let outside: Vec<&str> = args.split(' ').chain([&pid[..]]).collect();
        assert_eq!(
            words(inside(&format!("{args} {pid}")).text()),
            words(run(&outside).text()),
            "{args}"
        );
    }
    // Filters, the order of processes, and rates between two samples.
    assert_eq!(
        inside(&format!("ps -o pid= --where 'start_ns < 0 and pid == {pid}'"))
            .text()
            .trim(),
        pid
    );
    assert_eq!(inside(&format!("pgrep -f --older 0 '^{name}'")).text().trim(), pid);
    let runner = runner.pid();
    let watched = inside(&format!("watch -n 2 -d 0.5 -p {runner} --jsonl -o pid,cpu_percent")).text();
    let last: serde_json::Value = serde_json::from_str(watched.lines().last().expect("a row")).expect("a row");
    assert!(last["cpu_percent"].as_f64() <= Some(1000.0), "{watched}");
    assert!(
        last["cpu_percent"].is_f64() || last["cpu_percent"].is_i64(),
        "{watched}"
    );
    // A recording, which is read outside of the namespace.
    let recorded = inside(&format!("record --dir {directory} --every 1s --count 1"));
    assert_eq!(recorded.code, Some(0), "{recorded:?}");
    let past = row_of(run(&["ps", "--history", directory, "-p", pid, "--json", "-o", fields]));
    std::fs::remove_dir_all(directory).expect("our own directory");
    assert!(
        number(&past, "start_ns") < 0 && number(&past, "elapsed_ns") > 0,
        "{past}"
    );
    assert!(past["cpu_percent"].as_f64() <= Some(1000.0), "{past}");
}

/// Check that a process whose first thread has ended has what its threads share, by each source, as
/// root, with two capabilities, and as the user whose process it is.
#[test]
fn first_threads_that_ended_hide_no_process() {
    let zoo = taskdiag_zoo::Zoo::new().expect("a zoo");
    let animal = zoo.start_as("dead-leader", Some(65534)).expect("it starts");
    let pid = animal.pid.to_string();
    let fields = "ppid,state,cmdline,exe,cwd,ns_net,rss_bytes,fd_count,fd_table_size,environ,start_code,pss_bytes";
    type Runs = fn(&[&str]) -> Option<Run>;
    let root: Runs = |args| Some(run(args));
    let ways = [
        ("bpf", root),
        ("procfs", root),
        ("procfs", run_as_nobody),
        ("bpf", common::run_with_two_capabilities),
    ];
    for (source, run) in ways {
        let ask = |args: &[&str]| run(&[args, &["--source", source]].concat());
        let Some(task) = ask(&["ps", "-p", &pid, "-o", fields, "--jsonl"]) else {
            continue;
        };
        let task = task.json();
        assert_eq!(
            (&task["state"], &task["absent"]),
            (&json!("Z"), &json!(null)),
            "{source} {task}"
        );
        assert!(
            task["fd_count"].as_u64() > Some(2) && task["rss_bytes"].as_u64() > Some(1 << 16),
            "{source} {task}"
        );
        let mem = ask(&["mem", "-p", &pid, "--jsonl"]).expect("as before");
        let mem = mem.complete();
        assert!(mem.contains("\"pss_bytes\":"), "{source} {mem}");
        // Others, whose memory may be held, are not read.
        let pgrep = ask(&[
            "pgrep",
            "-P",
            &task["ppid"].to_string(),
            "-f",
            "^zoo animal dead-leader",
        ])
        .expect("as before")
        .complete();
        assert!(pgrep.lines().any(|line| line == pid), "{source} {pgrep}");
    }
    let inspect = run(&["inspect", &pid, "--json"]).complete();
    assert!(
        inspect.contains("dead-leader") && !inspect.contains("no memory"),
        "{inspect}"
    );
}

/// A process of root whose first thread has ended. Of the others, only the last is of the user nobody.
fn first_thread_ended_and_last_is_of_nobody() -> Killed {
    let script = "import ctypes, os, sys, threading\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        gate = threading.Barrier(3)\n\
        def last():\n    \
            libc.syscall(116, 0, 0) and sys.exit(1)\n    \
            libc.syscall(119, 65534, 65534, 65534) and sys.exit(1)\n    \
            libc.syscall(117, 65534, 65534, 65534) and sys.exit(1)\n    \
            libc.prctl(4, 1)\n    \
            gate.wait()\n    \
            threading.Event().wait()\n\
        def other():\n    \
            gate.wait()\n    \
            threading.Event().wait()\n\
        for work in [other, last]: threading.Thread(target=work).start()\n\
        gate.wait()\n\
        libc.syscall(60, 0)\n";
    let child = Command::new("python3").args(["-c", script]).spawn().expect("python3");
    let child = Killed(child);
    let stat = format!("/proc/{}/stat", child.0.id());
    while !std::fs::read_to_string(&stat).is_ok_and(|text| text.contains(") Z ")) {
        std::thread::yield_now();
    }
    child
}

/// Check that a user who may see one thread of a process whose first thread has ended sees what its
/// threads share, even if another thread is not the user's.
#[test]
#[cfg(target_arch = "x86_64")]
fn any_thread_that_may_be_seen_answers() {
    let child = first_thread_ended_and_last_is_of_nobody();
    let pid = child.0.id().to_string();
    let fields = "exe,cwd,rss_bytes,fd_count,environ,ns_net,read_chars,pss_bytes";
    let Some(run) = run_as_nobody(&["ps", "-p", &pid, "-o", fields, "--jsonl"]) else {
        return;
    };
    let task = run.json();
    assert_eq!(task["absent"], json!({"read_chars": "denied"}), "{task}");
    for args in [
        &["files", &pid, "--source", "procfs"][..],
        &["maps", &pid],
        &["cache", "--of-process", &pid],
        &["mem", "-p", &pid],
    ] {
        let run = run_as_nobody(args).expect("as before");
        let rows = String::from_utf8_lossy(&run.stdout).lines().count();
        let is_denied = run.stderr.contains("you may not see") && args[0] != "files";
        assert!(rows > 1 && !is_denied, "{args:?} {}", run.stderr);
    }
}

/// Check that the cgroup of a process whose first thread has ended is that of `/proc`, where the first
/// thread was, and that its other threads have theirs after a move.
#[test]
fn first_threads_that_ended_keep_their_cgroup() {
    let group = MemoryGroup::new("first-thread");
    let zoo = taskdiag_zoo::Zoo::new().expect("a zoo");
    let animal = zoo.start("dead-leader").expect("it starts");
    let pid = animal.pid.to_string();
    std::fs::write(group.processes(), &pid).expect("moving it");
    let of_file = |tid: u64| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/cgroup")).expect("its cgroups");
        json!(text.trim_end())
    };
    for source in ["bpf", "procfs"] {
        let fields = ["-o", "tid,cgroups", "--jsonl", "--source", source];
        let process = run(&[&["ps", "-p", &pid][..], &fields].concat()).json();
        assert_eq!(process["cgroups"], of_file(animal.pid as u64), "{source}");
        let threads = run(&[&["ps", "-L", "-p", &pid][..], &fields].concat()).complete();
        let threads: Vec<Value> = threads
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let moved = threads.iter().filter(|thread| {
            assert_eq!(
                thread["cgroups"],
                of_file(thread["tid"].as_u64().expect("a number")),
                "{source}"
            );
            thread["cgroups"] != process["cgroups"]
        });
        assert_eq!(moved.count(), 3, "{source} {threads:?}");
    }
}

/// Check that no command passes control characters of names on to a terminal, nor do its errors.
#[test]
fn names_do_not_control_the_terminal() {
    let zoo = taskdiag_zoo::Zoo::new().expect("a zoo");
    let pid = zoo.start("comm-control").expect("it starts").pid.to_string();
    let odd = "/does/not/exist/\x1b[31m\u{9b}2J\x07";
    for args in [
        &["ps", "-p", &pid][..],
        &["ps", "-p", &pid, "-o", "pid,comm,args"],
        &["ps", "-p", &pid, "-o", "pid,comm,cmdline", "--csv"],
        &["ps", "-p", &pid, "-o", "pid,comm,cmdline", "--json"],
        &["ps", "-p", &pid, "-o", "pid=\x1b[31m"],
        &["pgrep", "-l", "."],
        &["pgrep", "-a", "."],
        &["tree", &pid],
        &["mem", "-p", &pid, "--csv"],
        &["files", &pid, "--csv"],
        &["watch", "-p", &pid, "--count", "1", "--watch", "0.01", "--csv"],
        &["inspect", &pid],
        &["cache", odd],
        &["files", "--path", odd],
        &["ps", "--where", odd],
        &["ps", "--history", odd],
        &["normalize", odd, "0x1"],
        &["report", "-o", odd],
        &["pkill", "--pidfile", odd],
        &["inspect", odd],
        &["metrics", "--config", odd],
        &[odd],
    ] {
        let run = common::run_on_terminal(common::command(args).env("NO_COLOR", "1"), 200, 50);
        let text = [run.stdout.as_slice(), run.stderr.as_bytes()].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(!text.is_empty(), "{args:?}");
        let controls = |character: char| character.is_control() && !['\n', '\r'].contains(&character);
        assert!(!text.contains(controls), "{args:?}: {text:?}");
    }
}

/// Check that `--csv=safe` lets no text of others be a formula, in any command, and that numbers stay.
#[test]
fn formulas_can_be_defused() {
    use std::os::unix::process::CommandExt as _;
    let sleeper = Sleeper::start(Command::new("sleep").arg0("=1+1"));
    let pid = sleeper.pid();
    let fields = ["-o", "pid,cmdline,tpgid"];
    for command in ["ps", "watch"] {
        let args = [&[command, "-p", &pid, "--csv=safe"][..], &fields].concat();
        let args = if command == "watch" {
            [&args[..], &["--count", "1", "--watch", "0.01"]].concat()
        } else {
            args
        };
        let shown = run(&args).complete();
        assert!(shown.contains(",'=1+1 1000,") && !shown.contains("'-"), "{shown}");
    }
    let exact = run(&[&["ps", "-p", &pid, "--csv"][..], &fields].concat()).complete();
    assert!(exact.contains(",=1+1 1000,"), "{exact}");
    assert_eq!(run(&["ps", "--csv=odd"]).code, Some(2));
}

/// Check that no command overflows a small stack: its own frames need more.
#[test]
fn small_stacks_suffice() {
    let own = std::process::id().to_string();
    let own = own.as_str();
    for args in [
        &["--help"][..],
        &["nonsense"],
        &["--version"],
        &["ps", "aux"],
        &["ps", "--json", "-o", "all", "-p", own],
        &["tree", own],
        &["watch", "-p", own, "--watch", "0.01", "--count", "2"],
        &["top", "--help"],
        &["cache", "--of-process", own],
        &["events", "--help"],
        &["files", "--path", "/etc/passwd"],
        &["inspect", own],
        &["maps", own],
        &["mem", "--by", "user"],
        &["metrics", "--help"],
        &["normalize", own, "0x1000"],
        &["sockets", "--tcp", "--info"],
        &["pgrep", "-f", "no such process"],
        &["pkill", "-f", "no such process"],
        &["record", "--help"],
        &["history", "--help"],
        &["report", "--help"],
        &["fields"],
        &["doctor"],
        &["pin", "--help"],
        &["schema", "tasks"],
        &["man"],
        &["completions", "bash"],
    ] {
        let run = with_small_stack(command(args));
        // No signal has ended it.
        assert!(matches!(run.code, Some(0..=3)), "{args:?}: {run:?}");
    }
    // A signal reaches the command.
    let mut events = Command::new("timeout");
    events.args(["--preserve-status", "2", env!("CARGO_BIN_EXE_taskdiag"), "events"]);
    let run = with_small_stack(events);
    assert_eq!(run.code, Some(0), "{run:?}");
}

fn with_small_stack(mut command: Command) -> Run {
    // SAFETY: only a system call is made between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let limit = Rlimit {
                current: Some(64 << 10),
                maximum: Some(64 << 10),
            };
            Ok(setrlimit(Resource::Stack, limit)?)
        })
    };
    Run::new(command.output().expect("the binary runs"))
}

/// Check that sums by several keys are the parts of the sums by one, in every command that adds up,
/// and that a script has its own name.
#[test]
fn sums_have_several_keys() {
    let place = taskdiag_testkit::temporary::Directory::new("sums");
    let path = place.join("greets.sh");
    std::fs::write(&path, "read line\n").expect("a file");
    // Other tests open files in this process meanwhile, so another one has the socket.
    let socket = UnixListener::bind(place.join("socket")).expect("a socket");
    let sleeper = Sleeper::start(Command::new("sleep").stdout(OwnedFd::from(socket)));
    let mut script = Command::new("sh")
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    let pids = format!("{},{}", sleeper.pid(), script.id());
    let input = script.stdin.take();
    for (by_command, count, own) in [
        (&["mem"][..], "processes_count", "cgroup"),
        (&["files"], "opens_count", "path"),
        (&["sockets", "--unix"], "sockets_count", "state"),
    ] {
        let rows = |by: &str| {
            let args = [by_command, &["-p", &pids, "--by", by, "--json"]].concat();
            run(&args).json()["rows"].as_array().expect("rows").clone()
        };
        let number = |row: &serde_json::Value| row[count].as_u64().expect("a number");
        let whole = rows("script");
        let parts = rows(&format!("script,{own},user,script"));
        for group in &whole {
            let of_group = parts.iter().filter(|part| part["script"] == group["script"]);
            let sum: u64 = of_group.map(number).sum();
            assert_eq!(sum, number(group), "{by_command:?}: {whole:?} {parts:?}");
        }
        assert!(parts.iter().all(|part| part["euid"] == 0), "{parts:?}");
        assert!(whole.iter().any(|group| group["script"] == "sleep"), "{whole:?}");
        if by_command != ["sockets", "--unix"] {
            assert!(whole.iter().any(|group| group["script"] == "greets.sh"), "{whole:?}");
        }
        let table = run(&[by_command, &["-p", &pids, "--by", "script,user"]].concat()).text();
        let heading = table.lines().next().expect("a heading");
        assert!(
            heading.trim_end().ends_with("USER") && heading.contains("SCRIPT"),
            "{table}"
        );
    }
    drop(input);
    script.wait().expect("our child");
}

/// Check that no name is no selection: with an empty variable, a script would get all processes.
#[test]
fn no_name_selects_nothing() {
    for option in ["--container", "--unit"] {
        for command in ["ps", "mem", "sockets"] {
            let run = run(&[command, option, ""]);
            assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{command} {option}");
            assert!(run.stderr.contains(option), "{}", run.stderr);
        }
    }
}

/// Check that what an order lacks is counted once, of all tasks, shown or not.
#[test]
fn what_an_order_lacks_is_counted() {
    let roots = [(); 2].map(|()| Sleeper::new("others"));
    let own = Sleeper::start(Command::new("sleep").uid(65534).gid(65534));
    let pids = [&roots[0], &roots[1], &own].map(Sleeper::pid).join(",");
    for (args, field) in [
        (&["ps", "-o", "pid,read_bytes"][..], "read_bytes"),
        (&["ps", "-o", "pid,read_bytes", "--json"], "read_bytes"),
        (&["ps", "-o", "pid"], "exe"),
        (&["ps", "-O", "rss"], "exe"),
        (&["tree", "-o", "pid,read_bytes"], "read_bytes"),
        (&["mem", "-o", "pid,read_bytes"], "read_bytes"),
        (
            &["watch", "-n", "1", "-o", "pid,read_bytes,read_bytes_per_s"],
            "read_bytes",
        ),
        (
            &["watch", "-n", "2", "-d", "0.01", "-o", "pid,read_bytes"],
            "read_bytes",
        ),
    ] {
        let key = format!("-{field}");
        let sorted = [args, &["-p", &pids, "--sort", &key, "--limit", "1"]].concat();
        let Some(run) = run_as_nobody(&sorted) else { return };
        let said = "denied for 2 of 3 tasks (root may: try sudo)";
        let mut lines = run.stderr.lines().filter(|line| line.contains(field));
        let is_said = lines.next().is_some_and(|line| line.ends_with(said)) && lines.next().is_none();
        assert!(run.code == Some(1) && is_said, "{sorted:?}: {run:?}");
    }
}

/// Check that what somebody types who knows other tools leads to the command that answers.
#[test]
fn wrong_words_lead_on() {
    let sleeper = Sleeper::new("named");
    let name = std::fs::read_to_string(format!("/proc/{}/comm", sleeper.pid())).expect("its name");
    for (args, tip) in [
        (&["files", "/etc/passwd"][..], "`taskdiag files --path /etc/passwd`"),
        (&["sockets", ":22"], "`taskdiag sockets --port 22`"),
        (&["inspect", "no-such-name"], "`taskdiag pgrep no-such-name`"),
        (
            &["inspect", name.trim_end()],
            &format!("the processes named {}", name.trim_end()),
        ),
        (&["ps", "-o", "pdi"], "near it are: pid,"),
        (&["cache"], "`taskdiag cache --top 20`"),
        (&["ps", "--where", "user == root"], "write 'root' in quotes"),
        (
            &["ps", "--where", "uid == root"],
            "for the user id of that name, write 'root' in quotes",
        ),
    ] {
        let run = run(args);
        assert_eq!(run.code, Some(2), "{args:?}: {run:?}");
        assert!(
            run.stderr.starts_with("taskdiag: ") && run.stderr.contains(tip),
            "{args:?}: {run:?}"
        );
    }
}

/// Check that root of a user namespace is not said to lack a capability that it has, or to have all
/// rights by it.
#[test]
fn capabilities_count_in_their_user_namespace() {
    let outside = Sleeper::new("outside");
    let inside = |options: &[&str], args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user"]).args(options);
        command.arg(env!("CARGO_BIN_EXE_taskdiag")).args(args);
        Run::new(command.output().expect("it runs"))
    };
    let fact = |run: &Run| {
        let rows = run.json()["rows"].as_array().expect("rows").clone();
        rows.into_iter().find(|row| row["fact"] == "may-trace").expect("a fact")
    };
    let trace = fact(&inside(&[], &["doctor", "--json"]));
    let is_said = trace["why"]
        .as_str()
        .is_some_and(|why| why.contains("in the user namespaces of tasks"));
    assert!(trace["verdict"] == "no" && is_said, "{trace}");
    // Which procfs it is about is for --proc to say.
    assert!(!trace.to_string().contains("/proc"), "{trace}");
    // All tasks of its own pid namespace are in it.
    let own = ["--pid", "--fork", "--mount-proc"];
    assert_eq!(fact(&inside(&own, &["doctor", "--json"]))["verdict"], "yes");
    let run = inside(&[], &["normalize", &outside.pid(), "0x1000"]);
    let said = "(its user may, or who has CAP_SYS_PTRACE in its user namespace)";
    assert!(run.code == Some(2) && run.stderr.contains(said), "{run:?}");
}

/// Check what is said to those who type what other programs take: one message, what to type, and where
/// the options are.
#[test]
fn habits_get_hints() {
    let directory = Directory::new("habits");
    fs::write(directory.join("named"), "").expect("a file");
    for (typed, hint) in [
        ("renice 5 1", "`taskdiag top` changes nice values"),
        ("mme", "did you mean `taskdiag mem`?"),
        ("soket", "did you mean `taskdiag sockets`?"),
        ("zzz", "`taskdiag help` lists the commands"),
        ("df -h", "`taskdiag files --path PATH`"),
        ("help mme", "did you mean `taskdiag mem`?"),
        ("help zzz", "`taskdiag help` lists the commands"),
        ("ps help", "p (of \"help\") needs a value"),
        ("metrics --port 9256", "--listen :9256"),
        ("fields port", "`taskdiag schema sockets`"),
        ("fields nosuch", "`taskdiag fields` lists all"),
        ("version", "`taskdiag --version`"),
        ("uptime", "load averages"),
        ("mem 1", "-p 1 chooses a process"),
        ("watch 1234", "-p 1234 chooses a process"),
        ("net eth0", "`ip -s link`"),
        ("sockets 80/tcp", "--port 80"),
        ("sockets --state conected", "groups are connected"),
        ("top --jsonl", "`taskdiag watch --jsonl`"),
        (
            "top --sort mem -b -n 1",
            "mem stands for several fields: sort by one of vsize_bytes",
        ),
        ("ps --where name=='x'", "near it are: comm"),
        ("files --where age>1", "near it are: elapsed_ns"),
        ("sockets --where laddr=='::1'", "near it are: local_addr"),
        ("sockets -tM", "protocol == 'mptcp'"),
        ("files --where kind=='pipe'", "kind == 'fifo'"),
        ("sockets --where family=='IPv4'", "family == 'inet'"),
        ("strace -p 1", "`taskdiag events`"),
        ("top -1", "the key 1"),
        ("netstat -tulpn", "`taskdiag net` counts what each process"),
        ("lsof", "`taskdiag files` lists"),
        ("ss -tlnp", "`taskdiag sockets` lists sockets"),
        ("fuser /tmp", "`taskdiag files --path PATH`"),
        ("htop", "`taskdiag top`"),
        ("files -i", "`taskdiag sockets` lists sockets"),
        ("files -iTCP:22", "`taskdiag sockets` lists sockets"),
        ("files -c sh", "--where \"comm ~"),
        ("files named", "`taskdiag files --path named`"),
        ("files /etc/passwd", "`taskdiag files --path /etc/passwd`"),
        (
            "files nothing-of-this-name",
            "`taskdiag files --where \"comm ~ 'nothing-of-this-name'\"`",
        ),
        ("maps nothing-of-this-name", "`taskdiag pgrep nothing-of-this-name`"),
        ("sockets :22", "`taskdiag sockets --port 22`"),
        ("sockets dst 1.2.3.4", "remote_addr in '10.0.0.0/8'"),
        ("sockets sport = :22", "local_port"),
        ("sockets -tmn", "RECV-Q"),
        ("sockets -tX", "unexpected argument '-X'"),
        ("sockets --wher x", "a similar argument exists: '--where'"),
        ("sockets --history x", "--history is an option of ps, tree, "),
        ("ps --history x --source bpf", "a recording has one source"),
        ("watch --history x --source procfs", "a recording has one source"),
        ("events --history x --source bpf", "a recording has one source"),
        ("ps --history x --socket y", "cannot be used with '--socket"),
        ("watch --history x --socket y", "cannot be used with"),
        ("watch -n 0", "give a whole number from 1 on"),
        ("ps --watch 1 --count 0", "give a whole number from 1 on"),
        ("mem --watch 1 -n 0", "give a whole number from 1 on"),
        ("net --watch 1 -n 0", "give a whole number from 1 on"),
        ("events --limit 0", "give a whole number from 1 on"),
        ("inspect -p 1,2", "but in inspect, which shows one"),
        ("files 1,2", "-p 1,2 chooses these processes"),
        ("net --by port", "--by remote_port is the port at the other end"),
        ("cache --dir x", "--dir is an option of ps, tree, "),
        ("normalize --at 3", "--at is an option of ps, tree, "),
        ("record --keep 16E", "\"16E\" is too much: all sizes are below 16E"),
        ("record --keep 99999999d", "too long a time"),
        ("record --keep 12", "neither how long nor how much"),
        ("record --keep 5y", "\"5y\" is not a size"),
        ("sockets --color x", "[possible values: auto, always, never]"),
        ("top -s PERCENT_MEM", "--sort -rss_bytes"),
        ("top -o %MEM", "standard output is not a terminal"),
        ("ps axo pid,vmsize", "near it are: vsize, "),
        ("ps axo comand", "near it are: command"),
        ("ps --where comand==1", "near it are: command"),
        ("history check /nonexistent", "`taskdiag history DIR` checks"),
        ("history -r /nonexistent", "`taskdiag top --history DIR`"),
        ("metrics -procnames bash", "--config"),
        ("net -n 1", "`taskdiag net --watch 1 -n N`"),
        ("record -w FILE", "`taskdiag record --dir DIR"),
        ("net -tulpn", "`taskdiag sockets` lists sockets, as in -tulpn"),
        ("net -anp", "`taskdiag sockets`"),
        ("net -i eth0", "`ip -s link`"),
        ("net 1", "--watch 1"),
        ("iftop -i eth0", "`taskdiag net --watch 1`"),
        ("nload", "`taskdiag net --watch 1`"),
        ("bmon", "`taskdiag net --watch 1`"),
        ("vnstat", "`taskdiag net --watch 1`"),
        ("vmstat 1", "`taskdiag top`"),
        ("iostat", "`taskdiag watch`"),
        ("smem", "`taskdiag mem`"),
        ("lsfd", "`taskdiag files`"),
        ("mem -m", "`taskdiag mem --system`"),
        ("mem -s 1", "`taskdiag mem --watch SECONDS`"),
        ("maps -XX 1", "-o all"),
        ("watch -r", "maj_faults_per_s"),
        ("watch 1 5", "`taskdiag watch -d 1 -n 5`"),
        ("files -u ^root", "\"euid != 'root'\""),
        ("files ^1234", "\"pid != 1\""),
        ("files -k /tmp", "--path PATH -o pid"),
        ("files 1 +nlink", "-o of its own"),
        ("files root", "`taskdiag files -u root`"),
        ("files --path /tmp 4194305", "-p 4194305 chooses a process"),
        ("sockets -u ^root", "\"uid != 'root'\""),
        ("sockets -lu root", "`taskdiag sockets -u root`"),
        ("sockets -tno +inode", "-o of its own"),
        ("sockets -K dst 1.2.3.4", "`ss -K` does"),
        ("sockets -t ( sport = :22 )", "local_port"),
        ("sockets -to dport = :22", "remote_port"),
        ("sockets -o dport = :22", "remote_port"),
        ("sockets -u sport = :22", "local_port"),
        ("sockets -p dst 1.2.3.4", "remote_addr"),
        ("sockets --tcp exclude established", "state != 'TIME-WAIT'"),
        ("sockets --state state", "known are ESTAB"),
        (
            "sockets --by state established",
            "`taskdiag sockets --state established`",
        ),
        (
            "sockets --unit state established",
            "`taskdiag sockets --state established`",
        ),
        ("top -b --where net_bytes_per_s>1", "is a rate, for -o and --sort"),
        ("ps --where read_bytes_per_s>1", "--sort -read_bytes_per_s"),
        ("files --where net_bytes_per_s>1", "--sort -net_bytes_per_s"),
        ("ps --limit abc", "'--limit <N>': not a whole number"),
        ("ps --limit -1", "'-1' for '--limit <N>': not a whole number"),
        ("top -d -1", "'-1' for '--delay <SECONDS>'"),
        ("top -bd -0.5", "'-0.5' for '--delay <SECONDS>'"),
        ("tree -1", "unexpected argument '-1'"),
        ("maps", "--all takes all"),
        ("mem --sort time", "use one of utime_ns, stime_ns"),
        ("watch -o rsss", "near it are: rss"),
        ("events --where user=='root'", "uid == 'root'"),
        ("sockets --where user=='root'", "uid == 'root'"),
        ("files --path /nonexistent", "/nonexistent: No such file or directory"),
        ("pkill -SIGFOO x", "\"SIGFOO\" is not a signal"),
        ("process", "`taskdiag ps` lists processes"),
        ("top --limit 3", "`taskdiag watch --limit N`"),
        ("ps --by user", "`taskdiag top -b --by user`"),
        ("files --by pid", "`taskdiag ps -o pid,fd_count,comm`"),
        ("mem --by=process", "`taskdiag ps -o pid,fd_count,comm`"),
        ("record -d 1", "--every SECONDS"),
        ("files --watch 1", "`watch -n 1 taskdiag COMMAND"),
        ("tree --watch 1", "`watch -n 1 taskdiag COMMAND"),
        ("files --where held=='x'", "allocated_bytes"),
        ("sockets --where port==80", "local_port, remote_port"),
        ("sockets --sort -port", "local_port, remote_port"),
    ] {
        let args: Vec<&str> = typed.split(' ').collect();
        let output = command(&args)
            .current_dir(&*directory)
            .output()
            .expect("the binary runs");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(2), 0),
            "{typed}: {said}"
        );
        assert!(said.starts_with("taskdiag: ") && said.contains(hint), "{typed}: {said}");
        assert!(!said.contains("os error"), "{said}");
        // One style: lines without gaps, and no page of usage.
        let is_short = said.lines().count() <= 5 && !said.contains("\n\n") && !said.contains("Usage:");
        assert!(is_short && said.matches("tip: ").count() <= 1, "{typed}: {said}");
    }
}

/// Check that lists of what does not exist are empty, with status 1, and that what is about one thing
/// has no answer, with status 2: docs/output.md.
#[test]
fn what_does_not_exist_has_a_status() {
    let pid = free_pid();
    for (line, code) in [
        ("ps -p PID", 1),
        ("tree PID", 1),
        ("mem -p PID", 1),
        ("maps PID", 1),
        ("files PID", 1),
        ("sockets PID", 1),
        ("watch -n 1 -p PID", 1),
        ("cache --of-process PID", 1),
        ("cache /nonexistent", 1),
        ("normalize PID 0x1", 2),
        ("inspect PID", 2),
        ("cache --map /nonexistent", 2),
        ("files --path /nonexistent", 2),
        ("files --path /nonexistent --path /none", 2),
    ] {
        let run = run(&line.replace("PID", &pid).split(' ').collect::<Vec<_>>());
        assert!(
            run.code == Some(code) && run.stderr.contains("o such "),
            "{line}: {run:?}"
        );
        assert_eq!(run.stdout.is_empty(), code == 2, "{line}: {run:?}");
    }
}

/// Check that habits which mean an option here are that option.
#[test]
fn habits_work() {
    let sleeper = Sleeper::new("a-sleeper");
    let pid = sleeper.pid();
    for (typed, same) in [
        ("sockets -tanH", "sockets --tcp --no-header"),
        ("sockets --numeric --tcp state listen", "sockets --tcp --state listen"),
        ("sockets -4tl", "sockets --listening --tcp --where family=='inet'"),
        ("sockets -tl46", "sockets --listening --tcp"),
        ("sockets -4 --inet6 -tl", "sockets --listening --tcp"),
        (
            "sockets -o state listening",
            "sockets -o +timer,timer_ns,retransmits_count --state listen",
        ),
        ("sockets -u state unconnected", "sockets --udp --state unconn"),
        ("maps -dq PID", "maps --no-header PID"),
        ("files +L1 -nP -p PID", "files --deleted -p PID"),
        ("files +D / -p PID", "files --path / -p PID"),
        ("tree -a -p PID", "tree -p PID"),
        ("record --interval nosuch", "record --every nosuch"),
        ("top --interval nosuch", "top --delay nosuch"),
        ("watch --interval nosuch", "watch --delay nosuch"),
        ("mem --interval nosuch", "mem --watch nosuch"),
        ("net --interval=nosuch", "net --watch nosuch"),
    ] {
        let answer = |line: &str| {
            let line = line.replace("PID", &pid);
            let run = run(&line.split(' ').collect::<Vec<_>>());
            (run.code, run.stdout, run.stderr)
        };
        // What else runs may open or mount something in between.
        assert!((0..20).any(|_| answer(typed) == answer(same)), "{typed}");
    }
}

/// Check that the help of --where names what it filters.
#[test]
fn help_names_what_is_filtered() {
    for (command, filtered) in [
        ("ps", "tasks"),
        ("tree", "tasks"),
        ("top", "tasks"),
        ("watch", "tasks"),
        ("net", "tasks"),
        ("mem", "tasks"),
        ("maps", "mappings"),
        ("files", "files"),
        ("sockets", "sockets"),
        ("events", "events"),
    ] {
        let help = run(&[command, "--help"]).complete();
        let (_, about) = help.split_once("--where <EXPR>").expect(command);
        let words = about.split_ascii_whitespace().take(3).collect::<Vec<_>>();
        assert_eq!(words, ["Only", filtered, "for"], "{command}");
    }
}

/// Check that `-o +FIELD` adds to the columns that are shown without, and takes none away.
#[test]
fn fields_are_added_to_all_columns() {
    let sleeper = Sleeper::new("added-to");
    let _other = Sleeper::start(Command::new("unshare").args(["-n", "sleep"]));
    for (line, added) in [
        ("ps -p PID", "majflt"),
        ("tree -p PID", "ppid"),
        ("mem -p PID", "ppid"),
        ("watch -n 1 -p PID", "ppid"),
        ("maps PID", "go_build_id"),
        ("files PID", "nlink"),
        ("sockets", "state"),
        ("sockets --info", "timer"),
        ("cache /etc/passwd", "missing_count"),
        ("events --for 0.1", "euid"),
    ] {
        let line = line.replace("PID", &sleeper.pid());
        let args: Vec<&str> = line.split(' ').collect();
        let headings = |more: &[&str]| -> Vec<String> {
            let text = run(&[&args, more].concat()).text();
            let line = text.lines().find(|line| !line.starts_with("20") && !line.is_empty());
            let line = line.unwrap_or_else(|| panic!("{args:?} {more:?}: {text}"));
            line.split_ascii_whitespace().map(str::to_owned).collect()
        };
        let (usual, mut more) = (headings(&[]), headings(&["-o", &format!("+{added}")]));
        let at = more.iter().position(|heading| !usual.contains(heading));
        more.remove(at.unwrap_or_else(|| panic!("{line}: {more:?}")));
        assert_eq!(usual, more, "{line}");
    }
}

/// Check that every command of processes knows what ps calls fields, and that an order by the number of
/// a processor is told.
#[test]
fn names_of_ps_are_fields() {
    let own = std::process::id().to_string();
    for command in ["ps", "tree", "watch", "mem"] {
        let line = [command, "-p", &own, "-o", "pid,rss,%mem", "--sort", "-vsz", "--jsonl"];
        let once: &[&str] = if command == "watch" { &["-n", "1"] } else { &[] };
        let row = common::run(&[&line[..], once].concat()).complete();
        let row = row.lines().find(|line| line.contains("pid")).expect("a row");
        let row: serde_json::Value = serde_json::from_str(row).expect("an object");
        assert!(
            row["rss_bytes"].is_u64() && row["mem_percent"].is_number(),
            "{command}: {row}"
        );
    }
    for (form, is_told) in [("--bytes", true), ("--jsonl", false)] {
        let run = run(&["watch", "-n", "1", "-o", "pid", "--sort", "cpu", "-p", &own, form]);
        assert_eq!(run.stderr.contains("--sort -cpu_percent"), is_told, "{run:?}");
    }
}

/// Check that messages on a terminal are broken between words.
#[test]
fn messages_wrap_on_a_terminal() {
    let said = |args: &[&str]| {
        let mut shell = Command::new("sh");
        let script = "exec \"$0\" \"$@\" 2>&1";
        run_on_terminal(
            shell.args(["-c", script, env!("CARGO_BIN_EXE_taskdiag")]).args(args),
            40,
            24,
        )
        .text()
    };
    let text = said(&["netstat"]);
    assert!(
        text.lines().count() > 4 && text.lines().all(|line| line.len() <= 40),
        "{text}"
    );
    assert!(
        text.replace('\n', " ").contains("counts what each process sends"),
        "{text}"
    );
    // The mark stays below its place.
    let expression = "pid == 1 and comm == 'x' and not kernel_thread and uid = 0";
    let text = said(&["ps", "--where", expression]);
    let mark = format!(
        "  {expression}\n  {:>width$}",
        "^",
        width = expression.find("= 0").expect("there") + 1
    );
    assert!(text.contains(&mark), "{text}");
}
