"""The functions of the module. Each thread has a handle that they keep for each source."""

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
        self.handles: dict[tuple[str, str | None], Handle] = {}


_kept = _Kept()


def _handle(source: _Source, socket: str | None) -> Handle:
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
    socket: str | None = None,
) -> Table:
    """Ask about processes: one row for each, by ascending pid.

    :param fields: what to read, and nothing else is: names of fields (``FIELDS``), of groups
        (``GROUPS``), or ``"all"`` for every field that is cheap.
    :param where: only processes of which this is true: ``"uid == 0 and comm ~ '^ssh'"``.
    :param pids: only these; ``Table.missing`` has those that are not there.
    :param children_of: only the children of this process.
    :param descendants_of: only its children, their children, and so on.
    :param changed: only processes that ran since the last such call of the same thread, or began.
    :param budget: seconds that reading PSS and the like may take; ``math.inf`` for no limit.
    :param patience: seconds that one system call on a process may take; later is absent.
    :param source: who may answer: ``"bpf"``, ``"procfs"``, ``"broker"``, or the best one.
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
    socket: str | None = None,
) -> Table:
    """Ask about threads: one row for each, by ascending tid. The parameters are those of
    :func:`processes`; ``pids`` are the processes that the threads belong to."""
    return _handle(source, socket).threads(fields, where=where, pids=pids, patience=patience)


def tree(
    pid: int | None = None,
    fields: Iterable[str] | str | None = None,
    *,
    where: str | None = None,
    patience: float | None = None,
    source: _Source = "auto",
    socket: str | None = None,
) -> Table:
    """Ask about processes, each row behind that of its parent, with its ``depth``; with ``pid``
    that process and all below it."""
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
    socket: str | None = None,
) -> Table:
    """Ask what memory processes have, with what they share divided among them (PSS).

    The kernel walks page tables for it, and the process waits meanwhile if it wants to change its
    mappings. What does not fit into the budget is absent as ``over budget``.

    :param budget: seconds that the whole answer may take (5); ``math.inf`` for no limit at all.
    :param max_rss_bytes: leave out processes with more resident memory (16 GiB).
    :param max_age: take a value of an earlier call that is no older than these seconds (10).
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
    socket: str | None = None,
) -> Table:
    """Ask which files processes use: one row for each, process by process. The field ``peers`` has
    the descriptors at the other end of pipes and sockets.

    :param uses: what for: ``fd``, ``cwd``, ``root``, ``exe``, ``map``, ``all`` (all but ``map``).
    :param kinds: ``file``, ``dir``, ``char``, ``block``, ``fifo``, ``socket``, ``link``, ``anon``,
        or one of the objects of the kernel, such as ``epoll``.
    :param deleted: only files that have no name any more.
    :param paths: only this file, or these, and what is below directories of them.
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
    socket: str | None = None,
) -> Table:
    """Ask about the sockets of the machine, in all network namespaces: one row for each, with the
    processes that have it in ``owners``.

    :param where: an expression over the fields of sockets, and pid, comm and fd of an owner.
    :param pids: only sockets that these processes have.
    :param kinds: ``tcp``, ``udp``, ``raw``, ``unix``, ``netlink``, ``packet``, ``vsock``.
    :param states: as ss(8) names them: ``ESTAB``, ``LISTEN``, ``TIME-WAIT``.
    :param ports: only sockets of IP with this port, or one of these, at either end.
    :param listening: only sockets that wait for a peer.
    :param info: what TCP knows of connections, too.
    :param own_netns: only those of the caller's own network namespace.
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
    # No sleep is longer than some centuries.
    if not 0 <= interval <= 1e9:
        raise InvalidInput(f"interval: {interval} is no time in seconds")


def watch(
    fields: Iterable[str] | str | None = None,
    *,
    interval: float = 1.0,
    count: int | None = None,
    changed: bool = False,
    where: str | None = None,
    pids: Iterable[int] | int | None = None,
    source: _Source = "auto",
    socket: str | None = None,
) -> Iterator[Table]:
    """Ask about processes again and again: an iterator over tables, the first at once.

    :param interval: seconds from one question to the next.
    :param count: how many tables; without it there is no end.
    :param changed: after the first table only processes that ran, or began.
    """
    _check_interval(interval)
    fields = list(fields) if fields is not None and not isinstance(fields, str) else fields
    pids = list(pids) if pids is not None and not isinstance(pids, int) else pids
    with Handle(source=source, socket=socket) as handle:
        due = time.monotonic()
        while count is None or count > 0:
            time.sleep(max(0.0, due - time.monotonic()))
            yield handle.processes(fields, where=where, pids=pids, changed=changed)
            # Who comes late does not hurry: what was missed is not made up for.
            due = max(due + interval, time.monotonic())
            count = None if count is None else count - 1
