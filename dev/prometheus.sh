#!/usr/bin/env bash
# Downloads Debian's Prometheus and process-exporter into .cache/prometheus/ without installing
# them: the packages would start them. Prints the directory of the programs.
set -euo pipefail
cd "$(dirname "$0")/.."

directory=.cache/prometheus
bin=$PWD/$directory/usr/bin
packages=(prometheus prometheus-process-exporter)
if [ ! -x "$bin/prometheus" ] || [ ! -x "$bin/promtool" ] || [ ! -x "$bin/prometheus-process-exporter" ]; then
    mkdir -p "$directory"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    # apt's user may not write to the directory; apt prints a warning about it.
    get() { (cd "$directory" && apt-get download --quiet=2 "${packages[@]}") >"$log" 2>&1; }
    if ! get; then
        apt-get update --quiet=2 >>"$log" 2>&1 || true
        get || { cat "$log" >&2; echo "prometheus: can't download ${packages[*]}" >&2; exit 1; }
    fi
    for package in "$directory"/*.deb; do
        dpkg-deb --extract "$package" "$directory"
        rm "$package"
    done
fi
echo "$bin"
