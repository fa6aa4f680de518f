# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/fleet.yml as a user runs it, and its page in a browser without a head: clicked, typed into, listened to."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.chips import STATES as STATES_OF_THE_PAGE
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.lines import Line
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.page import page as page_text
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.reader import page_parts
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.service import with_service
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.versions import with_versions
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.integration.browser import Page, forget, requests_of
from tools.drawing import fleet

TOP = Path(__file__).resolve().parents[2]
# Whatever runs of it says so to the console, asks for x, or sets the title.
MARKUP = "</script><img src='x:y' onerror='document.title=1'>"
HOSTILE = f"{MARKUP}{{{{ 7*7 }}}}"


def detected(model, count, **more):
    return {"model": model, "count": count, "models": {model: count}, "unknown": [], "memory_mib": 144384, **more}


CHIP = {"vendor_id": "10de", "device_id": "2bb9", "class": "0302", "address": "0000:3b:00.0"}
H200 = {"accelerator": "h200", "accelerator_count": 8, "cluster": "fra1", "site": "frankfurt"}
AMD = {"accelerator": "mi300x", "accelerator_count": 8, "cluster": "hel1", "site": "helsinki"}
SEEN = {"accelerator_detected": detected("h200", 8), "accelerator_discovered_at": "2026-11-21T14:40:00Z"}
FLEET = {
    "gpu-1": {**H200, **SEEN, "vllm_instances": {"chat": {"recipe": "openai/gpt-oss-120b"}}},
    "gpu-2": {**H200, **SEEN, "accelerator_stale": "no answer within 10 s"},
    "gpu-3": {**H200, "accelerator_detected": detected("h200", 7)},
    "gpu-4": {**H200, "accelerators": {"h200": 4, "l40s": 2}},
    "amd-1": {**AMD, "vllm_instances": {"embed": {"recipe": "BAAI/bge-m3"}}},
    "amd-2": {**AMD, "accelerator_detected": {"model": "unknown", "count": 1, "models": {}, "unknown": [CHIP]}},
    "odd-1": {"cluster": HOSTILE, "site": "frankfurt", "accelerator_stale": HOSTILE},
    "mirror": {},
    "<b>bold</b>": {**AMD, "vllm_instances": {"<i>x</i>": {"recipe": "a/<u>b</u>"}}},
}
STATES = {"conflict": 1, "unknown": 1, "stale": 2, "declared": 3, "seen": 1, "unseen": 1}


def play(directory, hosts, *words):
    """Run the playbook over hosts and return its output."""
    # JSON is YAML; text that only looks like a template is marked as text.
    text = json.dumps({"all": {"hosts": hosts}}).replace('"</script>', '!unsafe "</script>')
    (directory / "hosts.yml").write_text(text, encoding="utf-8")
    return run("-i", directory / "hosts.yml", *words)


