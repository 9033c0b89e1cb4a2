"""Asks a fleet the questions of docs/history.md: dev/duckdb.sh dev/fleet.py EXPORT OUT [--hosts N] [--json]

EXPORT is the output of `taskdiag history export --parquet EXPORT` for a recording of one host. OUT gets
its files once for each of many hosts. Asks the queries of all hosts and of one. Prints how long each
took the second time, and how many files it read, according to EXPLAIN ANALYZE.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import time

import duckdb

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs/history.md"
TABLES = ["processes", "programs", "memory"]


def questions(con):
    """The titles and the queries of the document. One is about two intervals of the tier `10min`: here, the last two of the
    recording."""
    found = re.findall(r"\n([^\n]+\?)\n\n```sql\n(.*?)```", DOCUMENT.read_text(), re.S)
    # Tiers with a minute or more between samples, which fleets keep, have no single events.
    found = [(title, sql) for title, sql in found if "'events/" not in sql]
    assert len(found) == 5, len(found)
    last = con.execute("SELECT DISTINCT time::VARCHAR FROM 'processes/*/*/*.parquet' ORDER BY time DESC LIMIT 3").fetchall()
    span = [("2026-11-23 02:52:00Z", last[2][0]), ("2026-11-23 03:12:00Z", last[0][0])]
    return [(title, sql.replace(*span[0]).replace(*span[1])) for title, sql in found]


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--json", action="store_true", help="print what was found out as JSON")
    args = parser.parse_args()
    hosts = [f"web{number:03}" for number in range(args.hosts)]
    for table in TABLES:
        (recorded,) = (args.export / table).iterdir()
        for host in hosts:
            shutil.copytree(recorded, args.out / table / f"host={host}")
    os.chdir(args.out)
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'; SET memory_limit = '3GB'")
    tables = {}
    for table in TABLES:
        paths = list(pathlib.Path(table).glob("*/*/*.parquet"))
        (rows,) = con.execute(f"SELECT count(*) FROM '{table}/*/*/*.parquet'").fetchone()
        tables[table] = {"rows": rows, "files": len(paths), "bytes": sum(path.stat().st_size for path in paths)}
    asked = [{"question": title, "all": ask(con, sql), "one": ask(con, of_one(sql, hosts[-1]))} for title, sql in questions(con)]
    if args.json:
        print(json.dumps({"tables": tables, "questions": asked}))
        return
    print("| table | rows | files | bytes |\n|---|---|---|---|")
    for table, found in tables.items():
        print(f"| `{table}` | {found['rows']:,} | {found['files']} | {found['bytes']:,} |")
    print("\n| question | all hosts | files | read | one host | files | read |\n|---|---|---|---|---|---|---|")
    for found in asked:
        cells = [f"{part['seconds']:.2f} s | {part['files_read']} | {part['data_read']}" for part in (found["all"], found["one"])]
        print(f"| {found['question']} | {' | '.join(cells)} |")


main()
