//! `taskdiag maps` and `taskdiag normalize`, run as programs.

mod common;

use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use common::{
    check_closed_pipe, check_full_disk, command, free_pid, run, run_as_nobody, run_without_proc, Run, Sleeper,
};
use serde_json::{json, Value};

/// The rows of a JSON document.
fn rows(args: &[&str]) -> Vec<Value> {
    let run = run(args);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args:?}");
    run.json()["rows"].as_array().expect("rows").clone()
}

/// A process that has a file with a strange name mapped: its own executable.
struct Strange {
    sleeper: Sleeper,
    path: std::path::PathBuf,
}

impl Strange {
    fn new(name: &[u8]) -> Strange {
        let path = std::env::temp_dir().join(format!("taskdiag-cli-maps-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        let path = path.join(std::ffi::OsStr::from_bytes(name));
        let sleep = ["/bin/sleep", "/usr/bin/sleep"]
            .into_iter()
            .find(|path| fs::metadata(path).is_ok());
        common::copy_program(sleep.expect("sleep exists").as_ref(), &path).expect("sleep");
        let sleeper = Sleeper::start(Command::new(&path).arg0("strange"));
        Strange { sleeper, path }
    }

    fn name(&self) -> String {
        self.path.to_str().expect("UTF-8").to_owned()
    }
}

impl Drop for Strange {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Check that rows equal the kernel's text, from each source.
#[test]
fn rows_are_those_of_the_text() {
    let sleeper = Sleeper::new("mapped");
    let pid = sleeper.pid();
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process exists");
    let expected: Vec<Value> = text
        .lines()
        .filter(|line| !line.ends_with("[vsyscall]"))
        .map(|line| {
            let words: Vec<&str> = line.splitn(6, ' ').collect();
            let (start, end) = words[0].split_once('-').expect("a range");
            let hex = |text: &str| u64::from_str_radix(text, 16).expect("a number");
            let (major, minor) = words[3].split_once(':').expect("a device");
            json!({
                "pid": pid.parse::<u32>().expect("a number"), "start": format!("0x{start}"), "end": format!("0x{end}"),
                "perms": words[1], "offset_bytes": hex(words[2]), "dev_major": hex(major), "dev_minor": hex(minor),
                "inode": words[4].parse::<u64>().expect("a number"), "name": words.get(5).map_or("", |name| name.trim()),
            })
        })
        .collect();
    for source in ["auto", "procfs"] {
        let run = run(&["maps", "--json", "--source", source, &pid]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
        let document = run.json();
        assert_eq!((&document["schema"], &document["command"]), (&json!(1), &json!("maps")));
        assert!(document["sources"]["maps"].is_string());
        assert_eq!(document["counters"]["mappings"], json!(expected.len()));
        let mut rows = document["rows"].as_array().expect("rows").clone();
        for row in &mut rows {
            let row = row.as_object_mut().expect("an object");
            // The text has no page sizes.
            let size = row.remove("page_size_bytes");
            let absent = row.remove("absent");
            assert!(
                size == Some(json!(4096)) || absent == Some(json!({"page_size_bytes": "unsupported"})),
                "{size:?} {absent:?}"
            );
        }
        assert_eq!(rows, expected, "{source}");
    }
}

/// Check the three machine-readable formats, and that a table shows the same.
#[test]
fn mappings_have_all_forms() {
    let sleeper = Sleeper::new("forms");
    let pid = sleeper.pid();
    let document = rows(&["maps", "--json", "--exec", &pid]);
    let lines = run(&["maps", "--jsonl", "--exec", &pid]).complete();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row"))
        .collect();
    assert_eq!(lines, document);
    assert!(document
        .iter()
        .all(|row| row["perms"].as_str().is_some_and(|perms| perms.contains('x'))));
    let csv = run(&["maps", "--csv", "--exec", &pid]).complete();
    assert_eq!(
        csv.lines().next(),
        Some("pid,start,end,perms,offset_bytes,dev_major,dev_minor,inode,name,page_size_bytes")
    );
    assert_eq!(csv.lines().count(), document.len() + 1);
    let table = run(&["maps", "--exec", &pid]).complete();
    assert!(table
        .lines()
        .next()
        .is_some_and(|line| line.trim_start().starts_with("START")));
    for row in &document {
        let start = row["start"].as_str().expect("a string");
        let name = row["name"].as_str().expect("a string");
        assert!(
            table.lines().any(|line| line.contains(start) && line.ends_with(name)),
            "{table}"
        );
    }
    let bare = run(&["maps", "--exec", "--no-header", &pid]).complete();
    assert_eq!(bare.lines().count(), document.len());
}

/// Check that names are lossless in JSON and harmless in tables, and that deleted files are marked.
#[test]
fn strange_names_are_lossless_and_harmless() {
    let strange = Strange::new(b"a \x1b[31m\nname");
    let pid = strange.sleeper.pid();
    let name = strange.name();
    for source in ["auto", "procfs"] {
        let rows = rows(&["maps", "--json", "--file", "--source", source, &pid]);
        assert!(rows.iter().any(|row| row["name"] == json!(name)), "{source}: {rows:?}");
    }
    let table = run(&["maps", &pid]).complete();
    assert!(table.contains("a \\x1b[31m\\nname\n"), "{table}");
    let exec = rows(&["maps", "--json", "--exec", &pid]);
    let start = exec.iter().find(|row| row["name"] == json!(name)).expect("the program")["start"].clone();
    fs::remove_file(&strange.path).expect("it is ours");
    let gone = rows(&["maps", "--json", "--addr", start.as_str().expect("a string"), &pid]);
    assert_eq!(gone[0]["name"], json!(format!("{name} (deleted)")));
    let normalized = rows(&["normalize", "--json", &pid, start.as_str().expect("a string")]);
    assert_eq!(
        (&normalized[0]["name"], &normalized[0]["deleted"]),
        (&json!(name), &json!(true))
    );
    let table = run(&["normalize", &pid, start.as_str().expect("a string")]).complete();
    assert!(table.ends_with("a \\x1b[31m\\nname (deleted)\n"), "{table}");
    fs::write(&strange.path, "").expect("the directory is ours");
}

/// Check that sizes in memory appear with -x, and that they are plausible.
#[test]
fn usage_is_shown() {
    let sleeper = Sleeper::new("usage");
    let pid = sleeper.pid();
    let rows = rows(&["maps", "-x", "--json", "-o", "+size_bytes", &pid]);
    let sum = |key: &str| rows.iter().map(|row| row[key].as_u64().expect("a number")).sum::<u64>();
    assert!(sum("rss_bytes") > sum("dirty_bytes") && sum("dirty_bytes") > 0);
    assert!(rows.iter().all(|row| row["page_size_bytes"] == json!(4096)));
    let table = run(&["maps", "-x", "--bytes", &pid]).complete();
    let heading: Vec<&str> = table.lines().next().expect("a heading").split_whitespace().collect();
    assert_eq!(
        heading,
        ["START", "END", "SIZE", "RSS", "DIRTY", "HUGETLB", "PERMS", "OFFSET", "DEV", "INODE", "NAME"]
    );
    // The last row is the total, of all mappings.
    for args in [&[][..], &["--limit", "1"], &["-o", "rss_bytes,name,size_bytes"]] {
        let table = run(&[&["maps", "-x", "--bytes", &pid], args].concat()).complete();
        let total: Vec<&str> = table.lines().last().expect("a total").split_whitespace().collect();
        let [rss, size] = ["rss_bytes", "size_bytes"].map(|key| sum(key).to_string());
        let expected = if args.contains(&"-o") {
            [&rss, "total", &size]
        } else {
            ["total", &size, &rss]
        };
        assert_eq!(total[..3], expected, "{table}");
    }
}

/// Check that mappings are sorted and limited after that, and that fields are chosen or added.
#[test]
fn mappings_are_sorted_and_chosen() {
    let sleeper = Sleeper::new("sorted");
    let pid = sleeper.pid();
    let sizes = |args: &[&str]| -> Vec<u64> {
        let fixed = ["maps", "--csv", "--no-header", "-o", "size_bytes", &pid];
        let text = run(&[&fixed[..], args].concat()).complete();
        text.lines().map(|line| line.parse().expect("a size")).collect()
    };
    let largest = sizes(&["--sort", "-size_bytes", "--limit", "3"]);
    assert!(largest.len() == 3 && largest.is_sorted_by(|a, b| a >= b), "{largest:?}");
    let all = sizes(&["--sort", "size_bytes,-start"]);
    assert!(all.is_sorted() && all.last() == largest.first(), "{all:?}");
    let added = run(&["maps", "-o", "+rss_bytes,build_id", &pid]).complete();
    let heading: Vec<&str> = added.lines().next().expect("a heading").split_whitespace().collect();
    assert_eq!(
        heading[heading.len() - 3..],
        ["rss_bytes", "build_id", "NAME"],
        "{added}"
    );
    let rows = rows(&["maps", "--json", "-o", "+size_bytes", "--limit", "1", &pid]);
    assert!(
        rows[0]["size_bytes"].is_u64() && rows[0]["name"].is_string(),
        "{rows:?}"
    );
    let offsets = run(&["normalize", &pid, "0x10", "-o", "addr,name", "--csv"]);
    assert_eq!((offsets.code, offsets.text().as_str()), (Some(1), "addr,name\n0x10,\n"));
}

/// Check that expressions choose mappings, by their own fields and those of their processes, of named,
/// selected and all processes.
#[test]
fn expressions_choose_mappings() {
    let sleeper = Sleeper::new("chosen");
    let pid = sleeper.pid();
    let chosen = |args: &[&str]| rows(&[&["maps", "--json", "-o", "pid,perms,size_bytes,name"], args].concat());
    let all = chosen(&[&pid]);
    for (expression, is_meant) in [
        (
            "perms ~ 'x'",
            &(|row: &Value| row["perms"].as_str().is_some_and(|perms| perms.contains('x'))) as &dyn Fn(&Value) -> bool,
        ),
        ("size_bytes > 100K and perms == 'r--p'", &|row| {
            row["size_bytes"].as_u64() > Some(100 << 10) && row["perms"] == "r--p"
        }),
        ("name ~ 'libc' and comm == 'sleep'", &|row| {
            row["name"].as_str().is_some_and(|name| name.contains("libc"))
        }),
        ("name ~ 'libc' and comm == 'other'", &|_| false),
        ("name == none", &|row| row["name"] == ""),
        ("name != none", &|row| row["name"] != ""),
    ] {
        let expected: Vec<Value> = all.iter().filter(|row| is_meant(row)).cloned().collect();
        assert_eq!(chosen(&[&pid, "--where", expression]), expected, "{expression}");
        assert_eq!(chosen(&["-p", &pid, "--where", expression]), expected, "{expression}");
        let of_all = format!("pid == {pid} and {expression}");
        assert_eq!(chosen(&["--where", &of_all]), expected, "{expression}");
    }
    // A word of ps and a heading are those of the mapping, and a process that is named twice is one.
    let resident = chosen(&[&pid, &pid, "--where", "rss > 100K and SIZE < 1G"]);
    assert_eq!(
        resident,
        chosen(&[&pid, "--where", "rss_bytes > 100K and size_bytes < 1G"])
    );
    assert!(!resident.is_empty() && resident.len() < all.len(), "{resident:?}");
    // What the filter leaves open is counted, and a named process without memory is told.
    let open = run(&[
        "maps",
        "--source",
        "procfs",
        &pid,
        "--json",
        "--where",
        "page_size_bytes == 4K",
    ]);
    assert_eq!(open.json()["counters"]["undecided"], all.len(), "{}", open.stderr);
    assert!(
        open.stderr.contains("needs page_size_bytes, which is not available"),
        "{}",
        open.stderr
    );
    // A value that could not change anything is not missing.
    for expression in [
        "page_size_bytes == 4K or size_bytes > 0",
        "page_size_bytes == 4K and size_bytes == 0",
    ] {
        run(&["maps", "--source", "procfs", &pid, "--where", expression]).complete();
    }
    for expression in ["perms ~ 'x'", "perms ~ 'x' and ppid == 0"] {
        let without = run(&["maps", "2", "--where", expression]);
        assert!(
            without.code == Some(1) && without.stderr.contains("pid 2: no memory"),
            "{}",
            without.stderr
        );
    }
    let own = json!(pid.parse::<u32>().expect("a pid"));
    let everybody = run(&[
        "maps",
        "--all",
        "--jsonl",
        "--where",
        "name ~ '/sleep$'",
        "-o",
        "pid,name",
    ])
    .text();
    let pids: Vec<Value> = everybody
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a row")["pid"].clone())
        .collect();
    assert!(pids.contains(&own), "{everybody}");
    for (expression, near) in [
        ("nam ~ 'x'", "near it are: name"),
        ("perms == 'rwx'", "near it are: rwxp"),
    ] {
        let wrong = run(&["maps", &pid, "--where", expression]);
        assert!(wrong.code == Some(2) && wrong.stderr.contains(near), "{}", wrong.stderr);
    }
}

/// Check that build ids are shown on request, and that a mapping without one has a reason.
#[test]
fn build_ids_are_shown() {
    let sleeper = Sleeper::new("ids");
    let rows = rows(&["maps", "--build-id", "--json", &sleeper.pid()]);
    let ids: Vec<&str> = rows.iter().filter_map(|row| row["build_id"].as_str()).collect();
    assert!(
        !ids.is_empty()
            && ids
                .iter()
                .all(|id| id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
    );
    assert!(rows.iter().any(|row| row["absent"]["build_id"] == json!("none")));
    assert!(rows
        .iter()
        .all(|row| row["build_id"].is_string() != row["absent"]["build_id"].is_string()));
}

/// Check that programs of Go have the build id that `go tool buildid` prints, whichever linker made
/// them, from each source and after they were deleted, and that one that is too long is said to be.
#[test]
fn build_ids_of_go_are_those_of_its_tool() {
    let path = std::env::temp_dir().join(format!("taskdiag-cli-go-{}", std::process::id()));
    fs::create_dir_all(&path).expect("a directory");
    let source = path.join("wait.go");
    let text = "package main\nimport \"time\"\nfunc main() { time.Sleep(time.Hour) }\n";
    fs::write(&source, text).expect("a program");
    let go = |args: &[&str], cgo: &str| {
        let mut go = Command::new("go");
        let go = go.args(args).env("CGO_ENABLED", cgo).env("GO111MODULE", "off");
        let output = go.env("GOTOOLCHAIN", "local").output().expect("Go is installed");
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("text")
    };
    let long = format!("-ldflags=-buildid={}", "x".repeat(300));
    for (name, cgo, flag, is_whole) in [
        ("static", "0", "-ldflags=-s", true),
        ("dynamic", "1", "-ldflags=-linkmode=external", true),
        ("chosen", "0", "-ldflags=-buildid=a.b", true),
        ("long", "0", &long, false),
    ] {
        let program = path.join(name).to_str().expect("UTF-8").to_owned();
        go(&["build", flag, "-o", &program, source.to_str().expect("UTF-8")], cgo);
        let said = go(&["tool", "buildid", &program], cgo);
        let sleeper = Sleeper::start(&mut Command::new(&program));
        let (pid, fields) = (sleeper.pid(), "pid,name,build_id,go_build_id");
        let check = |program: &str, args: &[&str]| {
            let run = run(&[&["maps", "--exec", "--jsonl", "-o", fields], args].concat());
            let rows = run.stdout.split(|&byte| byte == b'\n').flat_map(serde_json::from_slice);
            let of_sleeper = |row: &Value| row["pid"] == json!(pid.parse::<u32>().expect("a number"));
            let rows: Vec<Value> = rows.filter(of_sleeper).collect();
            let row = rows.iter().find(|row| row["name"] == program);
            let row = row.unwrap_or_else(|| panic!("{name} {args:?}: {rows:?}"));
            let expected = match said.trim_end() {
                id if is_whole => (json!(id), Value::Null),
                _ => (Value::Null, json!("truncated")),
            };
            let shown = (row["go_build_id"].clone(), row["absent"]["go_build_id"].clone());
            assert_eq!(shown, expected, "{name} {args:?}");
            let others = rows.iter().filter(|row| row["name"] != program);
            assert!(
                others.into_iter().all(|row| row["absent"]["go_build_id"] == "none"),
                "{rows:?}"
            );
        };
        for source in ["auto", "procfs"] {
            check(&program, &["--source", source, &pid]);
        }
        for source in ["bpf", "procfs"] {
            check(&program, &["--all", "--source", source]);
        }
        fs::remove_file(&program).expect("the program");
        check(&format!("{program} (deleted)"), &[&pid]);
    }
    let sleeper = Sleeper::new("c");
    assert!(rows(&["maps", "--build-id", "--json", &sleeper.pid()])[0]
        .get("go_build_id")
        .is_none());
    fs::remove_dir_all(&path).expect("the directory");
}

/// Check that what is missing is reported, and the rest is printed.
#[test]
fn missing_things_are_reported() {
    let sleeper = Sleeper::new("there");
    let (pid, missing) = (sleeper.pid(), free_pid());
    let both = run(&["maps", "--jsonl", &missing, &pid]);
    assert_eq!(both.code, Some(1));
    assert_eq!(both.stderr, format!("taskdiag: pid {missing}: no such process\n"));
    assert!(both.text().lines().count() > 5);
    let nowhere = run(&["maps", "--addr", "0x10", &pid]);
    assert_eq!(nowhere.code, Some(1));
    assert_eq!(
        nowhere.stderr,
        format!("taskdiag: pid {pid}: nothing is mapped at 0x10\n")
    );
    let table = run(&["maps", &pid, &std::process::id().to_string()]).complete();
    assert!(table
        .lines()
        .next()
        .is_some_and(|line| line.trim_start().starts_with("PID")));
    let normalized = run(&["normalize", &missing, "0x1000"]);
    assert_eq!(normalized.code, Some(2));
    assert_eq!(normalized.stderr, format!("taskdiag: pid {missing}: no such process\n"));
}

/// Check that wrong usage is rejected before anything is read.
#[test]
fn wrong_usage_is_refused() {
    for args in [
        &["maps"][..],
        &["maps", "--all", "1"],
        &["maps", "x"],
        &["maps", "--addr", "7fff", "1"],
        &["maps", "--addr", "1", "--exec", "1"],
        &["maps", "--json", "--csv", "1"],
        &["maps", "--source", "x", "1"],
        &["normalize"],
        &["normalize", "1"],
        &["normalize", "1", "cafe"],
        &["normalize", "1", "-", "-"],
    ] {
        let run = run(args);
        assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{args:?}");
        assert!(!run.stderr.is_empty(), "{args:?}");
    }
    assert!(run(&["normalize", "1", "cafe"]).stderr.contains("0xcafe, perhaps?"));
}

/// Check that addresses become offsets, from arguments and standard input, in the given order, in
/// all formats.
#[test]
fn addresses_are_normalized() {
    let sleeper = Sleeper::new("normal");
    let pid = sleeper.pid();
    let exec = rows(&["maps", "--exec", "--build-id", "--json", &pid]);
    let libc = exec
        .iter()
        .find(|row| row["name"].as_str().is_some_and(|name| name.contains("libc")))
        .expect("libc");
    let start =
        u64::from_str_radix(libc["start"].as_str().expect("a string").trim_start_matches("0x"), 16).expect("a number");
    let heap = rows(&["maps", "--json", &pid]);
    let heap = heap.iter().find(|row| row["name"] == json!("[heap]")).expect("a heap")["start"].clone();
    let expected = json!([
        {"addr": heap, "absent": {"file_offset": "anonymous", "name": "anonymous", "build_id": "anonymous", "deleted": "anonymous"}},
        {
            "addr": format!("{:#x}", start + 5), "file_offset": libc["offset_bytes"].as_u64().expect("a number") + 5,
            "name": libc["name"], "build_id": libc["build_id"], "deleted": false,
        },
    ]);
    let addresses = [heap.as_str().expect("a string").to_owned(), (start + 5).to_string()];
    let run = run(&["normalize", "--json", &pid, &addresses[0], &addresses[1]]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    let document = run.json();
    assert_eq!(
        (&document["command"], &document["rows"]),
        (&json!("normalize"), &expected)
    );
    assert_eq!(
        (&document["counters"]["mappings"], &document["counters"]["files"]),
        (&json!(2), &json!(1))
    );

    // The place in the file's own terms, by the file's program headers.
    let file = fs::read(libc["name"].as_str().expect("a name")).expect("libc");
    let number = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().expect("8 bytes"));
    let offset = libc["offset_bytes"].as_u64().expect("a number") + 5;
    let segment = (0..usize::from(file[56]))
        .map(|index| number(32) as usize + 56 * index)
        .find(|&at| file[at] == 1 && (number(at + 8)..number(at + 8) + number(at + 32)).contains(&offset))
        .expect("a segment");
    let elf = rows(&[
        "normalize",
        "-o",
        "elf_address,segment_address",
        "--json",
        &pid,
        &addresses[0],
        &addresses[1],
    ]);
    let in_file = json!([
        {"absent": {"elf_address": "anonymous", "segment_address": "anonymous"}},
        {
            "elf_address": format!("{:#x}", number(segment + 16) + offset - number(segment + 8)),
            "segment_address": format!("{:#x}", number(segment + 16)),
        },
    ]);
    assert_eq!(json!(elf), in_file);

    let mut child = command(&["normalize", &pid, "-", "--jsonl"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let input = format!("{}\n\n{}\n", addresses[0], addresses[1]);
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(input.as_bytes())
        .expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row"))
        .collect();
    assert_eq!(json!(lines), expected);
}

/// Check that an unmapped address is reported and has its reason.
#[test]
fn unmapped_addresses_are_reported() {
    let sleeper = Sleeper::new("gap");
    let run = run(&["normalize", "--csv", &sleeper.pid(), "0x10"]);
    assert_eq!(run.code, Some(1));
    assert_eq!(run.stderr, "taskdiag: nothing is mapped at 1 of 1 addresses\n");
    assert_eq!(run.text(), "addr,file_offset,name,build_id,deleted\n0x10,,,,\n");
}

/// Check that every process is listed, each mapping once.
#[test]
fn all_processes_are_listed() {
    let sleeper = Sleeper::new("among all");
    let own: Vec<Value> = rows(&["maps", "--exec", "--json", "--source", "procfs", &sleeper.pid()]);
    let run = run(&["maps", "--all", "--exec", "--json", "--source", "procfs"]);
    assert!(matches!(run.code, Some(0 | 1)), "{run:?}");
    let document = run.json();
    let ours: Vec<&Value> = document["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .filter(|row| row["pid"] == own[0]["pid"])
        .collect();
    assert_eq!(ours, own.iter().collect::<Vec<_>>());
    assert!(document["counters"]["denied"].is_u64() && document["sources"]["maps"] == json!("procfs"));
}

/// Check that the user nobody is informed of denied mappings, and what to do.
#[test]
fn denied_mappings_are_reported() {
    let sleeper = Sleeper::new("root's");
    let Some(run) = run_as_nobody(&["maps", &sleeper.pid()]) else {
        return;
    };
    assert_eq!(run.code, Some(1));
    for part in ["you may not see its mappings", "root may", "try sudo"] {
        assert!(run.stderr.contains(part), "{}", run.stderr);
    }
    // A source that can't be loaded is no denied process.
    let forced = run_as_nobody(&["maps", &sleeper.pid(), "--source", "bpf"]).expect("as above");
    assert!(
        forced.code == Some(2) && forced.stderr.contains("CAP_BPF"),
        "{}",
        forced.stderr
    );
    let Some(run) = run_as_nobody(&["normalize", &sleeper.pid(), "0x1000"]) else {
        return;
    };
    assert_eq!((run.code, run.stdout.len()), (Some(2), 0));
    let Some(run) = run_as_nobody(&["maps", "--all", "--jsonl"]) else {
        return;
    };
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr.contains(" left out, whose mappings you may not see"),
        "{}",
        run.stderr
    );
}

/// Check that a closed pipe is silent and that a full disk is not.
#[test]
fn output_that_fails_is_reported() {
    let pid = std::process::id().to_string();
    check_closed_pipe(&["maps", "--jsonl", &pid]);
    for args in [
        &["maps", &pid][..],
        &["maps", "--csv", &pid],
        &["normalize", &pid, "0xffffffffff600000"],
    ] {
        check_full_disk(args);
    }
}

/// Check that a process that holds its memory lock, and one whose file does not answer, are
/// reported; that the command ends soon; and that the rest is there.
#[test]
fn silent_processes_hold_nobody() {
    let _turn = taskdiag_zoo::run_first();
    let zoo = taskdiag_zoo::Zoo::new().expect("a zoo");
    let [locker, file] = ["holds-lock", "silent-file"].map(|name| zoo.start(name).expect("an animal"));
    let (locked, pid, at) = (locker.pid.to_string(), file.pid.to_string(), "0x200000000010");
    let other = Sleeper::new("beside-silent-ones");
    let ask = |args: &[&str], times: u32| {
        let patience = std::time::Duration::from_millis(300);
        let start = std::time::Instant::now();
        let mut command = common::command(args);
        command.env("TASKDIAG_PATIENCE", "0.3");
        let run = Run::new(command.output().expect("the binary runs"));
        let taken = start.elapsed();
        assert!(taken < times * patience + taskdiag_zoo::margin(), "{args:?}: {taken:?}");
        assert_eq!(run.code, Some(1), "{args:?}: {}", run.stderr);
        run
    };
    let named = |run: &Run, pid: &str| {
        assert!(
            run.stderr.contains(&format!("no answer from pid {pid}")),
            "{}",
            run.stderr
        )
    };

    let run = ask(&["maps", "-x", "--jsonl", &locked, &other.pid()], 1);
    named(&run, &locked);
    assert!(run.text().contains("/libc"), "the other one");
    let run = ask(&["maps", "--build-id", "--jsonl", &pid], 1);
    assert!(
        run.stderr.contains("build ids: no answer for 1 mapping"),
        "{}",
        run.stderr
    );
    assert!(run.text().contains("/libc"));
    let run = ask(&["normalize", "--jsonl", &pid, at], 1);
    assert!(
        run.stderr.contains("build ids: no answer for 1 address (--patience"),
        "{}",
        run.stderr
    );
    let run = ask(&["cache", "--jsonl", "--of-process", &pid], 1);
    assert!(run.stderr.contains("the file system does not answer"), "{}", run.stderr);
    assert!(run.text().contains("/libc"));
    let both = format!("{pid},{locked}");
    let run = ask(&["cache", "--json", "--by", "user", "--of-process", &both], 3);
    named(&run, &locked);
    assert!(run.stderr.contains("the file system does not answer"), "{}", run.stderr);
    let row = &run.json()["rows"][0];
    // Both have one.
    assert_eq!(row["missing_count"], 2, "{row}");
    assert!(
        row["files_count"].as_u64() > Some(2) && row["cached_bytes"].as_u64() > Some(0),
        "{row}"
    );
    for source in ["procfs", "auto"] {
        let run = ask(&["maps", "--all", "--build-id", "--jsonl", "--source", source], 20);
        let text = run.text();
        assert!(text.contains(&format!("{{\"pid\":{},", other.pid())), "{source}");
    }
}

/// Check that without `/proc`, no process is reported as missing.
#[test]
fn a_missing_proc_is_no_missing_process() {
    for args in [
        &["maps", "1"][..],
        &["maps", "--source", "bpf", "1"],
        &["maps", "-p", "1"],
        &["maps", "--all"],
    ] {
        let run = run_without_proc(args);
        assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{args:?}: {run:?}");
        assert!(run.stderr.contains("mount -t proc proc /proc"), "{args:?}: {run:?}");
    }
}
