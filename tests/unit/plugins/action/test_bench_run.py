# SPDX-License-Identifier: GPL-3.0-or-later
"""The action of playbooks/bench.yml, with a host that answers with recorded results."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible_collections.baremetal.inference.plugins.action import bench_run
from ansible_collections.baremetal.inference.plugins.module_utils.slots.state import summarize_plan

from tests.fakes.actions import Task
from tests.fakes.benches import INFO, PLAN, taken

SLOT = {"installed": True, "digest": "d", "good": {"digest": "d", "plan": summarize_plan(PLAN)}, "stale": False}


class Host:
    """Answers the two modules; from the ``broken``th measurement on with a failure."""

    def __init__(self, broken=1000, message="instance chat did not survive the measurement.", slowed=(), **info):
        self.slowed = list(slowed)
        self.info, self.broken, self.message, self.asked = {**INFO, **info}, broken, message, []

    def execute(self, module_name, module_args, task_vars, wrap_async):
        if module_name == "baremetal.inference.instance_bench_info":
            assert module_args == {"instance": "chat", "stack": "cuda", "chips": [0]}
            return dict(self.info)
        assert module_name == "baremetal.inference.instance_bench"
        self.asked.append(module_args)
        if len(self.asked) >= self.broken:
            return {"failed": True, "msg": self.message}
        return {**taken(joules=153.6), "slowed": self.slowed}


@pytest.fixture
def lines(monkeypatch):
    shown = []
    monkeypatch.setattr(bench_run, "show", shown.append)
    monkeypatch.setattr(bench_run, "warn", lambda text: shown.append(f"WARNING {text}"))
    return shown


def run(host, tmp_path, check_mode=False, **options):
    given = {"plans": {"chat": PLAN}, "slots": {"chat": SLOT}, "dir": str(tmp_path / "results"), "repeats": 2}
    given.update({"workloads": ["chat"], "concurrency": ["1", "8"], "driver": "580.159.04", **options})
    task = Task("baremetal.inference.bench_run", given)
    task.check_mode = check_mode
    nowhere = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    action = bench_run.ActionModule(task, nowhere, None, None, None, None)
    with mock.patch.object(action, "_execute_module", host.execute):
        return action.run(task_vars={"inventory_hostname": "gpu-a-01"})


def test_a_whole_benchmark(tmp_path, lines):
    host = Host()
    result = run(host, tmp_path)
    # Two steps, each with a warm-up and two measurements.
    assert len(host.asked) == 6 and result["changed"] and len(result["results"]) == 2
    assert {call["user"] for call in host.asked} == {"vllm"} and not any(call["shared"] for call in host.asked)
    assert result["directory"].startswith(str(tmp_path / "results/gpu-a-01/chat/"))
    assert result["evidence_path"].startswith("openai/gpt-oss-20b/h200x1/0.25.1-")
    evidence = yaml.safe_load(Path(result["evidence"]).read_text())
    assert evidence["results"] == result["results"] and evidence["driver"] == "580.159.04"
    assert "host" not in evidence and "instance" not in evidence
    summary = json.loads(Path(result["directory"], "summary.json").read_text())
    assert (summary["host"], summary["instance"], summary["notes"]) == ("gpu-a-01", "chat", [])
    assert "Benchmark of chat on gpu-a-01" in Path(result["page"]).read_text()
    measured = [line for line in lines if " J/token" in line]
    assert (
        measured[0].startswith("gpu-a-01 chat: [1/4] chat, 1 at a time, run 1 of 2: 324.1 tok/s") and len(measured) == 4
    )


def test_an_interrupted_benchmark_continues(tmp_path, lines):
    with pytest.raises(
        AnsibleActionFail, match=r"did not survive the measurement. The measurements so far are kept in /"
    ):
        run(Host(broken=6), tmp_path)
    host = Host()
    run(host, tmp_path)
    assert [call["measurement"]["requests"] for call in host.asked] == [8, 32]
    again = Host()
    run(again, tmp_path)
    assert not again.asked
    run(again, tmp_path, fresh=True)
    assert len(again.asked) == 6


def test_the_journal_of_a_dead_instance_stays_apart(tmp_path, lines):
    with pytest.raises(AnsibleActionFail) as caught:
        run(
            Host(broken=1, message="instance chat did not survive.\nThe reason, from its journal:\n  no memory"),
            tmp_path,
        )
    assert caught.value.message.splitlines()[2] == "  no memory"
    assert caught.value.message.splitlines()[3].startswith("The measurements so far are kept in /")


def test_two_runs_are_compared(tmp_path, lines):
    first = run(Host(), tmp_path)
    other = run(Host(), tmp_path / "b", compare=first["directory"])
    assert "x1.00" in Path(other["page"]).read_text() and "x1.00" not in Path(first["page"]).read_text()


def test_a_chip_that_was_slowed_down_is_a_warning_and_stays_with_the_figures(tmp_path, lines):
    host = Host(slowed=["0000:1b:00.0 (hw_therm_slowdown)"])
    result = run(host, tmp_path, concurrency=["8"], repeats=1)
    (note,) = result["notes"]
    assert note.startswith("chat, 8 at a time, run 1: slowed down: 0000:1b:00.0 (hw_therm_slowdown); the figures are")
    assert f"WARNING gpu-a-01 chat: {note}" in lines
    assert yaml.safe_load(Path(result["evidence"]).read_text())["note"] == note
    assert "hw_therm_slowdown" in Path(result["page"]).read_text()


def test_check_mode_only_plans(tmp_path, lines):
    host = Host()
    result = run(host, tmp_path, check_mode=True)
    assert lines == ["gpu-a-01 chat: would be measured 2 times each: chat-c1 (8 requests), chat-c8 (32 requests)"]
    assert result["steps"] == ["chat-c1", "chat-c8"] and not host.asked and not (tmp_path / "results").exists()


def test_load_of_others_is_a_warning_where_it_is_allowed(tmp_path, lines):
    host = Host(running=2, waiting=1)
    run(host, tmp_path, shared=True)
    assert "WARNING gpu-a-01 chat: 2 running and 1 waiting requests of others" in lines[0]
    assert all(call["shared"] for call in host.asked)


def test_what_was_left_out_is_shown_and_on_the_page(tmp_path, lines):
    result = run(Host(max_model_len=4096), tmp_path, workloads=[], concurrency=["1", "1024"])
    assert [entry["workload"] for entry in result["results"]] == ["chat", "burst"] and len(result["notes"]) == 3
    assert "gpu-a-01 chat: concurrency 1024: left out" in lines[0]
    assert "workload agent: left out" in Path(result["page"]).read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeats": 0}, "bench_repeats: found 0, expected a whole number from 1 up"),
        ({"requests_per_stream": 0}, "bench_requests_per_stream: found 0"),
        ({"timeout": 0}, "bench_timeout: found 0, expected more than 0 seconds"),
        ({"seed": "x"}, "bench_seed: found 'x', expected a whole number from 0 up"),
        ({"instance": "talk"}, "bench_instance: this host has no instance 'talk'"),
        ({"slots": {}}, "instance chat is not installed on this host"),
        ({"workloads": ["chta"]}, "bench_workloads: 'chta' is not a workload; nearest: 'chat'"),
        ({"workload_definitions": {"a": {}}}, "bench_workload_definitions: a: dataset is missing"),
        ({"concurrency": ["0"]}, "bench_concurrency: found '0'"),
        ({"compare": "/nowhere"}, "bench_compare: /nowhere is not there"),
    ],
)
def test_bad_input_is_refused_before_anything_is_measured(tmp_path, lines, options, message):
    host = Host()
    with pytest.raises(AnsibleActionFail) as caught:
        run(host, tmp_path, **options)
    assert message in str(caught.value) and not host.asked and not (tmp_path / "results").exists()
