//! Facts about the host that cells need: clocks, memory, processors. They are read once. Also the
//! modifiers.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use rustix::param::page_size;
use rustix::time::ClockId;
use taskdiag::Identity;
use taskdiag_core::identity::TICK_NS;
use taskdiag_sys::host::{now_ns, proc_file};

use super::sessions::Sessions;
use crate::history::{self, Life, MachineState};
use crate::host::MemInfo;
use crate::output::names::Names;
use crate::output::people::Clock;
use crate::output::text::locale_is_utf8;

/// The options under OUTPUT MODIFIERS of ps(1) that change cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modifiers {
    /// `S`: times and page faults include those of children that were waited for.
    pub cumulative: bool,
    /// `e`: the environment follows the command line or the name.
    pub environment: bool,
    /// `n`: users and groups are numbers.
    pub numeric: bool,
    /// `--names`: users and groups that would be numbers are names.
    pub named: bool,
    /// `c`: the name replaces the command line.
    pub true_name: bool,
}

/// What cells need in addition to the values of their task.
#[derive(Debug)]
pub struct Host {
    pub modifiers: Modifiers,
    /// Names of users and groups.
    pub names: Names,
    /// Sessions and machines of systemd.
    pub sessions: Sessions,
    clock: Option<Clock>,
    /// Whether the locale is UTF-8.
    pub is_utf8: bool,
    /// Whether all bits of sets of signals are shown.
    pub has_wide_sets: bool,
    /// Time since boot (`CLOCK_BOOTTIME`) after all values were read, in whole clock ticks as in
    /// `/proc/uptime`.
    pub now_ns: u64,
    /// A clock tick of `/proc` in nanoseconds.
    pub tick_ns: u64,
    /// The size of a page.
    pub page_bytes: u64,
    /// `MemTotal` of `/proc/meminfo` in KiB. 0 if it is unknown.
    pub memory_kib: u64,
    /// The selected recording.
    past: Option<Arc<MachineState>>,
    nodes: Option<HashMap<u64, i64>>,
}

impl Host {
    /// The current host, or the host at the moment of a recording.
    pub fn new(modifiers: Modifiers) -> Host {
        let moment = history::shown();
        let (now_ns, memory_kib) = match &moment {
            Some(moment) => (moment.time.boot_ns, moment.memory_bytes() / 1024),
            None => (
                now_ns(ClockId::Boottime),
                memory_kib(&MemInfo::read().unwrap_or_default()),
            ),
        };
        Host {
            modifiers,
            names: Names::default(),
            sessions: Sessions::default(),
            clock: None,
            is_utf8: locale_is_utf8(),
            has_wide_sets: true,
            now_ns: now_ns - now_ns % TICK_NS,
            tick_ns: TICK_NS,
            page_bytes: page_size() as u64,
            memory_kib,
            past: moment,
            nodes: None,
        }
    }

    /// What a process did in the selected time of a recording, if there is one.
    pub fn life(&self, process: impl FnOnce() -> Result<Identity, &'static str>) -> Result<Option<Life>, &'static str> {
        match self.past.as_ref().filter(|moment| moment.span.is_some()) {
            Some(moment) => Ok(moment.life(process()?)),
            None => Ok(None),
        }
    }

    /// Converts times since boot to dates. ps adds the second of the boot and the seconds since,
    /// both rounded down. The clock is made on first use, because finding the time zone takes time.
    pub fn clock(&mut self) -> &mut Clock {
        self.clock.get_or_insert_with(|| Clock::new().in_whole_seconds())
    }

    /// The memory node of a processor; -1 if the kernel has none.
    pub fn node_of(&mut self, processor: u64) -> i64 {
        let nodes = self.nodes.get_or_insert_with(nodes);
        nodes.get(&processor).copied().unwrap_or(-1)
    }
}

/// The width of columns of process ids: the digits of `kernel.pid_max`, at least five.
pub fn pid_digits() -> usize {
    let most = fs::read_to_string(proc_file("sys/kernel/pid_max")).unwrap_or_default();
    most.trim().len().max(5)
}

/// `MemTotal` of `/proc/meminfo`.
fn memory_kib(info: &MemInfo) -> u64 {
    info.bytes("MemTotal").unwrap_or(0) / 1024
}

/// The node of each processor, from `/sys/devices/system/node`.
fn nodes() -> HashMap<u64, i64> {
    let mut nodes = HashMap::new();
    for entry in fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix("node")?.parse::<i64>().ok());
        let Some(node) = number else { continue };
        let list = fs::read_to_string(entry.path().join("cpulist")).unwrap_or_default();
        nodes.extend(processors(&list).map(|processor| (processor, node)));
    }
    nodes
}

/// The members of a list such as `0-3,7`.
fn processors(list: &str) -> impl Iterator<Item = u64> + '_ {
    /// More processors than any kernel supports.
    const MAX_PROCESSORS: u64 = 1 << 16;
    list.trim().split(',').flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse::<u64>(), last.parse::<u64>()) {
            (Ok(first), Ok(last)) => first..last.min(MAX_PROCESSORS) + 1,
            _ => 0..0,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the total is found among other lines, and that a missing total is not used as a
    /// divisor.
    #[test]
    fn memory_is_in_kib() {
        let kib = |text: &str| memory_kib(&MemInfo::parse(text.as_bytes()));
        assert_eq!(kib("MemFree: 1 kB\nMemTotal:       24684092 kB\n"), 24_684_092);
        assert_eq!(kib("MemTotal: many\n"), 0);
        assert_eq!(kib(""), 0);
    }

    /// Check lists of processors, including invalid ones.
    #[test]
    fn lists_of_processors_have_ranges() {
        assert_eq!(processors("0-2,7\n").collect::<Vec<_>>(), [0, 1, 2, 7]);
        assert_eq!(processors("3").collect::<Vec<_>>(), [3]);
        assert_eq!(processors("").count(), 0);
        assert_eq!(processors("5-1,x").count(), 0);
        assert!(processors("0-18446744073709551615").count() < 100_000);
    }
}
