//! The loop: takes requests, makes passes, sends answers.
//!
//! One thread does it all, so that nothing is shared and nothing can be mixed up. A client has one request at a time here; its
//! others wait in its own socket, where they cost nobody else anything. Clients that ask the same at the same time share a pass,
//! which begins after all of them have asked. Those that may see the same share the answer as well.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags};
use taskdiag::broker::access::{Object, Subject};
use taskdiag::broker::passes::{Ask, Passes, Records, Taker, Tasks};
use taskdiag::broker::wire::{self, attribute, show, BadRequest, MessageWriter, Request, Strategy};
use taskdiag::broker::Linger;
use taskdiag::field::Groups;
use taskdiag::record::Record;
use taskdiag::Group;
use zerocopy::native_endian::{U32, U64};
use zerocopy::IntoBytes as _;

use crate::encode::{self, Eyes};
use crate::facts::{Facts, Finder, Known, Peer};
use crate::file::Dump;
use crate::log::{log, Level};
use crate::mappings::{self, Opened, Readers, Stream};
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
    /// Each client's number is written into them when its turn comes to be sent some.
    bytes: RefCell<Vec<u8>>,
    /// Announced by as many messages, which are the first.
    dumps: Vec<Dump>,
    /// How many clients these were made for.
    readers: usize,
    /// What goes with the first packet where there are none of these.
    opened: Option<OwnedFd>,
    booked: usize,
    accounts: [Account; 2],
}

impl Answer {
    /// How many bytes there is room for.
    fn room(&self, limits: [usize; 2]) -> usize {
        let rooms = self.accounts.iter().zip(limits);
        let rooms = rooms.map(|(account, limit)| limit.saturating_sub(account.get()));
        rooms.min().unwrap_or(0)
    }

    /// Books bytes for it, if there is room for them.
    fn book(&mut self, bytes: usize, limits: [usize; 2]) -> Result<(), i32> {
        if bytes > self.room(limits) {
            return Err(libc::EBUSY);
        }
        self.accounts
            .iter()
            .for_each(|account| account.set(account.get() + bytes));
        self.booked += bytes;
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

/// Sends one client its own answer in packets while it is made, so that it can be read on another processor meanwhile.
struct Packets<'a> {
    socket: &'a OwnedFd,
    peer: &'a Peer,
    seq: u32,
    request: &'a Request,
    eyes: &'a Eyes,
    /// Messages that have not been sent.
    part: Vec<u8>,
    /// Not before the part is as long, more are sent.
    due: usize,
    is_begun: bool,
    is_closed: bool,
    result: Result<(), i32>,
}

impl Packets<'_> {
    /// Makes messages of records, and sends what makes whole packets.
    fn take(&mut self, records: &[u8]) {
        let taken = each(records, |record| {
            self.result?;
            encode::put(self.request, self.eyes, record, &mut self.part);
            if self.part.len() >= self.due {
                self.send(wire::PACKET);
            }
            self.result
        });
        self.result = self.result.and(taken);
        self.send(wire::PACKET);
    }

    /// Sends packets, as far as the socket has room, while there are at least so many bytes.
    fn send(&mut self, least: usize) {
        if self.part.len() < least {
            return;
        }
        // What a process may see of itself is not for another one that has its number now.
        if self.result.is_ok() && !self.peer.is_alive() {
            self.result = Err(libc::ESRCH);
        }
        let mut sent = 0;
        while self.result.is_ok() && self.part.len() - sent >= least {
            let packet = wire::number_packet(&mut self.part[sent..], self.seq);
            match send_packet(self.socket, packet) {
                _ if packet.is_empty() => break,
                Ok(_) => {
                    sent += packet.len();
                    self.is_begun = true;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => {
                    self.is_closed = true;
                    self.result = Err(errno.raw_os_error());
                }
            }
        }
        self.part.drain(..sent);
        self.due = self.part.len() + CHUNK;
    }
}

/// Writes the files of an answer.
struct Files {
    /// The messages that announce them.
    announcements: Vec<u8>,
    dumps: Vec<Dump>,
    /// How many bytes of memory they may take, and take, with those to be used.
    room: usize,
    held: usize,
    /// Those of the answer before, to be used again.
    old: VecDeque<Dump>,
    /// None behind the last one.
    dump: Option<Dump>,
    messages: u64,
    /// What is not written yet.
    bytes: Vec<u8>,
}

impl Files {
    /// With memory that can be used, and the files of an answer before that nobody but those who get this one has.
    fn new(mut bytes: Vec<u8>, room: usize, old: Vec<Dump>) -> Result<Files, i32> {
        bytes.clear();
        let mut files = Files {
            announcements: Vec::new(),
            dumps: Vec::new(),
            room,
            held: old.iter().map(Dump::held).sum(),
            old: old.into(),
            dump: None,
            messages: 0,
            bytes,
        };
        files.dump = Some(files.next()?);
        Ok(files)
    }

    fn next(&mut self) -> Result<Dump, i32> {
        match self.old.pop_front() {
            Some(mut dump) => {
                dump.rewind();
                Ok(dump)
            }
            // Without another descriptor, for one.
            None => Dump::new().map_err(|_| libc::EBUSY),
        }
    }

