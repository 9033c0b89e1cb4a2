#!/usr/bin/env bash
# Tests the Go client: clients/go/test.sh [ARGUMENT OF GO TEST...]
#
# Without an argument: go vet, all tests with the race detector, the examples, a few seconds of the
# fuzz target, and the module as others get it, in a GOPATH of its own.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
work=$root/target/go
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target} GOFLAGS=-buildvcs=false GOTOOLCHAIN=local
mkdir -p "$work"

if [ $# -gt 0 ]; then
    exec go test -timeout 5m "$@" .
fi

go vet ./...
# Only root can start a broker, which the examples need.
which=.
[ "$(id -u)" -eq 0 ] || which=^Test
go test -timeout 10m -run "$which" -race -count 1 -v . >"$work/test.log" 2>&1 || { grep -v '^=== ' "$work/test.log" >&2; exit 1; }
# A number of inputs, because the end of a time counts as a failure now and then (golang/go#75804).
# Limits the minimisation of inputs: Go would spend a minute on each, and try no others in between.
go test -run '^$' -fuzz FuzzDecoder -fuzztime 10000x -fuzzminimizetime 10x . >"$work/fuzz.log" 2>&1 ||
    { cat "$work/fuzz.log" >&2; exit 1; }
tried=$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' "$work/fuzz.log" | tail -n 1)
[ "${tried:-0}" -gt 100 ] || { echo "go: the fuzz target tried only ${tried:-0} inputs" >&2; exit 1; }

# A separate program, without cgo, built from scratch.
rm -rf "$work/elsewhere"
mkdir -p "$work/elsewhere"
cp examples/top/main.go "$work/elsewhere/"
cat >"$work/elsewhere/go.mod" <<END
module elsewhere

go 1.19

require github.com/taskdiag/taskdiag/clients/go v0.0.0

replace github.com/taskdiag/taskdiag/clients/go => $PWD
END
(cd "$work/elsewhere" && GOPATH=$work/elsewhere/path GOFLAGS='-buildvcs=false -mod=mod' GOPROXY=off CGO_ENABLED=0 go build -o top .)
"$work/elsewhere/top" -help 2>"$work/elsewhere/usage"
for system in linux/arm64 linux/s390x linux/386; do
    CGO_ENABLED=0 GOOS=${system%/*} GOARCH=${system#*/} go build .
done
skipped=$(sed -n 's/^--- SKIP: \(Test[^ ]*\).*/\1/p' "$work/test.log" | paste -sd ' ')
echo "Go: $(grep -c '^--- PASS: Test' "$work/test.log") tests passed${skipped:+, and these were skipped: $skipped}"
