//! How commands behave on terminals of any size, and without a terminal.

mod common;

use std::process::Command;

use common::{command, run, run_on_terminal, Recording, Sleeper};
use unicode_width::UnicodeWidthStr;

/// The commands that write tables, with arguments that keep the tables short.
fn tables(pid: &str) -> Vec<Vec<String>> {
    let only = format!("pid == {pid}");
    let lists: [&[&str]; 24] = [
        &["ps", "--where", &only],
        &["ps", "-p", pid],
        &["ps", "u", pid],
        &["ps", "-efl", "--forest"],
        &["ps", "-o", "pid,comm,cmdline,exe,environ", "-p", pid],
        &["tree", pid],
        &["tree", "-o", "uid,rss_bytes,cgroup", pid],
        &["watch", "-n", "1", "-p", pid],
        &["watch", "-n", "1", "-p", pid, "-o", "cmdline,cpu_percent,pid"],
        &["mem", "-p", pid],
        &["mem", "--by", "program", "--limit", "3"],
        &["mem", "--by", "cgroup", "--limit", "3"],
        &["mem", "--total"],
        &["mem", "--system"],
        &["maps", pid],
        &["maps", "-x", "--build-id", pid],
        &["maps", "-o", "all", pid],
        &["normalize", pid, "0x1000", "0xffffffffff600000"],
        &["normalize", pid, "0x1000", "-o", "all"],
        &["cache", "--top", "3"],
        &["cache", "/etc/passwd", "/proc/self/exe"],
        &["fields"],
        &["fields", "-o", "all"],
        &["doctor"],
    ];
    lists
        .iter()
        .map(|list| list.iter().map(|&word| word.to_owned()).collect())
        .collect()
}

/// Text without control sequences.
fn visible(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, sequence)) = rest.split_once("\x1b[") {
        out.push_str(before);
        rest = sequence.trim_start_matches(|character: char| !character.is_ascii_alphabetic());
        rest = &rest[1..];
    }
    out + rest
}

/// Check that a narrow table of sockets keeps both ends, and that a process in the place of a user is told.
#[test]
fn addresses_stay_on_narrow_terminals() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port().to_string();
    for columns in [40, 50, 80] {
        let text = visible(&run_on_terminal(&mut command(&["sockets", "--port", &port]), columns, 24).text());
        assert!(
            text.contains("LOCAL") && text.contains("PEER") && text.contains(&format!(":{port} ")),
            "{text}"
        );
    }
    let pid = std::process::id().to_string();
    let run = run_on_terminal(&mut command(&["sockets", "-u", &pid]), 80, 24);
    let said = format!("-p {pid} chooses the process");
    assert!(format!("{run:?}").contains(&said), "{run:?}");
}

/// Check that the space that deleted files hold stays on narrow terminals, and their names.
#[test]
fn held_space_stays_on_narrow_terminals() {
    let path = std::env::temp_dir().join(format!("taskdiag-held-{}", std::process::id()));
    let file = std::fs::File::create(&path).expect("a file");
    std::fs::remove_file(&path).expect("it is ours");
    let pid = std::process::id().to_string();
    for columns in [32, 40, 60, 120] {
        let run = run_on_terminal(&mut command(&["files", "--deleted", "-p", &pid]), columns, 24);
        let text = visible(&run.text());
        let heading = text.lines().next().expect("a heading");
        assert!(
            heading.contains(" HELD ") && heading.contains("NAME"),
            "{columns}: {text}"
        );
    }
    drop(file);
}

fn sleeper() -> Sleeper {
    Sleeper::new("a long name of a process with wide characters 日本語日本語日本語日本語 and\nmore")
}

/// Check that no line of a table is longer than the terminal, at any width, and that there are
/// lines.
#[test]
fn tables_fit_every_terminal() {
    let sleeper = sleeper();
    for args in tables(&sleeper.pid()) {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        for columns in [2, 7, 20, 40, 59, 80, 132, 300] {
            let run = run_on_terminal(&mut command(&args), columns, 50);
            assert!(matches!(run.code, Some(0 | 1)), "{args:?}: {run:?}");
            let text = visible(&run.text());
            assert!(text.lines().count() > 1, "{args:?} at {columns}: {text}");
            for line in text.lines() {
                assert!(line.width() <= columns.into(), "{args:?} at {columns}: {line:?}");
            }
        }
    }
}

