//! Reports processes and threads as they start, execute programs, and end, including those that are
//! too short-lived for any snapshot.
//!
//! ```no_run
//! use taskdiag::events::{Events, Options};
//!
//! let mut events = Events::open(&Options::default())?;
//! loop {
//!     events.wait(None, None)?;
//!     for event in events.read()? {
//!         println!("{} {} {:?}", event.kind(), event.pid(), event.comm());
//!     }
//!     assert_eq!(events.lost().count, 0);
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), taskdiag::Error>(())
//! ```
//!
//! Events come from BPF programs on the scheduler's tracepoints. Where these can't be loaded,
//! events come from the proc connector (`CONFIG_PROC_EVENTS`), completed by what `/proc` still
//! shows of the process. [`support`] reports which source works on this host.

mod connector;

use std::cell::Cell;
use std::fmt;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::param::page_size;
use rustix::thread::CapabilitySet;
use rustix::time::Timespec;
use taskdiag_bpf::recipe;
use taskdiag_bpf::rights::{bpf_load, capability_remedy, effective_capabilities, missing_capabilities};
use taskdiag_bpf::tracing::Tracing;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::event::plan::{plan, EventSupport};
use taskdiag_core::support::{Fact, Verdict};
use taskdiag_sys::host;
use taskdiag_sys::owner::Owner;

use crate::probe;
use connector::Connector;

pub use taskdiag_core::event::plan::EventSource;
pub use taskdiag_core::event::{Event, EventField, EventKind, Options};

/// The largest power of two that a ring can have as its size.
const MAX_RING_BYTES: u32 = 1 << 31;

/// Events that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// How many events were lost, at least.
    pub count: u64,
    /// Whether exactly this many were lost.
    pub is_exact: bool,
}

/// A stream of events from the moment it is opened, about all processes of the caller's pid
/// namespace and its descendants.
///
/// Several streams do not disturb each other. Capabilities are needed only while a stream is opened
/// (Linux 6.0 and later). A child after fork(2) can't use its parent's stream, and must open its
/// own.
pub struct Events {
    source: Source,
    gather: Duration,
    /// Events that were malformed.
    malformed: Cell<u64>,
    /// The ring is corrupt, and is not read any more.
    is_broken: Cell<bool>,
    /// The process that opened it. A child shares the ring, which only one process may read.
    owner: Owner,
}

#[derive(Debug)]
enum Source {
    Tracing(Tracing),
    Connector(Box<Connector>),
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("source", &self.source())
            .field("lost", &self.lost())
            .finish_non_exhaustive()
    }
}

impl Events {
    /// Opens a stream. Loading the BPF programs takes some tens of milliseconds and needs `CAP_BPF`
    /// and `CAP_PERFMON` (Linux 5.17). The proc connector needs `CAP_NET_ADMIN` before Linux 6.6.
    ///
    /// # Errors
    ///
    /// [`Denied`](ErrorKind::Denied) or [`Unsupported`](ErrorKind::Unsupported) if no source can
    /// report events, or the source of [`Options::source`] can't. The message says what is missing.
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the ring is to have more than 2 GiB.
    pub fn open(options: &Options) -> Result<Events> {
        if options.ring_bytes > MAX_RING_BYTES {
            let message = format!("ring_bytes: {} is more than 2 GiB", options.ring_bytes);
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let mut support = probe();
        loop {
            let source = plan(options.source, &support)?;
            match Events::open_source(source, options) {
                Ok(events) => return Ok(events),
                Err(error) => support.set(source, refusal(source, &error)),
            }
        }
    }

    fn open_source(source: EventSource, options: &Options) -> Result<Events> {
        let ring_bytes = options.ring_bytes.max(page_size() as u32).next_power_of_two();
        let options = options.clone().ring_bytes(ring_bytes);
        Ok(Events {
            source: match source {
                EventSource::Connector => Source::Connector(Box::new(Connector::open(&options)?)),
                _ => Source::Tracing(Tracing::open(&options)?),
            },
            gather: options.gather,
            malformed: Cell::new(0),
            is_broken: Cell::new(false),
            owner: Owner::this_process(),
        })
    }

    /// The source of the events.
    pub fn source(&self) -> EventSource {
        match self.source {
            Source::Tracing(_) => EventSource::Bpf,
            Source::Connector(_) => EventSource::Connector,
        }
    }

    /// The events that have arrived. They are in the order in which they happened on each processor
    /// and to each process. Does not wait.
    ///
    /// They stay in the memory to which the kernel wrote them. The next call of this function or of
    /// [`wait`](Events::wait) gives that memory back to the kernel. Events that are not taken from
    /// the batch are in the next batch.
    ///
    /// # Errors
    ///
    /// [`Malformed`](ErrorKind::Malformed) if the kernel's ring is corrupt,
    /// [`Unsupported`](ErrorKind::Unsupported) in a child after fork(2),
    /// [`System`](ErrorKind::System) if the connector's socket failed. All later calls fail too.
    pub fn read(&mut self) -> Result<Batch<'_>> {
        self.check()?;
        match &mut self.source {
            Source::Tracing(tracing) => tracing.turn(),
            Source::Connector(connector) => connector.turn()?,
        }
        Ok(Batch { events: self })
    }

