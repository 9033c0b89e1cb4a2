"""The description of a field."""


class Info:
    """A row of the field table."""

    __slots__ = ("access", "group", "kind", "meaning", "name", "origin", "since")

    def __init__(
        self, name: str, group: str, kind: str, origin: str, since: str, access: str, meaning: str
    ) -> None:
        self.name = name
        self.group = group
        """The group: fields that are read together."""
        self.kind = kind
        """The kind of the values, with their unit."""
        self.origin = origin
        """Where /proc/PID has the value as text, or the fields that it is derived from."""
        self.since = since
        """The first kernel version that has it there; empty if all supported versions do."""
        self.access = access
        """The right needed to see it for another user's task; empty if none is needed."""
        self.meaning = meaning
        """The meaning of the value."""

    def __repr__(self) -> str:
        return f"<taskdiag field {self.name}: {self.kind}. {self.meaning}>"
