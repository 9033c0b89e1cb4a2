//! `taskdiag mem`, run as a program.

mod common;

use std::fs;

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr;

use common::{free_pid, run, run_as_nobody, Sleeper};
use serde_json::Value;
use taskdiag_testkit::storage::HugePages;

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} of {row}"))
}

/// A line of the kernel's rollup of a process, in bytes.
fn said(pid: &str, line: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("a rollup");
    let value = text.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let kib = value.expect("the line").trim().strip_suffix(" kB").expect("KiB");
    kib.parse::<u64>().expect("a number") * 1024
}

/// Check that the values of a quiet process equal the kernel's, in all formats.
#[test]
fn values_are_the_kernels() {
    let sleeper = Sleeper::new("quiet");
    let pid = sleeper.pid();
    // Other processes, including this command, change which pages of libraries are shared and
    // clean.
    let is_so = (0..50).any(|_| {
        let before = [said(&pid, "Pss_Anon"), said(&pid, "Private_Dirty"), said(&pid, "Rss")];
        let shown = "pid,pss_anon_bytes,private_dirty_bytes,rollup_rss_bytes,pss_bytes,uss_bytes,rollup_swap_bytes";
        let document = run(&["mem", "-p", &pid, "-o", shown, "--json"]);
        assert_eq!((document.code, document.stderr.as_str()), (Some(0), ""));
        let document = document.json();
        assert_eq!(document["command"], "mem");
        assert_eq!(document["sources"]["rollup"], "smaps_rollup");
        let row = &document["rows"][0];
        assert_eq!(row["pid"].to_string(), pid);
        let total = &document["total"];
        for key in ["pss_bytes", "uss_bytes", "rollup_rss_bytes", "rollup_swap_bytes"] {
            assert_eq!(number(row, key), number(total, key), "{key}");
        }
        ["pss_anon_bytes", "private_dirty_bytes", "rollup_rss_bytes"].map(|key| number(row, key)) == before
    });
    assert!(is_so);
    let csv = run(&["mem", "-p", &pid, "--csv", "-o", "pid,comm,uss_bytes"]).complete();
    assert!(csv.starts_with("pid,comm,uss_bytes\n"), "{csv}");
    let added = run(&["mem", "-p", &pid, "-o", "+nice"]).complete();
    let heading = added.lines().next().expect("a heading");
    assert!(
        heading.trim_start().starts_with("PID") && heading.ends_with(" RSS nice COMMAND"),
        "{added}"
    );
    let line = run(&["mem", "-p", &pid, "--jsonl"]).complete();
    let row: Value = serde_json::from_str(&line).expect("JSON");
    assert!(number(&row, "rollup_age_ns") < 5_000_000_000, "{row}");
}

/// Check the table: largest first, all sizes in one unit, and a total at the end that is the sum of
/// the rows.
#[test]
fn tables_are_sorted_and_add_up() {
    let _sleeper = Sleeper::new("table");
    let run = run(&["mem", "--scale", "K", "--where", "comm == 'table' or pid < 100000000"]);
    let table = run.text();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..6], ["PID", "USER", "SWAP", "USS", "PSS", "RSS"]);
    let kib = |cell: &str| cell.strip_suffix('K').and_then(|cell| cell.parse::<f64>().ok());
    let sizes: Vec<Option<f64>> = lines[1..lines.len() - 1].iter().map(|line| kib(line[4])).collect();
    assert!(sizes.len() > 1);
    assert!(sizes.iter().flatten().is_sorted_by(|a, b| a >= b), "{sizes:?}");
    let last = &lines[lines.len() - 1];
    assert_eq!(last[0], "total");
    let total = kib(last[3]).expect("a total");
    assert!((sizes.iter().flatten().sum::<f64>() - total).abs() < 1.0, "{table}");
    assert!(table.trim_end().ends_with("processes"), "{table}");
}

const HUGE: usize = 2 << 20;

