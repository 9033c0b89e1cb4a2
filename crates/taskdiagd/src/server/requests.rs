//! Requests on their way from a client's socket into a queue.

use std::os::fd::AsFd as _;

use rustix::io::Errno;
use taskdiag_protocol::wire::{self, show, BadRequest, Request, Strategy};

use super::client::{Progress, State};
use super::Server;
use crate::helpers::messages::{Job, Kind};
use crate::helpers::pool::{ClientId, PATIENCE};
use crate::sys;

/// Room for a request, and for more bytes so that a longer packet is noticed.
type PacketBuffer = [u8; wire::FILES_REQUEST + 8];

impl Server {
    /// Receives the next packet of a client. Fails if the client has left or has sent descriptors.
    pub(super) fn receive_packet(&mut self, id: ClientId) -> Result<(sys::Packet, PacketBuffer), Errno> {
        let client = self.clients.get(id).ok_or(Errno::PIPE)?;
        let socket = client.socket.as_fd();
        let mut buffer = [0; wire::FILES_REQUEST + 8];
        // Peeking leaves the packet in the socket, and its descriptors with it. A closer closes
        // them with the connection.
        if client.may_send_descriptors && sys::receive_from(socket, &mut buffer, true)?.has_descriptors {
            return Err(Errno::PERM);
        }
        let packet = sys::receive_from(socket, &mut buffer, false)?;
        if packet.len == 0 && packet.sender == 0 {
            Err(Errno::PIPE)
        } else {
            Ok((packet, buffer))
        }
    }

    /// Receives a request, and queues it or answers it with an error.
    pub(super) fn receive_request(&mut self, id: ClientId) {
        let (packet, buffer) = match self.receive_packet(id) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => return self.disconnect(id),
        };
        self.counters.requests += 1;
        let parsed = if packet.is_truncated {
            Err(BadRequest {
                seq: 0,
                errno: libc::EMSGSIZE,
            })
        } else {
            Request::parse(&buffer[..packet.len])
        };
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        client.deadline = None;
        client.progress = Progress::default();
        client.files = wire::Files::parse(&buffer[..packet.len.min(buffer.len())]);
        match parsed {
            // Only the process that connected may send requests.
            Ok(request) if packet.sender as u32 != client.peer.pid => self.answer_error(id, request.seq, Errno::PERM),
            Ok(request) if request.show == show::FILES && !self.programs.read_open_files() => {
                self.answer_error(id, request.seq, Errno::INVAL)
            }
            // The kernel limits the descriptors in flight of this process's user, over all clients.
            // So a client may not collect them in its socket.
            Ok(request) if request.show & show::OPENED != 0 && sys::unread(client.socket.as_fd()) != Ok(0) => {
                self.answer_error(id, request.seq, Errno::BUSY)
            }
            Ok(request) => self.enqueue(id, request),
            Err(BadRequest { seq, errno }) => self.answer_error(id, seq, Errno::from_raw_os_error(errno)),
        }
    }

    /// Queues a request. If needed, a reader first reads what `/proc` says about the client.
    pub(super) fn enqueue(&mut self, id: ClientId, request: Request) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let before = client.before.as_ref();
        if client.proc.is_none() && before.is_ok_and(|before| self.finder.needs_proc_facts(before)) {
            return self.look_up(id, request);
        }
        client.state = State::Queued(request);
        let account = client.account;
        if is_small(&request) {
            self.small.push(account, id)
        } else {
            self.large.push(account, id)
        }
    }

    /// Makes a reader read what `/proc` says about a client, for its request.
    pub(super) fn look_up(&mut self, id: ClientId, request: Request) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let job = Job::new([(Kind::ProcFacts, client.peer.pid)]);
        client.state = State::LookingUp(request);
        if self.pool.queue_job(id, client.account, job, PATIENCE).is_err() {
            self.answer_error(id, request.seq, Errno::BUSY);
        }
    }

    /// Removes a request from its queue.
    pub(super) fn dequeue(&mut self, id: ClientId) {
        self.small.remove(id);
        self.large.remove(id);
    }

    /// The queued request of a client.
    pub(super) fn queued_request(&self, id: ClientId) -> Option<Request> {
        match self.clients.get(id)?.state {
            State::Queued(request) => Some(request),
            _ => None,
        }
    }
}

/// Whether a request needs no pass over many tasks.
pub(super) fn is_small(request: &Request) -> bool {
    let is_about_few = match request.strategy {
        Strategy::One => true,
        // To open a file, only the first threads of a process are looked at.
        Strategy::Thread => request.show & show::OPENED != 0,
        _ => false,
    };
    is_about_few || request.show & show::BITS != 0
}
