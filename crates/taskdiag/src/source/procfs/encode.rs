//! From the texts of one task to its record. Pure: the bytes may as well have been captured on another host.

use taskdiag_core::absent::Absent;
use taskdiag_core::field::{files_for, Field, Fields, Files, Group, Groups, Kind};
use taskdiag_core::record::{self, attr, AbsentField, Header, Writer};
use taskdiag_core::text::process::{self, LateNumbers, Line, Lines, Stat, Status};
use zerocopy::native_endian::{I32, U16, U32, U64};
use zerocopy::IntoBytes;

/// How many of [`Files`] are files; the others are links and directories.
pub(super) const FILES: usize = 14;

/// The links of paths, in the order of [`Evidence::paths`].
pub(super) const PATHS: [(Files, Field, u16); 3] = [
    (Files::EXE, Field::Exe, attr::EXE),
    (Files::CWD, Field::Cwd, attr::CWD),
    (Files::ROOT, Field::Root, attr::ROOT),
];

/// Files that open to everybody who may see the task, and that every kernel has: each field in them is there.
const ALWAYS_THERE: Files = Files::STAT.or(Files::STATUS).or(Files::CMDLINE);

/// The links in `ns/`, in the order of [`record::Namespaces`].
pub(super) const NAMESPACES: [Field; 9] = [
    Field::NsPid,
    Field::NsPidForChildren,
    Field::NsMnt,
    Field::NsNet,
    Field::NsUser,
    Field::NsUts,
    Field::NsIpc,
    Field::NsCgroup,
    Field::NsTime,
];

/// The index of a file among [`Evidence::texts`].
pub(super) const fn index(file: Files) -> usize {
    file.0.trailing_zeros() as usize
}

pub(super) fn contains(files: Files, index: usize) -> bool {
    files.0 >> index & 1 != 0
}

/// What to read of each task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub fields: Fields,
    groups: Groups,
    pub files: Files,
    /// Bit `n` is set if [`NAMESPACES`]`[n]` is to be read.
    pub namespaces: u16,
    lines: Lines,
    /// Who asks makes sure that the task is the one that is meant.
    is_sure: bool,
}

impl Plan {
    /// The fewest files that have all of `fields`, and `also` those.
    pub(super) fn new(fields: Fields, also: Files) -> Plan {
        let files = match files_for(fields).or(also) {
            Files::NONE => Files::NONE,
            files => files.anchored(),
        };
        Plan::of_files(fields, files, false)
    }

    /// The same where who asks makes sure afterwards that the task is the one that is meant: no file has to tell whose the others are.
    pub(super) fn sure(fields: Fields) -> Plan {
        Plan::of_files(fields, files_for(fields), true)
    }

    fn of_files(fields: Fields, files: Files, is_sure: bool) -> Plan {
        let namespaces = (0..NAMESPACES.len())
            .filter(|&n| fields.contains(NAMESPACES[n]))
            .fold(0, |bits, n| bits | 1 << n);
        let mut lines = Lines::NONE;
        for field in fields.iter() {
            if files.intersects(Files::STAT) && field.info().files.intersects(Files::STAT) {
                continue;
            }
            lines = lines.or(lines_of(field));
        }
        Plan {
            fields,
            groups: fields.groups(),
            files,
            namespaces,
            lines,
            is_sure,
        }
    }

    /// The files to read if some can't be: one has to be among them by which it is known whose the others are.
    pub(super) fn files_but(&self, held: Files) -> Files {
        let files = self.files.without(held);
        if self.is_sure || self.files == Files::NONE {
            files
        } else {
            files.anchored()
        }
    }

    /// Whether one of the files has to tell whose the others are.
    pub(super) fn has_anchor(&self) -> bool {
        !self.is_sure
    }

    pub(super) fn reads(&self, file: Files) -> bool {
        self.files.intersects(file)
    }
}

