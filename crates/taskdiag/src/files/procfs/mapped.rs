//! The files that processes map.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use taskdiag_core::absent::Absent;
use taskdiag_core::text::maps;

use super::place::{absent, has_files, open, open_process, read_whole, Name, LONGEST_NAME};
use super::reader::{Reader, STATS, THREADS_TRIED};
use super::{unit, End, ReadScope};
use crate::files::{Device, OpenFile, Pass, PathMatch, Process, Use, Wants};
use crate::readers;
use crate::source::procfs::is_exhausted;

/// The processes whose mapped files were not read. If their descriptors are read too, that pass
/// counts them.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::files) struct Unseen {
    pub(in crate::files) denied: u64,
    pub(in crate::files) gone: u64,
}

/// Reads the mapped files of processes, each file once for each process.
pub(in crate::files) fn read_mapped(processes: &[Process], pass: &mut Pass<'_>) -> ControlFlow<(), Unseen> {
    let maps_others = |process: &&Process| pass.map_others.contains(&process.identity.tid());
    let processes: Vec<&Process> = processes.iter().filter(|process| !maps_others(process)).collect();
    let about = processes
        .iter()
        .map(|process| {
            (
                process.identity.tid(),
                unit(pass, process, ReadScope::All(Use::Map.into())),
            )
        })
        .collect();
    let paths = pass.request.paths.clone();
    let found = readers::each(pass.proc, about, readers::MAPPINGS, pass.patience, move |unit| {
        let mut reader = Reader::new(unit);
        let end = reader.read_maps(&paths).map_or_else(End::of, |()| End::Whole);
        (reader.files, end, reader.malformed)
    });
    let mut unseen = Unseen::default();
    for (process, found) in processes.iter().zip(found) {
        let (files, end, malformed) = match found {
            Ok(found) => found,
            Err(reason) => {
                match reason {
                    Absent::NoThread => pass.answer.no_thread += 1,
                    _ => pass.answer.silent.push(process.identity.tid()),
                }
                continue;
            }
        };
        pass.answer.malformed += malformed;
        match end {
            End::Denied => unseen.denied += 1,
            End::Gone => unseen.gone += 1,
            End::Exhausted(errno) => pass.fail(process, errno)?,
            _ => {}
        }
        pass.deliver(process, None, &files)?;
    }
    ControlFlow::Continue(unseen)
}

impl Reader<'_> {
    /// Reads the files that may match `paths`; all if there are none.
    fn read_maps(&mut self, paths: &[PathMatch]) -> Result<(), Errno> {
        let pid = self.unit.identity.tid();
        for _ in 0..THREADS_TRIED {
            let (directory, thread) = open_process(&self.unit.proc, self.unit.identity)?;
            let Some(tid) = thread.filter(|&tid| tid != pid) else {
                return self.read_maps_of(directory.as_fd(), paths);
            };
            // The directory of a thread has no map_files, but each thread has one like that of a
            // process, too. The id is that of the thread for as long as this lives.
            let of_thread = open(&self.unit.proc, format!("{tid}"));
            let read = of_thread.and_then(|directory| self.read_maps_of(directory.as_fd(), paths));
            if has_files(directory.as_fd()) {
                return read;
            }
            self.files.truncate(0);
        }
        Err(Errno::SRCH)
    }

    fn read_maps_of(&mut self, directory: BorrowedFd<'_>, paths: &[PathMatch]) -> Result<(), Errno> {
        let mut text = Vec::new();
        match read_whole(directory, c"maps", &mut text) {
            // It has no memory.
            Err(Errno::SRCH) => return Ok(()),
            result => result?,
        }
        let mut seen = HashSet::new();
        for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let Some(line) = maps::line(line) else {
                self.malformed += 1;
                continue;
            };
            let has_file = line.inode != 0 || line.device != Device::default();
            let file = (line.device, line.inode, line.name);
            if !has_file || seen.contains(&file) {
                continue;
            }
            let is_escaped = line.name.contains(&b'\\');
            let may_pass = |path: &PathMatch| is_escaped || path.may_be_about(line.device, line.inode, line.name);
            let may_be_meant = paths.is_empty() || paths.iter().any(may_pass);
            let link = Name::new(format_args!("map_files/{:x}-{:x}", line.start, line.end));
            // A file whose first mapping is gone may have others.
            if !may_be_meant || self.read_mapping(directory, &link, line.name)? {
                seen.insert(file);
            }
        }
        Ok(())
    }

    /// Reads the file of a mapping. Returns false if the mapping is gone.
    fn read_mapping(&mut self, directory: BorrowedFd<'_>, link: &Name, escaped: &[u8]) -> Result<bool, Errno> {
        let needs = self.unit.needs;
        let mut file = OpenFile::no_descriptor(Use::Map, needs);
        let mut name = Vec::new();
        maps::unescape(escaped, &mut name);
        if needs.intersects(STATS | Wants::FLAGS) {
            readers::beat();
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            match rustix::fs::openat(directory, link.as_c_str(), flags, Mode::empty()) {
                Ok(place) => {
                    let len = name.len().min(LONGEST_NAME);
                    self.name[..len].copy_from_slice(&name[..len]);
                    self.read_stat(place.as_fd(), Ok(len), &mut file);
                }
                Err(Errno::NOENT | Errno::SRCH) => return Ok(false),
                Err(errno) if is_exhausted(errno) => return Err(errno),
                // Following these links needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN.
                Err(errno) => {
                    let reason = absent(errno);
                    file = file.without(needs.intersection(STATS), reason);
                    if needs.contains(Wants::FLAGS) {
                        file.mnt_id = Err(reason);
                    }
                }
            }
        }
        let file = OpenFile {
            name: if !needs.contains(Wants::NAMES) {
                Err(Absent::NotAsked)
            } else if name.len() >= LONGEST_NAME {
                Err(Absent::Truncated)
            } else {
                Ok(&name[..])
            },
            ..file
        };
        self.files.push(&file);
        Ok(true)
    }
}
