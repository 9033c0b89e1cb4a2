//! Makes messages of records, with what a client may see of them and in its numbers. Pure: records in, messages out.

use taskdiag::{Absent, Field, Group};
use taskdiag_core::field::Groups;
use taskdiag_core::record::{self, attr, AbsentField, Record};
use taskdiag_protocol::access::{Object, Sight, Subject};
use taskdiag_protocol::wire::{self, attribute, group_of, show, MessageWriter, Request, TaskHeader};
use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes, Unaligned};

use crate::ids::IdMap;

/// The groups that observers may see of every task.
const OBSERVED: [Group; 5] = [Group::Base, Group::Cred, Group::Cpu, Group::Faults, Group::Mem];

/// And the bits of task_diag.
const OBSERVED_BITS: u64 = show::BASE | show::CRED | show::STAT | show::STATM;

/// Clock ticks are as long on all machines that are supported.
const TICK_NS: u64 = 10_000_000;

/// What task_diag counts in.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// Who looks, with what decides what it sees. A client counts as two: as it was when it connected, and as it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Viewer {
    /// When it connected.
    pub before: Subject,
    /// Now.
    pub now: Subject,
    /// It is in the group of observers, and was.
    pub observer: bool,
    /// User ids as it has them.
    pub users: IdMap,
    /// Group ids.
    pub groups: IdMap,
}

impl Viewer {
    /// Those that see nothing.
    pub fn closed() -> Viewer {
        let nobody = Subject {
            pid: 0,
            own: Default::default(),
            fsuid: u32::MAX,
            fsgid: u32::MAX,
            euid: u32::MAX,
            capabilities: 0,
            user_ns: 0,
            user_ns_level: u32::MAX,
            landlock: 0,
            kept: 0,
            confined: true,
            counts_files: false,
            may_attach: false,
        };
        Viewer {
            before: nobody.clone(),
            now: nobody,
            observer: false,
            users: IdMap::default(),
            groups: IdMap::default(),
        }
    }

    /// Whether it is in a Landlock domain, beyond which it sees nothing.
    pub fn are_in_domain(&self) -> bool {
        self.before.landlock != 0 || self.now.landlock != 0
    }

    /// What it may see of a task that it may trace.
    pub fn sight(&self, object: &Object<'_>) -> Option<Sight> {
        let now = self.now.sight(object)?;
        if self.before == self.now {
            Some(now)
        } else {
            Some(now.and(self.before.sight(object)?))
        }
    }

    /// Whether it sees every task, and the bits that it sees of all of them.
    pub fn of_all(&self) -> (bool, u64) {
        if self.before.sees_all() && self.now.sees_all() {
            return (true, wire::ALL_BITS);
        }
        if self.observer {
            (false, OBSERVED_BITS | u64::from(observed().0) << show::GROUPS_SHIFT)
        } else {
            (false, 0)
        }
    }
}

fn observed() -> Groups {
    OBSERVED.into_iter().fold(Groups::NONE, Groups::with)
}

/// The groups that the bits of task_diag are made of.
pub fn groups_read(request: &Request) -> Groups {
    let mut groups = request.groups();
    for (bit, needs) in [
        (show::BASE, &[Group::Base][..]),
        (show::CRED, &[Group::Cred]),
        (show::STAT, &[Group::Base, Group::Cpu, Group::Faults]),
        (show::STATM, &[Group::Mem]),
        (show::CMDLINE, &[]),
    ] {
        if request.show & bit != 0 {
            groups = needs.iter().copied().fold(groups, Groups::with);
        }
    }
    groups
}

/// What of a task may be shown.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    bits: u64,
    groups: Groups,
    sight: Sight,
}

