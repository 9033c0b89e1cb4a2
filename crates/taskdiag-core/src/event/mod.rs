//! Events of processes (fork, exec, exit), and the table of their fields.

pub mod plan;

use std::fmt;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use zerocopy::native_endian::U64;
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::absent::Absent;
use crate::error::{named, Error};
use crate::field::{Field, UnknownField};
pub use crate::record::events as wire;
use crate::record::Net;
use crate::set::Set;
use crate::value::{debug_row, Value};
use plan::EventSource;

/// Which events to deliver, and how.
///
/// ```
/// # mod taskdiag { pub mod events { pub use taskdiag_core::event::{EventKind, Options}; } }
/// use taskdiag::events::{EventKind, Options};
///
/// let ends_of_threads = Options::default().kinds([EventKind::Exit]).threads(true);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    #[doc(hidden)]
    pub kinds: Set<EventKind>,
    #[doc(hidden)]
    pub threads: bool,
    #[doc(hidden)]
    pub source: Option<EventSource>,
    #[doc(hidden)]
    pub ring_bytes: u32,
    #[doc(hidden)]
    pub gather: Duration,
    #[doc(hidden)]
    pub network: Option<Arc<OwnedFd>>,
}

impl Default for Options {
    /// Every event about processes, from any source that works, with a buffer of 4 MiB. Events
    /// gather for 20 ms.
    fn default() -> Options {
        Options {
            kinds: EventKind::ALL.into(),
            threads: false,
            source: None,
            ring_bytes: 4 << 20,
            gather: Duration::from_millis(20),
            network: None,
        }
    }
}

impl Options {
    /// Asks for events of these kinds. Other kinds cost nothing.
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = EventKind>) -> Options {
        self.kinds = kinds.into_iter().collect();
        self
    }

    /// Whether events about threads are delivered too.
    pub fn threads(mut self, threads: bool) -> Options {
        self.threads = threads;
        self
    }

    /// The only source to use. Opening fails if it does not work. `None` chooses one.
    pub fn source(mut self, source: impl Into<Option<EventSource>>) -> Options {
        self.source = source.into();
        self
    }

    /// The size of the buffer for unread events, rounded up to a power of two. The tracepoints
    /// write to a ring: an event takes about 100 bytes, an exec 300. The proc connector writes to a
    /// socket: an event takes up to 1000 bytes.
    pub fn ring_bytes(mut self, bytes: u32) -> Options {
        self.ring_bytes = bytes;
        self
    }

    /// How long `Events::wait` lets events from the tracepoints gather before it returns: waking
    /// the reader for each event would cost more than everything else. Events from the proc
    /// connector are delivered at once, because fields that it does not send must be read from
    /// `/proc` while the process exists.
    pub fn gather(mut self, time: Duration) -> Options {
        self.gather = time;
        self
    }
}

crate::named_enum! {
    /// What happened.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    #[repr(u16)]
    pub enum EventKind {
        /// A process, or a thread, started.
        Fork = wire::FORK => "fork",
        /// A process executed a program.
        Exec = wire::EXEC => "exec",
        /// A process, or a thread, ended.
        Exit = wire::EXIT => "exit",
    }
    /// All kinds.
    pub const ALL;
    /// The name.
    pub fn name;
    impl Display;
    impl Member(ALL);
}

/// Parses a name. The error lists the known names.
impl FromStr for EventKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<EventKind, Error> {
        named(name, EventKind::ALL.into_iter().map(|kind| (kind.name(), kind)))
    }
}

/// Something that happened to a process or a thread. Borrows from the memory to which the kernel
/// wrote it.
///
/// [`pid`](Event::pid) and [`start_ns`](Event::start_ns) identify a process. After a process's fork
/// event, exactly one exit event follows, once all its threads have ended. (Before Linux 6.16, exit
/// events of threads that end at the same time may come after it.) A thread that executes a program
/// takes the process's id as its own: its former thread id has no exit event.
#[derive(Clone, Copy)]
pub struct Event<'a> {
    kind: EventKind,
    header: &'a wire::Header,
    rest: &'a [u8],
}

impl<'a> Event<'a> {
    fn has(&self, flag: u16) -> bool {
        self.header.flags.get() & flag != 0
    }

    /// What happened.
    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// When it happened, in nanoseconds since boot.
    pub fn time_ns(&self) -> u64 {
        self.header.time_ns.get()
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.header.pid.get()
    }

