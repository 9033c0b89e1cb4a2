//! Answers about the files of processes. They are made in parts: each part after the first takes a
//! turn among requests about many tasks.

use rustix::io::Errno;
use taskdiag_core::error::Error;
use taskdiag_core::field::{Group, Groups};
use taskdiag_core::record::Record;
use taskdiag_protocol::access::Object;
use taskdiag_protocol::wire::{show, Request, Strategy};

use super::client::State;
use super::sharing::{sees_any, KnownFacts, Sharer};
use super::Server;
use crate::answer::Answer;
use crate::encode;
use crate::files::{make_part, AnswerPart, Listing};
use crate::helpers::pool::ClientId;
use crate::log::{log, Level};
use crate::passes::{PassSpec, Tasks};

impl Server {
    /// Begins the answer to a request about files: finds the processes, and reads the first files.
    pub(super) fn begin_files(&mut self, spec: &PassSpec, sharer: &Sharer) {
        let id = sharer.id;
        let Some(request) = self.queued_request(id) else {
            return;
        };
        let pids = match spec.tasks {
            Tasks::Process(pid) => Ok(vec![pid]),
            _ => self.find_processes(spec, sharer),
        };
        let pids = match pids {
            Ok(pids) => pids,
            Err(errno) => return self.answer_error(id, request.seq, errno),
        };
        if matches!(request.strategy, Strategy::One) {
            self.busy_poll.begin()
        } else {
            self.busy_poll.end()
        }
        let mut answer = Answer::without_records(request, sharer.viewer.clone());
        if let Err(errno) = self.add_part(spec, sharer, Listing::new(pids), &mut answer) {
            answer.fail(errno);
        }
        self.start_answer(id, answer);
    }

    /// Continues an answer about files.
    pub(super) fn continue_files(&mut self, id: ClientId) {
        let Some(State::Answering(answer)) = self.clients.get_mut(id).map(|client| &mut client.state) else {
            return;
        };
        let request = answer.request;
        let Some(listing) = answer.take_listing() else {
            return;
        };
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let State::Answering(mut answer) = std::mem::replace(&mut client.state, State::Idle) else {
            return;
        };
        let groups = Server::groups_of_place(&request);
        let added = match self.find_viewer(id, groups, &mut KnownFacts::default()) {
            Ok(Some((facts, viewer, vantage))) => {
                let sharer = Sharer { id, facts, viewer };
                let spec = self.spec(&request, &sharer.viewer, vantage);
                self.add_part(&spec, &sharer, listing, &mut answer)
            }
            // It entered a user namespace.
            Ok(None) => Err(Errno::BUSY),
            Err(errno) => Err(errno),
        };
        if let Err(errno) = added {
            answer.fail(errno);
        }
        if let Some(client) = self.clients.get_mut(id) {
            client.state = State::Answering(answer);
            self.continue_answer(id);
        }
    }

    /// The processes of a request that the client may see.
    fn find_processes(&mut self, spec: &PassSpec, sharer: &Sharer) -> Result<Vec<u32>, Errno> {
        let (parent, records) = self.read_records(spec).map_err(failed)?;
        self.check_unchanged(spec, sharer)?;
        if matches!(spec.tasks, Tasks::ChildrenOf(_)) && !sees_any(&sharer.viewer, &parent) {
            return Err(Errno::SRCH);
        }
        let is_visible = |record: &Record<'_>| {
            let object = Object::of(*record);
            object.is_some_and(|object| sharer.viewer.sight(&object).is_some())
        };
        let visible = records.each().filter(is_visible);
        let pids = visible.map(|record| record.header().pid.get()).collect();
        self.programs.reuse(records);
        Ok(pids)
    }

    /// Reads the next files of an answer, and adds them.
    fn add_part(
        &mut self,
        spec: &PassSpec,
        sharer: &Sharer,
        mut listing: Listing,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        self.counters.passes += 1;
        let client = self.clients.get(sharer.id).ok_or(Errno::SRCH)?;
        let (account, files) = (client.account, client.files);
        let part = make_part(&mut self.programs, &sharer.viewer, &mut listing, &files, spec);
        let part = part.map_err(failed)?;
        self.check_unchanged(spec, sharer)?;
        let AnswerPart { messages, .. } = &part;
        let limit = self.limits.answer_bytes;
        let of_all = self.memory.try_charge(messages.len(), limit).ok_or(Errno::BUSY)?;
        let usage = self.memory_by_account.of(account);
        let of_account = usage.try_charge(messages.len(), limit / 3).ok_or(Errno::BUSY)?;
        answer.add_files(&part, [of_all, of_account], listing);
        Ok(())
    }

    /// The groups whose values depend on the place of the requesting client: those that it asks
    /// for, and paths, since names of files are paths.
    pub(super) fn groups_of_place(request: &Request) -> Groups {
        let groups = encode::groups_to_read(request);
        if request.show & show::FILES != 0 {
            groups.with(Group::Paths)
        } else {
            groups
        }
    }
}

/// Logs a failed pass. Returns the error for its client.
fn failed(error: Error) -> Errno {
    log(
        Level::Warning,
        format_args!("a pass for open files failed, and its client gets EIO: {error:#}"),
    );
    Errno::IO
}
