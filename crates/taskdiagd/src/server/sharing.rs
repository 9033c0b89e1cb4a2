//! Decides whose turn it is, and makes one pass for a request and all requests like it.
//!
//! Requests about few tasks go first, one by one. Then one pass over many tasks is made, for one
//! request and all queued requests that need the same pass. It begins after the last of them was
//! received, so each answer is as fresh as its request.

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use taskdiag_core::error;
use taskdiag_core::field::Groups;
use taskdiag_protocol::access::Object;
use taskdiag_protocol::wire::{self, attribute, show, MessageWriter, Request, Strategy};
use zerocopy::native_endian::{U32, U64};
use zerocopy::IntoBytes as _;

use super::admission::facts_at_connect;
use super::client::{Client, State};
use super::requests::is_small;
use super::{Server, MEMORY_KEPT, SLICE};
use crate::answer::{Answer, SharedRecords, FIRST_THREADS};
use crate::credentials::{ClientFinder, Facts, Peer, Vantage, Viewer};
use crate::encode;
use crate::helpers::pool::ClientId;
use crate::log::{log, Level};
use crate::passes::{PassSpec, Programs, Records, Tasks};
use crate::quotas::Account;

/// A client is late if it has read nothing for this long, although a part of its answer is ready.
const LATE: Duration = Duration::from_millis(50);

/// With this many late clients, an account's requests about many tasks wait.
const MAX_LATE: usize = 4;

/// A client that shares a pass.
pub(super) struct Sharer {
    pub(super) id: ClientId,
    pub(super) facts: Facts,
    pub(super) viewer: Viewer,
}

impl Server {
    /// Answers some requests about few tasks.
    pub(super) fn serve_small(&mut self) {
        let began = Instant::now();
        while let Some(first) = self.small.pop() {
            self.serve(first);
            if began.elapsed() >= SLICE {
                break;
            }
        }
    }

    /// Answers one request about many tasks, and all that share its pass.
    pub(super) fn serve_large(&mut self) {
        let mut large = std::mem::take(&mut self.large);
        let first = large.pop_where(|account| !self.has_late_clients(account));
        self.large = large;
        if let Some(first) = first {
            self.serve(first);
            self.pass_ended = Instant::now();
        }
    }

    /// Whether an account has so many late clients that it gets no further pass over many tasks.
    /// Otherwise clients that ask and do not read would make all others wait for passes.
    pub(super) fn has_late_clients(&self, account: Account) -> bool {
        let is_late = |client: &&Client| {
            let is_answered = matches!(client.state, State::Answering(_)) && client.account == account;
            let waiting_since = client.progress.waiting_since;
            is_answered && waiting_since.is_some_and(|since| since.elapsed() > LATE)
        };
        let late = self.clients.values().filter(is_late).take(MAX_LATE).count();
        !account.is_root() && late == MAX_LATE
    }

    /// Answers a request and all that share its pass, or continues an answer about files.
    fn serve(&mut self, first: ClientId) {
        let Some(request) = self.queued_request(first) else {
            return self.continue_files(first);
        };
        let request = Request { seq: 0, ..request };
        let began = Instant::now();
        let mut known = KnownFacts::default();
        let Some((spec, sharer)) = self.prepare(first, &request, &mut known) else {
            return;
        };
        if request.show & show::FILES != 0 {
            return self.begin_files(&spec, &sharer);
        }
        let mut sharers = vec![sharer];
        if spec.as_task == 0 && self.limits.share_passes && !is_small(&request) {
            for id in self.clients_asking(&request) {
                if began.elapsed() >= SLICE {
                    break;
                }
                match self.prepare(id, &request, &mut known) {
                    Some((other, sharer)) if other == spec => {
                        self.large.remove(id);
                        sharers.push(sharer);
                    }
                    _ => {}
                }
            }
        }
        self.run_pass(&request, &spec, sharers);
    }

    /// The clients whose queued request about many tasks is the same.
    fn clients_asking(&self, request: &Request) -> Vec<ClientId> {
        let asks = |id: &ClientId| {
            let other = self.queued_request(*id);
            other.is_some_and(|other| Request { seq: 0, ..other } == *request)
        };
        self.large.clients().filter(asks).collect()
    }