/// Check that texts without columns fit, too, and that names stay whole beside text that wraps.
#[test]
fn texts_fit_terminals() {
    let recording = Recording::new("terminal");
    let recorded = run(&["record", "--dir", recording.path(), "--every", "0.1", "-n", "2"]);
    assert!(matches!(recorded.code, Some(0 | 1)), "{recorded:?}");
    for args in [
        &["cache", "--map", "/etc/passwd"][..],
        &["history", "--verify", recording.path()],
    ] {
        for columns in [7, 20, 40, 80] {
            let text = run_on_terminal(&mut command(args), columns, 50).text();
            for line in visible(&text).lines() {
                assert!(line.width() <= columns.into(), "{args:?} at {columns}: {line:?}");
            }
        }
    }
    let text = visible(&run_on_terminal(&mut command(&["mem", "--system"]), 50, 50).text());
    for name in ["hugetlb used", "hugetlb free", "kernel stacks"] {
        assert!(text.contains(name), "{text}");
    }
}

/// Check that events, whose rows arrive one by one, also fit.
#[test]
fn events_fit_every_terminal() {
    for columns in [12, 40, 80] {
        let _busy = Sleeper::run(Command::new("sh").args(["-c", "while :; do /bin/true; sleep 0.01; done"]));
        let run = run_on_terminal(&mut command(&["events", "-n", "20", "--for", "60"]), columns, 24);
        let text = visible(&run.text());
        assert_eq!(text.lines().count(), 21, "{text}");
        for line in text.lines() {
            assert!(line.width() <= columns.into(), "at {columns}: {line:?}");
        }
    }
}

/// Check that a terminal without a known size counts as 80 by 24, and that an ellipsis marks cut
/// text.
#[test]
fn a_terminal_without_size_is_a_usual_one() {
    let sleeper = sleeper();
    let args = ["ps", "-p", &sleeper.pid(), "-o", "start_ns,cmdline"];
    let usual = run_on_terminal(&mut command(&args), 80, 24).text();
    assert_eq!(run_on_terminal(&mut command(&args), 0, 0).text(), usual);
    let last = visible(&usual);
    let last = last.lines().last().expect("a row");
    assert!(last.width() <= 80 && last.ends_with('…'), "{last:?}");
    let samples = ["watch", "-n", "1", "-T", "--sort", "tid", "-o", "tid"];
    let text = run_on_terminal(&mut command(&samples), 0, 0).text();
    let lines = visible(&text).lines().count();
    assert!((2..=23).contains(&lines), "{lines}: {text}");
    // Without UTF-8, the mark is a plus.
    let ascii = run_on_terminal(command(&args).env("LC_ALL", "C"), 80, 24).text();
    assert!(visible(&ascii).trim_end().ends_with('+'), "{ascii}");
}

/// Check that nothing is cut, left out or coloured if the output is not a terminal.
#[test]
fn pipes_get_everything() {
    let sleeper = sleeper();
    let text = run(&["ps", "-p", &sleeper.pid(), "-o", "all"]).text();
    assert!(!text.contains('\x1b') && !text.contains('…'), "{text}");
    let heading: Vec<&str> = text.lines().next().expect("a heading").split_whitespace().collect();
    assert!(heading.len() > 80, "{heading:?}");
    assert!(text.contains("and\\nmore 1000"), "{text}");
}

/// Check when colours are used: on terminals, unless NO_COLOR or --color says otherwise; never in
/// JSON and CSV.
#[test]
fn colours_are_for_terminals() {
    let sleeper = sleeper();
    let pid = sleeper.pid();
    let args = ["ps", "-p", &pid];
    let on_terminal = |args: &[&str], variable: &str, value: &str| {
        let mut command = command(args);
        command.env_remove("NO_COLOR").env("TERM", "xterm").env(variable, value);
        run_on_terminal(&mut command, 80, 24).text().contains("\x1b[1m")
    };
    assert!(on_terminal(&args, "NO_COLOR", ""));
    assert!(!on_terminal(&args, "NO_COLOR", "1"));
    assert!(!on_terminal(&args, "TERM", "dumb"));
    assert!(on_terminal(&["--color", "always", "ps", "-p", &pid], "NO_COLOR", "1"));
    assert!(!on_terminal(&["ps", "-p", &pid, "--color=never"], "TERM", "xterm"));
    assert!(!on_terminal(&["ps", "-p", &pid, "--json"], "TERM", "xterm"));
    let piped = run(&["ps", "-p", &pid, "--color", "always"]).text();
    assert!(piped.contains("\x1b[1m"), "{piped}");
    // Colours are the only difference.
    assert_eq!(visible(&piped), run(&["ps", "-p", &pid]).text());
    for format in ["--json", "--jsonl", "--csv"] {
        let text = run(&["fields", format, "--color", "always"]).text();
        assert!(!text.contains('\x1b'), "{format}");
    }
}