    /// The thread id; in an event about a process, the process id.
    pub fn tid(&self) -> u32 {
        self.header.tid.get()
    }

    /// Whether the event is about one thread of a process with several threads, rather than about
    /// the process.
    pub fn is_thread(&self) -> bool {
        self.has(wire::THREAD)
    }

    /// The process id of the parent; 0 if the parent is not in the reader's pid namespace.
    pub fn ppid(&self) -> Result<u32, Absent> {
        // The connector sends it only with forks and exits.
        if self.kind == EventKind::Exec {
            self.known()?;
        }
        Ok(self.header.ppid.get())
    }

    /// When the process, or the thread, started, in nanoseconds since boot. Negative if it is older
    /// than the zero of the reader's time namespace.
    pub fn start_ns(&self) -> Result<i64, Absent> {
        self.known()?;
        Ok(self.header.start_ns.get() as i64)
    }

    /// The real user id.
    pub fn uid(&self) -> Result<u32, Absent> {
        self.known()?;
        Ok(self.header.uid.get())
    }

    /// The effective user id.
    pub fn euid(&self) -> Result<u32, Absent> {
        self.known()?;
        Ok(self.header.euid.get())
    }

    /// The id of its cgroup in the unified (version 2) hierarchy: the inode of the cgroup's
    /// directory.
    pub fn cgroup_id(&self) -> Result<u64, Absent> {
        self.traced()?;
        match self.header.cgroup_id.get() {
            0 => Err(Absent::Unsupported),
            id => Ok(id),
        }
    }