/// The lines of `status` that a field is made of.
fn lines_of(field: Field) -> Lines {
    let lines: &[Line] = match field {
        Field::Ppid => &[Line::Ppid, Line::Threads],
        Field::State => &[Line::State, Line::Threads],
        Field::ThreadsCount => &[Line::Threads],
        Field::TracerPid => &[Line::TracerPid],
        Field::Uid | Field::Euid | Field::Suid | Field::Fsuid => &[Line::Uid],
        Field::Gid | Field::Egid | Field::Sgid | Field::Fsgid => &[Line::Gid],
        Field::CapInheritable => &[Line::CapInh],
        Field::CapPermitted => &[Line::CapPrm],
        Field::CapEffective => &[Line::CapEff],
        Field::CapBounding => &[Line::CapBnd],
        Field::CapAmbient => &[Line::CapAmb],
        Field::NoNewPrivs => &[Line::NoNewPrivs],
        Field::Seccomp => &[Line::Seccomp],
        Field::Groups => &[Line::Groups],
        Field::Affinity => &[Line::CpusAllowed],
        Field::VoluntarySwitches => &[Line::Voluntary],
        Field::InvoluntarySwitches => &[Line::Involuntary],
        Field::VsizeBytes => &[Line::VmSize],
        // The kernel adds the three up, and so does who reads the record.
        Field::RssBytes => &[Line::VmSize, Line::RssAnon, Line::RssFile, Line::RssShmem],
        Field::RssAnonBytes => &[Line::VmSize, Line::RssAnon],
        Field::RssFileBytes => &[Line::VmSize, Line::RssFile],
        Field::RssShmemBytes => &[Line::VmSize, Line::RssShmem],
        Field::SwapBytes => &[Line::VmSize, Line::VmSwap],
        Field::PeakVsizeBytes => &[Line::VmSize, Line::VmPeak],
        Field::PeakRssBytes => &[Line::VmSize, Line::VmHwm],
        Field::TextBytes => &[Line::VmSize, Line::VmExe],
        Field::DataBytes => &[Line::VmSize, Line::VmData],
        Field::StackBytes => &[Line::VmSize, Line::VmStk],
        Field::LibBytes => &[Line::VmSize, Line::VmLib],
        Field::LockedBytes => &[Line::VmSize, Line::VmLck],
        Field::PinnedBytes => &[Line::VmSize, Line::VmPin],
        Field::PageTableBytes => &[Line::VmSize, Line::VmPte],
        Field::HugetlbBytes => &[Line::VmSize, Line::Hugetlb],
        Field::Nspids => &[Line::NsPid],
        Field::SigPending => &[Line::SigPnd],
        Field::SigSharedPending => &[Line::ShdPnd],
        Field::SigBlocked => &[Line::SigBlk],
        Field::SigIgnored => &[Line::SigIgn],
        Field::SigCaught => &[Line::SigCgt],
        Field::SigQueuedCount => &[Line::SigQ],
        Field::Umask => &[Line::Umask],
        Field::FdTableSize => &[Line::FdSize],
        _ => &[],
    };
    Lines::of(lines)
}

/// What was read of one task.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    /// The whole texts of files, by [`index`].
    pub texts: [Result<&'a [u8], Absent>; FILES],
    /// Inode numbers, in the order of [`NAMESPACES`].
    pub namespaces: [Result<u64, Absent>; NAMESPACES.len()],
    pub cgroup_id: Result<u64, Absent>,
    /// The targets of links, in the order of [`PATHS`].
    pub paths: [Result<&'a [u8], Absent>; PATHS.len()],
    pub fd_count: Result<u32, Absent>,
    /// Whether it was seen that the task has no address space.
    pub no_memory: bool,
}

impl<'a> Evidence<'a> {
    pub(super) const NONE: Evidence<'static> = Evidence {
        texts: [Err(Absent::NotAsked); FILES],
        namespaces: [Err(Absent::NotAsked); NAMESPACES.len()],
        cgroup_id: Err(Absent::NotAsked),
        paths: [Err(Absent::NotAsked); PATHS.len()],
        fd_count: Err(Absent::NotAsked),
        no_memory: false,
    };

    pub(super) fn text(&self, file: Files) -> Result<&'a [u8], Absent> {
        self.texts[index(file)]
    }

    pub(super) fn stat(&self) -> Option<Stat<'a>> {
        process::stat(self.text(Files::STAT).ok()?)
    }
}

/// Why there is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRecord {
    /// The task ended.
    Gone,
    /// A text is not what it should be.
    Malformed,
}

/// What stays the same from task to task.
#[derive(Debug)]
pub(super) struct Encoder {
    ticks_per_second: u64,
    /// Lists on their way from text into a record.
    list: Vec<u8>,
}

const NS_PER_SECOND: u64 = 1_000_000_000;

impl Encoder {
    pub(super) fn new(ticks_per_second: u64) -> Encoder {
        Encoder {
            ticks_per_second: ticks_per_second.max(1),
            list: Vec::new(),
        }
    }

