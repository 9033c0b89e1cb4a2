//! The record: the bytes that describe one task, in every source, message and snapshot. This is the
//! Rust side of `bpf/record.h`.
//!
//! Decoding takes bytes and returns references into them. Any bytes are safe to decode: what does
//! not fit is left out. The structures have an alignment of 1, so a record may be at any address.

// zerocopy's derives make helper types that have no Debug.
#![allow(missing_debug_implementations)]

use zerocopy::native_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The version of the record: changes with its layout and with the meaning of its fields. Equal to
/// `TD_ABI`.
pub const ABI: u32 = 6;

/// The task is a kernel thread.
pub const KERNEL_THREAD: u32 = 1 << 0;
/// The task has no address space.
pub const NO_MM: u32 = 1 << 1;
/// The source could not answer some groups exactly; a `DEFER` attribute names them.
pub const DEFERRED: u32 = 1 << 2;
/// An `ABSENT` attribute names fields that are missing, each with its reason.
pub const HAS_ABSENT: u32 = 1 << 3;
/// The record has no values: while the task was being read, its id became free or another task's.
/// The process has to be read again, in another way.
pub const AGAIN: u32 = 1 << 4;
/// The record is no task: the program did not find the memory of its reader.
pub const NO_READER: u32 = 1 << 5;

/// The types of attributes.
#[allow(missing_docs)]
pub mod attr {
    pub const BASE: u16 = 1;
    pub const NAME: u16 = 2;
    pub const TTY: u16 = 3;
    pub const CRED: u16 = 4;
    pub const GROUPS: u16 = 5;
    pub const CPU: u16 = 6;
    pub const AFFINITY: u16 = 7;
    pub const FAULTS: u16 = 8;
    pub const MEM: u16 = 9;
    pub const ARGS: u16 = 10;
    pub const RUN: u16 = 11;
    pub const OOM: u16 = 12;
    pub const NAMESPACES: u16 = 13;
    pub const NSPIDS: u16 = 14;
    pub const CGROUP: u16 = 15;
    pub const CGROUP_PATH: u16 = 16;
    pub const DEFER: u16 = 17;
    pub const ABSENT: u16 = 18;
    pub const IO: u16 = 20;
    pub const SIGNALS: u16 = 21;
    pub const LIMITS: u16 = 22;
    pub const ENV: u16 = 23;
    pub const EXE: u16 = 24;
    pub const CWD: u16 = 25;
    pub const ROOT: u16 = 26;
    pub const UMASK: u16 = 27;
    pub const FDS: u16 = 28;
    pub const AUDIT: u16 = 29;
    pub const LAYOUT: u16 = 30;
    pub const PERSONALITY: u16 = 31;
    pub const ROLLUP: u16 = 32;
    pub const WCHAN: u16 = 33;
    pub const SECURITY_LABEL: u16 = 34;
    pub const ACCESS: u16 = 1024;
    pub const VIEW: u16 = 1025;
    pub const USER_NS: u16 = 1026;
    pub const MM_USER_NS: u16 = 1027;
    /// The value of a derived field, which is in the flags. The library makes these: they are in no other program's records.
    pub const DERIVED: u16 = 2048;
}

/// Defines structures without padding or alignment, which BPF programs write.
#[macro_export]
macro_rules! wire {
    ($($(#[$meta:meta])* $name:ident { $($field:ident: $ty:ty),* $(,)? })*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        #[allow(missing_docs)]
        pub struct $name { $(pub $field: $ty),* }

        impl $name {
            /// The members and their offsets, for the test that compares them with the C structure.
            pub const MEMBERS: &'static [(&'static str, usize)] =
                &[$((stringify!($field), std::mem::offset_of!($name, $field))),*];
        }
    )* };
}
pub use crate::wire;

