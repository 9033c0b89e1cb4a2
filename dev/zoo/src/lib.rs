//! Strange processes on demand, for the oracle tests and the benchmarks of taskdiag.
//!
//! A [`Zoo`] starts [`Animal`]s: processes with a name that looks like the middle of a stat line,
//! with a command line of 2 MiB, dead thread-group leaders, processes in other namespaces, and so
//! on. Each is ready when it is returned, comes with the facts that /proc must show about it
//! ([`Facts`]), does not change, and is removed with everything that belongs to it when its guard
//! is dropped. A [`Farm`] is many idle processes, a [`Churn`] forks without end, and [`Racers`] do
//! other things without end.
//!
//! Tests have many threads, in which forking is unsafe, so everything happens in helper processes:
//! the binary `zoo` of this package. It is found through the variable `TASKDIAG_ZOO`, or in the
//! directory of the running executable or the one above.

mod arg_area;
mod churn;
mod facts;
mod farm;
mod fuse;
mod helper;
mod keeper;
mod priority;
mod racer;
mod species;
mod sys;
mod titles;

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use churn::Churn;
pub use facts::Facts;
pub use farm::Farm;
pub use keeper::settle;
pub use priority::{run_first, run_normally, Turn, TEST_PART};
pub use racer::{Race, Racers};
pub use species::cgroup_mount;

use helper::Helper;

/// The tolerance that a test allows: a second, or on emulated processors the number of seconds in
/// `TASKDIAG_TEST_MARGIN`.
pub fn margin() -> Duration {
    let seconds = std::env::var("TASKDIAG_TEST_MARGIN").map(|text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds.unwrap_or(1))
}

/// Copies a program that is to be run, for tests with threads. The copy is not made in this
/// process: a process that another thread forks in between would hold the copy open for writing,
/// and such a file can't be executed (`ETXTBSY`).
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

/// Starts animals.
#[derive(Clone, Copy, Debug)]
pub struct Zoo(());

impl Zoo {
    /// Starts nothing. Fails if there is no zoo binary.
    pub fn new() -> io::Result<Zoo> {
        helper::zoo_binary().map(|_| Zoo(()))
    }

    /// All harmless animals: name, and what is special about them.
    pub fn list() -> impl Iterator<Item = (&'static str, &'static str)> {
        species::all().map(|species| (species.name, species.about))
    }

    /// Animals that make those who look at them wait: name, and how.
    pub fn holders() -> impl Iterator<Item = (&'static str, &'static str)> {
        species::holders().map(|species| (species.name, species.about))
    }

    /// Starts an animal. An error of kind [`io::ErrorKind::Unsupported`] means that this host does
    /// not allow it.
    pub fn start(&self, name: &str) -> io::Result<Animal> {
        self.start_as(name, None)
    }

    /// Starts an animal as this user, with the group of the same id.
    pub fn start_as(&self, name: &str, user: Option<u32>) -> io::Result<Animal> {
        let unknown = || io::Error::new(io::ErrorKind::InvalidInput, format!("no animal is called {name:?}"));
        let name = species::find(name).ok_or_else(unknown)?.name;
        let started = Helper::start_as(name, &Role::Keeper(name.to_owned()), &["animal", name], user)?;
        Ok(Animal::new(name, started))
    }

    /// Starts a process with `count` mappings, or slightly more. It is not one of the animals,
    /// because tens of thousands of mappings take a while.
    pub fn with_mappings(&self, count: usize) -> io::Result<Animal> {
        let args = ["mappings", &count.to_string()];
        let started = Helper::start(&format!("{count} mappings"), &Role::Mappings(count), &args)?;
        Ok(Animal::new("many mappings", started))
    }

    /// Starts every harmless animal, and returns those that this host refused. Any other failure is
    /// an error.
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
    /// Its name in the zoo, which is not the process's name.
    pub name: &'static str,
    /// The process id in the caller's namespace. Where two processes belong together, the name says
    /// which one it is.
    pub pid: i32,
    /// The facts about it.
    pub facts: Facts,
    helper: Helper,
}

impl Animal {
    fn new(name: &'static str, (helper, facts): (Helper, Facts)) -> Animal {
        Animal {
            name,
            pid: facts.pid,
            facts,
            helper,
        }
    }

    /// Makes `title-changer` rewrite its title in place, and updates the facts. Fewer than 100
    /// bytes fit into its first arguments. Longer titles, up to two pages, extend into the
    /// environment, as with setproctitle.
    pub fn set_title(&mut self, title: &[u8]) -> io::Result<()> {
        self.command("title", &[title])
    }

    /// Makes `title-changer` exec itself with these arguments (at least one), and updates the
    /// facts.
    pub fn exec_with(&mut self, args: &[&[u8]]) -> io::Result<()> {
        self.command("exec", args)
    }

    fn command(&mut self, verb: &str, args: &[&[u8]]) -> io::Result<()> {
        let line = serde_json::to_string(&(verb, args))?;
        self.helper.send(&line)?;
        self.facts = self.helper.hear()?;
        Ok(())
    }
}

/// The name of an animal, and why this host does not allow it.
pub type Refused = (&'static str, String);

/// What the zoo binary does in place of reading its arguments.
#[derive(Debug, Serialize, Deserialize)]
enum Role {
    /// The keeper of an animal.
    Keeper(String),
    /// The keeper of a process with this many mappings.
    Mappings(usize),
    /// A farm of this many processes, with this many threads each.
    Farm(usize, usize),
    /// So many processes a second.
    Churn(u32),
    Racers(Race),
    /// One of the churn's children.
    Mayfly,
    /// A racer that has just executed the program.
    Executor,
    /// An exec'd animal, and what it does: see [`keeper::play`].
    Animal(String),
}

/// The first thing that the zoo binary does: if it was started to play a role, it plays the role
/// and never returns.
pub fn play_role_if_any() {
    let Some(role) = std::env::var_os(keeper::ROLE) else {
        return;
    };
    let role: serde_json::Result<Role> = serde_json::from_slice(role.as_bytes());
    match role {
        Ok(Role::Mayfly) => sys::exit(0),
        Ok(Role::Executor) => racer::exec_in_a_thread(),
        _ => {}
    }
    // A panic must not unwind from a forked child into code of its parent.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("zoo: {panic}");
        std::process::abort();
    }));
    if !matches!(role, Ok(Role::Animal(_))) {
        // Keys typed at the test's terminal are not meant for the animals. Also, unlike a process
        // group, a session does not get SIGHUP when the test dies while one of its processes is
        // stopped.
        let _ = sys::setsid();
    }
    match role.expect("a role: is the zoo binary out of date?") {
        Role::Keeper(name) => keeper::keep(|keeper| match species::find(&name) {
            Some(species) => (species.birth)(keeper),
            None => Err(io::Error::other("the zoo binary doesn't know it: is it out of date?")),
        }),
        Role::Mappings(count) => keeper::keep(|_| species::mappings::many(count)),
        Role::Farm(processes, threads_each) => farm::run(processes, threads_each),
        Role::Churn(per_second) => churn::run(per_second),
        Role::Racers(race) => racer::run(race),
        Role::Animal(role) => keeper::play(&role),
        Role::Mayfly | Role::Executor => unreachable!("they have their own lives"),
    }
}
