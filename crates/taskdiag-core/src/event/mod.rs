//! One event, and the table of what can be asked of it.

pub mod plan;
pub mod wire;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use zerocopy::FromBytes as _;

use crate::absent::Absent;
use crate::field::{Field, Kind};
use crate::value::Value;
use plan::EventSource;

/// What is to be told, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The kinds of events. What is not asked for costs nothing.
    pub kinds: EventKinds,
    /// Events about threads too.
    pub threads: bool,
    /// Lets only this source tell: opening fails where it can't.
    pub source: Option<EventSource>,
    /// Room for events that have not been read yet, rounded up to a power of two. In the ring that tracepoints write to, an
    /// event takes some 100 bytes and an exec 300; in the connector's socket, up to a thousand.
    pub ring_bytes: u32,
    /// How long `Events::wait` lets events of the tracepoints gather before it returns: being woken for each would cost more
    /// than all the rest. Those of the connector can't wait, as `/proc` soon has no more to say of them.
    pub gather: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            kinds: EventKinds::all(),
            threads: false,
            source: None,
            ring_bytes: 4 << 20,
            gather: Duration::from_millis(20),
        }
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum EventKind {
    /// A process, or a thread, began.
    Fork = wire::FORK,
    /// A process became another program.
    Exec = wire::EXEC,
    /// A process, or a thread, ended.
    Exit = wire::EXIT,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [EventKind; 3] = [EventKind::Fork, EventKind::Exec, EventKind::Exit];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Fork => "fork",
            EventKind::Exec => "exec",
            EventKind::Exit => "exit",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKinds(u16);

impl EventKinds {
    /// Every kind.
    pub fn all() -> EventKinds {
        EventKind::ALL.into_iter().collect()
    }

    /// Whether `kind` is in the set.
    pub fn contains(self, kind: EventKind) -> bool {
        self.0 >> kind as u16 & 1 != 0
    }
}

impl FromIterator<EventKind> for EventKinds {
    fn from_iter<I: IntoIterator<Item = EventKind>>(kinds: I) -> EventKinds {
        EventKinds(kinds.into_iter().fold(0, |set, kind| set | 1 << kind as u16))
    }
}

/// Something that happened to a process or a thread. Borrows from the memory that the kernel wrote it to.
///
/// A process is identified by [`pid`](Event::pid) and [`start_ns`](Event::start_ns). Each fork of a process is followed by
/// exactly one exit of it, told when none of its threads is alive any more. (Before Linux 6.16, threads that end at the same
/// time may be told of after it.) A thread that executes a program becomes the process's first one: its number ends without an
/// exit.
#[derive(Clone, Copy)]
pub struct Event<'a> {
    kind: EventKind,
    header: &'a wire::Header,
    rest: &'a [u8],
}

impl<'a> Event<'a> {
    /// The event in bytes that a source wrote. `None` if they make no sense.
    pub fn decode(bytes: &'a [u8]) -> Option<Event<'a>> {
        let (header, rest) = wire::split(bytes)?;
        let kind = EventKind::ALL
            .into_iter()
            .find(|&kind| kind as u16 == header.kind.get())?;
        let least = match kind {
            EventKind::Fork => size_of::<wire::Fork>(),
            EventKind::Exec => 0,
            EventKind::Exit => size_of::<wire::Exit>(),
        };
        (rest.len() >= least).then_some(Event { kind, header, rest })
    }

    fn has(&self, flag: u16) -> bool {
        self.header.flags.get() & flag != 0
    }

    /// What happened.
    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// When it happened, since boot.
    pub fn time_ns(&self) -> u64 {
        self.header.time_ns.get()
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.header.pid.get()
    }

    /// Thread id. In an event about a process it is the process id.
    pub fn tid(&self) -> u32 {
        self.header.tid.get()
    }

    /// Whether it is about one thread of a process that has others, not about the process.
    pub fn is_thread(&self) -> bool {
        self.has(wire::THREAD)
    }

    /// Process id of the parent; 0 if it has none in the reader's pid namespace.
    pub fn ppid(&self) -> Result<u32, Absent> {
        // The connector tells of it at the beginning and at the end of a process.
        match self.kind {
            EventKind::Exec => self.known()?,
            EventKind::Fork | EventKind::Exit => {}
        }
        Ok(self.header.ppid.get())
    }

    /// When the process, or the thread, began, since boot.
    pub fn start_ns(&self) -> Result<u64, Absent> {
        self.known()?;
        Ok(self.header.start_ns.get())
    }

    /// Real user id.
    pub fn uid(&self) -> Result<u32, Absent> {
        self.known()?;
        Ok(self.header.uid.get())
    }

    /// Effective user id.
    pub fn euid(&self) -> Result<u32, Absent> {
        self.known()?;
        Ok(self.header.euid.get())
    }

    /// Name of the executable or thread, any bytes.
    pub fn comm(&self) -> Result<&'a [u8], Absent> {
        self.known()?;
        let comm = &self.header.comm;
        Ok(comm.split(|&byte| byte == 0).next().unwrap_or_default())
    }

