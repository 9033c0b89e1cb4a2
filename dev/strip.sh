#!/usr/bin/env bash
# Moves the debug information of programs into separate files next to them: dev/strip.sh PROGRAM...
#
# Debuggers, profilers and backtraces find PROGRAM.debug through a link in the program, in the same
# directory or below /usr/lib/debug. Fails if a program names directories of this machine.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
registry=${CARGO_HOME:-$HOME/.cargo}/registry

for program; do
    # The next cargo build restores the program.
    sections=$(readelf --section-headers --wide "$program")
    [[ $sections == *' .debug_line '* ]] || continue
    objcopy --only-keep-debug --compress-debug-sections "$program" "$program.debug"
    objcopy --strip-all --add-gnu-debuglink="$program.debug" "$program" "$program.stripped"
    mv "$program.stripped" "$program"
    if found=$(grep --text --only-matching --max-count=1 -e "$root/[ -~]*" -e "$registry/[ -~]*" "$program"); then
        echo "$program names a directory of this machine: $found" >&2
        exit 1
    fi
done
