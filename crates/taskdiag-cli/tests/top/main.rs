//! `taskdiag top` in a terminal.

#[path = "../common/mod.rs"]
mod common;
mod recordings;
mod terminal;

use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{copy_program, run, status, Sleeper};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{kill_process, Pid, Signal};
use rustix::pty::ptsname;
use rustix::termios::{tcgetattr, tcsetwinsize};
use taskdiag_testkit::cgroup::MemoryGroup;
use taskdiag_testkit::temporary::Directory;
use terminal::{text, top, winsize, Terminal, PATIENCE};

/// A directory for settings, which everybody can enter.
struct Settings(Directory);

impl Settings {
    fn new(name: &str) -> Settings {
        let directory = Directory::new(&format!("top-{name}"));
        fs::set_permissions(&*directory, fs::Permissions::from_mode(0o755)).expect("it is ours");
        Settings(directory)
    }

    /// The settings file.
    fn file(&self) -> PathBuf {
        self.0.join("taskdiag/top.conf")
    }
}

/// Check that the picture has a header and rows, that keys sort, that another size makes another
/// picture, and that the terminal is as it was in the end.
#[test]
fn pictures_are_sorted_and_resized() {
    let mut top = Terminal::top(&["-d", "0.2"]);
    top.wait_for("sorted by cpu_percent");
    // The last line.
    let picture = top.wait_for("quit");
    for word in ["load ", "processes ", "Mem[", "PID", "%CPU", "TREND", "COMMAND", "quit"] {
        assert!(picture.contains(word), "no {word} in\n{picture}");
    }
    assert!(top.parser.screen().alternate_screen() && top.parser.screen().hide_cursor());
    top.press("N");
    top.wait_for("sorted by pid, smallest first");
    // A picture arrives in pieces.
    top.wait_until("sorted ids", |picture| {
        let rows = picture.lines().skip_while(|line| !line.trim_start().starts_with("PID"));
        let pids: Vec<u32> = rows
            .flat_map(|row| row.split_whitespace().next()?.parse().ok())
            .collect();
        pids.len() > 2 && pids.is_sorted()
    });
    top.press("R");
    top.wait_for("sorted by pid, largest first");
    for (columns, rows) in [(40, 10), (300, 100), (80, 24)] {
        top.parser.screen_mut().set_size(rows, columns);
        tcsetwinsize(top.master.as_ref().expect("a terminal"), winsize(columns, rows)).expect("a size");
        let has_heading = |picture: &str| {
            picture
                .lines()
                .any(|line| line.contains("PID") && line.contains("COMMAND"))
        };
        top.wait_until("a heading", has_heading);
        top.press("?");
        top.wait_for("Keys of taskdiag top");
        top.press("q");
        top.wait_until("a heading", has_heading);
    }
    top.press("q");
    let (status, _) = top.end();
    assert_eq!(status.code(), Some(0));
}

/// Check that a wrong filter shows the error at the prompt, and that a right one leaves only the
/// matching processes.
#[test]
fn filters_are_typed() {
    let sleeper = Sleeper::new("a-sleeper");
    let mut top = Terminal::top(&["-d", "0.2"]);
    top.wait_for("sorted by");
    top.press("\\pid = 1\r");
    top.wait_for("`=` is not an operator");
    top.press("\x15pid == ");
    top.press(&sleeper.pid());
    top.press("\r");
    top.wait_for("selected processes 1: ");
    top.wait_for("a-sleeper 1000");
    // A rate is known only from the second sample on.
    top.press("\\ and cpu > 5000\r");
    top.wait_for("the share of time is cpu_percent");
    top.press("\\\x15");
    top.press(&format!("pid == {} and cpu_percent > 50\r", sleeper.pid()));
    top.wait_for("selected processes 1: ");
    top.wait_until("no row", |picture| !picture.contains("a-sleeper 1000"));
    top.press("\x03");
    assert_eq!(top.end().0.code(), Some(0));
}

/// Check that hostile names are shown in all views and sizes, without effect on the terminal.
#[test]
fn names_of_any_kind_are_shown() {
    let directory = Settings::new("names");
    let sleep = ["/usr/bin/sleep", "/bin/sleep"];
    let sleep = sleep.into_iter().find(|path| Path::new(path).exists());
    let names: [&[u8]; 8] = [
        b"\x1b[2J\x1b[31mA",
        b"a)b (S)\n1\t2",
        b"\xff\xfe\x80\x9b31m",
        "中文字中文".as_bytes(),
        "e\u{301}\u{301}\u{301}\u{301}x".as_bytes(),
        "\u{202e}abc".as_bytes(),
        "👨\u{200d}👩\u{200d}".as_bytes(),
        "🇩🇪\u{fe0f}\u{1f3fd}".as_bytes(),
    ];
    let sleepers: Vec<Sleeper> = names
        .iter()
        .map(|name| {
            let name = std::ffi::OsStr::from_bytes(name);
            let path = directory.0.join(name);
            std::os::unix::fs::symlink(sleep.expect("there is a sleep"), &path).expect("a link");
            let mut command = Command::new(&path);
            Sleeper::start(command.arg0(name))
        })
        .collect();
    let pids: Vec<String> = sleepers.iter().map(Sleeper::pid).collect();
    let mut top = Terminal::top(&["-d", "0.2", "-p", &pids.join(","), "--sort", "pid"]);
    top.wait_for("\\x1b[2J\\x1b[31mA");
    // In each size, first the views of the table and the prompts, then the pages of details.
    for keys in [
        &[
            "t",
            "H",
            "b",
            "b",
            "b",
            "b",
            "t",
            "\x1b[Ck",
            "\x07r",
            "\x07\x1b[D\x1b[B",
        ][..],
        &["\t"; 9],
    ] {
        for (columns, rows) in [(37, 12), (20, 8), (5, 3), (1, 1), (100, 30)] {
            tcsetwinsize(top.master.as_ref().expect("a terminal"), winsize(columns, rows)).expect("a size");
            for keys in keys {
                top.press(keys);
                top.take(Duration::from_millis(20));
            }
        }
        if keys[0] == "t" {
            for name in [
                "\\x1b[2J\\x1b[31mA 1000",
                "a)b (S)\\n1\\t2 1000",
                "\\xff\\xfe\\x80\\x9b31m 1000",
                "中文字中文 1000",
                "\\u{202e}abc 1000",
            ] {
                top.wait_for(name);
            }
            top.press("\r");
        }
        top.wait_for("Tab: next");
    }
    top.press("qq");
    assert_eq!(top.end().0.code(), Some(0));
}

