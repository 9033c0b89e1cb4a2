//! The records of files that processes use, and the memory of the program that writes them
//! (`bpf/files.bpf.c` of `taskdiag-bpf`).

use zerocopy::IntoBytes as _;

use super::define::{constants, enumerations, memory};

constants! {
    prefix "TD_FILE_";

    /// A flag of a record: only procfs has the right stat(2) values.
    DEFER_STAT: u16 = 1;
    /// A flag of a record: only procfs has the right name.
    DEFER_NAME: u16 = 2;
    /// A flag of a record: only procfs has the right values; nothing else in the record is valid. In
    /// the record of a process: for all its files, and no records follow.
    DEFER_ALL: u16 = 4;
    /// A flag of a record: only procfs knows how much space the file takes.
    DEFER_SPACE: u16 = 8;
    /// A flag of a record that ends a process: threads may have directories or descriptors of their
    /// own.
    DEFER_THREADS: u16 = 16;

    /// The maximum number of files to look for.
    MATCHES: usize = 8;
    /// The maximum number of processes in a list.
    LISTED: usize = 1024;
    /// The longest path that the program builds.
    PATH: usize = 1024;
    /// The size of the memory for records.
    RECORDS: usize = 512 << 10;
    /// The room there that is kept free for the next record: more than any takes.
    ROOM: usize = 2048;
}

enumerations! {
    /// What a record is about.
    enum td_file_use "TD_FILE_" as used_as: u16 {
        FD = 0,
        CWD = 1,
        ROOT = 2,
        EXE = 3,
        /// The records of a process begin, or continue in another run. It started at `start_ns`.
        PROCESS = 16,
        /// The records of a process are complete, except `DEFER_THREADS`.
        END = 17,
    }

    /// What to read about a file.
    enum td_file_wants "TD_FILE_" as wants: u32 {
        NAMES = 1,
        FLAGS = 2,
        STAT = 4,
        SPACE = 16,
    }

    /// How the text that follows a record becomes the name of the file.
    enum td_file_name "TD_NAME_" as name: u8 {
        NONE = 0,
        /// It is the name.
        WHOLE = 1,
        /// "socket:[", inode, "]".
        SOCKET = 2,
        /// "pipe:[", inode, "]".
        PIPE = 3,
        /// "anon_inode:", text.
        ANON = 4,
        /// "/", text, " (deleted)".
        SIMPLE = 5,
    }

    /// How a run ended.
    enum td_files_state "TD_FILES_" as state: u32 {
        /// The structures of this kernel are not as expected.
        NOWHERE = 0,
        /// There is more: fetch the records and run the program again.
        GOES_ON = 1,
        ENDED = 2,
    }
}

memory! {
    /// A file to look for, by the kernel's device and inode numbers.
    struct td_file_match as Match { dev_major: u32, dev_minor: u32, inode: u64 }

    /// A file that a process uses, followed by a text.
    struct td_file as Record {
        /// Of the whole record, a multiple of eight.
        len: u32,
        /// Of the process in the list.
        index: u32,
        fd: u32,
        /// One of `used_as`.
        used_as: u16,
        flags: u16,
        /// Of a descriptor, with O_CLOEXEC; of a process whether it is dumpable, plus 1.
        open_flags: u32,
        mnt_id: u32,
        /// Of a descriptor.
        offset: i64,
        size: u64, inode: u64, dev_major: u32, dev_minor: u32, nlink: u32,
        /// As stat(2) returns it.
        mode: u16,
        /// One of `name`.
        name: u8,
        reserved: u8,
        /// Of the text that follows.
        name_len: u32,
        reserved2: u32,
        start_ns: u64,
    }

    /// The memory of the program. It belongs to one handle, and serves one reader at a time.
    struct td_files_walk as Position {
        /// Bits of `wants`. This and the next members are set by the library.
        wants: u32,
        /// A bit for each of `used_as`.
        uses: u32,
        /// How many processes are listed.
        listed: u32,
        /// The number of steps between two looks at the clock.
        check_every: u32,
        max_run_ns: u64,
        /// A test that rules out files: a bit for each type, S_IFMT >> 12, and 0 for none. This and
        /// `deleted` are not tested where stat(2) may differ from the inode. `matches` are always
        /// tested: they name only files on file systems where the two agree.
        types: u32,
        /// 1: only files without a link.
        deleted: u32,
        matches_count: u32,
        /// 1: this run has read something. Set by the program.
        has_advanced: u32,
        matches: [Match; MATCHES],
        /// Where to continue: the process, an index of `list`.
        next: u32,
        /// Its next descriptor.
        fd: u32,
        /// 1: its other files have been read.
        has_links: u32,
        /// One of `state`. This and the next members are set by the program.
        state: u32,
        /// Bytes of records.
        filled: u32,
        steps: u32, next_check: u32, attempts: u32, run_start_ns: u64, longest_run_ns: u64,
        address: u64,
        /// The descriptors of the process that is being read.
        slots: u64, open_fds: u64, close_on_exec: u64,
        /// Of `open_fds`.
        word: u64,
        max_fds: u32, leaf_end: u32, process_filled: u32, process_fd: u32, process_has_links: u32,
        /// In the path that is being built, starting at its end.
        position: u32,
        mount: u64, dentry: u64, root_mount: u64, root_dentry: u64, arrived: u32, reserved: u32,
        /// Set by the library. Not 0: pids, times and paths are those that this task sees instead of
        /// the caller (Linux 6.2).
        as_task: u64,
    } then Arrays {
        /// For a word of `open_fds`: the slots, read twice, and the inodes that they lead to.
        word_slots: [u64; 64], word_again: [u64; 64], word_inodes: [u64; 64],
        /// The inode that this run looked at last and that is not in `matches`.
        other_inode: u64,
        path: [u8; PATH + 256], list: [u32; LISTED], records: [u8; RECORDS],
    }
}

impl Record {
    /// Appends the record and its text for another process. Leaves out the index in the list, and
    /// writes zeros after the text, where the program's memory holds bytes of earlier records.
    pub fn put(&self, text: &[u8], out: &mut Vec<u8>) {
        let len = (size_of::<Record>() + text.len()).next_multiple_of(8);
        let record = Record {
            len: len as u32,
            index: 0,
            name_len: text.len() as u32,
            reserved: 0,
            reserved2: 0,
            ..*self
        };
        let end = out.len() + len;
        out.extend_from_slice(record.as_bytes());
        out.extend_from_slice(text);
        out.resize(end, 0);
    }
}
