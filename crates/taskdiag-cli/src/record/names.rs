//! Names that a recording has of what tasks have numbers of: those of the moment, on this machine.

use std::collections::HashSet;

use taskdiag::{Field, Fields, Handle, Query, Snapshot, Task};
use taskdiag_core::field::Group;
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
    /// Looks up what is new in a snapshot. A name that can't be found out now is tried again.
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
        let derived = Fields::of_group(Group::Derived);
        let Ok(named) = handle.query(&Query::these(new).fields(derived)) else {
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
        if let (Ok(path), Ok(id)) = (task.cgroup(), task.container_id()) {
            self.cgroups.insert(path.to_vec());
            if !id.is_empty() {
                for (object, name) in [
                    ("container_name", task.container_name()),
                    ("container_runtime", task.container_runtime()),
                ] {
                    if let Ok(name) = name {
                        self.set(object, id, name);
                    }
                }
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