/// Maps a huge page and writes to it. It stays.
fn map_huge(flags: i32, file: Option<&OwnedFd>) -> usize {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let file = file.map_or(-1, |file| file.as_raw_fd());
    // SAFETY: a new mapping.
    let start = unsafe { libc::mmap(ptr::null_mut(), HUGE, access, flags | libc::MAP_HUGETLB, file, 0) };
    assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    // A child of another test would share a private page until it runs its program.
    // SAFETY: it is ours.
    assert_eq!(unsafe { libc::madvise(start, HUGE, libc::MADV_DONTFORK) }, 0);
    // SAFETY: it is ours, and can be written.
    unsafe { start.cast::<u8>().write(1) };
    start as usize
}

/// Check that pages of hugetlbfs are shown where the kernel counts them, and in no other size: one
/// that is mapped once, and one that is mapped twice.
#[test]
fn huge_pages_have_sizes_of_their_own() {
    let _pages = HugePages::add(2).expect("two huge pages");
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::HUGETLB;
    let file = rustix::fs::memfd_create(c"taskdiag", flags).expect("hugetlbfs");
    rustix::fs::ftruncate(&file, HUGE as u64).expect("room");
    let private = map_huge(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None);
    let shared = [(); 2].map(|()| map_huge(libc::MAP_SHARED, Some(&file)));
    let pid = std::process::id().to_string();
    let (one, two) = (HUGE as u64, 2 * HUGE as u64);
    assert_eq!(
        [said(&pid, "Private_Hugetlb"), said(&pid, "Shared_Hugetlb")],
        [one, two]
    );

    let document = run(&["mem", "-p", &pid, "--json"]).json();
    for row in [&document["rows"][0], &document["total"]] {
        let [uss, pss, rss] = ["uss_bytes", "pss_bytes", "rollup_rss_bytes"].map(|key| number(row, key));
        assert!(uss <= pss && pss <= rss && rss < said(&pid, "Rss") + two, "{row}");
        let huge = ["private_hugetlb_bytes", "shared_hugetlb_bytes"].map(|key| number(row, key));
        assert_eq!(huge, [one, two], "{row}");
    }
    for args in [&["mem", "-p", &pid][..], &["mem", "-p", &pid, "--by", "program"]] {
        let table = run(args).complete();
        assert!(table.contains(" RSS HUGETLB SHARED-HUGETLB "), "{table}");
        let has_both = |line: &&str| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            cells.windows(2).any(|both| both == ["2.0M", "4.0M"])
        };
        assert_eq!(table.lines().filter(has_both).count(), 2, "{table}");
    }
    let others = run(&["mem", "-p", &Sleeper::new("no-huge-pages").pid()]).text();
    assert!(!others.contains("HUGETLB"), "{others}");

    let rows = run(&["maps", "-x", "--json", &pid]).json()["rows"].clone();
    for start in [private, shared[0], shared[1]] {
        let start = format!("{start:#x}");
        let is_it = |row: &&Value| row["start"] == start.as_str();
        let row = rows.as_array().expect("rows").iter().find(is_it).expect("the mapping");
        assert_eq!(
            (number(row, "rss_bytes"), number(row, "hugetlb_bytes")),
            (0, one),
            "{row}"
        );
    }
    let table = run(&["maps", "-x", &pid]).complete();
    assert!(
        table
            .lines()
            .next()
            .is_some_and(|line| line.contains(" DIRTY HUGETLB ")),
        "{table}"
    );
    let inspected = run(&["inspect", &pid, "--json"]).json();
    let mappings = inspected["rows"][0]["mappings"].as_array().expect("mappings");
    let huge: u64 = mappings.iter().map(|row| number(row, "hugetlb_bytes")).sum();
    assert_eq!(huge, one + two);

    // Others may take and free huge pages at the same time.
    let pool = || {
        let text = fs::read_to_string("/proc/meminfo").expect("meminfo");
        let line = |name: &str| {
            let value = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
            value.and_then(|value| value.parse::<u64>().ok()).expect(name)
        };
        // There are no pages of other sizes.
        assert_eq!(line("Hugetlb:"), line("HugePages_Total:") * line("Hugepagesize:"));
        [
            line("Hugetlb:") << 10,
            (line("HugePages_Free:") * line("Hugepagesize:")) << 10,
        ]
    };
    let is_so = (0..50).any(|_| {
        let [all, free] = pool();
        let rows = run(&["mem", "--system", "--json"]).json()["rows"].clone();
        let item = |name: &str| {
            let row = rows.as_array().expect("rows").iter().find(|row| row["item"] == name);
            row.map(|row| (number(row, "bytes"), row["part_of"].clone()))
                .expect(name)
        };
        let part_of = Value::from("hugetlb_bytes");
        item("hugetlb_bytes").0 == all
            && item("hugetlb_free_bytes") == (free, part_of.clone())
            && item("hugetlb_used_bytes") == (all - free, part_of)
            && all - free >= two
            && pool() == [all, free]
    });
    assert!(is_so);
}

