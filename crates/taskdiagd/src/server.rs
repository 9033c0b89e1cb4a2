//! The loop: takes requests, makes passes, sends answers.
//!
//! One thread does it all, so that nothing is shared and nothing can be mixed up. It waits for nothing but events: what may take long
//! because of somebody else, helpers do (see `pool.rs`). A client has one request at a time here; its others wait in its own socket, where
//! they cost nobody else anything. Clients that ask the same at the same time share a pass, which begins after all of them have asked.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};
use taskdiag_protocol::access::{Object, Subject};
use taskdiag_protocol::linger::Linger;
use taskdiag_protocol::wire::{self, attribute, show, BadRequest, MessageWriter, Request, Strategy};
use zerocopy::native_endian::{U32, U64};
use zerocopy::IntoBytes as _;

use crate::accounts::{Account, Tallies, Tally};
use crate::answer::{Answer, Needs, Pass, FIRST_THREADS};
use crate::encode::{self, Eyes};
use crate::facts::{Facts, Finder, Particulars, Peer};
use crate::job::{self, Job, Kind};
use crate::log::{log, Level};
use crate::notify::Notify;
use crate::passes::{Ask, Passes, Records, Tasks};
use crate::pool::{self, For, Pool};
use crate::{reader, sys};

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub clients: usize,
    /// Of one user.
    pub clients_per_user: usize,
    /// Bytes of records that answers which have not been taken are made of. A user may have a third of it.
    pub bytes: usize,
    /// How long a client may leave an answer where it is.
    pub patience: Duration,
    /// Whether clients that ask the same share a pass.
    pub shares: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            clients: 256,
            clients_per_user: Limits::of_one_user(256),
            bytes: 512 << 20,
            patience: Duration::from_secs(10),
            shares: true,
        }
    }
}

impl Limits {
    /// Connections that are kept for root.
    const OF_ROOT: usize = 16;

    /// Descriptors of a connection: its socket, its process, a file for it.
    const DESCRIPTORS: usize = 3;

    /// Descriptors for all else, connections that wait to be let in among it.
    const OWN: usize = 96 + 2 * ARRIVALS;

    /// Of so many connections, those that one user may have.
    pub const fn of_one_user(clients: usize) -> usize {
        match clients * 3 / 8 {
            0 => 1,
            some => some,
        }
    }

    /// How many clients so many descriptors are enough for.
    pub fn clients_for(descriptors: u64) -> usize {
        (descriptors as usize).saturating_sub(Limits::OWN) / Limits::DESCRIPTORS
    }
}

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

#[derive(Debug)]
enum State {
    /// It has connected, and waits for being looked at.
    Arriving,
    Idle,
    /// A reader looks up who it is.
    Asking(Request),
    /// In the queue of its account.
    Waiting(Request),
    Answering(Box<Answer>),
    /// It is not let in, and has been told so.
    Refused,
}

#[derive(Debug)]
struct Client {
    socket: OwnedFd,
    peer: Peer,
    /// As it was when it connected.
    before: Result<Facts, i32>,
    /// What a reader found out for the request that is being answered.
    particulars: Option<Particulars>,
    account: Account,
    state: State,
    interest: EventFlags,
    /// Until when it has to take something.
    deadline: Option<Instant>,
    /// What it has taken of an answer, and how long it was waited for.
    progress: Progress,
    idle_since: Instant,
    /// There may be descriptors in what it sends.
    is_guarded: bool,
    generation: u32,
}

/// How a client takes an answer.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    sent: usize,
    waited: Duration,
    since: Option<Instant>,
}

/// An answer has to be taken so fast, bytes in a second, once patience is over: one who takes a packet now and then holds memory too.
const PACE: usize = 1 << 20;

impl Progress {
    /// How long the client may be waited for from now on.
    fn allowed(&self, patience: Duration) -> Duration {
        let earned = Duration::from_secs_f64(self.sent as f64 / PACE as f64);
        (patience + earned).saturating_sub(self.waited)
    }
}

/// Who waits, by those on whose behalf, who take turns.
#[derive(Debug)]
struct Queue<K>(VecDeque<(K, VecDeque<usize>)>);

impl<K> Default for Queue<K> {
    fn default() -> Queue<K> {
        Queue(VecDeque::new())
    }
}

impl<K: Copy + Eq> Queue<K> {
    fn push(&mut self, account: K, index: usize) {
        match self.0.iter_mut().find(|(of, _)| *of == account) {
            Some((_, waiting)) => waiting.push_back(index),
            None => self.0.push_back((account, VecDeque::from([index]))),
        }
    }

    fn pop(&mut self) -> Option<usize> {
        let (account, mut waiting) = self.0.pop_front()?;
        let first = waiting.pop_front();
        if !waiting.is_empty() {
            self.0.push_back((account, waiting));
        }
        first
    }

