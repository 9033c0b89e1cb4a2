#!/usr/bin/env bash
# Installs the programs, the C library, manual pages, completions, units, licences and documents.
# Run by make install with all variables of the Makefile.
set -euo pipefail
# The path is relative to the caller's directory.
DESTDIR=${DESTDIR:+$(realpath --canonicalize-missing "$DESTDIR")}
cd "$(dirname "$0")/.."
umask 022
: "${PROGRAMS:?}" "${TASKDIAG:?}" "${STRIP:?}" "${bindir:?}" "${sbindir:?}" "${mandir:?}" "${docdir:?}" "${licensedir:?}"
: "${bashdir:?}" "${zshdir:?}" "${fishdir:?}" "${unitdir:?}" "${sysusersdir:?}" "${libdir:?}" "${includedir:?}" "${PREFIX:?}" "${DESTDIR=}"

for file in "$PROGRAMS/taskdiag" "$PROGRAMS/taskdiagd" "$TASKDIAG" "$PROGRAMS/libtaskdiag.so.0" "$PROGRAMS/LICENSE-CRATES"; do
    if [ ! -e "$file" ]; then
        echo "install: $file is missing: run make build first" >&2
        exit 1
    fi
done

# put MODE DIRECTORY FILE...
put() {
    install -d "$DESTDIR$2"
    install -m "$1" "${@:3}" "$DESTDIR$2"
}

# generate DIRECTORY NAME ARGUMENT...: installs a file that taskdiag prints.
generate() {
    install -d "$DESTDIR$1"
    "$TASKDIAG" "${@:3}" >"$DESTDIR$1/$2"
    chmod 0644 "$DESTDIR$1/$2"
}

put 0755 "$bindir" "$PROGRAMS/taskdiag"
put 0755 "$sbindir" "$PROGRAMS/taskdiagd"
"$STRIP" "$DESTDIR$bindir/taskdiag" "$DESTDIR$sbindir/taskdiagd"

LIBRARY=$(realpath "$PROGRAMS") STRIP=$STRIP prefix=$PREFIX libdir=$libdir includedir=$includedir DESTDIR=$DESTDIR clients/c/install.sh

pages=$("$TASKDIAG" man)
for page in $pages; do
    generate "$mandir/man1" "$page" man "$page"
done
put 0644 "$mandir/man8" crates/taskdiagd/taskdiagd.8

generate "$bashdir" taskdiag completions bash
generate "$zshdir" _taskdiag completions zsh
generate "$fishdir" taskdiag.fish completions fish

put 0644 "$unitdir" crates/taskdiagd/systemd/taskdiagd.{service,socket}
put 0644 "$unitdir" crates/taskdiag-cli/systemd/taskdiag-record.service
sed -i "s|/usr/bin/taskdiag|$bindir/taskdiag|" "$DESTDIR$unitdir/taskdiag-record.service"
sed -i "s|/usr/sbin/taskdiagd|$sbindir/taskdiagd|" "$DESTDIR$unitdir/taskdiagd.service"
put 0644 "$unitdir" packaging/systemd/taskdiag-metrics.service
sed -i "s|/usr/bin/taskdiag|$bindir/taskdiag|" "$DESTDIR$unitdir/taskdiag-metrics.service"
put 0644 "$sysusersdir" crates/taskdiagd/systemd/taskdiagd.conf

put 0644 "$licensedir" LICENSE-APACHE LICENSE-MIT crates/taskdiag-bpf/bpf/LICENSE-* "$PROGRAMS/LICENSE-CRATES"
put 0644 "$docdir" README.md CHANGELOG.md SECURITY.md
put 0644 "$docdir/docs" docs/*.md
put 0644 "$docdir/docs/schema" docs/schema/*
put 0644 "$docdir/docs/pictures" docs/pictures/*
put 0644 "$docdir/grafana" packaging/grafana/*.json

# Programs find the library in the linker's cache. Packages have triggers for that.
if [ -z "$DESTDIR" ] && [ "$(id -u)" -eq 0 ] && ldconfig=$(PATH=$PATH:/usr/sbin:/sbin type -P ldconfig); then
    "$ldconfig" || true
fi
