# The contents of the extension module. The attributes of Row are those of the field table.

from collections.abc import Iterable, Iterator
from os import PathLike
from typing import Any, Literal, Self, TypeAlias, final, overload

from typing_extensions import Buffer


_Source: TypeAlias = Literal["auto", "bpf", "procfs", "broker"]

_MapsSource: TypeAlias = Literal["auto", "procmap", "bpf", "procfs", "broker"]

def _before_fork() -> None: ...
def _after_fork_in_parent() -> None: ...
def _after_fork_in_child() -> None: ...

def maps(
    pid: int,
    *,
    build_ids: bool = False,
    go_build_ids: bool = False,
    usage: bool = False,
    executable: bool = False,
    file_backed: bool = False,
    source: _MapsSource = "auto",
    socket: str | PathLike[str] | None = None,
    patience: float | None = None,
) -> Table:
    """Return the mappings of a process, by address.

    `build_ids` adds the build ids of files, and `go_build_ids` those of Go's linker. `usage` adds how
    much is in memory; for this the kernel examines every page. `executable` and `file_backed` select only such mappings."""

def normalize(
    pid: int,
    addresses: Iterable[int] | Buffer,
    *,
    build_ids: bool = True,
    segments: bool = False,
    source: _MapsSource = "auto",
    socket: str | PathLike[str] | None = None,
    patience: float | None = None,
) -> Table:
    """Translate addresses of a process to offsets in files: one row for each, in the given order.
    An address outside of files has a reason: unmapped, anonymous, vdso or special. `segments` adds
    the address that symbols and debug information have, and that of its segment."""

def cachestat(
    path: str | bytes | PathLike[str],
    *,
    one_file_system: bool = False,
    source: Literal["auto", "cachestat", "mincore"] = "auto",
) -> Table:
    """Return the page cache of a file, or of each regular file below a directory."""

@final
class Handle:
    """Makes queries, and keeps what it has loaded, so reuse it. Threads may share a handle; they
    take turns. After fork(2), the child's copy loads everything again."""

    def __new__(
        cls, *, source: _Source = "auto", socket: str | PathLike[str] | None = None, patience: float | None = None
    ) -> Self: ...
    def processes(
        self,
        fields: Iterable[str] | str | None = None,
        *,
        where: str | None = None,
        pids: Iterable[int] | int | None = None,
        children_of: int | None = None,
        descendants_of: int | None = None,
        changed: bool = False,
        budget: float | None = None,
        patience: float | None = None,
    ) -> Table:
        """Query processes, as taskdiag.processes() does."""

    def threads(
        self,
        fields: Iterable[str] | str | None = None,
        *,
        where: str | None = None,
        pids: Iterable[int] | int | None = None,
        patience: float | None = None,
    ) -> Table:
        """Query threads, as taskdiag.threads() does."""

    def tree(
        self,
        pid: int | None = None,
        fields: Iterable[str] | str | None = None,
        *,
        where: str | None = None,
        patience: float | None = None,
    ) -> Table:
        """Query processes below their parents, as taskdiag.tree() does."""

    def memory(
        self,
        fields: Iterable[str] | str | None = None,
        *,
        where: str | None = None,
        pids: Iterable[int] | int | None = None,
        budget: float | None = None,
        max_rss_bytes: int | None = None,
        max_age: float | None = None,
        patience: float | None = None,
    ) -> Table:
        """Query the memory of processes, as taskdiag.memory() does."""

    def files(
        self,
        fields: Iterable[str] | str | None = None,
        *,
        where: str | None = None,
        pids: Iterable[int] | int | None = None,
        uses: Iterable[str] | str | None = None,
        kinds: Iterable[str] | str | None = None,
        deleted: bool = False,
        paths: Iterable[str | bytes | PathLike[str]] | str | bytes | PathLike[str] | None = None,
        patience: float | None = None,
    ) -> Table:
        """Query the files that processes use, as taskdiag.files() does."""

    def sockets(
        self,
        fields: Iterable[str] | str | None = None,
        *,
        where: str | None = None,
        pids: Iterable[int] | int | None = None,
        kinds: Iterable[str] | str | None = None,
        states: Iterable[str] | str | None = None,
        ports: Iterable[int] | int | None = None,
        listening: bool = False,
        info: bool = False,
        own_netns: bool = False,
        patience: float | None = None,
    ) -> Table:
        """Query the sockets of the machine, as taskdiag.sockets() does."""

    def prepare(self, fields: Iterable[str] | str | None = None) -> None:
        """Load the BPF programs for these fields now, or connect to the broker if only the broker
        may answer. Without this call, it happens once it pays off. Fails if the programs cannot be
        loaded; then procfs answers."""

    def close(self) -> None:
        """Release what is loaded. The handle cannot be used afterwards; tables can."""

    def __enter__(self) -> Self: ...
    def __exit__(self, class_: object, error: object, traceback: object, /) -> None: ...

