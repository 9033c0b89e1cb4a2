"""Forks, threads, the end of the interpreter, and long runs."""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import taskdiag
from conftest import IS_ROOT, SOURCES, ZOO, handles, in_child, python, until

FIELDS = ["pid", "comm", "rss_bytes", "cmdline"]


def own_row(handle: taskdiag.Handle) -> list[int | None]:
    """The pid of the caller, as the handle sees it."""
    return [row.pid for row in handle.processes(FIELDS, pids=os.getpid())]


@pytest.mark.parametrize("source", SOURCES)
def test_a_child_uses_its_parents_handle(source: str) -> None:
    """Both get right answers, one after the other, from what each made for itself."""
    handle = taskdiag.Handle(source=source)  # type: ignore[arg-type]
    before = handle.processes(FIELDS)
    for _ in range(3):

        def child() -> tuple[bool, int]:
            return own_row(handle) == [os.getpid()], len(before.to_dicts())

        assert in_child(child) == (True, len(before))
        assert own_row(handle) == [os.getpid()]


def test_forks_in_the_middle_of_queries() -> None:
    """Other threads ask all the time: no child waits for ever, and what they answer is right."""
    stop = threading.Event()
    asking = [handle for _, handle in handles() for _ in range(2)]

    def ask(handle: taskdiag.Handle) -> int:
        count = 0
        while not stop.is_set():
            assert own_row(handle) == [os.getpid()]
            count += 1
        return count

    with ThreadPoolExecutor(len(asking)) as pool:
        counts = [pool.submit(ask, handle) for handle in asking]
        try:
            for _ in range(30):
                assert in_child(lambda: [own_row(handle) == [os.getpid()] for handle in asking]) == [True] * len(asking)
        finally:
            stop.set()
        assert all(count.result() > 0 for count in counts)


