#!/bin/bash
# Runs a command on another Linux kernel, under QEMU's software emulation (no KVM, no root, no disk image).
#
# Usage: run.sh [OPTION]... -- COMMAND [ARGUMENT]...
#        run.sh [OPTION]... --shell
#   --kernel NAME            Debian's kernel 6.1, 6.12, arm64-4k or arm64-16k (fetched by kernels.sh); 6.12 unless told
#   --file SRC[:DST]         copy a file or directory in, with the shared libraries it needs; at its own path unless told
#   --archive FILE           unpack a cpio archive over all of that
#   --env K=V                set a variable for COMMAND
#   --mem SIZE               memory of the machine (3G)
#   --timeout SECONDS        give up after that long, boot included (300)
#   --append ARGUMENTS       more kernel arguments
#   --shell                  a root shell on the machine's console; "exit" ends it
#
# Prints COMMAND's output (standard output and error) byte for byte and exits with its status. Exits
# with 3 and a reason on standard error if the machine reported no status, lost output or logged a
# kernel warning; with 2 on wrong usage.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly HERE CACHE=$HERE/../../.cache/kernels
readonly STRIP_ABOVE=4M # larger executables go in without their debug information

usage() { echo "run.sh: $*; see $0 --help" >&2; exit 2; }
fail() {
  echo "run.sh: $*" >&2
  if [[ -s $work/console ]]; then
    echo "run.sh: the end of the console:" >&2
    tail -n 60 "$work/console" | tr -cd '\t\n -~' | sed 's/^/  | /' >&2
  fi
  exit 3
}

# Quotes one word for busybox sh.
quote() { printf "'%s'" "${1//\'/\'\\\'\'}"; }

# --- options

kernel=6.12 memory=3G timeout=300 append='' shell=
files=() archives=() environment=()
while [[ $# -gt 0 ]]; do
  option=$1
  shift
  case $option in
    --) break ;;
    --shell) shell=1; continue ;;
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;;
    --kernel | --file | --archive | --env | --mem | --timeout | --append) [[ $# -gt 0 ]] || usage "$option wants a value" ;;
    *) usage "unknown option '$option'" ;;
  esac
  case $option in
    --kernel) kernel=$1 ;;
    --file) files+=("$1") ;;
    --archive) [[ -r $1 ]] || usage "--archive: no '$1'"; archives+=("$1") ;;
    --env) [[ $1 =~ ^[A-Za-z_][A-Za-z_0-9]*= ]] || usage "--env wants K=V, not '$1'"; environment+=("$1") ;;
    --mem) memory=$1 ;;
    --timeout) [[ $1 =~ ^[1-9][0-9]*$ ]] || usage "--timeout wants seconds, not '$1'"; timeout=$1 ;;
    --append) append=$1 ;;
  esac
  shift