@final
class Events(Iterator[Row]):
    """Forks, execs and exits as they happen: an iterator over rows. After close() it raises
    Closed. Ctrl-C interrupts it. One thread can read at a time. A child after fork(2) must open its
    own."""

    def __new__(
        cls,
        kinds: Iterable[str] | str | None = None,
        *,
        threads: bool = False,
        source: Literal["auto", "bpf", "connector"] = "auto",
        ring_bytes: int | None = None,
    ) -> Self: ...
    def read(self, timeout: float | None = None) -> Table | None:
        """Return waiting events; without any, wait up to `timeout` seconds, and return None if
        there are still none. No event is returned twice, by this or by the iterator."""

    @property
    def lost(self) -> int:
        """The minimum number of events lost since the stream was opened. While another thread reads,
        and after close(), the number that was known last."""

    @property
    def source(self) -> str:
        """The source of the events: bpf or connector."""

    def fileno(self) -> int:
        """Return a descriptor that poll(2) reports as readable while there are unread events."""

    def close(self) -> None:
        """Close the stream. Reading from it then raises Closed, also in a thread that waits for
        events."""

    def __enter__(self) -> Self: ...
    def __exit__(self, class_: object, error: object, traceback: object, /) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Row: ...

@final
class Table:
    """An answer: a column for each field, a row for each task. A table never changes."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""

    @property
    def sources(self) -> dict[str, str]:
        """The source that answered each group of fields, or why none did."""

    @property
    def counters(self) -> dict[str, int]:
        """Counters of what was lost, left out or read again."""

    @property
    def missing(self) -> list[int]:
        """Requested processes that do not exist or are hidden."""

    @property
    def nbytes(self) -> int:
        """The number of bytes that the columns take."""

    def column(self, name: str, *, absent: float | bool | None = None) -> Column:
        """Return a column. `absent` is a number to use for missing values."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as in the command's JSON: a missing value has no key, and its reason is
        in `absent`."""

    def arrow(self, *, reasons: bool = False, binary: bool = False) -> ArrowExport:
        """Return the table for Arrow: with a column NAME_absent for the reasons for each column's
        missing values, or with texts as exact bytes."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> Row: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[Row]: ...
    def __iter__(self) -> Iterator[Row]: ...

@final
class ArrowExport:
    """A table for Arrow, in the form that the caller chose."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class Column:
    """The values of one field. If none is missing, numpy and memoryview read numbers in place."""

    @property
    def name(self) -> str:
        """The name of the field."""

    @property
    def kind(self) -> str:
        """The kind of the values, with their unit."""

    @property
    def absent_count(self) -> int:
        """The number of missing values."""

    @property
    def valid(self) -> Column:
        """A column that is true where there is a value."""

    def reasons(self) -> list[str | None]:
        """Return why values are missing: a reason for each row, or None where there is a value."""

    def to_list(self) -> list[Any]:
        """Return the values; None for a missing one."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int | slice, /) -> Any: ...

