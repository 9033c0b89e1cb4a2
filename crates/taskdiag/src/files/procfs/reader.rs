//! Reads the files of one process.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use taskdiag_core::absent::{Absent, Known};
use taskdiag_core::text::fdinfo::fdinfo;
use taskdiag_core::text::process;
use taskdiag_sys::descriptors::{shares, Part};

use super::place::{
    absent, has_files, is_same, names, open, open_descriptors, open_process, open_thread, own_link, read_whole, stat,
    Name, LONGEST_NAME,
};
use super::{End, ReadScope, Unit};
use crate::files::batch::Batch;
use crate::files::{Kind, OpenFile, Set, Use, Wants};
use crate::readers;
use crate::source::procfs::{is_exhausted, threads};

/// This many files of a process are read in one go, so that the memory for an answer stays bounded
/// even if one process has a million files.
const FILES_AT_ONCE: usize = 1024;

/// How often a descriptor is read again if it refers to another file meanwhile.
const ATTEMPTS: usize = 3;

/// If the first thread of a process has ended, how many of the others are read in turn: each may end
/// meanwhile.
pub(super) const THREADS_TRIED: usize = 64;

/// What statx(2) provides.
pub(super) const STATS: Wants = Wants::STAT.union(Wants::SPACE);

/// Reads files of one process.
pub(super) struct Reader<'a> {
    pub(super) unit: &'a Unit,
    pub(super) files: Batch,
    /// Threads with what they have for themselves.
    pub(super) threads: Vec<(u32, Set<Use>)>,
    /// The first descriptor that is closed, or was not looked at because the thread has ended; and how
    /// many files were found before.
    missed: Option<(u32, usize)>,
    pub(super) changed: u64,
    pub(super) malformed: u64,
    /// Room for a name.
    pub(super) name: Vec<u8>,
    /// Room for an fdinfo.
    info: Vec<u8>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(unit: &'a Unit) -> Reader<'a> {
        Reader {
            unit,
            files: Batch::default(),
            threads: Vec::new(),
            missed: None,
            changed: 0,
            malformed: 0,
            name: vec![0; LONGEST_NAME],
            info: Vec::new(),
        }
    }

    pub(super) fn read(&mut self) -> Result<End, Errno> {
        let pid = self.unit.identity.tid();
        if let Some(tid) = self.unit.tid {
            let directory = open_thread(&self.unit.proc, pid, tid)?;
            return self.read_part(directory.as_fd(), &self.unit.what);
        }
        let mut from = None;
        for _ in 0..THREADS_TRIED {
            let (directory, first_thread) = open_process(&self.unit.proc, self.unit.identity)?;
            let what = from.map(ReadScope::From);
            let read = self.read_part(directory.as_fd(), what.as_ref().unwrap_or(&self.unit.what));
            // The first thread has ended, and so has the one that was read. Another continues with
            // what was missed.
            if first_thread.is_some_and(|tid| tid != pid) && !has_files(directory.as_fd()) {
                let missed = self
                    .missed
                    .take()
                    .filter(|_| !matches!(self.unit.what, ReadScope::These(_)));
                let (fd, len) = missed.unwrap_or((0, 0));
                self.files.truncate(len);
                from = (len > 0).then_some(fd);
                continue;
            }
            let end = read?;
            if let (End::Whole, Some(tid)) = (end, first_thread) {
                self.compare_threads(directory.as_fd(), tid)?;
            }
            return Ok(end);
        }
        self.changed += 1;
        Ok(End::Whole)
    }

    /// Finds the threads that have directories or descriptors of their own. `first` is the one whose
    /// files are those of the process.
    fn compare_threads(&mut self, directory: BorrowedFd<'_>, first: u32) -> Result<(), Errno> {
        let asked = self.unit.of_threads;
        if asked == Set::NONE {
            return Ok(());
        }
        let pid = self.unit.identity.tid();
        let proc = open(&self.unit.proc, ".".to_owned())?;
        for tid in threads(proc.as_fd(), pid)? {
            if tid == first {
                continue;
            }
            let mut own = Set::NONE;
            for (part, uses) in [(Part::Files, Set::from(Use::Fd)), (Part::Fs, Use::Cwd | Use::Root)] {
                // The ids may be those of another namespace.
                let shares = if self.unit.proc.is_outer() {
                    Err(Errno::NOSYS)
                } else {
                    shares(first, tid, part)
                };
                let differs = match shares {
                    Ok(shares) => !shares,
                    // It has ended.
                    Err(Errno::SRCH) => false,
                    // The kernel compares nothing for us.
                    Err(_) => match open_thread(&self.unit.proc, pid, tid) {
                        Ok(thread) => names(directory, part)? != names(thread.as_fd(), part)?,
                        Err(errno) if is_exhausted(errno) => return Err(errno),
                        Err(_) => false,
                    },
                };
                // Either may have ended, and then differs by that.
                if differs && !has_files(directory) {
                    return Ok(());
                }
                let lives = || open_thread(&self.unit.proc, pid, tid).is_ok_and(|thread| has_files(thread.as_fd()));
                if differs && lives() {
                    own.extend(uses.iter().filter(|&used_as| asked.contains(used_as)));
                }
            }
            if own != Set::NONE {
                self.threads.push((tid, own));
            }
        }
        Ok(())
    }

    fn read_part(&mut self, directory: BorrowedFd<'_>, what: &ReadScope) -> Result<End, Errno> {
        self.missed = None;
        let (links, first): (Set<Use>, Option<u32>) = match what {
            ReadScope::All(uses) => (*uses, uses.contains(Use::Fd).then_some(0)),
            ReadScope::From(fd) => (Set::NONE, Some(*fd)),
            ReadScope::These(files) => return self.read_these(directory, files),
        };
        for used_as in [Use::Cwd, Use::Root, Use::Exe] {
            if links.contains(used_as) {
                self.read_link(directory, used_as)?;
            }
        }
        let Some(first) = first else { return Ok(End::Whole) };
        let fds = open_descriptors(directory)?;
        // The offset in the directory counts "." and ".." and then the numbers of the descriptors.
        rustix::fs::seek(&fds, SeekFrom::Start(u64::from(first) + 2))?;
        let mut room = Vec::with_capacity(32 << 10);
        let mut entries = RawDir::new(&fds, room.spare_capacity_mut());
        let mut next = first;
        while let Some(entry) = entries.next() {
            let entry = entry.inspect_err(|_| {
                self.missed.get_or_insert((next, self.files.len()));
            })?;
            let Some(fd) = process::task_id(entry.file_name().to_bytes()) else {
                continue;
            };
            next = fd + 1;
            if self.files.len() >= FILES_AT_ONCE {
                return Ok(End::More(fd));
            }
            self.read_descriptor(directory, fds.as_fd(), fd)?;
        }
        self.missed.get_or_insert((next, self.files.len()));
        Ok(End::Whole)
    }

    fn read_these(&mut self, directory: BorrowedFd<'_>, files: &[(Use, u32)]) -> Result<End, Errno> {
        let fds = open_descriptors(directory)?;
        for &(used_as, fd) in files {
            match used_as {
                Use::Fd => self.read_descriptor(directory, fds.as_fd(), fd)?,
                other => self.read_link(directory, other)?,
            }
        }
        Ok(End::Whole)
    }

    fn read_link(&mut self, directory: BorrowedFd<'_>, used_as: Use) -> Result<(), Errno> {
        let link = match used_as {
            Use::Cwd => c"cwd",
            Use::Root => c"root",
            _ => c"exe",
        };
        let mut file = OpenFile::no_descriptor(used_as, self.unit.needs);
        let needs_mount = self.unit.needs.contains(Wants::FLAGS);
        match self.open_and_read(directory, link, needs_mount, &mut file) {
            // A kernel thread has no program; a zombie has nothing.
            Err(Errno::NOENT | Errno::SRCH) => {
                self.missed.get_or_insert((0, 0));
                Ok(())
            }
            Err(errno) => Err(errno),
            Ok((name, _)) => {
                let detail = file.detail;
                self.push(file, name, detail);
                Ok(())
            }
        }
    }

    fn push(&mut self, file: OpenFile<'static>, name: Known<usize>, detail: Known<Option<&[u8]>>) {
        let file = OpenFile {
            name: name.map(|len| &self.name[..len]),
            detail,
            ..file
        };
        self.files.push(&file);
    }

    /// Reads a descriptor, if it still exists. Fails if the process may not be seen: the right to
    /// see one descriptor is the right to see all.
    fn read_descriptor(&mut self, directory: BorrowedFd<'_>, fds: BorrowedFd<'_>, fd: u32) -> Result<(), Errno> {
        let mut info = std::mem::take(&mut self.info);
        let mut attempts = (0..ATTEMPTS).map(|_| self.try_descriptor(directory, fds, fd, &mut info));
        let read = attempts.find(|read| *read != Ok(false)).unwrap_or(Ok(false));
        self.info = info;
        match read {
            Ok(true) => {}
            Ok(false) => self.changed += 1,
            // It was closed meanwhile.
            Err(Errno::NOENT | Errno::SRCH) => {
                self.missed.get_or_insert((fd, self.files.len()));
            }
            Err(errno) if matches!(errno, Errno::ACCESS | Errno::PERM) || is_exhausted(errno) => return Err(errno),
            Err(errno) => {
                let file = OpenFile {
                    fd: Some(fd),
                    ..OpenFile::bare(Use::Fd)
                };
                self.files.push(&file.without(self.unit.needs, absent(errno)));
            }
        }
        Ok(())
    }

    /// Reads a descriptor. False if it referred to another file meanwhile.
    fn try_descriptor(
        &mut self,
        directory: BorrowedFd<'_>,
        fds: BorrowedFd<'_>,
        fd: u32,
        text: &mut Vec<u8>,
    ) -> Result<bool, Errno> {
        let needs = self.unit.needs;
        let needs_info = needs.intersects(Wants::FLAGS | Wants::DETAIL);
        let mut file = OpenFile {
            fd: Some(fd),
            ..OpenFile::bare(Use::Fd)
        };
        let (mut name, mut place) = (Err(Absent::NotAsked), None);
        if needs.intersects(Wants::NAMES | STATS) {
            let link = Name::new(format_args!("{fd}"));
            (name, place) = self.open_and_read(fds, link.as_c_str(), needs_info, &mut file)?;
        }
        if !needs_info {
            self.push(file, name, Err(Absent::NotAsked));
            return Ok(true);
        }
        let info = Name::new(format_args!("fdinfo/{fd}"));
        read_whole(directory, info.as_c_str(), text)?;
        let Some(info) = fdinfo(text) else {
            self.malformed += 1;
            return Ok(true);
        };
        if !is_same(&info, &file, place.as_ref())? {
            return Ok(false);
        }
        if needs.contains(Wants::FLAGS) {
            file.open_flags = Ok(Some(info.flags));
            file.offset_bytes = Ok(Some(info.offset_bytes));
            file.mnt_id = info.mnt_id.ok_or(Absent::Unsupported);
        }
        let detail = if needs.contains(Wants::DETAIL) {
            Ok(Some(info.detail))
        } else {
            Err(Absent::NotAsked)
        };
        self.push(file, name, detail);
        Ok(true)
    }

    /// Reads name and stat of the target of a link. Opens it if both are needed, or if `is_kept`,
    /// for a later comparison.
    fn open_and_read(
        &mut self,
        directory: BorrowedFd<'_>,
        link: &CStr,
        is_kept: bool,
        file: &mut OpenFile<'static>,
    ) -> Result<(Known<usize>, Option<OwnedFd>), Errno> {
        let needs = self.unit.needs;
        if !needs.intersects(STATS) && !is_kept {
            return match rustix::fs::readlinkat_raw(directory, link, &mut self.name[..]) {
                Ok(len) => Ok((Ok(len), None)),
                Err(Errno::NAMETOOLONG) => Ok((Err(Absent::Truncated), None)),
                Err(errno) => Err(errno),
            };
        }
        readers::beat();
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let place = rustix::fs::openat(directory, link, flags, Mode::empty())?;
        let name = own_link(&place, &mut self.name).map_err(absent);
        self.read_stat(place.as_fd(), name, file);
        let name = if needs.contains(Wants::NAMES) {
            name
        } else {
            Err(Absent::NotAsked)
        };
        Ok((name, Some(place)))
    }

    /// Reads the stat of a place whose name was read.
    pub(super) fn read_stat(&self, place: BorrowedFd<'_>, name: Known<usize>, file: &mut OpenFile<'static>) {
        let needs = self.unit.needs;
        // For a descriptor, the fdinfo has the mount.
        let needs_mount = needs.contains(Wants::FLAGS) && file.used_as != Use::Fd;
        if !needs.intersects(STATS) && !needs_mount {
            return;
        }
        let stat = if self.unit.is_silent {
            Err(Absent::NoAnswer)
        } else {
            stat(place).map_err(absent)
        };
        if needs.contains(Wants::FLAGS) {
            file.mnt_id = stat.and_then(|stat| stat.mnt_id);
        }
        if needs.contains(Wants::SPACE) {
            file.allocated_bytes = stat.map(|stat| stat.allocated_bytes);
        }
        if !needs.contains(Wants::STAT) {
            return;
        }
        let name = name.map_or(&b""[..], |len| &self.name[..len]);
        file.kind = stat.and_then(|stat| Kind::new(stat.mode, name).ok_or(Absent::Unsupported));
        file.size_bytes = stat.map(|stat| stat.size_bytes);
        file.device = stat.map(|stat| stat.device);
        file.inode = stat.map(|stat| stat.inode);
        file.nlink = stat.map(|stat| stat.nlink);
    }
}
