#!/usr/bin/env bash
# Moves the debug information of programs into files beside them: dev/strip.sh PROGRAM...
#
# Debuggers, profilers and backtraces find PROGRAM.debug by a link in the program, if it is in the
# same directory or below /usr/lib/debug.
set -euo pipefail

for program; do
    # The next build by cargo restores the program.
    sections=$(readelf --section-headers --wide "$program")
    [[ $sections == *' .debug_line '* ]] || continue
    objcopy --only-keep-debug --compress-debug-sections "$program" "$program.debug"
    objcopy --strip-all --add-gnu-debuglink="$program.debug" "$program" "$program.stripped"
    mv "$program.stripped" "$program"
done