wire! {
    /// `struct td_record`.
    Header { len: U32, flags: U32, pid: U32, tid: U32, start_ns: U64 }
    /// `struct td_attr`.
    AttrHeader { len: U32, kind: U16, flags: U16 }
    /// `struct td_base`.
    Base {
        ppid: U32, tracer_pid: U32, pgid: U32, sid: U32, exit_signal: I32, threads_count: U32, state: u8,
        reserved: [u8; 3], flags: U32, comm: [u8; 16],
    }
    /// `struct td_tty`.
    Tty { tty_nr: U32, tpgid: I32 }
    /// `struct td_cred`.
    Cred {
        uid: U32, euid: U32, suid: U32, fsuid: U32, gid: U32, egid: U32, sgid: U32, fsgid: U32,
        cap_inheritable: U64, cap_permitted: U64, cap_effective: U64, cap_bounding: U64, cap_ambient: U64,
        no_new_privs: U32, seccomp: U32,
    }
    /// `struct td_cpu`.
    Cpu {
        utime_ns: U64, stime_ns: U64, cutime_ns: U64, cstime_ns: U64, runtime_ns: U64, run_delay_ns: U64,
        voluntary_switches: U64, involuntary_switches: U64, nice: I32, priority: I32, rt_priority: U32, policy: U32,
        cpu: U32, reserved: U32, sum_exec_runtime: U64, prev_utime: U64, prev_stime: U64, guest_ns: U64, cguest_ns: U64,
        block_delay_ns: U64, timer_slack_ns: U64, timeslices_count: U64,
    }
    /// `struct td_run`.
    Run { runtime_ns: U64, switches: U64 }
    /// `struct td_faults`.
    Faults { min_faults: U64, maj_faults: U64, child_min_faults: U64, child_maj_faults: U64 }
    /// `struct td_mem`.
    Mem {
        vsize_bytes: U64, rss_anon_bytes: U64, rss_file_bytes: U64, rss_shmem_bytes: U64, swap_bytes: U64,
        peak_vsize_bytes: U64, peak_rss_bytes: U64, text_bytes: U64, data_bytes: U64, stack_bytes: U64, lib_bytes: U64,
        locked_bytes: U64, pinned_bytes: U64, page_table_bytes: U64, hugetlb_bytes: U64,
    }
    /// `struct td_oom`.
    Oom { oom_score_adj: I32, oom_score: I32 }
    /// `struct td_namespaces`.
    Namespaces {
        ns_pid: U64, ns_pid_for_children: U64, ns_mnt: U64, ns_net: U64, ns_user: U64, ns_uts: U64, ns_ipc: U64,
        ns_cgroup: U64, ns_time: U64,
    }
    /// `struct td_cgroup`.
    Cgroup { cgroup_id: U64 }
    /// `struct td_io`.
    Io {
        read_chars: U64, write_chars: U64, read_syscalls: U64, write_syscalls: U64, read_bytes: U64, write_bytes: U64,
        cancelled_write_bytes: U64,
    }
    /// `struct td_signals`.
    Signals {
        sig_pending: U64, sig_shared_pending: U64, sig_blocked: U64, sig_ignored: U64, sig_caught: U64, sig_queued_count: U64,
    }
    /// A resource limit: one element of `struct td_limits`.
    Limit { soft: U64, hard: U64 }
    /// An attribute that is one number: `UMASK`, `PERSONALITY`.
    Number { number: U32 }
    /// `struct td_fds`.
    Fds { fd_count: U32, fd_table_size: U32 }
    /// `struct td_audit`.
    Audit { loginuid: U32, audit_session: U32 }
    /// `struct td_layout`.
    Layout {
        start_code: U64, end_code: U64, start_data: U64, end_data: U64, start_brk: U64, start_stack: U64, arg_start: U64,
        arg_end: U64, env_start: U64, env_end: U64,
    }
    /// `struct td_rollup`.
    Rollup {
        rss_bytes: U64, pss_bytes: U64, pss_dirty_bytes: U64, pss_anon_bytes: U64, pss_file_bytes: U64, pss_shmem_bytes: U64,
        shared_clean_bytes: U64, shared_dirty_bytes: U64, private_clean_bytes: U64, private_dirty_bytes: U64,
        referenced_bytes: U64, anonymous_bytes: U64, ksm_bytes: U64, lazyfree_bytes: U64, anon_huge_bytes: U64,
        shmem_huge_bytes: U64, file_huge_bytes: U64, shared_hugetlb_bytes: U64, private_hugetlb_bytes: U64, swap_bytes: U64,
        swap_pss_bytes: U64, locked_bytes: U64, age_ns: U64,
    }
    /// `struct td_access`.
    Access {
        uid: U32, euid: U32, suid: U32, fsuid: U32, gid: U32, egid: U32, sgid: U32, fsgid: U32,
        cap_permitted: U64, cap_effective: U64, exec_id: U64, landlock: U64, mm: U64, user_ns: U32, mm_user_ns: U32,
        user_ns_level: U32, mm_user_ns_level: U32, dumpable: U32, flags: U32,
    }
    /// `struct td_user_ns`.
    UserNs { inode: U32, owner: U32 }
    /// `struct td_view`.
    View {
        task: U64, root_mount: U64, root_dentry: U64, boottime_ns: U64, pid_ns: U32, mnt_ns: U32, cgroup_ns: U32,
        has_namespaces: U32, security: [U64; 32],
    }
    /// `struct td_test`.
    KernelTest { what: U32, relation: U16, clause: U16, value: [U64; 2], mask: [U64; 2] }
    /// `struct td_defer`.
    Defer { groups: U32, reserved: U32 }
    /// `struct td_absent`.
    AbsentField { field: U16, reason: U16 }
}

