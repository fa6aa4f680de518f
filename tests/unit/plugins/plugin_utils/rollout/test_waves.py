# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts go in which wave, what is refused, and when a rollout stops."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.waves import (
    Concerned,
    Pace,
    RolloutError,
    Serving,
    verdict,
    waves_of,
)


def cluster(name, hosts, services=("chat",)):
    return [Serving(f"{name}-{number}", name, list(services)) for number in range(hosts)]


def changing(serving, interrupted=()):
    return [Concerned(entry.host, entry.cluster, "old" if entry.host in interrupted else "") for entry in serving]


def hosts_of(waves):
    return [wave.all_hosts() for wave in waves]


def test_a_canary_goes_first_and_the_others_by_the_share():
    fra = cluster("fra", 9)
    waves = waves_of(changing(fra), fra, {"fra": Pace(1, ["25%"], 1)})
    assert [len(hosts) for hosts in hosts_of(waves)] == [1, 2, 2, 2, 2]
    assert [wave.canary for wave in waves] == [True, False, False, False, False]
    assert [host for hosts in hosts_of(waves) for host in hosts] == [entry.host for entry in fra]


def test_the_last_size_repeats():
    fra = cluster("fra", 8)
    waves = waves_of(changing(fra), fra, {"fra": Pace(1, [1, 3], 1)})
    assert [len(hosts) for hosts in hosts_of(waves)] == [1, 1, 3, 3]


def test_without_canaries_the_first_wave_is_as_large_as_the_others():
    fra = cluster("fra", 4)
    waves = waves_of(changing(fra), fra, {"fra": Pace(0, [2], 1)})
    assert hosts_of(waves) == [["fra-0", "fra-1"], ["fra-2", "fra-3"]]
    assert not any(wave.canary for wave in waves)


def test_what_was_interrupted_comes_first_alone_and_counts_as_a_canary():
    fra = cluster("fra", 4)
    waves = waves_of(changing(fra, ["fra-2"]), fra, {"fra": Pace(1, [2], 1)})
    assert hosts_of(waves) == [["fra-2"], ["fra-0"], ["fra-1", "fra-3"]]
    assert [wave.canary for wave in waves] == [True, True, False]


def test_clusters_one_after_the_other_or_side_by_side():
    fra, ber = cluster("fra", 3), cluster("ber", 2)
    paces = {"fra": Pace(1, [1], 1), "ber": Pace(1, [1], 1)}
    after = waves_of(changing(fra + ber), fra + ber, paces)
    assert hosts_of(after) == [["fra-0"], ["fra-1"], ["fra-2"], ["ber-0"], ["ber-1"]]
    beside = waves_of(changing(fra + ber), fra + ber, paces, "together")
    assert hosts_of(beside) == [["fra-0", "ber-0"], ["fra-1", "ber-1"], ["fra-2"]]
    assert [wave.canary for wave in beside] == [True, False, False]


def test_a_wave_that_leaves_a_service_without_servers_is_refused_with_hosts_and_minimum():
    fra = cluster("fra", 3)
    with pytest.raises(RolloutError) as refused:
        waves_of(changing(fra), fra, {"fra": Pace(0, [3], 1)})
    said = str(refused.value)
    assert "cluster fra: a wave of fra-0, fra-1, fra-2 leaves none of 3 servers for the service chat" in said
    assert "and rollout_min_available is 1" in said
    assert "rollout_min_available: 0" in said


def test_servers_that_do_not_change_count_as_those_that_stay():
    fra = cluster("fra", 3)
    assert hosts_of(waves_of(changing(fra[:2]), fra, {"fra": Pace(0, [2], 1)})) == [["fra-0", "fra-1"]]


def test_each_service_is_looked_at_for_itself():
    fra = [*cluster("fra", 3), Serving("fra-x", "fra", ["embed"])]
    with pytest.raises(RolloutError, match="leaves none of 1 servers for the service embed"):
        waves_of(changing(fra), fra, {"fra": Pace(1, [1], 1)})


def test_a_service_may_be_out_where_that_is_allowed():
    fra = cluster("fra", 1)
    assert hosts_of(waves_of(changing(fra), fra, {"fra": Pace(1, [1], 0)})) == [["fra-0"]]


def test_a_wave_larger_than_its_cluster_is_refused():
    fra = cluster("fra", 3)
    with pytest.raises(RolloutError, match=r"cluster fra: rollout_waves\[1\] is 4, and the cluster has 3 hosts"):
        waves_of(changing(fra), fra, {"fra": Pace(1, [1, 4], 1)})


def test_all_problems_of_all_clusters_are_said_at_once():
    fra, ber = cluster("fra", 2), cluster("ber", 2)
    with pytest.raises(RolloutError) as refused:
        waves_of(changing(fra + ber), fra + ber, {"fra": Pace(5, ["x"], 1), "ber": Pace(1, [3], -1)})
    assert len(str(refused.value).splitlines()) == 4


def test_hosts_without_a_cluster_are_told_in_words():
    lone = cluster("", 1)
    with pytest.raises(RolloutError, match="the hosts without a cluster: a wave"):
        waves_of(changing(lone), lone, {"": Pace()})


def told(*waves):
    return [{"canary": canary, "hosts": {"fra": list(hosts)}} for canary, hosts in waves]


def test_a_canary_that_fails_stops_it_whatever_the_limit():
    assert "a went first and failed" in verdict(told((True, "a"), (False, "bc")), 0, {"a": "fra"}, {"fra": 9})


def test_failures_up_to_the_limit_do_not_stop_it():
    waves = told((True, "a"), (False, "bc"), (False, "de"))
    assert verdict(waves, 1, {"b": "fra"}, {"fra": 1}) == ""
    said = verdict(waves, 2, {"b": "fra", "d": "fra"}, {"fra": 1})
    assert said == "cluster fra: b, d failed, and rollout_max_failures is 1"
    # A canary has no part in the limit.
    assert verdict(waves, 1, {"a": "fra", "b": "fra"}, {"fra": 1}) == ""


def test_a_wave_that_went_well_stops_nothing():
    assert verdict(told((True, "a"), (False, "bc")), 1, {}, {"fra": 0}) == ""


def test_ten_thousand_hosts_are_decided_on_at_once():
    fra = cluster("fra", 10_000)
    waves = waves_of(changing(fra), fra, {"fra": Pace(1, ["5%"], 100)})
    assert len(waves) == 21
    assert sum(len(hosts) for hosts in hosts_of(waves)) == 10_000
