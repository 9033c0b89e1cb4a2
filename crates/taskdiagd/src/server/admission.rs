//! Which connections are accepted, admitted, refused and closed.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};
use taskdiag_protocol::wire;

use super::client::{Client, Progress, State};
use super::{Server, LISTENER, SLICE};
use crate::credentials::{Facts, Peer};
use crate::helpers::pool::ClientId;
use crate::log::{log, Level};
use crate::quotas::{Account, MAX_ARRIVALS};
use crate::sys;

/// How long a refused client is kept so that it can read the reason: closing a connection with
/// unread packets discards what was sent.
const REFUSED_KEPT: Duration = Duration::from_secs(1);

/// The most refused clients that are kept.
const MAX_REFUSED: usize = 16;

/// The size of each client's send buffer, in bytes, which the kernel doubles. Its memory is charged
/// to this process.
const SEND_BUFFER: usize = 96 << 10;

/// How long accepting pauses after descriptors or memory ran out. Without a pause the loop would
/// spin.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// How often a warning about that is logged.
const WARNING_PERIOD: Duration = Duration::from_secs(10);

impl Server {
    /// Accepts connections. If too many wait to be admitted, the process with the most loses its
    /// last one. If no process has more than one, no more are accepted.
    pub(super) fn accept(&mut self) {
        let began = Instant::now();
        while began.elapsed() < SLICE {
            if self.connections.are_too_many_closing(&self.limits) {
                return self.listen(false);
            }
            if self.arrivals.len() >= MAX_ARRIVALS {
                match self.arrivals.last_of_largest() {
                    Some(id) => self.refuse(id),
                    None => return,
                }
            }
            match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.add_arrival(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return self.pause_accepting(errno),
            }
        }
    }

    /// Accepts no connections until one is closed or the pause is over.
    fn pause_accepting(&mut self, errno: Errno) {
        let now = Instant::now();
        if self.no_warning_until.is_none_or(|until| until <= now) {
            self.no_warning_until = Some(now + WARNING_PERIOD);
            log(
                Level::Warning,
                format_args!("can't accept connections until others are closed: {errno}"),
            );
        }
        self.listen(false);
        self.listen_again_at = Some(now + ACCEPT_PAUSE);
    }

    /// Starts or stops watching the listening socket.
    pub(super) fn listen(&mut self, on: bool) {
        if on != self.is_listening {
            let flags = if on { EventFlags::IN } else { EventFlags::empty() };
            let changed = epoll::modify(&self.epoll, &self.listener, EventData::new_u64(LISTENER), flags);
            self.is_listening = changed.is_ok() == on;
        }
    }