    /// Writes what is made of records. `told` is told of each file that another one follows: its announcement, where that stands in
    /// the answer, and the file.
    fn take(
        &mut self,
        request: &Request,
        eyes: &Eyes,
        records: &[u8],
        told: &mut impl FnMut(&mut [u8], usize, &Dump),
    ) -> Result<(), i32> {
        each(records, |record| {
            self.messages += u64::from(encode::put(request, eyes, record, &mut self.bytes));
            if self.bytes.len() < CHUNK {
                return Ok(());
            }
            self.flush()?;
            if self.dump.as_ref().is_some_and(|dump| dump.len() >= FILE) {
                let next = self.next()?;
                let at = self.announce(Some(next))?;
                let file = self.dumps.last();
                let announcement = &mut self.announcements[at..];
                file.into_iter().for_each(|file| told(announcement, at, file));
            }
            Ok(())
        })
    }

    /// Writes what is left.
    fn finish(&mut self, request: &Request) -> Result<(), i32> {
        self.flush()?;
        if self.messages == 0 && is_about_one(request) {
            return Err(libc::ESRCH);
        }
        self.announce(None)?;
        self.held -= self.old.drain(..).map(|dump| dump.held()).sum::<usize>();
        Ok(())
    }

    fn flush(&mut self) -> Result<(), i32> {
        if let Some(dump) = &mut self.dump {
            self.held += (dump.len() + self.bytes.len()).saturating_sub(dump.held());
            if self.held > self.room {
                return Err(libc::EBUSY);
            }
            dump.append(&self.bytes).map_err(Errno::raw_os_error)?;
        }
        self.bytes.clear();
        Ok(())
    }

    /// Ends a file. Returns where its announcement stands.
    fn announce(&mut self, next: Option<Dump>) -> Result<usize, i32> {
        let mut file = wire::File {
            bytes: U64::new(0),
            messages: U64::new(std::mem::take(&mut self.messages)),
            id: U64::new(0),
        };
        if let Some(mut dump) = std::mem::replace(&mut self.dump, next) {
            (file.bytes, file.id) = (U64::new(dump.len() as u64), U64::new(dump.id()));
            dump.seal(CAPACITY).map_err(Errno::raw_os_error)?;
            self.dumps.push(dump);
        }
        let at = self.announcements.len();
        let mut message = MessageWriter::task(&mut self.announcements, 0, Default::default());
        message.attribute(attribute::MEMFD, |out| out.extend_from_slice(file.as_bytes()));
        message.finish();
        Ok(at)
    }
}

/// A client that is answered.
#[derive(Clone, Copy, Debug)]
struct Asker {
    index: usize,
    /// The number of its request.
    seq: u32,
}

/// How many clients are expected to ask the same.
#[derive(Clone, Copy, Debug, Default)]
struct Crowd {
    size: usize,
    /// How often fewer came.
    missed: u32,
}

impl Crowd {
    /// One that was late, and was not waited for from then on, would be late each time: it would ask when the others have begun.
    const PATIENCE: u32 = 3;