/// Check that a signal is sent only after it was confirmed.
#[test]
fn signals_are_confirmed() {
    let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep exists");
    let pid = child.id().to_string();
    let mut top = Terminal::top(&["-d", "0.2", "-p", &pid]);
    top.wait_for("sleep 1000");
    top.press("k");
    top.wait_for(&format!("signal for {pid} sleep (root): TERM"));
    top.press("\x15usr1\r");
    top.wait_for(&format!("send SIGUSR1 to process {pid} sleep (root)? [y/N]"));
    top.press("n");
    top.wait_for("nothing was done");
    assert_eq!(child.try_wait().expect("a child"), None);
    top.press("r\x157\r");
    top.wait_for("to 7? [y/N]");
    top.press("y");
    top.wait_for(&format!("the nice value of {pid} is 7 now"));
    top.press("i\x15be 9\r");
    top.wait_for("with a level from 0 to 7");
    top.press("\x15be 6\r");
    top.wait_for(&format!(
        "set the I/O priority of {pid} sleep (root) to best-effort 6? [y/N]"
    ));
    top.press("y");
    top.wait_for(&format!("the I/O priority of {pid} is best-effort 6 now"));
    top.press("i");
    top.wait_for(&format!("I/O priority of {pid} sleep (root): best-effort 6"));
    top.press("\x07a\x150\r");
    top.wait_for(&format!("set the processors of {pid} sleep (root) to 0? [y/N]"));
    top.press("y");
    top.wait_for(&format!("the processors of {pid} are 0 now"));
    assert_eq!(status(&pid, "Cpus_allowed_list"), "0");
    top.press("a\x15900\r");
    top.wait_for("processors are a list of numbers from 0 to");
    top.press("\x07k\x15kill\r");
    top.wait_for("send SIGKILL");
    top.press("y");
    top.wait_for("SIGKILL was sent");
    let ended = child.wait().expect("a child");
    assert_eq!(ended.signal(), Some(9));
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}

/// Check that the cursor goes with the process that a search has found, whatever moves it away, that
/// a question is about that process, and that it says when that has ended.
#[test]
fn the_cursor_goes_with_its_process() {
    let sleepers = ["to-keep-a", "to-keep-b", "to-keep-c"].map(Sleeper::new);
    let pids = [0, 1, 2].map(|index: usize| sleepers[index].pid());
    let mut top = Terminal::top(&["-d", "0.2", "--sort", "nice", "-p", &pids.join(",")]);
    top.wait_for("to-keep-c 1000");
    top.press("/keep-a\r");
    top.wait_for("following");
    let renice = Command::new("renice").args(["-n", "15", "-p", &pids[0]]).output();
    assert!(renice.expect("renice exists").status.success());
    top.wait_until("it is last", |picture| {
        let rows: Vec<&str> = picture.lines().filter(|line| line.contains("to-keep-")).collect();
        rows.len() == 3 && rows[2].contains("to-keep-a")
    });
    top.press("k");
    top.wait_for(&format!("signal for {} sleep (root): TERM", pids[0]));
    drop(sleepers);
    top.wait_for("it has ended");
    // What is typed for the question is not taken for keys.
    top.press("qq\r");
    top.wait_until("no question", |picture| !picture.contains("signal for"));
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}

/// Check that what is tagged is signalled together, with children, that the question names processes
/// and users, and that those that ended are said.
#[test]
fn tags_are_acted_on_together() {
    let parent = Sleeper::run(Command::new("sh").args(["-c", "sleep 1000 & sleep 2000 & wait"]));
    let (other, ended) = (Sleeper::new("other"), Sleeper::new("to-end"));
    let pid = parent.pid();
    let filter = format!("pid in ({pid}, {}, {}) or ppid == {pid}", other.pid(), ended.pid());
    let mut top = Terminal::top(&["-d", "0.2", "--sort", "pid", "--where", &filter]);
    for word in ["sleep 2000", "other 1000", "to-end 1000"] {
        top.wait_for(word);
    }
    top.press("c");
    top.wait_for("3 tagged");
    top.press(&format!("/{}\r ", ended.pid()));
    top.wait_for("4 tagged");
    top.press("k");
    top.wait_for("signal for 4 tagged: TERM");
    top.wait_for(&format!("\n{pid} sh (root), "));
    top.press("\x15stop\r");
    let picture = top.wait_for("send SIGSTOP to 4 tagged");
    assert!(picture.contains(" sleep (root), "), "{picture}");
    drop(ended);
    // The question knows when one has ended.
    top.wait_for("send SIGSTOP to 3 tagged");
    top.press("y");
    top.wait_for("SIGSTOP was sent to 3 that were tagged");
    // A message stays until the next key.
    let end = Instant::now() + PATIENCE;
    while !top.picture().contains("3 tagged") {
        assert!(Instant::now() < end, "{}", top.picture());
        top.press("\x1b[H");
        top.take(Duration::from_millis(100));
    }
    top.wait_for("3 stopped");
    top.press("r\x155\ry");
    top.wait_for("the nice value of 3 that were tagged is 5 now");
    top.press("U");
    top.wait_until("no tags", |picture| !picture.contains("tagged"));
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
    let _ = Command::new("pkill").args(["-KILL", "-P", &pid]).status();
}

