# Debian's packages, on any system. To be sourced, with CACHE set.
# shellcheck shell=bash

# Runs an apt command for the architecture $1, with separate package lists: the system's lists do
# not change, and no root is needed. If SUITE is set, packages come from that suite of Debian
# instead of the system's sources.
of_architecture() {
  local architecture=$1 command=$2 lists=$CACHE/../apt/$1${SUITE:+-$SUITE} sources=()
  shift 2
  mkdir -p "$lists/partial"
  if [[ -n ${SUITE:-} ]]; then
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $SUITE main" >"$lists/sources.list"
    sources=(-o "Dir::Etc::sourcelist=$lists/sources.list" -o Dir::Etc::sourceparts=-)
  fi
  # A mirror may change between two commands, or not answer.
  "$command" -qq -o Acquire::Retries=3 -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture" -o "Dir::State::Lists=$lists/" \
    -o "Dir::Cache=$lists/" -o Dir::State::status=/dev/null -o APT::Sandbox::User= "${sources[@]}" "$@"
}
