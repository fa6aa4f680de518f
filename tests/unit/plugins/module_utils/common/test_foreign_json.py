# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.foreign_json import load_json


def test_texts_and_bytes_are_read():
    assert load_json('{"a": [1]}') == load_json(b'{"a": [1]}') == {"a": [1]}


@pytest.mark.parametrize(
    "text", ["", "{", "\ud800", b"\xff\xfe\xff", "[" * 100_000, '{"a":' * 100_000, '{"a": ' + "9" * 5000 + "}"]
)
def test_what_cannot_be_read_is_a_value_error(text):
    with pytest.raises(ValueError):
        load_json(text)
