//! The files of processes as the broker shows them, and as `/proc` shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::Duration;

use taskdiag_bpf::files::{self, name, used_as, Record};
use taskdiag_protocol::wire::{self, attribute, show, Request, Strategy, INCOMPLETE};

use super::{connect, Connection, TaskMessage, REQUEST_SEQ};

/// The files of a process: the use of each and its descriptor's number, with its name. The name is
/// `None` if the client must read it.
pub type Files = BTreeMap<(u16, u32), Option<Vec<u8>>>;

/// What an answer says about a process.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Process {
    pub files: Files,
    /// Everything that was asked for is there.
    pub is_whole: bool,
    /// It changed during the read, or is left to the client.
    pub is_left: bool,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "whole {}, left {}", self.is_whole, self.is_left)?;
        for ((used_as, fd), name) in &self.files {
            let name = name.as_ref().map(|name| String::from_utf8_lossy(name));
            write!(f, "\n  {used_as} {fd} {name:?}")?;
        }
        Ok(())
    }
}

impl Connection {
    /// Asks about files. The error is a number of errno(3).
    pub fn ask_files(&self, strategy: Strategy, pid: u32, files: &wire::Files) -> Result<BTreeMap<u32, Process>, i32> {
        let request = Request {
            seq: REQUEST_SEQ,
            show: show::FILES,
            strategy,
            pid,
        };
        self.send(&request.encode_with(files));
        Ok(processes(&self.receive_answer()?))
    }
}

/// Decodes an answer about files.
pub fn processes(messages: &[TaskMessage]) -> BTreeMap<u32, Process> {
    let mut processes = BTreeMap::<u32, Process>::new();
    // The broker's own iterator is open only while it looks at itself.
    let is_iterator = |name: &Option<Vec<u8>>| name.as_deref() == Some(b"anon_inode:bpf_iter");
    for message in messages {
        assert_eq!(message.pid, message.tgid);
        let process = processes.entry(message.tgid).or_default();
        process.is_left |= message.flags & INCOMPLETE != 0;
        for (kind, payload) in &message.attributes {
            assert_eq!(*kind, attribute::FILES);
            check_records(payload);
            let take = |record: &Record, text: &[u8]| match record.used_as {
                used_as::PROCESS => process.is_left |= record.flags & files::DEFER_ALL != 0,
                used_as::END => process.is_whole = true,
                _ => {
                    let file = (record.used_as, record.fd);
                    assert!(
                        process.files.insert(file, name_of(record, text)).is_none(),
                        "{file:?} twice"
                    );
                }
            };
            files::decode(payload, take).expect("whole records");
        }
        process.files.retain(|_, name| !is_iterator(name));
    }
    processes
}

/// Checks that reserved fields and padding of records are zero.
fn check_records(payload: &[u8]) {
    let mut at = 0;
    let mut clean = Vec::new();
    files::decode(payload, |record, text| {
        assert_eq!((record.index, record.reserved, record.reserved2), (0, 0, 0));
        assert_eq!(record.name_len as usize, text.len());
        record.put(text, &mut clean);
        assert_eq!(payload[at..clean.len()], clean[at..]);
        at = clean.len();
    })
    .expect("whole records");
    assert_eq!(at, payload.len());
}

/// The name of a file as readlink(2) returns it.
fn name_of(record: &Record, text: &[u8]) -> Option<Vec<u8>> {
    if record.flags & (files::DEFER_NAME | files::DEFER_ALL) != 0 {
        return None;
    }
    let inode = record.inode;
    Some(match record.name {
        name::WHOLE => text.to_vec(),
        name::SOCKET => format!("socket:[{inode}]").into_bytes(),
        name::PIPE => format!("pipe:[{inode}]").into_bytes(),
        name::ANON => [b"anon_inode:", text].concat(),
        name::SIMPLE => [b"/", text, b" (deleted)"].concat(),
        other => panic!("name {other} of {record:?}"),
    })
}