@final
class Rows(Iterator[Row]):
    """An iterator over the rows of a table."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Row: ...
    def __length_hint__(self) -> int: ...

@final
class Row:
    """One row. A value is made when it is accessed; a missing one is None."""

    @property
    def absent(self) -> dict[str, str]:
        """The reasons for missing values, by field."""

    def to_dict(self) -> dict[str, Any]:
        """Return the row as in the command's JSON."""

    def __getitem__(self, name: str, /) -> Any: ...
    def __getattr__(self, name: str, /) -> Any: ...
    # Made by generate.py from the field table: begin
    @property
    def pid(self) -> int | None:
        """Process id: the thread-group id."""
    @property
    def tid(self) -> int | None:
        """Thread id. In an answer about processes, the process id."""
    @property
    def ppid(self) -> int | None:
        """Process id of the parent. 0 if it has no parent in the reader's pid namespace."""
    @property
    def tracer_pid(self) -> int | None:
        """Thread id of the tracer. 0 if the task is not traced."""
    @property
    def pgid(self) -> int | None:
        """Process group id."""
    @property
    def sid(self) -> int | None:
        """Session id."""
    @property
    def state(self) -> str | None:
        """State: R running, S sleeping, D uninterruptible sleep, I idle kernel thread, T stopped, t
        stopped by a tracer, P parked, Z zombie, X dead."""
    @property
    def comm(self) -> str | None:
        """Name of the program or thread, any bytes but NUL: at most 15, for kernel threads at most 63."""
    @property
    def start_ns(self) -> int | None:
        """Time from boot to the start of the task. BPF gives nanoseconds, procfs whole clock ticks (10
        ms). Negative for a task that is older than the zero of the reader's time namespace;
        unsupported in clients whose numbers are unsigned (C, Go, Python)."""
    @property
    def threads_count(self) -> int | None:
        """Number of threads in the process."""
    @property
    def kernel_thread(self) -> bool | None:
        """Whether the task is a kernel thread."""
    @property
    def flags(self) -> int | None:
        """Flags of the kernel: the PF_ constants of include/linux/sched.h, which change between
        kernels."""
    @property
    def exit_signal(self) -> int | None:
        """Signal that the parent gets when the task ends. -1 for a thread that does not lead its
        process."""
    @property
    def tty_nr(self) -> int | None:
        """Device number of the controlling terminal. 0 if it has none."""
    @property
    def tpgid(self) -> int | None:
        """Foreground process group of the controlling terminal."""
    @property
    def uid(self) -> int | None:
        """Real user id."""
    @property
    def euid(self) -> int | None:
        """Effective user id."""
    @property
    def suid(self) -> int | None:
        """Saved user id."""
    @property
    def fsuid(self) -> int | None:
        """File-system user id."""
    @property
    def gid(self) -> int | None:
        """Real group id."""
    @property
    def egid(self) -> int | None:
        """Effective group id."""
    @property
    def sgid(self) -> int | None:
        """Saved group id."""
    @property
    def fsgid(self) -> int | None:
        """File-system group id."""
    @property
    def cap_inheritable(self) -> int | None:
        """Inheritable capabilities."""
    @property
    def cap_permitted(self) -> int | None:
        """Permitted capabilities."""
    @property
    def cap_effective(self) -> int | None:
        """Effective capabilities."""
    @property
    def cap_bounding(self) -> int | None:
        """Capability bounding set."""
    @property
    def cap_ambient(self) -> int | None:
        """Ambient capabilities."""
    @property
    def no_new_privs(self) -> bool | None:
        """Whether execve(2) can no longer grant privileges."""
    @property
    def seccomp(self) -> int | None:
        """Seccomp mode: 0 off, 1 strict, 2 filter."""
    @property
    def seccomp_filters_count(self) -> int | None:
        """Number of seccomp filters, each of which looks at every system call."""
    @property
    def groups(self) -> list[int] | None:
        """Supplementary group ids."""
    @property
    def utime_ns(self) -> int | None:
        """Processor time in user mode, of all threads of the process, also of those that ended. In an
        answer about threads, of the one thread. procfs gives whole clock ticks."""
    @property
    def stime_ns(self) -> int | None:
        """Processor time in kernel mode, of all threads of the process, also of those that ended. In
        an answer about threads, of the one thread. procfs gives whole clock ticks."""
    @property
    def cutime_ns(self) -> int | None:
        """Processor time in user mode of children that ended and were waited for."""
    @property
    def cstime_ns(self) -> int | None:
        """Processor time in kernel mode of children that ended and were waited for."""
    @property
    def runtime_ns(self) -> int | None:
        """Time on a processor, of this thread alone. For a process, of its first thread."""
    @property
    def run_delay_ns(self) -> int | None:
        """Time spent waiting for a processor, of this thread alone."""
    @property
    def nice(self) -> int | None:
        """Nice value."""
    @property
    def priority(self) -> int | None:
        """The scheduler's priority: nice + 20, -2 to -100 for real-time tasks, -101 for
        SCHED_DEADLINE."""
    @property
    def rt_priority(self) -> int | None:
        """Real-time priority: 1 to 99. 0 for other tasks."""
    @property
    def policy(self) -> int | None:
        """Scheduling policy: 0 other, 1 fifo, 2 rr, 3 batch, 5 idle, 6 deadline, 7 ext."""
    @property
    def cpu(self) -> int | None:
        """Processor on which the task ran last."""
    @property
    def affinity(self) -> str | None:
        """Processors on which the task may run."""
    @property
    def voluntary_switches(self) -> int | None:
        """Voluntary context switches, of this thread alone."""
    @property
    def involuntary_switches(self) -> int | None:
        """Involuntary context switches, of this thread alone."""
    @property
    def guest_ns(self) -> int | None:
        """Time spent running virtual processors, which utime_ns includes. procfs gives whole clock
        ticks."""
    @property
    def cguest_ns(self) -> int | None:
        """Time spent running virtual processors, of children that ended and were waited for. procfs
        gives whole clock ticks."""
    @property
    def block_delay_ns(self) -> int | None:
        """Time spent waiting for block devices, of this thread alone. 0 where delay accounting is off.
        procfs gives whole clock ticks."""
    @property
    def timer_slack_ns(self) -> int | None:
        """By how much timers of the task may be late."""
    @property
    def timeslices_count(self) -> int | None:
        """How many times this thread got a processor."""
    @property
    def min_faults(self) -> int | None:
        """Page faults without I/O, of all threads of the process, also of those that ended. In an
        answer about threads, of the one thread."""
    @property
    def maj_faults(self) -> int | None:
        """Page faults with I/O, of all threads of the process, also of those that ended. In an answer
        about threads, of the one thread."""
    @property
    def child_min_faults(self) -> int | None:
        """Page faults without I/O of children that ended and were waited for."""
    @property
    def child_maj_faults(self) -> int | None:
        """Page faults with I/O of children that ended and were waited for."""
    @property
    def vsize_bytes(self) -> int | None:
        """Virtual memory: the size of all mappings."""
    @property
    def rss_bytes(self) -> int | None:
        """Resident memory: the sum of rss_anon_bytes, rss_file_bytes and rss_shmem_bytes."""
    @property
    def rss_anon_bytes(self) -> int | None:
        """Resident anonymous memory."""
    @property
    def rss_file_bytes(self) -> int | None:
        """Resident memory mapped from files."""
    @property
    def rss_shmem_bytes(self) -> int | None:
        """Resident shared memory."""
    @property
    def swap_bytes(self) -> int | None:
        """Swapped-out anonymous memory."""
    @property
    def peak_vsize_bytes(self) -> int | None:
        """The most virtual memory that the process has had."""
    @property
    def peak_rss_bytes(self) -> int | None:
        """The most resident memory that the process has had."""
    @property
    def text_bytes(self) -> int | None:
        """Size of the code of the executable."""
    @property
    def data_bytes(self) -> int | None:
        """Size of private writable mappings, without the stack."""
    @property
    def stack_bytes(self) -> int | None:
        """Size of the stack."""
    @property
    def lib_bytes(self) -> int | None:
        """Size of the code of shared libraries."""
    @property
    def locked_bytes(self) -> int | None:
        """Memory locked by mlock(2)."""
    @property
    def pinned_bytes(self) -> int | None:
        """Memory pinned for direct access by devices."""
    @property
    def page_table_bytes(self) -> int | None:
        """Size of the page tables."""
    @property
    def hugetlb_bytes(self) -> int | None:
        """Resident pages of hugetlbfs. No other field includes them."""
    @property
    def cmdline(self) -> list[str] | None:
        """Command line. The process can change it: a title and nothing but NULs behind it is one
        argument."""
    @property
    def oom_score_adj(self) -> int | None:
        """Adjustment of oom_score: -1000 never kill the process, 1000 kill it first."""
    @property
    def oom_score(self) -> int | None:
        """How likely the kernel is to kill the process when memory runs out."""
    @property
    def ns_pid(self) -> int | None:
        """Inode number of its pid namespace."""
    @property
    def ns_pid_for_children(self) -> int | None:
        """Inode number of the pid namespace in which its children start."""
    @property
    def ns_mnt(self) -> int | None:
        """Inode number of its mount namespace."""
    @property
    def ns_net(self) -> int | None:
        """Inode number of its network namespace."""
    @property
    def ns_user(self) -> int | None:
        """Inode number of its user namespace."""
    @property
    def ns_uts(self) -> int | None:
        """Inode number of its UTS namespace."""
    @property
    def ns_ipc(self) -> int | None:
        """Inode number of its IPC namespace."""
    @property
    def ns_cgroup(self) -> int | None:
        """Inode number of its cgroup namespace."""
    @property
    def ns_time(self) -> int | None:
        """Inode number of its time namespace."""
    @property
    def nspids(self) -> list[int] | None:
        """Its thread ids, one for each pid namespace from the reader's down to its own."""
    @property
    def cgroup_id(self) -> int | None:
        """Id of its cgroup in the unified (version 2) hierarchy."""
    @property
    def cgroup(self) -> str | None:
        """Path of its cgroup in the unified (version 2) hierarchy, as seen from the reader's cgroup
        namespace."""
    @property
    def read_chars(self) -> int | None:
        """Bytes that read system calls returned, of all threads of the process, also of those that
        ended, and, as all numbers of this group, of children that have ended and that it waited
        for. In an answer about threads, of the one thread."""
    @property
    def write_chars(self) -> int | None:
        """Bytes that write system calls accepted, those of children that it waited for, too."""
    @property
    def read_syscalls(self) -> int | None:
        """Number of read system calls, of children that it waited for, too."""
    @property
    def write_syscalls(self) -> int | None:
        """Number of write system calls, of children that it waited for, too."""
    @property
    def read_bytes(self) -> int | None:
        """Bytes read from storage, by children that it waited for, too."""
    @property
    def write_bytes(self) -> int | None:
        """Bytes that it, or children that it waited for, caused to be written to storage, counted when
        the page cache becomes dirty."""
    @property
    def cancelled_write_bytes(self) -> int | None:
        """Bytes of write_bytes that never reached storage, because a file was truncated first. Those
        of children that it waited for count, too."""
    @property
    def sig_pending(self) -> int | None:
        """Signals pending for this thread."""
    @property
    def sig_shared_pending(self) -> int | None:
        """Signals pending for the process."""
    @property
    def sig_blocked(self) -> int | None:
        """Signals that this thread blocks."""
    @property
    def sig_ignored(self) -> int | None:
        """Signals that the process ignores."""
    @property
    def sig_caught(self) -> int | None:
        """Signals for which the process has a handler."""
    @property
    def sig_queued_count(self) -> int | None:
        """Signals queued for all processes of its real user. Their limit is limits.sigpending."""
    @property
    def limits(self) -> dict[str, tuple[int | None, int | None]] | None:
        """The 16 resource limits, each soft and hard."""
    @property
    def environ(self) -> list[str] | None:
        """Environment that the process was started with: byte strings such as NAME=value. The process
        can change it."""
    @property
    def exe(self) -> str | None:
        """Path of the executable. It ends with " (deleted)" if the file was deleted."""
    @property
    def cwd(self) -> str | None:
        """Current directory."""
    @property
    def root(self) -> str | None:
        """Root directory."""
    @property
    def umask(self) -> int | None:
        """Permissions that new files of the process do not get."""
    @property
    def fd_count(self) -> int | None:
        """Number of open file descriptors."""
    @property
    def fd_table_size(self) -> int | None:
        """Number of slots in the table of file descriptors."""
    @property
    def loginuid(self) -> int | None:
        """User who logged in to begin the audit session."""
    @property
    def audit_session(self) -> int | None:
        """Number of the audit session."""
    @property
    def start_code(self) -> int | None:
        """Address at which the code begins."""
    @property
    def end_code(self) -> int | None:
        """Address at which the code ends."""
    @property
    def start_data(self) -> int | None:
        """Address at which initialized data begins."""
    @property
    def end_data(self) -> int | None:
        """Address at which initialized data ends."""
    @property
    def start_brk(self) -> int | None:
        """Address at which the heap begins."""
    @property
    def start_stack(self) -> int | None:
        """Address at which the stack begins."""
    @property
    def arg_start(self) -> int | None:
        """Address at which the arguments begin."""
    @property
    def arg_end(self) -> int | None:
        """Address at which the arguments end."""
    @property
    def env_start(self) -> int | None:
        """Address at which the environment begins."""
    @property
    def env_end(self) -> int | None:
        """Address at which the environment ends."""
    @property
    def personality(self) -> int | None:
        """Execution domain and flags of personality(2)."""
    @property
    def wchan(self) -> str | None:
        """Kernel function that it waits in. Empty if it does not wait, or if the kernel has no name
        for the function."""
    @property
    def security_label(self) -> str | None:
        """Label of the security module: AppArmor's profile or SELinux's context."""
    @property
    def cgroups(self) -> str | None:
        """Its cgroup in each hierarchy, as the kernel prints it: a line for each, with the hierarchy's
        number, the controllers or the name of a version 1 hierarchy, and the path."""
    @property
    def pss_bytes(self) -> int | None:
        """Proportional set size: resident memory, with each page divided by the number of processes
        that map it. Without smaps_rollup (before 4.14) the sum over smaps loses up to 1 KiB for
        each mapping."""
    @property
    def uss_bytes(self) -> int | None:
        """Unique set size: resident memory that no other process maps."""
    @property
    def pss_dirty_bytes(self) -> int | None:
        """The part of pss_bytes that is dirty."""
    @property
    def pss_anon_bytes(self) -> int | None:
        """The part of pss_bytes that is anonymous."""
    @property
    def pss_file_bytes(self) -> int | None:
        """The part of pss_bytes that is page cache of files."""
    @property
    def pss_shmem_bytes(self) -> int | None:
        """The part of pss_bytes that is shared memory and tmpfs."""
    @property
    def shared_clean_bytes(self) -> int | None:
        """Clean resident pages that are mapped more than once."""
    @property
    def shared_dirty_bytes(self) -> int | None:
        """Dirty resident pages that are mapped more than once."""
    @property
    def private_clean_bytes(self) -> int | None:
        """Clean resident pages that are mapped once."""
    @property
    def private_dirty_bytes(self) -> int | None:
        """Dirty resident pages that are mapped once."""
    @property
    def referenced_bytes(self) -> int | None:
        """Resident pages that are marked as referenced."""
    @property
    def anonymous_bytes(self) -> int | None:
        """Resident pages that belong to no file."""
    @property
    def ksm_bytes(self) -> int | None:
        """Resident pages that are merged with equal ones (KSM)."""
    @property
    def lazyfree_bytes(self) -> int | None:
        """Pages freed with MADV_FREE that the kernel has not reclaimed yet."""
    @property
    def anon_huge_bytes(self) -> int | None:
        """Anonymous memory in transparent huge pages."""
    @property
    def shmem_huge_bytes(self) -> int | None:
        """Shared memory mapped by huge pages."""
    @property
    def file_huge_bytes(self) -> int | None:
        """Page cache of files mapped by huge pages."""
    @property
    def shared_hugetlb_bytes(self) -> int | None:
        """Resident pages of hugetlbfs that are mapped more than once. No other sum includes them."""
    @property
    def private_hugetlb_bytes(self) -> int | None:
        """Resident pages of hugetlbfs that are mapped once. No other sum includes them."""
    @property
    def swap_pss_bytes(self) -> int | None:
        """Swapped-out memory, with each page divided by the number of processes that share it."""
    @property
    def rollup_rss_bytes(self) -> int | None:
        """Resident memory according to the page tables. rss_bytes is from the kernel's counters."""
    @property
    def rollup_swap_bytes(self) -> int | None:
        """Swapped-out memory according to the page tables."""
    @property
    def rollup_locked_bytes(self) -> int | None:
        """The part of pss_bytes that is in locked mappings."""
    @property
    def rollup_age_ns(self) -> int | None:
        """Age of the values of this group at the end of the answer. Values of a process that shows no
        sign of change are kept for a while."""
    @property
    def net_since_ns(self) -> int | None:
        """Since when the network fields count, as a time from boot: when counting began, or the
        process, whichever is later. At least 0, the zero of the reader's time namespace."""
    @property
    def net_sent_bytes(self) -> int | None:
        """Payload that the process has sent through sockets of IP that lead to other machines."""
    @property
    def net_received_bytes(self) -> int | None:
        """Payload that the process has received through sockets of IP that lead to other machines."""
    @property
    def net_sent_count(self) -> int | None:
        """Calls by which the process has sent through sockets of IP that lead to other machines."""
    @property
    def net_received_count(self) -> int | None:
        """Calls by which the process has received through sockets of IP that lead to other machines."""
    @property
    def loopback_sent_bytes(self) -> int | None:
        """Payload that the process has sent through sockets of IP that lead to this machine."""
    @property
    def loopback_received_bytes(self) -> int | None:
        """Payload that the process has received through sockets of IP that lead to this machine."""
    @property
    def loopback_sent_count(self) -> int | None:
        """Calls by which the process has sent through sockets of IP that lead to this machine."""
    @property
    def loopback_received_count(self) -> int | None:
        """Calls by which the process has received through sockets of IP that lead to this machine."""
    @property
    def unix_sent_bytes(self) -> int | None:
        """Payload that the process has sent through UNIX sockets."""
    @property
    def unix_received_bytes(self) -> int | None:
        """Payload that the process has received through UNIX sockets."""
    @property
    def unix_sent_count(self) -> int | None:
        """Calls by which the process has sent through UNIX sockets."""
    @property
    def unix_received_count(self) -> int | None:
        """Calls by which the process has received through UNIX sockets."""
    @property
    def net_tcp_sent_bytes(self) -> int | None:
        """The part of net_sent_bytes that went over TCP."""
    @property
    def net_tcp_received_bytes(self) -> int | None:
        """The part of net_received_bytes that went over TCP."""
    @property
    def net_udp_sent_bytes(self) -> int | None:
        """The part of net_sent_bytes that went over UDP."""
    @property
    def net_udp_received_bytes(self) -> int | None:
        """The part of net_received_bytes that went over UDP."""
    @property
    def user(self) -> str | None:
        """Name of the effective user, from the user database of this host. The number if it has no
        name there."""
    @property
    def group(self) -> str | None:
        """Name of the effective group, from the user database of this host. The number if it has no
        name there."""
    @property
    def cpu_percent(self) -> float | None:
        """Processor time in percent of the time since the task started. More than 100 if it used
        several processors."""
    @property
    def mem_percent(self) -> float | None:
        """Resident memory in percent of the memory of this machine (MemTotal of /proc/meminfo)."""
    @property
    def elapsed_ns(self) -> int | None:
        """Time since the task started. Time in which the machine was suspended counts."""
    @property
    def start_time(self) -> str | None:
        """When the task started, by the clock as it is set now: RFC 3339, in UTC and whole seconds."""
    @property
    def stat(self) -> str | None:
        """State as ps(1) shows it in STAT: the letter of state, then < high priority (nice < 0), N low
        priority (nice > 0), L has locked memory, s leads its session, l has several threads, + is
        in the foreground process group."""
    @property
    def tty(self) -> str | None:
        """Name of the controlling terminal, without /dev/. Empty if it has none."""
    @property
    def unit(self) -> str | None:
        """systemd unit of the system manager that it is in, by its cgroup. Empty if it is in none."""
    @property
    def user_unit(self) -> str | None:
        """systemd unit of a user's manager that it is in, by its cgroup. Empty if it is in none."""
    @property
    def slice(self) -> str | None:
        """Innermost systemd slice that unit is in, by its cgroup. -.slice, the root slice, if its
        cgroup is in no other."""
    @property
    def container_id(self) -> str | None:
        """Id of the innermost container that it is in, by its cgroup. The name where the runtime has
        no ids (systemd-nspawn, LXC). Empty if it is in none."""
    @property
    def container_name(self) -> str | None:
        """Name of that container, by its cgroup or by the runtime's files. Empty if it is in none."""
    @property
    def container_runtime(self) -> str | None:
        """Runtime of that container, by its cgroup or by the runtime's files: docker, containerd,
        cri-o, podman, systemd-nspawn or lxc. Empty if it is in none."""
    @property
    def pod_uid(self) -> str | None:
        """UID of the Kubernetes pod that it is in, by its cgroup. Empty if it is in none."""
    # Made by generate.py from the field table: end
