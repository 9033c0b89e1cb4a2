//! An answer while it is made: messages of the records of a pass, a part at a time, as far as its client takes them. What has to be read
//! of tasks' memory, readers bring meanwhile.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use taskdiag_core::record::{Record, NO_MM};
use taskdiag_protocol::access::Object;
use taskdiag_protocol::wire::{self, attribute, show, MessageWriter, Request, Strategy};

use crate::accounts::Taken;
use crate::encode::{self, Viewer};
use crate::job::{self, Job, Kind};
use crate::passes::{Ask, Passes, Records, Tasks};

/// So much of an answer is made before it is sent.
pub const PART: usize = 2 * wire::PACKET;

/// So many tasks of an answer may make its reader wait in vain. What is left of it then is told without what lies in tasks' memory.
const HELD_MOST: u32 = 10;

/// The records of a pass, which all have that it was made for.
#[derive(Debug)]
pub struct Pass {
    /// By ascending thread ids.
    pub records: Records,
    /// Until the last of them has its answer.
    #[allow(dead_code)] // held for its end
    pub taken: Option<Taken>,
}

/// Which memory a task has, if `viewer` may see it, as far as a record of it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    tid: u32,
    start_ns: u64,
    exec_id: u64,
    mm: u64,
}

impl Identity {
    fn of(record: Record<'_>, viewer: &Viewer) -> Option<Identity> {
        let object = Object::of(record)?;
        viewer.sight(&object)?;
        Some(Identity {
            tid: record.header().tid.get(),
            start_ns: record.header().start_ns.get(),
            exec_id: object.access().exec_id.get(),
            mm: object.access().mm.get(),
        })
    }

    /// Whether it is the same now: what was done since its record was made was done to this memory, which may be seen.
    fn is_still(&self, record: Record<'_>, viewer: &Viewer, passes: &mut Passes) -> bool {
        let header = record.header();
        let pid = header.pid.get();
        let scope = if header.tid == header.pid {
            Tasks::Process(pid)
        } else {
            Tasks::ThreadsOf(pid)
        };
        let ask = Ask {
            scope,
            groups: 0,
            as_task: 0,
            domains: viewer.are_in_domain(),
            most: FIRST_THREADS,
        };
        let records = passes.run(&ask).unwrap_or_default();
        let is_still = records
            .each()
            .any(|record| Identity::of(record, viewer).as_ref() == Some(self));
        is_still
    }
}

/// Where one thread of a process is sought that has memory, as all have that have not ended, so many are looked at.
pub const FIRST_THREADS: usize = 64;

/// Something that is to be read for the task of a record.
#[derive(Debug)]
struct Step {
    /// Where the record begins.
    at: usize,
    identity: Identity,
    kind: Kind,
    /// Nothing more of this record comes behind it.
    is_last: bool,
}

/// What is read at the moment.
#[derive(Debug, Default)]
struct Reading {
    /// One behind the other.
    steps: Vec<Step>,
    /// Which of them comes next.
    next: usize,
    /// Which of them the job of the reader began with.
    base: usize,
    /// A reader is at it.
    is_given: bool,
    /// Parts of this record's message have been told.
    is_begun: bool,
    /// What comes of this step is of another task by now.
    is_spoiled: bool,
    cmdline: Option<Vec<u8>>,
}

/// What an answer needs to go on.
#[derive(Debug, PartialEq, Eq)]
pub enum Needs {
    /// Its client has to take what there is.
    Room,
    /// A reader.
    Reader,
    /// What the reader brings.
    News,
    /// Nothing: it is complete.
    Nothing,
}

/// An answer that is being made.
#[derive(Debug)]
pub struct Answer {
    request: Request,
    viewer: Viewer,
    pass: Rc<Pass>,
    /// What is not made yet begins here in the records.
    at: usize,
    has_told: bool,
    is_over: bool,
    reading: Option<Reading>,
    held: u32,
    /// Messages that are not sent, from there on.
    part: Vec<u8>,
    sent: usize,
    /// What goes with the next packet.
    pub file: Option<OwnedFd>,
    _taken: Option<Taken>,
}

impl Answer {
    /// Of records, with what was taken for them.
    pub fn new(request: Request, viewer: Viewer, pass: Rc<Pass>, taken: Option<Taken>) -> Answer {
        Answer {
            request,
            viewer,
            pass,
            at: 0,
            has_told: false,
            is_over: false,
            reading: None,
            held: 0,
            part: Vec::new(),
            sent: 0,
            file: None,
            _taken: taken,
        }
    }

    /// Of bytes.
    pub fn whole(seq: u32, bytes: Vec<u8>) -> Answer {
        let nothing = Rc::new(Pass {
            records: Records::default(),
            taken: None,
        });
        let request = Request {
            seq,
            show: 0,
            strategy: Strategy::All,
            pid: 0,
        };
        let mut answer = Answer::new(request, Viewer::closed(), nothing, None);
        answer.part = bytes;
        answer.is_over = true;
        answer
    }

