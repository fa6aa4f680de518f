# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines about what goes."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.removal.model import Item, describe, format_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (5 << 40, "5.0 TiB")],
)
def test_bytes_for_people(count, text):
    assert format_bytes(count) == text


def test_a_line_names_what_where_and_how_much():
    assert describe(Item("model", "a/b", "/srv/models/a/b/1", 2048)) == "model a/b /srv/models/a/b/1 (2.0 KiB)"
    assert describe(Item("image", "a:1", "a:1", 1, "docker")) == "image a:1 (1 bytes), docker"