fn allowed(request: &Request, viewer: &Viewer, object: &Object<'_>) -> Option<Allowed> {
    let (bits, mut groups) = (request.show & show::TASK_DIAG, request.groups());
    match viewer.sight(object) {
        Some(sight) => {
            let without = |groups: Groups, group, may| {
                if may {
                    groups
                } else {
                    groups.without(Groups::NONE.with(group))
                }
            };
            groups = without(groups, Group::Env, sight.owned);
            groups = without(groups, Group::Io, sight.owned);
            Some(Allowed { bits, groups, sight })
        }
        None if viewer.observer => Some(Allowed {
            bits: bits & OBSERVED_BITS,
            groups: groups.and(observed()),
            sight: Sight {
                owned: false,
                files: false,
                attach: false,
                nice: false,
            },
        }),
        None => None,
    }
}

/// Appends the message of one record, unless the client may not see the task.
pub fn put(request: &Request, viewer: &Viewer, record: Record<'_>, out: &mut Vec<u8>) -> bool {
    let Some(object) = Object::of(record) else {
        return false;
    };
    let Some(allowed) = allowed(request, viewer, &object) else {
        return false;
    };
    if request.show & show::TASK_DIAG == 0 && is_whole(request, viewer, &allowed, &object, &record) {
        put_whole(record, out);
        return true;
    }
    put_rest(request, viewer, record, None, true, out)
}

/// Appends a message with a part of what is told of a task's mappings, which goes on in the next one.
pub fn put_mappings(
    request: &Request,
    viewer: &Viewer,
    record: Record<'_>,
    payload: &[u8],
    is_first: bool,
    out: &mut Vec<u8>,
) {
    let Some(allowed) = Object::of(record).and_then(|object| allowed(request, viewer, &object)) else {
        return;
    };
    let mut message = MessageWriter::task(out, 0, header(record));
    if is_first {
        put_fixed(allowed.bits, viewer, record, &mut message);
    }
    message.attribute(attribute::VMA, |out| out.extend_from_slice(payload));
    message.continued();
    message.finish();
}

/// Appends the only or last message about a task, unless the client may not see it: without what stands before its mappings, if that
/// was told.
pub fn put_rest(
    request: &Request,
    viewer: &Viewer,
    record: Record<'_>,
    cmdline: Option<&[u8]>,
    is_first: bool,
    out: &mut Vec<u8>,
) -> bool {
    let Some(object) = Object::of(record) else {
        return false;
    };
    let Some(allowed) = allowed(request, viewer, &object) else {
        return false;
    };
    let mut message = MessageWriter::task(out, 0, header(record));
    if is_first {
        put_fixed(allowed.bits, viewer, record, &mut message);
    }
    put_behind(allowed.bits, record, cmdline, &mut message);
    if request.groups().0 != 0 || request.show & show::TASK_DIAG == 0 {
        message.attribute(attribute::RECORD, |out| {
            put_record(request, viewer, &allowed, &object, record, out)
        });
    }
    message.finish();
    true
}

/// The task of a record, as messages about it begin.
pub fn header(record: Record<'_>) -> TaskHeader {
    TaskHeader {
        pid: record.header().tid,
        tgid: record.header().pid,
        flags: U32::new(0),
    }
}

/// What task_diag has before the mappings.
fn put_fixed(bits: u64, viewer: &Viewer, record: Record<'_>, message: &mut MessageWriter<'_>) {
    if bits & (show::BASE | show::CRED) == 0 {
        return;
    }
    let header = record.header();
    if let (true, Some(base)) = (bits & show::BASE != 0, record.get::<record::Base>(attr::BASE)) {
        let out = wire::Base {
            tgid: header.pid,
            pid: header.tid,
            ppid: base.ppid,
            tpid: base.tracer_pid,
            sid: base.sid,
            pgid: base.pgid,
            state: state(base.state),
            comm: base.comm,
            padding: [0; 3],
        };
        message.attribute(attribute::BASE, |to| to.extend_from_slice(out.as_bytes()));
    }
    if let (true, Some(cred)) = (bits & show::CRED != 0, record.get::<record::Cred>(attr::CRED)) {
        let words = |set: U64| [U32::new(set.get() as u32), U32::new((set.get() >> 32) as u32)];
        let user = |id: U32| U32::new(viewer.users.munged(id.get()));
        let group = |id: U32| U32::new(viewer.groups.munged(id.get()));
        let out = wire::Creds {
            cap_inheritable: words(cred.cap_inheritable),
            cap_permitted: words(cred.cap_permitted),
            cap_effective: words(cred.cap_effective),
            cap_bset: words(cred.cap_bounding),
            uid: user(cred.uid),
            euid: user(cred.euid),
            suid: user(cred.suid),
            fsuid: user(cred.fsuid),
            gid: group(cred.gid),
            egid: group(cred.egid),
            sgid: group(cred.sgid),
            fsgid: group(cred.fsgid),
        };
        message.attribute(attribute::CRED, |to| to.extend_from_slice(out.as_bytes()));
    }
}

