# SPDX-License-Identifier: GPL-3.0-or-later
"""The changelog and its fragments: ansible-test reads these in CI only, a quarter of an hour after a push."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

CHANGELOGS = Path(__file__).resolve().parents[3] / "changelogs"
SECTIONS = {name for name, _title in yaml.safe_load((CHANGELOGS / "config.yaml").read_text())["sections"]}


def test_a_fragment_has_sections_of_sentences():
    """After a release there is none."""
    for path in sorted((CHANGELOGS / "fragments").glob("*.y*ml")):
        fragment = yaml.safe_load(path.read_text())
        assert set(fragment) <= SECTIONS | {"release_summary"}, path.name
        for section, entries in fragment.items():
            sentences = [entries] if section == "release_summary" else entries
            assert sentences and all(isinstance(entry, str) for entry in sentences), (path.name, section)


def test_releases_that_were_never_published_are_part_of_the_next_one():
    releases = yaml.safe_load((CHANGELOGS / "changelog.yaml").read_text())["releases"]
    summaries = " ".join(found["changes"]["release_summary"] for found in releases.values())
    unpublished = set(re.findall(r"(\d+\.\d+\.\d+) was never published", summaries))
    assert unpublished and not unpublished & set(releases)


def test_the_page_of_older_releases_has_what_the_changelog_leaves_out():
    page = CHANGELOGS / "CHANGELOG-0.7-to-0.17.md"
    older = page.read_text()
    releases = yaml.safe_load((CHANGELOGS / "changelog.yaml").read_text())["releases"]
    shortened = [name for name, found in releases.items() if page.name in found["changes"]["release_summary"]]
    assert shortened and not {"bugfixes", "minor_changes"} & {
        key for name in shortened for key in releases[name]["changes"]
    }
    for name in shortened:
        notes = older.partition(f"\n## v{name.replace('.', chr(92) + '.')}\n")[2].partition("\n## ")[0]
        assert "### Bugfixes\n\n* " in notes, name
