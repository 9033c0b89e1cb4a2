"""Mappings, addresses, files, the page cache, memory and trees are those of the command."""

from __future__ import annotations

import ctypes
import math
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pytest

import taskdiag
from conftest import IS_ROOT, NOBODY, SOURCES, Stopped, a_broker, in_child
from test_command import command, document


@pytest.mark.parametrize("source", ["auto", "procmap", "procfs", *(["bpf"] if IS_ROOT else [])])
def test_maps(source: Any, stopped: Stopped) -> None:
    try:
        table = taskdiag.maps(stopped.pid, build_ids=True, go_build_ids=True, source=source)
    except taskdiag.Unsupported as error:
        # PROCMAP_QUERY is of Linux 6.11.
        assert source == "procmap" and "6.11" in str(error)
        return
    assert table.to_dicts() == command("maps", str(stopped.pid), "--build-id", "-o", "+go_build_id", "--source", source)
    lines = Path(f"/proc/{stopped.pid}/maps").read_text().splitlines()
    assert len(table) == len([line for line in lines if "[vsyscall]" not in line]) > 10
    assert pyarrow.table(table)["start"].to_pylist() == table.column("start").to_list()
    executable = taskdiag.maps(stopped.pid, executable=True, file_backed=True)
    assert 0 < len(executable) < len(table) and all("x" in row.perms for row in executable)


def test_usage_of_maps(stopped: Stopped) -> None:
    table = taskdiag.maps(stopped.pid, usage=True)
    theirs = command("maps", str(stopped.pid), "-x")
    assert [row["start"] for row in theirs] == [row["start"] for row in table.to_dicts()]
    assert sum(table.column("rss_bytes").to_list()) > 0
    assert table.column("hugetlb_bytes").to_list() == [row["hugetlb_bytes"] for row in theirs]


def test_normalize(stopped: Stopped) -> None:
    spaces = taskdiag.maps(stopped.pid)
    addresses = [start + 16 for start in spaces.column("start").to_list()] + [1]
    table = taskdiag.normalize(stopped.pid, addresses)
    assert table.to_dicts() == command("normalize", str(stopped.pid), *map(hex, addresses))
    assert taskdiag.normalize(stopped.pid, numpy.array(addresses, dtype="u8")).to_dicts() == table.to_dicts()
    assert taskdiag.normalize(stopped.pid, spaces.column("start")).column("addr").to_list() == [
        address - 16 for address in addresses[:-1]
    ]
    assert table[-1].absent["name"] == "unmapped"
    table = taskdiag.normalize(stopped.pid, addresses, segments=True)
    assert table.to_dicts() == command("normalize", str(stopped.pid), *map(hex, addresses), "-o", "all")
    assert any(row.elf_address is not None for row in table)
    with pytest.raises(taskdiag.InvalidInput, match="not an address"):
        taskdiag.normalize(stopped.pid, [-1])
    with pytest.raises(taskdiag.NoSuchProcess):
        taskdiag.maps(2**22 + 5)
    with pytest.raises(taskdiag.InvalidInput, match="procmap, bpf"):
        taskdiag.maps(stopped.pid, source="proc")  # type: ignore[arg-type]


