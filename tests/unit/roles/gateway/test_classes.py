# SPDX-License-Identifier: GPL-3.0-or-later
"""A class of teams has the same name in the plan, in HAProxy's Lua, in the role's variables and on the page."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.admission import CLASSES

TOP = Path(__file__).resolve().parents[4]
LUA = (TOP / "roles/gateway/files/gateway-admission.lua").read_text(encoding="utf-8")


def keys_of(table):
    """Return the keys of a table of one line, such as ``local BOUNDS = { gold = 4, standard = 2 }``."""
    (line,) = re.findall(rf"^local {table} = (.+)$", LUA, re.MULTILINE)
    return re.findall(r"(\w+) = ", line)


def test_lua_knows_every_class_in_every_table():
    assert {table: tuple(keys_of(table)) for table in ("BOUNDS", "RETRY_AFTER", "HIGHER")} == dict.fromkeys(
        ("BOUNDS", "RETRY_AFTER", "HIGHER"), CLASSES
    )


def test_a_class_counts_itself_and_those_above():
    (line,) = re.findall(r"^local HIGHER = (.+)$", LUA, re.MULTILINE)
    for place, name in enumerate(CLASSES, 1):
        (listed,) = re.findall(rf"\b{name} = {{([^}}]*)}}", line)
        assert re.findall(r'"(\w+)"', listed) == list(CLASSES[:place])


def test_each_class_has_its_place_in_the_order_of_the_engine():
    variables = yaml.safe_load((TOP / "roles/gateway/vars/main.yml").read_text(encoding="utf-8"))
    order = variables["__gateway_class_order"]
    assert tuple(sorted(order, key=order.get)) == CLASSES


def test_each_class_is_described():
    specs = (TOP / "roles/gateway/meta/argument_specs.yml").read_text(encoding="utf-8")
    page = (TOP / "docs/operate/fair.md").read_text(encoding="utf-8")
    assert [name for name in CLASSES if f"C({name})" not in specs or f"| `{name}` |" not in page] == []