/// Check that groups add up to the total, in every grouping.
#[test]
fn groups_add_up() {
    let _sleepers = [Sleeper::new("one"), Sleeper::new("two")];
    for (by, key) in [("program", "program"), ("user", "user"), ("cgroup", "cgroup")] {
        let document = run(&["mem", "--by", by, "--json"]).json();
        let rows = document["rows"].as_array().expect("rows");
        for sum in [
            "processes_count",
            "uss_bytes",
            "pss_bytes",
            "rollup_rss_bytes",
            "rollup_swap_bytes",
            "missing_count",
        ] {
            // A sum is missing only if no process of the group could be read.
            let is_there = |row: &&Value| row[sum].is_u64() || row["missing_count"] != row["processes_count"];
            let of_rows: u64 = rows.iter().filter(is_there).map(|row| number(row, sum)).sum();
            assert_eq!(of_rows, number(&document["total"], sum), "{by} {sum}");
        }
        assert!(rows.iter().any(|row| row[key].is_string()), "{by}: {rows:?}");
        let sizes: Vec<u64> = rows.iter().filter_map(|row| row["pss_bytes"].as_u64()).collect();
        assert!(sizes.is_sorted_by(|a, b| a >= b));
    }
    let sleeps = run(&["mem", "--by", "program", "--jsonl"]).text();
    let rows: Vec<Value> = sleeps
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let sleep = rows
        .iter()
        .find(|row| row["program"] == "sleep")
        .expect("the sleepers' program");
    assert!(number(sleep, "processes_count") >= 2);
    let total = run(&["mem", "--total", "--csv"]).text();
    assert!(total.starts_with("processes_count,missing_count,rollup_swap_bytes,uss_bytes,pss_bytes,rollup_rss_bytes,private_hugetlb_bytes,shared_hugetlb_bytes\n"));
    assert_eq!(total.lines().count(), 2);
}

/// Check that all sizes of a row are from one moment, even if the process grows: no part is larger
/// than the whole.
#[test]
fn sizes_of_a_row_go_together() {
    // The command itself grows while it runs.
    for _ in 0..20 {
        let text = run(&["mem", "--bytes", "--no-header"]).text();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(lines.iter().any(|line| line.contains(&"--bytes")), "{text}");
        for line in &lines {
            // The last line has no user.
            let sizes = if line[0] == "total" { &line[2..5] } else { &line[3..6] };
            let sizes: Option<Vec<u64>> = sizes.iter().map(|size| size.parse().ok()).collect();
            assert!(sizes.is_none_or(|sizes| sizes.is_sorted()), "{line:?}");
        }
        let document = run(&["mem", "--json"]).json();
        let rows = document["rows"].as_array().expect("rows");
        for row in rows.iter().chain([&document["total"]]) {
            let sizes = ["uss_bytes", "pss_bytes", "rollup_rss_bytes"].map(|key| row[key].as_u64());
            assert!(sizes.is_sorted(), "{row}");
            assert_eq!((row.get("rss_bytes"), row.get("swap_bytes")), (None, None), "{row}");
        }
    }
}

