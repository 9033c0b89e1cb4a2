"""The cases of conformance/cases.json: see the README there."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import taskdiag
from conftest import IS_ROOT, NOBODY, ZOO, a_broker, in_child
from test_command import command

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[3] / "conformance/cases.json").read_text())


def runs() -> Iterator[Any]:
    """Each case with each source and user."""
    for case in CASES:
        for source in case["sources"] if IS_ROOT else ["procfs"]:
            for user in case["as"]:
                mine = user == "nobody" and not case.get("needs_root")
                # Nobody can't load programs, and gets from the broker what nobody's processes have.
                if (IS_ROOT and not (user == "nobody" and source != "procfs")) or (not IS_ROOT and mine):
                    yield pytest.param(case, source, user, id=f"{case['name']}: {source}, {user}")


@pytest.fixture(scope="module")
def animals() -> Iterator[dict[str, int]]:
    """The pids of the processes of all cases, by name."""
    names = sorted({name for case in CASES for name in case["zoo"] if IS_ROOT or name != "groups-3"})
    process = subprocess.Popen([ZOO, "run", *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin and process.stdout
    lines = [process.stdout.readline().split(" ") for _ in names]
    yield {line[0]: int(line[1]) for line in lines}
    process.stdin.close()
    process.wait()
    process.stdout.close()


@pytest.fixture(scope="module")
def socket() -> Iterator[str]:
    """The socket of a broker."""
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/socket"
        if not IS_ROOT:
            yield path
            return
        with a_broker(path):
            yield path


def of_proc(relation: dict[str, Any], pid: int) -> Any:
    """What /proc has, as JSON has it."""
    path = Path(f"/proc/{pid}", relation["file"])
    if relation.get("link"):
        return os.readlink(path)
    if relation.get("entries"):
        return len(os.listdir(path))
    text = path.read_bytes()
    if relation.get("args"):
        return [as_json(each) for each in text.removesuffix(b"\0").split(b"\0")]
    if "stat" in relation:
        return int(text.rsplit(b")", 1)[1].split()[relation["stat"] - 3])
    if "line" not in relation:
        return as_json(text.removesuffix(b"\n"))
    (line,) = (line for line in text.splitlines() if line.startswith(relation["line"].encode() + b":"))
    word = line.split()[relation.get("word", 0) + 1].decode()
    return int(word) * relation.get("times", 1) if word.isdigit() else word


def as_json(text: bytes) -> Any:
    """Bytes as the command's JSON has them."""
    import base64

    try:
        return text.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(text).decode()}


def asked(case: dict[str, Any], arguments: dict[str, Any], pids: list[int]) -> list[dict[str, Any]]:
    """The rows that a case is about."""
    match case.get("rows", "processes"):
        case "maps":
            (pid,) = pids
            rows = taskdiag.maps(pid, source=arguments["source"], socket=arguments["socket"])
            assert rows.columns == case["fields"]
            return rows.to_dicts()
        case kind:
            ask = {"processes": taskdiag.processes, "threads": taskdiag.threads, "files": taskdiag.files, "sockets": taskdiag.sockets}
            return ask[kind](**arguments, pids=pids).to_dicts()


def check_rows(case: dict[str, Any], name: str, pid: int, mine: list[dict[str, Any]]) -> None:
    """Checks the rows of one process."""
    is_task = case.get("rows", "processes") in ("processes", "threads")
    expected = case.get("rows_expected", {}).get(name, 1 if is_task else None)
    assert len(mine) == expected if expected is not None else mine, name
    absent = case.get("absent", {}).get(name, {} if is_task else None)
    assert absent is None or all(row.get("absent", {}) == absent for row in mine), name
    for relation in case.get("proc", []):
        about = [row for row in mine if row.items() >= relation.get("row", {}).items()]
        assert about or expected == 0, (name, relation)
        for row in about:
            assert row[relation["field"]] == of_proc(relation, pid), (name, relation)


def of_command(case: dict[str, Any], source: str, pids: list[int], socket: str) -> list[dict[str, Any]]:
    """The rows that the command has."""
    rows, listed = case.get("rows", "processes"), ",".join(map(str, pids))
    options = ["-o", ",".join(case["fields"]), "--source", source]
    options += [listed] if rows == "maps" else ["-p", listed]
    options += ["-T"] if rows == "threads" else []
    options += ["--where", case["where"]] if "where" in case else []
    options += ["--socket", socket] if source == "broker" else []
    return command({"processes": "ps", "threads": "ps"}.get(rows, rows), *options)


def check(case: dict[str, Any], source: Any, pids: dict[str, int], socket: str) -> None:
    """Runs a case as whoever calls it."""
    path = socket if source == "broker" else None
    arguments = {"fields": case["fields"], "where": case.get("where"), "source": source, "socket": path}
    if "error" in case:
        with pytest.raises(taskdiag.Error) as caught:
            taskdiag.processes(**arguments)
        assert caught.value.kind == case["error"]["kind"]
        assert all(part in str(caught.value) for part in case["error"]["mentions"])
        return
    rows = asked(case, arguments, list(pids.values()))
    # Sockets may be of several processes.
    for name, pid in pids.items():
        mine = rows if case.get("rows") == "sockets" else [row for row in rows if row["pid"] == pid]
        check_rows(case, name, pid, mine)
    if case.get("command"):
        theirs = of_command(case, source, list(pids.values()), socket)
        assert rows == theirs and [list(row) for row in rows] == [list(row) for row in theirs]


@pytest.mark.parametrize(("case", "source", "user"), list(runs()))
def test_case(case: dict[str, Any], source: str, user: str, animals: dict[str, int], socket: str) -> None:
    pids = {name: animals[name] for name in case["zoo"] if name in animals}
    if user == "nobody" and IS_ROOT:
        in_child(lambda: check(case, source, pids, socket), NOBODY)
    else:
        check(case, source, pids, socket)
