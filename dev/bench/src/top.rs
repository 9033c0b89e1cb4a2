//! Interactive views: `taskdiag top` compared with other tops, each in its own terminal, one after
//! the other.

use std::fs::{self, File};
use std::io::Read as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{open, Mode, OFlags};
use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};
use rustix::termios::{tcsetwinsize, Winsize};
use taskdiag_zoo::Farm;

use crate::case::{call, single, times, Bound, Case, Contender, Counts, Run, Stage, Value};
use crate::measure::{peak_kib, processor_time};
use crate::served::{Running, Scratch};
use crate::tools::words_of;
use crate::{loops, Result, Sizes};

const PROCESSES: usize = 10_000;

/// The number of active processes.
const ACTIVE: usize = 50;

/// How long a program may take until it only takes samples, and how long it is measured.
const SETTLE: Duration = Duration::from_secs(5);
const MEASURED: Duration = Duration::from_secs(10);

pub fn cases(sizes: &Sizes) -> Vec<Case> {
    let processes = sizes.or(&[PROCESSES])[0];
    let title = format!("Watching {processes} processes, {ACTIVE} of them active");
    let mut case = Case::new(title, move || {
        let farm = Farm::start(processes, 1)?;
        let stage = Stage {
            title: format!(" ({} processes in all)", loops::census()?.0),
            ..Stage::default()
        };
        Ok(stage.keep(activity(&farm)?).keep(farm))
    });
    case.note = format!(
        "A sample a second on a terminal of 120 by 40: processor time of the whole program for each, in {} s of each round, \
         after {} s in which it settled. Peak RSS is that of the program that was measured.",
        MEASURED.as_secs(),
        SETTLE.as_secs()
    );
    case.counts = Counts::Nothing;
    case.contenders = [
        ("top -d 1", "top -d 1"),
        ("htop -d 10", "htop -d 10"),
        ("btop, 1000 ms", "btop --utf-force"),
        ("taskdiag watch -d 1", "taskdiag watch -d 1"),
        ("taskdiag top -d 1", "taskdiag top -d 1"),
        ("taskdiag top -d 1 --source procfs", "taskdiag top -d 1 --source procfs"),
    ]
    .into_iter()
    .map(|(name, words)| watching(name, words))
    .collect();
    let ours = "taskdiag top -d 1";
    case.targets = vec![
        times("processor time of top as a multiple", "top -d 1", ours, 8.0),
        times("processor time of btop as a multiple", "btop, 1000 ms", ours, 8.0),
        times("processor time of htop as a multiple", "htop -d 10", ours, 12.0),
        single("peak RSS, MiB", Value::Peak, ours, Bound::AtMost(40.0)),
    ];
    vec![case]
}

/// A program in a terminal: its processor time for a sample.
fn watching(name: &'static str, words: &'static str) -> Contender {
    call(name, "", |context| {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let argv = words_of(&words, &context.tools, "")?;
        Ok(Box::new(move || {
            let mut terminal = Terminal::start(&argv)?;
            thread::sleep(SETTLE);
            let pid = terminal.child.0.id();
            let (began, before) = (Instant::now(), processor_time(pid)?);
            thread::sleep(MEASURED);
            let used = processor_time(pid)? - before;
            if let Some(status) = terminal.child.0.try_wait()? {
                return Err(format!("it ended: {status}").into());
            }
            Ok(Run {
                took: used.div_f64(began.elapsed().as_secs_f64()),
                peak_kib: peak_kib(pid)?,
                ..Run::default()
            })
        }))
    })
}

/// Keeps [`ACTIVE`] processes, spread over a farm, active until dropped. Stopping and continuing a
/// process counts as activity.
pub fn activity(farm: &Farm) -> Result<Running> {
    let every = (farm.pids().len() / ACTIVE).max(1);
    let pids: Vec<String> = farm.pids().iter().step_by(every).map(i32::to_string).collect();
    let script = "while :; do kill -STOP $*; kill -CONT $*; sleep 0.2; done";
    Running::start(Command::new("sh").args(["-c", script, "sh"]).args(pids))
}

/// A program in a terminal whose output is not shown.
struct Terminal {
    child: Running,
    /// The directory of its settings.
    _settings: Scratch,
}

impl Terminal {
    /// Starts a program, without the user's settings.
    fn start(argv: &[String]) -> Result<Terminal> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let size = Winsize {
            ws_col: 120,
            ws_row: 40,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size)?;
        let path = ptsname(&master, Vec::new())?;
        let end = open(&path, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        let settings = Scratch::make(&std::env::temp_dir())?;
        fs::create_dir(settings.0.join("btop"))?;
        fs::write(settings.0.join("btop/btop.conf"), "update_ms = 1000\n")?;
        let child = Command::new(&argv[0])
            .args(&argv[1..])
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            .env("XDG_CONFIG_HOME", &settings.0)
            .stdin(end.try_clone()?)
            .stdout(end.try_clone()?)
            .stderr(end)
            .spawn()
            .map_err(|error| format!("{}: {error}", argv[0]))?;
        let mut master = File::from(master);
        thread::spawn(move || while let Ok(1..) = master.read(&mut [0; 65_536]) {});
        Ok(Terminal {
            child: Running(child),
            _settings: settings,
        })
    }
}
