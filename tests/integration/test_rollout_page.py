# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a rollout in a browser without a head: clicked, typed into, listened to."""

from __future__ import annotations

import json
import time

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.page_files import page_parts
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.report import report
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.report_page import page
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.fakes.rollouts import Journal, good, interrupted, large, resumed, rollback, stopped
from tests.integration.browser import Page, forget, requests_of

# Whatever runs of it says so to the console, asks for x, or sets the title.
MARKUP = "</script><img src='x:y' onerror='document.title=1'>{{ 7*7 }}"


@pytest.fixture
def show(browser, tmp_path):
    """Open the page of events; nothing that a test does with it may ask a network or complain."""
    opened = []

    def call(events):
        path = tmp_path / f"report-{len(opened)}.html"
        path.write_text(page(report(events), page_parts()), encoding="utf-8")
        browser.get(path.as_uri())
        opened.append(path.as_uri())
        return RolloutPage(browser)

    forget(browser)
    yield call
    assert browser.get_log("browser") == []
    assert requests_of(browser) == opened


class RolloutPage(Page):
    """What a user sees and does."""

    def hosts(self):
        """Return the names of the hosts that are to be seen, in their order."""
        self.settle()
        return self.browser.execute_script(
            "return [...document.querySelectorAll('.host')].filter((row) => !row.hidden && !row.parentNode.hidden)"
            ".map((row) => row.firstChild.textContent)"
        )

    def row(self, name):
        return self.browser.execute_script(
            "return [...document.querySelectorAll('.host')].find((row) => row.firstChild.textContent === arguments[0])",
            name,
        )

    def bars(self, name):
        """Return step, first and last place of each bar of a host, in hundredths of the track."""
        return self.browser.execute_script(
            "return [...arguments[0].querySelectorAll('.bar')].map((bar) => {"
            "const [left, width] = [parseFloat(bar.style.left), parseFloat(bar.style.width)];"
            "return [bar.title.split(',')[0], Math.round(left), Math.round(left + width)];})",
            self.row(name),
        )

    def click(self, name):
        self.browser.execute_script("arguments[0].click()", self.row(name))


def cut():
    return [json.loads(line) for line in interrupted().splitlines()[:-1]]


def test_a_good_rollout(show):
    shown = show(good().events)
    assert shown.hosts() == ["a1", "a2", "a3", "b1"]
    assert shown.text("#result") == "✓ done · 4 hosts: 4 done" and shown.text("#reason") == ""
    assert "alice on ops-1" in shown.text("#facts") and "1,500 at the gateways, 1 failed" in shown.text("#facts")
    assert "2026-11-22 03:00:00 UTC to 2026-11-22 03:07:08 UTC, 7 min 8 s" in shown.text("#facts")
    # A quarter of the time each, one after the other, whole but for a rest of rounding.
    for number, name in enumerate(("a1", "a2", "a3", "b1")):
        bars = shown.bars(name)
        assert [entry[0] for entry in bars] == ["drain", "idle", "measure", "apply", "gate", "ready", "watch"]
        assert (bars[0][1], bars[-1][2]) == (25 * number, 25 * number + 25)
        assert all(abs(entry[2] - later[1]) <= 1 for entry, later in zip(bars, bars[1:], strict=False))
    assert "vllm_version 0.32.0 → 0.33.0" in shown.text("#changes") and "128 → 256" in shown.text("#changes")
    assert "service chat 1,500 1,499 0 1 0" in shown.text("#requests")
    assert "apply changed, stopped, started, verified 4 1 min 1 min b1" in shown.text("#steps")
    assert "a1 chat 100 101.5 1.01" in shown.text("#gates") and "rollout_canaries 1" in shown.text("#options")


def test_turns_beside_each_other(show):
    shown = show(good().events)
    before = shown.bars("a1")
    shown.all("#align")[0].click()
    assert shown.bars("a1") == shown.bars("b1") and shown.bars("b1")[-1][2] == 100
    shown.all("#align")[0].click()
    assert shown.bars("a1") == before


