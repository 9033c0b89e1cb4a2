//! Builds an answer: turns the records of a pass into messages, one part at a time, as fast as the
//! client reads. Readers supply what only `/proc` has: mappings and command lines.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::io::Errno;
use taskdiag_core::record::Record;
use taskdiag_protocol::access::Object;
use taskdiag_protocol::wire::{self, attribute, show, MessageWriter, Request, Strategy};

use crate::credentials::Viewer;
use crate::encode::{self, Remainder};
use crate::files::{AnswerPart, Listing};
use crate::helpers::messages::{Job, Kind, LAST, MAX_ITEMS, MORE};
use crate::passes::{PassSpec, Programs, Records, Tasks};
use crate::quotas::Charge;

/// The size of the part of an answer that is made before it is sent, in bytes.
const PART_BYTES: usize = 2 * wire::PACKET;

/// After losing this many readers, an answer is completed without the data that readers supply.
const MAX_LOST_READERS: u32 = 10;

/// The largest errno of the kernel.
const MAX_ERRNO: i32 = 4095;

/// How many threads of a process are searched for one that has memory, to open a file of the
/// process. Every thread has memory until it ends.
pub const FIRST_THREADS: usize = 64;

/// The records of a pass, for all clients that share it.
#[derive(Debug)]
pub struct SharedRecords {
    /// Ordered by ascending thread id.
    pub records: Records,
    /// Dropped when the last answer is sent.
    _charge: Option<Charge>,
}

impl SharedRecords {
    /// Wraps records with the charge for their memory.
    pub fn new(records: Records, charge: Option<Charge>) -> SharedRecords {
        SharedRecords {
            records,
            _charge: charge,
        }
    }
}

/// Identifies the memory of a task. A reader reads by thread id, and another task may have that id
/// by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemoryIdentity {
    tid: u32,
    start_ns: u64,
    exec_id: u64,
    mm: u64,
}

impl MemoryIdentity {
    /// The identity of a record's task, if `viewer` may see it.
    fn of(record: Record<'_>, viewer: &Viewer) -> Option<MemoryIdentity> {
        let object = Object::of(record)?;
        viewer.sight(&object)?;
        Some(MemoryIdentity {
            tid: record.header().tid.get(),
            start_ns: record.header().start_ns.get(),
            exec_id: object.access().exec_id.get(),
            mm: object.access().mm.get(),
        })
    }

    /// Whether the task itself has memory. If the first thread of a process has ended, its record does
    /// not say that there is none: others may have some.
    fn has_memory(&self) -> bool {
        self.mm != 0
    }

    /// Whether the task is still the same and may still be seen. If so, everything read since
    /// `record` was made belongs to this task.
    fn is_still(&self, record: Record<'_>, viewer: &Viewer, programs: &mut Programs) -> bool {
        let header = record.header();
        let pid = header.pid.get();
        let tasks = if header.tid == header.pid {
            Tasks::Process(pid)
        } else {
            Tasks::ThreadsOf(pid)
        };
        let spec = PassSpec {
            with_landlock: viewer.is_in_landlock_domain(),
            max_tasks: FIRST_THREADS,
            ..PassSpec::of(tasks)
        };
        let records = programs.run(&spec).unwrap_or_default();
        let is_still = records
            .each()
            .any(|record| MemoryIdentity::of(record, viewer).as_ref() == Some(self));
        is_still
    }
}

/// One thing to read for a record.
#[derive(Debug)]
struct Step {
    /// Where the record begins.
    at: usize,
    identity: MemoryIdentity,
    kind: Kind,
    /// This is the last step of the record.
    is_last: bool,
}

/// The reads for an answer: steps of one or more records.
#[derive(Debug, Default)]
struct Reading {
    steps: Vec<Step>,
    /// The step that is read next.
    next: usize,
    /// The first step of the reader's job.
    job_start: usize,
    /// A reader is working on it.
    is_assigned: bool,
    /// Parts of the current record's message were already made.
    is_record_begun: bool,
    /// The task of the current step has changed.
    is_changed: bool,
    /// AnswerPart of the current record could not be read.
    is_incomplete: bool,
    cmdline: Option<Vec<u8>>,
}

impl Reading {
    fn is_complete(&self) -> bool {
        self.next >= self.steps.len()
    }
}

/// What an answer needs to continue.
#[derive(Debug, PartialEq, Eq)]
pub enum Needs {
    /// Its client must read what is ready.
    ClientToRead,
    /// A reader must be found for it.
    Reader,
    /// Its reader must send something.
    ReaderPacket,
    /// More files must be read for it.
    Files,
    /// Nothing: it is complete.
    Nothing,
}

