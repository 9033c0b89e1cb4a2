#!/bin/bash
# Fetches Debian's kernels into .cache/kernels/<kernel>/ of the repository, with what a machine needs that runs one:
#   vmlinuz  config  version (package, version)  modules/ (in the order of loading)  wanted (their names)  busybox  sleep
# Usage: kernels.sh [--update] [6.1|6.12|arm64-4k|arm64-16k]...     (all without arguments; what is in the cache stays)
set -euo pipefail
umask 022

CACHE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/.cache/kernels
readonly CACHE
# File systems and other features that tests need, if the kernel has them as modules.
readonly MODULES='fuse overlay zram unix_diag tcp_diag udp_diag raw_diag netlink_diag af_packet_diag vsock_diag vsock_loopback'

# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/packages.sh"

die() { echo "kernels.sh: $*" >&2; exit 1; }

# Describes kernel $1: the meta package that depends on Debian's current image, the version, and the
# architecture.
describe() {
  case $1 in
    6.1) meta=linux-image-cloud-amd64 series=6.1 architecture=amd64 ;;
    6.12) meta=linux-image-6.12-cloud-amd64 series=6.12 architecture=amd64 ;;
    arm64-4k) meta=linux-image-6.12-cloud-arm64 series=6.12 architecture=arm64 ;;
    arm64-16k) meta=linux-image-6.12-arm64-16k series=6.12 architecture=arm64 ;;
    *) die "unknown kernel '$1': want 6.1, 6.12, arm64-4k or arm64-16k" ;;
  esac
}

# Prints the package of the image that the meta package $1 depends on.
image_package() {
  { of_architecture "$architecture" apt-cache show --no-all-versions "$1" 2>/dev/null || true; } |
    sed -n 's/^Depends:.*\(linux-image-[^ ,]*\) (= [^)]*).*/\1/p' | head -n 1
}

# Downloads the package $1 into the current directory and prints the file name.
download() {
  local files
  of_architecture "$architecture" apt-get download "$1" >>apt.log 2>&1 || { cat apt.log >&2; die "could not download $1"; }
  files=("$1"_*.deb)
  [[ -f ${files[0]} ]] || die "apt-get download left no package $1"
  echo "${files[0]}"
}

# Unpacks the module $1 and its dependencies into out/modules. Built-in modules have no file.
take_module() {
  local file module
  for file in out/modules/*-"$1.ko"; do if [[ -e $file ]]; then return; fi; done
  file=$(find kernel/lib/modules -name "$1.ko*" -print -quit)
  [[ -n $file ]] || return 0
  case $file in
    *.xz) xz -dc "$file" >"$1.ko" ;;
    *) cp "$file" "$1.ko" ;;
  esac
  for module in $(tr '\0' '\n' <"$1.ko" | sed -n 's/^depends=//p' | tr ',' ' '); do take_module "$module"; done
  mv "$1.ko" "out/modules/$(printf '%02d' "$(find out/modules -type f | wc -l)")-$1.ko"
}

fetch() {
  local kernel=$1 image deb release module meta series architecture
  describe "$kernel"
  work=$(mktemp -d "$CACHE/.fetch.XXXXXX") # not local: the trap outlives the function
  trap 'rm -rf "$work"' EXIT
  cd "$work"
  of_architecture "$architecture" apt-get update >apt.log 2>&1 || true # a source that is of no use may fail
  image=$(image_package "$meta")
  [[ -n $image ]] || { cat apt.log >&2; die "apt does not know $meta: is this Debian 12 with bookworm-security in its sources?"; }
  deb=$(download "$image")
  dpkg -x "$deb" kernel
  release=$(basename kernel/boot/vmlinuz-*)
  release=${release#vmlinuz-}
  [[ $release == "$series".* ]] || die "$meta gives kernel $release here, not $series"
  mkdir -p out/modules
  cp kernel/boot/vmlinuz-* out/vmlinuz
  cp kernel/boot/config-* out/config
  for module in $MODULES; do take_module "$module"; done
  printf '%s %s\n' "$image" "$(dpkg-deb -f "$deb" Version)" >out/version
  echo "$MODULES" >out/wanted

  dpkg -x "$(download busybox-static)" programs
  dpkg -x "$(download coreutils)" programs
  cp programs/bin/busybox programs/bin/sleep out/
  chmod -R u=rwX,go=rX out
  rm -rf "${CACHE:?}/$kernel"
  mv out "$CACHE/$kernel"
  echo "kernels.sh: $kernel is $(cat "$CACHE/$kernel/version")" >&2
}

update=
kernels=()
for argument; do
  case $argument in
    --update) update=1 ;;
    -h | --help) sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}"; exit ;;
    *) describe "$argument"; kernels+=("$argument") ;;
  esac
done
[[ ${#kernels[@]} -gt 0 ]] || kernels=(6.1 6.12 arm64-4k arm64-16k)

mkdir -p "$CACHE"
exec 9>"$CACHE/.lock"
flock 9 # two runs at once: the second finds the first one's kernels
for kernel in "${kernels[@]}"; do
  if [[ -n $update || ! -s $CACHE/$kernel/version || $(cat "$CACHE/$kernel/wanted" 2>/dev/null) != "$MODULES" ]]; then (fetch "$kernel"); fi
done
