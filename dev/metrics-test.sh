#!/usr/bin/env bash
# Tests `taskdiag metrics` with Debian's Prometheus, promtool, and process-exporter. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
    echo "the tests with Prometheus need root" >&2
    exit 1
fi
TASKDIAG_PROMETHEUS=$(dev/prometheus.sh)
export TASKDIAG_PROMETHEUS
dev/build.sh
# Cargo also succeeds if no test has the name.
RUST_TEST_THREADS=1 cargo test --quiet --workspace --test metrics -- --ignored "$@" |
    awk '{ print } /^test result:/ { passed += $4 } END { if (!passed) { print "no test ran"; exit 1 } }'
