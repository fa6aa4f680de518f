# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ansible evaluates, judged by its own Templar on the ansible-core that runs this test."""

from __future__ import annotations

import json

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.templates import (
    EVALUATES_ALL,
    as_foreign,
    as_template,
    as_text,
    is_template,
    texts_of,
)

SUM = "{{ 2 + 3 }}"


def evaluated(value):
    """Return what a task sees of a variable with this value."""
    return Templar(loader=DataLoader(), variables={"value": value}).template(as_template("{{ value }}"))


def test_a_template_is_evaluated():
    assert str(evaluated(as_template(SUM))) == "5"
    assert is_template(as_template(SUM))


@pytest.mark.parametrize("mark", [as_text, as_foreign])
@pytest.mark.parametrize("value", [SUM, [SUM], {"key": [{"key": SUM}]}, {SUM: "x"}, 5, None, True], ids=repr)
def test_text_is_not(mark, value):
    assert evaluated(mark(value)) == value
    assert json.loads(json.dumps(mark(value))) == value


def test_text_is_no_template():
    assert not is_template(as_text(SUM))
    assert not is_template(as_template("plain {text}"))


def test_only_texts_of_ones_own_stay_as_they_are():
    value = {"key": [as_template(SUM), as_template("{{ 1 }}")]}
    kept, other = as_foreign(value, {*texts_of([SUM])})["key"]
    assert is_template(kept) and is_template(other) != EVALUATES_ALL