done
[[ $# -gt 0 || -n $shell ]] || usage "no command"
[[ $# -eq 0 || -z $shell ]] || usage "a command or --shell, not both"

# The differences between architectures: the emulator, the console, the port for the output, the
# tools' prefix, the machine in an ELF header, and Debian's directory for the libraries of programs
# that are built here.
case $kernel in
  arm64-*)
    emulator=(qemu-system-aarch64 -M virt -cpu 'max,pauth-impdef=on')
    console=ttyAMA0 output=ttyS0 output_device=(-chardev 'file,id=output,path=OUTPUT' -device 'pci-serial,chardev=output')
    tools=aarch64-linux-gnu- elf=b700 libraries=/usr/aarch64-linux-gnu/lib
    ;;
  *)
    emulator=(qemu-system-x86_64 -cpu max)
    console=ttyS0 output=ttyS1 output_device=(-serial file:OUTPUT)
    tools='' elf=3e00 libraries=/lib/x86_64-linux-gnu
    ;;
esac
for program in "${emulator[0]}" cpio "${tools}readelf" "${tools}strip"; do
  command -v "$program" >/dev/null || usage "the program '$program' is not installed (README.md lists the packages)"
done
"$HERE/kernels.sh" "$kernel" || exit 3
readonly DEBIAN=$CACHE/$kernel

work=$(mktemp -d "${TMPDIR:-/tmp}/taskdiag-vm.XXXXXX")
qemu='' follower=''
# shellcheck disable=SC2317 # shellcheck does not see the trap
cleanup() {
  if [[ -n $qemu ]]; then kill "$qemu" 2>/dev/null || true; fi # "timeout", which passes it on
  if [[ -n $follower ]]; then kill "$follower" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# --- the root file system

root=$work/root

is_elf_program() { [[ $(od -An -t x1 -N 20 "$1" 2>/dev/null | tr -d ' \n') =~ ^7f454c4602.{22}0[23]00$elf$ ]]; }

# Copies file $1 to $2 of the root file system. Follows symbolic links: the given name must work.
copy_file() {
  mkdir -p "$(dirname "$root$2")"
  cp -L --preserve=mode,timestamps -- "$1" "$root$2"
  if is_elf_program "$1"; then copy_libraries "$1"; fi
}

# Copies the interpreter and the libraries that $1 needs, recursively.
copy_libraries() {
  local interpreter library
  interpreter=$("${tools}readelf" -lW "$1" | sed -n 's/.*interpreter: \(.*\)]$/\1/p')
  if [[ -n $interpreter && ! -e $root$interpreter ]]; then
    cp -L --preserve=mode,timestamps -- "$libraries/${interpreter##*/}" "$root$interpreter"
  fi
  for library in $("${tools}readelf" -dW "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)]$/\1/p'); do
    if [[ -e $root/lib/$library ]]; then continue; fi
    [[ -e $libraries/$library ]] || fail "$1 needs $library, which is not in $libraries"
    cp -L --preserve=mode,timestamps -- "$libraries/$library" "$root/lib/$library"
    copy_libraries "$libraries/$library"
  done
}

copy() {
  local source=${1%%:*} target entry
  [[ -e $source ]] || usage "--file: no '$source'"
  if [[ $1 == *:* ]]; then target=${1#*:}; else target=$(realpath -s -- "$source"); fi
  [[ $target == /* ]] || usage "--file: the destination '$target' has to be an absolute path"
  case $target/ in /dev/* | /proc/* | /sys/*) usage "--file: '$target' would be hidden by the machine's own file systems" ;; esac
  if [[ $target == */ ]]; then target+=$(basename -- "$source"); fi
  if [[ -d $source ]]; then
    mkdir -p "$root$target"
    cp -a -- "$source/." "$root$target"
    while IFS= read -r -d '' entry; do
      if is_elf_program "$entry"; then copy_libraries "$entry"; fi
    done < <(find "$source" -type f -perm /111 -print0)
  else
    copy_file "$source" "$target"
  fi
}

mkdir -p "$root"/{dev,etc,home/tester,mnt,proc,root,run,sys,tmp,usr/bin,usr/lib,usr/lib64,usr/sbin,var/tmp}
for directory in bin lib lib64 sbin; do ln -s "usr/$directory" "$root/$directory"; done # as on Debian
ln -s ../run "$root/var/run"
cp "$DEBIAN/busybox" "$root/usr/bin/busybox"
ln -s busybox "$root/usr/bin/sh" # the rest is up to /init
copy_file "$DEBIAN/sleep" /usr/bin/sleep # tests call it by other names, which busybox would take for other programs
cp -r "$DEBIAN/modules" "$root/usr/lib/modules"
cp "$HERE/init" "$root/init"
cp "$HERE/report" "$root/etc/vm-report"
chmod 755 "$root/init" "$root"
cat >"$root/etc/passwd" <<'PASSWD'
root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/bin/sh
tester:x:1000:1000:tester:/home/tester:/bin/sh
PASSWD
cat >"$root/etc/group" <<'GROUP'
root:x:0:
nogroup:x:65534:
tester:x:1000:
GROUP
chmod 1777 "$root/tmp" "$root/var/tmp"
for file in ${files[@]+"${files[@]}"}; do copy "$file"; done

find "$root" -xdev -type f -size "+$STRIP_ABOVE" -perm /111 -print0 | while IFS= read -r -d '' file; do
  if is_elf_program "$file"; then "${tools}strip" --strip-debug --preserve-dates "$file" || true; fi
done

# The command for /init, and the word that identifies its report.
nonce=$(od -An -t x8 -N 8 /dev/urandom | tr -d ' ')
{
  echo "nonce=$nonce"
  echo "shell=$shell console=/dev/$console output=/dev/$output"
  printf 'run() { exec env -i HOME=/root USER=root LOGNAME=root PATH=/usr/sbin:/usr/bin:/sbin:/bin'
  for word in ${environment[@]+"${environment[@]}"} "$@"; do printf ' %s' "$(quote "$word")"; done
  printf '; }\n'
} >"$root/etc/vm-run"

# Not compressed: under emulation, unpacking costs more than copying. The kernel unpacks archives
# one after the other.
{
  (cd "$root" && find . -print0 | cpio --quiet --null -o -H newc --owner=+0:+0)
  if [[ ${#archives[@]} -gt 0 ]]; then cat -- "${archives[@]}"; fi
} >"$work/initramfs"
rm -rf "$root"

# --- the machine: its console on the first serial port, the command's output on the second
#
# One thread emulates both processors. With a thread for each, one may execute an instruction that
# the other has replaced. Linux rewrites itself whenever a tracepoint is switched or a clock turns
# out unsteady, and then panics with "Oops: int3".

# On a busy machine the emulated timer can be too slow for 6.1, which checks it and panics: no_timer_check.

machine=("${emulator[@]}" -accel 'tcg,thread=single' -m "$memory" -smp 2 -display none -monitor none -no-reboot
  -nodefaults -no-user-config -kernel "$DEBIAN/vmlinuz" -initrd "$work/initramfs"
  -append "console=$console no_timer_check quiet panic=-1 log_buf_len=4M $append")

if [[ -n $shell ]]; then
  "${machine[@]}" -chardev stdio,id=console,mux=on,signal=off -serial chardev:console || fail "QEMU failed"
  exit 0
fi

# The output goes to a file that "tail" follows: QEMU drops what a full pipe or terminal does not
# accept.
: >"$work/output"
timeout --kill-after=5 "$timeout" \
  "${machine[@]}" -serial "file:$work/console" "${output_device[@]/OUTPUT/$work/output}" </dev/null >"$work/qemu.log" 2>&1 &
qemu=$!
tail -c +1 -f -s 0.2 --pid="$qemu" "$work/output" 2>/dev/null &
follower=$!
ended=0
wait "$qemu" || ended=$?
qemu=''
wait "$follower" || true
follower=''

# --- the verdict

# The lines of /init contain the nonce, so neither the command's output nor the kernel's log can
# imitate them.
report() { { cat "$work/console" 2>/dev/null || true; } | tr -d '\r' | sed -n "s/^VM-$nonce $1 \{0,1\}//p"; }

result=$(report RESULT)
if [[ ! $result =~ ^status=([0-9]+)\ output=([0-9a-f]{64})\ warnings=([0-9]+)$ ]]; then
  if [[ -s $work/qemu.log ]]; then sed 's/^/qemu: /' "$work/qemu.log" >&2; fi
  if grep -aq 'Kernel panic' "$work/console" 2>/dev/null; then fail "the kernel panicked"; fi
  if [[ $ended == 124 || $ended == 137 ]]; then fail "no result after $timeout s (--timeout)"; fi
  fail "the machine ended without a result (QEMU's status: $ended)"
fi
status=${BASH_REMATCH[1]} sent=${BASH_REMATCH[2]} warnings=${BASH_REMATCH[3]}

[[ $(sha256sum <"$work/output") == "$sent"* ]] || fail "output was lost or damaged on the way ($(wc -c <"$work/output") bytes came)"
if [[ $warnings != 0 ]]; then
  echo "run.sh: the kernel logged what it should not (the command's status was $status):" >&2
  report LOG | sed 's/^/  | /' >&2
  exit 3
fi
exit "$status"
