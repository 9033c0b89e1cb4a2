//! `taskdiagd`, the broker: answers questions about processes for clients that may not load BPF programs, and shows each of
//! them only what `/proc` mounted with `hidepid=2` would. See `docs/protocol.md`.

mod encode;
mod facts;
mod file;
mod ids;
mod log;
mod mappings;
mod modules;
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

use taskdiag::broker::passes::Passes;
use taskdiag::broker::wire;

use crate::facts::Finder;
use crate::log::{log, Level};
use crate::mappings::Readers;
use crate::modules::Modules;
use crate::server::{Limits, Server};

const HELP: &str = "\
Answers questions about processes over a local socket, in task_diag's message format.

Usage: taskdiagd [OPTIONS]

Options:
      --socket PATH        Where to listen, unless systemd hands over a socket [default: /run/taskdiag/taskdiag.sock]
      --observers GROUP    Members of this group see base, cred, cpu, faults and mem of all tasks
      --max-clients N      Clients at a time [default: 1024], and at most so many of one user:
      --max-user-clients N [default: 640]
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
    limits: Limits,
    sandbox: bool,
}

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
    // They keep one capability, and get the loop's filter of system calls as well.
    let readers = Readers::start(sandbox::keep_tracing)?;
    let listener = socket::listen(&options.socket)?;
    let is_ours = listener.is_ours;
    let mut server = Server::new(listener.socket, stop.as_fd(), passes, finder, readers, options.limits)?;
    sandbox::drop_capabilities()?;
    if options.sandbox {
        sandbox::enter_domain(is_ours.then_some(options.socket.as_path()))?;
        sandbox::filter_system_calls()?;
    }
    log(Level::Info, format_args!("ready on {}", options.socket.display()));
    let served = server.run();
    let counters = server.counters;
    log(Level::Info, format_args!("stopped: {counters:?}"));
    if is_ours {
        let _ = std::fs::remove_file(&options.socket);
    }
    Ok(served?)
}
