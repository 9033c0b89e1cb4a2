//! Answers about mappings, which are read one process at a time while the answer is sent.

use std::fs::File;
use std::io::Read as _;
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::thread;
use std::time::Duration;

use taskdiag::broker::access::Object;
use taskdiag::broker::passes::{Ask, Passes, Tasks};
use taskdiag::broker::wire::{self, show, Request, Strategy};
use taskdiag::record::Record;

use crate::encode::{self, Eyes};
use crate::smaps::Payloads;

/// How long the memory of one process may be waited for: a process can hold on to its own map of it.
const PATIENCE: Duration = Duration::from_millis(200);

/// The longest text. What lies behind it is left out with the whole attribute.
const TEXT: u64 = 64 << 20;

/// Reads texts for the loop, which it must not wait for. It is not within the sandbox's Landlock domain, which would hide all
/// other processes from it; all it is ever told is numbers of processes.
#[derive(Debug)]
pub struct Reader {
    ask: SyncSender<(u32, bool)>,
    told: Receiver<Option<Vec<u8>>>,
    is_stuck: bool,
}

impl Reader {
    /// Starts the thread, which calls `confine` first.
    pub fn start(confine: impl FnOnce() + Send + 'static) -> std::io::Result<Reader> {
        let (ask, asked) = mpsc::sync_channel::<(u32, bool)>(1);
        let (tell, told) = mpsc::sync_channel(1);
        thread::Builder::new()
            .name("mappings".to_owned())
            .stack_size(128 << 10)
            .spawn(move || {
                confine();
                let _ = tell.send(None);
                for (pid, with_stat) in asked {
                    if tell.send(read(pid, with_stat)).is_err() {
                        return;
                    }
                }
            })?;
        // It is confined before anybody is served.
        let _ = told.recv();
        Ok(Reader {
            ask,
            told,
            is_stuck: false,
        })
    }

    /// Whether it still waits for a process that was given up.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    fn text(&mut self, pid: u32, with_stat: bool) -> Option<Vec<u8>> {
        if self.is_stuck {
            match self.told.try_recv() {
                // What it was asked for then, which nobody waits for now.
                Ok(_) => self.is_stuck = false,
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return None,
            }
        }
        self.ask.try_send((pid, with_stat)).ok()?;
        match self.told.recv_timeout(PATIENCE) {
            Ok(text) => text,
            Err(_) => {
                self.is_stuck = true;
                None
            }
        }
    }
}

fn read(pid: u32, with_stat: bool) -> Option<Vec<u8>> {
    let name = if with_stat { "smaps" } else { "maps" };
    let mut text = Vec::new();
    let file = File::open(format!("/proc/{pid}/{name}")).ok()?;
    file.take(TEXT).read_to_end(&mut text).ok()?;
    (text.len() as u64 != TEXT).then_some(text)
}

/// An answer that is being made.
#[derive(Debug)]
pub struct Stream {
    request: Request,
    eyes: Eyes,
    records: Rc<Vec<u8>>,
    at: usize,
    told: u64,
    is_over: bool,
}

impl Stream {
    /// The answer to a request, of the records that a pass brought.
    pub fn new(request: Request, eyes: Eyes, records: Rc<Vec<u8>>) -> Stream {
        Stream {
            request,
            eyes,
            records,
            at: 0,
            told: 0,
            is_over: false,
        }
    }

    /// The number of the request.
    pub fn seq(&self) -> u32 {
        self.request.seq
    }

    /// Appends the next part, nothing behind the end.
    pub fn next(&mut self, passes: &mut Passes, reader: &mut Reader, part: &mut Vec<u8>) {
        while part.is_empty() && !self.is_over {
            let Some((record, rest)) = Record::split_first(&self.records[self.at..]) else {
                self.is_over = true;
                let is_about_one = matches!(self.request.strategy, Strategy::One | Strategy::Thread);
                match self.told == 0 && is_about_one {
                    true => wire::put_error(part, self.request.seq, libc::ESRCH),
                    false => wire::put_done(part, self.request.seq),
                }
                return;
            };
            self.at = self.records.len() - rest.len();
            let payloads = self.mappings(record, passes, reader);
            let before = part.len();
            encode::put_with_mappings(&self.request, &self.eyes, record, &payloads, part);
            self.told += u64::from(part.len() > before);
        }
    }

    /// What is read of a task's mappings, if the client may see them: when the record was made, and again behind the reading.
    fn mappings(&self, record: Record<'_>, passes: &mut Passes, reader: &mut Reader) -> Vec<Vec<u8>> {
        let may_see = |record: Record<'_>| {
            let object = Object::of(record)?;
            self.eyes.sight(&object)?;
            Some((
                object.access().exec_id.get(),
                object.access().mm.get(),
                record.header().start_ns.get(),
            ))
        };
        let header = record.header();
        let is_leader = header.pid == header.tid;
        // The leader of a process has its mappings, and no other thread.
        let Some(before) = may_see(record).filter(|_| is_leader && !record.has(taskdiag::record::NO_MM)) else {
            return Vec::new();
        };
        let pid = header.pid.get();
        let with_stat = self.request.show & show::VMA_STAT != 0;
        let Some(text) = reader.text(pid, with_stat) else {
            return Vec::new();
        };
        let ask = Ask {
            scope: Tasks::Process(pid),
            groups: 0,
            as_task: 0,
            domains: self.eyes.are_in_domain(),
        };
        let after = passes.run(&ask).unwrap_or_default();
        let after = Record::split_first(&after).and_then(|(record, _)| may_see(record));
        match after == Some(before) {
            true => Payloads::of(&text, with_stat),
            false => Vec::new(),
        }
    }
}
