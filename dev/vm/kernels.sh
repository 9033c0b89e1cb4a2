#!/bin/bash
# Fetches Debian's cloud kernels into .cache/kernels/<6.1|6.12>/ of the repository:
#   vmlinuz  vmlinux.btf (raw)  config  version (package, version)
# Usage: kernels.sh [--update] [6.1|6.12]...     (both without arguments; what is in the cache stays)
set -euo pipefail
umask 022

CACHE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/.cache/kernels
readonly CACHE

die() { echo "kernels.sh: $*" >&2; exit 1; }

# The meta package whose dependency is the kernel image Debian ships today.
meta_package() {
  case $1 in
    6.1) echo linux-image-cloud-amd64 ;;
    6.12) echo linux-image-6.12-cloud-amd64 ;;
    *) die "unknown kernel '$1': want 6.1 or 6.12" ;;
  esac
}

# "package=version" of the image that meta package $1 depends on; nothing when apt does not know it.
image_package() {
  { apt-cache show --no-all-versions "$1" 2>/dev/null || true; } |
    sed -n 's/^Depends:.*\(linux-image-[^ ,]*\) (= \([^)]*\)).*/\1=\2/p' | head -n 1
}

# apt-get download into the current directory, trying again with fresh lists: old ones name packages that are gone.
download() {
  local meta=$1 image
  image=$(image_package "$meta")
  if [[ -n $image ]] && apt-get -qq download "$image" 2>apt.log; then return; fi
  apt-get -qq update >>apt.log 2>&1 || true
  image=$(image_package "$meta")
  [[ -n $image ]] || { cat apt.log >&2; die "apt does not know $meta: is this Debian 12 with bookworm-security in its sources, and were you root for 'apt-get update'?"; }
  apt-get -qq download "$image" 2>>apt.log || { cat apt.log >&2; die "could not download $image"; }
}

le_bytes() { od -An -t "u$3" -j "$2" -N "$3" "$1" | tr -d ' '; } # FILE OFFSET SIZE: one little-endian number

# The ELF kernel in bzImage $1. The header says where the payload lies (Documentation/arch/x86/boot.rst);
# its first bytes say how it is packed. All but gzip carry four more bytes, the unpacked size.
unpack_vmlinux() {
  local image=$1 sectors start length magic unpack
  sectors=$(le_bytes "$image" $((0x1f1)) 1)
  start=$(((sectors + 1) * 512 + $(le_bytes "$image" $((0x248)) 4)))
  length=$(le_bytes "$image" $((0x24c)) 4)
  magic=$(od -An -t x1 -j "$start" -N 4 "$image" | tr -d ' ')
  case $magic in
    1f8b*) unpack=(gzip -dc) length=$((length + 4)) ;;
    28b52ffd) unpack=(zstd -dc) ;;
    fd377a58) unpack=(xz -dc) ;;
    5d0000*) unpack=(xz -dc --format=lzma) ;;
    425a68*) unpack=(bzip2 -dc) ;;
    02214c18) unpack=(lz4 -dc) ;;
    894c5a4f) unpack=(lzop -dc) ;;
    *) die "$image: no compression known by the magic number $magic" ;;
  esac
  command -v "${unpack[0]}" >/dev/null || die "$image: needs the program '${unpack[0]}'"
  dd if="$image" bs=1M skip="$start" count=$((length - 4)) iflag=skip_bytes,count_bytes status=none | "${unpack[@]}"
}

fetch() {
  local kernel=$1 meta deb release
  meta=$(meta_package "$kernel")
  work=$(mktemp -d "$CACHE/.fetch.XXXXXX") # not local: the trap outlives the function
  trap 'rm -rf "$work"' EXIT
  cd "$work"
  # apt drops its privileges for the download where it can.
  if [[ $EUID == 0 ]] && id _apt >/dev/null 2>&1; then chown _apt . 2>/dev/null || true; fi
  download "$meta"
  deb=$(echo linux-image-*.deb)
  [[ -f $deb ]] || die "apt-get download left no package in $work"
  dpkg -x "$deb" package
  release=$(basename package/boot/vmlinuz-*)
  release=${release#vmlinuz-}
  [[ $release == "$kernel".* ]] || die "$meta gives kernel $release here, not $kernel"

  mkdir out
  cp package/boot/vmlinuz-* out/vmlinuz
  cp package/boot/config-* out/config
  unpack_vmlinux out/vmlinuz >vmlinux || die "could not unpack the kernel in $deb"
  objcopy -O binary --only-section=.BTF vmlinux out/vmlinux.btf
  [[ $(od -An -t x2 -N 2 out/vmlinux.btf) == ' eb9f' ]] || die "no BTF in the kernel of $deb"
  printf '%s %s\n' "$(dpkg-deb -f "$deb" Package)" "$(dpkg-deb -f "$deb" Version)" >out/version
  chmod 644 out/*
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
    *) meta_package "$argument" >/dev/null; kernels+=("$argument") ;;
  esac
done
[[ ${#kernels[@]} -gt 0 ]] || kernels=(6.1 6.12)

mkdir -p "$CACHE"
exec 9>"$CACHE/.lock"
flock 9 # two runs at once: the second finds the first one's kernels
for kernel in "${kernels[@]}"; do
  if [[ -n $update || ! -s $CACHE/$kernel/version ]]; then (fetch "$kernel"); fi
done