/// Check that sums of denied values are missing, and that other sums show how many processes they
/// cover.
#[test]
fn sums_say_what_is_missing() {
    let _sleeper = Sleeper::new("secret");
    let Some(run) = run_as_nobody(&["mem", "--by", "user", "--json"]) else {
        return;
    };
    assert_eq!(run.code, Some(1), "{run:?}");
    // It names what may be seen instead.
    assert!(run.stderr.contains("`taskdiag ps -o pid,rss_bytes,"), "{run:?}");
    let counters = run_as_nobody(&["mem", "-o", "+rss_bytes", "--no-header"])
        .expect("root")
        .text();
    let last: Vec<&str> = counters.lines().last().expect("a total").split_whitespace().collect();
    assert!(last[5].ends_with(['K', 'M', 'G']) && last[7] == "of", "{counters}");
    let denied = serde_json::json!({
        "rollup_swap_bytes": "denied", "uss_bytes": "denied", "pss_bytes": "denied", "rollup_rss_bytes": "denied",
        "private_hugetlb_bytes": "denied", "shared_hugetlb_bytes": "denied",
    });
    let document = run.json();
    let rows = document["rows"].as_array().expect("rows");
    let of_user = |euid: u32| rows.iter().find(|row| row["euid"] == euid).expect("a row");
    let (root, nobody) = (of_user(0), of_user(65534));
    assert_eq!(root["absent"], denied, "{root}");
    assert!(
        number(root, "missing_count") > 0 && root["missing_count"] == root["processes_count"],
        "{root}"
    );
    assert!(number(nobody, "pss_bytes") > 0, "{nobody}");
    let total = &document["total"];
    assert!(
        number(total, "missing_count") < number(total, "processes_count"),
        "{total}"
    );

    let table = |args: &[&str]| {
        run_as_nobody(&[&["mem", "--no-header"], args].concat())
            .expect("root")
            .text()
    };
    let by_user = table(&["--by", "user"]);
    let line = |name: &str| -> Vec<&str> {
        let line = by_user.lines().find(|line| line.ends_with(name));
        line.unwrap_or_else(|| panic!("{by_user}")).split_whitespace().collect()
    };
    let root = line(" root");
    assert_eq!((root[0], root[1]), ("0", "of"), "{by_user}");
    assert_eq!(root[3..], ["-", "-", "-", "-", "root"], "{by_user}");
    let total = line(" total");
    assert!(total[1] == "of" && total[0] != total[2] && total[4] != "-", "{by_user}");
    let all = table(&[]);
    let last = all.lines().last().expect("a total");
    assert!(
        last.trim_start().starts_with("total ") && last.matches(" of ").count() == 1 && last.ends_with(" processes"),
        "{last}"
    );
    let system = table(&["--system"]);
    let meaning = system.lines().find(|line| line.contains(" processes  "));
    assert!(
        meaning.is_some_and(|line| line.contains(" PSS of the ") && line.contains(" of ")),
        "{system}"
    );
    assert!(!system.contains("PSS of all"), "{system}");
    let system = common::run(&["mem", "--system", "--deadline", "0", "--json"]);
    assert_eq!(system.code, Some(1), "{system:?}");
    let rows = system.json()["rows"].clone();
    let rows = rows.as_array().expect("rows");
    let processes = rows
        .iter()
        .filter(|row| [&row["item"], &row["part_of"]].contains(&&"processes_bytes".into()));
    assert_eq!(
        processes.filter(|row| row["absent"]["bytes"] == "over budget").count(),
        4
    );
}

