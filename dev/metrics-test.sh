#!/usr/bin/env bash
# Tests `taskdiag metrics` with Debian's Prometheus, promtool, and process-exporter. Needs root.
# TASKDIAG_WITHOUT_ROOT=1: other users test nothing here, and that is no failure.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
    echo "metrics with Prometheus: not tested: run it as root, or allow this with TASKDIAG_WITHOUT_ROOT=1" >&2
    [ "${TASKDIAG_WITHOUT_ROOT:-}" = 1 ] && exit 0
    exit 1
fi
TASKDIAG_PROMETHEUS=$(dev/prometheus.sh)
export TASKDIAG_PROMETHEUS
cargo build --quiet --package taskdiag-zoo
RUST_TEST_THREADS=1 exec cargo test --quiet --package taskdiag-cli --test metrics -- --ignored "$@"
