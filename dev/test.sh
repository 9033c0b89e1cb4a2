#!/usr/bin/env bash
# Runs the Rust tests on this machine's kernel. Prints only what failed, and the number of failures.
# TASKDIAG_TEST_SCALE is the percentage of the repetitions of what is repeated to meet a race.
# TASKDIAG_TEST_JOBS is how many programs of tests run at once: most of their time is waiting. With
# many repetitions it has to be 1, as some fill the machine with processes that others would meet.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
    echo "the tests need root: they load BPF programs, and become other users" >&2
    exit 1
fi
export TASKDIAG_REQUIRE_BPF=1 # as in the Makefile

dev/build.sh

logs=$PWD/target/test
rm -rf "$logs"
mkdir -p "$logs"

# The directory of a package, and one of its programs of tests
cargo test --quiet --workspace --no-run --message-format=json >"$logs/messages"
sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"profile":{[^}]*"test":true.*"executable":"\([^"]*\)".*/\1\n\2/p' \
    "$logs/messages" >"$logs/programs"

# Runs a program in a directory. Its log has what it prints.
run() {
    (cd "$1" && "${@:3}") </dev/null >"$logs/$2.log" 2>&1 || echo "$2: status $?" >>"$logs/failed"
}

# The first are the examples in the documentation, which cargo runs.
run . doc cargo test --quiet --workspace --doc &
while read -r directory && read -r program; do
    while [ "$(jobs -pr | wc -l)" -ge "${TASKDIAG_TEST_JOBS:-3}" ]; do
        wait -n || true
    done
    run "$directory" "${program##*/}" "$program" --quiet &
done <"$logs/programs"
wait

read -r passed failed < <(awk '
    /^test result:/ { passed += $4; failed += $6 }
    END { print passed + 0, failed + 0 }' "$logs"/*.log)
status=0
if [ -e "$logs/failed" ]; then
    while IFS=: read -r name _; do
        cat "$logs/$name.log"
    done <"$logs/failed"
    cat "$logs/failed"
    status=1
fi
if [ "$passed" -eq 0 ]; then
    echo "no test ran; see $logs" >&2
    status=1
fi
echo "$passed passed, $failed failed"
exit "$status"
