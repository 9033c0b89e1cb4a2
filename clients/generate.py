#!/usr/bin/env python3
"""Writes what the clients have of the field table: generate.py [--check] <FIELDS

FIELDS is what `taskdiag fields --json` prints. With --check nothing is written, and a file that
would change makes it fail. `python/generate.py`, `go/generate.py` and `c/generate.py` say what the
files have.
"""

import json
import sys
from pathlib import Path

from c import generate as c
from go import generate as go
from python import generate as python

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Writes or checks the files."""
    fields = json.load(sys.stdin)["rows"]
    made = {**python.made(fields), **go.made(fields, ROOT), **c.made(fields, ROOT)}
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    if "--check" not in sys.argv[1:]:
        for path in stale:
            path.write_text(made[path])
        return 0
    for path in stale:
        print(f"{path.relative_to(ROOT)} is stale: 'make docs' writes it", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
