"""Errors: what is wrong, and what to do."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import taskdiag
from conftest import IS_ROOT, NOBODY, SOURCES, a_broker, in_child, python


def test_unknown_names() -> None:
    with pytest.raises(taskdiag.UnknownField, match=r"near it are: rss_bytes.*taskdiag.FIELDS") as caught:
        taskdiag.processes(["pid", "rss"])
    assert (caught.value.field, caught.value.near[0]) == ("rss", "rss_bytes")
    assert isinstance(caught.value, taskdiag.InvalidInput) and isinstance(caught.value, ValueError)
    assert caught.value.kind == "invalid input"
    with pytest.raises(taskdiag.UnknownField):
        taskdiag.processes("x" * 1_000_000)
    with pytest.raises(taskdiag.InvalidInput, match="at least one"):
        taskdiag.processes([])
    table = taskdiag.processes("pid")
    with pytest.raises(taskdiag.UnknownField, match="not asked for"):
        table.column("comm")


def test_filters_say_where_they_are_wrong() -> None:
    with pytest.raises(taskdiag.NotAFilter, match="equality is `==`") as caught:
        taskdiag.processes(where="pid = 1")
    assert caught.value.column == 5
    with pytest.raises(taskdiag.NotAFilter, match="rss_bytes"):
        taskdiag.processes(where="rss > 1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pids": -1}, "-1 is not a process id"),
        ({"pids": [1, 2**40]}, "is not a process id"),
        ({"pids": ["1"]}, "is not a process id"),
        ({"pids": 1, "children_of": 1}, "only one of"),
        ({"children_of": []}, r"\[\] is not a process id"),
        ({"children_of": [1, 2]}, r"\[1, 2\] is not a process id"),
        ({"descendants_of": ""}, "is not a process id"),
        ({"patience": -1.0}, "patience: -1.0 is not a time in seconds"),
        ({"patience": 1e18}, "patience: 1e18 is not a time in seconds"),
        ({"where": "comm == '\udcff'"}, "where: it has surrogates"),
        ({"budget": float("nan")}, "budget"),
        ({"source": "ebpf"}, 'source: unknown name "ebpf"; known are auto, bpf, procfs, broker'),
    ],
)
def test_senseless_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(taskdiag.InvalidInput, match=message):
        taskdiag.processes("pid", **arguments)


def test_numbers_of_bytes_that_are_none() -> None:
    for number in (-1, 2**64):
        with pytest.raises(taskdiag.InvalidInput, match=f"max_rss_bytes: {number} is not a number of bytes"):
            taskdiag.memory("pid", max_rss_bytes=number)
        with pytest.raises(taskdiag.InvalidInput, match=f"ring_bytes: {number} is not a number of bytes"):
            taskdiag.Events(ring_bytes=number)
    with pytest.raises(taskdiag.InvalidInput, match="2147483649 is more than 2 GiB"):
        taskdiag.Events(ring_bytes=2**31 + 1)


def test_wrong_types() -> None:
    for arguments in ({"fields": 1}, {"where": 1}, {"fields": [1]}, {"absent": 1}):
        with pytest.raises(TypeError):
            taskdiag.processes(**arguments)
    column = taskdiag.processes(["pid", "comm"])
    for stand_in in ("x", 1.5):
        with pytest.raises(TypeError):
            column.column("pid", absent=stand_in)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        column.column("pid", absent=-1)
    with pytest.raises(TypeError, match="no numbers"):
        column.column("comm", absent=1)


def test_nobody_is_there() -> None:
    with pytest.raises(taskdiag.NoSuchProcess, match="no process with pid") as caught:
        taskdiag.processes("comm", children_of=2**22 + 5)
    assert isinstance(caught.value, ProcessLookupError)


@pytest.mark.parametrize(("source", "number"), [("procfs", 50_000), ("bpf", 1_000_000)])
def test_huge_lists_of_pids(source: Any, number: int) -> None:
    if source not in SOURCES:
        pytest.skip("programs take root")
    table = taskdiag.processes("pid", pids=range(1, number), source=source)
    assert len(table) > 1 and len(table) + len(table.missing) == number - 1
    same = taskdiag.processes("pid", pids=[os.getpid()] * number, source=source)
    assert (list(same.column("pid")), same.missing) == ([os.getpid()], [])


def test_no_broker() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/socket"
        says_what_to_do(path, lambda: taskdiag.processes("comm", socket=path))
        says_what_to_do(path, lambda: taskdiag.maps(os.getpid(), socket=path))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(path)
            says_what_to_do(path, lambda: taskdiag.files("pid", socket=path))


def says_what_to_do(path: str, ask: Callable[[], object]) -> None:
    """Checks the error that nobody listens at a path."""
    text = f"^no broker answers at {path}: .* \\(start it as root: taskdiagd --socket {path}\\)$"
    with pytest.raises(taskdiag.Unsupported, match=text):
        ask()


@contextmanager
def an_impostor(answer: Callable[[int], bytes]) -> Iterator[str]:
    """The path of a socket where each request, by its number, gets such an answer; none ends the
    connection."""

    def converse(client: socket.socket) -> None:
        with client:
            while (request := client.recv(4096)) and (packet := answer(struct.unpack_from("=I", request, 8)[0])):
                client.send(packet)

    def listen() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=converse, args=(client,)).start()

    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"{directory}/socket")
        listener.listen()
        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield f"{directory}/socket"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def of_version(version: int) -> Callable[[int], bytes]:
    """Answers the first question of a client as a broker does whose records have this version."""

    def answer(number: int) -> bytes:
        bits = struct.pack("=HHQQII", 28, 129, 2**64 - 1, 2**64 - 1, version, 0)
        task = struct.pack("=III", 0, 0, 0)
        end = struct.pack("=IHHIIi", 20, 3, 0, number, 0, 0)
        return struct.pack("=IHHII", 16 + len(task) + len(bits), 0xD101, 0, number, 0) + task + bits + end

    return answer


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", taskdiag.Malformed, "another request"),
        (lambda _: b"\x01", taskdiag.Malformed, "another request"),
        (lambda _: b"\xff" * 4096, taskdiag.Malformed, "another request"),
        (lambda number: struct.pack("=IHHIIi", 20, 3, 0, number, 0, 0), taskdiag.Malformed, "without bits"),
        (of_version(1), taskdiag.Unsupported, "version 1,.* install both in the same version$"),
        (of_version(1000), taskdiag.Unsupported, "version 1000,.* install both in the same version$"),
        (lambda _: b"", taskdiag.Error, "ended the connection"),
    ],
    ids=["text", "a byte", "ones", "no bits", "older", "newer", "the end"],
)
def test_who_listens_is_no_broker(answer: Callable[[int], bytes], error: type[Exception], message: str) -> None:
    with an_impostor(answer) as path:
        handle = taskdiag.Handle(socket=path)
        questions: list[Callable[[], taskdiag.Table]] = [
            lambda: handle.processes("comm"),
            lambda: handle.files("pid,name"),
            lambda: taskdiag.maps(os.getpid(), socket=path),
        ]
        for ask in questions:
            with pytest.raises(error, match=message) as caught:
                ask()
            assert path in str(caught.value)


@pytest.mark.skipif(not IS_ROOT, reason="the broker takes root")
def test_a_broker_that_dies() -> None:
    """Nobody gets root's processes from it, a dead one is an error, and a new one answers again."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        path = f"{directory}/socket"
        with a_broker(path) as broker:
            handle = taskdiag.Handle(socket=path)
            table = handle.processes(["pid", "comm"], pids=os.getpid())
            assert table.sources == {"base": "broker"} and len(table) == 1
            own = in_child(lambda: [row.pid for row in taskdiag.processes("pid,comm", socket=path)], NOBODY)
            assert os.getpid() not in own
            broker.kill()
            broker.wait()
            for _ in range(2):
                says_what_to_do(path, lambda: handle.processes(["pid", "comm"]))
                says_what_to_do(path, lambda: handle.files("pid"))
        os.unlink(path)
        with a_broker(path):
            assert len(handle.processes(["pid", "comm"], pids=os.getpid())) == 1


