//! Turns the texts of one task into its record. Pure: the texts may be from another host.

mod missing;
mod plan;
#[cfg(test)]
mod tests;

use taskdiag_core::absent::Absent;
use taskdiag_core::field::{Field, Files, Group};
use taskdiag_core::record::{self, attr, AbsentField, Header, Writer};
use taskdiag_core::text::process::{self, Line, Stat, Status};
use zerocopy::native_endian::{I32, U16, U32, U64};
use zerocopy::IntoBytes;

pub(super) use plan::{contains, index, Plan, FILES, NAMESPACES, PATHS};

/// What was read about one task, unparsed.
#[derive(Debug)]
pub(super) struct RawTask<'a> {
    /// The complete texts of files, by [`index`].
    pub texts: [Result<&'a [u8], Absent>; FILES],
    /// Inode numbers, in the order of [`NAMESPACES`].
    pub namespaces: [Result<u64, Absent>; NAMESPACES.len()],
    pub cgroup_id: Result<u64, Absent>,
    /// The targets of links, in the order of [`PATHS`].
    pub paths: [Result<&'a [u8], Absent>; PATHS.len()],
    pub fd_count: Result<u32, Absent>,
    /// The task is known to have no address space.
    pub no_memory: bool,
}

impl<'a> RawTask<'a> {
    pub(super) const NONE: RawTask<'static> = RawTask {
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
    /// A text is malformed.
    Malformed,
}

/// One task, with its two largest texts parsed.
struct Task<'a> {
    raw: &'a RawTask<'a>,
    stat: Option<Stat<'a>>,
    status: Option<Status<'a>>,
    no_memory: bool,
}

impl<'a> Task<'a> {
    fn parse(plan: &Plan, raw: &'a RawTask<'a>) -> Result<Task<'a>, NoRecord> {
        let stat = match raw.text(Files::STAT) {
            Ok(text) => Some(process::stat(text).ok_or(NoRecord::Malformed)?),
            Err(_) => None,
        };
        let status = match raw.text(Files::STATUS) {
            Ok(text) => Some(process::status(text, plan.lines)),
            Err(_) => None,
        };
        // If a task was released, the kernel has no lock with which to read the values of its
        // process for `stat` and `status`.
        let is_released = |status: &Status<'_>| {
            status.found().contains(Line::Threads) && status.number(Line::Threads) == 0 || status.state() == Some(b'X')
        };
        if stat.as_ref().is_some_and(Stat::is_released) || status.as_ref().is_some_and(is_released) {
            return Err(NoRecord::Gone);
        }
        let has_no_size =
            |status: &Status<'_>| plan.lines.contains(Line::VmSize) && !status.found().contains(Line::VmSize);
        let no_memory = raw.no_memory
            || stat.as_ref().is_some_and(|stat| !stat.has_memory())
            || status.as_ref().is_some_and(has_no_size);
        Ok(Task {
            raw,
            stat,
            status,
            no_memory,
        })
    }

    /// `status`, if it has a line.
    fn status_with(&self, line: Line) -> Option<&Status<'a>> {
        self.status.as_ref().filter(|status| status.found().contains(line))
    }

    /// Parses a file with `parse`, if it was read.
    fn parsed<T>(&self, file: Files, parse: impl FnOnce(&'a [u8]) -> Option<T>) -> Option<T> {
        parse(self.raw.text(file).ok()?)
    }
}

