# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import yaml

from tools.support_matrix import PAGE, RUN, TOP, chips, page, releases


def test_the_page_is_current():
    """Made by: PYTHONPATH=.collections .venv/bin/python tools/support_matrix.py"""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_run_is_in_the_table():
    """A run of a chip or a release that the catalogue does not have would be left out."""
    runs = yaml.safe_load((TOP / "docs/reference/support.yml").read_text(encoding="utf-8"))["runs"]
    rows, names = chips(), list(releases())
    for run in runs:
        kind = "venv" if run["runtime"] == "venv" else "container"
        _stack, cells = rows[f"{run['chip']}, {kind}"]
        assert cells[names.index(run["release"])] == RUN, run
        assert not run["where"].endswith(".md") or (TOP / run["where"]).is_file()