    fn nanoseconds(&self, ticks: u64) -> u64 {
        let hz = self.ticks_per_second;
        // In two parts: ticks times 10^9 exceed 64 bits after 5 years of 100 Hz, and 128-bit divisions are slow.
        let seconds = (ticks / hz).saturating_mul(NS_PER_SECOND);
        seconds.saturating_add(ticks % hz * NS_PER_SECOND / hz)
    }

    fn list<const N: usize>(&mut self, items: impl Iterator<Item = [u8; N]>) -> &[u8] {
        self.list.clear();
        items.for_each(|item| self.list.extend_from_slice(&item));
        &self.list
    }

    /// Appends the record of a task that did not let anything be read.
    pub(super) fn encode_nothing(&mut self, plan: &Plan, (pid, tid): (u32, u32), records: &mut Vec<u8>) {
        let absent = |field: Field| AbsentField {
            field: U16::new(field as u16),
            reason: U16::new(Absent::NoAnswer as u16),
        };
        let fields = plan
            .fields
            .iter()
            .filter(|field| !matches!(field, Field::Pid | Field::Tid));
        let fields: Vec<AbsentField> = fields.map(absent).collect();
        let mut record = Writer::new(records);
        record.put(attr::ABSENT, 0, fields.as_bytes());
        record.finish(Header {
            flags: U32::new(record::HAS_ABSENT),
            pid: U32::new(pid),
            tid: U32::new(tid),
            ..Header::default()
        });
    }

    /// Appends the record of the task `tid` of process `pid`.
    pub(super) fn encode(
        &mut self,
        plan: &Plan,
        (pid, tid): (u32, u32),
        evidence: &Evidence<'_>,
        records: &mut Vec<u8>,
    ) -> Result<(), NoRecord> {
        let stat = match evidence.text(Files::STAT) {
            Ok(text) => Some(process::stat(text).ok_or(NoRecord::Malformed)?),
            Err(_) => None,
        };
        let status = match evidence.text(Files::STATUS) {
            Ok(text) => Some(process::status(text, plan.lines)),
            Err(_) => None,
        };
        let stat = stat.as_ref();
        let status = status.as_ref();
        if stat.is_some_and(Stat::is_released) {
            return Err(NoRecord::Gone);
        }
        // The same in status: its lines about the process need the same lock.
        let is_released = |status: &Status<'_>| {
            status.found().contains(Line::Threads) && status.number(Line::Threads) == 0 || status.state() == Some(b'X')
        };
        if status.is_some_and(is_released) {
            return Err(NoRecord::Gone);
        }

        let no_size = |status: &Status| plan.lines.contains(Line::VmSize) && !status.found().contains(Line::VmSize);
        let no_memory =
            evidence.no_memory || stat.is_some_and(|stat| !stat.has_memory()) || status.is_some_and(no_size);
        let mut header = Header {
            pid: U32::new(pid),
            tid: U32::new(tid),
            ..Header::default()
        };
        let mut flags = 0;
        if let Some(stat) = stat {
            header.start_ns = U64::new(self.nanoseconds(stat.start_ticks));
            if stat.is_kernel_thread() {
                flags |= record::KERNEL_THREAD;
            }
        }
        if no_memory {
            flags |= record::NO_MM;
        }