/// What stays the same from task to task.
#[derive(Debug)]
pub(super) struct Encoder {
    ticks_per_second: u64,
    /// Memory for lists that are made from a text.
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
        // In two parts: ticks times 10^9 exceed 64 bits after 5 years of 100 Hz, and 128-bit
        // divisions are slow.
        let seconds = (ticks / hz).saturating_mul(NS_PER_SECOND);
        seconds.saturating_add(ticks % hz * NS_PER_SECOND / hz)
    }

    fn list<const N: usize>(&mut self, items: impl Iterator<Item = [u8; N]>) -> &[u8] {
        self.list.clear();
        items.for_each(|item| self.list.extend_from_slice(&item));
        &self.list
    }

    /// Appends the record of the task `tid` of process `pid`. `live` is what was read about another
    /// thread, which has what threads share, if the first one has ended.
    pub(super) fn encode(
        &mut self,
        plan: &Plan,
        (pid, tid): (u32, u32),
        (raw, live): (&RawTask<'_>, Option<&RawTask<'_>>),
        records: &mut Vec<u8>,
    ) -> Result<(), NoRecord> {
        let task = Task::parse(plan, raw)?;
        let live = live.map(|live| Task::parse(plan, live)).transpose()?;
        let live = live.as_ref().unwrap_or(&task);
        let mut header = Header {
            pid: U32::new(pid),
            tid: U32::new(tid),
            ..Header::default()
        };
        let mut flags = 0;
        if let Some(stat) = &task.stat {
            header.start_ns = U64::new(self.nanoseconds(stat.start_ticks));
            if stat.is_kernel_thread() {
                flags |= record::KERNEL_THREAD;
            }
        }
        if live.no_memory {
            flags |= record::NO_MM;
        }
        let mut record = Writer::new(records);
        for group in plan.groups.iter() {
            self.put(group, plan, (&task, live), &mut record);
        }
        if self.put_absent(plan, (&task, live), &mut record) {
            flags |= record::HAS_ABSENT;
        }
        header.flags = U32::new(flags);
        record.finish(header);
        Ok(())
    }

    fn put(&mut self, group: Group, plan: &Plan, (task, live): (&Task<'_>, &Task<'_>), record: &mut Writer<'_>) {
        match group {
            Group::Base => put_base(task, record),
            Group::Tty => put_tty(task, record),
            Group::Cred => put_cred(task, record),
            Group::Groups => self.put_ids(task, Line::Groups, attr::GROUPS, record),
            Group::Cpu => self.put_cpu(plan, task, record),
            Group::Faults => put_faults(task, record),
            Group::Mem => put_mem(live, record),
            Group::Args => put_text_of_memory(live, Files::CMDLINE, attr::ARGS, record),
            Group::Oom => put_oom(task, record),
            Group::Namespaces => {
                let inodes = live.raw.namespaces.map(|inode| inode.unwrap_or(0));
                record.put(attr::NAMESPACES, 0, inodes.as_bytes());
                self.put_ids(task, Line::NsPid, attr::NSPIDS, record);
            }
            Group::Cgroup => put_cgroup(task, record),
            Group::Io => {
                if let Some(numbers) = task.parsed(Files::IO, process::io) {
                    record.put(attr::IO, 0, numbers.map(U64::new).as_bytes());
                }
            }
            Group::Signals => put_signals(task, record),
            Group::Limits => {
                if let Some(limits) = task.parsed(Files::LIMITS, process::limits) {
                    let limits = limits.map(|(soft, hard)| [soft, hard].map(U64::new));
                    record.put(attr::LIMITS, 0, limits.as_bytes());
                }
            }
            Group::Env => put_text_of_memory(live, Files::ENVIRON, attr::ENV, record),
            Group::Paths => put_paths(live, record),
            Group::Fds => {
                let status = live.status.as_ref();
                let fds = record::Fds {
                    fd_count: U32::new(live.raw.fd_count.unwrap_or(0)),
                    fd_table_size: U32::new(status.map_or(0, |status| status.id(Line::FdSize))),
                };
                record.put(attr::FDS, 0, fds.as_bytes());
            }
            Group::Audit => put_audit(task, record),
            Group::Layout => {
                put_layout(live, record);
                if let Some(personality) = task.parsed(Files::PERSONALITY, process::mask) {
                    record.put(attr::PERSONALITY, 0, &personality.to_ne_bytes());
                }
            }
            Group::Text => {
                if let Ok(text) = task.raw.text(Files::WCHAN) {
                    record.put(attr::WCHAN, 0, process::wchan(text));
                }
                if let Ok(text) = task.raw.text(Files::SECURITY_LABEL) {
                    record.put(attr::SECURITY_LABEL, 0, process::security_label(text));
                }
                if let Ok(text) = task.raw.text(Files::CGROUP) {
                    record.put(attr::CGROUPS, 0, process::cgroups(text));
                }
            }
            // The handle makes these after all others.
            Group::Rollup | Group::Derived => {}
        }
    }

    fn put_ids(&mut self, task: &Task<'_>, line: Line, kind: u16, record: &mut Writer<'_>) {
        if let Some(status) = task.status_with(line) {
            record.put(kind, 0, self.list(status.ids(line).map(u32::to_ne_bytes)));
        }
    }

    fn put_cpu(&mut self, plan: &Plan, task: &Task<'_>, record: &mut Writer<'_>) {
        let mut cpu = record::Cpu::default();
        if let Some(stat) = &task.stat {
            // The kernel has already scaled these two. With a run time of 0, readers of the record
            // take the values of `prev_*`.
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
            // Few queries ask for these fields, and parsing the text up to them takes long.
            let late = [Field::BlockDelayNs, Field::GuestNs, Field::CguestNs];
            if late.into_iter().any(|field| plan.fields.contains(field)) {
                let late = stat.late_numbers();
                let ns = |number| U64::new(self.nanoseconds(late.get(number).unwrap_or(0)));
                cpu.block_delay_ns = ns(42);
                cpu.guest_ns = ns(43);
                cpu.cguest_ns = ns(44);
            }
        }
        if let Some([runtime, run_delay, timeslices]) = task.parsed(Files::SCHEDSTAT, process::schedstat) {
            cpu.runtime_ns = U64::new(runtime);
            cpu.run_delay_ns = U64::new(run_delay);
            cpu.timeslices_count = U64::new(timeslices);
        }
        if let Some(slack) = task.parsed(Files::TIMERSLACK_NS, process::number::<i64>) {
            cpu.timer_slack_ns = U64::new(slack.unsigned_abs());
        }
        if let Some(status) = &task.status {
            let number = |line| U64::new(status.number(line));
            cpu.voluntary_switches = number(Line::Voluntary);
            cpu.involuntary_switches = number(Line::Involuntary);
        }
        record.put(attr::CPU, 0, cpu.as_bytes());
        if let Some(status) = task.status_with(Line::CpusAllowed) {
            record.put(attr::AFFINITY, 0, self.list(status.processors().map(u64::to_ne_bytes)));
        }
    }

    /// Records which fields are absent for reasons of their own. Returns whether there are any.
    fn put_absent(&mut self, plan: &Plan, (task, live): (&Task<'_>, &Task<'_>), record: &mut Writer<'_>) -> bool {
        // Nearly all tasks have everything.
        if missing::has_all(plan, task) && missing::has_all(plan, live) {
            return false;
        }
        let late = live.stat.as_ref().map(Stat::late_numbers);
        let absent = plan.fields.iter().filter_map(|field| {
            let task = if field.is_shared_by_threads() { live } else { task };
            if task.no_memory && field.needs_memory() {
                return None;
            }
            let reason = missing::reason(field, task, late)?;
            let entry = AbsentField {
                field: U16::new(field as u16),
                reason: U16::new(reason as u16),
            };
            let mut bytes = [0; size_of::<AbsentField>()];
            bytes.copy_from_slice(entry.as_bytes());
            Some(bytes)
        });
        let absent = self.list(absent);
        if !absent.is_empty() {
            record.put(attr::ABSENT, 0, absent);
        }
        !absent.is_empty()
    }
}