def run(*words):
    done = subprocess.run(
        [TOP / ".venv/bin/ansible-playbook", TOP / "playbooks/fleet.yml", *words],
        cwd=TOP,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("fleet") / "fleet.html"
    output = play(path.parent, FLEET, "-e", f"fleet_page={path}", "-e", json.dumps({"fleet_title": f"Fleet {MARKUP}"}))
    assert "changed=1" in output
    return path


@pytest.fixture
def shown(browser, page):
    """The page, freshly opened; nothing that a test does with it may ask a network or complain."""
    forget(browser)
    browser.get(page.as_uri())
    yield FleetPage(browser)
    assert browser.get_log("browser") == []
    assert requests_of(browser) == [page.as_uri()]


class FleetPage(Page):
    """What a user sees and does."""

    def hosts(self):
        """Return the names of the hosts that are to be seen, in their order."""
        self.settle()
        return self.script(
            "return [...document.querySelectorAll('main button.t')].filter((tile) => tile.offsetParent)"
            ".map((tile) => tile.title.split('\\n')[0])"
        )

    def tile(self, name):
        return self.browser.execute_script(
            "return [...document.querySelectorAll('main button.t')]"
            ".find((tile) => tile.title.startsWith(`${arguments[0]}\\n`))",
            name,
        )

    def entry(self, kind, key):
        return next(entry for entry in self.all(f"#{kind} .entry") if entry.get_attribute("data-key") == key)

    def detail(self):
        return self.one("#detail").text


# The playbook.


def test_a_second_run_changes_nothing_and_check_mode_only_tells(page, tmp_path):
    path = tmp_path / "fleet.html"
    words = ["-e", f"fleet_page={path}"]
    assert "changed=1" in play(tmp_path, FLEET, *words, "--check") and not path.exists()
    output = play(tmp_path, FLEET, *words)
    assert "9 hosts, 54 chips, 3 clusters, 2 sites" in output and "gpu-3  declared h200 x 8, found h200 x 7" in output
    before = path.read_bytes()
    assert "changed=0" in play(tmp_path, dict(reversed(FLEET.items())), *words)
    changed = {**FLEET, "gpu-1": {**FLEET["gpu-1"], "accelerator_discovered_at": "2026-11-21T16:00:00Z"}}
    output = play(tmp_path, changed, *words, "--check", "--diff")
    assert "changed=1" in output and '-["gpu-1",8,8,1795272000' in output and '+["gpu-1",8,8,1795276800' in output
    assert path.read_bytes() == before


def test_a_part_of_the_fleet(tmp_path):
    path = tmp_path / "fleet.html"
    output = play(tmp_path, FLEET, "-e", f"fleet_page={path}", "-l", "gpu-1,amd-1")
    assert "2 hosts, 16 chips" in output and "gpu-2" not in path.read_text()


def test_the_example_is_shown():
    output = run("-i", "inventories/example")
    assert "h200             3     20" in output and "changed=0" in output


# The page.


def test_every_host_is_there_with_its_state(shown):
    assert sorted(shown.hosts()) == sorted(FLEET)
    counts = {entry.get_attribute("data-key"): int(entry.find_element(By.CSS_SELECTOR, ".n").text)
              for entry in shown.all("#states .entry")}  # fmt: skip
    assert counts == STATES
    models = {entry.get_attribute("data-key"): int(entry.find_element(By.CSS_SELECTOR, ".n").text)
              for entry in shown.all("#models .entry")}  # fmt: skip
    assert models == {"h200": 4, "l40s": 1, "mi300x": 3, "": 2}
    assert shown.one("#sum").text.startswith("9 hosts · 54 chips · 3 clusters · 2 sites · newest answer ")


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("GPU-1", ["gpu-1"]),
        ("gpu h200 seen", ["gpu-1"]),
        ("seen gpu-2", []),
        ("hel1", ["<b>bold</b>", "amd-1", "amd-2"]),
        ("instinct declared", ["<b>bold</b>", "amd-1"]),
        ("l40s", ["gpu-4"]),
        ("embed", ["amd-1"]),
        ("gpt-oss", ["gpu-1"]),
        ("hopper conflict", ["gpu-3"]),
    ],
)
def test_all_words_of_the_filter_have_to_fit(shown, text, hosts):
    shown.type(text)
    assert sorted(shown.hosts()) == hosts
    assert shown.one("#shown").text.startswith(f"{len(hosts)} host{'' if len(hosts) == 1 else 's'} of 9 shown")
    assert shown.one("p.none").is_displayed() == (not hosts)
    shown.type(" ")
    assert len(shown.hosts()) == len(FLEET)


def test_a_click_on_the_legend_filters_and_a_second_one_does_not(shown):
    shown.entry("states", "stale").click()
    assert sorted(shown.hosts()) == ["gpu-2", "odd-1"]
    shown.entry("models", "h200").click()
    assert shown.hosts() == ["gpu-2"]
    shown.entry("states", "conflict").click()
    assert sorted(shown.hosts()) == ["gpu-2", "gpu-3"]
    shown.type("gpu-3")
    assert shown.hosts() == ["gpu-3"]
    for kind, key in (("states", "stale"), ("states", "conflict"), ("models", "h200")):
        assert shown.entry(kind, key).get_attribute("aria-pressed") == "true"
        shown.entry(kind, key).click()
        assert shown.entry(kind, key).get_attribute("aria-pressed") == "false"
    shown.type(" ")
    assert len(shown.hosts()) == len(FLEET)


def test_a_click_shows_a_host(shown):
    shown.tile("gpu-2").click()
    text = shown.detail()
    assert text.startswith("gpu-2\nstale: gave no answer")
    for part in (
        "no answer within 10 s",
        "discover.yml",
        "NVIDIA H200",
        "141 GiB each",
        "2026-11-21 14:40 UTC",
        "fra1",
    ):
        assert part in text
    shown.tile("gpu-1").click()
    assert "chat openai/gpt-oss-120b" in shown.detail() and "gpu-2" not in shown.detail()
    shown.one("body").send_keys(Keys.ESCAPE)
    assert "gpu-1" not in shown.detail()