        let mut record = Writer::new(records);
        for group in plan.groups.iter() {
            match group {
                Group::Base => put_base(&mut record, stat, status),
                Group::Tty => put_tty(&mut record, stat),
                Group::Cred => put_cred(&mut record, status),
                Group::Groups => {
                    if let Some(status) = status.filter(|s| s.found().contains(Line::Groups)) {
                        let ids = status.ids(Line::Groups).map(u32::to_ne_bytes);
                        record.put(attr::GROUPS, 0, self.list(ids));
                    }
                }
                Group::Cpu => self.put_cpu(&mut record, plan, stat, status, evidence),
                Group::Faults => put_faults(&mut record, stat),
                Group::Mem => put_mem(&mut record, status),
                Group::Args => match evidence.text(Files::CMDLINE) {
                    Ok(b"") if no_memory => {}
                    Ok(text) => record.put(attr::ARGS, 0, text),
                    Err(_) => {}
                },
                Group::Oom => {
                    let number = |file| I32::new(parsed(evidence, file, process::number).unwrap_or(0));
                    let oom = record::Oom {
                        oom_score_adj: number(Files::OOM_SCORE_ADJ),
                        oom_score: number(Files::OOM_SCORE),
                    };
                    record.put(attr::OOM, 0, oom.as_bytes());
                }
                Group::Namespaces => {
                    let inodes = evidence.namespaces.map(|inode| inode.unwrap_or(0));
                    record.put(attr::NAMESPACES, 0, inodes.as_bytes());
                    if let Some(status) = status.filter(|s| s.found().contains(Line::NsPid)) {
                        let ids = status.ids(Line::NsPid).map(u32::to_ne_bytes);
                        record.put(attr::NSPIDS, 0, self.list(ids));
                    }
                }
                Group::Cgroup => {
                    let cgroup_id = U64::new(evidence.cgroup_id.unwrap_or(0));
                    record.put(attr::CGROUP, 0, record::Cgroup { cgroup_id }.as_bytes());
                    if let Some(path) = evidence.text(Files::CGROUP).ok().and_then(process::cgroup) {
                        record.put(attr::CGROUP_PATH, 0, path);
                    }
                }
                Group::Io => {
                    if let Some(numbers) = parsed(evidence, Files::IO, process::io) {
                        record.put(attr::IO, 0, numbers.map(U64::new).as_bytes());
                    }
                }
                Group::Signals => put_signals(&mut record, status),
                Group::Limits => {
                    if let Some(limits) = parsed(evidence, Files::LIMITS, process::limits) {
                        let limits = limits.map(|(soft, hard)| [soft, hard].map(U64::new));
                        record.put(attr::LIMITS, 0, limits.as_bytes());
                    }
                }
                Group::Env => match evidence.text(Files::ENVIRON) {
                    Ok(b"") if no_memory => {}
                    Ok(text) => record.put(attr::ENV, 0, text),
                    Err(_) => {}
                },
                Group::Paths => {
                    for ((_, _, kind), path) in PATHS.into_iter().zip(evidence.paths) {
                        if let Ok(path) = path {
                            record.put(kind, 0, path);
                        }
                    }
                    if let Some(status) = status.filter(|s| s.found().contains(Line::Umask)) {
                        record.put(attr::UMASK, 0, &status.id(Line::Umask).to_ne_bytes());
                    }
                }
                Group::Fds => {
                    let fds = record::Fds {
                        fd_count: U32::new(evidence.fd_count.unwrap_or(0)),
                        fd_table_size: U32::new(status.map_or(0, |status| status.id(Line::FdSize))),
                    };
                    record.put(attr::FDS, 0, fds.as_bytes());
                }
                Group::Audit => {
                    let number = |file| U32::new(parsed(evidence, file, process::number).unwrap_or(0));
                    let audit = record::Audit {
                        loginuid: number(Files::LOGINUID),
                        audit_session: number(Files::SESSIONID),
                    };
                    record.put(attr::AUDIT, 0, audit.as_bytes());
                }
                // Not read here: see `memory`.
                Group::Rollup => {}
                Group::Layout => {
                    if let Some(stat) = stat.filter(|stat| stat.has_memory()) {
                        put_layout(&mut record, stat);
                    }
                    if let Some(personality) = parsed(evidence, Files::PERSONALITY, process::mask) {
                        record.put(attr::PERSONALITY, 0, &personality.to_ne_bytes());
                    }
                }
            }
        }

