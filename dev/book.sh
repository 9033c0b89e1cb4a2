#!/usr/bin/env bash
# Makes the book of the documents with mdBook: target/book/index.html.
#
# docs/SUMMARY.md has its contents. mdBook takes pages from one directory, so those of the book are
# copied to a directory that is laid out like the repository.
set -euo pipefail
cd "$(dirname "$0")/.."

work=target/book-pages
rm -rf "$work"
mkdir -p "$work/src"
cp docs/book.toml "$work"
sed 's|](|](docs/|; s|(docs/\.\./|(|' docs/SUMMARY.md >"$work/src/SUMMARY.md"
dev/links.py --book "$work/src"
MDBOOK_LOG=warn mdbook build --dest-dir "$PWD/target/book" "$work"
