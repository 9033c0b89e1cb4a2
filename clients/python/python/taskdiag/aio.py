"""The functions of taskdiag for asyncio. Each makes its query in a thread of the loop's executor.

``events`` and ``watch`` are asynchronous iterators. A task that waits for them can be cancelled.
``processes`` does not take ``changed``, which is about the calls of one thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import taskdiag
from taskdiag import Closed, InvalidInput, Row, Table
from taskdiag._functions import _check_interval

__all__ = [
    "Events",
    "cachestat",
    "events",
    "files",
    "maps",
    "memory",
    "normalize",
    "processes",
    "sockets",
    "threads",
    "tree",
    "watch",
]

P = ParamSpec("P")
T = TypeVar("T")

# After the consumer is gone, a thread may wait this long for events.
_SLICE = 0.2


def _in_thread(function: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    @wraps(function)
    async def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(function, *args, **kwargs)

    return asked


_processes = _in_thread(taskdiag.processes)
threads = _in_thread(taskdiag.threads)
tree = _in_thread(taskdiag.tree)
memory = _in_thread(taskdiag.memory)
files = _in_thread(taskdiag.files)
sockets = _in_thread(taskdiag.sockets)
maps = _in_thread(taskdiag.maps)
normalize = _in_thread(taskdiag.normalize)
cachestat = _in_thread(taskdiag.cachestat)


@wraps(taskdiag.processes)
async def processes(*args: Any, **kwargs: Any) -> Table:
    if kwargs.get("changed"):
        raise InvalidInput("changed: each call may be in another thread, so there is no last one: aio.watch() has it")
    return await _processes(*args, **kwargs)


class Events(AsyncIterator[Row]):
    """Events as they happen: an asynchronous iterator over rows. The arguments are those of
    :class:`taskdiag.Events`; the stream is opened for the first row. A wait that is cancelled loses
    no event."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._open = partial(taskdiag.Events, *args, **kwargs)
        self._stream: taskdiag.Events | None = None
        self._reading: asyncio.Future[Table | None] | None = None
        self._rows: Iterator[Row] = iter(())
        self._is_closed = False

    def _read(self) -> Table | None:
        if self._stream is None:
            self._stream = self._open()
        return self._stream.read(_SLICE)

    async def __anext__(self) -> Row:
        while not self._is_closed:
            if (row := next(self._rows, None)) is not None:
                return row
            if self._reading is None:
                self._reading = asyncio.ensure_future(asyncio.to_thread(self._read))
            reading = self._reading
            # This leaves it alone when the caller is cancelled: the next wait finds what it has read.
            await asyncio.wait([reading])
            if self._reading is reading:
                self._reading = None
                self._rows = iter(reading.result() or ())
        raise Closed("the stream of events is closed: open another aio.events()")

    @property
    def lost(self) -> int:
        """The minimum number of events lost since the stream was opened."""
        return self._stream.lost if self._stream else 0

    @property
    def source(self) -> str | None:
        """The source of the events: bpf or connector. None before the first row."""
        return self._stream.source if self._stream else None

    async def aclose(self) -> None:
        """Close the stream. Waiting for a row then raises Closed."""
        self._is_closed = True
        if self._reading:
            await asyncio.wait([self._reading])
        if self._stream:
            await asyncio.to_thread(self._stream.close)


events = Events


async def watch(*args: Any, interval: float = 1.0, count: int | None = None, **kwargs: Any) -> AsyncIterator[Table]:
    """Query processes repeatedly. The arguments are those of :func:`taskdiag.watch`."""
    _check_interval(interval)
    tables = taskdiag.watch(*args, interval=0, count=count, **kwargs)
    loop = asyncio.get_running_loop()
    due = loop.time()
    asking: asyncio.Future[Table | None] | None = None
    try:
        while True:
            asking = asyncio.ensure_future(asyncio.to_thread(next, tables, None))
            table = await asyncio.shield(asking)
            if table is None:
                return
            yield table
            due = max(due + interval, loop.time())
            await asyncio.sleep(due - loop.time())
    finally:
        # On cancellation, wait for the thread that is in the query: it is using the iterator.
        if asking is not None and not asking.done():
            await asyncio.wait([asking])
        tables.close()  # type: ignore[attr-defined]