/// A bit of the program's constant `td_groups`: the program can be given tests.
pub const TESTABLE: u32 = 1 << 31;

/// A bit of `groups`: what decides who may see a task, for the broker.
pub const GROUP_ACCESS: u32 = 1 << 30;

/// A bit of `groups`: what a task itself can see, for the broker.
pub const GROUP_VIEW: u32 = 1 << 29;

/// A flag of an `ACCESS` attribute: its values did not change while the record was written.
pub const ACCESS_STABLE: u32 = 1;

/// Who may dump the memory of a task, in an `ACCESS` attribute: `enum td_dumpable`.
#[allow(missing_docs)]
pub mod dumpable {
    pub const NOT: u32 = 0;
    pub const USER: u32 = 1;
    pub const ROOT: u32 = 2;
    pub const NO_MM: u32 = 3;
    pub const NO_MM_INIT: u32 = 4;
}

/// The maximum number of tests of a pass: `TD_TESTS`.
pub const TESTS: usize = 16;

/// The values that a test can look at: `enum td_value`.
#[allow(missing_docs)]
pub mod value {
    pub const PID: u32 = 1;
    pub const TID: u32 = 2;
    pub const PPID: u32 = 3;
    pub const PGID: u32 = 4;
    pub const SID: u32 = 5;
    pub const STATE: u32 = 6;
    pub const COMM: u32 = 7;
    pub const THREADS_COUNT: u32 = 8;
    pub const KERNEL_THREAD: u32 = 9;
    pub const TTY_NR: u32 = 10;
    pub const UID: u32 = 11;
    pub const EUID: u32 = 12;
    pub const SUID: u32 = 13;
    pub const FSUID: u32 = 14;
    pub const GID: u32 = 15;
    pub const EGID: u32 = 16;
    pub const SGID: u32 = 17;
    pub const FSGID: u32 = 18;
    pub const NICE: u32 = 19;
    pub const POLICY: u32 = 20;
    pub const OOM_SCORE_ADJ: u32 = 21;
    pub const CGROUP: u32 = 22;
}

/// The number of resource limits: `TD_LIMITS`.
pub const LIMITS: usize = 16;

/// Stands for a number that the kernel does not have. In a number of 32 bits, the lower half does.
pub const NO_NUMBER: u64 = u64::MAX;

/// Whether a task kept its namespaces and files while its view was read: `enum td_has_namespaces`.
#[allow(missing_docs)]
pub mod has_namespaces {
    pub const NOWHERE: u32 = 0;
    pub const WHOLE: u32 = 1;
    pub const CHANGED: u32 = 2;
}

/// A flag of a `CPU` attribute: `utime_ns` and `stime_ns` are tick counts, not yet scaled to the
/// exact run time.
pub const CPU_UNSCALED: u16 = 1;

impl Mem {
    /// The sum of the resident parts. Any broker may have written them, so it does not overflow.
    pub fn rss_bytes(&self) -> u64 {
        let parts = [self.rss_anon_bytes, self.rss_file_bytes, self.rss_shmem_bytes];
        parts.iter().fold(0, |sum, part| part.get().saturating_add(sum))
    }
}

