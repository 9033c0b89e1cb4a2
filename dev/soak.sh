#!/usr/bin/env bash
# Queries all sources in turn for a quarter of an hour, while processes change all the time. Prints
# a table. TASKDIAG_SOAK_SECONDS=300 dev/soak.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# The C library keeps up to eight arenas per processor, and each grows to the size of the largest
# answer that a thread has read in it. This looks like a leak, and would hide one.
export MALLOC_ARENA_MAX=1

cargo build --quiet --release --package taskdiag-zoo
exec cargo test --quiet --release --package taskdiagd --test soak -- --ignored --nocapture
