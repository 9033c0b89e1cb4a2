"""Compares the format of recordings with Arrow IPC: arrow_ipc.py EXPORT RECORDING

EXPORT is the output of `taskdiag history export RECORDING --parquet EXPORT`. Writes its processes as
an Arrow IPC stream with zstd, one batch per sample, as a recorder would have to: once with all rows,
once with the rows that differ from the previous sample. Needs pyarrow.
"""

import io
import pathlib
import sys

import pyarrow as pa
import pyarrow.dataset
import pyarrow.ipc

export, recording = map(pathlib.Path, sys.argv[1:])
table = pa.dataset.dataset(export / "processes", format="parquet").to_table().sort_by([("time", "ascending"), ("pid", "ascending")])
names = [name for name in table.column_names if name != "time"]


def written(only_changed):
    out = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    before = {}
    with pa.ipc.new_stream(out, table.schema, options=options) as writer:
        for time in table["time"].unique():
            sample = table.filter(pa.compute.equal(table["time"], time))
            if only_changed:
                rows = list(zip(*(sample[name].to_pylist() for name in names)))
                keys = [(row[names.index("pid")], row[names.index("start_time")]) for row in rows]
                sample = sample.filter(pa.array([before.get(key) != row for key, row in zip(keys, rows)]))
                before = dict(zip(keys, rows))
            for batch in sample.combine_chunks().to_batches():
                writer.write_batch(batch)
    return out.tell()


samples = len(table["time"].unique())
ours = sum(path.stat().st_size for path in recording.glob("full-*.tdh"))
print(f"{samples} samples of {table.num_rows / samples:.0f} processes, bytes a sample:")
print(f"  recording, all columns, events and figures: {ours / samples:.0f}")
print(f"  Arrow IPC with zstd, {len(names)} columns, all rows: {written(False) / samples:.0f}")
print(f"  Arrow IPC with zstd, {len(names)} columns, changed rows: {written(True) / samples:.0f}")
