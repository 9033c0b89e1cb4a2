//! `report`: the page, its data compared with other commands, and the page in Chromium.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{json, Value};

use super::browser::Browser;
use super::common::{check_full_disk, copy_program, run, Recorder, Recording, Sleeper};
use super::{full, record};

/// The name of a program that looks like an element of a page.
const PROGRAM: &str = "<img src=x onerror=alert(1)>";

/// The name that a process gives itself.
const NAME: &str = "</script>\\xff";

/// A recording of processes with names that a page could mistake for its own elements.
struct Scene {
    recording: Recording,
    /// The directory of the program and the pages.
    place: Recording,
    /// The process id of the program, which ended after the recording.
    busy: String,
}

impl Scene {
    fn new(name: &str) -> Scene {
        let (recording, place) = (Recording::new(name), Recording::new(&format!("{name}-pages")));
        fs::create_dir(place.path()).expect("a directory");
        let program = place.0.join(PROGRAM);
        copy_program("/bin/dd".as_ref(), &program).expect("dd");
        // Busy and large enough to get its own colour on any machine.
        let args = ["if=/dev/zero", "of=/dev/null", "bs=256M"];
        let busy = Sleeper::run(
            Command::new(&program)
                .arg0("dd")
                .args(args)
                .stderr(std::process::Stdio::null()),
        );
        // Large enough to be listed on any machine.
        let script =
            "printf '</script>\\377' >/proc/$$/comm; x=$(head -c 40000000 /dev/zero | tr '\\0' x); echo ready; \
                      read end; exit ${#x}";
        let named = Command::new("sh")
            .args(["-c", script])
            .arg0("named")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn();
        let mut named = named.expect("a shell");
        let mut ready = [0; 5];
        std::io::Read::read_exact(named.stdout.as_mut().expect("a pipe"), &mut ready).expect("it is ready");
        // Far enough apart that samples are not late on a busy machine.
        let recorded = run(&["record", "--dir", recording.path(), "--every", "1", "-n", "5"]);
        assert_eq!(recorded.code, Some(0), "{recorded:?}");
        drop(named.stdin.take());
        named.wait().expect("it ends");
        let busy = busy.pid();
        Scene { recording, place, busy }
    }

    fn page(&self) -> PathBuf {
        self.place.0.join("report.html")
    }

    /// Creates the page, and returns its data.
    #[track_caller]
    fn report(&self, args: &[&str]) -> Value {
        let page = self.page();
        let all = [&["report", "-o", page.to_str().expect("a path")], args].concat();
        let made = run(&all);
        assert_eq!((made.code, made.stderr.as_str()), (Some(0), ""), "{args:?}");
        data(&page)
    }
}

/// The data of a page.
pub fn data(page: &Path) -> Value {
    let text = fs::read_to_string(page).expect("a page");
    assert!(text.len() < 5 << 20, "{} bytes", text.len());
    let (_, rest) = text.split_once("id=\"data\">").expect("data");
    let (data, _) = rest.split_once("</script>").expect("they end");
    serde_json::from_str(data).expect("JSON")
}

fn numbers(values: &Value) -> Vec<Option<f64>> {
    values.as_array().expect("a list").iter().map(Value::as_f64).collect()
}

/// The series of a group of a page.
fn series(data: &Value, by: &str, group: &str, kind: &str) -> Vec<Option<f64>> {
    let groupings = data["groupings"].as_array().expect("groupings");
    let grouping = groupings.iter().find(|one| one["by"] == by).expect("it is there");
    let names = grouping["names"].as_array().expect("names");
    let index = names.iter().position(|name| name == group);
    numbers(&grouping[kind][index.unwrap_or_else(|| panic!("{group} is not in {names:?}"))])
}

