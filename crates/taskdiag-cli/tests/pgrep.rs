//! `taskdiag pgrep` compared with Debian's pgrep, and `taskdiag pkill` on processes of this test.

mod common;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{command, run, run_as_nobody, Run, Sleeper};
use taskdiag_zoo::Zoo;

/// A name that no process has but those which a test starts under it, and that is no part of
/// another. It is no longer than a name of a process may be, also where pids have seven digits.
fn unique(what: &str) -> String {
    format!("td{what}{}x", std::process::id())
}

/// Processes that wait, under a name that no other process has.
struct Named {
    program: PathBuf,
    children: Vec<Child>,
}

impl Named {
    fn start(name: &str, count: usize) -> Named {
        let program = std::env::temp_dir().join(name);
        common::copy_program("/bin/sleep".as_ref(), &program).expect("sleep exists");
        let start = |index: usize| {
            let argument = format!("{}", 1000 + index);
            let mut command = Command::new(&program);
            command.arg(argument).stdin(Stdio::null());
            common::with_usual_signals(&mut command).spawn().expect("it starts")
        };
        let children: Vec<Child> = (0..count).map(start).collect();
        for child in &children {
            let comm = format!("/proc/{}/comm", child.id());
            while std::fs::read_to_string(&comm).expect("it is there").trim() != name {
                std::thread::yield_now();
            }
            common::wait_until_it_sleeps(&child.id().to_string());
        }
        Named { program, children }
    }

    fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    /// The signals that have ended processes so far. Waits a while for the first.
    fn ended(&mut self) -> Vec<Option<i32>> {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5) {
            let ended: Vec<Option<i32>> = self
                .children
                .iter_mut()
                .filter_map(|child| child.try_wait().expect("a child").map(|status| status.signal()))
                .collect();
            if !ended.is_empty() {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Vec::new()
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(&self.program);
    }
}

fn pgrep(args: &[&str]) -> Run {
    Run::new(
        Command::new("/usr/bin/pgrep")
            .args(args)
            .output()
            .expect("procps is installed"),
    )
}

fn ours(args: &[&str]) -> Run {
    run(&[&["pgrep"], args].concat())
}

fn numbers(run: &Run) -> BTreeSet<u32> {
    let text = String::from_utf8_lossy(&run.stdout);
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Check that a title is shown without the NULs that fill the rest of the arguments it was written
/// over, and is found by its text.
#[test]
fn titles_have_no_padding() {
    let titled = Zoo::new().expect("a zoo").start("title-short").expect("it starts");
    let pid = titled.pid.to_string();
    let line = |run: Run| {
        let text = run.text();
        let line = text.lines().find(|line| line.starts_with(&format!("{pid} ")));
        line.map(str::to_owned)
    };
    let expected = Some(format!("{pid} zoo: idle"));
    for options in [&["-a", "-f", "zoo: idle"][..], &["-a", "-fx", "zoo: idle"]] {
        assert_eq!(line(pgrep(options)), expected, "{options:?}");
        assert_eq!(line(ours(options)), expected, "{options:?}");
    }
    let ps = |args: &[&str]| run(&[&["ps", "-o", "pid,cmdline", "--where", "cmdline == 'zoo: idle'"], args].concat());
    let document = ps(&["--json"]).json();
    let rows = document["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["pid"] == titled.pid).expect("a row");
    assert_eq!(row["cmdline"], serde_json::json!(["zoo: idle"]));
    let csv = ps(&["--csv"]).text();
    assert!(csv.lines().any(|line| line == format!("{pid},zoo: idle")), "{csv}");
    let table = ps(&[]).text();
    assert!(
        table
            .lines()
            .any(|line| line.trim_start() == format!("{pid} zoo: idle")),
        "{table}"
    );
}

/// Check that options find the same processes as pgrep.
#[test]
fn options_find_what_pgrep_finds() {
    let name = &unique("same");
    let named = Named::start(name, 3);
    let pids: BTreeSet<u32> = named.pids().into_iter().collect();
    let here = std::process::id().to_string();
    let first = named.children[0].id().to_string();
    let session = common::status(&first, "NSsid");
    let group = common::status(&first, "NSpgid");
    // A part of the name, which is still unique.
    let part = &name[1..];
    for options in [
        "NAME",
        "PART",
        "-x NAME",
        "-x PART",
        "-f NAME.1001",
        "-xf NAME.1001",
        "UPPER",
        "-i UPPER",
        "-n NAME",
        "-o NAME",
        "-u root NAME",
        "-u nobody NAME",
        "-U 0,65534 NAME",
        "-G root NAME",
        "-r S NAME",
        "-r R,Z NAME",
        "-r RS NAME",
        "-c NAME",
        "-c td-nothing",
        "-l NAME",
        "-a NAME",
        "-d, NAME",
        "-w NAME",
        "-O 3600 NAME",
        "^td(same|other)PIDx$",
        "td-nothing",
        "-a ^kthreadd$",
        "-f ^.kthreadd.$",
        "-fx kthreadd",
    ] {
        let options = options
            .replace("NAME", name)
            .replace("PART", part)
            .replace("UPPER", &name.to_uppercase())
            .replace("PID", &here);
        let args: Vec<&str> = options.split(' ').collect();
        let (theirs, mine) = (pgrep(&args), ours(&args));
        assert_eq!(mine.code, theirs.code, "{options}: {mine:?}");
        assert_eq!(mine.stdout, theirs.stdout, "{options}");
    }
    for args in [
        &["-P", here.as_str(), name][..],
        &["-s", &session, name],
        &["-g", &group, name],
        &["--ns", &first, name],
        &["--ns", &first, "--nslist", "net,uts", name],
    ] {
        let (theirs, mine) = (pgrep(args), ours(args));
        assert_eq!((mine.code, numbers(&mine)), (theirs.code, numbers(&theirs)), "{args:?}");
        assert_eq!(numbers(&mine), pids, "{args:?}");
    }
    // All other processes, except those that come and go.
    let others = numbers(&ours(&["-v", name]));
    assert!(others.contains(&std::process::id()) && others.is_disjoint(&pids));
}

/// Check expressions, pid files, ancestors, --quiet, and that the command does not find itself.
#[test]
fn other_criteria_narrow_down() {
    let name = &unique("file");
    let named = Named::start(name, 2);
    let pids = named.pids();
    let size = ours(&["--where", "rss_bytes > 0", name]);
    assert_eq!(numbers(&size).len(), 2);
    let only = ours(&["--where", &format!("pid == {}", pids[1])]);
    assert_eq!(numbers(&only), BTreeSet::from([pids[1]]));

    let file = std::env::temp_dir().join(format!("td-pgrep-{}.pid", std::process::id()));
    std::fs::write(&file, format!("{}\n", pids[0])).expect("a file");
    let path = file.to_str().expect("UTF-8");
    assert_eq!(numbers(&ours(&["-F", path])), BTreeSet::from([pids[0]]));
    let unlocked = ours(&["-L", "-F", path]);
    assert_eq!((unlocked.code, unlocked.stdout.len()), (Some(1), 0));
    assert!(unlocked.stderr.contains("locked"), "{}", unlocked.stderr);
    let locked = std::fs::File::open(&file).expect("it is there");
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).expect("nobody has it");
    assert_eq!(numbers(&ours(&["-L", "-F", path])), BTreeSet::from([pids[0]]));
    std::fs::write(&file, format!("{}\0", pids[1])).expect("a file");
    assert_eq!(numbers(&ours(&["-F", path])), BTreeSet::from([pids[1]]));
    std::fs::write(&file, "no number").expect("a file");
    assert_eq!(ours(&["-F", path]).code, Some(1));
    std::fs::remove_file(&file).expect("it is ours");
    // Nobody writes to the one with a name.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("a fifo");
    let fifo = ours(&["-F", path]);
    assert_eq!((fifo.code, fifo.stdout.len()), (Some(1), 0));
    assert!(fifo.stderr.contains("not a regular file"), "{}", fifo.stderr);
    std::fs::remove_file(&file).expect("it is ours");
    let script = format!("sleep 0.1; echo {}", pids[0]);
    let mut late = Command::new("sh")
        .args(["-c", &script])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let pipe = late.stdout.take().expect("a pipe");
    let piped = command(&["pgrep", "-F", "/dev/stdin"])
        .stdin(pipe)
        .output()
        .expect("it runs");
    assert_eq!(numbers(&Run::new(piped)), BTreeSet::from([pids[0]]));
    late.wait().expect("it ends");
    let missing = ours(&["-F", path]);
    assert_eq!((missing.code, missing.stdout.len()), (Some(1), 0));
    assert!(missing.stderr.contains(path), "{}", missing.stderr);

    for options in [&["--ns", "4000000000", name][..], &["-v", "--ns", "4000000000"]] {
        let gone = ours(options);
        assert_eq!((gone.code, gone.stdout.len()), (Some(1), 0), "{options:?}");
        assert!(gone.stderr.contains("4000000000"), "{}", gone.stderr);
    }

    let quiet = ours(&["--quiet", name]);
    assert_eq!((quiet.code, quiet.stdout.len()), (Some(0), 0));
    let mut searcher = common::command(&["pgrep", "-f", "-v", "td-nothing"]);
    let searcher = searcher.stdout(Stdio::piped()).spawn().expect("it runs");
    let its_pid = searcher.id();
    let found = numbers(&Run::new(searcher.wait_with_output().expect("it ends")));
    assert!(found.contains(&std::process::id()) && !found.contains(&its_pid));
    let here = std::process::id();
    assert!(numbers(&ours(&["-f", "pgrep"])).contains(&here));
    assert!(!numbers(&ours(&["-A", "-f", "pgrep"])).contains(&here));
}

/// Check the options of procps 4.0.6 that Debian's pgrep does not have yet: processes by id and by
/// environment, those with a handler, quotes for a shell, and the pid file of standard input.
#[test]
fn options_of_later_versions_work() {
    let name = &unique("'n\\");
    let mut named = Named::start(name, 0);
    let start = |arguments: &[&str], (variable, value): (&str, &str)| {
        let mut command = Command::new("bash");
        let script = format!(
            "trap : USR1; exec -a \"$0\" '{}' 1000",
            named.program.display().to_string().replace('\'', r"'\''")
        );
        command.args(["-c", &script]).args(arguments).env(variable, value);
        common::with_usual_signals(&mut command).spawn().expect("bash")
    };
    let children = vec![
        start(&["it's \x1b[31m"], ("TD_LATER", "one")),
        start(&["a b"], ("TD_LATER_TOO", "two")),
    ];
    for child in &children {
        while std::fs::read_to_string(format!("/proc/{}/comm", child.id()))
            .expect("it is there")
            .trim()
            != name
        {
            std::thread::yield_now();
        }
    }
    named.children = children;
    let pids = named.pids();
    let (first, both) = (BTreeSet::from([pids[0]]), BTreeSet::from([pids[0], pids[1]]));
    let list = format!("{},{},4000000000", pids[0], pids[1]);
    assert_eq!(numbers(&ours(&["-p", &list])), both);
    assert_eq!(
        numbers(&ours(&["--pid", &pids[0].to_string(), "-x", "nobody"])),
        BTreeSet::new()
    );
    assert_eq!(numbers(&ours(&["--env", "TD_LATER"])), first);
    assert_eq!(numbers(&ours(&["--env", "TD_LATER=one,NO_SUCH"])), first);
    assert_eq!(numbers(&ours(&["--env", "TD_LATER=on"])), BTreeSet::new());
    assert_eq!(numbers(&ours(&["--env", "TD_LATER,TD_LATER_TOO=two"])), both);
    // exec resets handlers.
    assert!(numbers(&ours(&["-H", "--signal", "USR1", "-p", &list])).is_empty());
    let mut trap = Command::new("sh")
        .args(["-c", "trap : USR1; echo; read x"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    std::io::Read::read_exact(trap.stdout.as_mut().expect("a pipe"), &mut [0]).expect("its line");
    let its_pid = trap.id().to_string();
    assert_eq!(
        numbers(&ours(&["-H", "--signal", "USR1", "-p", &its_pid])),
        BTreeSet::from([trap.id()])
    );
    assert!(numbers(&ours(&["-H", "--signal", "USR2", "-p", &its_pid])).is_empty());
    drop(trap.stdin.take());
    trap.wait().expect("it ends");
    let one = &pids[0].to_string();
    let text = |args: &[&str]| String::from_utf8_lossy(&ours(args).stdout).into_owned();
    let quoted = name.replace('\'', r"'\''");
    assert_eq!(text(&["-l", "-Q", "-p", one]), format!("{one} '{quoted}'\n"));
    assert_eq!(
        text(&["-a", "-Q", "-p", one]),
        format!("{one} $'it\\'s \\x1b[31m' 1000\n")
    );
    assert_eq!(
        text(&["-aQ", "-p", &pids[1].to_string()]),
        format!("{} 'a b' 1000\n", pids[1])
    );
    assert_eq!(text(&["-Q", "-p", one]), format!("{one}\n"));
    // A kernel thread has no command line.
    assert_eq!(text(&["-aQ", "-p", "2"]), "2 -\n");
    let mut input = command(&["pgrep", "-F", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    std::io::Write::write_all(&mut input.stdin.take().expect("a pipe"), one.as_bytes()).expect("room");
    assert_eq!(numbers(&Run::new(input.wait_with_output().expect("it ends"))), first);
    // Memory is freed only of a process that is ending.
    let kept = run(&["pkill", "-0", "-m", "-p", one]);
    assert_eq!(kept.code, Some(1), "{kept:?}");
    assert!(kept.stderr.contains("memory"), "{kept:?}");
    let killed = run(&["pkill", "-KILL", "-m", "-e", "-Q", "-p", one]);
    assert_eq!((killed.code, killed.stderr.as_str()), (Some(0), ""));
    assert_eq!(
        String::from_utf8_lossy(&killed.stdout),
        format!("'{quoted}' killed (pid {one})\n")
    );
    assert_eq!(named.ended(), [Some(9)]);
}

/// Check that 0 means the command's own session and process group, also if their leaders are
/// outside of its pid namespace, where both ids are 0.
#[test]
fn own_session_and_group_may_be_of_another_namespace() {
    let script = r#"sleep 1000 &
        until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done
        "$0" pgrep -s 0 -g 0 -x sleep; "$0" pgrep -s 1 -x sleep; kill $!"#;
    let mut inside = Command::new("unshare");
    inside.args(["--pid", "--fork", "--mount-proc", "sh", "-c", script]);
    let output = inside.arg(env!("CARGO_BIN_EXE_taskdiag")).output();
    let run = Run::new(output.expect("util-linux has unshare"));
    assert_eq!((numbers(&run).len(), run.stderr.as_str()), (1, ""), "{run:?}");
}

/// Check that the newest and the oldest process can be selected without other criteria, and that
/// long options can be shortened, as in procps.
#[test]
fn criteria_can_be_few_and_short() {
    let name = &unique("short");
    let named = Named::start(name, 2);
    for args in [
        &["-o"][..],
        &["--oldest", "-l"],
        &["--delim=:", name],
        &["--list-n", "--par", &std::process::id().to_string(), name],
        &["--l", name],
    ] {
        let (theirs, mine) = (pgrep(args), ours(args));
        assert_eq!((mine.code, &mine.stdout), (theirs.code, &theirs.stdout), "{args:?}");
    }
    let newest = ours(&["-n"]);
    assert_eq!((newest.code, numbers(&newest).len()), (Some(0), 1), "{newest:?}");
    let shortened = run(&["pkill", "--dry", "--sig", "0", "-n", "-x", name]);
    let shortened = String::from_utf8_lossy(&shortened.stdout).into_owned();
    assert!(
        shortened.contains(&format!("(pid {})", named.children[1].id())),
        "{shortened}"
    );
}

/// Check that wrong usage is reported.
#[test]
fn what_is_wrong_is_said() {
    for (options, said) in [
        ("", "pattern"),
        ("(", "regular expression"),
        ("-u nosuchuser x", "nosuchuser"),
        ("-r 5 x", "'5'"),
        ("-t nosuchtty x", "nosuchtty"),
        ("-r , x", "state"),
        ("--ns 1 --nslist nosuch x", "nosuch"),
        ("--where nosuch x", "nosuch"),
        ("-n -o x", "--newest"),
        ("-v -n x", "--newest"),
        ("-o -v x", "--oldest"),
        ("-v --inverse -n x", "--newest"),
        ("-p 1 -F x", "--pid"),
        ("-p x", "x"),
        ("--signal nosuch -H", "nosuch"),
    ] {
        let args: Vec<&str> = options.split(' ').filter(|word| !word.is_empty()).collect();
        let run = ours(&args);
        assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{options}: {run:?}");
        assert!(run.stderr.contains(said), "{options}: {}", run.stderr);
    }
}

/// Check that failures other than wrong usage have their own status.
#[test]
fn failures_have_a_status_of_their_own() {
    for command in ["pgrep", "pkill"] {
        let failed = run(&[command, "--socket", "/nonexistent/socket", "td-nothing"]);
        assert_eq!((failed.code, failed.stdout.len()), (Some(3), 0), "{failed:?}");
        let version = run(&[command, "-V"]).complete();
        assert!(version.starts_with("taskdiag "), "{version}");
    }
    if let Some(denied) = common::run_as_nobody(&["pgrep", "--ns", "1"]) {
        assert_eq!((denied.code, denied.stdout.len()), (Some(3), 0), "{denied:?}");
        assert!(denied.stderr.contains("denied"), "{}", denied.stderr);
    }
    let full = std::fs::File::create("/dev/full").expect("/dev/full exists");
    let mut all = common::command(&["pgrep", "-u", "root"]);
    let unwritten = Run::new(all.stdout(full).output().expect("it runs"));
    assert_eq!(unwritten.code, Some(3));
    assert!(unwritten.stderr.contains("output"), "{}", unwritten.stderr);
}

/// Check which processes get a signal, by name, by number, and in the old syntax.
#[test]
fn signals_reach_those_that_match() {
    let name = unique("one");
    let name = name.as_str();
    let is_it = format!("comm == '{name}'");
    for (options, signal) in [
        (&[name][..], libc::SIGTERM),
        (&["-9", name], libc::SIGKILL),
        (&["-HUP", name], libc::SIGHUP),
        (&["-hup", name], libc::SIGHUP),
        (&["-SIGUSR1", "-x", name], libc::SIGUSR1),
        (&["--signal", "int", name], libc::SIGINT),
        (&["--queue", "-5", name], libc::SIGTERM),
        (&["--where", &is_it], libc::SIGTERM),
    ] {
        let mut named = Named::start(name, 1);
        let killed = run(&[&["pkill"], options].concat());
        assert_eq!((killed.code, killed.stderr.as_str()), (Some(0), ""), "{options:?}");
        assert_eq!(named.ended(), [Some(signal)], "{options:?}");
    }
    let nobody = run(&["pkill", "td-nothing"]);
    assert_eq!(nobody.code, Some(1));
    let wrong = run(&["pkill", "--signal", "NOSUCH", "td-nothing"]);
    assert_eq!(wrong.code, Some(2));
}

/// Check that --dry-run, signal 0 and --count signal nothing; that several processes are signalled
/// without a terminal; and that they are named.
#[test]
fn rehearsals_signal_nobody() {
    let name = &unique("dry");
    let mut named = Named::start(name, 2);
    let pids = named.pids();
    let dry = run(&["pkill", "--dry-run", name]).complete();
    for pid in &pids {
        assert!(
            dry.contains(&format!("{name} would be signalled (pid {pid})\n")),
            "{dry}"
        );
    }
    for nothing in ["-0", "-SIG0", "-sig00", "-EXIT", "--signal=SIGEXIT"] {
        assert_eq!(run(&["pkill", nothing, name]).code, Some(0), "{nothing}");
    }
    assert_eq!(run(&["pkill", "-H", "-USR2", name]).code, Some(1));
    for child in &mut named.children {
        assert!(child.try_wait().expect("a child").is_none());
    }
    let text = run(&["pkill", "--yes", "-e", "-c", name]).complete();
    assert!(text.starts_with("2\n"), "{text}");
    for pid in &pids {
        assert!(text.contains(&format!("{name} killed (pid {pid})\n")), "{text}");
    }
    let mut left = pids.len();
    while left > 0 {
        let ended = named
            .children
            .iter_mut()
            .filter_map(|child| child.try_wait().expect("a child"))
            .count();
        left = pids.len() - ended;
    }
}

/// Check that the user nobody may not signal root's processes, and gets a message.
#[test]
fn others_may_not_signal() {
    let name = &unique("root");
    let sleeper = Sleeper::start(Command::new("sleep").arg0(name));
    let Some(run) = common::run_as_nobody(&["pkill", "-f", name]) else {
        return;
    };
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr
            .contains(&format!("pid {}: you may not signal it", sleeper.pid())),
        "{}",
        run.stderr
    );
}

/// Check that on a terminal, several processes are signalled only after a yes.
#[test]
fn a_terminal_is_asked() {
    let name = &unique("ask");
    use std::io::Write as _;
    let mut named = Named::start(name, 2);
    for (answer, code, asks) in [("n\n", 1, true), ("\n", 1, true), ("y\n", 0, true)] {
        let line = format!("{} pkill {name}", env!("CARGO_BIN_EXE_taskdiag"));
        let mut script = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script is part of Debian");
        script
            .stdin
            .take()
            .expect("a pipe")
            .write_all(answer.as_bytes())
            .expect("it reads");
        let run = Run::new(script.wait_with_output().expect("it ends"));
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        assert_eq!(
            (run.code, text.contains("to these 2 processes? [y/N]")),
            (Some(code), asks),
            "{text}"
        );
        if code == 1 {
            for child in &mut named.children {
                assert!(child.try_wait().expect("a child").is_none(), "{answer:?}");
            }
        }
    }
    assert_eq!(named.ended().first(), Some(&Some(libc::SIGTERM)));
    // Through a link with the name of pkill(1), it does as that.
    let mut named = Named::start(name, 2);
    let place = taskdiag_testkit::temporary::Directory::new("pkill");
    let link = place.join("pkill");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_taskdiag"), &link).expect("a link");
    let script = |line: String| {
        let mut script = Command::new("script");
        Run::new(
            script
                .args(["-qec", &line, "/dev/null"])
                .stdin(Stdio::null())
                .output()
                .expect("it runs"),
        )
    };
    let run = script(format!("{} -e {name}", link.display()));
    assert_eq!(run.code, Some(0));
    assert_eq!(
        String::from_utf8_lossy(&run.stdout).matches("killed (pid ").count(),
        2,
        "{:?}",
        run.stdout
    );
    assert_eq!(named.ended().first(), Some(&Some(libc::SIGTERM)));
    let wrong = script(format!("{} -0garbage x", link.display()));
    let said = String::from_utf8_lossy(&wrong.stdout).into_owned();
    assert!(said.starts_with("pkill: invalid option -- '0'"), "{said}");
}

/// Check that a link named pgrep prints names, arguments and threads as pgrep(1) does, in its order.
#[test]
fn a_link_called_pgrep_prints_as_pgrep() {
    let zoo = Zoo::new().expect("a zoo");
    let names = [
        "comm-control",
        "comm-backslash",
        "comm-not-utf8",
        "comm-newline",
        "threads-5",
    ];
    let animals = names.map(|name| zoo.start(name).expect("an animal"));
    let parent = |animal: &taskdiag_zoo::Animal| {
        let stat = std::fs::read(format!("/proc/{}/stat", animal.pid)).expect("its stat");
        let stat = String::from_utf8_lossy(&stat);
        let fields = stat.rsplit(") ").next().map(|rest| rest.split(' '));
        fields
            .and_then(|mut fields| fields.nth(1))
            .expect("a parent")
            .to_owned()
    };
    let keepers: Vec<String> = animals.iter().map(parent).collect();
    let keepers = keepers.join(",");
    let odd = OsStr::from_bytes(b"a\\b\x1b \t\nc\xff\x1b\xc3\xb6");
    let _titled = Sleeper::start(Command::new("sleep").arg0(odd));
    let place = taskdiag_testkit::temporary::Directory::new("pgrep");
    let link = place.join("pgrep");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_taskdiag"), &link).expect("a link");
    let (of_keepers, titled) = (["-P", &keepers], ["-a", "-f", r"^a.b", "-P"].map(str::to_owned));
    let own = std::process::id().to_string();
    for locale in ["C.UTF-8", "C"] {
        let run = |program: &Path, args: &[&str]| {
            let mut command = Command::new(program);
            let command = command.args(args).env("LC_ALL", locale);
            let output = command.output().expect("it runs");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let titled: Vec<&str> = titled.iter().map(String::as_str).chain([own.as_str()]).collect();
        for args in [&["-l"][..], &["-a"], &["-wl"], &["-w", "-d,"], &["-wa"]] {
            let args = [args, &of_keepers[..]].concat();
            let theirs = run("/usr/bin/pgrep".as_ref(), &args);
            assert!(theirs.len() > 40, "{args:?} {theirs}");
            assert_eq!(run(&link, &args), theirs, "{args:?} {locale}");
        }
        let theirs = run("/usr/bin/pgrep".as_ref(), &titled);
        assert!(theirs.contains(r"a\b"), "{theirs}");
        assert_eq!(run(&link, &titled), theirs, "{locale}");
    }
}

/// Check that an environment that may not be read is mentioned, of processes that match otherwise.
#[test]
fn unread_environments_are_mentioned() {
    let sleeper = Sleeper::new("unread-env");
    let Some(run) = run_as_nobody(&["pgrep", "--env", "NO_SUCH=1", "-p", &sleeper.pid()]) else {
        return;
    };
    assert!(
        run.code == Some(3) && run.stderr.contains("environments: denied for 1 task"),
        "{run:?}"
    );
    let named = run_as_nobody(&["pgrep", "--env", "NO_SUCH=1", "-x", "no-such-name"]).expect("root");
    assert_eq!((named.code, &named.stderr[..]), (Some(1), ""));
}
