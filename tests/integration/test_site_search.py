# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The search of the documentation site finds what strangers look for, in a browser, from files and without a network.

It builds the pages of the site. Set SITE_SCREENSHOTS to a directory to keep what the browser showed.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from urllib.parse import quote_plus

import pytest

from tests.integration import browser as browsers
from tests.unit.docs.test_common_tasks import SEARCHES

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


def test_the_site_asks_no_network_and_fits_a_phone(site, browser):
    for name, width in (("wide", 1400), ("phone", 390)):
        browser.set_window_size(width, 900)
        for path in ("index.html", "docs/operate/common-tasks.html", "docs/explain/architecture.html"):
            browser.get(f"{site}/{path}")
            keep(browser, f"{name}-{Path(path).stem}")
            page = browsers.Page(browser)
            assert page.script("return document.documentElement.scrollWidth <= window.innerWidth"), (name, path)
    assert [address for address in browsers.requests_of(browser) if not address.startswith(("file:", "data:"))] == []