        // Of nearly all tasks everything is there. For the others, go through what was asked.
        if !is_complete(plan, evidence, status) {
            let late = stat.map(Stat::late_numbers);
            let missing = plan.fields.iter().filter_map(|field| {
                if no_memory && field.needs_memory() {
                    return None;
                }
                let reason = why_absent(field, evidence, status, late, no_memory)?;
                let entry = AbsentField {
                    field: U16::new(field as u16),
                    reason: U16::new(reason as u16),
                };
                let mut bytes = [0; size_of::<AbsentField>()];
                bytes.copy_from_slice(entry.as_bytes());
                Some(bytes)
            });
            let missing = self.list(missing);
            if !missing.is_empty() {
                record.put(attr::ABSENT, 0, missing);
                flags |= record::HAS_ABSENT;
            }
        }
        header.flags = U32::new(flags);
        record.finish(header);
        Ok(())
    }

    fn put_cpu(
        &mut self,
        record: &mut Writer<'_>,
        plan: &Plan,
        stat: Option<&Stat<'_>>,
        status: Option<&Status<'_>>,
        evidence: &Evidence<'_>,
    ) {
        let mut cpu = record::Cpu::default();
        if let Some(stat) = stat {
            // The kernel has scaled these two already. With a run time of 0 the reader takes what is in `prev_*`.
            cpu.utime_ns = U64::new(self.nanoseconds(stat.utime_ticks));
            cpu.stime_ns = U64::new(self.nanoseconds(stat.stime_ticks));
            cpu.prev_utime = cpu.utime_ns;
            cpu.prev_stime = cpu.stime_ns;
            cpu.cutime_ns = U64::new(self.nanoseconds(stat.cutime_ticks));
            cpu.cstime_ns = U64::new(self.nanoseconds(stat.cstime_ticks));
            cpu.nice = I32::new(stat.nice);
            cpu.priority = I32::new(stat.priority);
            cpu.rt_priority = U32::new(stat.rt_priority);
            cpu.policy = U32::new(stat.policy);
            cpu.cpu = U32::new(stat.processor);
            // Few ask for these, and they stand far behind.
            let late = [Field::BlockDelayNs, Field::GuestNs, Field::CguestNs];
            if late.into_iter().any(|field| plan.fields.contains(field)) {
                let late = stat.late_numbers();
                let ns = |number| U64::new(self.nanoseconds(late.get(number).unwrap_or(0)));
                cpu.block_delay_ns = ns(42);
                cpu.guest_ns = ns(43);
                cpu.cguest_ns = ns(44);
            }
        }
        if let Some([runtime, run_delay, timeslices]) = parsed(evidence, Files::SCHEDSTAT, process::schedstat) {
            cpu.runtime_ns = U64::new(runtime);
            cpu.run_delay_ns = U64::new(run_delay);
            cpu.timeslices_count = U64::new(timeslices);
        }
        if let Some(slack) = parsed(evidence, Files::TIMERSLACK_NS, process::number::<i64>) {
            cpu.timer_slack_ns = U64::new(slack.unsigned_abs());
        }
        if let Some(status) = status {
            let number = |line| U64::new(status.number(line));
            cpu.voluntary_switches = number(Line::Voluntary);
            cpu.involuntary_switches = number(Line::Involuntary);
        }
        record.put(attr::CPU, 0, cpu.as_bytes());
        if let Some(status) = status.filter(|s| s.found().contains(Line::CpusAllowed)) {
            record.put(attr::AFFINITY, 0, self.list(status.processors().map(u64::to_ne_bytes)));
        }
    }
}

fn put_base(record: &mut Writer<'_>, stat: Option<&Stat<'_>>, status: Option<&Status<'_>>) {
    let mut base = record::Base::default();
    if let Some(status) = status {
        let id = |line| U32::new(status.id(line));
        base.tracer_pid = id(Line::TracerPid);
        base.ppid = id(Line::Ppid);
        base.threads_count = id(Line::Threads);
        base.state = status.state().unwrap_or_default();
    }
    let mut name: &[u8] = b"";
    if let Some(stat) = stat {
        base.ppid = U32::new(stat.ppid);
        base.pgid = U32::new(stat.pgid);
        base.sid = U32::new(stat.sid);
        base.exit_signal = I32::new(stat.exit_signal);
        base.threads_count = U32::new(stat.threads_count);
        base.state = stat.state;
        name = stat.comm;
    }
    // A byte is left for the NUL that ends the name.
    let short = name.len().min(base.comm.len() - 1);
    base.comm[..short].copy_from_slice(&name[..short]);
    record.put(attr::BASE, 0, base.as_bytes());
    if name.len() > short {
        record.put(attr::NAME, 0, name);
    }
}

fn put_tty(record: &mut Writer<'_>, stat: Option<&Stat<'_>>) {
    if let Some(stat) = stat {
        let tty = record::Tty {
            tty_nr: U32::new(stat.tty_nr),
            tpgid: I32::new(stat.tpgid),
        };
        record.put(attr::TTY, 0, tty.as_bytes());
    }
}

fn put_cred(record: &mut Writer<'_>, status: Option<&Status<'_>>) {
    let Some(status) = status else { return };
    let four = |line| {
        let mut ids = status.ids(line);
        [(); 4].map(|()| U32::new(ids.next().unwrap_or_default()))
    };
    let mask = |line| U64::new(status.number(line));
    let id = |line| U32::new(status.id(line));
    let [uid, euid, suid, fsuid] = four(Line::Uid);
    let [gid, egid, sgid, fsgid] = four(Line::Gid);
    let cred = record::Cred {
        uid,
        euid,
        suid,
        fsuid,
        gid,
        egid,
        sgid,
        fsgid,
        cap_inheritable: mask(Line::CapInh),
        cap_permitted: mask(Line::CapPrm),
        cap_effective: mask(Line::CapEff),
        cap_bounding: mask(Line::CapBnd),
        cap_ambient: mask(Line::CapAmb),
        no_new_privs: id(Line::NoNewPrivs),
        seccomp: id(Line::Seccomp),
    };
    record.put(attr::CRED, 0, cred.as_bytes());
}