    /// Waits until there are events, `interrupt` is readable or broken, or `timeout` has passed. If
    /// there are events, it waits for more of them, for the time set with [`Options::gather`].
    ///
    /// It may return without an event: the kernel may still be writing one.
    ///
    /// # Errors
    ///
    /// As [`read`](Events::read).
    pub fn wait(&mut self, timeout: Option<Duration>, interrupt: Option<BorrowedFd<'_>>) -> Result<()> {
        self.check()?;
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let has_rest = match &mut self.source {
            Source::Tracing(tracing) => {
                tracing.turn();
                false
            }
            Source::Connector(connector) => connector.has_rest(),
        };
        let patience = if has_rest { Some(Duration::ZERO) } else { timeout };
        let [has_events, interrupted] = ready([Some(self.as_fd()), interrupt], patience)?;
        if has_events && !interrupted && self.source() == EventSource::Bpf {
            let rest = end.map(|end| end.saturating_duration_since(Instant::now()));
            let gather = rest.map_or(self.gather, |rest| rest.min(self.gather));
            ready([None, interrupt], Some(gather))?;
        }
        Ok(())
    }

    /// The events that were lost since the stream was opened, because there was no room for them or
    /// they were malformed.
    pub fn lost(&self) -> Lost {
        let (count, is_exact) = match &self.source {
            Source::Tracing(tracing) => tracing.lost(),
            Source::Connector(connector) => (connector.overflows(), connector.overflows() == 0),
        };
        Lost {
            count: count + self.malformed.get(),
            is_exact,
        }
    }

    /// Fails if the stream can't be read any more.
    fn check(&self) -> Result<()> {
        if !self.owner.is_this_process() {
            let message = "this stream of events is of the process that opened it: a child has to open its own";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if self.is_broken.get() {
            Err(Error::new(
                ErrorKind::Malformed,
                "the kernel's ring of events is malformed",
            ))
        } else {
            Ok(())
        }
    }

    fn next(&self) -> Option<&[u8]> {
        match &self.source {
            Source::Tracing(tracing) => {
                let next = tracing.next()?;
                next.inspect_err(|_| self.is_broken.set(true)).ok()
            }
            Source::Connector(connector) => connector.next(),
        }
    }
}

/// poll(2) reports it as readable while there are unread events, or events whose memory has not
/// been given back: see [`Events::read`].
impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::Tracing(tracing) => tracing.as_fd(),
            Source::Connector(connector) => connector.as_fd(),
        }
    }
}

/// The events that had arrived when [`Events::read`] was called. Taking them from the batch
/// allocates nothing.
#[derive(Debug)]
pub struct Batch<'a> {
    events: &'a Events,
}

impl<'a> Iterator for Batch<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        loop {
            match Event::decode(self.events.next()?) {
                Some(event) => return Some(event),
                None => self.events.malformed.set(self.events.malformed.get() + 1),
            }
        }
    }
}