/// Check that the page's values of a group equal those of `ps` for its processes at the same
/// moments, and that all groups together cover all processes.
#[test]
fn charts_have_the_numbers_of_commands() {
    let scene = Scene::new("numbers");
    let history = scene.recording.path();
    let data = scene.report(&["--history", history]);
    assert_eq!((&data["by"], &data["memory"]), (&json!("program"), &json!("rss")));
    let times = data["times"].as_array().expect("times");
    // There is a gap if the machine was too busy to record.
    let known: Vec<usize> = (0..times.len()).filter(|&index| data["known"][index] == true).collect();
    assert_eq!(known.len(), 5, "{times:?}");
    let rows: Vec<Vec<Value>> = times
        .iter()
        .map(|ms| {
            let ms = ms.as_i64().expect("milliseconds");
            let at = jiff::Timestamp::from_millisecond(ms).expect("a time").to_string();
            let fields = "pid,comm,exe,rss_bytes,utime_ns,stime_ns";
            let then = run(&["ps", "--history", history, "--at", &at, "--json", "-o", fields]);
            super::rows(&then)
        })
        .collect();
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap_or(0.0);
    let sum = |rows: &[Value], is_in: &dyn Fn(&Value) -> bool, key: &str| {
        rows.iter()
            .filter(|row| is_in(row))
            .map(|row| number(row, key))
            .sum::<f64>()
    };
    let is_ours = |row: &Value| row["exe"].as_str().is_some_and(|exe| exe.ends_with(PROGRAM));
    let memory = series(&data, "program", PROGRAM, "memory");
    let processors = series(&data, "program", PROGRAM, "processors");
    assert_eq!(processors[0], None);
    let mut compared = 0;
    for &index in &known {
        let then = &rows[index];
        assert_eq!(memory[index], Some(sum(then, &is_ours, "rss_bytes")), "sample {index}");
        let all: f64 = data["groupings"]
            .as_array()
            .expect("groupings")
            .iter()
            .map(|one| {
                let all = one["memory"].as_array().expect("series").iter();
                let total: f64 = all.map(|values| values[index].as_f64().expect("a number")).sum();
                assert_eq!(total, sum(then, &|_| true, "rss_bytes"), "{} {index}", one["by"]);
                total
            })
            .sum();
        assert!(all > 0.0);
        if let Some(shown) = processors[index] {
            compared += 1;
            let used = |rows: &[Value]| sum(rows, &is_ours, "utime_ns") + sum(rows, &is_ours, "stime_ns");
            let ns = (times[index].as_f64().expect("ms") - times[index - 1].as_f64().expect("ms")) * 1e6;
            let expected = (used(then) - used(&rows[index - 1])) / ns;
            // Times have milliseconds here.
            assert!(
                shown > 0.0 && (shown - expected).abs() < 0.04 * expected + 0.001,
                "{shown} {expected}"
            );
        }
    }
    assert!(compared > 0, "{processors:?}");
    let all = |values: &[Option<f64>]| values.iter().flatten().sum::<f64>();
    // Clock ticks and the times of processes differ a little.
    let busy: Vec<Option<f64>> = data["groupings"][0]["processors"]
        .as_array()
        .expect("series")
        .iter()
        .chain([&data["groupings"][0]["unattributed"]])
        .flat_map(numbers)
        .collect();
    assert!(all(&busy) > all(&processors) / 2.0, "{busy:?} {processors:?}");
    let stat = fs::read_to_string("/proc/stat").expect("the kernel has it");
    let there = stat.lines().filter(|line| line.starts_with("cpu")).count() as f64 - 1.0;
    assert!(busy.iter().flatten().all(|busy| *busy <= there), "{busy:?} of {there}");
    let listed = data["present"]["processes"].as_array().expect("processes");
    let names: Vec<&str> = listed.iter().filter_map(|row| row["comm"].as_str()).collect();
    assert!(names.contains(&NAME), "{names:?}");
    for row in listed {
        let then = rows[known[4]].iter().find(|then| then["pid"] == row["pid"]);
        let then = then.unwrap_or_else(|| panic!("{row}"));
        let used = then["utime_ns"].as_u64().zip(then["stime_ns"].as_u64());
        assert_eq!(
            row["used_ns"].as_u64(),
            used.map(|(user, system)| user + system),
            "{row}"
        );
    }
    let account = &data["present"]["account"];
    let lines = account["lines"].as_array().expect("lines");
    let whole = lines.iter().filter(|line| line["part_of"].is_null());
    assert_eq!(
        whole.clone().filter(|line| line["bytes"].is_null()).count(),
        1,
        "{lines:?}"
    );
    let total: i64 = whole.filter_map(|line| line["bytes"].as_i64()).sum();
    assert_eq!(account["total"].as_i64(), Some(total));
    let pid = scene.busy.parse::<u64>().expect("a number");
    assert!(rows[known[4]].iter().any(|row| row["pid"] == pid));
}