@pytest.mark.skipif(not IS_ROOT, reason="root becomes nobody")
def test_denied_says_what_is_missing() -> None:
    def refused() -> str:
        try:
            taskdiag.processes("comm", source="bpf")
        except (taskdiag.Denied, taskdiag.Unsupported) as error:
            return str(error)
        return "answered"

    assert "CAP_BPF" in in_child(refused, NOBODY)


def test_the_table_of_fields() -> None:
    assert taskdiag.FIELDS["rss_bytes"].kind == "bytes"
    assert taskdiag.GROUPS["tty"] == ("tty_nr", "tpgid")
    assert set(taskdiag.GROUPS) == {info.group for info in taskdiag.FIELDS.values()}
    table = taskdiag.processes(list(taskdiag.FIELDS), pids=os.getpid())
    assert table.columns == list(taskdiag.FIELDS)
    for name in table.columns:
        assert table.column(name).kind == taskdiag.FIELDS[name].kind
    assert "rss_bytes" in repr(taskdiag.FIELDS["rss_bytes"])


def test_imports_are_quick() -> None:
    """Nothing of the standard library that takes long is imported."""
    script = "import sys; before = set(sys.modules); import taskdiag; print(*(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    own = {name for name in run.stdout.split() if not name.startswith("taskdiag")}
    assert own <= {"__future__", "_thread"}, own
    assert Path(taskdiag.__file__).with_name("py.typed").exists()


WITHOUT_THREADS = """
import ctypes, os, platform, struct
clone3, clone = 435, {"x86_64": 56, "aarch64": 220}[platform.machine()]
code = [(0x20, 0, 0, 0), (0x15, 1, 0, clone3), (0x15, 0, 1, clone), (6, 0, 0, 0x5000B), (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 5, ctypes.addressof(code)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
import taskdiag
own = taskdiag.processes(["pid", "user", "comm", "rss_bytes", "cmdline", "pss_bytes"], pids=os.getpid())[0]
assert own.user and own.comm and own.rss_bytes, own
assert own.absent == {"cmdline": "no thread", "pss_bytes": "no thread"}, own.absent
assert len(taskdiag.processes()) > 1 and len(taskdiag.cachestat("/proc/self/exe")) == 1
for ask in [lambda: taskdiag.maps(os.getpid()), lambda: taskdiag.files(), lambda: taskdiag.sockets()]:
    try:
        ask()
    except taskdiag.Error as error:
        assert "thread" in str(error) or "unavailable" in str(error), error
"""


def test_no_thread_can_be_started() -> None:
    """What needs no thread is there, and the rest has that reason."""
    python(WITHOUT_THREADS)
