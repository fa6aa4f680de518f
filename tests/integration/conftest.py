# SPDX-License-Identifier: GPL-3.0-or-later
"""What several of these tests share."""

from __future__ import annotations

import pytest

from tests.integration.browser import start


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A browser for all tests of a file."""
    with start(tmp_path_factory.mktemp("browser")) as driver:
        yield driver