/// Check that limits of the cgroup in which top runs are shown if they are smaller than the machine.
#[test]
fn the_limits_of_a_container_are_shown() {
    let group = MemoryGroup::new("top-limits");
    let top = || {
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"echo $$ > "$0" && exec "$@""#])
            .arg(group.processes());
        command.args(["setsid", "--ctty", env!("CARGO_BIN_EXE_taskdiag"), "top"]);
        Terminal::of(command.env("XDG_CONFIG_HOME", "/nonexistent"), 160, 30)
    };
    let mut without = top();
    without.wait_for("Mem[");
    assert!(!without.picture().contains("limits "), "{}", without.picture());
    without.press("q");
    assert_eq!(without.end().0.code(), Some(0));
    group.limit(300 << 20);
    let mut with = top();
    with.wait_for("  limits 300.0M memory");
    with.press("q");
    assert_eq!(with.end().0.code(), Some(0));
}

/// Check that top in a container shows the host's processes, and sends no signal by their ids.
#[test]
fn processes_of_the_host_are_only_looked_at() {
    let proc = Directory::new("top-proc");
    let sleeper = Sleeper::new("host's");
    let pid = sleeper.pid();
    let _of_nobody = Sleeper::start(Command::new("sleep").uid(65534).gid(65534));
    let mut command = common::in_container(&proc);
    command.args(["setsid", "--ctty", env!("CARGO_BIN_EXE_taskdiag"), "top", "-p", &pid]);
    let mut top = Terminal::of(command.env("HOST_PROC", &*proc), 160, 30);
    top.wait_for("host's 1000");
    for (key, question, answer) in [
        ("k\x15kill\r", "send SIGKILL", "no signal"),
        ("r\x157\r", "to 7?", "no nice value"),
        ("i\x15idle\r", "to idle?", "no I/O priority"),
        ("a\x150\r", "to 0?", "no processors"),
    ] {
        top.press(key);
        top.wait_for(question);
        top.press("y");
        top.wait_for(&format!(
            "{pid}: {answer}: the ids in {} are those of an outer pid",
            proc.display()
        ));
    }
    // Its users are offered, too.
    top.press("u");
    top.wait_for("nobody");
    top.press("\x07");
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}

/// Check that a search finds ids and names, also with the keys of top.
#[test]
fn ids_and_names_are_searched() {
    let sleepers = ["to-find-a", "to-find-b", "to-find-c"].map(Sleeper::new);
    let pids = [0, 1, 2].map(|index: usize| sleepers[index].pid());
    let mut top = Terminal::top(&["-d", "0.2", "--sort", "pid", "-p", &pids.join(",")]);
    top.wait_for("to-find-c 1000");
    for (keys, index) in [
        (format!("/{}\r", pids[1]), 1),
        ("/\x15find-c\r".to_owned(), 2),
        ("L\x15TO-FIND-A\r".to_owned(), 0),
        ("L\x15to-find\r&".to_owned(), 1),
    ] {
        top.press(&keys);
        top.press("k");
        top.wait_for(&format!("signal for {} ", pids[index]));
        top.press("\x1b");
        top.wait_until("no question", |picture| !picture.contains("signal for"));
        top.press("=");
    }
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}

/// Check that clicks choose rows and open their details, sort, and press the keys that the screen
/// names, that the wheel moves, that a question takes no click, and that nothing is reported without
/// the mouse.
#[test]
fn the_mouse_chooses() {
    let sleepers = ["to-click-a", "to-click-b", "to-click-c"].map(Sleeper::new);
    let pids = [0, 1, 2].map(|index: usize| sleepers[index].pid());
    let mut top = Terminal::top(&["-d", "0.2", "--sort", "pid", "-p", &pids.join(",")]);
    top.wait_for("to-click-c 1000");
    top.wait_for("quit");
    top.click("to-click-b");
    top.wait_for("following");
    top.press("k");
    top.wait_for(&format!("signal for {} ", pids[1]));
    top.click("to-click-c");
    top.press("\x1b[<64;1;1M\x07");
    top.wait_until("no question", |picture| !picture.contains("signal for"));
    top.click("to-click-b");
    top.wait_for("Credentials");
    top.click("Limits");
    top.wait_for("nofile");
    top.press("q");
    top.wait_for("to-click-c");
    top.press("\x1b[<65;1;1M");
    top.click("details");
    top.wait_for("Credentials");
    let picture = top.picture();
    assert!(picture.starts_with(&pids[2]), "{picture}");
    top.press("q");
    top.wait_for("to-click-c");
    for order in ["pid, largest", "pid, smallest"] {
        top.click("PID");
        top.wait_for(order);
    }
    top.click("RSS");
    top.wait_for("sorted by rss_bytes, largest");
    top.click("M T N");
    top.wait_for("sorted by rss_bytes, smallest");
    top.click("0[");
    top.wait_for("CPU×");
    top.click("quit");
    assert_eq!(top.end().0.code(), Some(0));
    let mut top = Terminal::top(&["-d", "0.2", "--no-mouse"]);
    top.wait_for("sorted by");
    assert_eq!(
        top.parser.screen().mouse_protocol_mode(),
        vt100::MouseProtocolMode::None
    );
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}

