"""Answers are equal to the command's JSON."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

import taskdiag
from conftest import COMMAND, IS_ROOT, NOBODY, SOURCES, Stopped, in_child

# What changes although a process does not run: how long something is ago, and what others do.
AGES = ("cpu_percent", "elapsed_ns", "rollup_age_ns", "start_time")
OTHERS = ("sig_queued_count", "oom_score", "mem_percent")
SHARED = ("pss_", "uss_", "shared_", "private_", "swap_pss_")
STEADY = [name for name in taskdiag.FIELDS if name not in (*AGES, *OTHERS) and not name.startswith(SHARED)]


def document(what: str, *args: str) -> dict[str, Any]:
    """The command's JSON. The file is opened first: who it runs as may not see it."""
    executable = os.open(COMMAND, os.O_RDONLY)
    try:
        run = subprocess.run(
            ["taskdiag", what, *args, "--json"],
            executable=f"/proc/self/fd/{executable}",
            pass_fds=[executable],
            capture_output=True,
            timeout=60,
        )
    finally:
        os.close(executable)
    assert run.returncode in (0, 1), run
    made: dict[str, Any] = json.loads(run.stdout)
    return made


def command(what: str, *args: str) -> list[dict[str, Any]]:
    """The rows of the command's JSON."""
    rows: list[dict[str, Any]] = document(what, *args)["rows"]
    return rows


def compare(source: str, pids: list[int], fields: list[str]) -> int:
    """Compares some processes. Returns how many values there are."""
    with taskdiag.Handle(source=source) as handle:  # type: ignore[arg-type]
        ours = handle.processes(fields, pids=pids, budget=60).to_dicts()
    listed = ",".join(map(str, pids))
    theirs = command("ps", "-p", listed, "-o", ",".join(fields), "--source", source)
    both = zip(ours, theirs, strict=True)
    different = [(key, row.get(key), other.get(key)) for row, other in both for key in {**row, **other}
                 if row.get(key) != other.get(key)]  # fmt: skip
    assert not different
    assert [list(row) for row in ours] == [list(row) for row in theirs], "the keys have another order"
    return sum(len(row) + len(row.get("absent", {})) for row in ours)


@pytest.mark.parametrize("source", SOURCES)
def test_all_fields_of_strange_processes(source: str, zoo: dict[str, int], stopped: Stopped) -> None:
    still = [stopped.pid, *(pid for name, pid in zoo.items() if name in ("zombie", "stopped"))]
    assert compare(source, still, STEADY) > len(still) * len(STEADY) // 2
    names = ["pid", "ppid", "comm", "cmdline", "groups", "threads_count", "limits", "affinity", "kernel_thread"]
    assert compare(source, sorted(zoo.values()), names) > len(zoo) * 8


@pytest.mark.parametrize("source", SOURCES)
def test_threads(source: str, zoo: dict[str, int]) -> None:
    pid = zoo["threads-5"]
    fields = ["pid", "tid", "comm", "start_ns"]
    ours = taskdiag.threads(fields, pids=pid, source=source)  # type: ignore[arg-type]
    theirs = command("ps", "-T", "-p", str(pid), "-o", ",".join(fields), "--source", source)
    assert ours.to_dicts() == theirs and len(ours) == 5


@pytest.mark.skipif(not IS_ROOT, reason="root becomes nobody")
def test_as_nobody(zoo: dict[str, int], stopped: Stopped) -> None:
    """Nobody gets reasons where root gets values, the same as the command's."""
    fields = [name for name in STEADY if taskdiag.FIELDS[name].group != "rollup"]
    pids = [stopped.pid, zoo["zombie"]]
    assert in_child(lambda: compare("procfs", pids, fields), NOBODY) > len(fields)
    denied = in_child(lambda: taskdiag.processes(["exe", "pid"], pids=stopped.pid).to_dicts(), NOBODY)
    assert denied == [{"pid": stopped.pid, "absent": {"exe": "denied"}}]


def test_all_processes() -> None:
    """What everybody else does meanwhile changes which processes there are, not what they are."""
    fields = ["pid", "ppid", "comm", "start_ns", "kernel_thread", "uid", "pgid", "sid"]

    def key(row: dict[str, Any]) -> tuple[int, int]:
        return row["pid"], row["start_ns"]

    for _ in range(20):
        ours = {key(row): row for row in taskdiag.processes(fields, source="procfs").to_dicts()}
        theirs = {key(row): row for row in command("ps", "-o", ",".join(fields), "--source", "procfs")}
        both = ours.keys() & theirs.keys()
        if len(both) > 1 and all(ours[each] == theirs[each] for each in both):
            return
    pytest.fail("twenty times another answer")
