//! The kernel's own text about a task, read by a second, simple parser that shares no code with the
//! library.

mod derived;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use taskdiag::{Absent, Field, Value};

use crate::cgroup_mount;

use derived::seconds;
pub use derived::{possible_cpu_percent, since_boot_ns};

/// Nanoseconds in one tick of `/proc`, the same on all supported hosts.
pub const TICK_NS: u64 = 10_000_000;

const KERNEL_THREAD: i128 = 0x0020_0000;

/// A value that owns its parts. Times that the text has in ticks are in ticks.
#[derive(Clone, Debug, PartialEq)]
pub enum Plain {
    Number(i128),
    Flag(bool),
    Letter(char),
    Bytes(Vec<u8>),
    List(Vec<u64>),
    /// Name, soft and hard limit, as words.
    Limits(Vec<[String; 3]>),
}

/// A plain value, or why there is none.
pub type Said = Result<Plain, Absent>;

/// Identifies a task: either a process (with the sums over its threads) or a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    pub pid: u32,
    pub tid: u32,
    pub is_thread: bool,
}

impl Id {
    pub fn process(pid: u32) -> Id {
        Id {
            pid,
            tid: pid,
            is_thread: false,
        }
    }

    fn directory(self) -> PathBuf {
        if self.is_thread {
            PathBuf::from(format!("/proc/{}/task/{}", self.pid, self.tid))
        } else {
            PathBuf::from(format!("/proc/{}", self.pid))
        }
    }
}

/// The numbers that are names of files in `directory`; none if it is gone.
pub fn numbers(directory: &Path) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Every process.
pub fn processes() -> Vec<Id> {
    numbers(Path::new("/proc")).into_iter().map(Id::process).collect()
}

/// The threads of a process.
pub fn threads_of(pid: u32) -> Vec<Id> {
    let tids = numbers(&Path::new("/proc").join(pid.to_string()).join("task"));
    tids.into_iter()
        .map(|tid| Id {
            pid,
            tid,
            is_thread: true,
        })
        .collect()
}

const FILES: [&str; 15] = [
    "status",
    "stat",
    "schedstat",
    "cmdline",
    "oom_score_adj",
    "oom_score",
    "cgroup",
    "io",
    "limits",
    "environ",
    "loginuid",
    "sessionid",
    "personality",
    "wchan",
    "attr/current",
];

const PATHS: [&str; 3] = ["exe", "cwd", "root"];

const NAMESPACES: [&str; 9] = [
    "pid",
    "pid_for_children",
    "mnt",
    "net",
    "user",
    "uts",
    "ipc",
    "cgroup",
    "time",
];

/// The files of one task, or the errors of reading them.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    files: BTreeMap<&'static str, Result<Vec<u8>, Absent>>,
    links: BTreeMap<&'static str, Result<Vec<u8>, Absent>>,
    cgroup_id: Result<u64, Absent>,
    timer_slack: Result<Vec<u8>, Absent>,
    /// The number of names in `fd`.
    fd_count: Result<usize, Absent>,
    /// The text in the parentheses of `stat`, and the words after it.
    stat: Result<(Vec<u8>, Vec<String>), Absent>,
    /// The lines of `status`, by the text before the colon; without the name, which can be
    /// anything.
    status: Result<BTreeMap<String, String>, Absent>,
    /// A thread that has memory, if the first one of the process has ended.
    live: Option<Box<Text>>,
    side: Side,
    /// The time since boot, taken on the side of the text that is farther from the snapshot.
    read_ns: i128,
}

/// The side of a snapshot on which a text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Before,
    After,
}