    fn remove(&mut self, index: usize) {
        for (_, waiting) in &mut self.0 {
            waiting.retain(|&other| other != index);
        }
        self.0.retain(|(_, waiting)| !waiting.is_empty());
    }

    fn each(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().flat_map(|(_, waiting)| waiting).copied()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn len(&self) -> usize {
        self.0.iter().map(|(_, waiting)| waiting.len()).sum()
    }

    /// The last of those on whose behalf the most wait, if that is more than one.
    fn one_of_many(&self) -> Option<usize> {
        let (_, waiting) = self.0.iter().max_by_key(|(_, waiting)| waiting.len())?;
        waiting.back().copied().filter(|_| waiting.len() > 1)
    }
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
    /// Connections, those that are being closed included.
    connections: HashMap<Account, usize>,
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

/// So many connections wait for being looked at.
const ARRIVALS: usize = 32;

/// Answers that go on at once.
const READY_AT_ONCE: usize = 4;

/// So much is sent to one client before it is another one's turn.
const TURN: usize = 256 << 10;

/// Those who are not let in are kept for so long, so that what they are told is not lost in an error; and no more of them.
const REFUSED_KEPT: Duration = Duration::from_secs(1);
const REFUSED_MOST: usize = 16;

/// What waits in the socket of a client, at most, is charged to this process.
const SOCKET_BYTES: usize = 96 << 10;

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
            connections: HashMap::new(),
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
        let queues_are_empty = self.small.is_empty() && self.large.is_empty() && self.arrivals.is_empty();
        !queues_are_empty || !self.ready.is_empty()
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

    // ---- who comes and goes ----

    fn accept(&mut self) {
        let began = Instant::now();
        while began.elapsed() < SLICE {
            if self.arrivals.len() >= ARRIVALS {
                match self.arrivals.one_of_many() {
                    Some(index) => self.refuse(index),
                    None => return,
                }
            }
            match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.welcome(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => {
                    // Out of descriptors or memory: until somebody leaves. Else the loop would turn without end.
                    let now = Instant::now();
                    if self.quiet_until.is_none_or(|until| until <= now) {
                        self.quiet_until = Some(now + Duration::from_secs(10));
                        log(Level::Warning, format_args!("no client can be let in: {errno}"));
                    }
                    self.listen(false);
                    self.listen_at = Some(now + Duration::from_secs(1));
                    return;
                }
            }
        }
    }

    fn listen(&mut self, on: bool) {
        if on != self.listens {
            let flags = if on { EventFlags::IN } else { EventFlags::empty() };
            self.listens =
                epoll::modify(&self.epoll, &self.listener, EventData::new_u64(LISTENER), flags).is_ok() == on;
        }
    }

    /// Takes a connection. Whose it is is looked at when its turn comes.
    fn welcome(&mut self, socket: OwnedFd) {
        // One that connected before this process listened may have sent descriptors since, and there are kernels where everybody can.
        let is_guarded = sys::refuse_rights(socket.as_fd()) != Some(true);
        // Such a one does not have this from the one that listens, either.
        let _ = rustix::net::sockopt::set_socket_passcred(&socket, true);
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, SOCKET_BYTES);
        let peer = match Peer::of(socket.as_fd(), self.finder.modules()) {
            Ok(peer) => peer,
            Err(errno) => {
                put_greeting(&socket, errno.raw_os_error());
                return self.close(socket, is_guarded, Account::Unknown);
            }
        };
        self.generation = self.generation.wrapping_add(1);
        let client = Client {
            account: Account::User(peer.user),
            socket,
            peer,
            before: Err(libc::EBUSY),
            particulars: None,
            state: State::Arriving,
            interest: EventFlags::empty(),
            deadline: None,
            progress: Progress::default(),
            idle_since: Instant::now(),
            is_guarded,
            generation: self.generation,
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.clients.push(None);
            self.clients.len() - 1
        });
        let data = EventData::new_u64(token(index, client.generation));
        let added = epoll::add(&self.epoll, &client.socket, data, client.interest);
        let (account, pid) = (client.account, client.peer.pid);
        self.clients[index] = Some(client);
        if added.is_err() {
            return self.leave(index);
        }
        // Who has no place even by its own user has none by the one who stands behind that.
        let is_full = !account.is_root() && self.connections_of(account) >= self.limits.clients_per_user;
        match is_full && self.longest_idle(Some(account)).is_none() {
            true => self.refuse(index),
            false => self.arrivals.push(pid, index),
        }
    }

    /// Lets in who has connected, as far as there is time and room.
    fn let_in(&mut self) {
        let began = Instant::now();
        while let Some(index) = self.arrivals.pop() {
            self.admit(index);
            if began.elapsed() >= SLICE {
                break;
            }
        }
    }

    /// Lets one in, or says why not.
    fn admit(&mut self, index: usize) {
        let Some(client) = &mut self.clients[index] else {
            return;
        };
        // It has gone already: to look at it is not worth while.
        let events = sys::events_now(client.socket.as_fd(), PollFlags::empty());
        if events.is_ok_and(|events| events.contains(PollFlags::HUP)) {
            return self.leave(index);
        }
        let found = self.finder.find(&mut self.passes, &client.peer);
        client.before = found.and_then(|facts| first_facts(facts, &client.peer));
        client.account = match &client.before {
            Ok(facts) => Account::of(client.peer.user, facts.owner),
            Err(_) => Account::Unknown,
        };
        let account = client.account;
        if !self.has_place(account) && !self.make_room(account) {
            return self.refuse(index);
        }
        *self.connections.entry(account).or_default() += 1;
        self.counters.clients += 1;
        if let Some(client) = &mut self.clients[index] {
            client.state = State::Idle;
            client.idle_since = Instant::now();
            self.watch(index, EventFlags::IN);
        }
    }

    /// Tells one that has just connected that there is no place for it, and keeps it until it has read that.
    fn refuse(&mut self, index: usize) {
        self.arrivals.remove(index);
        let Some(client) = &mut self.clients[index] else {
            return;
        };
        self.counters.refused += 1;
        log(Level::Debug, format_args!("{:?}: too many clients", client.account));
        put_greeting(&client.socket, libc::EBUSY);
        client.state = State::Refused;
        client.deadline = Some(Instant::now() + REFUSED_KEPT);
        self.refused.push_back((index, client.generation));
        self.watch(index, EventFlags::IN);
        if self.refused.len() > REFUSED_MOST {
            if let Some((index, generation)) = self.refused.pop_front() {
                self.leave_if(index, generation);
            }
        }
    }

    fn connections_of(&self, account: Account) -> usize {
        self.connections.get(&account).copied().unwrap_or(0)
    }

    /// Whether there is room for another connection of an account. Some is kept for root.
    fn has_place(&self, account: Account) -> bool {
        let all: usize = self.connections.values().sum();
        match account.is_root() {
            true => all < self.limits.clients,
            false => {
                all + Limits::OF_ROOT.min(self.limits.clients / 2) < self.limits.clients
                    && self.connections_of(account) < self.limits.clients_per_user
            }
        }
    }

    /// The client, of an account or of any, that has had nothing to ask for the longest time.
    fn longest_idle(&self, of: Option<Account>) -> Option<usize> {
        let idle = self.clients.iter().enumerate().filter_map(|(index, client)| {
            let client = client.as_ref()?;
            let is_idle = matches!(client.state, State::Idle) && of.is_none_or(|of| of == client.account);
            is_idle.then_some((client.idle_since, index))
        });
        idle.min().map(|(_, index)| index)
    }

    /// Ends connections that nothing is asked over, where another one needs a place: those of the same account, or of the one that has the
    /// most.
    fn make_room(&mut self, account: Account) -> bool {
        // More than one where some places that are root's are taken by others.
        for _ in 0..Limits::OF_ROOT {
            let is_own_limit = !account.is_root() && self.connections_of(account) >= self.limits.clients_per_user;
            let mut accounts: Vec<Account> = match is_own_limit {
                true => vec![account],
                false => self.connections.keys().copied().filter(|of| !of.is_root()).collect(),
            };
            accounts.sort_by_key(|of| std::cmp::Reverse(self.connections_of(*of)));
            let idle = accounts.into_iter().find_map(|of| self.longest_idle(Some(of)));
            let own = || self.longest_idle(Some(account)).filter(|_| account.is_root());
            let Some(index) = idle.or_else(own) else {
                return false;
            };
            self.counters.ended += 1;
            self.leave(index);
            if self.has_place(account) {
                return true;
            }
        }
        false
    }

    fn leave_if(&mut self, index: usize, generation: u32) {
        if self.is_there((index, generation)) {
            self.leave(index);
        }
    }

    fn is_there(&self, (index, generation): For) -> bool {
        let client = self.clients.get(index).and_then(Option::as_ref);
        client.is_some_and(|client| client.generation == generation)
    }

    fn leave(&mut self, index: usize) {
        let Some(client) = self.clients[index].take() else {
            return;
        };
        self.free.push(index);
        self.pool.forget((index, client.generation));
        self.arrivals.remove(index);
        self.small.remove(index);
        self.large.remove(index);
        let Client {
            socket,
            account,
            is_guarded,
            state,
            ..
        } = client;
        match state {
            // These had no place.
            State::Arriving | State::Refused => {
                self.refused.retain(|(other, _)| *other != index);
                self.close(socket, is_guarded, account);
            }
            _ if is_guarded => {
                // Its place is taken until it is closed: see `has_closed`.
                let _ = epoll::delete(&self.epoll, &socket);
                self.pool.close(socket, account);
            }
            _ => {
                drop(socket);
                self.has_closed(account);
            }
        }
    }

    /// Closes the connection of one that had no place.
    fn close(&mut self, socket: OwnedFd, is_guarded: bool, account: Account) {
        let _ = epoll::delete(&self.epoll, &socket);
        if is_guarded {
            *self.connections.entry(account).or_default() += 1;
            self.pool.close(socket, account);
        }
    }

    fn has_closed(&mut self, account: Account) {
        if let Some(count) = self.connections.get_mut(&account) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.connections.remove(&account);
            }
        }
        self.listen(true);
    }

    // ---- what clients say ----

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

    /// The next packet of a client. An error if it has gone, or sends what it must not.
    fn take_packet(&mut self, index: usize) -> Result<(sys::Packet, [u8; wire::REQUEST_MAX + 8]), Errno> {
        let client = self.clients[index].as_ref().ok_or(Errno::PIPE)?;
        let mut buffer = [0; wire::REQUEST_MAX + 8];
        // What is looked at stays where it is, with descriptors that come along: those are for who closes the connection.
        if client.is_guarded && sys::receive(client.socket.as_fd(), &mut buffer, true)?.has_more {
            return Err(Errno::PERM);
        }
        let packet = sys::receive(client.socket.as_fd(), &mut buffer, false)?;
        match packet.len == 0 && packet.sender == 0 {
            true => Err(Errno::PIPE),
            false => Ok((packet, buffer)),
        }
    }

    /// Takes one request.
    fn receive(&mut self, index: usize) {
        let (packet, buffer) = match self.take_packet(index) {
            Ok(taken) => taken,
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => return self.leave(index),
        };
        self.counters.requests += 1;
        let parsed = match packet {
            _ if packet.is_cut => Err(BadRequest {
                seq: 0,
                errno: libc::EMSGSIZE,
            }),
            _ => Request::parse(&buffer[..packet.len]),
        };
        let Some(client) = &mut self.clients[index] else {
            return;
        };
        client.deadline = None;
        client.progress = Progress::default();
        match parsed {
            // A socket speaks for who made it, and for nobody whom that handed it to.
            Ok(request) if packet.sender as u32 != client.peer.pid => self.fail(index, request.seq, libc::EPERM),
            // The kernel limits how many files are under way from this process, to all of its clients together.
            Ok(request) if request.show & show::OPENED != 0 && sys::unread(client.socket.as_fd()) != Ok(0) => {
                self.fail(index, request.seq, libc::EBUSY)
            }
            Ok(request) => self.take_in(index, request),
            Err(BadRequest { seq, errno }) => self.fail(index, seq, errno),
        }
    }

    /// Has a request answered when its turn comes.
    fn take_in(&mut self, index: usize, request: Request) {
        let Some(client) = &mut self.clients[index] else {
            return;
        };
        let before = client.before.as_ref();
        if client.particulars.is_none() && before.is_ok_and(|before| self.finder.wants_particulars(before)) {
            return self.look_up(index, request);
        }
        client.state = State::Waiting(request);
        let (account, is_small) = (client.account, is_small(&request));
        match is_small {
            true => self.small.push(account, index),
            false => self.large.push(account, index),
        }
    }

    /// Has a reader look up who asks.
    fn look_up(&mut self, index: usize, request: Request) {
        let Some(client) = &mut self.clients[index] else {
            return;
        };
        let job = Job::of([(Kind::Client, client.peer.pid)]);
        client.state = State::Asking(request);
        let place = (index, client.generation);
        if self.pool.ask(place, client.account, job, pool::PATIENCE).is_err() {
            self.fail(index, request.seq, libc::EBUSY);
        }
    }

    /// Answers with an error.
    fn fail(&mut self, index: usize, seq: u32, errno: i32) {
        self.counters.errors += 1;
        let mut bytes = Vec::new();
        wire::put_error(&mut bytes, seq, errno);
        self.answer(index, seq, bytes);
    }

    /// Answers with few bytes.
    fn answer(&mut self, index: usize, seq: u32, bytes: Vec<u8>) {
        self.begin(index, Answer::whole(seq, bytes));
    }

    /// Begins to send an answer.
    fn begin(&mut self, index: usize, answer: Answer) {
        if let Some(client) = &mut self.clients[index] {
            client.particulars = None;
            client.state = State::Answering(Box::new(answer));
            let place = (index, client.generation);
            self.pump(place);
        }
    }

    // ---- answers ----

    /// Makes and sends as much of an answer as its client takes, for a turn.
    fn pump(&mut self, place: For) {
        let (index, generation) = place;
        let mut budget = TURN;
        loop {
            if !self.is_there(place) {
                return;
            }
            let Some(client) = &mut self.clients[index] else {
                return;
            };
            let State::Answering(answer) = &mut client.state else {
                return;
            };
            if let Some(since) = client.progress.since.take() {
                client.progress.waited += since.elapsed();
                client.deadline = None;
            }
            let needs = answer.go_on();
            // What a process may see of itself is not for another one that has its number now.
            if budget == TURN && !client.peer.is_alive() {
                return self.leave(index);
            }
            match send(&client.socket, answer, &mut budget) {
                Sent::All => {}
                Sent::Some => {
                    self.ready.push_back((index, generation));
                    return self.watch(index, EventFlags::empty());
                }
                Sent::Blocked(sent) => {
                    client.progress.sent += sent;
                    client.progress.since = Some(Instant::now());
                    client.deadline = Some(Instant::now() + client.progress.allowed(self.limits.patience));
                    if let (Needs::Room | Needs::News, Some(reader)) = (&needs, self.pool.reader_of(place)) {
                        if !answer.has_room() {
                            self.listen_to(reader, false);
                        }
                    }
                    return self.watch(index, EventFlags::OUT);
                }
                Sent::Closed => return self.leave(index),
            }
            match needs {
                Needs::Room => {}
                Needs::Nothing => return self.is_answered(index),
                Needs::Reader => {
                    let patience = patience(answer);
                    let Some(job) = answer.job() else {
                        return self.leave(index);
                    };
                    if self.pool.ask(place, client.account, job, patience).is_err() {
                        answer.fail(libc::EBUSY);
                        continue;
                    }
                    return self.watch(index, EventFlags::empty());
                }
                Needs::News => {
                    if let Some(reader) = self.pool.reader_of(place) {
                        self.listen_to(reader, true);
                    }
                    return self.watch(index, EventFlags::empty());
                }
            }
        }
    }

    /// The answer is out: the next request may come.
    fn is_answered(&mut self, index: usize) {
        let Some(client) = &mut self.clients[index] else {
            return;
        };
        client.state = State::Idle;
        client.idle_since = Instant::now();
        // What it does not read takes memory of ours.
        client.deadline = Some(client.idle_since + self.limits.patience);
        self.watch(index, EventFlags::IN);
    }

    /// Goes on with answers whose turn it is.
    fn go_on(&mut self) {
        for _ in 0..self.ready.len().min(READY_AT_ONCE) {
            if let Some(place) = self.ready.pop_front() {
                self.pump(place);
            }
        }
    }

    // ---- helpers ----

    fn give_out(&mut self) {
        let events = self.pool.give_out();
        self.take_events(events);
    }

    fn take_events(&mut self, events: Vec<pool::Event>) {
        for event in events {
            match event {
                pool::Event::Began(place) => self.watch_helper(place, true),
                pool::Event::Closed(account) => {
                    self.counters.held += 1;
                    self.has_closed(account);
                }
                pool::Event::Held(place) => {
                    self.counters.held += 1;
                    self.is_held(place);
                }
            }
        }
    }

    /// A reader that worked for a client was held up.
    fn is_held(&mut self, place: For) {
        if !self.is_there(place) {
            return;
        }
        let Some(client) = &mut self.clients[place.0] else {
            return;
        };
        match &mut client.state {
            State::Answering(answer) => {
                answer.is_held(&mut self.passes);
                self.pump(place);
            }
            State::Asking(request) => {
                let seq = request.seq;
                self.fail(place.0, seq, libc::EBUSY);
            }
            _ => {}
        }
    }

    fn hear_keeper(&mut self) -> io::Result<()> {
        let events = self
            .pool
            .hear_keeper()
            .map_err(|_| io::Error::other("the keeper has ended"))?;
        self.take_events(events);
        Ok(())
    }

    fn watch_helper(&mut self, place: usize, is_new: bool) {
        let Some(helper) = self.pool.helper(place) else {
            return;
        };
        let data = EventData::new_u64(token(place, helper.generation) | OF_HELPER);
        let done = match is_new {
            true => epoll::add(&self.epoll, &helper.socket, data, EventFlags::IN),
            false => epoll::modify(&self.epoll, &helper.socket, data, EventFlags::IN),
        };
        if done.is_err() {
            let event = self.pool.end(place);
            self.take_events(event.into_iter().collect());
        }
    }

    /// Listens to a reader, or does not until its client has taken something.
    fn listen_to(&mut self, place: usize, on: bool) {
        match on {
            true => {
                let patience = self.patience_at(place);
                if self.pool.resume(place, patience) {
                    self.watch_helper(place, false);
                }
            }
            false => {
                self.pool.pause(place);
                if let Some(helper) = self.pool.helper(place) {
                    let data = EventData::new_u64(token(place, helper.generation) | OF_HELPER);
                    let _ = epoll::modify(&self.epoll, &helper.socket, data, EventFlags::empty());
                }
            }
        }
    }

    fn patience_at(&self, place: usize) -> Duration {
        let client = self
            .pool
            .works_for(place)
            .and_then(|(index, _)| self.clients[index].as_ref());
        match client.map(|client| &client.state) {
            Some(State::Answering(answer)) => patience(answer),
            _ => pool::PATIENCE,
        }
    }

    /// Hears a helper.
    fn helper_event(&mut self, place: usize, generation: u32) {
        let Some(helper) = self.pool.helper(place).filter(|helper| helper.generation == generation) else {
            return;
        };
        let mut packet = std::mem::take(&mut self.packet);
        packet.resize(job::PACKET, 0);
        let received = sys::receive_with_file(&helper.socket, &mut packet);
        match (received, self.pool.works_for(place)) {
            (Err(Errno::AGAIN | Errno::INTR), _) => {}
            (Ok((len, file)), Some(client)) if len > 0 => self.hear(place, client, &packet[..len], file),
            (Ok((1, None)), None) => {
                if let Some(account) = self.pool.is_closed(place) {
                    self.has_closed(account);
                }
            }
            _ => {
                let event = self.pool.end(place);
                self.take_events(event.into_iter().collect());
            }
        }
        self.packet = packet;
    }

    /// Hears what a reader says for a client.
    fn hear(&mut self, place: usize, client: For, packet: &[u8], file: Option<OwnedFd>) {
        let there = self.is_there(client).then(|| self.clients[client.0].as_mut()).flatten();
        let (Some(there), Some((told, payload))) = (there, reader::told(packet)) else {
            let event = self.pool.end(place);
            return self.take_events(event.into_iter().collect());
        };
        let (item, status) = (told.index.get(), told.status.get());
        match &mut there.state {
            State::Asking(request) => {
                let request = *request;
                there.particulars = (status == job::LAST).then(|| Particulars::parse(payload)).flatten();
                let found = there.particulars.is_some();
                self.pool.is_heard(place, true, pool::PATIENCE);
                match found {
                    true => self.take_in(client.0, request),
                    false => self.fail(client.0, request.seq, libc::EPERM),
                }
            }
            State::Answering(answer) => {
                let is_done = status != job::MORE && item as usize + 1 >= answer.job_len();
                if !answer.hear(item, status, payload, file, &mut self.passes) {
                    let event = self.pool.end(place);
                    return self.take_events(event.into_iter().collect());
                }
                let patience = patience(answer);
                self.pool.is_heard(place, is_done, patience);
                self.ready.push_back(client);
            }
            _ => {
                let event = self.pool.end(place);
                self.take_events(event.into_iter().collect());
            }
        }
    }

    // ---- time ----

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

    // ---- requests ----

    /// Answers requests whose turn it is: some about few tasks, and one about many.
    fn serve(&mut self) {
        let began = Instant::now();
        while let Some(first) = self.small.pop() {
            self.serve_one(first);
            if began.elapsed() >= SLICE {
                break;
            }
        }
        if let Some(first) = self.large.pop() {
            self.serve_one(first);
        }
    }

    /// Answers a request, and all that ask the same.
    fn serve_one(&mut self, first: usize) {
        let Some(request) = self.waits_for(first) else {
            return;
        };
        let request = Request { seq: 0, ..request };
        let began = Instant::now();
        let mut known = Known::default();
        let Some((ask, facts, eyes)) = self.prepare(first, &request, &mut known) else {
            return;
        };
        let mut batch = vec![(first, facts, eyes)];
        if ask.as_task == 0 && self.limits.shares && !is_small(&request) {
            for index in self.alike(&request) {
                if began.elapsed() >= SLICE {
                    break;
                }
                match self.prepare(index, &request, &mut known) {
                    Some((other, facts, eyes)) if other == ask => {
                        self.large.remove(index);
                        batch.push((index, facts, eyes));
                    }
                    _ => {}
                }
            }
        }
        self.pass(&request, &ask, batch);
    }

    /// The request that a client waits for an answer to.
    fn waits_for(&self, index: usize) -> Option<Request> {
        match self.clients[index].as_ref()?.state {
            State::Waiting(request) => Some(request),
            _ => None,
        }
    }

    /// Other clients that wait for the answer to the same request about many tasks.
    fn alike(&self, request: &Request) -> Vec<usize> {
        let waits = |index: &usize| {
            let other = self.waits_for(*index);
            other.is_some_and(|other| Request { seq: 0, ..other } == *request)
        };
        self.large.each().filter(waits).collect()
    }

    /// What a client's request takes, and who looks. Answers it here if no pass is needed.
    fn prepare(&mut self, index: usize, request: &Request, known: &mut Known) -> Option<(Ask, Facts, Eyes)> {
        let client = self.clients[index].as_ref()?;
        let Request { seq, .. } = self.waits_for(index)?;
        let groups = encode::groups_read(request).0;
        let particulars = client.particulars.as_ref();
        let found = client.before.as_ref().map_err(|errno| *errno).and_then(|before| {
            let facts = known.find(&self.finder, &mut self.passes, &client.peer)?;
            let Some(facts) = self.finder.complete(facts, particulars)? else {
                return Ok(None);
            };
            let as_task = self.finder.look_as(&facts, groups)?;
            let eyes = eyes(before, &facts);
            Ok(Some((facts, as_task, eyes)))
        });
        let (facts, as_task, eyes) = match found {
            Ok(Some(found)) => found,
            // It went into a user namespace since it connected.
            Ok(None) => {
                self.forget(index);
                self.look_up(index, Request { seq, ..*request });
                return None;
            }
            Err(errno) => {
                self.forget(index);
                self.fail(index, seq, errno);
                return None;
            }
        };
        if request.show & show::BITS != 0 {
            self.forget(index);
            self.tell_bits(index, seq, &eyes);
            return None;
        }
        let reads = request.show & (show::MAPPINGS | show::CMDLINE | show::OPENED) != 0;
        if reads && as_task != 0 {
            self.forget(index);
            self.fail(index, seq, libc::EPERM);
            return None;
        }
        let scope = match request.strategy {
            Strategy::All => Tasks::Processes,
            Strategy::AllThreads => Tasks::Threads,
            Strategy::One => Tasks::Process(request.pid),
            Strategy::Thread => Tasks::ThreadsOf(request.pid),
            Strategy::Children => Tasks::ChildrenOf(request.pid),
        };
        let ask = Ask {
            scope,
            groups,
            as_task,
            domains: eyes.are_in_domain(),
            most: match request.show & show::OPENED {
                0 => usize::MAX,
                _ => FIRST_THREADS,
            },
        };
        Some((ask, facts, eyes))
    }

    /// It is not in a queue any more.
    fn forget(&mut self, index: usize) {
        self.small.remove(index);
        self.large.remove(index);
    }

    fn tell_bits(&mut self, index: usize, seq: u32, eyes: &Eyes) {
        let (all, of_all) = eyes.of_all();
        let bits = wire::Bits {
            bits: U64::new(wire::ALL_BITS),
            of_all: U64::new(of_all),
            version: U32::new(wire::VERSION),
            flags: U32::new(if all { wire::SEES_ALL } else { 0 }),
        };
        let mut bytes = Vec::new();
        let mut message = MessageWriter::task(&mut bytes, seq, Default::default());
        message.attribute(attribute::BITS, |out| out.extend_from_slice(bits.as_bytes()));
        message.finish();
        wire::put_done(&mut bytes, seq);
        self.answer(index, seq, bytes);
    }

    /// Makes one pass for all of a batch.
    fn pass(&mut self, request: &Request, ask: &Ask, batch: Vec<(usize, Facts, Eyes)>) {
        self.counters.passes += 1;
        let parent = match ask.scope {
            Tasks::ChildrenOf(pid) => self.passes.run(&Ask {
                scope: Tasks::Process(pid),
                groups: 0,
                ..*ask
            }),
            _ => Ok(Records::default()),
        };
        let records = parent.and_then(|parent| Ok((parent, self.passes.run(ask)?)));
        let (parent, records) = match records {
            Ok(records) => records,
            Err(error) => {
                log(Level::Warning, format_args!("a pass failed: {error}"));
                return batch
                    .iter()
                    .for_each(|(index, ..)| self.fail_waiting(*index, libc::EIO));
            }
        };
        match matches!(request.strategy, Strategy::One | Strategy::Thread) {
            true => self.linger.begin(),
            false => self.linger.end(),
        }
        let bytes = records.as_bytes().len();
        let taken = self.memory.take(bytes, self.limits.bytes);
        if taken.is_none() {
            return batch
                .iter()
                .for_each(|(index, ..)| self.fail_waiting(*index, libc::EBUSY));
        }
        let pass = Rc::new(Pass { records, taken });
        for (index, facts, eyes) in batch {
            let Some(Request { seq, .. }) = self.waits_for(index) else {
                continue;
            };
            // What the pass looked from, if not from here, was there all the while: the client's own task.
            if let Err(errno) = self.check_after(index, ask, &facts) {
                self.fail(index, seq, errno);
                continue;
            }
            if matches!(request.strategy, Strategy::Children) && !sees_any(&eyes, &parent) {
                self.fail(index, seq, libc::ESRCH);
                continue;
            }
            let Some(account) = self.clients[index].as_ref().map(|client| client.account) else {
                continue;
            };
            let taken = self.memory_of.of(account).take(bytes, self.limits.bytes / 3);
            if taken.is_none() {
                self.fail(index, seq, libc::EBUSY);
                continue;
            }
            let mut answer = Answer::new(Request { seq, ..*request }, eyes, Rc::clone(&pass), taken);
            if request.show & show::OPENED != 0 {
                answer.find_memory();
            }
            self.begin(index, answer);
        }
        if let Some(pass) = Rc::into_inner(pass) {
            self.passes.reuse(pass.records);
        }
        self.release_at = self.passes.holds_memory().then(|| Instant::now() + MEMORY_KEPT);
    }

    fn fail_waiting(&mut self, index: usize, errno: i32) {
        if let Some(request) = self.waits_for(index) {
            self.fail(index, request.seq, errno);
        }
    }

    fn check_after(&mut self, index: usize, ask: &Ask, facts: &Facts) -> Result<(), i32> {
        let Some(client) = &self.clients[index] else {
            return Err(libc::ESRCH);
        };
        if ask.as_task != 0 {
            let after = self.finder.find(&mut self.passes, &client.peer)?;
            if !after.same_place(facts) {
                return Err(libc::EBUSY);
            }
        }
        match client.peer.is_alive() {
            true => Ok(()),
            false => Err(libc::ESRCH),
        }
    }
}

