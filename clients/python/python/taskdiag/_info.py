"""What is known of a field."""


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
        """What the values are, with their unit."""
        self.origin = origin
        """Where /proc/PID has the value as text, or which fields it is made of."""
        self.since = since
        """The first kernel that has it there; empty if all supported ones do."""
        self.access = access
        """What it takes to see it of another user's task; empty if nothing."""
        self.meaning = meaning
        """What it means."""

    def __repr__(self) -> str:
        return f"<taskdiag field {self.name}: {self.kind}. {self.meaning}>"
