//! The known facts about a process when its group is decided.

use std::collections::BTreeMap;

use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};
use taskdiag_core::text::process::hierarchies;

/// What regular expressions captured, by name.
pub type Captures = BTreeMap<String, String>;

/// The known facts about a process.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Its id.
    pub pid: u32,
    /// The name of the program.
    pub comm: &'a [u8],
    /// Its arguments, if known. A kernel thread has none.
    pub arguments: Option<&'a [&'a [u8]]>,
    /// The name of its effective user, if known.
    pub user: Option<&'a [u8]>,
    /// Its start time, in nanoseconds since boot.
    pub start_ns: i64,
    /// When the machine booted.
    pub boot: Timestamp,
    /// Its cgroups, in the form of `/proc/PID/cgroup`, if known.
    pub cgroups: Option<&'a [u8]>,
}

impl<'a> Facts<'a> {
    /// The path of its cgroup in each hierarchy, in the kernel's order.
    pub fn cgroup_paths(&self) -> Vec<&'a [u8]> {
        let lines = self.cgroups.unwrap_or_default();
        hierarchies(lines).map(|(_, path)| path).collect()
    }

    /// The first argument, or the name if there are no arguments.
    pub fn exe(&self) -> &'a [u8] {
        self.arguments.and_then(<[_]>::first).copied().unwrap_or(self.comm)
    }

    /// The start time, as Go formats it.
    pub fn start_time(&self) -> String {
        let ticks = self.start_ns.div_euclid(10_000_000);
        let start = self.boot + SignedDuration::from_millis(ticks * 10);
        let start = Offset::UTC.to_datetime(start);
        let seconds = start.strftime("%Y-%m-%d %H:%M:%S");
        match start.subsec_nanosecond() {
            0 => format!("{seconds} +0000 UTC"),
            nanoseconds => {
                let fraction = format!("{nanoseconds:09}");
                format!("{seconds}.{} +0000 UTC", fraction.trim_end_matches('0'))
            }
        }
    }
}
