#!/usr/bin/env bash
# Collects the licence texts of the crates that the programs and the C library contain, or of those
# that the Python client contains: dev/licences.sh FILE [python]
#
# Each text appears once, after the names of the crates that use it. Crates without a text are
# listed with the licence that they declare.
set -euo pipefail
to=$(realpath --canonicalize-missing "$1")
self=$(realpath "$0")
cd "$(dirname "$self")/.."
charts=crates/taskdiag-cli/charts/LICENSES
if [ "${2:-}" = python ]; then
    contain='The module _taskdiag contains' lock=clients/python/Cargo.lock others=()
    which=(--manifest-path clients/python/Cargo.toml)
    packages=()
else
    contain='taskdiag, taskdiagd and libtaskdiag.so contain' lock=Cargo.lock others=("$charts")
    which=()
    packages=(--package taskdiag-cli --package taskdiagd --package taskdiag-c)
fi
for source in "$self" "$lock" "${others[@]}"; do
    [ "$to" -nt "$source" ] || stale=1
done
[ -n "${stale:-}" ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
metadata=$(cargo metadata "${which[@]}" --locked --format-version 1 --filter-platform "$(rustc -vV | sed -n 's/^host: //p')")
declared=$(cargo tree "${which[@]}" --locked "${packages[@]}" --edges normal,no-proc-macro --prefix none --no-dedupe --format '{p}|{l}' |
    grep -v -F "($PWD" | sort -u)
while IFS='|' read -r crate licence; do
    read -r name version _ <<<"$crate"
    directory=$(dirname "$(grep -o "\"manifest_path\":\"[^\"]*/$name-${version#v}/Cargo.toml\"" <<<"$metadata" | head -n 1 | cut -d '"' -f 4)")
    found=''
    for text in "$directory"/{LICEN[CS]E,COPYING,COPYRIGHT,NOTICE,UNLICENSE}*; do
        [ -f "$text" ] || continue
        sum=$(sha256sum <"$text" | cut -c 1-16)
        cp "$text" "$work/$sum.text"
        echo "$name ${version#v} ($licence): $(basename "$text")" >>"$work/$sum.crates"
        found=1
    done
    [ -n "$found" ] || echo "$name ${version#v} ($licence)" >>"$work/without"
done <<<"$declared"

line=$(printf '%.0s-' {1..100})
{
    echo "$contain code of these crates, and of the standard library of Rust"
    echo '(https://www.rust-lang.org, MIT OR Apache-2.0).'
    for crates in "$work"/*.crates; do
        printf '\n%s\n' "$line"
        cat "$crates"
        printf '%s\n\n' "$line"
        cat "${crates%.crates}.text"
    done
    if [ -e "$work/without" ]; then
        printf '\n%s\nCrates that come without a text:\n' "$line"
        cat "$work/without"
    fi
    for text in "${others[@]}"; do
        printf '\n%s\n' "$line"
        cat "$text"
    done
} >"$to.new"
mv "$to.new" "$to"
