//! The machine's state for the header, from the files of `/proc` that are not about one process.

use std::fs;
use std::io;
use std::path::Path;
use std::str::SplitAsciiWhitespace;

use taskdiag_core::text::cgroup::pressure;

use crate::limits::Limits;
use crate::proc;

/// How the processors spent their time, in clock ticks since boot (proc_stat(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// User mode.
    pub user: u64,
    /// User mode with a nice value above 0.
    pub nice: u64,
    /// Kernel mode.
    pub system: u64,
    /// Interrupts, and time that the hypervisor gave to other machines.
    pub other: u64,
    /// Idle, or waiting for I/O.
    pub idle: u64,
}

/// Shares of the time between two samples, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// User mode with a nice value above 0.
    pub nice: f64,
    /// User mode.
    pub user: f64,
    /// Kernel mode.
    pub system: f64,
    /// Interrupts and stolen time.
    pub other: f64,
}

impl Usage {
    /// All except idle time.
    pub fn busy(&self) -> f64 {
        self.nice + self.user + self.system + self.other
    }
}

impl Times {
    /// The kernel's names of the numbers in a line `cpu` of `/proc/stat`, in their order.
    pub const NAMES: [&str; 10] = [
        "user",
        "nice",
        "system",
        "idle",
        "iowait",
        "irq",
        "softirq",
        "steal",
        "guest",
        "guest_nice",
    ];

    /// The usage since `before`. A counter that went down, as idle time may, counts as unchanged.
    pub fn since(&self, before: &Times) -> Usage {
        let parts = [
            self.nice.saturating_sub(before.nice),
            self.user.saturating_sub(before.user),
            self.system.saturating_sub(before.system),
            self.other.saturating_sub(before.other),
            self.idle.saturating_sub(before.idle),
        ];
        let whole = parts.iter().sum::<u64>().max(1) as f64;
        let [nice, user, system, other, _] = parts.map(|part| part as f64 / whole);
        Usage {
            nice,
            user,
            system,
            other,
        }
    }

    /// The times from recorded values, which have the names of the kernel's documentation. `None`
    /// if one is missing that every kernel has.
    pub fn of(named: &[(&[u8], u64)]) -> Option<Times> {
        let find = |name: &str| named.iter().find(|(known, _)| *known == name.as_bytes());
        let number = |name: &str| find(name).map(|&(_, ticks)| ticks);
        let sum = |names: &[&str]| {
            names
                .iter()
                .filter_map(|name| number(name))
                .fold(0, u64::saturating_add)
        };
        Some(Times {
            user: number("user")?,
            nice: number("nice")?,
            system: number("system")?,
            other: sum(&["irq", "softirq", "steal"]),
            idle: number("idle")?.saturating_add(sum(&["iowait"])),
        })
    }

    fn parse(words: SplitAsciiWhitespace<'_>) -> Option<Times> {
        let number = |word: &str| word.parse().unwrap_or(0);
        let named = Times::NAMES.iter().zip(words);
        let named: Vec<_> = named.map(|(name, word)| (name.as_bytes(), number(word))).collect();
        Times::of(&named)
    }
}

/// The contents of `/proc/stat`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// All processors together.
    pub all: Times,
    /// Each processor that is online, with its number.
    pub each: Vec<(u32, Times)>,
    /// Forks since boot, including those of threads.
    pub forks: Option<u64>,
    /// When the machine booted, in seconds since 1970.
    pub boot_s: Option<u64>,
}

impl Stat {
    /// Reads `/proc/stat`. Values that can't be read are missing.
    pub fn read() -> Stat {
        text("stat").map_or_else(Stat::default, |text| Stat::parse(&text))
    }

    fn parse(text: &str) -> Stat {
        let mut stat = Stat::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("cpu") => stat.all = Times::parse(words).unwrap_or_default(),
                Some("processes") => stat.forks = words.next().and_then(|word| word.parse().ok()),
                Some("btime") => stat.boot_s = words.next().and_then(|word| word.parse().ok()),
                Some(word) => {
                    let number = word.strip_prefix("cpu").and_then(|number| number.parse().ok());
                    if let (Some(number), Some(times)) = (number, Times::parse(words)) {
                        stat.each.push((number, times));
                    }
                }
                None => {}
            }
        }
        stat
    }
}

/// The numbers of `/proc/meminfo` (proc_meminfo(5)) and [`MemInfo::HUGETLB_FREE`], in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemInfo(Vec<(String, u64)>);

impl MemInfo {
    /// The free pages of hugetlbfs, of all sizes. The file counts only those of one size.
    pub const HUGETLB_FREE: &str = "HugetlbFree";