@pytest.mark.parametrize("source", SOURCES)
def test_files(source: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        held = Path(directory, "held")
        held.write_bytes(b"x" * 5000)
        asleep = Stopped("sh", "-c", f"exec sleep 1000 3<{held} 4<{held}")
        try:
            held.unlink()
            table = taskdiag.files(pids=asleep.pid, source=source)
            assert table.to_dicts() == command("files", str(asleep.pid), "--source", source)
            assert {row.use for row in table} == {"cwd", "root", "exe", "fd"}
            ours = taskdiag.files("all", pids=asleep.pid, deleted=True, source=source)
            (row,) = [row for row in ours if row.fd == 3]
            assert (row.name, row.size_bytes, row.deleted) == (f"{held} (deleted)", 5000, True)
            pipes = taskdiag.files(["fd"], pids=asleep.pid, kinds=["fifo"], uses="fd", source=source)
            assert pipes.columns == ["fd"] and pipes.column("fd").to_list()[0] == 0
        finally:
            asleep.end()
        with pytest.raises(taskdiag.Error):
            taskdiag.files(paths=[str(held)])
    for arguments, message in [({"kinds": "pipe"}, "known are file"), ({"uses": "x"}, "known are cwd")]:
        with pytest.raises(taskdiag.InvalidInput, match=message):
            taskdiag.files(**arguments)  # type: ignore[arg-type]
    with pytest.raises(taskdiag.UnknownField, match="the columns are: pid, comm"):
        taskdiag.files(["inodes"])


@pytest.mark.parametrize("source", SOURCES)
def test_other_ends(source: Any) -> None:
    with socket.socket() as unbound:
        number = unbound.fileno()
        asleep = Stopped("sleep", "1000", inherited=[number])
    try:
        assert asleep.process.stdin
        comm = Path("/proc/self/comm").read_text().strip()
        ours = {"pid": os.getpid(), "comm": comm, "fd": asleep.process.stdin.fileno()}
        fields = ["fd", "kind", "peers"]
        table = taskdiag.files(fields, pids=asleep.pid, uses="fd", source=source)
        rows = {row.fd: row for row in table}
        assert rows[0].kind == "fifo" and rows[0].peers == [ours]
        # It is bound to nothing, so no list of the kernel has it. Process 1 is shielded from everybody
        # on some systems, and could be in a network namespace of its own.
        assert rows[number].peers is None and rows[number].absent["peers"] in ("unsupported", "denied")
        assert pyarrow.table(table)["peers"].to_pylist() == [row.peers for row in table]
        asked = ["-o", ",".join(fields), "--use", "fd", "--source", source]
        theirs = {row["fd"]: row for row in command("files", *asked, str(asleep.pid))}
        both = (0, number)
        assert [theirs[fd] for fd in both] == [row for row in table.to_dicts() if row["fd"] in both]
        assert "peers" not in taskdiag.files(pids=asleep.pid, source=source).columns
        assert "peers" in taskdiag.files("all", pids=asleep.pid, source=source).columns
    finally:
        asleep.end()


def test_sockets() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind(f"\0taskdiag-{os.getpid()}")
        port = server.getsockname()[1]
        table = taskdiag.sockets(kinds="tcp", ports=[port], own_netns=True)
        assert table.to_dicts() == command("sockets", "--tcp", "--port", str(port), "--own-netns")
        (row,) = table
        comm = Path("/proc/self/comm").read_text().strip()
        owner = {"pid": os.getpid(), "comm": comm, "fd": server.fileno()}
        assert (row.state, row.local_port, row.owners) == ("LISTEN", port, [owner])
        assert pyarrow.table(table)["owners"].to_pylist() == [[owner]]
        own = taskdiag.sockets(["inode", "path", "family"], pids=os.getpid(), own_netns=True)
        inodes = {os.fstat(each.fileno()).st_ino for each in (server, local)}
        assert inodes <= set(own.column("inode")) and own.columns == ["inode", "path", "family"]
        named = taskdiag.sockets("inode", where=f"local_port == {port} and pid == {os.getpid()}", states="listen")
        assert named.column("inode").to_list() == [row.inode]
        info = taskdiag.sockets(info=True, kinds="tcp", ports=[port], listening=True, own_netns=True)
        assert info.to_dicts() == command("sockets", "--tcp", "-l", "--port", str(port), "--own-netns", "--info")
    for arguments, message in [({"kinds": "icmp"}, "known are tcp"), ({"states": "x"}, "known are"),
                               ({"where": "port == 1"}, "port")]:  # fmt: skip
        with pytest.raises(taskdiag.InvalidInput, match=message):
            taskdiag.sockets(**arguments)  # type: ignore[arg-type]


def test_counters_are_those_of_the_command(stopped: Stopped) -> None:
    for what, table in (("files", taskdiag.files(pids=stopped.pid)), ("sockets", taskdiag.sockets(pids=stopped.pid))):
        assert list(table.counters) == list(document(what, "-p", str(stopped.pid))["counters"])


@pytest.mark.skipif(not IS_ROOT, reason="the broker takes root")
def test_files_and_sockets_through_the_broker() -> None:
    """Nobody sees the descriptors of nobody's processes, and the owners of their sockets."""
    with tempfile.TemporaryDirectory() as directory, socket.create_server(("127.0.0.1", 0)) as roots:
        os.chmod(directory, 0o755)
        path = f"{directory}/socket"

        def seen() -> tuple[dict[str, str], dict[str, str], list[Any], str, Any]:
            handle = taskdiag.Handle(socket=path)
            with socket.create_server(("127.0.0.1", 0)) as own:
                table = handle.files(["fd", "name"], pids=os.getpid(), uses="fd")
                links = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in ("0", "1", "2", str(own.fileno()))}
                names = {str(row.fd): row.name for row in table if str(row.fd) in links}
                ports = [own.getsockname()[1], roots.getsockname()[1]]
                # This process has inherited it.
                roots.close()
                sockets = handle.sockets(["local_port", "owners"], kinds="tcp", ports=ports)
                (mine,) = [row.owners for row in sockets if row.local_port == ports[0]]
                (other,) = [row.absent["owners"] for row in sockets if row.local_port == ports[1]]
                expected = (os.getpid(), own.fileno())
                return links, names, [(row["pid"], row["fd"]) for row in mine], other, expected

        with a_broker(path):
            links, names, mine, other, expected = in_child(seen, NOBODY)
    assert links == names and len(links) == 4
    assert mine == [expected] and other == "denied"
    with pytest.raises(taskdiag.Error, match="/nonexistent"):
        taskdiag.Handle(socket="/nonexistent").sockets("family")
    with pytest.raises(taskdiag.Error, match="/nonexistent"):
        taskdiag.sockets("family", socket="/nonexistent")
    with pytest.raises(taskdiag.Error, match="/nonexistent"):
        taskdiag.files("name", socket="/nonexistent")


