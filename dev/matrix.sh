#!/usr/bin/env bash
# Runs tests on Debian's kernels, in virtual machines:
# dev/matrix.sh [--quick | --full | --tests REGEX] KERNEL...
#
# The kernels are 6.1 and 6.12 (x86-64), arm64-4k and arm64-16k (6.12 with pages of 4 and 16 KiB).
# The tests are built on this machine, and copied into each virtual machine with the shared
# libraries that they need. Without options, these are the tests of the library whose outcome depends
# on the kernel, and on arm64 only those that compare BPF with the kernel's own text. --quick runs
# what every change needs: these comparisons everywhere, and the shortest of the others. --full runs
# all tests, --tests those whose "PACKAGE NAME" matches.
set -euo pipefail
shopt -s inherit_errexit # a build in $(...) that fails is a failure
cd "$(dirname "$0")/.."

full='' quick='' profile=dev timeout=2700 meant='^taskdiag (amounts|arguments|events|files|isolation|memory|oracle|sockets)$'
case ${1:-} in
--quick)
    quick=1 timeout=900 meant='^taskdiag (amounts|arguments|events|oracle)$'
    shift
    ;;
--full)
    full=1 profile=emulated meant=. timeout=7200
    shift
    ;;
--tests)
    full=1 profile=emulated meant=$2 timeout=7200
    shift 2
    ;;
esac
export TASKDIAG_REQUIRE_BPF=1
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
mkdir -p target

# Emulation is slow: fewer repetitions and longer timeouts.
environment=(--env TASKDIAG_TEST_MARGIN=5 --env TASKDIAG_TEST_SCALE=10 --env PROPTEST_CASES=16)
# Debian's security modules except Yama, with which the broker shows less than /proc
# (docs/kernel-support.md).
modules=landlock,lockdown,loadpin,safesetid,integrity,apparmor,tomoyo,bpf

# Builds the tests for a kernel. Prints the package, the name and the executable of each.
build() {
    local target=() programs=(--package taskdiag-cli --package taskdiagd --package taskdiag-zoo --package taskdiag-task-diag)
    local packages=(--package taskdiag --package taskdiag-bpf --package taskdiag-cli --package taskdiagd) messages
    if [[ $1 == arm64-* ]]; then
        target=(--target aarch64-unknown-linux-gnu)
        [ -n "$full" ] || packages=(--package taskdiag --test oracle)
        # The command takes minutes to build for another architecture.
        [ -z "$quick" ] || programs=(--package taskdiag-zoo)
    elif [ -n "$quick" ]; then
        # As dev/build.sh builds them.
        programs=(--workspace --lib --bins --tests)
        packages=(--workspace --test amounts --test arguments --test events --test oracle)
    fi
    cargo build --quiet --profile "$profile" "${target[@]}" "${programs[@]}"
    messages=$(cargo test --quiet --no-run --profile "$profile" "${target[@]}" "${packages[@]}" --message-format=json)
    # The test of layouts depends only on the compiler. The examples, which another test runs, and
    # the commands that `questions` runs are not in the image.
    sed -n 's/.*\/\([^/"]*\)\/Cargo.toml","target":{[^}]*"name":"\([^"]*\)".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1 \2 \3/p' \
        <<<"$messages" | awk -v meant="$meant" '$2 != "layout" && $2 != "examples" && $2 != "questions" && $2 !~ /^soak/ && $1 " " $2 ~ meant' | sort -u
}

# Replaces this process by the virtual machine with a kernel, which runs the tests.
in_machine() {
    local kernel=$1 directory=$PWD/target script=target/matrix-$1-tests.sh files=() compared=${quick:+bpf_} which package name executable file
    if [[ $kernel == arm64-* ]]; then
        directory+=/aarch64-unknown-linux-gnu
        [ -n "$full" ] || compared=bpf_
    fi
    # The directory where cargo puts the builds of the profile `dev`.
    directory+=/${profile/#dev/debug}
    local programs=(zoo taskdiag taskdiagd fork task_diag_all)
    [[ $quick$kernel != 1arm64-* ]] || programs=(zoo)
    for file in "${programs[@]}"; do
        files+=(--file "$directory/$file")
    done
    # Tests compare the command with its documents, which they find relative to its package.
    for file in docs/fields.md docs/events.md crates/taskdiag-cli/Cargo.toml; do
        files+=(--file "$PWD/$file")
    done
    {
        echo "status=0"
        if [ "${programs[*]}" != zoo ]; then
            echo "'$directory/taskdiag' doctor"
            for source in bpf procfs; do
                echo "'$directory/taskdiag' ps -o all --source $source --json >/dev/null || status=1"
            done
        fi
        while read -r package name executable; do
            files+=(--file "$executable")
            echo "echo \"## \$(cut -d. -f1 /proc/uptime) s: $package, $name\""
            # These compare with bpftool, lsof, lsfd and ss, which are not in the image.
            which=''
            [ "$name" != oracle ] || which=$compared
            [ "$package $name" != 'taskdiag files' ] || which='--skip lsof_sees_the_same --skip lsfd_sees_the_same'
            [ "$package $name" != 'taskdiag sockets' ] || which='--skip ss_sees_the_same'
            if [ "$name" = taskdiag_bpf ]; then
                which='--skip host_agrees_with_bpftool --skip host_types_by_number'
                # Programs that find tasks themselves need Linux 6.2.
                [ "$kernel" != 6.1 ] || which+=' --skip walk::tests'
            fi
            echo "'$executable' --test-threads=2 $which || status=1"
        done <<<"${tests[$kernel]}"
        echo "exit \$status"
    } >"$script"
    exec dev/vm/run.sh --kernel "$kernel" --timeout "$timeout" --append "lsm=$modules" --file "$script:/tests.sh" "${files[@]}" \
        --env "TASKDIAG_ZOO=$directory/zoo" "${environment[@]}" -- sh /tests.sh
}

dev/vm/kernels.sh "$@"
declare -A tests machines
for kernel in "$@"; do
    tests[$kernel]=$(build "$kernel")
done

# A machine keeps one core busy, so there are as many in parallel as there are cores.
trap '[ ${#machines[@]} -eq 0 ] || kill "${machines[@]}" 2>/dev/null' EXIT
for kernel in "$@"; do
    while [ "$(jobs -pr | wc -l)" -ge "$(nproc)" ]; do
        wait -n || true # its status is asked for below
    done
    in_machine "$kernel" >"target/matrix-$kernel.log" 2>&1 &
    machines[$kernel]=$!
done

failures=0
total_passed=0
total_failed=0
for kernel in "$@"; do
    log=target/matrix-$kernel.log status=0
    wait "${machines[$kernel]}" || status=$?
    unset "machines[$kernel]"
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
