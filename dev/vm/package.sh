#!/bin/bash
# Installs the packages of make deb on a Debian that systemd has started, uses them as an administrator would, upgrades
# them and removes them, in a virtual machine (see run.sh).
#
# Usage: package.sh [KERNEL]
#   KERNEL   6.1 or 6.12; 6.12 unless told
#
# Prints a line for each check, "ok ..." or "FAILED ...". Exits with 0 if all are ok. Uses the
# Debian of ../package-test.sh, which creates .cache/package-root.tar. Needs root, because the
# archive contains root's files.
set -euo pipefail
umask 022

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPOSITORY=$(cd "$HERE/../.." && pwd)
readonly HERE REPOSITORY BASE=$REPOSITORY/.cache/package-root.tar

die() { echo "package.sh: $*" >&2; exit 2; }

kernel=${1:-6.12}
case $kernel in 6.1 | 6.12) ;; *) die "no kernel '$kernel'; see the first lines of $0" ;; esac
shopt -s nullglob
debs=("$REPOSITORY"/target/package/taskdiag{,d}_*.deb)
[[ ${#debs[@]} -eq 2 ]] || die "found ${#debs[@]} packages: make deb"
[[ -s $BASE ]] || die "no $BASE: make package-test"

work=$(mktemp -d "${TMPDIR:-/tmp}/taskdiag-package.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/root"
# The machine has its own directories here, and links to them as in Debian.
tar -C "$work/root" -xf "$BASE" --exclude='./dev/*' --exclude=./bin --exclude=./sbin --exclude=./lib --exclude=./lib64
rm -rf "$work"/root/{dev,proc,run,sys,tmp} "$work"/root/usr/share/{doc,man,locale} "$work"/root/var/{run,lock,tmp}
echo 0123456789abcdef0123456789abcdef >"$work/root/etc/machine-id" # otherwise this is a first boot
(cd "$work/root" && find . -print0 | cpio --quiet --null -o -H newc) >"$work/archive"
rm -rf "$work/root"

files=(--file "$HERE/init-systemd:/etc/init-systemd" --file "$HERE/package-checks:/etc/package-checks")
files+=(--file "$HERE/unit-checks.service:/usr/lib/systemd/system/")
for deb in "${debs[@]}"; do files+=(--file "$deb:/root/"); done
"$HERE/run.sh" --kernel "$kernel" --timeout 900 --mem 4G --archive "$work/archive" "${files[@]}" \
  --append "rdinit=/etc/init-systemd systemd.show_status=false systemd.getty_auto=no systemd.mask=getty.target" -- /bin/bash /etc/package-checks