def test_the_keyboard_reaches_every_host_with_one_stop_for_tab(shown):
    assert len(shown.all("main button.t[tabindex='0']")) == 1
    names = shown.hosts()
    shown.all("#models .entry")[-1].send_keys(Keys.TAB)
    for name in names:
        assert shown.detail().startswith(f"{name}\n")
        shown.browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    shown.browser.switch_to.active_element.send_keys(Keys.HOME)
    assert shown.detail().startswith(f"{names[0]}\n")
    shown.browser.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert shown.detail().split("\n")[0] in names[1:]
    shown.one("body").send_keys("/")
    assert shown.browser.switch_to.active_element.get_attribute("id") == "q"


def test_what_hosts_and_variables_hold_stays_text(shown):
    assert shown.browser.title == shown.one("h1").text == f"Fleet {MARKUP}"
    assert any(title.text.startswith(HOSTILE) for title in shown.all("h3"))
    shown.tile("odd-1").click()
    assert shown.detail().count(HOSTILE) == 2
    shown.tile("<b>bold</b>").click()
    assert shown.detail().startswith("<b>bold</b>\n") and "<i>x</i> a/<u>b</u>" in shown.detail()
    assert not shown.all("main :is(img, u, script), #detail :is(img, b, i, u)")


def test_no_script_but_the_pages_own_runs(browser, page):
    browser.get(page.as_uri())
    browser.execute_script(
        "const script = document.createElement('script'); script.textContent = 'window.ran = 1';"
        "document.body.append(script); const image = new Image(); image.src = 'https://example.invalid/x.png';"
    )
    assert browser.execute_script("return window.ran") is None
    assert len([entry for entry in browser.get_log("browser") if "Content Security Policy" in entry["message"]]) == 2


# What tells a state from another without its colour, by state.
LOOKS = (
    "const look = (tile) => {const style = getComputedStyle(tile); return ["
    "getComputedStyle(tile, '::before').content, style.backgroundImage.split('(')[0],"
    "style.boxShadow !== 'none'];};"
    "return Object.fromEntries([...document.querySelectorAll('#states .entry')].map((entry) => ["
    "entry.dataset.key, look(entry.querySelector('.t')).join(' ')]));"
)


def test_states_differ_without_colour(shown):
    looks = shown.script(LOOKS)
    assert set(looks) == set(STATES) and len(set(looks.values())) == len(looks), looks


def test_what_gateways_report_differs_without_colour_and_has_its_reason(browser, tmp_path):
    lines = [Line(name, "", "", (("h200", 8),), "seen") for name in ("well", "sick", "drained", "drifted")]
    slot = {"digest": "b2", "plan": {"release": "0.33.0"}}
    changed = {"installed": True, "digest": "a1", "good": slot, "slots": [slot], "stale": False}
    lines = with_versions(lines, {"drifted": {"instances": {"chat": changed}}})
    entry = {"state": "ready", "up": True, "why": "", "owner": "", "reason": "", "since": ""}
    servers = {
        "well--chat": entry,
        "sick--chat": {**entry, "up": False, "why": "sick: isolate_host xid 79"},
        "drained--chat": {**entry, "state": "drain", "owner": "admin:alice", "reason": "new fans", "since": "today"},
    }
    path = tmp_path / "fleet.html"
    path.write_text(page_text(with_service(lines, {"gw": {"servers": servers}}), {}, "t", page_parts()))
    browser.get(path.as_uri())
    shown = FleetPage(browser)
    looks = shown.script(LOOKS)
    assert set(looks) == {"sick", "drained", "drifted", "serves"} and len(set(looks.values())) == 4, looks
    shown.tile("sick").click()
    assert "chat: down: sick: isolate_host xid 79" in shown.detail()
    shown.tile("drained").click()
    assert "drained by admin:alice since today: new fans" in shown.detail()
    shown.tile("drifted").click()
    assert "chat: its files differ from its last good state" in shown.detail()


def test_dark_light_and_print(shown):
    papers = set()
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        shown.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        papers.add(shown.script("return getComputedStyle(document.documentElement).backgroundColor"))
    assert len(papers) == 2
    shown.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    assert not shown.one("#q").is_displayed() and shown.tile("gpu-1").is_displayed()
    shown.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