    /// The next packet; none if nothing waits to be sent.
    pub fn packet(&mut self) -> &[u8] {
        wire::number_packet(&mut self.part[self.sent..], self.request.seq)
    }

    /// So many bytes have been sent.
    pub fn has_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        self.file = None;
        if self.sent == self.part.len() {
            self.part.clear();
            self.sent = 0;
        }
    }

    /// Whether something waits to be sent.
    pub fn waits(&self) -> bool {
        self.sent < self.part.len()
    }

    /// Whether there is room for more.
    pub fn has_room(&self) -> bool {
        self.part.len() - self.sent < PART
    }

    /// Ends it with an error.
    pub fn fail(&mut self, errno: i32) {
        if !self.is_over {
            wire::put_error(&mut self.part, self.request.seq, errno);
            self.is_over = true;
            self.reading = None;
        }
    }

    /// Makes as much as there is room for, and says what it needs then.
    pub fn go_on(&mut self) -> Needs {
        if self.sent > 0 && self.has_room() {
            self.part.drain(..self.sent);
            self.sent = 0;
        }
        loop {
            if let Some(reading) = &self.reading {
                return match self.has_room() {
                    _ if !reading.is_given => Needs::Reader,
                    true => Needs::News,
                    false => Needs::Room,
                };
            }
            if self.is_over {
                return Needs::Nothing;
            }
            if !self.has_room() {
                return Needs::Room;
            }
            self.make();
        }
    }

    /// Makes the message of the next record, or finds out what has to be read for it.
    fn make(&mut self) {
        let pass = Rc::clone(&self.pass);
        let bytes = pass.records.as_bytes();
        let Some((record, rest)) = Record::split_first(&bytes[self.at..]) else {
            return self.end(self.at < bytes.len());
        };
        if self.reads() && self.held < HELD_MOST {
            if let Some(reading) = self.plan(bytes) {
                self.reading = Some(reading);
                return;
            }
        }
        self.at = bytes.len() - rest.len();
        self.has_told |= encode::put(&self.request, &self.viewer, record, &mut self.part);
    }

    /// What is not whole is an error: it would be missing from the answer.
    fn end(&mut self, is_torn: bool) {
        let is_about_one = matches!(self.request.strategy, Strategy::One | Strategy::Thread);
        match () {
            () if is_torn => self.fail(libc::EIO),
            () if !self.has_told && is_about_one => self.fail(libc::ESRCH),
            () => wire::put_done(&mut self.part, self.request.seq),
        }
        self.is_over = true;
    }

    fn reads(&self) -> bool {
        self.request.show & (show::MAPPINGS | show::CMDLINE | show::OPENED) != 0
    }

    /// What is to be read of the record that comes next, and of some behind it; `None` if nothing is of this one.
    fn plan(&self, bytes: &[u8]) -> Option<Reading> {
        let show = self.request.show;
        let mut steps: Vec<Step> = Vec::new();
        let mut rest = &bytes[self.at..];
        while let Some((record, behind)) = Record::split_first(rest) {
            let at = bytes.len() - rest.len();
            rest = behind;
            // The leader of a process has its mappings, and no other thread.
            let is_leader = record.header().pid == record.header().tid;
            let mappings = match (show & show::MAPPINGS != 0 && is_leader, show & show::VMA_STAT != 0) {
                (true, true) => Some(Kind::Smaps),
                (true, false) => Some(Kind::Maps),
                _ => None,
            };
            let opened = match show & show::OPENED {
                show::MAPS => Some(Kind::OpenMaps),
                show::SMAPS => Some(Kind::OpenSmaps),
                _ => None,
            };
            let cmdline = (show & show::CMDLINE != 0).then_some(Kind::Cmdline);
            let kinds: Vec<Kind> = [mappings, cmdline, opened].into_iter().flatten().collect();
            // Of a file that is opened there is one.
            if opened.is_some() && !steps.is_empty() {
                break;
            }
            let identity = Identity::of(record, &self.viewer).filter(|_| !record.has(NO_MM));
            let Some(identity) = identity.filter(|_| !kinds.is_empty()) else {
                // One that nothing is read for is told when its turn comes.
                break;
            };
            if steps.len() + kinds.len() > job::ITEMS {
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

    /// The job for a reader, from the step on that comes next.
    pub fn job(&mut self) -> Option<Job> {
        let reading = self.reading.as_mut()?;
        reading.base = reading.next;
        reading.is_given = true;
        Some(Job::of(
            reading.steps[reading.next..]
                .iter()
                .map(|step| (step.kind, step.identity.tid)),
        ))
    }

    /// How many items that job has.
    pub fn job_len(&self) -> usize {
        self.reading
            .as_ref()
            .map_or(0, |reading| reading.steps.len() - reading.base)
    }

    /// Whether what is read next may take the kernel long by itself.
    pub fn is_slow(&self) -> bool {
        let step = self
            .reading
            .as_ref()
            .and_then(|reading| reading.steps.get(reading.next));
        step.is_some_and(|step| step.kind == Kind::Smaps)
    }

    /// Takes in what a reader says. False if that makes no sense.
    pub fn hear(
        &mut self,
        index: u32,
        status: i32,
        payload: &[u8],
        file: Option<OwnedFd>,
        passes: &mut Passes,
    ) -> bool {
        let Some(mut reading) = self.reading.take() else {
            return false;
        };
        let makes_sense = reading.base + index as usize == reading.next && reading.next < reading.steps.len();
        if makes_sense {
            self.take(&mut reading, status, payload, file, passes);
        }
        if reading.next < reading.steps.len() && !self.is_over {
            self.reading = Some(reading);
        }
        makes_sense
    }

    /// The reader was held up by the task that it was to tell about, or ended: what is left is for another one.
    pub fn is_held(&mut self, passes: &mut Passes) {
        self.held += 1;
        let Some(mut reading) = self.reading.take() else {
            return;
        };
        self.take(&mut reading, -libc::EBUSY, &[], None, passes);
        if self.held >= HELD_MOST {
            while reading.next < reading.steps.len() && !self.is_over {
                self.take(&mut reading, -libc::EBUSY, &[], None, passes);
            }
        }
        if reading.next < reading.steps.len() && !self.is_over {
            reading.is_given = false;
            self.reading = Some(reading);
        }
    }

    fn take(&mut self, reading: &mut Reading, status: i32, payload: &[u8], file: Option<OwnedFd>, passes: &mut Passes) {
        let pass = Rc::clone(&self.pass);
        let bytes = pass.records.as_bytes();
        let step = &reading.steps[reading.next];
        let Some((record, rest)) = Record::split_first(&bytes[step.at..]) else {
            return self.fail(libc::EIO);
        };
        if matches!(step.kind, Kind::OpenMaps | Kind::OpenSmaps) {
            reading.next = reading.steps.len();
            let is_still = status == job::LAST && step.identity.is_still(record, &self.viewer, passes);
            return self.opened(record, status, file, is_still);
        }
        let counts = !payload.is_empty() && !reading.is_spoiled;
        let is_still = counts && step.identity.is_still(record, &self.viewer, passes);
        reading.is_spoiled |= counts && !is_still;
        if is_still && step.kind == Kind::Cmdline {
            reading.cmdline = Some(payload.to_vec());
        } else if is_still {
            let is_first = !std::mem::replace(&mut reading.is_begun, true);
            encode::put_mappings(&self.request, &self.viewer, record, payload, is_first, &mut self.part);
        }
        if status == job::MORE {
            return;
        }
        reading.is_spoiled = false;
        if step.is_last {
            let cmdline = reading.cmdline.take();
            let is_first = !std::mem::take(&mut reading.is_begun);
            let (request, viewer) = (&self.request, &self.viewer);
            self.has_told |= encode::put_rest(request, viewer, record, cmdline.as_deref(), is_first, &mut self.part);
            self.at = bytes.len() - rest.len();
        }
        reading.next += 1;
    }

    /// Ends the answer with an open file. What a client can do with it is what it could do with one that it had opened itself: that takes
    /// the same right, at that time.
    fn opened(&mut self, record: Record<'_>, status: i32, file: Option<OwnedFd>, is_still: bool) {
        let file = match (status, file) {
            (job::LAST, Some(file)) if is_still => file,
            // Its memory went since, or it is another one.
            (job::LAST, _) => return self.fail(libc::EBUSY),
            (status, _) if status == -libc::ESRCH => return self.fail(libc::EBUSY),
            (status, _) if status == -libc::ENOENT => return self.fail(libc::ESRCH),
            (status, _) => return self.fail(status.checked_neg().filter(|errno| *errno > 0).unwrap_or(libc::EIO)),
        };
        let bits = self.request.show;
        let mut message = MessageWriter::task(&mut self.part, self.request.seq, encode::header(record));
        message.attribute(attribute::OPENED, |out| out.extend_from_slice(&bits.to_ne_bytes()));
        message.finish();
        wire::put_done(&mut self.part, self.request.seq);
        self.file = Some(file);
        self.is_over = true;
    }

    /// Finds the first task of which a file can be opened, and makes its record the next one. Without one, the answer ends here: the
    /// task has no memory, or is not there.
    pub fn find_memory(&mut self) {
        let pass = Rc::clone(&self.pass);
        let bytes = pass.records.as_bytes();
        let mut without_memory = None;
        let mut rest = bytes;
        while let Some((record, behind)) = Record::split_first(rest) {
            if Identity::of(record, &self.viewer).is_some() {
                if !record.has(NO_MM) {
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
                self.is_over = true;
            }
            // Observers see that the process is there.
            None if self.viewer.observer && !bytes.is_empty() => self.fail(libc::EACCES),
            None => self.fail(libc::ESRCH),
        }
    }
}
