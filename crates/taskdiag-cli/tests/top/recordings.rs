//! `taskdiag top --history`.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use taskdiag::{Field, Handle, Query};
use taskdiag_history::directory::Keep;
use taskdiag_history::encode::Sample;
use taskdiag_history::events::IntervalEvents;
use taskdiag_history::figures::{self, Figure, Figures, Part};
use taskdiag_history::piece::Time;
use taskdiag_history::recorder::Recorder;
use taskdiag_history::store::{RecordingFile, Space, Store};
use taskdiag_history::About;

use crate::common::{run, Recording, Sleeper};
use crate::terminal::Terminal;

impl Recording {
    /// Records this machine.
    #[track_caller]
    fn record(&self, samples: &str) {
        let run = run(&["record", "--dir", self.path(), "--every", "0.4", "-n", samples]);
        assert!(run.code == Some(0) || run.stderr.contains("no events"), "{run:?}");
    }

    /// What ps shows for a process at the moment in the head of a picture.
    #[track_caller]
    fn process(&self, pid: &str, moment: &str) -> Value {
        let fields = "utime_ns,stime_ns,rss_bytes";
        let at = format!("{}Z", moment.replace(' ', "T"));
        let args = [
            "ps",
            "--history",
            self.path(),
            "--at",
            &at,
            "--json",
            "-p",
            pid,
            "-o",
            fields,
        ];
        let document = run(&args).json();
        assert_eq!(document["time"], at);
        document["rows"][0].clone()
    }

    fn top(&self, args: &[&str]) -> Terminal {
        let args = [&["--history", self.path()], args].concat();
        Terminal::with(&args, "/nonexistent".as_ref(), 160, 30)
    }
}

/// The moment in the head of a picture.
#[track_caller]
fn moment(picture: &str) -> String {
    let head = picture.lines().next().unwrap_or_default();
    let rest = head
        .strip_prefix("recorded ")
        .unwrap_or_else(|| panic!("no moment in\n{picture}"));
    rest.split(" on ").next().expect("it is not empty").to_owned()
}

/// Waits for the picture of a different moment.
#[track_caller]
fn other(top: &mut Terminal, than: &str) -> String {
    top.wait_until("another moment", |picture| {
        picture.starts_with("recorded ") && moment(picture) != than
    });
    // A picture arrives in pieces.
    while top.take(Duration::from_millis(100)) {}
    top.picture()
}

/// The cells of the row of a process.
fn row(picture: &str, pid: &str) -> Option<Vec<String>> {
    let mut rows = picture
        .lines()
        .map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    rows.find(|cells| cells.first().is_some_and(|cell| cell == pid))
}

/// Check that each sample is shown as ps shows it, with percentages for the time since the previous
/// sample; that processes come and go; and that the ends of the recording are marked.
#[test]
fn samples_are_gone_through() {
    let recording = Recording::new("top-through");
    let busy = Sleeper::run(Command::new("sh").args(["-c", "while :; do :; done"]));
    recording.record("4");
    let passing = Sleeper::new("passing");
    recording.record("2");
    let (busy, passed) = (busy.pid(), passing.pid());
    drop(passing);
    let pids = format!("{busy},{passed}");
    let mut top = recording.top(&[
        "-p",
        &pids,
        "--bytes",
        "-o",
        "pid,cpu_percent,rss_bytes,utime_ns,stime_ns,comm",
    ]);
    top.wait_for("this is the last sample");
    let mut picture = top.wait_until("both", |picture| {
        row(picture, &passed).is_some_and(|cells| cells.len() == 6) && row(picture, &busy).is_some()
    });
    let mut back = vec![(moment(&picture), row(&picture, &busy).expect("a row"))];
    for _ in 0..5 {
        top.press("\x1b[D");
        other(&mut top, &back[back.len() - 1].0);
        picture = top.wait_until("a row", |picture| {
            row(picture, &busy).is_some_and(|cells| cells.len() == 6)
        });
        back.push((moment(&picture), row(&picture, &busy).expect("a row")));
    }
    assert!(
        picture.contains("this is the first sample") && row(&picture, &passed).is_none(),
        "{picture}"
    );
    top.press("\x1b[D");
    top.wait_for("the recording has no earlier sample");
    // The picture agrees with ps, and the percentage covers the time in between.
    let said: Vec<Value> = back
        .iter()
        .map(|(moment, _)| recording.process(&busy, moment))
        .collect();
    for (index, (moment, cells)) in back.iter().enumerate() {
        for (at, field) in [(2, "rss_bytes"), (3, "utime_ns"), (4, "stime_ns")] {
            assert_eq!(cells[at], said[index][field].to_string(), "{field} at {moment}");
        }
        let Some(before) = said.get(index + 1) else {
            assert_eq!(cells[1], "-", "{moment}");
            continue;
        };
        let used = |row: &Value| row["utime_ns"].as_f64().expect("a time") + row["stime_ns"].as_f64().expect("a time");
        let elapsed = milliseconds(moment) - milliseconds(&back[index + 1].0);
        let percent = (used(&said[index]) - used(before)) / 1e4 / elapsed;
        let shown: f64 = cells[1].parse().expect("a percentage");
        // Moments are rounded to a millisecond, the percentage to a tenth.
        assert!(
            (shown - percent).abs() < 0.1 + percent * 2.0 / elapsed,
            "{shown} is not {percent} at {moment}"
        );
        assert!(shown > 0.0, "{cells:?}");
    }
    // Going forward shows the same again.
    for (before, (later, cells)) in back
        .iter()
        .skip(1)
        .map(|(moment, _)| moment)
        .zip(&back)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
    {
        top.press("\x1b[C");
        other(&mut top, before);
        let picture = top.wait_until("the same row", |picture| row(picture, &busy).as_ref() == Some(cells));
        assert_eq!(moment(&picture), *later);
    }
    top.press("\x1b[C");
    top.wait_for("the recording has no later sample");
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}

