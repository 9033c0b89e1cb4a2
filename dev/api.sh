#!/usr/bin/env bash
# Writes docs/public-api.txt, the public items of the library: dev/api.sh [--check]
#
# With --check it writes nothing, and fails if the file would change.
set -euo pipefail
cd "$(dirname "$0")/.."

# The library, and the crates that it re-exports items of.
crates=(taskdiag taskdiag-bpf taskdiag-core taskdiag-protocol taskdiag-sys)
files=()
for crate in "${crates[@]}"; do
    files+=("target/doc/${crate//-/_}.json")
done
RUSTDOC=$PWD/dev/api/rustdoc RUSTDOCFLAGS='-Z unstable-options --output-format json --cap-lints allow' \
    cargo doc --quiet --workspace --no-deps --lib
dev/build.sh
target/debug/taskdiag-api "${files[@]}" >target/public-api.txt
if [ "${1:-}" != --check ]; then
    cp target/public-api.txt docs/public-api.txt
elif ! diff --unified docs/public-api.txt target/public-api.txt; then
    echo "api: the public items have changed. If that is meant, 'make api' writes docs/public-api.txt." >&2
    exit 1
fi