/// What it has behind them.
fn put_behind(bits: u64, record: Record<'_>, cmdline: Option<&[u8]>, message: &mut MessageWriter<'_>) {
    if bits & (show::STAT | show::STATM | show::CMDLINE) == 0 {
        return;
    }
    let parts = (
        record.get::<record::Base>(attr::BASE),
        record.get::<record::Cpu>(attr::CPU),
        record.get::<record::Faults>(attr::FAULTS),
    );
    if let (true, (Some(base), Some(cpu), Some(faults))) = (bits & show::STAT != 0, parts) {
        let ticks = |ns: u64| U64::new(ns / TICK_NS);
        let (utime, stime) = cpu.scaled_times();
        let out = wire::Stat {
            minflt: faults.min_faults,
            cminflt: faults.child_min_faults,
            majflt: faults.maj_faults,
            cmajflt: faults.child_maj_faults,
            utime: ticks(utime),
            stime: ticks(stime),
            cutime: ticks(cpu.cutime_ns.get()),
            cstime: ticks(cpu.cstime_ns.get()),
            threads: base.threads_count,
            padding: U32::new(0),
        };
        message.attribute(attribute::STAT, |to| to.extend_from_slice(out.as_bytes()));
    }
    if let (true, Some(mem)) = (bits & show::STATM != 0, record.get::<record::Mem>(attr::MEM)) {
        let pages = |bytes: U64| U64::new(bytes.get() / page_size());
        let resident = [mem.rss_anon_bytes, mem.rss_file_bytes, mem.rss_shmem_bytes];
        let out = wire::Statm {
            anon: pages(mem.rss_anon_bytes),
            file: pages(mem.rss_file_bytes),
            shmem: pages(mem.rss_shmem_bytes),
            hiwater_vm: pages(mem.peak_vsize_bytes),
            hiwater_rss: pages(mem.peak_rss_bytes),
            text: pages(mem.text_bytes),
            lib: pages(mem.lib_bytes),
            swap: pages(mem.swap_bytes),
            ptes: mem.page_table_bytes,
            total_rss: U64::new(resident.iter().map(|bytes| bytes.get() / page_size()).sum()),
            total_vm: pages(mem.vsize_bytes),
            data_vm: pages(mem.data_bytes),
            stack_vm: pages(mem.stack_bytes),
            locked_vm: pages(mem.locked_bytes),
            pinned_vm: pages(mem.pinned_bytes),
        };
        message.attribute(attribute::STATM, |to| to.extend_from_slice(out.as_bytes()));
    }
    if let (true, Some(args)) = (bits & show::CMDLINE != 0, cmdline) {
        message.attribute(attribute::CMDLINE, |to| to.extend_from_slice(args));
    }
}

/// The states of task_diag by the letters of proc(5).
fn state(letter: u8) -> u8 {
    b"RSDTtXZPI".iter().position(|&other| other == letter).unwrap_or(0) as u8
}

/// How long what decides about access is in a record: the header of the record, that of the attribute, the attribute.
const BEFORE_FIELDS: usize =
    size_of::<record::Header>() + size_of::<record::AttrHeader>() + size_of::<record::Access>();

