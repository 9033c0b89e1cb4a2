//! The output of `taskdiag sockets`: rows or sums, and what is missing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use taskdiag::sockets::{Answer, Kind, Request, Row, Socket, SocketField};
use taskdiag::{Absent, Handle};

use super::sums::{Sum, Sums};
use super::{Args, NETNS};
use crate::grouping::SumLayout;
use crate::listing::Answers;
use crate::outcome::{counted, lacks, say, say_missing, say_missing_denied, say_undecided, Failure, Outcome};
use crate::output::document::{self, Head};
use crate::output::listing::{Form, Layout, Listing};

/// Writes an answer.
pub(super) struct Report<'a> {
    args: &'a Args,
    request: &'a Request,
    processes: &'a Answers,
    /// The number of sockets without all requested TCP information.
    without_info: u64,
    /// The number of sockets whose owners may be processes that the source hides.
    without_owners: u64,
}

impl<'a> Report<'a> {
    pub(super) fn new(args: &'a Args, request: &'a Request, processes: &'a Answers) -> Report<'a> {
        Report {
            args,
            request,
            processes,
            without_info: 0,
            without_owners: 0,
        }
    }

    /// Writes the sockets, in the kernel's order or sorted.
    pub(super) fn sockets(&mut self, handle: &mut Handle, layout: &Layout) -> Result<Answer, Failure> {
        let head = self.head(handle)?;
        let mut listing = Listing::begin(layout, Form::from(self.args.output), &head);
        let answer = handle.sockets(&self.processes.snapshot, self.request, |socket| {
            self.note(socket);
            listing.row(&Row::new(socket))
        })?;
        // With a single network namespace, its number is of no use.
        if let (Some(table), 0..=1) = (listing.end_rows(|_| {})?, answer.namespaces) {
            if let Some(index) = layout.table.iter().position(|shown| *shown == NETNS) {
                table.hide(index);
            }
        }
        listing.finish(|out| document::counts(out, answer.named()))?;
        Ok(answer)
    }

    fn head(&self, handle: &mut Handle) -> Result<Head<'static>, Failure> {
        let mut sources = vec![("sockets", "sock_diag")];
        if self.request.fields.contains(SocketField::Owners) {
            sources.push(("owners", handle.prepare_files(&self.processes.snapshot)?.name()));
        }
        Ok(Head::streaming("sockets", sources))
    }

    /// Counts what is missing of a socket.
    fn note(&mut self, socket: &Socket<'_>) {
        self.without_info += u64::from(socket.info.is_err_and(|reason| reason != Absent::NotAsked));
        self.without_owners += u64::from(socket.owners.is_err_and(|reason| reason == Absent::Denied));
    }

    /// Writes sums.
    pub(super) fn sums(&mut self, handle: &mut Handle, layout: &SumLayout) -> Result<Answer, Failure> {
        let head = self.head(handle)?;
        let mut sums = Sums::new(layout, &self.processes.snapshot);
        let mut total = Sum::default();
        let answer = handle.sockets(&self.processes.snapshot, self.request, |socket| {
            self.note(socket);
            let owners = socket.owners.ok().flatten().unwrap_or_default();
            total.add(socket, owners.iter().map(|owner| owner.pid));
            sums.add(socket);
            ControlFlow::Continue(())
        })?;
        let form = Form::from(self.args.output);
        layout.write(sums.groups, &total, form, &head, |out| {
            document::counts(out, answer.named());
        })?;
        Ok(answer)
    }

    /// Reports what is missing.
    pub(super) fn report(&self, answer: &Answer) -> Outcome {
        let has_owners = self.request.fields.contains(SocketField::Owners);
        let denied = if has_owners { answer.processes_denied } else { 0 };
        let hidden = if denied == 0 { self.without_owners } else { 0 };
        let outcome = say_missing_denied(lacks! {
            answer.namespaces_denied, "network namespace" => "{} left out, which you may not enter";
            answer.processes_hidden, "process" => "network namespaces of {} not known: there may be more";
            denied, "process" => "descriptors of {} missing: owners may be, too";
            hidden, "socket" => "owners of {} not known: they may be processes that this source hides";
        });
        let mut outcome = outcome.and(say_undecided(answer.undecided, "socket")).and(say_missing(lacks! {
            answer.silent, "list" => "{} did not come in time (--patience waits longer)";
            answer.no_thread, "list" => "{} not read: can't start a thread or a process";
            self.without_info, "socket" => "{} without values of TCP: ended, did not answer in time, or no process could be started";
            answer.failed, "list" => "{} ended with an error: sockets may be missing";
            answer.interrupted, "list" => "{} changed each time that the kernel made them: sockets may be missing";
            answer.malformed, "invalid answer" => "{} of the kernel left out: please report this";
        }));
        if let (Some(unlisted @ [_, ..]), true) = (answer.unlisted.as_deref(), self.request.owned) {
            let mut protocols: BTreeMap<&str, u64> = BTreeMap::new();
            for socket in unlisted {
                *protocols
                    .entry(socket.protocol.as_deref().unwrap_or("unknown"))
                    .or_default() += 1;
            }
            let protocols: Vec<String> = protocols
                .iter()
                .map(|(name, count)| format!("{count} {name}"))
                .collect();
            say(format_args!(
                "{} left out: in no list of the kernel ({}); `taskdiag files --kind socket` has the descriptors",
                counted(unlisted.len() as u64, "socket"),
                protocols.join(", ")
            ));
            outcome = Outcome::Partial;
        }
        let asked = self.args.kinds.named().iter().map(Kind::name);
        for name in asked.filter(|name| answer.unsupported.contains(name)) {
            say(format_args!(
                "{name}: this kernel can't list such sockets ({name}_diag is missing)"
            ));
            outcome = Outcome::Partial;
        }
        outcome
    }
}