    /// The name of the executable or thread. It can have any bytes.
    pub fn comm(&self) -> Result<&'a [u8], Absent> {
        self.known()?;
        let comm = &self.header.comm;
        Ok(comm.split(|&byte| byte == 0).next().unwrap_or_default())
    }

    /// Whether it is a kernel thread.
    pub fn kernel_thread(&self) -> Result<bool, Absent> {
        self.known()?;
        Ok(self.has(wire::KERNEL_THREAD))
    }

    /// Fails if the event is from the connector and the rest of it could not be read from `/proc`.
    fn known(&self) -> Result<(), Absent> {
        match (self.has(wire::CONNECTOR), self.has(wire::GONE), self.is_thread()) {
            (true, _, true) => Err(Absent::Unsupported),
            (true, true, false) => Err(Absent::Gone),
            _ => Ok(()),
        }
    }

    /// Fails unless the event is from the tracepoints.
    fn traced(&self) -> Result<(), Absent> {
        self.without(wire::CONNECTOR, Absent::Unsupported)
    }

    /// Fails for this reason if the event has a flag.
    fn without(&self, flag: u16, reason: Absent) -> Result<(), Absent> {
        (!self.has(flag)).then_some(()).ok_or(reason)
    }

    /// What follows the header in an event of this kind.
    fn of_kind(&self, kind: EventKind) -> Result<&'a [u8], Absent> {
        (self.kind == kind).then_some(self.rest).ok_or(Absent::NotApplicable)
    }

    fn fork(&self) -> Result<&'a wire::Fork, Absent> {
        let fork = wire::Fork::ref_from_prefix(self.of_kind(EventKind::Fork)?);
        Ok(fork.map_err(|_| Absent::NotApplicable)?.0)
    }

    /// For the exit of a process: what it sent to other machines, in bytes.
    pub fn net_sent_bytes(&self) -> Result<u64, Absent> {
        self.net(|net| net.net_sent_bytes)
    }

    /// For the exit of a process: what it received from other machines, in bytes.
    pub fn net_received_bytes(&self) -> Result<u64, Absent> {
        self.net(|net| net.net_received_bytes)
    }

    /// For the exit of a process: a member of what it moved through sockets.
    fn net(&self, member: fn(&Net) -> U64) -> Result<u64, Absent> {
        self.process_exit()?;
        self.traced()?;
        Ok(member(self.traffic().ok_or(Absent::NotCounted)?).get())
    }

    fn exit(&self) -> Result<&'a wire::Exit, Absent> {
        let exit = wire::Exit::ref_from_prefix(self.of_kind(EventKind::Exit)?);
        Ok(exit.map_err(|_| Absent::NotApplicable)?.0)
    }

    /// The exit of a process: of its last thread.
    fn process_exit(&self) -> Result<&'a wire::Exit, Absent> {
        self.without(wire::THREAD, Absent::NotApplicable)?;
        self.exit()
    }

    /// The status of an exit by a signal.
    fn killed(&self) -> Result<u32, Absent> {
        let status = self.exit()?.status.get() as u32;
        (status & 0x7f != 0).then_some(status).ok_or(Absent::NotApplicable)
    }

    /// For a fork: the process that called it. It is also the parent, unless it called clone(2)
    /// with `CLONE_PARENT`.
    pub fn caller_pid(&self) -> Result<u32, Absent> {
        let fork = self.fork()?;
        self.traced()?;
        Ok(fork.caller_pid.get())
    }

    /// For a fork: the thread that called it.
    pub fn caller_tid(&self) -> Result<u32, Absent> {
        let fork = self.fork()?;
        self.traced()?;
        Ok(fork.caller_tid.get())
    }

    /// For an exec: the file name that was passed to execve(2); for a script, the name of the
    /// script. It can have any bytes.
    pub fn filename(&self) -> Result<&'a [u8], Absent> {
        let name = self.of_kind(EventKind::Exec)?;
        self.traced()?;
        self.without(wire::CUT, Absent::Truncated)?;
        Ok(name)
    }

    /// For an exit: the exit code, unless a signal killed the process.
    pub fn exit_code(&self) -> Result<u32, Absent> {
        let status = self.exit()?.status.get() as u32;
        (status & 0x7f == 0)
            .then_some(status >> 8 & 0xff)
            .ok_or(Absent::NotApplicable)
    }

    /// For an exit: the signal that killed the process, if one did.
    pub fn term_signal(&self) -> Result<u32, Absent> {
        Ok(self.killed()? & 0x7f)
    }

    /// For an exit by a signal: whether the kernel wrote a core file.
    pub fn core_dumped(&self) -> Result<bool, Absent> {
        Ok(self.killed()? & 0x80 != 0)
    }

    /// For the exit of a process by a signal: whether the OOM killer had chosen it, for lack of
    /// memory of the machine or of a cgroup. Of processes that share their memory, the kernel kills
    /// all, and chooses one.
    pub fn oom_killed(&self) -> Result<bool, Absent> {
        self.process_exit().and(self.killed())?;
        self.traced()?;
        Ok(self.has(wire::OOM_VICTIM))
    }

    /// For an exit: the time that this thread, or all threads of this process, spent on a
    /// processor, in nanoseconds. This is the time that wait4(2) reports for a process, without its
    /// children and without the time since the kernel last updated the value, which is at most a
    /// clock tick for each thread that ends last.
    ///
    /// [`Absent::Truncated`] if it could not be summed: more than 4096 threads end at the same
    /// time, or their tracer has not waited for them.
    pub fn runtime_ns(&self) -> Result<u64, Absent> {
        let exit = self.exit()?;
        self.traced()?;
        self.without(wire::NO_RUNTIME, Absent::Truncated)?;
        Ok(exit.runtime_ns.get())
    }

    /// For the exit of a process: its peak resident memory in bytes, as in `ru_maxrss` of
    /// getrusage(2). Memory from before an exec counts too.
    pub fn peak_rss_bytes(&self) -> Result<u64, Absent> {
        let exit = self.process_exit()?;
        self.traced()?;
        self.without(wire::KERNEL_THREAD, Absent::NoMemory)?;
        Ok(exit.peak_rss_pages.get().saturating_mul(exit.page_bytes().into()))
    }
}

/// For the other crates of this project.
#[doc(hidden)]
impl<'a> Event<'a> {
    /// Decodes the bytes that a source wrote. `None` if they are not an event.
    pub fn decode(bytes: &'a [u8]) -> Option<Event<'a>> {
        let (header, rest) = wire::split(bytes)?;
        let kind = EventKind::ALL
            .into_iter()
            .find(|&kind| kind as u16 == header.kind.get())?;
        let min_len = match kind {
            EventKind::Fork => size_of::<wire::Fork>(),
            EventKind::Exec => 0,
            EventKind::Exit => size_of::<wire::Exit>(),
        };
        (rest.len() >= min_len).then_some(Event { kind, header, rest })
    }

    /// The bytes from which [`decode`](Event::decode) makes this event, on any machine with the
    /// same byte order.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut header = *self.header;
        header.len.set((size_of::<wire::Header>() + self.rest.len()) as u32);
        let mut bytes = [header.as_bytes(), self.rest].concat();
        if let Ok(exit) = self.exit() {
            let mut exit = *exit;
            exit.page_bytes.set(exit.page_bytes());
            bytes[size_of::<wire::Header>()..][..size_of::<wire::Exit>()].copy_from_slice(exit.as_bytes());
        }
        bytes
    }

