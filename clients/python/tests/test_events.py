"""Events and watching: what comes, what interrupts them, asyncio."""

from __future__ import annotations

import asyncio
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pyarrow
import pytest

import taskdiag
from conftest import IS_ROOT, Stopped, in_child, until
from taskdiag import aio

pytestmark = pytest.mark.skipif(not IS_ROOT, reason="events take root")


def opened(source: Any) -> taskdiag.Events:
    """A stream of events, if this machine has the source."""
    try:
        return taskdiag.Events(source=source)
    except (taskdiag.Unsupported, taskdiag.Denied) as error:
        if source == "bpf":
            raise
        pytest.skip(f"no proc connector here: {error}")


def about(rows: Iterator[taskdiag.Row], pid: int) -> Iterator[taskdiag.Row]:
    """The events of one process, up to its end."""
    for row in rows:
        if row.pid == pid:
            yield row
            if row.event == "exit":
                return


@pytest.mark.parametrize("source", ["bpf", "connector"])
def test_a_process_comes_and_goes(source: str) -> None:
    with opened(source) as events:
        assert events.source == source
        child = subprocess.Popen(["sh", "-c", "exec true"])
        assert child.wait() == 0
        # The stream is closed while it still has events of this one.
        subprocess.run(["true"], check=True)
        rows = list(about(events, child.pid))
        assert [row.event for row in rows] == ["fork", "exec", "exec", "exit"]
        fork, _, last_exec, end = (row.to_dict() for row in rows)
        assert (fork["ppid"], end["exit_code"]) == (os.getpid(), 0)
        # What an event can't have says so, as in all rows.
        assert "filename" not in fork and fork["absent"]["filename"] == "none"
        if source == "bpf":
            assert last_exec["filename"].endswith("/true") and set(rows[0].absent.values()) == {"none"}
        assert events.lost == 0
    with pytest.raises(taskdiag.Closed):
        next(events)
    with pytest.raises(taskdiag.Closed):
        events.fileno()


def test_tables_of_events() -> None:
    with taskdiag.events(["exit"]) as events:
        ended = subprocess.Popen(["false"])
        ended.wait()
        assert select.select([events.fileno()], [], [], 10)[0]
        found: dict[int | None, int | None] = {}

        def read() -> bool:
            table = events.read(1)
            for row in table or ():
                found[row.pid] = row.exit_code
            return ended.pid in found

        until(read, "the end of the process")
        assert found[ended.pid] == 1
        # On a busy machine there is always one.
        for _ in range(20):
            began = time.monotonic()
            table = events.read(0.3)
            if table is None:
                assert 0.3 <= time.monotonic() - began < 30
                break
            assert set(table.column("event")) == {"exit"} and table.sources == {"events": "bpf"}

        def is_over() -> bool:
            subprocess.run(["true"], check=True)
            return events.read(10) is not None and not select.select([events.fileno()], [], [], 0)[0]

        # Others may end at any time.
        until(is_over, "that what was read is not there for poll(2)")
    for arguments, message in [
        ({"kinds": "start"}, 'kinds: unknown name "start"; known are fork, exec, exit'),
        ({"source": "audit"}, 'source: unknown name "audit"; known are auto, bpf, connector'),
    ]:
        with pytest.raises(taskdiag.InvalidInput, match=message):
            taskdiag.Events(**arguments)  # type: ignore[arg-type]


def test_rows_and_tables_share_the_events() -> None:
    with taskdiag.Events() as events:
        ended = [subprocess.Popen(["true"]) for _ in range(3)]
        assert [process.wait() for process in ended] == [0, 0, 0]
        found = [next(events).pid]
        assert select.select([events.fileno()], [], [], 0)[0]
        names, absent, flags = [], [], []

        def all_ended() -> bool:
            table = events.read(1)
            if table:
                rows = zip(table.column("pid"), table.column("event"), strict=True)
                found.extend(pid for pid, event in rows if event == "exit")
                arrow = pyarrow.table(table.arrow(reasons=True))
                names.extend(arrow["filename"].to_pylist())
                absent.extend(arrow["filename_absent"].to_pylist())
                flags.append(table.column("oom_killed"))
            return {process.pid for process in ended} <= set(found)

        until(all_ended, "the ends of three processes")
    # A field that does not apply to an event says so.
    assert None in names and "none" in absent
    with pytest.raises(BufferError, match=r"oom_killed\", absent=False\)"):
        for column in flags:
            memoryview(column)


