//! Answers about mappings: texts, which are read one process at a time while the answer is sent, and opened files.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use taskdiag::broker::access::Object;
use taskdiag::broker::passes::{Ask, Passes, Records, Tasks};
use taskdiag::broker::wire::{self, show, Request, Strategy, TaskHeader};
use taskdiag::record::{Record, NO_MM};

use crate::encode::{self, Eyes};
use crate::smaps::Payloads;

/// How long the memory of one process may be waited for: a process can hold on to its own map of it.
const PATIENCE: Duration = Duration::from_millis(200);

/// The longest text. What lies behind it is left out with the whole attribute.
const TEXT: u64 = 64 << 20;

/// Opens and reads files of `/proc` for the loop, which it must not wait for. It is not within the sandbox's Landlock domain, which
/// would hide all other processes from it; all it is ever told is numbers of tasks.
#[derive(Debug)]
pub struct Reader {
    ask: SyncSender<Job>,
    told: Receiver<Result<Product, Errno>>,
    is_stuck: bool,
}

/// Two of them: who makes the reading of its text take long, which a process can, keeps nobody from having files opened.
#[derive(Debug)]
pub struct Readers {
    /// Reads texts.
    pub of_texts: Reader,
    /// Opens files.
    pub of_files: Reader,
}

impl Readers {
    /// Starts both threads, which call `confine` first.
    pub fn start(confine: fn()) -> io::Result<Readers> {
        Ok(Readers {
            of_texts: Reader::start("texts", confine)?,
            of_files: Reader::start("files", confine)?,
        })
    }

    /// The one that a request needs.
    pub fn for_request(&self, request: &Request) -> Option<&Reader> {
        match request.show {
            show if show & show::MAPPINGS != 0 => Some(&self.of_texts),
            show if show & show::OPENED != 0 => Some(&self.of_files),
            _ => None,
        }
    }
}

/// What the reader is asked for.
#[derive(Clone, Copy, Debug)]
struct Job {
    tid: u32,
    file: MemoryFile,
    wants: Wanted,
}

/// A file about the memory of a task.
#[derive(Clone, Copy, Debug)]
enum MemoryFile {
    Maps,
    Smaps,
}

#[derive(Clone, Copy, Debug)]
enum Wanted {
    Text,
    Opened,
}

/// What the reader brings.
#[derive(Debug)]
enum Product {
    Text(Vec<u8>),
    Opened(OwnedFd),
}

impl Reader {
    fn start(name: &str, confine: fn()) -> io::Result<Reader> {
        let (ask, asked) = mpsc::sync_channel::<Job>(1);
        let (tell, told) = mpsc::sync_channel(1);
        let (confined, is_confined) = mpsc::sync_channel::<()>(0);
        thread::Builder::new()
            .name(name.to_owned())
            .stack_size(128 << 10)
            .spawn(move || {
                confine();
                drop(confined);
                for job in asked {
                    if tell.send(job.run()).is_err() {
                        return;
                    }
                }
            })?;
        // Before anybody is served.
        let _ = is_confined.recv();
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

    fn run(&mut self, job: Job) -> Result<Product, Errno> {
        if self.is_stuck {
            match self.told.try_recv() {
                // What it was asked for then, which nobody waits for now.
                Ok(_) => self.is_stuck = false,
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return Err(Errno::BUSY),
            }
        }
        self.ask.try_send(job).map_err(|_| Errno::BUSY)?;
        self.told.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            self.is_stuck = true;
            Err(Errno::BUSY)
        })
    }
}

impl Job {
    fn run(self) -> Result<Product, Errno> {
        let failed = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let name = match self.file {
            MemoryFile::Maps => "maps",
            MemoryFile::Smaps => "smaps",
        };
        let file = File::open(format!("/proc/{}/{name}", self.tid)).map_err(failed)?;
        Ok(match self.wants {
            Wanted::Opened => Product::Opened(file.into()),
            Wanted::Text => {
                let mut text = Vec::new();
                file.take(TEXT).read_to_end(&mut text).map_err(failed)?;
                if text.len() as u64 == TEXT {
                    return Err(Errno::FBIG);
                }
                Product::Text(text)
            }
        })
    }
}

/// Which memory a task has, if `eyes` may see it, as far as a record of it tells.
#[derive(PartialEq, Eq)]
struct Identity {
    tid: u32,
    start_ns: u64,
    exec_id: u64,
    mm: u64,
}

impl Identity {
    fn of(record: Record<'_>, eyes: &Eyes) -> Option<Identity> {
        let object = Object::of(record)?;
        eyes.sight(&object)?;
        Some(Identity {
            tid: record.header().tid.get(),
            start_ns: record.header().start_ns.get(),
            exec_id: object.access().exec_id.get(),
            mm: object.access().mm.get(),
        })
    }

