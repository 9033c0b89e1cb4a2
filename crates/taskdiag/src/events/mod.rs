//! Processes and threads as they begin, become other programs, and end: none is too short-lived to be seen.
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

use std::cell::Cell;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::param::page_size;
use rustix::thread::{capabilities, CapabilitySet};
use rustix::time::Timespec;
use taskdiag_bpf::recipe;
use taskdiag_bpf::rights::{capability_remedy, missing_capabilities};
use taskdiag_bpf::tracing::Tracing;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::support::{Fact, Verdict};
use taskdiag_sys::host;
use taskdiag_sys::owner::Owner;

use crate::probe;
use crate::source::connector::Connector;

pub use taskdiag_core::event::plan::{plan, EventSource, EventSupport};
pub use taskdiag_core::event::{Event, EventField, EventKind, EventKinds, Options, UnknownEventField};

/// Events that could not be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// How many.
    pub count: u64,
    /// Whether it is so many; else it is at least so many.
    pub is_exact: bool,
}

/// A stream of events, of all processes of the caller's pid namespace and those below, from when it is opened.
///
/// Several do not disturb each other. Capabilities are needed only while one is opened (on Linux 6.0 and later).
#[derive(Debug)]
pub struct Events {
    teller: Teller,
    gather: Duration,
    /// Events that made no sense.
    malformed: Cell<u64>,
    /// The ring made no sense, and is not read any more.
    is_broken: Cell<bool>,
    /// The process that opened it. A child of it has the same ring, which only one may read.
    owner: Owner,
}

#[derive(Debug)]
enum Teller {
    Tracing(Tracing),
    Connector(Box<Connector>),
}

impl Events {
    /// Begins to watch. It takes some tens of milliseconds to load the programs.
    pub fn open(options: &Options) -> Result<Events> {
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
        let options = Options {
            ring_bytes: options.ring_bytes.max(page_size() as u32).next_power_of_two(),
            ..options.clone()
        };
        Ok(Events {
            teller: match source {
                EventSource::Bpf => Teller::Tracing(Tracing::open(&options)?),
                EventSource::Connector => Teller::Connector(Box::new(Connector::open(&options)?)),
            },
            gather: options.gather,
            malformed: Cell::new(0),
            is_broken: Cell::new(false),
            owner: Owner::this_process(),
        })
    }

    /// Who tells.
    pub fn source(&self) -> EventSource {
        match self.teller {
            Teller::Tracing(_) => EventSource::Bpf,
            Teller::Connector(_) => EventSource::Connector,
        }
    }

    /// The events that are there, in the order in which they happened on each processor, and of each process. Does not wait.
    ///
    /// They lie in the memory that the kernel wrote them to, which it gets back at the next call of this or of
    /// [`wait`](Events::wait). What is not taken out of the batch comes again in the next.
    pub fn read(&mut self) -> Result<Batch<'_>> {
        self.check()?;
        match &mut self.teller {
            Teller::Tracing(tracing) => tracing.turn(),
            Teller::Connector(connector) => connector.turn()?,
        }
        Ok(Batch { events: self })
    }

    /// Waits until there are events, `interrupt` is readable or broken, or `timeout` has passed, without using the processor.
    /// If there are events, it lets more of them gather, as [`Options::gather`] says.
    ///
    /// Returning does not mean that there is an event: one may still be in the making.
    pub fn wait(&mut self, timeout: Option<Duration>, interrupt: Option<BorrowedFd<'_>>) -> Result<()> {
        self.check()?;
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let has_rest = match &mut self.teller {
            Teller::Tracing(tracing) => {
                tracing.turn();
                false
            }
            Teller::Connector(connector) => connector.has_rest(),
        };
        let patience = if has_rest { Some(Duration::ZERO) } else { timeout };
        let [told, interrupted] = ready([Some(self.as_fd()), interrupt], patience)?;
        if told && !interrupted && self.source() == EventSource::Bpf {
            let rest = end.map(|end| end.saturating_duration_since(Instant::now()));
            let gather = rest.map_or(self.gather, |rest| rest.min(self.gather));
            ready([None, interrupt], Some(gather))?;
        }
        Ok(())
    }

    /// The events since this was opened that could not be told.
    pub fn lost(&self) -> Lost {
        let (count, is_exact) = match &self.teller {
            Teller::Tracing(tracing) => tracing.lost(),
            Teller::Connector(connector) => (connector.overflows(), connector.overflows() == 0),
        };
        Lost {
            count: count + self.malformed.get(),
            is_exact,
        }
    }

    /// Whether there is any sense in reading on.
    fn check(&self) -> Result<()> {
        if !self.owner.is_this_process() {
            let message = "events belong to the process that opened them: a child has to open its own";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if self.is_broken.get() {
            Err(Error::new(
                ErrorKind::Malformed,
                "the ring of events has something in it that can't be",
            ))
        } else {
            Ok(())
        }
    }

    fn next(&self) -> Option<&[u8]> {
        match &self.teller {
            Teller::Tracing(tracing) => {
                let next = tracing.next()?;
                next.inspect_err(|_| self.is_broken.set(true)).ok()
            }
            Teller::Connector(connector) => connector.next(),
        }
    }
}

