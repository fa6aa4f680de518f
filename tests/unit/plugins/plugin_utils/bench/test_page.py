# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a benchmark: complete, without scripts and without anything from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.evidence import evidence
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.page import bench_page

from tests.fakes.benches import INFO, PLAN, record


def summary(host="gpu-a-01", notes=(), **figures):
    records = [record(concurrency=step, **figures) for step in (1, 64)]
    document = evidence(PLAN, INFO, "580.159.04", records, "2026-11-23")
    return {"host": host, "instance": "chat", **document, "notes": list(notes)}


class Checker(HTMLParser):
    """Collects the tags, and finds those that are not closed."""

    def __init__(self):
        super().__init__()
        self.open, self.tags = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "path", "circle", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("path", "circle", "polyline"):
            assert self.open.pop() == tag


def checked(text):
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    return checker.tags


def test_the_page_has_facts_charts_and_figures():
    text = bench_page(summary(joules=153.6, notes=["workload long-prompt: left out"]))
    tags = checked(text)
    assert [tag for tag, _attributes in tags].count("figure") == 5
    for part in ("Benchmark of chat on gpu-a-01", "580.159.04", "324.1", "Energy (J/token)", "left out", "h200"):
        assert part in text


def test_without_power_there_is_no_chart_of_it():
    assert "Energy" not in bench_page(summary())


def test_the_page_loads_nothing():
    text = bench_page(summary(), summary())
    for tag, attributes in checked(text):
        assert tag not in ("script", "link", "img", "iframe")
        assert not {"src", "href", "style", "onclick"} & set(attributes)
    assert not re.search(r"https?://|@import|url\(", text)
    assert "default-src 'none'; style-src 'sha256-" in text and "prefers-color-scheme: dark" in text


def test_no_name_becomes_html():
    text = bench_page(summary(host="<script>alert(1)</script>", notes=["<b>"]), summary(host="<i>"))
    assert "<script" not in text and "<i>" not in text and "<b>" not in text


def test_no_number_of_another_summary_becomes_html():
    other = summary()
    for entry in other["results"]:
        entry.update(workload="theirs", input_tokens="<i>", output_tokens="<b>", repeats="<u>")
        entry["concurrency"] = f"<s>{entry['concurrency']}"
    text = bench_page(summary(), other)
    assert "theirs" in text and not [tag for tag in ("<i>", "<b>", "<u>", "<s>") if tag in text]


def test_two_runs_are_side_by_side():
    text = bench_page(summary(speed=110.0, ttft=20.0), summary(host="other", speed=100.0, ttft=25.0))
    assert '110 | 100 <span class="good">x1.10</span>' in text
    assert '20 | 25 <span class="good">x0.80</span>' in text
    assert "other/chat 0.25.1" in text and '<polyline class="s1"' in text
    assert '<span class="bad">x0.91</span>' in bench_page(summary(speed=100.0), summary(speed=110.0))


def test_a_workload_that_only_the_other_has_is_shown():
    other = summary(host="other")
    other["results"][0]["workload"] = "agent"
    assert "<h2>agent</h2>" in bench_page(summary(), other)
