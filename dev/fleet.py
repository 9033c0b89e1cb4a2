"""Simulates the exported recordings of a fleet, and queries them: dev/duckdb.sh dev/fleet.py EXPORT OUT [--hosts N] [--every MINUTES]

EXPORT is the output of `taskdiag history export --parquet EXPORT` for a real recording of some
minutes. OUT gets the same tables for many hosts. Each host starts at a different sample of the
recording, repeats the recording for one day, and has its own sizes and counters. Samples are a minute
apart, or --every minutes. Counters continue to grow, and a process that started and ended within the
recording is a new process in each repetition.

Then runs the queries of docs/history.md for all hosts and for one. Prints what was written, how long
each query took (the second time), and how many files were read, according to EXPLAIN ANALYZE.
"""

import argparse
import json
import os
import pathlib
import re
import time

import duckdb

MIDNIGHT = "TIMESTAMPTZ '2026-11-20 00:00:00Z'"
DATE = "2026-11-20"
DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs/history.md"
# Tiers with a minute or more between samples have no single events. Figures of cgroups are omitted.
TABLES = ["processes", "programs", "memory"]
COUNTERS = ["utime_ns", "stime_ns", "min_faults", "maj_faults", "read_bytes", "write_bytes"]
SIZES = ["rss_bytes", "pss_bytes", "swap_bytes", "vsize_bytes"]
# The sort order of each table.
ORDERS = {"processes": "pid, start_ns, time", "programs": "unit, program, time", "memory": "source, key, time"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--every", type=int, default=1, help="minutes between two samples: as in the tier 1min, or 10")
    parser.add_argument("--json", action="store_true", help="print what was found out as JSON")
    return parser.parse_args()


def files(export, table):
    return f"read_parquet('{export}/{table}/*/*/*.parquet', hive_partitioning = true, union_by_name = true)"


def load(con, export):
    """Reads the recording. Returns how many samples it has."""
    con.execute(f"CREATE TABLE moments AS SELECT time, row_number() OVER (ORDER BY time) - 1 AS sample FROM (SELECT DISTINCT time FROM {files(export, 'processes')})")
    for table in TABLES:
        con.execute(f"CREATE TABLE {table} AS SELECT t.* EXCLUDE (host, date), sample FROM {files(export, table)} t JOIN moments USING (time)")
    (samples,) = con.execute("SELECT count(*) FROM moments").fetchone()
    grown = ", ".join(f"arg_max({name}, sample) - arg_min({name}, sample) AS {name}_grown" for name in COUNTERS)
    # A process in both the first and the last sample continues; other processes are new in each
    # round.
    con.execute(
        f"""CREATE TABLE lives AS SELECT boot_id, pid, start_ns, min(sample) AS first,
            min(sample) = 0 AND max(sample) = {samples - 1} AS stays, {grown}
        FROM processes GROUP BY boot_id, pid, start_ns"""
    )
    con.execute(
        f"""CREATE TABLE values_grown AS SELECT source, key,
            CASE WHEN source IN ('vmstat', 'cpu', 'pressure') OR key IN ('ctxt', 'processes')
                THEN arg_max(value, sample) - arg_min(value, sample) ELSE 0 END AS grown
        FROM memory GROUP BY source, key"""
    )
    return samples


def selection(table, host, samples, every):
    """The rows of a host."""
    each = 1440 // every
    shift = host * 37 % samples
    # The rounds of the recording, and the sample of each.
    turns = f"(SELECT m, (m + {shift}) // {samples} AS round, (m + {shift}) % {samples} AS sample FROM range({each}) r(m))"
    now = f"{MIDNIGHT} + to_minutes(m * {every}) + to_milliseconds({host * 131 % 60_000})"
    factor = f"(0.7 + hash(t.comm, {host}) % 600 / 1000)"
    boot = f"md5(t.boot_id || '{host}')"
    if table == "processes":
        changed = [f"{now} AS time", f"{boot} AS boot_id"]
        changed += [f"((t.{name} * {factor})::BIGINT // 4096 * 4096) AS {name}" for name in SIZES]
        changed += [f"((t.{name} + CASE WHEN stays THEN round * {name}_grown ELSE 0 END) * {factor})::BIGINT AS {name}" for name in COUNTERS]
        changed.append("CASE WHEN stays THEN t.start_ns ELSE t.start_ns + round * 1_000_000_000_000 END AS start_ns")
        changed.append(f"CASE WHEN stays THEN t.start_time ELSE {MIDNIGHT} + to_minutes((round * {samples} + first - {shift}) * {every}) - to_seconds(1) END AS start_time")
        source = "JOIN processes t USING (sample) JOIN lives l USING (pid, start_ns)"
    elif table == "memory":
        changed = [f"{now} AS time", "(t.value + round * grown)::BIGINT AS value"]
        source = "JOIN memory t USING (sample) JOIN values_grown USING (source, key)"
    else:
        changed = [f"{now} AS time"]
        source = f"JOIN {table} t USING (sample)"
    return f"SELECT t.* EXCLUDE (sample) REPLACE ({', '.join(changed)}) FROM {turns} {source} ORDER BY {ORDERS[table]}"


def generate(con, out, hosts, samples, every):
    for host in range(hosts):
        for table in TABLES:
            directory = out / table / f"host={name(host)}" / f"date={DATE}"
            directory.mkdir(parents=True)
            con.execute(f"COPY ({selection(table, host, samples, every)}) TO '{directory}/{every}min.parquet' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 200_000)")


def name(host):
    return f"web{host:03}"


def questions():
    """The titles and the queries of the document."""
    found = re.findall(r"\n([^\n]+\?)\n\n```sql\n(.*?)```", DOCUMENT.read_text(), re.S)
    # Omit queries about single events: these tables have none.
    found = [(title, sql) for title, sql in found if "'events/" not in sql]
    assert len(found) == 5, len(found)
    # The sample at 03:12 of the simulated day.
    return [(title, sql.replace("2026-11-23", DATE)) for title, sql in found]


def of_one(sql, host):
    """The same question of one host: where the tables are read, with a condition."""
    return re.sub(r"FROM ('[a-z]+/[^']*')", rf"FROM (SELECT * FROM \1 WHERE host = '{host}')", sql)


def ask(con, sql):
    """Seconds of the second time, rows, and what EXPLAIN ANALYZE says: how many files were read, and how much of them. A
    table that a question reads twice counts twice."""
    con.execute(sql).fetchall()
    began = time.monotonic()
    rows = con.execute(sql).fetchall()
    seconds = time.monotonic() - began
    profile = con.execute("EXPLAIN ANALYZE " + sql).fetchall()[0][1]
    read = [int(count) for count in re.findall(r"Total Files Read: *(\d+)", profile)]
    assert read, profile
    amount = re.search(r"Data Read: *([\d.]+ \w+)", profile)
    return {"seconds": seconds, "rows": len(rows), "files_read": sum(read), "data_read": amount.group(1) if amount else None}


def main():
    args = arguments()
    out = args.out.resolve()
    out.mkdir(parents=True)
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'; SET memory_limit = '3GB'; SET preserve_insertion_order = false")
    samples = load(con, args.export.resolve())
    began = time.monotonic()
    generate(con, out, args.hosts, samples, args.every)
    report = {"recorded_samples": samples, "hosts": args.hosts, "every_minutes": args.every, "generated_seconds": time.monotonic() - began}
    report["tables"] = {}
    for table in TABLES:
        paths = list(out.glob(f"{table}/*/*/*.parquet"))
        (rows,) = con.execute(f"SELECT count(*) FROM {files(out, table)}").fetchone()
        report["tables"][table] = {"rows": rows, "files": len(paths), "bytes": sum(path.stat().st_size for path in paths)}
    os.chdir(out)
    report["questions"] = [
        {"question": title, "all": ask(con, sql), "one": ask(con, of_one(sql, name(args.hosts // 2)))} for title, sql in questions()
    ]
    if args.json:
        print(json.dumps(report))
        return
    print(f"{args.hosts} hosts, a sample each {args.every} min for a day, of a recording with {samples}; generated in {report['generated_seconds']:.0f} s\n")
    print("| table | rows | files | bytes |\n|---|---|---|---|")
    for table, found in report["tables"].items():
        print(f"| `{table}` | {found['rows']:,} | {found['files']} | {found['bytes']:,} |")
    print("\n| question | all hosts | files | read | one host | files | read |\n|---|---|---|---|---|---|---|")
    for found in report["questions"]:
        whole, one = found["all"], found["one"]
        cells = [f"{part['seconds']:.2f} s | {part['files_read']} | {part['data_read']}" for part in (whole, one)]
        print(f"| {found['question']} | {' | '.join(cells)} |")


main()