    fn came(&mut self, clients: usize) {
        if clients < self.size && self.missed < Crowd::PATIENCE {
            self.missed += 1;
        } else {
            (self.size, self.missed) = (clients, 0);
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
    /// A dump that it may be reading, and until when. Its files are written again for its next one.
    dump: Option<(Rc<Answer>, Instant)>,
    /// It has seen more of its own process than others with its eyes.
    is_apart: bool,
    generation: u32,
}

/// The broker.
#[derive(Debug)]
pub struct Server {
    listener: OwnedFd,
    epoll: OwnedFd,
    passes: Passes,
    finder: Finder,
    readers: Readers,
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
    /// Who shares passes over all tasks, and how long the last one took.
    crowd: Crowd,
    pass_took: Duration,
    gathers_until: Option<Instant>,
    /// Who asked about a single process is likely to ask about the next.
    linger: Linger,
    /// When memory for passes and answers is given back.
    release_at: Option<Instant>,
    /// A part of an answer while it is made, to be used again.
    part: Vec<u8>,
    /// What was done.
    pub counters: Counters,
}

const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// So much of a dump is written at once: it is still in the processor's cache then.
const CHUNK: usize = 256 << 10;

/// How long memory for passes and answers is kept behind the last one.
const MEMORY_KEPT: Duration = Duration::from_secs(1);

/// A file of an answer that another one follows is no shorter.
const FILE: usize = 2 << 20;

/// How long a file may become when it is written again: with what is written at once, and a message of any length.
const CAPACITY: usize = FILE + 2 * CHUNK;

/// The length of the message that announces a file.
const ANNOUNCEMENT: usize = size_of::<wire::MessageHeader>()
    + size_of::<wire::TaskHeader>()
    + size_of::<wire::AttributeHeader>()
    + size_of::<wire::File>();

/// Clients that are let in between two requests.
const ACCEPTED_AT_ONCE: usize = 16;

impl Server {
    /// A server for a listening socket. It ends when `stop` becomes readable.
    pub fn new(
        listener: OwnedFd,
        stop: BorrowedFd<'_>,
        passes: Passes,
        finder: Finder,
        readers: Readers,
        limits: Limits,
    ) -> io::Result<Server> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&listener, true)?;
        // Sockets have it from the one that listens: a request that comes as soon as its client is let in says who sent it, too.
        rustix::net::sockopt::set_socket_passcred(&listener, true)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, stop, EventData::new_u64(STOP), EventFlags::IN)?;
        Ok(Server {
            listener,
            epoll,
            passes,
            finder,
            readers,
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
            crowd: Crowd::default(),
            pass_took: Duration::ZERO,
            gathers_until: None,
            linger: Linger::default(),
            release_at: None,
            part: Vec::new(),
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
            if events.is_empty() && self.lingers() {
                self.linger.give_way();
                continue;
            }
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

    fn lingers(&mut self) -> bool {
        self.queue.is_empty() && self.streams.is_empty() && self.linger.goes_on()
    }

    /// How long there is nothing to do without an event.
    fn timeout(&mut self) -> Option<Duration> {
        if self.lingers() {
            return Some(Duration::ZERO);
        }
        if let (Some(until), true) = (self.gathers_until, self.streams.is_empty()) {
            return Some(until.saturating_duration_since(Instant::now()));
        }
        if !self.queue.is_empty() || !self.streams.is_empty() {
            return Some(Duration::ZERO);
        }
        let ends = self.clients.iter().flatten();
        let ends = ends.flat_map(|client| [client.deadline, client.dump.as_ref().map(|(_, until)| *until)]);
        let first = ends.chain([self.release_at]).flatten().min()?;
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
        // One that connected before this process listened, and may have asked since, does not have it from the one that listens.
        if let Err(errno) = rustix::net::sockopt::set_socket_passcred(&socket, true) {
            return refuse(&socket, errno.raw_os_error());
        }
        let peer = match Peer::of(socket.as_fd(), self.finder.modules()) {
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
            is_apart: false,
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
            // The kernel limits how many files are under way from this process, to all of its clients together.
            Ok(request)
                if request.show & (show::MEMFD | show::OPENED) != 0 && sys::unread(client.socket.as_fd()) != Ok(0) =>
            {
                self.fail(index, request.seq, libc::EBUSY)
            }
            Ok(request) => {
                let user = client.peer.user;
                if request.show & show::MEMFD == 0 {
                    client.dump = None;
                }
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
        self.answer_with(index, seq, bytes, None);
    }

    /// Answers with few bytes, and a file.
    fn answer_with(&mut self, index: usize, seq: u32, bytes: Vec<u8>, opened: Option<OwnedFd>) {
        let answer = Answer {
            bytes: RefCell::new(bytes),
            dumps: Vec::new(),
            readers: 0,
            opened,
            booked: 0,
            accounts: Default::default(),
        };
        self.begin_sending(index, seq, Rc::new(answer), 0);
    }

    /// Sends an answer from some place on.
    fn begin_sending(&mut self, index: usize, seq: u32, answer: Rc<Answer>, at: usize) {
        if let Some(client) = &mut self.clients[index] {
            client.state = State::Sending { answer, at, seq };
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
            let mut bytes = answer.bytes.borrow_mut();
            // Each file goes with its own packet, the end with the last one.
            let file = *at / ANNOUNCEMENT;
            let end = match file + 1 < answer.dumps.len() {
                true => *at + ANNOUNCEMENT,
                false => bytes.len(),
            };
            let packet = wire::number_packet(&mut bytes[*at..end], *seq);
            let len = packet.len();
            let dump = answer.dumps.get(file).map(Dump::reader);
            let sent = match dump.or(answer.opened.as_ref().map(OwnedFd::as_fd)) {
                _ if len == 0 => Ok(0),
                Some(file) => send_with(&client.socket, packet, file),
                None => send_packet(&client.socket, packet),
            };
            drop(bytes);
            match sent {
                Ok(0) => return self.sent(index),
                Ok(_) => {
                    *at += len;
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
        client.dump = match state {
            State::Sending { answer, .. } if !answer.dumps.is_empty() => {
                Some((answer, Instant::now() + self.limits.patience))
            }
            _ => None,
        };
        self.watch(index, EventFlags::IN);
    }

    /// Sends away who leaves answers where they are, and takes back dumps.
    fn expire(&mut self) {
        if self.release_at.is_some_and(|at| at <= Instant::now()) {
            self.release_at = None;
            self.passes.release();
            self.part = Vec::new();
            sys::trim_memory();
        }
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

    /// Whether the next pass had better wait for others who shared the one before, and are likely to ask the same again. No longer
    /// than a pass takes, which is what they would otherwise wait for at least, and not if somebody wants something else.
    fn gathers(&mut self) -> bool {
        let waiting = || self.queue.iter().flat_map(|(_, waiting)| waiting);
        let request = |index: &usize| {
            Some(Request {
                seq: 0,
                ..self.waits_for(*index)?
            })
        };
        let first = waiting().next().and_then(request);
        let is_dump = first.is_some_and(|request| matches!(request.strategy, Strategy::All | Strategy::AllThreads));
        let is_worth_it =
            is_dump && waiting().count() < self.crowd.size && waiting().all(|index| request(index) == first);
        if !is_worth_it {
            self.gathers_until = None;
            return false;
        }
        let now = Instant::now();
        let until = *self.gathers_until.get_or_insert(now + self.pass_took);
        if until <= now {
            self.gathers_until = None;
        }
        until > now
    }

    /// Answers the request whose turn it is, and all that ask the same.
    fn serve(&mut self) {
        if self.gathers() {
            return;
        }
        let Some((user, mut waiting)) = self.queue.pop_front() else {
            return;
        };
        let Some(first) = waiting.pop_front() else {
            return;
        };
        if !waiting.is_empty() {
            self.queue.push_back((user, waiting));
        }
        let Some(request) = self.waits_for(first) else {
            return;
        };
        let request = Request { seq: 0, ..request };
        let mut known = Known::new();
        let Some((ask, facts, eyes)) = self.prepare(first, &request, &mut known) else {
            return;
        };
        let mut batch = vec![(first, facts, eyes)];
        if ask.as_task == 0 && self.limits.shares {
            for index in self.alike(&request) {
                let place = self.clients[index].as_ref().map(|client| client.peer.user);
                if let Some(user) = place {
                    self.unqueue(user, index);
                }
                match self.prepare(index, &request, &mut known) {
                    Some((other, facts, eyes)) if other == ask => batch.push((index, facts, eyes)),
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

    /// The request that a client waits for an answer to.
    fn waits_for(&self, index: usize) -> Option<Request> {
        match self.clients[index].as_ref()?.state {
            State::Waiting(request) => Some(request),
            _ => None,
        }
    }

    /// Other clients that wait for the answer to the same request.
    fn alike(&self, request: &Request) -> Vec<usize> {
        let waits = |index: &&usize| {
            let other = self.waits_for(**index);
            other.is_some_and(|other| Request { seq: 0, ..other } == *request)
        };
        self.queue
            .iter()
            .flat_map(|(_, waiting)| waiting)
            .filter(waits)
            .copied()
            .collect()
    }

    /// What a client's request takes, and who looks. Answers it here if no pass is needed.
    fn prepare(&mut self, index: usize, request: &Request, known: &mut Known) -> Option<(Ask, Facts, Eyes)> {
        let client = self.clients[index].as_ref()?;
        let Request { seq, .. } = self.waits_for(index)?;
        let groups = encode::groups_read(request).0;
        let found = client.before.as_ref().map_err(|errno| *errno).and_then(|before| {
            let facts = self.finder.find_once(&mut self.passes, &client.peer, known)?;
            let as_task = self.finder.look_as(&facts, groups)?;
            let eyes = eyes(before, &facts);
            Ok((facts, as_task, eyes))
        });
        let (facts, as_task, eyes) = match found {
            Ok(found) => found,
            Err(errno) => {
                self.fail(index, seq, errno);
                return None;
            }
        };
        if request.show & show::BITS != 0 {
            self.tell_bits(index, seq, &eyes);
            return None;
        }
        let reader = self.readers.for_request(request);
        if reader.is_some_and(|reader| as_task != 0 || reader.is_stuck()) {
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
        let ask = Ask {
            scope,
            groups,
            as_task,
            domains: eyes.are_in_domain(),
        };
        Some((ask, facts, eyes))
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
        let began = Instant::now();
        let is_of_all = ask.as_task == 0 && matches!(ask.scope, Tasks::Processes | Tasks::Threads);
        let wants_mappings = request.show & show::MAPPINGS != 0;
        if is_of_all && !wants_mappings {
            if let Some(eyes) = self.common_eyes(request, &batch) {
                self.answer_while_passing(request, ask, &eyes, &batch);
                self.crowd.came(batch.len());
                self.pass_took = began.elapsed();
                self.keep_memory_for_a_while();
                return;
            }
        }
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
        if is_of_all {
            self.crowd.came(batch.len());
            self.pass_took = began.elapsed();
        }
        match is_about_one(request) {
            true => self.linger.begin(),
            false => self.linger.end(),
        }
        let records = Rc::new(records);
        let mut apart = Apart::among(&batch);
        records.parts().for_each(|part| apart.look(part));
        let apart = apart.found;
        let is_shared = batch.len() > 1 && is_shareable(request);
        let mut alike: Vec<(Eyes, Vec<Asker>)> = Vec::new();
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
            if wants_mappings {
                self.begin_stream(index, Request { seq, ..*request }, eyes, &records);
                continue;
            }
            if request.show & show::OPENED != 0 {
                self.answer_with_file(Asker { index, seq }, request, &eyes, &records);
                continue;
            }
            let asker = Asker { index, seq };
            let key = match is_shared && !apart.contains(&index) {
                true => eyes.of_anybody(),
                false => eyes,
            };
            match alike.iter_mut().find(|(other, _)| *other == key) {
                Some((_, askers)) => askers.push(asker),
                None => alike.push((key, vec![asker])),
            }
        }
        for (eyes, askers) in alike {
            self.answer_alike(&askers, request, &eyes, |_, take| {
                records.parts().for_each(take);
                Ok(Vec::new())
            });
        }
        if let Some(records) = Rc::into_inner(records) {
            self.passes.reuse(records);
            self.keep_memory_for_a_while();
        }
    }

    fn keep_memory_for_a_while(&mut self) {
        let is_much = self.passes.holds_memory() || self.part.capacity() >= CHUNK;
        self.release_at = is_much.then(|| Instant::now() + MEMORY_KEPT);
    }

    /// The eyes by which all of a batch can be answered, if none is known to see more of itself than they do.
    fn common_eyes(&self, request: &Request, batch: &[(usize, Facts, Eyes)]) -> Option<Eyes> {
        let [(_, _, first), others @ ..] = batch else {
            return None;
        };
        if others.is_empty() {
            return Some(first.clone());
        }
        let common = first.of_anybody();
        let is_one_of_them = |(index, _, eyes): &(usize, Facts, Eyes)| {
            let is_apart = self.clients[*index].as_ref().is_some_and(|client| client.is_apart);
            !is_apart && eyes.of_anybody() == common
        };
        (is_shareable(request) && batch.iter().all(is_one_of_them)).then_some(common)
    }

    /// Answers clients with the same eyes while the pass over all tasks is made that they asked for.
    fn answer_while_passing(&mut self, request: &Request, ask: &Ask, eyes: &Eyes, batch: &[(usize, Facts, Eyes)]) {
        let askers = batch.iter().filter_map(|&(index, ..)| {
            let seq = self.waits_for(index)?.seq;
            Some(Asker { index, seq })
        });
        let askers: Vec<Asker> = askers.collect();
        let mut apart = Apart::among(batch);
        self.answer_alike(&askers, request, eyes, |passes, take| {
            let made = passes.run_through(ask, &mut |records| {
                apart.look(records);
                take(records);
            });
            made.map_err(|error| {
                log(Level::Warning, format_args!("a pass failed: {error}"));
                libc::EIO
            })?;
            Ok(apart.found)
        });
    }

    /// Answers clients that see the same of what `make` takes records from. That says who is to be answered on its own instead, from
    /// another pass.
    fn answer_alike<M>(&mut self, askers: &[Asker], request: &Request, eyes: &Eyes, make: M)
    where
        M: FnOnce(&mut Passes, &mut Taker<'_>) -> Result<Vec<usize>, i32>,
    {
        match (request.show & show::MEMFD, askers) {
            (0, &[asker]) => self.answer_in_packets(asker, request, eyes, make),
            (0, _) => self.answer_in_same_packets(askers, request, eyes, make),
            _ => self.answer_in_files(askers, request, eyes, make),
        }
    }

    fn answer_apart(&mut self, index: usize) {
        if let Some(client) = &mut self.clients[index] {
            client.is_apart = true;
        }
        self.requeue(index);
    }

    fn answer_in_packets<M>(&mut self, asker: Asker, request: &Request, eyes: &Eyes, make: M)
    where
        M: FnOnce(&mut Passes, &mut Taker<'_>) -> Result<Vec<usize>, i32>,
    {
        let Asker { index, seq } = asker;
        let Some(client) = &self.clients[index] else {
            return;
        };
        let mut part = std::mem::take(&mut self.part);
        part.clear();
        let mut packets = Packets {
            socket: &client.socket,
            peer: &client.peer,
            seq,
            request,
            eyes,
            part,
            due: CHUNK,
            is_begun: false,
            is_closed: false,
            result: Ok(()),
        };
        let made = make(&mut self.passes, &mut |records| packets.take(records));
        let nothing = packets.part.is_empty() && !packets.is_begun && is_about_one(request);
        let mut failed = made.err().or(packets.result.err()).or(nothing.then_some(libc::ESRCH));
        if failed.is_none() {
            wire::put_done(&mut packets.part, 0);
            packets.send(1);
            failed = packets.result.err();
        }
        if let Some(errno) = failed {
            // It ends what was sent.
            packets.part.clear();
            wire::put_error(&mut packets.part, 0, errno);
        }
        let Packets { part, is_closed, .. } = packets;
        self.counters.errors += u64::from(failed.is_some());
        if is_closed {
            return self.leave(index);
        }
        if part.is_empty() {
            self.part = part;
            return self.sent(index);
        }
        // The rest waits.
        let mut answer = self.empty_answer(index);
        let bytes = match answer.book(part.len(), self.byte_limits()) {
            Ok(()) => part,
            Err(errno) => {
                let mut bytes = Vec::new();
                wire::put_error(&mut bytes, 0, errno);
                bytes
            }
        };
        answer.bytes = RefCell::new(bytes);
        self.begin_sending(index, seq, Rc::new(answer), 0);
    }

    /// In files. A single client reads one while the next is written; several would only be in the way of who writes.
    fn answer_in_files<M>(&mut self, askers: &[Asker], request: &Request, eyes: &Eyes, make: M)
    where
        M: FnOnce(&mut Passes, &mut Taker<'_>) -> Result<Vec<usize>, i32>,
    {
        let Some(first) = askers.first() else {
            return;
        };
        let old = self.old_dumps(askers);
        let mut answer = self.empty_answer(first.index);
        let room = answer.room(self.byte_limits());
        let files = Files::new(std::mem::take(&mut self.part), room, old);
        let mut files = match files {
            Ok(files) => files,
            Err(errno) => return askers.iter().for_each(|asker| self.fail(asker.index, asker.seq, errno)),
        };
        let single = match askers {
            [asker] => {
                let client = self.clients[asker.index].as_ref();
                client.map(|client| (asker.seq, &client.socket, &client.peer))
            }
            _ => None,
        };
        // Of the announcements.
        let mut sent = 0;
        let mut tell = |announcement: &mut [u8], at: usize, dump: &Dump| {
            let Some((seq, socket, peer)) = single else {
                return;
            };
            let packet = wire::number_packet(announcement, seq);
            // One that has to wait goes out with the last one.
            if at == sent && peer.is_alive() && send_with(socket, packet, dump.reader()).is_ok() {
                sent += packet.len();
            }
        };
        let mut written = Ok(());
        let made = make(&mut self.passes, &mut |records| {
            if written.is_ok() {
                written = files.take(request, eyes, records, &mut tell);
            }
        });
        let result = made.and_then(|apart| {
            written?;
            files.finish(request)?;
            Ok(apart)
        });
        let Files {
            mut announcements,
            mut dumps,
            bytes,
            held,
            ..
        } = files;
        self.part = bytes;
        let apart = match result {
            Ok(apart) => {
                wire::put_done(&mut announcements, 0);
                apart
            }
            Err(errno) => {
                announcements.truncate(sent);
                dumps.truncate(sent / ANNOUNCEMENT);
                wire::put_error(&mut announcements, 0, errno);
                self.counters.errors += askers.len() as u64;
                Vec::new()
            }
        };
        // There is room, or it would not have been written.
        let _ = answer.book(held.min(room), self.byte_limits());
        (answer.bytes, answer.dumps, answer.readers) = (RefCell::new(announcements), dumps, askers.len());
        self.hand_over(Rc::new(answer), askers, sent, &apart);
    }

    /// In packets that all of several clients get.
    fn answer_in_same_packets<M>(&mut self, askers: &[Asker], request: &Request, eyes: &Eyes, make: M)
    where
        M: FnOnce(&mut Passes, &mut Taker<'_>) -> Result<Vec<usize>, i32>,
    {
        let Some(first) = askers.first() else {
            return;
        };
        let (mut bytes, mut put) = (Vec::new(), Ok(()));
        let made = make(&mut self.passes, &mut |records| {
            put = put.and(each(records, |record| {
                encode::put(request, eyes, record, &mut bytes);
                Ok(())
            }));
        });
        let mut answer = self.empty_answer(first.index);
        let made = made.and_then(|apart| {
            put?;
            if bytes.is_empty() && is_about_one(request) {
                return Err(libc::ESRCH);
            }
            answer.book(bytes.len(), self.byte_limits())?;
            wire::put_done(&mut bytes, 0);
            Ok(apart)
        });
        match made {
            Ok(apart) => {
                answer.bytes = RefCell::new(bytes);
                self.hand_over(Rc::new(answer), askers, 0, &apart);
            }
            Err(errno) => askers.iter().for_each(|asker| self.fail(asker.index, asker.seq, errno)),
        }
    }

    /// Sends clients an answer from some place on, but those who are to have one of their own.
    fn hand_over(&mut self, answer: Rc<Answer>, askers: &[Asker], sent: usize, apart: &[usize]) {
        for &Asker { index, seq } in askers {
            let client = self.clients[index].as_ref();
            match client.is_some_and(|client| client.peer.is_alive()) {
                true if apart.contains(&index) => self.answer_apart(index),
                true => self.begin_sending(index, seq, Rc::clone(&answer), sent),
                false => self.fail(index, seq, libc::ESRCH),
            }
        }
    }

    /// The files of the answer that these clients had before, if it was one, and nobody else's.
    fn old_dumps(&mut self, askers: &[Asker]) -> Vec<Dump> {
        let mut last: Option<Rc<Answer>> = None;
        let mut is_one = true;
        for asker in askers {
            let client = self.clients[asker.index].as_mut();
            let answer = client.and_then(|client| client.dump.take()).map(|(answer, _)| answer);
            is_one &= match (&last, &answer) {
                (None, Some(answer)) => answer.readers == askers.len(),
                (Some(last), Some(answer)) => Rc::ptr_eq(last, answer),
                (_, None) => false,
            };
            last = answer;
        }
        match last.and_then(Rc::into_inner) {
            Some(mut answer) if is_one => std::mem::take(&mut answer.dumps),
            _ => Vec::new(),
        }
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

    fn byte_limits(&self) -> [usize; 2] {
        [self.limits.bytes, self.limits.bytes_per_user]
    }

    fn empty_answer(&mut self, index: usize) -> Answer {
        let user = self.clients[index].as_ref().map_or(0, |client| client.peer.user);
        let own = Rc::clone(self.accounts.entry(user).or_default());
        Answer {
            bytes: RefCell::default(),
            dumps: Vec::new(),
            readers: 0,
            opened: None,
            booked: 0,
            accounts: [Rc::clone(&self.all_bytes), own],
        }
    }

    /// Answers with an open file of `/proc`.
    fn answer_with_file(&mut self, Asker { index, seq }: Asker, request: &Request, eyes: &Eyes, records: &Records) {
        let opened = mappings::open(request, eyes, records, &mut self.passes, &mut self.readers.of_files);
        let is_alive = self.clients[index]
            .as_ref()
            .is_some_and(|client| client.peer.is_alive());
        let Opened { task, file } = match opened {
            Ok(opened) if is_alive => opened,
            opened => return self.fail(index, seq, opened.err().unwrap_or(libc::ESRCH)),
        };
        let mut bytes = Vec::new();
        let mut message = MessageWriter::task(&mut bytes, seq, task);
        if file.is_some() {
            message.attribute(attribute::OPENED, |out| {
                out.extend_from_slice(&request.show.to_ne_bytes())
            });
        }
        message.finish();
        wire::put_done(&mut bytes, seq);
        self.answer_with(index, seq, bytes, file);
    }

    fn begin_stream(&mut self, index: usize, request: Request, eyes: Eyes, records: &Rc<Records>) {
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
        let Some(Some(client)) = self.clients.get_mut(index) else {
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
            stream.next(&mut self.passes, &mut self.readers.of_texts, part);
            if part.is_empty() {
                client.deadline = None;
                client.state = State::Idle;
                return self.watch(index, EventFlags::IN);
            }
        }
        let packet = wire::number_packet(&mut part[*at..], stream.seq());
        if packet.is_empty() {
            return self.leave(index);
        }
        match send_packet(&client.socket, packet) {
            Ok(_) => {
                *at += packet.len();
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

fn refuse(socket: &OwnedFd, errno: i32) {
    let mut bytes = Vec::new();
    wire::put_error(&mut bytes, 0, errno);
    let _ = rustix::net::send(socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

fn send_packet(socket: &OwnedFd, packet: &[u8]) -> Result<usize, Errno> {
    rustix::net::send(socket, packet, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}

/// Whether no task at all means that there is no such one.
fn is_about_one(request: &Request) -> bool {
    matches!(request.strategy, Strategy::One | Strategy::Thread)
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
fn sees_any(eyes: &Eyes, records: &Records) -> bool {
    let may_see = |record| Object::of(record).is_some_and(|object| eyes.sight(&object).is_some());
    records.each().any(|record| eyes.observer || may_see(record))
}

/// Tells of records, one by one. What is not whole is an error: it would be missing from the answer.
fn each(records: &[u8], mut told: impl FnMut(Record<'_>) -> Result<(), i32>) -> Result<(), i32> {
    let mut rest = records;
    while let Some((record, behind)) = Record::split_first(rest) {
        told(record)?;
        rest = behind;
    }
    match rest {
        [] => Ok(()),
        _ => Err(libc::EIO),
    }
}

/// Whether an answer with these groups can be the same for several processes at all.
fn is_shareable(request: &Request) -> bool {
    let special = Groups::NONE.with(Group::Cpu).with(Group::Layout).with(Group::Fds);
    !request.groups().intersects(special)
}

/// Finds those of several clients that see more of their own process than others would with the same eyes.
struct Apart<'b> {
    /// By their numbers.
    clients: Vec<(u32, usize, &'b Eyes)>,
    found: Vec<usize>,
}

impl Apart<'_> {
    fn among(batch: &[(usize, Facts, Eyes)]) -> Apart<'_> {
        let clients = batch.iter().map(|(index, _, eyes)| (eyes.now.pid, *index, eyes));
        let mut clients: Vec<_> = clients.collect();
        clients.sort_unstable_by_key(|(pid, ..)| *pid);
        Apart {
            clients,
            found: Vec::new(),
        }
    }

    /// Looks for the clients' own records.
    fn look(&mut self, records: &[u8]) {
        // A single one looks with its own eyes.
        let [(first, ..), .., (last, ..)] = self.clients[..] else {
            return;
        };
        for record in Record::each(records) {
            let pid = record.header().pid.get();
            // Nearly all are not theirs.
            if !(first..=last).contains(&pid) {
                continue;
            }
            let from = self.clients.partition_point(|(other, ..)| *other < pid);
            for (_, index, eyes) in self.clients[from..].iter().take_while(|(other, ..)| *other == pid) {
                if !is_seen_alike(record, eyes) {
                    self.found.push(*index);
                }
            }
        }
    }
}

/// Whether a process sees no more of itself in a record than others with its eyes.
fn is_seen_alike(record: Record<'_>, eyes: &Eyes) -> bool {
    let sight = |eyes: &Eyes| Some(eyes.sight(&Object::of(record)?)?.owned);
    sight(eyes).is_some_and(|own| sight(&eyes.of_anybody()) == Some(own))
}

#[cfg(test)]
mod tests {
    use taskdiag::record::{self, attr, Access, Base, Writer, ACCESS_STABLE};

    use super::*;

    /// The initial user namespace, and somebody who may see all.
    const USER_NS: u32 = 0xEFFF_FFFD;

    fn root() -> Eyes {
        let subject = Subject {
            pid: 1,
            fsuid: 0,
            fsgid: 0,
            euid: 0,
            capabilities: u64::MAX,
            user_ns: USER_NS,
            user_ns_level: 0,
            landlock: 0,
            kept: 0,
            confined: false,
            counts_files: true,
            may_attach: true,
        };
        Eyes {
            before: subject.clone(),
            now: subject,
            observer: false,
            users: Default::default(),
            groups: Default::default(),
        }
    }

    fn records(count: u32) -> Vec<u8> {
        let access = Access {
            user_ns: U32::new(USER_NS),
            mm_user_ns: U32::new(USER_NS),
            dumpable: U32::new(record::dumpable::USER),
            flags: U32::new(ACCESS_STABLE),
            ..Access::default()
        };
        let mut bytes = Vec::new();
        for pid in 1..=count {
            let mut writer = Writer::new(&mut bytes);
            writer.put(attr::ACCESS, 0, access.as_bytes());
            writer.put(attr::BASE, 0, Base::default().as_bytes());
            writer.finish(record::Header {
                pid: U32::new(pid),
                tid: U32::new(pid),
                ..record::Header::default()
            });
        }
        bytes
    }

    /// Check that a crowd of which some are late a few times is waited for, and one that has become smaller is not.
    #[test]
    fn crowds_are_waited_for_a_few_times() {
        let mut crowd = Crowd::default();
        let sizes = [16, 15, 15, 16, 15, 14, 13, 12, 1, 17].map(|clients| {
            crowd.came(clients);
            crowd.size
        });
        assert_eq!(sizes, [16, 16, 16, 16, 16, 16, 16, 12, 12, 17]);
    }

    /// Check that the files of a long answer are, one behind the other, what one file would be; that each is announced as it is, and
    /// told of before the next one is written, but the last.
    #[test]
    fn files_follow_each_other() {
        let request = Request {
            seq: 0,
            show: show::MEMFD | u64::from(Groups::NONE.with(Group::Base).0) << show::GROUPS_SHIFT,
            strategy: Strategy::All,
            pid: 0,
        };
        let (eyes, records) = (root(), records(40_000));
        let mut told = 0;
        let mut files = Files::new(Vec::new(), usize::MAX, Vec::new()).unwrap();
        let mut tell = |announcement: &mut [u8], at: usize, dump: &Dump| {
            assert_eq!((announcement.len(), at), (ANNOUNCEMENT, told * ANNOUNCEMENT));
            assert!(dump.content().len() >= FILE);
            told += 1;
        };
        let (first, second) = records.split_at(records.len() / 4);
        assert_eq!(files.take(&request, &eyes, first, &mut tell), Ok(()));
        assert_eq!(files.take(&request, &eyes, second, &mut tell), Ok(()));
        assert_eq!(files.finish(&request), Ok(()));
        assert_eq!(files.dumps.len(), told + 1);
        let mut whole = Vec::new();
        for (message, dump) in wire::Messages::new(&files.announcements, 0).zip(&files.dumps) {
            let Ok(wire::Message::Task { attributes, .. }) = message else {
                panic!("{message:?}");
            };
            let bytes = dump.content();
            let file = wire::File {
                bytes: U64::new(bytes.len() as u64),
                messages: U64::new(wire::Messages::new(&bytes, 0).count() as u64),
                id: U64::new(dump.id()),
            };
            let payload = wire::attributes(attributes).next().map(|(_, payload, _)| payload);
            assert_eq!(payload, Some(file.as_bytes()));
            whole.extend(bytes);
        }
        assert_eq!(files.held, whole.len());
        assert!(told > 1);
        assert_eq!(wire::Messages::new(&whole, 0).count(), 40_000);
        let mut expected = Vec::new();
        for record in Record::each(&records) {
            encode::put(&request, &eyes, record, &mut expected);
        }
        assert!(whole == expected);
    }

    /// Check that a message that carries a record as it is has the same bytes as one that is put together.
    #[test]
    fn one_copy_is_as_good_as_many() {
        let (eyes, records) = (root(), records(3));
        let request = |show| Request {
            seq: 0,
            show: show | u64::from(Groups::NONE.with(Group::Base).0) << show::GROUPS_SHIFT,
            strategy: Strategy::All,
            pid: 0,
        };
        let (record, _) = Record::split_first(&records).unwrap();
        let (mut one, mut many) = (Vec::new(), Vec::new());
        assert!(encode::put(&request(0), &eyes, record, &mut one));
        // With an attribute that this record has nothing for.
        assert!(encode::put(&request(show::CMDLINE), &eyes, record, &mut many));
        assert_eq!(one, many);
        // And alone, as it stands in them.
        let mut bare = Vec::new();
        assert!(encode::put(
            &request(show::MEMFD | show::BARE),
            &eyes,
            record,
            &mut bare
        ));
        let message = wire::Messages::new(&one, 0).next();
        let Some(Ok(wire::Message::Task { attributes, .. })) = message else {
            panic!("{message:?}");
        };
        let (_, payload, _) = wire::attributes(attributes).next().unwrap();
        assert_eq!(bare, payload);
    }
}
