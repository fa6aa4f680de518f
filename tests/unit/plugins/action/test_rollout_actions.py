# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout decides and keeps on the controller: waves, refusals, journals. No host is connected to."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.inventory import returned_by, undone_by
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.journal import append, read, state_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.waves import RolloutError

from tests.fakes.actions import ACTIONS

TOP = Path(__file__).resolve().parents[4]
CHAT = {"chat": {"recipe": "baremetal/gpt-oss-smoke", "host": "0.0.0.0", "port": 8000}}
OPTIONS = {
    "canaries": 1, "waves": [2], "order": "clusters", "max_failures": 0, "min_available": 1, "pause": 0,
    "confirm": False,
}  # fmt: skip
PLAN = {"argv": ["vllm", "serve"], "release": "0.32.0", "model": "m", "args": {"max-num-seqs": 8}, "env": {}}
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{TOP}/.venv/bin:{os.environ['PATH']}",
    "ANSIBLE_ACTION_PLUGINS": str(ACTIONS),
}
HOSTS = ("fra-1", "fra-2", "fra-3", "fra-4", "ber-1", "ber-2")
WORLD = [
    {
        "hosts": "inference",
        "gather_facts": False,
        "tasks": [
            {
                "baremetal.inference.rollout_changes_info": {
                    "plans": {"chat": PLAN},
                    "slots": "{{ slots | default({}) }}",
                    "turn": "{{ turn | default({}) }}",
                    "files": "{{ files | default({}) }}",
                    "options": "{{ options | combine({'state_dir': state_dir}) }}",
                },
                "register": "__rollout_seen",
            }
        ],
    },
    {
        "hosts": "localhost",
        "gather_facts": False,
        "tasks": [
            {
                "baremetal.inference.rollout_plan": {"hosts": "{{ groups.inference }}"},
                "register": "rollout_plan",
            },
            {"keep_result": {"value": "{{ rollout_plan }}", "dest": "{{ state_dir }}/plan.json"}},
        ],
    },
]