/// Check that programs which live between two samples have their processor time: all that they used
/// is in their group, also if samples have some of them.
#[test]
fn programs_between_samples_have_their_time() {
    let (recording, place) = (Recording::new("between"), Recording::new("between-pages"));
    fs::create_dir(place.path()).expect("a directory");
    let program = place.0.join("burner");
    copy_program("/bin/dd".as_ref(), &program).expect("dd");
    let page = place.0.join("page.html");
    let recorder = Recorder::start(&recording, &["--every", "1"]);
    // Some of them end after a time, others after a second on a processor, whatever else runs. The kernel
    // counts that second in ticks, and on a busy machine it can be much less.
    let limits = [
        ("timeout", "0.2"),
        ("timeout", "0.3"),
        ("prlimit", "--cpu=1"),
        ("timeout", "0.2"),
        ("prlimit", "--cpu=1"),
    ];
    for (limit, amount) in limits {
        let mut dd = Command::new(limit);
        dd.arg(amount)
            .arg(&program)
            .args(["if=/dev/zero", "of=/dev/null", "bs=1M"]);
        let ended = dd.output().expect("util-linux and coreutils");
        assert!(!ended.status.success(), "{ended:?}");
    }
    recorder.wait_for_samples(1);
    recorder.end();
    let made = run(&[
        "report",
        "-o",
        page.to_str().expect("a path"),
        "--history",
        recording.path(),
    ]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let data = data(&page);
    let ended = data["ended"].as_array().expect("events");
    let row = ended.iter().find(|row| row["program"] == "burner").expect("it ended");
    assert!(
        row["unseen"].as_u64() > Some(0) && row["unseen"] != row["ended"],
        "{row}"
    );
    let told = row["runtime_ns"].as_f64().expect("the time of what ended") / 1e6;
    let times = numbers(&data["times"]);
    let ms = |index: usize| times[index].expect("ms") - times[index - 1].expect("ms");
    let processors = series(&data, "program", "burner", "processors");
    let shown: f64 = (1..times.len())
        .map(|index| processors[index].unwrap_or(0.0) * ms(index))
        .sum();
    // The last tick of each may be missing from what the event tells. If the machine was too busy to
    // record, there is a gap, in which nothing is known.
    let has_gap = data["known"]
        .as_array()
        .expect("points")
        .iter()
        .any(|known| known == false);
    let room = 0.02 * told + 60.0;
    assert!(
        told > 1000.0 && shown - told < room && (has_gap || told - shown < room),
        "{shown} {told} {processors:?}"
    );
}

/// Check that what was written counts once, though the kernel adds it to each process of a chain in which
/// each waits for the next, when these end.
#[test]
fn chains_of_processes_write_once() {
    const MIB: f64 = (1 << 20) as f64;
    let (recording, place) = (Recording::new("chain"), Recording::new("chain-pages"));
    fs::create_dir(place.path()).expect("a directory");
    let page = place.0.join("page.html");
    // Programs that nobody else runs.
    let programs = ["sh", "timeout", "dd"].map(|program| {
        let path = place.0.join(format!("chain-{program}"));
        crate::common::copy_program(Path::new("/usr/bin").join(program).as_ref(), &path).expect("a copy");
        path.to_str().expect("UTF-8").to_owned()
    });
    let [shell, timeout, dd] = &programs;
    // What is written to tmpfs does not count.
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chain-{}", std::process::id()));
    let end = place.0.join("end");
    // A shell becomes its last command.
    let inner = format!(
        "{dd} if=/dev/zero of={} bs=1M count=64 2>/dev/null; sleep 2; :",
        file.display()
    );
    let outer = format!("{timeout} 100 {shell} -c \"$0\"; touch {}; sleep 100", end.display());
    // A sample that waits for a process that another test holds would be late, after a gap.
    let recorder = Recorder::start(&recording, &["--every", "0.5", "--patience", "0.1"]);
    let _shell = Sleeper::run(Command::new(shell).args(["-c", &outer, &inner]));
    let begin = std::time::Instant::now();
    while !end.exists() {
        assert!(begin.elapsed().as_secs() < 90, "the chain does not end");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    recorder.wait_for_samples(2);
    recorder.end();
    fs::remove_file(&file).expect("our own file");
    let page_name = page.to_str().expect("a path");
    let made = run(&["report", "-o", page_name, "--history", recording.path()]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let data = data(&page);
    let times = numbers(&data["times"]);
    let of_shells: f64 = ["chain-sh", "chain-timeout", "chain-dd"]
        .into_iter()
        .filter(|name| data["groupings"].to_string().contains(&format!("{name:?}")))
        .map(|name| {
            let disk = series(&data, "program", name, "disk");
            (1..times.len())
                .map(|index| disk[index].unwrap_or(0.0) * (times[index].unwrap() - times[index - 1].unwrap()) / 1000.0)
                .sum::<f64>()
        })
        .sum();
    assert!(
        (60.0 * MIB..100.0 * MIB).contains(&of_shells),
        "{}: {} {} {times:?}",
        of_shells / MIB,
        data["groupings"][0]["names"],
        data["known"]
    );
}

/// Check that a full disk is among what happened, and that one with room is not.
#[test]
fn full_disks_are_told() {
    let (recording, place) = (Recording::new("full-disk"), Recording::new("full-disk-page"));
    fs::create_dir(place.path()).expect("a directory");
    let page = place.0.join("page.html");
    // Only the processes of this mount namespace see them.
    let script = "for disk in full empty; do truncate -s 4M $0/$disk.img; mkfs.ext4 -q $0/$disk.img; mkdir $0/$disk; \
        mount -o loop $0/$disk.img $0/$disk || exit; done; yes >$0/full/file 2>/dev/null; shift; exec \"$@\"";
    let recorded = Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-c",
            script,
            place.path(),
            "--",
            env!("CARGO_BIN_EXE_taskdiag"),
            "record",
        ])
        .args(["--dir", recording.path(), "--every", "0.1", "-n", "3"])
        .output()
        .expect("unshare");
    assert!(recorded.status.success(), "{recorded:?}");
    let page_name = page.to_str().expect("a path");
    let made = run(&["report", "-o", page_name, "--history", recording.path()]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let incidents = data(&page)["incidents"].clone();
    let told = |disk: &str| {
        let begin = format!("{} is full: 100 % used, 0B free", place.0.join(disk).display());
        let texts = incidents.as_array().expect("incidents").iter();
        texts
            .filter(|row| row["kind"] == "disk" && row["text"] == begin.as_str())
            .count()
    };
    assert_eq!((told("full"), told("empty")), (1, 0), "{incidents}");
}

/// Check that a link which another user put into a directory for all destroys no file of root's, and
/// that a link of one's own remains one.
#[test]
fn pages_are_not_written_where_others_point() {
    let place = Recording::new("planted");
    fs::create_dir_all(place.path()).expect("a directory");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o1777)).expect("it is ours");
    let (victim, link) = (place.0.join("victim"), place.0.join("page.html"));
    fs::write(&victim, "precious").expect("a file");
    std::os::unix::fs::symlink(&victim, &link).expect("a link");
    std::os::unix::fs::lchown(&link, Some(65534), Some(65534)).expect("root may");
    let args = ["report", "-o", link.to_str().expect("a path")];
    let refused = run(&args);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("another user"), "{}", refused.stderr);
    assert_eq!(fs::read(&victim).expect("a file"), b"precious");
    std::os::unix::fs::lchown(&link, Some(0), Some(0)).expect("root may");
    let written = run(&args);
    assert_ne!(written.code, Some(2), "{written:?}");
    assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
    assert!(fs::read(&victim).expect("a file").starts_with(b"<!"));
}

