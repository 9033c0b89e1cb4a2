//! Commands with `--where`, run as programs.

mod common;

use common::{command, free_pid, run, run_as_nobody, Run, Sleeper};

fn pids(text: &str) -> Vec<u32> {
    let pids = text.lines().filter_map(|line| line.trim().parse().ok());
    pids.collect()
}

/// Check that a mistake in an expression is wrong usage, and that the message shows its position.
#[test]
fn wrong_expressions_are_pointed_at() {
    for (expression, part) in [
        ("uid = 0", "equality is `==`\n  uid = 0\n      ^"),
        ("rss_byte > 1M", "rss_bytes"),
        ("comm ~ '('", "not a regular expression"),
        ("uid == 'no such user'", "no user id has the name"),
        ("", "name of a field"),
        (
            "cap_effective has sysadmin",
            "near it are: sys_admin\n  cap_effective has sysadmin\n                    ^",
        ),
        ("limits.nofil.soft < 1024", "near it are: nofile"),
        ("start_time > 'noon'", "is not a time such as '2026-11-23 03:12'"),
        ("uid == comm", "can't be compared"),
        ("uid in (0, 'no such user')", "no user id has the name"),
        ("user == 'roott'", "no user has the name \"roott\""),
        ("user == ''", "no user has the name \"\""),
        ("start_time > '2026-11-29 08:30[Asia/Tokyo]'", "is not a time such as"),
        ("pid == 1 or group not in ('root', 'roott')", "no group has the name"),
    ] {
        for source in ["procfs", "auto"] {
            let run = run(&["ps", "--source", source, "--where", expression]);
            assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{expression}");
            assert!(
                run.stderr.contains("--where") && run.stderr.contains(part),
                "{}",
                run.stderr
            );
        }
    }
}

/// Check that a name that no account has chooses nobody, also where signals are sent, and that a time
/// zone without end is none.
#[test]
fn what_does_not_exist_chooses_nothing() {
    for args in [
        &["pgrep", "--where", "user != 'rooot'", "sleep"][..],
        &["pkill", "-0", "-x", "sleep", "--where", "user != 'rooot'"],
        &["top", "-b", "-n", "1", "--where", "user == 'rooot'"],
    ] {
        let run = run(args);
        assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{args:?} {}", run.stderr);
        assert!(run.stderr.contains("no user has the name"), "{args:?} {}", run.stderr);
    }
    let long = format!("pid > 0 and user == '{}'", "a".repeat(20_000));
    let message = run(&["ps", "--where", &long]).stderr;
    assert!(
        message.contains("column 21: no user has the name \"aaaa") && message.len() < 400,
        "{message}"
    );
    let own = std::process::id().to_string();
    let start = |zone: &str| {
        let mut command = command(&["ps", "-p", &own, "-o", "start_time", "--no-header"]);
        command.env("TZ", zone).output().expect("the binary runs").stdout
    };
    let utc = start("UTC");
    assert!(
        !utc.is_empty()
            && ["/dev/zero", ":/dev/zero", "/nowhere"]
                .iter()
                .all(|zone| start(zone) == utc)
    );
}

/// Check that headings are names in filters and orders, too, and that so is the word of `--container`.
#[test]
fn headings_and_options_are_names() {
    let same = |args: [&str; 2]| {
        let [one, other] = args.map(|line| run(&line.split(' ').collect::<Vec<_>>()));
        assert_eq!(
            (one.code, &one.stdout),
            (other.code, &other.stdout),
            "{args:?}: {one:?}"
        );
        assert!(matches!(one.code, Some(0 | 1)), "{args:?}: {one:?}");
    };
    let sleeper = Sleeper::new("headed");
    let own = sleeper.pid();
    for (command, heading, name) in [
        ("ps -o pid,", "container", "container_name"),
        ("ps -o pid --sort ", "container", "container_name"),
        ("ps -o pid --where ", "container==''", "container_name==''"),
        ("tree -o pid,", "container", "container_name"),
        ("mem -o pid,", "CONTAINER", "container_name"),
        ("files --sort ", "-held", "-allocated_bytes"),
        ("files --where ", "SIZE>0", "size_bytes>0"),
        ("files --where ", "HELD>0", "allocated_bytes>0"),
    ] {
        let line = |name: &str| format!("{command}{name} -p {own}");
        same([&line(heading), &line(name)]);
    }
    // Others come and go.
    let states = [
        "sockets",
        "--where",
        "STATE != 'LISTEN' and RTT >= 0",
        "--sort",
        "-recv-q",
        "-o",
        "state",
    ];
    let states = run(&[&states[..], &["--csv", "--no-header"]].concat()).complete();
    assert!(states.lines().all(|state| state != "LISTEN"), "{states}");
}

