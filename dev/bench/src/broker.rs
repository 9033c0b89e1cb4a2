//! The broker: what an unprivileged client gets, and how fast, compared with reading `/proc` itself
//! and with BPF in a process of root's.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;
use std::{env, fs};

use taskdiag::{Handle, Query, SourceId};

use crate::case::Bound::{Any, AtMost};
use crate::case::{call, ratio, single, timed, times, Case, Contender, Context, Counts, Stage, Value, Way};
use crate::loops::{self, Visit};
use crate::served::{Running, Scratch, Served};
use crate::tasks::{again, base_and_cred, of, repeat};
use crate::tools::Tools;
use crate::{Result, Sizes};

/// A user id that nothing else uses.
const USER: u32 = 61_235;

pub fn cases(sizes: &Sizes) -> Vec<Case> {
    let processes = sizes.or(&[30_000])[0];
    let title = format!("The broker, asked by a user with {processes} idle processes");
    let mut case = Case::new(title, move || stage(processes));
    case.row = "task";
    case.counts = Counts::Nothing;
    case.contenders = vec![
        as_user(
            "status",
            "the client's own loop: open, read, close /proc/PID/status",
            |_| timed(|| Ok(loops::processes(&[Visit::Read("status")])?)),
        ),
        call("bpf", "base+cred by BPF in a process of root's: all processes", |_| {
            again(SourceId::Bpf, base_and_cred())
        }),
        as_user("broker", "base+cred by the broker: the client's processes", |context| {
            repeat(handle(&context.subject), base_and_cred())
        }),
        as_user("broker, one process", "there and back, on any processors", |context| {
            let query = Query::process(std::process::id());
            repeat(
                handle(&context.subject),
                query.fields(of(&[taskdiag::Group::Base, taskdiag::Group::Cred])),
            )
        }),
    ];
    case.targets = vec![
        times("times as fast as the status loop", "status", "broker", 12.0),
        ratio("times as long as BPF", Value::Time, "broker", &["bpf"], Any),
        single(
            "one process: milliseconds",
            Value::Time,
            "broker, one process",
            AtMost(0.03),
        ),
    ];
    vec![case]
}

fn as_user(
    name: &str,
    about: &'static str,
    prepare: impl Fn(&Context) -> Result<crate::case::Runner> + 'static,
) -> Contender {
    Contender::new(name, about, Way::CallAs(USER, Box::new(prepare)))
}

fn handle(socket: &str) -> Handle {
    Handle::new().with_source(SourceId::Broker).with_socket(socket)
}

/// The broker, and the user's processes.
fn stage(processes: usize) -> Result<Stage> {
    // The user may not raise them for its processes.
    for name in ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"] {
        if fs::read_to_string(name)?.trim().parse::<usize>()? < processes + 70_000 {
            fs::write(name, (processes + 70_000).to_string())?;
        }
    }
    let farm = Served::actor("farm", processes, Some(USER))?;
    let directory = Scratch::make(&env::temp_dir())?;
    let socket = directory.0.join("socket").display().to_string();
    let mut command = Command::new(Tools::find()?.taskdiagd()?);
    command.args(["--socket", &socket, "--log-level", "warning"]);
    let broker = Running::start(&mut command)?;
    let answers = |_: &usize| handle(&socket).query(&Query::process(std::process::id())).is_ok();
    let wait = |turn: usize| (sleep(Duration::from_millis(25)), turn).1;
    (0..200).map(wait).find(answers).ok_or("the broker does not begin")?;
    Ok(Stage::default().subject(socket).keep(farm).keep(broker).keep(directory))
}