fn put_faults(record: &mut Writer<'_>, stat: Option<&Stat<'_>>) {
    if let Some(stat) = stat {
        let faults = record::Faults {
            min_faults: U64::new(stat.min_faults),
            maj_faults: U64::new(stat.maj_faults),
            child_min_faults: U64::new(stat.child_min_faults),
            child_maj_faults: U64::new(stat.child_maj_faults),
        };
        record.put(attr::FAULTS, 0, faults.as_bytes());
    }
}

fn put_mem(record: &mut Writer<'_>, status: Option<&Status<'_>>) {
    let Some(status) = status.filter(|status| status.found().contains(Line::VmSize)) else {
        return;
    };
    let bytes = |line| U64::new(status.number(line));
    let mem = record::Mem {
        vsize_bytes: bytes(Line::VmSize),
        rss_anon_bytes: bytes(Line::RssAnon),
        rss_file_bytes: bytes(Line::RssFile),
        rss_shmem_bytes: bytes(Line::RssShmem),
        swap_bytes: bytes(Line::VmSwap),
        peak_vsize_bytes: bytes(Line::VmPeak),
        peak_rss_bytes: bytes(Line::VmHwm),
        text_bytes: bytes(Line::VmExe),
        data_bytes: bytes(Line::VmData),
        stack_bytes: bytes(Line::VmStk),
        lib_bytes: bytes(Line::VmLib),
        locked_bytes: bytes(Line::VmLck),
        pinned_bytes: bytes(Line::VmPin),
        page_table_bytes: bytes(Line::VmPte),
        hugetlb_bytes: bytes(Line::Hugetlb),
    };
    record.put(attr::MEM, 0, mem.as_bytes());
}

fn put_signals(record: &mut Writer<'_>, status: Option<&Status<'_>>) {
    let Some(status) = status else { return };
    let number = |line| U64::new(status.number(line));
    let signals = record::Signals {
        sig_pending: number(Line::SigPnd),
        sig_shared_pending: number(Line::ShdPnd),
        sig_blocked: number(Line::SigBlk),
        sig_ignored: number(Line::SigIgn),
        sig_caught: number(Line::SigCgt),
        sig_queued_count: number(Line::SigQ),
    };
    record.put(attr::SIGNALS, 0, signals.as_bytes());
}

fn put_layout(record: &mut Writer<'_>, stat: &Stat<'_>) {
    let late = stat.late_numbers();
    let address = |number| U64::new(late.get(number).unwrap_or(0));
    let layout = record::Layout {
        start_code: address(26),
        end_code: address(27),
        start_stack: address(28),
        start_data: address(45),
        end_data: address(46),
        start_brk: address(47),
        arg_start: address(48),
        arg_end: address(49),
        env_start: address(50),
        env_end: address(51),
    };
    record.put(attr::LAYOUT, 0, layout.as_bytes());
}

fn parsed<'a, T>(evidence: &Evidence<'a>, file: Files, parse: impl FnOnce(&'a [u8]) -> Option<T>) -> Option<T> {
    parse(evidence.text(file).ok()?)
}

/// Whether all that the plan reads was there, so that no field can be absent.
fn is_complete(plan: &Plan, evidence: &Evidence<'_>, status: Option<&Status<'_>>) -> bool {
    (0..FILES).all(|file| !contains(plan.files, file) || evidence.texts[file].is_ok())
        && status.is_none_or(|status| plan.lines.is_subset(status.found()))
        && plan.files.is_subset(ALWAYS_THERE)
        && !plan.groups.contains(Group::Layout)
}

