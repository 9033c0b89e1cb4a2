//! Messages from helpers and the keeper, and when their sockets are watched.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::client::State;
use super::sending::reader_patience;
use super::{Server, OF_HELPER};
use crate::credentials::ProcFacts;
use crate::helpers::messages::{split_packet, CLOSED, LAST, MAX_PACKET, MORE};
use crate::helpers::pool::{self, ClientId, HelperId};
use crate::sys;

impl Server {
    /// Gives waiting jobs and connections to helpers.
    pub(super) fn assign_helpers(&mut self) {
        let events = self.pool.assign();
        self.pool_events(events);
    }

    /// Takes the keeper's reports. Fails if the keeper has ended: without it there are no helpers.
    pub(super) fn keeper_event(&mut self) -> io::Result<()> {
        let events = self.pool.take_reports();
        let events = events.map_err(|errno| io::Error::other(format!("the keeper has ended ({errno})")))?;
        self.pool_events(events);
        Ok(())
    }

    pub(super) fn pool_events(&mut self, events: Vec<pool::Event>) {
        for event in events {
            match event {
                pool::Event::Started(helper) => self.watch_helper(helper),
                pool::Event::Closed => {
                    self.counters.helpers_killed += 1;
                    self.connection_closed();
                }
                pool::Event::ReaderLost(client) => {
                    self.counters.helpers_killed += 1;
                    self.reader_lost(client);
                }
            }
        }
    }

    fn kill_helper(&mut self, helper: HelperId) {
        let event = self.pool.kill(helper);
        self.pool_events(event.into_iter().collect());
    }

    /// Continues the request of a client whose reader was killed.
    fn reader_lost(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        match &mut client.state {
            State::Answering(answer) => {
                answer.reader_lost(&mut self.programs);
                self.continue_answer(id);
            }
            State::LookingUp(request) => {
                let seq = request.seq;
                self.answer_error(id, seq, Errno::BUSY);
            }
            _ => {}
        }
    }

    /// Watches the socket of a new helper.
    fn watch_helper(&mut self, helper: HelperId) {
        let Some(new) = self.pool.helper(helper) else {
            return;
        };
        let token = EventData::new_u64(helper.to_bits() | OF_HELPER);
        if epoll::add(&self.epoll, &new.socket, token, EventFlags::IN).is_err() {
            self.kill_helper(helper);
        }
    }

    /// Changes the events that the socket of a helper is watched for.
    fn rewatch_helper(&self, helper: HelperId, flags: EventFlags) -> Result<(), Errno> {
        let Some(known) = self.pool.helper(helper) else {
            return Ok(());
        };
        let token = EventData::new_u64(helper.to_bits() | OF_HELPER);
        epoll::modify(&self.epoll, &known.socket, token, flags)
    }

    /// Stops listening to a client's reader until the client has read something.
    pub(super) fn pause_reader_of(&mut self, client: ClientId) {
        if let Some(reader) = self.pool.reader_of(client) {
            self.pool.pause(reader);
            let _ = self.rewatch_helper(reader, EventFlags::empty());
        }
    }

    /// Listens to a client's reader again.
    pub(super) fn resume_reader_of(&mut self, client: ClientId) {
        let Some(reader) = self.pool.reader_of(client) else {
            return;
        };
        let patience = self.patience_with(client);
        if self.pool.resume(reader, patience) && self.rewatch_helper(reader, EventFlags::IN).is_err() {
            self.kill_helper(reader);
        }
    }

    fn patience_with(&self, client: ClientId) -> Duration {
        match self.clients.get(client).map(|client| &client.state) {
            Some(State::Answering(answer)) => reader_patience(answer),
            _ => pool::PATIENCE,
        }
    }

    /// Handles an event of a helper: a packet from a reader, a closer that is done, or the end of
    /// the helper.
    pub(super) fn helper_event(&mut self, helper: HelperId) {
        let Some(known) = self.pool.helper(helper) else {
            return;
        };
        let mut packet = std::mem::take(&mut self.packet);
        packet.resize(MAX_PACKET, 0);
        let received = sys::receive_with_file(&known.socket, &mut packet);
        match (received, self.pool.client_of(helper)) {
            (Err(Errno::AGAIN | Errno::INTR), _) => {}
            (Ok((len, file)), Some(client)) if len > 0 => self.reader_packet(helper, client, &packet[..len], file),
            (Ok((1, None)), None) if packet[0] == CLOSED => {
                if self.pool.closer_finished(helper) {
                    self.connection_closed();
                }
            }
            _ => self.kill_helper(helper),
        }
        self.packet = packet;
    }

    /// Takes a packet that a reader sent for a client. A reader that sends an invalid packet is
    /// killed.
    fn reader_packet(&mut self, reader: HelperId, id: ClientId, packet: &[u8], file: Option<OwnedFd>) {
        let (Some(client), Some((header, payload))) = (self.clients.get_mut(id), split_packet(packet)) else {
            return self.kill_helper(reader);
        };
        let (item, status) = (header.item.get(), header.status.get());
        match &mut client.state {
            State::LookingUp(request) => {
                let request = *request;
                client.proc = if status == LAST {
                    ProcFacts::parse(payload, file)
                } else {
                    None
                };
                let is_found = client.proc.is_some();
                self.pool.reader_progressed(reader, true, pool::PATIENCE);
                if is_found {
                    self.enqueue(id, request)
                } else {
                    self.answer_error(id, request.seq, Errno::PERM)
                }
            }
            State::Answering(answer) => {
                let is_done = status != MORE && item as usize + 1 >= answer.job_len();
                if !answer.reader_packet(item, status, payload, file, &mut self.programs) {
                    return self.kill_helper(reader);
                }
                let patience = reader_patience(answer);
                self.pool.reader_progressed(reader, is_done, patience);
                self.ready.push(client.account, id);
            }
            _ => self.kill_helper(reader),
        }
    }
}
