#!/bin/sh
# Runs a Python with DuckDB, which the tests of exported recordings use: dev/duckdb.sh [ARGUMENT OF PYTHON...]
#
# The virtual environment is in the target directory, and is created if missing.
set -eu

target=${CARGO_TARGET_DIR:-$(cd "$(dirname "$0")/.." && pwd)/target}
venv=$target/duckdb-venv

if ! "$venv/bin/python3" -c 'import duckdb' 2>/dev/null; then
	rm -rf "$venv"
	python3 -m venv "$venv" >&2
	"$venv/bin/pip" install --quiet --disable-pip-version-check 'duckdb==2.0.1' >&2
fi
exec "$venv/bin/python3" "$@"
