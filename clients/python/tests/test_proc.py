"""Values are those of /proc, and of psutil, which reads it."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

import taskdiag
from conftest import SOURCES, Stopped


@pytest.mark.parametrize("source", SOURCES)
def test_values_are_those_of_proc(source: str, stopped: Stopped, zoo: dict[str, int]) -> None:
    fields = ["pid", "ppid", "comm", "cmdline", "uid", "gid", "state", "threads_count", "vsize_bytes", "fd_count"]
    pids = [stopped.pid, zoo["stopped"], zoo["args-odd"], zoo["comm-not-utf8"]]
    table = taskdiag.processes(fields, pids=pids, source=source)  # type: ignore[arg-type]
    assert [row.pid for row in table] == sorted(pids)
    for row in table:
        proc = Path(f"/proc/{row.pid}")
        status = dict(line.split(b":\t", 1) for line in (proc / "status").read_bytes().splitlines())
        arguments = (proc / "cmdline").read_bytes()
        assert row.ppid == int(status[b"PPid"])
        assert row.cmdline is not None and row.comm is not None
        assert [os.fsencode(text) for text in row.cmdline] == arguments.removesuffix(b"\0").split(b"\0")
        assert os.fsencode(row.comm) == (proc / "comm").read_bytes().removesuffix(b"\n")
        assert row.uid == int(status[b"Uid"].split()[0])
        assert row.gid == int(status[b"Gid"].split()[0])
        assert row.state == status[b"State"].decode()[0]
        assert row.threads_count == int(status[b"Threads"])
        assert row.vsize_bytes == int(status[b"VmSize"].split()[0]) * 1024
        assert row.fd_count == len(os.listdir(proc / "fd"))


@pytest.mark.parametrize("source", SOURCES)
def test_values_are_those_of_psutil(source: str, stopped: Stopped) -> None:
    theirs = psutil.Process(stopped.pid)
    fields = ["ppid", "comm", "uid", "euid", "suid", "rss_bytes", "vsize_bytes", "utime_ns", "stime_ns", "start_ns",
              "nice", "exe", "cwd", "cmdline", "threads_count"]  # fmt: skip
    (row,) = taskdiag.processes(fields, pids=stopped.pid, source=source)  # type: ignore[arg-type]
    with theirs.oneshot():
        assert row.ppid == theirs.ppid()
        assert row.comm == theirs.name()
        assert (row.uid, row.euid, row.suid) == theirs.uids()
        memory, times = theirs.memory_info(), theirs.cpu_times()
        assert (row.rss_bytes, row.vsize_bytes) == (memory.rss, memory.vms)
        assert row.utime_ns is not None and abs(row.utime_ns / 1e9 - times.user) < 0.011
        assert row.stime_ns is not None and abs(row.stime_ns / 1e9 - times.system) < 0.011
        assert (row.nice, row.exe, row.cwd) == (theirs.nice(), theirs.exe(), theirs.cwd())
        assert (row.cmdline, row.threads_count) == (theirs.cmdline(), theirs.num_threads())
        assert row.start_ns is not None
        assert abs(psutil.boot_time() + row.start_ns / 1e9 - theirs.create_time()) < 1.1


def test_a_list_of_processes_has_those_that_are_missing(stopped: Stopped) -> None:
    table = taskdiag.processes("pid", pids=[stopped.pid, 2**22 + 5])
    assert [row.pid for row in table] == [stopped.pid]
    assert table.missing == [2**22 + 5]


def test_children_and_descendants(zoo: dict[str, int]) -> None:
    own = {child.pid for child in psutil.Process().children()}
    assert {row.pid for row in taskdiag.processes("pid", children_of=os.getpid())} >= own
    below = {child.pid for child in psutil.Process().children(recursive=True)}
    assert set(zoo.values()) & below <= {row.pid for row in taskdiag.processes("pid", descendants_of=os.getpid())}


def test_filters(stopped: Stopped) -> None:
    where = f"pid == {stopped.pid} and comm == 'sleep'"
    assert [row.state for row in taskdiag.processes("state", where=where)] == ["T"]
    assert len(taskdiag.processes("pid", where=f"pid == {stopped.pid} and comm == 'awake'")) == 0
