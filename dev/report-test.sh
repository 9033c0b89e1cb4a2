#!/usr/bin/env bash
# Tests the pages of `taskdiag report` in Debian's Chromium. TASKDIAG_PICTURES=DIRECTORY keeps
# pictures of them.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v chromium >/dev/null; then
    dev/setup.sh browser
fi
dev/build.sh
RUST_TEST_THREADS=1 exec cargo test --quiet --workspace --test history -- --ignored browser soon "$@"