/// Check the page of the current state, with PSS and the page cache of a directory with any name.
#[test]
fn a_moment_has_a_page() {
    let place = Recording::new("moment");
    let odd = place.0.join(OsStr::from_bytes(b"it's <b>\xff"));
    fs::create_dir_all(&odd).expect("a directory");
    fs::write(odd.join("file"), vec![1; 100_000]).expect("a file");
    let page = place.0.join("now.html");
    let mut command = super::common::command(&["report", "-o", page.to_str().expect("a path"), "--cache"]);
    let made = super::common::Run::new(command.arg(&odd).output().expect("it runs"));
    // Some systems shield the memory of process 1 from everybody, and a process of others may be too
    // large to be read.
    let is_too_large = |line: &str| line.contains("over budget for ");
    let is_usual = |line: &str| line.ends_with("(the kernel denies it even to root)") || is_too_large(line);
    let code = i32::from(made.stderr.lines().any(is_too_large));
    assert!(made.code == Some(code) && made.stderr.lines().all(is_usual), "{made:?}");
    assert_eq!(fs::metadata(&page).expect("a page").permissions().mode() & 0o777, 0o600);
    let data = data(&page);
    assert_eq!(data["times"], json!([]));
    let own = u64::from(std::process::id());
    let listed = data["present"]["processes"].as_array().expect("processes");
    assert!(listed
        .iter()
        .any(|row| row["pid"] == own && row["bytes"].as_u64() > Some(100_000)));
    assert_eq!(data["present"]["memory"], "pss");
    let rows = &data["cache"][0]["rows"];
    assert_eq!((&rows[0]["files"], &rows[0]["size"]), (&json!(1), &json!(100_000)));
    assert!(
        rows[0]["path"]
            .as_str()
            .is_some_and(|path| path.ends_with("it's <b>\\xff")),
        "{rows}"
    );
    let told = data["commands"]["cache"][0][0].as_str().expect("a command");
    assert!(
        told.starts_with("taskdiag cache -x -d 1 $'") && told.ends_with("it\\'s <b>\\xff'"),
        "{told}"
    );
}

