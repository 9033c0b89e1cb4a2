//! Turns records into messages that hold only what a client may see, with ids as its namespace
//! shows them. No I/O.

use taskdiag_core::absent::Absent;
use taskdiag_core::field::{Field, Group, Groups};
use taskdiag_core::record::{self, attr, AbsentField, Attribute, Record};
use taskdiag_protocol::access::{Object, Sight};
use taskdiag_protocol::wire::{self, attribute, group_of, show, MessageWriter, Request, TaskHeader};
use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes, Unaligned};

use crate::credentials::{observed_groups, Viewer, OBSERVED_BITS};

/// The length of a clock tick: 1/100 s on every supported machine (`USER_HZ`).
const TICK_NS: u64 = 10_000_000;

/// The size of a page, the unit in which task_diag counts memory.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// The groups of fields that must be read for a request: those that it asks for, and those that
/// task_diag's attributes are made of.
pub fn groups_to_read(request: &Request) -> Groups {
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

/// What a client asks for and may see of a task.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    /// Attributes of task_diag.
    bits: u64,
    groups: Groups,
    /// The other groups that it does not get because the kernel can't read them for it.
    lacks: Groups,
    sight: Sight,
}

/// What decides access to a record's task, and what follows. `None` if the client may not see the
/// task.
fn allowed<'r>(request: &Request, viewer: &Viewer, record: Record<'r>) -> Option<(Object<'r>, Allowed)> {
    let object = Object::of(record)?;
    let (bits, mut groups) = (request.show & show::TASK_DIAG, request.groups());
    let allowed = match viewer.sight(&object) {
        Some(sight) => {
            if !sight.owned {
                groups = groups.without(Groups::NONE.with(Group::Env).with(Group::Io).with(Group::Net));
            }
            Allowed {
                bits,
                groups: groups.without(viewer.lacks),
                lacks: viewer.lacks,
                sight,
            }
        }
        None if viewer.is_observer => Allowed {
            bits: bits & OBSERVED_BITS,
            groups: groups.and(observed_groups()),
            lacks: Groups::NONE,
            sight: Sight::default(),
        },
        None => return None,
    };
    Some((object, allowed))
}

/// Appends the message about a record's task, if the client may see it. Returns whether it may.
pub fn put_task(request: &Request, viewer: &Viewer, record: Record<'_>, out: &mut Vec<u8>) -> bool {
    let Some((object, allowed)) = allowed(request, viewer, record) else {
        return false;
    };
    if request.show & show::TASK_DIAG == 0 && can_copy(request, viewer, &allowed, &object, &record) {
        put_copy(record, out);
        return true;
    }
    put_remainder(request, viewer, record, Remainder::ONLY, out)
}

/// Appends a message with part of a task's mappings, which the next message continues. With
/// `is_first`, the message also has the attributes before the mappings.
pub fn put_mappings(
    request: &Request,
    viewer: &Viewer,
    record: Record<'_>,
    payload: &[u8],
    is_first: bool,
    out: &mut Vec<u8>,
) {
    let Some((_, allowed)) = allowed(request, viewer, record) else {
        return;
    };
    let mut message = MessageWriter::task(out, 0, header(record));
    if is_first {
        put_before_mappings(allowed.bits, viewer, record, &mut message);
    }
    message.attribute(attribute::VMA, |out| out.extend_from_slice(payload));
    message.continued();
    message.finish();
}

/// What the only or last message about a task has in addition to its record.
#[derive(Clone, Copy, Debug)]
pub struct Remainder<'a> {
    /// Its command line.
    pub cmdline: Option<&'a [u8]>,
    /// It is the only message, and also has the attributes before the mappings.
    pub is_only: bool,
    /// Mappings or the command line are missing.
    pub is_incomplete: bool,
}

impl Remainder<'_> {
    /// For a task that needed no reads.
    pub const ONLY: Remainder<'static> = Remainder {
        cmdline: None,
        is_only: true,
        is_incomplete: false,
    };
}

/// Appends the only or last message about a task, if the client may see it. Returns whether it may.
pub fn put_remainder(
    request: &Request,
    viewer: &Viewer,
    record: Record<'_>,
    rest: Remainder<'_>,
    out: &mut Vec<u8>,
) -> bool {
    let Some((object, allowed)) = allowed(request, viewer, record) else {
        return false;
    };
    let mut message = MessageWriter::task(out, 0, header(record));
    if rest.is_only {
        put_before_mappings(allowed.bits, viewer, record, &mut message);
    }
    if rest.is_incomplete {
        message.incomplete();
    }
    put_after_mappings(allowed.bits, record, rest.cmdline, &mut message);
    if request.groups().0 != 0 || request.show & show::TASK_DIAG == 0 {
        message.attribute(attribute::RECORD, |out| {
            put_record(request, viewer, &allowed, &object, record, out)
        });
    }
    message.finish();
    true
}