def test_stopped_at_the_canary(show):
    shown = show(stopped().events)
    assert shown.text("#result") == "✗ stopped · 3 hosts: 1 rolled back, 2 untouched"
    assert shown.text("#reason").startswith("a1 is a canary and failed: throughput: 33.1 tokens/s")
    assert "not done\na1: throughput: 33.1 tokens/s, before 100" in shown.text("#facts")
    assert shown.bars("a2") == [] and shown.bars("a1")[-1][0] == "restore"
    shown.click("a1")
    for part in ("failed, and is what it was before", "restore", "03:01:48", "50 s", "✗ throughput: 33.1 tokens/s"):
        assert part in shown.text("#detail")
    assert "✗ throughput" in shown.text("#gates")
    shown.browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not shown.all("#detail")[0].is_displayed()


def test_interrupted_and_gone_on(show):
    shown = show(cut())
    assert shown.text("#result") == "✗ interrupted · 3 hosts: 1 done, 1 unfinished, 1 untouched"
    assert "The journal is incomplete" in shown.text("#reason")
    assert shown.bars("a2")[-1][0] == "apply (broke off)"
    shown = show(resumed().events)
    assert shown.text("#result") == "✓ done · 3 hosts: 3 done"
    assert "by bob on ops-2, after 1 h" in shown.text("#facts")
    bars = shown.bars("a2")
    # The hour between the two runs takes no room.
    assert [entry[0] for entry in bars] == ["drain", "idle", "apply (broke off)", "drain", "apply"]
    assert abs(bars[3][1] - bars[2][2]) <= 1 and shown.all(".pause")[0].get_attribute("title") == "interrupted for 1 h"
    shown.click("a2")
    assert "04:02:22" in shown.text("#detail") and "20 s, broke off" in shown.text("#detail")
    assert "A gateway was restarted meanwhile (1)" in shown.text("#requests")


def test_a_rollback_without_gates_and_gateways(show):
    shown = show(rollback().events)
    assert "rollback" in shown.text("#facts") and "0.33.0 → 0.32.0" in shown.text("#changes")
    assert "No gateway was read." in shown.text("#requests") and "No gate was asked." in shown.text("#gates")


def test_filters_and_the_keyboard(show):
    shown = show(stopped().events)
    shown.all("#states button[data-key=untouched]")[0].click()
    assert shown.hosts() == ["a2", "a3"] and shown.text("#shown") == "2 hosts of 3 shown"
    shown.type("a3")
    assert shown.hosts() == ["a3"]
    shown.all("#states button[data-key=untouched]")[0].click()
    shown.type("CHAT throughput")
    assert shown.hosts() == ["a1"]
    shown.type(" ")
    assert shown.hosts() == ["a1", "a2", "a3"] and len(shown.all(".host[tabindex='0']")) == 1
    shown.row("a1").send_keys(Keys.ARROW_DOWN)
    assert shown.text("#detail h2") == "a2"
    shown.browser.switch_to.active_element.send_keys(Keys.END)
    assert shown.text("#detail h2") == "a3"
    shown.browser.find_element(By.TAG_NAME, "body").send_keys("/")
    assert shown.browser.switch_to.active_element.get_attribute("id") == "q"


