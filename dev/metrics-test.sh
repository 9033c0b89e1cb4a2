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
RUST_TEST_THREADS=1 exec cargo test --quiet --workspace --test metrics -- --ignored "$@"
