#!/usr/bin/env bash
# Measures the client, as it is shipped, beside psutil: clients/python/bench.sh [PROCESSES...]
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
venv=$root/target/python/bench-venv
export PIP_DISABLE_PIP_VERSION_CHECK=1

./build.sh
if [ ! -x "$venv/bin/pip" ]; then
    python3 -m venv "$venv"
    mapfile -t packages < <(grep -E '^(polars|psutil)==' tests/requirements.txt)
    "$venv/bin/pip" install --quiet "${packages[@]}"
fi
"$venv/bin/pip" install --quiet --force-reinstall --no-deps "$root"/target/python/dist/*.whl
exec "$venv/bin/python" bench.py "$@"
