#!/usr/bin/env bash
# Checks that the library, the programs and the Python client build with the oldest supported Rust (`rust-version` in
# Cargo.toml).
#
# Uses rustup's toolchain of that version if it is installed. Otherwise unpacks Debian's packages
# into .cache/rust/, which needs no root and does not touch the system's own Rust.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
CACHE=$PWD/.cache/rust
# Debian 12 has these packages for building browsers. They also run on later releases.
SUITE=bookworm
packages=(rustc-web "libstd-rust-web-$version" libstd-rust-web-dev libllvm19)
# shellcheck source-path=SCRIPTDIR
. dev/vm/packages.sh

# Downloads and unpacks Debian's packages.
fetch() {
    local architecture package
    architecture=$(dpkg --print-architecture)
    mkdir -p "$CACHE"
    work=$(mktemp -d "$CACHE/.fetch.XXXXXX") # not local: the trap outlives the function
    trap 'rm -rf "$work"' EXIT
    cd "$work"
    of_architecture "$architecture" apt-get update >apt.log 2>&1 || true # the download tells
    of_architecture "$architecture" apt-get download "${packages[@]}" >>apt.log 2>&1 || {
        cat apt.log >&2
        echo "msrv: no packages of Rust $version; with rustup: rustup toolchain install --profile minimal $version" >&2
        exit 1
    }
    for package in *.deb; do
        dpkg -x "$package" root
    done
    rm -rf "${CACHE:?}/$version"
    mv root "$CACHE/$version"
}

if command -v rustup >/dev/null && RUSTC=$(rustup which --toolchain "$version" rustc 2>/dev/null); then
    export RUSTC
else
    if [ ! -e "$CACHE/$version/usr/bin/rustc" ]; then
        echo "msrv: fetching Debian's packages of Rust $version" >&2
        (fetch)
    fi
    libraries=("$CACHE/$version"/usr/lib/*/librustc_driver-*.so)
    export RUSTC=$CACHE/$version/usr/bin/rustc LD_LIBRARY_PATH=${libraries[0]%/*}
fi
[[ $("$RUSTC" --version) == "rustc $version."* ]] || { echo "msrv: $RUSTC is $("$RUSTC" --version)" >&2; exit 1; }
# The default members of the workspace, without tests: tests and dev/ may need a newer Rust.
export CARGO_PROFILE_DEV_DEBUG=false # nobody debugs it
cargo check --quiet --locked --target-dir target/msrv
exec cargo check --quiet --locked --target-dir target/msrv --manifest-path clients/python/Cargo.toml