/// The milliseconds of a moment within its day.
fn milliseconds(moment: &str) -> f64 {
    let time = moment.split(' ').nth(1).expect("a time");
    time.split(':')
        .fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().expect("a number"))
        * 1000.0
}

/// Check that actions on processes are refused, that details are those of the sample, and that a
/// time can be selected.
#[test]
fn what_was_recorded_is_only_looked_at() {
    let recording = Recording::new("top-looked-at");
    let mut sleeper = Command::new("sleep").arg("1000").spawn().expect("sleep exists");
    let pid = sleeper.id().to_string();
    recording.record("3");
    sleeper.kill().expect("it is ours");
    sleeper.wait().expect("it ends");
    let mut top = recording.top(&["-p", &pid]);
    top.wait_for("sleep 1000");
    for (key, said) in [
        ("k", "can't be signalled"),
        ("r", "can't be changed"),
        ("H", "not their threads"),
        ("Z", "do not come by themselves"),
    ] {
        top.press(key);
        top.wait_for(said);
    }
    top.press("?");
    top.wait_for("the next spike of processors or memory");
    top.press("q\r");
    top.wait_for("Credentials");
    top.press("\t");
    for what in ["limits of cgroups", "files", "sockets", "mappings"] {
        top.press("\t");
        top.wait_for(&format!("a recording has no {what}"));
    }
    top.press("\t\t");
    top.wait_for("a recording has no environments");
    top.press("\x1b[Z\x1b[Z");
    top.press("q");
    top.wait_for("sleep 1000");
    let last = moment(&top.picture());
    top.press("a");
    let first = moment(&other(&mut top, &last));
    top.press("gnonsense\r");
    top.wait_for("is not a time");
    top.press(&format!("\x15{last}\r"));
    assert_eq!(moment(&other(&mut top, &first)), last);
    top.press("\x1b[D");
    other(&mut top, &last);
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
    for (args, said) in [
        (&["--at", "-100d"][..], "nothing was recorded at"),
        (&["-T"], "not their threads"),
        (&["-d", "1"], "cannot be used with"),
    ] {
        let (status, picture) = recording.top(args).end();
        assert!(status.code() == Some(2) && picture.contains(said), "{picture}");
    }
}

/// A directory of files.
struct Directory(PathBuf);

impl Store for Directory {
    type File = fs::File;

    fn list(&self) -> io::Result<Vec<RecordingFile>> {
        Ok(Vec::new())
    }

    fn create(&mut self, name: &str) -> io::Result<fs::File> {
        fs::File::create_new(self.0.join(name))
    }

