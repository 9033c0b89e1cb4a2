"""The ten biggest processes by their proportional share of memory (PSS), as a polars frame."""

import polars

import taskdiag

table = taskdiag.memory(["pid", "user", "comm", "pss_bytes", "uss_bytes"], budget=2)
frame = polars.DataFrame(table).drop_nulls("pss_bytes").sort("pss_bytes", descending=True)
print(frame.head(10))
print(f"{table.column('pss_bytes').absent_count} processes have no value, such as kernel threads")
