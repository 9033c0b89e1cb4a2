//! Events from the proc connector (`drivers/connector/cn_proc.c`): netlink messages, completed from
//! `/proc`.
//!
//! The kernel sends them only to processes of the initial pid and user namespaces, and does not
//! tell other processes so. So a subscription is trusted only once the kernel has acknowledged it
//! and has sent an event for a thread of this process.

mod message;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{sockopt, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::time::{ClockId, Timespec};
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::event::{wire, EventKind, Options};
use taskdiag_core::field::{Field, Fields};
use taskdiag_core::query::Query;
use taskdiag_core::snapshot::Snapshot;
use taskdiag_sys::host::now_ns;
use taskdiag_sys::signals::SignalsBlocked;
use zerocopy::native_endian::{I32, U16, U32, U64};
use zerocopy::IntoBytes as _;

use crate::readers;
use crate::source::procfs::{Proc, Procfs};
use message::{parse, request, Happening, Message, Operation};

/// The multicast group, `CN_IDX_PROC`, as a bit.
const GROUP: u32 = 1;

/// How long the kernel may take to answer a subscription, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(2);

/// The least room for messages while the kernel is asked for an answer.
const OPENING_BYTES: usize = 4 << 20;

/// The length of the longest message.
const MAX_MESSAGE_BYTES: usize = 256;

/// The fields that messages lack and that are read from `/proc`.
fn completing() -> Fields {
    Field::Ppid | Field::StartNs | Field::Uid | Field::Euid | Field::Comm | Field::KernelThread
}

/// A subscription.
#[derive(Debug)]
pub(crate) struct Connector {
    socket: OwnedFd,
    options: Options,
    /// Opened when it is first needed.
    procfs: Option<Procfs>,
    snapshot: Snapshot,
    /// Events in the form of `wire`, and how many bytes of them have been handed out.
    events: Vec<u8>,
    taken: Cell<usize>,
    /// How often the socket's buffer was full. Any number of messages may have been lost each time.
    overflows: u64,
}

impl Connector {
    pub(crate) fn open(options: &Options) -> Result<Connector> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            flags,
            Some(netlink::CONNECTOR),
        )
        .map_err(|errno| match errno {
            Errno::PROTONOSUPPORT => Error::new(
                ErrorKind::Unsupported,
                "this kernel has no connector (CONFIG_CONNECTOR)",
            ),
            errno => Error::io("the proc connector", errno),
        })?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, GROUP)).map_err(|errno| match errno {
            Errno::PERM => Error::new(
                ErrorKind::Denied,
                "CAP_NET_ADMIN is missing, which the proc connector takes before Linux 6.6",
            ),
            errno => Error::io("the proc connector", errno),
        })?;
        let mut connector = Connector {
            socket,
            options: options.clone(),
            procfs: None,
            snapshot: Snapshot::default(),
            events: Vec::new(),
            taken: Cell::new(0),
            overflows: 0,
        };
        let room = options.ring_bytes as usize;
        // What this waits for must not be lost among the events of a busy machine.
        connector.make_room(room.max(OPENING_BYTES));
        connector.subscribe()?;
        connector.try_out()?;
        connector.make_room(room);
        Ok(connector)
    }

    /// Sets the size of the socket's buffer, to more than the system's limit if that is permitted
    /// (CAP_NET_ADMIN). With less room more is lost, and the losses are counted.
    fn make_room(&self, bytes: usize) {
        if sockopt::set_socket_recv_buffer_size_force(&self.socket, bytes).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&self.socket, bytes);
        }
    }

    fn subscribe(&mut self) -> Result<()> {
        self.ask(Operation::Listen)
            .map_err(|error| Error::io("subscribing to the proc connector", error))?;
        let own = rustix::process::getpid().as_raw_nonzero().get() as u32;
        let answer = self.wait_for(|message| match message {
            Message::Acknowledged { subscriber, error } if subscriber == own => Some(error),
            _ => None,
        })?;
        match answer {
            Some(0) => Ok(()),
            Some(error) => Err(Error::io(
                "subscribing to the proc connector",
                io::Error::from_raw_os_error(error as i32),
            )),
            None => Err(Error::new(
                ErrorKind::Unsupported,
                "the proc connector does not answer: the kernel is built without it (CONFIG_PROC_EVENTS), or the caller is not \
                 in the initial pid and user namespace",
            )),
        }
    }

    /// Starts a thread, and waits for its event.
    fn try_out(&mut self) -> Result<()> {
        // The thread inherits this: the caller's signals are for the caller's threads.
        let blocked = SignalsBlocked::begin();
        let thread = thread::Builder::new().spawn(|| ());
        drop(blocked);
        let thread = thread.map_err(|error| Error::io("starting a thread to try the proc connector", error))?;
        let own = rustix::process::getpid().as_raw_nonzero().get() as u32;
        let seen = self.wait_for(|message| match message {
            Message::Happened(Happening {
                kind: EventKind::Fork,
                pid,
                ..
            }) if pid == own => Some(()),
            _ => None,
        });
        // The thread does nothing that could fail.
        let _ = thread.join();
        seen?.ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                "the proc connector took the subscription, but sends no event of a thread that was started",
            )
        })
    }

    fn ask(&self, operation: Operation) -> io::Result<()> {
        let subscriber = rustix::process::getpid().as_raw_nonzero().get() as u32;
        let datagram = request(subscriber, operation);
        rustix::net::send(&self.socket, &datagram, SendFlags::empty())?;
        Ok(())
    }

    /// Waits for a message for which `find` returns something. `None` if none arrives in time.
    fn wait_for<T>(&mut self, find: impl Fn(Message) -> Option<T>) -> Result<Option<T>> {
        let end = Instant::now() + PATIENCE;
        loop {
            while let Some(message) = self.receive()? {
                if let Some(found) = find(message) {
                    return Ok(Some(found));
                }
            }
            let rest = end.saturating_duration_since(Instant::now());
            let rest = Timespec::try_from(rest).unwrap_or_default();
            let mut socket = [PollFd::new(&self.socket, PollFlags::IN)];
            match rustix::event::poll(&mut socket, Some(&rest)) {
                Ok(0) => return Ok(None),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::io("waiting for the proc connector", errno)),
            }
        }
    }

    /// The next message that has arrived.
    fn receive(&mut self) -> Result<Option<Message>> {
        let mut datagram = [0; MAX_MESSAGE_BYTES];
        loop {
            match rustix::net::recvfrom(&self.socket, &mut datagram, RecvFlags::empty()) {
                Ok((len, _, from)) => {
                    // The kernel's own messages come from port 0.
                    let sender = from.and_then(|address| SocketAddrNetlink::try_from(address).ok());
                    if sender.is_some_and(|sender| sender.pid() == 0) {
                        return Ok(Some(parse(&datagram[..len]).unwrap_or(Message::Other)));
                    }
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) => self.overflows += 1,
                Err(errno) => return Err(Error::io("reading the proc connector", errno)),
            }
        }
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Drops the events that were handed out, and reads new ones.
    pub(crate) fn turn(&mut self) -> Result<()> {
        /// How many messages are read at a time. Without a limit, the first event of a long burst
        /// would wait for the last.
        const BATCH: usize = 4096;
        self.events.drain(..self.taken.take());
        let suspended_ns = now_ns(ClockId::Boottime).saturating_sub(now_ns(ClockId::Monotonic));
        for _ in 0..BATCH {
            match self.receive()? {
                Some(Message::Happened(happening)) => self.add(happening, suspended_ns),
                Some(_) => {}
                None => break,
            }
        }
        Ok(())
    }

    /// Whether there are events that have not been handed out.
    pub(crate) fn has_rest(&self) -> bool {
        self.taken.get() < self.events.len()
    }

    /// The bytes of the next event.
    pub(crate) fn next(&self) -> Option<&[u8]> {
        let rest = &self.events[self.taken.get()..];
        let (header, _) = wire::split(rest)?;
        let len = header.len.get() as usize;
        self.taken.set(self.taken.get() + len);
        Some(&rest[..len])
    }

    /// How often messages were lost.
    pub(crate) fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Appends an event, if events of its kind were asked for.
    fn add(&mut self, happening: Happening, suspended_ns: u64) {
        let kind = happening.kind;
        // An exec is always about a process: the thread that called it has become its leader.
        let is_thread = happening.tid != happening.pid && kind != EventKind::Exec;
        if !self.options.kinds.contains(kind) || (is_thread && !self.options.threads) {
            return;
        }
        let mut header = wire::Header {
            kind: U16::new(kind as u16),
            flags: U16::new(wire::CONNECTOR | if is_thread { wire::THREAD } else { 0 }),
            time_ns: U64::new(happening.monotonic_ns.saturating_add(suspended_ns)),
            pid: U32::new(happening.pid),
            tid: U32::new(happening.tid),
            ppid: U32::new(happening.ppid),
            ..wire::Header::default()
        };
        if !is_thread && self.complete(&mut header).is_none() {
            header.flags |= U16::new(wire::GONE);
        }
        let exit = wire::Exit {
            status: I32::new(happening.status),
            ..wire::Exit::default()
        };
        let fork = wire::Fork::default();
        let details = match kind {
            EventKind::Fork => fork.as_bytes(),
            EventKind::Exit => exit.as_bytes(),
            _ => &[],
        };
        header.len = U32::new((size_of::<wire::Header>() + details.len()) as u32);
        self.events.extend_from_slice(header.as_bytes());
        self.events.extend_from_slice(details);
    }

    /// Fills in what `/proc` shows of the process. `None` if the process has ended, or another
    /// process has its id.
    fn complete(&mut self, header: &mut wire::Header) -> Option<()> {
        let query = Query::process(header.pid.get()).fields(completing());
        if self.procfs.is_none() {
            self.procfs = Procfs::open(&Proc::default()).ok();
        }
        let procfs = self.procfs.as_mut()?;
        self.snapshot.clear(query.fields);
        procfs
            .read(&query, query.fields, readers::PATIENCE, &mut self.snapshot)
            .ok()?;
        let task = self.snapshot.tasks().next()?;
        let start_ns = task.start_ns().ok()?;
        if start_ns > header.time_ns.get() as i64 {
            return None;
        }
        let comm = task.comm().ok()?;
        let len = comm.len().min(header.comm.len());
        header.comm[..len].copy_from_slice(&comm[..len]);
        header.start_ns = U64::new(start_ns as u64);
        header.uid = U32::new(task.uid().ok()?);
        header.euid = U32::new(task.euid().ok()?);
        if header.ppid.get() == 0 {
            header.ppid = U32::new(task.ppid().ok()?);
        }
        if task.kernel_thread().ok()? {
            header.flags |= U16::new(wire::KERNEL_THREAD);
        }
        Some(())
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        // Before Linux 6.6 the kernel does not notice that a subscriber has ended, and continues to
        // make messages.
        let _ = self.ask(Operation::Ignore);
    }
}