    /// Whether it is the same now: what was done since its record was made was done to this memory, which may be seen.
    fn is_still(&self, record: Record<'_>, eyes: &Eyes, passes: &mut Passes) -> bool {
        let header = record.header();
        let pid = header.pid.get();
        let scope = match header.tid == header.pid {
            true => Tasks::Process(pid),
            false => Tasks::ThreadsOf(pid),
        };
        let ask = Ask {
            scope,
            groups: 0,
            as_task: 0,
            domains: eyes.are_in_domain(),
        };
        let records = passes.run(&ask).unwrap_or_default();
        let is_still = records
            .each()
            .any(|record| Identity::of(record, eyes).as_ref() == Some(self));
        is_still
    }
}

/// A file that was opened for a client, and the task that it is about.
#[derive(Debug)]
pub struct Opened {
    /// The task.
    pub task: TaskHeader,
    /// The file; none if the task has no memory.
    pub file: Option<OwnedFd>,
}

/// Opens the file that a request is for, of the first task of a pass that has memory, if the client may see that. What it can do with
/// the file is what it could do with one that it had opened itself: that takes the same right, at that time.
pub fn open(
    request: &Request,
    eyes: &Eyes,
    records: &Records,
    passes: &mut Passes,
    reader: &mut Reader,
) -> Result<Opened, i32> {
    let file = match request.show & show::SMAPS {
        0 => MemoryFile::Maps,
        _ => MemoryFile::Smaps,
    };
    let mut without_memory = None;
    for record in records.each() {
        let Some(identity) = Identity::of(record, eyes) else {
            continue;
        };
        let task = encode::header(record);
        if record.has(NO_MM) {
            without_memory.get_or_insert(Opened { task, file: None });
            continue;
        }
        let job = Job {
            tid: identity.tid,
            file,
            wants: Wanted::Opened,
        };
        let opened = match reader.run(job) {
            Ok(Product::Opened(file)) => file,
            Ok(Product::Text(_)) => return Err(libc::EIO),
            Err(Errno::NOENT) => return Err(libc::ESRCH),
            // Its memory went since.
            Err(Errno::SRCH) => return Err(libc::EBUSY),
            Err(errno) => return Err(errno.raw_os_error()),
        };
        return match identity.is_still(record, eyes, passes) {
            true => Ok(Opened {
                task,
                file: Some(opened),
            }),
            false => Err(libc::EBUSY),
        };
    }
    // Observers see that the process is there.
    let hidden = match eyes.observer && !records.is_empty() {
        true => libc::EACCES,
        false => libc::ESRCH,
    };
    without_memory.ok_or(hidden)
}

/// An answer that is being made.
#[derive(Debug)]
pub struct Stream {
    request: Request,
    eyes: Eyes,
    records: Rc<Records>,
    at: usize,
    told: u64,
    is_over: bool,
}

impl Stream {
    /// The answer to a request, of the records that a pass brought.
    pub fn new(request: Request, eyes: Eyes, records: Rc<Records>) -> Stream {
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
            let Some((record, rest)) = Record::split_first(&self.records.as_bytes()[self.at..]) else {
                self.is_over = true;
                let is_about_one = matches!(self.request.strategy, Strategy::One | Strategy::Thread);
                match self.told == 0 && is_about_one {
                    true => wire::put_error(part, self.request.seq, libc::ESRCH),
                    false => wire::put_done(part, self.request.seq),
                }
                return;
            };
            self.at = self.records.as_bytes().len() - rest.len();
            let payloads = self.mappings(record, passes, reader);
            let before = part.len();
            encode::put_with_mappings(&self.request, &self.eyes, record, &payloads, part);
            self.told += u64::from(part.len() > before);
        }
    }

    /// What is read of a task's mappings, if the client may see them: when the record was made, and again behind the reading.
    fn mappings(&self, record: Record<'_>, passes: &mut Passes, reader: &mut Reader) -> Vec<Vec<u8>> {
        let header = record.header();
        // The leader of a process has its mappings, and no other thread.
        let is_leader = header.pid == header.tid;
        let identity = Identity::of(record, &self.eyes).filter(|_| is_leader && !record.has(NO_MM));
        let Some(identity) = identity else {
            return Vec::new();
        };
        let with_stat = self.request.show & show::VMA_STAT != 0;
        let job = Job {
            tid: identity.tid,
            file: if with_stat { MemoryFile::Smaps } else { MemoryFile::Maps },
            wants: Wanted::Text,
        };
        match reader.run(job) {
            Ok(Product::Text(text)) if identity.is_still(record, &self.eyes, passes) => Payloads::of(&text, with_stat),
            _ => Vec::new(),
        }
    }
}
