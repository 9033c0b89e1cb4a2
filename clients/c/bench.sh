#!/usr/bin/env bash
# Measures the library beside libproc2 of procps-ng, and htop with and without it: clients/c/bench.sh [PROCESSES...]
#
# What make build has built is measured. As root.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
work=$(mktemp -d)
zoo=$root/target/release/zoo
[ -x "$zoo" ] || zoo=$root/target/debug/zoo
export LD_LIBRARY_PATH=$root/target/release

cc -std=gnu11 -O2 -Wall -Wextra -Werror -Iinclude -o "$work/bench" bench.c -L"$root/target/release" -ltaskdiag -lproc2
"$root/target/release/taskdiagd" --socket "$work/socket" 2>"$work/log" &
broker=$!
trap 'kill "$broker"; rm -rf "$work"' EXIT
for _ in {1..100}; do
    ! grep --quiet ready "$work/log" || break
    sleep 0.1
done
[ $# -gt 0 ] || set -- 1000 10000
echo "libproc2 $(pkg-config --modversion libproc2), $(nproc) processors"
echo
for processes; do
    coproc "$zoo" farm "$processes"
    read -r _ <&"${COPROC[0]}"
    "$work/bench" "$processes" "$work/socket"
    farm=$COPROC_PID input=${COPROC[1]}
    exec {input}>&-
    wait "$farm"
done
htop/build.sh
(cd "$root" && clients/c/htop/bench.py target/c/htop/htop target/release)
