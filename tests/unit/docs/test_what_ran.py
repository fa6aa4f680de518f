# SPDX-License-Identifier: GPL-3.0-or-later
"""The first pages name each machine with real chips on which something ran."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
RESULTS = (TOP / "tests/gpu/results/README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["README.md", "docs/start/gpu-server.md"])
def test_a_page_names_the_machines_of_the_results(page):
    ran = {(number.lower(), chip) for number, chip in re.findall(r"(?m)^## (\w+) NVIDIA (\w+)", RESULTS)}
    text = (TOP / page).read_text(encoding="utf-8")
    named = set()
    for numbers, chip in re.findall(
        r"\b((?:one|two|four|eight)(?: and (?:one|two|four|eight))?) (?:real )?([A-Z]\d+)", text
    ):
        named |= {(number, chip) for number in numbers.split(" and ")}
    assert ran <= named
