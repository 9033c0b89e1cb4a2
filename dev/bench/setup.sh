#!/bin/sh
# Sees to it that a Python with psutil is to be had for the benchmarks: the system's, or one in a virtual environment
# below the target directory.
set -eu

target=${CARGO_TARGET_DIR:-$(cd "$(dirname "$0")/../.." && pwd)/target}
venv=$target/bench-venv

if python3 -c 'import psutil' 2>/dev/null || "$venv/bin/python3" -c 'import psutil' 2>/dev/null; then
	exit 0
fi
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check 'psutil==7.2.2'
