//! `taskdiagd`, the broker: answers questions about processes for clients that may not load BPF programs, and shows each of
//! them only what `/proc` mounted with `hidepid=2` would. See `docs/protocol.md`.

mod accounts;
mod answer;
mod closer;
mod encode;
mod facts;
#[cfg(test)]
mod fuzz;
mod ids;
mod job;
mod keeper;
mod log;
mod modules;
mod notify;
mod passes;
mod pool;
mod reader;
mod sandbox;
mod server;
mod smaps;
mod socket;
mod sys;

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use taskdiag_protocol::wire;

use crate::facts::Finder;
use crate::keeper::Keeper;
use crate::log::{log, Level};
use crate::modules::Modules;
use crate::notify::Notify;
use crate::passes::Passes;
use crate::pool::Pool;
use crate::server::{Limits, Server};

const HELP: &str = "\
Answers questions about processes over a local socket, in task_diag's message format.

Usage: taskdiagd [OPTIONS]

Options:
      --socket PATH        Where to listen, unless systemd hands over a socket [default: /run/taskdiag/taskdiag.sock]
      --observers GROUP    Members of this group see base, cred, cpu, faults and mem of all tasks
      --user NAME          Who to be, if it is started by root [default: taskdiag, or a number that nobody else has]
      --max-clients N      Clients at a time [default: 256], and at most so many of one user:
      --max-user-clients N [default: 96]
      --memory MIB         What answers may take that have not been read [default: 512]; a third of it one user's
      --patience SECONDS   How long a client may leave an answer where it is [default: 10]
      --no-sharing         A pass for each request, to measure what sharing them is worth
      --no-sandbox         No seccomp, no Landlock, for looking for errors
      --log-level LEVEL    error, warning, info or debug [default: info]
  -h, --help               Print this
  -V, --version            Print the version

It takes CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE, or root.
";

#[derive(Debug)]
struct Options {
    socket: PathBuf,
    observers: Option<u32>,
    user: Option<(u32, u32)>,
    limits: Limits,
    sandbox: bool,
}

/// User and group where there is no user of that name: one of those that systemd hands out for a while, and the last that it tries.
const NOBODY_ELSE: (u32, u32) = (65_519, 65_519);

enum Parsed {
    Run(Options),
    Said,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args_os().collect()) {
        Ok(Parsed::Run(options)) => options,
        Ok(Parsed::Said) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("taskdiagd: {error} (--help lists the options)");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(Level::Error, format_args!("{error}"));
            ExitCode::FAILURE
        }
    }
}

fn parse(args: Vec<OsString>) -> Result<Parsed, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options {
        socket: PathBuf::from(wire::SOCKET),
        observers: None,
        user: None,
        limits: Limits::default(),
        sandbox: true,
    };
    let mut parser = lexopt::Parser::from_iter(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("socket") => options.socket = parser.value()?.into(),
            Long("observers") => {
                let name = parser.value()?.string()?;
                let group = socket::group(&name).ok_or_else(|| format!("there is no group {name:?}"))?;
                options.observers = Some(group);
            }
            Long("user") => {
                let name = parser.value()?.string()?;
                let number = || name.parse().ok().map(|number| (number, number));
                let user = socket::user(&name).or_else(number).filter(|user| user.0 != 0);
                options.user = Some(user.ok_or_else(|| format!("there is no user {name:?}, other than root"))?);
            }
            Long("memory") => {
                let mebibytes: usize = parser.value()?.parse()?;
                options.limits.bytes = mebibytes.saturating_mul(1 << 20);
            }
            Long("max-clients") => options.limits.clients = parser.value()?.parse()?,
            Long("max-user-clients") => options.limits.clients_per_user = parser.value()?.parse()?,
            Long("patience") => options.limits.patience = Duration::from_secs(parser.value()?.parse()?),
            Long("no-sharing") => options.limits.shares = false,
            Long("no-sandbox") => options.sandbox = false,
            Long("log-level") => {
                let name = parser.value()?.string()?;
                let level = Level::parse(&name).ok_or("levels are error, warning, info and debug")?;
                log::set_level(level);
            }
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(Parsed::Said);
            }
            Short('V') | Long("version") => {
                println!("taskdiagd {}", env!("CARGO_PKG_VERSION"));
                return Ok(Parsed::Said);
            }
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(Parsed::Run(options))
}

fn run(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    log::begin();
    sys::name_refused_calls();
    let notify = Notify::find();
    let listener = socket::listen(&options.socket)?;
    let limits = limits(options.limits)?;
    let user = options.user.or_else(|| socket::user("taskdiag")).unwrap_or(NOBODY_ELSE);
    sandbox::become_user(user.0, user.1)?;
    // Before there is anything in this process that helpers must not have, and while it has one thread.
    let keeper = Keeper::start(options.sandbox)?;
    let (stop, stopping) = UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::low_level::pipe::register(signal, stopping.try_clone()?)?;
    }
    let mut passes = Passes::load()?;
    let mut modules = Modules::find();
    log(Level::Info, format_args!("security modules: {}", modules.describe()));
    if modules.is_undecidable() {
        log(
            Level::Warning,
            format_args!("what these modules allow can't be known here: clients see themselves alone"),
        );
    }
    if modules.has_landlock() {
        match sandbox::find_landlock_word(&mut passes) {
            Some(word) => {
                passes.set_landlock_word(word);
                modules.landlock_is_known();
            }
            None => log(
                Level::Warning,
                format_args!("domains of Landlock can't be told apart: clients see themselves alone"),
            ),
        }
    }
    let finder = Finder::new(&mut passes, modules, options.observers)?
        .ok_or("this kernel does not show where this process stands")?;
    let is_map_written = !passes.find_tasks_themselves();
    let mut server = Server::new(
        listener,
        stop.as_fd(),
        passes,
        finder,
        Pool::new(keeper),
        notify,
        limits,
    )?;
    sandbox::drop_capabilities()?;
    if options.sandbox {
        sandbox::enter_domain()?;
        sandbox::confine_loop(is_map_written)?;
    }
    log(Level::Info, format_args!("ready on {}", options.socket.display()));
    let served = server.run();
    let counters = server.counters;
    log(Level::Info, format_args!("stopped: {counters:?}"));
    Ok(served?)
}

/// As many descriptors as may be had, and no more clients than these are enough for.
fn limits(limits: Limits) -> Result<Limits, Box<dyn std::error::Error>> {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised)?;
    let enough_for = maximum.map_or(usize::MAX, Limits::clients_for);
    if enough_for == 0 {
        return Err("there are too few descriptors for even one client (ulimit -n)".into());
    }
    if enough_for < limits.clients {
        let wanted = limits.clients;
        log(
            Level::Warning,
            format_args!(
                "{enough_for} clients at a time rather than {wanted}: there are no more descriptors (ulimit -n)"
            ),
        );
    }
    let clients = limits.clients.min(enough_for);
    Ok(Limits {
        clients,
        // No user may have all places.
        clients_per_user: limits.clients_per_user.min(Limits::of_one_user(clients)),
        ..limits
    })
}
