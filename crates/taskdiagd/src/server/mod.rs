//! The loop: takes requests, makes passes, sends answers.
//!
//! One thread does it all, so that nothing is shared and nothing can be mixed up. It waits for nothing but events: what may take long
//! because of somebody else, helpers do (see `pool.rs`). A client has one request at a time here; its others wait in its own socket, where
//! they cost nobody else anything. Clients that ask the same at the same time share a pass, which begins after all of them have asked.

mod admission;
mod client;
mod helpers;
mod limits;
mod queue;
mod requests;
mod sending;

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use taskdiag_protocol::linger::Linger;

use crate::accounts::{Account, Tallies, Tally};
use crate::facts::Finder;
use crate::job;
use crate::log::{log, Level};
use crate::notify::Notify;
use crate::passes::Passes;
use crate::pool::{For, Pool};
use crate::sys;

pub use limits::Limits;

use client::{Client, State};
use limits::Places;
use queue::Queue;

/// Numbers of what was done, for the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Clients.
    pub clients: u64,
    /// Those that were not let in.
    pub refused: u64,
    /// Those that were idle when others wanted their places.
    pub ended: u64,
    /// Requests, also those that were none.
    pub requests: u64,
    /// Passes over tasks.
    pub passes: u64,
    /// Answers that are errors.
    pub errors: u64,
    /// Clients that were sent away for leaving answers where they were.
    pub impatience: u64,
    /// Helpers that were held up.
    pub held: u64,
}

/// The broker.
#[derive(Debug)]
pub struct Server {
    listener: OwnedFd,
    epoll: OwnedFd,
    passes: Passes,
    finder: Finder,
    pool: Pool,
    notify: Notify,
    limits: Limits,
    clients: Vec<Option<Client>>,
    free: Vec<usize>,
    generation: u32,
    places: Places,
    refused: VecDeque<For>,
    memory: Tally,
    memory_of: Tallies,
    /// Connections that wait for being let in, by process: looking at one takes as long as it has threads.
    arrivals: Queue<u32>,
    /// Requests about few tasks, and about many.
    small: Queue<Account>,
    large: Queue<Account>,
    /// Answers that can go on.
    ready: VecDeque<For>,
    listens: bool,
    /// When it is tried again to let somebody in.
    listen_at: Option<Instant>,
    /// Who asked about a single process is likely to ask about the next.
    linger: Linger,
    /// When memory for passes is given back.
    release_at: Option<Instant>,
    /// When it is said again that no client can be let in.
    quiet_until: Option<Instant>,
    /// What was done.
    pub counters: Counters,
    packet: Vec<u8>,
}

const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
const KEEPER: u64 = u64::MAX - 2;

/// In a token: the place is that of a helper.
const OF_HELPER: u64 = 1 << 31;

/// How long memory for passes is kept behind the last one.
const MEMORY_KEPT: Duration = Duration::from_secs(1);

/// So long each of these is done between two passes, and one more of it: connections are accepted, clients are looked at and let in, requests
/// about few tasks are answered, and those are gathered who share a pass.
const SLICE: Duration = Duration::from_millis(4);

