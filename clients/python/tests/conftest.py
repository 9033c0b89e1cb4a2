"""What the tests have in common."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

import taskdiag

BUILT = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[3] / "target")) / "debug"
COMMAND, ZOO, BROKER = BUILT / "taskdiag", BUILT / "zoo", BUILT / "taskdiagd"
NOBODY = 65534
IS_ROOT = os.geteuid() == 0
SOURCES = ["procfs", "bpf"] if IS_ROOT else ["procfs"]
T = TypeVar("T")


def until(condition: Callable[[], T | None], what: str, seconds: float = 30) -> T:
    """What `condition` returns, once that is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.005)
    pytest.fail(f"not within {seconds} s: {what}")


def state_of(pid: int) -> str:
    """The state of a process, by /proc."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


class Stopped:
    """A process that is stopped, so that none of its values changes: sleep(1), or a command that
    becomes it."""

    def __init__(self, *command: str, inherited: Sequence[int] = ()) -> None:
        self.process = subprocess.Popen(command or ["sleep", "1000"], stdin=subprocess.PIPE, pass_fds=inherited)
        self.pid = self.process.pid
        name = Path(f"/proc/{self.pid}/comm")
        until(lambda: name.read_text() == "sleep\n" and state_of(self.pid) == "S", "it sleeps")
        os.kill(self.pid, signal.SIGSTOP)
        until(lambda: state_of(self.pid) == "T", "it is stopped")

    def end(self) -> None:
        """Ends it."""
        self.process.kill()
        self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()


@pytest.fixture
def stopped() -> Iterator[Stopped]:
    """A stopped process."""
    process = Stopped()
    yield process
    process.end()


@pytest.fixture(scope="session")
def zoo() -> Iterator[dict[str, int]]:
    """The pids of some strange processes, by name."""
    names = ["comm-not-utf8", "comm-newline", "args-none", "args-odd", "zombie", "stopped", "groups-3", "threads-5"]
    if not IS_ROOT:
        names = ["comm-not-utf8", "comm-newline", "args-none", "args-odd", "zombie", "stopped", "threads-5"]
    process = subprocess.Popen([ZOO, "run", *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin and process.stdout
    pids = {}
    for _ in names:
        name, pid, *_ = process.stdout.readline().split(" ")
        pids[name] = int(pid)
    yield pids
    process.stdin.close()
    process.wait()
    process.stdout.close()


@contextmanager
def a_broker(path: str) -> Iterator[subprocess.Popen[bytes]]:
    """A broker that answers at this socket, until the end."""
    broker = subprocess.Popen([BROKER, "--socket", path], stderr=subprocess.DEVNULL)

    def answers() -> bool:
        try:
            return len(taskdiag.Handle(socket=path).processes("comm")) > 0
        except taskdiag.Error:
            return False

    try:
        until(answers, "the broker answers")
        yield broker
    finally:
        broker.terminate()
        broker.wait()


def in_child(function: Callable[[], T], as_user: int | None = None) -> T:
    """What `function` returns in a child after fork(2), perhaps as another user."""
    here, there = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(here)
            if as_user is not None:
                os.setgroups([])
                os.setgid(as_user)
                os.setuid(as_user)
            try:
                result: tuple[bool, Any] = (True, function())
            except BaseException as error:  # noqa: BLE001 - it is raised in the parent
                result = (False, f"{type(error).__name__}: {error}")
            with os.fdopen(there, "wb") as pipe:
                pickle.dump(result, pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        received = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0 and received, f"the child ended with status {status}"
    good, value = pickle.loads(received)
    if not good:
        raise AssertionError(f"in the child: {value}")
    return cast(T, value)


def python(script: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """Runs a script in an interpreter of its own, which is to end well within so many seconds."""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=seconds)
    assert (run.returncode, run.stderr) == (0, ""), run
    return run


def handles() -> list[tuple[str, taskdiag.Handle]]:
    """A handle of each source."""
    return [(source, taskdiag.Handle(source=source)) for source in SOURCES]  # type: ignore[arg-type]
