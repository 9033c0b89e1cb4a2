#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Checks that htop shows the same with libtaskdiag as without, for root, and for nobody through the
# broker: clients/c/htop/test.sh
#
# As root. The broker listens where it does by default, in a mount namespace of its own. The programs of
# cargo's profile dev must be there.
set -euo pipefail
cd "$(dirname "$0")"
if [ "${1:-}" != inside ]; then
    ./build.sh
    exec unshare --mount --propagation private ./test.sh inside
fi
built=$(realpath ../../../target/debug)
work=$(mktemp -d)
broker=
trap 'rm -rf "$work"; [ -z "$broker" ] || kill "$broker"' EXIT
PROFILE=dev ../build.sh "$work"
# Nobody may not look into this directory.
cp "$built/../c/htop/htop" "$built/zoo" "$built/taskdiagd" compare.py "$work"
chmod -R a+rX "$work"

mkdir -p /run/taskdiag
mount -t tmpfs -o mode=755 none /run/taskdiag
"$work/taskdiagd" --observers 65534 2>"$work/log" &
broker=$!
for _ in {1..200}; do
    ! grep --quiet ready "$work/log" || break
    sleep 0.05
done
/usr/bin/python3 "$work/compare.py" "$work/htop" "$work" "$work/zoo"
setpriv --reuid=65534 --regid=65534 --clear-groups /usr/bin/python3 "$work/compare.py" "$work/htop" "$work" "$work/zoo"
