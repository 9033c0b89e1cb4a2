//! The records of mappings of processes, and the memory of the program that writes them
//! (`bpf/vma.bpf.c` of `taskdiag-bpf`).

use super::define::{constants, enumerations, memory};
use super::files::{Match, MATCHES};

constants! {
    prefix "TD_VMA_";

    /// A flag of a record. The first four are those of PROCMAP_QUERY.
    READ: u16 = 1 << 0;
    /// A flag of a record.
    WRITE: u16 = 1 << 1;
    /// A flag of a record.
    EXEC: u16 = 1 << 2;
    /// A flag of a record: VM_MAYSHARE.
    SHARED: u16 = 1 << 3;
    /// A flag of a record: the mapping is of a file. The lower bits are its permissions.
    FILE: u16 = 1 << 5;
    /// A flag of a record: only the text of the maps file has the right values. Read it for all
    /// mappings of the process.
    DEFER: u16 = 1 << 9;
    /// A flag of a record: it is not a mapping. Apart from the mappings that have records, the
    /// process maps none of the files to look for.
    NO_OTHER: u16 = 1 << 10;

    /// The number of processes that are read together, so that the processor's waits for their
    /// memory overlap.
    BLOCK: usize = 64;
    /// The maximum number of addresses of a run.
    ADDRESSES: usize = 4096;
    /// The size of the memory for records.
    RECORDS: usize = 512 << 10;
    /// The room there that is kept free for the next record: more than any takes.
    ROOM: usize = 1024;
    /// The length of the cache of recent names, before the map `names`.
    RECENT: usize = 128;
}

enumerations! {
    /// What the program does.
    enum td_vma_op "TD_VMA_" as op: u32 {
        /// List the mappings of all processes.
        MACHINE = 0,
        /// List the mappings of the address space of an open maps file.
        LIST = 1,
        /// Look up the mappings there that contain some addresses.
        LOOK_UP = 2,
        /// Check that the mappings there have not changed since the last operation.
        CHECK = 3,
    }

    /// How a run ended.
    enum td_vma_state "TD_VMA_" as state: u32 {
        /// The structures of this kernel are not as expected.
        NOWHERE = 0,
        /// There is more: fetch the records and run the program again.
        GOES_ON = 1,
        ENDED = 2,
        /// Mappings changed during the run, so the records are invalid.
        CHANGED = 3,
        /// The address space of the maps file is gone.
        GONE = 4,
    }
}

memory! {
    /// A mapping, followed by its name.
    struct td_vma as Record {
        /// Of the whole record, a multiple of eight.
        len: u32,
        /// Thread-group id.
        pid: u32,
        /// Not 0: the id of its name, which does not follow then.
        name_id: u32,
        flags: u16,
        /// Of the name that follows.
        name_len: u16,
        start: u64, end: u64, offset: u64, inode: u64, dev_major: u32, dev_minor: u32,
        /// 0: unknown.
        page_size: u64,
    }

    /// What identifies the name of a file during a pass.
    struct td_vma_name_key as NameKey {
        mount: u64, dentry: u64, parent: u64,
        /// Of the last component of the path.
        hash_len: u64,
        inode: u64, device: u32,
        /// 1: deleted.
        unhashed: u32,
    }

    struct td_vma_name as NameId { epoch: u32, id: u32 }

    struct td_vma_recent as RecentName { key: NameKey, name: NameId }

    /// The memory of the program: the settings and results of a pass, and the state of a walk. It
    /// belongs to one handle, and serves one reader at a time.
    struct td_vma_walk as Settings {
        /// Only mappings with all of these flags. This and the next members are set by the library
        /// before a pass.
        filter: u32,
        /// Entries of `names` with another epoch are outdated.
        epoch: u32,
        /// 1: names are wanted.
        names: u32,
        /// Of this host.
        page_shift: u32,
        /// FMODE_BACKING of this kernel: a file with it backs an open file of another file system.
        backing_mode: u32,
        /// 1: the pass found process 1. This and the next members are set by the program.
        saw_init: u32,
        next_name: u32,
        /// The process that is read.
        pid: u32,
        /// Set by the library. If there are any, mappings of other files have no records, and each
        /// process that was read has a record with `NO_OTHER` at its end.
        matches_count: u32,
        reserved: u32,
        matches: [Match; MATCHES],
    } then Position {
        /// One of `op`.
        op: u32,
        /// Of the maps file.
        fd: u32,
        /// Of addresses.
        count: u32,
        /// The number of blocks of processes to read in a run.
        blocks: u32,
        /// One of `state`.
        state: u32,
        /// Bytes of records.
        filled: u32,
        /// The process that was visited last.
        cursor: u32,
        /// The number of entries of `tasks`.
        found: u32,
        /// For pid_idr_leaf().
        pid_leaf_end: u32,
        /// Where the records of the current process start.
        process_start: u32,
        /// The index of the last slot in use of `leaf`.
        leaf_end: u32,
        /// 1: `branch` is the parent of `leaf`.
        has_branch: u32,
        /// How many may still be read in this run.
        leaves: u32,
        has_leaf: u32,
        /// Which slots of `leaf` are read.
        slot: u32, slots_count: u32,
        address: u64,
        /// The process and the address space that are being read, and the sequence of mmap_lock at
        /// the start.
        task: u64, mm: u64, start_ns: u64, exec_id: u64, sequence: u64,
        /// The address at which to continue; 0 at the start.
        from: u64,
        root: u64, branch_max: u64, leaf_max: u64,
        /// The end of the mapping or gap that was read last.
        looked_up: u64,
    } then Arrays {
        tasks: [u64; BLOCK], slots: [u64; BLOCK], pids: [u32; BLOCK],
        /// Copies of two nodes of the maple tree.
        branch: [u64; 32], leaf: [u64; 32],
        recent: [RecentName; RECENT],
        /// In ascending order.
        addresses: [u64; ADDRESSES],
        records: [u8; RECORDS],
    }
}

impl Settings {
    /// Begins a pass, and forgets the names of earlier passes.
    pub fn begin(&mut self, filter: u32, names: bool) {
        self.filter = filter;
        self.names = names.into();
        self.matches_count = 0;
        self.epoch = self.epoch.wrapping_add(1).max(1);
    }
}
