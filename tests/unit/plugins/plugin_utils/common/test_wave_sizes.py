# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.wave_sizes import WaveSizeError, size_of


@pytest.mark.parametrize(("entry", "size"), [("25%", 2), ("1%", 1), ("100 %", 8), (3, 3), ("3", 3)])
def test_sizes(entry, size):
    assert size_of(entry, 8) == size


@pytest.mark.parametrize("entry", [0, "0", -1, "0%", "101%", "half", "²", True, "9" * 5000, 1.5, None, "٣"])
def test_what_is_no_size(entry):
    with pytest.raises(WaveSizeError, match="expected a number of hosts above 0, or a share such as 25%"):
        size_of(entry, 8)