def test_what_a_journal_holds_stays_text(show):
    journal = Journal()
    journal.begin({MARKUP: [[MARKUP]]}, id=MARKUP, summary=MARKUP, user=MARKUP, options={MARKUP: MARKUP})
    change = {"before": {MARKUP: MARKUP}, "after": {}, "files": [MARKUP]}
    journal.add("host", host=MARKUP, cluster=MARKUP, wave=0, changes={MARKUP: change})
    journal.step(MARKUP, MARKUP, 5, MARKUP)
    journal.step(MARKUP, "failed", detail=MARKUP)
    row = {"name": MARKUP, "ok": False, "detail": MARKUP}
    journal.add("gate", host=MARKUP, instance=MARKUP, before={"requests": MARKUP}, after=None, verdicts=[row])
    for requests in (1, 2):
        journal.read(MARKUP, requests, service=MARKUP)
    journal.add("stopped", reason=MARKUP)
    shown = show(journal.events)
    assert shown.browser.title.endswith(MARKUP) and shown.text("#reason") == MARKUP
    shown.click(MARKUP)
    assert shown.text("#detail").count(MARKUP) >= 6
    for place in ("#changes", "#gates", "#requests", "#options", "#facts", "h1"):
        assert MARKUP in shown.text(place)
    assert not shown.all("img")


def test_dark_light_and_print(show):
    shown = show(good().events)
    papers = set()
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        shown.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        papers.add(shown.browser.execute_script("return getComputedStyle(document.documentElement).backgroundColor"))
    assert len(papers) == 2
    shown.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    assert not shown.all("#q")[0].is_displayed() and shown.row("b1").is_displayed()
    shown.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    # No bar or tick makes the page wider than the window.
    assert shown.browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")


def test_failed_hosts_come_first(show):
    shown = show(large().events)
    waves = [title.text for title in shown.all("#rows h3")]
    assert waves[0].startswith("not done · wave ") and not waves[-1].startswith("not done")
    names = shown.hosts()
    assert len(names) == 1000 and [name.endswith("99") for name in names[:11]] == [True] * 10 + [False]
    # A thousand hosts are few enough to do without a line for each cluster.
    assert not shown.one("#clusters").is_displayed()


def test_more_than_a_thousand_hosts_have_a_line_for_each_cluster(show):
    shown = show(large(1200).events)
    rows = [row.text for row in shown.all("#clusters tbody tr")]
    assert len(rows) > 1 and sum(int(row.split()[1].replace(",", "")) for row in rows) == 1200


@pytest.mark.parametrize("width", [500, 1400])
def test_labels_of_the_time_do_not_touch(show, width):
    shown = show(good().events)
    shown.browser.set_window_size(width, 900)
    shown.settle()
    boxes = shown.script(
        "return [...document.querySelectorAll('#axis .track span')].map((tick) => tick.getBoundingClientRect())"
        ".map((box) => [box.left, box.right])"
    )
    right = shown.script("return document.querySelector('#axis .track').getBoundingClientRect().right")
    narrow = shown.script("return document.documentElement.scrollWidth <= window.innerWidth")
    shown.browser.set_window_size(1400, 900)
    assert narrow and len(boxes) >= 2 and boxes[-1][1] <= right
    assert all(one[1] <= other[0] for one, other in zip(boxes, boxes[1:], strict=False))


def test_a_thousand_hosts(browser, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page(report(large().events), page_parts()), encoding="utf-8")
    start = time.monotonic()
    browser.get(path.as_uri())
    shown = RolloutPage(browser)
    assert len(shown.hosts()) == 1000
    opened = time.monotonic()
    shown.type("c3 rolled")
    names = shown.hosts()
    filtered = time.monotonic()
    shown.all("#align")[0].click()
    shown.hosts()
    drawn = time.monotonic()
    print(
        f"{path.stat().st_size:,} bytes, opened in {opened - start:.2f} s, filtered in {filtered - opened:.2f} s, "
        f"aligned in {drawn - filtered:.2f} s"
    )
    assert "gpu-0499: throughput: 33.1" in shown.text("#facts") and "and 5 more" in shown.text("#facts")
    assert names == ["gpu-0799", "gpu-0899", "gpu-0999"] and drawn - start < 60
    # The gates of all are there, the worst first, and not all of them at once.
    assert len(shown.all("#gates tbody tr")) == 50 and "33.1" in shown.all("#gates tbody tr")[0].text
    shown.all("#gates .more")[0].click()
    assert len(shown.all("#gates tbody tr")) == 1000
