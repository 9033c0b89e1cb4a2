#!/usr/bin/env bash
# Makes the client's wheel and its source distribution: clients/python/build.sh [DIRECTORY]
#
# Without a directory they are in target/python/dist. PROFILE is cargo's (release), MATURIN a maturin
# that is there already.
set -euo pipefail
# The path is the caller's.
dist=${1:+$(realpath --canonicalize-missing "$1")}
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
dist=${dist:-$root/target/python/dist}
venv=$root/target/python/build-venv
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target} PIP_DISABLE_PIP_VERSION_CHECK=1
maturin=${MATURIN:-$venv/bin/maturin}

if [ ! -x "$maturin" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet "$(grep '^maturin==' tests/requirements.txt)"
fi
# The tests' profile shares what it builds with cargo test, and has its flags.
if [ "${PROFILE:-release}" = release ]; then
    RUSTFLAGS=$(../../dev/pathflags.sh rust)
    CFLAGS=$(../../dev/pathflags.sh c)
    export RUSTFLAGS CFLAGS
fi
# pyproject.toml has it among the licences of both.
../../dev/licences.sh LICENSE-CRATES python
rm -rf "$dist"
"$maturin" build --quiet --profile "${PROFILE:-release}" --locked --out "$dist"
# This can't be told to be quiet.
said=$("$maturin" sdist --out "$dist" 2>&1) || { echo "$said" >&2; exit 1; }

# Nothing in them names a directory of this machine.
unpacked=$(mktemp -d)
trap 'rm -r "$unpacked"' EXIT
for wheel in "$dist"/*.whl; do
    python3 -m zipfile --extract "$wheel" "$unpacked/wheel"
done
mkdir "$unpacked/sdist"
tar --extract --directory "$unpacked/sdist" --file "$dist"/*.tar.gz
registry=${CARGO_HOME:-$HOME/.cargo}/registry
if found=$(grep --recursive --fixed-strings --files-with-matches -e "$root/" -e "$registry/" "$unpacked" |
    { [ "${PROFILE:-release}" = release ] && cat || grep --invert-match '\.so$'; }); then
    echo "these name directories of this machine: $found" >&2
    exit 1
fi
