# SPDX-License-Identifier: GPL-3.0-or-later
"""The short benchmark of playbooks/accept.yml, with a host that answers with recorded results."""

from __future__ import annotations

from types import SimpleNamespace
from unittest import mock

from ansible_collections.baremetal.inference.plugins.action import acceptance_bench

from tests.fakes.actions import Task
from tests.fakes.benches import INFO, taken


class Host:
    """Answers the two modules; the ``broken``th measurement fails."""

    def __init__(self, broken=0, **info):
        self.info, self.broken, self.asked = {**INFO, **info}, broken, []

    def execute(self, module_name, module_args, task_vars, wrap_async):
        if module_name == "baremetal.inference.instance_bench_info":
            assert module_args == {"instance": "chat"}
            return dict(self.info)
        assert module_name == "baremetal.inference.instance_bench"
        self.asked.append(module_args)
        died = {"failed": True, "msg": "instance chat did not survive the measurement.", "died": True}
        return died if len(self.asked) == self.broken else taken(joules=153.6)


def run(host, stack="cuda", check_mode=False):
    task = Task("baremetal.inference.acceptance_bench", {"instance": "chat", "stack": stack})
    task.check_mode = check_mode
    nowhere = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    action = acceptance_bench.ActionModule(task, nowhere, None, None, None, None)
    with mock.patch.object(action, "_execute_module", host.execute):
        return action.run(task_vars={"inventory_hostname": "gpu-a-01"})


def test_one_measurement_counts_after_one_that_does_not():
    host = Host()
    result = run(host)
    assert result["figures"]["output_tokens_per_second"] == 324.1
    assert [call["measurement"]["requests"] for call in host.asked] == [16, 64]
    first, second = (call["measurement"]["seed"] for call in host.asked)
    assert first != second
    assert {call["user"] for call in host.asked} == {"vllm"}
    assert result["changed"] is False


def test_an_instance_that_dies_is_a_problem_and_no_error():
    result = run(Host(broken=2))
    assert result["problem"] == "instance chat did not survive the measurement"
    assert "failed" not in result and "figures" not in result


def test_a_busy_instance_is_left_alone():
    host = Host(running=2, waiting=1)
    assert run(host)["not_tried"].startswith("it has 2 running and 1 waiting requests")
    assert not host.asked


def test_check_mode_asks_nothing():
    host = Host()
    assert run(host, check_mode=True)["not_tried"] == "check mode measures nothing"
    assert not host.asked
