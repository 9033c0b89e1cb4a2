//! The files of processes. An answer about them is made in parts. Each part takes a short time and
//! little memory, however many descriptors there are.
//!
//! A part is one pass over some processes. What decides access is read before and after it. A
//! process for which it differs is left out: its files may be those of a program that the client
//! may not trace.

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use taskdiag_bpf::files::{self, used_as, Cursor, FilesPassRequest, Match};
use taskdiag_core::error::Result;
use taskdiag_core::field::Group;
use taskdiag_core::record::Record;
use taskdiag_protocol::access::{Object, Sight};
use taskdiag_protocol::wire::{self, attribute, uses, wants, MessageWriter, TaskHeader, MESSAGE_ROOM};
use zerocopy::IntoBytes as _;

use crate::credentials::Viewer;
use crate::encode::header;
use crate::passes::{PassSpec, Programs};

/// How long the pass for a part may take. Its last run may exceed this by the time of one run.
const PART_TIME: Duration = Duration::from_millis(2);

/// A part with this many bytes gets no further run.
const PART_BYTES: usize = 256 << 10;

/// The most bytes of records in a message, except for the last record.
const MESSAGE_BYTES: usize = MESSAGE_ROOM - size_of::<wire::AttributeHeader>() - files::MAX_RECORD_BYTES;

/// The processes that an answer is about, and how far they have been read.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    pids: Vec<u32>,
    /// The next process.
    next: usize,
    /// When that process started. Another one may have its pid by now.
    start_ns: u64,
    /// Where in that process to continue.
    fd: u32,
    has_links: bool,
}

impl Listing {
    /// All files of some processes.
    pub fn new(pids: Vec<u32>) -> Listing {
        Listing {
            pids,
            ..Listing::default()
        }
    }

    /// Whether all were read.
    pub fn is_complete(&self) -> bool {
        self.next >= self.pids.len()
    }

    /// Where to continue if the next process to be read is the one that started at `start_ns`: in
    /// the middle only of the process that was begun.
    fn cursor(&self, start_ns: Option<u64>) -> Cursor {
        if start_ns != Some(self.start_ns) {
            return Cursor::default();
        }
        Cursor {
            process: 0,
            fd: self.fd,
            has_links: self.has_links,
        }
    }

    /// Continues with this process of the list, which started at `start_ns`.
    fn move_to(&mut self, next: usize, start_ns: u64, cursor: Cursor) {
        *self = Listing {
            pids: std::mem::take(&mut self.pids),
            next,
            start_ns,
            fd: cursor.fd,
            has_links: cursor.has_links,
        };
    }
}

/// The records of one process, in [`PassResult::bytes`].
#[derive(Debug)]
struct Process {
    /// Its index in the list.
    index: u32,
    start_ns: u64,
    records: Range<usize>,
}

/// What a pass found.
#[derive(Debug, Default)]
pub struct PassResult {
    bytes: Vec<u8>,
    processes: Vec<Process>,
}

impl PassResult {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes a record of the program.
    fn take(&mut self, record: &files::Record, text: &[u8]) {
        let at = self.bytes.len();
        if record.used_as == used_as::PROCESS {
            let current = self.processes.last();
            // The same process continues in another run.
            if current.is_some_and(|one| (one.index, one.start_ns) == (record.index, record.start_ns)) {
                return;
            }
            self.processes.push(Process {
                index: record.index,
                start_ns: record.start_ns,
                records: at..at,
            });
        }
        if let Some(process) = self.processes.last_mut() {
            record.put(text, &mut self.bytes);
            process.records.end = self.bytes.len();
        }
    }
}

impl Programs {
    /// Reads the files of processes, starting at a place in the list, as long as a part has time
    /// and room. Returns where to continue, if there is more.
    fn read_files(
        &mut self,
        pids: &[u32],
        cursor: Cursor,
        asked: &FilesPassRequest,
    ) -> Result<(PassResult, Option<Cursor>)> {
        let mut found = PassResult::default();
        let Some(walk) = self.files_walk() else {
            return Ok((found, None));
        };
        let began = Instant::now();
        walk.begin_at(pids, cursor, asked);
        while walk.more(|record, text| found.take(record, text))? {
            if began.elapsed() >= PART_TIME || found.len() >= PART_BYTES {
                return Ok((found, Some(walk.cursor())));
            }
        }
        Ok((found, None))
    }
}

