//! Rows that stand for many processes: those of a unit, a container, a user or a program, or of
//! several of these together.

use std::collections::HashMap;

use taskdiag::{Field, Fields, Task};

use super::column::SortKey;
use crate::choice::Key;
use crate::grouping::{self, Grouping, Name, CONTAINER, PROGRAM, UNIT, USER};
use crate::output::names::Names;
use crate::output::text::written;
use crate::selection::all_of;
use crate::watch::{Rate, Rates};

/// What sums are by.
pub type By = &'static [&'static Grouping];

/// The groupings that a key cycles through.
pub static CYCLE: [By; 4] = [&[&UNIT], &[&CONTAINER], &[&USER], &[&PROGRAM]];

/// The fields that determine the group of a process.
pub fn fields(by: By) -> Fields {
    let kernel = if by.contains(&&PROGRAM) {
        Field::KernelThread.into()
    } else {
        Fields::NONE
    };
    grouping::fields(by) | kernel
}

fn name_of(by: &Grouping, task: &Task<'_>) -> Name {
    if by == &PROGRAM && task.kernel_thread() == Ok(true) {
        return Name::Text(KERNEL.to_vec());
    }
    by.name_of(task)
}

/// A filter that selects the processes of a group. `None` if no expression can.
pub fn expression(by: By, names: &[Name]) -> Option<String> {
    let each = by.iter().zip(names).map(|(by, name)| expression_of(by, name));
    all_of(&each.collect::<Option<Vec<String>>>()?)
}

fn expression_of(by: &Grouping, name: &Name) -> Option<String> {
    let bytes = match name {
        Name::User(uid) => return Some(format!("euid == {uid}")),
        Name::Text(bytes) => bytes,
        _ => return None,
    };
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
fn drawn(by: &Grouping, name: &Name, names: &mut Names) -> String {
    let is_long_id = |id: &[u8]| by == &CONTAINER && id.len() == 64 && id.iter().all(u8::is_ascii_hexdigit);
    match name {
        Name::None(reason) => format!("({reason})"),
        Name::Text(id) if is_long_id(id) => String::from_utf8_lossy(&id[..12]).into_owned(),
        name => written(|out| name.write(out, names)),
    }
}

/// Kernel threads are one program.
const KERNEL: &[u8] = b"[kernel threads]";

pub fn summed() -> Fields {
    Field::RssBytes | Field::UtimeNs | Field::StimeNs
}

/// The columns of sums, with their sort keys; the trend has none. Other rates are columns if they are
/// asked for.
pub const COLUMNS: [(&str, Option<SortKey>); 6] = [
    ("PROCESSES", Some(SortKey::Field(Field::ThreadsCount))),
    ("%CPU", Some(SortKey::Rate(Rate::Cpu))),
    ("TREND", None),
    ("RSS", Some(SortKey::Field(Field::RssBytes))),
    ("PSS", Some(SortKey::Field(Field::PssBytes))),
    ("TIME", Some(SortKey::Time)),
];

/// Processes that share a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// What they share, a name for each grouping.
    pub names: Vec<Name>,
    /// The names as they are drawn.
    pub drawn: Vec<String>,
    /// How many there are.
    pub processes: u64,
    /// What they do, each rate at its index. `None` if none of them has it: it may not be asked for.
    pub rates: [Option<f64>; Rate::ALL.len()],
    /// Their resident set sizes added up. A shared page counts once for each process.
    pub rss_bytes: u64,
    /// Their proportional set sizes added up, and the number of processes included, if asked for.
    pub pss_bytes: Option<(u64, u64)>,
    /// Their time on processors.
    pub time_ns: u64,
}

/// Adds up the tasks of an answer. The groups are in the order of their names.
pub fn groups<'a>(by: By, tasks: impl Iterator<Item = (Task<'a>, &'a Rates)>, users: &mut Names) -> Vec<Group> {
    let mut groups: HashMap<Vec<Name>, Group> = HashMap::new();
    for (task, rates) in tasks {
        let names = by.iter().map(|by| name_of(by, &task)).collect();
        groups.entry(names).or_default().add(&task, rates);
    }
    let mut groups: Vec<Group> = groups
        .into_iter()
        .map(|(names, group)| Group {
            drawn: by.iter().zip(&names).map(|(by, name)| drawn(by, name, users)).collect(),
            names,
            ..group
        })
        .collect();
    groups.sort_by(|a, b| a.names.cmp(&b.names));
    groups
}

impl Group {
    /// What the row is sorted by. Rows without it are in the order of their names.
    pub fn key(&self, key: SortKey) -> Option<Key<'static>> {
        let number = match key {
            SortKey::Rate(rate) => return self.rates[rate as usize].map(Key::Float),
            SortKey::Time => self.time_ns,
            SortKey::Field(Field::ThreadsCount) => self.processes,
            SortKey::Field(Field::RssBytes) => self.rss_bytes,
            SortKey::Field(Field::PssBytes) => self.pss_bytes?.0,
            SortKey::Field(_) => return None,
        };
        Some(Key::Number(number.into()))
    }

    fn add(&mut self, task: &Task<'_>, rates: &Rates) {
        self.processes += 1;
        for (sum, rate) in self.rates.iter_mut().zip(Rate::ALL) {
            if let Some(rate) = rates.get(rate) {
                *sum = Some(sum.unwrap_or(0.0) + rate);
            }
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

    use super::*;
    use crate::watch::{LastSamples, SampleTime};

    /// Check that each process is in exactly one group, for every kind of sums.
    #[test]
    fn groups_have_all_processes() {
        for (_, by, _) in grouping::OF_PROCESSES {
            let by: By = vec![by, &USER].leak();
            let query = Query::processes().fields(fields(by) | summed() | Field::StartNs);
            let (snapshot, moment) = SampleTime::of(|| Handle::new().query(&query).expect("an answer"));
            let rates = LastSamples::default().add(&snapshot, moment);
            let groups = groups(by, snapshot.tasks().zip(&rates), &mut Names::default());
            let processes: u64 = groups.iter().map(|group| group.processes).sum();
            assert_eq!(processes, snapshot.len() as u64, "{by:?}");
            assert!(groups.iter().any(|group| group.rss_bytes > 0), "{by:?}");
        }
    }

    /// Check that only ids that differ early are drawn in part.
    #[test]
    fn long_ids_are_drawn_in_part() {
        let drawn = |by, id: &str| drawn(by, &Name::Text(id.into()), &mut Names::default());
        let long = "a".repeat(64);
        assert_eq!(drawn(&CONTAINER, &long), long[..12]);
        assert_eq!(drawn(&PROGRAM, &long), long);
        let task = "0123456789abcdef0123456789abcdef-1234567890";
        assert_eq!(drawn(&CONTAINER, task), task);
        assert_eq!(drawn(&CONTAINER, ""), "(none)");
    }

    /// Check that the expression of a group is a valid filter, and that there is none for names
    /// that would be misread in an expression.
    #[test]
    fn groups_have_filters() {
        for (_, by, _) in grouping::OF_PROCESSES.into_iter().filter(|(_, by, _)| *by != &USER) {
            let by: By = vec![by, &USER].leak();
            let known = |text: &str| expression(by, &[Name::Text(text.into()), Name::User(0)]);
            // No field has the name of a script.
            if by[0].name != "script" {
                let expression = known("ssh.service").expect("a plain name");
                Filter::parse_with_names(&expression, &|_, _: &[u8]| Some(0)).expect("a filter");
            }
            assert_eq!(known("it's"), None);
            assert_eq!(known("a*"), None);
            assert_eq!(expression(by, &[Name::None("denied")]), None);
        }
    }
}
