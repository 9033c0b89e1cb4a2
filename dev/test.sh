#!/usr/bin/env bash
# Runs all tests on this machine's kernel. Prints only the failed ones, and the number of failures.
set -euo pipefail
cd "$(dirname "$0")/.."

log=target/test.log
mkdir -p target

# Root can load BPF, so a build without the programs would test nothing: make that a failure.
if [ "$(id -u)" -eq 0 ]; then
    export TASKDIAG_REQUIRE_BPF=1
fi

cargo build --quiet --workspace --bins

status=0
cargo test --quiet --workspace --no-fail-fast >"$log" 2>&1 || status=$?
# The library can also be built without BPF.
cargo test --quiet --package taskdiag --no-default-features --lib >>"$log" 2>&1 || status=$?

read -r passed failed < <(awk '
    /^test result:/ { passed += $4; failed += $6 }
    END { print passed + 0, failed + 0 }' "$log")
if [ "$status" -ne 0 ]; then
    cat "$log"
fi
if [ "$passed" -eq 0 ]; then
    echo "no test ran; see $log" >&2
    status=1
fi
echo "$passed passed, $failed failed"
exit "$status"
