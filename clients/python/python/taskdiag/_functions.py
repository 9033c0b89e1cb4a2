"""The functions of the module. They keep a handle for each thread and source."""

from __future__ import annotations

import time
from _thread import _local

from taskdiag._errors import InvalidInput
from taskdiag._taskdiag import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from os import PathLike

    from taskdiag._taskdiag import Table, _Source


class _Kept(_local):
    """The handles of a thread."""

    def __init__(self) -> None:
        self.handles: dict[tuple[str, str | PathLike[str] | None], Handle] = {}


_kept = _Kept()


def _handle(source: _Source, socket: str | PathLike[str] | None) -> Handle:
    handle = _kept.handles.get((source, socket))
    if handle is None:
        handle = Handle(source=source, socket=socket)
        _kept.handles[(source, socket)] = handle
    return handle


def processes(
    fields: Iterable[str] | str | None = None,
    *,
    where: str | None = None,
    pids: Iterable[int] | int | None = None,
    children_of: int | None = None,
    descendants_of: int | None = None,
    changed: bool = False,
    budget: float | None = None,
    patience: float | None = None,
    source: _Source = "auto",
    socket: str | PathLike[str] | None = None,
) -> Table:
    """Query processes: one row for each, by ascending pid.

    :param fields: what to read: names of fields (``FIELDS``), of groups (``GROUPS``), or ``"all"``
        for every cheap field. Nothing else is read.
    :param where: only processes that satisfy this: ``"uid == 0 and comm ~ '^ssh'"``.
    :param pids: only these processes; ``Table.missing`` has those that do not exist.
    :param children_of: only the children of this process.
    :param descendants_of: only the children of this process, their children, and so on.
    :param changed: only processes that started or ran since this thread's last such call.
    :param budget: seconds that reading PSS and the like may take; ``math.inf`` for no limit.
    :param patience: seconds that one system call about a process may take; after that, its values
        are absent.
    :param source: ``"bpf"``, ``"procfs"``, ``"broker"``, or ``"auto"`` for the best one.
    :param socket: the broker's socket.
    """
    return _handle(source, socket).processes(
        fields,
        where=where,
        pids=pids,
        children_of=children_of,
        descendants_of=descendants_of,
        changed=changed,
        budget=budget,
        patience=patience,
    )


def threads(
    fields: Iterable[str] | str | None = None,
    *,
    where: str | None = None,
    pids: Iterable[int] | int | None = None,
    patience: float | None = None,
    source: _Source = "auto",
    socket: str | PathLike[str] | None = None,
) -> Table:
    """Query threads: one row for each, by ascending tid. The parameters are those of
    :func:`processes`; ``pids`` are the processes of the threads."""
    return _handle(source, socket).threads(fields, where=where, pids=pids, patience=patience)


def tree(
    pid: int | None = None,
    fields: Iterable[str] | str | None = None,
    *,
    where: str | None = None,
    patience: float | None = None,
    source: _Source = "auto",
    socket: str | PathLike[str] | None = None,
) -> Table:
    """Query processes. Each row follows that of its parent, and has its ``depth``. With ``pid``,
    only this process and its descendants."""
    return _handle(source, socket).tree(pid, fields, where=where, patience=patience)


def memory(
    fields: Iterable[str] | str | None = None,
    *,
    where: str | None = None,
    pids: Iterable[int] | int | None = None,
    budget: float | None = None,
    max_rss_bytes: int | None = None,
    max_age: float | None = None,
    patience: float | None = None,
    source: _Source = "auto",
    socket: str | PathLike[str] | None = None,
) -> Table:
    """Query the memory of processes, with shared memory divided among them (PSS).

    For this the kernel walks page tables. Meanwhile a process that wants to change its mappings
    waits. Values beyond the budget are absent as ``over budget``.

    :param budget: seconds that the whole answer may take (5); ``math.inf`` for no limit at all.
    :param max_rss_bytes: leave out processes with more resident memory (16 GiB).
    :param max_age: reuse a value of an earlier call that is at most this many seconds old (10).
    """
    return _handle(source, socket).memory(
        fields,
        where=where,
        pids=pids,
        budget=budget,
        max_rss_bytes=max_rss_bytes,
        max_age=max_age,
        patience=patience,
    )