impl Text {
    /// Reads what `/proc` shows of a task. `None` if it is gone. `status` shows whether the task
    /// ran in between, so it is read farthest from the snapshot.
    pub fn read(id: Id, side: Side) -> Option<Text> {
        let directory = id.directory();
        let began_ns = since_boot_ns();
        let mut files = BTreeMap::new();
        let mut read = |name: &'static str| files.insert(name, fs::read(directory.join(name)).map_err(absent));
        match side {
            Side::Before => FILES.iter().for_each(|name| drop(read(name))),
            Side::After => FILES.iter().rev().for_each(|name| drop(read(name))),
        }
        let link = |name: &&'static str| {
            let target = fs::read_link(directory.join("ns").join(name)).map_err(absent);
            (*name, target.map(|target| target.into_os_string().into_encoded_bytes()))
        };
        let mut links: BTreeMap<_, _> = NAMESPACES.iter().map(link).collect();
        for name in PATHS {
            let target = fs::read_link(directory.join(name)).map_err(absent);
            links.insert(name, target.map(|target| target.into_os_string().into_encoded_bytes()));
        }
        let stat = files["stat"].as_deref().map(split_stat).map_err(|&reason| reason);
        let status = files["status"].as_deref().map(split_status).map_err(|&reason| reason);
        if stat == Err(Absent::Gone) || status == Err(Absent::Gone) {
            return None;
        }
        let mut text = Text {
            files,
            links,
            cgroup_id: Err(Absent::Unsupported),
            // Only the directories of processes have it. Each thread has such a directory too,
            // which is not listed.
            timer_slack: fs::read(format!("/proc/{}/timerslack_ns", id.tid)).map_err(absent),
            fd_count: fd_count(&directory.join("fd")).map_err(absent),
            stat,
            status,
            live: None,
            side,
            read_ns: began_ns,
        };
        if !id.is_thread && text.is_zombie() && text.stat(20).is_ok_and(|threads| threads > 1) {
            let threads = threads_of(id.pid).into_iter().filter_map(|id| Text::read(id, side));
            let mut threads = threads.filter(|text| text.has_memory() == Ok(true));
            text.live = threads.next().map(Box::new);
        }
        text.cgroup_id = text.cgroup().and_then(cgroup_inode);
        if side == Side::After {
            text.read_ns = since_boot_ns();
        }
        Some(text)
    }

    fn file(&self, name: &str) -> Result<&[u8], Absent> {
        self.files[name].as_deref().map_err(|&reason| reason)
    }

    pub fn comm(&self) -> Result<&[u8], Absent> {
        self.stat
            .as_ref()
            .map(|(comm, _)| comm.as_slice())
            .map_err(|&reason| reason)
    }

    /// The word of `stat` with this number in proc(5).
    fn word(&self, number: usize) -> Result<&str, Absent> {
        let (_, words) = self.stat.as_ref().map_err(|&reason| reason)?;
        Ok(&words[number - 3])
    }

    pub fn stat(&self, number: usize) -> Result<i128, Absent> {
        Ok(self.word(number)?.parse().expect("a number in stat"))
    }

    pub fn start_ticks(&self) -> u64 {
        self.stat(22).expect("stat can be read") as u64
    }

    /// The text after `key` in `status`, if there is such a line.
    fn line(&self, key: &str) -> Result<Option<&str>, Absent> {
        let lines = self.status.as_ref().map_err(|&reason| reason)?;
        Ok(lines.get(key).map(String::as_str))
    }

    fn words(&self, key: &str) -> Result<Vec<&str>, Absent> {
        let line = self.line(key)?.unwrap_or_else(|| panic!("status has no line {key}"));
        Ok(line.split_ascii_whitespace().collect())
    }

    fn number(&self, key: &str, index: usize, radix: u32) -> Said {
        let number = u64::from_str_radix(self.words(key)?[index], radix);
        Ok(Plain::Number(number.expect("a number in status").into()))
    }

    fn ids(&self, key: &str) -> Said {
        let ids = self
            .words(key)?
            .iter()
            .map(|word| word.parse().expect("an id"))
            .collect();
        Ok(Plain::List(ids))
    }

    /// A line of `status` in kB, which tasks without memory do not have.
    fn memory(&self, key: &str) -> Said {
        let line = self.shared().line(key)?.ok_or(Absent::NoMemory)?;
        let number: i128 = line
            .strip_suffix(" kB")
            .expect("in kB")
            .parse()
            .expect("a number in status");
        Ok(Plain::Number(number * 1024))
    }

    /// An address. Tasks without memory have none. For readers who may not see it, the kernel
    /// prints 1 for the first two addresses and 0 for the others.
    fn address(&self, number: usize) -> Said {
        if !self.has_memory()? {
            return Err(Absent::NoMemory);
        }
        match (self.stat(26)?, self.stat(27)?) {
            (1, 1) => Err(Absent::Denied),
            _ => self.stat(number).map(Plain::Number),
        }
    }

    fn link(&self, name: &str) -> Result<Vec<u8>, Absent> {
        self.links[name].clone()
    }

    /// The number after a key in `io`.
    fn io(&self, key: &str) -> Said {
        let text = std::str::from_utf8(self.file("io")?).expect("io is ASCII");
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        let number = line.expect("a line of io").parse().expect("a number in io");
        Ok(Plain::Number(number))
    }

    fn limits(&self) -> Said {
        let text = std::str::from_utf8(self.file("limits")?).expect("limits is ASCII");
        let names = [
            ("Max cpu time", "cpu"),
            ("Max file size", "fsize"),
            ("Max data size", "data"),
            ("Max stack size", "stack"),
            ("Max core file size", "core"),
            ("Max resident set", "rss"),
            ("Max processes", "nproc"),
            ("Max open files", "nofile"),
            ("Max locked memory", "memlock"),
            ("Max address space", "as"),
            ("Max file locks", "locks"),
            ("Max pending signals", "sigpending"),
            ("Max msgqueue size", "msgqueue"),
            ("Max nice priority", "nice"),
            ("Max realtime priority", "rtprio"),
            ("Max realtime timeout", "rttime"),
        ];
        let limit = |(long, short): (&str, &str)| {
            let line = text.lines().find_map(|line| line.strip_prefix(long));
            let mut words = line.expect("a limit").split_ascii_whitespace();
            let mut word = || words.next().expect("a limit").to_owned();
            [short.to_owned(), word(), word()]
        };
        Ok(Plain::Limits(names.into_iter().map(limit).collect()))
    }

    /// The text of the task that has what the threads of the process share.
    fn shared(&self) -> &Text {
        self.live.as_deref().unwrap_or(self)
    }

    fn has_memory(&self) -> Result<bool, Absent> {
        Ok(self.line("VmSize")?.is_some())
    }

    fn schedstat(&self, index: usize) -> Said {
        let text = std::str::from_utf8(self.file("schedstat")?).expect("schedstat is ASCII");
        let word = text
            .split_ascii_whitespace()
            .nth(index)
            .expect("schedstat has three words");
        Ok(Plain::Number(word.parse().expect("a number in schedstat")))
    }

    fn whole(&self, name: &str) -> Said {
        let text = std::str::from_utf8(self.file(name)?).expect("ASCII");
        Ok(Plain::Number(text.trim().parse().expect("a number")))
    }

    /// The inode number in a link such as `pid:[4026531836]`.
    fn namespace(&self, name: &str) -> Said {
        let target = self.links[name].as_ref().map_err(|&reason| reason)?;
        let target = std::str::from_utf8(target).expect("ASCII");
        let (_, rest) = target.split_once(":[").expect("a namespace");
        Ok(Plain::Number(
            rest.strip_suffix(']')
                .expect("a namespace")
                .parse()
                .expect("an inode number"),
        ))
    }

    fn cgroup(&self) -> Result<&[u8], Absent> {
        let mut lines = self.file("cgroup")?.split(|&byte| byte == b'\n');
        lines
            .find_map(|line| line.strip_prefix(b"0::"))
            .ok_or(Absent::Unsupported)
    }

    pub fn is_kernel_thread(&self) -> bool {
        self.stat(9).is_ok_and(|flags| flags & KERNEL_THREAD != 0)
    }

    pub fn is_zombie(&self) -> bool {
        self.word(3) == Ok("Z")
    }

    /// Whether the task can't have done anything between `self` and `later`: it has one thread, and
    /// that thread did not run.
    pub fn is_quiet_until(&self, id: Id, later: &Text) -> bool {
        let rest = |text: &Text| {
            let keys = ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches", "State"];
            (
                keys.map(|key| text.words(key).map(|words| words.concat())),
                text.schedstat(0),
            )
        };
        let is_alone = id.is_thread || (self.stat(20) == Ok(1) && later.stat(20) == Ok(1));
        is_alone && self.word(3) != Ok("R") && rest(self) == rest(later)
    }

    /// The value of a field according to the text. There is no wildcard, so a field that is missing
    /// here does not compile.
    pub fn says(&self, id: Id, field: Field) -> Said {
        if let Some(live) = self.live.as_ref().filter(|_| is_shared(field)) {
            return live.says(id, field);
        }
        let number = |number: usize| self.stat(number).map(Plain::Number);
        match field {
            Field::Pid => Ok(Plain::Number(id.pid.into())),
            Field::Tid => Ok(Plain::Number(id.tid.into())),
            Field::Ppid => number(4),
            Field::TracerPid => self.number("TracerPid", 0, 10),
            Field::Pgid => number(5),
            Field::Sid => number(6),
            Field::State => Ok(Plain::Letter(self.word(3)?.chars().next().expect("a letter"))),
            Field::Comm => Ok(Plain::Bytes(self.comm()?.to_vec())),
            Field::StartNs => number(22),
            Field::ThreadsCount => number(20),
            Field::KernelThread => Ok(Plain::Flag(self.stat(9)? & KERNEL_THREAD != 0)),
            Field::Flags => Ok(Plain::Number(self.stat(9)?)),
            Field::ExitSignal => number(38),
            Field::TtyNr => Ok(Plain::Number((self.stat(7)? as i32 as u32).into())),
            Field::Tpgid => or_none(number(8), -1),
            Field::Uid => self.number("Uid", 0, 10),
            Field::Euid => self.number("Uid", 1, 10),
            Field::Suid => self.number("Uid", 2, 10),
            Field::Fsuid => self.number("Uid", 3, 10),
            Field::Gid => self.number("Gid", 0, 10),
            Field::Egid => self.number("Gid", 1, 10),
            Field::Sgid => self.number("Gid", 2, 10),
            Field::Fsgid => self.number("Gid", 3, 10),
            Field::CapInheritable => self.number("CapInh", 0, 16),
            Field::CapPermitted => self.number("CapPrm", 0, 16),
            Field::CapEffective => self.number("CapEff", 0, 16),
            Field::CapBounding => self.number("CapBnd", 0, 16),
            Field::CapAmbient => self.number("CapAmb", 0, 16),
            Field::NoNewPrivs => Ok(Plain::Flag(self.words("NoNewPrivs")? == ["1"])),
            Field::Seccomp => self.number("Seccomp", 0, 10),
            Field::SeccompFiltersCount => self.number("Seccomp_filters", 0, 10),
            Field::Groups => self.ids("Groups"),
            Field::UtimeNs => number(14),
            Field::StimeNs => number(15),
            Field::CutimeNs => number(16),
            Field::CstimeNs => number(17),
            Field::RuntimeNs => self.schedstat(0),
            Field::RunDelayNs => self.schedstat(1),
            Field::Nice => number(19),
            Field::Priority => number(18),
            Field::RtPriority => number(40),
            Field::Policy => number(41),
            Field::Processor => number(39),
            Field::Affinity => {
                let list = self.line("Cpus_allowed_list")?.expect("status has Cpus_allowed_list");
                Ok(Plain::List(ranges(list)))
            }
            Field::VoluntarySwitches => self.number("voluntary_ctxt_switches", 0, 10),
            Field::InvoluntarySwitches => self.number("nonvoluntary_ctxt_switches", 0, 10),
            Field::GuestNs => number(43),
            Field::CguestNs => number(44),
            Field::BlockDelayNs => number(42),
            Field::TimerSlackNs => {
                let text = self.timer_slack.as_deref().map_err(|&reason| reason)?;
                let text = std::str::from_utf8(text).expect("ASCII");
                Ok(Plain::Number(text.trim().parse().expect("a number")))
            }
            Field::TimeslicesCount => self.schedstat(2),
            Field::MinFaults => number(10),
            Field::MajFaults => number(12),
            Field::ChildMinFaults => number(11),
            Field::ChildMajFaults => number(13),
            Field::VsizeBytes => self.memory("VmSize"),
            Field::RssBytes => self.memory("VmRSS"),
            Field::RssAnonBytes => self.memory("RssAnon"),
            Field::RssFileBytes => self.memory("RssFile"),
            Field::RssShmemBytes => self.memory("RssShmem"),
            Field::SwapBytes => self.memory("VmSwap"),
            Field::PeakVsizeBytes => self.memory("VmPeak"),
            Field::PeakRssBytes => self.memory("VmHWM"),
            Field::TextBytes => self.memory("VmExe"),
            Field::DataBytes => self.memory("VmData"),
            Field::StackBytes => self.memory("VmStk"),
            Field::LibBytes => self.memory("VmLib"),
            Field::LockedBytes => self.memory("VmLck"),
            Field::PinnedBytes => self.memory("VmPin"),
            Field::PageTableBytes => self.memory("VmPTE"),
            Field::HugetlbBytes => self.memory("HugetlbPages"),
            Field::Cmdline => {
                if self.has_memory()? {
                    Ok(Plain::Bytes(self.file("cmdline")?.to_vec()))
                } else {
                    Err(Absent::NoMemory)
                }
            }
            Field::OomScoreAdj => self.whole("oom_score_adj"),
            Field::OomScore => self.whole("oom_score"),
            Field::NsPid => self.namespace("pid"),
            Field::NsPidForChildren => self.namespace("pid_for_children"),
            Field::NsMnt => self.namespace("mnt"),
            Field::NsNet => self.namespace("net"),
            Field::NsUser => self.namespace("user"),
            Field::NsUts => self.namespace("uts"),
            Field::NsIpc => self.namespace("ipc"),
            Field::NsCgroup => self.namespace("cgroup"),
            Field::NsTime => self.namespace("time"),
            Field::Nspids => self.ids("NSpid"),
            Field::CgroupId => self.cgroup_id.map(|id| Plain::Number(id.into())),
            Field::Cgroup => Ok(Plain::Bytes(self.cgroup()?.to_vec())),
            Field::ReadChars => self.io("rchar"),
            Field::WriteChars => self.io("wchar"),
            Field::ReadSyscalls => self.io("syscr"),
            Field::WriteSyscalls => self.io("syscw"),
            Field::ReadBytes => self.io("read_bytes"),
            Field::WriteBytes => self.io("write_bytes"),
            Field::CancelledWriteBytes => self.io("cancelled_write_bytes"),
            Field::SigPending => self.number("SigPnd", 0, 16),
            Field::SigSharedPending => self.number("ShdPnd", 0, 16),
            Field::SigBlocked => self.number("SigBlk", 0, 16),
            Field::SigIgnored => self.number("SigIgn", 0, 16),
            Field::SigCaught => self.number("SigCgt", 0, 16),
            Field::SigQueuedCount => {
                let line = self.line("SigQ")?.expect("status has SigQ");
                let (queued, _) = line.split_once('/').expect("two numbers in SigQ");
                Ok(Plain::Number(queued.parse().expect("a number in SigQ")))
            }
            Field::Limits => self.limits(),
            Field::Environ => {
                if self.has_memory()? {
                    Ok(Plain::Bytes(self.file("environ")?.to_vec()))
                } else {
                    Err(Absent::NoMemory)
                }
            }
            Field::Exe => match self.link("exe") {
                Err(Absent::Gone) if !self.has_memory()? => Err(Absent::NoMemory),
                path => Ok(Plain::Bytes(path?)),
            },
            Field::Cwd => Ok(Plain::Bytes(self.link("cwd")?)),
            Field::Root => Ok(Plain::Bytes(self.link("root")?)),
            Field::NetSinceNs
            | Field::NetSentBytes
            | Field::NetReceivedBytes
            | Field::NetSentCount
            | Field::NetReceivedCount
            | Field::LoopbackSentBytes
            | Field::LoopbackReceivedBytes
            | Field::LoopbackSentCount
            | Field::LoopbackReceivedCount
            | Field::UnixSentBytes
            | Field::UnixReceivedBytes
            | Field::UnixSentCount
            | Field::UnixReceivedCount
            | Field::NetTcpSentBytes
            | Field::NetTcpReceivedBytes
            | Field::NetUdpSentBytes
            | Field::NetUdpReceivedBytes => Err(Absent::NotCounted),
            Field::Umask => match self.line("Umask")? {
                Some(mask) => Ok(Plain::Number(i128::from_str_radix(mask, 8).expect("an octal number"))),
                None => Err(Absent::Gone),
            },
            Field::FdCount => self.fd_count.map(|count| Plain::Number(count as i128)),
            Field::FdTableSize => self.number("FDSize", 0, 10),
            Field::Loginuid => or_none(self.whole("loginuid"), u32::MAX.into()),
            Field::AuditSession => or_none(self.whole("sessionid"), u32::MAX.into()),
            Field::StartCode => self.address(26),
            Field::EndCode => self.address(27),
            Field::StartStack => self.address(28),
            Field::StartData => self.address(45),
            Field::EndData => self.address(46),
            Field::StartBrk => self.address(47),
            Field::ArgStart => self.address(48),
            Field::ArgEnd => self.address(49),
            Field::EnvStart => self.address(50),
            Field::EnvEnd => self.address(51),
            Field::Wchan => match self.file("wchan")? {
                // The kernel prints the same for a reader who may not trace the task.
                b"0" => self.link("pid").map(|_| Plain::Bytes(Vec::new())),
                name => Ok(Plain::Bytes(name.to_vec())),
            },
            Field::Cgroups => {
                let text = self.file("cgroup")?;
                Ok(Plain::Bytes(text.strip_suffix(b"\n").expect("lines").to_vec()))
            }
            Field::SecurityLabel => {
                let text = String::from_utf8_lossy(self.file("attr/current")?).into_owned();
                Ok(Plain::Bytes(text.trim_end_matches(['\n', '\0']).as_bytes().to_vec()))
            }
            Field::Personality => {
                let text = std::str::from_utf8(self.file("personality")?).expect("ASCII");
                Ok(Plain::Number(i128::from_str_radix(text.trim(), 16).expect("a mask")))
            }
            Field::PssBytes
            | Field::UssBytes
            | Field::PssDirtyBytes
            | Field::PssAnonBytes
            | Field::PssFileBytes
            | Field::PssShmemBytes
            | Field::SharedCleanBytes
            | Field::SharedDirtyBytes
            | Field::PrivateCleanBytes
            | Field::PrivateDirtyBytes
            | Field::ReferencedBytes
            | Field::AnonymousBytes
            | Field::KsmBytes
            | Field::LazyfreeBytes
            | Field::AnonHugeBytes
            | Field::ShmemHugeBytes
            | Field::FileHugeBytes
            | Field::SharedHugetlbBytes
            | Field::PrivateHugetlbBytes
            | Field::SwapPssBytes
            | Field::RollupRssBytes
            | Field::RollupSwapBytes
            | Field::RollupLockedBytes
            | Field::RollupAgeNs => panic!("tests/rollup.rs looks at {field}"),
            Field::User
            | Field::Group
            | Field::CpuPercent
            | Field::MemPercent
            | Field::ElapsedNs
            | Field::StartTime
            | Field::Stat
            | Field::Tty
            | Field::Unit
            | Field::UserUnit
            | Field::Slice
            | Field::ContainerId
            | Field::ContainerName
            | Field::ContainerRuntime
            | Field::PodUid => self.says_derived(field),
        }
    }
}