/// Check that threads, trees, sums, memory columns and details are shown.
#[test]
fn everything_is_shown() {
    let own = std::process::id().to_string();
    let mut top = Terminal::top(&["-d", "0.2"]);
    top.wait_for("sorted by");
    for (key, words) in [
        ("t", &["tree | sorted by", "PID"][..]),
        ("H", &["threads | sorted by", "TID"]),
        ("b", &["by unit | sorted by", "UNIT"]),
        ("b", &["by container", "CONTAINER"]),
        ("b", &["by user", "USER", "root"]),
        ("bK", &["by program", "PROGRAM", "[kernel threads]"]),
        ("bm", &["PSS: ", "at most 0.25 s a sample", "USS"]),
    ] {
        top.press(key);
        for word in words {
            top.wait_for(word);
        }
    }
    top.press(&format!("m\\pid == {own}\r"));
    top.wait_for("selected processes 1: ");
    top.press("\r");
    top.wait_for("Credentials");
    for word in [
        "nofile",
        "CGROUP_USE",
        "ACCESS",
        "RECV-Q",
        "/libc.so.6",
        "TID",
        "VALUE",
        "resident memory",
    ] {
        top.press("\t");
        top.wait_for(word);
    }
    top.press("qq");
    assert_eq!(top.end().0.code(), Some(0));
}

/// Check that the pages of details have the rows of the commands about files, sockets and the
/// environment, escaped, and that nothing reads an environment before its page is open.
#[test]
fn pages_have_the_rows_of_commands() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let number = port.local_addr().expect("an address").port();
    // Only descriptors without FD_CLOEXEC are inherited.
    rustix::io::fcntl_setfd(&port, rustix::io::FdFlags::empty()).expect("it is ours");
    let sleeper = Sleeper::start(Command::new("/bin/sleep").env_clear().env("SECRET", "a\x1bb"));
    drop(port);
    let mut top = Terminal::with(&["-d", "0.2", "-p", &sleeper.pid()], Path::new("/nonexistent"), 80, 24);
    top.wait_for("sleep");
    top.press("\r");
    top.wait_for("Credentials");
    for word in ["nofile", "CGROUP_USE", "/dev/null", &format!("127.0.0.1:{number}")] {
        top.press("\t");
        let picture = top.wait_for(word);
        assert!(picture.contains("Environ") && !picture.contains("SECRET"), "{picture}");
    }
    top.press("\t\t\t");
    top.wait_for("a\\x1bb");
    top.press("\x1b[C");
    top.wait_for("\n\\x1bb");
    top.press("\x1b[D");
    top.wait_for("SECRET a\\x1bb");
    top.press("qq");
    assert_eq!(top.end().0.code(), Some(0));
}

/// Check that a question about fields or users shows the names that may be meant, completes them and
/// knows those of ps, and that a long error is shown whole.
#[test]
fn names_are_shown_and_completed() {
    let mut top = Terminal::with(&["-d", "0.2"], Path::new("/nonexistent"), 80, 24);
    top.wait_for("sorted by");
    top.press("o\x15-rs");
    let picture = top.wait_for("rss_bytes rss_");
    assert!(!picture.contains("unknown") && !picture.contains("ppid"), "{picture}");
    top.press("s\r");
    top.wait_for("sorted by rss_bytes, largest first");
    top.press("f\x15pid,threads_c\t");
    top.wait_for("columns: pid,threads_count");
    top.press("\r");
    top.wait_until("the column", |picture| {
        picture
            .lines()
            .any(|line| line.split_whitespace().eq(["PID", "RSS", "THR"]))
    });
    top.press("uroo\t\r");
    top.wait_for("users root");
    top.press("o\x15nosuch\r");
    let picture = top.wait_for("write_bytes_per_s");
    assert!(picture.contains("unknown field \"nosuch\""), "{picture}");
    top.press("\x07/nosuch, which is so long that it does not fit, by far, and has an end\r");
    top.wait_for("\nend\" in it");
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}

/// Check that a long text that is pasted into the question for a filter is taken, and holds nobody.
#[test]
fn long_pastes_are_taken() {
    let mut top = Terminal::with(&["-d", "0.2"], Path::new("/nonexistent"), 80, 24);
    top.wait_for("sorted by");
    let begun = Instant::now();
    top.press(&format!("\\\x1b[200~{}\x1b[201~", "comm == 'x' or ".repeat(200)));
    top.press("pid == 1\r");
    top.wait_for("selected processes 1");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}

/// Check that kernel threads are hidden, that the header says so, and that `K`, a filter about them
/// and their ids show them; that `p` changes what stands for the command.
#[test]
fn kernel_threads_are_hidden() {
    let mut top = Terminal::top(&["-d", "0.2", "--sort", "pid"]);
    let picture = top.wait_for("kernel threads hidden");
    assert!(!picture.contains("[kthreadd]"), "{picture}");
    for keys in ["K", "K\\kernel_thread\r"] {
        top.press(keys);
        let picture = top.wait_for("[kthreadd]");
        assert!(!picture.contains("kernel threads hidden"), "{picture}");
    }
    top.press("\\\x15\r");
    top.wait_for("kernel threads hidden");
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
    let sleeper = Sleeper::new("a-sleeper");
    let mut top = Terminal::top(&["-d", "0.2", "-p", "2", "-p", &sleeper.pid()]);
    top.wait_for("[kthreadd]");
    top.wait_for("COMMAND");
    for (heading, command) in [("PATH", "/sleep"), ("NAME", "sleep"), ("COMMAND", "a-sleeper 1000")] {
        top.press("p");
        top.wait_until(heading, |picture| {
            let has = |heading: &str, command: &str| {
                let mut lines = picture.lines().map(str::trim_end);
                lines.any(|line| line.ends_with(heading)) && lines.any(|line| line.ends_with(command))
            };
            has(heading, command)
        });
    }
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}