/// Check that the account of the machine adds up to its memory, to the byte.
#[test]
fn the_machine_adds_up() {
    let document = run(&["mem", "--system", "--json"]).json();
    let rows = document["rows"].as_array().expect("rows");
    let total = rows[0]["bytes"].as_i64().expect("a total");
    let parts = |of: &str| -> i64 {
        let parts = rows.iter().filter(|row| row["part_of"] == of);
        // Not every kernel has all counters.
        parts.filter_map(|row| row["bytes"].as_i64()).sum()
    };
    assert_eq!(rows[0]["item"], "total_bytes");
    assert_eq!(parts("total_bytes"), total);
    let item = |name: &str| rows.iter().find(|row| row["item"] == name).expect("an item")["bytes"].as_i64();
    assert_eq!(Some(parts("processes_bytes")), item("processes_bytes"));
    assert_eq!(Some(parts("kernel_bytes")), item("kernel_bytes"));
    let (used, available) = (item("used_bytes"), item("available_bytes"));
    assert_eq!(
        used.zip(available).map(|(used, available)| used + available),
        Some(total)
    );
    assert_eq!(Some(parts("swap_total_bytes")), item("swap_total_bytes"));
    let table = run(&["mem", "--system"]).text();
    // Percentages are rounded.
    let exact = run(&["mem", "--system", "--bytes"]).text();
    for line in exact.lines().filter(|line| !line.contains("swap ")) {
        let mut words = line.split_whitespace().map(|word| word.parse::<f64>());
        if let (Some(Ok(bytes)), Some(Ok(percent))) = (words.next(), words.next()) {
            let off = bytes * 100.0 / total as f64 - percent;
            assert!(off.abs() <= 0.050_001, "{line}");
        }
    }
    assert!(
        table.contains(" 100.0 total ") && table.contains("unexplained"),
        "{table}"
    );
    assert_eq!(run(&["mem", "--system", "-o", "pid"]).code, Some(2));
    assert_eq!(run(&["mem", "--system", "--by", "user"]).code, Some(2));
}

/// Check that processes beyond the budget are reported, with what to do, and make the answer
/// partial.
#[test]
fn budgets_are_reported() {
    let sleeper = Sleeper::new("dear");
    let pid = sleeper.pid();
    for option in [["--deadline", "0"], ["--max-rss", "1K"]] {
        let args = [
            "mem",
            "-p",
            &pid,
            option[0],
            option[1],
            "--json",
            "-o",
            "pss_bytes,rss_bytes",
        ];
        let run = run(&args);
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(
            run.stderr.contains("over budget") && run.stderr.contains("--deadline"),
            "{}",
            run.stderr
        );
        let document = run.json();
        assert_eq!(document["rows"][0]["absent"]["pss_bytes"], "over budget");
        assert_eq!(document["counters"]["over_budget"], 1);
        assert_eq!(document["total"]["missing_count"], 1);
        assert_eq!(document["total"]["absent"]["pss_bytes"], "over budget");
        assert!(number(&document["rows"][0], "rss_bytes") > 0);
    }
    let all = run(&["mem", "-p", &pid, "--deadline", "none", "--max-rss", "none", "--jsonl"]).complete();
    assert!(all.contains("\"pss_bytes\":"), "{all}");
}

/// Check that samples of an idle process have an age, and are not read again too soon.
#[test]
fn samples_have_ages() {
    let sleeper = Sleeper::new("watched");
    let pid = sleeper.pid();
    let rows = |args: &[&str]| -> Vec<Value> {
        let fixed = ["mem", "-p", &pid, "--watch", "0.01", "--count", "3", "--jsonl"];
        let text = run(&[&fixed[..], args].concat()).complete();
        text.lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    };
    let lines = rows(&["--max-age", "1h"]);
    let (samples, kept): (Vec<Value>, Vec<Value>) = lines.into_iter().partition(|line| line.get("rows").is_some());
    for lines in [&samples, &kept] {
        let numbers: Vec<u64> = lines.iter().map(|line| number(line, "sample")).collect();
        assert_eq!(numbers, [0, 1, 2]);
    }
    assert!(samples
        .iter()
        .all(|sample| sample["rows"] == 1 && sample["time"].is_string()));
    let ages: Vec<u64> = kept.iter().map(|row| number(row, "rollup_age_ns")).collect();
    assert!(ages.is_sorted_by(|a, b| a < b), "{ages:?}");
    let by_user = rows(&["--by", "user"]);
    assert_eq!(by_user.len(), 6, "{by_user:?}");
    assert!(by_user[5]["euid"].is_u64() && by_user[5]["sample"] == 2, "{by_user:?}");
    let fixed = [
        "mem",
        "--watch",
        "0.01",
        "-n",
        "2",
        "--where",
        "pid == 0",
        "-o",
        "pid,pss_bytes",
    ];
    let empty = run(&[&fixed[..], &["--jsonl"]].concat()).complete();
    assert_eq!(
        (empty.lines().count(), empty.matches("\"rows\":0}").count()),
        (2, 2),
        "{empty}"
    );
    let csv = run(&[&fixed[..], &["--csv"]].concat()).complete();
    assert!(
        csv.starts_with("sample,time,pid,pss_bytes\n0,20") && csv.lines().count() == 3,
        "{csv}"
    );
    let json = run(&["mem", "--watch", "1", "--json"]);
    assert_eq!(json.code, Some(2));
    assert!(json.stderr.contains("--jsonl"));
}

