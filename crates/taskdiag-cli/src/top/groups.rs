//! Rows that stand for many processes: those of a unit, a container, a user or a program.

use std::collections::HashMap;

use taskdiag::{Field, Fields, Task};

use super::rates::Rates;
use crate::grouping::{self, Grouping, CONTAINER, PROGRAM, UNIT, USER};
use crate::output::names::Names;
use crate::output::relation::NONE;
use crate::watch::Rate;

/// The groupings that a key cycles through.
pub static CYCLE: [&Grouping; 4] = [&UNIT, &CONTAINER, &USER, &PROGRAM];

/// The fields that determine the group of a process.
pub fn fields(by: &'static Grouping) -> Fields {
    let kernel = if by == &PROGRAM {
        Field::KernelThread.into()
    } else {
        Fields::NONE
    };
    grouping::fields(&[by]) | kernel
}

/// The group of a process; empty for a process that belongs to none.
fn name_of(by: &'static Grouping, task: &Task<'_>, names: &mut Names) -> Name {
    if by == &PROGRAM && task.kernel_thread() == Ok(true) {
        return Name::Known(KERNEL.to_vec());
    }
    match by.name_of(task) {
        grouping::Name::User(uid) => Name::Known(names.user(uid).to_vec()),
        grouping::Name::Text(name) => Name::Known(name),
        grouping::Name::None(reason) => Name::Absent(reason),
        _ => Name::Absent(NONE),
    }
}

/// A filter that selects the processes of a group. `None` if no expression can.
pub fn expression(by: &'static Grouping, name: &Name) -> Option<String> {
    let Name::Known(bytes) = name else { return None };
    if by == &PROGRAM && bytes == KERNEL {
        return Some("kernel_thread".to_owned());
    }
    let text = std::str::from_utf8(bytes).ok()?;
    if text.contains(['\'', '\\', '*', '?', '[', '\n']) {
        return None;
    }
    Some(match by.name {
        "unit" if text.is_empty() => "unit == '' and user_unit == ''".to_owned(),
        "unit" => format!("unit == '{text}' or user_unit == '{text}'"),
        "user" => format!("euid == '{text}'"),
        "container" if text.is_empty() => "container_id == ''".to_owned(),
        "container" => format!("container_name == '{text}' or container_id == '{text}'"),
        "program" => format!("exe ~* '*/{text}' or exe ~* '*/{text} (deleted)' or comm == '{text}'"),
        "pod" => format!("pod_uid == '{text}'"),
        "cgroup" => format!("cgroup == '{text}'"),
        _ => return None,
    })
}

/// A name as it is drawn: of the long id of a container, what other commands show. Ids of other
/// forms, such as those of Amazon ECS, may begin with the same characters.
pub fn drawn<'a>(by: &'static Grouping, name: &'a [u8]) -> &'a [u8] {
    let is_long_id = by == &CONTAINER && name.len() == 64 && name.iter().all(u8::is_ascii_hexdigit);
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
pub fn groups<'a>(
    by: &'static Grouping,
    tasks: impl Iterator<Item = (Task<'a>, &'a Rates)>,
    names: &mut Names,
) -> Vec<Group> {
    let mut places: HashMap<Name, usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for (task, rates) in tasks {
        let name = name_of(by, &task, names);
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
        for (_, by, _) in grouping::OF_PROCESSES {
            let query = Query::processes().fields(fields(by) | summed() | Field::StartNs);
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
        assert_eq!(drawn(&CONTAINER, &long), [b'a'; 12]);
        assert_eq!(drawn(&PROGRAM, &long), long);
        let task = b"0123456789abcdef0123456789abcdef-1234567890";
        assert_eq!(drawn(&CONTAINER, task), task);
    }

    /// Check that the expression of a group is a valid filter, and that there is none for names
    /// that would be misread in an expression.
    #[test]
    fn groups_have_filters() {
        for (_, by, _) in grouping::OF_PROCESSES {
            let known = |text: &str| expression(by, &Name::Known(text.into()));
            // No field has the name of a script.
            for text in ["ssh.service", "root"].into_iter().filter(|_| by.name != "script") {
                let expression = known(text).expect("a plain name");
                let users = |_, _: &[u8]| Some(0);
                Filter::parse_with_names(&expression, &users).expect("a filter");
            }
            assert_eq!(known("it's"), None);
            assert_eq!(known("a*"), None);
            assert_eq!(expression(by, &Name::Absent("denied")), None);
        }
    }
}
