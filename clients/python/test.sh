#!/usr/bin/env bash
# Builds the client's wheel, installs it into a virtual environment and tests it there:
# clients/python/test.sh [ARGUMENT OF PYTEST...]
#
# The environment is target/python/venv. It is made anew when tests/requirements.txt changes. With
# SDIST=1 the wheel is built from the source distribution, as pip does it.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
work=$root/target/python
venv=$work/venv
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target} PIP_DISABLE_PIP_VERSION_CHECK=1
mkdir -p "$work"

if ! cmp --silent tests/requirements.txt "$venv/requirements.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --requirement tests/requirements.txt
    cp tests/requirements.txt "$venv/"
fi

# Runs a command, and prints what it says only if it fails.
quietly() {
    "$@" >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; exit 1; }
}

MATURIN=$venv/bin/maturin PROFILE=dev quietly ./build.sh "$work/wheels"
if [ -n "${SDIST:-}" ]; then
    rm "$work"/wheels/*.whl
    MATURIN_PEP517_ARGS=--profile=dev quietly "$venv/bin/pip" wheel --no-deps --wheel-dir "$work/wheels" "$work"/wheels/*.tar.gz
fi
"$venv/bin/pip" install --quiet --force-reinstall --no-deps "$work"/wheels/*.whl

# Errors of types are found as users find them: in the installed package.
"$venv/bin/mypy" --strict --cache-dir "$work/mypy" --no-error-summary bench.py examples/*.py tests/*.py
(cd .. && "$venv/bin/mypy" --strict --cache-dir "$work/mypy" --no-error-summary generate.py)
quietly "$venv/bin/python" -m mypy.stubtest --concise --mypy-config-file pyproject.toml \
    --allowlist tests/stubtest.txt --ignore-unused-allowlist taskdiag
exec "$venv/bin/python" -m pytest "$@"
