# Debian's packages, whatever this system is made of. To be sourced; CACHE is set.
# shellcheck shell=bash

# A command of apt for the architecture $1, with package lists of our own: this system's stay as they are, and nobody need be root.
# With SUITE set, packages come from that suite of Debian rather than from this system's sources.
of_architecture() {
  local architecture=$1 command=$2 lists=$CACHE/../apt/$1${SUITE:+-$SUITE} sources=()
  shift 2
  mkdir -p "$lists/partial"
  if [[ -n ${SUITE:-} ]]; then
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $SUITE main" >"$lists/sources.list"
    sources=(-o "Dir::Etc::sourcelist=$lists/sources.list" -o Dir::Etc::sourceparts=-)
  fi
  "$command" -qq -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture" -o "Dir::State::Lists=$lists/" \
    -o "Dir::Cache=$lists/" -o Dir::State::status=/dev/null -o APT::Sandbox::User= "${sources[@]}" "$@"
}