/// Check that sums are sorted by their headings, too.
#[test]
fn headings_are_keys() {
    for (heading, key) in [
        ("USER", "user"),
        ("-COUNT", "-processes_count"),
        ("-processes", "-processes_count"),
        ("rss_bytes", "rollup_rss_bytes"),
    ] {
        let sorted = |sort: &str| {
            let text = run(&[
                "mem",
                "--by",
                "user",
                "-p",
                &std::process::id().to_string(),
                "--jsonl",
                "--sort",
                sort,
            ]);
            assert_eq!(text.code, Some(0), "{sort}: {}", text.stderr);
            text.text().lines().count()
        };
        assert_eq!((sorted(heading), sorted(key)), (1, 1));
    }
}

/// Check that the headings of each listing are its keys, in any case.
#[test]
fn headings_of_listings_are_keys() {
    let own = std::process::id().to_string();
    for args in [
        &["ps", "--sort", "-RSS", "-o", "PID"][..],
        &["tree", "--sort", "-rss", "-o", "PID"],
        &["mem", "--sort", "-SWAP,Hugetlb"],
        &[
            "watch",
            "-n",
            "1",
            "-d",
            "0.01",
            "--sort",
            "-%CPU,read/s,FAULTS/s",
            "-o",
            "PID,%CPU",
        ],
        &["files", "--sort", "-SIZE", "-o", "FD,dev_major,Size"],
        &["files", "--deleted", "--sort", "-held"],
        &["maps", "--sort", "-Size", "-o", "START"],
        &["sockets", "--sort", "-Owners", "-o", "STATE"],
    ] {
        let run = run(&[args, &["-p", &own]].concat());
        assert_eq!((run.code, &run.stderr[..]), (Some(0), ""), "{args:?}");
    }
}

/// Check wrong usage, missing processes, and denied ones.
#[test]
fn failures_are_reported() {
    for args in [
        &["mem", "--deadline", "soon"][..],
        &["mem", "--deadline", "-1"],
        &["mem", "--max-rss", "much"],
        &["mem", "--max-age", "none"],
        &["mem", "--by", "colour"],
        &["mem", "--by", "user", "-o", "pid"],
        &["mem", "--by", "user", "--sort", "comm"],
        &["mem", "--total", "--limit", "1"],
        &["mem", "--count", "1"],
        &["mem", "--sort", "psss"],
        &["mem", "--scale", "X"],
    ] {
        let run = run(args);
        assert_eq!(run.code, Some(2), "{args:?}: {run:?}");
        assert!(!run.stderr.is_empty() && run.stdout.is_empty(), "{args:?}");
    }
    let gone = free_pid();
    let run = run(&["mem", "-p", &gone]);
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr.contains(&format!("pid {gone}: no such process")),
        "{}",
        run.stderr
    );
    let sleeper = Sleeper::new("secret");
    if let Some(run) = run_as_nobody(&["mem", "-p", &sleeper.pid(), "--json"]) {
        assert_eq!(run.code, Some(1), "{run:?}");
        assert_eq!(run.json()["rows"][0]["absent"]["pss_bytes"], "denied");
    }
}