    /// Reads them.
    pub fn read() -> io::Result<MemInfo> {
        let mut info = MemInfo::parse(&fs::read(proc::path("meminfo"))?);
        let free = hugetlb_free(Path::new("/sys/kernel/mm/hugepages"));
        info.0
            .extend(free.map(|bytes| (MemInfo::HUGETLB_FREE.to_owned(), bytes)));
        Ok(info)
    }

    /// Numbers that were recorded, in bytes.
    pub fn of(entries: Vec<(&[u8], u64)>) -> MemInfo {
        let named = |(name, bytes): (&[u8], u64)| (String::from_utf8_lossy(name).into_owned(), bytes);
        MemInfo(entries.into_iter().map(named).collect())
    }

    /// Parses the lines whose value is in KiB. Other lines are left out.
    pub fn parse(text: &[u8]) -> MemInfo {
        let text = String::from_utf8_lossy(text);
        let line = |line: &str| {
            let (name, value) = line.split_once(':')?;
            let kib: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
            Some((name.to_owned(), kib.checked_mul(1024)?))
        };
        MemInfo(text.lines().filter_map(line).collect())
    }

    /// All numbers, in the order of the file.
    pub fn entries(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, bytes)| (name.as_str(), *bytes))
    }

    /// A number by its name, such as `Cached`, in bytes.
    pub fn bytes(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, bytes)| *bytes)
    }
}

/// The sum over the directories of the page sizes, each named `hugepages-2048kB` or the like.
/// `None` if one can't be read: a part of the sum would be wrong.
fn hugetlb_free(sizes: &Path) -> Option<u64> {
    let free = |size: io::Result<fs::DirEntry>| {
        let size = size.ok()?;
        let name = size.file_name();
        let kib: u64 = name
            .to_str()?
            .strip_prefix("hugepages-")?
            .strip_suffix("kB")?
            .parse()
            .ok()?;
        let count = fs::read_to_string(size.path().join("free_hugepages")).ok()?;
        count
            .trim_end()
            .parse::<u64>()
            .ok()?
            .checked_mul(kib.checked_mul(1024)?)
    };
    fs::read_dir(sizes).ok()?.map(free).sum()
}

/// Memory from `/proc/meminfo`, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All memory that the kernel can use.
    pub total: u64,
    /// What new programs could not get without swapping, by the kernel's estimate: what free(1) of
    /// procps 4 calls used.
    pub used: u64,
    /// What they could get although it is not free: page cache and slab that can be reclaimed.
    pub cache: u64,
    /// Swap space.
    pub swap_total: u64,
    /// Swap space in use.
    pub swap_used: u64,
}

impl Memory {
    /// Computes it from the numbers; `None` if there is no `MemTotal`.
    pub fn new(info: &MemInfo) -> Option<Memory> {
        let total = info.bytes("MemTotal")?;
        let bytes = |name| info.bytes(name).unwrap_or(0);
        let free = bytes("MemFree");
        // In some containers it is that of the host.
        let available = info.bytes("MemAvailable").filter(|&available| available <= total);
        let available = available.unwrap_or(free);
        let swap_total = bytes("SwapTotal");
        Some(Memory {
            total,
            used: total.saturating_sub(available),
            cache: available.saturating_sub(free),
            swap_total,
            swap_used: swap_total.saturating_sub(bytes("SwapFree")),
        })
    }
}

/// The contents of `/proc/loadavg`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Averages over 1, 5 and 15 minutes, as the kernel writes them.
    pub averages: [String; 3],
    /// Runnable threads.
    pub runnable: u64,
    /// All threads; recordings do not have this number.
    pub threads: Option<u64>,
}

impl Load {
    fn parse(text: &str) -> Option<Load> {
        let mut words = text.split_ascii_whitespace();
        let mut average = || {
            words
                .next()
                .filter(|word| word.parse::<f64>().is_ok())
                .map(str::to_owned)
        };
        let averages = [average()?, average()?, average()?];
        let (runnable, threads) = words.next()?.split_once('/')?;
        Some(Load {
            averages,
            runnable: runnable.parse().ok()?,
            threads: Some(threads.parse().ok()?),
        })
    }
}

/// The resources of pressure stall information.
pub const PRESSURES: [&str; 3] = ["cpu", "memory", "io"];

/// The machine's state for the header, at one moment. Values that can't be read are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    /// Seconds since boot.
    pub uptime_s: Option<u64>,
    pub load: Option<Load>,
    /// Processors.
    pub stat: Stat,
    pub memory: Option<Memory>,
    /// For each of [`PRESSURES`], the percentage of the last ten seconds in which some task waited
    /// for the resource (Linux 4.20).
    pub pressure: [Option<f64>; 3],
    /// The limits of the cgroup of this program, if they were read.
    pub limits: Limits,
    /// What the disks read and wrote since boot, in bytes.
    pub disks: Option<[u64; 2]>,
    /// What the network interfaces received and sent since boot, in bytes; and their errors, dropped
    /// packets included.
    pub interfaces: Option<[u64; 3]>,
}

