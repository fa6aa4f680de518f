# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gateway_server with a real HAProxy, in front of servers that answer everything: who drains, who owns."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.service import services_table

from tests.fakes.gateways import KEY, until
from tests.integration.gateway_turns import (
    ONE,
    TWO,
    drain,
    kill,
    needs_haproxy,
    owners,
    pair,
    ready,
    run,
)

pytestmark = needs_haproxy


def test_a_server_goes_out_and_comes_back_and_the_second_time_changes_nothing(tmp_path):
    with pair(tmp_path) as found:
        result = drain(found, ONE, reason="a new flag", _ansible_diff=True)
        assert result["changed"] and result["idle"] and not result["up"] and result["held"] == {}, result
        assert result["diff"] == {"before": f"{ONE}: ready\n", "after": f"{ONE}: drained by rollout:1 (a new flag)\n"}
        (entry,) = result["servers"].values()
        assert (entry["state"], entry["up"], entry["owner"], entry["reason"]) == (
            "drain",
            True,
            "rollout:1",
            "a new flag",
        )
        assert entry["since"].endswith("Z") and entry["address"] == f"127.0.0.1:{found.first.server_port}"
        assert result["backends"] == {"chat": {"ready": 1, "servers": 2, "queued": 0}}
        assert stat.S_IMODE((tmp_path / "drained.json").stat().st_mode) == 0o600
        assert {found.ask("GET", "/v1/models", KEY)[0] for _n in range(4)} == {200}
        assert found.first.asked == [] and len(found.second.asked) == 4
        assert not drain(found, ONE, reason="a new flag")["changed"]
        assert run(found)["servers"][ONE]["since"] == entry["since"]
        back = ready(found, ONE, _ansible_diff=True)
        assert back["changed"] and back["up"], back
        assert back["diff"] == {"before": f"{ONE}: drained by rollout:1 (a new flag)\n", "after": f"{ONE}: ready\n"}
        assert back["servers"][ONE]["owner"] == "" and owners(found) == {}
        assert not ready(found, ONE)["changed"]


def test_the_table_of_services_has_what_haproxy_reports(tmp_path):
    with pair(tmp_path) as found:
        until(lambda: run(found)["backends"]["chat"]["ready"] == 2)
        found.first.healthy = False
        until(lambda: run(found)["backends"]["chat"]["ready"] == 1)
        head, _rule, row = services_table({"gw": run(found)}, [], {"gw": "https://192.0.2.10"}, 200)
    assert head.split("  ")[0] == "service" and head.endswith("last change")
    told = r"gw down \(L7STS.*\) for less than a minute; went down once$"
    assert re.search(rf"^chat +https://192.0.2.10 +1 of 2 +0 +0 +{told}", row), row


def test_every_server_of_a_host_and_no_other(tmp_path):
    with pair(tmp_path) as found:
        result = run(found, hosts=["gw"], state="drained", owner="admin:al", min_available=0, wait=0)
        assert sorted(result["servers"]) == [ONE, TWO] and result["backends"]["chat"]["ready"] == 0
        wrong = run(found, hosts=["gw2"], state="ready", owner="admin:al")
        assert (
            wrong["rc"] and "has no server of the host gw2 (nearest: 'gw'); run playbooks/gateway.yml" in wrong["msg"]
        )


def test_what_cannot_be_is_one_sentence_and_changes_nothing(tmp_path):
    with pair(tmp_path) as found:
        for result, words in (
            (
                drain(found, "gw--chat-3"),
                f"has no server gw--chat-3 (nearest: '{TWO}'); run playbooks/gateway.yml first",
            ),
            (drain(found, ONE, owner="bob"), "owner: found 'bob', expected rollout:ID, admin:USER or event:NAME"),
            (drain(found, ONE, min_available=-1), "min_available: found -1, expected 0 or more"),
            (run(found, state="drained", owner="admin:al"), "servers: the list is empty"),
            (
                drain(found, ONE, TWO),
                f"service chat: without {ONE}, {TWO}, no server would remain, but min_available is 1",
            ),
            (drain(found, ONE, min_available=2), f"without {ONE}, {TWO} would remain, but min_available is 2"),
        ):
            assert result["rc"] and words in result["msg"], result
        assert run(found)["backends"]["chat"]["ready"] == 2
        assert not (tmp_path / "drained.json").exists()


