"""The functions of taskdiag for asyncio. Each makes its query in a thread of the loop's executor.

``events`` and ``watch`` are asynchronous iterators. A task that waits for them can be cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import taskdiag
from taskdiag import Events, Row, Table
from taskdiag._functions import _check_interval

__all__ = [
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


processes = _in_thread(taskdiag.processes)
threads = _in_thread(taskdiag.threads)
tree = _in_thread(taskdiag.tree)
memory = _in_thread(taskdiag.memory)
files = _in_thread(taskdiag.files)
sockets = _in_thread(taskdiag.sockets)
maps = _in_thread(taskdiag.maps)
normalize = _in_thread(taskdiag.normalize)
cachestat = _in_thread(taskdiag.cachestat)


async def events(*args: Any, **kwargs: Any) -> AsyncIterator[Row]:
    """Events as they happen. The arguments are those of :class:`taskdiag.Events`."""
    stream = await asyncio.to_thread(Events, *args, **kwargs)
    reading: asyncio.Future[Table | None] | None = None
    try:
        while True:
            reading = asyncio.ensure_future(asyncio.to_thread(stream.read, _SLICE))
            table = await asyncio.shield(reading)
            for row in table or ():
                yield row
    finally:
        if reading is not None and not reading.done():
            await asyncio.wait([reading])
        stream.close()


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
