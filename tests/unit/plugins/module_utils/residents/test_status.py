# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.residents.status import (
    Status,
    is_sleeping,
    parse_status,
)

WHOLE = {
    "process": "a", "version": 3, "asleep": None, "closed": True, "running": 1, "waiting": 2, "waited": 0, "quiet": 1.5,
}  # fmt: skip


def test_a_status_is_read():
    assert parse_status({**WHOLE, "more": 1}) == Status("a", 3, None, True, 1, 2, 0, 1.5)


@pytest.mark.parametrize("document", [[], {}, None, 7, "x", [WHOLE]])
def test_what_is_no_status_is_an_error(document):
    with pytest.raises(ValueError, match="expected"):
        parse_status(document)


@pytest.mark.parametrize("value", [[], {}, "x", 1.5j])
@pytest.mark.parametrize("name", WHOLE)
def test_a_value_of_another_kind_is_named(name, value):
    if name == "process" and value == "x":
        return
    with pytest.raises(ValueError, match=f"^{name}: found "):
        parse_status({**WHOLE, name: value})


def test_true_is_no_number():
    with pytest.raises(ValueError, match=r"^running: found 'True', expected int"):
        parse_status({**WHOLE, "running": True})


@pytest.mark.parametrize("document", [[], {}, {"is_sleeping": 1}, None])
def test_what_is_no_answer_about_sleep_is_an_error(document):
    assert is_sleeping({"is_sleeping": True}) is True
    with pytest.raises(ValueError, match="is_sleeping"):
        is_sleeping(document)