/// The links of `/proc/PID` as this process reads them. `None` if it does not see the process.
pub fn own_files(pid: u32) -> Option<Process> {
    let directory = PathBuf::from(format!("/proc/{pid}"));
    std::fs::metadata(&directory).ok()?;
    let mut process = Process {
        is_whole: true,
        ..Process::default()
    };
    let mut add = |used_as: u16, fd: u32, path: PathBuf| {
        let link = std::fs::read_link(path).map(|link| link.into_os_string().into_vec());
        link.map(|link| process.files.insert((used_as, fd), Some(link))).is_ok()
    };
    for (used_as, link) in [(used_as::CWD, "cwd"), (used_as::ROOT, "root"), (used_as::EXE, "exe")] {
        add(used_as, 0, directory.join(link));
    }
    match std::fs::read_dir(directory.join("fd")) {
        Ok(list) => {
            for entry in list.flatten() {
                let fd = entry.file_name().to_str().and_then(|name| name.parse().ok());
                add(used_as::FD, fd.expect("a number"), entry.path());
            }
        }
        Err(_) => process.is_whole = false,
    }
    Some(process)
}

/// Whether the broker reports for a process what its links show.
fn agrees(ours: &Result<Process, i32>, theirs: &Option<Process>) -> bool {
    match (ours, theirs) {
        (Err(libc::ESRCH | libc::EACCES), None) => true,
        (Ok(ours), Some(_)) if ours.is_left => ours.files.is_empty(),
        (Ok(ours), Some(theirs)) => {
            let same_name = |(ours, theirs): (&Option<Vec<u8>>, &Option<Vec<u8>>)| ours.is_none() || ours == theirs;
            ours.is_whole == theirs.is_whole
                && ours.files.keys().eq(theirs.files.keys())
                && ours.files.values().zip(theirs.files.values()).all(same_name)
        }
        // Observers see that the process exists.
        (Err(libc::EACCES), Some(theirs)) => theirs.files.is_empty(),
        _ => false,
    }
}

/// Check that the broker shows exactly the files that `/proc` shows, and that the names of at least
/// `least` descriptors are compared. Linux 6.1 builds no names from the root of a client whose root
/// is not the broker's: then all names but those of kernel objects are left to the client.
pub fn same_files(pids: impl IntoIterator<Item = u32>, least: usize) {
    let connection = connect(&super::socket());
    let asked = wire::Files::default();
    let own = std::process::id();
    let listed = std::fs::read_dir("/proc").expect("a list").flatten();
    let listed = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_hidden = |pid| pid == 1 && own != 1 && super::scene::hides_init();
    let others = listed.chain(pids).filter(|&pid| pid != own && !is_hidden(pid));
    let pids: BTreeSet<u32> = others.collect();
    let all = connection.ask_files(Strategy::All, 0, &asked).expect("all files");
    let mut compared = 0;
    for pid in pids {
        let mut attempts = 0..50;
        // In the answer about all processes, and in an answer about this one.
        let mut ours = all.get(&pid).cloned().ok_or(libc::ESRCH);
        for _ in 0..2 {
            let theirs = loop {
                let (before, after) = (own_files(pid), own_files(pid));
                if before == after && agrees(&ours, &before) {
                    break before;
                }
                let left = attempts.next();
                assert!(
                    left.is_some(),
                    "process {pid}: {ours:?}\ninstead of {before:?}\nor {after:?}"
                );
                std::thread::sleep(Duration::from_millis(5));
                ours = ask_one(&connection, pid, &asked);
            };
            if let (Ok(ours), Some(_)) = (&ours, theirs) {
                let names = ours
                    .files
                    .iter()
                    .filter(|((used_as, _), name)| *used_as == used_as::FD && name.is_some());
                compared += names.count();
            }
            ours = ask_one(&connection, pid, &asked);
        }
    }
    let itself = ask_one(&connection, own, &asked).expect("this process");
    assert!(itself.is_whole, "{itself:?}");
    let mut names = itself.files.values().flatten();
    if super::is_too_old() && names.clone().count() == 0 {
        return;
    }
    assert!(names.any(|name| name.starts_with(b"socket:[")), "{itself:?}");
    assert!(compared >= least, "{compared} names");
}

fn ask_one(connection: &Connection, pid: u32, asked: &wire::Files) -> Result<Process, i32> {
    let mut found = connection.ask_files(Strategy::One, pid, asked)?;
    assert!(found.len() == 1, "{found:?}");
    Ok(found.remove(&pid).expect("the process"))
}
