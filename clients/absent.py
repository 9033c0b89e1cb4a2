"""The reasons of missing values, from the library's source."""

import re
from pathlib import Path
from typing import NamedTuple

SOURCE = "crates/taskdiag-core/src/absent.rs"


class Reason(NamedTuple):
    """A reason: its name in Rust, its number, its words, and what it means."""

    name: str
    number: int
    words: str
    meaning: str


def reasons(root: Path) -> list[Reason]:
    """All reasons, in the order of their numbers."""
    text = (root / SOURCE).read_text()
    found = re.findall(r'((?:        /// [^\n]*\n)+)        (\w+) = (\d+) => "([^"]*)",', text)
    if not found:
        raise SystemExit(f"{SOURCE}: clients/absent.py finds no reasons")
    return [Reason(name, int(number), words, plain(docs)) for docs, name, number, words in found]


def plain(docs: str) -> str:
    """A comment of Rust as plain text, without its links."""
    text = re.sub(r"\s*/// ", " ", docs)
    return re.sub(r"\[`[\w:()]*?(\w+)`\](?:\([^)]*\))?", r"\1", text).strip()
