#!/usr/bin/env bash
# Installs the packages of make deb and make rpm in a small Debian, tests them, and removes them
# again: make package-test
#
# The Debian is of the same release as this machine. mmdebstrap creates it once, in
# .cache/package-root.tar; it is unpacked to target/package/root. All mounts are in the script's own
# mount namespace. Needs root. Prints a line for each check.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022

if [ "$(id -u)" -ne 0 ]; then
    echo "package-test: run it as root" >&2
    exit 2
fi
if [ "${1:-}" != --inside ]; then
    exec unshare --mount --propagation private -- "$0" --inside
fi

base=.cache/package-root.tar root=target/package/root
shopt -s nullglob
debs=(target/package/*.deb) rpms=(target/package/*.rpm)
# The programs and the library, the line tables of each, and the files for building with the
# library.
if [ ${#debs[@]} -ne 7 ] || [ ${#rpms[@]} -ne 7 ]; then
    echo "package-test: found ${#debs[@]} .deb and ${#rpms[@]} .rpm: run make deb and make rpm first" >&2
    exit 2
fi

if [ ! -s "$base" ]; then
    echo "package-test: making a Debian in $base" >&2
    mkdir -p .cache
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mmdebstrap --quiet --format=tar --variant=minbase --include=systemd,man-db,bash-completion,zsh,fish,procps,util-linux \
        --dpkgopt='path-include=/usr/share/man/*' "$suite" "$base.new"
    mv "$base.new" "$base"
fi
# Leaves mounted file systems alone.
rm -rf --one-file-system "$root"
mkdir -p "$root"
tar -C "$root" -xf "$base" --exclude='./dev/*'
root=$(realpath "$root")
for directory in proc sys dev; do mount --rbind "/$directory" "$root/$directory"; done
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"

environment=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=dumb)
inside() { chroot "$root" "${environment[@]}" "$@"; }
nobody() { inside setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }

failed=0
# check NAME COMMAND [ARGUMENT]...: runs a check; shows the output of the command if it fails.
check() {
    local name=$1 said
    shift
    if said=$("$@" 2>&1); then
        echo "ok $name"
    else
        failed=$((failed + 1))
        echo "FAILED $name: $said"
    fi
}

# The files of the root that packages own. Package managers and man keep their own lists.
files() {
    (cd "$root" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/lib/rpm -o -path ./root/.rpmdb -o -path ./var/cache -o -path ./var/log -o \
        -path ./root -o -path ./usr/lib/sysimage \) -prune -o -print | LC_ALL=C sort)
}
unchanged() { diff <(echo "$before") <(files); }

runs() {
    inside taskdiag --version | grep -q '^features: +bpf' &&
        inside taskdiag ps -p 1 -o pid,comm --csv | grep -q '^1,' &&
        nobody taskdiag ps aux | grep -q '^USER ' &&
        inside taskdiagd --version | grep -q '^taskdiagd '
}

answers() {
    local broker status=0
    # Not through the function: its shell would be the process to stop.
    chroot "$root" "${environment[@]}" taskdiagd --observers taskdiag-observers >"$root/tmp/log" 2>&1 &
    broker=$!
    for _ in $(seq 100); do
        [ ! -S "$root/run/taskdiag/taskdiag.sock" ] || break
        sleep 0.1
    done
    nobody taskdiag ps --source broker -o pid,uid,comm --csv | grep -q ',65534,taskdiag' || status=1
    # Process 1 belongs to another user: the user nobody sees it only as an observer.
    ! nobody taskdiag ps --source broker -o pid --csv | grep -qx 1 || status=1
    observer=$(inside getent group taskdiag-observers | cut -d : -f 3)
    inside setpriv --reuid=65534 --regid=65534 --groups="$observer" taskdiag ps --source broker -o pid,rss_bytes --csv | grep -q '^1,' || status=1
    kill "$broker"
    wait "$broker" || status=1
    rm -rf "$root/run/taskdiag"
    [ "$status" -eq 0 ] || cat "$root/tmp/log"
    return "$status"
}

pages() {
    local page count=0
    for page in "$root"/usr/share/man/man1/taskdiag* "$root"/usr/share/man/man8/taskdiagd*; do
        page=$(basename "${page%.gz}")
        said=$(inside man --warnings "${page##*.}" "${page%.*}" 2>&1 >/dev/null)
        [ -z "$said" ] || { echo "$page: $said"; return 1; }
        inside man "${page##*.}" "${page%.*}" | grep -q '^SEE ALSO' || { echo "$page has no end"; return 1; }
        count=$((count + 1))
    done
    [ "$count" -ge 16 ] || { echo "$count pages"; return 1; }
}

in_bash() {
    # shellcheck disable=SC2016 # for the shell inside
    inside bash -c '. /usr/share/bash-completion/bash_completion
        _completion_loader taskdiag
        COMP_WORDS=(taskdiag ps -o pid,rss_b) COMP_CWORD=3 COMP_TYPE=9
        _clap_complete_taskdiag taskdiag pid,rss_b -o
        echo "${COMPREPLY[@]}"' 2>/dev/null | grep -x 'pid,rss_bytes'
}
in_fish() { inside fish -c 'complete -C "taskdiag ps -o pid,rss_b"' | grep '^pid,rss_bytes'; }
in_zsh() {
    # shellcheck disable=SC2016 # for the shell inside
    inside zsh -f -c 'zmodload zsh/zpty
        zpty shell zsh -f -i
        zpty -w shell "PS1=; autoload -U compinit; compinit -u -d /tmp/dump; echo ready"
        zpty -r shell line "*ready*ready*"
        zpty -n -w shell "taskdiag ps -o pid,rss_sh"$'"'\\t'"'
        zpty -r shell line "*rss_shmem_bytes*" && echo completed' | grep completed
}

# systemd before 254 knows neither of them: see the units.
units() {
    local said
    said=$(inside systemd-analyze verify taskdiagd.service taskdiagd.socket taskdiag-metrics.service 2>&1 |
        grep -v -e "taskdiagd.socket:.*Unknown key.*'AcceptFileDescriptors'" -e 'taskdiagd.service:.*lsm_list_modules' || true)
    [ -z "$said" ] || { echo "$said"; return 1; }
}

# Debuggers find a program's line tables by its build id.
line_tables() {
    local program id tables
    for program in usr/bin/taskdiag usr/sbin/taskdiagd "$(cd "$root" && find usr -name 'libtaskdiag.so.0.*' -not -path '*debug*' | head -n 1)"; do
        id=$(readelf --notes "$root/$program" | sed -n 's/.*Build ID: //p')
        tables=$root/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
        readelf --sections --wide "$tables" | grep ' \.debug_line ' || return 1
        ! readelf --sections --wide "$root/$program" | grep ' \.debug_line ' || return 1
    done
}

# A program built with the package's header and library runs there.
library() {
    local flags
    flags=$(PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=$(dirname "$(find "$root/usr" -name taskdiag.pc)") pkg-config --cflags --libs taskdiag) || return
    # shellcheck disable=SC2086 # one word each
    cc -o "$root/tmp/ps" clients/c/examples/ps.c $flags || return
    inside env LD_LIBRARY_PATH=/usr/lib64 /tmp/ps | grep ' /tmp/ps$'
}

# A package grants no rights to any user.
grants_nothing() {
    [ "$(inside systemctl is-enabled taskdiagd.socket || true)" = disabled ] &&
        [ "$(inside systemctl is-enabled taskdiagd.service || true)" = disabled ] &&
        inside getent group taskdiag-observers | grep -q ':$' &&
        [ -z "$(find "$root/usr/bin/taskdiag" "$root/usr/sbin/taskdiagd" -perm /6000)" ] &&
        [ -z "$(getcap "$root/usr/bin/taskdiag" "$root/usr/sbin/taskdiagd" 2>/dev/null)" ]
}

tried() {
    check "$1: runs" runs
    check "$1: line tables" line_tables
    check "$1: the C library" library
    check "$1: grants nothing" grants_nothing
    check "$1: the broker answers" answers
    check "$1: manual pages" pages
    check "$1: units" units
    check "$1: bash" in_bash
    check "$1: fish" in_fish
}

# On systems with RPM, another package owns these directories.
mkdir -p "$root/usr/share/licenses" "$root/usr/share/zsh/site-functions" "$root/usr/lib64/pkgconfig"
before=$(files)
cp "${debs[@]}" "$root/tmp"
check 'deb: lintian' lintian --allow-root --fail-on error target/package/*.changes
check 'deb: installs' inside sh -c 'dpkg -i /tmp/*.deb'
tried deb
check 'deb: zsh' in_zsh
packages=(taskdiag taskdiag-dbgsym taskdiagd taskdiagd-dbgsym libtaskdiag-dev libtaskdiag0 libtaskdiag0-dbgsym)
check 'deb: is removed' inside dpkg --remove "${packages[@]}"
check 'deb: is purged' inside dpkg --purge "${packages[@]}"
check 'deb: leaves nothing' unchanged

# The same root: the scripts need a shell, and the programs a C library.
check 'rpm: installs' rpm --root "$root" --nodeps -i "${rpms[@]}"
tried rpm
check 'rpm: is removed' rpm --root "$root" -e taskdiag{,d}{,-debuginfo} libtaskdiag{,-devel,-debuginfo}
check 'rpm: leaves nothing' unchanged

[ "$failed" -eq 0 ] || { echo "$failed failed"; exit 1; }