/// What is known already of those who share a pass: many connections may be of one process.
#[derive(Default)]
struct Known(HashMap<(u32, bool), Result<Facts, i32>>);

impl Known {
    fn find(&mut self, finder: &Finder, passes: &mut Passes, peer: &Peer) -> Result<Facts, i32> {
        let found = match self.0.entry((peer.pid, peer.is_confined())) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(place) => place.insert(finder.find(passes, peer)).clone(),
        };
        // Else it was another process that had this number.
        match peer.is_alive() {
            true => found,
            false => Err(libc::ESRCH),
        }
    }
}

/// What became of sending.
enum Sent {
    /// There is nothing left to send.
    All,
    /// It is another one's turn.
    Some,
    /// The socket is full.
    Blocked(usize),
    /// The client has gone.
    Closed,
}

/// Sends what of an answer there is, as far as the socket has room.
fn send(socket: &OwnedFd, answer: &mut Answer, budget: &mut usize) -> Sent {
    let mut sent = 0;
    while answer.waits() {
        if *budget == 0 {
            return Sent::Some;
        }
        let file = answer.file.take();
        let packet = answer.packet();
        let len = packet.len();
        if len == 0 {
            return Sent::Closed;
        }
        let result = match &file {
            Some(file) => sys::send(socket.as_fd(), packet, Some(file.as_fd()), true),
            None => rustix::net::send(socket, packet, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map(drop),
        };
        match result {
            Ok(()) => {
                answer.has_sent(len);
                sent += len;
                *budget = budget.saturating_sub(len);
            }
            Err(Errno::AGAIN) => {
                answer.file = file;
                return Sent::Blocked(sent);
            }
            Err(Errno::INTR) => answer.file = file,
            Err(_) => return Sent::Closed,
        }
    }
    Sent::All
}

fn token(index: usize, generation: u32) -> u64 {
    index as u64 | u64::from(generation) << 32
}

/// How long a reader that works for an answer may say nothing.
fn patience(answer: &Answer) -> Duration {
    match answer.is_slow() {
        true => pool::LONG_PATIENCE,
        false => pool::PATIENCE,
    }
}

/// The facts of one that has just connected, if they are those of the one that did. Privileges that a program gave it count only
/// if it had them then: of a process that can't be dumped that is not known.
fn first_facts(mut facts: Facts, peer: &Peer) -> Result<Facts, i32> {
    if facts.effective != (peer.user, peer.group) {
        return Err(libc::EPERM);
    }
    if !facts.is_dumpable {
        facts.subject.capabilities = 0;
    }
    Ok(facts)
}

/// With what a client looks, which is two.
fn eyes(before: &Facts, now: &Facts) -> Eyes {
    Eyes {
        before: Subject {
            pid: now.subject.pid,
            ..before.subject.clone()
        },
        now: now.subject.clone(),
        observer: before.observer && now.observer,
        users: now.users.clone(),
        groups: now.groups.clone(),
    }
}

/// Tells one that is not let in why.
fn put_greeting(socket: &OwnedFd, errno: i32) {
    let mut bytes = Vec::new();
    wire::put_error(&mut bytes, 0, errno);
    let _ = rustix::net::send(socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Whether a request takes no pass over many tasks.
fn is_small(request: &Request) -> bool {
    // A process may have many threads; a file of it takes the first of them.
    let is_about_few = match request.strategy {
        Strategy::One => true,
        Strategy::Thread => request.show & show::OPENED != 0,
        _ => false,
    };
    is_about_few || request.show & show::BITS != 0
}

/// Whether a client may see any of the tasks.
fn sees_any(eyes: &Eyes, records: &Records) -> bool {
    let may_see = |record| Object::of(record).is_some_and(|object| eyes.sight(&object).is_some());
    records.each().any(|record| eyes.observer || may_see(record))
}
