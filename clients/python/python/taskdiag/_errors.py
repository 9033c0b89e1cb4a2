"""What can go wrong. A value that can't be read is no error: it is absent, with a reason."""


class Error(Exception):
    """An error of taskdiag. ``kind`` is for programs; the message says what to do."""

    kind: str = "system error"


class NoSuchProcess(Error, ProcessLookupError):
    """There is no such process, or it is hidden from the caller."""

    kind = "no such task"


class NoMemory(Error):
    """The process has no address space: a kernel thread, a zombie, or one that has ended."""

    kind = "no memory"


class Denied(Error, PermissionError):
    """The caller lacks a permission."""

    kind = "denied"


class Unsupported(Error):
    """This kernel can't do it, this host is not configured for it, or no source can answer."""

    kind = "unsupported"


class NoAnswer(Error, TimeoutError):
    """A process kept its reader waiting for longer than the patience."""

    kind = "no answer"


class Malformed(Error):
    """A source sent something that can't be right."""

    kind = "malformed"


class InvalidInput(Error, ValueError):
    """An argument that makes no sense."""

    kind = "invalid input"


class UnknownField(InvalidInput):
    """A name that no field has. ``field`` is the name, ``near`` has names that are near it."""

    field: str = ""
    near: tuple[str, ...] = ()


class NotAFilter(InvalidInput):
    """A text that is no expression. ``column`` is the place in characters, from 1."""

    column: int = 0


class Closed(Error):
    """The handle, or the iterator, was closed."""

    kind = "closed"


class Forked(Error):
    """It belongs to another process: the parent of a fork(2)."""

    kind = "forked"
