//! The format specifiers of ps(1): one table.
//!
//! A row has the name and header that `ps L` lists, and everything needed to show the specifier:
//! width, alignment, the fields that it is made from, and how its text is made. In JSON, CSV and
//! `--where` a specifier stands for its fields.

use taskdiag::Field::{self, *};
use taskdiag::UnknownField;

use super::cell::Cell;

/// The alignment of a column, and what happens to text that is too wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Justify {
    /// Left. Text that is too wide is cut, except in the last column.
    Left,
    /// The same for names of users and groups. A name that is cut ends with `+`.
    Name,
    /// Left. Text that is too wide shifts the rest of the line.
    Whole,
    /// Right. A number that is too wide shifts the rest of the line.
    Right,
    /// Right in this many characters, also if the column has others.
    RightIn(usize),
}

/// Which rows have a value if threads are listed below their process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Processes. Threads have a dash.
    Process,
    /// Threads. Processes have a dash.
    Thread,
    Both,
}

/// The width of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// This many characters.
    Fixed(usize),
    /// A set of signals: [`WIDE_SETS`] more where the screen has room.
    Signals,
    /// The digits of `kernel.pid_max`.
    Pid,
}

/// The width of a column with sets of signals, and how much wider it is if all bits are shown.
pub const SET: usize = 9;
pub const WIDE_SETS: usize = 7;

