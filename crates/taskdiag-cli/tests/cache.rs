//! `taskdiag cache`, run as a program.

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{chown, symlink, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{
    check_closed_pipe, check_full_disk, command, copy_program, free_pid, run, run_as, run_as_nobody, start,
    wait_until_it_sleeps,
};
use serde_json::{json, Value};
use taskdiag_testkit::child::{self, World};
use taskdiag_testkit::temporary::Killed;
use taskdiag_testkit::{storage, test_name};

/// A directory in memory, whose files are cached and never dirty. Removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = Path::new("/dev/shm").join(format!("taskdiag-cli-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory for the test");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("our own directory");
        Scratch(path)
    }

    /// Writes files of these sizes, with the directories above them.
    fn with_files(name: &str, files: &[(&str, usize)]) -> Scratch {
        let scratch = Scratch::new(name);
        for (path, size) in files {
            let path = scratch.0.join(path);
            fs::create_dir_all(path.parent().expect("below the directory")).expect("directories");
            fs::write(path, vec![b'x'; *size]).expect("room");
        }
        scratch
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("made of UTF-8").to_owned()
    }

    fn root(&self) -> String {
        self.0.to_str().expect("made of UTF-8").to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// Whether this kernel has cachestat.
fn has_cachestat() -> bool {
    run(&["doctor", "--json"]).json()["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .any(|row| row["fact"] == "cachestat" && row["verdict"] == "yes")
}

/// Rows of a document by their paths.
fn rows(document: &Value) -> Vec<(String, u64, u64)> {
    let mut rows: Vec<_> = document["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| {
            let number = |key: &str| row[key].as_u64().expect(key);
            (
                row["path"].as_str().expect("a path").to_owned(),
                number("size_bytes"),
                number("cached_bytes"),
            )
        })
        .collect();
    rows.sort();
    rows
}

const TREE: &[(&str, usize)] = &[("a/one", 1), ("a/b/two", 5000), ("a/b/three", 10_000), ("four", 3)];

/// Check that files have rows with all values, in a document with all its members.
#[test]
fn files_have_rows() {
    let scratch = Scratch::with_files("files", TREE);
    let found = run(&["cache", "--json", &scratch.root()]);
    assert_eq!((found.code, found.stderr.as_str()), (Some(0), ""));
    let document = found.json();
    assert_eq!(
        (&document["schema"], &document["command"]),
        (&json!(1), &json!("cache"))
    );
    let source = if has_cachestat() { "cachestat" } else { "mincore" };
    assert_eq!(document["sources"], json!({ "pagecache": source }));
    let page = page_size();
    let pages = |size: u64| size.div_ceil(page) * page;
    let expected: Vec<_> = [("a/b/three", 10_000), ("a/b/two", 5000), ("a/one", 1), ("four", 3)]
        .map(|(name, size)| (scratch.path(name), size, pages(size)))
        .into();
    assert_eq!(rows(&document), expected);
    for row in document["rows"].as_array().expect("rows") {
        for key in [
            "dirty_bytes",
            "writeback_bytes",
            "evicted_bytes",
            "recently_evicted_bytes",
        ] {
            if has_cachestat() {
                assert_eq!(row[key], 0)
            } else {
                assert_eq!((&row[key], &row["absent"][key]), (&Value::Null, &json!("unsupported")))
            }
        }
    }
    let counters = &document["counters"];
    assert_eq!(
        (&counters["files"], &counters["directories"], &counters["denied"]),
        (&json!(4), &json!(3), &json!(0))
    );
}

/// Check that directories add up at every level, and that each PATH has its own sum.
#[test]
fn directories_add_up() {
    let scratch = Scratch::with_files("sums", TREE);
    let root = scratch.root();
    let sizes = |args: &[&str]| {
        let document = run(&[&["cache", "--json"], args].concat()).json();
        rows(&document)
            .into_iter()
            .map(|(path, size, _)| (path, size))
            .collect::<Vec<_>>()
    };
    let (a, b) = (scratch.path("a"), scratch.path("a/b"));
    assert_eq!(sizes(&["-s", &root]), [(root.clone(), 15_004)]);
    assert_eq!(
        sizes(&["-d", "1", &root]),
        [(root.clone(), 15_004), (a.clone(), 15_001)]
    );
    let all = [(root.clone(), 15_004), (a.clone(), 15_001), (b.clone(), 15_000)];
    assert_eq!(sizes(&["-d", "9", &root]), all);
    assert_eq!(sizes(&["-s", &root, &a, &b]), all);
    assert_eq!(sizes(&["-s", &scratch.path("four")]), [(scratch.path("four"), 3)]);
    // Each file has only one row.
    assert_eq!(sizes(&[&root, &a]).len(), 4);
}

/// Check sorting, limits, filters and chosen fields.
#[test]
fn rows_are_sorted_and_chosen() {
    let scratch = Scratch::with_files("sorted", TREE);
    let root = scratch.root();
    let lines = |args: &[&str]| {
        let text = run(&[&["cache", "--no-header", "-o", "size_bytes", "--bytes"], args, &[&root]].concat()).complete();
        text.lines()
            .map(|line| line.trim().parse().expect("a size"))
            .collect::<Vec<u64>>()
    };
    assert_eq!(lines(&["--sort", "-size_bytes"]), [10_000, 5000, 3, 1]);
    assert_eq!(lines(&["--sort", "size_bytes", "--limit", "2"]), [1, 3]);
    assert_eq!(lines(&["--sort", "path"]), [10_000, 5000, 1, 3]);
    assert_eq!(lines(&["--sort", "path", "--min", "8K"]), [10_000, 5000]);
    assert_eq!(lines(&["--limit", "3"]).len(), 3);
    assert_eq!(lines(&["--limit", "0"]).len(), 0);
    let pages = run(&[
        "cache",
        "--no-header",
        "-o",
        "cached_bytes",
        "--pages",
        &scratch.path("a/b/three"),
    ])
    .complete();
    assert_eq!(pages.trim(), 10_000_u64.div_ceil(page_size()).to_string());
    let csv = run(&["cache", "--csv", "-o", "path,size_bytes", &scratch.path("four")]).complete();
    assert_eq!(csv, format!("path,size_bytes\n{},3\n", scratch.path("four")));
}

/// Check that a range applies to each file, and that percentages refer to the range.
#[test]
fn ranges_are_parts_of_files() {
    let scratch = Scratch::new("range");
    let file = File::create(scratch.0.join("sparse")).expect("a new file");
    file.set_len(100 * page_size()).expect("a sparse file");
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![1; 3 * page_size() as usize], 50 * page_size())
        .expect("room");
    let path = scratch.path("sparse");
    let cached = |range: &str| {
        let document = run(&["cache", "--json", "--range", range, &path]).json();
        rows(&document)[0].2 / page_size()
    };
    let kib = page_size() / 1024;
    assert_eq!(cached(":"), 3);
    assert_eq!(cached(&format!("{}K:", 51 * kib)), 2);
    assert_eq!(cached(&format!(":{}K", 51 * kib)), 1);
    assert_eq!(cached(&format!("{}K:{}K", 52 * kib, kib)), 1);
    let text = run(&[
        "cache",
        "--no-header",
        "--range",
        &format!("{}:{}", 50 * page_size(), 4 * page_size()),
        &path,
    ]);
    assert!(text.complete().contains(" 75.0 "));
}

