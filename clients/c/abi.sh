#!/usr/bin/env bash
# Checks that programs built with an older taskdiag.h work with this one: clients/c/abi.sh [--update]
#
# taskdiag.abi has the functions, types and numbers of the header, with the versions of symbols, as
# abidw(1) sees them. What is new may be added, and --update then writes the file anew.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
work=$(realpath ../../target/c)/abi
mkdir -p "$work"

# A library with all functions of the header, none of which does anything: what a C compiler makes of
# the header is what programs are built with.
{
    echo '#include "taskdiag.h"'
    sed -nE 's/^([a-z].*[ *]td_[a-z0-9_]+\(.*\));$/\1 { __builtin_trap(); }/p' include/taskdiag.h
} >"$work/stub.c"
(cd "$work" && "${CC:-cc}" -std=c11 -g -w -shared -fPIC -I"$here/include" -Wl,--soname=libtaskdiag.so.0 \
    -Wl,--version-script="$here/libtaskdiag.map" -Wl,--no-undefined-version -o libtaskdiag.so.0 stub.c)

declared=$(grep -c __builtin_trap "$work/stub.c")
exported=$(nm -D --defined-only "$work/libtaskdiag.so.0" | grep -c '@@TASKDIAG_' || true)
if [ "$declared" -lt 50 ] || [ "$declared" -ne "$exported" ]; then
    echo "abi: taskdiag.h declares $declared functions, and libtaskdiag.map exports $exported of them" >&2
    exit 1
fi

# dump FILE
dump() {
    abidw --no-corpus-path --no-comp-dir-path --no-show-locs --out-file "$1" "$work/libtaskdiag.so.0"
}

# Functions, and enumerators with their numbers: names FILE
names() {
    grep -oE "<(elf-symbol|enumerator) name='[^']*'( value='[^']*')?" "$1" | sort
}

if [ "${1:-}" = --update ]; then
    dump taskdiag.abi
    exit
fi
if ! abidiff --no-added-syms taskdiag.abi "$work/libtaskdiag.so.0" >"$work/log" 2>&1; then
    cat "$work/log" >&2
    echo "abi: programs that are built with an older taskdiag.h may not work with this one" >&2
    exit 1
fi
# What is in no file would not be missed later.
dump "$work/now.abi"
names taskdiag.abi >"$work/kept"
names "$work/now.abi" >"$work/now"
if ! diff "$work/kept" "$work/now" >&2; then
    echo "abi: taskdiag.h has names that taskdiag.abi lacks: run clients/c/abi.sh --update" >&2
    exit 1
fi
# And the real library has the same functions.
if [ -n "${LIBRARY:-}" ]; then
    for library in "$LIBRARY" "$work/libtaskdiag.so.0"; do
        nm -D --defined-only "$library" | sed -n 's/.* T //p' | sort
    done >"$work/functions"
    if [ -n "$(sort "$work/functions" | uniq --unique)" ]; then
        echo "abi: $LIBRARY and taskdiag.h have different functions:" >&2
        sort "$work/functions" | uniq --unique >&2
        exit 1
    fi
fi
