//! Names for the numbers in a recording's tasks, as this machine knew them at that time.

use std::collections::HashSet;

use taskdiag::{Absent, Field, Fields, Handle, Query, Snapshot, Task};
use taskdiag_history::figures::{self, Figure, Figures, Part};

use crate::output::relation::list_of;

/// The names found so far.
#[derive(Debug, Default)]
pub struct Names {
    figures: Figures,
    version: u64,
    users: HashSet<u32>,
    groups: HashSet<u32>,
    terminals: HashSet<u32>,
    cgroups: HashSet<Vec<u8>>,
}

/// Above this number, all names are forgotten and looked up again.
const MAX_NAMES: usize = 1 << 16;

impl Names {
    /// Looks up what is new in a snapshot. Retries names that may become available later.
    pub fn learn(&mut self, snapshot: &Snapshot, handle: &mut Handle) {
        if self.figures.len() > MAX_NAMES {
            *self = Names {
                version: self.version + 1,
                ..Names::default()
            };
        }
        let new: Vec<u32> = snapshot
            .tasks()
            .filter(|task| !self.knows(task))
            .flat_map(|task| task.pid())
            .collect();
        if new.is_empty() {
            return;
        }
        let fields: Fields = NEEDED.into_iter().chain(NAMES).collect();
        let Ok(named) = handle.query(&Query::these(new).fields(fields)) else {
            return;
        };
        for task in named.tasks() {
            self.add(&task);
        }
    }

    /// All names.
    pub fn part(&self) -> Part<'_> {
        Part {
            figures: &self.figures,
            version: self.version,
        }
    }

    /// Whether all names of a task are known.
    fn knows(&self, task: &Task<'_>) -> bool {
        task.euid().map_or(true, |id| self.users.contains(&id))
            && task.egid().map_or(true, |id| self.groups.contains(&id))
            && task.tty_nr().map_or(true, |id| id == 0 || self.terminals.contains(&id))
            && task.cgroup().map_or(true, |path| self.cgroups.contains(path))
    }

    fn add(&mut self, task: &Task<'_>) {
        if let (Ok(id), Ok(name)) = (task.euid(), task.user()) {
            self.users.insert(id);
            self.set("user", id.to_string().as_bytes(), name);
        }
        if let (Ok(id), Ok(name)) = (task.egid(), task.group()) {
            self.groups.insert(id);
            self.set("group", id.to_string().as_bytes(), name);
        }
        if let (Ok(id), Ok(name)) = (task.tty_nr(), task.tty()) {
            self.terminals.insert(id);
            self.set("terminal", id.to_string().as_bytes(), name);
        }
        let (Ok(path), id) = (task.cgroup(), task.container_id()) else {
            return;
        };
        let names = [
            ("container_name", task.container_name()),
            ("container_runtime", task.container_runtime()),
        ];
        // All other answers are final for the cgroup. With version 1 hierarchies in use, the answer
        // for most cgroups is that nobody knows whether they are containers.
        let is_final = |answer: &Result<&[u8], Absent>| *answer != Err(Absent::NoAnswer);
        if is_final(&id) && names.iter().all(|(_, name)| is_final(name)) {
            self.cgroups.insert(path.to_vec());
        }
        for (object, name) in names {
            if let (Ok(id @ [_, ..]), Ok(name)) = (id, name) {
                self.set(object, id, name);
            }
        }
    }

    fn set(&mut self, object: &str, key: &[u8], name: &[u8]) {
        self.version += 1;
        figures::set(&mut self.figures, object.as_bytes(), key, Figure::Text(name.into()));
    }
}

/// The fields that identify names.
pub const NEEDED: [Field; 4] = [Field::Euid, Field::Egid, Field::TtyNr, Field::Cgroup];

/// The names that are looked up.
const NAMES: [Field; 6] = list_of! { Field: User, Group, Tty, ContainerId, ContainerName, ContainerRuntime };

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names are looked up once, not for every process, whatever cgroup hierarchies the
    /// machine has. Only the terminals of new tasks may be looked up again.
    #[test]
    fn names_are_asked_once() {
        let mut handle = Handle::new();
        let query = Query::processes().fields(NEEDED.into_iter().collect::<Fields>());
        let snapshot = handle.query(&query).expect("an answer");
        let mut names = Names::default();
        names.learn(&snapshot, &mut handle);
        let (version, again) = (names.version, handle.query(&query).expect("an answer"));
        let known = |task: &Task<'_>| names.knows(task) || task.tty_nr().is_ok_and(|id| id != 0);
        // New processes may start meanwhile, but not all are new.
        let unknown = again.tasks().filter(|task| !known(task)).count();
        assert!(
            version > 0 && unknown * 2 < again.tasks().count(),
            "{unknown} are unknown"
        );
    }
}
