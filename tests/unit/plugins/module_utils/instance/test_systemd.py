# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.instance.systemd import (
    Unit,
    parse_properties,
    parse_unit,
    parse_units,
)

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


def test_a_unit_says_whether_it_runs_since_when_and_how_long_its_start_took():
    found = {
        "ActiveState": "active", "SubState": "running", "InvocationID": "a1", "NRestarts": "2",
        "InactiveExitTimestampMonotonic": "60000000", "ActiveEnterTimestampMonotonic": "95500000",
    }  # fmt: skip
    unit = parse_unit(found)
    assert unit == Unit("active", "running", "a1", 2, 60.0, 95.5) and unit.is_active and unit.start_seconds == 35.5
    # It starts again: the times are those of the start before.
    assert parse_unit({**found, "ActiveState": "activating"}).start_seconds is None
    assert parse_unit({**found, "InactiveExitTimestampMonotonic": "99000000"}).start_seconds is None


def test_properties_that_systemd_does_not_print_count_as_empty():
    assert parse_unit({"ActiveState": "inactive", "NRestarts": ""}) == Unit("inactive", "", "")
    assert not parse_unit({}).is_active
