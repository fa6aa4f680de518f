# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.instance.systemd import parse_properties, parse_units

TEXT = """Id=vllm@a.service
ActiveState=active
ExecStart={ path=/x ; argv[]=/x --a=b ; }

Id=vllm@b.service
ActiveState=inactive
InvocationID=
"""


def test_a_value_may_hold_an_equals_sign_or_nothing():
    assert parse_properties(TEXT.split("\n\n", maxsplit=1)[0])["ExecStart"] == "{ path=/x ; argv[]=/x --a=b ; }"
    assert parse_units(TEXT)["vllm@b.service"]["InvocationID"] == ""


def test_units_are_found_by_their_id_and_a_block_without_one_is_none():
    assert list(parse_units(TEXT + "\nActiveState=active\n")) == ["vllm@a.service", "vllm@b.service"]
    assert parse_units("") == {}
