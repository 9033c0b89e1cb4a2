#!/usr/bin/env bash
# All sources in turn for a quarter of an hour beside processes that do what they can to be told wrong; prints a table.
# TASKDIAG_SOAK_SECONDS=300 dev/soak.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# The C library keeps up to eight arenas for each processor, one for each of as many threads, and each grows to the largest answer that
# was ever read in it. For a quarter of an hour that looks like a leak, and would hide one.
export MALLOC_ARENA_MAX=1

cargo build --quiet --release --package taskdiag-zoo
exec cargo test --quiet --release --package taskdiagd --test soak -- --ignored --nocapture
