//! `--proc` and HOST_PROC: another procfs than `/proc`.

mod common;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{command, in_container, run, Recording, Run, Sleeper};
use serde_json::Value;
use taskdiag_testkit::child::{self, World};
use taskdiag_testkit::temporary::{Directory, Killed};

const PROGRAM: &str = env!("CARGO_BIN_EXE_taskdiag");

/// Runs taskdiag in a container that has the host's procfs.
fn run_inside(proc: &Directory, args: &[&str]) -> Run {
    let output = in_container(proc)
        .arg(PROGRAM)
        .args(args)
        .env("HOST_PROC", &**proc)
        .output();
    Run::new(output.expect("util-linux has unshare"))
}

/// What is said about ids that are those of the host.
fn outer(proc: &Directory) -> String {
    let path = proc.display();
    format!(
        "the ids in {path} are those of an outer pid namespace: share the pid namespace of the host (--pid=host, \
         hostPID: true)"
    )
}

/// A process with open files and sockets.
fn sleeper(name: &str) -> Sleeper {
    let (ours, others) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let mut command = Command::new("sleep");
    let keep = move || {
        for end in [&ours, &others] {
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: only a system call is made between fork and exec.
    unsafe { command.arg0(name).pre_exec(keep) };
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Sleeper::start(&mut command)
}

/// Check that every value of a process of the host is the same in a container, and that all
/// commands print the same about it.
#[test]
fn a_container_reads_the_processes_of_its_host() {
    let proc = Directory::new("proc-values");
    let name = format!("host's-{}", std::process::id());
    let sleeper = sleeper(&name);
    let pid = &sleeper.pid()[..];
    let row = |run: Run| {
        let mut row = run.json()["rows"][0].clone();
        // What depends on the time, and the count of signals, which is that of the user.
        for name in ["cpu_percent", "elapsed_ns", "sig_queued_count"] {
            assert!(row.as_object_mut().expect("a row").remove(name).is_some(), "{name}");
        }
        row
    };
    let all = ["ps", "-p", pid, "--json", "-o", "all", "--source", "procfs"];
    let here = row(run(&all));
    assert!(here.as_object().is_some_and(|row| row.len() > 100), "{here}");
    assert_eq!(row(run_inside(&proc, &all)), here);
    let by_id = format!("pid == {pid}");
    for args in [
        &["ps", "-p", pid, "-o", "pid,comm"][..],
        &["ps", "--where", &by_id],
        &["ps", "--threads", "--where", &by_id, "-o", "tid,comm,start_ns"],
        &["tree", pid],
        &["pgrep", "-x", "-f", &format!("{name} 1000")],
        &["files", pid],
        &[
            "files",
            pid,
            "--json",
            "-o",
            "use,fd,kind,open_flags,offset_bytes,mnt_id,inode,name,detail",
        ],
        &["maps", pid],
        &["sockets", "-p", pid, "--source", "procfs"],
        &["cache", "--of-process", pid, "-o", "size_bytes,path"],
        &["cache", "--by", "program,user", "--of-process", pid],
        &["mem", "-p", pid, "-o", "pid,rss_bytes"],
        &["ps", "-p", "1,4000000000", "-o", "pid"],
    ] {
        let rows = |run: Run| {
            let json = args.contains(&"--json").then(|| run.json()["rows"].clone());
            let stderr = run.stderr.clone();
            (run.code, json.is_none().then(|| run.text()), stderr, json)
        };
        let here = rows(run(&[args, &["--proc", "/proc"]].concat()));
        assert!(here.1 != Some(String::new()) && here.3 != Some(Value::Null), "{args:?}");
        assert_eq!(rows(run_inside(&proc, args)), here, "{args:?}");
    }
    let page = |run: Run| {
        let text = run.complete();
        let lines = ["comm", "cmdline", "start_time", "rss_bytes", "uts", "nofile"].map(|key| {
            let lines = text.lines().filter(|line| line.trim_start().starts_with(key));
            lines.map(str::to_owned).collect::<Vec<_>>()
        });
        assert!(lines.iter().all(|lines| !lines.is_empty()), "{lines:?} of {text}");
        lines
    };
    assert_eq!(page(run_inside(&proc, &["inspect", pid])), page(run(&["inspect", pid])));
}

/// Check that a recording made in a container has the processes of the host.
#[test]
fn a_container_records_its_host() {
    let (proc, recording) = (Directory::new("proc-record"), Recording::new("proc-record"));
    let sleeper = Sleeper::new("recorded");
    let pid = &sleeper.pid()[..];
    let run_of = run_inside(&proc, &["record", "--dir", recording.path(), "-n", "1"]);
    assert!(
        run_of.code == Some(0) && run_of.stderr.contains(&outer(&proc)),
        "{run_of:?}"
    );
    let fields = ["-p", pid, "-o", "pid,ppid,cmdline,start_ns"];
    let then = run(&[&["ps", "--history", recording.path()], &fields[..]].concat()).complete();
    assert_eq!(then, run(&[&["ps"], &fields[..]].concat()).complete());
}

/// Check that a command finds itself: a filter does not find the command that has it.
#[test]
fn a_command_in_a_container_finds_itself() {
    let proc = Directory::new("proc-self");
    let filter = format!("cmdline ~ 'self-of-{}'", std::process::id());
    let found = run_inside(&proc, &["ps", "--where", &filter, "-o", "comm", "--no-header"]);
    assert_eq!(found.complete().trim(), "unshare");
    let own = ["pgrep", "-s", "0", "-x", "taskdiag"];
    let mut command = in_container(&proc);
    let output = command
        .arg("setsid")
        .arg(PROGRAM)
        .args(own)
        .env("HOST_PROC", &*proc)
        .output();
    assert_eq!(
        Run::new(output.expect("it runs")).code,
        Some(1),
        "its session has only itself"
    );
}

/// Check that files about the machine are read from the same procfs.
#[test]
fn the_machine_is_that_of_the_procfs() {
    let proc = Directory::new("proc-machine");
    let file = Directory::new("proc-meminfo");
    let script = r#"mount --bind "$0" "$HOST_PROC/meminfo" && exec "$@""#;
    let run_with = |text: &str| {
        fs::write(file.join("meminfo"), text).expect("room");
        let mut command = in_container(&proc);
        command.args(["sh", "-c", script]).arg(file.join("meminfo"));
        let command = command.args([PROGRAM, "mem", "--system", "--json"]);
        Run::new(command.env("HOST_PROC", &*proc).output().expect("it runs"))
    };
    let run = run_with("MemTotal: 77 kB\nMemFree: 7 kB\n");
    assert!(run.json().to_string().contains("78848"), "{run:?}");
    // An error names the file.
    let run = run_with("MemFree: 7 kB\n");
    let named = format!("{} has no MemTotal", proc.join("meminfo").display());
    assert!(run.stderr.contains(&named), "{run:?}");
}

/// Check that what needs ids of the caller's own namespace is refused, with what to do.
#[test]
fn ids_of_the_host_are_no_arguments() {
    let proc = Directory::new("proc-ids");
    let sleeper = Sleeper::new("unharmed");
    for (args, what) in [
        (&["events"][..], "events can't be read"),
        (&["pkill", "-x", "no-such-name"], "signals can't be sent"),
        (&["pkill", "--count", "-x", "no-such-name"], "signals can't be sent"),
        (&["ps", "--source", "bpf"], "bpf can't answer"),
        (&["ps", "--source", "broker"], "broker can't answer"),
        (&["files", "--source", "bpf", "1"], "bpf can't answer"),
        (&["sockets", "--source", "broker"], "broker can't answer"),
        (&["maps", "--source", "bpf", "1"], "bpf can't answer"),
    ] {
        let run = run_inside(&proc, args);
        assert_eq!(run.stderr, format!("taskdiag: {what}: {}\n", outer(&proc)), "{args:?}");
        assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{args:?}");
    }
    let pid = sleeper.pid();
    let doctor = run_inside(&proc, &["doctor"]).complete();
    assert_eq!(
        doctor.matches("are those of an outer pid namespace").count(),
        5,
        "{doctor}"
    );
    let dry = run_inside(&proc, &["pkill", "--dry-run", "-x", "-f", "unharmed 1000"]).complete();
    assert!(dry.contains(&pid), "{dry}");
}

/// Check that where `/proc` is that of an outer namespace, nothing is said to be found or not that only
/// `/proc` knows, and that a process is compared with this command.
#[test]
fn the_usual_procfs_may_be_outer() {
    let run_in = |args: &[&str]| {
        let world = World {
            pid_namespace: true,
            ..World::default()
        };
        Run::new(child::in_world(&mut command(args), world).output().expect("it runs"))
    };
    for (args, what) in [
        (&["pgrep", "-f", "no such line"][..], "command lines"),
        (&["pgrep", "-a", "taskdiag"], "command lines"),
        (&["pkill", "-0", "-f", "no such line"], "command lines"),
        (&["pgrep", "--env", "NO_SUCH=1", "."], "environments"),
    ] {
        let run = run_in(args);
        let said = format!("{what}: /proc shows an outer pid namespace, whose ids are not the caller's: mount one");
        assert!(run.code == Some(3) && run.stderr.contains(&said), "{args:?}: {run:?}");
    }
    // It leaves out itself.
    assert_eq!(run_in(&["pgrep", "."]).code, Some(1));
    let run = run_in(&["inspect", "1", "--json"]);
    let said = "/proc shows another pid namespace than the caller's: mount it";
    assert!(run.code == Some(1) && run.stderr.contains(said), "{run:?}");
    let page = &run.json()["rows"][0];
    let namespaces = page["namespaces"].as_array().expect("a list");
    assert!(
        !namespaces.is_empty() && namespaces.iter().all(|one| one["own"] == true),
        "{page}"
    );
    let limits = page["limits"].as_array().expect("a list");
    let nproc = limits.iter().find(|limit| limit["limit"] == "nproc").expect("a limit");
    assert_eq!(nproc["absent"]["used"], "unsupported");
}

/// Check that where `/proc` is not mounted, all is read from the procfs that is given, with the same
/// answers.
#[test]
fn one_procfs_suffices() {
    let proc = Directory::new("proc-elsewhere");
    let script = r#"mount --bind /proc "$HOST_PROC" && mount -t tmpfs none /proc && exec "$@""#;
    let run_with = |args: &[&str], proc: &Path| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh", PROGRAM]).args(args);
        Run::new(command.env("HOST_PROC", proc).output().expect("util-linux has unshare"))
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port().to_string();
    let own = &std::process::id().to_string()[..];
    let sleeper = sleeper("elsewhere");
    let pid = &sleeper.pid()[..];
    for args in [
        &["ps", "-p", pid, "-o", "comm,exe,cgroup,unit,tty,ns_net"][..],
        &["files", pid, "-o", "use,fd,kind,inode,name,detail,peers"],
        &["files", pid, "-o", "fd,name", "--source", "procfs"],
        &["files", "--path", "/bin/sleep", "-p", pid, "-o", "use,name"],
        &["cache", "--of-process", pid],
        &["cache", "--by", "program,user", "--of-process", pid],
        &["sockets", "--port", &port],
        &["sockets", own, "--raw", "-o", "protocol"],
        &["maps", pid, "--build-id"],
        &["inspect", pid, "--json"],
    ] {
        let answer = |run: Run| {
            let page = (args[0] == "inspect").then(|| {
                let page = &run.json()["rows"][0];
                let parts = ["cgroup", "files", "sockets", "absent"].map(|part| page[part].clone());
                (
                    parts,
                    page["cgroup_use"]["absent"].clone(),
                    page["rollup"]["absent"].clone(),
                )
            });
            let text = page
                .is_none()
                .then(|| String::from_utf8_lossy(&run.stdout).into_owned());
            (run.code, text, page, run.stderr)
        };
        let here = answer(run(args));
        assert_eq!(answer(run_with(args, &proc)), here, "{args:?}");
    }
    // Its figures depend on what others map.
    run_with(&["mem", "-p", pid], &proc).complete();
    let facts = |run: Run| {
        let rows = run.json()["rows"].as_array().expect("facts").clone();
        rows.into_iter()
            .map(|row| (row["fact"].clone(), row["verdict"].clone()))
            .collect::<Vec<_>>()
    };
    let doctor = &["doctor", "--json"][..];
    assert_eq!(facts(run_with(doctor, &proc)), facts(run(doctor)));
}

/// Check that a directory that is no procfs, or shows a namespace without this process, is an error
/// that names it.
#[test]
fn other_directories_are_refused() {
    let temporary = Directory::new("proc-wrong");
    let missing = temporary.join("missing");
    // The first line tells that /proc is mounted.
    let script = "echo; exec sleep 1000";
    let mut inner = Command::new("unshare");
    inner.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]);
    let mut inner = Killed(inner.stdout(Stdio::piped()).spawn().expect("unshare"));
    let mut line = [0];
    std::io::Read::read_exact(inner.0.stdout.as_mut().expect("a pipe"), &mut line).expect("a line");
    let inside = format!("/proc/{}/root/proc", inner.0.id());
    for (directory, why) in [
        (missing.to_str().expect("a path"), "No such file or directory"),
        (temporary.to_str().expect("a path"), "is not the kernel's procfs"),
        ("/proc/sys", "is no whole procfs, but a directory in one"),
        (&inside, "shows another pid namespace than the caller's"),
    ] {
        for (args, value) in [(&["ps", "--proc", directory][..], ""), (&["ps"], directory)] {
            let run = Run::new(command(args).env("HOST_PROC", value).output().expect("it runs"));
            assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{args:?} {value}");
            let option = if value.is_empty() { "--proc" } else { "HOST_PROC" };
            let is_said = run.stderr.starts_with(&format!("taskdiag: {option}: ")) && run.stderr.contains(directory);
            assert!(is_said && run.stderr.contains(why), "{run:?}");
            assert!(run.stderr.contains("/host/proc"), "it says what to do: {run:?}");
        }
    }
}

