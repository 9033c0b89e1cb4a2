//! What clients ask, and the passes that answer them.

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use taskdiag_protocol::access::{Object, Subject};
use taskdiag_protocol::wire::{self, attribute, show, BadRequest, MessageWriter, Request, Strategy};
use zerocopy::native_endian::{U32, U64};
use zerocopy::IntoBytes as _;

use super::client::{Client, Progress, State};
use super::{Server, MEMORY_KEPT, SLICE};
use crate::accounts::Account;
use crate::answer::{Answer, Pass, FIRST_THREADS};
use crate::encode::{self, Viewer};
use crate::facts::{Facts, Finder, Peer};
use crate::job::{Job, Kind};
use crate::log::{log, Level};
use crate::passes::{Ask, Passes, Records, Tasks};
use crate::{pool, sys};

/// A client is late that has taken nothing of its answer for so long, although there is something.
const LATE: Duration = Duration::from_millis(50);

/// So many clients of an account may be late before those of its requests that are about many tasks have to wait.
const LATE_MOST: usize = 4;

impl Server {
    /// The next packet of a client. An error if it has gone, or sends what it must not.
    pub(super) fn take_packet(&mut self, index: usize) -> Result<(sys::Packet, [u8; wire::REQUEST_MAX + 8]), Errno> {
        let client = self.clients[index].as_ref().ok_or(Errno::PIPE)?;
        let mut buffer = [0; wire::REQUEST_MAX + 8];
        // What is looked at stays where it is, with descriptors that come along: those are for who closes the connection.
        if client.is_guarded && sys::receive(client.socket.as_fd(), &mut buffer, true)?.has_more {
            return Err(Errno::PERM);
        }
        let packet = sys::receive(client.socket.as_fd(), &mut buffer, false)?;
        if packet.len == 0 && packet.sender == 0 {
            Err(Errno::PIPE)
        } else {
            Ok((packet, buffer))
        }
    }

    /// Takes one request.
    pub(super) fn receive(&mut self, index: usize) {
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
    pub(super) fn take_in(&mut self, index: usize, request: Request) {
        let Some(client) = &mut self.clients[index] else {
            return;
        };
        let before = client.before.as_ref();
        if client.particulars.is_none() && before.is_ok_and(|before| self.finder.wants_particulars(before)) {
            return self.look_up(index, request);
        }
        client.state = State::Waiting(request);
        let (account, is_small) = (client.account, is_small(&request));
        if is_small {
            self.small.push(account, index)
        } else {
            self.large.push(account, index)
        }
    }

    /// Has a reader look up who asks.
    pub(super) fn look_up(&mut self, index: usize, request: Request) {
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

    /// Answers requests whose turn it is: some about few tasks, and one about many.
    pub(super) fn serve(&mut self) {
        let began = Instant::now();
        while let Some(first) = self.small.pop() {
            self.serve_one(first);
            if began.elapsed() >= SLICE {
                break;
            }
        }
        let mut large = std::mem::take(&mut self.large);
        let first = large.pop_where(|account| !self.is_behind(account));
        self.large = large;
        if let Some(first) = first {
            self.serve_one(first);
        }
    }

    /// Whether so many clients of an account leave their answers where they are that no pass over many tasks is made for another one:
    /// who asks and does not read would else have all others wait for passes without end.
    pub(super) fn is_behind(&self, account: Account) -> bool {
        let is_late = |client: &&Client| {
            let is_answered = matches!(client.state, State::Answering(_)) && client.account == account;
            is_answered && client.progress.since.is_some_and(|since| since.elapsed() > LATE)
        };
        !account.is_root() && self.clients.iter().flatten().filter(is_late).take(LATE_MOST).count() == LATE_MOST
    }

    /// Answers a request, and all that ask the same.
    pub(super) fn serve_one(&mut self, first: usize) {
        let Some(request) = self.waits_for(first) else {
            return;
        };
        let request = Request { seq: 0, ..request };
        let began = Instant::now();
        let mut known = BatchFacts::default();
        let Some((ask, facts, viewer)) = self.prepare(first, &request, &mut known) else {
            return;
        };
        let mut batch = vec![(first, facts, viewer)];
        if ask.as_task == 0 && self.limits.shares && !is_small(&request) {
            for index in self.alike(&request) {
                if began.elapsed() >= SLICE {
                    break;
                }
                match self.prepare(index, &request, &mut known) {
                    Some((other, facts, viewer)) if other == ask => {
                        self.large.remove(index);
                        batch.push((index, facts, viewer));
                    }
                    _ => {}
                }
            }
        }
        self.pass(&request, &ask, batch);
    }

    /// The request that a client waits for an answer to.
    pub(super) fn waits_for(&self, index: usize) -> Option<Request> {
        match self.clients[index].as_ref()?.state {
            State::Waiting(request) => Some(request),
            _ => None,
        }
    }

    /// Other clients that wait for the answer to the same request about many tasks.
    pub(super) fn alike(&self, request: &Request) -> Vec<usize> {
        let waits = |index: &usize| {
            let other = self.waits_for(*index);
            other.is_some_and(|other| Request { seq: 0, ..other } == *request)
        };
        self.large.each().filter(waits).collect()
    }

    /// What a client's request takes, and who looks. Answers it here if no pass is needed.
    pub(super) fn prepare(
        &mut self,
        index: usize,
        request: &Request,
        known: &mut BatchFacts,
    ) -> Option<(Ask, Facts, Viewer)> {
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
            let viewer = viewer(before, &facts);
            Ok(Some((facts, as_task, viewer)))
        });
        let (facts, as_task, viewer) = match found {
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
            self.tell_bits(index, seq, &viewer);
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
            domains: viewer.are_in_domain(),
            most: match request.show & show::OPENED {
                0 => usize::MAX,
                _ => FIRST_THREADS,
            },
        };
        Some((ask, facts, viewer))
    }

