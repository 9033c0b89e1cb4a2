//! The name ps, and invalid arguments.

use std::process::Command;

use crate::beside::{animals, by_pid, lines, ours};
use crate::common::{run_on_terminal, Run};

/// Check that the command behaves like ps if it is called ps.
#[test]
fn a_link_called_ps_is_ps() {
    let directory = std::env::temp_dir().join(format!("taskdiag-ps-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let link = directory.join("ps");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_taskdiag"), &link).expect("a link");
    let run = |program: &std::path::Path, args: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(args)
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .env_remove("COLUMNS");
        Run::new(command.output().expect("it runs"))
    };
    for args in [
        &[][..],
        &["-f"],
        &["u"],
        &["x"],
        &["-p", "99999999"],
        &["-p", "1,99999999"],
        &["-h", "-p", "1"],
        &["-p", "1", "-h", "-o", "pid"],
        &["-ho", "pid", "-p", "1"],
        &["-p", "1", "--noheadings"],
        &["-p", "1", "--headings"],
    ] {
        let (theirs, mine) = (run("/usr/bin/ps".as_ref(), args), run(&link, args));
        assert_eq!((mine.code, mine.stderr.as_str()), (theirs.code, ""), "{args:?}");
        assert_eq!(lines(&mine).first(), lines(&theirs).first(), "{args:?}");
    }
    // On a terminal, too: plain, and nothing is cut but the last column.
    for args in [
        "-o pid,ppid,pgid,sid,tpgid,uid,gid,egid,lstart,bsdstart,time,cputimes -p 1",
        "-o pid,args,args -p 1",
        "-fp 1",
        "u 1",
    ] {
        let on_terminal = |program: &std::path::Path| {
            let mut command = Command::new(program);
            let command = command.args(args.split(' ')).env("TERM", "xterm").env_remove("COLUMNS");
            run_on_terminal(command, 80, 24).text()
        };
        let (theirs, mine) = (on_terminal("/usr/bin/ps".as_ref()), on_terminal(&link));
        let wide = |text: &str| text.lines().map(|line| line.trim_end().len()).collect::<Vec<_>>();
        assert!(!mine.contains('\x1b'), "{mine:?}");
        assert_eq!(wide(&mine), wide(&theirs), "{args}:\n{mine}{theirs}");
    }
    let animals = animals();
    for args in [
        &["-o", "pid="][..],
        &["x", "-o", "pid="],
        &["-N", "-o", "pid="],
        &["r", "-o", "pid="],
    ] {
        let chosen = |run: &Run| -> Vec<u32> { by_pid(run).into_keys().filter(|pid| animals.contains(pid)).collect() };
        let (theirs, mine) = (run("/usr/bin/ps".as_ref(), args), run(&link, args));
        assert_eq!(chosen(&mine), chosen(&theirs), "{args:?}");
    }
    let version = lines(&run(&link, &["-V"]));
    assert!(version[0].starts_with("ps from taskdiag "), "{version:?}");
    std::fs::remove_dir_all(&directory).expect("it is ours");
}

/// Check that a message names arguments which ps or taskdiag does not know, and that there is no
/// answer then.
#[test]
fn what_is_not_understood_is_said() {
    for (options, said) in [
        ("-o nosuch", "nosuch"),
        ("-eo pid,nosuch", "nosuch"),
        ("-e -Q", "-Q"),
        ("axQ", "Q"),
        ("-p x", "\"x\""),
        ("-p 0", "\"0\""),
        ("-u nosuchuser", "nosuchuser"),
        ("-G nosuchgroup", "nosuchgroup"),
        ("-t nosuchtty", "nosuchtty"),
        ("--sort nosuch", "nosuch"),
        ("axkpid,nosuch", "nosuch"),
        ("-e --nosuch", "--nosuch"),
        ("--cols x", "\"x\""),
        ("--cols 0", "\"0\""),
        ("-y", "-y"),
        ("-f u", "-f"),
        ("u -o pid", "u"),
        ("-eLf --forest", "forest"),
        ("-o", "-o"),
        ("-p", "-p"),
        ("-", "-"),
        ("-o pid: -e", "pid:"),
        ("-o pid,,comm", "pid,,comm"),
        ("-e --pid", "--pid"),
        ("-e --forest=x", "--forest"),
        ("-q 1 -q 2", "-q"),
        ("-em --json", "-L"),
        ("aux --watch 1", "-o"),
    ] {
        let args: Vec<&str> = options.split(' ').collect();
        let run = ours(&args);
        assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{options}: {run:?}");
        assert!(run.stderr.contains(said), "{options}: {}", run.stderr);
    }
}
