//! The selected processes, and their order.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};

use crate::beside::{animals, by_pid, family, fixtures, is_answered, lines, list, ours, ps, stat, zoo};
use crate::common::{Run, Sleeper};

/// Check that options select the same processes as in ps.
#[test]
fn options_choose_the_same_processes() {
    let animal = zoo()
        .iter()
        .find(|animal| animal.name == "session-leader")
        .expect("an animal")
        .pid
        .to_string();
    let own = std::process::id().to_string();
    let quoted = format!("1,{animal} {own}");
    let mut selections: Vec<Vec<&str>> = [
        "-e",
        "-A",
        "-a",
        "-d",
        "-ad",
        "a",
        "x",
        "ax",
        "-ax",
        "-d -p 1",
        "a -p 1",
        "-C zoo",
        "-C nosuchname",
        "-C zoo,cat",
        "-u root",
        "-u 0,65534",
        "-U root",
        "-U nobody -u root",
        "U root",
        "-g root",
        "-g 0",
        "-G root",
        "-G 65534",
        "--group root",
        "--Group 0",
        "-t -",
        "-t ?",
        "t ?",
        "--tty=?",
        "--ppid 1",
        "--ppid 2",
        "-N -p 1",
        "--deselect -u root",
        "-N -e",
        "-aN",
        "-p 1 -p 2",
        "1 2",
        "p 1,2",
        "--pid=1 --user=nobody",
        "-p 1 -C zoo -N",
        "T",
        "T x",
        "g x",
    ]
    .iter()
    .map(|options| options.split(' ').collect())
    .collect();
    selections.push(vec!["-s", &animal]);
    selections.push(vec!["-g", &animal]);
    selections.push(vec!["--sid", &animal]);
    selections.push(vec!["--ppid", &own]);
    selections.push(vec!["-p", &quoted]);
    // Other processes come and go in between.
    let known: BTreeSet<u32> = animals().union(&fixtures()).copied().collect();
    let mut count = 0;
    for options in selections {
        // ps takes all words after an id as ids.
        let args = [&["-o", "pid="], &options[..]].concat();
        let chosen = |run: &Run| -> Vec<u32> { by_pid(run).into_keys().filter(|pid| known.contains(pid)).collect() };
        let (theirs, mine) = (ps(&args), ours(&args));
        assert!(mine.code.is_some_and(|code| code < 2), "{options:?}: {}", mine.stderr);
        let mine = chosen(&mine);
        assert_eq!(mine, chosen(&theirs), "{options:?}");
        count += mine.len();
    }
    assert!(count > 500, "{count}");
}

/// Check that the threads of a process are together, even if a thread's id is larger than the id of
/// another process.
#[test]
fn threads_are_in_the_order_of_their_processes() {
    zoo();
    let shown = lines(&ours(&["-eL", "-o", "pid=,tid="]));
    let ids: Vec<Vec<u32>> = shown
        .iter()
        .map(|line| line.split_whitespace().map(|id| id.parse().expect("an id")).collect())
        .collect();
    assert!(ids.is_sorted(), "{ids:?}");
    assert!(ids.iter().any(|ids| ids[0] != ids[1]));
}

/// Check that zombies, whose memory shows as 0, come first as in ps, and that a state is a single
/// letter.
#[test]
fn rows_are_in_the_order_of_ps() {
    let list = list(family());
    for keys in [
        "rss,pid",
        "-rss,pid",
        "vsz,pid",
        "%mem,pid",
        "sz,-pid",
        "drs,pid",
        "stat,pid",
        "-stat,-pid",
    ] {
        let args = ["-o", "pid=", "--sort", keys, "-p", &list];
        let (theirs, mine) = (ps(&args), ours(&args));
        assert!(is_answered(&mine), "{keys}: {}", mine.stderr);
        let (theirs, mine) = (lines(&theirs), lines(&mine));
        assert!(mine.len() > 40, "{}", mine.len());
        assert_eq!(mine, theirs, "{keys}");
    }
    // ps sorts by another size than the one it shows.
    let sizes = lines(&ours(&["-o", "size=", "--sort", "size", "-p", &list]));
    let sizes: Vec<u64> = sizes.iter().map(|size| size.trim().parse().expect("a size")).collect();
    assert!(sizes.is_sorted() && sizes[0] == 0 && sizes.len() > 40, "{sizes:?}");
    // In JSON and CSV, zombies have no value, and come last.
    let options = "-p 1,2 -o rss_bytes --sort rss_bytes --csv --no-header";
    let csv = ours(&options.split(' ').collect::<Vec<_>>());
    assert!(lines(&csv)[0].parse().is_ok_and(|bytes: u64| bytes > 0), "{csv:?}");
}

/// Check that a number means a pseudoterminal, although consoles have such numbers, too.
#[test]
fn numbers_are_those_of_pseudoterminals() {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    let path = ptsname(&terminal, Vec::new()).expect("a name");
    let path = path.to_str().expect("a path");
    let number = path.strip_prefix("/dev/pts/").expect("a pseudoterminal");
    grantpt(&terminal).expect("it is ours");
    unlockpt(&terminal).expect("it is ours");
    let script = "exec setsid --ctty sleep 1000 < \"$0\"";
    let sleeper = Sleeper::run(Command::new("sh").args(["-c", script, path]));
    let pid: u32 = sleeper.pid().parse().expect("a number");
    while stat(pid)[4] == "0" {
        std::thread::sleep(Duration::from_millis(1));
    }
    for args in [
        &["-t", number, "-o", "pid="][..],
        &[&format!("t{number}"), "-o", "pid="],
    ] {
        let (theirs, mine) = (ps(args), ours(args));
        assert_eq!(
            lines(&theirs),
            [format!("{pid:>width$}", width = lines(&theirs)[0].len())]
        );
        assert_eq!(lines(&mine), lines(&theirs), "{args:?}");
    }
}

/// Check that the exit status says whether a process was found, as in ps.
#[test]
fn the_status_says_whether_there_was_one() {
    for (options, code) in [
        ("-C nosuchname", 1),
        ("-p 1", 0),
        ("-u 4000000000", 1),
        ("1", 0),
        ("-e", 0),
    ] {
        let args: Vec<&str> = options.split(' ').collect();
        assert_eq!(ps(&args).code, Some(code), "{options}");
        assert_eq!(ours(&args).code, Some(code), "{options}");
    }
}