/// Check that sums can be by several keys, as in other commands, that `Enter` selects by all of them,
/// and that a key that sums do not have is not said to be their order.
#[test]
fn sums_are_by_several_keys() {
    let sleeper = Sleeper::new("a-sleeper");
    let of_nobody = Sleeper::start(Command::new("sleep").uid(65534).gid(65534));
    let pids = format!("{},{}", sleeper.pid(), of_nobody.pid());
    let mut top = Terminal::top(&["-d", "0.2", "--by", "program,user,program", "-p", &pids]);
    let picture = top.wait_until("two sums", |picture| {
        let rows = picture.lines().filter(|line| line.contains(" sleep "));
        rows.count() == 2
    });
    assert!(picture.contains("by program,user | sorted by cpu_percent"), "{picture}");
    top.press("M/nobody\r\r");
    top.wait_for("and (euid == 65534)");
    top.wait_for("selected processes 1: ");
    top.wait_for(&of_nobody.pid());
    top.press("\x1b");
    top.wait_for("by program,user | sorted by rss_bytes");
    top.wait_until("all sums", |picture| !picture.contains("euid"));
    top.press("b");
    top.wait_until("processes", |picture| !picture.contains("by program"));
    top.press("bN\\\x15\r");
    top.wait_for("by unit | in the order of names: sums have no pid");
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}

/// Check that sums are of the processes that a filter over rates lets through, and without one of
/// all.
#[test]
fn sums_are_of_what_the_filter_lets_through() {
    let busy = Sleeper::run(Command::new("sh").args(["-c", "while :; do :; done"]));
    let sleeper = Sleeper::new("a-sleeper");
    let pids = format!("{},{}", sleeper.pid(), busy.pid());
    let filter = ["--by", "user", "--where", "cpu_percent > 5", "-p", &pids];
    let mut top = Terminal::top(&[&["-d", "0.2"], &filter[..]].concat());
    let has_sum = |picture: &str, count: &str| {
        let row = picture.lines().find(|line| line.trim_end().ends_with(" root"));
        row.is_some_and(|row| row.split_whitespace().next() == Some(count))
    };
    top.wait_until("one process", |picture| has_sum(picture, "1"));
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
    let mut top = Terminal::top(&["-d", "0.2", "--by", "user", "-p", &pids]);
    top.wait_until("two processes", |picture| has_sum(picture, "2"));
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}

/// Check that the terminal is restored after signals that end top, and after a panic.
#[test]
fn the_terminal_is_put_back() {
    let ends = [
        Signal::TERM,
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::ALARM,
        Signal::USR1,
    ];
    for signal in ends {
        let mut top = Terminal::top(&[]);
        top.wait_for("sorted by");
        kill_process(top.pid(), signal).expect("it is ours");
        assert_eq!(top.end().0.code(), Some(0), "{signal:?}");
    }
    let mut command = top(
        Path::new(env!("CARGO_BIN_EXE_taskdiag")),
        &[],
        Path::new("/nonexistent"),
    );
    let mut top = Terminal::of(command.env("TASKDIAG_TEST_PANIC", "1"), 100, 30);
    top.wait_for("sorted by");
    top.press("=");
    let (status, picture) = top.end();
    assert_eq!(status.code(), Some(101));
    assert!(picture.contains("a test asked for a panic"), "{picture}");
}