    /// It is not in a queue any more.
    pub(super) fn forget(&mut self, index: usize) {
        self.small.remove(index);
        self.large.remove(index);
    }

    pub(super) fn tell_bits(&mut self, index: usize, seq: u32, viewer: &Viewer) {
        let (all, of_all) = viewer.of_all();
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
    pub(super) fn pass(&mut self, request: &Request, ask: &Ask, batch: Vec<(usize, Facts, Viewer)>) {
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
        if matches!(request.strategy, Strategy::One | Strategy::Thread) {
            self.linger.begin()
        } else {
            self.linger.end()
        }
        let bytes = records.as_bytes().len();
        let taken = self.memory.take(bytes, self.limits.bytes);
        if taken.is_none() {
            return batch
                .iter()
                .for_each(|(index, ..)| self.fail_waiting(*index, libc::EBUSY));
        }
        let pass = Rc::new(Pass { records, taken });
        for (index, facts, viewer) in batch {
            let Some(Request { seq, .. }) = self.waits_for(index) else {
                continue;
            };
            // What the pass looked from, if not from here, was there all the while: the client's own task.
            if let Err(errno) = self.check_after(index, ask, &facts) {
                self.fail(index, seq, errno);
                continue;
            }
            if matches!(request.strategy, Strategy::Children) && !sees_any(&viewer, &parent) {
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
            let mut answer = Answer::new(Request { seq, ..*request }, viewer, Rc::clone(&pass), taken);
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

    pub(super) fn fail_waiting(&mut self, index: usize, errno: i32) {
        if let Some(request) = self.waits_for(index) {
            self.fail(index, request.seq, errno);
        }
    }

    pub(super) fn check_after(&mut self, index: usize, ask: &Ask, facts: &Facts) -> Result<(), i32> {
        let Some(client) = &self.clients[index] else {
            return Err(libc::ESRCH);
        };
        if ask.as_task != 0 {
            let after = self.finder.find(&mut self.passes, &client.peer)?;
            if !after.same_place(facts) {
                return Err(libc::EBUSY);
            }
        }
        if client.peer.is_alive() {
            Ok(())
        } else {
            Err(libc::ESRCH)
        }
    }
}

/// What is known already of those who share a pass: many connections may be of one process.
#[derive(Default)]
pub(super) struct BatchFacts(HashMap<(u32, bool), Result<Facts, i32>>);

impl BatchFacts {
    fn find(&mut self, finder: &Finder, passes: &mut Passes, peer: &Peer) -> Result<Facts, i32> {
        let found = match self.0.entry((peer.pid, peer.is_confined())) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(place) => place.insert(finder.find(passes, peer)).clone(),
        };
        // Else it was another process that had this number.
        if peer.is_alive() {
            found
        } else {
            Err(libc::ESRCH)
        }
    }
}

/// With what a client looks, which is two.
fn viewer(before: &Facts, now: &Facts) -> Viewer {
    Viewer {
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
fn sees_any(viewer: &Viewer, records: &Records) -> bool {
    let may_see = |record| Object::of(record).is_some_and(|object| viewer.sight(&object).is_some());
    records.each().any(|record| viewer.observer || may_see(record))
}
