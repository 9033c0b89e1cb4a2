//! Attackers and bystanders: processes that burden the broker, and measurements of what that costs
//! others. In its turn (`run_first`) a test, its broker and bystanders run before all else, except
//! attackers: what they wait for is the attack.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use taskdiag_protocol::wire::{show, Strategy};
use taskdiag_testkit::child::{self, World, NOBODY};
use taskdiag_testkit::scaled;

use super::connect;

/// The users of attackers and bystanders.
pub const USER: u32 = 1000;
pub const OTHER: u32 = 1001;

/// The parts of a test for each user without rights: name and user.
pub const USERS: [(&str, u32); 3] = [("user", USER), ("other", OTHER), ("nobody", NOBODY)];

/// The bit of the group base.
pub const BASE: u64 = 1 << show::GROUPS_SHIFT;

/// How long a bystander's request about itself may take: 250 ms, and more where processors are
/// emulated.
pub fn max_wait() -> Duration {
    taskdiag_zoo::margin() / 4
}

/// How long bystanders ask beside an attack: four seconds, and at least as long as an attack needs to
/// have its effect.
pub fn attack_time() -> Duration {
    Duration::from_millis(scaled(4000).max(2000) as u64)
}

/// The world of a user without capabilities.
pub fn user(user: u32) -> World {
    World {
        user: Some(user),
        ..World::default()
    }
}

/// Whether this process was started to run the part `name` of a test.
pub fn is_part(name: &str) -> bool {
    child::part().as_deref() == Some(name)
}

/// Asks about itself for some time over one connection. Returns how long the slowest request took.
pub fn slowest_request(socket: &Path, lasts: Duration) -> Duration {
    let (until, mut slowest) = (Instant::now() + lasts, Duration::ZERO);
    let connection = connect(socket);
    while Instant::now() < until {
        let began = Instant::now();
        let tasks = connection.ask(BASE, Strategy::One, std::process::id()).expect("itself");
        assert_eq!(tasks.len(), 1);
        slowest = slowest.max(began.elapsed());
        std::thread::sleep(Duration::from_millis(2));
    }
    slowest
}

/// Asks about itself for some time, over one connection and over a new one for each request.
/// Returns how long the slowest request took, connecting included.
pub fn slowest_of_both(socket: &Path, lasts: Duration) -> Duration {
    let (until, mut slowest) = (Instant::now() + lasts, Duration::ZERO);
    std::thread::scope(|scope| {
        let kept = scope.spawn(|| slowest_request(socket, lasts));
        while Instant::now() < until {
            let began = Instant::now();
            let tasks = connect(socket).ask(BASE, Strategy::One, std::process::id());
            assert_eq!(tasks.map(|tasks| tasks.len()), Ok(1));
            slowest = slowest.max(began.elapsed());
            std::thread::sleep(Duration::from_millis(20));
        }
        slowest.max(kept.join().expect("a thread"))
    })
}

/// A process that runs a part of a test. It is killed when this is dropped.
pub struct Attacker(pub Child);

impl Attacker {
    /// Starts the part `name` of a test.
    pub fn start(test: &str, name: &str, world: World) -> Attacker {
        let mut command = child::command(test, name, world);
        taskdiag_zoo::run_normally(command.stdin(Stdio::null()));
        Attacker(command.spawn().expect("a process"))
    }

    /// Starts the part `name` of a test, and checks after `time` that it still runs.
    pub fn start_and_wait(test: &str, name: &str, world: World, time: Duration) -> Attacker {
        let mut attacker = Attacker::start(test, name, world);
        std::thread::sleep(time);
        attacker.check_runs();
        attacker
    }

    /// Checks that it still runs.
    pub fn check_runs(&mut self) {
        let ended = self.0.try_wait().expect("a child");
        assert!(ended.is_none(), "{ended:?}");
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