/// Check that failures are reported, and that a page is either complete or missing.
#[test]
fn failures_are_said() {
    let recording = Recording::new("report-failures");
    record(&recording, &["-n", "4"]);
    let (history, place) = (recording.path(), Recording::new("report-failures-pages"));
    fs::create_dir(place.path()).expect("a directory");
    let page = place.0.join("page.html");
    let page = page.to_str().expect("a path");
    for (args, said) in [
        (&["report"][..], "--output <FILE>"),
        (&["report", "-o", page, "--from", "-1h"], "--history <DIR>"),
        (
            &[
                "report",
                "-o",
                page,
                "--history",
                history,
                "--from",
                "-1m",
                "--to",
                "-2m",
            ],
            "--from has to be before --to",
        ),
        (
            &["report", "-o", page, "--history", history, "--to", "2020-01-01"],
            "nothing was recorded in that time",
        ),
        (
            &["report", "-o", page, "--history", "/proc/self/fdinfo"],
            "no recording",
        ),
        (&["report", "-o", page, "--cache", "/does/not/exist"], "/does/not/exist"),
        (
            &["report", "-o", "/does/not/exist/page.html", "--history", history],
            "/does/not/exist/page.html: writing the page",
        ),
        (
            &["report", "-o", "/proc", "--history", history],
            "/proc: writing the page: Is a directory",
        ),
        (
            &["report", "-o", "/dev/full", "--history", history],
            "/dev/full: writing the page: No space left on device",
        ),
    ] {
        let run = run(args);
        assert!(run.code == Some(2) && run.stderr.contains(said), "{args:?}: {run:?}");
    }
    assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 0);
    check_full_disk(&["report", "-o", "-", "--history", history]);
    // An older page is replaced.
    fs::write(page, "old").expect("a file");
    assert_eq!(run(&["report", "-o", page, "--history", history]).code, Some(0));
    assert!(data(Path::new(page))["notes"].is_array());
    // Damage is reported, also on the page; the samples before it are shown.
    let file = full(&recording).pop().expect("a file");
    let mut bytes = fs::read(&file).expect("it is ours");
    let at = bytes.len() - 20;
    bytes[at] ^= 4;
    fs::write(&file, &bytes).expect("it is ours");
    let damaged = run(&["report", "-o", page, "--history", history]);
    assert!(
        damaged.code == Some(1) && damaged.stderr.contains("bytes are lost"),
        "{damaged:?}"
    );
    let known_samples = |page: &Value| {
        let known = page["known"].as_array().expect("a list");
        known.iter().filter(|is_known| **is_known == true).count()
    };
    let page_data = data(Path::new(page));
    assert_eq!(known_samples(&page_data), 3);
    let notes = page_data["notes"].to_string();
    assert!(notes.contains("damaged: full-"), "{notes}");
    // Another tier has that time, if nothing of the finest can be read.
    fs::write(&file, &bytes[..3]).expect("it is ours");
    let coarser = run(&["report", "-o", page, "--history", history]);
    assert_eq!(coarser.code, Some(0), "{coarser:?}");
    assert!(known_samples(&data(Path::new(page))) > 0);
    for other in fs::read_dir(recording.path()).expect("a directory") {
        let other = other.expect("an entry").path();
        if other != file {
            fs::remove_file(other).expect("it is ours");
        }
    }
    let none = run(&["report", "-o", page, "--history", history]);
    assert!(
        none.code == Some(2) && none.stderr.contains("nothing was recorded in that time"),
        "{none:?}"
    );
}

