"""Tables: columns in memory, Arrow, rows, absent values."""

from __future__ import annotations

import gc
import os
import pickle
import sys
import weakref
from typing import Any

import duckdb
import numpy
import polars
import pyarrow
import pytest

import taskdiag
from conftest import Stopped, python

MIXED = ["pid", "comm", "rss_bytes", "nice", "cpu_percent", "kernel_thread", "cap_effective", "cmdline", "groups",
         "limits", "state", "affinity", "start_time"]  # fmt: skip


def test_numbers_are_read_in_place() -> None:
    table = taskdiag.processes(["pid", "nice", "cpu_percent", "kernel_thread", "cap_effective"])
    for name, kind in [("pid", "u8"), ("nice", "i8"), ("cpu_percent", "f8"), ("kernel_thread", "?"),
                       ("cap_effective", "u8")]:  # fmt: skip
        column = table.column(name)
        array = numpy.asarray(column)
        assert array.dtype == numpy.dtype(kind) and array.tolist() == column.to_list() == list(column)
        again = numpy.asarray(table.column(name))
        assert array.ctypes.data == again.ctypes.data, "it was copied"
        assert not array.flags.writeable
        view = memoryview(column)
        assert (view.ndim, view.readonly, view.shape, view.strides) == (1, True, (len(table),), (view.itemsize,))
        assert bytes(view) == array.tobytes()
    with pytest.raises(ValueError, match="read-only"):
        numpy.asarray(table.column("pid"))[0] = 1
    with pytest.raises(BufferError, match="no numbers"):
        memoryview(taskdiag.processes("comm").column("comm"))


def test_arrow_shares_numbers() -> None:
    table = taskdiag.processes(["pid"])
    arrow = pyarrow.table(table)["pid"].chunk(0)
    assert arrow.buffers()[1].address == numpy.asarray(table.column("pid")).ctypes.data
    assert pyarrow.array(table.column("pid")).buffers()[1].address == arrow.buffers()[1].address


def test_absent_values_are_never_numbers(stopped: Stopped, zoo: dict[str, int]) -> None:
    pids = sorted([stopped.pid, zoo["zombie"]])
    table = taskdiag.processes(["pid", "rss_bytes"], pids=pids)
    column = table.column("rss_bytes")
    at = pids.index(zoo["zombie"])
    assert column.absent_count == 1 and column[at] is None and column[1 - at] > 0
    assert column.reasons()[at] == "no memory" and column.reasons()[1 - at] is None
    with pytest.raises(BufferError, match=r"1 of the 2 values of rss_bytes are absent.*absent=0"):
        memoryview(column)
    assert numpy.asarray(column).dtype == object
    assert numpy.asarray(table.column("rss_bytes", absent=7))[at] == 7
    assert numpy.asarray(column.valid).tolist() == [index != at for index in range(2)]
    row = table[at]
    assert row.rss_bytes is None and row["rss_bytes"] is None and row.absent == {"rss_bytes": "no memory"}
    assert table.to_dicts()[at] == row.to_dict() == {"pid": zoo["zombie"], "absent": {"rss_bytes": "no memory"}}
    arrow = pyarrow.table(table.arrow(reasons=True))
    assert arrow["rss_bytes"].null_count == 1
    assert arrow["rss_bytes_absent"].to_pylist() == column.reasons()
    assert arrow["pid_absent"].null_count == 2


def replaced(value: Any) -> Any:
    """The value with U+FFFD for what is not UTF-8."""
    if isinstance(value, list):
        return [replaced(each) for each in value]
    return os.fsencode(value).decode(errors="replace") if isinstance(value, str) else value


def test_all_who_take_arrow_get_the_same() -> None:
    table = taskdiag.processes(MIXED, where="pid != 0")
    arrow = pyarrow.table(table)
    arrow.validate(full=True)
    assert arrow.column_names == table.columns == MIXED
    for name in MIXED:
        if name != "limits":
            assert arrow[name].to_pylist() == [replaced(value) for value in table.column(name)], name
    frame = polars.DataFrame(table)
    assert frame.equals(polars.from_arrow(arrow))  # type: ignore[arg-type]
    assert frame.schema["rss_bytes"] == polars.UInt64
    series = polars.Series(table.column("rss_bytes"))
    assert series.name == "rss_bytes" and series.to_list() == frame["rss_bytes"].to_list()
    with duckdb.connect() as database:
        processes = table  # DuckDB finds it by its name
        found = database.execute("select pid, rss_bytes from processes order by pid").fetchall()
        assert found == list(zip(table.column("pid"), table.column("rss_bytes"), strict=True))
        assert len(found) == len(processes)
    limits = {each["name"]: (each["soft"], each["hard"]) for each in arrow["limits"][0].as_py()}
    assert limits == table[0].limits and len(limits) == 16
    assert pyarrow.schema(table).equals(arrow.schema)


