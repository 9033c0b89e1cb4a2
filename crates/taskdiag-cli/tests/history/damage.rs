//! Recordings with damaged, missing and empty files.

use super::*;

/// Check that damage is reported, that the samples before it can be read, and that a request for a
/// moment without samples reports the nearest ones.
#[test]
fn damage_and_gaps_are_said() {
    let directory = Recording::new("history-damage");
    record(&directory, &["-n", "5"]);
    let whole = run(&["history", "--verify", directory.path()]);
    assert_eq!((whole.code, whole.stderr.as_str()), (Some(0), ""));
    let file = full(&directory).pop().expect("a file");
    let mut bytes = fs::read(&file).expect("it is ours");
    let at = bytes.len() - 20;
    bytes[at] ^= 4;
    fs::write(&file, &bytes).expect("it is ours");
    let said = String::from_utf8_lossy(&whole.stdout).into_owned();
    assert!(said.contains("verified  all samples were read"), "{said}");
    let sizes = said.lines().find(|line| line.starts_with("full ")).expect("a tier");
    assert!(sizes.ends_with(" each") && !sizes.contains("bytes"), "{said}");
    let damaged = run(&["history", directory.path()]);
    assert_eq!(damaged.code, Some(1));
    assert!(
        damaged.stderr.contains("checksum") && damaged.stderr.contains(name(&file)),
        "{}",
        damaged.stderr
    );
    let before = run(&["ps", "--history", directory.path(), "--csv", "-o", "pid"]);
    assert!(before.text().lines().count() > 1);

    for (at, said) in [
        ("-1h", "the first sample is of"),
        ("2020-01-01T00:00:00Z", "the first sample is of"),
    ] {
        let run = run(&["ps", "--history", directory.path(), "--at", at]);
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(
            run.stderr.contains("nothing was recorded at") && run.stderr.contains(said),
            "{}",
            run.stderr
        );
    }
    let empty = run(&["ps", "--history", "/proc/self/fdinfo"]);
    assert_eq!(empty.code, Some(2));
    assert!(empty.stderr.contains("no recording"), "{}", empty.stderr);
    let threads = run(&["ps", "--history", directory.path(), "-T"]);
    assert_eq!(threads.code, Some(2));
    assert!(threads.stderr.contains("not their threads"), "{}", threads.stderr);
}

/// Check that damage hides only the samples that are lost: each command shows the others, says what
/// is missing, and ends with status 1.
#[test]
fn damage_hides_only_what_is_lost() {
    let directory = Recording::new("history-rest");
    record(&directory, &["-n", "6"]);
    for entry in fs::read_dir(directory.path()).expect("a directory") {
        let path = entry.expect("an entry").path();
        if !name(&path).starts_with("full-") {
            fs::remove_file(path).expect("it is ours");
        }
    }
    let file = full(&directory).pop().expect("a file");
    let whole = fs::read(&file).expect("it is ours");
    let mut flipped = whole.clone();
    flipped[whole.len() - 20] ^= 4;
    let torn = &whole[..whole.len() - 10];
    let out = Recording::new("history-rest-out");
    let history = ["--history", directory.path()];
    let period = [&history[..], &["--from", "-1h"]].concat();
    for (bytes, said, args) in [
        (
            &flipped[..],
            "a checksum is wrong",
            [&["ps", "--csv"][..], &period].concat(),
        ),
        (
            &flipped,
            "a checksum is wrong",
            [&["tree", "--csv"][..], &period].concat(),
        ),
        (
            &flipped,
            "a checksum is wrong",
            [&["mem", "--csv"][..], &period].concat(),
        ),
        (
            &flipped,
            "a checksum is wrong",
            [&["ps", "--csv"][..], &history].concat(),
        ),
        (
            &flipped,
            "a checksum is wrong",
            [&["events", "--csv"][..], &history].concat(),
        ),
        (
            torn,
            "not written completely",
            [&["events", "--csv"][..], &history].concat(),
        ),
        (
            torn,
            "not written completely",
            vec!["history", "export", directory.path(), "--parquet", out.path()],
        ),
    ] {
        fs::write(&file, bytes).expect("it is ours");
        let run = run(&args);
        assert_eq!(run.code, Some(1), "{args:?}: {run:?}");
        assert_eq!(run.stderr.matches(said).count(), 1, "{args:?}: {}", run.stderr);
        // There may have been no events.
        let is_answered = args[0] == "events" || run.stderr.contains("5 samples exported");
        // Processes of the machine may have names that are not UTF-8.
        let lines = run.stdout.iter().filter(|&&byte| byte == b'\n').count();
        assert!(is_answered || lines > 1, "{args:?}");
    }
    fs::write(&file, b"of another program").expect("it is ours");
    let nothing = run(&[&["ps"][..], &period].concat());
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    assert!(nothing.stderr.contains(name(&file)), "{}", nothing.stderr);
    let last = run(&[&["ps"][..], &history].concat());
    assert!(
        last.code == Some(2) && last.stderr.contains("no sample can be read"),
        "{last:?}"
    );
    // An export has command lines, and is for its owner as the recording is.
    let found = |args: &[&str]| {
        let found = Command::new("find")
            .arg(out.path())
            .args(["-type", "f"])
            .args(args)
            .output();
        found.expect("find exists").stdout.split(|&byte| byte == b'\n').count() - 1
    };
    assert!(found(&[]) >= 3);
    assert_eq!(found(&["-perm", "/077"]), 0);
}