/// Check that what may be meant otherwise is told beside the answer, and that names of accounts may be
/// numbers, others of a recording, or only compared by their order.
#[test]
fn values_that_no_task_has_are_told() {
    let own = std::process::id().to_string();
    let hint = |expression: &str| {
        let run = run(&["ps", "-p", &own, "-o", "pid", "--no-header", "--where", expression]);
        assert!(
            run.code == Some(0) && [&own, ""].contains(&String::from_utf8_lossy(&run.stdout).trim()),
            "{expression}: {run:?}"
        );
        run.stderr.contains("the share of time is cpu_percent") || run.stderr.contains("write a K behind")
    };
    assert!(hint("rss > 200000") && hint("not rss < 200000") && hint("vsz in (4096, 1M)"));
    assert!(!hint("rss > 100K") && hint("rss in (1K, 2)") && !hint("vsz < 4096K"));
    assert!(!hint("rss > 200000K") && !hint("rss > 0") && !hint("rss_bytes > 4096") && !hint("comm == 'rss'"));
    assert!(hint("cpu > 99999") && hint("cpu in (0, 99999)") && hint("not (cpu >= 99999)"));
    let last = taskdiag_sys::host::possible_cpus() - 1;
    assert!(hint(&format!("cpu > {last}")) && hint("cpu > 4294967296"));
    assert!(!hint(&format!("cpu >= {last}")) && !hint("cpu >= 0") && !hint("cpu_percent > 99999"));
    assert!(!hint("user == '4294967294'") && !hint("user == 'root'") && !hint("user < 'roott'"));
    let sorted_by_processor = |arguments: &[&str]| run(arguments).stderr.contains("--sort -cpu_percent sorts by");
    for command in ["ps", "tree", "mem", "watch"] {
        let mut arguments = vec![command, "-p", &own, "--sort", "-cpu"];
        arguments.extend((command == "watch").then_some(["-n", "1"]).into_iter().flatten());
        assert!(sorted_by_processor(&arguments), "{command}");
        arguments.push("--json");
        assert!(!sorted_by_processor(&arguments), "{command}");
    }
    let of_files = run(&["files", "--where", "user == 'roott' and kind == 'dir'"]);
    assert_eq!((of_files.code, of_files.stdout.len()), (Some(2), 0), "{of_files:?}");
    let recording = common::Recording::new("filters-names");
    let directory = recording.path();
    assert_eq!(run(&["record", "--dir", directory, "-n", "1"]).code, Some(0));
    let of_past = run(&[
        "ps",
        "--history",
        directory,
        "--where",
        "user == 'roott'",
        "--no-header",
    ]);
    assert_eq!((of_past.code, of_past.stdout.len()), (Some(0), 0), "{of_past:?}");
}

/// Check that only tasks for which an expression is true are listed, and that --explain says where
/// it was evaluated.
#[test]
fn expressions_choose_rows() {
    let sleeper = Sleeper::new("sleep");
    let pid: u32 = sleeper.pid().parse().expect("a pid");
    let expression = format!("pid == {pid} and comm == 'sleep' and not kernel_thread and cmdline ~ '^sleep [0-9]+$'");
    let chosen = run(&["ps", "--no-header", "-o", "pid", "--where", &expression]).complete();
    assert_eq!(pids(&chosen), [pid]);
    let other = run(&[
        "ps",
        "--no-header",
        "-o",
        "pid",
        "--where",
        &format!("pid == {pid} and comm == 'x'"),
    ])
    .complete();
    assert_eq!(pids(&other), [0; 0]);

    let explained = run(&[
        "ps",
        "--source",
        "procfs",
        "-o",
        "pid",
        "--no-header",
        "--explain",
        "--where",
        &expression,
    ]);
    assert_eq!(explained.code, Some(0));
    for part in [
        "read by procfs: base, args",
        "evaluated first, from the few files that it needs: ",
        &format!("pid == {pid} and comm == 'sleep' and not kernel_thread\n"),
        "rows: 1",
    ] {
        assert!(explained.stderr.contains(part), "{part}: {}", explained.stderr);
    }
}