    /// For the exit of a process: all that it moved through sockets, if that was counted.
    pub fn traffic(&self) -> Option<&'a Net> {
        self.exit().ok().filter(|_| self.has(wire::NET))?;
        Some(Net::ref_from_prefix(self.rest.get(size_of::<wire::Exit>()..)?).ok()?.0)
    }
}

impl fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = EventField::ALL.iter();
        debug_row(f, "Event", cells.map(|&field| (field.name(), self.value(field))))
    }
}

crate::row_fields! {
    EventField: "The fields of events. A field of tasks with the same name has the same meaning.";
    Event "event" Text "What happened: fork, exec or exit.";
    TimeNs "time_ns" Nanoseconds "When it happened, since boot.";
    Pid "pid" Id "Process id: the thread-group id.";
    Tid "tid" Id "Thread id; in an event about a process, the process id.";
    Thread "thread" Flag "Whether it is about one thread, not about the process.";
    Ppid "ppid" Id "Process id of the parent; 0 if the parent is not in the reader's pid namespace.";
    StartNs "start_ns" Nanoseconds "When the process, or the thread, started, since boot. Negative if it is older than the zero of the reader's time namespace; unsupported in clients whose numbers are unsigned.";
    Uid "uid" User "Real user id.";
    Euid "euid" User "Effective user id.";
    Comm "comm" Text "Name of the executable or thread: at most 15 bytes, of any value. For an exec: the new name.";
    KernelThread "kernel_thread" Flag "Whether it is a kernel thread.";
    CgroupId "cgroup_id" Id "Id of its cgroup in the unified (version 2) hierarchy.";
    CallerPid "caller_pid" Id "For a fork: the process that called it. It is also the parent, unless it called clone(2) with CLONE_PARENT.";
    CallerTid "caller_tid" Id "For a fork: the thread that called it.";
    Filename "filename" Text "For an exec: the file name that was passed to execve(2), for a script the script's. Any bytes.";
    ExitCode "exit_code" Id "For an exit: the exit code, unless a signal killed the process.";
    TermSignal "term_signal" Id "For an exit: the signal that killed the process, if one did.";
    CoreDumped "core_dumped" Flag "For an exit by a signal: whether the kernel wrote a core file.";
    OomKilled "oom_killed" Flag "For the exit of a process by a signal: whether the OOM killer had chosen it. Of processes that share their memory it kills all and chooses one.";
    RuntimeNs "runtime_ns" Nanoseconds "For an exit: the time that this thread, or all threads of this process, spent on a processor. The time since the kernel last updated the value, at most a clock tick, is missing.";
    PeakRssBytes "peak_rss_bytes" Bytes "For the exit of a process: its peak resident memory, as in ru_maxrss of getrusage(2), including that from before exec.";
    NetSentBytes "net_sent_bytes" Bytes "For the exit of a process: what it sent to other machines.";
    NetReceivedBytes "net_received_bytes" Bytes "For the exit of a process: what it received from other machines.";
    LoopbackSentBytes "loopback_sent_bytes" Bytes "For the exit of a process: what it sent to this machine.";
    LoopbackReceivedBytes "loopback_received_bytes" Bytes "For the exit of a process: what it received from this machine.";
    UnixSentBytes "unix_sent_bytes" Bytes "For the exit of a process: what it sent through UNIX sockets.";
    UnixReceivedBytes "unix_received_bytes" Bytes "For the exit of a process: what it received through UNIX sockets.";
}

impl EventField {
    /// All fields, in the order of the table.
    pub const ALL: &[EventField] = &EventField::EVERY;
}

