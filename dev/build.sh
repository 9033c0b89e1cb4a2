#!/usr/bin/env bash
# Builds all programs, libraries and tests for the profile `dev`.
#
# Whatever runs in this profile is built by this selection, and by `cargo test --workspace`. Cargo
# unifies the features of what is selected: with another selection it builds most crates anew.
set -euo pipefail
cd "$(dirname "$0")/.."

[ "$(id -u)" -ne 0 ] || export TASKDIAG_REQUIRE_BPF=1 # as in the Makefile
exec "${CARGO:-cargo}" build --quiet --workspace --lib --bins --tests