/// Check that comparisons with fields, lists, members, limits, durations and local times select
/// rows.
#[test]
fn forms_of_comparisons_choose_rows() {
    let sleeper = Sleeper::new("sleep");
    let pid = sleeper.pid();
    let chosen = |expression: &str, zone: &str| {
        let expression = format!("pid == {pid} and ({expression})");
        let mut command = command(&["ps", "--no-header", "-o", "pid", "--where", &expression]);
        let output = command.env("TZ", zone).output().expect("the binary runs");
        pids(&Run::new(output).complete()).len() == 1
    };
    for (expression, expected) in [
        ("uid == euid and pid != ppid", true),
        ("uid != euid", false),
        ("comm in ('cron', 'sleep') and uid in (4242, 'root')", true),
        ("pid not in (1, 2)", true),
        ("cap_bounding has sys_chroot or cap_bounding has CAP_KILL", true),
        ("sig_caught has KILL", false),
        ("limits.nofile.soft <= limits.nofile.hard", true),
        ("vsize_bytes > 0.5K", true),
        ("elapsed_ns < 1.5h and elapsed_ns < 2d", true),
        ("user == 'root' and cpu_percent < 50.5", true),
        ("start_time > '2020-01-01' and start_time < '2100-01-01 00:00'", true),
        (
            "start_time > '-2h' and start_time <= 'now' and not start_time < '-2h'",
            true,
        ),
        ("tty != '' and tty == ''", false),
    ] {
        assert_eq!(chosen(expression, "UTC"), expected, "{expression}");
    }
    // Local times are in the caller's time zone.
    let start = run(&["ps", "--csv", "--no-header", "-o", "start_time", "-p", &pid]).complete();
    let (day, time) = start.trim().trim_end_matches('Z').split_once('T').expect("a time");
    let local = format!("start_time == '{day} {time}'");
    assert!(chosen(&local, "UTC"), "{local}");
    assert!(
        !chosen(&local, "Asia/Tokyo") && !chosen(&local, "America/New_York"),
        "{local}"
    );
    assert!(chosen(&format!("start_time == '{day}T{time}Z'"), "Asia/Tokyo"));
}

/// Check that derived fields are in every output, with the names and types of the field table, and
/// that they can be sorted by.
#[test]
fn derived_fields_are_in_every_output() {
    let sleepers = [Sleeper::new("sleep"), Sleeper::new("sleep")];
    let list = format!("{},{}", sleepers[0].pid(), sleepers[1].pid());
    let fields = "user,group,cpu_percent,mem_percent,elapsed_ns,start_time,stat,tty,slice";
    let document = run(&["ps", "-p", &list, "-o", fields, "--json"]).json();
    let row = &document["rows"][0];
    assert_eq!((&row["user"], &row["group"]), (&"root".into(), &"root".into()), "{row}");
    assert!(
        row["cpu_percent"].is_number() && row["mem_percent"].is_number(),
        "{row}"
    );
    assert!(row["elapsed_ns"].is_u64() && row["tty"].is_string(), "{row}");
    let time = row["start_time"].as_str().expect("a time");
    assert!(time.len() == 20 && time.ends_with('Z'), "{time}");
    assert!(row["stat"].as_str().is_some_and(|stat| stat.starts_with('S')), "{row}");
    // Only groups that were read have a source.
    assert_eq!(document["sources"]["derived"], serde_json::Value::Null);

    let csv = run(&["ps", "-p", &list, "-o", "user,start_time,cpu_percent,tty", "--csv"]).complete();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!((lines[0], lines.len()), ("user,start_time,cpu_percent,tty", 3));
    assert!(lines[1].starts_with(&format!("root,{time},")), "{csv}");

    let table = run(&["ps", "-p", &list, "-o", "user,stat,tty,cpu_percent", "--no-header"]).complete();
    let words: Vec<&str> = table.lines().next().expect("a row").split_whitespace().collect();
    assert_eq!((words.len(), words[0]), (4, "root"), "{table}");
    assert!(words[3].contains('.'), "{table}");

    for (sort, sign) in [("elapsed_ns", 1), ("-elapsed_ns", -1)] {
        let sorted = run(&[
            "ps",
            "--sort",
            sort,
            "-o",
            "pid,elapsed_ns",
            "--json",
            "--where",
            "cpu_percent >= 0",
        ])
        .json();
        let rows = sorted["rows"].as_array().expect("rows");
        let times: Vec<i64> = rows
            .iter()
            .map(|row| row["elapsed_ns"].as_i64().expect("a time") * sign)
            .collect();
        assert!(times.is_sorted() && times.len() > 2, "{sort}: {times:?}");
    }
}