fn put_base(task: &Task<'_>, record: &mut Writer<'_>) {
    let mut base = record::Base::default();
    if let Some(status) = &task.status {
        let id = |line| U32::new(status.id(line));
        base.tracer_pid = id(Line::TracerPid);
        base.ppid = id(Line::Ppid);
        base.threads_count = id(Line::Threads);
        base.state = status.state().unwrap_or_default();
    }
    let mut name: &[u8] = b"";
    if let Some(stat) = &task.stat {
        base.ppid = U32::new(stat.ppid);
        base.pgid = U32::new(stat.pgid);
        base.sid = U32::new(stat.sid);
        base.exit_signal = I32::new(stat.exit_signal);
        base.flags = U32::new(stat.flags);
        base.threads_count = U32::new(stat.threads_count);
        base.state = stat.state;
        name = stat.comm;
    }
    // The last byte is for the NUL that ends the name.
    let short = name.len().min(base.comm.len() - 1);
    base.comm[..short].copy_from_slice(&name[..short]);
    record.put(attr::BASE, 0, base.as_bytes());
    if name.len() > short {
        record.put(attr::NAME, 0, name);
    }
}

fn put_tty(task: &Task<'_>, record: &mut Writer<'_>) {
    if let Some(stat) = &task.stat {
        let tty = record::Tty {
            tty_nr: U32::new(stat.tty_nr),
            tpgid: I32::new(stat.tpgid),
        };
        record.put(attr::TTY, 0, tty.as_bytes());
    }
}