/// How tasks are sorted by a specifier.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// By the value of its first field.
    Field,
    Number(fn(&mut Cell<'_>) -> Option<i128>),
    /// By the text that is shown.
    Text,
}

/// Appends the text of a cell.
type Show = fn(&mut Cell<'_>);

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Specifier {
    pub name: &'static str,
    pub header: &'static str,
    pub width: Width,
    /// Its alignment.
    pub justify: Justify,
    /// Which rows have a value.
    pub level: Level,
    /// The fields that its text is made from. The first one is its sort key with [`Order::Field`].
    pub fields: &'static [Field],
    /// Additional fields that its text is made from.
    pub besides: &'static [Field],
    /// The fields that it stands for in JSON and CSV.
    pub stands_for: &'static [Field],
    /// Appends its text.
    pub show: Show,
    /// How tasks are sorted by it.
    pub order: Order,
}

impl Specifier {
    /// All fields that it needs.
    pub fn needs(&self) -> impl Iterator<Item = Field> {
        self.fields.iter().chain(self.besides).copied()
    }

    pub fn named(name: &str) -> Option<&'static Specifier> {
        // Letters alone are others in capitals.
        let is_meant = |has: &str| has == name || name.len() > 1 && has.eq_ignore_ascii_case(name);
        TABLE.iter().find(|specifier| is_meant(specifier.name))
    }

    const fn besides(self, besides: &'static [Field]) -> Specifier {
        Specifier { besides, ..self }
    }

    const fn for_fields(self, stands_for: &'static [Field]) -> Specifier {
        Specifier { stands_for, ..self }
    }

    const fn ordered(self, order: Order) -> Specifier {
        Specifier { order, ..self }
    }

    const fn of_process(self) -> Specifier {
        Specifier {
            level: Level::Process,
            ..self
        }
    }

    const fn of_thread(self) -> Specifier {
        Specifier {
            level: Level::Thread,
            ..self
        }
    }

    const fn whole(self) -> Specifier {
        Specifier {
            justify: Justify::Whole,
            ..self
        }
    }
}

/// Left-aligned text.
const fn text(
    name: &'static str,
    header: &'static str,
    width: usize,
    fields: &'static [Field],
    show: Show,
) -> Specifier {
    Specifier {
        name,
        header,
        width: Width::Fixed(width),
        justify: Justify::Left,
        level: Level::Both,
        fields,
        besides: &[],
        stands_for: fields,
        show,
        order: Order::Text,
    }
}

/// A right-aligned number.
const fn number(
    name: &'static str,
    header: &'static str,
    width: usize,
    fields: &'static [Field],
    show: Show,
) -> Specifier {
    Specifier {
        justify: Justify::Right,
        order: Order::Field,
        ..text(name, header, width, fields, show)
    }
}

/// A process id.
const fn id(name: &'static str, header: &'static str, fields: &'static [Field], show: Show) -> Specifier {
    Specifier {
        width: Width::Pid,
        ..number(name, header, 0, fields, show)
    }
}

/// The name of a user or a group.
const fn name(name: &'static str, header: &'static str, fields: &'static [Field], show: Show) -> Specifier {
    Specifier {
        justify: Justify::Name,
        ..text(name, header, 8, fields, show)
    }
}

/// A set of signals.
const fn signals(name: &'static str, header: &'static str, fields: &'static [Field], show: Show) -> Specifier {
    Specifier {
        width: Width::Signals,
        ..number(name, header, 0, fields, show)
    }
}

/// A specifier that has no value on Linux.
const fn dash(name: &'static str, header: &'static str, width: usize) -> Specifier {
    number(name, header, width, &[], |c| c.dash()).ordered(Order::Text)
}

const ARGS: &[Field] = &[Comm, State];
const CPU: &[Field] = &[UtimeNs, StimeNs];
const CPU_LIFE: &[Field] = &[UtimeNs, StimeNs, StartNs];
const DEAD_CHILDREN: &[Field] = &[CutimeNs, CstimeNs];
const CLASS: &[Field] = &[Policy];
const STARTED: &[Field] = &[StartNs];
const LONG_DATE: &str = "%a %b %e %H:%M:%S %Y";
const TTY: &[Field] = &[TtyNr];
const ADDRESSES: &[Field] = &[StartCode, EndCode];
const CODE: &[Field] = &[TextBytes];
const DATA: &[Field] = &[VsizeBytes, TextBytes];
const BY_CPU_TIME: Order = Order::Number(|c| c.cpu_time().ok().map(i128::from));
const BY_CPU_SHARE: Order = Order::Number(|c| c.cpu_share(1_000_000).ok().map(i128::from));
/// No limit is larger than any limit.
const BY_RSS_LIMIT: Order = Order::Number(|c| Some(c.rss_limit_bytes()?.map_or(i128::MAX, i128::from)));
const BY_AGE: Order = Order::Number(|c| c.elapsed_ns().ok().map(i128::from));

const BY_FOREGROUND: Order = Order::Number(|c| c.foreground().ok().map(i128::from));
const BY_SIZE: Order = Order::Number(|c| c.sum(DataBytes, StackBytes).ok().map(i128::from));

/// All specifiers, in the order of their names.
#[rustfmt::skip]
pub static TABLE: &[Specifier] = &[
    number("%cpu", "%CPU", 4, CPU_LIFE, |c| c.percent_cpu()).besides(DEAD_CHILDREN).ordered(BY_CPU_SHARE).for_fields(&[CpuPercent]),
    number("%mem", "%MEM", 4, &[RssBytes], |c| c.percent_memory()).of_process().for_fields(&[MemPercent]),
    dash("addr", "ADDR", 4),
    dash("alarm", "ALARM", 5),
    text("args", "COMMAND", 27, &[Cmdline], |c| c.args()).besides(ARGS).of_process(),
    number("atime", "TIME", 8, CPU, |c| c.time()).besides(DEAD_CHILDREN).ordered(BY_CPU_TIME),
    signals("blocked", "BLOCKED", &[SigBlocked], |c| c.mask(SigBlocked)).of_thread(),
    number("bsdstart", "START", 6, STARTED, |c| c.start(" %H:%M", "%b %e")).for_fields(&[StartTime]),
    number("bsdtime", "TIME", 6, CPU, |c| c.bsd_time()).besides(DEAD_CHILDREN).ordered(BY_CPU_TIME),
    number("c", "C", 2, CPU_LIFE, |c| c.capped_cpu(2)).besides(DEAD_CHILDREN).ordered(BY_CPU_SHARE).for_fields(&[CpuPercent]),
    signals("caught", "CAUGHT", &[SigCaught], |c| c.mask(SigCaught)).of_thread(),
    text("cgname", "CGNAME", 27, &[Cgroup], |c| c.cgroup()).of_process(),
    text("cgroup", "CGROUP", 27, &[Cgroup], |c| c.cgroup()).of_process(),
    number("cgroupns", "CGROUPNS", 10, &[NsCgroup], |c| c.number(NsCgroup)),
    text("class", "CLS", 3, CLASS, |c| c.class()).of_thread().ordered(Order::Field).whole(),
    number("cls", "CLS", 3, CLASS, |c| c.class()).of_thread(),
    text("cmd", "CMD", 27, &[Cmdline], |c| c.args()).besides(ARGS).of_process(),
    text("comm", "COMMAND", 15, &[Comm], |c| c.comm()).of_process(),
    text("command", "COMMAND", 27, &[Cmdline], |c| c.args()).besides(ARGS).of_process(),
    text("context", "CONTEXT", 31, &[SecurityLabel], |c| c.text(SecurityLabel)),
    number("cp", "CP", 3, CPU_LIFE, |c| c.capped_cpu(3)).besides(DEAD_CHILDREN).ordered(BY_CPU_SHARE).for_fields(&[CpuPercent]),
    number("cpuid", "CPUID", 5, &[Processor], |c| c.number(Processor)).of_thread(),
    number("cputime", "TIME", 8, CPU, |c| c.time()).besides(DEAD_CHILDREN).ordered(BY_CPU_TIME),
    number("cputimes", "TIME", 8, CPU, |c| c.seconds()).besides(DEAD_CHILDREN).ordered(BY_CPU_TIME),
    number("cuc", "%CUC", 7, &[UtimeNs, StimeNs, CutimeNs, CstimeNs, StartNs], |c| c.fine_percent_cpu(true)).ordered(BY_CPU_SHARE),
    number("cuu", "%CUU", 6, CPU_LIFE, |c| c.fine_percent_cpu(false)).ordered(BY_CPU_SHARE).for_fields(&[CpuPercent]),
    text("docker", "DOCKER", 12, &[ContainerId, ContainerRuntime], |c| c.docker()).of_process(),
    number("drs", "DRS", 5, DATA, |c| c.data_size()).besides(ADDRESSES).of_process(),
    number("dsiz", "DSIZ", 4, DATA, |c| c.data_size()).besides(ADDRESSES).of_process(),
    number("egid", "EGID", 5, &[Egid], |c| c.number(Egid)),
    name("egroup", "EGROUP", &[Egid], |c| c.group(Egid)).for_fields(&[Group]),
    dash("eip", "EIP", 16),
    text("environ", "ENVIRON", 27, &[Environ], |c| c.environ()).of_process(),
    dash("esp", "ESP", 16),
    number("etime", "ELAPSED", 11, STARTED, |c| c.elapsed()).ordered(BY_AGE).for_fields(&[ElapsedNs]),
    number("etimes", "ELAPSED", 7, STARTED, |c| c.elapsed_seconds()).ordered(BY_AGE).for_fields(&[ElapsedNs]),
    number("euid", "EUID", 5, &[Euid], |c| c.number(Euid)),
    name("euser", "EUSER", &[Euid], |c| c.user(Euid)).for_fields(&[User]),
    text("exe", "EXE", 27, &[Exe], |c| c.text(Exe)).of_process(),
    number("f", "F", 1, &[Flags], |c| c.kernel_flags()),
    number("fds", "FDS", 4, &[FdCount], |c| c.number(FdCount)).of_process(),
    number("fgid", "FGID", 5, &[Fsgid], |c| c.number(Fsgid)),
    name("fgroup", "FGROUP", &[Fsgid], |c| c.group(Fsgid)),
    number("flag", "F", 1, &[Flags], |c| c.kernel_flags()),
    number("flags", "F", 1, &[Flags], |c| c.kernel_flags()),
    text("fname", "COMMAND", 8, &[Comm], |c| c.short_comm()).of_process(),
    number("fsgid", "FSGID", 5, &[Fsgid], |c| c.number(Fsgid)),
    name("fsgroup", "FSGROUP", &[Fsgid], |c| c.group(Fsgid)),
    number("fsuid", "FSUID", 5, &[Fsuid], |c| c.number(Fsuid)),
    name("fsuser", "FSUSER", &[Fsuid], |c| c.user(Fsuid)),
    number("fuid", "FUID", 5, &[Fsuid], |c| c.number(Fsuid)),
    name("fuser", "FUSER", &[Fsuid], |c| c.user(Fsuid)),
    number("gid", "GID", 5, &[Egid], |c| c.number(Egid)),
    name("group", "GROUP", &[Egid], |c| c.group(Egid)).for_fields(&[Group]),
    signals("ignored", "IGNORED", &[SigIgnored], |c| c.mask(SigIgnored)).of_thread(),
    number("intpri", "PRI", 3, &[Priority], |c| c.priority(60, 1)).of_thread(),
    number("ipcns", "IPCNS", 10, &[NsIpc], |c| c.number(NsIpc)),
    text("label", "LABEL", 31, &[SecurityLabel], |c| c.text(SecurityLabel)),
    number("lastcpu", "C", 3, &[Processor], |c| c.number(Processor)).of_thread(),
    number("lim", "LIM", 5, &[Limits], |c| c.rss_limit()).ordered(BY_RSS_LIMIT),
    text("longtname", "TTY", 8, TTY, |c| c.terminal()).besides(&[Tty]).of_process().ordered(Order::Field).for_fields(&[Tty]).whole(),
    text("lsession", "SESSION", 11, &[Cgroup], |c| c.login_session()).whole(),
    number("lstart", "STARTED", 24, STARTED, |c| c.start(LONG_DATE, LONG_DATE)).for_fields(&[StartTime]),
    number("luid", "LUID", 5, &[Loginuid], |c| c.login_user()),
    id("lwp", "LWP", &[Tid], |c| c.number(Tid)).of_thread(),
    text("lxc", "LXC", 8, &[ContainerName, ContainerRuntime], |c| c.lxc()).whole(),
    number("m_drs", "DRS", 5, DATA, |c| c.data_size()).besides(ADDRESSES).of_process(),
    number("m_size", "SIZE", 5, &[VsizeBytes], |c| c.bytes(VsizeBytes)).of_process(),
    number("m_trs", "TRS", 5, CODE, |c| c.code_size()).besides(ADDRESSES).of_process(),
    text("machine", "MACHINE", 31, &[Cgroup], |c| c.machine()).whole(),
    number("maj_flt", "MAJFL", 6, &[MajFaults], |c| c.faults(MajFaults, ChildMajFaults)).besides(&[ChildMajFaults]),
    number("majflt", "MAJFLT", 6, &[MajFaults], |c| c.faults(MajFaults, ChildMajFaults)).besides(&[ChildMajFaults]),
    number("min_flt", "MINFL", 6, &[MinFaults], |c| c.faults(MinFaults, ChildMinFaults)).besides(&[ChildMinFaults]),
    number("minflt", "MINFLT", 6, &[MinFaults], |c| c.faults(MinFaults, ChildMinFaults)).besides(&[ChildMinFaults]),
    number("mntns", "MNTNS", 10, &[NsMnt], |c| c.number(NsMnt)),
    number("netns", "NETNS", 10, &[NsNet], |c| c.number(NsNet)),
    number("ni", "NI", 3, &[Nice], |c| c.nice()).besides(CLASS).of_thread(),
    number("nice", "NI", 3, &[Nice], |c| c.nice()).besides(CLASS).of_thread(),
    number("nlwp", "NLWP", 4, &[ThreadsCount], |c| c.number(ThreadsCount)).of_process(),
    number("numa", "NUMA", 4, &[Processor], |c| c.numa_node()),
    dash("nwchan", "WCHAN", 6),
    number("oom", "OOM", 4, &[OomScore], |c| c.number(OomScore)).of_thread(),
    number("oomadj", "OOMADJ", 5, &[OomScoreAdj], |c| c.number(OomScoreAdj)).of_thread(),
    number("opri", "PRI", 3, &[Priority], |c| c.priority(60, 1)).of_thread(),
    number("ouid", "OWNER", 5, &[Cgroup], |c| c.session_owner()).ordered(Order::Text).whole(),
    number("pagein", "PAGEIN", 6, &[MajFaults], |c| c.faults(MajFaults, ChildMajFaults)).besides(&[ChildMajFaults]),
    number("pcpu", "%CPU", 4, CPU_LIFE, |c| c.percent_cpu()).besides(DEAD_CHILDREN).ordered(BY_CPU_SHARE).for_fields(&[CpuPercent]),
    signals("pending", "PENDING", &[SigSharedPending], |c| c.mask(SigSharedPending)),
    id("pgid", "PGID", &[Pgid], |c| c.number(Pgid)).of_process(),
    id("pgrp", "PGRP", &[Pgid], |c| c.number(Pgid)).of_process(),
    id("pid", "PID", &[Pid], |c| c.number(Pid)).of_process(),
    number("pidns", "PIDNS", 10, &[NsPid], |c| c.number(NsPid)),
    number("pmem", "%MEM", 4, &[RssBytes], |c| c.percent_memory()).of_process().for_fields(&[MemPercent]),
    text("policy", "POL", 3, CLASS, |c| c.class()).of_thread().ordered(Order::Field).whole(),
    id("ppid", "PPID", &[Ppid], |c| c.number(Ppid)).of_process(),
    number("pri", "PRI", 3, &[Priority], |c| c.priority(39, -1)).of_thread(),
    number("pri_api", "API", 3, &[Priority], |c| c.priority(-1, -1)).of_thread(),
    number("pri_bar", "BAR", 3, &[Priority], |c| c.priority(1, 1)).of_thread(),
    number("pri_baz", "BAZ", 3, &[Priority], |c| c.priority(100, 1)).of_thread(),
    number("pri_foo", "FOO", 3, &[Priority], |c| c.priority(-20, 1)).of_thread(),
    number("priority", "PRI", 3, &[Priority], |c| c.priority(0, 1)).of_thread(),
    number("psr", "PSR", 3, &[Processor], |c| c.number(Processor)).of_thread(),
    number("pss", "PSS", 5, &[PssBytes], |c| c.kibibytes(PssBytes)),
    number("rbytes", "RBYTES", 6, &[ReadBytes], |c| c.number(ReadBytes)).of_thread(),
    number("rchars", "RCHARS", 6, &[ReadChars], |c| c.number(ReadChars)).of_thread(),
    number("rgid", "RGID", 5, &[Gid], |c| c.number(Gid)),
    name("rgroup", "RGROUP", &[Gid], |c| c.group(Gid)),
    number("rops", "ROPS", 5, &[ReadSyscalls], |c| c.number(ReadSyscalls)).of_thread(),
    number("rss", "RSS", 5, &[RssBytes], |c| c.kibibytes(RssBytes)).of_process(),
    number("rssize", "RSS", 5, &[RssBytes], |c| c.kibibytes(RssBytes)).of_process(),
    number("rsz", "RSZ", 5, &[RssBytes], |c| c.kibibytes(RssBytes)).of_process(),
    number("rtprio", "RTPRIO", 6, &[RtPriority], |c| c.rt_priority()).besides(CLASS).of_thread(),
    number("ruid", "RUID", 5, &[Uid], |c| c.number(Uid)),
    name("ruser", "RUSER", &[Uid], |c| c.user(Uid)),
    text("s", "S", 1, &[State], |c| c.state()).of_thread(),
    number("sched", "SCH", 3, CLASS, |c| c.number(Policy)).of_thread(),
    text("seat", "SEAT", 11, &[Cgroup], |c| c.seat()).whole(),
    id("sess", "SESS", &[Sid], |c| c.number(Sid)).of_process(),
    id("session", "SESS", &[Sid], |c| c.number(Sid)).of_process(),
    number("sgi_p", "P", 1, &[Processor], |c| c.running_on()).besides(&[State]).of_thread(),
    number("sgi_rss", "RSS", 4, &[RssBytes], |c| c.kibibytes(RssBytes)).of_process().whole(),
    number("sgid", "SGID", 5, &[Sgid], |c| c.number(Sgid)),
    name("sgroup", "SGROUP", &[Sgid], |c| c.group(Sgid)),
    id("sid", "SID", &[Sid], |c| c.number(Sid)).of_process(),
    signals("sig", "PENDING", &[SigSharedPending], |c| c.mask(SigSharedPending)),
    signals("sig_block", "BLOCKED", &[SigBlocked], |c| c.mask(SigBlocked)).of_thread(),
    signals("sig_catch", "CATCHED", &[SigCaught], |c| c.mask(SigCaught)).of_thread(),
    signals("sig_ignore", "IGNORED", &[SigIgnored], |c| c.mask(SigIgnored)).of_thread(),
    signals("sig_pend", "SIGNAL", &[SigSharedPending], |c| c.mask(SigSharedPending)),
    signals("sigcatch", "CAUGHT", &[SigCaught], |c| c.mask(SigCaught)).of_thread(),
    signals("sigignore", "IGNORED", &[SigIgnored], |c| c.mask(SigIgnored)).of_thread(),
    signals("sigmask", "BLOCKED", &[SigBlocked], |c| c.mask(SigBlocked)).of_thread(),
    number("size", "SIZE", 5, &[DataBytes, StackBytes], |c| c.sum_kibibytes(DataBytes, StackBytes)).of_process().ordered(BY_SIZE),
    text("slice", "SLICE", 31, &[Slice], |c| c.text(Slice)).whole(),
    id("spid", "SPID", &[Tid], |c| c.number(Tid)).of_thread(),
    number("stackp", "STACKP", 16, &[StartStack], |c| c.address(StartStack)).of_process(),
    number("start", "STARTED", 8, STARTED, |c| c.start("%H:%M:%S", "%b %e")).for_fields(&[StartTime]),
    number("start_stack", "STACKP", 16, &[StartStack], |c| c.address(StartStack)).of_process(),
    number("start_time", "START", 5, STARTED, |c| c.start_time()).for_fields(&[StartTime]),
    text("stat", "STAT", 4, &[State], |c| c.stat()).besides(&[Nice, LockedBytes, Pid, Sid, ThreadsCount, Pgid, Tpgid]).of_thread().ordered(Order::Field).for_fields(&[Stat]).whole(),
    text("state", "S", 1, &[State], |c| c.state()).of_thread(),
    number("stime", "STIME", 5, STARTED, |c| c.start_time()).for_fields(&[StartTime]),
    number("suid", "SUID", 5, &[Suid], |c| c.number(Suid)),
    text("supgid", "SUPGID", 20, &[Groups], |c| c.group_ids()),
    text("supgrp", "SUPGRP", 40, &[Groups], |c| c.group_names()),
    name("suser", "SUSER", &[Suid], |c| c.user(Suid)),
    number("svgid", "SVGID", 5, &[Sgid], |c| c.number(Sgid)),
    name("svgroup", "SVGROUP", &[Sgid], |c| c.group(Sgid)),
    number("svuid", "SVUID", 5, &[Suid], |c| c.number(Suid)),
    name("svuser", "SVUSER", &[Suid], |c| c.user(Suid)),
    number("sz", "SZ", 5, &[VsizeBytes], |c| c.pages(VsizeBytes)).of_process(),
    id("tgid", "TGID", &[Pid], |c| c.number(Pid)).of_process(),
    number("thcount", "THCNT", 5, &[ThreadsCount], |c| c.number(ThreadsCount)).of_process(),
    id("tid", "TID", &[Tid], |c| c.number(Tid)).of_thread(),
    number("time", "TIME", 8, CPU, |c| c.time()).besides(DEAD_CHILDREN).ordered(BY_CPU_TIME),
    number("timens", "TIMENS", 10, &[NsTime], |c| c.number(NsTime)),
    number("times", "TIME", 8, CPU, |c| c.seconds()).besides(DEAD_CHILDREN).ordered(BY_CPU_TIME),
    dash("tmout", "TMOUT", 5),
    text("tname", "TTY", 8, TTY, |c| c.terminal()).besides(&[Tty]).of_process().ordered(Order::Field).for_fields(&[Tty]).whole(),
    id("tpgid", "TPGID", &[Tpgid], |c| c.foreground_group()).of_process().ordered(BY_FOREGROUND),
    number("trs", "TRS", 4, CODE, |c| c.code_size()).besides(ADDRESSES).of_process(),
    number("trss", "TRSS", 4, CODE, |c| c.code_size()).besides(ADDRESSES).of_process(),
    signals("tsig", "PENDING", &[SigPending], |c| c.mask(SigPending)),
    number("tsiz", "TSIZ", 4, CODE, |c| c.code_size()).besides(ADDRESSES).of_process(),
    text("tt", "TT", 8, TTY, |c| c.terminal()).besides(&[Tty]).of_process().ordered(Order::Field).for_fields(&[Tty]).whole(),
    text("tty", "TT", 8, TTY, |c| c.terminal()).besides(&[Tty]).of_process().ordered(Order::Field).for_fields(&[Tty]).whole(),
    text("tty4", "TTY", 4, TTY, |c| c.short_terminal()).besides(&[Tty]).of_process().ordered(Order::Field).for_fields(&[Tty]).whole(),
    text("tty8", "TTY", 8, TTY, |c| c.terminal()).besides(&[Tty]).of_process().ordered(Order::Field).for_fields(&[Tty]).whole(),
    text("ucmd", "CMD", 15, &[Comm], |c| c.comm()).of_process(),
    text("ucomm", "COMMAND", 15, &[Comm], |c| c.comm()).of_process(),
    number("uid", "UID", 5, &[Euid], |c| c.number(Euid)),
    name("uid_hack", "UID", &[Euid], |c| c.user(Euid)).for_fields(&[User]),
    name("uname", "USER", &[Euid], |c| c.user(Euid)).for_fields(&[User]),
    text("unit", "UNIT", 31, &[Unit], |c| c.text(Unit)).whole(),
    name("user", "USER", &[Euid], |c| c.user(Euid)).for_fields(&[User]),
    number("userns", "USERNS", 10, &[NsUser], |c| c.number(NsUser)),
    number("uss", "USS", 5, &[UssBytes], |c| c.kibibytes(UssBytes)).of_process(),
    number("util", "C", 2, CPU_LIFE, |c| c.capped_cpu(2)).besides(DEAD_CHILDREN).ordered(BY_CPU_SHARE).for_fields(&[CpuPercent]),
    number("utsns", "UTSNS", 10, &[NsUts], |c| c.number(NsUts)),
    text("uunit", "UUNIT", 31, &[UserUnit], |c| c.text(UserUnit)).whole(),
    number("vsize", "VSZ", 6, &[VsizeBytes], |c| c.kibibytes(VsizeBytes)).of_process(),
    number("vsz", "VSZ", 6, &[VsizeBytes], |c| c.kibibytes(VsizeBytes)).of_process(),
    number("wbytes", "WBYTES", 6, &[WriteBytes], |c| c.number(WriteBytes)).of_thread(),
    number("wcbytes", "WCBYTES", 7, &[CancelledWriteBytes], |c| c.number(CancelledWriteBytes)).of_thread(),
    text("wchan", "WCHAN", 6, &[Wchan], |c| c.wait_channel()).of_thread(),
    number("wchars", "WCHARS", 6, &[WriteChars], |c| c.number(WriteChars)).of_thread(),
    text("wname", "WCHAN", 6, &[Wchan], |c| c.wait_channel()).of_thread(),
    number("wops", "WOPS", 5, &[WriteSyscalls], |c| c.number(WriteSyscalls)).of_thread(),
    text("zone", "ZONE", 31, &[SecurityLabel], |c| c.text(SecurityLabel)),
];

/// The field that a specifier stands for in `--where`, or why there is no single field. `None` if
/// there is no such specifier. The option and the heading of containers is one, too.
pub fn field_of(name: &str) -> Option<Result<Field, String>> {
    if name.eq_ignore_ascii_case("container") {
        return Some(Ok(Field::ContainerName));
    }
    let specifier = Specifier::named(name)?;
    Some(match specifier.stands_for {
        [field] => Ok(*field),
        [] => Err(format!("{name} has no value on Linux")),
        fields => {
            let names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
            Err(format!(
                "{name} stands for several fields: use one of {}",
                names.join(", ")
            ))
        }
    })
}

/// The error for a name that is neither a field nor a specifier, with those near it.
pub fn unknown(name: &str) -> UnknownField {
    let fields = Field::ALL.iter().map(|field| field.name());
    let specifiers = TABLE.iter().map(|specifier| specifier.name);
    // One letter is a part of any name.
    UnknownField::new(name, fields.chain(specifiers.filter(|name| name.len() > 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that specifiers with a single field can stand for it in expressions.
    #[test]
    fn specifiers_stand_for_fields_in_expressions() {
        assert_eq!(field_of("rss"), Some(Ok(Field::RssBytes)));
        assert_eq!(field_of("%cpu"), Some(Ok(Field::CpuPercent)));
        assert_eq!(field_of("nosuch"), None);
        let several = field_of("time").expect("a specifier").expect_err("two fields");
        assert!(several.contains("utime_ns, stime_ns"), "{several}");
        assert!(field_of("tmout").is_some_and(|field| field.is_err()));
    }
}
