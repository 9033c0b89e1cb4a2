#!/usr/bin/env bash
# Runs the tests that ask a kernel on Debian's kernels, in virtual machines: dev/matrix.sh [6.1] [6.12]
#
# The tests are built once, on this machine, and copied into each virtual machine with the shared libraries they need.
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- 6.1 6.12
export TASKDIAG_REQUIRE_BPF=1
mkdir -p target

# Emulation is slow: a fraction of the repetitions, and patience.
scale=10
timeout=2700

cargo build --quiet --workspace --bins
messages=$(cargo test --quiet --no-run --package taskdiag --message-format=json)

# The executables of integration tests, by name: target/debug/deps/NAME-HASH.
tests=()
while read -r executable; do
    case $(basename "$executable") in
    taskdiag-* | layout-*) ;; # unit tests and a compiler's work: not a matter of the kernel
    *) tests+=("$executable") ;;
    esac
done < <(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' <<<"$messages" | sort -u)

zoo=$PWD/target/debug/zoo
taskdiag=$PWD/target/debug/taskdiag

# Becomes the virtual machine of a kernel, which runs all tests.
in_machine() {
    local kernel=$1 script=target/matrix-$1-tests.sh test files
    {
        echo "status=0"
        echo "'$taskdiag' doctor"
        for source in bpf procfs; do
            echo "'$taskdiag' ps -o all --source $source --json >/dev/null || status=1"
        done
        for test in "${tests[@]}"; do
            echo "echo '## $(basename "${test%-*}")'"
            echo "'$test' --test-threads=2 || status=1"
        done
        echo "exit \$status"
    } >"$script"
    files=(--file "$script:/tests.sh" --file "$zoo" --file "$taskdiag")
    for test in "${tests[@]}"; do
        files+=(--file "$test")
    done
    exec dev/vm/run.sh --kernel "$kernel" --timeout "$timeout" "${files[@]}" \
        --env "TASKDIAG_ZOO=$zoo" --env "TASKDIAG_TEST_SCALE=$scale" -- sh /tests.sh
}

# A machine keeps one core busy, so the kernels run side by side.
dev/vm/kernels.sh "$@"
machines=()
trap '[ ${#machines[@]} -eq 0 ] || kill "${machines[@]}"' EXIT
for kernel in "$@"; do
    in_machine "$kernel" >"target/matrix-$kernel.log" 2>&1 &
    machines+=($!)
done

failures=0
total_passed=0
total_failed=0
for kernel in "$@"; do
    log=target/matrix-$kernel.log status=0
    wait "${machines[0]}" || status=$?
    machines=("${machines[@]:1}")
    read -r passed failed < <(awk '
        /^test result:/ { passed += $4; failed += $6 }
        END { print passed + 0, failed + 0 }' "$log")
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
    if [ "$status" -ne 0 ] || [ "$passed" -eq 0 ]; then
        cat "$log"
        echo "matrix: Linux $kernel: status $status, $passed passed, $failed failed; see $log" >&2
        failures=1
    fi
done
echo "$total_passed passed, $total_failed failed"
exit "$failures"