/// Check that `all` is every cheap field, and that the message names the others.
#[test]
fn all_is_every_cheap_field() {
    let here = std::process::id().to_string();
    let document = run(&["ps", "-p", &here, "-o", "all", "--json"]).json();
    let row = &document["rows"][0];
    let has = |name: &str| !row[name].is_null() || !row["absent"][name].is_null();
    assert!(
        ["pid", "cmdline", "cgroup", "stat", "unit", "container_id"]
            .into_iter()
            .all(has),
        "{row}"
    );
    for name in [
        "environ",
        "user",
        "group",
        "container_name",
        "container_runtime",
        "pss_bytes",
    ] {
        assert!(!has(name), "{name}");
    }
    let named = run(&["ps", "-p", &here, "-o", "environ,derived", "--json"]).json();
    let row = &named["rows"][0];
    assert!(row["environ"].is_array() && row["user"].is_string(), "{row}");
}

/// Check that a word which no row can have is refused, in each listing, with the near one and with all.
#[test]
fn words_that_no_row_has_are_refused() {
    for (line, part) in [
        ("ps --where=state=='Q'", "known are R, S, D, I, T, t, P, Z, X"),
        ("tree --where=state=='d'", "near it are: D"),
        ("watch --where=state=='z'", "near it are: Z"),
        (
            "mem --where=container_runtime=='dokcer'",
            "near it are: docker; known are '', docker",
        ),
        ("maps --where=state=='Q'", "not a value of state"),
        (
            "events --where=container_runtime=='x'",
            "not a value of container_runtime",
        ),
        (
            "files --where=kind=='fiel'",
            "near it are: file, fifo; known are file, dir",
        ),
        ("files --where=anon_kind=='poll'", "near it are: epoll"),
        ("files --where=use=='mmap'", "here it is use == 'map'"),
        ("files --where=access=='ro'", "known are r, w, rw, ioctl, path"),
        ("files --by=user --where=state=='Q'", "not a value of state"),
        ("sockets --where=family=='ipv6'", "here it is family == 'inet6'"),
        ("sockets --where=type=='tcp'", "here it is protocol == 'tcp'"),
        ("sockets --where=type=='strem'", "near it are: stream"),
        ("sockets --where=protocol=='tpc'", "near it are: tcp"),
        ("sockets --where=protocol=='6tcp'", "near it are: tcp"),
        ("sockets --where=protocol=='132'", "not a value of protocol"),
        ("sockets --where=state=='listening'", "near it are: LISTEN"),
        ("sockets --where=shutdown!='rcv'", "known are '', receive, send, both"),
        ("sockets --where=timer=='off'", "known are on, keepalive"),
    ] {
        let run = run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{line}: {run:?}");
        assert!(run.stderr.contains(part), "{line}: {run:?}");
    }
    for known in [
        "protocol in ('99', '0x88b5', 'tcp')",
        "shutdown == ''",
        "congestion == 'x'",
        "state < 'X'",
    ] {
        assert_eq!(
            run(&["sockets", "--where", known]).code.filter(|code| *code > 1),
            None,
            "{known}"
        );
    }
    // procps finds nobody.
    let run = run(&["pgrep", "-r", "Q", "."]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(1), ""));
}

/// Check that descendants are listed, and that a missing process is reported.
#[test]
fn descendants_are_listed() {
    let sleeper = Sleeper::new("sleep");
    let here = std::process::id().to_string();
    let below = run(&["ps", "--no-header", "-o", "pid", "--descendants", &here]).complete();
    assert!(pids(&below).contains(&sleeper.pid().parse().expect("a pid")), "{below}");
    let missing = free_pid();
    let run = run(&["ps", "--descendants", &missing]);
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr.contains(&format!("pid {missing}: no such process")),
        "{}",
        run.stderr
    );
}

/// Check that a number without a unit, far below a second, is told to be nanoseconds, and no other.
#[test]
fn seconds_have_a_unit() {
    let own = std::process::id().to_string();
    let said = |filter: &str| run(&["ps", "-o", "pid", "-p", &own, "--where", filter]).stderr;
    for (filter, word, ns) in [
        ("etimes < 60", "etimes", 60),
        ("elapsed_ns > 3600", "elapsed_ns", 3600),
        ("pid > 1 and not (stime_ns in (5, 60s))", "stime_ns", 5),
    ] {
        let doubt = format!("--where: {word} is in nanoseconds, here {ns} ns; for seconds write {ns}s");
        assert!(said(filter).contains(&doubt), "{filter}");
    }
    for filter in [
        "etimes < 60s",
        "utime_ns > 0",
        "utime_ns >= 1s",
        "elapsed_ns > 50000000",
    ] {
        assert_eq!(said(filter), "", "{filter}");
    }
}

