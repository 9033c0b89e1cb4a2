//! A small process that looks at files which other processes have open or mapped, or whose paths
//! the caller gave.
//!
//! Such a file can be of a file system whose server never answers. Whoever opens it, looks at it or
//! reads it then waits, and once the server was asked not even a fatal signal ends that: a thread
//! of ours would keep our whole process from ending. So a process of its own runs these errands
//! ([`taskdiag_sys::isolated`]), and is given up if one takes longer than the patience.
//!
//! Nothing more is tried on the device of such a file for the same question, and nothing for other
//! questions until the process that was given up has ended. There are never more than [`MAX_LOST`]
//! of these.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::fs::{fstat, openat, FileType, Mode, OFlags, CWD};
use rustix::io::{retry_on_intr, Errno};
use taskdiag_core::absent::Absent;
use taskdiag_core::mapping::Device;
use taskdiag_sys::host::OwnPath;
use taskdiag_sys::isolated::{Ending, Failed, Runner, Work, WorkFiles, MAX_RESULT_BYTES};
use taskdiag_sys::owner::Owner;

use crate::mutex::lock;
use crate::readers;

/// So many processes may be given up at a time.
const MAX_LOST: usize = 16;

/// A process that was given up, and the device that it waits for.
struct Lost {
    ending: Ending,
    device: Option<u64>,
    owner: Owner,
}

static LOST: Mutex<Vec<Lost>> = Mutex::new(Vec::new());

/// Calls `with` with the processes that were given up and have not ended.
fn lost<T>(with: impl FnOnce(&mut Vec<Lost>) -> T) -> T {
    let mut lost = lock(&LOST);
    lost.retain(|lost| lost.owner.is_this_process() && !lost.ending.is_over());
    with(&mut lost)
}

/// What stat(2) says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Look {
    pub mode: u32,
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    pub changed: (i64, u64),
}

impl Look {
    pub(crate) fn is_regular(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::RegularFile
    }

    fn from_bytes(bytes: &[u8]) -> Option<Look> {
        let [mode, device, inode, size, seconds, nanoseconds] = numbers(bytes)?;
        Some(Look {
            mode: mode as u32,
            device,
            inode,
            size,
            changed: (seconds as i64, nanoseconds),
        })
    }
}

/// How a file was found that may be a mapped one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By the kernel's own link to it, in `map_files`.
    Link,
    /// By the path of the mapping, from the root directory of its process.
    TheirRoot,
    /// By that path from our root directory, where another file system may be.
    OurRoot,
}

impl Way {
    /// Whether a file with this device and inode number is the mapped one. Some file systems (btrfs,
    /// overlayfs) have another device in maps than in stat(2), and usually both have the major number 0.
    pub(crate) fn leads_to(self, mapped: (Device, u64), (device, inode): (u64, u64)) -> bool {
        let device = Device::from_raw(device);
        let is_anonymous = mapped.0.major == 0 && device.major == 0;
        inode == mapped.1 && (self == Way::Link || device == mapped.0 || self == Way::TheirRoot && is_anonymous)
    }
}

/// Puts down numbers as the result of an errand, and returns how many bytes they take.
pub(crate) fn put_numbers<const N: usize>(numbers: [u64; N], room: &mut [u8]) -> usize {
    for (place, number) in room.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    8 * N
}

/// The numbers in the result of an errand.
pub(crate) fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    for (index, number) in numbers.iter_mut().enumerate() {
        *number = u64::from_ne_bytes(*bytes.get(8 * index..)?.first_chunk()?);
    }
    Some(numbers)
}

/// Why nothing is known of a file.
pub(crate) fn absent(failed: Failed) -> Absent {
    match failed {
        Failed::Silent => Absent::NoAnswer,
        Failed::Errno(Errno::ACCESS | Errno::PERM) => Absent::Denied,
        Failed::Errno(Errno::AGAIN) => Absent::NoThread,
        Failed::Errno(Errno::NOENT | Errno::SRCH | Errno::STALE | Errno::NOTDIR | Errno::LOOP) => Absent::Gone,
        Failed::Errno(_) => Absent::Unsupported,
    }
}

/// Runs errands for one question. The first one starts the process.
#[derive(Debug)]
pub(crate) struct Errands {
    runner: Option<Runner>,
    /// The files of errands that the calling thread runs: see [`stay_here`](Errands::stay_here).
    here: Option<WorkFiles>,
    patience: Duration,
    /// The device that the next errands are about.
    device: Option<u64>,
    /// Devices that did not answer.
    silent: Vec<u64>,
    answer: Vec<u8>,
}

impl Errands {
    pub(crate) fn new(patience: Duration) -> Errands {
        Errands {
            runner: None,
            here: None,
            patience,
            device: None,
            silent: Vec::new(),
            answer: vec![0; MAX_RESULT_BYTES],
        }
    }

    /// The inode number of the socket that errands are sent through.
    pub(crate) fn own_socket(&self) -> Option<u64> {
        let stat = fstat(self.runner.as_ref()?.socket()).ok()?;
        Some(stat.st_ino)
    }

