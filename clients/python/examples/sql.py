"""SQL over processes and files: who holds space of deleted files, and who has most files open."""

import duckdb

import taskdiag

processes = taskdiag.processes(["pid", "comm", "rss_bytes"])
files = taskdiag.files(["pid", "fd", "use", "kind", "deleted", "size_bytes", "name"], uses="all")
with duckdb.connect() as database:
    # DuckDB finds tables by the names of variables.
    print(database.sql("select comm, sum(size_bytes) as held from processes join files using (pid) where deleted "
                       "and kind = 'file' group by comm order by held desc limit 5"))  # fmt: skip
    print(database.sql("select pid, comm, rss_bytes, count(*) as files from processes join files using (pid) "
                       "where use = 'fd' group by all order by files desc limit 5"))  # fmt: skip
assert len(processes) > 0 and len(files) > 0
