"""Exceptions. A value that cannot be read is not an error: it is absent, with a reason."""


class Error(Exception):
    """An error of taskdiag. ``kind`` is for programs; the message tells the user what to do."""

    kind: str = "system error"


class NoSuchProcess(Error, ProcessLookupError):
    """The process does not exist, or is hidden from the caller."""

    kind = "no such task"


class NoMemory(Error):
    """The process has no address space: a kernel thread, a zombie, or one that has ended."""

    kind = "no memory"


class Denied(Error, PermissionError):
    """The caller lacks a permission."""

    kind = "denied"


class Unsupported(Error):
    """This kernel cannot do it, this host is not configured for it, or no source can answer."""

    kind = "unsupported"


class NoAnswer(Error, TimeoutError):
    """A process kept its reader waiting longer than the patience allows."""

    kind = "no answer"


class NoThread(Error):
    """No thread or process can be started to read what may wait."""

    kind = "no thread"


class Malformed(Error):
    """A source sent invalid data."""

    kind = "malformed"


class InvalidInput(Error, ValueError):
    """An invalid argument."""

    kind = "invalid input"


class UnknownField(InvalidInput):
    """An unknown field name. ``field`` is the name, ``near`` has similar names."""

    field: str = ""
    near: tuple[str, ...] = ()


class NotAFilter(InvalidInput):
    """An invalid expression. ``column`` is the position of the error in characters, from 1."""

    column: int = 0


class Closed(Error):
    """The handle, or the iterator, was closed."""

    kind = "closed"


class Forked(Error):
    """This process was forked while another thread of its parent was in a query, so it can't query."""

    kind = "forked"
