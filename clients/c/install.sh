#!/usr/bin/env bash
# Installs the library that build.sh has made, its header and what pkg-config reads; dev/install.sh
# and test.sh run it: LIBRARY=DIRECTORY prefix=… libdir=… includedir=… DESTDIR=… clients/c/install.sh
set -euo pipefail
cd "$(dirname "$0")"
umask 022
: "${LIBRARY:?}" "${prefix:?}" "${libdir:?}" "${includedir:?}" "${STRIP:?}" "${DESTDIR=}"
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' ../../Cargo.toml)

install -d "$DESTDIR$libdir/pkgconfig" "$DESTDIR$includedir"
# RPM takes line tables out of files that can be executed. Debian removes the bit again.
install -m 0755 "$LIBRARY/libtaskdiag.so.$version" "$DESTDIR$libdir"
"$STRIP" --strip-unneeded "$DESTDIR$libdir/libtaskdiag.so.$version"
ln -sf "libtaskdiag.so.$version" "$DESTDIR$libdir/libtaskdiag.so.0"
ln -sf libtaskdiag.so.0 "$DESTDIR$libdir/libtaskdiag.so"
install -m 0644 include/taskdiag.h include/taskdiag_gen.h "$DESTDIR$includedir"
sed "s|@prefix@|$prefix|; s|@libdir@|$libdir|; s|@includedir@|$includedir|; s|@version@|$version|" \
    taskdiag.pc.in >"$DESTDIR$libdir/pkgconfig/taskdiag.pc"
chmod 0644 "$DESTDIR$libdir/pkgconfig/taskdiag.pc"
