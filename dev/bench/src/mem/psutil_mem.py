"""psutil as a contender. Started by taskdiag-bench; each line of standard input is a pid, or `all`."""

import sys
import time

import psutil


def of_all():
    rows = 0
    for process in psutil.process_iter():
        try:
            process.memory_full_info()
            rows += 1
        except psutil.Error:
            pass
    return rows


for line in sys.stdin:
    what = line.strip()
    process = psutil.Process(int(what)) if what != "all" else None
    start = time.perf_counter_ns()
    if process:
        process.memory_full_info()
        rows = 1
    else:
        rows = of_all()
    print(time.perf_counter_ns() - start, rows, flush=True)
