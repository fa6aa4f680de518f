# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ansible evaluates, judged by its own Templar on the ansible-core that runs this test."""

from __future__ import annotations

import json

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.templates import (
    as_foreign,
    as_template,
    as_text,
    is_template,
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


def test_what_ansible_has_read_from_yaml_stays_as_it_is(tmp_path):
    path = tmp_path / "hosts.yml"
    path.write_text(f'value: "{SUM}"\n')
    value = DataLoader().load_from_file(str(path))["value"]
    assert is_template(as_foreign(value)) == is_template(value)
    assert type(as_foreign(value)) is type(value)
