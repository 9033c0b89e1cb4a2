"""psutil as a contender. Started by taskdiag-bench as `python3 -c SCRIPT serve|once WHAT [TIMES]`."""

import sys
import time

import psutil

BASE_AND_CRED = ["pid", "ppid", "name", "status", "create_time", "num_threads", "uids", "gids"]
ATTRIBUTES = {"base+cred": BASE_AND_CRED, "base+cred+args": BASE_AND_CRED + ["cmdline"]}


def run(what):
    start = time.perf_counter_ns()
    rows = sum(1 for _ in psutil.process_iter(ATTRIBUTES[what]))
    return time.perf_counter_ns() - start, rows


def main(mode, what, times="1"):
    if mode == "serve":
        for _ in sys.stdin:
            print(*run(what), flush=True)
        return
    for _ in range(int(times)):
        run(what)
    with open("/proc/self/status") as status:
        print(next(line.split()[1] for line in status if line.startswith("VmHWM:")))


main(*sys.argv[1:])
