#!/usr/bin/env python3
"""Checks the links between the documents: dev/links.py

Every relative link of a document must lead to a file, and every #anchor to a heading. Every page of
docs/ must be in docs/SUMMARY.md, the table of contents of the book.

dev/links.py --book DIR copies the pages of the book there, with the pictures and other files of docs/
that they show. A link to anything else in the repository leads to where the code is hosted.
"""

import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HOSTED = "https://github.com/taskdiag/taskdiag/blob/main/"
PAGES = ("*.md", "docs/**/*.md", "clients/*/*.md", "conformance/*.md", "dev/*/*.md")
CONTENTS = ROOT / "docs/SUMMARY.md"
CODE = re.compile(r"^( *)(```+|~~~+).*?^\1\2|(`+)(?!`).+?(?<!`)\3(?!`)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()[^()\s]+(?=\))|(?<=\]: )\S+")


def links(text):
    """The matches of links, without those in code."""
    return LINK.finditer(CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text))


def anchors(path, cache={}):
    """The anchors that code-hosting sites and mdBook make of the headings of a page."""
    if path not in cache:
        cache[path] = found = set()
        text = re.sub(r"^( *)(```+|~~~+).*?^\1\2", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        for title in re.findall(r"^#+ +(.*)", text, re.MULTILINE):
            title = re.sub(r"\]\([^)]*\)", "]", title).strip().lower()
            name = base = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
            number = 0
            while name in found:
                number += 1
                name = f"{base}-{number}"
            found.add(name)
    return cache[path]


def target(page, link):
    """The file that a link leads to and the anchor there; None if it leads out of the repository."""
    if link.startswith(HOSTED):
        page, link = ROOT / "README.md", link.removeprefix(HOSTED)
    if re.match(r"[a-z]+:", link):
        return None
    name, _, anchor = link.partition("#")
    return (page.parent / name).resolve() if name else page, anchor


def check(page):
    """Prints the broken links of a page, and tells how many there are."""
    text, broken = page.read_text(), 0
    for match in links(text):
        to = target(page, match[0])
        if to and (not to[0].exists() or to[1] and to[0].suffix == ".md" and to[1] not in anchors(to[0])):
            line = text.count("\n", 0, match.start()) + 1
            print(f"{page.relative_to(ROOT)}:{line}: broken link: {match[0]}", file=sys.stderr)
            broken += 1
    return broken


def copy(page, pages, directory):
    """Copies a page of the book, and the files of docs/ that it has links to."""

    def lead(link):
        file, anchor = target(page, link) or (None, "")
        if not file or file in pages:
            return link
        name = file.relative_to(ROOT)
        if name.parts[0] == "docs" and file.is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, directory / name)
            return link
        return f"{HOSTED}{name}#{anchor}".rstrip("#")

    text, done, parts = page.read_text(), 0, []
    for match in links(text):
        parts += text[done : match.start()], lead(match[0])
        done = match.end()
    to = directory / page.relative_to(ROOT)
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text("".join(parts) + text[done:])


def main():
    contents = [target(CONTENTS, match[0])[0] for match in links(CONTENTS.read_text())]
    if sys.argv[1:2] == ["--book"]:
        for page in contents:
            copy(page, contents, pathlib.Path(sys.argv[2]))
        return
    broken = sum(check(page) for pattern in PAGES for page in sorted(ROOT.glob(pattern)))
    for page in sorted(set((ROOT / "docs").glob("*.md")) - {CONTENTS, *contents}):
        print(f"{page.relative_to(ROOT)}: not in docs/SUMMARY.md", file=sys.stderr)
        broken += 1
    sys.exit(broken > 0)


main()
