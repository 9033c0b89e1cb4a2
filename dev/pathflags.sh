#!/usr/bin/env bash
# Prints the flags of a compiler for what is given to others: with them no program names directories
# of the machine that built it. RUSTFLAGS="$(dev/pathflags.sh rust)" CFLAGS="$(dev/pathflags.sh c)"
#
# Those are in messages of panics and assertions, which name the source of a crate, and in line tables.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
registry=${CARGO_HOME:-$HOME/.cargo}/registry/src
case $1 in
rust)
    before=${RUSTFLAGS:-}
    flags="--remap-path-prefix=$registry=/registry/src --remap-path-prefix=$root=/taskdiag"
    ;;
c)
    before=${CFLAGS:-}
    flags="-ffile-prefix-map=$registry=/registry/src -ffile-prefix-map=$root=/taskdiag"
    ;;
esac
# Some are there already where one script calls another.
case $before in
*"$flags"*) echo "$before" ;;
*) echo "${before:+$before }$flags" ;;
esac