@pytest.fixture
def holder() -> Iterator[int]:
    """A process that keeps the readers of its memory waiting."""
    process = subprocess.Popen([ZOO, "run", "holds-lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin and process.stdout
    line = process.stdout.readline()
    if not line:
        assert not IS_ROOT, "the zoo has no process that holds its readers"
        pytest.skip("this host does not let a process hold its readers")
    pid = int(line.split()[1])

    def does_hold() -> bool:
        cat = subprocess.Popen(["cat", f"/proc/{pid}/cmdline"], stdout=subprocess.DEVNULL)
        try:
            cat.wait(0.3)
        except subprocess.TimeoutExpired:
            return True
        finally:
            cat.kill()
            cat.wait()
        return False

    until(does_hold, "it holds its readers")
    yield pid
    process.stdin.close()
    process.wait()
    process.stdout.close()


def test_a_process_that_does_not_answer(holder: int) -> None:
    """It holds nobody up for longer than the patience, and everybody else has values."""
    began = time.monotonic()
    table = taskdiag.processes(["pid", "cmdline"], pids=[holder, os.getpid()], patience=0.3, source="procfs")
    assert 0.3 <= time.monotonic() - began < 30
    absent = {row.pid: row.absent for row in table}
    assert absent == {holder: {"cmdline": "no answer"}, os.getpid(): {}}


def interrupt() -> None:
    raise KeyboardInterrupt


LONG: dict[str, Callable[[taskdiag.Handle, int], object]] = {
    "arguments": lambda handle, pid: handle.processes("cmdline", pids=pid),
    "maps": lambda _, pid: taskdiag.maps(pid, usage=True, patience=60),
    "memory": lambda handle, pid: handle.memory("pss_bytes", pids=pid, budget=math.inf),
    "broker": lambda _, __: silent_broker(),
}


def silent_broker() -> None:
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(f"{directory}/socket")
        listening.listen()
        taskdiag.processes("comm", socket=f"{directory}/socket")


def reader_waits() -> bool:
    """Whether a reader of ours waits for a process: those of earlier tests may be there, but idle."""
    for thread in os.listdir("/proc/self/task"):
        try:
            stat = Path(f"/proc/self/task/{thread}/stat").read_text()
        except OSError:
            continue
        name, state = stat.rsplit(")", 1)
        if name.endswith("(taskdiag-reader") and state.split()[0] == "D":
            return True
    return False


@contextmanager
def a_signal(handler: Callable[[], object], seconds: float) -> Iterator[list[float]]:
    """When the handler of a signal was called, which comes so many seconds later."""
    called: list[float] = []

    def handle(*_: object) -> None:
        called.append(time.monotonic())
        handler()

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield called
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", LONG)
def test_a_signal_ends_a_long_query(name: str, holder: int) -> None:
    """Ctrl-C does not wait for the end of a query, and the handle asks on."""
    handle = taskdiag.Handle(source="procfs", patience=60)
    began = time.monotonic()
    with a_signal(interrupt, 0.7) as called:
        with pytest.raises(KeyboardInterrupt):
            LONG[name](handle, holder)
    ended = time.monotonic()
    print(f"{name}: {called[0] - began - 0.7:.3f} s until the handler ran, {ended - called[0]:.3f} s behind it")
    # Without it, the query would take a minute.
    assert len(called) == 1 and ended - began < 30
    (row,) = handle.processes("pid,comm", pids=os.getpid())
    assert row.pid == os.getpid() and row.comm == read_comm(str(os.getpid()))


def test_handlers_of_signals_may_ask(holder: int) -> None:
    """Also with the handle that is in the middle of a query, which goes on. And they may close it."""
    handle = taskdiag.Handle(source="procfs", patience=4)
    found: list[int] = []

    def ask() -> None:
        found.extend(row.pid or 0 for row in handle.processes("pid", pids=[os.getpid(), holder]))
        handle.close()

    def send() -> None:
        until(reader_waits, "it asks")
        os.kill(os.getpid(), signal.SIGALRM)

    with a_signal(ask, 0) as called:
        sender = threading.Thread(target=send)
        sender.start()
        (row,) = handle.processes(["pid", "cmdline"], pids=holder)
        sender.join()
    assert row.absent == {"cmdline": "no answer"}
    assert len(called) == 1 and sorted(found) == sorted([os.getpid(), holder])
    with pytest.raises(taskdiag.Closed):
        handle.processes("pid")


@pytest.mark.skipif(not IS_ROOT, reason="programs take root")
def test_handlers_of_signals_may_ask_when_a_query_ends() -> None:
    """The handle looks for signals once more then, if it has not for a twentieth of a second."""
    script = """
import signal, taskdiag
handle = taskdiag.Handle(source="bpf")
found = []
signal.signal(signal.SIGALRM, lambda *_: found.append(len(handle.processes("pid", pids=1))))
pids = list(range(1, 300_000))
for _ in range(2):
    # It comes before the programs are asked about so many, which waits for nothing.
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    handle.processes("comm", pids=pids)
assert found == [1, 1], found
"""
    python(script)


def test_a_signal_ends_the_wait_for_another_thread(holder: int) -> None:
    handle = taskdiag.Handle(source="procfs", patience=60)
    other = threading.Thread(target=lambda: handle.processes("cmdline", pids=holder))
    other.start()
    until(reader_waits, "it asks")
    with pytest.raises(KeyboardInterrupt), a_signal(interrupt, 0.2):
        handle.processes("pid")
    assert other.is_alive()
    os.kill(holder, signal.SIGKILL)
    other.join()


def test_a_fork_in_the_middle_of_a_long_query(holder: int) -> None:
    """A fork waits two seconds for a query. If that is not enough the child says so, and does not
    hang; the parent asks on."""
    handle = taskdiag.Handle(source="procfs")
    answers: list[taskdiag.Table] = []

    def ask() -> None:
        answers.append(handle.processes(["pid", "cmdline"], pids=holder, patience=6))

    thread = threading.Thread(target=ask)
    thread.start()
    until(reader_waits, "it asks")

    def child() -> str:
        try:
            taskdiag.processes("pid")
        except taskdiag.Forked as error:
            return str(error)
        return "it asked"

    began = time.monotonic()
    assert "when this process was forked" in in_child(child)
    assert time.monotonic() - began >= 2
    thread.join()
    assert answers[0][0].absent == {"cmdline": "no answer"}
    assert own_row(handle) == [os.getpid()]
    assert in_child(lambda: own_row(handle) == [os.getpid()])


def read_comm(thread: str) -> str:
    """The name of a thread of this process."""
    try:
        return Path(f"/proc/self/task/{thread}/comm").read_text().strip()
    except OSError:
        return ""


def test_a_fork_by_the_handler_of_a_signal(holder: int) -> None:
    """The query that it interrupts goes on in the child, too: nobody is torn off."""
    script = f"""
import os, signal, taskdiag
parent = os.getpid()
def fork(*_):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if len(taskdiag.processes("pid", pids=parent)) == 1 else 1)
    statuses.append(os.waitpid(pid, 0)[1])
statuses = []
signal.signal(signal.SIGALRM, fork)
signal.setitimer(signal.ITIMER_REAL, 0.3)
taskdiag.processes("cmdline", pids={holder}, patience=2, source="procfs")
assert statuses == [0], statuses
"""
    python(script)


def test_hooks_of_a_fork_may_ask() -> None:
    """Those that were registered earlier run between ours."""
    script = """
import os
asked = []
def ask():
    asked.append(len(taskdiag.processes("pid", pids=1)))
os.register_at_fork(before=ask, after_in_parent=ask, after_in_child=ask)
import taskdiag
pid = os.fork()
asked.append(len(taskdiag.processes("pid", pids=1)))
if pid == 0:
    os._exit(0 if asked == [1, 1, 1] else 1)
assert asked == [1, 1, 1] and os.waitpid(pid, 0)[1] == 0, asked
"""
    python(script)


def test_no_query_begins_while_a_fork_is_near() -> None:
    script = """
import threading, taskdiag
from taskdiag import _taskdiag
handle = taskdiag.Handle(source="procfs")
_taskdiag._before_fork()
waits = threading.Thread(target=lambda: handle.processes("pid"))
waits.start()
waits.join(0.1)
assert waits.is_alive(), "a query began while the process was about to fork"
_taskdiag._after_fork_in_parent()
waits.join(10)
assert not waits.is_alive()
print(len(handle.processes("pid")) > 0)
"""
    assert python(script).stdout == "True\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method: str) -> None:
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(count_rows, [["pid"], ["comm"]]) >= [1, 1]


def count_rows(fields: list[str]) -> int:
    """How many processes there are."""
    return len(taskdiag.processes(fields))


def test_threads_share_a_handle() -> None:
    for _, handle in handles():
        with ThreadPoolExecutor(8) as pool:
            rows = list(pool.map(lambda _: own_row(handle), range(200)))
        assert rows == [[os.getpid()]] * 200


def test_the_interpreter_runs_meanwhile(holder: int) -> None:
    """A query does not hold the interpreter: another thread runs while it is under way."""
    stop = threading.Event()
    ticks: list[float] = []

    def tick() -> None:
        while not stop.wait(0.001):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        began = time.monotonic()
        taskdiag.processes(["pid", "cmdline"], pids=holder, patience=1, source="procfs")
        ended = time.monotonic()
    finally:
        stop.set()
        thread.join()
    assert ended - began >= 1 and len([when for when in ticks if began + 0.2 < when < ended - 0.2]) > 5


def test_asyncio() -> None:
    async def ask() -> list[int]:
        return await asyncio.gather(*(asyncio.to_thread(count_rows, ["pid"]) for _ in range(4)))

    assert min(asyncio.run(ask())) > 0


@pytest.mark.parametrize(
    "script",
    [
        "import taskdiag; t = taskdiag.processes('all'); r = iter(t); next(r); c = t.column('pid'); v = memoryview(c)",
        "import taskdiag, atexit; atexit.register(lambda: taskdiag.processes('comm'))",
        "import taskdiag, threading\n"
        "def ask():\n"
        "    while True: taskdiag.processes('all', source='procfs')\n"
        "threading.Thread(target=ask, daemon=True).start(); taskdiag.processes()",
        "import taskdiag, sys; h = taskdiag.Handle(); h.processes(); sys.modules.clear()",
        "import taskdiag; w = taskdiag.watch('pid', interval=0); next(w); a = iter(next(w)); next(a)",
        "import taskdiag, threading\n"
        "w = taskdiag.watch('all', interval=0)\n"
        "threading.Thread(target=lambda: [None for _ in w], daemon=True).start(); next(iter(taskdiag.processes()))",
        "import taskdiag, os\n"
        "try:\n"
        "    e = taskdiag.events()\n"
        "except taskdiag.Error:\n"
        "    e = None\n"
        "if e: os.system('true'); next(e)",
        "import taskdiag, threading\n"
        "try:\n"
        "    e = taskdiag.events()\n"
        "except taskdiag.Error:\n"
        "    e = []\n"
        "threading.Thread(target=lambda: list(e), daemon=True).start()",
        "import taskdiag, os, signal; taskdiag.processes('all'); "
        "signal.signal(signal.SIGTERM, signal.SIG_DFL); os._exit(0)",
    ],
)
def test_the_interpreter_ends(script: str) -> None:
    assert python(script).returncode == 0


def memory() -> int:
    """The memory that this process has written to, in bytes. Clean pages are those of files: these
    count as private from the moment when no other process has the same libraries any more, 40 MiB of
    them with pyarrow's."""
    with open("/proc/self/smaps_rollup") as rollup:
        sums = [int(line.split()[1]) for line in rollup if line.startswith(("Private_Dirty", "Shared_Dirty", "Swap:"))]
    return sum(sums) * 1024


@pytest.mark.parametrize("source", SOURCES)
def test_nothing_leaks(source: str) -> None:
    """Thousands of queries, with errors among them: memory and descriptors stay the same."""
    script = f"""
import gc, os, pyarrow, numpy, taskdiag
{memory_source()}
handle = taskdiag.Handle(source={source!r})
few = [row.pid for row in handle.processes("pid")][-20:] + [os.getpid()]
def others():
    yield handle.files(pids=os.getpid(), paths="/")
    yield handle.sockets(pids=os.getpid(), kinds="netlink,tcp,unix", own_netns=True)
    yield taskdiag.maps(os.getpid(), build_ids=True, source={MAPS[source]!r})
    yield taskdiag.normalize(os.getpid(), [0, 1 << 40])
    yield taskdiag.cachestat("/proc/self/exe")
    yield handle.memory("pid,pss_bytes", pids=os.getpid(), max_age=0)
    yield handle.tree(os.getpid(), "pid")
def some(times):
    for turn in range(times):
        table = handle.processes({FIELDS!r} + ["groups", "limits"], pids=few)
        pyarrow.table(table), numpy.asarray(table.column("pid")), [row.comm for row in table], table.to_dicts()
        for name in ("rss", "pid"):
            try:
                handle.processes(name, where="pid = 1")
            except taskdiag.InvalidInput:
                pass
        if turn % 10 == 0:
            for table in others():
                pyarrow.table(table), table.to_dicts()
        if turn % 50 == 0:
            with taskdiag.Handle(source={source!r}) as other:
                other.processes("pid", pids=os.getpid())
            next(taskdiag.watch("pid", pids=os.getpid(), source={source!r}))
            if {source!r} == "bpf":
                with taskdiag.events() as events:
                    events.read(0)
some(300)
gc.collect()
before, descriptors = memory(), len(os.listdir("/proc/self/fd"))
some({SOAK})
gc.collect()
grown = memory() - before
print(grown, len(os.listdir("/proc/self/fd")) - descriptors)
assert grown < 2 << 20, grown
assert len(os.listdir("/proc/self/fd")) <= descriptors, os.listdir("/proc/self/fd")
"""
    run = python(script, 240 + SOAK / 2)
    if SOAK >= 10_000:
        print(f"{source}: {SOAK} turns; bytes and descriptors more than before: {run.stdout}")


# `SOAK=10000 clients/python/test.sh -k leaks -s` is the whole soak, and prints what it found.
SOAK = int(os.environ.get("SOAK", "1000"))
# Who lists mappings.
MAPS = {"procfs": "procfs", "bpf": "auto"}


def memory_source() -> str:
    """The source of `memory`, for another interpreter."""
    import inspect

    return inspect.getsource(memory)


def test_handles_are_many() -> None:
    """Several handles do not disturb each other."""
    if not IS_ROOT:
        pytest.skip("programs take root")
    several = [taskdiag.Handle(source="bpf") for _ in range(5)]
    for handle in several:
        handle.prepare(FIELDS)
    assert all(own_row(handle) == [os.getpid()] for handle in several)
