#!/usr/bin/env bash
# Makes libtaskdiag.so: clients/c/build.sh [DIRECTORY]
#
# Without a directory it is beside the programs, in target/release. PROFILE is cargo's (release).
set -euo pipefail
# Paths are the caller's.
to=${1:+$(realpath --canonicalize-missing "$1")}
target=${CARGO_TARGET_DIR:+$(realpath --canonicalize-missing "$CARGO_TARGET_DIR")}
cd "$(dirname "$0")"
target=${target:-$(realpath ../..)/target}
profile=${PROFILE:-release}
built=$target/${profile/#dev/debug}
to=${to:-$built}
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' ../../Cargo.toml)

if [ "$profile" = dev ]; then
    CARGO_TARGET_DIR=$target ../../dev/build.sh
else
    "${CARGO:-cargo}" build --quiet --profile "$profile" --target-dir "$target" --package taskdiag-c
fi
mkdir -p "$to"
# The linker drops what no function needs. The library stays in memory after dlclose(3): its threads
# may be in the middle of a read.
"${CC:-cc}" -shared -o "$to/libtaskdiag.so.$version" \
    -Wl,--soname=libtaskdiag.so.0 -Wl,--version-script=libtaskdiag.map -Wl,--no-undefined-version \
    -Wl,--whole-archive "$built/libtaskdiag_c.a" -Wl,--no-whole-archive \
    -Wl,--gc-sections -Wl,--as-needed -Wl,-z,defs -Wl,-z,relro -Wl,-z,now -Wl,-z,nodelete \
    -lgcc_s -lpthread -lm -ldl -lc
ln -sf "libtaskdiag.so.$version" "$to/libtaskdiag.so.0"
ln -sf libtaskdiag.so.0 "$to/libtaskdiag.so"