/// What a request asks about files, in the program's form.
pub fn asked(files: &wire::Files, viewer: &Viewer, as_task: u64) -> FilesPassRequest {
    let one = |file: &wire::FileMatch| Match {
        dev_major: file.dev_major.get(),
        dev_minor: file.dev_minor.get(),
        inode: file.inode.get(),
    };
    let mut asked = FilesPassRequest {
        uses: files.uses.get(),
        wants: files.wants.get(),
        types: files.types.get(),
        deleted: files.deleted.get() != 0,
        matches: files.matches.each_ref().map(one),
        as_task,
    };
    if lacks_names(viewer) {
        asked.wants &= !wants::NAMES;
    }
    asked
}

/// Whether this kernel can't build paths from the client's root. The client must then read names
/// itself.
fn lacks_names(viewer: &Viewer) -> bool {
    viewer.lacks.contains(Group::Paths)
}

/// A part of an answer.
#[derive(Debug, Default)]
pub struct AnswerPart {
    /// Messages about processes.
    pub messages: Vec<u8>,
    /// The client may not trace some process.
    pub has_denied: bool,
}

/// Makes the next part of an answer: reads some files. `spec` says from where.
///
/// # Errors
///
/// Those of a pass.
pub fn make_part(
    programs: &mut Programs,
    viewer: &Viewer,
    listing: &mut Listing,
    files: &wire::Files,
    spec: &PassSpec,
) -> Result<AnswerPart> {
    let as_task = spec.as_task;
    // What decides access is the same seen from there, if pids are.
    let numbers_of = if spec.has_other_pids { as_task } else { 0 };
    let mut messages = Vec::new();
    let chunk = &listing.pids[listing.next..];
    let chunk = chunk[..chunk.len().min(programs.listed_at_once(as_task))].to_vec();
    let before = programs.facts_of(&chunk, numbers_of, viewer.is_in_landlock_domain())?;
    let before: HashMap<u32, Record<'_>> = by_pid(before.as_bytes());
    let is_visible = |pid: &u32| before.get(pid).is_some_and(|record| sight(viewer, *record).is_some());
    let visible: Vec<u32> = chunk.iter().copied().filter(is_visible).collect();
    let start_ns = |pid: &u32| before.get(pid).map(|record| record.header().start_ns.get());
    let cursor = match visible.first() {
        first if first == chunk.first() => listing.cursor(first.and_then(start_ns)),
        _ => Cursor::default(),
    };
    let (found, rest) = programs.read_files(&visible, cursor, &asked(files, viewer, as_task))?;
    let read: Vec<u32> = found
        .processes
        .iter()
        .filter_map(|one| visible.get(one.index as usize).copied())
        .collect();
    let after = programs.facts_of(&read, numbers_of, viewer.is_in_landlock_domain())?;
    let after: HashMap<u32, Record<'_>> = by_pid(after.as_bytes());
    for process in &found.processes {
        let pid = visible.get(process.index as usize);
        let facts = pid.and_then(|pid| Some((*before.get(pid)?, *after.get(pid)?)));
        if let Some((before, after)) = facts {
            let records = &found.bytes[process.records.clone()];
            put_process(viewer, files, [before, after], process.start_ns, records, &mut messages);
        }
    }
    let next = rest.and_then(|cursor| Some((visible.get(cursor.process as usize)?, cursor)));
    let next = next.and_then(|(pid, cursor)| Some((chunk.iter().position(|other| other == pid)?, cursor)));
    let (read, cursor) = next.unwrap_or((chunk.len(), Cursor::default()));
    let begun = chunk.get(read).and_then(start_ns).unwrap_or(0);
    listing.move_to(listing.next + read, begun, cursor);
    let is_denied = |pid: &u32| before.contains_key(pid) && !visible.contains(pid);
    Ok(AnswerPart {
        messages,
        has_denied: chunk.iter().any(is_denied),
    })
}

