#!/usr/bin/env bash
# Collects the licence texts of the crates that the programs contain: dev/licences.sh FILE
#
# Each text stands there once, behind the names of the crates that have it. Crates without a text of
# their own are listed with the licence that they declare.
set -euo pipefail
cd "$(dirname "$0")/.."
to=$1
if [ "$to" -nt Cargo.lock ] && [ "$to" -nt "$0" ] && [ "$to" -nt crates/taskdiag-cli/charts/LICENSES ]; then
    exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
metadata=$(cargo metadata --locked --format-version 1 --filter-platform "$(rustc -vV | sed -n 's/^host: //p')")
declared=$(cargo tree --locked --package taskdiag-cli --package taskdiagd --edges normal,no-proc-macro --prefix none --no-dedupe --format '{p}|{l}' |
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
    echo 'taskdiag and taskdiagd contain code of these crates, and of the standard library of Rust'
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
    printf '\n%s\n' "$line"
    cat crates/taskdiag-cli/charts/LICENSES
} >"$to.new"
mv "$to.new" "$to"
