# SPDX-License-Identifier: GPL-3.0-or-later
"""Every link within the repository leads to a file and an anchor, and every path that a page names exists."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

TOP = Path(__file__).resolve().parents[3]
LINKED = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "roles/*/README.md", "plugins/README.md")
NAMING = ("CONTRIBUTING.md", "docs/**/*.md")  # pages whose paths in backquotes have to exist

FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
OWN = re.compile(r"https://github\.com/baremetal-inference/baremetal\.inference/(blob|tree|raw)/main/(\S+)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
PATH = re.compile(r"(?:plugins|roles|tools|tests|catalog|playbooks|docs|molecule)/[\w./@-]*")
PLACEHOLDER = re.compile(r"[<>*{}]|\.\.\.|(?:^|/)[A-Z]+(?:/|\.|$)")


def pages(top, patterns):
    """Return the pages of a checkout that match the patterns, sorted."""
    return sorted({page for pattern in patterns for page in top.glob(pattern)})


def broken_links(top, patterns=LINKED):
    """Return one sentence for each relative link without a target."""
    found = []
    for page in pages(top, patterns):
        text = CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))
        for link in LINK.findall(text):
            reason = reason_against(page, link)
            if reason:
                found.append(f"{page.relative_to(top)}: ({link}) {reason}")
    return found


def reason_against(page, link):
    """Return why a link of a page leads nowhere, None where it is good or leads to another server."""
    top, own = page.parent, OWN.fullmatch(link)
    if own:
        link, top = own[2], TOP
    elif re.match(r"[a-z]+:", link):
        return None
    path, _hash, anchor = link.partition("#")
    target = top / unquote(path) if path else page
    if not target.exists():
        return "leads to no file"
    if own and (own[1] == "tree") != target.is_dir():
        return "names a folder as a file, or a file as a folder"
    if anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
        return "leads to no heading"
    return None


def anchors(text):
    """Return the anchors of a page's headings, spelt as GitHub does."""
    seen = {}
    for heading in HEADING.findall(FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        seen[anchor] = seen.get(anchor, -1) + 1
        if seen[anchor]:
            seen[f"{anchor}-{seen[anchor]}"] = 0
    return set(seen)


def missing_paths(top, patterns=NAMING):
    """Return one sentence for each path in backquotes that the checkout does not have."""
    found = []
    for page in pages(top, patterns):
        for code in CODE.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
            found += [
                f"{page.relative_to(top)}: `{path}` does not exist"
                for path in paths_in(code)
                if not (top / path).exists()
            ]
    return found


def paths_in(code):
    """Return the words of a piece of code that begin with a folder of the checkout and hold no placeholder."""
    return [word for word in code.split() if PATH.fullmatch(word) and not PLACEHOLDER.search(word)]


def test_every_relative_link_leads_to_a_file_and_a_heading():
    assert broken_links(TOP) == []


def test_every_path_in_backquotes_exists():
    assert missing_paths(TOP) == []


def test_the_documentation_is_found():
    codes = [code for page in pages(TOP, NAMING) for code in CODE.findall(page.read_text(encoding="utf-8"))]
    assert len(pages(TOP, LINKED)) > 30
    assert len([path for code in codes for path in paths_in(code)]) > 30


def test_a_link_without_a_target_is_found(tmp_path):
    (tmp_path / "docs" / "operate").mkdir(parents=True)
    (tmp_path / "docs" / "README.md").write_text(
        "# Docs\n\n[good](operate/drain.md#how-long), [gone](operate/gone.md),\n[none](operate/drain.md#how-short)\n"
        "[here](#docs), [elsewhere](https://example.com/gone.md), `[code](gone.md)`\n\n```md\n[fenced](gone.md)\n```\n"
    )
    (tmp_path / "docs" / "operate" / "drain.md").write_text("# Drain\n\n## How long?\n\n[back](../README.md)\n")
    assert broken_links(tmp_path) == [
        "docs/README.md: (operate/gone.md) leads to no file",
        "docs/README.md: (operate/drain.md#how-short) leads to no heading",
    ]


def test_a_path_that_does_not_exist_is_found(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "here.py").touch()
    (tmp_path / "CONTRIBUTING.md").write_text(
        "`tools/here.py`, `tools/gone.py`, `python tools/gone_too.py --x`\n"
        "`tools/<name>.py`, `tools/*.py`, `roles/NAME/tasks`\n"
    )
    assert missing_paths(tmp_path) == [
        "CONTRIBUTING.md: `tools/gone.py` does not exist",
        "CONTRIBUTING.md: `tools/gone_too.py` does not exist",
    ]
