# SPDX-License-Identifier: GPL-3.0-or-later
"""The page's text: what a browser makes of it is in tests/integration/test_fleet_page.py."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from html.parser import HTMLParser

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.chips import Host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.lines import Line, fleet_lines
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.page import data, page
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.reader import page_parts
from ansible_collections.baremetal.inference.plugins.plugin_utils.pages.colours import Colour, distance

MODELS = load_catalogue().models
HOSTILE = '</script><!--<img src=x onerror=alert(1)>\u2028\'"&@DATA@@STYLE@\ud800],["'
HOSTS = [
    Host("gpu-2", ["cluster_c1", "site_s"], {"accelerator": "h200", "accelerator_count": 8}),
    Host("gpu-1", ["cluster_c1", "site_s"], {"accelerators": {"h200": 4, "l40s": 2}, "accelerator_stale": "why"}),
    Host("odd", [], {"vllm_instances": {"chat": {"recipe": "a/b"}}}),
]


class Elements(HTMLParser):
    """Collects the elements of a page and what script and style hold."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = [], {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        self.tags.append((f"/{tag}", {}))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] in ("script", "style", "title", "h1"):
            self.texts.setdefault(self.tags[-1][0], []).append(data)


def page_of(hosts, title="The fleet"):
    return page(fleet_lines(hosts, MODELS), MODELS, title, page_parts())


def test_the_same_fleet_gives_the_same_page_and_one_change_changes_one_line():
    text = page_of(HOSTS)
    assert text == page_of(HOSTS[::-1])
    seen = {**HOSTS[0].variables, "accelerator_discovered_at": "2026-11-21T14:40:00Z"}
    changed = page_of([Host("gpu-2", HOSTS[0].groups, seen), *HOSTS[1:]])
    differ = [line for line in changed.splitlines() if line not in text.splitlines()]
    assert len(differ) == 1 and differ[0].startswith('["gpu-2",7,8,1795272000')


def test_hosts_are_told_in_full():
    document = json.loads(data(fleet_lines(HOSTS, MODELS), MODELS, "t"))
    nowhere, site = document["sites"]
    assert (nowhere["name"], site["name"]) == ("", "s")
    rows = {tuple(row["models"]): row["hosts"] for row in site["clusters"][0]["rows"]}
    assert list(rows) == [("h200",), ("h200", "l40s")]
    mixed = rows[("h200", "l40s")][0]
    assert mixed[:3] == ["gpu-1", 3, [4, 2]] and document["texts"][mixed[8]] == "why"
    odd = nowhere["clusters"][0]["rows"][0]["hosts"][0]
    assert document["serves"][odd[7]] == [["chat", "a/b"]]
    assert list(document["models"]) == ["h200", "l40s"]


def test_the_policy_allows_this_style_and_script_and_nothing_else():
    found = Elements(page_of(HOSTS))
    policy = next(attrs["content"] for _tag, attrs in found.tags if "http-equiv" in attrs)
    hashes = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in ("".join(found.texts["script"][1:]), "".join(found.texts["style"]))
    ]
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; base-uri 'none'; "
        "form-action 'none'"
    )
    assert not [attrs for _tag, attrs in found.tags if {"src", "href", "style"} & set(attrs)]


def test_what_hosts_are_called_stays_text():
    # The name of a cluster is one printable line.
    cluster = "".join(character for character in HOSTILE if character.isprintable())
    variables = {"accelerator": HOSTILE, "cluster": cluster, "site": HOSTILE, "accelerator_conflict": HOSTILE,
                 "accelerators": {HOSTILE: 2}, "vllm_instances": {HOSTILE: {"recipe": HOSTILE}}}  # fmt: skip
    text = page_of([Host(HOSTILE, [], variables)], HOSTILE)
    assert [tag for tag, _attrs in Elements(text).tags] == [tag for tag, _attrs in Elements(page_of(HOSTS)).tags]
    inside = re.search(r'type="application/json">(.*?)</script>', text, re.S).group(1)
    assert not set("<>&") & set(inside) and inside.isascii()
    document = json.loads(inside)
    assert document["sites"][0]["clusters"][0]["rows"][0]["hosts"][0][0] == HOSTILE


def test_colours_of_many_models_differ():
    lines = [Line(key, "", "", ((key, 1),), "seen") for key in (*MODELS, "cpu", "unknown")]
    looks = json.loads(data(lines, MODELS, "t"))["models"]
    colours = [(look["hue"], look["light"]) for key, look in looks.items() if key in MODELS]
    assert len(set(colours)) == len(colours) and looks["cpu"]["hue"] is None


@pytest.mark.parametrize(
    ("keys", "least"),
    [
        (("cpu", "h200", "l40s", "mi300x"), 0.12),
        (("a100", "ascend_a2", "ascend_a3", "b200", "cpu", "h100", "h200", "l40s", "mi300x", "mi355x", "r9700"), 0.06),
    ],
)
def test_colours_differ_for_the_colour_blind_too(keys, least):
    """0.02 can just be noticed side by side; tiles of two models are apart."""
    lines = [Line(key, "", "", ((key, 1),), "seen") for key in keys]
    looks = json.loads(data(lines, MODELS, "t"))["models"]
    colours = {key: Colour(look["light"], look["hue"]) for key, look in looks.items()}
    pairs = itertools.combinations(colours.items(), 2)
    assert [(one, other) for (one, left), (other, right) in pairs if distance(left, right) < least] == []
