//! Rows that stand for many processes: those of a unit, a container, a user or a program.

use std::collections::HashMap;

use clap::ValueEnum;
use taskdiag::{Absent, Field, Fields, Task};

use super::rates::Rates;
use crate::grouping::program;
use crate::output::names::Names;
use crate::watch::Rate;

taskdiag_core::named_enum! {
    /// The ways to group processes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
    pub enum By {
        /// The systemd unit
        Unit => "unit",
        /// The container
        Container => "container",
        /// The effective user
        User => "user",
        /// The file name of the executable
        Program => "program",
    }
    /// All of them, in the order in which a key cycles through them.
    pub const ALL;
    /// Its name.
    pub fn name;
}

impl By {
    /// The heading of the names.
    pub fn heading(self) -> &'static str {
        match self {
            By::Unit => "UNIT",
            By::Container => "CONTAINER",
            By::User => "USER",
            By::Program => "PROGRAM",
        }
    }

    /// The fields that determine the group of a process.
    pub fn fields(self) -> Fields {
        match self {
            By::Unit => Field::Unit.into(),
            By::Container => Field::ContainerName | Field::ContainerId,
            By::User => Field::Euid.into(),
            By::Program => Field::Exe | Field::Comm | Field::KernelThread,
        }
    }

    /// The group of a process; empty for a process that belongs to none.
    fn of(self, task: &Task<'_>, names: &mut Names) -> Result<Vec<u8>, Absent> {
        Ok(match self {
            By::Unit => task.unit()?.to_vec(),
            By::User => names.user(task.euid()?).to_vec(),
            By::Program if task.kernel_thread()? => KERNEL.to_vec(),
            By::Program => program(task)?.to_vec(),
            By::Container => match task.container_name() {
                Ok(name) if !name.is_empty() => name.to_vec(),
                _ => task.container_id()?.to_vec(),
            },
        })
    }

    /// A filter that selects the processes of a group. `None` if no expression can.
    pub fn expression(self, name: &Name) -> Option<String> {
        let Name::Known(bytes) = name else { return None };
        if self == By::Program && bytes == KERNEL {
            return Some("kernel_thread".to_owned());
        }
        let text = std::str::from_utf8(bytes).ok()?;
        if text.contains(['\'', '\\', '*', '?', '[', '\n']) {
            return None;
        }
        Some(match self {
            By::Unit => format!("unit == '{text}'"),
            By::User => format!("euid == '{text}'"),
            By::Container if text.is_empty() => "container_id == ''".to_owned(),
            By::Container => format!("container_name == '{text}' or container_id == '{text}'"),
            By::Program => format!("exe ~* '*/{text}' or exe ~* '*/{text} (deleted)' or comm == '{text}'"),
        })
    }
}

/// A name as it is drawn: of the long id of a container, what other commands show. Ids of other
/// forms, such as those of Amazon ECS, may begin with the same characters.
pub fn drawn(by: By, name: &[u8]) -> &[u8] {
    let is_long_id = by == By::Container && name.len() == 64 && name.iter().all(u8::is_ascii_hexdigit);
    if is_long_id {
        &name[..12]
    } else {
        name
    }
}

/// Kernel threads are one program.
const KERNEL: &[u8] = b"[kernel threads]";

/// The fields that are summed.
pub fn summed() -> Fields {
    Field::RssBytes | Field::UtimeNs | Field::StimeNs
}

/// The name of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// Any bytes.
    Known(Vec<u8>),
    /// The names of these processes are missing, for this reason.
    Absent(&'static str),
}

/// Processes that share a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Their name.
    pub name: Name,
    /// How many there are.
    pub processes: u64,
    /// The percentage of one processor that they use. `None` if none of them has a rate yet.
    pub cpu: Option<f64>,
    /// Their resident set sizes added up. A shared page counts once for each process.
    pub rss_bytes: u64,
    /// Their proportional set sizes added up, and the number of processes included, if asked for.
    pub pss_bytes: Option<(u64, u64)>,
    /// Their time on processors.
    pub time_ns: u64,
}

/// Adds up the tasks of an answer.
pub fn groups<'a>(by: By, tasks: impl Iterator<Item = (Task<'a>, &'a Rates)>, names: &mut Names) -> Vec<Group> {
    let mut places: HashMap<Name, usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for (task, rates) in tasks {
        let name = by
            .of(&task, names)
            .map_or_else(|reason| Name::Absent(reason.as_str()), Name::Known);
        let place = *places.entry(name).or_insert_with_key(|name| {
            groups.push(Group {
                name: name.clone(),
                processes: 0,
                cpu: None,
                rss_bytes: 0,
                pss_bytes: None,
                time_ns: 0,
            });
            groups.len() - 1
        });
        groups[place].add(&task, rates);
    }
    groups
}

impl Group {
    fn add(&mut self, task: &Task<'_>, rates: &Rates) {
        self.processes += 1;
        if let Some(percent) = rates.get(Rate::Cpu) {
            self.cpu = Some(self.cpu.unwrap_or(0.0) + percent);
        }
        self.rss_bytes = self.rss_bytes.saturating_add(task.rss_bytes().unwrap_or(0));
        if let Ok(bytes) = task.pss_bytes() {
            let (sum, count) = self.pss_bytes.unwrap_or((0, 0));
            self.pss_bytes = Some((sum.saturating_add(bytes), count + 1));
        }
        let times = [task.utime_ns(), task.stime_ns()];
        self.time_ns = times.into_iter().flatten().fold(self.time_ns, u64::saturating_add);
    }
}

#[cfg(test)]
mod tests {
    use taskdiag::{Filter, Handle, Query};

    use super::super::rates::LastSurvey;
    use super::*;
    use crate::watch::SampleTime;

    /// Check that each process is in exactly one group, for every kind of sums.
    #[test]
    fn groups_have_all_processes() {
        for by in By::ALL {
            let query = Query::processes().fields(by.fields() | summed() | Field::StartNs);
            let (snapshot, moment) = SampleTime::of(|| Handle::new().query(&query).expect("an answer"));
            let rates = LastSurvey::default().add(&snapshot, moment);
            let groups = groups(by, snapshot.tasks().zip(&rates), &mut Names::default());
            let processes: u64 = groups.iter().map(|group| group.processes).sum();
            assert_eq!(processes, snapshot.len() as u64, "{by:?}");
            assert!(groups.iter().any(|group| group.rss_bytes > 0), "{by:?}");
        }
    }

    /// Check that only ids that differ early are drawn in part.
    #[test]
    fn long_ids_are_drawn_in_part() {
        let long = [b'a'; 64];
        assert_eq!(drawn(By::Container, &long), [b'a'; 12]);
        assert_eq!(drawn(By::Program, &long), long);
        let task = b"0123456789abcdef0123456789abcdef-1234567890";
        assert_eq!(drawn(By::Container, task), task);
    }

    /// Check that the expression of a group is a valid filter, and that there is none for names
    /// that would be misread in an expression.
    #[test]
    fn groups_have_filters() {
        for by in By::ALL {
            let known = |text: &str| by.expression(&Name::Known(text.into()));
            for text in ["ssh.service", "root"] {
                let expression = known(text).expect("a plain name");
                let users = |_, _: &[u8]| Some(0);
                Filter::parse_with_names(&expression, &users).expect("a filter");
            }
            assert_eq!(known("it's"), None);
            assert_eq!(known("a*"), None);
            assert_eq!(by.expression(&Name::Absent("denied")), None);
        }
    }
}