/// Records by pid.
fn by_pid(records: &[u8]) -> HashMap<u32, Record<'_>> {
    Record::each(records)
        .map(|record| (record.header().pid.get(), record))
        .collect()
}

/// What a client may see of a record's task.
fn sight(viewer: &Viewer, record: Record<'_>) -> Option<Sight> {
    viewer.sight(&Object::of(record)?)
}

/// Appends the messages about the files of a process. `records` were read between the two records
/// of `facts`. A process that the client may not see at both times is not mentioned.
pub fn put_process(
    viewer: &Viewer,
    files: &wire::Files,
    facts: [Record<'_>; 2],
    start_ns: u64,
    records: &[u8],
    out: &mut Vec<u8>,
) {
    let [Some(before), Some(after)] = facts.map(|record| sight(viewer, record)) else {
        return;
    };
    let sight = before.and(after);
    let [first, second] = facts;
    let is_same = [first, second].map(|record| record.header().start_ns.get()) == [start_ns; 2]
        && (viewer.sees_of_all().0 || has_same_facts(first, second) && was_as_dumpable(first, records));
    let task = header(second);
    if !is_same {
        let mut message = MessageWriter::task(out, 0, task);
        message.incomplete();
        return message.finish();
    }
    let has_descriptors = sight.descriptors || files.uses.get() & uses::FD == 0;
    let lacks_names = lacks_names(viewer) && files.wants.get() & wants::NAMES != 0;
    let mut payload = Vec::new();
    // The program's own records are complete.
    let _ = files::decode(records, |record, text| {
        if !has_descriptors && matches!(record.used_as, used_as::FD | used_as::END) {
            return;
        }
        let mut record = *record;
        if record.used_as == used_as::PROCESS {
            record.open_flags = 0;
        }
        if lacks_names && record.name == files::name::NONE && record.used_as < used_as::PROCESS {
            record.flags |= files::DEFER_NAME;
        }
        if payload.len() > MESSAGE_BYTES {
            put_message(task, &payload, out);
            payload.clear();
        }
        record.put(text, &mut payload);
    });
    put_message(task, &payload, out);
}

fn put_message(task: TaskHeader, payload: &[u8], out: &mut Vec<u8>) {
    let mut message = MessageWriter::task(out, 0, task);
    message.attribute(attribute::FILES, |out| out.extend_from_slice(payload));
    message.finish();
}

/// Whether a process was as dumpable while its files were read as before: it may have been something
/// else in between, and be the same afterwards.
fn was_as_dumpable(before: Record<'_>, records: &[u8]) -> bool {
    let Some(object) = Object::of(before) else { return false };
    let expected = object.access().dumpable.get() + 1;
    let mut is_same = true;
    let _ = files::decode(records, |record, _| {
        is_same &=
            record.used_as != used_as::PROCESS || matches!(record.open_flags, 0) || record.open_flags == expected;
    });
    is_same
}

/// Whether everything that decides access is the same and was not changing.
fn has_same_facts(first: Record<'_>, second: Record<'_>) -> bool {
    let (Some(first), Some(second)) = (Object::of(first), Object::of(second)) else {
        return false;
    };
    let is_stable = first.is_stable() && second.is_stable();
    is_stable && first.access().as_bytes() == second.access().as_bytes()
}

#[cfg(test)]
mod tests {
    use taskdiag_core::field::Groups;
    use taskdiag_core::record::{attr, dumpable, Access, Header, Writer, ACCESS_STABLE};
    use taskdiag_protocol::access::{Subject, INITIAL_USER_NS};
    use taskdiag_protocol::wire::{Message, Messages, INCOMPLETE};
    use zerocopy::native_endian::{U32, U64};

    use super::*;

    const USER: u32 = 1000;

    fn viewer(capabilities: u64) -> Viewer {
        let subject = Subject {
            pid: 1,
            fsuid: USER,
            fsgid: USER,
            euid: USER,
            capabilities,
            user_ns: INITIAL_USER_NS,
            user_ns_level: 0,
            confined: false,
            ..Viewer::nobody().now
        };
        Viewer {
            before: subject.clone(),
            now: subject,
            ..Viewer::nobody()
        }
    }

    /// The facts of a process of a user's.
    fn facts(user: u32, exec_id: u64, flags: u32, start_ns: u64) -> Vec<u8> {
        let id = U32::new(user);
        let access = Access {
            uid: id,
            euid: id,
            suid: id,
            fsuid: id,
            gid: id,
            egid: id,
            sgid: id,
            fsgid: id,
            exec_id: U64::new(exec_id),
            mm: U64::new(1),
            user_ns: U32::new(INITIAL_USER_NS),
            mm_user_ns: U32::new(INITIAL_USER_NS),
            dumpable: U32::new(dumpable::USER),
            flags: U32::new(flags),
            ..Access::default()
        };
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.put(attr::ACCESS, 0, access.as_bytes());
        writer.finish(Header {
            pid: U32::new(7),
            tid: U32::new(7),
            start_ns: U64::new(start_ns),
            ..Header::default()
        });
        bytes
    }

    fn records(descriptors: u32, name: &[u8]) -> Vec<u8> {
        let mut found = PassResult::default();
        let record = |used_as, fd| files::Record {
            used_as,
            fd,
            name: files::name::WHOLE,
            start_ns: 5,
            ..files::Record::default()
        };
        found.take(&record(used_as::PROCESS, 0), b"");
        found.take(&record(used_as::CWD, 0), b"/tmp");
        for fd in 0..descriptors {
            // It continues in another run.
            found.take(&record(used_as::PROCESS, 0), b"");
            found.take(&record(used_as::FD, fd), name);
        }
        found.take(&record(used_as::END, 0), b"");
        assert_eq!(found.processes.len(), 1);
        found.bytes
    }

    /// What the messages hold: the flags of each, and the use and the number of each file.
    fn said(messages: &[u8]) -> Vec<(u32, Vec<(u16, u32)>)> {
        let mut said = Vec::new();
        for message in Messages::new(messages, 0) {
            let Ok(Message::Task { header, attributes, .. }) = message else {
                panic!("{message:?}");
            };
            assert_eq!((header.pid.get(), header.tgid.get()), (7, 7));
            let mut all = Vec::new();
            for (kind, payload, _) in wire::attributes(attributes) {
                assert_eq!(kind, attribute::FILES);
                files::decode(payload, |record, _| all.push((record.used_as, record.fd))).expect("records");
            }
            said.push((header.flags.get(), all));
        }
        said
    }

    fn put(viewer: &Viewer, before: &[u8], after: &[u8], records: &[u8]) -> Vec<u8> {
        let record = |bytes| Record::split_first(bytes).expect("a record").0;
        let mut out = Vec::new();
        let files = wire::Files::default();
        put_process(viewer, &files, [record(before), record(after)], 5, records, &mut out);
        out
    }

    /// Check that a process is shown if the client may see it before and after its files are read
    /// and nothing about it has changed; that a process that has changed is named if the client
    /// sees it anyway; and that no other process is mentioned.
    #[test]
    fn only_who_may_be_seen_all_the_time_is_shown() {
        let all = records(1, b"/x");
        let own = facts(USER, 1, ACCESS_STABLE, 5);
        let whole = vec![(
            0,
            vec![
                (used_as::PROCESS, 0),
                (used_as::CWD, 0),
                (used_as::FD, 0),
                (used_as::END, 0),
            ],
        )];
        let user = viewer(0);
        assert_eq!(said(&put(&user, &own, &own, &all)), whole);
        let changed = vec![(INCOMPLETE, vec![])];
        let executed = facts(USER, 2, ACCESS_STABLE, 5);
        let other = facts(USER, 1, ACCESS_STABLE, 6);
        for after in [&executed, &other] {
            assert_eq!(said(&put(&user, &own, after, &all)), changed);
            assert_eq!(said(&put(&user, after, &own, &all)), changed);
        }
        let in_exec = facts(USER, 1, 0, 5);
        let roots = facts(0, 2, ACCESS_STABLE, 5);
        for hidden in [&in_exec, &roots] {
            assert!(put(&user, &own, hidden, &all).is_empty() && put(&user, hidden, &own, &all).is_empty());
        }
        // A viewer that sees every task sees it, whatever it does.
        let sees_all = viewer(u64::MAX);
        for after in [&own, &executed, &in_exec, &roots] {
            assert_eq!(said(&put(&sees_all, &own, after, &all)), whole);
        }
        assert_eq!(said(&put(&sees_all, &own, &other, &all)), changed);
    }

    /// Check that a list continues in the middle of the process that was begun, and of no other
    /// that has its pid.
    #[test]
    fn another_process_is_read_from_its_start() {
        let mut listing = Listing::new(vec![7]);
        let cursor = Cursor {
            process: 0,
            fd: 3,
            has_links: true,
        };
        listing.move_to(0, 5, cursor);
        let places = [Some(5), Some(6), None].map(|start_ns| listing.cursor(start_ns));
        assert_eq!(
            places.map(|at| (at.fd, at.has_links)),
            [(3, true), (0, false), (0, false)]
        );
    }

    /// Check that a client that may trace another user's process but may not list its descriptors
    /// gets its directories, without the flag that the list is complete.
    #[test]
    fn tracing_does_not_show_descriptors() {
        const CAP_SYS_PTRACE: u64 = 1 << 19;
        let roots = facts(0, 1, ACCESS_STABLE, 5);
        let shown = said(&put(&viewer(CAP_SYS_PTRACE), &roots, &roots, &records(2, b"/x")));
        assert_eq!(shown, [(0, vec![(used_as::PROCESS, 0), (used_as::CWD, 0)])]);
    }

    /// Check that names are left to the client where this kernel can't build them for it, and that
    /// names that are not paths are there.
    #[test]
    fn names_can_be_left_to_the_client() {
        let lacking = Viewer {
            lacks: Groups::NONE.with(Group::Paths),
            ..viewer(0)
        };
        let request = wire::Files::default();
        assert_eq!(asked(&request, &lacking, 0).wants, wants::FLAGS | wants::STAT);
        assert_eq!(asked(&request, &viewer(0), 0).wants, request.wants.get());
        let mut found = PassResult::default();
        for (used_as, name) in [
            (used_as::PROCESS, files::name::NONE),
            (used_as::CWD, files::name::NONE),
            (used_as::FD, files::name::SOCKET),
        ] {
            let record = files::Record {
                used_as,
                name,
                start_ns: 5,
                ..files::Record::default()
            };
            found.take(&record, b"");
        }
        let own = facts(USER, 1, ACCESS_STABLE, 5);
        let out = put(&lacking, &own, &own, &found.bytes);
        let Some(Ok(Message::Task { attributes, .. })) = Messages::new(&out, 0).next() else {
            panic!("no message");
        };
        let (_, payload, _) = wire::attributes(attributes).next().expect("records");
        let mut flags = Vec::new();
        files::decode(payload, |record, _| flags.push(record.flags)).expect("records");
        assert_eq!(flags, [0, files::DEFER_NAME, 0]);
    }

    /// Check that many files become several messages, each short enough for a packet.
    #[test]
    fn messages_fit_into_packets() {
        let own = facts(USER, 1, ACCESS_STABLE, 5);
        for name in [1, 100, 1024] {
            let mut out = put(&viewer(0), &own, &own, &records(3000, &vec![b'x'; name]));
            let said = said(&out);
            let fds = said
                .iter()
                .flat_map(|(_, files)| files)
                .filter(|(used_as, _)| *used_as == used_as::FD);
            assert!(fds.map(|(_, fd)| *fd).eq(0..3000) && said.len() > 2);
            let mut at = 0;
            while at < out.len() {
                let len = wire::number_packet(&mut out[at..], 0).len();
                assert!(len > 0 && len <= wire::PACKET);
                at += len;
            }
        }
    }
}
