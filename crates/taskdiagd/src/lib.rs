//! The internals of `taskdiagd`, the broker. This is not a public interface. It answers requests
//! about processes for clients that may not load BPF programs, and shows each client only what
//! `/proc` mounted with `hidepid=2` would show it. `docs/protocol.md` describes it; `SECURITY.md`
//! says what it promises.

mod answer;
mod credentials;
mod encode;
mod files;
mod helpers;
mod listen;
mod log;
mod notify;
mod options;
mod passes;
mod passwd;
mod quotas;
mod sandbox;
mod server;
mod slots;
mod sys;

use std::error::Error;
use std::ffi::OsString;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use taskdiag_core::escape;

use crate::credentials::{find_landlock_word, ClientFinder, SecurityModules};
use crate::helpers::{Keeper, Pool};
use crate::log::{log, Level};
use crate::notify::Notify;
use crate::options::{Command, Options, HELP};
use crate::passes::Programs;
use crate::quotas::Limits;
use crate::server::Server;

/// What the fuzz target `answers` calls.
#[doc(hidden)]
pub mod fuzz {
    pub use crate::credentials::{IdMap, ProcFacts, Viewer};
    pub use crate::encode::{put_mappings, put_remainder, put_task, Remainder};
    pub use crate::files::put_process;
    pub use crate::helpers::messages::split_packet;
    pub use crate::helpers::VmaEncoder;
}

/// The user and group to become if there is no user `taskdiag`: the last id of the range that
/// systemd uses for services (`DynamicUser=`).
const FALLBACK_USER: (u32, u32) = (65_519, 65_519);

/// Runs the program with its arguments, the first of which is its name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match options::parse(args) {
        Ok(Command::Help) => print(HELP),
        Ok(Command::Version) => print(concat!("taskdiagd ", env!("CARGO_PKG_VERSION"), "\n")),
        Ok(Command::Run(options)) => {
            log::begin();
            log::set_level(options.log_level);
            match run(&options) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    log(Level::Error, format_args!("{error:#}"));
                    ExitCode::FAILURE
                }
            }
        }
        Err(error) => {
            let error = escape::line(&error.to_string());
            eprintln!("taskdiagd: {error} (--help lists the options)");
            ExitCode::from(2)
        }
    }
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    sys::name_refused_calls();
    // From when clients can connect, the process ends in an orderly way.
    sys::block_termination(true);
    let notify = Notify::connect();
    let listener = listen::listen(&options.socket)?;
    let limits = fit_descriptors(options.limits)?;
    let user = options.user.or_else(|| passwd::user("taskdiag"));
    let (user, group) = user.unwrap_or(FALLBACK_USER);
    sandbox::become_user(user, group).map_err(|error| format!("can't become user {user}: {error}"))?;
    // While this process has one thread, and nothing that a helper must not have.
    let keeper = Keeper::start(options.is_confined).map_err(|error| {
        format!("can't start the process that starts helpers: {error} (TasksMax=, ulimit -u, pids.max)")
    })?;
    let (stop, stopping) = UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::low_level::pipe::register(signal, stopping.try_clone()?)?;
    }
    sys::block_termination(false);
    let mut programs =
        Programs::load(options.count_network).map_err(|error| format!("{error:#}: see what `taskdiag doctor` says"))?;
    let modules = security_modules(&mut programs);
    let finder = ClientFinder::new(&mut programs, modules, options.observers)?
        .ok_or("this kernel does not show the namespaces of this process: see what `taskdiag doctor` says")?;
    let writes_map = !programs.find_tasks_themselves();
    let pool = Pool::new(keeper);
    let mut server = Server::new(listener, stop.as_fd(), programs, finder, pool, notify, limits)?;
    sandbox::drop_capabilities()?;
    if options.is_confined {
        sandbox::enter_empty_domain()?;
        sandbox::confine_loop(writes_map)?;
    }
    log(Level::Info, format_args!("ready on {}", options.socket.display()));
    let served = server.run();
    log(Level::Info, format_args!("stopped: {}", server.counters));
    // Closing connections may wait. Exiting does not.
    std::mem::forget(server);
    Ok(served?)
}

/// Finds the security modules, and makes records name Landlock domains.
fn security_modules(programs: &mut Programs) -> SecurityModules {
    let mut modules = SecurityModules::find();
    log(Level::Info, format_args!("security modules: {}", modules.describe()));
    if modules.is_undecidable() {
        log(
            Level::Warning,
            format_args!("clients see themselves alone: what these modules allow can't be known (docs/protocol.md)"),
        );
    }
    if modules.has_landlock() {
        match find_landlock_word(programs) {
            Some(word) => {
                programs.set_landlock_word(word);
                modules.set_landlock_shown();
            }
            None => log(
                Level::Warning,
                format_args!("clients see themselves alone: this kernel does not show Landlock domains"),
            ),
        }
    }
    modules
}

/// Raises the limit of descriptors. If it is still too low for the limit of clients, lowers that.
fn fit_descriptors(limits: Limits) -> Result<Limits, Box<dyn Error>> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised)?;
    let possible = maximum.map_or(usize::MAX, Limits::clients_for);
    if possible == 0 {
        return Err("too few descriptors for a single client: raise the limit (ulimit -n, LimitNOFILE=)".into());
    }
    let wanted = limits.max_clients;
    if possible < wanted {
        log(
            Level::Warning,
            format_args!("{possible} clients instead of {wanted}: too few descriptors (ulimit -n, LimitNOFILE=)"),
        );
    }
    let max_clients = wanted.min(possible);
    Ok(Limits {
        max_clients,
        max_clients_per_user: limits.max_clients_per_user.min(Limits::clients_per_user(max_clients)),
        ..limits
    })
}
