#!/usr/bin/env bash
# Runs the tests of procps for ps, pgrep and pkill on Debian's programs and on taskdiag through links
# with these names: dev/procps.sh [RELEASE]. Fails if a test passes with Debian's and not with taskdiag.
#
# The tests are those of the source package procps of Debian 12, or of another release of Debian, such
# as trixie or sid, whose tests may need newer programs. The source is kept in target/procps.
set -euo pipefail
cd "$(dirname "$0")/.."
release=${1:-bookworm}
work=${CARGO_TARGET_DIR:-$PWD/target}/procps/$release
program=${CARGO_TARGET_DIR:-$PWD/target}/debug/taskdiag
mkdir -p "$work/lists/partial"
command -v runtest >/dev/null || { apt-get update && apt-get install --yes dejagnu; } >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
if [ ! -d "$work/source" ]; then
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $release main" >"$work/sources.list"
    apt=(apt-get -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$work/lists")
    (cd "$work" && "${apt[@]}" update && "${apt[@]}" source procps && mv procps-4.* source) >"$work/log" 2>&1 ||
        { cat "$work/log" >&2; exit 1; }
fi

# tests DIRECTORY PS PGREP PKILL: the names of the tests that pass with these programs.
tests() {
    local top=$work/$1 tool
    rm -rf "$top"
    mkdir -p "$top/src/ps" "$top/src/tests"
    cp -r "$work/source/testsuite" "$top/"
    # Its processes have their name only once they run their program.
    sed -i 's/set testproc2_pid .*/&\n    after 1000/' "$top/testsuite/config/unix.exp"
    cc -D HAVE_SIGINFO_T_SI_INT -I "$work/source/include" -I "$work/source/local" -o "$top/src/tests/test_process" "$work/source/src/tests/test_process.c"
    ln -s "$3" "$top/src/pgrep"
    ln -s "$4" "$top/src/pkill"
    printf '#!/bin/sh\nexec %s "$@"\n' "$2" >"$top/src/ps/pscommand"
    chmod +x "$top/src/ps/pscommand"
    for tool in ps pgrep pkill; do
        (cd "$top/testsuite" && runtest --tool "$tool" --srcdir . --objdir "$top/testsuite" >"$tool.out" 2>&1) || true
        sed -n "s/^PASS: /$tool: /p" "$top/testsuite/$tool.sum"
    done | sort -u
    # The tests leave a process behind, which would match in the next run.
    for exe in /proc/[0-9]*/exe; do
        [ "$(readlink "$exe" || true)" = "$top/src/tests/test_process" ] || continue
        pid=$(cut -d / -f 3 <<<"$exe")
        kill "$pid" || true
        while [ -e "/proc/$pid/exe" ]; do sleep 0.05; done
    done
}

mkdir -p "$work/links"
ln -sf "$program" "$work/links/ps"
tests debian /usr/bin/ps /usr/bin/pgrep /usr/bin/pkill >"$work/debian.passed"
tests taskdiag "$work/links/ps" "$program" "$program" >"$work/taskdiag.passed"
[ "$(wc -l <"$work/debian.passed")" -ge 40 ] || { echo "procps: of Debian's programs only $(wc -l <"$work/debian.passed") tests pass" >&2; exit 1; }
missing=$(comm -23 "$work/debian.passed" "$work/taskdiag.passed")
[ -z "$missing" ] || { printf 'procps: these pass with Debian'"'"'s programs, and not with taskdiag:\n%s\n' "$missing" >&2; exit 1; }
echo "procps: $(wc -l <"$work/taskdiag.passed") of its tests pass, $(wc -l <"$work/debian.passed") with Debian's own programs"