/// What is wrong with the layout of a page: words that are broken although they are short, and labels
/// of charts that overlap or are cut off.
const FAULTS: &str = "(() => {
  const faults = [];
  for (const cell of document.querySelectorAll('th, td, li, p, button')) {
    const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node; (node = walk.nextNode());) for (const word of node.data.matchAll(/[A-Za-z0-9]+/g)) {
      if (word[0].length > 12) continue;
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map((box) => box.top));
      if (lines.size > 1) faults.push(`${word[0]} is broken`);
    }
  }
  if ([...document.querySelectorAll('th')].some((cell) => cell.textContent === '')) faults.push('a column without a heading');
  for (const svg of document.querySelectorAll('.chart svg')) {
    const outer = svg.getBoundingClientRect();
    const labels = [...svg.querySelectorAll('text')].map((text) => [text.textContent, text.getBoundingClientRect()]);
    labels.filter(([, box]) => box.width > 0).forEach(([one, a], index, shown) => {
      if (a.left < outer.left - 1 || a.right > outer.right + 1) faults.push(`${one} is cut off`);
      shown.slice(index + 1).forEach(([two, b]) => {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        if (wide > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2) faults.push(`${one} overlaps ${two}`);
      });
    });
  }
  const size = document.querySelector('#largest tbody td:nth-child(3)');
  const box = document.querySelector('#largest .rows').getBoundingClientRect();
  if (size && size.getBoundingClientRect().right > box.right) faults.push('sizes are cut off');
  const rows = [...document.querySelectorAll('#incidents tbody tr')].map((row) => [row.className, row.textContent.slice(0, 19)]);
  const isLater = ([kind, time], at) => at > 0 && kind === rows[at - 1][0] && time > rows[at - 1][1];
  if (rows.some(isLater)) faults.push('the newest is not first');
  const options = [...document.querySelectorAll('.option')];
  if (options.some((option) => option.getClientRects().length > 1)) faults.push('an option is broken');
  return faults.slice(0, 20);
})()";

/// Checks that a page can be read on a telephone, a tablet and a desk, in light and dark colours.
#[track_caller]
fn check_layout(browser: &mut Browser, page: &Path, name: &str) {
    for (width, is_dark) in [390, 800, 1280]
        .into_iter()
        .flat_map(|width| [(width, false), (width, true)])
    {
        browser.set_window(width, is_dark);
        browser.open(page);
        let of = "(() => { const { scrollWidth, scrollHeight } = document.documentElement; return [scrollWidth, scrollHeight]; })()";
        let size = browser.evaluate(of);
        assert!(size[0].as_u64() <= Some(width.into()), "{width}: {size}");
        assert!(size[1].as_u64() < Some(8_000), "{width}: {size}");
        assert_eq!(browser.evaluate(FAULTS), json!([]), "{width} {is_dark}");
        browser.screenshot(&format!("{name}-{width}-{}", if is_dark { "dark" } else { "light" }));
    }
}

