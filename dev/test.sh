#!/usr/bin/env bash
# Runs the Rust tests on this machine's kernel. Prints only the failed ones, and the number of
# failures. TASKDIAG_TEST_SCALE is the percentage of the repetitions of what is repeated to meet a
# race, and of the cases of property tests.
set -euo pipefail
cd "$(dirname "$0")/.."

log=target/test.log
mkdir -p target

if [ "$(id -u)" -ne 0 ]; then
    echo "the tests need root: they load BPF programs, and become other users" >&2
    exit 1
fi
export TASKDIAG_REQUIRE_BPF=1 # as in the Makefile
cases=$((256 * ${TASKDIAG_TEST_SCALE:-100} / 100))
export PROPTEST_CASES=$((cases > 0 ? cases : 1))

dev/build.sh

status=0
cargo test --quiet --workspace --no-fail-fast >"$log" 2>&1 || status=$?

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