/// The header of a message about a record's task.
pub fn header(record: Record<'_>) -> TaskHeader {
    TaskHeader {
        pid: record.header().tid,
        tgid: record.header().pid,
        flags: U32::new(0),
    }
}

/// Appends task_diag's attributes before the mappings: BASE and CRED.
fn put_before_mappings(bits: u64, viewer: &Viewer, record: Record<'_>, message: &mut MessageWriter<'_>) {
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
        let cred = mapped(*cred, viewer);
        let out = wire::Creds {
            cap_inheritable: words(cred.cap_inheritable),
            cap_permitted: words(cred.cap_permitted),
            cap_effective: words(cred.cap_effective),
            cap_bset: words(cred.cap_bounding),
            uid: cred.uid,
            euid: cred.euid,
            suid: cred.suid,
            fsuid: cred.fsuid,
            gid: cred.gid,
            egid: cred.egid,
            sgid: cred.sgid,
            fsgid: cred.fsgid,
        };
        message.attribute(attribute::CRED, |to| to.extend_from_slice(out.as_bytes()));
    }
}

/// Appends task_diag's attributes after the mappings: STAT, STATM and CMDLINE.
fn put_after_mappings(bits: u64, record: Record<'_>, cmdline: Option<&[u8]>, message: &mut MessageWriter<'_>) {
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
    if let (true, Some(cmdline)) = (bits & show::CMDLINE != 0, cmdline) {
        message.attribute(attribute::CMDLINE, |to| to.extend_from_slice(cmdline));
    }
}

/// The number that task_diag uses for a state letter of proc(5).
fn state(letter: u8) -> u8 {
    b"RSDTtXZPI".iter().position(|&other| other == letter).unwrap_or(0) as u8
}

/// Where the fields of a record begin: after its header and the attribute that decides access.
const FIELDS_START: usize = size_of::<record::Header>() + size_of::<record::AttrHeader>() + size_of::<record::Access>();

/// Whether a record consists, to the last byte, of the attribute that decides access, with the
/// right length, and of attributes that clients may get.
fn is_well_formed(record: &Record<'_>) -> bool {
    let is_for_clients = |kind| kind == attr::DEFER || group_of(kind).is_some();
    let size = |len: usize| (size_of::<record::AttrHeader>() + len).next_multiple_of(8);
    let mut attributes = record.attributes();
    let is_access = attributes
        .next()
        .is_some_and(|first| first.kind == attr::ACCESS && first.payload.len() == size_of::<record::Access>());
    let mut end = FIELDS_START;
    is_access
        && attributes.all(|attribute| {
            end += size(attribute.payload.len());
            is_for_clients(attribute.kind)
        })
        && end == record.as_bytes().len()
}

/// Whether a record can be copied: the client may see everything but what decides access, and no id
/// needs mapping.
fn can_copy(request: &Request, viewer: &Viewer, allowed: &Allowed, object: &Object<'_>, record: &Record<'_>) -> bool {
    let wanted = request.groups();
    let (access, sight) = (object.access(), allowed.sight);
    allowed.groups == groups_to_read(request)
        && (sight.nice || !wanted.contains(Group::Cpu))
        && (sight.attach || !wanted.contains(Group::Layout))
        && (sight.files || !wanted.contains(Group::Fds))
        && access.user_ns_level.get() == 0
        && access.mm_user_ns_level.get() == 0
        && viewer.users.is_identity()
        && viewer.groups.is_identity()
        && is_well_formed(record)
}

/// Splits a record that can be copied into the header of the copy and its fields.
fn split_copy<'a>(record: &Record<'a>) -> (record::Header, &'a [u8]) {
    let rest = &record.as_bytes()[FIELDS_START..];
    let header = record::Header {
        len: U32::new((size_of::<record::Header>() + rest.len()) as u32),
        ..*record.header()
    };
    (header, rest)
}

/// Everything before the fields in a message that copies a record.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct CopyHeader {
    message: wire::MessageHeader,
    task: TaskHeader,
    attribute: wire::AttributeHeader,
    record: record::Header,
}