    /// Whether it is a kernel thread.
    pub fn is_kernel_thread(&self) -> Result<bool, Absent> {
        self.known()?;
        Ok(self.has(wire::KERNEL_THREAD))
    }

    /// Whether what the connector does not tell was found in `/proc`.
    fn known(&self) -> Result<(), Absent> {
        match (self.has(wire::CONNECTOR), self.has(wire::GONE), self.is_thread()) {
            (true, _, true) => Err(Absent::Unsupported),
            (true, true, false) => Err(Absent::Gone),
            _ => Ok(()),
        }
    }

    /// What only the tracepoints tell.
    fn traced(&self) -> Result<(), Absent> {
        if self.has(wire::CONNECTOR) {
            Err(Absent::Unsupported)
        } else {
            Ok(())
        }
    }

    fn fork(&self) -> Option<&'a wire::Fork> {
        let fork = (self.kind == EventKind::Fork).then_some(self.rest)?;
        Some(wire::Fork::ref_from_prefix(fork).ok()?.0)
    }

    fn exit(&self) -> Option<&'a wire::Exit> {
        let exit = (self.kind == EventKind::Exit).then_some(self.rest)?;
        Some(wire::Exit::ref_from_prefix(exit).ok()?.0)
    }

    /// Of a fork: the process that called it. It is the parent but where it asked for a brother instead of a child.
    pub fn caller_pid(&self) -> Option<Result<u32, Absent>> {
        let fork = self.fork()?;
        Some(self.traced().map(|()| fork.caller_pid.get()))
    }

    /// Of a fork: the thread that called it.
    pub fn caller_tid(&self) -> Option<Result<u32, Absent>> {
        let fork = self.fork()?;
        Some(self.traced().map(|()| fork.caller_tid.get()))
    }

    /// Of an exec: the file name as it was given, for a script the script's. Any bytes.
    pub fn filename(&self) -> Option<Result<&'a [u8], Absent>> {
        let name = (self.kind == EventKind::Exec).then_some(self.rest)?;
        Some(self.traced().and_then(|()| {
            if self.has(wire::CUT) {
                Err(Absent::Truncated)
            } else {
                Ok(name)
            }
        }))
    }

    /// Of an exit: what the program returned, if it was not killed.
    pub fn exit_code(&self) -> Option<u32> {
        let status = self.exit()?.status.get();
        (status & 0x7f == 0).then_some((status >> 8 & 0xff) as u32)
    }

    /// Of an exit: the signal that killed it, if one did.
    pub fn term_signal(&self) -> Option<u32> {
        let status = self.exit()?.status.get();
        (status & 0x7f != 0).then_some((status & 0x7f) as u32)
    }

    /// Of an exit by a signal: whether the kernel wrote its memory to a core file.
    pub fn core_dumped(&self) -> Option<bool> {
        let status = self.exit()?.status.get();
        (status & 0x7f != 0).then_some(status & 0x80 != 0)
    }

    /// Of an exit: time on a processor, of this thread alone (of the leader, for a process), up to when the kernel last added
    /// it up: what it ran since, a clock tick at most, is not in it.
    pub fn runtime_ns(&self) -> Option<Result<u64, Absent>> {
        let exit = self.exit()?;
        Some(self.traced().map(|()| exit.runtime_ns.get()))
    }

    /// Of a process's exit: the most resident memory it ever had, before exec too, as getrusage(2) says.
    pub fn peak_rss_bytes(&self) -> Option<Result<u64, Absent>> {
        let exit = self.exit().filter(|_| !self.is_thread())?;
        Some(self.traced().and_then(|()| {
            if self.has(wire::KERNEL_THREAD) {
                Err(Absent::NoMemory)
            } else {
                Ok(exit
                    .peak_rss_pages
                    .get()
                    .saturating_mul(rustix::param::page_size() as u64))
            }
        }))
    }
}

