//! The loop: takes requests, makes passes, sends answers.
//!
//! One thread does it all, so that nothing is shared and nothing can be mixed up. A client has one request at a time here; its
//! others wait in its own socket, where they cost nobody else anything. Clients that ask the same at the same time share a pass,
//! which begins after all of them have asked. Those that may see the same share the answer as well.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags};
use taskdiag::broker::access::Object;
use taskdiag::broker::passes::{Ask, Passes, Tasks};
use taskdiag::broker::wire::{self, attribute, show, BadRequest, MessageWriter, Request, Strategy};
use taskdiag::field::Groups;
use taskdiag::record::Record;
use taskdiag::Group;
use zerocopy::native_endian::{U32, U64};
use zerocopy::IntoBytes as _;

use crate::encode::{self, Eyes};
use crate::facts::{Facts, Finder, Peer};
use crate::file::Dump;
use crate::log::{log, Level};
use crate::mappings::{Reader, Stream};
use crate::sys;

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients at a time.
    pub clients: usize,
    /// Of one user.
    pub clients_per_user: usize,
    /// Bytes of answers that have not been taken yet.
    pub bytes: usize,
    /// Of one user.
    pub bytes_per_user: usize,
    /// How long a client may leave an answer where it is.
    pub patience: Duration,
    /// Whether clients that ask the same share a pass.
    pub shares: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            clients: 1024,
            clients_per_user: 640,
            bytes: 512 << 20,
            bytes_per_user: 192 << 20,
            patience: Duration::from_secs(10),
            shares: true,
        }
    }
}

/// Numbers of what was done, for the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Clients.
    pub clients: u64,
    /// Requests, also those that were none.
    pub requests: u64,
    /// Passes over tasks.
    pub passes: u64,
    /// Answers that are errors.
    pub errors: u64,
    /// Clients that were sent away for leaving answers where they were.
    pub impatience: u64,
}

/// The bytes that answers of one user take.
type Account = Rc<Cell<usize>>;

/// An answer, which several clients may wait for.
#[derive(Debug)]
struct Answer {
    bytes: Vec<u8>,
    dump: Option<Rc<Dump>>,
    booked: usize,
    accounts: [Account; 2],
}

impl Answer {
    /// Books so many bytes for it, if there is room for them.
    fn book(&mut self, bytes: usize, limits: [usize; 2]) -> Result<(), i32> {
        let more = bytes - self.booked;
        let has_room = |(account, limit): (&Account, usize)| account.get() + more <= limit;
        if !self.accounts.iter().zip(limits).all(has_room) {
            return Err(libc::EBUSY);
        }
        self.accounts
            .iter()
            .for_each(|account| account.set(account.get() + more));
        self.booked = bytes;
        Ok(())
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        for account in &self.accounts {
            account.set(account.get().saturating_sub(self.booked));
        }
    }
}

#[derive(Debug)]
enum State {
    Idle,
    /// In the queue of its user.
    Waiting(Request),
    Sending {
        answer: Rc<Answer>,
        at: usize,
        seq: u32,
    },
    /// With what is left of the part before.
    Streaming {
        stream: Box<Stream>,
        part: Vec<u8>,
        at: usize,
    },
}

#[derive(Debug)]
struct Client {
    socket: OwnedFd,
    peer: Peer,
    /// As it was when it connected.
    before: Result<Facts, i32>,
    state: State,
    interest: EventFlags,
    /// Until when it has to take something.
    deadline: Option<Instant>,
    /// A dump that it may be reading, and until when.
    dump: Option<(Rc<Answer>, Instant)>,
    generation: u32,
}

/// The broker.
#[derive(Debug)]
pub struct Server {
    listener: OwnedFd,
    epoll: OwnedFd,
    passes: Passes,
    finder: Finder,
    reader: Option<Reader>,
    limits: Limits,
    clients: Vec<Option<Client>>,
    free: Vec<usize>,
    generation: u32,
    per_user: HashMap<u32, usize>,
    accounts: HashMap<u32, Account>,
    all_bytes: Account,
    /// Who waits, by users, who take turns.
    queue: VecDeque<(u32, VecDeque<usize>)>,
    streams: VecDeque<(usize, u32)>,
    listens: bool,
    packet: Vec<u8>,
    /// What was done.
    pub counters: Counters,
}