def test_text_that_is_not_utf8(zoo: dict[str, int]) -> None:
    table = taskdiag.processes(["comm", "cmdline"], pids=[zoo["comm-not-utf8"], zoo["args-odd"]])
    raw = pyarrow.table(table.arrow(binary=True))
    assert raw.schema.field("comm").type == pyarrow.binary()
    for row, comm, arguments in zip(table, raw["comm"].to_pylist(), raw["cmdline"].to_pylist(), strict=True):
        assert row.comm is not None and row.cmdline is not None
        assert os.fsencode(row.comm) == comm
        assert [os.fsencode(text) for text in row.cmdline] == arguments
    replaced = pyarrow.table(table)
    replaced.validate(full=True)
    assert any("\ufffd" in comm for comm in replaced["comm"].to_pylist())
    assert any(isinstance(row["comm"], dict) for row in table.to_dicts())


def test_rows_are_light() -> None:
    table = taskdiag.processes(["pid", "comm"])
    rows = iter(table)
    assert rows.__length_hint__() == len(table)  # type: ignore[attr-defined]
    first = next(rows)
    assert sys.getsizeof(first) <= 48
    assert first.pid == table[0].pid == table.column("pid")[0]
    assert table[-1].pid == table.column("pid")[-1]
    assert dir(first) == ["absent", "comm", "pid", "to_dict"]
    assert repr(first) == f'<taskdiag.Row pid={first.pid} comm="{first.comm}">'
    for index in (len(table), -len(table) - 1):
        with pytest.raises(IndexError, match="no row"):
            table[index]
    with pytest.raises(IndexError, match="no row"):
        table.column("pid")[len(table)]
    with pytest.raises(AttributeError, match=r"not asked for.*pid, comm"):
        first.rss_bytes
    with pytest.raises(AttributeError, match="no column"):
        first.rrs_bytes
    with pytest.raises(taskdiag.UnknownField, match="no column"):
        first["rrs_bytes"]
    with pytest.raises(TypeError):
        pickle.dumps(first)


def test_a_table_outlives_its_handle(stopped: Stopped) -> None:
    handle = taskdiag.Handle()
    table = handle.processes(["pid", "comm", "nice"], pids=stopped.pid)
    before = table.to_dicts()
    handle.processes(["pid", "comm"])
    handle.close()
    with pytest.raises(taskdiag.Closed, match="make another"):
        handle.processes()
    del handle
    array, arrow = numpy.asarray(table.column("nice")), pyarrow.table(table)
    row = table[0]
    assert table.to_dicts() == before
    del table
    gc.collect()
    assert (row.pid, array.tolist()) == (stopped.pid, [os.nice(0)]) and arrow["comm"].to_pylist() == ["sleep"]


def test_exports_keep_what_they_need() -> None:
    """What was not taken out of a capsule is given back with it."""
    table = taskdiag.processes(MIXED)
    for _ in range(100):
        table.__arrow_c_stream__()
        table.__arrow_c_schema__()
        table.column("comm").__arrow_c_array__()
    values: Any = memoryview(table.column("pid"))
    del table
    gc.collect()
    assert values[0] > 0


def test_memory_is_that_of_the_columns() -> None:
    """A table of many rows takes at most twice its columns, and nothing stays of it."""
    script = """
import gc, sys, taskdiag, threading
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
# However few processes the machine has.
for _ in range(500):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
fields = ["pid", "ppid", "comm", "uid", "state", "rss_bytes", "utime_ns", "cmdline"]
with taskdiag.Handle(source="procfs") as handle:
    handle.threads(fields)
    before = rss()
    tables = [handle.threads(fields)]
    while sum(table.nbytes for table in tables) < 1 << 22:
        tables += [handle.threads(fields) for _ in range(10)]
    grown = rss() - before
    size = sum(table.nbytes for table in tables)
    print(grown, size)
    assert grown <= 2 * size, (grown, size)
    del tables
    gc.collect()
"""
    python(script)


def test_slices_are_lists() -> None:
    table = taskdiag.processes(["pid", "comm"])
    pids = table.column("pid").to_list()
    ends = [None, 0, 3, -2, 9**9]
    for part in (slice(start, stop, step) for start in ends for stop in ends for step in (None, 2, -1)):
        assert [row.pid for row in table[part]] == pids[part]
        assert table.column("pid")[part] == pids[part]
    with pytest.raises(ValueError, match="zero"):
        table[::0]


def test_empty_tables() -> None:
    table = taskdiag.processes(MIXED, where="pid == 0")
    assert len(table) == 0 and table.to_dicts() == [] and list(table) == []
    assert numpy.asarray(table.column("pid")).tolist() == [] and memoryview(table.column("pid")).nbytes == 0
    assert pyarrow.table(table).num_rows == 0 and polars.DataFrame(table).shape == (0, len(MIXED))


def test_tables_are_freed() -> None:
    table = taskdiag.processes(["pid"])
    row, column = table[0], table.column("pid")
    kept = sys.getrefcount(table)
    del row
    assert sys.getrefcount(table) == kept - 1
    with pytest.raises(TypeError):
        weakref.ref(column)
