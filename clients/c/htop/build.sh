#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds htop as Debian 12 has it, with htop.patch: clients/c/htop/build.sh [DIRECTORY]
#
# The program is DIRECTORY/htop (target/c/htop/htop). It takes its processes from libtaskdiag.so.0 if the
# dynamic linker finds that when htop starts, and from /proc otherwise, or if HTOP_WITHOUT_TASKDIAG is
# set. The source comes from Debian, and is not part of this repository.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
work=$(realpath --canonicalize-missing "${1:-../../../target/c/htop}")
version=3.2.2-2
packages=(autoconf automake make gcc dpkg-dev libc6-dev libncurses-dev pkg-config)

missing=()
for package in "${packages[@]}"; do
    dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "htop: installing ${missing[*]}" >&2
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 --no-install-recommends "${missing[@]}" >/dev/null
fi

# Package lists of our own: this system need not have sources among its.
mkdir -p "$work/lists/partial"
if [ ! -e "$work/htop_$version.dsc" ]; then
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main" >"$work/sources.list"
    apt=(apt-get -qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::Lists=$work/lists"
        -o "Dir::Cache=$work/lists" -o APT::Sandbox::User=)
    "${apt[@]}" update
    (cd "$work" && "${apt[@]}" source --download-only "htop=$version")
fi
rm -rf "$work/source"
dpkg-source --extract "$work/htop_$version.dsc" "$work/source" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
cd "$work/source"
{
    # The patch has no context, which patch(1) has to be told; it is for this version of htop alone.
    patch --strip=1 --unified --fuzz=0 <"$here/htop.patch"
    ./autogen.sh
    ./configure CPPFLAGS="-I$here/../include"
    make -j "${JOBS:-$(nproc)}"
} >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
cp htop "$work/htop"
