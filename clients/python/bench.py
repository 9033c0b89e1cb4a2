#!/usr/bin/env python3
"""Measures the client beside psutil, in one interpreter: bench.py [PROCESSES...]

Eight attributes of all processes: id, parent, name, users, state, memory, processor times, start.
The contenders take turns. `zoo farm` makes idle processes; run it as root on a quiet machine, with
what `make python` has built.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import polars
import psutil

import taskdiag

BUILT = Path(__file__).parents[2] / "target"
ZOO = next((path for path in (BUILT / "release/zoo", BUILT / "debug/zoo") if path.exists()), BUILT / "debug/zoo")
ATTRIBUTES = ["pid", "ppid", "name", "uids", "status", "memory_info", "cpu_times", "create_time"]
FIELDS = ["pid", "ppid", "comm", "uid", "euid", "suid", "state", "rss_bytes", "vsize_bytes", "rss_shmem_bytes",
          "rss_file_bytes", "text_bytes", "data_bytes", "utime_ns", "stime_ns", "cutime_ns", "cstime_ns",
          "start_ns"]  # fmt: skip
ROUNDS = 7


def of_psutil() -> int:
    """Objects and dicts, as psutil has them."""
    return sum(len(process.info) > 0 for process in psutil.process_iter(ATTRIBUTES))


def contenders() -> dict[str, Callable[[], int]]:
    """What is measured: each returns how many rows there were."""
    handle = taskdiag.Handle(source="bpf")
    handle.prepare(FIELDS)
    procfs = taskdiag.Handle(source="procfs")

    def rows(asked: taskdiag.Handle) -> int:
        count = 0
        for row in asked.processes(FIELDS):
            _ = (row.pid, row.ppid, row.comm, (row.uid, row.euid, row.suid), row.state, (row.rss_bytes,
                 row.vsize_bytes), (row.utime_ns, row.stime_ns, row.cutime_ns, row.cstime_ns), row.start_ns)  # fmt: skip
            count += 1
        return count

    return {
        "psutil.process_iter(attrs)": of_psutil,
        "table": lambda: len(handle.processes(FIELDS)),
        "polars.DataFrame": lambda: polars.DataFrame(handle.processes(FIELDS)).height,
        "rows, all values": lambda: rows(handle),
        "to_dicts()": lambda: len(handle.processes(FIELDS).to_dicts()),
        "table, procfs": lambda: len(procfs.processes(FIELDS)),
    }


def measure(processes: int) -> None:
    """Measures with so many processes more, and prints a table."""
    farm = subprocess.Popen([ZOO, "farm", str(processes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert farm.stdin and farm.stdout
    farm.stdout.readline()
    try:
        made = contenders()
        times: dict[str, list[float]] = {name: [] for name in made}
        used: dict[str, list[float]] = {name: [] for name in made}
        for turn in range(ROUNDS + 1):
            for name, run in made.items():
                start, processor = time.perf_counter(), time.process_time()
                rows = run()
                took, work = time.perf_counter() - start, time.process_time() - processor
                assert rows >= processes, (name, rows)
                # The first turn fills what is kept: psutil's processes, our memory for answers.
                if turn > 0:
                    times[name].append(took)
                    used[name].append(work)
    finally:
        farm.stdin.close()
        farm.wait()
    print(f"\n{processes} processes, median of {ROUNDS}, milliseconds:\n")
    print("| | time | fastest | slowest | processor | psutil's time | psutil's processor time |")
    print("|---|---|---|---|---|---|---|")
    base = "psutil.process_iter(attrs)"
    for name, each in times.items():
        median, work = statistics.median(each), statistics.median(used[name])
        fastest, slowest = min(each) * 1e3, max(each) * 1e3
        ratio, work_ratio = statistics.median(times[base]) / median, statistics.median(used[base]) / work
        print(f"| {name} | {median * 1e3:.2f} | {fastest:.2f} | {slowest:.2f} | {work * 1e3:.2f} "
              f"| {ratio:.1f}x | {work_ratio:.1f}x |")  # fmt: skip


def main() -> None:
    """Measures with as many processes as the arguments say."""
    version = sys.version.split()[0]
    print(f"psutil {psutil.__version__}, polars {polars.__version__}, Python {version}")
    for processes in map(int, sys.argv[1:] or ["1000", "10000"]):
        measure(processes)


if __name__ == "__main__":
    main()