impl<'a> Event<'a> {
    /// The value of any field.
    pub fn value(&self, field: EventField) -> Result<Value<'a>, Absent> {
        Ok(match field {
            EventField::Event => self.kind().name().as_bytes().into(),
            EventField::TimeNs => self.time_ns().into(),
            EventField::Pid => self.pid().into(),
            EventField::Tid => self.tid().into(),
            EventField::Thread => self.is_thread().into(),
            EventField::Ppid => self.ppid()?.into(),
            EventField::StartNs => self.start_ns()?.into(),
            EventField::Uid => self.uid()?.into(),
            EventField::Euid => self.euid()?.into(),
            EventField::Comm => self.comm()?.into(),
            EventField::KernelThread => self.kernel_thread()?.into(),
            EventField::CgroupId => self.cgroup_id()?.into(),
            EventField::CallerPid => self.caller_pid()?.into(),
            EventField::CallerTid => self.caller_tid()?.into(),
            EventField::Filename => self.filename()?.into(),
            EventField::ExitCode => self.exit_code()?.into(),
            EventField::TermSignal => self.term_signal()?.into(),
            EventField::CoreDumped => self.core_dumped()?.into(),
            EventField::OomKilled => self.oom_killed()?.into(),
            EventField::RuntimeNs => self.runtime_ns()?.into(),
            EventField::PeakRssBytes => self.peak_rss_bytes()?.into(),
            EventField::NetSentBytes => self.net_sent_bytes()?.into(),
            EventField::NetReceivedBytes => self.net_received_bytes()?.into(),
            EventField::LoopbackSentBytes => self.net(|net| net.loopback_sent_bytes)?.into(),
            EventField::LoopbackReceivedBytes => self.net(|net| net.loopback_received_bytes)?.into(),
            EventField::UnixSentBytes => self.net(|net| net.unix_sent_bytes)?.into(),
            EventField::UnixReceivedBytes => self.net(|net| net.unix_received_bytes)?.into(),
        })
    }
}

impl EventField {
    /// The field of tasks with the same name.
    #[doc(hidden)]
    pub fn of_tasks(self) -> Option<Field> {
        self.name().parse().ok()
    }
}

impl FromStr for EventField {
    type Err = UnknownField;