@pytest.fixture
def site(tmp_path):
    """Runs the plays above over four hosts of one cluster and one of another, with further plays after them."""

    def play(*further, hosts=None, options=None, fails=False):
        files = {"chat": ["/etc/vllm/chat.yaml"]}
        known = {name: {"cluster": name[:3], "files": files, **((hosts or {}).get(name) or {})} for name in HOSTS}
        serving = {"accelerator": "cpu", "vllm_release": "0.32.0", "vllm_instances": CHAT}
        groups = {
            "inference": {"hosts": {name: {**serving, **more} for name, more in known.items()}},
            "cluster_fra": {"hosts": {name: {} for name in known if name.startswith("fra")}},
            "cluster_ber": {"hosts": {name: {} for name in known if name.startswith("ber")}},
            "gateways": {"hosts": {"gw-b": {"cluster": "fra"}, "gw-a": {"cluster": "fra"}}},
        }
        everyone = {"options": {**OPTIONS, **(options or {})}, "state_dir": str(tmp_path)}
        (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": groups, "vars": everyone}}))
        plays = [*WORLD, *further]
        plays[1]["vars"] = {"state_dir": str(tmp_path)}
        (tmp_path / "play.yml").write_text(json.dumps(plays))
        done = subprocess.run(
            ["ansible-playbook", "-i", str(tmp_path / "hosts.json"), str(tmp_path / "play.yml")],
            cwd=TOP,
            env={**ENVIRONMENT, "COLUMNS": "400"},
            capture_output=True,
            text=True,
            check=False,
        )
        output = done.stdout + done.stderr
        assert bool(done.returncode) is fails, output
        found = tmp_path / "plan.json"
        return (json.loads(found.read_text()) if found.exists() else {}), output

    return play


def test_waves_locks_and_gateways_follow_from_the_inventory(site):
    plan, _output = site()
    assert plan["serial"] == [2, 3, 2, 2, 2]
    assert plan["order"] == [
        "rollout-wave-1", "fra-1", "rollout-wave-2", "fra-2", "fra-3", "rollout-wave-3", "fra-4",
        "rollout-wave-4", "ber-1", "rollout-wave-5", "ber-2",
    ]  # fmt: skip
    assert plan["locks"] == {"fra": "gw-a", "ber": "ber-1"}
    assert plan["hosts"]["fra-2"]["gateways"] == ["gw-b", "gw-a"]
    assert plan["hosts"]["fra-2"]["servers"] == ["fra-2--chat"]
    said = "\n".join(plan["summary"])
    assert "wave 1 of 5 (canary): fra-1" in said
    assert "behind no gateway, so the rollout can only wait for requests that already run: ber-1, ber-2" in said


def test_hosts_that_serve_an_instance_together_are_changed_together(site):
    def slots(role, hosts=("fra-2", "fra-3")):
        return {"chat": {"digest": "one", "up": True, "group": {"hosts": list(hosts), "role": role}}}

    pair = {"fra-2": {"slots": slots("head")}, "fra-3": {"slots": slots("worker"), "files": {}}}
    plan, _output = site(hosts=pair, options={"waves": [1]})
    assert [wave["hosts"]["fra"] for wave in plan["waves"][:3]] == [["fra-1"], ["fra-2", "fra-3"], ["fra-4"]]
    head, worker = plan["hosts"]["fra-2"], plan["hosts"]["fra-3"]
    assert (head["servers"], worker["servers"], worker["asked"]) == (["fra-2--chat"], [], [])
    assert head["members"] == worker["members"] == ["fra-2", "fra-3"] and worker["restarts"] == ["chat"]
    assert worker["words"] == "chat: started again together with fra-2"
    assert "changed together, as one: fra-2, fra-3" in plan["summary"]
    apart = {name: {"slots": slots("head", ("fra-2", "ber-1"))} for name in ("fra-2", "ber-1")}
    _plan, output = site(hosts=apart, fails=True)
    assert "nothing was changed: ber-1: chat spans several clusters (fra-2 in fra, ber-1 in ber)" in output
    # What one host says of others alone changes nothing for them.
    plan, _output = site(hosts={"fra-4": {"slots": slots("head", HOSTS)}}, options={"waves": [1]})
    assert [wave["hosts"]["fra"] for wave in plan["waves"][:4]] == [[name] for name in HOSTS[:4]]
    assert all(plan["hosts"][name]["members"] == [name] for name in HOSTS)


@pytest.mark.parametrize(
    ("odd", "sentence"),
    [
        ({"slots": {"chat": {"group": {"hosts": [["x"]]}}}}, "chat.group.hosts[0]: found ['x'], expected a text"),
        ({"slots": {"chat": {"good": {"plan": {}}}}}, "chat.good.digest: found nothing, expected a text"),
        ({"slots": {"chat": 5}}, "chat: found 5, expected a mapping"),
        ({"files": {"chat": [5]}}, "chat[0]: found 5, expected a text"),
    ],
)
def test_an_odd_answer_is_one_sentence_that_names_its_host(site, odd, sentence):
    _plan, output = site(hosts={"fra-2": odd}, fails=True)
    assert f"nothing was changed: fra-2 answered in another form: {sentence}" in output and "Traceback" not in output


def test_hosts_that_are_as_they_should_be_are_left_alone(site):
    same = {name: {"files": {}} for name in ("fra-1", "fra-2", "ber-1", "ber-2")}
    plan, _output = site(hosts=same)
    assert set(plan["hosts"]) == {"fra-3", "fra-4"}
    nothing, _output = site(hosts={name: {"files": {}} for name in ("fra-3", "fra-4")} | same)
    assert nothing["summary"] == ["Nothing to do: all 6 hosts match the inventory"]
    assert nothing["order"] == "localhost:!localhost"


def test_a_host_in_the_middle_of_a_turn_comes_first_though_nothing_differs(site):
    plan, _output = site(hosts={"fra-3": {"files": {}, "turn": {"id": "old-1"}}})
    assert plan["waves"][0]["hosts"] == {"fra": ["fra-3"]}
    assert plan["hosts"]["fra-3"]["words"] == "go on after old-1"


def test_options_that_hosts_of_a_cluster_do_not_agree_on_are_refused(site):
    odd = {"fra-2": {"options": {**OPTIONS, "canaries": 2}}}
    _plan, output = site(hosts=odd, fails=True)
    assert "rollout_canaries is 1 for fra-1 and 2 for fra-2: set the same value for all hosts of a cluster" in output


def test_what_would_leave_no_server_is_refused_before_anything(site):
    _plan, output = site(options={"canaries": 0, "waves": [2]}, fails=True)
    changes = "changes on fra-1, fra-2, fra-3, fra-4, ber-1, ber-2: chat: m by release 0.32.0 ("
    assert -1 < output.find(changes) < output.find("nothing was changed"), output
    assert "cluster ber: a wave of ber-1, ber-2 leaves none of 2 servers for the service chat" in output


def journal(tmp_path):
    """Return the newest journal's state."""
    paths = sorted(tmp_path.glob("*/journal.jsonl"))
    return state_of(read(str(paths[-1])))


def noted(**arguments):
    return {"baremetal.inference.rollout_journal": arguments}


def ordered(**arguments):
    return {"baremetal.inference.rollout_orders": arguments}


def controller(*tasks):
    return {"hosts": "localhost", "gather_facts": False, "tasks": list(tasks)}


def on(hosts, *tasks):
    return {"hosts": hosts, "gather_facts": False, "tasks": list(tasks)}


BEGIN = controller(noted(state="begun"))


def test_a_wave_that_went_well_lets_the_next_one_come(site, tmp_path):
    decide = {**ordered(of="wave", wave=0), "register": "went", "failed_when": "went.stop | length > 0"}
    site(BEGIN, on("fra-1", noted(step="drain"), noted(step="done")), controller(noted(state="waved", wave=0), decide))
    state = journal(tmp_path)
    assert (state.steps, state.stopped) == ({"fra-1": "done"}, "")


def test_a_canary_that_was_rolled_back_stops_it(site, tmp_path):
    decide = {**ordered(of="wave", wave=0), "register": "went", "failed_when": "went.stop | length == 0"}
    end = {**ordered(of="rollout"), "register": "end"}
    said = {"debug": {"msg": "{{ end.message }}"}}
    turn = on("fra-1", noted(step="apply"), noted(step="rolled_back", detail="it answers nonsense"))
    _plan, output = site(BEGIN, turn, controller(noted(state="waved", wave=0), decide, noted(state="ended"), end, said))
    state = journal(tmp_path)
    assert (state.stopped, state.result) == ("fra-1 went first and failed", "stopped")
    assert "fra-1: restored to its earlier state: it answers nonsense" in output
    assert "not begun: fra-2, fra-3, fra-4, ber-1, ber-2" in output


def test_a_host_that_is_gone_in_the_middle_counts_as_failed_and_out_of_service(site, tmp_path):
    site(BEGIN, on("fra-1", noted(step="apply")), controller(noted(state="waved", wave=0)))
    state = journal(tmp_path)
    assert state.steps["fra-1"] == "out"
    assert state.details["fra-1"] == "the host cannot be reached since the step apply; it is out of service"


def test_the_message_of_a_loop_is_that_of_its_items(site, tmp_path):
    result = {"msg": "One or more items failed", "results": [{"failed": True, "msg": "no answer"}, {"msg": "fine"}]}
    site(BEGIN, on("fra-1", noted(step="failed", failed=result)))
    assert journal(tmp_path).details["fra-1"] == "no answer"


def test_what_was_interrupted_is_closed_by_the_next_run(site, tmp_path):
    old = tmp_path / "20260101T000000Z-dead"
    old.mkdir()
    locks = {"fra": "gw-a", "gone": "no-longer-there"}
    begun = {"event": "begun", "id": old.name, "pid": 1, "pid_started": -1, "boot": "x", "locks": locks}
    append(str(old / "journal.jsonl"), begun)
    append(str(old / "journal.jsonl"), {"event": "host", "host": "fra-1", "cluster": "fra"})
    elsewhere = tmp_path / "20260101T000000Z-else"
    elsewhere.mkdir()
    append(str(elsewhere / "journal.jsonl"), {"event": "begun", "id": elsewhere.name})
    append(str(elsewhere / "journal.jsonl"), {"event": "host", "host": "of-another-site", "cluster": "fra"})
    left = [{"id": old.name, "cluster": "fra", "host": "gw-a"}]
    # Where it died after its last host there is nothing else to do.
    nothing, _output = site(hosts={name: {"files": {}} for name in HOSTS})
    assert (nothing["left"], nothing["order"]) == (left, "localhost:!localhost")
    plan, _output = site(BEGIN)
    assert (plan["resumes"], plan["left"]) == ([old.name], left)
    assert read(str(tmp_path / plan["id"] / "journal.jsonl"))[0]["locks"] == {"fra": "gw-a", "ber": "ber-1"}
    assert plan["stale"] == [old.name, elsewhere.name]
    assert state_of(read(str(old / "journal.jsonl"))).result == "interrupted"
    assert state_of(read(str(elsewhere / "journal.jsonl"))).result == ""


def test_gates_and_baselines(site, tmp_path):
    slots = {"chat": {"good": {"record": {"tokens_per_second": 100.0}}}, "new": {"good": None}}
    measured = [{"item": "new", "figures": {"tokens_per_second": 50.0}}]
    gates = [{"item": "chat", "figures": {"tokens_per_second": 90.0}, "verdicts": [{"name": "throughput", "ok": True}]}]
    look = {**ordered(slots=slots, measured=measured), "register": "gate"}
    write = {"keep_result": {"value": "{{ gate.baselines }}", "dest": str(tmp_path / "b.json")}}
    site(BEGIN, on("fra-1", look, write, noted(step="ready", gates=gates, baselines="{{ gate.baselines }}")))
    assert json.loads((tmp_path / "b.json").read_text()) == {
        "chat": {"tokens_per_second": 100.0},
        "new": {"tokens_per_second": 50.0},
    }
    events = [event for event in read(str(next(tmp_path.glob("*/journal.jsonl")))) if event["event"] == "gate"]
    assert events[0]["before"] == {"tokens_per_second": 100.0}
    assert events[0]["after"] == {"tokens_per_second": 90.0}


def rolled_out(directory, name, steps, kind="change", resumes=(), result=""):
    """Write the journal of a rollout: by host the state it found and left, and the last step of its turn."""
    (directory / name).mkdir()
    path = str(directory / name / "journal.jsonl")
    append(path, {"event": "begun", "id": name, "kind": kind, "resumes": list(resumes)})
    for host, (before, after, step) in steps.items():
        append(path, {"event": "host", "host": host, "cluster": "fra", "states": {"chat": before}})
        if step:
            left = {"states": {"chat": after}} if after else {}
            append(path, {"event": "step", "host": host, "step": step, **left})
    if result:
        append(path, {"event": "ended", "result": result})


FIRST, SECOND, THIRD = "20260101T000000Z-aaaa", "20260102T000000Z-bbbb", "20260103T000000Z-cccc"


def test_an_undo_takes_what_the_rollout_changed_and_nothing_else(tmp_path):
    rolled_out(tmp_path, FIRST, {"a": ("1", "2", "done")})
    steps = {"b": ("2", "3", "done"), "c": ("2", "", "apply"), "d": ("2", "", "rolled_back"), "e": ("2", "", "")}
    rolled_out(tmp_path, SECOND, steps)
    assert undone_by("last", str(tmp_path)) == {
        "b": {"chat": {"before": "2", "after": "3"}},
        "c": {"chat": {"before": "2", "after": ""}},
    }
    assert undone_by(FIRST, str(tmp_path)) == {"a": {"chat": {"before": "1", "after": "2"}}}
    # Refused by a lock, or a way back: neither is what somebody wants to undo.
    rolled_out(tmp_path, THIRD, {"a": ("3", "", "")})
    rolled_out(tmp_path, f"{THIRD}-back", {"b": ("3", "2", "done")}, kind="rollback")
    assert set(undone_by("last", str(tmp_path))) == {"b", "c"}
    assert undone_by(f"{THIRD}-back", str(tmp_path)) == {"b": {"chat": {"before": "3", "after": "2"}}}
    with pytest.raises(RolloutError, match=r"no rollout '20260101T000000Z-aaab' .*; nearest: '20260101T000000Z-aaaa'"):
        undone_by("20260101T000000Z-aaab", str(tmp_path))
    with pytest.raises(RolloutError, match="there is none"):
        undone_by("last", str(tmp_path / "empty"))


def test_what_a_rollout_went_on_from_is_undone_with_it(tmp_path):
    rolled_out(tmp_path, FIRST, {"x": ("0", "9", "done")}, kind="rollback")
    rolled_out(tmp_path, SECOND, {"a": ("1", "2", "done"), "b": ("1", "", "apply")})
    rolled_out(tmp_path, THIRD, {"b": ("1", "2", "done"), "c": ("1", "2", "done")}, resumes=[FIRST, SECOND])
    one = {"chat": {"before": "1", "after": "2"}}
    assert undone_by("last", str(tmp_path)) == {"a": one, "b": one, "c": one}


def test_hosts_that_are_back_are_left_alone_by_the_same_command(tmp_path):
    assert returned_by(str(tmp_path / "empty")) == []
    rolled_out(tmp_path, FIRST, {"a": ("2", "1", "done"), "b": ("2", "", "apply")}, kind="rollback")
    assert returned_by(str(tmp_path)) == ["a"]
    rolled_out(tmp_path, SECOND, {"a": ("2", "1", "done")}, kind="rollback", result="done")
    assert returned_by(str(tmp_path)) == []


def test_the_end_of_a_turn_says_which_states_it_left(site, tmp_path):
    kept = [{"item": {"key": "chat", "value": {}}, "digest": "abc"}, {"item": {"key": "skipped"}, "skipped": True}]
    site(BEGIN, on("fra-1", noted(step="drain"), noted(step="done", kept=kept)))
    state = state_of(read(str(next(tmp_path.glob("*/journal.jsonl")))))
    assert state.after["fra-1"] == {"chat": "abc"} and state.before["fra-1"] == {}


def test_a_lock_is_in_one_place_whichever_hosts_take_part(site):
    same = {name: {"files": {}} for name in HOSTS if name != "ber-2"}
    plan, _output = site(hosts=same)
    assert plan["locks"] == {"ber": "ber-1"}


def test_a_rollback_works_where_the_inventory_cannot_be_rendered_and_leaves_out_what_it_does_not_name(tmp_path):
    state = {"digest": "two", "up": True, "good": {"digest": "two"}, "previous": {"digest": "one"}, "slots": []}
    look = {"kind": "rollback", "slots": {"chat": state, "chat-2": state, "old": {**state, "up": False}}}
    tasks = [
        {"baremetal.inference.rollout_changes_info": look, "register": "seen"},
        {"keep_result": {"value": "{{ seen }}", "dest": str(tmp_path / "seen.json")}},
    ]
    broken = {"vllm_instances": {"chat": {"args": {"seed": "{{ nobody_has_set_this }}"}}}}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": broken, "tasks": tasks}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    done = subprocess.run(
        ["ansible-playbook", "-i", "localhost,", str(tmp_path / "play.yml")],
        cwd=TOP,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["instances"] == ["chat", "chat-2"]
    assert {name: change["to"] for name, change in seen["changes"].items()} == {"chat": "one", "chat-2": "one"}
