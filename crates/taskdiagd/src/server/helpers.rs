//! What helpers say, and what is said to them.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::client::State;
use super::sending::patience;
use super::{token, Server, OF_HELPER};
use crate::facts::Particulars;
use crate::pool::{self, For};
use crate::{job, reader, sys};

impl Server {
    pub(super) fn give_out(&mut self) {
        let events = self.pool.give_out();
        self.take_events(events);
    }

    pub(super) fn take_events(&mut self, events: Vec<pool::Event>) {
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
    pub(super) fn is_held(&mut self, place: For) {
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

    pub(super) fn hear_keeper(&mut self) -> io::Result<()> {
        let events = self
            .pool
            .hear_keeper()
            .map_err(|_| io::Error::other("the keeper has ended"))?;
        self.take_events(events);
        Ok(())
    }

    pub(super) fn watch_helper(&mut self, place: usize, is_new: bool) {
        let Some(helper) = self.pool.helper(place) else {
            return;
        };
        let data = EventData::new_u64(token(place, helper.generation) | OF_HELPER);
        let done = if is_new {
            epoll::add(&self.epoll, &helper.socket, data, EventFlags::IN)
        } else {
            epoll::modify(&self.epoll, &helper.socket, data, EventFlags::IN)
        };
        if done.is_err() {
            let event = self.pool.end(place);
            self.take_events(event.into_iter().collect());
        }
    }

    /// Listens to a reader, or does not until its client has taken something.
    pub(super) fn listen_to(&mut self, place: usize, on: bool) {
        if on {
            let patience = self.patience_at(place);
            if self.pool.resume(place, patience) {
                self.watch_helper(place, false);
            }
        } else {
            self.pool.pause(place);
            if let Some(helper) = self.pool.helper(place) {
                let data = EventData::new_u64(token(place, helper.generation) | OF_HELPER);
                let _ = epoll::modify(&self.epoll, &helper.socket, data, EventFlags::empty());
            }
        }
    }

    pub(super) fn patience_at(&self, place: usize) -> Duration {
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
    pub(super) fn helper_event(&mut self, place: usize, generation: u32) {
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
    pub(super) fn hear(&mut self, place: usize, client: For, packet: &[u8], file: Option<OwnedFd>) {
        let there = self.is_there(client).then(|| self.clients[client.0].as_mut()).flatten();
        let (Some(there), Some((head, payload))) = (there, reader::split_head(packet)) else {
            let event = self.pool.end(place);
            return self.take_events(event.into_iter().collect());
        };
        let (item, status) = (head.index.get(), head.status.get());
        match &mut there.state {
            State::Asking(request) => {
                let request = *request;
                there.particulars = (status == job::LAST).then(|| Particulars::parse(payload)).flatten();
                let found = there.particulars.is_some();
                self.pool.is_heard(place, true, pool::PATIENCE);
                if found {
                    self.take_in(client.0, request)
                } else {
                    self.fail(client.0, request.seq, libc::EPERM)
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
}