/// Check that the usual procfs changes nothing, wherever it is mounted, and that an empty variable
/// means none.
#[test]
fn the_same_namespace_changes_nothing() {
    let sleeper = Sleeper::new("here");
    let args = ["ps", "-p", &sleeper.pid(), "-o", "pid,ppid,comm", "--source", "bpf"];
    let usual = run(&args).complete();
    assert_eq!(run(&[&args[..], &["--proc", "/proc"]].concat()).complete(), usual);
    let empty = command(&args).env("HOST_PROC", "").output();
    assert_eq!(Run::new(empty.expect("it runs")).complete(), usual);
    let proc = Directory::new("proc-same");
    let script = r#"mount --bind /proc "$0" && exec "$@" --proc "$0""#;
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script])
        .arg(&*proc)
        .arg(PROGRAM)
        .args(args);
    assert_eq!(Run::new(command.output().expect("it runs")).complete(), usual);
}

/// Check that who has no file descriptor left is told so, and not that `/proc` is another one.
#[test]
fn descriptors_that_are_missing_are_told() {
    let script = "ulimit -n 4; exec \"$0\" sockets";
    let run = Command::new("sh")
        .args(["-c", script, PROGRAM])
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{said}");
    assert!(
        said.contains("/proc/self/status: Too many open files") && !said.contains("namespace"),
        "{said}"
    );
}
