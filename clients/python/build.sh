#!/usr/bin/env bash
# Makes the client's wheel and its source distribution: clients/python/build.sh [DIRECTORY]
#
# Without a directory they are in target/python/dist.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
dist=$(realpath --canonicalize-missing "${1:-$root/target/python/dist}")
venv=$root/target/python/build-venv
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target} PIP_DISABLE_PIP_VERSION_CHECK=1

if [ ! -x "$venv/bin/maturin" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet "$(grep '^maturin==' tests/requirements.txt)"
fi
rm -rf "$dist"
"$venv/bin/maturin" build --quiet --release --locked --out "$dist"
"$venv/bin/maturin" sdist --quiet --out "$dist"