fn put_cred(task: &Task<'_>, record: &mut Writer<'_>) {
    let Some(status) = &task.status else { return };
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

fn put_faults(task: &Task<'_>, record: &mut Writer<'_>) {
    if let Some(stat) = &task.stat {
        let faults = record::Faults {
            min_faults: U64::new(stat.min_faults),
            maj_faults: U64::new(stat.maj_faults),
            child_min_faults: U64::new(stat.child_min_faults),
            child_maj_faults: U64::new(stat.child_maj_faults),
        };
        record.put(attr::FAULTS, 0, faults.as_bytes());
    }
}

fn put_mem(task: &Task<'_>, record: &mut Writer<'_>) {
    let Some(status) = task.status_with(Line::VmSize) else {
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

/// A text from the task's memory. For a task without memory it is empty, and is left out.
fn put_text_of_memory(task: &Task<'_>, file: Files, kind: u16, record: &mut Writer<'_>) {
    match task.raw.text(file) {
        Ok(b"") if task.no_memory => {}
        Ok(text) => record.put(kind, 0, text),
        Err(_) => {}
    }
}

fn put_oom(task: &Task<'_>, record: &mut Writer<'_>) {
    let number = |file| I32::new(task.parsed(file, process::number).unwrap_or(0));
    let oom = record::Oom {
        oom_score_adj: number(Files::OOM_SCORE_ADJ),
        oom_score: number(Files::OOM_SCORE),
    };
    record.put(attr::OOM, 0, oom.as_bytes());
}

fn put_cgroup(task: &Task<'_>, record: &mut Writer<'_>) {
    let cgroup_id = U64::new(task.raw.cgroup_id.unwrap_or(0));
    record.put(attr::CGROUP, 0, record::Cgroup { cgroup_id }.as_bytes());
    if let Some(path) = task.parsed(Files::CGROUP, process::cgroup) {
        record.put(attr::CGROUP_PATH, 0, path);
    }
}

fn put_signals(task: &Task<'_>, record: &mut Writer<'_>) {
    let Some(status) = &task.status else { return };
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

fn put_paths(task: &Task<'_>, record: &mut Writer<'_>) {
    for ((_, _, kind), path) in PATHS.into_iter().zip(task.raw.paths) {
        if let Ok(path) = path {
            record.put(kind, 0, path);
        }
    }
    if let Some(status) = task.status_with(Line::Umask) {
        record.put(attr::UMASK, 0, &status.id(Line::Umask).to_ne_bytes());
    }
}

fn put_audit(task: &Task<'_>, record: &mut Writer<'_>) {
    let number = |file| U32::new(task.parsed(file, process::number).unwrap_or(0));
    let audit = record::Audit {
        loginuid: number(Files::LOGINUID),
        audit_session: number(Files::SESSIONID),
    };
    record.put(attr::AUDIT, 0, audit.as_bytes());
}

fn put_layout(task: &Task<'_>, record: &mut Writer<'_>) {
    if let Some(stat) = task.stat.as_ref().filter(|stat| stat.has_memory()) {
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
}
