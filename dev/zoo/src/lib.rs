//! Strange processes on demand, for the oracle tests and the benchmarks of taskdiag.
//!
//! A [`Zoo`] starts [`Animal`]s: processes with a name that looks like the middle of a stat line, with a command line of
//! 2 MiB, dead thread-group leaders, processes in other namespaces ... Each is ready when it is returned, knows what is
//! to be seen of it ([`Facts`]), stays as it is, and is gone with all that belongs to it when its guard is dropped. A
//! [`Farm`] is many idle processes, a [`Churn`] forks without end, [`Racers`] do other things without end.
//!
//! Tests have many threads, in which forking is unsafe, so everything happens in helper processes: the binary `zoo` of
//! this package. It is found through the variable `TASKDIAG_ZOO`, or beside the running executable or above it.

mod arg_area;
mod churn;
mod facts;
mod farm;
mod fuse;
mod helper;
mod keeper;
pub mod passing;
mod racer;
mod species;
mod sys;
mod titles;

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub use churn::Churn;
pub use facts::Facts;
pub use farm::Farm;
pub use racer::{Race, Racers};
pub use species::cgroup_mount;

use helper::Helper;

/// What a test allows beside what is promised: a second, and where processors are emulated as many as `TASKDIAG_TEST_MARGIN` says.
pub fn margin() -> Duration {
    let seconds = std::env::var("TASKDIAG_TEST_MARGIN").map(|text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds.unwrap_or(1))
}

/// Copies a program that is to be run, for tests with threads: not in this process, because what another thread forks meanwhile
/// would hold the copy open for writing, and such a file cannot be executed (`ETXTBSY`).
pub fn copy_program(from: &Path, to: &Path) -> io::Result<()> {
    let run = Command::new("cp").arg("--").arg(from).arg(to).output()?;
    if run.status.success() {
        Ok(())
    } else {
        Err(io::Error::other(
            String::from_utf8_lossy(&run.stderr).trim().to_string(),
        ))
    }
}

/// The keeper of all animals.
#[derive(Clone, Copy, Debug)]
pub struct Zoo(());

impl Zoo {
    /// Starts nothing; fails when there is no zoo binary.
    pub fn new() -> io::Result<Zoo> {
        helper::zoo_binary().map(|_| Zoo(()))
    }

    /// All animals that do no harm: name, and what is special.
    pub fn list() -> impl Iterator<Item = (&'static str, &'static str)> {
        species::all().map(|species| (species.name, species.about))
    }

    /// Animals that keep those waiting who look at them: name, and how.
    pub fn holders() -> impl Iterator<Item = (&'static str, &'static str)> {
        species::holders().map(|species| (species.name, species.about))
    }

    /// Starts an animal. An error of kind [`io::ErrorKind::Unsupported`] says that this host does not allow it.
    pub fn start(&self, name: &str) -> io::Result<Animal> {
        let unknown = || io::Error::new(io::ErrorKind::InvalidInput, format!("no animal is called {name:?}"));
        let name = species::find(name).ok_or_else(unknown)?.name;
        let mut helper = Helper::start(&format!("{KEEPER}{name}"), &["animal", name])?;
        let facts = helper
            .hear()
            .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
        Ok(Animal {
            name,
            pid: facts.pid,
            facts,
            helper,
        })
    }

    /// Starts a process with `count` mappings, or a few more. It is none of the animals, as tens of thousands take their time.
    pub fn with_mappings(&self, count: usize) -> io::Result<Animal> {
        let mut helper = Helper::start(&format!("{KEEPER}{MANY}{count}"), &["mappings", &count.to_string()])?;
        let facts = helper
            .hear()
            .map_err(|error| io::Error::new(error.kind(), format!("{count} mappings: {error}")))?;
        Ok(Animal {
            name: "many mappings",
            pid: facts.pid,
            facts,
            helper,
        })
    }