/// Check that a file without a sample, as a loss of power leaves it, hides nothing either: events
/// are shown, and it is of no boot. The overview says that it is there, and of a file of another program
/// no bytes are lost.
#[test]
fn empty_files_hide_nothing() {
    let directory = Recording::new("history-empty");
    record(&directory, &["-n", "3"]);
    fs::write(directory.0.join("full-09000000000000.tdh"), b"").expect("it is ours");
    let overview = run(&["history", directory.path()]);
    let said = "full-09000000000000.tdh: it has no sample: ";
    assert!(
        overview.code == Some(1) && overview.stderr.contains(said),
        "{overview:?}"
    );
    assert!(overview.text().contains("(1 boot)"));
    let events = run(&["events", "--history", directory.path()]);
    // It is 1 if the machine was so busy that events were left out.
    assert!(matches!(events.code, Some(0 | 1)), "{events:?}");
    assert!(events.stderr.contains(" not recorded ("), "{}", events.stderr);
    let foreign = directory.0.join("full-09000000000001.tdh");
    fs::write(&foreign, b"of another program").expect("it is ours");
    let overview = run(&["history", directory.path()]).stderr;
    assert!(
        overview.contains("it is not a file of a recording\n") && !overview.contains("lost"),
        "{overview}"
    );
    let out = Recording::new("history-empty-out");
    let export = ["history", "export", directory.path(), "--parquet", out.path()];
    for args in [&["events", "--history", directory.path()][..], &export] {
        let run = run(args);
        assert_eq!(run.code, Some(1), "{run:?}");
        assert_eq!(run.stderr.matches(name(&foreign)).count(), 1, "{}", run.stderr);
    }
    // A recording has no single forks: that nothing is shown would not say so.
    for args in [&["--kind", "fork"][..], &["--threads"]] {
        let run = run(&[&["events", "--history", directory.path()], args].concat());
        assert_eq!(run.code, Some(2), "{args:?}");
        assert!(run.stderr.contains("no single forks"), "{}", run.stderr);
    }
}

/// Check that a recording of an earlier version is neither read nor continued, but left as it is, and
/// that the message names a file and says what to do. Files that no version wrote are in nobody's way.
#[test]
fn earlier_versions_are_left_alone() {
    let directory = Recording::new("history-earlier");
    record(&directory, &["-n", "2"]);
    let files = || {
        let entries = fs::read_dir(directory.path()).expect("a directory");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let segments = paths.filter(|path| path.extension().is_some_and(|extension| extension == "tdh"));
        let mut files: Vec<_> = segments
            .map(|path| (fs::read(&path).expect("it is ours"), path))
            .collect();
        files.sort();
        files
    };
    let of_now = files();
    for (bytes, path) in &of_now {
        let mut bytes = bytes.clone();
        bytes[7] = 2;
        fs::write(path, bytes).expect("it is ours");
    }
    let earlier = files();
    for (args, code) in [
        (&["history", directory.path()][..], 1),
        (&["ps", "--history", directory.path()], 2),
        (&["record", "--dir", directory.path(), "-n", "1"], 2),
    ] {
        let run = run(args);
        assert_eq!(run.code, Some(code), "{run:?}");
        let names = earlier.iter().filter(|(_, path)| run.stderr.contains(name(path)));
        // A recorder says it of one.
        assert_eq!(names.count(), if args[0] == "record" { 1 } else { 3 }, "{run:?}");
        let said = "by an earlier development version of taskdiag, and only that reads it: record to another directory";
        assert!(run.stderr.contains(said) && !run.stderr.contains("lost"), "{run:?}");
    }
    assert!(files() == earlier);
    for (bytes, path) in &of_now {
        fs::write(path, bytes).expect("it is ours");
    }
    fs::write(directory.0.join("full-09000000000000.tdh"), b"").expect("it is ours");
    fs::write(directory.0.join("full-09000000000001.tdh"), [0; 100]).expect("it is ours");
    record(&directory, &["-n", "1"]);
    assert_eq!(files().len(), of_now.len() + 5);
}

