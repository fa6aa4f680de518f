# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.option_ranges import RANGES, Range


@pytest.mark.parametrize(
    ("limits", "words"), [(Range(0), "from 0"), (Range(1, 65535), "from 1 to 65535"), (Range(0.5, 2), "from 0.5 to 2")]
)
def test_a_range_in_words(limits, words):
    assert limits.describe() == words


def test_no_range_is_empty():
    assert [name for name, limits in RANGES.items() if limits.least >= limits.most] == []