/// The reason for which the field of a task that has what it is about is missing; none if it is there.
fn why_absent(
    field: Field,
    evidence: &Evidence<'_>,
    status: Option<&Status<'_>>,
    late: Option<LateNumbers>,
    no_memory: bool,
) -> Option<Absent> {
    const UNREADABLE: Absent = Absent::Unsupported;
    let files = field.info().files;
    if field.info().kind == Kind::Address && late.is_some_and(|late| late.are_addresses_denied()) {
        return Some(Absent::Denied);
    }
    if files == Files::NONE || evidence.text(Files::STAT).is_ok() && files.intersects(Files::STAT) {
        return None;
    }
    if files == Files::NS {
        let which = NAMESPACES.iter().position(|&namespace| namespace == field)?;
        return evidence.namespaces[which].err();
    }
    if let Some(which) = PATHS.iter().position(|&(_, path, _)| path == field) {
        return match evidence.paths[which] {
            Err(Absent::Gone) if field == Field::Exe && no_memory => None,
            path => path.err(),
        };
    }
    if files == Files::FD {
        return evidence.fd_count.err();
    }
    // The cheapest file that has it is the one that the plan chose, unless stat was not chosen for what status has too.
    let file = if files.intersects(Files::STATUS) {
        Files::STATUS
    } else {
        files
    };
    if let Err(reason) = evidence.text(file) {
        return Some(reason);
    }
    // A task that ended has no such line.
    if field == Field::Umask && status.is_some_and(|status| !status.found().contains(Line::Umask)) {
        return Some(Absent::Gone);
    }
    let is_there = match file {
        Files::STATUS => {
            let lines = lines_of(field);
            status.is_some_and(|status| lines.is_subset(status.found()))
        }
        Files::SCHEDSTAT => parsed(evidence, file, process::schedstat).is_some(),
        Files::OOM_SCORE | Files::OOM_SCORE_ADJ => parsed(evidence, file, process::number::<i32>).is_some(),
        Files::TIMERSLACK_NS => parsed(evidence, file, process::number::<i64>).is_some(),
        Files::LOGINUID | Files::SESSIONID => parsed(evidence, file, process::number::<u32>).is_some(),
        Files::PERSONALITY => parsed(evidence, file, process::mask).is_some(),
        Files::IO => parsed(evidence, file, process::io).is_some(),
        Files::LIMITS => parsed(evidence, file, process::limits).is_some(),
        Files::CGROUP if field == Field::CgroupId => return evidence.cgroup_id.err(),
        Files::CGROUP => evidence.text(file).ok().and_then(process::cgroup).is_some(),
        _ => true,
    };
    (!is_there).then_some(UNREADABLE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use taskdiag_core::record::Record;
    use taskdiag_core::snapshot::Snapshot;
    use taskdiag_core::value::Value;

    use super::*;

    const STAT: &[u8] =
        b"7 (x) S 1 2 3 4 5 6 7 8 9 10 150 12 13 14 20 0 1 0 249641 4096 1 1 1 1 1 1 1 1 1 1 1 1 1 1 17 2 0 0\n";
    const ZOMBIE: &[u8] =
        b"7 (x) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 20 0 1 0 249641 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 17 2 0 0\n";

    fn encode(fields: Fields, evidence: &Evidence<'_>) -> Result<Snapshot, NoRecord> {
        let mut snapshot = Snapshot::default();
        snapshot.clear(fields);
        let plan = Plan::new(fields, Files::NONE);
        Encoder::new(100).encode(&plan, (7, 7), evidence, &mut snapshot.records)?;
        snapshot.add_row(0);
        Ok(snapshot)
    }

    fn texts<'a>(files: &[(Files, Result<&'a [u8], Absent>)]) -> Evidence<'a> {
        let mut evidence = Evidence::NONE;
        for &(file, text) in files {
            evidence.texts[index(file)] = text;
        }
        evidence
    }

    /// Check that no more files are read than needed.
    #[test]
    fn plans_are_small() {
        let files = |fields: Fields| Plan::new(fields, Files::NONE).files;
        assert_eq!(files(Field::Pid | Field::Tid), Files::NONE);
        assert_eq!(files(Field::Ppid | Field::Comm), Files::STAT);
        assert_eq!(files(Field::Ppid | Field::Uid), Files::STATUS);
        assert_eq!(files(Field::NsNet.into()), Files::STAT.or(Files::NS));
        assert_eq!(files(Field::NsNet | Field::Uid), Files::STATUS.or(Files::NS));
    }

    /// Check that times are whole ticks in nanoseconds, and that user and system time come through unscaled.
    #[test]
    fn ticks_become_nanoseconds() {
        let fields = Field::StartNs | Field::UtimeNs | Field::StimeNs;
        let snapshot = encode(fields, &texts(&[(Files::STAT, Ok(STAT))])).unwrap();
        let task = snapshot.task(0);
        assert_eq!(task.start_ns(), Ok(2_496_410_000_000));
        assert_eq!((task.utime_ns(), task.stime_ns()), (Ok(1_500_000_000), Ok(120_000_000)));
        let odd = Encoder::new(1024);
        assert_eq!(odd.nanoseconds(1), 976_562);
        let ticks = u64::MAX / 1_000_000;
        let exact = u128::from(ticks) * 1_000_000_000 / 1024;
        assert_eq!(u128::from(odd.nanoseconds(ticks)), exact);
    }

    /// Check that what a file or a line does not have is absent for its own reason, field by field.
    #[test]
    fn what_is_missing_has_its_reason() {
        let fields = Field::Comm
            | Field::Uid
            | Field::Seccomp
            | Field::Nspids
            | Field::RuntimeNs
            | Field::UtimeNs
            | Field::NsNet
            | Field::NsMnt
            | Field::Cgroup
            | Field::CgroupId
            | Field::OomScore
            | Field::OomScoreAdj;
        let mut evidence = texts(&[
            (Files::STAT, Ok(STAT)),
            (Files::STATUS, Ok(b"Uid:\t1\t1\t1\t1\n")),
            (Files::SCHEDSTAT, Err(Absent::Unsupported)),
            (Files::CGROUP, Ok(b"1:cpu:/\n")),
            (Files::OOM_SCORE, Ok(b"666\n")),
            (Files::OOM_SCORE_ADJ, Err(Absent::Denied)),
        ]);
        evidence.namespaces[2] = Ok(5);
        evidence.namespaces[3] = Err(Absent::Denied);
        evidence.cgroup_id = Err(Absent::Unsupported);
        let snapshot = encode(fields, &evidence).unwrap();
        let task = snapshot.task(0);
        assert_eq!((task.uid(), task.comm()), (Ok(1), Ok(&b"x"[..])));
        assert_eq!(
            (task.seccomp(), task.nspids()),
            (Err(Absent::Unsupported), Err(Absent::Unsupported))
        );
        assert_eq!(
            (task.runtime_ns(), task.utime_ns()),
            (Err(Absent::Unsupported), Ok(1_500_000_000))
        );
        assert_eq!((task.ns_mnt(), task.ns_net()), (Ok(5), Err(Absent::Denied)));
        assert_eq!(
            (task.cgroup(), task.cgroup_id()),
            (Err(Absent::Unsupported), Err(Absent::Unsupported))
        );
        assert_eq!((task.oom_score(), task.oom_score_adj()), (Ok(666), Err(Absent::Denied)));
    }

    /// Check that an empty command line is an empty list of a process, and missing of a task without memory.
    #[test]
    fn empty_command_lines_differ() {
        let fields = Field::Cmdline | Field::Comm;
        let snapshot = encode(fields, &texts(&[(Files::STAT, Ok(STAT)), (Files::CMDLINE, Ok(b""))])).unwrap();
        assert!(snapshot.task(0).cmdline().unwrap().is_empty());
        let snapshot = encode(fields, &texts(&[(Files::STAT, Ok(ZOMBIE)), (Files::CMDLINE, Ok(b""))])).unwrap();
        assert_eq!(snapshot.task(0).cmdline(), Err(Absent::NoMemory));
        let snapshot = encode(Field::RssBytes.into(), &texts(&[(Files::STATUS, Ok(b"Threads:\t1\n"))])).unwrap();
        assert_eq!(snapshot.task(0).rss_bytes(), Err(Absent::NoMemory));
    }

    /// Check that a task that was released while it was read has no record.
    #[test]
    fn released_tasks_have_no_record() {
        let status = b"State:\tX (dead)\nPPid:\t0\nThreads:\t0\n";
        let fields = Field::Ppid | Field::Uid;
        assert_eq!(
            encode(fields, &texts(&[(Files::STATUS, Ok(status))])).unwrap_err(),
            NoRecord::Gone
        );
        assert_eq!(
            encode(Field::Comm.into(), &texts(&[(Files::STAT, Ok(b"no"))])).unwrap_err(),
            NoRecord::Malformed
        );
    }

    proptest! {
        /// Check that any bytes make a whole record or none, of which every field can be asked.
        #[test]
        fn any_texts_make_whole_records(texts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), FILES - 1),
                comm in proptest::collection::vec(1u8.., 0..100)) {
            let mut evidence = Evidence::NONE;
            let stat = [b"7 (", &comm[..], STAT.strip_prefix(b"7 (x").unwrap()].concat();
            evidence.texts[0] = Ok(&stat);
            for (slot, text) in evidence.texts[1..].iter_mut().zip(&texts) {
                *slot = Ok(text);
            }
            let snapshot = encode(Fields::all(), &evidence).unwrap();
            let (record, rest) = Record::split_first(&snapshot.records).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert!(record.attributes().count() > 5);
            for &field in Field::ALL {
                let value = snapshot.task(0).value(field);
                if field == Field::Comm {
                    prop_assert_eq!(value, Ok(Value::Text(&comm)));
                }
            }
        }
    }
}
