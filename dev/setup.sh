#!/usr/bin/env bash
# Installs what a command of the Makefile needs:
# dev/setup.sh build|python|package|package-test|check|test|htop|browser|pictures|book|fuzz|mutants|matrix|vm|bench|lint
#
# Installs Debian packages, including Go, Rust's libraries for arm64, components of Rust, cargo
# commands and mdBook. Prints nothing if everything is there. If it can't install packages, it prints the
# missing ones and continues: a build without clang works, but has no BPF programs.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(gcc clang libbpf-dev) programs=() components=() rust_target='' go=()
# Debian's Go, unless another one is installed.
command -v go >/dev/null || go=(golang-go)
case ${1:-} in
build) ;;
python) packages+=(python3 python3-venv) ;;
package) packages=(debhelper rpm elfutils debugedit) ;;
package-test) packages=(mmdebstrap lintian rpm binutils gcc libc6-dev pkg-config) ;;
test) packages+=(bpftool procps util-linux lsof iproute2 python3 python3-venv libc6-dev g++ pkg-config libjansson-dev valgrind abigail-tools util-linux-extra psmisc jq "${go[@]}") ;;
htop) packages=(python3 python3-pyte) ;;
browser) packages=(chromium) ;;
book)
    packages=(python3)
    programs=(mdbook)
    ;;
pictures) packages=(chromium python3 python3-pyte python3-pil) ;;
fuzz)
    packages+=(g++ "${go[@]}")
    programs=(cargo-fuzz)
    ;;
matrix)
    packages+=(qemu-system-x86 qemu-system-arm cpio binutils xz-utils gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
    rust_target=aarch64-unknown-linux-gnu
    ;;
vm) packages+=(qemu-system-x86 cpio binutils xz-utils) ;;
bench) packages+=(procps strace python3 python3-venv util-linux-extra vmtouch smem lsof iproute2 htop btop libproc2-dev pkg-config psmisc atop "${go[@]}") ;;
check) components=(rustfmt clippy) ;;
lint)
    packages+=(shellcheck python3 "${go[@]}")
    programs=(cargo-deny)
    components=(rustfmt clippy)
    ;;
mutants) programs=(cargo-mutants) ;;
*)
    echo "usage: $0 build|python|package|package-test|check|test|htop|browser|pictures|book|fuzz|mutants|matrix|vm|bench|lint" >&2
    exit 2
    ;;
esac

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Whether a Debian package is installed.
has() {
    # shellcheck disable=SC2016 # the braces are dpkg-query's
    [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null || true)" = installed ]
}

# Installs the missing Debian packages.
add_packages() {
    local package missing=() as_root=()
    if ! command -v dpkg-query >/dev/null; then
        echo "setup: this is not Debian; needed are the likes of: $*" >&2
        return
    fi
    for package; do
        has "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "setup: missing: ${missing[*]}; as root: apt-get install ${missing[*]}" >&2
            return
        fi
        as_root=(sudo)
    fi
    echo "setup: installing ${missing[*]}" >&2
    # Another program of the machine may be installing something.
    local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 --no-install-recommends --option DPkg::Lock::Timeout=300 "${missing[@]}")
    "${install[@]}" >"$log" 2>&1 && return
    "${as_root[@]}" apt-get update --quiet=2 >>"$log" 2>&1 || true
    "${install[@]}" >"$log" 2>&1 && return
    cat "$log" >&2
    echo "setup: could not install ${missing[*]}" >&2
    exit 1
}

# Installs Rust's libraries for another architecture.
add_rust_target() {
    [ ! -d "$(rustc --print target-libdir --target "$1")" ] || return 0
    if ! command -v rustup >/dev/null; then
        echo "setup: this Rust has no libraries for $1, and there is no rustup to install them" >&2
        exit 1
    fi
    echo "setup: installing Rust's libraries for $1" >&2
    rustup --quiet target add "$1"
}

# Installs a component of Rust, unless its command is there.
add_rust_component() {
    ! cargo "${1/rustfmt/fmt}" --version >/dev/null 2>&1 || return 0
    echo "setup: installing $1" >&2
    rustup --quiet component add "$1"
}

# Installs a program into .cache/tools/, which is in the Makefile's PATH: a prebuilt one from
# dev/tools.txt in seconds, otherwise the crate of that name from source, which takes minutes.
add_program() {
    ! PATH=$PWD/.cache/tools/bin:$PATH:${CARGO_HOME:-$HOME/.cargo}/bin type -P "$1" >/dev/null || return 0
    echo "setup: installing $1" >&2
    local listed=.cache/tools/$1 version=()
    mkdir -p .cache/tools/bin
    if grep -A 2 -- "-$1==" dev/tools.txt >"$listed.txt"; then
        python3 -m pip --version >/dev/null 2>&1 || add_packages python3-pip
        if python3 -m pip install --quiet --no-deps --only-binary :all: --require-hashes --upgrade --target "$listed" \
            --requirement "$listed.txt" >"$log" 2>&1; then
            ln -sf "../$1/bin/$1" .cache/tools/bin/
            return
        fi
        cat "$log" >&2
        echo "setup: building $1" >&2
        version=(--version "$(sed -n 's/.*==\([0-9.]*\).*/\1/p' "$listed.txt")")
    fi
    cargo install --quiet --locked --root .cache/tools "${version[@]}" "$1"
}

add_packages "${packages[@]}"
[ -z "$rust_target" ] || add_rust_target "$rust_target"
for component in "${components[@]}"; do add_rust_component "$component"; done
for program in "${programs[@]}"; do add_program "$program"; done
