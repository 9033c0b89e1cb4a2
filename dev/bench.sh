#!/usr/bin/env bash
# Measures taskdiag and its competitors and rewrites docs/benchmarks.md: dev/bench.sh [OPTION...]
#
# Run it as root on an idle machine. The options are those of taskdiag-bench (--help). With any
# option, the document does not change.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --quiet --workspace --bins
dev/bench/setup.sh
# Without it, the rows for process-exporter are missing.
dev/prometheus.sh >/dev/null || true

if [ $# -gt 0 ]; then
    exec target/release/taskdiag-bench "$@"
fi

document=docs/benchmarks.md
target/release/taskdiag-bench --rounds 5 --markdown target/benchmarks.md
{
    cat target/benchmarks.md
    echo
    echo "## The Python client"
    echo
    echo "Eight attributes of all processes, in one interpreter, in turns (\`clients/python/bench.sh\`):"
    echo
    clients/python/bench.sh
    echo
    echo "Wanted with 10,000 processes, in times psutil's: table 40, polars 30, rows 8."
    echo
    echo "## The Go client"
    echo
    echo "Eight values of all processes, in one process, in turns (\`clients/go/bench.sh\`):"
    echo
    clients/go/bench.sh
    echo
    echo "Wanted with 10,000 processes, in times gopsutil's processor time: 60; and as many allocations as with 1,000."
    echo
    echo "## The C library"
    echo
    echo "Eleven values of all processes, in one process, in turns, and htop (\`clients/c/bench.sh\`):"
    echo
    clients/c/bench.sh
    echo
    echo "Wanted of htop with 10,000 processes: a quarter of the processor time."
    echo
    # The results of make soak-broker are written by hand.
    awk '/^## /{kept = /hostile soak/} kept' "$document"
} >target/benchmarks-whole.md
mv target/benchmarks-whole.md "$document"
