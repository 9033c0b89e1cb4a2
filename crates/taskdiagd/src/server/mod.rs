//! The loop: takes requests, makes passes, sends answers.
//!
//! It has one thread, so nothing is shared. It waits only for events. Work that others can delay is
//! done by helpers ([`crate::helpers`]). The loop holds one request of a client at a time. The
//! client's other requests wait in its own socket, where they cost nobody else anything.
//!
//! - `admission`: which connections are accepted, admitted, refused and closed
//! - `requests`: requests on their way into a queue
//! - `sharing`: whose turn it is, and the pass for a request and all requests like it
//! - `files`: answers about open files, made in parts
//! - `sending`: answers on their way out
//! - `helper_events`: messages from helpers

mod admission;
mod client;
mod files;
mod helper_events;
mod queue;
mod requests;
mod sending;
mod sharing;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use taskdiag_protocol::busy_poll::BusyPoll;

use crate::credentials::ClientFinder;
use crate::helpers::messages::MAX_PACKET;
use crate::helpers::pool::ClientId;
use crate::helpers::Pool;
use crate::log::{log, Level};
use crate::notify::Notify;
use crate::passes::Programs;
use crate::passwd;
use crate::quotas::{Account, Connections, Limits, Usage, UsageByAccount, Users};
use crate::slots::{SlotId, Slots};
use crate::sys;

use client::{Client, State};
use queue::FairQueue;

/// The tokens of events that belong to no client. A client's token is its id; a helper's is its id
/// with [`OF_HELPER`].
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
const KEEPER: u64 = u64::MAX - 2;

/// A bit that no [`SlotId`] has.
const OF_HELPER: u64 = 1 << 31;

/// How long each of these may take between two passes over many tasks: accepting connections,
/// admitting them, answering requests about few tasks, gathering the clients that share a pass. An
/// item that was begun in time is finished.
const SLICE: Duration = Duration::from_millis(4);

/// How long after a pass over many tasks the next one waits for readers. Most need less, and their
/// clients would wait for the pass.
const READERS_FIRST: Duration = Duration::from_millis(2);

/// How long memory for passes is kept after the last one.
const MEMORY_KEPT: Duration = Duration::from_secs(1);

/// Counts for the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Clients that were admitted.
    pub clients: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Idle connections that were closed to make room for others.
    pub evicted: u64,
    /// Requests, invalid ones included.
    pub requests: u64,
    /// Answers that were errors.
    pub errors: u64,
    /// Passes over tasks.
    pub passes: u64,
    /// Clients that were disconnected because they did not read.
    pub slow: u64,
    /// Helpers that were killed at work.
    pub helpers_killed: u64,
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counters {
            clients,
            refused,
            evicted,
            requests,
            errors,
            passes,
            slow,
            helpers_killed,
        } = self;
        write!(
            f,
            "{clients} clients, {refused} refused, {evicted} evicted, {slow} too slow; \
             {requests} requests, {errors} errors, {passes} passes, {helpers_killed} helpers killed"
        )
    }
}

/// The broker.
#[derive(Debug)]
pub struct Server {
    listener: OwnedFd,
    epoll: OwnedFd,
    programs: Programs,
    finder: ClientFinder,
    pool: Pool,
    notify: Notify,
    limits: Limits,
    users: Users,
    clients: Slots<Client>,
    connections: Connections,
    /// Clients that were refused and are still connected, the oldest first.
    refused: VecDeque<ClientId>,
    memory: Usage,
    memory_by_account: UsageByAccount,
    /// Connections to be admitted, by process: looking at a process takes time for each of its
    /// threads.
    arrivals: FairQueue<u32>,
    /// Requests about few tasks.
    small: FairQueue<Account>,
    /// Requests about many tasks.
    large: FairQueue<Account>,
    /// Clients whose answers can be continued.
    ready: FairQueue<Account>,
    is_listening: bool,
    /// When to accept connections again after accepting failed.
    listen_again_at: Option<Instant>,
    /// Waits for the next request of a client that asked about a single process: it is likely to
    /// ask about another one soon.
    busy_poll: BusyPoll,
    /// When the last pass over many tasks ended.
    pass_ended: Instant,
    /// When the memory for passes is freed.
    free_memory_at: Option<Instant>,
    /// Until when no further warning about connections that can't be accepted is logged.
    no_warning_until: Option<Instant>,
    /// What was done.
    pub counters: Counters,
    /// The buffer for packets from helpers.
    packet: Vec<u8>,
}

