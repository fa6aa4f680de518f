# SPDX-License-Identifier: GPL-3.0-or-later
"""Fragments of the changelog: ansible-test reads them in CI only, a quarter of an hour after a push."""

from __future__ import annotations

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
