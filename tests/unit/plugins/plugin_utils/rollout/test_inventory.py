# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout reads of the inventory, the hosts and earlier journals; test_units.py plans hosts of one instance."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout import inventory
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.journal import JOURNAL, append
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.waves import RolloutError, Wave


def seen(cluster="fra", changes=(), interrupted="", canaries=1, **more):
    return {
        "cluster": cluster, "groups": {}, "changes": {name: {"to": f"{name}-old"} for name in changes},
        "concerned": bool(changes or interrupted), "interrupted": interrupted, "words": "; ".join(changes),
        "instances": ["chat"], "servers": ["chat"], "states": {"chat": "s1", "code": "s2"}, "installed": {},
        "options": {"canaries": canaries, "waves": [50], "min_available": 1, "order": "clusters", "state_dir": "/x"},
        **more,
    }  # fmt: skip


SEEN = {"a": seen(changes=["chat"]), "b": seen(), "c": seen("muc", interrupted="rollout 1"), "d": seen("muc")}
GROUPS = {"inference": ["a", "b", "c", "d"], "gateways": ["gw-2", "gw-1"]}
VARIABLES = {
    **{host: {"cluster": entry["cluster"]} for host, entry in SEEN.items()},
    "gw-1": {"gateway_cluster": "fra"}, "gw-2": {"gateway_cluster": "fra"},
}  # fmt: skip


def test_hosts_that_change_or_were_interrupted_are_concerned_in_the_inventorys_order():
    found = inventory.concerned_of(["d", "c", "b", "a", "new"], SEEN, {})
    assert [(each.host, each.cluster) for each in found] == [("c", "muc"), ("a", "fra")]
    assert {cluster: list(hosts) for cluster, hosts in inventory.by_cluster(SEEN).items()} == {
        "fra": ["a", "b"], "muc": ["c", "d"],
    }  # fmt: skip
    assert inventory.with_clusters({"a": {"x": 1}}, GROUPS, VARIABLES) == {"a": {"x": 1, "cluster": "fra"}}


def test_options_are_shared_by_the_hosts_of_a_cluster():
    assert inventory.pace_of({"a": seen(), "b": seen()}).canaries == 1
    with pytest.raises(
        RolloutError, match=r"rollout_canaries is 1 for a and 2 for b: set the same .* hosts of a cluster"
    ):
        inventory.pace_of({"a": seen(), "b": seen(canaries=2)})
    other = seen()
    other["options"]["order"] = "hosts"
    with pytest.raises(RolloutError, match="set the same value for all hosts of the rollout"):
        inventory.shared_option("order", {"a": seen(), "b": other})


def turns():
    waves = [Wave(True, {"fra": ["a"]}), Wave(False, {"muc": ["c"]})]
    return waves, inventory.turns_of(waves, SEEN, {}, GROUPS, VARIABLES)


def test_each_host_has_its_wave_gateways_and_what_a_rollback_restores():
    _waves, found = turns()
    assert (found["a"]["wave"], found["a"]["gateways"], found["a"]["servers"]) == (0, ["gw-2", "gw-1"], ["a--chat"])
    assert found["a"]["to"] == {"chat": "chat-old"} and found["a"]["members"] == ["a"]
    assert found["a"]["words"] == "chat" and found["c"]["words"] == "go on after rollout 1"
    assert found["c"]["gateways"] == []


def test_a_lock_lies_on_the_first_gateway_or_the_first_host_of_a_cluster():
    _waves, found = turns()
    assert inventory.lock_hosts(found, GROUPS, VARIABLES) == {"fra": "gw-1", "muc": "c"}
    assert inventory.lock_hosts({"d": {"cluster": "muc"}}, GROUPS, VARIABLES) == {"muc": "c"}, "whoever takes part"


def test_the_announcement_has_a_line_for_each_change_and_each_wave():
    waves, found = turns()
    assert inventory.describe_plan(waves, found, "rollout") == [
        "changes on a: chat", "changes on c: go on after rollout 1",
        "behind no gateway, so the rollout can only wait for requests that already run: c",
        "wave 1 of 2 (canary): a", "wave 2 of 2: c",
    ]  # fmt: skip
    assert inventory.describe_plan(waves, found, "rollback")[0].startswith("goes back on a")
    many = {str(n): {"words": "", "gateways": ["g"], "members": [f"{n}", f"{n}x"]} for n in range(6)}
    assert "and 2 more groups of hosts, each of them as one" in inventory.describe_plan([], many, "rollout")


