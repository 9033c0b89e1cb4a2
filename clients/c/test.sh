#!/usr/bin/env bash
# Builds libtaskdiag.so, installs it into a directory, and tests it there: clients/c/test.sh [PART]
#
# PART is conformance (the cases of conformance/) or soak (10,000 turns for each source). Without one:
# the header in C and C++, the tests as they are, under AddressSanitizer and UBSan and under valgrind,
# the examples, the ABI, the cases, and a short soak. The programs of cargo's profile dev must be there.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}
built=$CARGO_TARGET_DIR/debug
work=$CARGO_TARGET_DIR/c
installed=$work/root/usr
part=${1:-all}
strict=(-Wall -Wextra -Wpedantic -Werror -g)
mkdir -p "$work"

PROFILE=unoptimized ./build.sh "$work/lib"
rm -rf "$work/root"
LIBRARY=$work/lib STRIP=strip prefix=/usr libdir=/usr/lib includedir=/usr/include DESTDIR=$work/root ./install.sh
export PKG_CONFIG_LIBDIR=$installed/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$work/root LD_LIBRARY_PATH=$installed/lib
read -ra flags < <(pkg-config --cflags taskdiag)
read -ra libraries < <(pkg-config --libs taskdiag)

# make PROGRAM SOURCE... [-- OPTION...]: compiles a program of C11.
make() {
    local program=$work/$1 sources=()
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        sources+=("$1")
        shift
    done
    shift || true
    cc -std=c11 -D_DEFAULT_SOURCE "${strict[@]}" "${flags[@]}" -o "$program" "${sources[@]}" -pthread "${libraries[@]}" "$@"
}

# Runs a command, and prints what it says only if it fails.
quietly() {
    "$@" >"$work/log" 2>&1 || { echo "failed: $*" >&2; cat "$work/log" >&2; exit 1; }
}

# A broker, for root.
if [ "$(id -u)" -eq 0 ]; then
    # Not in the directory of the build, which may be another user's.
    place=$(mktemp -d)
    chmod 755 "$place"
    export TASKDIAG_SOCKET=$place/socket
    : >"$work/broker.log"
    "$built/taskdiagd" --socket "$TASKDIAG_SOCKET" 2>"$work/broker.log" &
    broker=$!
    trap 'kill "$broker"; rm -r "$place"' EXIT
    for _ in {1..1200}; do
        ! grep --quiet ready "$work/broker.log" || break
        sleep 0.05
    done
    grep --quiet ready "$work/broker.log" || { cat "$work/broker.log" >&2; exit 1; }
fi

# The cases of conformance/, as root and as nobody, or as whoever runs this.
conformance() {
    local names pids=() name pid input
    make conformance tests/conformance.c -- -ljansson
    names=$(grep -o '"zoo": \[[^]]*\]' "$root/conformance/cases.json" | grep -o '"[a-z0-9-]*"' | tr -d '"' | grep -v '^zoo$' | sort -u)
    # This one takes root.
    [ "$(id -u)" -eq 0 ] || names=$(grep -v groups-3 <<<"$names")
    # shellcheck disable=SC2086 # one word each
    coproc "$built/zoo" run $names
    for _ in $names; do
        read -r name pid _ <&"${COPROC[0]}"
        pids+=("$name=$pid")
    done
    local run=("$work/conformance" "$root/conformance/cases.json")
    if [ "$(id -u)" -eq 0 ]; then
        quietly "${run[@]}" root "$built/taskdiag" "$TASKDIAG_SOCKET" "${pids[@]}"
        # Nobody may not look into this directory.
        local copy
        copy=$(mktemp -d)
        cp "$work/conformance" "$root/conformance/cases.json" "$built/taskdiag" "$installed/lib/libtaskdiag.so.0" "$copy"
        chmod -R a+rX "$copy"
        quietly setpriv --reuid=65534 --regid=65534 --clear-groups env LD_LIBRARY_PATH="$copy" \
            "$copy/conformance" "$copy/cases.json" nobody "$copy/taskdiag" none "${pids[@]}"
        rm -r "$copy"
    else
        quietly "${run[@]}" nobody "$built/taskdiag" none "${pids[@]}"
    fi
    input=${COPROC[1]}
    exec {input}>&-
}

tests=(tests/main.c tests/values.c tests/tables.c tests/input.c tests/process.c)
case $part in
conformance)
    conformance
    echo "C: the cases passed"
    exit
    ;;
soak)
    make test "${tests[@]}"
    "$work/test" --soak "${TURNS:-10000}"
    exit
    ;;
all) ;;
*)
    echo "usage: $0 [conformance|soak]" >&2
    exit 2
    ;;
esac

make test "${tests[@]}"
make sanitized "${tests[@]}" -- -fsanitize=address,undefined -fno-sanitize-recover=undefined
c++ -std=c++17 "${strict[@]}" "${flags[@]}" -o "$work/header" tests/header.cpp -ldl
echo '#include <taskdiag.h>' >"$work/alone.c"
cc -std=c11 "${strict[@]}" "${flags[@]}" -fsyntax-only "$work/alone.c"
for example in ps port holds wait; do
    make "$example" "examples/$example.c"
done

quietly "$work/test"
quietly "$work/sanitized"
quietly env UNDER_VALGRIND=1 valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite \
    --errors-for-leak-kinds=definite --child-silent-after-fork=yes --fair-sched=yes "$work/test"
quietly "$work/header" "$installed/lib/libtaskdiag.so.0"
quietly "$work/test" --soak 300

"$work/ps" >"$work/log"
grep --quiet " $work/ps" "$work/log"
if "$work/ps" nobody >"$work/log" 2>&1; then exit 1; fi
grep --quiet "^ps: .*not a filter" "$work/log"
# A program that listens, and whose name would clear the screen.
exec 4< <(exec python3 -c 'import ctypes, socket, time
listener = socket.create_server(("127.0.0.1", 0))
ctypes.CDLL(None).prctl(15, b"a\x1b[2Jb", 0, 0, 0)
print(listener.getsockname()[1], flush=True)
time.sleep(100)')
listening=$!
read -r port <&4
"$work/port" "$port" >"$work/log"
kill "$listening"
exec 4<&-
grep --quiet --fixed-strings " tcp LISTEN 127.0.0.1 $listening a?[2Jb" "$work/log"
if "$work/port" 2>"$work/log"; then exit 1; fi
grep --quiet "^usage: port NUMBER" "$work/log"
exec 3>"$work/held"
"$work/holds" "$work/held" >"$work/log" 2>/dev/null
exec 3>&-
grep --quiet --extended-regexp "^ *[0-9]+ holds fd 3 w $work/held\$" "$work/log"
# Events take BPF or the proc connector. The name of the program is in no event but ours.
if [ "$(id -u)" -eq 0 ]; then
    cp "$(type -P true)" "$work/td-c-example"
    timeout 30 "$work/wait" td-c-example >"$work/log" &
    waiting=$!
    while kill -0 "$waiting" 2>/dev/null; do
        "$work/td-c-example"
        sleep 0.1
    done
    wait "$waiting"
    grep --quiet --extended-regexp "^td-c-example: pid [0-9]+, started by $$, user 0\$" "$work/log"
fi
quietly ./abi.sh
LIBRARY=$installed/lib/libtaskdiag.so.0 quietly ./abi.sh
conformance
echo "C: all tests passed"
