#!/usr/bin/env bash
# Measures the client and gopsutil: clients/go/bench.sh [PROCESSES...]
#
# Starts the broker that make build or dev/bench.sh has built. gopsutil is a dependency only of the
# benchmark's module.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
work=$(mktemp -d)
zoo=$root/target/release/zoo
[ -x "$zoo" ] || zoo=$root/target/debug/zoo
export GOFLAGS=-buildvcs=false GOTOOLCHAIN=local

(cd bench && CGO_ENABLED=0 go build -o "$work/bench" .)
"$root/target/release/taskdiagd" --socket "$work/socket" 2>"$work/log" &
broker=$!
trap 'kill "$broker"; rm -rf "$work"' EXIT
for _ in {1..100}; do
    ! grep --quiet ready "$work/log" || break
    sleep 0.1
done
"$work/bench" -socket "$work/socket" -broker "$broker" -zoo "$zoo" "$@"