impl fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for &field in EventField::ALL {
            match self.value(field) {
                Some(Ok(Value::Text(bytes))) => map.entry(&field.name(), &bytes.escape_ascii().to_string()),
                Some(value) => map.entry(&field.name(), &value),
                None => &mut map,
            };
        }
        map.finish()
    }
}

macro_rules! fields {
    ($($id:ident $name:ident: $kind:ident, $meaning:literal, |$event:ident| $read:expr;)*) => {
        /// What can be asked of an event, by a name. Those that tasks have too have the same name and meaning there.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum EventField { $(#[doc = $meaning] $id),* }

        impl EventField {
            /// All fields, in the order of the table.
            pub const ALL: &'static [EventField] = &[$(EventField::$id),*];

            /// The name.
            pub fn name(self) -> &'static str {
                match self { $(EventField::$id => stringify!($name)),* }
            }

            /// What its values are.
            pub fn kind(self) -> Kind {
                match self { $(EventField::$id => Kind::$kind),* }
            }

            /// What it means.
            pub fn meaning(self) -> &'static str {
                match self { $(EventField::$id => $meaning),* }
            }
        }

        impl<'a> Event<'a> {
            /// The value of any field, or why it is missing; `None` if events like this one don't have it.
            pub fn value(&self, field: EventField) -> Option<Result<Value<'a>, Absent>> {
                match field { $(EventField::$id => { let $event = self; $read }),* }
            }
        }
    };
}

/// A value that may be missing, of any event.
fn of_all<'a, T: Into<Value<'a>>>(value: Result<T, Absent>) -> Option<Result<Value<'a>, Absent>> {
    Some(value.map(Into::into))
}

/// A value that may be missing, of some events.
fn of_some<'a, T: Into<Value<'a>>>(value: Option<Result<T, Absent>>) -> Option<Result<Value<'a>, Absent>> {
    of_all(value?)
}

fields! {
    Event event: Text, "What happened: fork, exec or exit.", |e| of_all(Ok(e.kind().name().as_bytes()));
    TimeNs time_ns: Nanoseconds, "When, since boot.", |e| of_all(Ok(e.time_ns()));
    Pid pid: Id, "Process id: the thread-group id.", |e| of_all(Ok(e.pid()));
    Tid tid: Id, "Thread id. In an event about a process it is the process id.", |e| of_all(Ok(e.tid()));
    Thread thread: Flag, "Whether it is about one thread, not about the process.", |e| of_all(Ok(e.is_thread()));
    Ppid ppid: Id, "Process id of the parent; 0 if it has none in the reader's pid namespace.", |e| of_all(e.ppid());
    StartNs start_ns: Nanoseconds, "When the process, or thread, began, since boot.", |e| of_all(e.start_ns());
    Uid uid: User, "Real user id.", |e| of_all(e.uid());
    Euid euid: User, "Effective user id.", |e| of_all(e.euid());
    Comm comm: Text, "Name of the executable or thread: 15 bytes at most. Any bytes. Of an exec: the new one.", |e| of_all(e.comm());
    KernelThread kernel_thread: Flag, "Whether it is a kernel thread.", |e| of_all(e.is_kernel_thread());
    CallerPid caller_pid: Id, "Of a fork: the process that called it. It is the parent but where it asked for a brother instead of a child.",
        |e| of_some(e.caller_pid());
    CallerTid caller_tid: Id, "Of a fork: the thread that called it.", |e| of_some(e.caller_tid());
    Filename filename: Text, "Of an exec: the file name as it was given, for a script the script's. Any bytes.", |e| of_some(e.filename());
    ExitCode exit_code: Id, "Of an exit: what the program returned, if it was not killed.", |e| of_some(e.exit_code().map(Ok));
    TermSignal term_signal: Id, "Of an exit: the signal that killed it, if one did.", |e| of_some(e.term_signal().map(Ok));
    CoreDumped core_dumped: Flag, "Of an exit by a signal: whether the kernel wrote a core file.", |e| of_some(e.core_dumped().map(Ok));
    RuntimeNs runtime_ns: Nanoseconds,
        "Of an exit: time on a processor, of this thread alone (of the leader, for a process). What it ran since the kernel last \
         added it up, a clock tick at most, is not in it.", |e| of_some(e.runtime_ns());
    PeakRssBytes peak_rss_bytes: Bytes, "Of a process's exit: the most resident memory it ever had, before exec too, as getrusage(2) says.",
        |e| of_some(e.peak_rss_bytes());
}