    /// Starts one of each that does no harm, and tells which ones this host refused. What is neither is an error.
    pub fn everything(&self) -> io::Result<(Vec<Animal>, Vec<Refused>)> {
        let (mut animals, mut refused) = (Vec::new(), Vec::new());
        for (name, _) in Zoo::list() {
            match self.start(name) {
                Ok(animal) => animals.push(animal),
                Err(error) if error.kind() == io::ErrorKind::Unsupported => refused.push((name, error.to_string())),
                Err(error) => return Err(error),
            }
        }
        Ok((animals, refused))
    }
}

/// A strange process. Dropping it ends and reaps the process and all that belong to it.
#[derive(Debug)]
pub struct Animal {
    /// What it is called, which is not the process's name.
    pub name: &'static str,
    /// The process, in the namespace of the one who asked for it. Where two belong together the name says which one.
    pub pid: i32,
    /// What is to be seen of it.
    pub facts: Facts,
    helper: Helper,
}

impl Animal {
    /// Makes `title-changer` rewrite its title in place; the facts are then new. Fewer than 100 bytes fit into
    /// its first arguments, longer ones (up to two pages) run on into the environment as setproctitle's do.
    pub fn set_title(&mut self, title: &[u8]) -> io::Result<()> {
        self.command("title", &[title])
    }

    /// Makes `title-changer` exec itself with these arguments (at least one); the facts are then new.
    pub fn exec_with(&mut self, args: &[&[u8]]) -> io::Result<()> {
        self.command("exec", args)
    }

    fn command(&mut self, verb: &str, args: &[&[u8]]) -> io::Result<()> {
        let mut line = verb.to_owned();
        for arg in args {
            let _ = write!(line, " {}", facts::word_of_bytes(arg));
        }
        self.helper.send(&line)?;
        self.facts = self.helper.hear()?;
        Ok(())
    }
}

/// Name of an animal, and why this host does not allow it.
pub type Refused = (&'static str, String);

/// The roles of the zoo binary besides those of exec'd animals.
const KEEPER: &str = "keeper:";
/// A keeper of a process with so many mappings.
const MANY: &str = "mappings=";
const FARM: &str = "farm:";
const CHURN: &str = "churn:";
const RACER: &str = "racer:";
/// The life of some of the churn's children.
const MAYFLY: &str = "mayfly";
/// A racer that has just executed the program.
const EXECUTOR: &str = "executor";

/// What the zoo binary does first: when it was started to play a role it plays that and never returns.
pub fn play_role_if_any() {
    let Some(role) = std::env::var_os(keeper::ROLE) else {
        return;
    };
    let role = role.to_string_lossy();
    if role == MAYFLY {
        sys::exit(0);
    }
    if role == EXECUTOR {
        racer::exec_in_a_thread();
    }
    // A panic must not unwind out of a forked child into what its parent is still doing.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("zoo: {panic}");
        std::process::abort();
    }));
    let is_helper = [KEEPER, FARM, CHURN, RACER]
        .iter()
        .any(|helper| role.starts_with(helper));
    if is_helper {
        // Keys typed at the test's terminal are not meant for the animals. And a session, unlike a process group, is
        // not sent SIGHUP when the test dies while one of its processes is stopped.
        let _ = sys::setsid();
    }
    if let Some(count) = role.strip_prefix(KEEPER).and_then(|name| name.strip_prefix(MANY)) {
        keeper::keep(|_| species::mappings::many(count.parse().map_err(io::Error::other)?))
    } else if let Some(name) = role.strip_prefix(KEEPER) {
        keeper::keep(|keeper| match species::find(name) {
            Some(species) => (species.birth)(keeper),
            None => Err(io::Error::other("the zoo binary doesn't know it: is it out of date?")),
        })
    } else if let Some(size) = role.strip_prefix(FARM) {
        farm::run(size)
    } else if let Some(rate) = role.strip_prefix(CHURN) {
        churn::run(rate)
    } else if let Some(name) = role.strip_prefix(RACER) {
        racer::run(name)
    } else {
        keeper::play(&role)
    }
}
