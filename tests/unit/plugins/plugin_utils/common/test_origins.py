# SPDX-License-Identifier: GPL-3.0-or-later
"""The file and the line of what a problem is about, as ansible-core itself reads an inventory's file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.origins import origin_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_reader import HostReader

TEXT = """\
vllm_drain_timeout: soon
vllm_instances:
  chat:
    recipe: org/model
    args:
      seed: x
      compilation-config:
        mode: 5
  other.name:
    recipe: org/model
acelerator: h200
site_helth: true
third:
  port:
  args:
    --max_model_len: 5
    seed: 1
  env:
    OTHER: "1"
    VLLM_X: "1"
  recepie: x
"""


@pytest.fixture
def variables(tmp_path):
    path = tmp_path / "inference.yml"
    path.write_text(TEXT)
    loaded = DataLoader().load_from_file(str(path))
    return os.path.relpath(path), {**loaded, "plain": {"a": 1}}


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        ("vllm_drain_timeout: found 'soon', expected a whole number", 1),
        ("vllm_instances.chat.recipe: no such recipe", 4),
        ("vllm_instances.chat: --seed: expected an integer", 6),
        ("vllm_instances.chat: --compilation-config.mode: expected one of", 8),
        ("vllm_instances.chat.args.seed: found 'x'", 6),
        # A key that is not there: what it would stand in.
        ("vllm_instances.chat: --missing: expected a text", 6),
        # A variable that is missing: where the one stands that needs it.
        ("vllm_wheel_index: found nothing, and vllm_instances.chat.recipe is venv", 4),
        ("vllm_drain_timeout: found nothing, and vllm_instances.chat.recipe is venv", 1),
        ("no role has an option acelerator; nearest: 'accelerator'", 11),
        # A boolean has no position; its key has.
        ("site_helth is not a switch of site.yml; nearest: 'site_health'", 12),
        # Nothing, a number, an argument in another spelling, a variable of env, a key that is unknown.
        ("third.port: found nothing, expected a number", 14),
        ("third: max-model-len is 5, expected at most 4", 16),
        ("third: --max-model-len: expected at most 4", 16),
        ("third: --seed: expected at most 4", 17),
        ("third: VLLM_X: vLLM does not read this variable", 20),
        ("third: unknown key 'recepie'; nearest: 'recipe'", 21),
        ("third: VLLM_Y: vLLM does not read this variable", 14),
        ("vllm_instances.other.name.recipe: no such recipe", 10),
        ("vllm_instances.other.name: --seed: no args here", 10),
        ("plain.a: wrong", None),
        ("nobody knows it", None),
        ("", None),
    ],
)
def test_the_line_of_a_problem(variables, problem, line):
    path, known = variables
    assert origin_of(problem, known) == (f"{path}:{line}" if line else "")


def test_a_problem_of_hosts_has_the_place_that_they_share(variables):
    path, known = variables
    hosts = {"a": known, "b": known, "c": {"vllm_drain_timeout": "soon"}}
    reader = HostReader(type("HostVars", (), {"raw_get": staticmethod(hosts.get)}), None)
    text = "vllm_drain_timeout: found 'soon'"
    assert reader.located({text: ["a", "b"]}) == {f"{text} ({path}:1)": ["a", "b"]}
    assert reader.located({text: ["a", "c"]}) == {text: ["a", "c"]}


def test_a_line_of_the_collection_is_no_place_of_a_site():
    path = Path(__file__).parents[5] / "playbooks/gateway_keys.yml"
    loaded = DataLoader().load_from_file(str(path))[0]
    assert origin_of("hosts: wrong", {"hosts": loaded["hosts"]}) == ""
