#!/usr/bin/env bash
# Runs the Rust tests on this machine's kernel. Prints only the failed ones, and the number of
# failures. TASKDIAG_TEST_SCALE is the percentage of the repetitions of what is repeated to meet a
# race, and of the cases of property tests.
set -euo pipefail
cd "$(dirname "$0")/.."

logs=$PWD/target/test
rm -rf "$logs"
mkdir -p "$logs"

if [ "$(id -u)" -ne 0 ]; then
    echo "the tests need root: they load BPF programs, and become other users" >&2
    exit 1
fi
export TASKDIAG_REQUIRE_BPF=1 # as in the Makefile
cases=$((256 * ${TASKDIAG_TEST_SCALE:-100} / 100))
export PROPTEST_CASES=$((cases > 0 ? cases : 1))

dev/build.sh

# Cargo runs test programs one after the other. Most of the time they wait: two at a time need half as
# long. Each has a line: the program, the directory of its package, and the name of its log.
cargo test --quiet --workspace --no-run --message-format=json |
    jq -r 'select(.executable != null and .profile.test)
        | [.executable, (.manifest_path | rtrimstr("/Cargo.toml")), (.executable | split("/") | last)] | @tsv' |
    xargs --max-procs=2 --max-lines=1 dev/test-program.sh "$logs"
cargo test --quiet --workspace --doc >"$logs/doc" 2>&1 || echo "doc failed" >"$logs/doc.failed"

status=0
for failed in "$logs"/*.failed; do
    [ -e "$failed" ] || continue
    cat "${failed%.failed}" "$failed"
    status=1
done
read -r passed failed < <(cat "$logs"/* | awk '
    /^test result:/ { passed += $4; failed += $6 }
    END { print passed + 0, failed + 0 }')
if [ "$passed" -eq 0 ]; then
    echo "no test ran; see $logs" >&2
    status=1
fi
echo "$passed passed, $failed failed"
exit "$status"
