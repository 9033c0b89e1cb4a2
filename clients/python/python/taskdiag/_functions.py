"""The functions of the module. Each thread has a handle that they keep for each source."""

from __future__ import annotations

from _thread import _local

from taskdiag._taskdiag import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

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