    /// Lets the calling thread run all further errands, where no process can be started. They must
    /// wait for nothing, and leave the thread where it is.
    pub(crate) fn stay_here(&mut self) {
        self.here = Some(WorkFiles::default());
    }

    /// Whether the calling thread runs the errands.
    pub(crate) fn is_here(&self) -> bool {
        self.here.is_some()
    }

    /// Says which device the next errands are about, if it is known.
    pub(crate) fn about(&mut self, device: Option<u64>) {
        self.device = device;
    }

    /// Looks at a file, without opening it. Later errands are about that file.
    pub(crate) fn look(&mut self, path: &[u8]) -> Result<Look, Failed> {
        let path = CString::new(path).map_err(|_| Failed::Errno(Errno::INVAL))?;
        let bytes = self.run(look, [0; 3], &path, None)?;
        Look::from_bytes(bytes).ok_or(Failed::Errno(Errno::IO))
    }

    /// Reads from the file that was looked at: as much as there is room for, or to its end.
    pub(crate) fn read(&mut self, offset: u64, room: &mut [u8]) -> Result<usize, Failed> {
        let mut len = 0;
        while len < room.len() {
            let wanted = (room.len() - len).min(MAX_RESULT_BYTES) as u64;
            let bytes = self.run(read, [offset.saturating_add(len as u64), wanted, 0], c"", None)?;
            if bytes.is_empty() {
                break;
            }
            room[len..len + bytes.len()].copy_from_slice(bytes);
            len += bytes.len();
        }
        Ok(len)
    }

    /// Does the same work with many numbers, each about a device, and calls `each` with the
    /// results, in the same order. Several are under way at a time: waking the thread that waits
    /// takes longer than most errands.
    pub(crate) fn run_all(
        &mut self,
        work: Work,
        about: &[(u64, u64)],
        given: BorrowedFd<'_>,
        mut each: impl FnMut(usize, Result<&[u8], Failed>),
    ) {
        const AHEAD: usize = 16;
        for (part, start) in about.chunks(AHEAD).zip((0..).step_by(AHEAD)) {
            let mut at = 0;
            if lost(|lost| lost.is_empty()) && self.silent.is_empty() {
                let runner = self.runner.take().map_or_else(Runner::start, Ok);
                if let Ok(runner) = runner {
                    let send =
                        |&&(_, number): &&(u64, u64)| runner.send(work, [number, 0, 0], c"", Some(given)).is_ok();
                    let sent = part.iter().take_while(send).count();
                    let mut has_ended = false;
                    while at < sent {
                        match self.receive(&runner) {
                            // The numbers behind it are done one by one.
                            Err(Failed::Silent) => break,
                            Err(failed) if is_end(failed) => {
                                has_ended = true;
                                break;
                            }
                            received => each(start + at, received.map(|len| &self.answer[..len])),
                        }
                        at += 1;
                    }
                    if at == sent {
                        self.runner = Some(runner);
                    } else if !has_ended {
                        self.give_up(runner, Some(part[at].0));
                        each(start + at, Err(Failed::Silent));
                        at += 1;
                    }
                }
            }
            for (index, &(device, number)) in part.iter().enumerate().skip(at) {
                self.about(Some(device));
                each(start + index, self.run(work, [number, 0, 0], c"", Some(given)));
            }
        }
    }

    /// Waits for the result of an errand, and returns its length.
    fn receive(&mut self, runner: &Runner) -> Result<usize, Failed> {
        let began = Instant::now();
        loop {
            let received = runner.receive(&mut self.answer, Some(Instant::now() + self.patience));
            // The process may be slow, and not held.
            let is_slow = || readers::is_running(runner.pid()) && began.elapsed() < readers::MAX_TASK_TIME;
            if received != Err(Failed::Silent) || !is_slow() {
                return received;
            }
        }
    }

    fn give_up(&mut self, runner: Runner, device: Option<u64>) {
        self.silent.extend(device);
        let ending = runner.abandon();
        let owner = Owner::this_process();
        lost(|lost| lost.push(Lost { ending, device, owner }));
    }

