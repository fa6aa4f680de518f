# SPDX-License-Identifier: GPL-3.0-or-later
"""The page's text: what a browser makes of it is in tests/integration/test_rollout_page.py."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from html.parser import HTMLParser

from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.page_files import page_parts
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.report import report
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.report_page import data, page

from tests.fakes.rollouts import Journal, good, large, resumed

HOSTILE = "</script><!--<img src=x onerror=alert(1)>\u2028'\"&@DATA@@STYLE@\ud800"


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


def hostile():
    """A journal that holds markup wherever it can."""
    journal = Journal()
    journal.begin({HOSTILE: [[HOSTILE]]}, id=HOSTILE, user=HOSTILE, summary=HOSTILE, options={HOSTILE: [HOSTILE]})
    change = {"before": {HOSTILE: HOSTILE}, "after": {}, "files": [HOSTILE]}
    journal.add("host", host=HOSTILE, cluster=HOSTILE, wave=0, changes={HOSTILE: change})
    journal.step(HOSTILE, HOSTILE, 1, HOSTILE)
    row = {"name": HOSTILE, "ok": False, "detail": HOSTILE}
    journal.add(
        "gate", host=HOSTILE, instance=HOSTILE, before=None, after={"tokens_per_second": HOSTILE}, verdicts=[row]
    )
    journal.read(HOSTILE, 10, service=HOSTILE)
    journal.read(HOSTILE, 20, service=HOSTILE)
    journal.add("stopped", reason=HOSTILE)
    return journal


def test_the_same_journal_gives_the_same_page():
    assert page(report(good().events), page_parts()) == page(report(good().events), page_parts())


def test_nothing_in_a_journal_breaks_out_of_the_page():
    plain = Elements(page(report(good().events), page_parts()))
    found = Elements(page(report(hostile().events), page_parts()))
    assert [tag for tag, _attributes in found.tags] == [tag for tag, _attributes in plain.tags]
    assert found.texts["script"][-1] == plain.texts["script"][-1] and found.texts["style"] == plain.texts["style"]
    shown = json.loads(found.texts["script"][0])
    assert shown["summary"] == shown["reason"] == shown["hosts"][0][0] == HOSTILE
    title = f"Rollout {HOSTILE}"
    # A lone surrogate has no place in a text; a browser shows the sign for what cannot be shown.
    assert found.texts["title"][0].replace("\ufffd", "\ud800") == title


def test_the_page_asks_no_network_and_allows_its_own_script_alone():
    text = page(report(good().events), page_parts())
    assert not re.search(r"(src|href)\s*=|@import|url\(|https?:", text)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    for kind in ("css", "js"):
        digest = base64.b64encode(hashlib.sha256(page_parts()[kind].encode()).digest()).decode()
        assert f"sha256-{digest}" in policy
    assert policy.startswith("default-src 'none';")


def test_the_time_between_two_runs_is_told_once():
    shown = json.loads(data(report(resumed().events)))
    ((began, pause),) = shown["pauses"]
    assert pause == 3600 and began == shown["sessions"][1]["began"] - shown["began"]
    broke = [step for host in shown["hosts"] for step in host[5] if len(step) == 5]
    assert [(shown["steps"][step[0]], step[4]) for step in broke] == [("apply", 1)]


def test_a_thousand_hosts_are_a_small_file():
    document = report(large().events)
    began = time.monotonic()
    text = page(document, page_parts())
    print(f"page of 1,000 hosts: {len(text.encode()):,} bytes in {time.monotonic() - began:.2f} s")
    assert len(text.encode()) < 600_000