/// An answer that is being made.
#[derive(Debug)]
pub struct Answer {
    /// The request.
    pub request: Request,
    viewer: Viewer,
    records: Rc<SharedRecords>,
    /// Where the next record begins.
    at: usize,
    /// A task was shown.
    has_task: bool,
    is_complete: bool,
    reading: Option<Reading>,
    lost_readers: u32,
    /// The processes whose files have not been read yet.
    listing: Option<Listing>,
    /// Messages. Those from `sent` on have not been sent.
    part: Vec<u8>,
    sent: usize,
    /// The file that goes with the next packet.
    pub file: Option<OwnedFd>,
    _charge: Option<Charge>,
}

impl Answer {
    /// An answer with records, and the charge for their memory.
    pub fn new(request: Request, viewer: Viewer, records: Rc<SharedRecords>, charge: Option<Charge>) -> Answer {
        Answer {
            request,
            viewer,
            records,
            at: 0,
            has_task: false,
            is_complete: false,
            reading: None,
            lost_readers: 0,
            listing: None,
            part: Vec::new(),
            sent: 0,
            file: None,
            _charge: charge,
        }
    }

    /// An answer that is already complete.
    pub fn from_bytes(seq: u32, bytes: Vec<u8>) -> Answer {
        let request = Request {
            seq,
            show: 0,
            strategy: Strategy::All,
            pid: 0,
        };
        let mut answer = Answer::without_records(request, Viewer::nobody());
        answer.part = bytes;
        answer.is_complete = true;
        answer
    }

    /// An answer without records of tasks.
    pub fn without_records(request: Request, viewer: Viewer) -> Answer {
        let none = Rc::new(SharedRecords::new(Records::default(), None));
        Answer::new(request, viewer, none, None)
    }

    /// Takes the list of processes whose files have not been read yet.
    pub fn take_listing(&mut self) -> Option<Listing> {
        self.listing.take()
    }

    /// Adds a part about files, the charges for its memory, and the list of what remains. Ends the
    /// answer if nothing remains.
    pub fn add_files(&mut self, part: &AnswerPart, charges: [Charge; 2], rest: Listing) {
        let [of_all, of_account] = charges;
        self.has_task |= !part.messages.is_empty();
        self.part.extend_from_slice(&part.messages);
        self.records = Rc::new(SharedRecords::new(Records::default(), Some(of_all)));
        self._charge = Some(of_account);
        if !rest.is_complete() {
            self.listing = Some(rest);
        } else if !self.has_task && self.viewer.is_observer && part.has_denied && self.request.pid != 0 {
            // Observers see that the process exists.
            self.fail(Errno::ACCESS);
        } else {
            self.finish(false);
        }
    }

    /// The next packet to send. Empty if there is none.
    pub fn next_packet(&mut self) -> &[u8] {
        wire::number_packet(&mut self.part[self.sent..], self.request.seq)
    }

