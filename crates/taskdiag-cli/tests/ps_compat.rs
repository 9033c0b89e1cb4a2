//! `taskdiag ps` beside Debian's ps.
//!
//! Compared are processes that these tests started and that rest (the zoo), and others that cannot
//! change: init, this test, kernel threads that live as long as the host. ps runs before and after
//! ours, as the time since a start moves: what we show is what ps showed before or after, and a
//! number that moves lies between the two. What differs always is in docs/ps.md.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use common::{Run, Sleeper};
use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};
use taskdiag_zoo::{Animal, Zoo};

/// Cells that have to be compared for each specifier.
const CELLS: usize = 40;

/// ps keeps no more than so many bytes of a line.
const LONGEST: usize = 60_000;

/// The zoo, started once for all tests. All of it is at rest.
fn zoo() -> &'static [Animal] {
    &zoo_with_age().0
}

/// The zoo, and when its last animal was there.
fn zoo_with_age() -> &'static (Vec<Animal>, Instant) {
    static ANIMALS: OnceLock<(Vec<Animal>, Instant)> = OnceLock::new();
    ANIMALS.get_or_init(|| {
        let zoo = Zoo::new().expect("a zoo");
        let (animals, _refused) = zoo.everything().expect("animals");
        assert!(animals.len() > 40, "{} animals", animals.len());
        // An animal is announced right before it goes to sleep, and its other threads follow.
        for animal in &animals {
            while is_running(animal.pid.unsigned_abs()) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        (animals, Instant::now())
    })
}

/// Whether a thread of the process runs.
fn is_running(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it is there");
    let mut threads = threads.map(|thread| thread.expect("it is there").path().join("stat"));
    threads.any(|path| words(&path)[0] == "R")
}

/// The words of `/proc/PID/stat` from the state on.
fn stat(pid: u32) -> Vec<String> {
    words(format!("/proc/{pid}/stat").as_ref())
}

fn words(path: &Path) -> Vec<String> {
    let bytes = std::fs::read(path).expect("it is there");
    let text = String::from_utf8_lossy(&bytes);
    let (_, rest) = text.rsplit_once(')').expect("a name in parentheses");
    rest.split_whitespace().map(str::to_owned).collect()
}

fn parent(pid: u32) -> u32 {
    stat(pid)[1].parse().expect("a number")
}

fn animals() -> BTreeSet<u32> {
    zoo().iter().map(|animal| animal.pid.unsigned_abs()).collect()
}

/// The animals and their keepers, but not this test.
fn family() -> BTreeSet<u32> {
    let mut family = animals();
    for mut pid in animals() {
        loop {
            pid = parent(pid);
            if pid == std::process::id() || pid <= 1 {
                break;
            }
            family.insert(pid);
        }
    }
    family
}

/// This test, init, and kernel threads that live as long as their processor: they come and go with
/// the host.
fn fixtures() -> BTreeSet<u32> {
    let lives_on = |pid: &u32| {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        ["kthreadd", "ksoftirqd/", "migration/", "cpuhp/"]
            .iter()
            .any(|name| comm.starts_with(name))
    };
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(lives_on).chain([1, std::process::id()]).collect()
}

fn list(pids: impl IntoIterator<Item = u32>) -> String {
    let pids: Vec<String> = pids.into_iter().map(|pid| pid.to_string()).collect();
    pids.join(",")
}

fn ps(args: &[&str]) -> Run {
    let mut command = Command::new("/usr/bin/ps");
    command.args(args).env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
    command.env_remove("COLUMNS").env_remove("PS_FORMAT");
    let run = Run::new(command.output().expect("Debian's ps is installed"));
    assert_eq!(run.stderr, "", "{args:?}");
    run
}

fn ours(args: &[&str]) -> Run {
    let mut command = common::command(&[&["ps"], args].concat());
    command.env_remove("COLUMNS").env_remove("PS_FORMAT");
    Run::new(command.output().expect("the binary runs"))
}

/// The lines of an answer, where text that is no UTF-8 has marks.
fn lines(run: &Run) -> Vec<String> {
    let text = String::from_utf8_lossy(&run.stdout);
    text.lines().map(str::to_owned).collect()
}

