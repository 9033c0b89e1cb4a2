#!/usr/bin/env bash
# Runs fuzz targets one after the other: dev/fuzz.sh SANITIZER SECONDS [TARGET...]
#
# SANITIZER is none or one that cargo-fuzz knows. SECONDS is the time per target. Without a TARGET,
# all targets run. fuzz/fuzz_targets/ has the targets, fuzz/corpus/ the inputs that reach different
# code, and fuzz/artifacts/ an input that makes a target fail.
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizer=$1 seconds=$2
shift 2
if [ "$sanitizer" != none ]; then
    export RUSTC_BOOTSTRAP=1 # the flag of the sanitizers is not stable
fi
export CARGO_TERM_QUIET=true
options=(--sanitizer "$sanitizer" --target-dir "target/fuzz-$sanitizer")

# Adds the first bytes of a real file to a target's inputs.
seed() {
    local target=$1 file=$2
    mkdir -p "fuzz/corpus/$target"
    head -c 4096 "$file" >"fuzz/corpus/$target/$(basename "$file")"
}

# Texts of cgroups from Documentation/admin-guide/cgroup-v2.rst, and paths.
cgroup_seeds() {
    local directory=fuzz/corpus/cgroups
    mkdir -p "$directory"
    echo 'max 100000' >"$directory/cpu.max"
    printf 'usage_usec 12\nuser_usec 5\nnr_throttled 0\n' >"$directory/cpu.stat"
    echo '8:0 rbytes=10 wbytes=5 rios=1 wios=1 dbytes=0 dios=0' >"$directory/io.stat"
    printf '%s avg10=1.50 avg60=0.20 avg300=0.00 total=123\n' some full >"$directory/memory.pressure"
    printf '/system.slice/docker-%064d.scope' 7 >"$directory/docker"
    printf '/user.slice/user-1000.slice/user@1000.service/app.slice/a\\x2db.service' >"$directory/user"
    printf '/kubepods.slice/kubepods-pod0b2c3d4e_1f2a_4b3c_8d4e_5f6a7b8c9d0e.slice/cri-containerd-%064d.scope' 7 \
        >"$directory/pod"
}

unit_seeds() {
    mkdir -p fuzz/corpus/units
    head -c 4096 crates/taskdiagd/systemd/taskdiagd.service >fuzz/corpus/units/taskdiagd.service
    printf '[Service]\nExecStart=/bin/a \\\n# in between\n  --b\nCapabilityBoundingSet=~CAP_CHOWN CAP_KILL\n' \
        >fuzz/corpus/units/continued
    printf 'CAP_CHOWN cap_kill\n~CAP_KILL' >fuzz/corpus/units/capabilities
    printf 'a-b@c.service' >fuzz/corpus/units/instance
}

seeds() {
    local target file expression number
    # These targets build structures from their input. A fuzzer that starts without bytes needs long
    # to produce enough of them.
    for target in answers messages records; do
        mkdir -p "fuzz/corpus/$target"
        for number in {1..32}; do
            head -c 1024 /dev/urandom >"fuzz/corpus/$target/random-$number"
        done
    done
    number=0
    for file in stat status schedstat io limits cgroup mountinfo; do
        seed process "/proc/self/$file"
    done
    for file in maps smaps smaps_rollup; do
        seed maps "/proc/self/$file"
    done
    seed elf "$(type -P true)"
    cgroup_seeds
    unit_seeds
    mkdir -p fuzz/corpus/filters
    for expression in "uid == 0 and not kernel_thread and comm ~ '^ssh'" "state == 'D' or rss_bytes > 1G" \
        "(groups != 4 or utime_ns >= 5ms) and cmdline ~* '*a?[b-d]'"; do
        number=$((number + 1))
        printf '%s\0%s' "$expression" "$expression" >"fuzz/corpus/filters/expression-$number"
    done
    printf 'not %.0s' {1..99} >fuzz/corpus/filters/deep
    echo kernel_thread >>fuzz/corpus/filters/deep
    # Words of expressions: the names of all fields, operators, operands.
    {
        # shellcheck disable=SC2016 # the backquotes are those of the document
        sed -n 's/^| `\([a-z_]*\)` |.*/"\1"/p' docs/fields.md
        printf '" %s "\n' and or not '==' '!=' '<' '<=' '>' '>=' '~' '~*'
        printf '"%s"\n' '(' ')' "'" 1G 5ms true false
    } >fuzz/corpus/filters.dict
}

mkdir -p fuzz/corpus "target/fuzz-$sanitizer"
seeds
cargo fuzz build "${options[@]}"

targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cargo fuzz list)
passed=0 failed=0
for target in "${targets[@]}"; do
    log=target/fuzz-$sanitizer/$target.log
    arguments=(-max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -max_len=4096 -print_final_stats=1)
    [ ! -f "fuzz/corpus/$target.dict" ] || arguments+=(-dict="fuzz/corpus/$target.dict")
    # The last line of a successful run has the number of inputs.
    if cargo fuzz run "${options[@]}" "$target" -- "${arguments[@]}" >"$log" 2>&1 &&
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
