#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find words and forms that this project does not use, and say what to write instead (CONTRIBUTING.md, house rules).

    tools/check_language.py [PATH ...]      every tracked text file, or those below the paths

Exits with 1 where something was found. Only what a machine can tell apart is here; a reader judges the rest.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]

# A form in any text -> what to write instead.
WORDS = {
    r"\bwish(?:es|ed|ing)?\b": "request, requested",
    r"\banew\b": "again, from scratch",
    r"\bto be had\b|\bhad from\b": "available, downloaded from",
    r"\bengines? of (?:the )?containers\b": "container engine",
    r"\b(?:is|are|was|were) (?:said|told)\b|\bsaid of\b|\bsays so\b": "reported, logged, described",
    r"\bwith(?:out)? leave\b|\bleave to (?:reboot|restart)\b": "permission",
    r"\bhalf (?:a )?downloads?\b": "partial download",
    r"\bwhat is no [a-z]|\bcannot be(?=[.;:,]|$)": "anything that is not a ..., invalid",
    r"\bbrings? (?:the|a|its|their) (?:\w+ )?(?:driver|engine|package|wheel)s?\b": "install",
    r"\bby nobody but\b": "only by",
    r"\bit is for people to\b|\bpeople are told\b": "say who does what",
    r"\bany more\b": "no longer",
    r"\bcom(?:e|es|ing) to an end\b": "end, finish",
    r"\bleft alone\b": "stays unchanged",
    r"\ban? (?:[\w-]+ )?[\w-]+ of (?:its|their) own\b": "its own ..., a separate ...",
    r"\bwhoever (?!they |you )": "the user who, anyone who",
    r"\bthe very (?:same|files?|models?|hosts?)\b": "exactly the same",
    r"\bin vain\b|\bto no avail\b|\ball the same\b(?= *[;.,])": "without effect, anyway, still",
    r"\bwithout a trace\b": "completely",
    r"\bway out\b": "access to the internet, solution",
    r"\b(?:go|goes|going|gone) on (?:with|from|to)\b": "continue",
    r"(?<!would )(?<!might )(?<!may )\b(?:has|have) to be\b": "must be",
}
# The first word of a task's or play's name: an imperative that names what is done.
NAMES = re.compile(r"^\s*-? ?name: (?:[\w/-]+ \| )?[\"']?(Look|Have|Bring|See|Say|Let|Know|Hear|Tell|Leave|Turn)\b")
# Functions are verbs with an object.
FUNCTIONS = re.compile(r"^\s*def _?(look|told|bring|dig|some|words|shown|hear|said_of|in_words|wished|wishes)\(")

SUFFIXES = {".md", ".py", ".yml", ".yaml", ".j2", ".sh", ".toml", ".html", ".js"}
# Texts of others, records of the past, and recorded output.
SKIPPED = (
    "changelogs/",
    "CHANGELOG.md",
    "LICENSE",
    "catalog/options/",
    "tests/",
    "molecule/",
    "tools/check_language.py",
)


def findings(name: str, text: str) -> Iterator[str]:
    """Yield `file:line: found, write instead` for each form that is not used here."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, instead in WORDS.items():
            if found := re.search(pattern, line, re.IGNORECASE):
                yield f"{name}:{number}: found {found[0]!r}, write: {instead}"
        if name.endswith((".yml", ".yaml")) and (found := NAMES.match(line)):
            yield f"{name}:{number}: the name begins with {found[1]!r}, write: an imperative that names what is done"
        if name.endswith(".py") and (found := FUNCTIONS.match(line)):
            yield f"{name}:{number}: the function {found[1]!r}, write: a verb with an object"


def tracked(paths: list[str]) -> Iterator[str]:
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *paths]
    listing = subprocess.run(command, cwd=TOP, check=True, capture_output=True, text=True).stdout
    for name in listing.splitlines():
        path = TOP / name
        if path.suffix in SUFFIXES and not name.startswith(SKIPPED) and path.is_file() and not path.is_symlink():
            yield name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="PATH")
    found = [
        text for name in tracked(parser.parse_args().paths) for text in findings(name, (TOP / name).read_text("utf-8"))
    ]
    print("\n".join(found), end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
