//! The command next to processes that block their readers. `ps` hangs; taskdiag reports them and
//! ends.

mod common;

use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::Run;
use taskdiag_testkit::temporary::Killed;
use taskdiag_zoo::{margin, run_first, Animal, Farm, Zoo};

const PATIENCE: Duration = Duration::from_millis(500);

const FARM: usize = 20;

fn holders(count: usize) -> Vec<Animal> {
    let zoo = Zoo::new().expect("a zoo");
    let holders = (0..count).map(|_| zoo.start("holds-lock"));
    holders.collect::<Result<_, _>>().expect("holders")
}

/// Runs the command with the default patience. Returns how long it took.
fn run(args: &[&str]) -> (Run, Duration) {
    let mut command = common::command(args);
    command.env_remove("TASKDIAG_PATIENCE");
    let start = Instant::now();
    let run = Run::new(command.output().expect("the binary runs"));
    (run, start.elapsed())
}

fn ends_until(child: &mut Child, until: Instant) -> bool {
    loop {
        if child.try_wait().expect("its state").is_some() {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Check the claim of the README: `ps` and `cat` wait as long as the process wants, taskdiag does
/// not.
#[test]
fn ps_hangs_and_taskdiag_does_not() {
    let _turn = run_first();
    let holders = holders(1);
    let cmdline = format!("/proc/{}/cmdline", holders[0].pid);
    let commands = [&["ps", "aux"][..], &["cat", &cmdline]];
    let started = commands.map(|command| {
        let mut started = Command::new(command[0]);
        Killed(
            started
                .args(&command[1..])
                .stdout(Stdio::null())
                .spawn()
                .expect("it starts"),
        )
    });
    std::thread::sleep(Duration::from_secs(3));
    for (mut started, command) in started.into_iter().zip(commands) {
        let ended = started.0.try_wait().expect("its state");
        assert!(ended.is_none(), "{command:?} ended");
    }
    let (run, took) = run(&["ps"]);
    println!("taskdiag ps: {took:?}");
    assert!(took < Duration::from_secs(3) + margin(), "{took:?}");
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("--patience"), "{}", run.stderr);
    // What keeps running tells it, too.
    for args in [&["watch", "-n", "1"][..], &["top", "-b", "-n", "1"]] {
        let (run, _) = self::run(args);
        assert!(
            run.code == Some(1) && run.stderr.contains("no answer from pid"),
            "{args:?}: {}",
            run.stderr
        );
    }
    // A recording is of the past.
    let recording = common::Recording::new("holds");
    let (recorded, _) = self::run(&["record", "--dir", recording.path(), "-n", "1"]);
    let (past, _) = self::run(&["top", "-b", "--history", recording.path()]);
    assert!(past.stderr.contains("no answer from pid"), "{recorded:?} {past:?}");
    assert!(past.stderr.contains("when it was recorded"), "{past:?}");
    // The holder is not below that process.
    let other = common::Sleeper::new("another");
    self::run(&["tree", &other.pid()]).0.complete();
}

/// Check that a process that does not answer is not reported if the filter leaves it out.
#[test]
fn holders_that_a_filter_leaves_out_are_not_reported() {
    let _turn = run_first();
    let holders = holders(1);
    let (all, _) = run(&["ps"]);
    assert!(
        all.stderr.contains(&format!("pid {}", holders[0].pid)),
        "{}",
        all.stderr
    );
    let (none, _) = run(&["ps", "--where", "unit == 'nosuch'"]);
    assert_eq!((none.code, none.stderr.as_str()), (Some(0), ""));
}

/// Check that each source ends in time with status 1, reports the processes that do not answer, and
/// has all other processes.
#[test]
fn each_way_to_ask_ends_in_time() {
    let _turn = run_first();
    let farm = Farm::start(FARM, 1).expect("a farm");
    let holders = holders(2);
    for source in ["auto", "bpf", "procfs"] {
        for fields in ["pid,cmdline", "pid,comm,cmdline,environ", "pid,args"] {
            // Patience does not include the time for loading, nor that of a busy machine.
            let (loading, base) = run(&[
                "ps",
                "--source",
                source,
                "-o",
                "pid,comm,uid",
                "--json",
                "--patience",
                "5",
            ]);
            assert_eq!(loading.code, Some(0), "{}", loading.stderr);
            let patience = PATIENCE.as_secs_f64().to_string();
            let args = [
                "ps",
                "--source",
                source,
                "-o",
                fields,
                "--json",
                "--patience",
                &patience,
            ];
            let (run, took) = run(&args);
            println!("{source} {fields}: {took:?}, without what waits {base:?}");
            assert!(took < PATIENCE + margin() + base, "{args:?}: {took:?}");
            assert_eq!(run.code, Some(1), "{args:?}: {}", run.stderr);
            assert!(!run.stderr.is_empty());
            let document = run.json();
            let rows = document["rows"].as_array().expect("rows");
            let row = |pid: i32| {
                let row = rows.iter().find(|row| row["pid"] == pid);
                row.unwrap_or_else(|| panic!("{args:?}: {pid} is missing"))
            };
            for holder in &holders {
                let row = row(holder.pid);
                assert_eq!(row["absent"]["cmdline"], "no answer", "{args:?}: {row}");
                assert!(row.get("cmdline").is_none(), "{args:?}: {row}");
            }
            for (index, &pid) in farm.pids().iter().enumerate() {
                let row = row(pid);
                assert_eq!(row["cmdline"][3], format!("{index:07}"), "{args:?}: {row}");
            }
            let counted = document["counters"]["no_answer"].as_u64().expect("a count");
            assert!(counted >= holders.len() as u64, "{args:?}: {counted}");
        }
    }
}

/// Check that `mem` ends at its deadline, and reports the processes without sizes.
#[test]
fn mem_ends_at_its_deadline() {
    let _turn = run_first();
    let holders = holders(2);
    let (run, took) = run(&["mem", "--deadline", "1.5", "--json"]);
    println!("{took:?}");
    assert!(took < Duration::from_millis(1500) + 2 * margin(), "{took:?}");
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let document = run.json();
    for holder in &holders {
        let rows = document["rows"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["pid"] == holder.pid);
        let row = row.unwrap_or_else(|| panic!("{} is missing", holder.pid));
        assert!(row.get("pss_bytes").is_none(), "{row}");
        assert!(row["absent"]["pss_bytes"].is_string(), "{row}");
    }
}

/// Check that tasks are reported as left out if they can't be compared because they do not answer.
#[test]
fn filters_say_whom_they_could_not_decide() {
    let _turn = run_first();
    let _holders = holders(1);
    for source in ["bpf", "procfs"] {
        let (run, _) = run(&[
            "ps",
            "--source",
            source,
            "--json",
            "--where",
            "cmdline ~ 'no such text'",
        ]);
        assert_eq!(run.code, Some(1), "{source}: {}", run.stderr);
        assert!(!run.stderr.is_empty(), "{source}");
        assert!(
            run.json()["counters"]["undecided"].as_u64() >= Some(1),
            "{source}: {run:?}"
        );
    }
}

/// Check that the other commands also end.
#[test]
fn other_commands_end() {
    let _turn = run_first();
    let holders = holders(1);
    let pid = holders[0].pid.to_string();
    let all = [
        &["tree"][..],
        &["ps", "-T", "-o", "tid,cmdline"],
        &["ps", "-p", &pid],
        &["ps", "--where", "cmdline ~ 'farm'"],
        &["ps", "--sort", "cmdline"],
        &["watch", "-o", "pid,cmdline", "--count", "2", "--watch", "0.3"],
    ];
    // They wait at the same time.
    let runs = std::thread::scope(|scope| {
        let started = all.map(|args| scope.spawn(move || run(args)));
        started.map(|run| run.join().expect("no panic"))
    });
    for (args, (run, took)) in all.into_iter().zip(runs) {
        println!("{args:?}: {took:?}, {:?}", run.code);
        assert!(took < Duration::from_secs(4) + margin(), "{args:?}: {took:?}");
        assert!(
            matches!(run.code, Some(0 | 1)),
            "{args:?}: {:?} {}",
            run.code,
            run.stderr
        );
    }
}

/// Check that a silent user database does not block the command: it shows numbers instead of names
/// and reports this. A name service cache daemon (nscd) that only accepts connections is such a
/// database: the C library waits five seconds for it.
#[test]
fn a_silent_user_database_holds_nobody() {
    let _turn = run_first();
    let directory = std::env::temp_dir().join(format!("taskdiag-nscd-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a directory");
    let _listener = UnixListener::bind(directory.join("socket")).expect("a socket");
    let script =
        "mount -t tmpfs tmpfs /run && mkdir /run/nscd && mount --bind \"$1\" /run/nscd && shift && exec \"$@\"";
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "sh", "-c", script, "sh"]).arg(&directory);
    let pid = std::process::id().to_string();
    let ps = ["ps", "-p", &pid, "-o", "pid,ruser"];
    let begin = Instant::now();
    let output = inside.arg(env!("CARGO_BIN_EXE_taskdiag")).args(ps).output();
    let run = Run::new(output.expect("util-linux has unshare"));
    let took = begin.elapsed();
    std::fs::remove_dir_all(&directory).expect("it is ours");
    assert!(run.stderr.contains("user database"), "{run:?}");
    assert!(
        String::from_utf8_lossy(&run.stdout)
            .lines()
            .nth(1)
            .is_some_and(|line| line.ends_with(" 0")),
        "{run:?}"
    );
    assert!(took < Duration::from_millis(4500), "{took:?}");
}

/// Check that every command that looks at processes ends beside one that holds its memory lock.
#[test]
fn every_command_ends() {
    let _turn = run_first();
    let holder = holders(1);
    let pid = holder[0].pid.to_string();
    let lines = [
        "maps -x PID",
        "maps --build-id PID",
        "maps --all --limit 1",
        "files --use all PID",
        "files --deleted",
        "files --path /bin/sleep",
        "cache --of-process PID",
        "cache --top 2",
        "cache --by user",
        "normalize PID 0x200000000010",
        "sockets -p PID",
        "net -p PID -d 0.1 -n 1",
        "mem -p PID",
        "mem --system",
        "ps -p PID -o all",
        "watch -p PID -n 2 -d 0.1 -o all",
        "pgrep -f nosuch",
        "top -b -n 1 -p PID -o pid,pss_bytes,cmdline",
    ];
    // Some at a time: they wait, and use little of the processors.
    for lines in lines.chunks(3) {
        let started: Vec<Killed> = lines
            .iter()
            .map(|line| {
                let line = line.replace("PID", &pid);
                let mut command = common::command(&line.split(' ').collect::<Vec<_>>());
                command.env_remove("TASKDIAG_PATIENCE");
                let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
                Killed(child.expect("the binary runs"))
            })
            .collect();
        let until = Instant::now() + Duration::from_secs(4) + margin();
        for (mut child, line) in started.into_iter().zip(lines) {
            assert!(ends_until(&mut child.0, until), "{line}");
        }
    }
}

/// Check that the page of a process is complete in time and lists what did not answer: for a
/// process that holds its memory lock, one whose mount does not answer, and one that holds a socket
/// lock.
#[test]
fn pages_say_what_does_not_answer() {
    let _turn = run_first();
    let zoo = Zoo::new().expect("a zoo");
    for (species, section) in [
        ("holds-lock", Some("mappings")),
        ("deaf-mount", None),
        ("holds-socket", None),
    ] {
        let animal = zoo.start(species).expect("an animal");
        let pid = animal.pid.to_string();
        for source in ["auto", "procfs"] {
            let (run, took) = run(&["inspect", &pid, "--json", "--source", source]);
            println!("{species} {source}: {took:?}, {:?}", run.code);
            assert!(took < Duration::from_secs(6) + 4 * margin(), "{species}: {took:?}");
            let page = run.json()["rows"][0].clone();
            assert_eq!(page["process"]["pid"], animal.pid, "{species}");
            assert!(
                page["threads"].is_array() && page["files"].is_array(),
                "{species}: {page}"
            );
            if let Some(section) = section {
                assert_eq!(run.code, Some(1), "{species}: {}", run.stderr);
                assert!(run.stderr.contains("no answer"), "{species}: {}", run.stderr);
                assert_eq!(page["absent"][section], "no answer", "{species}: {page}");
                assert_eq!(page["process"]["absent"]["cmdline"], "no answer", "{species}: {page}");
            }
        }
    }
}