/// The text behind the id, by id.
fn by_pid(run: &Run) -> BTreeMap<u32, String> {
    let cells = lines(run).into_iter().map(|line| {
        let trimmed = line.trim_start();
        let digits = trimmed.len() - trimmed.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let pid = trimmed[..digits]
            .parse()
            .unwrap_or_else(|_| panic!("{line:?} begins with an id"));
        let text = trimmed[digits..].strip_prefix(' ').unwrap_or_default();
        (pid, text.to_owned())
    });
    cells.collect()
}

/// What ps and we show by intention differently, in a form in which it is the same.
fn normalized(specifier: &str, text: &str) -> String {
    let text = text.get(..LONGEST).unwrap_or(text);
    match specifier {
        // Only the unified hierarchy is shown: "4:memory:/a,0::/b" is "0::/b".
        "cgroup" | "cgname" => {
            let unified = text.split(',').find(|part| part.starts_with("0::"));
            unified.unwrap_or("-").to_owned()
        }
        // Behind bytes that are no UTF-8, ps has dots for control characters.
        _ if text.contains('?') => text.replace('.', "?"),
        _ => text.to_owned(),
    }
}

/// Whether all of a process may be read. What may not is 0 for ps, and missing for us.
fn may_be_read(pid: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok()
}

/// Whether all was answered but for what may not be read.
fn is_answered(run: &Run) -> bool {
    // Where cgroups of version 1 are mounted, those of version 2 do not say whether a task is in a
    // container. Not every host has a security module with labels.
    let is_known = |line: &str| {
        line.contains(": denied for ") || line.contains("container_") || line.contains("security_label: unsupported")
    };
    run.code == Some(0) || run.code == Some(1) && run.stderr.lines().all(is_known)
}

/// Whether `value` is a number no further than the last digit from what lies between `before` and
/// `after`.
fn is_between(specifier: &str, before: &str, value: &str, after: &str) -> bool {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let decimals = value.trim().split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let last_digit = 10_f64.powi(-i32::try_from(decimals).unwrap_or(0)) * 1.000_001;
    let slack = match specifier {
        // Pages are shared with any process that maps the same file; in KiB.
        "pss" | "uss" => 64.0,
        // ps multiplies the uptime as a fraction, and may lose a clock tick.
        "cuc" | "cuu" => {
            let value = number(value).unwrap_or(0.0);
            last_digit + value * 0.01 / zoo_with_age().1.elapsed().as_secs_f64()
        }
        _ => last_digit,
    };
    match (number(before), number(value), number(after)) {
        (Some(before), Some(value), Some(after)) => {
            (before.min(after) - slack..=before.max(after) + slack).contains(&value)
        }
        _ => false,
    }
}

/// Numbers that move, even of a process at rest.
fn moves(specifier: &str) -> bool {
    const MOVING: [&str; 47] = [
        "%cpu", "%mem", "atime", "bsdtime", "c", "cp", "cputime", "cputimes", "cuc", "cuu", "etime", "etimes", "m_drs",
        "m_size", "maj_flt", "majflt", "min_flt", "minflt", "oom", "pagein", "pcpu", "pmem", "pss", "rbytes", "rchars",
        "rops", "rss", "rssize", "rsz", "sgi_rss", "size", "sz", "time", "times", "uss", "util", "vsize", "vsz",
        "wbytes", "wcbytes", "wchars", "wops", "drs", "dsiz", "trs", "fds", "nlwp",
    ];
    MOVING.contains(&specifier)
}

/// Specifiers of `ps L` that we lack, with the reason why.
fn lacks(specifier: &str) -> Option<&'static str> {
    match specifier {
        "ag_id" | "ag_nice" => Some("no field has the scheduler's groups of sessions"),
        "eip" | "esp" => Some("the kernel gives a number in a process that dumps core only, and 0 otherwise"),
        name if name.starts_with('_') => Some("a test of ps itself"),
        _ => None,
    }
}

/// The specifiers that ps lists, with their headers.
fn specifiers() -> Vec<(String, String)> {
    let listed = lines(&ps(&["L"]));
    let specifiers: Vec<(String, String)> = listed
        .iter()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.to_owned()))
        })
        .collect();
    assert!(specifiers.len() > 150, "{}", specifiers.len());
    specifiers
}

/// How many specifiers are shown on one line, where none of them moves: a line that is the same has
/// the same cells.
const ON_ONE_LINE: usize = 10;

/// What a comparison came to: how many cells are the same as those of ps, and which are not.
type Compared = (usize, Vec<String>);

