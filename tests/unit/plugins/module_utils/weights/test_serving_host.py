# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances that run from a damaged model; the module's tests repair one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError
from ansible_collections.baremetal.inference.plugins.module_utils.weights.serving_host import (
    describe_serving,
    find_serving,
    stopped,
)


def state_of(directory, *missing):
    return SimpleNamespace(directory=str(directory), missing=[SimpleNamespace(name=name) for name in missing])


def test_only_units_that_run_from_a_damaged_model_are_found(tmp_path):
    model, other = tmp_path / "model", tmp_path / "other"
    for directory in (model, other):
        directory.mkdir()
    for name, target in (("chat", model), ("idle", model), ("quick", other)):
        (tmp_path / "state" / name).mkdir(parents=True)
        (tmp_path / "state" / name / "model").symlink_to(target)
    active = ("vllm@chat.service", "vllm@quick.service").__contains__
    assert find_serving(state_of(model, "a"), str(tmp_path / "state"), active) == ["vllm@chat.service"]
    assert find_serving(state_of(model), str(tmp_path / "state"), active) == []
    assert find_serving(state_of(model, "a"), str(tmp_path / "nothing"), active) == []


def test_the_sentence_names_files_units_and_the_permission():
    text = describe_serving(state_of("/srv/m", "a", "b"), ["vllm@chat.service", "vllm@chat-2.service"])
    assert text.startswith("/srv/m: a, b must be fetched again, but vllm@chat.service and vllm@chat-2.service run from")
    assert "weights_repair=true" in text


@pytest.mark.parametrize("faulty", ["", "stop", "start"])
def test_units_are_started_again_whatever_happens(faulty):
    asked = []

    def systemctl(verb, unit):
        asked.append(f"{verb} {unit}")
        return "no such luck" if verb == faulty else ""

    def replace():
        with stopped(["a", "b"], systemctl):
            asked.append("replaced")

    if faulty:
        with pytest.raises(WeightsError, match="no such luck"):
            replace()
    else:
        replace()
    # One that does not stop keeps its files.
    between = ["stop a"] if faulty == "stop" else ["stop a", "stop b", "replaced"]
    assert asked == [*between, "start a", "start b"]


def test_a_failed_replacement_starts_the_unit_too():
    asked = []
    with pytest.raises(OSError, match="disk"), stopped(["a"], lambda verb, _unit: asked.append(verb) or ""):
        raise OSError("disk")
    assert asked == ["stop", "start"]