def test_cachestat() -> None:
    with tempfile.TemporaryDirectory() as directory:
        for name, size in [("a", 4096), ("b", 100_000), ("c/d", 1)]:
            path = Path(directory, name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"x" * size)
        os.sync()
        table = taskdiag.cachestat(directory)
        assert [Path(row.path).name for row in table] == ["a", "b", "d"]
        theirs = sorted(command("cache", directory), key=lambda row: str(row["path"]))
        assert table.to_dicts() == theirs
        assert table.column("size_bytes").to_list() == [4096, 100_000, 1]
        assert min(table.column("cached_bytes").to_list()) >= 1
        (file,) = taskdiag.cachestat(Path(directory, "b"))
        assert file.cached_bytes >= 100_000
        if IS_ROOT:
            os.chmod(directory, 0o755)
            denied = in_child(lambda: [row.absent for row in taskdiag.cachestat(directory)], NOBODY)
            assert all(set(absent.values()) <= {"denied"} for absent in denied)
    with pytest.raises(taskdiag.Error, match="No such file"):
        taskdiag.cachestat(directory)


def test_memory(stopped: Stopped) -> None:
    (row,) = taskdiag.memory(pids=stopped.pid, budget=math.inf, max_age=0)
    assert row.uss_bytes is not None and row.pss_bytes is not None and row.pss_bytes >= row.uss_bytes > 0
    with open(f"/proc/{stopped.pid}/smaps_rollup") as rollup:
        pss = next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Pss:"))
    # What others share with it changes.
    assert abs(pss - row.pss_bytes) < 1 << 20
    (none,) = taskdiag.memory(["pid", "pss_bytes"], pids=stopped.pid, budget=0)
    assert none.absent == {"pss_bytes": "over budget"}
    (large,) = taskdiag.memory(["pid", "pss_bytes"], pids=os.getpid(), max_rss_bytes=1, max_age=0)
    assert large.absent == {"pss_bytes": "over budget"}
    ours = taskdiag.memory(["pid", "rollup_rss_bytes", "anonymous_bytes"], pids=stopped.pid)
    theirs = command("mem", "-p", str(stopped.pid), "-o", "pid,rollup_rss_bytes,anonymous_bytes")
    assert ours.to_dicts() == theirs


def test_tree(zoo: dict[str, int]) -> None:
    table = taskdiag.tree(os.getpid(), ["pid", "ppid", "comm"], source="procfs")
    theirs = command("tree", str(os.getpid()), "-o", "pid,ppid,comm", "--source", "procfs")
    # The command is below us, too.
    ours = table.to_dicts()
    assert len(theirs) == len(ours) + 1 and [row for row in theirs if row in ours] == ours
    assert table[0].pid == os.getpid() and table[0].depth == 0
    depths = {row.pid: row.depth for row in table}
    assert set(zoo.values()) <= depths.keys()
    assert all(depths[row.pid] == depths[row.ppid] + 1 for row in table if row.depth > 0)
    whole = taskdiag.tree(fields="pid,ppid")
    assert len(set(whole.column("pid"))) == len(whole) > len(table)
    with pytest.raises(taskdiag.NoSuchProcess, match="no process with pid"):
        taskdiag.tree(2**22 + 5)


def test_senseless_paths() -> None:
    with pytest.raises(taskdiag.InvalidInput, match="neither a regular file nor"):
        taskdiag.cachestat("/dev/null")
    with pytest.raises(taskdiag.InvalidInput, match="cachestat, mincore"):
        taskdiag.cachestat("/", source="x")  # type: ignore[arg-type]
    assert ctypes.sizeof(ctypes.c_void_p) == 8


def test_one_path_or_several(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/not utf-8 \xff"
    with open(name, "w") as held:
        fds = [held.fileno()]
        given: list[Any] = [name, os.fsdecode(name), tmp_path, str(tmp_path), [name, "/dev/null"], (tmp_path,)]
        for paths in given:
            table = taskdiag.files("fd,name", pids=os.getpid(), uses="fd", paths=paths)
            assert [row.fd for row in table if row.name == os.fsdecode(name)] == fds, paths
        for path in (name, os.fsdecode(name), tmp_path):
            assert len(taskdiag.cachestat(path)) == 1
    senseless: list[Any] = [3, [3], [None]]
    for paths in senseless:
        with pytest.raises(TypeError):
            taskdiag.files(paths=paths)


def test_one_port_or_several() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        given: list[Any] = [port, [port], {port, 1}]
        for ports in given:
            (row,) = taskdiag.sockets("local_port", kinds="tcp", ports=ports, own_netns=True)
            assert row.local_port == port
    senseless: list[Any] = [-1, 65536, [65536], ["80"], "80", 2**70]
    for ports in senseless:
        with pytest.raises(taskdiag.InvalidInput, match="is not a port"):
            taskdiag.sockets(ports=ports)