impl Host {
    pub fn read() -> Host {
        Host {
            uptime_s: text("uptime").and_then(|text| uptime(&text)),
            load: text("loadavg").and_then(|text| Load::parse(&text)),
            stat: Stat::read(),
            memory: MemInfo::read().ok().and_then(|info| Memory::new(&info)),
            limits: Limits::default(),
            pressure: PRESSURES
                .map(|name| Some(pressure(text(&format!("pressure/{name}"))?.as_bytes(), b"some")?.avg10)),
            disks: text("diskstats").and_then(|text| disks(&text, &|name| is_device("block", name))),
            interfaces: text("net/dev").and_then(|text| interfaces(&text, &|name| is_device("class/net", name))),
        }
    }
}

fn text(name: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(proc::path(name)).ok()?).into_owned())
}

fn uptime(text: &str) -> Option<u64> {
    text.split(['.', ' ']).next()?.parse().ok()
}

/// Whether something in a directory of sysfs stands for a device: what is built on others, such as a
/// partition, a volume or a bridge, would count twice.
fn is_device(class: &str, name: &str) -> bool {
    fs::symlink_metadata(format!("/sys/{class}/{name}/device")).is_ok()
}

/// Sums over the lines of a table, each with a name and numbers; `None` if there is none.
fn sum<'t, const N: usize>(
    lines: impl Iterator<Item = (&'t str, Vec<u64>)>,
    columns: [&[usize]; N],
) -> Option<[u64; N]> {
    let row = |(_, numbers): (&str, Vec<u64>)| {
        columns.map(|columns| columns.iter().filter_map(|&column| numbers.get(column)).sum::<u64>())
    };
    lines
        .map(row)
        .reduce(|sum, row| std::array::from_fn(|index| sum[index].wrapping_add(row[index])))
}

