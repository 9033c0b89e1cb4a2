#!/usr/bin/env bash
# Runs a test program where cargo would: dev/test-program.sh LOGS PROGRAM DIRECTORY NAME
set -euo pipefail
cd "$3"
CARGO_MANIFEST_DIR=$3 "$2" --quiet >"$1/$4" 2>&1 || echo "$4 failed: status $?" >"$1/$4.failed"