def test_another_thread_closes_the_stream() -> None:
    events = taskdiag.Events([])
    errors: list[str] = []

    def read() -> None:
        reads.set()
        try:
            next(events)
        except taskdiag.Error as error:
            errors.append(error.kind)

    reads = threading.Event()
    reader = threading.Thread(target=read)
    reader.start()
    reads.wait()
    for _ in range(100):
        assert (events.lost, events.source) == (0, "bpf") and events.fileno() >= 0
        time.sleep(0.001)
    events.close()
    reader.join(60)
    assert errors == ["closed"]
    assert (events.lost, events.source) == (0, "bpf")


def test_a_child_has_to_open_its_own() -> None:
    events = taskdiag.events()

    def child() -> str:
        try:
            events.read(1)
        except taskdiag.Unsupported as error:
            return str(error)
        return "it read"

    assert "a child has to open its own" in in_child(child)
    assert in_child(lambda: taskdiag.events().source) == "bpf"
    events.close()


@pytest.mark.parametrize(
    "script",
    [
        "list(taskdiag.events(['exit'], threads=False, source='auto'))",
        "taskdiag.events([]).read()",
        "taskdiag.events([]).read(1000)",
        "list(taskdiag.watch('pid', interval=1000))",
    ],
)
def test_signals_interrupt(script: str) -> None:
    """Ctrl-C ends what waits, also where it is ignored to begin with."""
    source = (
        "import signal, sys, taskdiag; signal.signal(signal.SIGINT, signal.default_int_handler);"
        f"print('waits', flush=True); {script}"
    )
    run = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout and run.stdout.readline() == "waits\n"
    began = time.monotonic()

    def interrupted() -> bool:
        run.send_signal(signal.SIGINT)
        try:
            run.wait(0.2)
        except subprocess.TimeoutExpired:
            return False
        return True

    until(interrupted, "it ends")
    _, errors = run.communicate()
    assert "KeyboardInterrupt" in errors and time.monotonic() - began < 60


def test_signals_at_any_moment_of_a_query(stopped: Stopped) -> None:
    """It ends then or when it is done, and the handle goes on."""
    script = f"""
import signal, os, time, taskdiag
signal.signal(signal.SIGINT, signal.default_int_handler)
for source in ("bpf", "procfs"):
    # Where the machine is busy, its threads wait, too.
    handle = taskdiag.Handle(source=source, patience=10)
    handle.processes("pid,comm", pids=1)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    for ask in (
        lambda: handle.processes("all"),
        lambda: handle.files("all", uses="all,map", pids={stopped.pid}),
        lambda: handle.sockets(pids={stopped.pid}),
        lambda: taskdiag.normalize({stopped.pid}, range(0, 1 << 47, 1 << 29)),
        lambda: taskdiag.cachestat("/usr"),
    ):
        signal.setitimer(signal.ITIMER_REAL, 0.0005)
        try:
            for _ in range(100_000):
                ask()
        except KeyboardInterrupt:
            pass
        else:
            raise SystemExit("no interrupt")
        assert [row.state for row in handle.processes("state", pids={stopped.pid})] == ["T"]
    # Signals whose handlers do not raise, again and again, and calls that they interrupt.
    came = []
    signal.signal(signal.SIGALRM, lambda *_: came.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    while len(came) < 50:
        (row,) = handle.processes("all", pids={stopped.pid})
        assert row.state == "T" and "no answer" not in row.absent.values(), row.absent
        assert len(handle.files("pid,name", pids={stopped.pid}, uses="cwd")) == 1
    signal.setitimer(signal.ITIMER_REAL, 0)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_handlers_run_while_it_waits() -> None:
    """A signal handler that does not raise: the wait goes on."""
    script = """
import signal, threading, time, os, taskdiag
came = []
signal.signal(signal.SIGUSR1, lambda *_: came.append(time.monotonic()))
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
began = time.monotonic()
taskdiag.events([]).read(3)
ended = time.monotonic()
assert len(came) == 1 and came[0] < ended - 0.5 and ended - began >= 3, (came, began, ended)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_watch(stopped: Stopped) -> None:
    began = time.monotonic()
    tables = list(taskdiag.watch(["pid", "state"], interval=0.1, count=3, pids=iter([stopped.pid])))
    assert [table.to_dicts() for table in tables] == [[{"pid": stopped.pid, "state": "T"}]] * 3
    assert 0.2 <= time.monotonic() - began < 30
    assert list(taskdiag.watch(count=0)) == []
    (table,) = taskdiag.watch("pid", count=1, pids=numpy.int64(stopped.pid))  # type: ignore[arg-type]
    assert list(table.column("pid")) == [stopped.pid]