/// Polls as readable while there are events that have not been read.
impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.teller {
            Teller::Tracing(tracing) => tracing.as_fd(),
            Teller::Connector(connector) => connector.as_fd(),
        }
    }
}

/// The events that were there when [`Events::read`] was called. Taking them out allocates nothing.
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

/// Which of these are readable or broken, once one is or the time has passed. What is not given never is.
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

/// Finds out what can tell of events on this host, by trying.
pub fn support() -> EventSupport {
    let mut support = probe();
    for source in [EventSource::Bpf, EventSource::Connector] {
        if support.fact(source).verdict == Verdict::No {
            continue;
        }
        let fact = match (Events::open_source(source, &Options::default()), source) {
            (Err(error), _) => refusal(source, &error),
            (Ok(_), EventSource::Bpf) => Fact::yes("attached to the tracepoints of fork, exec and exit"),
            (Ok(_), EventSource::Connector) => Fact::yes("subscribed, and told of a thread that was started"),
        };
        support.set(source, fact);
    }
    support
}

/// What is known without trying.
fn probe() -> EventSupport {
    let built = recipe::EVENTS.as_ref().err().copied().unwrap_or_default();
    let host = probe::probe(built, Path::new(""), Path::new(""));
    let no = [host.bpf_built, host.btf]
        .into_iter()
        .find(|fact| fact.verdict == Verdict::No);
    let tracepoints = match (no, host.bpf_load.verdict) {
        (Some(no), _) => no,
        (None, Verdict::No) if !missing_capabilities().is_empty() => {
            Fact::no(host.bpf_load.why, capability_remedy(REMEDY_BPF))
        }
        (None, Verdict::No) => host.bpf_load,
        (None, _) => Fact::unknown("not tried yet"),
    };
    EventSupport {
        tracepoints,
        connector: connector(),
    }
}

const REMEDY_BPF: &str = "run as root, or with both capabilities: setcap cap_bpf,cap_perfmon+ep";
const REMEDY_CONNECTOR: &str = "run as root, or with that capability: setcap cap_net_admin+ep";

/// Whether the kernel would tell us through the connector, as far as is known without trying.
fn connector() -> Fact {
    /// Inode numbers of the initial namespaces, the same on every kernel that has them.
    const INITIAL: [(&str, &str); 3] = [
        ("pid", "pid:[4026531836]"),
        ("user", "user:[4026531837]"),
        ("time", "time:[4026531834]"),
    ];
    for (name, initial) in INITIAL {
        if fs::read_link(format!("/proc/self/ns/{name}")).is_ok_and(|own| own.as_os_str() != initial) {
            return Fact::no(
                format!("the proc connector tells only processes of the initial {name} namespace"),
                "run outside of the container",
            );
        }
    }
    let is_old = host::kernel_version().is_some_and(|version| version < (6, 6));
    let may = capabilities(None).is_ok_and(|held| held.effective.contains(CapabilitySet::NET_ADMIN));
    if is_old && !may {
        Fact::no(
            "CAP_NET_ADMIN is missing, which the proc connector takes before Linux 6.6",
            capability_remedy(REMEDY_CONNECTOR),
        )
    } else {
        Fact::unknown("not tried yet")
    }
}

/// What a failure to open a source says about the host.
fn refusal(source: EventSource, error: &Error) -> Fact {
    let remedy = match (error.kind(), source) {
        (ErrorKind::Denied, EventSource::Bpf) => capability_remedy(REMEDY_BPF),
        (ErrorKind::Denied, EventSource::Connector) => capability_remedy(REMEDY_CONNECTOR),
        _ => "",
    };
    Fact::no(error.to_string(), remedy)
}