/// Check lists of file names, in both forms, with names of any bytes.
#[test]
fn names_come_from_lists() {
    let scratch = Scratch::with_files("lists", TREE);
    let strange = scratch.0.join(OsStr::from_bytes(b"new\nline \xff"));
    fs::write(&strange, b"12").expect("room");
    let feed = |list: &[u8]| {
        let mut child = command(&["cache", "--json", "--files-from", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        child.stdin.take().expect("a pipe").write_all(list).expect("it reads");
        child.wait_with_output().expect("it ends")
    };
    let list = [
        strange.as_os_str().as_bytes(),
        b"\0",
        scratch.path("four").as_bytes(),
        b"\0",
    ]
    .concat();
    let document: Value = serde_json::from_slice(&feed(&list).stdout).expect("a document");
    let rows = document["rows"].as_array().expect("rows");
    assert_eq!(
        (rows[0]["size_bytes"].as_u64(), rows[1]["size_bytes"].as_u64()),
        (Some(2), Some(3))
    );
    assert!(rows[0]["path"]["base64"].is_string(), "{document}");

    let missing = scratch.path("missing");
    let output = feed(format!("{}\n{missing}\n{}", scratch.path("a/one"), scratch.path("four")).as_bytes());
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(message, format!("taskdiag: {missing}: No such file or directory\n"));
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(document["rows"].as_array().map(Vec::len), Some(2));
}

/// Check that FIFOs are not opened, that links below a PATH are not followed, and that other files
/// are refused.
#[test]
fn only_regular_files_are_opened() {
    let scratch = Scratch::with_files("kinds", &[("d/file", 1)]);
    let fifo = scratch.path("d/fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    symlink("..", scratch.0.join("d/up")).expect("a link");
    assert_eq!(rows(&run(&["cache", "--json", &scratch.root()]).json()).len(), 1);
    for path in [fifo.as_str(), "/dev/null"] {
        let refused = run(&["cache", path]);
        assert_eq!(refused.code, Some(1));
        assert_eq!(
            refused.stderr,
            format!("taskdiag: {path}: neither a regular file nor a directory nor a block device\n")
        );
    }
}

/// Check that file names can't control a terminal.
#[test]
fn names_are_made_harmless() {
    let scratch = Scratch::new("names");
    fs::write(scratch.0.join("\x1b]0;owned\x07"), b"x").expect("room");
    let text = run(&["cache", &scratch.root()]).complete();
    assert!(text.contains("\\x1b]0;owned\\x07") && !text.contains('\x1b'), "{text}");
}

/// Check that wrong usage is rejected before anything is read.
#[test]
fn wrong_usage_is_refused() {
    for (args, part) in [
        (&["cache"][..], "no file or directory is named"),
        (&["cache", "-o", "cachd", "."], "cached_bytes"),
        (&["cache", "--sort", "-sizes", "."], "size_bytes"),
        (&["cache", "--range", "5", "."], "OFF:LEN"),
        (&["cache", "--range", "1:0", "."], "leave out LEN"),
        (&["cache", "--min", "x", "."], "is not a size"),
        (&["cache", "-s", "-d", "1", "."], "cannot be used with"),
        (&["cache", "--map", "/etc/passwd", "."], "cannot be used with"),
        (&["cache", "--map", "/dev/null"], "regular file"),
        (&["cache", "--map", "/missing"], "No such file"),
        (&["cache", "--files-from", "/missing"], "No such file"),
        (&["cache", "--by", "user", "."], "cannot be used with"),
        (&["cache", "--by", "user", "--files-from", "-"], "cannot be used with"),
        (
            &["cache", "--by", "user", "--map", "/etc/passwd"],
            "cannot be used with",
        ),
        (&["cache", "--by", "user", "--top", "3"], "cannot be used with"),
        (&["cache", "--by", "user", "-d", "1"], "cannot be used with"),
        (&["cache", "--by", "user", "-s"], "cannot be used with"),
        (&["cache", "--by", "user", "-x"], "cannot be used with"),
        (
            &["cache", "--by", "user", "-o", "path"],
            "--by always shows the same sums",
        ),
        (&["cache", "--by", "user", "--sort", "path"], "unknown key of sums"),
        (&["cache", "--by", "path"], "invalid value 'path'"),
    ] {
        let run = run(args);
        assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{args:?}");
        assert!(run.stderr.contains(part), "{args:?}: {}", run.stderr);
    }
}

/// Check that the user nobody sees nothing about root's files, through any source, and that this is
/// reported.
#[test]
fn roots_files_are_denied_to_nobody() {
    let scratch = Scratch::with_files("denied", TREE);
    fs::create_dir(scratch.0.join("closed")).expect("a directory");
    fs::set_permissions(scratch.0.join("closed"), Permissions::from_mode(0o700)).expect("our own");
    for source in ["auto", "mincore"] {
        let Some(run) = run_as_nobody(&["cache", "--json", "--source", source, &scratch.root()]) else {
            return;
        };
        assert_eq!(run.code, Some(1));
        assert!(
            run.stderr.contains("4 of 4 files") && run.stderr.contains("sudo"),
            "{}",
            run.stderr
        );
        let closed = format!("taskdiag: {}: Permission denied\n", scratch.path("closed"));
        assert!(run.stderr.contains(&closed), "{}", run.stderr);
        for row in run.json()["rows"].as_array().expect("rows") {
            assert!(row["size_bytes"].is_u64() && row["cached_bytes"].is_null(), "{row}");
            assert_eq!(row["absent"]["cached_bytes"], "denied");
        }
        // The sum of denied values is denied.
        let run = run_as_nobody(&["cache", "-s", "--json", "--source", source, &scratch.root()]).expect("as before");
        let document = run.json();
        let row = &document["rows"][0];
        assert_eq!(row["absent"]["cached_bytes"], "denied", "{document}");
        assert_eq!((&row["files_count"], &row["missing_count"]), (&json!(4), &json!(4)));
        assert_eq!(document["counters"]["denied"], 4);
        // A partial sum says how many files are in it, and has no percentage.
        let own = scratch.path("four");
        chown(&own, Some(65534), Some(65534)).expect("root may");
        let run = run_as_nobody(&["cache", "-s", "--json", "--source", source, &scratch.root()]).expect("as before");
        let row = &run.json()["rows"][0];
        assert!(row["cached_bytes"].as_u64() > Some(0), "{row}");
        assert_eq!((&row["files_count"], &row["missing_count"]), (&json!(4), &json!(3)));
        let args = ["cache", "-s", "--source", source, &scratch.root()];
        let table = run_as_nobody(&args).expect("as before").text();
        assert!(table.lines().next().expect("a header").contains(" FILES "), "{table}");
        let sum: Vec<&str> = table.lines().nth(1).expect("a row").split_whitespace().collect();
        assert!(
            sum[1] == "-" && sum.windows(3).any(|words| words == ["1", "of", "4"]),
            "{table}"
        );
        chown(&own, Some(0), Some(0)).expect("root may");
    }
    // The files that processes hold belong to others too: this user has none.
    let top = run_as(65533, &["cache", "--top", "3"]).expect("as before");
    assert_eq!(top.code, Some(1));
    assert!(
        top.stderr.contains("looked at: what is cached is not known;") && !top.stderr.contains(" 0B cached"),
        "{}",
        top.stderr
    );
    let map = run_as_nobody(&["cache", "--map", &scratch.path("four")]).expect("as before");
    assert_eq!((map.code, map.stdout.len()), (Some(2), 0));
    assert!(map.stderr.contains("owner"), "{}", map.stderr);
}

/// Check that a source can be forced, and that the values that mincore lacks are unsupported.
#[test]
fn mincore_has_fewer_values() {
    let scratch = Scratch::with_files("mincore", TREE);
    let args = ["cache", "--source", "mincore", "--json", &scratch.root()];
    let document = run(&args).json();
    assert_eq!(document["sources"], json!({ "pagecache": "mincore" }));
    assert_eq!(
        rows(&document),
        rows(&run(&["cache", "--json", &scratch.root()]).json())
    );
    assert_eq!(document["rows"][0]["absent"]["dirty_bytes"], "unsupported");
    let text = run(&["cache", "--source", "mincore", &scratch.root()]).complete();
    assert!(text.starts_with("CACHED") && !text.contains("DIRTY"), "{text}");
    // Choosing a column that the source never has makes the answer partial.
    let asked = run(&[
        "cache",
        "--source",
        "mincore",
        "-o",
        "dirty_bytes,path",
        &scratch.path("four"),
    ]);
    assert_eq!(asked.code, Some(1));
    assert!(
        asked.stderr.contains("dirty_bytes: mincore does not have it"),
        "{}",
        asked.stderr
    );
    let forced = run(&["cache", "--source", "cachestat", &scratch.path("four")]);
    if has_cachestat() {
        assert_eq!(forced.code, Some(0))
    } else {
        assert!(
            forced.code == Some(2) && forced.stderr.contains("6.5"),
            "{}",
            forced.stderr
        )
    }
}

/// Check files that are read through an overlay, as in containers: the kernel only says how much of
/// them is cached.
#[test]
fn files_on_overlays_are_cached() {
    child::run(test_name!(), "overlay", World::default(), || {
        let scratch = Scratch::with_files("overlay", &[("lower/file", 5000), ("lower/d/file", 1)]);
        let merged = storage::overlay(&scratch.0, &scratch.0.join("lower"), "");
        let root = merged.to_str().expect("UTF-8");
        let path = format!("{root}/file");
        let (page, pages) = (page_size(), 5000_u64.div_ceil(page_size()));
        let unknown = ["dirty", "writeback", "evicted", "recently_evicted"];
        let check = |document: &Value, place: &str, size: u64, cached: u64| {
            let rows = document["rows"].as_array().expect("rows");
            let row = rows.iter().find(|row| row["path"] == place).expect("a row");
            let known = (&row["size_bytes"], &row["cached_bytes"]);
            assert_eq!(known, (&json!(size), &json!(cached)), "{row}");
            for name in unknown {
                assert_eq!(row["absent"][format!("{name}_bytes")], "unsupported", "{row}");
            }
        };
        let answer = |args: &[&str]| {
            let answer = run(&[&["cache", "--json"], args].concat());
            assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""));
            answer.json()
        };
        check(&answer(&[root]), &path, 5000, pages * page);
        check(&answer(&["-s", root]), root, 5001, (pages + 1) * page);
        let map = run(&["cache", "--jsonl", "--map", &path]).complete();
        assert!(map.contains(r#""state":"cached""#) && map.lines().count() == 1, "{map}");
        let bar = run(&["cache", "--map", &path]).complete();
        assert!(
            bar.contains(" cached; a character is") && !bar.contains("being written;"),
            "{bar}"
        );
        let file = File::open(&path).expect("it");
        let holder = Command::new("sleep").arg("1000").stdin(file).spawn();
        let holder = Killed(holder.expect("sleep exists"));
        let of_process = run(&["cache", "--json", "--of-process", &holder.0.id().to_string()]);
        check(&of_process.json(), &path, 5000, pages * page);
        check(
            &run(&["cache", "--json", "--top", "100000"]).json(),
            &path,
            5000,
            pages * page,
        );
        // Asking for what nobody knows makes the answer partial.
        let asked = run(&["cache", "-o", "dirty_bytes,path", &path]);
        assert_eq!(asked.code, Some(1));
        assert!(asked.stderr.starts_with("taskdiag: dirty_bytes: "), "{}", asked.stderr);
    });
}

/// Check block devices, as a PATH and as what a process has open.
#[test]
fn block_devices_have_rows() {
    let scratch = Scratch::with_files("block", &[("content", 2_000_000)]);
    let size = 2_000_000 / 512 * 512;
    let content = File::options().read(true).write(true).open(scratch.0.join("content"));
    let mut device = storage::BlockDevice::of(&content.expect("it"));
    device.file.read_exact(&mut [0; 300_000]).expect("content");
    let path = device.path.to_str().expect("UTF-8");
    let holder = Command::new("sleep")
        .arg("1000")
        .stdin(device.file.try_clone().expect("a copy"))
        .spawn()
        .expect("sleep exists");
    let holder = Killed(holder);
    // Others may read new devices, as udev does.
    let cached = |args: &[&str]| {
        let document = run(&[&["cache", "--json"], args].concat()).json();
        let row = document["rows"]
            .as_array()
            .expect("rows")
            .iter()
            .find(|row| row["path"] == path);
        let row = row.unwrap_or_else(|| panic!("{args:?}: {document}")).clone();
        assert_eq!(row["size_bytes"], json!(size), "{row}");
        row["cached_bytes"].as_u64().expect("a number")
    };
    let expected = || {
        if has_cachestat() {
            storage::cachestat(&device.file).expect("an answer")[0] * page_size()
        } else {
            cached(&["--source", "mincore", path])
        }
    };
    for attempt in 0.. {
        let before = expected();
        let of_process = cached(&["--of-process", &holder.0.id().to_string()]);
        let answers = [cached(&[path]), cached(&["-s", path]), of_process];
        if before == expected() {
            assert!(before >= 300_000 && before <= size + page_size(), "{before}");
            assert_eq!(answers, [before; 3]);
            break;
        }
        assert!(attempt < 10, "the device is read all the time");
    }
    let map = run(&["cache", "--map", path]).complete();
    assert!(map.contains(" of 1.9M cached"), "{map}");
}

/// Check the map of a file: a bar that fills a line, and exact runs in machine-readable output.
#[test]
fn maps_show_parts() {
    let scratch = Scratch::new("map");
    let page = page_size();
    let file = File::create(scratch.0.join("sparse")).expect("a new file");
    file.set_len(1000 * page).expect("a sparse file");
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![1; 250 * page as usize], 500 * page).expect("room");
    let path = scratch.path("sparse");
    let text = run(&["cache", "--map", &path]).complete();
    let bar = text.lines().nth(1).expect("a bar");
    assert_eq!(bar.chars().count(), 79, "{text}");
    let inner: Vec<char> = bar.chars().collect();
    assert_eq!((inner[1], inner[50], inner[76]), ('·', '█', '·'), "{text}");
    let ascii = command(&["cache", "--map", &path])
        .env("LC_ALL", "C")
        .output()
        .expect("the binary runs");
    assert!(ascii.stdout.is_ascii());
    let document = run(&["cache", "--map", &path, "--json"]).json();
    let rows = document["rows"].as_array().expect("rows");
    let numbers: Vec<_> = rows
        .iter()
        .map(|row| ["offset_bytes", "size_bytes", "cached_bytes"].map(|key| row[key].as_u64().expect(key) / page))
        .collect();
    assert_eq!(numbers, [[0, 500, 0], [500, 250, 250], [750, 250, 0]]);
    assert_eq!(
        (&rows[0]["state"], &rows[1]["state"]),
        (&json!("uncached"), &json!("clean"))
    );
    let lines = run(&[
        "cache",
        "--map",
        &path,
        "--jsonl",
        "--range",
        &format!("{}:", 700 * page),
    ])
    .complete();
    assert_eq!(lines.lines().count(), 2);
}

/// Check the files of a process, and that a process that does not exist is reported.
#[test]
fn files_of_processes_are_shown() {
    let scratch = Scratch::with_files("held", &[("held\nfile", 5000)]);
    let file = File::open(scratch.0.join("held\nfile")).expect("just written");
    let mut holder = Command::new("sleep")
        .arg("1000")
        .stdin(file)
        .spawn()
        .expect("sleep exists");
    let missing = free_pid();
    let run_of = run(&["cache", "--json", "--of-process", &format!("{},{missing}", holder.id())]);
    let top = run(&["cache", "--top", "100000", "--json"]);
    let _ = holder.kill();
    let _ = holder.wait();
    assert_eq!(run_of.code, Some(1));
    // Without privileges, the process's program is denied.
    let message = format!("taskdiag: pid {missing}: no such process\n");
    assert!(run_of.stderr.starts_with(&message), "{}", run_of.stderr);
    let pages = 5000_u64.div_ceil(page_size()) * page_size();
    let held = scratch.path("held\nfile");
    let document = run_of.json();
    let of_process = document["rows"].as_array().expect("rows");
    let row = of_process
        .iter()
        .find(|row| row["path"] == json!(held))
        .expect("the file");
    assert_eq!(
        (&row["size_bytes"], &row["cached_bytes"]),
        (&json!(5000), &json!(pages))
    );
    assert!(of_process.len() > 1, "{document}");

    let document = top.json();
    let all = document["rows"].as_array().expect("rows");
    assert!(all.iter().any(|row| row["path"] == json!(held)), "{document}");
    let cached: Vec<u64> = all.iter().map_while(|row| row["cached_bytes"].as_u64()).collect();
    assert!(cached.is_sorted_by(|a, b| a >= b) && !cached.is_empty());
    assert!(top.stderr.contains("this machine's page cache"), "{}", top.stderr);
    let sum: u64 = cached.iter().sum();
    assert_eq!(document["counters"]["cached_bytes"].as_u64(), Some(sum));
    assert!(document["counters"]["machine_cached_bytes"].as_u64() > Some(0));
}

/// Users without other processes, each with a group of the same number.
const USERS: [u32; 2] = [64_501, 64_502];

/// A process of one of them that has one file open, and maps its program and the libraries.
fn holder(user: u32, program: &Path, open: &Path) -> (Killed, String) {
    let mut command = Command::new(program);
    command.arg("1000").uid(user).gid(user);
    command
        .stdin(File::open(open).expect("a file"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let holder = Killed(command.spawn().expect("it runs"));
    let pid = holder.0.id().to_string();
    wait_until_it_sleeps(&pid);
    (holder, pid)
}

/// The numbers of processes, of files, and of those that are missing from the sum, their size, and what is
/// cached.
fn numbers(sum: &Value) -> [Option<u64>; 5] {
    [
        "processes_count",
        "files_count",
        "missing_count",
        "size_bytes",
        "cached_bytes",
    ]
    .map(|key| sum[key].as_u64())
}

/// Sums by effective user.
fn by_user(document: &Value) -> BTreeMap<u64, [Option<u64>; 5]> {
    let rows = document["rows"].as_array().expect("rows").iter();
    rows.map(|row| (row["euid"].as_u64().expect("a user"), numbers(row)))
        .collect()
}

/// Check that a sparse file of any size costs little time, has its own reason, and costs no other file
/// of its file system an answer.
#[test]
fn large_files_cost_no_other() {
    let scratch = Scratch::with_files("large", &[("small", 5000)]);
    let (large, small) = (scratch.0.join("large"), scratch.0.join("small"));
    let file = File::create(&large).expect("a file");
    file.set_len(1 << 42).expect("a sparse file");
    let holder = Command::new("/bin/sleep")
        .arg("1000")
        .stdin(File::open(&large).expect("our own file"))
        .stderr(File::open(&small).expect("our own file"))
        .spawn();
    let holder = Killed(holder.expect("sleep"));
    let begun = Instant::now();
    let args = ["cache", "--source", "mincore", "--json", "--of-process"];
    let listed = run(&[&args[..], &[&holder.0.id().to_string()]].concat());
    let taken = begun.elapsed();
    assert!(taken < Duration::from_secs(2) + taskdiag_zoo::margin(), "{taken:?}");
    assert!(
        listed.code == Some(1) && listed.stderr.contains("mincore(2) takes too long for their size"),
        "{listed:?}"
    );
    let document = listed.json();
    assert_eq!(document["counters"]["over_budget"], 1, "{document}");
    let rows = document["rows"].as_array().expect("rows");
    let row = |path: &Path| rows.iter().find(|row| row["path"] == path.to_str().expect("UTF-8"));
    let (large, small) = (row(&large).expect("it is open"), row(&small).expect("it is open"));
    assert_eq!(
        (&large["size_bytes"], &large["absent"]["cached_bytes"]),
        (&json!(1_u64 << 42), &json!("over budget"))
    );
    assert_eq!(small["cached_bytes"], 8192, "{small}");
    assert!(
        rows.iter().all(|row| row == large || row["cached_bytes"].is_u64()),
        "{rows:?}"
    );
}

/// Check that a file counts once in each group that has it open or mapped, and once in the total; and what
/// users see who may not see all.
#[test]
fn held_files_are_added_up() {
    if run_as_nobody(&["--version"]).is_none() {
        return;
    }
    let scratch = Scratch::with_files("by", &[("own", 5000)]);
    let (program, own) = (scratch.0.join("sleep"), scratch.0.join("own"));
    copy_program("/bin/sleep".as_ref(), &program).expect("a copy");
    let (sleep, [one, other]) = (Path::new("/bin/sleep"), USERS);
    let mapping = holder(one, &program, &own);
    let holders = [
        holder(one, sleep, &program),
        holder(one, sleep, &program),
        holder(other, &program, &own),
    ];
    let [a, b, c] = [0, 1, 2].map(|index: usize| holders[index].1.as_str());
    // What a group should have: each file of its processes once.
    let expected = |pids: &[&str]| {
        let held = rows(&run(&["cache", "--json", "--of-process", &pids.join(",")]).json());
        let is_program = |held: &&(String, u64, u64)| held.0.starts_with(program.to_str().expect("UTF-8"));
        assert_eq!(held.iter().filter(is_program).count(), 1, "{held:?}");
        let sum = |of: fn(&(String, u64, u64)) -> u64| Some(held.iter().map(of).sum::<u64>());
        let (files, processes) = (held.len() as u64, pids.len() as u64);
        [
            Some(processes),
            Some(files),
            Some(0),
            sum(|file| file.1),
            sum(|file| file.2),
        ]
    };
    let groups = || {
        [
            expected(&[&mapping.1, a, b]),
            expected(&[c]),
            expected(&[&mapping.1, a, b, c]),
        ]
    };
    let all = [&mapping.1, a, b, c].join(",");
    let by = |args: &[&str]| run(&[&["cache", "--by", "user", "--json"], args].concat()).json();
    for attempt in 0.. {
        let before = groups();
        let (named, of_all) = (by(&["--of-process", &all]), by(&[]));
        let by_two = run(&["cache", "--by", "program,user", "--json", "--of-process", &all]).json();
        let mincore = by(&["--source", "mincore", "--of-process", &all]);
        if groups() == before {
            let [of_one, of_other, of_both] = before;
            let sums = BTreeMap::from([(one.into(), of_one), (other.into(), of_other)]);
            for document in [&named, &by_two, &mincore] {
                assert_eq!(by_user(document), sums, "{document}");
                assert_eq!(numbers(&document["total"]), of_both, "{document}");
                assert_eq!(document["counters"]["files"].as_u64(), of_both[1], "{document}");
                assert_eq!(document["counters"]["cached_bytes"].as_u64(), of_both[4], "{document}");
            }
            assert!(of_both[1] < Some(of_one[1].unwrap_or(0) + of_other[1].unwrap_or(0)));
            let of_all = by_user(&of_all);
            assert_eq!((of_all[&one.into()], of_all[&other.into()]), (of_one, of_other));
            assert!(of_all.contains_key(&0), "{of_all:?}");
            let rows = mincore["rows"].as_array().expect("rows").iter();
            assert!(rows
                .chain([&mincore["total"]])
                .all(|sum| sum["absent"]["dirty_bytes"] == "unsupported"));
            let programs = by_two["rows"].as_array().expect("rows").iter();
            assert!(programs.clone().all(|row| row["program"] == "sleep"), "{by_two}");
            break;
        }
        assert!(attempt < 10, "the libraries are read all the time");
    }

    // The order, the limit, and the least that is shown; none changes the total.
    let of_all = ["--of-process", &all];
    let users = |args: &[&str]| {
        let document = by(&[args, &of_all].concat());
        assert_eq!(document["total"]["processes_count"], 4, "{document}");
        let rows = document["rows"].as_array().expect("rows").iter();
        rows.map(|row| row["euid"].as_u64().expect("a user"))
            .collect::<Vec<_>>()
    };
    assert_eq!(users(&["--sort", "user"]), USERS.map(u64::from));
    assert_eq!(users(&["--sort", "processes_count"]), [other, one].map(u64::from));
    assert_eq!(users(&["--limit", "1"]).len(), 1);
    assert_eq!(users(&["--min", "1000G"]).len(), 0);
    let table = |args: &[&str]| run(&[&["cache", "--by", "user"], &of_all[..], args].concat()).complete();
    let text = table(&["--bytes"]);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(
        lines[0].starts_with(&["PROCESSES", "FILES", "SIZE", "CACHED"]),
        "{text}"
    );
    assert_eq!(
        (lines.len(), lines[3].first(), lines[3].last()),
        (4, Some(&"4"), Some(&"total")),
        "{text}"
    );
    assert!(lines[0].contains(&"DIRTY") == has_cachestat(), "{text}");
    assert!(!table(&["--source", "mincore"]).contains("DIRTY"));

    // The user sees its own processes, and of its own files alone what is cached.
    let as_one = |args: &[&str]| run_as(one, &[&["cache", "--by", "user"], args].concat()).expect("as before");
    let is_own = |document: &Value| by_user(document).keys().eq([&u64::from(one)]);
    let denied = as_one(&["--json"]);
    let document = denied.json();
    let row = &document["rows"][0];
    assert_eq!(denied.code, Some(1));
    for said in [
        "you may not see the files of ",
        "only the owner and those who may write",
    ] {
        assert!(denied.stderr.contains(said), "{}", denied.stderr);
    }
    assert!(
        is_own(&document) && row["files_count"] == row["missing_count"],
        "{document}"
    );
    assert_eq!(row["absent"]["cached_bytes"], "denied", "{document}");
    assert!(
        document["counters"]["denied_processes"].as_u64() > Some(0),
        "{document}"
    );
    let named = as_one(&["--of-process", &all]);
    assert!(
        named
            .stderr
            .contains(&format!("pid {c}: you may not see the files it holds")),
        "{named:?}"
    );
    assert!(named.text().contains(" 0 of "), "a table without an answer");

    // A mapped program without a name is out of its reach, but another of its processes has it open.
    chown(&program, Some(one), Some(one)).expect("root may");
    let cached = rows(&run(&["cache", "--json", program.to_str().expect("UTF-8")]).json())[0].2;
    fs::remove_file(&program).expect("our own");
    let document = as_one(&["--json", "--of-process", &[&mapping.1, a, b].join(",")]).json();
    let [_, files, _, size, _] = expected(&[&mapping.1, a, b]);
    let expected = [Some(3), files, files.map(|files| files - 1), size, Some(cached)];
    assert_eq!(by_user(&document)[&one.into()], expected, "{document}");
}

/// Check that Ctrl-C ends a walk with a complete document of the rows found so far.
#[test]
fn an_interrupt_prints_what_is_known() {
    let scratch = Scratch::new("interrupt");
    // The output pipe is not read before the interrupt, so the walk can't finish earlier.
    for index in 0..30_000 {
        let directory = scratch.0.join(format!("a directory with a long name {}", index / 1000));
        if index % 1000 == 0 {
            fs::create_dir(&directory).expect("a directory");
        }
        File::create(directory.join(format!("a file with a long name {index}"))).expect("a file");
    }
    let mut child = start(&["cache", "--json", &scratch.root()]);
    let mut stdout = child.stdout.take().expect("a pipe");
    let mut text = vec![0];
    stdout.read_exact(&mut text).expect("it begins to write");
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupted.expect("kill").success());
    stdout.read_to_end(&mut text).expect("the rest");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    let document: Value = serde_json::from_slice(&text).expect("a whole document");
    let rows = document["rows"].as_array().expect("rows").len();
    assert!(rows > 0 && rows < 30_000, "{rows} rows");
    assert_eq!(document["counters"]["files"].as_u64(), Some(rows as u64));
}

/// Check that a closed pipe is silent, and that a full disk is reported.
#[test]
fn outputs_can_end() {
    check_closed_pipe(&["cache", "--jsonl", "/usr"]);
    check_closed_pipe(&["cache", "--jsonl", "--by", "program"]);
    check_full_disk(&["cache", "--by", "program"]);
    let scratch = Scratch::with_files("full", TREE);
    for args in [
        &["cache"][..],
        &["cache", "--json"],
        &["cache", "-s"],
        &["cache", "--map"],
    ] {
        let path = if args.contains(&"--map") {
            scratch.path("four")
        } else {
            scratch.root()
        };
        check_full_disk(&[args, &[&path]].concat());
    }
}

/// Check that rows stream and that a walk waits for its reader: files that are removed before the
/// walk reaches them are not in the answer.
#[test]
fn rows_stream() {
    // More than the output buffer, the pipe and the threads can hold.
    const FILES: usize = 60_000;
    let scratch = Scratch::new("stream");
    for index in 0..FILES {
        let directory = scratch.0.join((index / 300).to_string());
        if index % 300 == 0 {
            fs::create_dir(&directory).expect("a directory");
        }
        File::create(directory.join(index.to_string())).expect("a file");
    }
    let mut child = start(&["cache", &scratch.root()]);
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_exact(&mut [0]).expect("it begins to write");
    let begin = std::time::Instant::now();
    while rustix::io::ioctl_fionread(&stdout).expect("a pipe") < 60_000 {
        assert!(begin.elapsed() < std::time::Duration::from_secs(60), "it writes little");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // Long enough for a walk that does not wait to finish.
    std::thread::sleep(Duration::from_secs(1));
    fs::remove_dir_all(&scratch.0).expect("our own directory");
    let mut text = String::new();
    stdout.read_to_string(&mut text).expect("the rest");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    let rows = text.lines().count();
    assert!(rows > 1000 && rows < FILES, "{rows} rows");
}