/// Check that a recorder whose files, or whose directory, are removed says so, and goes on in new
/// files where it can.
#[test]
fn removed_files_are_missed() {
    let directory = Recording::new("history-removed");
    let mut command = common::command(&["record", "--dir", directory.path(), "--every", "0.1", "-n", "600"]);
    let recorder = command.stderr(std::process::Stdio::piped()).spawn().expect("it runs");
    let mut recorder = Killed(recorder);
    let mut said = BufReader::new(recorder.0.stderr.take().expect("a pipe")).lines();
    let mut next = |what: &str| {
        let found = said.find(|line| line.as_ref().is_ok_and(|line| line.contains(what)));
        assert!(found.is_some(), "it ended, and did not say: {what}");
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    let wait_for_samples = || {
        while (!directory.0.exists() || recorded_samples(&directory) == 0) && Instant::now() < deadline {
            sleep(Duration::from_millis(10));
        }
    };
    wait_for_samples();
    let file = full(&directory).pop().expect("a file");
    fs::remove_file(&file).expect("it is ours");
    next(&format!("{} was removed", name(&file)));
    next("recording goes on");
    wait_for_samples();
    // The recorder may just begin a file in it.
    while directory.0.exists() && Instant::now() < deadline {
        let _ = fs::remove_dir_all(directory.path());
    }
    next("the directory was removed");
}

/// Check that nobody is told to read a recording with more rights or more patience: it would not
/// show more.
#[test]
fn what_recorders_missed_is_not_there() {
    let directory = Recording::new("history-denied");
    let make = ["record", "--dir", directory.path(), "-n", "1"];
    let Some(recorded) = run_as_nobody(&make) else {
        return;
    };
    assert!(recorded.code != Some(2), "{recorded:?}");
    let show = ["ps", "--history", directory.path(), "-p", "1", "-o", "pid,exe"];
    let run = run_as_nobody(&show).expect("as above");
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(
        run.stderr.contains("denied (the recorder was not allowed to read it)"),
        "{}",
        run.stderr
    );
}

/// Check that `--keep` does not remove what is recorded already because of a 0.
#[test]
fn nothing_is_no_time_to_keep() {
    let directory = Recording::new("history-keep");
    for keep in ["0s", "0d", "0G"] {
        let run = run(&["record", "--dir", directory.path(), "-n", "1", "--keep", keep]);
        assert_eq!(run.code, Some(2), "{keep}");
        assert!(run.stderr.contains("keeps nothing"), "{}", run.stderr);
    }
}

/// Check that a limit on the size of files is reported, and does not end the recorder.
#[test]
fn a_limit_on_file_sizes_does_not_end_the_recorder() {
    let directory = Recording::new("history-limit");
    let script = "ulimit -f 1 && exec \"$0\" record --dir \"$1\" --every 0.1 -n 3";
    let mut limited = Command::new("sh");
    limited.args(["-c", script, env!("CARGO_BIN_EXE_taskdiag"), directory.path()]);
    let run = Run::new(limited.output().expect("sh exists"));
    assert_eq!(run.code, Some(1), "{run:?}");
    assert_eq!(run.stderr.matches("File too large").count(), 1, "{}", run.stderr);
}

/// Check that a part of a recording that is no regular file is told by who reads it, and left alone by
/// the recorder.
#[test]
fn what_is_no_file_is_missing() {
    let (directory, elsewhere) = (Recording::new("history-links"), Recording::new("history-elsewhere"));
    record(&directory, &["-n", "3"]);
    fs::create_dir(elsewhere.path()).expect("a directory");
    let file = full(&directory).pop().expect("a file");
    let moved = elsewhere.0.join(name(&file));
    fs::rename(&file, &moved).expect("it is ours");
    let is_told = || {
        for args in [
            &["history"][..],
            &["history", "--verify"],
            &["ps", "--csv", "--history"],
        ] {
            let run = run(&[args, &[directory.path()]].concat());
            let said = format!("{}: it is not a regular file", name(&file));
            // The coarser tiers have a sample, too.
            assert!(run.code == Some(1) && run.stderr.contains(&said), "{args:?}: {run:?}");
        }
    };
    std::os::unix::fs::symlink(&moved, &file).expect("a link");
    is_told();
    record(&directory, &["-n", "1"]);
    assert!(file.is_symlink());
    for entry in full(&directory).iter().filter(|path| **path != file) {
        fs::remove_file(entry).expect("it is ours");
    }
    fs::remove_file(&file).expect("it is ours");
    fs::create_dir(&file).expect("a directory");
    is_told();
}
