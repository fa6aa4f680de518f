# SPDX-License-Identifier: GPL-3.0-or-later
"""The starts of vLLM in tests/fixtures/commands.yml."""

from __future__ import annotations

from pathlib import Path

import yaml

_PATH = Path(__file__).resolve().parents[1] / "fixtures" / "commands.yml"
# Options of adopt.yml that stand beside the text.
OPTIONS = ("model", "accelerator", "service")


def commands():
    """Return the entries; ``text`` is what a person has, ``options`` are those that make it readable."""
    entries = yaml.safe_load(_PATH.read_text(encoding="utf-8"))
    for entry in entries:
        if entry.get("joined"):
            entry["text"] = " ".join(entry["text"].split())
        entry["options"] = {key: entry[key] for key in OPTIONS if key in entry}
    return entries