fn numbers(text: &str) -> Vec<u64> {
    text.split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// Reads `/proc/diskstats`, in which a sector has 512 bytes (Documentation/admin-guide/iostats.rst).
fn disks(text: &str, is_disk: &dyn Fn(&str) -> bool) -> Option<[u64; 2]> {
    let lines = text.lines().filter_map(|line| {
        let name = line.split_ascii_whitespace().nth(2)?;
        Some((name, numbers(line.split_once(name)?.1)))
    });
    let sectors = sum(lines.filter(|(name, _)| is_disk(name)), [&[2], &[6]])?;
    Some(sectors.map(|sectors| sectors.wrapping_mul(512)))
}

/// Reads `/proc/net/dev`. Where no interface is a device, as in a container, all but `lo` count.
fn interfaces(text: &str, is_device: &dyn Fn(&str) -> bool) -> Option<[u64; 3]> {
    let lines = text.lines().filter_map(|line| line.rsplit_once(": "));
    let mut lines: Vec<(&str, Vec<u64>)> = lines.map(|(name, rest)| (name.trim(), numbers(rest))).collect();
    lines.retain(|(name, _)| *name != "lo");
    if lines.iter().any(|(name, _)| is_device(name)) {
        lines.retain(|(name, _)| is_device(name));
    }
    sum(lines.into_iter(), [&[0], &[8], &[2, 3, 10, 11]])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only devices count, and everything but `lo` where there is none.
    #[test]
    fn devices_have_traffic() {
        let text = "   8       0 sda 5 0 10 1 6 0 20 1 0 0 0\n   8       1 sda1 5 0 9 1 6 0 9 1 0 0 0\n 253 0 dm-0 1 0 7 1 1 0 7\n";
        assert_eq!(disks(text, &|name| name == "sda"), Some([5120, 10240]));
        assert_eq!(disks(text, &|_| false), None);
        let text = "Inter-|   Receive\n face |bytes packets\n    lo: 9 9 9 9 0 0 0 0 9 9 9 9 0 0 0 0\n\
            eth0: 100 2 1 2 0 0 0 0 50 1 3 4 0 0 0 0\n  br0: 7 0 0 0 0 0 0 0 7 0 0 0 0 0 0 0\n";
        assert_eq!(interfaces(text, &|name| name == "eth0"), Some([100, 50, 10]));
        assert_eq!(interfaces(text, &|_| false), Some([107, 57, 10]));
    }

    /// Check the lines of /proc/stat with offline processors, and on kernels that write fewer
    /// numbers.
    #[test]
    fn processors_have_times() {
        let text =
            "cpu  10 1 5 100 4 1 2 3 9 0\ncpu0 10 1 5 100\ncpu3 1 0 0 0 0 0 0 7\nintr 1 2\nprocesses 77\nbtime 9\n";
        let stat = Stat::parse(text);
        let all = Times {
            user: 10,
            nice: 1,
            system: 5,
            other: 6,
            idle: 104,
        };
        assert_eq!((stat.all, stat.forks, stat.boot_s), (all, Some(77), Some(9)));
        assert_eq!(stat.each.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 3]);
        assert_eq!(stat.each[1].1.other, 7);
        assert_eq!(Stat::parse("cpu\ncpux 1 2 3 4\n\n"), Stat::default());
    }

    /// Check that a number is found only by its full name, and that a line without a number of KiB
    /// is left out.
    #[test]
    fn numbers_have_names() {
        let info = MemInfo::parse(
            b"SwapCached:  2 kB\nCached:         1590123 kB\nA: 1\nB: 99999999999999999999 kB\n\xff: 1 kB\n",
        );
        assert_eq!(info.bytes("Cached"), Some(1_590_123 * 1024));
        for name in ["Swap", "A", "B", "C"] {
            assert_eq!(info.bytes(name), None, "{name}");
        }
    }

    /// Check that free huge pages of all sizes are added up, and that the sum is unknown if one of
    /// them is.
    #[test]
    fn huge_pages_are_added_up() {
        let directory = taskdiag_testkit::temporary::Directory::new("huge-pages");
        let set = |size: &str, count: &str| {
            let size = directory.join(size);
            fs::create_dir_all(&size).expect("a directory");
            fs::write(size.join("free_hugepages"), count).expect("room");
        };
        assert_eq!(hugetlb_free(&directory), Some(0));
        set("hugepages-2048kB", "3\n");
        set("hugepages-1048576kB", "2\n");
        assert_eq!(hugetlb_free(&directory), Some((6 << 20) + (2 << 30)));
        set("hugepages-64kB", "x\n");
        assert_eq!(hugetlb_free(&directory), None);
        assert_eq!(hugetlb_free(&directory.join("none")), None);
    }

    /// Check that shares add up to one, that a counter that went down has not grown, and that
    /// without elapsed time there is no usage.
    #[test]
    fn usage_is_of_the_time_between() {
        let before = Times {
            user: 10,
            idle: 100,
            ..Times::default()
        };
        let now = Times {
            user: 30,
            system: 20,
            idle: 160,
            ..Times::default()
        };
        let usage = now.since(&before);
        assert_eq!((usage.user, usage.system, usage.busy()), (0.2, 0.2, 0.4));
        let fallen = Times { idle: 99, ..before };
        assert_eq!(fallen.since(&before), Usage::default());
    }

    /// Check the other files, and that malformed text gives no value.
    #[test]
    fn texts_are_parsed() {
        let load = Load::parse("0.50 0.40 0.30 2/253 4711\n").expect("a load");
        assert_eq!(load.averages, ["0.50", "0.40", "0.30"]);
        assert_eq!((load.runnable, load.threads), (2, Some(253)));
        assert_eq!(Load::parse("a b c 2/3 4"), None);
        assert_eq!(uptime("12345.67 8910.11\n"), Some(12345));
        let text = "some avg10=1.25 avg60=0.10 avg300=0.00 total=1\nfull avg10=9.00 avg60=0.00 avg300=0.00 total=1\n";
        let average = |text: &str| pressure(text.as_bytes(), b"some").map(|pressure| pressure.avg10);
        assert_eq!(average(text), Some(1.25));
        assert_eq!(average("full avg10=1"), None);
    }

    /// Check that slab that can be reclaimed is not in use, as in free(1), and that an estimate that
    /// can't be is not used.
    #[test]
    fn used_memory_is_what_is_not_available() {
        let memory = |available: &str| {
            let text = format!(
                "MemTotal: 1000 kB\nMemFree: 100 kB\n{available}Buffers: 50 kB\nCached: 200 kB\nSReclaimable: 450 kB\n"
            );
            let memory = Memory::new(&MemInfo::parse(text.as_bytes())).expect("a total");
            (memory.used / 1024, memory.cache / 1024)
        };
        assert_eq!(memory("MemAvailable: 700 kB\n"), (300, 600));
        assert_eq!(memory("MemAvailable: 60 kB\n"), (940, 0));
        assert_eq!(memory("MemAvailable: 9000 kB\n"), (900, 0));
        assert_eq!(memory(""), (900, 0));
    }

    /// Check that this machine has the values that every Linux has.
    #[test]
    fn this_machine_answers() {
        let host = Host::read();
        assert!(host.load.is_some() && host.uptime_s.is_some());
        assert!(!host.stat.each.is_empty() && host.stat.forks > Some(0));
        let memory = host.memory.expect("meminfo");
        assert!(memory.total > 0 && memory.used + memory.cache <= memory.total);
    }
}
