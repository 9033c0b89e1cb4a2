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
use crate::pool::{self, For};
use crate::sys;

/// Answers that go on at once.
const READY_AT_ONCE: usize = 4;

/// So much is sent to one client before it is another one's turn.
const TURN: usize = 256 << 10;

impl Server {
    /// Answers with an error.
    pub(super) fn fail(&mut self, index: usize, seq: u32, errno: i32) {
        self.counters.errors += 1;
        let mut bytes = Vec::new();
        wire::put_error(&mut bytes, seq, errno);
        self.answer(index, seq, bytes);
    }

    /// Answers with few bytes.
    pub(super) fn answer(&mut self, index: usize, seq: u32, bytes: Vec<u8>) {
        self.begin(index, Answer::whole(seq, bytes));
    }

    /// Begins to send an answer.
    pub(super) fn begin(&mut self, index: usize, answer: Answer) {
        if let Some(client) = &mut self.clients[index] {
            client.particulars = None;
            client.state = State::Answering(Box::new(answer));
            let place = (index, client.generation);
            self.pump(place);
        }
    }

    /// Makes and sends as much of an answer as its client takes, for a turn.
    pub(super) fn pump(&mut self, place: For) {
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
    pub(super) fn is_answered(&mut self, index: usize) {
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
    pub(super) fn go_on(&mut self) {
        for _ in 0..self.ready.len().min(READY_AT_ONCE) {
            if let Some(place) = self.ready.pop_front() {
                self.pump(place);
            }
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

/// How long a reader that works for an answer may say nothing.
pub(super) fn patience(answer: &Answer) -> Duration {
    if answer.is_slow() {
        pool::LONG_PATIENCE
    } else {
        pool::PATIENCE
    }
}