impl Cpu {
    /// User and system time as the kernel reports them.
    ///
    /// This is `cputime_adjust()` of `kernel/sched/cputime.c`: the exact run time is divided into
    /// user and system time as the ticks were, and neither part may decrease.
    pub fn scaled_times(&self) -> (u64, u64) {
        let (prev_utime, prev_stime) = (self.prev_utime.get(), self.prev_stime.get());
        let runtime = self.sum_exec_runtime.get();
        if prev_utime.saturating_add(prev_stime) >= runtime {
            return (prev_utime, prev_stime);
        }
        let (utime, stime) = (self.utime_ns.get(), self.stime_ns.get());
        let scaled = match (utime, stime) {
            (_, 0) => 0,
            (0, _) => runtime,
            _ => (u128::from(stime) * u128::from(runtime) / (u128::from(stime) + u128::from(utime))) as u64,
        };
        let stime = scaled.min(runtime).max(prev_stime);
        let utime = runtime.saturating_sub(stime);
        if utime < prev_utime {
            return (prev_utime, runtime - prev_utime);
        }
        (utime, stime)
    }
}

/// One record: a header, followed by attributes.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    bytes: &'a [u8],
    header: &'a Header,
    attributes: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record at the start of `bytes`, and the bytes after it. `None` unless there is a whole
    /// record.
    pub fn split_first(bytes: &'a [u8]) -> Option<(Record<'a>, &'a [u8])> {
        let (header, _) = Header::ref_from_prefix(bytes).ok()?;
        let len = header.len.get() as usize;
        if len < size_of::<Header>() || len % 8 != 0 || len > bytes.len() {
            return None;
        }
        let (record, rest) = bytes.split_at(len);
        let attributes = &record[size_of::<Header>()..];
        let found = Record {
            bytes: record,
            header,
            attributes,
        };
        Some((found, rest))
    }

    /// The records in `bytes`. Ends before the first that is not whole.
    pub fn each(bytes: &'a [u8]) -> impl Iterator<Item = Record<'a>> {
        let mut rest = bytes;
        std::iter::from_fn(move || {
            let (record, after) = Record::split_first(rest)?;
            rest = after;
            Some(record)
        })
    }

    /// The bytes of the whole record.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The header.
    pub fn header(&self) -> &'a Header {
        self.header
    }

    /// Whether any of `flags` is set.
    pub fn has(&self, flags: u32) -> bool {
        self.header.flags.get() & flags != 0
    }

    /// All attributes, in order.
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes { bytes: self.attributes }
    }

    /// The first attribute of this type.
    pub fn attribute(&self, kind: u16) -> Option<Attribute<'a>> {
        self.attributes().find(|attribute| attribute.kind == kind)
    }

    /// The payload of the first attribute of this type, as a `T`. A newer writer's payload may be
    /// longer.
    pub fn get<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self, kind: u16) -> Option<&'a T> {
        Some(T::ref_from_prefix(self.attribute(kind)?.payload).ok()?.0)
    }
}

/// The payload of an attribute of the record at the start of `bytes`, for changes in place.
pub fn part_mut<T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned>(
    bytes: &mut [u8],
    kind: u16,
) -> Option<&mut T> {
    let (record, _) = Record::split_first(bytes)?;
    let start = record.as_bytes().as_ptr() as usize;
    let at = record.attribute(kind)?.payload.as_ptr() as usize - start;
    Some(T::mut_from_prefix(&mut bytes[at..]).ok()?.0)
}

/// One attribute.
#[derive(Clone, Copy, Debug)]
pub struct Attribute<'a> {
    /// The type, one of [`attr`].
    pub kind: u16,
    /// The flags, whose meaning depends on the type.
    pub flags: u16,
    /// The payload, without padding.
    pub payload: &'a [u8],
}

/// Iterates over attributes. Ends before the first that is not whole.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        let (header, rest) = AttrHeader::ref_from_prefix(self.bytes).ok()?;
        let len = header.len.get() as usize;
        let payload = rest.get(..len)?;
        self.bytes = rest.get(len.next_multiple_of(8)..).unwrap_or_default();
        Some(Attribute {
            kind: header.kind.get(),
            flags: header.flags.get(),
            payload,
        })
    }
}

