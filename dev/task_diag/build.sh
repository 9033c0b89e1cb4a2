#!/usr/bin/env bash
# Fetches the test program of task_diag's patches from their author's repository, builds it without a
# change, and prints its path. It is kept in target/task_diag.
set -euo pipefail
cd "$(dirname "$0")/../.."

# The last revision of its source. task_diag_proc_all beside it needs no kernel with the patches.
commit=11a407fdebfaace7209aa27d49d57954a1b6f3be
repository=https://github.com/avagin/linux-task-diag
work=${CARGO_TARGET_DIR:-$PWD/target}/task_diag
source=tools/testing/selftests/task_diag
mkdir -p "$work"

build() {
    dpkg -s libnl-3-dev libnl-cli-3-dev pkg-config || apt-get install --yes libnl-3-dev libnl-cli-3-dev pkg-config
    if [ ! -d "$work/linux/$source" ]; then
        rm -rf "$work/linux"
        git init --quiet "$work/linux"
        git -C "$work/linux" sparse-checkout set "$source" include/uapi/linux
        git -C "$work/linux" fetch --depth 1 --filter blob:none "$repository" "$commit"
        git -C "$work/linux" checkout --quiet FETCH_HEAD
    fi
    # The kernel's header is found by its name alone, as the patches' Makefile has it.
    cp "$work/linux/include/uapi/linux/task_diag.h" "$work/"
    read -ra flags < <(pkg-config --cflags --libs libnl-3.0 libnl-cli-3.0)
    "${CC:-cc}" -I "$work" -o "$work/task_diag_all" "$work/linux/$source/"task_diag_{all,comm}.c "${flags[@]}"
}
build >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
echo "$work/task_diag_all"