def test_only_what_changed(stopped: Stopped) -> None:
    tables = taskdiag.watch(["pid"], interval=0, changed=True)
    first = set(next(tables).column("pid"))
    assert {stopped.pid, os.getpid()} <= first
    until(lambda: stopped.pid not in (seen := set(next(tables).column("pid"))) and os.getpid() in seen, "only we ran")
    tables.close()  # type: ignore[attr-defined]


def run(main: Callable[[], Any]) -> Any:
    """Runs a coroutine to its end, which does not take long."""
    return asyncio.run(asyncio.wait_for(main(), 60))


def test_asyncio_events() -> None:
    async def main() -> tuple[int, str | None]:
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def look() -> None:
            async for event in aio.events(["exec"]):
                ready.set()
                if event.filename and event.filename.endswith("/true") and not found.done():
                    found.set_result(event.filename)

        ready = asyncio.Event()
        looking = asyncio.create_task(look())
        process = None
        while not found.done():
            process = await asyncio.create_subprocess_exec("true")
            await process.wait()
            await asyncio.sleep(0.02)
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking
        assert process
        return process.pid, found.result()

    pid, filename = run(main)
    assert pid > 0 and filename


def test_asyncio_events_and_what_is_lost() -> None:
    async def main() -> None:
        events = aio.Events(["exit"])
        assert (events.lost, events.source) == (0, None)
        found: set[int | None] = set()

        async def look() -> int | None:
            # Most of these waits are cancelled, and none of them loses an event.
            try:
                return (await asyncio.wait_for(anext(events), 0.001)).pid
            except TimeoutError:
                return None

        while events.source is None:
            await look()
        process = await asyncio.create_subprocess_exec("true")
        await process.wait()
        while process.pid not in found:
            found.add(await look())
        assert (events.lost, events.source) == (0, "bpf")
        await events.aclose()
        with pytest.raises(taskdiag.Closed):
            await anext(events)

    run(main)


@pytest.mark.parametrize("seconds", [0, 0.001, 0.01, 0.05])
def test_a_task_that_watches_is_cancelled(seconds: float) -> None:
    async def main() -> None:
        async def look() -> None:
            async for _ in aio.watch("all", interval=0):
                pass

        # At another place of the query each time.
        for _ in range(10):
            looking = asyncio.create_task(look())
            await asyncio.sleep(seconds)
            looking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await looking

    run(main)


@pytest.mark.parametrize("interval", [-1, math.nan, math.inf, 1e300])
def test_senseless_intervals(interval: float) -> None:
    with pytest.raises(taskdiag.InvalidInput, match="interval"):
        next(taskdiag.watch("pid", interval=interval))

    async def main() -> None:
        with pytest.raises(taskdiag.InvalidInput, match="interval"):
            await anext(aiter(aio.watch("pid", interval=interval)))

    run(main)


def test_asyncio_queries(stopped: Stopped) -> None:
    async def main() -> None:
        tables = await asyncio.gather(
            aio.processes("pid", pids=stopped.pid),
            aio.threads("tid", pids=stopped.pid),
            aio.tree(stopped.pid, "pid"),
            aio.memory("pid,uss_bytes", pids=stopped.pid),
            aio.files("pid,fd", pids=stopped.pid),
            aio.sockets("family", kinds="netlink,unix,tcp"),
            aio.maps(stopped.pid),
            aio.normalize(stopped.pid, [0]),
            aio.cachestat("/proc/self/exe"),
        )
        assert all(len(table) > 0 for table in tables)
        samples = [table async for table in aio.watch("pid", interval=0.05, count=2, pids=stopped.pid)]
        assert [len(sample) for sample in samples] == [1, 1]
        with pytest.raises(taskdiag.UnknownField):
            await aio.processes("pidd")
        with pytest.raises(taskdiag.InvalidInput, match=r"changed.*aio.watch"):
            await aio.processes("pid", changed=True)

    run(main)
