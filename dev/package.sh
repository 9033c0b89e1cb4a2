#!/usr/bin/env bash
# Makes packages of what make build has built: dev/package.sh deb|rpm
#
# Writes them to target/package/. The version is that of Cargo.toml. The maintainer is $DEBFULLNAME
# and $DEBEMAIL, or the user known to git. The time is that of the commit, or $SOURCE_DATE_EPOCH.
set -euo pipefail
cd "$(dirname "$0")/.."
source=$PWD
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

# Joins the programs and their line tables again: the tools of both package formats split them
# themselves.
join() {
    local program programs=target/package/programs-$1
    rm -rf "$programs"
    mkdir -p "$programs"
    cp target/release/LICENSE-CRATES "$programs"
    for program in taskdiag taskdiagd "libtaskdiag.so.$version"; do
        eu-unstrip --output="$programs/$program" "target/release/$program" "target/release/$program.debug"
    done
    ln -s "libtaskdiag.so.$version" "$programs/libtaskdiag.so.0"
}

deb() {
    local work=$source/target/package/deb log=$source/target/package/deb.log
    local name=${DEBFULLNAME:-$(git config user.name || echo unknown)} mail=${DEBEMAIL:-$(git config user.email || echo root@localhost)}
    rm -rf "$work"
    mkdir -p "$work"
    cp -r packaging/debian "$work/debian"
    sed -i "s/@MAINTAINER@/$name <$mail>/" "$work/debian/control"
    cat >"$work/debian/changelog" <<EOF
taskdiag ($version-1) unstable; urgency=medium

  * Version $version: see CHANGELOG.md.

 -- $name <$mail>  $(date --utc --date="@$SOURCE_DATE_EPOCH" '+%a, %d %b %Y %H:%M:%S +0000')
EOF
    if ! (cd "$work" && SOURCE=$source dpkg-buildpackage --build=binary --unsigned-changes --no-pre-clean) >"$log" 2>&1; then
        cat "$log" >&2
        exit 1
    fi
    ls target/package/*.deb
}

rpm() {
    local work=$source/target/package/rpm log=$source/target/package/rpm.log
    rm -rf "$work"
    mkdir -p "$work"
    if ! rpmbuild -bb --define "_topdir $work" --define "taskdiag_version $version" --define "taskdiag_source $source" \
        packaging/taskdiag.spec >"$log" 2>&1; then
        cat "$log" >&2
        exit 1
    fi
    find "$work/RPMS" -name '*.rpm' -exec mv -t target/package {} +
    ls target/package/*.rpm
}

mkdir -p target/package
case ${1:-} in
deb | rpm)
    rm -f target/package/*."$1"
    join "$1"
    "$1"
    ;;
*)
    echo "usage: $0 deb|rpm" >&2
    exit 2
    ;;
esac