/// Check that in the background top stops and leaves the terminal to the shell, until it is brought
/// to the foreground; and that it can be ended while it is stopped.
#[test]
fn the_background_is_not_the_place() {
    // The shell continues what it knows to be stopped. It learns that after the first thread has stopped,
    // once all have.
    let script = "set -m; until_stopped() { until [ \"$(jobs -sp)\" ]; do sleep 0.05; done; }
        before=$(stty -g)
        \"$0\" top --config /dev/null & until_stopped; kill $!; kill -CONT $!; while kill -0 $!; do sleep 0.05; done; echo ended
        \"$0\" top --config /dev/null & until_stopped; bg; until_stopped
        [ \"$(stty -g)\" = \"$before\" ] && echo stopped; read line; fg
        bg; until_stopped; [ \"$(stty -g)\" = \"$before\" ] && echo again; read line; fg";
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait", "bash", "-c", script, env!("CARGO_BIN_EXE_taskdiag")]);
    let mut top = Terminal::of(&mut command, 100, 30);
    let picture = top.wait_for("stopped");
    assert!(picture.contains("ended"), "{picture}");
    top.press("\n");
    top.wait_for("sorted by");
    top.press("\x1a");
    top.wait_for("again");
    top.press("\n");
    top.wait_for("sorted by");
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}

/// Check that a terminal that accepts no output does not block top: signals and keys end it, and
/// the terminal is restored once it accepts output again.
#[test]
fn a_terminal_that_takes_nothing_holds_nobody() {
    for by_key in [false, true] {
        let mut top = Terminal::with(&["-d", "0.2"], Path::new("/nonexistent"), 200, 60);
        top.wait_for("sorted by");
        let path = ptsname(top.master.as_ref().expect("a terminal"), Vec::new()).expect("a name");
        let mut options = OpenOptions::new();
        let noctty = rustix::fs::OFlags::NOCTTY.bits() as i32;
        let other = options
            .write(true)
            .custom_flags(noctty)
            .open(path.to_str().expect("a path"))
            .expect("the other end");
        let takes_output = || {
            let mut polled = [PollFd::new(&other, PollFlags::OUT)];
            poll(&mut polled, Some(&Timespec::default())) == Ok(1)
        };
        // Each of these draws everything again, but no output is read.
        let end = Instant::now() + PATIENCE;
        while takes_output() {
            assert!(Instant::now() < end, "it takes output");
            top.press("\x0c");
            std::thread::sleep(Duration::from_millis(10));
        }
        if by_key {
            top.press("q");
        } else {
            kill_process(top.pid(), Signal::TERM).expect("it is ours");
        }
        let end = Instant::now() + PATIENCE;
        while top.child.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < end, "it waits for its terminal");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(top.end().0.code(), Some(0));
    }
}

/// Check that top ends when its terminal is gone, even without a signal.
#[test]
fn it_ends_with_its_terminal() {
    for is_deaf in [false, true] {
        let program = Path::new(env!("CARGO_BIN_EXE_taskdiag"));
        let mut command = if is_deaf {
            let mut command = Command::new("setsid");
            command
                .args(["--ctty", "sh", "-c", "trap '' HUP; exec \"$0\" top"])
                .arg(program);
            command.env("XDG_CONFIG_HOME", "/nonexistent");
            command
        } else {
            top(program, &[], Path::new("/nonexistent"))
        };
        let mut top = Terminal::of(&mut command, 80, 24);
        top.wait_for("sorted by");
        top.master = None;
        let end = Instant::now() + PATIENCE;
        while top.child.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < end, "it goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Check that Ctrl-Z and SIGTSTP restore the terminal and stop top, and that top continues with the
/// same picture when the shell continues it.
#[test]
fn it_is_suspended() {
    const SHELL: &str = r#"set -m; fifo=$1; shift; "$@"; code=$?
        while [ "$code" -gt 128 ]; do read -r _ < "$fifo"; fg; code=$?; done; exit "$code""#;
    let settings = Settings::new("suspended");
    let fifo = settings.0.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a fifo");
    let mut command = Command::new("setsid");
    command.args(["--ctty", "sh", "-c", SHELL, "sh"]).arg(&fifo);
    command.args([env!("CARGO_BIN_EXE_taskdiag"), "top", "-d", "0.2"]);
    command
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env("TASKDIAG_PATIENCE", "5");
    common::with_usual_signals(&mut command);
    let mut top = Terminal::of(&mut command, 100, 30);
    top.wait_for("sorted by");
    let children = format!("/proc/{0}/task/{0}/children", top.child.id());
    let pid = fs::read_to_string(children).expect("children of the shell");
    let pid = pid.trim();
    for by_key in [true, false] {
        if by_key {
            top.press("\x1a");
        } else {
            let raw = Pid::from_raw(pid.parse().expect("a number")).expect("a process id");
            kill_process(raw, Signal::TSTP).expect("it is ours");
        }
        let end = Instant::now() + PATIENCE;
        while status(pid, "State") != "T (stopped)" {
            assert!(Instant::now() < end, "{}", status(pid, "State"));
            top.take(Duration::from_millis(10));
        }
        while top.take(Duration::from_millis(100)) {}
        assert!(!top.parser.screen().alternate_screen());
        assert_eq!(
            top.parser.screen().mouse_protocol_mode(),
            vt100::MouseProtocolMode::None
        );
        let modes = tcgetattr(top.master.as_ref().expect("a terminal")).expect("modes");
        assert_eq!(text(&modes), text(&top.modes));
        fs::write(&fifo, "\n").expect("the shell reads");
        top.wait_for("sorted by");
        assert!(top.parser.screen().alternate_screen());
    }
    // Keys work as before.
    top.press("M");
    top.wait_for("sorted by rss_bytes");
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}

/// Check that top does not stop without a shell that could continue it: in a terminal that started
/// top.
#[test]
fn what_nobody_continues_does_not_stop() {
    let mut top = Terminal::top(&["-d", "0.2"]);
    top.wait_for("sorted by");
    top.press("\x1aM");
    top.wait_for("sorted by rss_bytes");
    kill_process(top.pid(), Signal::TSTP).expect("it is ours");
    top.press("N");
    top.wait_for("sorted by pid");
    assert!(top.parser.screen().alternate_screen());
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}

/// Check that settings are written after confirmation and read at the next start, and that a bad
/// file is named with the line and not changed.
#[test]
fn settings_are_kept() {
    let settings = Settings::new("settings");
    let mut top = Terminal::with(&["-d", "0.2"], &settings.0, 100, 30);
    top.wait_for("sorted by");
    top.press("Mt");
    top.wait_for("tree | sorted by rss_bytes");
    top.press("W");
    top.wait_for("write the settings to ");
    assert!(!settings.file().exists());
    top.press("y");
    top.wait_for("top.conf was written");
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
    let text = fs::read_to_string(settings.file()).expect("it is there");
    fs::write(settings.file(), format!("# mine\n{text}")).expect("it is ours");
    let mut top = Terminal::with(&[], &settings.0, 100, 30);
    top.wait_for("tree | sorted by rss_bytes");
    // On the page of settings the last column but one is removed, and the third last line of the header.
    let removed = top.wait_for("TIME");
    assert!(removed.contains("pressure"), "{removed}");
    top.press("S\x1b[F\x1b[A\x1b[3~");
    let picture = top.wait_for("[x] pressure");
    assert!(!picture.contains("sorted by"), "{picture}");
    top.press(&("\x1b[F".to_owned() + &"\x1b[A".repeat(11) + " "));
    top.wait_for("[ ] pressure");
    top.press("Wy");
    top.wait_for("top.conf was written");
    top.press("S");
    top.wait_until("the table", |picture| {
        picture.contains("sorted by") && !picture.contains("TIME") && !picture.contains("pressure")
    });
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
    let text = fs::read_to_string(settings.file()).expect("it is there");
    assert!(
        text.starts_with("# mine\n") && text.contains("\nheader = load,processes,"),
        "{text}"
    );
    let mut top = Terminal::with(&[], &settings.0, 100, 30);
    let picture = top.wait_for("tree | sorted by rss_bytes");
    assert!(!picture.contains("TIME") && !picture.contains("pressure"), "{picture}");
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));

    let bad = "delay = 1\n\ndelai = 2\n";
    fs::write(settings.file(), bad).expect("it is ours");
    let (status, picture) = Terminal::with(&[], &settings.0, 200, 30).end();
    assert_eq!(status.code(), Some(2));
    assert!(picture.contains("top.conf:3: unknown setting \"delai\""), "{picture}");
    assert_eq!(fs::read_to_string(settings.file()).expect("it is there"), bad);
}

/// Check that a page of text has no warning about the settings: it is on standard error.
#[test]
fn warnings_are_not_in_samples() {
    let settings = Settings::new("denied");
    fs::create_dir_all(settings.file().parent().expect("a directory")).expect("it is ours");
    fs::write(settings.file(), "delay = 1\n").expect("it is ours");
    fs::set_permissions(settings.file(), fs::Permissions::from_mode(0o600)).expect("it is ours");
    let file = settings.file();
    let config = file.to_str().expect("a path");
    let run = common::run_as_nobody(&["top", "-b", "-n", "1", "--config", config]).expect("root");
    assert!(
        run.stderr.contains("Permission denied: settings are as without it"),
        "{run:?}"
    );
    let text = run.text();
    assert!(!text.contains("Permission denied"), "{text}");
}

/// Check that settings are written to a new file and through a symbolic link, that a device is not
/// replaced, and that a file that can't be read to its end causes an ordinary message.
#[test]
fn settings_are_files() {
    let settings = Settings::new("files");
    let in_it = |name: &str| settings.0.join(name).to_str().expect("a path").to_owned();
    let link = |target: &str, name: &str| {
        std::os::unix::fs::symlink(target, settings.0.join(name)).expect("a link");
        in_it(name)
    };
    for (config, said) in [
        (in_it("new"), "was written"),
        (link("linked", "link"), "was written"),
        (link("/dev/null", "null"), "not a regular file"),
    ] {
        let is_link = fs::read_link(&config).is_ok();
        let mut top = Terminal::with(&["--config", &config], &settings.0, 200, 30);
        if said == "was written" {
            top.wait_for("is not there yet: W writes it");
        } else {
            top.wait_for("sorted by");
        }
        top.press("Wy");
        top.wait_for(said);
        top.press("q");
        assert_eq!(top.end().0.code(), Some(0));
        assert_eq!(fs::read_link(&config).is_ok(), is_link, "{config}");
    }
    for name in ["new", "linked"] {
        let text = fs::read_to_string(settings.0.join(name)).expect("a file");
        assert!(text.contains("\ndelay = 2\n"), "{text}");
    }
    let long = in_it("long");
    fs::write(&long, "x".repeat(50_000)).expect("it is ours");
    for (config, said) in [
        ("/dev/zero", "not a regular file"),
        ("/dev/tty", "not a regular file"),
        (&long, "is not KEY = VALUE"),
    ] {
        let (status, picture) = Terminal::with(&["--config", config], &settings.0, 100, 30).end();
        assert_eq!(status.code(), Some(2), "{picture}");
        // Lines are broken between words.
        let picture = picture.replace(['\n', ' '], "");
        let is_said = picture.contains(":1:\"xxx") || picture.contains(&said.replace(' ', ""));
        assert!(is_said, "{picture}");
        assert!(picture.len() < 1000, "{picture}");
    }
}

/// Check that top ends after the given number of samples.
#[test]
fn samples_are_counted() {
    let began = Instant::now();
    let top = Terminal::top(&["-d", "0.1", "-n", "3"]);
    assert_eq!(top.end().0.code(), Some(0));
    assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
}

/// Check that wrong usage, and a source that can't answer, cause ordinary messages, without taking
/// over the terminal.
#[test]
fn mistakes_are_ordinary_messages() {
    for (args, said) in [
        (&["--source", "broker", "--socket", "/nonexistent"][..], "/nonexistent"),
        (&["--sort", "nosuch"], "unknown field \"nosuch\""),
        (&["--where", "uid = 0"], "`=` is not an operator"),
        (&["--children", "1", "-T"], "leave out -T"),
    ] {
        let (status, picture) = Terminal::top(args).end();
        assert_eq!(status.code(), Some(2), "{picture}");
        let words = picture.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(said), "{picture}");
    }
    let run = run(&["top"]);
    assert_eq!((run.code, run.stdout.len()), (Some(2), 0));
    for word in [
        "standard output is not a terminal",
        "`taskdiag top -b`",
        "`taskdiag watch`",
    ] {
        assert!(run.stderr.contains(word), "{}", run.stderr);
    }
}