/// Waits until a descriptor is readable or broken, or the time has passed. Returns which ones are;
/// `None` never is.
fn ready<const N: usize>(fds: [Option<BorrowedFd<'_>>; N], timeout: Option<Duration>) -> Result<[bool; N]> {
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut polled: Vec<PollFd<'_>> = fds
        .iter()
        .flatten()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    loop {
        let rest = end.map(|end| end.saturating_duration_since(Instant::now()));
        let rest = rest.map(|rest| Timespec::try_from(rest).unwrap_or_default());
        match rustix::event::poll(&mut polled, rest.as_ref()) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::io("waiting for events", errno)),
        }
    }
    let mut results = polled.iter().map(|polled| !polled.revents().is_empty());
    Ok(fds.map(|fd| fd.is_some() && results.next().unwrap_or(false)))
}

/// Whether each source can report events on this host. Finds out by trying it.
pub fn support() -> impl Iterator<Item = (EventSource, Fact)> {
    let support = probe();
    EventSource::ALL.into_iter().map(move |source| {
        let known = support.fact(source);
        if known.verdict == Verdict::No {
            return (source, known.clone());
        }
        let fact = match (Events::open_source(source, &Options::default()), source) {
            (Err(error), _) => refusal(source, &error),
            (Ok(_), EventSource::Connector) => Fact::yes("subscribed, and received an event of a thread of ours"),
            (Ok(_), _) => Fact::yes("attached to the tracepoints of fork, exec and exit"),
        };
        (source, fact)
    })
}

/// What is known without trying the sources.
fn probe() -> EventSupport {
    let built = recipe::EVENTS.as_ref().err().copied().unwrap_or_default();
    let no = [probe::bpf_built(built), probe::btf()]
        .into_iter()
        .find(|fact| fact.verdict == Verdict::No);
    let load = bpf_load();
    let tracepoints = match (no, load.verdict) {
        (Some(no), _) => no,
        (None, Verdict::No) if !missing_capabilities().is_empty() => {
            Fact::denied(load.why, capability_remedy(REMEDY_BPF))
        }
        (None, Verdict::No) => load,
        (None, _) => Fact::unknown("not tried yet"),
    };
    let mut support = EventSupport::default();
    support.tracepoints = tracepoints;
    support.connector = connector();
    support
}

const REMEDY_BPF: &str = "run as root; on a machine of one user also: setcap cap_bpf,cap_perfmon+ep";
const REMEDY_CONNECTOR: &str = "run as root; on a machine of one user also: setcap cap_net_admin+ep";

/// Whether the connector would send events to this process, as far as is known without trying it.
fn connector() -> Fact {
    /// Inode numbers of the initial namespaces, the same on every kernel that has them.
    const INITIAL: [(&str, &str); 3] = [
        ("pid", "pid:[4026531836]"),
        ("user", "user:[4026531837]"),
        ("time", "time:[4026531834]"),
    ];
    for (name, initial) in INITIAL {
        if fs::read_link(host::proc_file(&format!("self/ns/{name}"))).is_ok_and(|own| own.as_os_str() != initial) {
            return Fact::no(
                format!("the proc connector sends events only to processes of the initial {name} namespace"),
                "run outside of the container",
            );
        }
    }
    let is_old = host::kernel_version().is_some_and(|version| version < (6, 6));
    let may = effective_capabilities().is_some_and(|held| held.contains(CapabilitySet::NET_ADMIN));
    if is_old && !may {
        Fact::denied(
            "CAP_NET_ADMIN is missing, which the proc connector takes before Linux 6.6",
            capability_remedy(REMEDY_CONNECTOR),
        )
    } else {
        Fact::unknown("not tried yet")
    }
}

/// The fact that a source can't be opened.
fn refusal(source: EventSource, error: &Error) -> Fact {
    let remedy = match (error.kind(), source) {
        (ErrorKind::Denied, EventSource::Bpf) => capability_remedy(REMEDY_BPF),
        (ErrorKind::Denied, EventSource::Connector) => capability_remedy(REMEDY_CONNECTOR),
        _ => "",
    };
    Fact::no(format!("{error:#}"), remedy)
}