impl Server {
    /// A server on a listening socket. It stops when `stop` becomes readable.
    pub fn new(
        listener: OwnedFd,
        stop: BorrowedFd<'_>,
        programs: Programs,
        finder: ClientFinder,
        pool: Pool,
        notify: Notify,
        limits: Limits,
    ) -> io::Result<Server> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&listener, true)?;
        // Connections inherit both settings from the listening socket: even the first request names
        // its sender, and nobody can send descriptors.
        rustix::net::sockopt::set_socket_passcred(&listener, true)?;
        if sys::refuse_descriptors(listener.as_fd()).is_none() {
            log(
                Level::Info,
                format_args!("this kernel can't refuse descriptors (Linux 6.16 can): closers close connections"),
            );
        }
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, stop, EventData::new_u64(STOP), EventFlags::IN)?;
        let keeper = &pool.keeper.channel;
        epoll::add(&epoll, keeper, EventData::new_u64(KEEPER), EventFlags::IN)?;
        Ok(Server {
            listener,
            epoll,
            programs,
            finder,
            pool,
            notify,
            limits,
            users: passwd::users(),
            clients: Slots::default(),
            connections: Connections::default(),
            refused: VecDeque::new(),
            memory: Usage::default(),
            memory_by_account: UsageByAccount::default(),
            arrivals: FairQueue::default(),
            small: FairQueue::default(),
            large: FairQueue::default(),
            ready: FairQueue::default(),
            is_listening: true,
            listen_again_at: None,
            busy_poll: BusyPoll::default(),
            pass_ended: Instant::now(),
            free_memory_at: None,
            no_warning_until: None,
            counters: Counters::default(),
            packet: Vec::with_capacity(MAX_PACKET),
        })
    }

    /// Serves clients until it is told to stop.
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
            if events.is_empty() && self.polls() {
                self.busy_poll.yield_processor();
                continue;
            }
            for event in events {
                match { event.data }.u64() {
                    LISTENER => self.accept(),
                    STOP => return Ok(()),
                    KEEPER => self.keeper_event()?,
                    token if token & OF_HELPER != 0 => self.helper_event(SlotId::from_bits(token & !OF_HELPER)),
                    token => self.client_event(SlotId::from_bits(token), event.flags),
                }
            }
            self.check_deadlines();
            self.admit_arrivals();
            self.serve_small();
            self.continue_answers();
            // Helpers work during the pass.
            self.assign_helpers();
            if self.readers_first().is_none() {
                self.serve_large();
            }
        }
    }

    /// Whether to poll for the next request of a client instead of sleeping.
    fn polls(&mut self) -> bool {
        !self.has_work() && self.busy_poll.goes_on()
    }

    fn has_work(&self) -> bool {
        let has_large = || self.large.keys().any(|account| !self.has_late_clients(account));
        self.readers_first().is_none() && has_large()
            || !self.small.is_empty()
            || !self.arrivals.is_empty()
            || !self.ready.is_empty()
    }

    /// Until when the next pass over many tasks waits for readers.
    fn readers_first(&self) -> Option<Instant> {
        let until = self.pass_ended + READERS_FIRST;
        (Instant::now() < until && self.pool.has_jobs_at_work()).then_some(until)
    }

    /// How long the loop may sleep if no event comes.
    fn timeout(&mut self) -> Option<Duration> {
        let alive = self.notify.alive();
        if self.has_work() || self.polls() {
            return Some(Duration::ZERO);
        }
        let clients = self.clients.values().map(|client| client.deadline);
        let others = [
            self.readers_first(),
            self.free_memory_at,
            self.listen_again_at,
            self.pool.next_deadline(),
            alive,
        ];
        let first = clients.chain(others).flatten().min()?;
        // If it woke a moment too early, the loop would run once more for nothing.
        Some(first.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
    }

    /// Does what is due: disconnects clients that do not read, and kills helpers that make no
    /// progress.
    fn check_deadlines(&mut self) {
        let now = Instant::now();
        if self.free_memory_at.is_some_and(|at| at <= now) {
            self.free_memory_at = None;
            self.programs.free_memory();
            self.packet = Vec::new();
            sys::trim_memory();
        }
        if self.listen_again_at.is_some_and(|at| at <= now) {
            self.listen_again_at = None;
            self.listen(true);
        }
        let programs = &mut self.programs;
        let events = self.pool.check_deadlines(now, |pid| programs.is_running(pid));
        self.pool_events(events);
        if let Some(id) = self.pool.client_to_drop(now) {
            self.disconnect_slow(id);
        }
        let is_late = |client: &Client| client.deadline.is_some_and(|deadline| deadline <= now);
        let late = self.clients.iter().filter(|(_, client)| is_late(client));
        let late: Vec<ClientId> = late.map(|(id, _)| id).collect();
        for id in late {
            let Some(client) = self.clients.get_mut(id) else {
                continue;
            };
            client.deadline = None;
            let is_idle = matches!(client.state, State::Idle);
            // An idle client that has read all of its answer may stay.
            if !is_idle || sys::unread(client.socket.as_fd()) != Ok(0) {
                self.disconnect_slow(id);
            }
        }
    }

    fn disconnect_slow(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(id) else {
            return;
        };
        if !matches!(client.state, State::Refused) {
            self.counters.slow += 1;
            log(
                Level::Debug,
                format_args!(
                    "process {} is disconnected: it does not read its answer",
                    client.peer.pid
                ),
            );
        }
        self.disconnect(id);
    }

    /// Handles an event of a client, unless the client has left since.
    fn client_event(&mut self, id: ClientId, flags: EventFlags) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            return self.disconnect(id);
        }
        match client.state {
            State::Idle if flags.contains(EventFlags::IN) => self.receive_request(id),
            State::Answering(_) if flags.contains(EventFlags::OUT) => {
                // From now on it waits for the loop.
                client.stop_waiting();
                self.ready.push(client.account, id);
                self.watch(id, EventFlags::empty())
            }
            // It was sent an error. Its requests are not answered.
            State::Refused if flags.contains(EventFlags::IN) => match self.receive_packet(id) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => self.disconnect(id),
            },
            // It is watched again when there is work for it.
            _ => self.watch(id, EventFlags::empty()),
        }
    }

    /// Watches the socket of a client for events.
    fn watch(&mut self, id: ClientId, interest: EventFlags) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        if client.interest == interest {
            return;
        }
        client.interest = interest;
        if epoll::modify(&self.epoll, &client.socket, EventData::new_u64(id.to_bits()), interest).is_err() {
            self.disconnect(id);
        }
    }
}