/// Check that samples are printed without a terminal, each with the header, headings and all rows, as
/// long as they are or as wide as COLUMNS says; with letters as top(1) takes them.
#[test]
fn samples_are_printed() {
    let long = "x".repeat(300);
    let sleeper = Sleeper::new(&long);
    let others: Vec<Sleeper> = (0..40).map(|_| Sleeper::new("a-sleeper")).collect();
    let pids: Vec<String> = others.iter().chain([&sleeper]).map(Sleeper::pid).collect();
    let pids = pids.join(",");
    let printed = |args: &[&str], columns: Option<&str>| {
        let mut command = common::command(args);
        command.env("XDG_CONFIG_HOME", "/nonexistent").env_remove("COLUMNS");
        command.envs(columns.map(|columns| ("COLUMNS", columns)));
        let output = command.output().expect("the binary runs");
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let text = printed(&["top", "-bcd0.1", "-n", "2", "-p", &pids], None);
    let samples: Vec<&str> = text.split("\n\n").collect();
    assert_eq!(samples.len(), 2, "{text}");
    for sample in samples {
        let lines: Vec<&str> = sample.lines().collect();
        assert!(
            lines[0].starts_with("load ") && sample.contains("sorted by cpu_percent"),
            "{text}"
        );
        let heading = lines.iter().position(|line| line.ends_with(" COMMAND"));
        let rows = &lines[heading.expect("headings") + 1..];
        assert_eq!(rows.len(), 41, "{text}");
        assert!(rows.iter().any(|row| row.ends_with(&format!(" {long} 1000"))), "{text}");
        // There is a sample before the first one, so all have rates.
        assert!(rows.iter().all(|row| row.contains(" 0.0 ")), "{text}");
    }
    let text = printed(&["top", "-bn1", "-o", "%MEM", "-p", &pids], None);
    assert!(text.contains("sorted by mem_percent, largest first"), "{text}");
    // The header counts the rows, and no others.
    let text = printed(&["top", "-bn1", "--where", "cpu_percent > 1000", "-p", &pids], None);
    assert!(text.contains("\nselected processes 0"), "{text}");
    assert!(text.trim_end().ends_with(" COMMAND"), "{text}");
    let text = printed(&["top", "-bHn1", "-p", &pids], Some("60"));
    assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    assert!(text.contains("threads | sorted by") && text.contains(" TID "), "{text}");
    let text = printed(&["top", "-b", "-n1", "--by", "user", "-p", &pids], None);
    assert!(
        text.lines()
            .last()
            .is_some_and(|row| row.trim_start().starts_with("41 ")),
        "{text}"
    );
    let partial = run(&["top", "-bn1", "-p", &format!("{},4194305", std::process::id())]);
    assert_eq!(partial.code, Some(1));
    assert!(
        partial.stderr.contains("4194305") && String::from_utf8_lossy(&partial.stdout).contains("no process 4194305"),
        "{partial:?}"
    );
}

/// Check that rows show what they are sorted by, sums too, on narrow screens too, and that lines of the header
/// are cut only where a width is given.
#[test]
fn what_rows_are_sorted_by_is_shown() {
    let sleeper = Sleeper::new("a-sleeper");
    let own = std::process::id().to_string();
    let pids = format!("{own},{}", sleeper.pid());
    let filter = format!("not ({})", vec!["comm == 'nosuch'"; 40].join(" or "));
    let printed = |args: &[&str], columns: Option<&str>| {
        let mut command = common::command(&["top", "-bn1", "-p", &pids]);
        command.args(args).env("XDG_CONFIG_HOME", "/nonexistent");
        command
            .env_remove("COLUMNS")
            .envs(columns.map(|columns| ("COLUMNS", columns)));
        let output = command.output().expect("the binary runs");
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let has_heading = |text: &str, heading: &str| {
        let is_heading = |line: &&str| line.contains("%CPU") || line.contains("PID");
        let line = text.lines().find(is_heading).unwrap_or_default();
        line.split_whitespace().any(|word| word == heading)
    };
    for (args, heading) in [
        (&["--sort", "-write_bytes_per_s"][..], "WRITE/s"),
        (&["--sort", "-fd_count"], "fd_count"),
        (&["--sort", "-pss_bytes"], "PSS"),
        (&["-H", "--sort", "-maj_faults_per_s"], "MAJOR/s"),
        (&["-o", "pid,comm", "--sort", "-rss_bytes"], "RSS"),
        (&["--by", "user", "--sort", "-write_bytes_per_s"], "WRITE/s"),
        (&["--by", "unit", "--sort", "-min_faults_per_s"], "FAULTS/s"),
        (&["--by", "user", "--sort", "-pss_bytes"], "PSS"),
    ] {
        for columns in [None, Some("60"), Some("36")] {
            let text = printed(args, columns);
            assert!(has_heading(&text, heading), "{args:?} in {columns:?}: {text}");
            assert!(text.contains("sorted by ") || columns.is_some(), "{text}");
        }
    }
    let text = printed(&[], Some("40"));
    assert!(has_heading(&text, "%CPU") && !has_heading(&text, "NI"), "{text}");
    // Nobody asked for an order.
    assert!(!has_heading(&printed(&["-o", "pid,comm"], None), "%CPU"));
    let settings = Settings::new("printed");
    let file = settings.0.join("top.conf");
    fs::write(&file, format!("filter = {filter}\n")).expect("it is ours");
    let text = printed(&["--config", &file.display().to_string()], None);
    assert!(text.contains(&format!("filter {filter} | sorted by")), "{text}");
    assert!(text.contains("Swp[") && !text.contains('…'), "{text}");
}

/// Check that the user nobody also sees processes, and a note about denied values.
#[test]
fn nobody_can_use_it() {
    let settings = Settings::new("nobody");
    let copy = settings.0.join("taskdiag");
    copy_program(env!("CARGO_BIN_EXE_taskdiag").as_ref(), &copy).expect("the binary");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let sleeper = Sleeper::new("of-root");
    let secret = settings.0.join("secret");
    fs::write(&secret, "delay = 1\n").expect("it is ours");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let config = secret.to_str().expect("a path");
    let args = ["-d", "0.2", "-p", &sleeper.pid(), "--config", config];
    let mut command = top(&copy, &args, Path::new("/nonexistent"));
    let mut top = Terminal::of(command.uid(65534).gid(65534), 100, 30);
    top.wait_for("of-root 1000");
    // Settings that it may not read are none.
    top.wait_for("secret: ");
    top.wait_for("ermission denied");
    top.press("k\ry");
    top.wait_for("you may not");
    top.press("m");
    top.wait_for("PSS: ");
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}