    /// Records that `bytes` bytes were sent.
    pub fn mark_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        self.file = None;
        if self.sent == self.part.len() {
            self.part.clear();
            self.sent = 0;
        }
    }

    /// Whether there is something to send.
    pub fn has_unsent(&self) -> bool {
        self.sent < self.part.len()
    }

    /// Whether more may be made before the unsent part is sent.
    pub fn has_room(&self) -> bool {
        self.part.len() - self.sent < PART_BYTES
    }

    /// Ends the answer with an error, unless it is complete.
    pub fn fail(&mut self, errno: Errno) {
        if !self.is_complete {
            wire::put_error(&mut self.part, self.request.seq, errno.raw_os_error());
            self.is_complete = true;
            self.reading = None;
            self.listing = None;
        }
    }

    /// Makes as much as there is room for. Returns what the answer needs next.
    pub fn advance(&mut self) -> Needs {
        if self.sent > 0 && self.has_room() {
            self.part.drain(..self.sent);
            self.sent = 0;
        }
        loop {
            let has_room = self.has_room();
            if let Some(reading) = &self.reading {
                return if !reading.is_assigned {
                    Needs::Reader
                } else if has_room {
                    Needs::ReaderPacket
                } else {
                    Needs::ClientToRead
                };
            }
            if self.is_complete {
                return Needs::Nothing;
            }
            if !has_room {
                return Needs::ClientToRead;
            }
            if self.listing.is_some() {
                return Needs::Files;
            }
            self.make_next();
        }
    }

    /// Makes the message of the next record, or plans the reads that it needs.
    fn make_next(&mut self) {
        let records = Rc::clone(&self.records);
        let bytes = records.records.as_bytes();
        let Some((record, rest)) = Record::split_first(&bytes[self.at..]) else {
            return self.finish(self.at < bytes.len());
        };
        let reading = self.plan_reading(bytes);
        let is_incomplete = reading.is_some();
        if is_incomplete && self.lost_readers < MAX_LOST_READERS {
            self.reading = reading;
            return;
        }
        self.at = bytes.len() - rest.len();
        let (request, viewer) = (&self.request, &self.viewer);
        self.has_task |= if is_incomplete {
            let rest = Remainder {
                is_incomplete,
                ..Remainder::ONLY
            };
            encode::put_remainder(request, viewer, record, rest, &mut self.part)
        } else {
            encode::put_task(request, viewer, record, &mut self.part)
        };
    }

    /// Ends the answer. If the records are torn, tasks are missing, so it ends with an error.
    fn finish(&mut self, is_torn: bool) {
        let is_about_one = matches!(self.request.strategy, Strategy::One | Strategy::Thread);
        if is_torn {
            self.fail(Errno::IO)
        } else if !self.has_task && is_about_one {
            self.fail(Errno::SRCH)
        } else {
            wire::put_done(&mut self.part, self.request.seq)
        }
        self.is_complete = true;
    }

    fn needs_readers(&self) -> bool {
        self.request.show & (show::MAPPINGS | show::CMDLINE | show::OPENED) != 0
    }

    /// Plans the reads for the next record and for some that follow. `None` if the next one needs
    /// no read.
    fn plan_reading(&self, bytes: &[u8]) -> Option<Reading> {
        if !self.needs_readers() {
            return None;
        }
        let mut steps: Vec<Step> = Vec::new();
        let mut rest = &bytes[self.at..];
        while let Some((record, behind)) = Record::split_first(rest) {
            let at = bytes.len() - rest.len();
            rest = behind;
            let kinds = self.kinds_to_read(record);
            // Only one file is opened.
            let is_second_file = self.request.show & show::OPENED != 0 && !steps.is_empty();
            let identity = MemoryIdentity::of(record, &self.viewer).filter(MemoryIdentity::has_memory);
            let Some(identity) = identity.filter(|_| !kinds.is_empty() && !is_second_file) else {
                // This record's message is made when its turn comes.
                break;
            };
            if steps.len() + kinds.len() > MAX_ITEMS {
                break;
            }
            let last = kinds.len() - 1;
            steps.extend(kinds.into_iter().enumerate().map(|(index, kind)| Step {
                at,
                identity,
                kind,
                is_last: index == last,
            }));
        }
        (!steps.is_empty()).then(|| Reading {
            steps,
            ..Reading::default()
        })
    }

    /// What must be read for a record.
    fn kinds_to_read(&self, record: Record<'_>) -> Vec<Kind> {
        let show = self.request.show;
        // Only the leader of a process has its mappings.
        let is_leader = record.header().pid == record.header().tid;
        let mappings = if show & show::VMA_STAT != 0 {
            Kind::Smaps
        } else {
            Kind::Maps
        };
        let has_mappings = show & show::MAPPINGS != 0 && is_leader;
        [
            has_mappings.then_some(mappings),
            (show & show::CMDLINE != 0).then_some(Kind::Cmdline),
            (show & show::OPENED == show::MAPS).then_some(Kind::OpenMaps),
            (show & show::OPENED == show::SMAPS).then_some(Kind::OpenSmaps),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The job for a reader, starting at the next step.
    pub fn next_job(&mut self) -> Option<Job> {
        let reading = self.reading.as_mut()?;
        reading.job_start = reading.next;
        reading.is_assigned = true;
        let steps = &reading.steps[reading.next..];
        Some(Job::new(steps.iter().map(|step| (step.kind, step.identity.tid))))
    }

    /// The number of items of that job.
    pub fn job_len(&self) -> usize {
        let reading = self.reading.as_ref();
        reading.map_or(0, |reading| reading.steps.len() - reading.job_start)
    }

    /// Whether the next read is of the sizes of mappings, which always takes the kernel long.
    pub fn reads_sizes(&self) -> bool {
        let reading = self.reading.as_ref();
        let step = reading.and_then(|reading| reading.steps.get(reading.next));
        step.is_some_and(|step| step.kind == Kind::Smaps)
    }

    /// Takes a packet from the reader. Returns false if it does not belong to the current step.
    pub fn reader_packet(
        &mut self,
        item: u32,
        status: i32,
        payload: &[u8],
        file: Option<OwnedFd>,
        programs: &mut Programs,
    ) -> bool {
        let Some(mut reading) = self.reading.take() else {
            return false;
        };
        let is_expected = reading.job_start + item as usize == reading.next && !reading.is_complete();
        if is_expected {
            self.take_step(&mut reading, status, payload, file, programs);
        }
        if !reading.is_complete() && !self.is_complete {
            self.reading = Some(reading);
        }
        is_expected
    }

    /// Handles a reader that was killed because it made no progress, or that has ended. Its current
    /// step is given up, and another reader continues with the next one.
    pub fn reader_lost(&mut self, programs: &mut Programs) {
        self.lost_readers += 1;
        let Some(mut reading) = self.reading.take() else {
            return;
        };
        let busy = -Errno::BUSY.raw_os_error();
        self.take_step(&mut reading, busy, &[], None, programs);
        if self.lost_readers >= MAX_LOST_READERS {
            while !reading.is_complete() && !self.is_complete {
                self.take_step(&mut reading, busy, &[], None, programs);
            }
        }
        if !reading.is_complete() && !self.is_complete {
            reading.is_assigned = false;
            self.reading = Some(reading);
        }
    }

    /// Takes what was read for the current step, if the task is still the same.
    fn take_step(
        &mut self,
        reading: &mut Reading,
        status: i32,
        payload: &[u8],
        file: Option<OwnedFd>,
        programs: &mut Programs,
    ) {
        let records = Rc::clone(&self.records);
        let bytes = records.records.as_bytes();
        let step = &reading.steps[reading.next];
        let Some((record, rest)) = Record::split_first(&bytes[step.at..]) else {
            return self.fail(Errno::IO);
        };
        if matches!(step.kind, Kind::OpenMaps | Kind::OpenSmaps) {
            reading.next = reading.steps.len();
            let is_still = status == LAST && step.identity.is_still(record, &self.viewer, programs);
            return self.finish_with_file(record, status, file.filter(|_| is_still));
        }
        // The end counts too: mappings and arguments end early if the task loses its memory.
        let is_usable = status >= 0 && !reading.is_changed;
        let is_still = is_usable && step.identity.is_still(record, &self.viewer, programs);
        reading.is_changed |= is_usable && !is_still;
        reading.is_incomplete |= reading.is_changed || status < 0;
        let has_more = is_still && !payload.is_empty();
        if has_more && step.kind == Kind::Cmdline {
            reading.cmdline = Some(payload.to_vec());
        } else if has_more {
            let is_first = !std::mem::replace(&mut reading.is_record_begun, true);
            encode::put_mappings(&self.request, &self.viewer, record, payload, is_first, &mut self.part);
        }
        if status == MORE {
            return;
        }
        reading.is_changed = false;
        if step.is_last {
            let cmdline = reading.cmdline.take();
            let message = Remainder {
                cmdline: cmdline.as_deref(),
                is_only: !std::mem::take(&mut reading.is_record_begun),
                is_incomplete: std::mem::take(&mut reading.is_incomplete),
            };
            self.has_task |= encode::put_remainder(&self.request, &self.viewer, record, message, &mut self.part);
            self.at = bytes.len() - rest.len();
        }
        reading.next += 1;
    }

    /// Ends the answer with an open file, or with an error. The file gives the client no more than
    /// it could open itself, which takes the same right.
    fn finish_with_file(&mut self, record: Record<'_>, status: i32, file: Option<OwnedFd>) {
        let Some(file) = file else {
            return self.fail(match status.checked_neg() {
                // The task has changed since, or has lost its memory.
                Some(LAST | libc::ESRCH) => Errno::BUSY,
                Some(libc::ENOENT) => Errno::SRCH,
                Some(errno @ 1..=MAX_ERRNO) => Errno::from_raw_os_error(errno),
                _ => Errno::IO,
            });
        };
        let bits = self.request.show;
        let mut message = MessageWriter::task(&mut self.part, self.request.seq, encode::header(record));
        message.attribute(attribute::OPENED, |out| out.extend_from_slice(&bits.to_ne_bytes()));
        message.finish();
        wire::put_done(&mut self.part, self.request.seq);
        self.file = Some(file);
        self.is_complete = true;
    }

    /// Continues with the first task that has memory, to open its file. If there is none, the
    /// answer ends here: the process has no memory, or there is no such process.
    pub fn find_task_with_memory(&mut self) {
        let records = Rc::clone(&self.records);
        let bytes = records.records.as_bytes();
        let mut without_memory = None;
        let mut rest = bytes;
        while let Some((record, behind)) = Record::split_first(rest) {
            if let Some(identity) = MemoryIdentity::of(record, &self.viewer) {
                if identity.has_memory() {
                    self.at = bytes.len() - rest.len();
                    return;
                }
                without_memory.get_or_insert(encode::header(record));
            }
            rest = behind;
        }
        match without_memory {
            Some(task) => {
                MessageWriter::task(&mut self.part, self.request.seq, task).finish();
                wire::put_done(&mut self.part, self.request.seq);
                self.is_complete = true;
            }
            // Observers see that the process exists.
            None if self.viewer.is_observer && !bytes.is_empty() => self.fail(Errno::ACCESS),
            None => self.fail(Errno::SRCH),
        }
    }
}
