//! The processes of one moment, and the machine's memory at that time.

use std::collections::BTreeMap;

use taskdiag::{Absent, Field, Fields, Snapshot, Task, Value};

use super::reading::used_ns;
use crate::grouping::{self, GroupingChoice, Name};
use crate::host::MemInfo;
use crate::mem::{Account, SystemTally, SYSTEM_FIELDS};
use crate::output::relation::{list_of, Absences};

taskdiag_core::named_enum! {
    /// How the memory of a process is measured.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Memory {
        /// Proportional set sizes, which add up.
        Pss => "pss",
        /// Resident set sizes, in which shared pages count for every process.
        #[default]
        Rss => "rss",
    }
    /// Its name on the page.
    pub fn name;
}

impl Memory {
    pub fn field(self) -> Field {
        match self {
            Memory::Pss => Field::PssBytes,
            Memory::Rss => Field::RssBytes,
        }
    }

    /// The memory of a process. If its proportional size is not known, this is the resident one, and
    /// the reason.
    pub fn of(self, task: &Task<'_>) -> Result<(u64, Option<Absent>), Absent> {
        match (self, task.pss_bytes()) {
            (Memory::Rss, _) => Ok((task.rss_bytes()?, None)),
            (Memory::Pss, Err(why)) if why != Absent::NoMemory => {
                task.rss_bytes().map(|bytes| (bytes, Some(why))).map_err(|_| why)
            }
            (Memory::Pss, bytes) => Ok((bytes?, None)),
        }
    }
}

/// Numbers of processes, by the reason why something is not known of them.
pub type Reasons = BTreeMap<Absent, u64>;

/// The groupings of processes.
pub const GROUPINGS: [GroupingChoice; 3] = {
    let [program, _, _, unit, container, ..] = grouping::OF_PROCESSES;
    [program, unit, container]
};

/// The name of a process's group in each of [`GROUPINGS`].
pub fn names<'a>(task: &Task<'a>) -> [Result<&'a [u8], &'static str>; 3] {
    let names = [grouping::program(task), grouping::unit(task), grouping::container(task)];
    names.map(|name| name.map_err(Absent::as_str))
}

/// The fields that determine the groups of processes.
pub fn naming() -> Fields {
    grouping::fields(&GROUPINGS.map(|(_, by, _)| by))
}

#[derive(Clone, Debug)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub comm: Vec<u8>,
    /// Its user, by name or number.
    pub user: String,
    /// Its groups, in the order of [`GROUPINGS`].
    pub groups: [Name; 3],
    /// Its memory.
    pub bytes: u64,
    /// Whether this is the resident size, in place of the proportional one.
    pub is_resident: bool,
    /// Its processor time since it began, if that is known.
    pub used_ns: Option<u64>,
}

/// The processes of one moment.
#[derive(Clone, Debug, Default)]
pub struct Present {
    /// The time, in nanoseconds since 1970.
    pub wall_ns: i64,
    /// How their memory is measured.
    pub memory: Memory,
    /// All processes whose memory could be read, those with the most memory first.
    pub processes: Vec<Process>,
    /// Those of which the resident size is shown, because the proportional one could not be read.
    pub resident: Reasons,
    /// Those whose memory could not be read.
    pub missing: Reasons,
    /// The machine's memory, by use; `None` if its numbers are unknown.
    pub account: Option<Account>,
}

/// The fields to ask for.
pub fn fields() -> Fields {
    let others = list_of! { Field: Pid, Comm, User, Euid, RssBytes, PssBytes, UtimeNs, StimeNs };
    naming() | others.into_iter().chain(SYSTEM_FIELDS).collect::<Fields>()
}

impl Present {
    /// Converts a snapshot of [`fields`]. Uses proportional set sizes unless no process has one.
    pub fn new(snapshot: &Snapshot, info: Option<&MemInfo>, wall_ns: i64) -> Present {
        let tasks: Vec<Task<'_>> = snapshot.tasks().collect();
        let has_pss = tasks.iter().any(|task| task.pss_bytes().is_ok());
        let memory = if has_pss { Memory::Pss } else { Memory::Rss };
        let mut present = Present {
            wall_ns,
            memory,
            ..Present::default()
        };
        let mut tally = SystemTally::default();
        let mut absences = Absences::default();
        for task in &tasks {
            tally.add(task, &mut absences);
            match memory.of(task) {
                Ok((bytes, why)) => {
                    present.processes.extend(process(task, bytes, why.is_some()));
                    why.into_iter()
                        .for_each(|why| *present.resident.entry(why).or_default() += 1);
                }
                Err(Absent::NoMemory) => {}
                Err(why) => *present.missing.entry(why).or_default() += 1,
            }
        }
        present
            .processes
            .sort_by_key(|process| (std::cmp::Reverse(process.bytes), process.pid));
        present.account = info.and_then(|info| tally.account(info));
        present
    }
}

fn process(task: &Task<'_>, bytes: u64, is_resident: bool) -> Option<Process> {
    let user = match (task.value(Field::User), task.euid()) {
        (Ok(Value::Text(name)), _) if !name.is_empty() => String::from_utf8_lossy(name).into_owned(),
        (_, Ok(uid)) => uid.to_string(),
        _ => "-".to_owned(),
    };
    Some(Process {
        pid: task.pid().ok()?,
        comm: task.comm().unwrap_or_default().to_vec(),
        user,
        groups: names(task).map(|name| name.map_or_else(Name::None, |text| Name::Text(text.to_vec()))),
        bytes,
        is_resident,
        used_ns: used_ns(task),
    })
}
