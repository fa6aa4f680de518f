# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout with an evaluation as its gate (docs/operate/evaluate.md): a loss of 5 points ends at the first host.

The server, systemd, lm-eval and the steps around the gate are stand-ins (evaluated_fleet.py); test_real_models.py has
the same gate with a real vLLM, a real model and the real lm-eval.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.fakes.evaluations import install_lm_eval
from tests.fakes.vllm import chat_body, fake_vllm
from tests.integration.evaluated_fleet import KEY, TOP, Fleet

MADE = {row["question"]: row for row in map(json.loads, (TOP / "catalog/evaluation/made.jsonl").open())}
RIGHT = 800


@pytest.fixture(scope="module")
def place():
    """A directory that the user nobody can reach."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


class MadeFleet(Fleet):
    """Hosts that answer the made questions; ``changed`` hosts answer as the new state does."""

    def __init__(self, directory, server):
        super().__init__(directory, int(server.url.rpartition(":")[2]))
        self.lost = self.gained = 0
        install_lm_eval(directory / "lm-eval")
        server.api_key = KEY
        server.behaviour["/v1/chat/completions"] = self.answer

    def answer(self, handler):
        """Answer 800 of the 1000 questions, and with the new state as many more and fewer as are planted."""
        row = MADE[handler.payload["messages"][-1]["content"]]
        number = int(row["id"].rpartition("-")[2]) - 1
        right = number < RIGHT
        if self.steps.exists() and "apply" in self.steps.read_text():
            right = self.lost <= number < RIGHT + self.gained
        handler.send_json(chat_body(f"It is {row['answer'] if right else 'unknown'}."))

    def play(self, tasks, hosts="gpu-1,gpu-2", **variables):
        """Ask the made questions."""
        return super().play(tasks, hosts, **{"evaluate_tasks": "made", "evaluate_samples": 1000, **variables})


@pytest.fixture(scope="module")
def evaluated(place):
    """The hosts after an evaluation of what they serve."""
    with fake_vllm() as server:
        found = MadeFleet(place, server)
        asked = [{"ansible.builtin.include_tasks": f"{TOP}/playbooks/tasks/evaluate.yml"}]
        rc, output = found.play(asked, evaluate_dir=str(place / "before"))
        assert rc == 0, output
        yield found


@pytest.fixture
def fleet(evaluated, place):
    evaluated.lost = evaluated.gained = 0
    evaluated.steps.unlink(missing_ok=True)
    shutil.rmtree(place / "after", ignore_errors=True)
    return evaluated


def steps(fleet):
    return fleet.steps.read_text().splitlines() if fleet.steps.exists() else []


def test_a_planted_loss_of_5_points_restores_the_first_host_and_reaches_no_other(fleet, place):
    fleet.lost, fleet.gained = 60, 10
    rc, output = fleet.roll_out()
    assert rc != 0 and "gpu-1: made of chat is worse than in" in output, output
    assert "80.0 % 60 10 " in output and " worse" in output, output
    assert steps(fleet) == ["gpu-1 drain", "gpu-1 apply", "gpu-1 undo"]
    before, after = (json.loads((place / name / "gpu-1/chat/made.json").read_text()) for name in ("before", "after"))
    assert (before["score"], after["score"], after["samples"]) == (0.8, 0.75, 1000)


@pytest.mark.long
def test_answers_that_only_changed_let_the_rollout_pass(fleet):
    fleet.lost, fleet.gained = 20, 18
    rc, output = fleet.roll_out(hosts="gpu-1")
    assert rc == 0 and "no difference found" in output, output
    assert steps(fleet) == ["gpu-1 drain", "gpu-1 apply", "gpu-1 return"]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"evaluate_compare": "/nowhere"}, "evaluate_compare: /nowhere is not a directory on the controller"),
        ({"evaluate_samples": 500}, "made: evaluate_samples: found 500, but the run to compare with has 0"),
        ({"evaluate_tasks": "gpqa"}, "evaluate_data: gpqa is missing"),
        (
            {"rollout_gate_tasks": ["evaluate.yml"]},
            'rollout_gate_tasks: found "evaluate.yml", expected the absolute',
        ),
    ],
)
def test_what_cannot_be_compared_ends_before_anything_changes(fleet, variables, expected):
    rc, output = fleet.roll_out(**variables)
    assert rc != 0 and expected in output, output
    assert steps(fleet) == []