/// Compares what some specifiers show of all animals.
fn compare(specifiers: &[&str]) -> Compared {
    let columns = specifiers
        .iter()
        .flat_map(|specifier| ["-o".to_owned(), format!("{specifier}=")]);
    let pids = list(animals());
    let args: Vec<String> = ["-p", &pids, "-o", "pid="]
        .map(str::to_owned)
        .into_iter()
        .chain(columns)
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let name = specifiers.join(",");
    let (before, mine, after) = (by_pid(&ps(&args)), ours(&args), by_pid(&ps(&args)));
    assert!(is_answered(&mine), "{name}: {}", mine.stderr);
    let mine = by_pid(&mine);
    assert_eq!(
        (mine.keys().collect::<Vec<_>>(), before.len()),
        (before.keys().collect(), after.len()),
        "{name}"
    );
    let (mut compared, mut wrong) = (0, Vec::new());
    for (pid, shown) in mine.iter().filter(|(pid, _)| may_be_read(**pid)) {
        let (before, after) = (&before[pid], &after[pid]);
        let texts = [before, shown, after].map(|text| normalized(&name, text));
        let is_right = texts[1] == texts[0]
            || texts[1] == texts[2]
            || moves(&name) && (is_between(&name, before, shown, after) || is_later(before, shown, after));
        if is_right {
            compared += specifiers.len();
        } else {
            let cut = |text: &str| text.chars().take(200).collect::<String>();
            let (shown, before, after) = (cut(shown), cut(before), cut(after));
            wrong.push(format!("{name}: {pid}: {shown:?}, ps {before:?} {after:?}"));
        }
    }
    wrong.truncate(5);
    (compared, wrong)
}

/// Check that each specifier shows what ps shows.
#[test]
fn specifiers_show_what_ps_shows() {
    let listed = specifiers();
    let there: Vec<&str> = listed
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| lacks(name).is_none())
        .collect();
    let is_alone = |name: &&str| moves(name) || normalized(name, "4:memory:/a") != "4:memory:/a";
    let (alone, still): (Vec<&str>, Vec<&str>) = there.iter().partition(|name| is_alone(name));
    let mut failures = Vec::new();
    let mut cells = 0;
    let mut count = |name: &str, least: usize, (compared, wrong): Compared| {
        if compared < least {
            failures.push(format!("{name}: only {compared} cells compared"));
        }
        cells += compared;
        failures.extend(wrong);
    };
    for group in still.chunks(ON_ONE_LINE) {
        let (compared, wrong) = compare(group);
        if wrong.is_empty() {
            count(&group.join(","), CELLS * group.len(), (compared, wrong));
        } else {
            // Which of them is it?
            group.iter().for_each(|name| count(name, CELLS, compare(&[name])));
        }
    }
    alone.iter().for_each(|name| count(name, CELLS, compare(&[name])));
    println!("{cells} cells of {} specifiers compared", there.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(cells > 150 * CELLS, "{cells}");
}

/// The same for times written with colons.
fn is_later(before: &str, value: &str, after: &str) -> bool {
    let seconds = |text: &str| {
        let (days, rest) = text.trim().split_once('-').unwrap_or(("0", text.trim()));
        let mut within = 0;
        for part in rest.split(':') {
            within = within * 60 + part.parse::<u64>().ok()?;
        }
        Some(days.parse::<u64>().ok()? * 86_400 + within)
    };
    match (seconds(before), seconds(value), seconds(after)) {
        (Some(before), Some(value), Some(after)) => (before.min(after)..=after.max(before) + 1).contains(&value),
        _ => false,
    }
}

/// Check that all that ps lists is listed here, but for what is known to lack, and with the same
/// headers.
#[test]
fn all_specifiers_are_there() {
    let mine: BTreeMap<String, String> = lines(&ours(&["L"]))
        .iter()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.to_owned()))
        })
        .collect();
    for (specifier, header) in specifiers() {
        match (mine.get(&specifier), lacks(&specifier)) {
            (Some(mine), _) => assert_eq!(*mine, header, "{specifier}"),
            (None, reason) => assert!(reason.is_some(), "{specifier} is missing"),
        }
    }
}

