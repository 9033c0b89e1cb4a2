#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Measures htop with and without libtaskdiag, in turns: bench.py HTOP DIRECTORY [PROCESSES] [ROUNDS]

HTOP is what build.sh has made, DIRECTORY has libtaskdiag.so.0. Each round is a htop in a terminal of 120
times 40 of its own, which refreshes each second; its processor time between the third second and the
thirteenth is taken from /proc, and so is the time when it starts until then.
"""

import fcntl
import os
import pty
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
BEGIN, SECONDS = 3.0, 10.0


def processor_time(pid: int) -> float:
    """The processor time of a process, in seconds."""
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / TICK


def swallow(master: int) -> None:
    """Reads what the terminal shows."""
    try:
        while os.read(master, 65536):
            pass
    except OSError:
        pass


def run(htop: str, environment: dict[str, str], settings: str) -> tuple[float, float]:
    """Milliseconds of processor time for a refresh, and those until the third second."""
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    variables = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"], **environment}
    variables["HTOPRC"] = f"{settings}/htoprc"
    process = subprocess.Popen([htop, "-d", "10"], stdin=slave, stdout=slave, stderr=slave, env=variables, start_new_session=True)
    os.close(slave)
    reader = threading.Thread(target=swallow, args=(master,), daemon=True)
    reader.start()
    time.sleep(BEGIN)
    start = processor_time(process.pid)
    time.sleep(SECONDS)
    used = processor_time(process.pid) - start
    process.terminate()
    process.wait()
    os.close(master)
    return used / SECONDS * 1000, start * 1000


def main() -> None:
    """Starts processes, and measures."""
    htop, directory = sys.argv[1:3]
    processes = int(sys.argv[3]) if len(sys.argv) > 3 else 10_000
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    zoo = next(path for path in (Path(f"target/{kind}/zoo") for kind in ("release", "debug")) if path.exists())
    farm = subprocess.Popen([zoo, "farm", str(processes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert farm.stdout
    farm.stdout.readline()
    # htop looks at mappings of processes that are older than this.
    time.sleep(12)
    settings = tempfile.mkdtemp()
    ways = {"htop, /proc": {"HTOP_WITHOUT_TASKDIAG": "1"}, "htop, libtaskdiag": {"LD_LIBRARY_PATH": directory}}
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, environment in ways.items():
            found[way].append(run(htop, environment, settings))
    assert farm.stdin
    farm.stdin.close()
    farm.wait()
    shutil.rmtree(settings)
    print(f"{processes} processes, {rounds} rounds of {SECONDS:.0f} refreshes, milliseconds of processor time:\n")
    print("| | a refresh | fastest | slowest | the first three seconds | of /proc's |")
    print("|---|---|---|---|---|---|")
    usual = statistics.median(refresh for refresh, _ in found["htop, /proc"])
    for way, runs in found.items():
        refreshes = [refresh for refresh, _ in runs]
        first = statistics.median(start for _, start in runs)
        middle = statistics.median(refreshes)
        print(f"| {way} | {middle:.1f} | {min(refreshes):.1f} | {max(refreshes):.1f} | {first:.0f} | {middle / usual:.2f} |")


if __name__ == "__main__":
    main()
