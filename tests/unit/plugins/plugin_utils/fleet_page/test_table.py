# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet on one screen, however large it is."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.lines import Line
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.table import age, fleet_table, summary

NOW = 1_800_000_000


def line(host, cluster="c1", model="h200", count=8, state="seen", site="", **more):
    return Line(host, site, cluster, ((model, count),), state, **more)


def test_a_small_fleet():
    lines = [
        line("gpu-1"),
        line("gpu-2", state="stale", why="timed out", todo="look", seen_at=NOW - 3 * 86400),
        line("gpu-3", state="stale", why="no name", todo="look"),
        line("cpu-1", "c2", "cpu", 1),
    ]
    assert fleet_table(lines, NOW) == [
        "4 hosts, 24 chips, 2 clusters: 2 stale, 2 seen",
        "hosts by accelerator: h200 3, cpu 1",
        "",
        "cluster  accelerator  hosts  chips  stale  seen",
        "-------  -----------  -----  -----  -----  ----",
        "c1       h200             3     24      2     1",
        "c2       cpu              1                   1",
        "",
        "stale, 2 hosts: look",
        "  gpu-2  last answer 3 d ago: timed out",
        "  gpu-3  never answered: no name",
    ]


def test_no_hosts():
    assert fleet_table([], NOW) == ["no hosts"]


@pytest.mark.parametrize(
    ("clusters", "models", "sites", "first"),
    [(500, 9, 7, "site  hosts ")]
    + [pytest.param(*values, marks=pytest.mark.slow) for values in (
        (2, 3, 1, "site  cluster  accelerator"), (12, 5, 3, "site  cluster  hosts"), (500, 4, 3, "site  accelerator"),
        (500, 9, 50, "accelerator"), (500, 900, 50, "accelerator"),
    )],
)  # fmt: skip
def test_a_large_fleet_is_summed_up_more_coarsely(clusters, models, sites, first):
    lines = [
        line(f"gpu-{number}", f"c{number % clusters}", f"model-{number % models}", site=f"s{number % clusters % sites}",
             state=("seen", "conflict", "unknown", "stale", "unseen")[number % 5], why="w " * 200, todo="do it")
        for number in range(9000)
    ]  # fmt: skip
    assert summary(lines)[0].startswith(first)
    text = fleet_table(lines, NOW)
    assert len(text) <= 60 and all(len(row) <= 120 for row in text)
    assert sum("do it" in row for row in text) == 4 and sum(row.startswith("  gpu-") for row in text) == 20


def test_names_beyond_the_share_of_a_state_are_counted():
    lines = [line(f"a-{number}", state="stale", todo="t") for number in range(30)]
    lines += [line(f"b-{number}", state="conflict", todo="u") for number in range(3)]
    text = fleet_table(lines, NOW)
    assert "conflict, 3 hosts: u" in text and "stale, 30 hosts (the first 17): t" in text
    assert text.index("conflict, 3 hosts: u") < text.index("stale, 30 hosts (the first 17): t")


def test_a_terminal_is_told_nothing():
    text = fleet_table([line("a\x1b[31m\n\x07", "c\x1b]0;x", state="stale", why="\x9b2J\u202e", todo="t")], NOW)
    assert all(row.isprintable() for row in text) and len(text) == 9


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "less than a minute"), (59, "less than a minute"), (60, "1 min"), (7199, "1 h"), (864000, "10 d")],
)
def test_ages(seconds, words):
    assert age(seconds) == words