/// Check that formats have the columns of ps, at the same places.
#[test]
fn headers_are_those_of_ps() {
    let formats = [
        "aux",
        "axu",
        "axjf",
        "ax",
        "axl",
        "axv",
        "axs",
        "axX",
        "axm",
        "axms",
        "axH",
        "axf",
        "axo pid,comm",
        "axO rss",
        "axO s",
        "-e",
        "-ef",
        "-eF",
        "-el",
        "-efl",
        "-ely",
        "-ej",
        "-ejH",
        "-ejf",
        "-eLf",
        "-eL",
        "-eLl",
        "-eT",
        "-eTf",
        "-ec",
        "-efc",
        "-elc",
        "-eP",
        "-efP",
        "-eFP",
        "-eM",
        "-efM",
        "-em",
        "-eFl",
        "-eFly",
        "-efcL",
        "-eLFy -l",
        "-e u",
        "-e l",
        "-e -j u",
        "-e -L u",
        "-e -T l",
        "-e -j j",
        "-e -L j",
        "-f -p1 x",
        "-l -p1 x",
        "-j -p1 x",
        "axnu",
        "--context -p 1",
        "axZ",
        "auxc",
        "-ef c",
        "axu e",
        "-eo pid,user:20,%cpu,lstart,args",
        "-o nwchan,nwchan:3,pid -p 1",
        "-o pid,comm= -p 1",
        "-o user,comm= -p 1",
        "-o user,pid= -p 1",
        "-o pid= -o comm=XX -p 1",
        "-o user:3,pid -p1",
        "-O vsz -p1",
        "-o comm:3,pid -p 1",
        "-o pid:3=LONGER,comm -p 1",
        "-o policy=LONGER,comm -p 1",
        "1",
        "u 1",
        "p 1",
        "-p 1 -f",
    ];
    for format in formats {
        let args: Vec<&str> = format.split(' ').collect();
        let (theirs, mine) = (lines(&ps(&args)), ours(&args));
        assert!(mine.code.is_some_and(|code| code < 2), "{format}: {}", mine.stderr);
        assert_eq!(lines(&mine).first(), theirs.first(), "{format}");
    }
}

/// Check whole lines, of animals whose lines stay as they are: they have used no processor time.
#[test]
fn lines_are_those_of_ps() {
    let is_idle = |pid: &u32| stat(*pid)[11..13] == ["0", "0"];
    let pids: Vec<u32> = animals().into_iter().filter(is_idle).collect();
    assert!(pids.len() >= 20, "{} of {}", pids.len(), zoo().len());
    let list = list(pids.iter().copied());
    let formats = [
        "u",
        "j",
        "s",
        "-f",
        "-F",
        "-l",
        "-ly",
        "-j",
        "-c",
        "-fL",
        "-T",
        "m",
        "ms",
        "-m",
        "c",
        "uc",
        "n",
        "un",
        "-o pid,user,group,args",
        "-o args,pid",
        "-o comm:5,pid,args:30,user:3,ppid",
        "-o user,args,pid --cols 100",
        "-o pid,user --cols 5",
        "-o sgi_rss:2,pid",
        "u --cols 100",
        "-f --cols 60",
        "-o pid,args w",
        "-o pid:2,tid:9,comm:4,ppid",
        "-o pid,nwchan,alarm,addr,tmout,wname",
        "-o pid,supgrp,supgid,ruser,label,wchan:20,stat",
        "--sort -pid",
        "--sort=user,-pid -f",
        "h",
        "--no-headers -f",
        "-O ppid",
        "k -pid",
        "O ppid",
        "O c",
        "-m -L",
        "-m -T",
        "e",
        "ec",
        "-o comm,pid e",
        "-o user:12,comm",
        "-o tty:2,tname:2,stat:1,class:1,policy:1,slice:2,pid",
    ];
    let mut compared = 0;
    for format in formats {
        let args: Vec<&str> = format.split(' ').chain(["-p", &list]).collect();
        let (before, mine, after) = (ps(&args), ours(&args), ps(&args));
        assert!(is_answered(&mine), "{format}: {}", mine.stderr);
        let (before, mine, after) = (lines(&before), lines(&mine), lines(&after));
        assert_eq!((mine.len(), mine.len()), (before.len(), after.len()), "{format}");
        for ((before, line), after) in before.iter().zip(&mine).zip(&after) {
            let [before, line, after] = [before, line, after].map(|text| normalized("", text));
            assert!(
                line == before || line == after,
                "{format}:\n{line}\nps:\n{before}\n{after}"
            );
        }
        compared += mine.len();
    }
    assert!(compared > formats.len() * pids.len(), "{compared}");
}