    /// Takes a connection, and queues it to be admitted.
    fn add_arrival(&mut self, socket: OwnedFd) {
        // Before Linux 6.16 every client may send descriptors. A client that connected before this
        // process listened may have done so already.
        let may_send_descriptors = sys::refuse_descriptors(socket.as_fd()) != Some(true);
        // Such a client does not inherit this either.
        let _ = rustix::net::sockopt::set_socket_passcred(&socket, true);
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER);
        let peer = match Peer::of(socket.as_fd(), &self.finder.modules) {
            Ok(peer) => peer,
            Err(errno) => {
                send_refusal(&socket, errno);
                return self.close(socket, may_send_descriptors, Account::Unknown);
            }
        };
        let (account, pid) = (self.users.account(peer.uid, None), peer.pid);
        let id = self.clients.insert(Client {
            account,
            socket,
            peer,
            before: Err(Errno::BUSY),
            proc: None,
            state: State::Arriving,
            files: wire::Files::default(),
            interest: EventFlags::empty(),
            deadline: None,
            progress: Progress::default(),
            idle_since: Instant::now(),
            may_send_descriptors,
        });
        let Some(client) = self.clients.get(id) else {
            return;
        };
        let token = EventData::new_u64(id.to_bits());
        if epoll::add(&self.epoll, &client.socket, token, client.interest).is_err() {
            return self.disconnect(id);
        }
        // The account is known once the client has been looked at. That is unnecessary if its user
        // is at its limit and has no idle connection.
        if self.connections.is_at_limit(account, &self.limits) && self.longest_idle(account).is_none() {
            self.refuse(id)
        } else {
            self.arrivals.push(pid, id)
        }
    }

    /// Admits connections while there is time and room.
    pub(super) fn admit_arrivals(&mut self) {
        let began = Instant::now();
        while let Some(id) = self.arrivals.pop() {
            self.admit(id);
            if began.elapsed() >= SLICE {
                break;
            }
        }
    }

    /// Admits a connection, or refuses it.
    fn admit(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        // A client that has left need not be looked at.
        let events = sys::poll_now(client.socket.as_fd(), PollFlags::empty());
        if events.is_ok_and(|events| events.contains(PollFlags::HUP)) {
            return self.disconnect(id);
        }
        let found = self.finder.find(&mut self.programs, &client.peer);
        client.before = found.and_then(|facts| facts_at_connect(facts, &client.peer));
        client.account = match &client.before {
            Ok(facts) => self.users.account(client.peer.uid, facts.owner),
            Err(_) => Account::Unknown,
        };
        let account = client.account;
        if !self.connections.has_room(account, &self.limits) && !self.make_room(account) {
            return self.refuse(id);
        }
        self.connections.add(account);
        self.counters.clients += 1;
        if let Some(client) = self.clients.get_mut(id) {
            client.state = State::Idle;
            client.idle_since = Instant::now();
            self.watch(id, EventFlags::IN);
        }
    }

    /// Sends an error to a client that is not admitted, and keeps the connection until the error is
    /// read.
    fn refuse(&mut self, id: ClientId) {
        self.arrivals.remove(id);
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        self.counters.refused += 1;
        log(
            Level::Debug,
            format_args!(
                "process {} of {:?} is refused: too many clients (--max-clients, --max-user-clients)",
                client.peer.pid, client.account
            ),
        );
        send_refusal(&client.socket, Errno::BUSY);
        client.state = State::Refused;
        client.deadline = Some(Instant::now() + REFUSED_KEPT);
        self.refused.push_back(id);
        self.watch(id, EventFlags::IN);
        if self.refused.len() > MAX_REFUSED {
            if let Some(oldest) = self.refused.pop_front() {
                self.disconnect(oldest);
            }
        }
    }

    /// The client of an account that has been idle the longest.
    fn longest_idle(&self, of: Account) -> Option<ClientId> {
        let idle = self.clients.iter().filter_map(|(id, client)| {
            let is_idle = matches!(client.state, State::Idle) && client.account == of;
            is_idle.then_some((client.idle_since, id))
        });
        idle.min().map(|(_, id)| id)
    }

    /// Closes an idle connection, so that an account may have one more. Returns whether it may.
    fn make_room(&mut self, account: Account) -> bool {
        let accounts = self.connections.eviction_order(account, &self.limits);
        let Some(id) = accounts.into_iter().find_map(|of| self.longest_idle(of)) else {
            return false;
        };
        self.counters.evicted += 1;
        self.disconnect(id);
        self.connections.has_room(account, &self.limits)
    }

    /// Closes the connection of a client, and forgets the client.
    pub(super) fn disconnect(&mut self, id: ClientId) {
        let Some(client) = self.clients.remove(id) else {
            return;
        };
        self.pool.cancel_jobs(id);
        self.arrivals.remove(id);
        self.dequeue(id);
        self.ready.remove(id);
        let Client {
            socket,
            account,
            may_send_descriptors,
            state,
            ..
        } = client;
        match state {
            // These were not counted.
            State::Arriving | State::Refused => self.refused.retain(|other| *other != id),
            _ => self.connections.remove(account),
        }
        self.close(socket, may_send_descriptors, account);
    }

    /// Closes a connection, or has a closer close it.
    fn close(&mut self, socket: OwnedFd, may_have_descriptors: bool, account: Account) {
        let _ = epoll::delete(&self.epoll, &socket);
        if may_have_descriptors {
            self.connections.begin_closing();
            self.pool.queue_close(socket, account);
        } else {
            drop(socket);
            self.listen(true);
        }
    }

    /// Records that a closer has closed a connection.
    pub(super) fn connection_closed(&mut self) {
        self.connections.closed();
        self.listen(true);
    }
}

/// The facts of a client when it connected, derived from its facts when it is admitted, or from
/// later ones if there were none then. `EPERM` if its ids have changed since. Capabilities of a
/// process that is not dumpable do not count: a program may have given them to it since it
/// connected.
pub(super) fn facts_at_connect(mut facts: Facts, peer: &Peer) -> Result<Facts, Errno> {
    if facts.effective != (peer.uid, peer.gid) {
        return Err(Errno::PERM);
    }
    if !facts.is_dumpable {
        facts.subject.capabilities = 0;
    }
    Ok(facts)
}

/// Sends a client that is not admitted the reason: an error with the sequence number 0.
fn send_refusal(socket: &OwnedFd, errno: Errno) {
    let mut bytes = Vec::new();
    wire::put_error(&mut bytes, 0, errno.raw_os_error());
    let _ = rustix::net::send(socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}
