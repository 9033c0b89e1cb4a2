//! Answers on their way out.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::SendFlags;
use taskdiag_protocol::wire;

use super::client::State;
use super::Server;
use crate::answer::{Answer, Needs};
use crate::helpers::pool::{self, ClientId};
use crate::sys;

/// How many answers are continued between two passes over many tasks.
const ANSWERS_AT_ONCE: usize = 4;

/// How many bytes one client is sent before the next client's turn.
const TURN: usize = 256 << 10;

impl Server {
    /// Answers with an error.
    pub(super) fn answer_error(&mut self, id: ClientId, seq: u32, errno: Errno) {
        self.counters.errors += 1;
        let mut bytes = Vec::new();
        wire::put_error(&mut bytes, seq, errno.raw_os_error());
        self.start_answer(id, Answer::from_bytes(seq, bytes));
    }

    /// Starts to send an answer.
    pub(super) fn start_answer(&mut self, id: ClientId, answer: Answer) {
        if let Some(client) = self.clients.get_mut(id) {
            client.state = State::Answering(Box::new(answer));
            self.continue_answer(id);
        }
    }

    /// Continues answers whose clients can read, or whose reader has sent something.
    pub(super) fn continue_answers(&mut self) {
        for _ in 0..self.ready.len().min(ANSWERS_AT_ONCE) {
            if let Some(id) = self.ready.pop() {
                self.continue_answer(id);
            }
        }
    }

    /// Makes and sends as much of an answer as its client reads, for one turn.
    pub(super) fn continue_answer(&mut self, id: ClientId) {
        let mut budget = TURN;
        loop {
            let Some(client) = self.clients.get_mut(id) else {
                return;
            };
            client.stop_waiting();
            let State::Answering(answer) = &mut client.state else {
                return;
            };
            let needs = answer.advance();
            // What a process may see of itself must not reach another process that has its pid by
            // now.
            if budget == TURN && !client.peer.is_alive() {
                return self.disconnect(id);
            }
            match send(&client.socket, answer, &mut budget, &mut client.progress.sent) {
                Sent::All => {}
                Sent::Turn => {
                    self.ready.push(client.account, id);
                    return self.watch(id, EventFlags::empty());
                }
                Sent::Blocked => {
                    client.progress.waiting_since = Some(Instant::now());
                    client.deadline = Some(Instant::now() + client.progress.time_left(self.limits.patience));
                    let has_reader = matches!(needs, Needs::ClientToRead | Needs::ReaderPacket);
                    if has_reader && !answer.has_room() {
                        self.pause_reader_of(id);
                    }
                    return self.watch(id, EventFlags::OUT);
                }
                Sent::Closed => return self.disconnect(id),
            }
            match needs {
                Needs::ClientToRead => {}
                Needs::Nothing => return self.finish_answer(id),
                // This takes a turn among requests about many tasks.
                Needs::Files => {
                    self.large.push(client.account, id);
                    return self.watch(id, EventFlags::empty());
                }
                Needs::Reader => {
                    let patience = reader_patience(answer);
                    let Some(job) = answer.next_job() else {
                        return self.disconnect(id);
                    };
                    if self.pool.queue_job(id, client.account, job, patience).is_err() {
                        answer.fail(Errno::BUSY);
                        continue;
                    }
                    return self.watch(id, EventFlags::empty());
                }
                Needs::ReaderPacket => {
                    self.resume_reader_of(id);
                    return self.watch(id, EventFlags::empty());
                }
            }
        }
    }

    /// Records that an answer is sent, and waits for the client's next request.
    fn finish_answer(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        client.proc.take_if(|proc| !proc.is_final());
        client.state = State::Idle;
        client.idle_since = Instant::now();
        // What the client has not read yet uses this process's memory.
        client.deadline = Some(client.idle_since + self.limits.patience);
        self.watch(id, EventFlags::IN);
    }
}

/// How far an answer was sent.
enum Sent {
    /// All that there is.
    All,
    /// As much as the client's turn allows.
    Turn,
    /// As much as the socket has room for.
    Blocked,
    /// Not at all: the client has left.
    Closed,
}

/// Sends what is ready of an answer, as far as the socket has room, and counts the bytes.
fn send(socket: &OwnedFd, answer: &mut Answer, budget: &mut usize, sent: &mut usize) -> Sent {
    while answer.has_unsent() {
        if *budget == 0 {
            return Sent::Turn;
        }
        let file = answer.file.take();
        let packet = answer.next_packet();
        let len = packet.len();
        if len == 0 {
            return Sent::Closed;
        }
        let result = match &file {
            Some(file) => sys::send_with_file(socket.as_fd(), packet, Some(file.as_fd()), SendFlags::DONTWAIT),
            None => rustix::net::send(socket, packet, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map(drop),
        };
        match result {
            Ok(()) => {
                answer.mark_sent(len);
                *sent += len;
                *budget = budget.saturating_sub(len);
            }
            Err(Errno::AGAIN) => {
                answer.file = file;
                return Sent::Blocked;
            }
            Err(Errno::INTR) => answer.file = file,
            Err(_) => return Sent::Closed,
        }
    }
    Sent::All
}

/// How long a reader may make no progress on an answer.
pub(super) fn reader_patience(answer: &Answer) -> Duration {
    if answer.reads_sizes() {
        pool::SMAPS_PATIENCE
    } else {
        pool::PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{recv, socketpair, AddressFamily, RecvFlags, SocketFlags, SocketType};

    use super::*;

    /// Check that all bytes are counted, however the turn ends: they earn the client its time.
    #[test]
    fn all_that_is_sent_is_counted() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets");
        let mut bytes = Vec::new();
        while bytes.len() < 16 * wire::PACKET {
            wire::put_error(&mut bytes, 1, Errno::IO.raw_os_error());
        }
        let (len, mut answer, mut sent) = (bytes.len(), Answer::from_bytes(1, bytes), 0);
        let (mut turns, mut packet) = ([0; 3], vec![0; wire::PACKET]);
        for budget in [1, usize::MAX].into_iter().cycle() {
            let before = sent;
            let turn = match send(&ours, &mut answer, &mut { budget }, &mut sent) {
                Sent::Turn => 0,
                Sent::Blocked => 1,
                Sent::All => 2,
                Sent::Closed => panic!("closed"),
            };
            turns[turn] += 1;
            let mut received = 0;
            while let Ok((more, _)) = recv(&theirs, &mut packet[..], RecvFlags::empty()) {
                received += more;
            }
            assert_eq!(sent - before, received);
            if turn == 2 {
                break;
            }
        }
        assert!(sent == len && !turns.contains(&0), "{sent} {len} {turns:?}");
    }
}
