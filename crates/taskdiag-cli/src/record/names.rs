//! Names that a recording has of what tasks have numbers of: those of the moment, on this machine.

use std::collections::HashSet;

use taskdiag::{Absent, Field, Fields, Handle, Query, Snapshot, Task};
use taskdiag_history::figures::{self, Figure, Figures, Part};

/// The names that are known so far.
#[derive(Debug, Default)]
pub struct Names {
    figures: Figures,
    version: u64,
    users: HashSet<u32>,
    groups: HashSet<u32>,
    terminals: HashSet<u32>,
    cgroups: HashSet<Vec<u8>>,
}

/// More names than this are forgotten and looked up again.
const MOST: usize = 1 << 16;

impl Names {
    /// Looks up what is new in a snapshot. A name that may be found out later is tried again.
    pub fn learn(&mut self, snapshot: &Snapshot, handle: &mut Handle) {
        if self.figures.len() > MOST {
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
        // All other answers are of the cgroup, and not of this moment. Where version 1 hierarchies are in
        // use, it is said of most cgroups that nobody knows whether they are containers.
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

/// The fields that names are found by.
pub const NEEDED: [Field; 4] = [Field::Euid, Field::Egid, Field::TtyNr, Field::Cgroup];

/// The names that are looked up.
const NAMES: [Field; 6] = [
    Field::User,
    Field::Group,
    Field::Tty,
    Field::ContainerId,
    Field::ContainerName,
    Field::ContainerRuntime,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what was found out is not asked again: not of any process, whatever hierarchies of
    /// cgroups the machine has. Only terminals of others may be.
    #[test]
    fn names_are_asked_once() {
        let mut handle = Handle::new();
        let query = Query::processes().fields(NEEDED.into_iter().collect::<Fields>());
        let snapshot = handle.query(&query).expect("an answer");
        let mut names = Names::default();
        names.learn(&snapshot, &mut handle);
        let (version, again) = (names.version, handle.query(&query).expect("an answer"));
        let known = |task: &Task<'_>| names.knows(task) || task.tty_nr().is_ok_and(|id| id != 0);
        // Others may begin meanwhile, but not all.
        let unknown = again.tasks().filter(|task| !known(task)).count();
        assert!(
            version > 0 && unknown * 2 < again.tasks().count(),
            "{unknown} are unknown"
        );
    }
}
