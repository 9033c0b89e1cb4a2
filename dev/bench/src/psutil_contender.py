"""psutil as a contender. Started by taskdiag-bench as `python3 -c SCRIPT WHAT SUBJECT`; runs for each line of its input."""

import sys
import time

import psutil

BASE_AND_CRED = ["pid", "ppid", "name", "status", "create_time", "num_threads", "uids", "gids"]


def memory(processes):
    rows = 0
    for process in processes:
        try:
            process.memory_full_info()
            rows += 1
        except psutil.Error:
            pass
    return rows


what, subject = sys.argv[1:]
run = {
    "base+cred": lambda: sum(1 for _ in psutil.process_iter(BASE_AND_CRED)),
    "memory": lambda: memory([psutil.Process(int(subject))]),
    "all memory": lambda: memory(psutil.process_iter()),
}[what]
print("ready", flush=True)
for _ in sys.stdin:
    start = time.perf_counter_ns()
    rows = run()
    print(time.perf_counter_ns() - start, rows, 0, flush=True)