/// Check that all commands that list tasks have the same selection, and that several selecting
/// options are combined with "and".
#[test]
fn all_commands_take_the_same_selection() {
    let sleeper = Sleeper::new("sleep");
    let here = std::process::id().to_string();
    let pid = sleeper.pid();
    let either = format!("pid == {pid} or pid == {here}");
    for selection in [
        &["--pid", &pid][..],
        &["--children", &here, "--where", &either],
        &["--descendants", &here, "--where", &either],
    ] {
        for command in [
            &["ps", "-o", "pid"][..],
            &["tree", "-o", "pid"],
            &["mem", "-o", "pid"],
            &["watch", "-n", "1", "-o", "pid", "--sort", "pid"],
            &["maps", "-o", "pid"],
        ] {
            let answer = run(&[command, selection, &["--csv"]].concat()).complete();
            let mut rows: Vec<Vec<&str>> = answer.lines().map(|line| line.split(',').collect()).collect();
            let header = rows.remove(0);
            let column = header.iter().position(|name| *name == "pid").expect("a column");
            let pids: std::collections::BTreeSet<&str> = rows.iter().map(|row| row[column]).collect();
            assert_eq!(
                pids.into_iter().collect::<Vec<_>>(),
                [pid.as_str()],
                "{command:?} {selection:?}"
            );
        }
    }
    for command in [&["ps"][..], &["tree"], &["mem"], &["watch", "-n", "1"], &["maps"]] {
        for (option, fields) in [("--unit", "unit,user_unit"), ("--container", "container_name")] {
            let nothing = run(&[command, &[option, "nosuch", "-o", "pid", "--csv"]].concat());
            let said = format!("nosuch\": it has no process (`taskdiag ps -o {fields}`");
            assert!(
                nothing.code == Some(1) && nothing.stderr.contains(&said),
                "{command:?}: {nothing:?}"
            );
            assert!(
                !String::from_utf8_lossy(&nothing.stdout).contains(&here),
                "{command:?}: {nothing:?}"
            );
        }
    }
    for args in [
        &["maps", "1", "-u", "root"][..],
        &["tree", "1", "-p", "2"],
        &["mem", "--system", "--unit", "x"],
        &["watch", "-T", "--children", "1"],
        &["ps", "-T", "--descendants", "1"],
        &["maps", "--all", "--addr", "1"],
    ] {
        assert_eq!(run(args).code, Some(2), "{args:?}");
    }
}

/// Check that the answer is partial if a filter can't be decided for some tasks.
#[test]
fn undecided_tasks_make_the_answer_partial() {
    let Some(run) = run_as_nobody(&["ps", "-o", "pid", "--where", "read_chars >= 0"]) else {
        return;
    };
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr
            .contains("left out: the filter needs read_chars, which may not be seen"),
        "{}",
        run.stderr
    );
}

/// Check that names are beside numbers, whose types stay the same, and that tables show only names.
#[test]
fn numbers_have_names() {
    let here = std::process::id().to_string();
    let document = run(&[
        "ps",
        "-p",
        &here,
        "-o",
        "uid,cap_effective,sig_caught,limits",
        "--names",
        "--json",
    ])
    .json();
    let named = &document["rows"][0];
    assert!(
        named["uid_name"].is_string() && named["cap_effective_names"].is_array(),
        "{named}"
    );
    assert!(
        named["sig_caught_names"].is_array() && named["limits"]["nofile"]["soft"].is_u64(),
        "{named}"
    );
    let document = run(&["ps", "-p", &here, "-o", "uid,cap_effective,limits", "--json"]).json();
    let row = &document["rows"][0];
    assert!(row["uid"].is_u64() && row["cap_effective"].as_str().is_some_and(|set| set.starts_with("0x")));
    for key in ["uid", "cap_effective", "limits"] {
        assert_eq!(row[key], named[key], "{key}");
    }
    let csv = run(&["ps", "-p", &here, "-o", "uid,pid", "--names", "--csv"]).complete();
    assert_eq!(csv.lines().next(), Some("uid,uid_name,pid"));
    let name = named["uid_name"].as_str().expect("a name");
    assert!(csv.ends_with(&format!(",{name},{here}\n")), "{csv}");
    let table = run(&["ps", "-p", &here, "-o", "uid,pid", "--names", "--no-header"]).complete();
    let cells: Vec<&str> = table.split_whitespace().collect();
    assert_eq!(cells, [name, &here]);
}

