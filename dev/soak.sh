#!/usr/bin/env bash
# All sources in turn for a quarter of an hour beside processes that do what they can to be told wrong; prints a table.
# TASKDIAG_SOAK_SECONDS=300 dev/soak.sh
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --quiet --release --package taskdiag-zoo
exec cargo test --quiet --release --package taskdiagd --test soak -- --ignored --nocapture