    /// The pass that a client's request needs, and what the client may see. `None` if the request
    /// was answered without a pass, or must wait for a reader.
    fn prepare(&mut self, id: ClientId, request: &Request, known: &mut KnownFacts) -> Option<(PassSpec, Sharer)> {
        let Request { seq, .. } = self.queued_request(id)?;
        let groups = Server::groups_of_place(request);
        let (facts, viewer, vantage) = match self.find_viewer(id, groups, known) {
            Ok(Some(found)) => found,
            // It entered a user namespace.
            Ok(None) => {
                self.dequeue(id);
                self.look_up(id, Request { seq, ..*request });
                return None;
            }
            Err(errno) => {
                self.dequeue(id);
                self.answer_error(id, seq, errno);
                return None;
            }
        };
        if request.show & show::BITS != 0 {
            self.dequeue(id);
            self.answer_bits(id, seq, &viewer);
            return None;
        }
        // Readers read the files of this pid namespace, and the times there must be those of the
        // records.
        let needs_reader = request.show & (show::MAPPINGS | show::CMDLINE | show::OPENED) != 0;
        if needs_reader && vantage.has_other_numbers {
            self.dequeue(id);
            self.answer_error(id, seq, Errno::PERM);
            return None;
        }
        let spec = self.spec(request, &viewer, vantage);
        Some((spec, Sharer { id, facts, viewer }))
    }

    /// The pass that a request needs.
    pub(super) fn spec(&self, request: &Request, viewer: &Viewer, vantage: Vantage) -> PassSpec {
        PassSpec {
            tasks: match request.strategy {
                Strategy::All => Tasks::Processes,
                Strategy::AllThreads => Tasks::Threads,
                Strategy::One => Tasks::Process(request.pid),
                Strategy::Thread => Tasks::ThreadsOf(request.pid),
                Strategy::Children => Tasks::ChildrenOf(request.pid),
            },
            groups: encode::groups_to_read(request).without(viewer.lacks).0,
            as_task: vantage.task,
            has_other_pids: vantage.has_other_numbers,
            with_landlock: viewer.is_in_landlock_domain(),
            max_tasks: if request.show & show::OPENED == 0 {
                usize::MAX
            } else {
                FIRST_THREADS
            },
        }
    }

    /// The current facts of a client, what it may see, and from where its pass is made. `None` if a
    /// reader must look it up first.
    pub(super) fn find_viewer(
        &mut self,
        id: ClientId,
        groups: Groups,
        known: &mut KnownFacts,
    ) -> Result<Option<(Facts, Viewer, Vantage)>, Errno> {
        let client = self.clients.get_mut(id).ok_or(Errno::SRCH)?;
        let facts = known.find(&self.finder, &mut self.programs, &client.peer)?;
        // It could not be looked at when it was admitted, for instance because it was changing.
        if client.before.is_err() {
            client.before = facts_at_connect(facts.clone(), &client.peer);
        }
        let before = client.before.as_ref().map_err(|errno| *errno)?;
        let Some(facts) = self.finder.with_proc_facts(facts, client.proc.as_ref()) else {
            return Ok(None);
        };
        let vantage = self.finder.vantage(&facts, groups)?;
        let viewer = Viewer::new(before, &facts, vantage.lacks);
        Ok(Some((facts, viewer, vantage)))
    }

    /// Answers a request for the available bits.
    fn answer_bits(&mut self, id: ClientId, seq: u32, viewer: &Viewer) {
        let (sees_all, of_all) = viewer.sees_of_all();
        let mut known = wire::ALL_BITS;
        if !self.programs.read_open_files() {
            known &= !show::FILES;
        }
        if !self.programs.count_network() {
            known &= !wire::NETWORK_BIT;
        }
        let bits = wire::Bits {
            bits: U64::new(known),
            of_all: U64::new(of_all),
            version: U32::new(wire::VERSION),
            // Where the kernel hides process 1, no viewer sees all tasks.
            flags: U32::new(if sees_all && viewer.now.hidden_pid == 0 {
                wire::SEES_ALL
            } else {
                0
            }),
        };
        let mut bytes = Vec::new();
        let mut message = MessageWriter::task(&mut bytes, seq, Default::default());
        message.attribute(attribute::BITS, |out| out.extend_from_slice(bits.as_bytes()));
        message.finish();
        wire::put_done(&mut bytes, seq);
        self.start_answer(id, Answer::from_bytes(seq, bytes));
    }

