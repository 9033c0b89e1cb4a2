#!/usr/bin/env bash
# Queries all sources in turn for a quarter of an hour, beside processes that change all the time.
# Prints a table. TASKDIAG_SOAK_SECONDS=300 dev/soak.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# The C library keeps up to eight arenas for each processor, and each grows to the largest answer
# that a thread read in it. That looks like a leak, and would hide one.
export MALLOC_ARENA_MAX=1

cargo build --quiet --release --package taskdiag-zoo
exec cargo test --quiet --release --package taskdiagd --test soak -- --ignored --nocapture
