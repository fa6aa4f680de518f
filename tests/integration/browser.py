# SPDX-License-Identifier: GPL-3.0-or-later
"""A browser without a head, and what it has asked networks for."""

from __future__ import annotations

import json
import shutil

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1400,900",
)  # fmt: skip


def start(directory):
    """Return a browser with nothing of anybody's in it; the driver is the system's own, so that nothing is fetched."""
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if not all(programs):
        pytest.fail("this needs the packages chromium and chromium-driver (tools/bootstrap.sh installs them)")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for flag in (*FLAGS, f"--user-data-dir={directory}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(programs[1]))


def forget(browser):
    """Forget what the browser shows at its start, which is its own, and all that was told until now."""
    browser.get("about:blank")
    for kind in ("browser", "performance"):
        browser.get_log(kind)


def requests_of(browser):
    """Return the addresses that were asked for since."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]


class Page:
    """What a user sees and does."""

    def __init__(self, browser):
        self.browser = browser

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def script(self, text, *values):
        return self.browser.execute_script(text, *values)

    def text(self, selector):
        return self.one(selector).text

    def type(self, text):
        field = self.one("#q")
        field.clear()
        field.send_keys(text)

    def settle(self):
        """Wait until the page has shown what was done to it; it works once per frame."""
        self.browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