/// Appends a message that copies a record. Most messages do, so it is made in one go.
fn put_copy(record: Record<'_>, out: &mut Vec<u8>) {
    let (record_header, fields) = split_copy(&record);
    let len = size_of::<CopyHeader>() + fields.len();
    let record_len = size_of::<wire::AttributeHeader>() + size_of::<record::Header>() + fields.len();
    let header = CopyHeader {
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
        record: record_header,
    };
    out.reserve(len);
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(fields);
}

/// Appends what the client may see of a record: without what decides access.
fn put_record(
    request: &Request,
    viewer: &Viewer,
    allowed: &Allowed,
    object: &Object<'_>,
    record: Record<'_>,
    out: &mut Vec<u8>,
) {
    if can_copy(request, viewer, allowed, object, &record) {
        let (header, fields) = split_copy(&record);
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(fields);
        return;
    }
    let mut header = *record.header();
    let mut flags = header.flags.get();
    let mut writer = record::Writer::new(out);
    for attribute in record.attributes() {
        if attribute.kind == attr::DEFER {
            if !put_deferred(allowed, record, attribute.flags, &mut writer) {
                flags &= !record::DEFERRED;
            }
        } else if group_of(attribute.kind).is_some_and(|group| allowed.groups.contains(group)) {
            put_attribute(viewer, allowed.sight, record, &attribute, &mut writer);
        }
        // What decides access, and anything not known to be for clients, is left out.
    }
    let absent = absent_fields(request.groups(), allowed);
    if !absent.is_empty() {
        flags |= record::HAS_ABSENT;
        writer.put(attr::ABSENT, 0, absent.as_bytes());
    }
    header.flags = U32::new(flags);
    writer.finish(header);
}

/// Appends the groups that BPF deferred and that the client may see. Returns whether there are any.
fn put_deferred(allowed: &Allowed, record: Record<'_>, flags: u16, writer: &mut record::Writer<'_>) -> bool {
    let deferred = record.get::<record::Defer>(attr::DEFER);
    let groups = deferred.map_or(0, |deferred| deferred.groups.get()) & allowed.groups.0;
    if groups != 0 {
        let deferred = record::Defer {
            groups: U32::new(groups),
            reserved: U32::new(0),
        };
        writer.put(attr::DEFER, flags, deferred.as_bytes());
    }
    groups != 0
}

/// Appends an attribute of a group that the client may see, with ids as its namespace shows them
/// and without the fields that need another right.
fn put_attribute(
    viewer: &Viewer,
    sight: Sight,
    record: Record<'_>,
    attribute: &Attribute<'_>,
    writer: &mut record::Writer<'_>,
) {
    let kind = attribute.kind;
    let mut put = |payload: &[u8]| writer.put(kind, attribute.flags, payload);
    match kind {
        attr::CRED => {
            if let Some(cred) = record.get::<record::Cred>(kind) {
                put(mapped(*cred, viewer).as_bytes());
            }
        }
        attr::GROUPS => {
            let ids = attribute.payload.chunks_exact(4);
            let ids = ids.map(|id| u32::from_ne_bytes(id.try_into().expect("four bytes")));
            let ids: Vec<u32> = ids.map(|id| viewer.groups.munged(id)).collect();
            put(ids.as_bytes());
        }
        attr::AUDIT => {
            if let Some(audit) = record.get::<record::Audit>(kind) {
                let loginuid = viewer.users.get(audit.loginuid.get()).unwrap_or(u32::MAX);
                let loginuid = U32::new(loginuid);
                put(record::Audit { loginuid, ..*audit }.as_bytes());
            }
        }
        attr::CPU if !sight.nice => {
            if let Some(cpu) = record.get::<record::Cpu>(kind) {
                let timer_slack_ns = U64::new(0);
                put(record::Cpu { timer_slack_ns, ..*cpu }.as_bytes());
            }
        }
        attr::FDS if !sight.files => {
            if let Some(fds) = record.get::<record::Fds>(kind) {
                let fd_count = U32::new(0);
                put(record::Fds { fd_count, ..*fds }.as_bytes());
            }
        }
        attr::PERSONALITY if !sight.attach => {}
        _ => put(attribute.payload),
    }
}

/// Credentials with ids as the client's namespace shows them.
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

/// The fields that a client asked for and does not get.
fn absent_fields(wanted: Groups, allowed: &Allowed) -> Vec<AbsentField> {
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
    let reason = |field: &Field| {
        if allowed.lacks.contains(field.group()) {
            Absent::Unsupported
        } else {
            Absent::Denied
        }
    };
    let entry = |field: &Field| AbsentField {
        field: U16::new(*field as u16),
        reason: U16::new(reason(field) as u16),
    };
    fields.map(entry).collect()
}
