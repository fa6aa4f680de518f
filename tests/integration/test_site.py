# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation site in a browser, from files and without a network: its search, its version, light and dark.

It builds the pages of the site. Set SITE_SCREENSHOTS to a directory to keep what the browser showed.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from urllib.parse import quote_plus

import pytest

from tests.integration import browser as browsers
from tests.unit.docs.test_common_tasks import SEARCHES
from tests.unit.docs.test_search import QUERIES
from tools.site.build import collection_settings

TOP = Path(__file__).resolve().parents[2]
HTML = TOP / ".cache/site/html"
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def site():
    subprocess.run(["tools/site.sh", "--pages-only"], cwd=TOP, check=True, capture_output=True, timeout=1800)
    return HTML.as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = browsers.start(tmp_path_factory.mktemp("browser"))
    try:
        browsers.forget(started)
        yield started
    finally:
        started.quit()


def keep(browser, name):
    if os.environ.get("SITE_SCREENSHOTS"):
        browser.save_screenshot(str(Path(os.environ["SITE_SCREENSHOTS"]) / f"{name}.png"))


def results(page, seconds=60.0):
    """Return the pages that the search shows, best first."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        summary = (
            page.one("#search-results .search-summary").text if page.all("#search-results .search-summary") else ""
        )
        if "found" in summary or "did not match" in summary:
            return [link.get_attribute("href") for link in page.all("#search-results ul.search li > a")]
        time.sleep(0.2)
    raise AssertionError("the search shows no result")


@pytest.mark.parametrize("words", SEARCHES)
def test_the_search_finds_the_task(site, browser, words):
    browser.get(f"{site}/search.html?q={quote_plus(words)}")
    found = results(browsers.Page(browser))
    keep(browser, f"search-{words.replace(' ', '-')}")
    assert any("/docs/operate/common-tasks.html" in link for link in found[:3]), found[:5]


def test_a_word_of_readers_leads_to_its_page(site, browser):
    missed = {}
    for words, page in QUERIES.items():
        browser.get(f"{site}/search.html?q={quote_plus(words)}")
        found = results(browsers.Page(browser))
        if not any(f"/docs/{page.removesuffix('.md')}.html" in link for link in found):
            missed[words] = found[:3]
    assert missed == {}


def test_commands_are_copied_without_prompt_and_output(site, browser):
    browser.get(f"{site}/docs/operate/drain.html")
    page = browsers.Page(browser)
    copied = page.script(
        "const found = []; document.execCommand = () => { found.push(document.activeElement.value); return true; };"
        "for (const button of document.querySelectorAll('button.copybtn')) button.click(); return found;"
    )
    assert copied[0].splitlines() == [
        "ansible-playbook -i inventories/SITE playbooks/drain.yml -l HOSTS -e drain_reason='new fans'",
        "ansible-playbook -i inventories/SITE playbooks/undrain.yml -l HOSTS",
        "ansible-playbook -i inventories/SITE playbooks/gateway_status.yml",
    ]


def test_the_site_asks_no_network_and_fits_a_phone(site, browser):
    for name, width in (("wide", 1400), ("phone", 390)):
        browser.set_window_size(width, 900)
        for path in ("index.html", "docs/operate/common-tasks.html", "docs/explain/architecture.html"):
            browser.get(f"{site}/{path}")
            keep(browser, f"{name}-{Path(path).stem}")
            page = browsers.Page(browser)
            assert page.script("return document.documentElement.scrollWidth <= window.innerWidth"), (name, path)
    assert [address for address in browsers.requests_of(browser) if not address.startswith(("file:", "data:"))] == []


def test_each_page_names_the_version_and_one_lists_all(site, browser):
    version = collection_settings()["version"]
    browser.set_window_size(1400, 900)
    for path in ("index.html", "docs/operate/drain.html", "versions.html", "search.html"):
        browser.get(f"{site}/{path}")
        assert browsers.Page(browser).text(".sidebar-brand-text") == f"baremetal.inference {version}", path
    browser.get(f"{site}/versions.html")
    keep(browser, "versions")
    rows = [row.text for row in browsers.Page(browser).all("article tbody tr")]
    # The version in the making has no notes yet.
    assert len(rows) > 3
    assert [row for row in rows if "this site" in row] == rows[: rows[0].startswith(version)]
    browsers.Page(browser).one("article tbody a").click()
    assert "CHANGELOG.html#" in browser.current_url
    assert browsers.Page(browser).all("[id='" + browser.current_url.partition("#")[2] + "']")


@pytest.mark.parametrize("system", ["light", "dark"])
def test_the_button_changes_text_and_pictures(site, browser, system):
    media = {"features": [{"name": "prefers-color-scheme", "value": system}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.set_window_size(1400, 900)
    browser.get(f"{site}/docs/explain/architecture.html")
    page = browsers.Page(browser)
    page.script("localStorage.clear()")
    browser.refresh()
    shown = {}
    for _click in range(3):
        name = page.script("return document.body.dataset.theme")
        shown[name] = {
            "text": luminance(page, "body", "backgroundColor"),
            "picture": luminance(page, "article img", "backgroundColor"),
            "scheme": page.script("return getComputedStyle(document.querySelector('article img')).colorScheme"),
        }
        keep(browser, f"theme-{system}-{name}")
        page.one(".content-icon-container .theme-toggle, .theme-toggle-content .theme-toggle").click()
    assert set(shown) == {"auto", "light", "dark"}
    assert shown["auto"] == shown[system]
    assert shown["light"]["text"] > 200 and shown["light"]["picture"] > 200 and shown["light"]["scheme"] == "light"
    assert shown["dark"]["text"] < 60 and shown["dark"]["picture"] < 60 and shown["dark"]["scheme"] == "dark"


def luminance(page, selector, style):
    """Return how light a colour of an element is, from 0 to 255."""
    colour = page.script(f"return getComputedStyle(document.querySelector(arguments[0])).{style}", selector)
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / 3
