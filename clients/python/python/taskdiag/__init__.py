"""Queries a Linux kernel about its processes: in binary, in one request, as columns.

>>> import taskdiag
>>> table = taskdiag.processes(["pid", "comm", "rss_bytes"], where="not kernel_thread")
>>> len(table) > 0
True

A result is a `Table`. numpy, pyarrow, polars, pandas and DuckDB take its columns without copying
numbers. A row is an object whose values are made when they are accessed.
"""

import os as _os

from taskdiag._errors import (
    Closed,
    Denied,
    Error,
    Forked,
    InvalidInput,
    Malformed,
    NoAnswer,
    NoMemory,
    NoSuchProcess,
    NoThread,
    NotAFilter,
    Unsupported,
    UnknownField,
)
from taskdiag._fields_gen import FIELDS, GROUPS
from taskdiag._functions import files, memory, processes, sockets, threads, tree, watch
from taskdiag._taskdiag import (
    ArrowExport,
    Column,
    Events,
    Handle,
    Row,
    Table,
    _after_fork_in_child,
    _after_fork_in_parent,
    _before_fork,
    cachestat,
    maps,
    normalize,
)
from taskdiag._taskdiag import Events as events

_os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)

__all__ = [
    "FIELDS",
    "GROUPS",
    "ArrowExport",
    "Closed",
    "Column",
    "Denied",
    "Error",
    "Events",
    "Forked",
    "Handle",
    "InvalidInput",
    "Malformed",
    "NoAnswer",
    "NoMemory",
    "NoSuchProcess",
    "NoThread",
    "NotAFilter",
    "Row",
    "Table",
    "UnknownField",
    "Unsupported",
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
