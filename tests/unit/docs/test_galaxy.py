# SPDX-License-Identifier: GPL-3.0-or-later
"""What Galaxy and an Automation Hub show and ship of the collection.

galaxy-importer itself is run for a release (CONTRIBUTING.md); these are the rules that a change breaks unnoticed.
"""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
from pathlib import Path

import yaml

from tests.unit.docs.test_links import CODE, FENCE, LINK, PLACEHOLDER

TOP = Path(__file__).resolve().parents[3]
README = (TOP / "README.md").read_text(encoding="utf-8")
SETTINGS = yaml.safe_load((TOP / "galaxy.yml").read_text(encoding="utf-8"))
# What a user of the collection runs or reads.
SHIPPED = {
    "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md",
    "bin", "bindep.txt", "catalog", "changelogs", "docs", "inventories", "meta", "playbooks", "plugins",
    "requirements.txt", "roles", "site.yml", "tools",
}  # fmt: skip
TOOLS = {"tools/command", "tools/verify.py", "tools/vllm"}
MOST_BYTES = 7_800_000
# Pages about a checkout, which say so; CHANGELOG.md is about the past.
OF_A_CHECKOUT = (
    "CONTRIBUTING.md", "README.md", "docs/contribute/*.md", "docs/reference/lab.md",
    "docs/reference/virtual-machine.md", "docs/start/try-it.md", "plugins/README.md",
)  # fmt: skip
IN_CHECKOUT = re.compile(r"\bcheckout\b|^\$ git clone ", re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
# In a page: files that a checkout has, and the targets of its Makefile.
NAMED = re.compile(
    r"(?<![\w./-])(?:(?:bin|inventories|molecule|tests|tools)/[\w./-]+|execution-environment\.yml|make [a-z-]+)"
)


def shipped():
    """Return the tracked files that a build of the collection has, as Ansible applies build_ignore."""
    patterns = [*SETTINGS["build_ignore"], "galaxy.yml", "galaxy.yaml", ".git", "*.pyc", "*.retry"]

    def is_ignored(path):
        parts = [path, *map(str, Path(path).parents)]
        return any(fnmatch.fnmatch(part, pattern) for part in parts for pattern in patterns)

    return [path for path in tracked_files() if not is_ignored(path) and (TOP / path).is_file()]


def test_only_what_users_run_is_shipped():
    files = shipped()
    assert {path.split("/")[0] for path in files} == SHIPPED
    assert {"/".join(path.split("/")[:2]) for path in files if path.startswith("tools/")} == TOOLS
    size = sum((TOP / path).stat().st_size for path in files)
    assert 2_000_000 < size < MOST_BYTES, f"{size} bytes: ship only what users run (build_ignore in galaxy.yml)"


def tracked_files():
    found = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, check=True, capture_output=True, text=True).stdout
    return [path for path in found.split("\0") if path]


def names_of_a_checkout(page, text, known):
    """Return what a page names and an unpacked archive lacks. A link to the repository may name anything."""
    found = []
    for link in LINK.findall(CODE.sub("", FENCE.sub("", text))):
        path = os.path.normpath(os.path.join(os.path.dirname(page), link.partition("#")[0]))
        if not re.match(r"[a-z]+:|#", link) and path not in known:
            found.append(path)
    if any(fnmatch.fnmatch(page, pattern) for pattern in OF_A_CHECKOUT):
        return found
    text = re.sub(r"\[[^\]]*\]\(https:[^)]*\)", "", COMMENT.sub("", text))
    for paragraph in re.split(r"\n\n+", text):
        codes = [*CODE.findall(paragraph), *(line for line in paragraph.splitlines() if line.startswith("$ "))]
        names = [name.rstrip("/.") for code in codes for name in NAMED.findall(code) if not PLACEHOLDER.search(name)]
        found += [
            name for name in names if name not in known and in_checkout(name) and not IN_CHECKOUT.search(paragraph)
        ]
    return found


def in_checkout(name):
    """Return whether a checkout has the file, or its Makefile the target."""
    target = name.partition("make ")[2]
    return f"\n{target}:" in (TOP / "Makefile").read_text() if target else (TOP / name).exists()


def test_the_docs_of_the_archive_name_only_files_that_it_has():
    files = shipped()
    known = {part for path in files for part in [path, *map(str, Path(path).parents)]}
    pages = [path for path in files if path.endswith(".md") and path != "CHANGELOG.md"]
    lost = {page: names_of_a_checkout(page, (TOP / page).read_text(encoding="utf-8"), known) for page in pages}
    assert len(pages) > 80 and {page: names for page, names in lost.items() if names} == {}


def test_the_pages_about_a_checkout_say_so():
    pages = [page for pattern in OF_A_CHECKOUT for page in TOP.glob(pattern)]
    silent = [page for page in pages if not IN_CHECKOUT.search(page.read_text(encoding="utf-8"))]
    assert len(pages) > 9 and silent == []


def test_what_the_archive_lacks_is_found():
    text = "`tools/demo.py`, [log](../tests/log.md), [far](https://example.com/tests/log.md)\n\n$ make long\n\n"
    text += "In a checkout: `make bench`. <!-- `tests/x.py` --> `tools/verify.py`"
    known = {"docs", "tools", "tools/verify.py"}
    assert names_of_a_checkout("docs/page.md", text, known) == ["tests/log.md", "tools/demo.py", "make long"]
    assert names_of_a_checkout("docs/contribute/page.md", text, known) == ["docs/tests/log.md"]


def test_every_ignored_path_stands_for_something():
    """A name that is neither in the checkout nor ignored by git is a misspelt one."""
    tracked = tracked_files()
    known = {part for path in tracked for part in [path, *map(str, Path(path).parents)]}
    made = {".git", ".ansible", ".import_linter_cache", "*.tar.gz"}
    made |= {line.strip("/") for line in (TOP / ".gitignore").read_text().splitlines()}
    lost = [
        pattern
        for pattern in SETTINGS["build_ignore"]
        if pattern not in made and not fnmatch.filter(known, pattern) and pattern != ".collections"
    ]
    assert lost == []


def test_the_readme_has_the_sections_that_certification_requires():
    sections = re.findall(r"^## (.+)$", README, re.MULTILINE)
    required = {"Requirements", "Installation", "Use cases", "Testing", "Support", "Release notes", "License"}
    assert required - set(sections) == set()
    installation = README.partition("## Installation\n")[2].partition("\n## ")[0]
    assert "ansible-galaxy collection install baremetal.inference" in installation and "pip install" not in installation


def test_the_readme_is_read_outside_of_the_repository():
    """Galaxy shows it on a page of its own, so a relative link leads nowhere."""
    links = re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", README)
    assert len(links) > 10 and [link for link in links if not re.match(r"https://", link)] == []


def test_galaxy_finds_the_pages_of_the_project():
    for key in ("documentation", "homepage", "issues", "repository"):
        assert SETTINGS[key].startswith("https://github.com/baremetal-inference/baremetal.inference"), key
    tags = set(SETTINGS["tags"])
    assert not [tag for tag in tags if not re.fullmatch(r"[a-z0-9]{1,64}", tag)] and len(tags) <= 20
    # An import without one of these is refused by Galaxy.
    assert tags & {
        "application", "cloud", "database", "eda", "infrastructure", "linux", "monitoring", "networking", "security",
        "storage", "tools", "windows",
    }  # fmt: skip
