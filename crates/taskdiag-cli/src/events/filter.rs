//! Which events are shown.

use std::collections::HashSet;

use rustix::io::Errno;
use rustix::process::{test_kill_process, Pid};
use taskdiag::{Event, EventKind};

use super::Args;
use crate::outcome::{say, Failure, Outcome};
use crate::selection;

/// Which events are shown.
#[derive(Debug)]
pub struct Filter {
    kinds: Vec<EventKind>,
    users: Vec<u32>,
    /// The processes to watch and their descendants, as far as they are alive.
    family: Option<HashSet<u32>>,
    /// Whether all processes to watch existed.
    pub outcome: Outcome,
    /// Events left out because their user is not known.
    pub undecided: u64,
}

impl Filter {
    /// The filter that the options describe.
    pub fn new(args: &Args) -> Result<Filter, Failure> {
        let mut filter = Filter {
            kinds: args.kinds.iter().map(|&kind| kind.into()).collect(),
            users: selection::users(&args.users)?,
            family: None,
            outcome: Outcome::Complete,
            undecided: 0,
        };
        if !args.pids.is_empty() {
            let mut family = HashSet::new();
            for &pid in &args.pids {
                if exists(pid) {
                    family.insert(pid);
                } else {
                    say(format_args!("pid {pid}: no such process"));
                    filter.outcome = Outcome::Partial;
                }
            }
            filter.family = Some(family);
        }
        Ok(filter)
    }

    /// The kinds to ask for. A family is known only by its forks and exits, so it takes all of
    /// them.
    pub fn kinds_to_watch(&self) -> Vec<EventKind> {
        if self.kinds.is_empty() || self.family.is_some() {
            EventKind::ALL.to_vec()
        } else {
            self.kinds.clone()
        }
    }

    /// Whether no process is left to be watched.
    pub fn has_nobody(&self) -> bool {
        self.family.as_ref().is_some_and(HashSet::is_empty)
    }

    /// Whether the event is shown. The family is kept up to date with what it says.
    pub fn admits(&mut self, event: &Event<'_>) -> bool {
        if !self.is_of_family(event) || !(self.kinds.is_empty() || self.kinds.contains(&event.kind())) {
            return false;
        }
        match event.euid() {
            _ if self.users.is_empty() => true,
            Ok(euid) => self.users.contains(&euid),
            Err(_) => {
                self.undecided += 1;
                false
            }
        }
    }

    fn is_of_family(&mut self, event: &Event<'_>) -> bool {
        let Some(family) = &mut self.family else { return true };
        let pid = event.pid();
        if event.kind() == EventKind::Fork && !event.is_thread() {
            let caller = event.caller_pid().and_then(Result::ok);
            let elders = [caller, event.ppid().ok()];
            if elders.into_iter().flatten().any(|elder| family.contains(&elder)) {
                family.insert(pid);
            }
        }
        if event.kind() == EventKind::Exit && !event.is_thread() {
            family.remove(&pid)
        } else {
            family.contains(&pid)
        }
    }
}

fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}
