#!/bin/bash
# Tests the systemd units on a small Debian that systemd has started, in a virtual machine (see
# run.sh).
#
# Usage: unit.sh [--suite SUITE] [--only WHAT] [--recording FILE] [--append ARGUMENTS] [KERNEL]
#   --suite SUITE       the Debian whose systemd it is: bookworm (252) unless told, trixie (257)
#   --only WHAT         broker: the units of taskdiagd; services: those of taskdiag record and taskdiag metrics
#   --recording FILE    keep the recording of a service that the OOM killer ended, as a .tar.gz
#   --append ARGUMENTS  more kernel arguments
#   KERNEL              6.1 or 6.12; 6.12 unless told
#
# Prints a line for each check, "ok ..." or "FAILED ...". Exits with 0 if all are ok. target/release
# must be built, or PROGRAMS must be the directory of the programs. The Debian is unpacked from
# packages into .cache/systemd/: this needs no root, and runs no script of a package.
set -euo pipefail
umask 022

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPOSITORY=$(cd "$HERE/../.." && pwd)
readonly HERE REPOSITORY CACHE=$REPOSITORY/.cache/systemd
readonly UNITS=$REPOSITORY/crates/taskdiagd/systemd SERVICES=("$REPOSITORY/crates/taskdiag-cli/systemd/taskdiag-record.service" "$REPOSITORY/packaging/systemd/taskdiag-metrics.service")
readonly PROGRAMS=${PROGRAMS:-$REPOSITORY/target/release}
# shellcheck source-path=SCRIPTDIR
. "$HERE/packages.sh"

die() { echo "unit.sh: $*" >&2; exit 2; }

SUITE=bookworm append='' kernel=6.12 only='' recording=''
while [[ $# -gt 0 ]]; do
  case $1 in
    --suite) SUITE=$2; shift 2 ;;
    --append) append=$2; shift 2 ;;
    --only) [[ $2 == broker || $2 == services ]] || die "--only: no '$2'"; only=$2; shift 2 ;;
    --recording) recording=$2; shift 2 ;;
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;;
    6.1 | 6.12) kernel=$1; shift ;;
    *) die "unknown argument '$1'; see $0 --help" ;;
  esac
done
for program in taskdiag taskdiagd; do
  [[ -x $PROGRAMS/$program ]] || die "no $PROGRAMS/$program: make build"
done

# Makes the archive of $SUITE: systemd, what it depends on, and setpriv. The rest is run.sh's busybox.
debian() {
  local deb directory
  work=$(mktemp -d "$CACHE/.fetch.XXXXXX") # not local: the trap outlives the function
  trap 'rm -rf "$work"' EXIT
  cd "$work"
  of_architecture amd64 apt-get update >apt.log 2>&1 || { cat apt.log >&2; die "apt knows nothing of $SUITE"; }
  mkdir -p archives/partial root
  of_architecture amd64 apt-get install --yes --no-install-recommends --download-only -o "Dir::Cache::archives=$work/archives/" \
    systemd util-linux >apt.log 2>&1 || { cat apt.log >&2; die "could not download systemd"; }
  for deb in archives/*.deb; do dpkg-deb --fsys-tarfile "$deb" | tar -C root -x --no-same-owner; done
  for directory in bin sbin lib lib64; do # as on Debian since 12
    [[ ! -d root/$directory || -L root/$directory ]] || { mkdir -p "root/usr/$directory" && cp -a "root/$directory/." "root/usr/$directory/"; }
    rm -rf "root/${directory:?}"
  done
  rm -rf root/usr/share/{doc,man,locale,info,lintian,bash-completion,zsh} root/usr/lib/udev root/dev root/proc root/sys root/run root/tmp root/var/run
  mkdir -p root/etc/systemd/system root/usr/lib/systemd/system
  echo 0123456789abcdef0123456789abcdef >root/etc/machine-id # otherwise this is a first boot
  (cd root && find . -print0 | cpio --quiet --null -o -H newc --owner=+0:+0) >archive
  mv archive "$CACHE/$SUITE.cpio"
}

mkdir -p "$CACHE"
exec 9>"$CACHE/.lock"
flock 9
[[ -s $CACHE/$SUITE.cpio ]] || (debian)
flock -u 9

files=(--file "$PROGRAMS/taskdiag:/usr/bin/" --file "$PROGRAMS/taskdiagd:/usr/sbin/")
files+=(--file "$UNITS/taskdiagd.conf:/usr/lib/sysusers.d/")
for unit in "$UNITS/taskdiagd.service" "$UNITS/taskdiagd.socket" "${SERVICES[@]}" "$HERE/unit-checks.service"; do
  files+=(--file "$unit:/usr/lib/systemd/system/")
done
for checks in unit-checks broker-checks service-checks; do files+=(--file "$HERE/$checks:/etc/$checks"); done
files+=(--file "$HERE/init-systemd:/etc/init-systemd" --file "$HERE/unit-setup:/etc/machine-setup")
"$HERE/run.sh" --kernel "$kernel" --timeout 900 --archive "$CACHE/$SUITE.cpio" "${files[@]}" \
  --append "rdinit=/etc/init-systemd systemd.show_status=false systemd.getty_auto=no systemd.mask=getty.target $append" -- \
  sh /etc/unit-checks ${only:+"$only"} |
  while IFS= read -r line; do
    if [[ $line != 'recording: '* ]]; then echo "$line"; continue; fi
    if [[ -n $recording ]]; then base64 -d <<<"${line#recording: }" >"$recording"; fi
  done