def files(
    fields: Iterable[str] | str | None = None,
    *,
    where: str | None = None,
    pids: Iterable[int] | int | None = None,
    uses: Iterable[str] | str | None = None,
    kinds: Iterable[str] | str | None = None,
    deleted: bool = False,
    paths: Iterable[str | bytes | PathLike[str]] | str | bytes | PathLike[str] = (),
    patience: float | None = None,
    source: _Source = "auto",
    socket: str | PathLike[str] | None = None,
) -> Table:
    """Query the files that processes use: one row for each use, process by process. The field
    ``peers`` has the descriptors at the other end of pipes and sockets.

    :param uses: ``fd``, ``cwd``, ``root``, ``exe``, ``map``, or ``all`` (all but ``map``).
    :param kinds: ``file``, ``dir``, ``char``, ``block``, ``fifo``, ``socket``, ``link``, ``anon``,
        or a kind of kernel object, such as ``epoll``.
    :param deleted: only files that have no name any more.
    :param paths: only these files, and files below these directories.
    """
    return _handle(source, socket).files(
        fields,
        where=where,
        pids=pids,
        uses=uses,
        kinds=kinds,
        deleted=deleted,
        paths=paths,
        patience=patience,
    )


def sockets(
    fields: Iterable[str] | str | None = None,
    *,
    where: str | None = None,
    pids: Iterable[int] | int | None = None,
    kinds: Iterable[str] | str | None = None,
    states: Iterable[str] | str | None = None,
    ports: Iterable[int] | int = (),
    listening: bool = False,
    info: bool = False,
    own_netns: bool = False,
    patience: float | None = None,
    source: _Source = "auto",
    socket: str | PathLike[str] | None = None,
) -> Table:
    """Query the sockets of the machine, in all network namespaces: one row for each. The field
    ``owners`` has the processes that use it.

    :param where: an expression over the fields of sockets, and pid, comm and fd of an owner.
    :param pids: only sockets that these processes own.
    :param kinds: ``tcp``, ``udp``, ``raw``, ``unix``, ``netlink``, ``packet``, ``vsock``.
    :param states: as ss(8) names them: ``ESTAB``, ``LISTEN``, ``TIME-WAIT``.
    :param ports: only IP sockets with one of these ports at either end.
    :param listening: only sockets that wait for a peer.
    :param info: include TCP's information about connections.
    :param own_netns: only sockets in the caller's own network namespace.
    """
    return _handle(source, socket).sockets(
        fields,
        where=where,
        pids=pids,
        kinds=kinds,
        states=states,
        ports=ports,
        listening=listening,
        info=info,
        own_netns=own_netns,
        patience=patience,
    )


def _check_interval(interval: float) -> None:
    # A limit that no sleep needs: some decades.
    if not 0 <= interval <= 1e9:
        raise InvalidInput(f"interval: {interval} is not a time in seconds")


def watch(
    fields: Iterable[str] | str | None = None,
    *,
    interval: float = 1.0,
    count: int | None = None,
    changed: bool = False,
    where: str | None = None,
    pids: Iterable[int] | int | None = None,
    source: _Source = "auto",
    socket: str | PathLike[str] | None = None,
) -> Iterator[Table]:
    """Query processes repeatedly: an iterator over tables, the first one at once.

    :param interval: seconds between two queries.
    :param count: the number of tables; by default there is no end.
    :param changed: after the first table, only processes that started or ran.
    """
    _check_interval(interval)
    fields = list(fields) if fields is not None and not isinstance(fields, str) else fields
    if pids is not None and not isinstance(pids, int) and hasattr(pids, "__iter__"):
        pids = list(pids)
    with Handle(source=source, socket=socket) as handle:
        due = time.monotonic()
        while count is None or count > 0:
            time.sleep(max(0.0, due - time.monotonic()))
            yield handle.processes(fields, where=where, pids=pids, changed=changed)
            # If a round was late, do not catch up: skip what was missed.
            due = max(due + interval, time.monotonic())
            count = None if count is None else count - 1