/// Whether a record is what decides about access, of its right length, and attributes that are told, to the last byte.
fn is_well_made(record: &Record<'_>) -> bool {
    let is_told = |kind| kind == attr::DEFER || group_of(kind).is_some();
    let taken = |len: usize| (size_of::<record::AttrHeader>() + len).next_multiple_of(8);
    let mut attributes = record.attributes();
    let is_access = attributes
        .next()
        .is_some_and(|first| first.kind == attr::ACCESS && first.payload.len() == size_of::<record::Access>());
    let mut end = BEFORE_FIELDS;
    is_access
        && attributes.all(|attribute| {
            end += taken(attribute.payload.len());
            is_told(attribute.kind)
        })
        && end == record.as_bytes().len()
}

/// Whether a record can be handed on as it is, but for what decides about access.
fn is_whole(request: &Request, viewer: &Viewer, allowed: &Allowed, object: &Object<'_>, record: &Record<'_>) -> bool {
    let wanted = request.groups();
    let (access, sight) = (object.access(), allowed.sight);
    allowed.groups == groups_read(request)
        && (sight.nice || !wanted.contains(Group::Cpu))
        && (sight.attach || !wanted.contains(Group::Layout))
        && (sight.files || !wanted.contains(Group::Fds))
        && access.user_ns_level.get() == 0
        && access.mm_user_ns_level.get() == 0
        && viewer.users.is_identity()
        && viewer.groups.is_identity()
        && is_well_made(record)
}

/// The header of a record without what decides about access, and the attributes behind that.
fn split_whole<'a>(record: &Record<'a>) -> (record::Header, &'a [u8]) {
    let rest = &record.as_bytes()[BEFORE_FIELDS..];
    let header = record::Header {
        len: U32::new((size_of::<record::Header>() + rest.len()) as u32),
        ..*record.header()
    };
    (header, rest)
}

/// All that stands before the attributes of a record in a message with nothing else.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    message: wire::MessageHeader,
    task: TaskHeader,
    attribute: wire::AttributeHeader,
    record: record::Header,
}

/// Appends a message with a record and nothing else, as `put` would: most are such, so this is one copy.
fn put_whole(record: Record<'_>, out: &mut Vec<u8>) {
    let (header_of_record, rest) = split_whole(&record);
    let len = size_of::<Head>() + rest.len();
    let record_len = size_of::<wire::AttributeHeader>() + size_of::<record::Header>() + rest.len();
    let head = Head {
        message: wire::MessageHeader {
            len: U32::new(len as u32),
            kind: U16::new(wire::TASK_DIAG),
            flags: U16::new(wire::FLAG_MULTI),
            ..wire::MessageHeader::default()
        },
        task: header(record),
        attribute: wire::AttributeHeader {
            len: U16::new(record_len as u16),
            kind: U16::new(attribute::RECORD),
        },
        record: header_of_record,
    };
    out.reserve(len);
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(rest);
}