const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// So much of a dump is written at once: it is still in the processor's cache then.
const CHUNK: usize = 256 << 10;

/// Clients that are let in between two requests.
const ACCEPTED_AT_ONCE: usize = 16;

impl Server {
    /// A server for a listening socket. It ends when `stop` becomes readable.
    pub fn new(
        listener: OwnedFd,
        stop: BorrowedFd<'_>,
        passes: Passes,
        finder: Finder,
        reader: Option<Reader>,
        limits: Limits,
    ) -> io::Result<Server> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&listener, true)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, stop, EventData::new_u64(STOP), EventFlags::IN)?;
        Ok(Server {
            listener,
            epoll,
            passes,
            finder,
            reader,
            limits,
            clients: Vec::new(),
            free: Vec::new(),
            generation: 0,
            per_user: HashMap::new(),
            accounts: HashMap::new(),
            all_bytes: Account::default(),
            queue: VecDeque::new(),
            streams: VecDeque::new(),
            listens: true,
            packet: Vec::new(),
            counters: Counters::default(),
        })
    }

    /// Serves until it is told to stop.
    pub fn run(&mut self) -> io::Result<()> {
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
            for event in events {
                match { event.data }.u64() {
                    LISTENER => self.accept(),
                    STOP => return Ok(()),
                    token => self.event(token as u32 as usize, (token >> 32) as u32, event.flags),
                }
            }
            self.expire();
            self.serve();
            self.stream();
        }
    }

    /// How long there is nothing to do without an event.
    fn timeout(&self) -> Option<Duration> {
        if !self.queue.is_empty() || !self.streams.is_empty() {
            return Some(Duration::ZERO);
        }
        let ends = self.clients.iter().flatten();
        let ends = ends.flat_map(|client| [client.deadline, client.dump.as_ref().map(|(_, until)| *until)]);
        let first = ends.flatten().min()?;
        // Not a moment too early, or the loop would turn once more for nothing.
        Some(first.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_AT_ONCE {
            match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.welcome(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => {
                    // Out of descriptors or memory: until somebody leaves. Else the loop would turn without end.
                    log(Level::Warning, format_args!("no client can be let in: {errno}"));
                    self.listen(false);
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

    /// Takes in a client, or says why not.
    fn welcome(&mut self, socket: OwnedFd) {
        let peer = match rustix::net::sockopt::set_socket_passcred(&socket, true)
            .and_then(|()| Peer::of(socket.as_fd(), self.finder.modules()))
        {
            Ok(peer) => peer,
            Err(errno) => return refuse(&socket, errno.raw_os_error()),
        };
        let of_user = self.per_user.entry(peer.user).or_default();
        if *of_user >= self.limits.clients_per_user || self.clients.len() - self.free.len() >= self.limits.clients {
            log(Level::Debug, format_args!("user {}: too many clients", peer.user));
            return refuse(&socket, libc::EBUSY);
        }
        *of_user += 1;
        self.counters.clients += 1;
        let before = self
            .finder
            .find(&mut self.passes, &peer)
            .and_then(|facts| first_facts(facts, &peer));
        self.generation = self.generation.wrapping_add(1);
        let index = self.free.pop().unwrap_or_else(|| {
            self.clients.push(None);
            self.clients.len() - 1
        });
        let client = Client {
            socket,
            peer,
            before,
            state: State::Idle,
            interest: EventFlags::IN,
            deadline: None,
            dump: None,
            generation: self.generation,
        };
        let data = EventData::new_u64(token(index, client.generation));
        let added = epoll::add(&self.epoll, &client.socket, data, client.interest);
        self.clients[index] = Some(client);
        if added.is_err() {
            self.leave(index);
        }
    }

    fn leave(&mut self, index: usize) {
        let Some(client) = self.clients[index].take() else {
            return;
        };
        self.free.push(index);
        if let Some(count) = self.per_user.get_mut(&client.peer.user) {
            *count -= 1;
            if *count == 0 {
                self.per_user.remove(&client.peer.user);
            }
        }
        if let State::Waiting(_) = client.state {
            self.unqueue(client.peer.user, index);
        }
        drop(client);
        self.accounts.retain(|_, account| Rc::strong_count(account) > 1);
        self.listen(true);
    }

    fn unqueue(&mut self, user: u32, index: usize) {
        if let Some(place) = self.queue.iter().position(|(of, _)| *of == user) {
            self.queue[place].1.retain(|&other| other != index);
            if self.queue[place].1.is_empty() {
                self.queue.remove(place);
            }
        }
    }

    fn event(&mut self, index: usize, generation: u32, flags: EventFlags) {
        let Some(Some(client)) = self.clients.get(index) else {
            return;
        };
        // An event of one that has left, whose place is another's.
        if client.generation != generation {
            return;
        }
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            return self.leave(index);
        }
        match client.state {
            State::Idle if flags.contains(EventFlags::IN) => self.receive(index),
            State::Sending { .. } if flags.contains(EventFlags::OUT) => self.send(index),
            State::Streaming { .. } if flags.contains(EventFlags::OUT) => self.streams.push_back((index, generation)),
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

    /// Takes one request.
    fn receive(&mut self, index: usize) {
        let Some(client) = &mut self.clients[index] else {
            return;
        };
        let mut buffer = [0; wire::REQUEST_MAX + 8];
        let packet = match sys::receive(client.socket.as_fd(), &mut buffer) {
            Ok(packet) if packet.len == 0 && packet.sender == 0 => return self.leave(index),
            Ok(packet) => packet,
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => return self.leave(index),
        };
        self.counters.requests += 1;
        client.dump = None;
        let parsed = match packet {
            _ if packet.is_cut => Err(BadRequest {
                seq: 0,
                errno: libc::EMSGSIZE,
            }),
            _ => Request::parse(&buffer[..packet.len]),
        };
        match parsed {
            // A socket speaks for who made it, and for nobody whom that handed it to.
            Ok(request) if packet.sender as u32 != client.peer.pid => self.fail(index, request.seq, libc::EPERM),
            Ok(request) => {
                let user = client.peer.user;
                client.state = State::Waiting(request);
                match self.queue.iter_mut().find(|(of, _)| *of == user) {
                    Some((_, waiting)) => waiting.push_back(index),
                    None => self.queue.push_back((user, VecDeque::from([index]))),
                }
            }
            Err(BadRequest { seq, errno }) => self.fail(index, seq, errno),
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
        let answer = Answer {
            bytes,
            dump: None,
            booked: 0,
            accounts: Default::default(),
        };
        self.begin_sending(index, seq, Rc::new(answer));
    }

    fn begin_sending(&mut self, index: usize, seq: u32, answer: Rc<Answer>) {
        if let Some(client) = &mut self.clients[index] {
            client.state = State::Sending { answer, at: 0, seq };
            self.send(index);
        }
    }

    /// Sends what can be sent.
    fn send(&mut self, index: usize) {
        loop {
            let Some(client) = &mut self.clients[index] else {
                return;
            };
            let State::Sending { answer, at, seq } = &mut client.state else {
                return;
            };
            self.packet.clear();
            let taken = wire::fill_packet(&answer.bytes[*at..], *seq, &mut self.packet);
            if taken == 0 {
                return self.sent(index);
            }
            let sent = match &answer.dump {
                Some(dump) => send_with(&client.socket, &self.packet, dump.reader()),
                None => rustix::net::send(&client.socket, &self.packet, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            };
            match sent {
                Ok(_) => {
                    *at += taken;
                    client.deadline = None;
                }
                Err(Errno::AGAIN) => {
                    let until = Instant::now() + self.limits.patience;
                    client.deadline.get_or_insert(until);
                    return self.watch(index, EventFlags::OUT);
                }
                Err(Errno::INTR) => {}
                Err(_) => return self.leave(index),
            }
        }
    }

    /// The answer is out: the next request may come.
    fn sent(&mut self, index: usize) {
        let Some(client) = &mut self.clients[index] else {
            return;
        };
        let state = std::mem::replace(&mut client.state, State::Idle);
        client.deadline = None;
        if let State::Sending { answer, .. } = state {
            if answer.dump.is_some() {
                client.dump = Some((answer, Instant::now() + self.limits.patience));
            }
        }
        if self.packet.capacity() > 2 * wire::PACKET {
            self.packet = Vec::new();
        }
        self.watch(index, EventFlags::IN);
    }

    /// Sends away who leaves answers where they are, and takes back dumps.
    fn expire(&mut self) {
        let is_due = |client: &Client, now| client.deadline.is_some_and(|until| until <= now);
        if self
            .clients
            .iter()
            .flatten()
            .all(|client| client.deadline.is_none() && client.dump.is_none())
        {
            return;
        }
        let now = Instant::now();
        for index in 0..self.clients.len() {
            let Some(client) = &mut self.clients[index] else {
                continue;
            };
            if client.dump.as_ref().is_some_and(|(_, until)| *until <= now) {
                client.dump = None;
            }
            if is_due(client, now) {
                self.counters.impatience += 1;
                log(
                    Level::Debug,
                    format_args!("process {}: did not take its answer", client.peer.pid),
                );
                self.leave(index);
            }
        }
    }

    /// Answers the request whose turn it is, and all that ask the same.
    fn serve(&mut self) {
        let Some((user, mut waiting)) = self.queue.pop_front() else {
            return;
        };
        let Some(first) = waiting.pop_front() else {
            return;
        };
        if !waiting.is_empty() {
            self.queue.push_back((user, waiting));
        }
        let Some(State::Waiting(request)) = self.clients[first].as_ref().map(|client| &client.state) else {
            return;
        };
        let request = Request { seq: 0, ..*request };
        let Some((ask, facts)) = self.prepare(first, &request) else {
            return;
        };
        let mut batch = vec![(first, facts)];
        if ask.as_task == 0 && self.limits.shares {
            for index in self.alike(&request) {
                let place = self.clients[index].as_ref().map(|client| client.peer.user);
                if let Some(user) = place {
                    self.unqueue(user, index);
                }
                match self.prepare(index, &request) {
                    Some((other, facts)) if other == ask => batch.push((index, facts)),
                    Some(_) => self.requeue(index),
                    None => {}
                }
            }
        }
        self.pass(&request, &ask, batch);
    }

    fn requeue(&mut self, index: usize) {
        if let Some(client) = &self.clients[index] {
            self.queue.push_back((client.peer.user, VecDeque::from([index])));
        }
    }

    /// Other clients that wait for the answer to the same request.
    fn alike(&self, request: &Request) -> Vec<usize> {
        let waits = |index: &&usize| match self.clients[**index].as_ref().map(|client| &client.state) {
            Some(State::Waiting(other)) => Request { seq: 0, ..*other } == *request,
            _ => false,
        };
        self.queue
            .iter()
            .flat_map(|(_, waiting)| waiting)
            .filter(waits)
            .copied()
            .collect()
    }

    /// What a client's request takes. Answers it here if no pass is needed.
    fn prepare(&mut self, index: usize, request: &Request) -> Option<(Ask, Facts)> {
        let client = self.clients[index].as_ref()?;
        let State::Waiting(Request { seq, .. }) = client.state else {
            return None;
        };
        let groups = encode::groups_read(request).0;
        let found = client.before.as_ref().map_err(|errno| *errno).and_then(|_| {
            let facts = self.finder.find(&mut self.passes, &client.peer)?;
            let as_task = self.finder.look_as(&facts, groups)?;
            Ok((facts, as_task))
        });
        let (facts, as_task) = match found {
            Ok(found) => found,
            Err(errno) => {
                self.fail(index, seq, errno);
                return None;
            }
        };
        if request.show & show::BITS != 0 {
            self.tell_bits(index, seq, &facts);
            return None;
        }
        let wants_mappings = request.show & (show::VMA | show::VMA_STAT) != 0;
        if wants_mappings && (as_task != 0 || self.reader.as_ref().is_none_or(Reader::is_stuck)) {
            let errno = if as_task != 0 { libc::EPERM } else { libc::EBUSY };
            self.fail(index, seq, errno);
            return None;
        }
        let scope = match request.strategy {
            Strategy::All => Tasks::Processes,
            Strategy::AllThreads => Tasks::Threads,
            Strategy::One => Tasks::Process(request.pid),
            Strategy::Thread => Tasks::ThreadsOf(request.pid),
            Strategy::Children => Tasks::ChildrenOf(request.pid),
        };
        let ask = Ask { scope, groups, as_task };
        Some((ask, facts))
    }

    fn eyes(&self, index: usize, now: &Facts) -> Option<Eyes> {
        let before = self.clients[index].as_ref()?.before.as_ref().ok()?;
        Some(Eyes {
            before: taskdiag::broker::access::Subject {
                pid: now.subject.pid,
                ..before.subject.clone()
            },
            now: now.subject.clone(),
            observer: before.observer && now.observer,
            users: now.users.clone(),
            groups: now.groups.clone(),
        })
    }

    fn tell_bits(&mut self, index: usize, seq: u32, facts: &Facts) {
        let Some(eyes) = self.eyes(index, facts) else {
            return;
        };
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
    fn pass(&mut self, request: &Request, ask: &Ask, batch: Vec<(usize, Facts)>) {
        self.counters.passes += 1;
        let parent = match ask.scope {
            Tasks::ChildrenOf(pid) => self.passes.run(&Ask {
                scope: Tasks::Process(pid),
                groups: 0,
                ..*ask
            }),
            _ => Ok(Vec::new()),
        };
        let records = parent.and_then(|parent| Ok((parent, self.passes.run(ask)?)));
        let (parent, records) = match records {
            Ok(records) => records,
            Err(error) => {
                log(Level::Warning, format_args!("a pass failed: {error}"));
                return batch.iter().for_each(|(index, _)| self.fail_waiting(*index, libc::EIO));
            }
        };
        let records = Rc::new(records);
        let mut answers: Vec<(Eyes, Rc<Answer>)> = Vec::new();
        let is_single = batch.len() == 1;
        for (index, facts) in batch {
            let Some(State::Waiting(Request { seq, .. })) = self.clients[index].as_ref().map(|client| &client.state)
            else {
                continue;
            };
            let seq = *seq;
            // What the pass looked from, if not from here, was there all the while: the client's own task.
            if let Err(errno) = self.check_after(index, ask, &facts) {
                self.fail(index, seq, errno);
                continue;
            }
            let Some(eyes) = self.eyes(index, &facts) else {
                continue;
            };
            if matches!(request.strategy, Strategy::Children) && !sees_any(&eyes, &parent) {
                self.fail(index, seq, libc::ESRCH);
                continue;
            }
            if request.show & (show::VMA | show::VMA_STAT) != 0 {
                self.begin_stream(index, Request { seq, ..*request }, eyes, &records);
                continue;
            }
            let key = match is_single {
                true => None,
                false => shared_eyes(&eyes, &records, request),
            };
            let known = key
                .as_ref()
                .and_then(|key| answers.iter().find(|(other, _)| other == key));
            let answer = match known {
                Some((_, answer)) => Rc::clone(answer),
                None => match self.encode(index, request, &eyes, &records) {
                    Ok(answer) => Rc::new(answer),
                    Err(errno) => {
                        self.fail(index, seq, errno);
                        continue;
                    }
                },
            };
            if let Some(key) = key.filter(|_| known.is_none()) {
                answers.push((key, Rc::clone(&answer)));
            }
            self.begin_sending(index, seq, answer);
        }
    }

    fn fail_waiting(&mut self, index: usize, errno: i32) {
        if let Some(State::Waiting(request)) = self.clients[index].as_ref().map(|client| &client.state) {
            let seq = request.seq;
            self.fail(index, seq, errno);
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

    /// Makes an answer of records.
    fn encode(&mut self, index: usize, request: &Request, eyes: &Eyes, records: &[u8]) -> Result<Answer, i32> {
        let user = self.clients[index].as_ref().map_or(0, |client| client.peer.user);
        let own = Rc::clone(self.accounts.entry(user).or_default());
        let mut answer = Answer {
            bytes: Vec::new(),
            dump: None,
            booked: 0,
            accounts: [Rc::clone(&self.all_bytes), own],
        };
        let limits = [self.limits.bytes, self.limits.bytes_per_user];
        let errno = |error: Errno| error.raw_os_error();
        let mut dump = match request.show & show::MEMFD {
            0 => None,
            _ => Some(Dump::new().map_err(errno)?),
        };
        let (mut count, mut rest) = (0, records);
        while let Some((record, behind)) = Record::split_first(rest) {
            count += u64::from(encode::put(request, eyes, record, &mut answer.bytes));
            rest = behind;
            if let Some(dump) = dump.as_mut().filter(|_| answer.bytes.len() >= CHUNK || rest.is_empty()) {
                dump.append(&answer.bytes).map_err(errno)?;
                answer.book(answer.booked + answer.bytes.len(), limits)?;
                answer.bytes.clear();
            }
        }
        if count == 0 && matches!(request.strategy, Strategy::One | Strategy::Thread) {
            return Err(libc::ESRCH);
        }
        match dump {
            Some(mut dump) => {
                dump.seal().map_err(errno)?;
                let file = wire::File {
                    bytes: U64::new(answer.booked as u64),
                    messages: U64::new(count),
                };
                answer.bytes = Vec::new();
                let mut message = MessageWriter::task(&mut answer.bytes, 0, Default::default());
                message.attribute(attribute::MEMFD, |out| out.extend_from_slice(file.as_bytes()));
                message.finish();
                answer.dump = Some(Rc::new(dump));
            }
            None => answer.book(answer.bytes.len(), limits)?,
        }
        wire::put_done(&mut answer.bytes, 0);
        Ok(answer)
    }

    fn begin_stream(&mut self, index: usize, request: Request, eyes: Eyes, records: &Rc<Vec<u8>>) {
        let Some(client) = &mut self.clients[index] else {
            return;
        };
        client.state = State::Streaming {
            stream: Box::new(Stream::new(request, eyes, Rc::clone(records))),
            part: Vec::new(),
            at: 0,
        };
        self.streams.push_back((index, client.generation));
    }

    /// Goes on with one answer that is made while it is sent.
    fn stream(&mut self) {
        let Some((index, generation)) = self.streams.pop_front() else {
            return;
        };
        let (Some(Some(client)), Some(reader)) = (self.clients.get_mut(index), &mut self.reader) else {
            return;
        };
        if client.generation != generation {
            return;
        }
        let State::Streaming { stream, part, at } = &mut client.state else {
            return;
        };
        if *at == part.len() {
            part.clear();
            *at = 0;
            stream.next(&mut self.passes, reader, part);
            if part.is_empty() {
                client.deadline = None;
                client.state = State::Idle;
                return self.watch(index, EventFlags::IN);
            }
        }
        self.packet.clear();
        let taken = wire::fill_packet(&part[*at..], stream.seq(), &mut self.packet);
        if taken == 0 {
            return self.leave(index);
        }
        match rustix::net::send(&client.socket, &self.packet, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) => {
                *at += taken;
                client.deadline = None;
                self.streams.push_back((index, generation));
                self.watch(index, EventFlags::empty());
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                let until = Instant::now() + self.limits.patience;
                client.deadline.get_or_insert(until);
                self.watch(index, EventFlags::OUT);
            }
            Err(_) => self.leave(index),
        }
    }
}

fn token(index: usize, generation: u32) -> u64 {
    index as u64 | u64::from(generation) << 32
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

fn refuse(socket: &OwnedFd, errno: i32) {
    let mut bytes = Vec::new();
    wire::put_error(&mut bytes, 0, errno);
    let _ = rustix::net::send(socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

fn send_with(socket: &OwnedFd, packet: &[u8], file: BorrowedFd<'_>) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    control.push(SendAncillaryMessage::ScmRights(&files));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(packet)], &mut control, flags)
}

/// Whether a client may see any of the tasks.
fn sees_any(eyes: &Eyes, records: &[u8]) -> bool {
    let mut rest = records;
    while let Some((record, behind)) = Record::split_first(rest) {
        rest = behind;
        if eyes.observer || Object::of(record).is_some_and(|object| eyes.sight(&object).is_some()) {
            return true;
        }
    }
    false
}

/// Eyes without a number, if nothing of the answer depends on that: a process sees more of itself than of others like it.
fn shared_eyes(eyes: &Eyes, records: &[u8], request: &Request) -> Option<Eyes> {
    let special = Groups::NONE.with(Group::Cpu).with(Group::Layout).with(Group::Fds);
    if request.groups().intersects(special) {
        return None;
    }
    let pid = eyes.now.pid;
    let mut anybody = eyes.clone();
    anybody.before.pid = 0;
    anybody.now.pid = 0;
    let mut rest = records;
    while let Some((record, behind)) = Record::split_first(rest) {
        rest = behind;
        if record.header().pid.get() != pid {
            continue;
        }
        let object = Object::of(record)?;
        let (own, other) = (eyes.sight(&object)?, anybody.sight(&object)?);
        if own.owned != other.owned {
            return None;
        }
    }
    Some(anybody)
}
