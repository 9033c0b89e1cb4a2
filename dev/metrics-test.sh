#!/usr/bin/env bash
# Tests `taskdiag metrics` with Debian's Prometheus, its promtool, and its process-exporter beside it.
# As root.
set -euo pipefail
cd "$(dirname "$0")/.."

TASKDIAG_PROMETHEUS=$(dev/prometheus.sh)
export TASKDIAG_PROMETHEUS
cargo build --quiet --package taskdiag-zoo
RUST_TEST_THREADS=1 exec cargo test --quiet --package taskdiag-cli --test metrics -- --ignored "$@"