/// Appends a record without what decides about access, with what is allowed of it.
fn put_record(
    request: &Request,
    viewer: &Viewer,
    allowed: &Allowed,
    object: &Object<'_>,
    record: Record<'_>,
    out: &mut Vec<u8>,
) {
    let wanted = request.groups();
    if is_whole(request, viewer, allowed, object, &record) {
        let (header, rest) = split_whole(&record);
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(rest);
        return;
    }
    let mut header = *record.header();
    let mut flags = header.flags.get();
    let mut writer = record::Writer::new(out);
    for attribute in record.attributes() {
        let group = group_of(attribute.kind);
        if group.is_some_and(|group| !allowed.groups.contains(group)) {
            continue;
        }
        match attribute.kind {
            attr::CRED => match record.get::<record::Cred>(attr::CRED) {
                Some(cred) => writer.put(attr::CRED, attribute.flags, mapped(*cred, viewer).as_bytes()),
                None => continue,
            },
            attr::GROUPS => {
                let ids = attribute.payload.chunks_exact(4);
                let ids = ids.map(|id| u32::from_ne_bytes(id.try_into().expect("four bytes")));
                let ids: Vec<u32> = ids.map(|id| viewer.groups.munged(id)).collect();
                writer.put(attr::GROUPS, attribute.flags, ids.as_bytes());
            }
            attr::AUDIT => match record.get::<record::Audit>(attr::AUDIT) {
                Some(audit) => {
                    let user = viewer.users.get(audit.loginuid.get()).unwrap_or(u32::MAX);
                    let audit = record::Audit {
                        loginuid: U32::new(user),
                        ..*audit
                    };
                    writer.put(attr::AUDIT, attribute.flags, audit.as_bytes());
                }
                None => continue,
            },
            attr::CPU if !allowed.sight.nice => match record.get::<record::Cpu>(attr::CPU) {
                Some(cpu) => {
                    let cpu = record::Cpu {
                        timer_slack_ns: U64::new(0),
                        ..*cpu
                    };
                    writer.put(attr::CPU, attribute.flags, cpu.as_bytes());
                }
                None => continue,
            },
            attr::FDS if !allowed.sight.files => match record.get::<record::Fds>(attr::FDS) {
                Some(fds) => {
                    let fds = record::Fds {
                        fd_count: U32::new(0),
                        ..*fds
                    };
                    writer.put(attr::FDS, attribute.flags, fds.as_bytes());
                }
                None => continue,
            },
            attr::PERSONALITY if !allowed.sight.attach => {}
            attr::DEFER => {
                let deferred = record
                    .get::<record::Defer>(attr::DEFER)
                    .map_or(0, |defer| defer.groups.get());
                let deferred = deferred & allowed.groups.0;
                if deferred == 0 {
                    flags &= !record::DEFERRED;
                    continue;
                }
                let defer = record::Defer {
                    groups: U32::new(deferred),
                    reserved: U32::new(0),
                };
                writer.put(attr::DEFER, attribute.flags, defer.as_bytes());
            }
            _ if group.is_some() => writer.put(attribute.kind, attribute.flags, attribute.payload),
            // What decides about access, and whatever else is not known to be a client's business.
            _ => {}
        }
    }
    let denied = denied(wanted, allowed);
    if !denied.is_empty() {
        flags |= record::HAS_ABSENT;
        writer.put(attr::ABSENT, 0, denied.as_bytes());
    }
    header.flags = U32::new(flags);
    writer.finish(header);
}

fn mapped(cred: record::Cred, viewer: &Viewer) -> record::Cred {
    let user = |id: U32| U32::new(viewer.users.munged(id.get()));
    let group = |id: U32| U32::new(viewer.groups.munged(id.get()));
    record::Cred {
        uid: user(cred.uid),
        euid: user(cred.euid),
        suid: user(cred.suid),
        fsuid: user(cred.fsuid),
        gid: group(cred.gid),
        egid: group(cred.egid),
        sgid: group(cred.sgid),
        fsgid: group(cred.fsgid),
        ..cred
    }
}

/// The fields that were asked for and may not be seen.
fn denied(wanted: Groups, allowed: &Allowed) -> Vec<AbsentField> {
    let is_denied = |field: &Field| {
        let group = field.group();
        if !wanted.contains(group) || matches!(field, Field::Pid | Field::Tid) {
            return false;
        }
        match field {
            Field::TimerSlackNs if allowed.groups.contains(group) => !allowed.sight.nice,
            Field::Personality if allowed.groups.contains(group) => !allowed.sight.attach,
            Field::FdCount if allowed.groups.contains(group) => !allowed.sight.files,
            _ => !allowed.groups.contains(group),
        }
    };
    let fields = Field::ALL.iter().filter(|field| is_denied(field));
    let entry = |field: &Field| AbsentField {
        field: U16::new(*field as u16),
        reason: U16::new(Absent::Denied as u16),
    };
    fields.map(entry).collect()
}