@pytest.fixture
def every_state(browser, tmp_path):
    """The page of a small fleet with every state; the browser is as before afterwards."""
    path = tmp_path / "fleet.html"
    path.write_text(fleet.html())
    browser.get(path.as_uri())
    yield FleetPage(browser)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    browser.execute_cdp_cmd("Emulation.setEmulatedVisionDeficiency", {"type": "none"})


@pytest.mark.parametrize("width", [320, 390])
def test_on_a_phone(every_state, width):
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    every_state.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    assert every_state.script("return document.documentElement.scrollWidth") == width
    tile = every_state.tile("fra1-05")
    tile.click()
    assert "0.33.0 is planned" in every_state.detail()
    # The detail is in view without scrolling to it, and leaves half of the screen to the hosts.
    top, bottom = every_state.script(
        "const box = document.querySelector('#detail').getBoundingClientRect(); return [box.top, box.bottom];"
    )
    assert 844 / 2 <= top < bottom <= 845
    # A finger finds a host: 24 CSS pixels are the least that WCAG 2.2 asks for.
    assert tile.size["height"] >= 24 and tile.size["width"] >= 24
    for entry in every_state.all("#states .entry"):
        assert entry.size["height"] >= 20


# Each text's contrast with the first opaque background behind it, by WCAG; a canvas knows the sRGB of any CSS colour.
CONTRASTS = """
const context = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const rgba = (colour) => {
  context.clearRect(0, 0, 1, 1); context.fillStyle = colour; context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data];
};
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
  .map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const paper = (node) => {
  for (; node; node = node.parentElement) {
    const colour = rgba(getComputedStyle(node).backgroundColor);
    if (colour[3] === 255) return colour;
  }
  return [255, 255, 255];
};
const texts = document.querySelectorAll(
  'h1, #sum, #shown, .name, .n, h2, h3, h4, .total, .words > b, .words > i, #detail dt, #detail dd, #detail p');
return [...texts].filter((node) => node.offsetParent && node.textContent.trim()).map((node) => {
  const [a, b] = [light(rgba(getComputedStyle(node).color)), light(paper(node))].sort((x, y) => y - x);
  return [(a + .05) / (b + .05), node.className + ' ' + node.textContent.slice(0, 40)];
});
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(every_state, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    every_state.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    every_state.tile("fra1-02").click()
    found = every_state.script(CONTRASTS)
    assert len(found) > 60
    assert [entry for entry in found if entry[0] < 4.5] == []


@pytest.mark.parametrize("deficiency", ["protanopia", "deuteranopia", "tritanopia", "achromatopsia"])
def test_the_colour_blind_see_every_state(every_state, deficiency):
    """The pictures of any two states differ, as the browser simulates what these people see."""
    every_state.browser.execute_cdp_cmd("Emulation.setEmulatedVisionDeficiency", {"type": deficiency})
    tiles = every_state.all("#states .entry .t")
    pictures = {tile.screenshot_as_png for tile in tiles}
    assert len(pictures) == len(tiles) == len(STATES_OF_THE_PAGE)


def test_ten_thousand_hosts(browser, tmp_path):
    hosts = {f"gpu-{number:05}": {**H200, **SEEN, "cluster": f"c{number % 40}"} for number in range(10_000)}
    path = tmp_path / "fleet.html"
    # A script: Ansible takes a minute over as many hosts in YAML.
    (tmp_path / "hosts.json").write_text(json.dumps({"_meta": {"hostvars": hosts}, "all": {"hosts": list(hosts)}}))
    script = tmp_path / "hosts.sh"
    script.write_text('#!/bin/sh\nexec cat "${0%.sh}.json"\n')
    script.chmod(0o755)
    start = time.monotonic()
    output = run("-i", script, "-e", f"fleet_page={path}")
    written = time.monotonic()
    assert "10,000 hosts, 80,000 chips, 40 clusters, 1 site: 10,000 seen" in output
    assert len(output.splitlines()) < 70 and path.stat().st_size < 1_500_000
    browser.get(path.as_uri())
    large = FleetPage(browser)
    assert len(large.hosts()) == 10_000
    opened = time.monotonic()
    large.type("c7 gpu-00")
    assert len(large.hosts()) == 25
    done = time.monotonic()
    print(f"run {written - start:.1f} s, opened in {opened - written:.2f} s, filtered in {done - opened:.2f} s")
    assert done - written < 60
    assert large.tile("gpu-00007").text.startswith("gpu-00007")