    fn append(&mut self, file: &mut fs::File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync(&mut self, _: &mut fs::File) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&mut self, file: &mut fs::File, bytes: u64) -> io::Result<()> {
        file.set_len(bytes)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    fn space(&self) -> io::Result<Space> {
        Ok(Space { total: 1, available: 1 })
    }
}

const SECOND: u64 = 1_000_000_000;

/// 2026-11-20T00:00:00Z
const MIDNIGHT: i64 = 1_795_132_800;

/// Creates a recording with a sample every five seconds from midnight on. Each sample has the busy
/// processors since the previous one, and the used memory, in percent.
fn made(recording: &Recording, samples: impl Iterator<Item = (u64, u64)>) {
    fs::create_dir(recording.path()).expect("it is not there");
    let query =
        Query::process(std::process::id()).fields(Field::Comm | Field::UtimeNs | Field::StimeNs | Field::StartNs);
    let tasks = Handle::new().query(&query).expect("an answer");
    let about = About {
        host: "made\u{1b}[2J".to_owned(),
        boot_id: "one".to_owned(),
        every_ns: 5 * SECOND,
        fields: ["pid", "comm", "utime_ns", "stime_ns", "start_ns"]
            .map(str::to_owned)
            .into(),
        ..About::default()
    };
    let mut recorder = Recorder::new(Directory(recording.path().into()), about, Keep::Usual);
    let (mut user, mut idle) = (0, 0);
    for (number, (busy, used)) in samples.enumerate() {
        (user, idle) = (user + busy, idle + 100 - busy);
        let mut figures = Figures::new();
        for (object, key, value) in [
            ("cpu", "user", user),
            ("cpu", "nice", 0),
            ("cpu", "system", 0),
            ("cpu", "idle", idle),
            ("meminfo", "MemTotal", 1000 << 20),
            ("meminfo", "MemAvailable", (1000 - 10 * used) << 20),
        ] {
            figures::set(&mut figures, object.as_bytes(), key.as_bytes(), Figure::Number(value));
        }
        // After 60 samples there is a gap of two hours.
        let seconds = 5 * number as u64 + if number < 60 { 0 } else { 7200 };
        let time = Time {
            wall_ns: (MIDNIGHT + seconds as i64) * SECOND as i64,
            boot_ns: (1_000_000 + seconds) * SECOND,
        };
        let parts = [Part {
            figures: &figures,
            version: number as u64,
        }];
        let sample = Sample {
            time,
            tasks: &tasks,
            others: None,
            figures: &parts,
            happened: &IntervalEvents::default(),
        };
        let notices = recorder.record(&sample, false);
        assert_eq!(notices, []);
    }
}

/// Check that keys jump to spikes, and by minutes and hours; that the head shows gaps and damage;
/// and that the name of a host has no effect on the terminal.
#[test]
fn spikes_gaps_and_damage_are_found() {
    let recording = Recording::new("top-made");
    made(
        &recording,
        (0..80).map(|number| match number {
            40 => (95, 50),
            41 => (80, 50),
            50 => (10, 70),
            _ => (10, 50),
        }),
    );
    let mut top = recording.top(&["--at", "2026-11-20T00:01:40Z"]);
    top.wait_for("recorded 2026-11-20 00:01:40.000 on made\\x1b[2J  tier full");
    for (keys, time, said) in [
        ("j", "00:03:20", "spike of processors: 95.0 % in use, 10.0 % before"),
        ("j", "00:04:10", "spike of memory: 70.0 % in use, 50.0 % before"),
        ("j", "00:04:10", "the recording has no later spike"),
        ("J", "00:03:20", "spike of processors"),
        ("J", "00:03:20", "the recording has no earlier spike"),
        ("]", "00:04:20", ""),
        ("[[", "00:02:20", ""),
        ("}", "00:04:55", "a gap of 02:00:05 after"),
        ("\x1b[C", "02:05:00", "a gap of 02:00:05 before"),
        ("{", "00:04:55", "a gap of 02:00:05 after"),
        ("\x1b[D\x1b[D\x1b[D", "00:04:40", "since the sample before 5.0 s"),
        (
            "g2026-11-20 01:00\r",
            "00:04:55",
            "nothing was recorded at 2026-11-20 01:00:00.000",
        ),
        ("a", "00:00:00", "this is the first sample"),
        ("z", "02:06:35", "this is the last sample"),
    ] {
        top.press(keys);
        let time = format!("recorded 2026-11-20 {time}.000 on");
        top.wait_until(&time, |picture| picture.contains(&time) && picture.contains(said));
    }
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
    // The last sample of the first file is truncated.
    let mut files: Vec<PathBuf> = fs::read_dir(recording.path())
        .expect("it is ours")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.retain(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("full-"))
    });
    files.sort();
    let bytes = fs::read(&files[0]).expect("it is ours");
    let cut = bytes.len() - 10;
    fs::write(&files[0], &bytes[..cut]).expect("it is ours");
    let mut top = recording.top(&["--at", "2026-11-20T00:04:50Z"]);
    top.wait_for("00:04:50.000 on");
    top.wait_for("what follows is damaged");
    top.wait_for("its last sample was not written completely");
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}