/// Whether a thread that has ended has lost what the field is about, while others share it: files,
/// directories, namespaces, and addresses and texts in memory.
fn is_shared(field: Field) -> bool {
    let name = field.name();
    ["arg_", "env", "start_", "end_", "fd_", "ns_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        && !["start_ns", "start_time"].contains(&name)
        || ["cmdline", "exe", "cwd", "root", "umask"].contains(&name)
}

/// The library's value, in the units of the text.
pub fn plain(field: Field, value: Value<'_>) -> Plain {
    let in_ticks = matches!(
        field,
        Field::StartNs
            | Field::UtimeNs
            | Field::StimeNs
            | Field::CutimeNs
            | Field::CstimeNs
            | Field::GuestNs
            | Field::CguestNs
            | Field::BlockDelayNs
    );
    match value {
        Value::Unsigned(ns) if in_ticks => Plain::Number((ns / TICK_NS).into()),
        Value::Unsigned(number) | Value::Mask(number) => Plain::Number(number.into()),
        Value::Signed(number) => Plain::Number(number.into()),
        // In thousandths.
        Value::Float(number) => Plain::Number((number * 1000.0).round() as i128),
        Value::Flag(flag) => Plain::Flag(flag),
        Value::Letter(letter) => Plain::Letter(letter),
        Value::Text(bytes) if field == Field::StartTime => Plain::Number(seconds(bytes)),
        Value::Text(bytes) => Plain::Bytes(bytes.to_vec()),
        Value::Texts(arguments) => Plain::Bytes(arguments.as_bytes().to_vec()),
        Value::Ids(ids) => Plain::List(ids.iter().map(u64::from).collect()),
        Value::Cpus(cpus) => Plain::List(cpus.iter().map(|cpu| cpu as u64).collect()),
        Value::Limits(limits) => {
            let word = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
            let words = limits
                .iter()
                .map(|(name, soft, hard)| [name.to_owned(), word(soft), word(hard)]);
            Plain::Limits(words.collect())
        }
        other => panic!("a kind of value that this does not know: {other:?}"),
    }
}

fn split_stat(stat: &[u8]) -> (Vec<u8>, Vec<String>) {
    let open = stat.iter().position(|&byte| byte == b'(').expect("stat has a (");
    let close = stat.iter().rposition(|&byte| byte == b')').expect("stat has a )");
    let words = std::str::from_utf8(&stat[close + 1..]).expect("the rest of stat is ASCII");
    (
        stat[open + 1..close].to_vec(),
        words.split_ascii_whitespace().map(str::to_owned).collect(),
    )
}

fn split_status(status: &[u8]) -> BTreeMap<String, String> {
    let lines = status
        .split(|&byte| byte == b'\n')
        .skip(1)
        .filter(|line| !line.is_empty());
    let split = |line| {
        let (key, value) = std::str::from_utf8(line)
            .expect("status is ASCII")
            .split_once(':')
            .expect("a colon");
        (key.to_owned(), value.trim().to_owned())
    };
    lines.map(split).collect()
}

fn absent(error: io::Error) -> Absent {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => Absent::Gone,
        Some(libc::EACCES | libc::EPERM) => Absent::Denied,
        Some(libc::EINVAL) => Absent::Unsupported,
        _ => panic!("a file of /proc: {error}"),
    }
}

