#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Checks that htop shows the same with libtaskdiag as without: compare.py HTOP DIRECTORY ZOO

HTOP is the program that build.sh built, DIRECTORY contains libtaskdiag.so.0, ZOO is the program of
dev/zoo. htop runs with the library and without it, and shows some quiet processes of the zoo, their
threads and a kernel thread. Every line must be the same. Without root, the columns are those that
the broker shows its observers of every process, and htop must be connected to the broker.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

import pyte

IS_ROOT = os.geteuid() == 0
# Only root can run the last one.
ANIMALS = ["stopped", "zombie", "threads-5", "args-odd", *(["groups-3"] if IS_ROOT else [])]
OF_ROOT = "TTY TPGID OOM RCHAR WCHAR SYSCR SYSCW RBYTES WBYTES CNCLWB "
COLUMNS = (
    "PID PPID PGRP SESSION MINFLT MAJFLT CMINFLT CMAJFLT PRIORITY NICE NLWP TGID M_VIRT M_RESIDENT M_SHARE "
    f"M_TRS M_DRS STATE UTIME STIME CUTIME CSTIME ST_UID STARTTIME CTXT {OF_ROOT if IS_ROOT else ''}PERCENT_MEM Command"
)
SETTINGS = f"""htop_version=3.2.2
config_reader_min_version=3
hide_kernel_threads=0
hide_userland_threads=0
header_layout=one_100
column_meters_0=Tasks
column_meter_modes_0=2
screen:Main={COLUMNS}
.sort_key=PID
.sort_direction=1
"""
ROWS, WIDTH = 40, 400


def shows(htop: str, pids: list[int], settings: str, environment: dict[str, str]) -> tuple[bool, list[str]]:
    """Runs htop. Returns whether it has loaded the library, and the lines of these processes."""
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, WIDTH, 0, 0))
    variables = {"TERM": "linux", "LC_ALL": "C.UTF-8", "HTOPRC": settings, **environment}
    command = [htop, "-d", "20", "-C", "-p", ",".join(map(str, pids))]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=variables, start_new_session=True)
    os.close(slave)
    screen, is_over = pyte.Screen(WIDTH, ROWS), threading.Event()
    stream = pyte.ByteStream(screen)

    def read() -> None:
        while not is_over.is_set():
            try:
                stream.feed(os.read(master, 1 << 20))
            except OSError:
                return

    threading.Thread(target=read, daemon=True).start()
    # htop updates every 2 seconds (-d 20). What is on the screen now is compared.
    time.sleep(7)
    is_over.set()
    lines = [line.rstrip() for line in screen.display]
    has_library = "libtaskdiag" in Path(f"/proc/{process.pid}/maps").read_text()
    descriptors = Path(f"/proc/{process.pid}/fd")
    if not IS_ROOT and has_library and not any("socket:" in os.readlink(each) for each in descriptors.iterdir()):
        sys.exit("htop has no connection to the broker")
    process.kill()
    process.wait()
    os.close(master)
    return has_library, [line for line in lines if re.match(r" *\d+ +\d+ +\d+ ", line)]


def quiet_kernel_thread() -> int:
    """The kernel thread that has run least: it should show the same twice."""
    switches: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue
        if "\nPPid:\t2\n" in text:
            switches[int(status.parent.name)] = sum(map(int, re.findall(r"_switches:\t(\d+)", text)))
    return min(switches, key=lambda pid: (switches[pid], pid))


def main() -> None:
    """Compares what htop shows with the library and without it."""
    htop, directory, zoo = sys.argv[1:]
    animals = subprocess.Popen([zoo, "run", *ANIMALS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert animals.stdin and animals.stdout
    pids = [int(animals.stdout.readline().split()[1]) for _ in ANIMALS] + [quiet_kernel_thread()]
    with tempfile.TemporaryDirectory() as work:
        settings = f"{work}/htoprc"
        Path(settings).write_text(SETTINGS)
        without, expected = shows(htop, pids, settings, {"HTOP_WITHOUT_TASKDIAG": "1"})
        has, lines = shows(htop, pids, settings, {"LD_LIBRARY_PATH": directory})
    animals.stdin.close()
    animals.wait()
    if without or not has or len(expected) < len(ANIMALS) + 4:
        sys.exit(f"this compares nothing: library {without} and {has}, lines {len(expected)}")
    for line, other in zip(expected, lines):
        if line != other:
            print(f"- {line}\n+ {other}")
    if expected != lines:
        sys.exit("htop does not show the same with libtaskdiag")
    print(f"the same {len(lines)} lines")


if __name__ == "__main__":
    main()
