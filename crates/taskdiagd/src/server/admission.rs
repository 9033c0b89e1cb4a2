//! Who comes, who gets a place, and who leaves.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};
use taskdiag_protocol::wire;

use super::client::{Client, Progress, State};
use super::limits::Limits;
use super::{token, Server, LISTENER, SLICE};
use crate::accounts::Account;
use crate::facts::{Facts, Peer};
use crate::log::{log, Level};
use crate::sys;

/// So many connections wait for being looked at.
pub(super) const ARRIVALS: usize = 32;

/// Those who are not let in are kept for so long, so that what they are told is not lost in an error; and no more of them.
const REFUSED_KEPT: Duration = Duration::from_secs(1);

const REFUSED_MOST: usize = 16;

/// What waits in the socket of a client, at most, is charged to this process.
const SOCKET_BYTES: usize = 96 << 10;

impl Server {
    pub(super) fn accept(&mut self) {
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

    pub(super) fn listen(&mut self, on: bool) {
        if on != self.listens {
            let flags = if on { EventFlags::IN } else { EventFlags::empty() };
            self.listens =
                epoll::modify(&self.epoll, &self.listener, EventData::new_u64(LISTENER), flags).is_ok() == on;
        }
    }

    /// Takes a connection. Whose it is is looked at when its turn comes.
    pub(super) fn welcome(&mut self, socket: OwnedFd) {
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
        let is_full = self.places.are_all_taken(account, &self.limits);
        if is_full && self.longest_idle(account).is_none() {
            self.refuse(index)
        } else {
            self.arrivals.push(pid, index)
        }
    }

    /// Lets in who has connected, as far as there is time and room.
    pub(super) fn let_in(&mut self) {
        let began = Instant::now();
        while let Some(index) = self.arrivals.pop() {
            self.admit(index);
            if began.elapsed() >= SLICE {
                break;
            }
        }
    }

    /// Lets one in, or says why not.
    pub(super) fn admit(&mut self, index: usize) {
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
        if !self.places.has_room(account, &self.limits) && !self.make_room(account) {
            return self.refuse(index);
        }
        self.places.take(account);
        self.counters.clients += 1;
        if let Some(client) = &mut self.clients[index] {
            client.state = State::Idle;
            client.idle_since = Instant::now();
            self.watch(index, EventFlags::IN);
        }
    }

    /// Tells one that has just connected that there is no place for it, and keeps it until it has read that.
    pub(super) fn refuse(&mut self, index: usize) {
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

    /// The client of an account that has had nothing to ask for the longest time.
    pub(super) fn longest_idle(&self, of: Account) -> Option<usize> {
        let idle = self.clients.iter().enumerate().filter_map(|(index, client)| {
            let client = client.as_ref()?;
            let is_idle = matches!(client.state, State::Idle) && client.account == of;
            is_idle.then_some((client.idle_since, index))
        });
        idle.min().map(|(_, index)| index)
    }

    /// Ends connections that nothing is asked over, where another one needs a place: those of the same account, or of the one that has the most.
    pub(super) fn make_room(&mut self, account: Account) -> bool {
        // More than one where some places that are root's are taken by others.
        for _ in 0..Limits::OF_ROOT {
            let accounts = self.places.to_end_for(account, &self.limits);
            let Some(index) = accounts.into_iter().find_map(|of| self.longest_idle(of)) else {
                return false;
            };
            self.counters.ended += 1;
            self.leave(index);
            if self.places.has_room(account, &self.limits) {
                return true;
            }
        }
        false
    }

    pub(super) fn leave_if(&mut self, index: usize, generation: u32) {
        if self.is_there((index, generation)) {
            self.leave(index);
        }
    }

    pub(super) fn leave(&mut self, index: usize) {
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
    pub(super) fn close(&mut self, socket: OwnedFd, is_guarded: bool, account: Account) {
        let _ = epoll::delete(&self.epoll, &socket);
        if is_guarded {
            self.places.take(account);
            self.pool.close(socket, account);
        }
    }

    pub(super) fn has_closed(&mut self, account: Account) {
        self.places.give_back(account);
        self.listen(true);
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

/// Tells one that is not let in why.
fn put_greeting(socket: &OwnedFd, errno: i32) {
    let mut bytes = Vec::new();
    wire::put_error(&mut bytes, 0, errno);
    let _ = rustix::net::send(socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}