impl EventField {
    /// The field of tasks that has the same name.
    pub fn of_tasks(self) -> Option<Field> {
        self.name().parse().ok()
    }
}

impl fmt::Display for EventField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no field of events has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownEventField(pub String);

impl fmt::Display for UnknownEventField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = EventField::ALL.iter().map(|field| field.name()).collect();
        write!(f, "events have no field {:?}; they have: {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownEventField {}

impl FromStr for EventField {
    type Err = UnknownEventField;

    fn from_str(name: &str) -> Result<EventField, UnknownEventField> {
        let mut fields = EventField::ALL.iter();
        let found = fields.find(|field| field.name() == name);
        found.copied().ok_or_else(|| UnknownEventField(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::native_endian::{I32, U16, U32};
    use zerocopy::IntoBytes as _;

    use super::*;

    /// The bytes of an event with these details, and some that a ring has behind it.
    fn bytes(kind: u16, flags: u16, details: &[u8]) -> Vec<u8> {
        let header = wire::Header {
            len: U32::new((size_of::<wire::Header>() + details.len()) as u32),
            kind: U16::new(kind),
            flags: U16::new(flags),
            pid: U32::new(7),
            comm: *b"a b)\0behind the \0"[..16].first_chunk().expect("sixteen bytes"),
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

    /// Check that statuses are read as wait(2) has them.
    #[test]
    fn statuses_are_codes_or_signals() {
        for (status, code, signal, core) in [
            (0, Some(0), None, None),
            (255 << 8, Some(255), None, None),
            (9, None, Some(9), Some(false)),
            (0x80 | 11, None, Some(11), Some(true)),
        ] {
            let bytes = bytes(wire::EXIT, 0, exit(status).as_bytes());
            let event = Event::decode(&bytes).expect("an event");
            assert_eq!(
                (event.exit_code(), event.term_signal(), event.core_dumped()),
                (code, signal, core)
            );
        }
    }

    /// Check that events have the fields of their kind, and texts end where they should.
    #[test]
    fn kinds_have_their_own_fields() {
        let exec = bytes(wire::EXEC, 0, b"/bin/true");
        let exec = Event::decode(&exec).expect("an event");
        assert_eq!(
            (exec.filename(), exec.comm()),
            (Some(Ok(&b"/bin/true"[..])), Ok(&b"a b)"[..]))
        );
        assert_eq!(
            (exec.exit_code(), exec.caller_pid(), exec.runtime_ns()),
            (None, None, None)
        );
        let cut = bytes(wire::EXEC, wire::CUT, b"");
        assert_eq!(
            Event::decode(&cut).expect("an event").filename(),
            Some(Err(Absent::Truncated))
        );
        let fork = bytes(wire::FORK, 0, &[1; 8]);
        let fork = Event::decode(&fork).expect("an event");
        assert_eq!((fork.caller_pid(), fork.filename()), (Some(Ok(0x0101_0101)), None));
        let thread = bytes(wire::EXIT, wire::THREAD, exit(0).as_bytes());
        assert_eq!(Event::decode(&thread).expect("an event").peak_rss_bytes(), None);
        let kernel = bytes(wire::EXIT, wire::KERNEL_THREAD, exit(0).as_bytes());
        assert_eq!(
            Event::decode(&kernel).expect("an event").peak_rss_bytes(),
            Some(Err(Absent::NoMemory))
        );
    }

    /// Check that what the connector does not know has a reason.
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
        assert_eq!(event(&found).filename(), Some(Err(Absent::Unsupported)));
    }

    /// Check that every name leads back to its field, and that those of tasks mean the same kind of value.
    #[test]
    fn names_lead_to_their_fields() {
        for &field in EventField::ALL {
            assert_eq!(field.name().parse(), Ok(field));
            assert!(
                field.of_tasks().is_none_or(|task| task.info().kind == field.kind()),
                "{field}"
            );
        }
        assert!("exe"
            .parse::<EventField>()
            .is_err_and(|error| error.to_string().contains("filename")));
    }

    proptest! {
        /// Check that any bytes decode to an event, of which everything can be asked, or to none.
        #[test]
        fn any_bytes_decode(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(event) = Event::decode(&bytes) {
                let _ = format!("{event:?}");
            }
        }

        /// Check that no length or kind in an event leads outside of its bytes.
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