/// The numbers of a list such as `0-3,7`.
fn ranges(list: &str) -> Vec<u64> {
    let number = |text: &str| text.parse::<u64>().expect("a processor");
    let range = |part: &str| match part.split_once('-') {
        Some((first, last)) => number(first)..=number(last),
        None => number(part)..=number(part),
    };
    list.split(',')
        .filter(|part| !part.is_empty())
        .flat_map(range)
        .collect()
}

/// The number of open files. Since 6.2 it is the size of the directory. Before, it is counted by
/// listing, and a process that lists its own files has one more.
fn fd_count(directory: &Path) -> io::Result<usize> {
    match fs::metadata(directory)?.len() {
        0 if has_no_size() => fs::read_dir(directory).map(Iterator::count),
        size => Ok(size as usize),
    }
}

/// Whether this kernel does not tell the number, not even for this process.
fn has_no_size() -> bool {
    fs::metadata("/proc/self/fd").is_ok_and(|own| own.len() == 0)
}

/// The inode number of the directory of a cgroup.
fn cgroup_inode(path: &[u8]) -> Result<u64, Absent> {
    if path.ends_with(b" (deleted)") {
        return Err(Absent::Gone);
    }
    let mount = cgroup_mount().ok_or(Absent::Unsupported)?;
    let below = path.strip_prefix(b"/").expect("a path from the root");
    let directory = mount.join(Path::new(OsStr::from_bytes(below)));
    fs::metadata(directory).map(|metadata| metadata.ino()).map_err(absent)
}

/// A number, unless it is what the kernel writes for none.
fn or_none(said: Said, none: i128) -> Said {
    match said {
        Ok(Plain::Number(number)) if number == none => Err(Absent::NotApplicable),
        said => said,
    }
}