/// Check in Chromium that a page has charts and no errors, makes no requests, runs no process's
/// name as a script, and that a click shows only one group.
#[test]
#[ignore = "takes Chromium: make test-report"]
fn pages_work_in_a_browser() {
    let scene = Scene::new("browser");
    let data = scene.report(&["--history", scene.recording.path(), "--cache", "/etc"]);
    let mut browser = Browser::start();
    browser.open(&scene.page());
    let count = |browser: &mut Browser, what: &str| browser.evaluate(what).as_u64().expect("a number");
    for id in ["processor", "memory", "present", "cache"] {
        let paths = count(
            &mut browser,
            &format!("document.querySelectorAll('#{id} .chart svg path').length"),
        );
        assert!(paths > 5, "{id}: {paths} paths");
        let commands = count(
            &mut browser,
            &format!("document.querySelectorAll('#{id} .numbers code').length"),
        );
        assert!(commands > 0, "{id}");
    }
    assert_eq!(
        browser.evaluate("document.querySelectorAll('img, iframe, object').length"),
        0
    );
    let legend = "[...document.querySelectorAll('#legend button')].map((button) => button.textContent)";
    let names = browser.evaluate(legend);
    assert!(names.as_array().expect("names").contains(&PROGRAM.into()), "{names}");
    let listed = browser.evaluate("document.querySelector('#largest tbody').textContent");
    assert!(listed.as_str().is_some_and(|text| text.contains(NAME)), "{listed}");
    let largest =
        "const { bytes, comm, pid } = JSON.parse(document.getElementById('data').textContent).present.processes[0];";
    let tile = format!(
        "(() => {{ {largest} const texts = [...document.querySelectorAll('#present svg text')].map((text) => text.textContent); \
         return texts[texts.indexOf(`${{comm}} ${{pid}}`) + 1]; }})()"
    );
    let size = browser.evaluate(&tile);
    assert!(size.as_str().is_some_and(|size| size.ends_with("iB")), "{size}");
    browser.screenshot("report-light");

    // Click on a name.
    let all = count(&mut browser, "document.querySelectorAll('#largest tbody tr').length");
    let find = format!(
        "[...document.querySelectorAll('#legend button')].find((button) => button.textContent === {})",
        json!(PROGRAM)
    );
    browser.click(&find);
    assert_eq!(
        browser.evaluate("document.querySelector('#focus').textContent"),
        format!("Only {PROGRAM}")
    );
    let pressed = browser.evaluate("document.querySelectorAll('#legend [aria-pressed=true]').length");
    assert_eq!(pressed, 1);
    assert!(count(&mut browser, "document.querySelectorAll('#largest tbody tr').length") < all);
    let drawn = "echarts.getInstanceByDom(document.querySelector('#processor .chart')).getOption().series.map((one) => one.name)";
    assert_eq!(browser.evaluate(drawn), json!([PROGRAM, "marks"]));
    browser.screenshot("report-chosen");
    browser.click("document.querySelector('#all')");
    let shown = browser.evaluate(drawn);
    assert!(shown.as_array().is_some_and(|names| names.len() > 3), "{shown}");

    // Click on the area of the test's program, between two samples.
    let ours = series(&data, "program", PROGRAM, "processors");
    let at = (1..ours.len()).find(|&at| ours[at].is_some() && ours[at - 1].is_some());
    let at = at.expect("two samples without a gap");
    let grouping = &data["groupings"][0];
    let names = grouping["names"].as_array().expect("names");
    let index = names.iter().position(|name| name == PROGRAM).expect("ours");
    // What the second one has was used since the first one.
    let of_row = |row: usize| numbers(&grouping["processors"][row])[at].expect("a number");
    let below: f64 = (0..index).map(of_row).sum();
    let ms = (data["times"][at].as_f64().expect("ms") + data["times"][at - 1].as_f64().expect("ms")) / 2.0;
    let point = format!(
        "(() => {{ const place = document.querySelector('#processor .chart'); const box = place.getBoundingClientRect(); \
         const [x, y] = echarts.getInstanceByDom(place).convertToPixel({{ xAxisIndex: 0, yAxisIndex: 0 }}, [{}, {}]); \
         return [box.x + x, box.y + y]; }})()",
        ms,
        below + of_row(index) / 2.0
    );
    browser.evaluate("document.querySelector('#processor').scrollIntoView()");
    let spot = browser.evaluate(&point);
    browser.click_at(spot[0].as_f64().expect("x"), spot[1].as_f64().expect("y"));
    assert_eq!(
        browser.evaluate("document.querySelector('#focus').textContent"),
        format!("Only {PROGRAM}")
    );
    // The commands refer to the sample before the click.
    let told = browser.evaluate("document.querySelector('#processor code').textContent");
    let moment = jiff::Timestamp::from_millisecond(data["times"][at - 1].as_i64().expect("ms")).expect("a time");
    assert!(
        told.as_str()
            .is_some_and(|text| text.contains(&format!("--at {moment:.3} "))),
        "{told} {moment:.3}"
    );
    browser.click("document.querySelector('#all')");

    // Other groups, zoom, dark colours, and print.
    browser.click("document.querySelector('#by input[value=unit]')");
    let zoomed = "(() => { const made = echarts.getInstanceByDom(document.querySelector('#processor .chart')); \
                  made.dispatchAction({ type: 'dataZoom', start: 30, end: 60 }); \
                  const other = echarts.getInstanceByDom(document.querySelector('#memory .chart')); \
                  return [made, other].map((one) => one.getOption().dataZoom[0].end); })()";
    assert_eq!(browser.evaluate(zoomed), json!([60, 60]));
    browser.click("document.querySelector('#theme input[value=dark]')");
    assert_eq!(browser.evaluate("document.documentElement.dataset.theme"), "dark");
    browser.screenshot("report-dark");
    browser.print("report-print");
    check_layout(&mut browser, &scene.page(), "report");
    assert_eq!(browser.complaints(), &[] as &[String]);
}