def test_of_two_runs_at_a_time_one_gets_the_last_pair(tmp_path):
    with pair(tmp_path) as found, ThreadPoolExecutor(2) as pool:
        lock = tmp_path / "drained.json.lock"
        # Both stand before the door, then it is opened.
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            runs = [pool.submit(drain, found, name, owner=f"rollout:{name}") for name in (ONE, TWO)]
            until(lambda: others_with(lock) == 2)
            assert run(found)["backends"]["chat"]["ready"] == 2
        results = [each.result() for each in runs]
        assert sorted(result["rc"] for result in results) == [0, 1], results
        (refused,) = [result for result in results if result["rc"]]
        assert (
            "no server would remain, but min_available is 1" in refused["msg"]
            and "is drained by rollout:" in refused["msg"]
        )
        assert run(found)["backends"]["chat"]["ready"] == 1


def others_with(path):
    """Return how many other processes have a file open; the modules are no children of this one."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        # Processes come and go.
        with contextlib.suppress(OSError):
            opened = {os.readlink(each) for each in (process / "fd").iterdir()}
            count += int(process.name) != os.getpid() and str(path) in opened
    return count


@pytest.mark.parametrize("by_hand", ["state drain", "state maint", "weight 0"])
def test_what_was_drained_by_hand_at_the_socket_is_left_alone(tmp_path, by_hand):
    with pair(tmp_path) as found:
        found.tell(f"set server chat/{ONE} {by_hand}")
        nobody = {"owner": "", "reason": "", "since": ""}
        for result in (drain(found, ONE), ready(found, ONE, wait=0)):
            assert result["held"] == {ONE: nobody} and result["rc"] == 0, result
            assert result["servers"][ONE]["state"] == ("maint" if "maint" in by_hand else "drain")
        # An admin may put a name to it, and bring it back.
        result = drain(found, ONE, owner="admin:al", reason="fan")
        assert result["changed"] and result["servers"][ONE]["owner"] == "admin:al"
        assert drain(found, ONE)["held"][ONE]["owner"] == "admin:al"
        assert ready(found, ONE, wait=0)["held"][ONE]["reason"] == "fan"
        assert drain(found, ONE, owner="admin:bob")["held"][ONE]["owner"] == "admin:al"
        result = ready(found, ONE, owner="admin:bob")
        assert result["changed"] and result["up"], result
        assert {found.ask("GET", "/v1/models", KEY)[0] for _n in range(4)} == {200} and found.first.asked


def test_a_hand_makes_a_record_void(tmp_path):
    with pair(tmp_path) as found:
        drain(found, ONE)
        found.tell(f"set server chat/{ONE} state maint")
        assert drain(found, ONE, owner="rollout:2")["held"][ONE]["owner"] == ""
        found.tell(f"set server chat/{ONE} state ready")
        assert run(found)["servers"][ONE]["owner"] == ""


def test_a_rollout_goes_on_with_what_another_one_drained(tmp_path):
    with pair(tmp_path) as found:
        since = drain(found, ONE)["servers"][ONE]["since"]
        result = drain(found, ONE, owner="rollout:2", _ansible_diff=True)
        assert result["changed"] and result["held"] == {}
        assert result["servers"][ONE]["owner"] == "rollout:2" and result["servers"][ONE]["since"] == since
        assert ready(found, ONE, owner="admin:al", wait=0)["held"][ONE]["owner"] == "rollout:2"
        assert drain(found, ONE, owner="admin:al")["held"][ONE]["owner"] == "rollout:2"
        assert drain(found, ONE, owner="admin:al", force=True)["servers"][ONE]["owner"] == "admin:al"
        assert ready(found, ONE, owner="rollout:3", wait=0)["held"][ONE]["owner"] == "admin:al"
        assert ready(found, ONE, owner="rollout:3", force=True)["up"]


def test_a_haproxy_that_does_not_run_is_told_of(tmp_path):
    with pair(tmp_path) as found:
        found.stop()
        result = drain(found, ONE)
        assert result["rc"] and "HAProxy does not answer at" in result["msg"], result
        assert "systemctl status haproxy" in result["msg"] and not (tmp_path / "drained.json").exists()


def test_after_a_crash_a_server_is_still_drained_by_the_same_owner_and_counters_begin_anew(tmp_path):
    with pair(tmp_path) as found:
        found.ask("GET", "/v1/models", KEY)
        before = drain(found, ONE, reason="a new flag")
        assert before["frontends"]["chat"]["ok"] == 1 and run(found)["started"] == before["started"]
        kill(found)
        found.start()
        after = run(found)
        assert after["started"] != before["started"] and after["frontends"]["chat"]["requests"] == 0
        assert after["servers"][ONE]["owner"] == "rollout:1" and after["servers"][ONE]["reason"] == "a new flag"
        assert not drain(found, ONE, reason="a new flag")["changed"]
        assert ready(found, ONE)["up"]
        kill(found)
        found.start()
        assert run(found)["servers"][ONE]["state"] == "ready"


def test_a_run_that_was_killed_before_it_kept_the_state_is_made_good(tmp_path):
    with pair(tmp_path) as found:
        found.save()
        kept = Path(found.paths["state"]).read_text()
        drain(found, ONE)
        Path(found.paths["state"]).write_text(kept)
        assert drain(found, ONE)["changed"] and Path(found.paths["state"]).read_text() != kept
        assert not drain(found, ONE)["changed"]


def test_a_record_alone_drains_nothing(tmp_path):
    with pair(tmp_path) as found:
        drain(found, ONE)
        found.tell(f"set server chat/{ONE} state ready")
        assert run(found)["servers"][ONE]["owner"] == ""
        drain(found, TWO)
        assert list(owners(found)) == [TWO]


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"schema": 1, "servers": {"gw--ch',
        "[]",
        '{"schema": 1, "servers": {"gw--chat-1": {"owner": 5}}}',
        "\x00\x01",
    ],
)
def test_a_damaged_file_of_owners_is_told_of_and_written_anew(tmp_path, text):
    with pair(tmp_path) as found:
        drain(found, ONE)
        (tmp_path / "drained.json").write_text(text)
        looked = run(found)
        assert looked["rc"] == 0 and looked["servers"][ONE]["owner"] == "", looked
        assert "drained.json" in str(looked["warnings"]) and "counts as drained by hand" in str(looked["warnings"])
        # Nobody knows who did it, so no rollout brings it back.
        assert ready(found, ONE, wait=0)["held"][ONE]["owner"] == ""
        result = ready(found, ONE, owner="admin:al")
        assert result["up"] and owners(found) == {}, result
        assert "warnings" not in run(found)


def test_bytes_that_are_no_text_in_the_file_of_owners(tmp_path):
    with pair(tmp_path) as found:
        (tmp_path / "drained.json").write_bytes(b"\xff\xfe\x00")
        result = drain(found, ONE)
        assert result["changed"] and list(owners(found)) == [ONE] and result["warnings"]


def test_a_server_that_left_the_configuration(tmp_path):
    with pair(tmp_path) as found:
        drain(found, TWO, owner="admin:al")
        found.ports = found.ports[:1]
        found.write()
        found.reload()
        assert list(run(found)["servers"]) == [ONE]
        assert f"no server {TWO} (nearest: '{ONE}')" in ready(found, TWO, owner="admin:al")["msg"]
        drain(found, ONE, min_available=0)
        assert list(owners(found)) == [ONE]


def test_check_mode_says_the_same_and_does_nothing(tmp_path):
    with pair(tmp_path) as found:
        checked = drain(found, ONE, reason="fan", _ansible_check_mode=True, _ansible_diff=True)
        assert checked["changed"] and checked["servers"][ONE]["state"] == "ready", checked
        assert checked["diff"] == {"before": f"{ONE}: ready\n", "after": f"{ONE}: drained by rollout:1 (fan)\n"}
        assert not list(tmp_path.glob("drained.json*")) and found.state(ONE) == "UP"
        assert drain(found, ONE, TWO, _ansible_check_mode=True)["rc"] == 1
        drain(found, ONE)
        for checked in (drain(found, ONE, _ansible_check_mode=True), ready(found, TWO, _ansible_check_mode=True)):
            assert not checked["changed"]
        checked = ready(found, ONE, _ansible_check_mode=True, _ansible_diff=True)
        assert checked["changed"] and checked["diff"]["after"] == f"{ONE}: ready\n"
        assert found.state(ONE).startswith("DRAIN") and list(owners(found)) == [ONE]


def test_a_tool_that_cannot_keep_the_state_is_no_success(tmp_path):
    with pair(tmp_path) as found:
        found.paths["state"] = str(tmp_path / "nowhere/state")
        result = drain(found, ONE)
        assert result["rc"] and "could not save them in" in result["msg"], result
        # The record was made first, so that the next run knows whose it is.
        assert list(owners(found)) == [ONE]


def test_another_run_that_does_not_end_is_told_of(tmp_path, monkeypatch):
    from ansible_collections.baremetal.inference.plugins.module_utils.gateway import (
        drain_host,
        haproxy_host,
        records_host,
    )
    from ansible_collections.baremetal.inference.plugins.module_utils.gateway.servers import (
        Selection,
        ServersError,
        ServersRequest,
    )

    monkeypatch.setattr(records_host, "LOCK_SECONDS", 0.2)
    paths = haproxy_host.GatewayPaths(socket="/nowhere", owners_file=str(tmp_path / "drained.json"))
    with (tmp_path / "drained.json.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ServersError, match=r"another run has changed servers here .* is locked"):
            drain_host.GatewayServers(paths).change(Selection([ONE]), ServersRequest("drained", "rollout:1"), False)