def test_a_journal_begins_with_the_plan_and_the_states_of_what_changes():
    waves, found = turns()
    begun, *hosts = inventory.events_of("r1", waves, found, SEEN, {"by": "me"})
    assert (begun["clusters"], begun["waves"], begun["by"]) == (["fra", "muc"], [["a"], ["c"]], "me")
    assert begun["summary"] == "chat (1 hosts) | go on after rollout 1 (1 hosts)"
    assert hosts[0]["states"] == {"chat": "s1"} and hosts[0]["others"] == ""
    assert hosts[1]["others"] == "go on after rollout 1"


def journal(directory, name, steps, result="", **begun):
    """Write a journal; ``steps`` has by host the states before and after, and the last step."""
    (directory / name).mkdir()
    path = str(directory / name / JOURNAL)
    append(path, {"event": "begun", "id": name, "kind": "rollout", **begun})
    for host, (before, after, step) in steps.items():
        append(path, {"event": "host", "host": host, "cluster": "fra", "states": {"chat": before}})
        if step:
            append(path, {"event": "step", "host": host, "step": step, "states": {"chat": after}})
    if result:
        append(path, {"event": "ended", "result": result})


def test_a_rollback_undoes_a_rollout_and_those_that_it_continued(tmp_path):
    journal(tmp_path, "r1", {"a": ("1", "2", "done"), "b": ("1", "", "")})
    journal(tmp_path, "r2", {"a": ("2", "3", "done"), "b": ("1", "3", "done")}, "done", resumes=["r1", "gone"])
    journal(tmp_path, "r3", {"a": ("3", "2", "done")}, "done", kind="rollback", resumes=["r2"])
    (tmp_path / "r4").mkdir()
    expected = {"a": {"chat": {"before": "1", "after": "3"}}, "b": {"chat": {"before": "1", "after": "3"}}}
    assert inventory.undone_by("last", str(tmp_path)) == inventory.undone_by("r2", str(tmp_path)) == expected
    assert inventory.undone_by("r1", str(tmp_path)) == {"a": {"chat": {"before": "1", "after": "2"}}}
    # Journals that continue each other, as a wrong one may say.
    journal(tmp_path, "r5", {"a": ("1", "2", "done")}, "done", resumes=["r5", "r6"])
    journal(tmp_path, "r6", {"a": ("2", "3", "done")}, "done", resumes=["r5"])
    assert inventory.undone_by("last", str(tmp_path)) == {"a": {"chat": {"before": "1", "after": "3"}}}


def test_a_rollout_that_this_controller_does_not_know_is_named(tmp_path):
    with pytest.raises(RolloutError, match=f"no rollout 'last' in {tmp_path} on this controller; there is none"):
        inventory.undone_by("last", str(tmp_path))
    journal(tmp_path, "20260101-1", {"a": ("1", "2", "done")})
    with pytest.raises(RolloutError, match=r"no rollout '20260101-2' .*; nearest: '20260101-1'"):
        inventory.undone_by("20260101-2", str(tmp_path))


def test_hosts_that_a_broken_rollback_has_returned_are_left_out_the_next_time(tmp_path):
    assert inventory.returned_by(str(tmp_path / "none")) == []
    journal(tmp_path, "r1", {"a": ("1", "2", "done")}, "done")
    assert inventory.returned_by(str(tmp_path)) == []
    journal(tmp_path, "r2", {"a": ("2", "1", "done"), "b": ("2", "1", "drain")}, kind="rollback")
    assert inventory.returned_by(str(tmp_path)) == ["a"]
    journal(tmp_path, "r3", {"a": ("2", "1", "done")}, "done", kind="rollback")
    assert inventory.returned_by(str(tmp_path)) == []


def test_known_rollouts_have_ended_run_or_broke_off(tmp_path):
    journal(tmp_path, "r1", {"a": ("1", "2", "done")}, "done", locks={"fra": "gw-1"})
    journal(tmp_path, "r2", {"b": ("1", "", "")}, pid=1 << 30)
    (tmp_path / "r3").mkdir()
    (tmp_path / "r3" / JOURNAL).write_text("damaged\n")
    one, other = inventory.known_rollouts(str(tmp_path))
    assert (one.id, one.ended, one.running, one.hosts, one.locks) == ("r1", True, False, {"a"}, {"fra": "gw-1"})
    assert (other.id, other.ended, other.hosts, other.locks) == ("r2", False, {"b"}, {})
    assert inventory.known_rollouts(str(tmp_path / "none")) == []