impl Server {
    /// A server for a listening socket. It ends when `stop` becomes readable.
    pub fn new(
        listener: OwnedFd,
        stop: BorrowedFd<'_>,
        passes: Passes,
        finder: Finder,
        pool: Pool,
        notify: Notify,
        limits: Limits,
    ) -> io::Result<Server> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&listener, true)?;
        // Sockets have it from the one that listens: a request that comes as soon as its client is let in says who sent it, too; and
        // nobody can send descriptors.
        rustix::net::sockopt::set_socket_passcred(&listener, true)?;
        if sys::refuse_rights(listener.as_fd()).is_none() {
            log(
                Level::Info,
                format_args!("this kernel can't refuse descriptors (Linux 6.16 can): closers close connections"),
            );
        }
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, stop, EventData::new_u64(STOP), EventFlags::IN)?;
        epoll::add(
            &epoll,
            pool.keeper().channel(),
            EventData::new_u64(KEEPER),
            EventFlags::IN,
        )?;
        Ok(Server {
            listener,
            epoll,
            passes,
            finder,
            pool,
            notify,
            limits,
            clients: Vec::new(),
            free: Vec::new(),
            generation: 0,
            places: Places::default(),
            refused: VecDeque::new(),
            memory: Tally::default(),
            memory_of: Tallies::default(),
            arrivals: Queue::default(),
            small: Queue::default(),
            large: Queue::default(),
            ready: VecDeque::new(),
            listens: true,
            listen_at: None,
            linger: Linger::default(),
            release_at: None,
            quiet_until: None,
            counters: Counters::default(),
            packet: Vec::with_capacity(job::PACKET),
        })
    }

    /// Serves until it is told to stop.
    pub fn run(&mut self) -> io::Result<()> {
        self.notify.ready();
        loop {
            let timeout = self.timeout();
            let timeout = timeout.as_ref().map(|timeout| rustix::event::Timespec {
                tv_sec: timeout.as_secs() as _,
                tv_nsec: timeout.subsec_nanos() as _,
            });
            let mut space = [MaybeUninit::<epoll::Event>::uninit(); 64];
            let events = match epoll::wait(&self.epoll, &mut space, timeout.as_ref()) {
                Ok((events, _)) => &*events,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            if events.is_empty() && self.lingers() {
                self.linger.give_way();
                continue;
            }
            for event in events {
                match { event.data }.u64() {
                    LISTENER => self.accept(),
                    STOP => return Ok(()),
                    KEEPER => self.hear_keeper()?,
                    token if token & OF_HELPER != 0 => {
                        self.helper_event((token & (OF_HELPER - 1)) as usize, (token >> 32) as u32);
                    }
                    token => self.event(token as u32 as usize, (token >> 32) as u32, event.flags),
                }
            }
            self.expire();
            self.let_in();
            self.serve();
            self.go_on();
            self.give_out();
        }
    }

    fn lingers(&mut self) -> bool {
        !self.has_work() && self.linger.goes_on()
    }

    fn has_work(&self) -> bool {
        let has_large = self.large.accounts().any(|account| !self.is_behind(account));
        has_large || !self.small.is_empty() || !self.arrivals.is_empty() || !self.ready.is_empty()
    }

    /// How long there is nothing to do without an event.
    fn timeout(&mut self) -> Option<Duration> {
        let alive = self.notify.is_alive();
        if self.has_work() || self.lingers() {
            return Some(Duration::ZERO);
        }
        let ends = self.clients.iter().flatten().map(|client| client.deadline);
        let others = [self.release_at, self.listen_at, self.pool.next_end(), alive];
        let first = ends.chain(others).flatten().min()?;
        // Not a moment too early, or the loop would turn once more for nothing.
        Some(first.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
    }

    /// Sends away who leaves answers where they are, and gives up helpers that say nothing.
    fn expire(&mut self) {
        let now = Instant::now();
        if self.release_at.is_some_and(|at| at <= now) {
            self.release_at = None;
            self.passes.release();
            self.packet = Vec::new();
            sys::trim_memory();
        }
        if self.listen_at.is_some_and(|at| at <= now) {
            self.listen_at = None;
            self.listen(true);
        }
        let events = self.pool.expire(now);
        self.take_events(events);
        if let Some((index, _)) = self.pool.sluggish(now) {
            self.send_away(index);
        }
        for index in 0..self.clients.len() {
            let Some(client) = &mut self.clients[index] else {
                continue;
            };
            if client.deadline.is_none_or(|until| until > now) {
                continue;
            }
            client.deadline = None;
            // It has read all of its answer.
            let is_idle = matches!(client.state, State::Idle);
            if !is_idle || sys::unread(client.socket.as_fd()) != Ok(0) {
                self.send_away(index);
            }
        }
    }

    fn send_away(&mut self, index: usize) {
        if let Some(client) = &self.clients[index] {
            if !matches!(client.state, State::Refused) {
                self.counters.impatience += 1;
                log(
                    Level::Debug,
                    format_args!("process {}: did not take its answer", client.peer.pid),
                );
            }
            self.leave(index);
        }
    }

    fn is_there(&self, (index, generation): For) -> bool {
        let client = self.clients.get(index).and_then(Option::as_ref);
        client.is_some_and(|client| client.generation == generation)
    }

    fn event(&mut self, index: usize, generation: u32, flags: EventFlags) {
        // An event of one that has left, whose place may be another's.
        if !self.is_there((index, generation)) {
            return;
        }
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            return self.leave(index);
        }
        let Some(client) = &mut self.clients[index] else {
            return;
        };
        match client.state {
            State::Idle if flags.contains(EventFlags::IN) => self.receive(index),
            State::Answering(_) if flags.contains(EventFlags::OUT) => self.ready.push_back((index, generation)),
            // It has been told already.
            State::Refused if flags.contains(EventFlags::IN) => match self.take_packet(index) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => self.leave(index),
            },
            // It will be heard when its turn comes.
            _ => self.watch(index, EventFlags::empty()),
        }
    }

    fn watch(&mut self, index: usize, interest: EventFlags) {
        let Some(client) = &mut self.clients[index] else {
            return;
        };
        if client.interest == interest {
            return;
        }
        client.interest = interest;
        let data = EventData::new_u64(token(index, client.generation));
        if epoll::modify(&self.epoll, &client.socket, data, interest).is_err() {
            self.leave(index);
        }
    }
}

fn token(index: usize, generation: u32) -> u64 {
    index as u64 | u64::from(generation) << 32
}