    /// Makes a pass, and starts the answers of all clients that share it.
    fn run_pass(&mut self, request: &Request, spec: &PassSpec, sharers: Vec<Sharer>) {
        self.counters.passes += 1;
        let (parent, records) = match self.read_records(spec) {
            Ok(records) => records,
            Err(error) => {
                log(
                    Level::Warning,
                    format_args!("a pass over tasks failed, and its clients get EIO: {error:#}"),
                );
                return self.answer_all_with_error(&sharers, Errno::IO);
            }
        };
        if matches!(request.strategy, Strategy::One | Strategy::Thread) {
            self.busy_poll.begin()
        } else {
            self.busy_poll.end()
        }
        let bytes = records.as_bytes().len();
        let Some(charge) = self.memory.try_charge(bytes, self.limits.answer_bytes) else {
            return self.answer_all_with_error(&sharers, Errno::BUSY);
        };
        let records = Rc::new(SharedRecords::new(records, Some(charge)));
        for sharer in sharers {
            let id = sharer.id;
            let Some(Request { seq, .. }) = self.queued_request(id) else {
                continue;
            };
            let request = Request { seq, ..*request };
            match self.new_answer(request, spec, sharer, &records, &parent) {
                Ok(answer) => self.start_answer(id, answer),
                Err(errno) => self.answer_error(id, seq, errno),
            }
        }
        if let Some(records) = Rc::into_inner(records) {
            self.programs.reuse(records.records);
        }
        self.free_memory_at = self.programs.keeps_memory().then(|| Instant::now() + MEMORY_KEPT);
    }

    /// The records of a pass. If it is about children, the record of their parent comes first.
    pub(super) fn read_records(&mut self, spec: &PassSpec) -> error::Result<(Records, Records)> {
        let parent = match spec.tasks {
            Tasks::ChildrenOf(pid) => self.programs.run(&PassSpec {
                tasks: Tasks::Process(pid),
                groups: 0,
                ..*spec
            })?,
            _ => Records::default(),
        };
        Ok((parent, self.programs.run(spec)?))
    }

    /// The answer of one client that shares a pass.
    fn new_answer(
        &mut self,
        request: Request,
        spec: &PassSpec,
        sharer: Sharer,
        records: &Rc<SharedRecords>,
        parent: &Records,
    ) -> Result<Answer, Errno> {
        self.check_unchanged(spec, &sharer)?;
        let Sharer { id, viewer, .. } = sharer;
        if matches!(request.strategy, Strategy::Children) && !sees_any(&viewer, parent) {
            return Err(Errno::SRCH);
        }
        let account = self.clients.get(id).ok_or(Errno::SRCH)?.account;
        let usage = self.memory_by_account.of(account);
        let bytes = records.records.as_bytes().len();
        let charge = usage
            .try_charge(bytes, self.limits.answer_bytes / 3)
            .ok_or(Errno::BUSY)?;
        let mut answer = Answer::new(request, viewer, Rc::clone(records), Some(charge));
        if request.show & show::OPENED != 0 {
            answer.find_task_with_memory();
        }
        Ok(answer)
    }

    /// Checks that a client is still alive after the pass. If the pass was made in its place, the
    /// client must also be in the same namespaces now: then it was in them during the pass.
    pub(super) fn check_unchanged(&mut self, spec: &PassSpec, sharer: &Sharer) -> Result<(), Errno> {
        let client = self.clients.get(sharer.id).ok_or(Errno::SRCH)?;
        if spec.as_task != 0 {
            let after = self.finder.find(&mut self.programs, &client.peer)?;
            if !after.is_same_place(&sharer.facts) {
                return Err(Errno::BUSY);
            }
        }
        if client.peer.is_alive() {
            Ok(())
        } else {
            Err(Errno::SRCH)
        }
    }

    fn answer_all_with_error(&mut self, sharers: &[Sharer], errno: Errno) {
        for sharer in sharers {
            if let Some(request) = self.queued_request(sharer.id) {
                self.answer_error(sharer.id, request.seq, errno);
            }
        }
    }
}

/// The facts of the clients that share a pass, by pid and by whether they are confined. One process
/// may have many connections.
#[derive(Default)]
pub(super) struct KnownFacts(HashMap<(u32, bool), Result<Facts, Errno>>);

impl KnownFacts {
    fn find(&mut self, finder: &ClientFinder, programs: &mut Programs, peer: &Peer) -> Result<Facts, Errno> {
        let found = match self.0.entry((peer.pid, peer.is_confined)) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(vacant) => vacant.insert(finder.find(programs, peer)).clone(),
        };
        // The facts may belong to another process that had this pid.
        if peer.is_alive() {
            found
        } else {
            Err(Errno::SRCH)
        }
    }
}

/// Whether a client may see any of these tasks.
pub(super) fn sees_any(viewer: &Viewer, records: &Records) -> bool {
    let sees = |record| Object::of(record).is_some_and(|object| viewer.sight(&object).is_some());
    records.each().any(|record| viewer.is_observer || sees(record))
}