/// Check that options choose the processes that ps chooses.
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
    // Other processes come and go meanwhile.
    let known: BTreeSet<u32> = animals().union(&fixtures()).copied().collect();
    let mut count = 0;
    for options in selections {
        // ps takes all words behind an id for ids.
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

/// Check that the threads of a process stand together, also where a thread has a larger id than
/// other processes.
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

/// Check that a list with a plus adds to a format, before the last column.
#[test]
fn columns_are_added_to_formats() {
    for (format, end) in [("u", "TIME WCHAN COMMAND"), ("-f", "TIME WCHAN CMD")] {
        let shown = lines(&ours(&[format, "-p", "1", "-o", "+wchan"]));
        let header: Vec<&str> = shown[0].split_whitespace().collect();
        assert!(header.join(" ").ends_with(end), "{header:?}");
        assert_eq!(shown.len(), 2);
    }
}

/// Check that zombies, whose memory is 0 in the columns, come first as in ps, and that a state is a
/// letter whatever follows it.
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
    // ps sorts by another size than it shows.
    let sizes = lines(&ours(&["-o", "size=", "--sort", "size", "-p", &list]));
    let sizes: Vec<u64> = sizes.iter().map(|size| size.trim().parse().expect("a size")).collect();
    assert!(sizes.is_sorted() && sizes[0] == 0 && sizes.len() > 40, "{sizes:?}");
    // In JSON and CSV they have no value, and come last.
    let options = "-p 1,2 -o rss_bytes --sort rss_bytes --csv --no-header";
    let csv = ours(&options.split(' ').collect::<Vec<_>>());
    assert!(lines(&csv)[0].parse().is_ok_and(|bytes: u64| bytes > 0), "{csv:?}");
}

/// Check that the number of a pseudoterminal names it, though consoles have such numbers, too.
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

/// Check that the exit status says whether there was one, as that of ps does.
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

/// Check that a forest has the branches and the order of ps.
#[test]
fn forests_are_drawn_as_ps_draws_them() {
    let family = family();
    assert!(family.len() > 80, "{}", family.len());
    // From here to init, whose children are drawn in a way of their own.
    let mut all: BTreeSet<u32> = family.union(&fixtures()).copied().collect();
    let mut pid = std::process::id();
    while pid > 1 {
        all.insert(pid);
        pid = parent(pid);
    }
    let (family, all) = (list(family), list(all));
    for (options, pids) in [
        ("f", &family),
        ("jf", &family),
        ("-H", &family),
        ("-jH", &family),
        ("-j --forest", &family),
        ("-o pid,ppid,args --forest", &all),
        ("-o pid,comm -H", &all),
        ("-o comm,pid --forest", &all),
    ] {
        let args: Vec<&str> = options.split(' ').chain(["-p", pids]).collect();
        let (theirs, mine) = (ps(&args), ours(&args));
        assert!(is_answered(&mine), "{options}: {}", mine.stderr);
        let (theirs, mine) = (lines(&theirs), lines(&mine));
        for (theirs, mine) in theirs.iter().zip(&mine) {
            let [theirs, mine] = [theirs, mine].map(|text| normalized("", text));
            assert_eq!(mine, theirs, "{options}");
        }
        assert_eq!(mine.len(), theirs.len(), "{options}");
    }
}

/// Check that the command does what ps does where it is called by that name.
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

/// Check that what ps would not understand, or we do not, is said by name, and costs no answer.
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

/// Check that specifiers stand for fields of ours in JSON and CSV, and that names of both are ours
/// there.
#[test]
fn specifiers_are_fields_for_programs() {
    let own = std::process::id().to_string();
    let csv = ours(&["-p", &own, "-o", "pid,rss,vsz,uid,stat", "--csv"]).complete();
    let header = csv.lines().next().expect("a header");
    assert!(header.starts_with("pid,rss_bytes,vsize_bytes,uid,"), "{header}");
    let rows = ours(&["aux", "--json"]).json();
    let row = &rows["rows"].as_array().expect("rows")[0];
    assert!(row["pid"].is_u64(), "{row}");
    let sorted = ours(&["-e", "-o", "rss", "--sort=-rss", "--csv", "--no-header"]).complete();
    let sizes: Vec<u64> = sorted.lines().map(|line| line.parse().unwrap_or(0)).collect();
    assert!(
        sizes.len() > 10 && sizes[0] > 0 && sizes.is_sorted_by(|a, b| a >= b),
        "{sizes:?}"
    );
}