/// Check that the largest possible page is small and opens quickly.
#[test]
#[ignore = "takes Chromium: make test-report"]
fn large_pages_open_soon() {
    let scene = Scene::new("large");
    let mut data = scene.report(&["--history", scene.recording.path()]);
    const POINTS: usize = 450;
    const PEAK: usize = 200;
    let wave = |row: usize| -> Vec<f64> { (0..POINTS).map(|at| ((at * (row + 7)) % 97) as f64 / 97.0).collect() };
    data["times"] = (0..POINTS)
        .map(|at| 1_795_000_000_000_u64 + at as u64 * 216_000)
        .collect();
    data["known"] = vec![true; POINTS].into();
    data["used"] = wave(3).into();
    for grouping in data["groupings"].as_array_mut().expect("groupings") {
        grouping["names"] = (0..11).map(|row| format!("group {row}")).collect();
        grouping["processors"] = (0..12).map(wave).map(Value::from).collect();
        grouping["memory"] = (0..12)
            .map(|row| wave(row).iter().map(|part| (part * 1e9).round()).collect::<Value>())
            .collect();
        for values in grouping["memory"].as_array_mut().expect("rows") {
            (300..310).for_each(|at| values[at] = Value::Null);
        }
        let peak = |row: usize| -> Value { (0..POINTS).map(|at| u64::from((row, at) == (0, PEAK)) << 30).collect() };
        grouping["disk"] = (0..12).map(peak).collect();
        grouping["unattributed"] = wave(1).into();
        grouping["rest_count"] = 9_000.into();
    }
    let incident =
        json!({ "ms": 1_795_000_000_000_u64, "kind": "oom", "text": format!("killed in /{}", "x".repeat(200)) });
    data["incidents"] = vec![incident; 500].into();
    let process = |pid: usize| json!({ "pid": pid, "comm": "a name of them", "user": "user", "bytes": 9_000_000 / (pid + 1), "groups": [format!("group {}", pid % 20), "x.service", null] });
    data["present"]["processes"] = (0..400).map(process).collect();
    data["present"]["rest"] = vec![
        json!((0..201)
            .map(|row| json!([format!("unit-{row}.service"), 40, 1000]))
            .collect::<Value>());
        3
    ]
    .into();
    let text = fs::read_to_string(scene.page()).expect("a page");
    let (before, rest) = text.split_once("id=\"data\">").expect("data");
    let (_, after) = rest.split_once("</script>").expect("they end");
    let large = format!("{before}id=\"data\">{data}</script>{after}");
    assert!(large.len() < 5 << 20, "{}", large.len());
    fs::write(scene.page(), &large).expect("it is ours");
    let mut browser = Browser::start();
    browser.open(&scene.page());
    let ms = browser.evaluate("Number(document.documentElement.dataset.drawn)");
    let cpu_ms = browser.cpu_ms();
    browser.screenshot("report-large");
    eprintln!(
        "{} bytes, drawn after {ms} ms, {cpu_ms} ms of them on a processor",
        large.len()
    );
    // Other processes use the machine too, so only the page's own time counts.
    assert!(
        ms.as_f64() > Some(0.0) && cpu_ms > 0.0 && cpu_ms < 2000.0,
        "{ms} {cpu_ms}"
    );
    // Marks are above what charts show, a peak of one point can be seen up to its end, and there is nothing
    // in a gap.
    for width in [800, 1280] {
        browser.set_window(width, false);
        browser.open(&scene.page());
        let seen = format!(
            "(() => {{ const has = (id, at, value) => {{ const place = document.querySelector(`#${{id}} .chart`); place.scrollIntoView(); \
             const box = place.getBoundingClientRect(); const made = echarts.getInstanceByDom(place); \
             const [x, y] = made.convertToPixel({{ xAxisIndex: 0, yAxisIndex: 0 }}, [1795e9 + at * 216e3, value]); \
             const fills = [-0.5, 0, 0.5].map((aside) => document.elementsFromPoint(box.left + x + aside, box.top + y) \
             .map((one) => one.getAttribute('fill')).find((fill) => fill !== 'transparent')); \
             const top = made.convertToPixel({{ yAxisIndex: 1 }}, 1) + box.top; \
             const marks = [...place.querySelectorAll('path[fill=\"#d4351c\"]')]; \
             return fills.includes('#332288') && marks.length > 0 && marks.every((mark) => mark.getBoundingClientRect().bottom <= top); }}; \
             return [has('disk', {PEAK} - 0.5, 0.97 * 2 ** 30), has('memory', 299.5, 1e7), has('memory', 305, 1e7), has('memory', 309.5, 1e7)]; }})()"
        );
        assert_eq!(browser.evaluate(&seen), json!([true, true, false, false]), "{width}");
    }
    check_layout(&mut browser, &scene.page(), "report-large");
    assert_eq!(browser.complaints(), &[] as &[String]);
}
