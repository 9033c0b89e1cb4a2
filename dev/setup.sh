#!/usr/bin/env bash
# Installs the Debian packages that a command of the Makefile needs, for the matrix also Rust's libraries for arm64, for mutants cargo-mutants:
# dev/setup.sh build|test|mutants|matrix|vm|bench|lint
#
# Says nothing when all is there. Where they can't be installed it says which are missing and goes on: a build without
# clang is a build without the BPF source, which still works.
set -euo pipefail

add_rust_target() {
    [ ! -d "$(rustc --print target-libdir --target "$1")" ] || return 0
    if ! command -v rustup >/dev/null; then
        echo "setup: this Rust has no libraries for $1, and there is no rustup to install them" >&2
        exit 1
    fi
    echo "setup: installing Rust's libraries for $1" >&2
    rustup --quiet target add "$1"
}

add_cargo_command() {
    ! cargo "$1" --version >/dev/null 2>&1 || return 0
    echo "setup: installing cargo-$1" >&2
    cargo install --quiet --locked "cargo-$1"
}

packages=(gcc clang libbpf-dev)
case ${1:-} in
build) ;;
test) packages+=(bpftool procps util-linux) ;;
matrix)
    packages+=(qemu-system-x86 qemu-system-arm cpio binutils xz-utils gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
    add_rust_target aarch64-unknown-linux-gnu
    ;;
vm) packages+=(qemu-system-x86 cpio binutils xz-utils) ;;
bench) packages+=(bpftool procps strace python3 python3-venv libelf-dev zlib1g-dev util-linux-extra vmtouch smem) ;;
lint) packages+=(shellcheck) ;;
mutants) add_cargo_command mutants ;;
*)
    echo "usage: $0 build|test|mutants|matrix|vm|bench|lint" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null; then
    echo "setup: this is not Debian; needed are the likes of: ${packages[*]}" >&2
    exit 0
fi

missing=()
for package in "${packages[@]}"; do
    # shellcheck disable=SC2016 # the braces are dpkg-query's
    status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "setup: missing: ${missing[*]}; as root: apt-get install ${missing[*]}" >&2
        exit 0
    fi
    as_root=(sudo)
fi

install() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install --yes --quiet=2 --no-install-recommends "${missing[@]}" >"$log" 2>&1
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "setup: installing ${missing[*]}" >&2
if ! install; then
    "${as_root[@]}" apt-get update --quiet=2 >>"$log" 2>&1 || true
    if ! install; then
        cat "$log" >&2
        echo "setup: could not install ${missing[*]}" >&2
        exit 1
    fi
fi
