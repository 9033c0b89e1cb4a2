#!/usr/bin/env bash
# Runs fuzz targets one after the other: dev/fuzz.sh SANITIZER SECONDS [TARGET...]
#
# SANITIZER is none or one that cargo-fuzz knows. SECONDS is the time per target. Without a TARGET,
# all targets run. fuzz/src/ has the targets, fuzz/seeds/ their first inputs, fuzz/corpus/ the inputs
# that reach different code, and fuzz/artifacts/ an input that makes a target fail.
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizer=$1 seconds=$2
shift 2
if [ "$sanitizer" != none ]; then
    export RUSTC_BOOTSTRAP=1 # the flag of the sanitizers is not stable
fi
export CARGO_TERM_QUIET=true
export CARGO_PROFILE_RELEASE_LTO=off # it takes long
options=(--sanitizer "$sanitizer" --target-dir "target/fuzz-$sanitizer" --features program)

mkdir -p fuzz/corpus "target/fuzz-$sanitizer"
# Words of expressions: the names of all fields, operators, operands.
{
    # shellcheck disable=SC2016 # the backquotes are those of the document
    sed -n 's/^| `\([a-z_]*\)` |.*/"\1"/p' docs/fields.md
    printf '" %s "\n' and or not '==' '!=' '<' '<=' '>' '>=' '~' '~*'
    printf '"%s"\n' '(' ')' "'" 1G 5ms true false
} >fuzz/corpus/filters.dict
cargo fuzz build "${options[@]}"

targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(sed -n 's/^mod \(.*\);/\1/p' fuzz/src/lib.rs)
passed=0 failed=0
for target in "${targets[@]}"; do
    log=target/fuzz-$sanitizer/$target.log corpus=fuzz/corpus/$target
    mkdir -p "$corpus" "fuzz/artifacts/$target" "fuzz/seeds/$target"
    # A fuzzer that starts without bytes needs long to produce enough of them for a structure.
    for number in {1..32}; do
        head -c 1024 /dev/urandom >"$corpus/random-$number"
    done
    arguments=(-max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -max_len=4096 -print_final_stats=1
        -artifact_prefix="$PWD/fuzz/artifacts/$target/")
    [ ! -f "$corpus.dict" ] || arguments+=(-dict="$corpus.dict")
    # The last line of a successful run has the number of inputs.
    if FUZZ=$target cargo fuzz run "${options[@]}" fuzz "$corpus" "fuzz/seeds/$target" -- "${arguments[@]}" >"$log" 2>&1 &&
        runs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$log") && [ "${runs:-0}" -gt 0 ]; then
        echo "$target: $runs runs"
        passed=$((passed + 1))
    else
        tail -n 50 "$log"
        echo "fuzz: $target failed: $log" >&2
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