/// Check that a missing cgroup is reported, but not a cgroup without matching tasks.
#[test]
fn missing_cgroups_are_reported() {
    for command in [
        &["ps"][..],
        &["ps", "-T", "--json"],
        &["mem"],
        &["mem", "--by", "user"],
        &["watch", "--watch", "0.01", "--count", "2"],
    ] {
        for name in ["/no such cgroup", "/cgroup.procs", "user.slice"] {
            let run = run(&[command, &["--cgroup", name]].concat());
            let said = format!(
                "taskdiag: cgroup {name:?}: no such cgroup (`taskdiag ps -o cgroup` shows those that have processes)\n"
            );
            assert_eq!((run.code, run.stderr), (Some(1), said), "{command:?}");
        }
        run(&[command, &["--cgroup", "/", "--where", "pid == 0"]].concat()).complete();
    }
    let all = run(&["ps", "--cgroup", "/", "--no-header", "-o", "pid"]).complete();
    assert!(pids(&all).contains(&std::process::id()), "{all}");
}

/// Check that no command finds itself by the arguments that it looks for, that its ancestors are
/// found unless they are to be left out, and that a process that is named is there.
#[test]
fn commands_do_not_find_themselves() {
    let word = &format!("taskdiag-word-{}", std::process::id());
    let mut named = std::process::Command::new("sleep");
    std::os::unix::process::CommandExt::arg0(&mut named, word);
    let sleeper = Sleeper::start(&mut named);
    let pid: u32 = sleeper.pid().parse().expect("a pid");
    // Nobody may see the program of process 1 on some machines, so `exe` can't be asked about.
    let expression = &format!("cmdline ~ '{word}' or comm == '{word}'");
    let found = |args: &[&str]| {
        let answer = run(&[args, &["--where", expression]].concat());
        let code = answer.code;
        let mut found: Vec<u32> = answer
            .text()
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a row"))
            .filter_map(|row| Some(row["pid"].as_u64()? as u32))
            .collect();
        found.dedup();
        (code, found)
    };
    for source in ["procfs", "auto"] {
        for args in [
            &["ps", "--jsonl"][..],
            &["ps", "-T", "--jsonl"],
            &["ps", "aux", "--jsonl"],
            &["tree", "--jsonl"],
            &["mem", "--jsonl"],
            &["files", "--jsonl"],
            &["watch", "-n", "1", "-o", "pid,comm", "--sort", "pid", "--jsonl"],
            &[
                "watch", "-n", "3", "-d", "0.1", "-o", "pid,user", "--sort", "pid", "--jsonl",
            ],
        ] {
            let args = [args, &["--source", source]].concat();
            assert_eq!(found(&args), (Some(0), vec![pid]), "{args:?}");
        }
    }
    assert_eq!(found(&["maps", "--jsonl"]), (Some(0), vec![pid]));
    let total = run(&["mem", "--total", "--json", "--where", expression]).json();
    assert_eq!(total["rows"][0]["processes_count"], 1, "{total}");

    // A shell above the command has the word among its arguments.
    let by_shell = |more: &str| {
        let program = env!("CARGO_BIN_EXE_taskdiag");
        let script = format!("{program} ps -o pid --no-header {more}; exit $?");
        let output = std::process::Command::new("sh")
            .args(["-c", &script, word])
            .env("EXPRESSION", expression)
            .output()
            .expect("a shell");
        (
            output.status.code(),
            pids(&String::from_utf8_lossy(&output.stdout)).len(),
        )
    };
    let chosen = "--where \"$EXPRESSION\"";
    assert_eq!(by_shell(chosen), (Some(0), 2));
    assert_eq!(by_shell(&format!("{chosen} --ignore-ancestors")), (Some(0), 1));
    assert_eq!(by_shell("--ignore-ancestors --where \"pid == $$\""), (Some(0), 0));

    // What does not look at names or arguments, and a process that is named, is as it was.
    let all = run(&["ps", "-o", "comm", "--no-header", "--where", "rss_bytes > 0"]).text();
    assert!(all.lines().any(|comm| comm == "taskdiag"), "{all}");
    assert_eq!(by_shell(&format!("-p $$ {chosen}")), (Some(0), 1));
    let procps = run(&["ps", "-C", "taskdiag", "-o", "comm="]).text();
    assert!(procps.contains("taskdiag"), "{procps}");
}