/// Appends a record to a buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    /// Begins a record at the end of `buffer`.
    pub fn new(buffer: &'a mut Vec<u8>) -> Writer<'a> {
        let start = buffer.len();
        buffer.extend_from_slice(Header::default().as_bytes());
        Writer { buffer, start }
    }

    /// Appends an attribute.
    pub fn put(&mut self, kind: u16, flags: u16, payload: &[u8]) {
        let header = AttrHeader {
            len: U32::new(payload.len() as u32),
            kind: U16::new(kind),
            flags: U16::new(flags),
        };
        self.buffer.extend_from_slice(header.as_bytes());
        self.buffer.extend_from_slice(payload);
        let len = self.buffer.len() - self.start;
        self.buffer.resize(self.start + len.next_multiple_of(8), 0);
    }

    /// Writes the header, with the length filled in. This ends the record.
    pub fn finish(self, mut header: Header) {
        header.len = U32::new((self.buffer.len() - self.start) as u32);
        self.buffer[self.start..][..size_of::<Header>()].copy_from_slice(header.as_bytes());
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn cpu(utime: u64, stime: u64, runtime: u64, prev_utime: u64, prev_stime: u64) -> Cpu {
        Cpu {
            utime_ns: U64::new(utime),
            stime_ns: U64::new(stime),
            sum_exec_runtime: U64::new(runtime),
            prev_utime: U64::new(prev_utime),
            prev_stime: U64::new(prev_stime),
            ..Cpu::default()
        }
    }

    /// Check the corner cases of `cputime_adjust()`.
    #[test]
    fn ticks_are_scaled_to_run_time() {
        assert_eq!(cpu(0, 0, 100, 0, 0).scaled_times(), (100, 0));
        assert_eq!(cpu(4, 0, 100, 0, 0).scaled_times(), (100, 0));
        assert_eq!(cpu(0, 4, 100, 0, 0).scaled_times(), (0, 100));
        assert_eq!(cpu(3, 1, 100, 0, 0).scaled_times(), (75, 25));
        assert_eq!(cpu(3, 1, 100, 0, 60).scaled_times(), (40, 60));
        assert_eq!(cpu(1, 3, 100, 60, 0).scaled_times(), (60, 40));
        assert_eq!(cpu(3, 1, 100, 60, 40).scaled_times(), (60, 40));
        assert_eq!(cpu(3, 1, 90, 60, 40).scaled_times(), (60, 40));
    }

    proptest! {
        /// Check that times never decrease, and add up to the run time.
        #[test]
        fn times_never_decrease(utime: u64, stime: u64, runtime: u64, prev_utime in 0..u64::MAX / 2, prev_stime in 0..u64::MAX / 2) {
            let (user, system) = cpu(utime, stime, runtime, prev_utime, prev_stime).scaled_times();
            prop_assert!(user >= prev_utime);
            prop_assert!(system >= prev_stime);
            prop_assert_eq!(user + system, runtime.max(prev_utime + prev_stime));
        }

        /// Check that any bytes can be decoded: what does not fit is left out, and decoding ends.
        #[test]
        fn any_bytes_decode(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let mut rest = &bytes[..];
            while let Some((record, after)) = Record::split_first(rest) {
                prop_assert!(after.len() < rest.len());
                for attribute in record.attributes() {
                    prop_assert!(attribute.payload.len() <= bytes.len());
                }
                let _ = (record.get::<Cred>(attr::CRED), record.get::<Cpu>(attr::CPU));
                rest = after;
            }
        }

        /// Check that a record with a broken length decodes, though attributes may be missing.
        #[test]
        fn broken_lengths_decode(at in 0..200_usize, byte: u8) {
            let mut bytes = sample();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Some((record, _)) = Record::split_first(&bytes) {
                let _ = record.attributes().count();
            }
        }

        /// Check that a record decodes to what was written, with attributes of unknown types too.
        #[test]
        fn written_records_are_read(payloads in proptest::collection::vec((any::<u16>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..8)) {
            let mut bytes = vec![1, 2, 3];
            let mut writer = Writer::new(&mut bytes);
            for (kind, payload) in &payloads {
                writer.put(*kind, 7, payload);
            }
            writer.finish(Header { pid: U32::new(42), ..Header::default() });
            let (record, rest) = Record::split_first(&bytes[3..]).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert_eq!(record.header().pid.get(), 42);
            let read: Vec<_> = record.attributes().map(|attribute| (attribute.kind, attribute.payload.to_vec())).collect();
            prop_assert_eq!(read, payloads);
        }
    }

    fn sample() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.put(attr::BASE, 0, Base::default().as_bytes());
        writer.put(attr::ARGS, 0, b"sleep\x00100\x00");
        writer.put(attr::CRED, 0, Cred::default().as_bytes());
        writer.finish(Header::default());
        bytes
    }
}