    /// Does some work, and returns the result.
    pub(crate) fn run(
        &mut self,
        work: Work,
        numbers: [u64; 3],
        path: &CStr,
        given: Option<BorrowedFd<'_>>,
    ) -> Result<&[u8], Failed> {
        if let Some(files) = &mut self.here {
            let len = work(files, numbers, path, &mut self.answer)?;
            return Ok(&self.answer[..len]);
        }
        let device = self.device;
        let is_silent = |lost: &mut Vec<Lost>| {
            lost.len() >= MAX_LOST || device.is_some() && lost.iter().any(|lost| lost.device == device)
        };
        if device.is_some_and(|device| self.silent.contains(&device)) || lost(is_silent) {
            return Err(Failed::Silent);
        }
        let mut is_new = false;
        loop {
            let runner = match self.runner.take() {
                Some(runner) => runner,
                None => {
                    is_new = true;
                    Runner::start().map_err(|error| match Errno::from_io_error(&error) {
                        // A filter of system calls says so.
                        None | Some(Errno::PERM) => Errno::AGAIN,
                        Some(errno) => errno,
                    })?
                }
            };
            let sent = runner.send(work, numbers, path, given).map_err(Failed::from);
            match sent.and_then(|()| self.receive(&runner)) {
                Err(Failed::Silent) => {
                    self.give_up(runner, device);
                    return Err(Failed::Silent);
                }
                // Something has ended the process since its last errand, as when memory ran out.
                Err(failed) if is_end(failed) && !is_new => {}
                received => {
                    self.runner = Some(runner);
                    return Ok(&self.answer[..received?]);
                }
            }
        }
    }
}

/// Whether the other process has ended.
fn is_end(failed: Failed) -> bool {
    matches!(failed, Failed::Errno(Errno::PIPE | Errno::CONNRESET))
}

/// Opens the file that was looked at, for reading. Does not wait for a FIFO or a terminal.
pub(crate) fn opened(files: &mut WorkFiles) -> Result<BorrowedFd<'_>, Errno> {
    let WorkFiles { path, file, .. } = files;
    if file.is_none() {
        let path = path.as_ref().ok_or(Errno::BADF)?;
        let link = OwnPath::of(format_args!("self/fd/{}", path.as_raw_fd()));
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        *file = Some(openat(CWD, link.as_c_str(), flags, Mode::empty())?);
    }
    file.as_ref().map(|file| file.as_fd()).ok_or(Errno::BADF)
}

/// An errand: looks at a path, and puts down what stat(2) says.
fn look(files: &mut WorkFiles, _: [u64; 3], path: &CStr, room: &mut [u8]) -> Result<usize, Errno> {
    (files.path, files.file) = (None, None);
    let file = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fstat(&file)?;
    let numbers = [
        stat.st_mode.into(),
        stat.st_dev,
        stat.st_ino,
        stat.st_size as u64,
        stat.st_ctime as u64,
        stat.st_ctime_nsec as u64,
    ];
    let len = put_numbers(numbers, room);
    files.path = Some(file);
    Ok(len)
}

/// An errand: reads from the file that was looked at.
fn read(files: &mut WorkFiles, [offset, len, _]: [u64; 3], _: &CStr, room: &mut [u8]) -> Result<usize, Errno> {
    // No file is so long.
    if offset > i64::MAX as u64 - MAX_RESULT_BYTES as u64 {
        return Ok(0);
    }
    let room = &mut room[..(len as usize).min(MAX_RESULT_BYTES)];
    let file = opened(files)?;
    retry_on_intr(|| rustix::io::pread(file, &mut *room, offset))
}

#[cfg(test)]
mod tests {
    use rustix::process::{kill_process, Pid, Signal};

    use super::*;

    /// Check which files count as the mapped one: none with another inode number.
    #[test]
    fn ways_lead_to_the_mapped_file() {
        let anonymous = |minor| Device { major: 0, minor };
        let disk = Device { major: 8, minor: 1 };
        for (mapped, found, ways) in [
            (disk, disk, [true, true, true]),
            (anonymous(5), anonymous(6), [true, true, false]),
            (disk, anonymous(6), [true, false, false]),
        ] {
            for (way, leads) in [Way::Link, Way::TheirRoot, Way::OurRoot].into_iter().zip(ways) {
                assert_eq!(way.leads_to((mapped, 7), (found.to_raw(), 7)), leads, "{way:?}");
                assert!(!way.leads_to((mapped, 7), (mapped.to_raw(), 8)), "{way:?}");
            }
        }
    }

    /// Check that errands are done by another process if theirs has been killed.
    #[test]
    fn errands_outlive_their_process() {
        let mut errands = Errands::new(Duration::from_secs(60));
        let kill = |errands: &Errands| {
            let pid = errands.runner.as_ref().expect("a process").pid();
            kill_process(Pid::from_raw(pid as i32).expect("an id"), Signal::KILL).expect("ours");
        };
        let first = errands.look(b"/").expect("a directory");
        kill(&errands);
        let again = errands.look(b"/").expect("a directory");
        assert_eq!((again.device, again.inode), (first.device, first.inode));
        kill(&errands);
        let null = std::fs::File::open("/dev/null").expect("it exists");
        let mut results = Vec::new();
        errands.run_all(given, &[(1, 0), (1, 1)], null.as_fd(), |at, result| {
            results.push((at, result.map(<[u8]>::len)));
        });
        assert_eq!(results, [(0, Ok(1)), (1, Ok(1))]);
    }

    /// An errand: writes a byte if a descriptor was handed over.
    fn given(files: &mut WorkFiles, _: [u64; 3], _: &CStr, _: &mut [u8]) -> Result<usize, Errno> {
        files.given.as_ref().map(|_| 1).ok_or(Errno::BADF)
    }
}
