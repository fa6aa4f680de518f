# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts a rollout changes together, and when they cannot be."""

from __future__ import annotations

import time

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.inventory import (
    concerned_of,
    describe_plan,
    turns_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.units import (
    check_units,
    groups_seen,
    touched,
    units_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.waves import (
    Pace,
    RolloutError,
    Serving,
    verdict,
    waves_of,
)


def host(cluster="fra", role="head", changes=("big",), interrupted="", nodes=("a", "b"), **more):
    """Return what was read of a host that serves big together with others."""
    return {
        "cluster": cluster,
        "groups": {"big": {"hosts": list(nodes), "role": role}} if nodes else {},
        "changes": {name: {} for name in changes},
        "concerned": bool(changes or interrupted),
        "interrupted": interrupted,
        "words": "; ".join(changes),
        "instances": ["big"],
        "servers": ["big"] if role != "worker" else [],
        "states": {"big": "old"},
        "installed": {"big": "old"},
        **more,
    }


def units_in(seen):
    return units_of(groups_seen(seen, {*seen, "b"}))


def test_groups_that_share_a_host_are_one_unit():
    units = units_of([["a", "b"], ["c", "d"], ["a", "b"], ["e", "f"], ["d", "e"]])
    assert units["a"] == units["b"] == ["a", "b"]
    assert units["c"] is units["f"] and sorted(units["f"]) == ["c", "d", "e", "f"]


def test_a_host_without_a_change_goes_with_its_group():
    seen = {"a": host(), "b": host(role="worker", changes=()), "c": host(changes=(), nodes=())}
    found = concerned_of(["c", "b", "a"], seen, units_in(seen))
    assert [each.host for each in found] == ["b", "a"]
    assert touched("b", seen) == ["big"] and touched("c", seen) == []


def test_what_was_interrupted_on_one_host_starts_again_on_all():
    seen = {"a": host(changes=()), "b": host(role="worker", changes=(), interrupted="r1")}
    assert [each.host for each in concerned_of(["a", "b"], seen, units_in(seen))] == ["a", "b"]
    assert touched("a", seen) == ["big"]


def test_a_part_of_a_group_is_refused_and_names_the_others():
    seen = {"a": host()}
    with pytest.raises(RolloutError, match=r"^a: big spans hosts that this run leaves out: b; .* with target_hosts"):
        concerned_of(["a"], seen, units_in(seen))
    # An installed group may still name a host that the inventory no longer has.
    units = units_of(groups_seen(seen, {"a"}))
    assert [each.host for each in concerned_of(["a"], seen, units)] == ["a"]
    # A group that nothing changes may be left out in part.
    same = {"a": host(changes=())}
    assert concerned_of(["a"], same, units_in(same)) == []


def test_hosts_that_one_host_names_alone_go_their_own_ways():
    """A host that is taken over named nine others, and all of them were the canary."""
    names = [f"gpu-{number:02}" for number in range(1, 11)]
    seen = {name: host(nodes=(), servers=["big"]) for name in names}
    seen["gpu-07"] = host(nodes=names[:9])
    serving = [Serving(name, "fra", ["big"]) for name in names]

    def waves():
        units = units_of(groups_seen(seen, set(names)))
        found = waves_of(concerned_of(names, seen, units), serving, {"fra": Pace(1, [3])}, units=units)
        turns = turns_of(found, seen, units, {}, {})
        return [wave.all_hosts() for wave in found], [name for name in turns if len(turns[name]["members"]) > 1]

    assert waves() == ([names[:1], names[1:4], names[4:7], names[7:]], [])
    # Not even the host itself is in it.
    seen["gpu-07"] = host(nodes=["gpu-01"])
    assert waves() == ([names[:1], names[1:4], names[4:7], names[7:]], [])
    # These two name each other.
    seen["gpu-01"] = host(nodes=["gpu-01", "gpu-07"])
    seen["gpu-07"] = host(nodes=names)
    assert waves() == ([["gpu-01", "gpu-07"], *(names[1:4], [*names[4:6], names[7]], names[8:])], ["gpu-01", "gpu-07"])


def test_hosts_that_one_host_names_alone_stay_as_they_are():
    seen = {"a": host(), "b": host(nodes=(), changes=())}
    assert [each.host for each in concerned_of(["a", "b"], seen, units_in(seen))] == ["a"]


def test_a_group_over_two_clusters_is_refused():
    seen = {"a": host(), "b": host(cluster="")}
    with pytest.raises(RolloutError, match=r"big spans several clusters \(a in fra, b in \(none\)\)"):
        check_units(["a"], seen, units_in(seen))


def fleet(groups, size):
    """Return what was read of a fleet of groups, and its hosts as gateways see them."""
    names = [[f"g{number}-{rank}" for rank in range(size)] for number in range(groups)]
    seen = {
        name: host(role="worker" if rank else "head", nodes=hosts) for hosts in names for rank, name in enumerate(hosts)
    }
    serving = [Serving(name, "fra", entry["servers"]) for name, entry in seen.items()]
    return seen, serving


def test_waves_count_a_group_as_one_host():
    seen, serving = fleet(5, 2)
    units = units_of(groups_seen(seen, seen))
    waves = waves_of(concerned_of(list(seen), seen, units), serving, {"fra": Pace(1, [2])}, units=units)
    assert [wave.all_hosts() for wave in waves] == [
        ["g0-0", "g0-1"],
        ["g1-0", "g1-1", "g2-0", "g2-1"],
        ["g3-0", "g3-1", "g4-0", "g4-1"],
    ]
    with pytest.raises(RolloutError, match="rollout_canaries is 6, and the cluster has 5 hosts"):
        waves_of(concerned_of(list(seen), seen, units), serving, {"fra": Pace(6, [2])}, units=units)
    with pytest.raises(RolloutError, match="leaves none of 5 servers for the service big"):
        waves_of(concerned_of(list(seen), seen, units), serving, {"fra": Pace(5, [2])}, units=units)


def test_an_interrupted_group_goes_first_as_a_whole():
    seen, serving = fleet(3, 2)
    seen["g1-1"]["interrupted"] = "r1"
    units = units_of(groups_seen(seen, seen))
    waves = waves_of(concerned_of(list(seen), seen, units), serving, {"fra": Pace(1, [1])}, units=units)
    assert [wave.all_hosts() for wave in waves] == [["g1-0", "g1-1"], ["g0-0", "g0-1"], ["g2-0", "g2-1"]]


def test_a_group_that_failed_is_one_failure():
    waves = [{"canary": False, "hosts": {"fra": ["a", "b", "c"]}}]
    lost = {"a": "fra", "b": "fra"}
    assert verdict(waves, 0, lost, {"fra": 1}, {"a": "a", "b": "a", "c": "c"}) == ""
    assert "a, b failed, and rollout_max_failures is 1" in verdict(waves, 0, lost, {"fra": 1})


def test_the_turn_of_each_host_of_a_group():
    seen = {
        "a": host(changes=("big",)),
        "b": host(role="worker", changes=(), installed={"big": "two"}, states={"big": "two", "chat": "one"}),
    }
    units = units_in(seen)
    serving = [Serving(name, "fra", ["big"]) for name in "abc"]
    waves = waves_of(concerned_of(["a", "b"], seen, units), serving, {"fra": Pace(1)}, units=units)
    turns = turns_of(waves, seen, units, {}, {})
    assert [turns[name]["members"] for name in "ab"] == [["a", "b"]] * 2
    assert [turns[name]["servers"] for name in "ab"] == [["a--big"], []]
    assert [turns[name]["asked"] for name in "ab"] == [["big"], []]
    assert turns["b"]["restarts"] == ["big"] and turns["b"]["words"] == "big: started again together with a"
    # What starts again keeps its state in a rollback, and goes back to it where the change fails.
    assert (turns["b"]["before"], turns["b"]["to"]) == ({"big": "two"}, {"big": "two"})
    seen["b"]["changes"] = {"big": {"to": "one"}}
    seen["b"]["interrupted"] = "r1"
    again = turns_of(waves, seen, units, {}, {})["b"]
    assert (again["before"], again["to"]) == ({}, {"big": "one"})


def test_sixty_four_groups_of_eight_are_decided_on_at_once():
    seen, serving = fleet(64, 8)
    began = time.process_time()
    units = units_of(groups_seen(seen, seen))
    waves = waves_of(concerned_of(list(seen), seen, units), serving, {"fra": Pace(1, ["25%"])}, units=units)
    turns = turns_of(waves, seen, units, {}, {})
    assert len(turns) == 512 and [len(wave.all_hosts()) for wave in waves] == [8, 128, 128, 128, 120]
    said = describe_plan(waves, turns, "change")
    assert "changed together, as one: g0-0, g0-1, g0-2, g0-3, g0-4, g0-5, g0-6, g0-7" in said
    assert "and 60 more groups of hosts, each of them as one" in said
    assert time.process_time() - began < 5