    fn from_str(name: &str) -> Result<EventField, UnknownField> {
        let found = EventField::ALL.iter().find(|field| field.name() == name);
        found
            .copied()
            .ok_or_else(|| UnknownField::new(name, EventField::ALL.iter().map(|field| field.name())))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::native_endian::{I32, U16, U32};
    use zerocopy::IntoBytes as _;

    use super::*;

    const NONE: Result<u32, Absent> = Err(Absent::NotApplicable);

    /// The bytes of an event with these details, followed by bytes that do not belong to it.
    fn bytes(kind: u16, flags: u16, details: &[u8]) -> Vec<u8> {
        let header = wire::Header {
            len: U32::new((size_of::<wire::Header>() + details.len()) as u32),
            kind: U16::new(kind),
            flags: U16::new(flags),
            pid: U32::new(7),
            comm: *b"a b)\0after the \0",
            ..wire::Header::default()
        };
        [header.as_bytes(), details, b"unused"].concat()
    }

    fn exit(status: i32) -> wire::Exit {
        wire::Exit {
            status: I32::new(status),
            ..wire::Exit::default()
        }
    }

    /// Check that the pages of an event have the size of those of the machine where it happened,
    /// also when another machine reads it.
    #[test]
    fn pages_are_those_of_the_machine() {
        let mut exit = exit(0);
        exit.peak_rss_pages.set(3);
        let own = u64::from(exit.page_bytes());
        for (page_bytes, size) in [(0, own), (65_536, 65_536)] {
            exit.page_bytes.set(page_bytes);
            let bytes = bytes(wire::EXIT, 0, exit.as_bytes());
            let event = Event::decode(&bytes).expect("an event");
            let recorded = event.to_bytes();
            let recorded = Event::decode(&recorded).expect("an event");
            assert_eq!(recorded.exit().map(|exit| exit.page_bytes.get()), Ok(size as u32));
            for event in [event, recorded] {
                assert_eq!(event.peak_rss_bytes(), Ok(3 * size));
            }
        }
    }

    /// Check that statuses are decoded as wait(2) defines them.
    #[test]
    fn statuses_are_codes_or_signals() {
        for (status, code, signal, core) in [
            (0, Ok(0), NONE, Err(Absent::NotApplicable)),
            (255 << 8, Ok(255), NONE, Err(Absent::NotApplicable)),
            (9, NONE, Ok(9), Ok(false)),
            (0x80 | 11, NONE, Ok(11), Ok(true)),
        ] {
            let bytes = bytes(wire::EXIT, 0, exit(status).as_bytes());
            let event = Event::decode(&bytes).expect("an event");
            assert_eq!(
                (event.exit_code(), event.term_signal(), event.core_dumped()),
                (code, signal, core)
            );
        }
    }

    /// Check that each kind of event has its fields, and that names end where they should.
    #[test]
    fn kinds_have_their_own_fields() {
        let exec = bytes(wire::EXEC, 0, b"/bin/true");
        let exec = Event::decode(&exec).expect("an event");
        assert_eq!(
            (exec.filename(), exec.comm()),
            (Ok(&b"/bin/true"[..]), Ok(&b"a b)"[..]))
        );
        assert_eq!(
            (exec.exit_code(), exec.caller_pid(), exec.runtime_ns()),
            (NONE, NONE, Err(Absent::NotApplicable))
        );
        let cut = bytes(wire::EXEC, wire::CUT, b"");
        assert_eq!(
            Event::decode(&cut).expect("an event").filename(),
            Err(Absent::Truncated)
        );
        let fork = bytes(wire::FORK, 0, &[1; 8]);
        let fork = Event::decode(&fork).expect("an event");
        assert_eq!(
            (fork.caller_pid(), fork.filename()),
            (Ok(0x0101_0101), Err(Absent::NotApplicable))
        );
        let partly = bytes(wire::EXIT, wire::NO_RUNTIME, exit(0).as_bytes());
        let of_part = Event::decode(&partly).expect("an event").runtime_ns();
        assert_eq!(of_part, Err(Absent::Truncated));
        for (flags, killed) in [
            (0, Ok(false)),
            (wire::OOM_VICTIM, Ok(true)),
            (wire::CONNECTOR, Err(Absent::Unsupported)),
            (wire::THREAD, Err(Absent::NotApplicable)),
        ] {
            let bytes = bytes(wire::EXIT, flags, exit(9).as_bytes());
            assert_eq!(Event::decode(&bytes).expect("an event").oom_killed(), killed);
        }
        // It was already ending when it was chosen.
        let ended = bytes(wire::EXIT, wire::OOM_VICTIM, exit(0).as_bytes());
        assert_eq!(
            Event::decode(&ended).expect("an event").oom_killed(),
            Err(Absent::NotApplicable)
        );
        let thread = bytes(wire::EXIT, wire::THREAD, exit(0).as_bytes());
        assert_eq!(
            Event::decode(&thread).expect("an event").peak_rss_bytes(),
            Err(Absent::NotApplicable)
        );
        let kernel = bytes(wire::EXIT, wire::KERNEL_THREAD, exit(0).as_bytes());
        assert_eq!(
            Event::decode(&kernel).expect("an event").peak_rss_bytes(),
            Err(Absent::NoMemory)
        );
    }

    /// Check that fields that the connector does not send are absent with a reason.
    #[test]
    fn the_connector_knows_less() {
        let of = |flags: u16| bytes(wire::EXEC, wire::CONNECTOR | flags, b"");
        let (found, gone, thread) = (of(0), of(wire::GONE), of(wire::THREAD));
        let event = |bytes| Event::decode(bytes).expect("an event");
        assert_eq!((event(&found).uid(), event(&found).ppid()), (Ok(0), Ok(0)));
        assert_eq!(
            (event(&gone).uid(), event(&gone).ppid()),
            (Err(Absent::Gone), Err(Absent::Gone))
        );
        assert_eq!(event(&thread).comm(), Err(Absent::Unsupported));
        assert_eq!(event(&found).filename(), Err(Absent::Unsupported));
    }

    /// Check that each name parses to its field, and that a task field of the same name has the
    /// same kind.
    #[test]
    fn names_lead_to_their_fields() {
        for &field in EventField::ALL {
            assert_eq!(field.name().parse(), Ok(field));
            assert!(
                field.of_tasks().is_none_or(|task| task.info().kind == field.kind()),
                "{field}"
            );
        }
        let unknown = "filenam".parse::<EventField>().expect_err("no field");
        assert_eq!(unknown.near.first(), Some(&"filename"), "{unknown}");
    }

    proptest! {
        /// Check that any bytes decode either to an event whose fields can all be read, or to none.
        #[test]
        fn any_bytes_decode(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(event) = Event::decode(&bytes) {
                let _ = format!("{event:?}");
            }
        }

        /// Check that no length or kind leads outside the bytes of the event.
        #[test]
        fn broken_events_decode(kind in 0..6_u16, flags: u16, len: u32, details in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut bytes = bytes(kind, flags, &details);
            if len % 2 == 0 {
                bytes[..4].copy_from_slice(&(len % 256).to_ne_bytes());
            }
            if let Some(event) = Event::decode(&bytes) {
                prop_assert!((1..=3).contains(&kind));
                let _ = format!("{event:?}");
            }
        }
    }
}
