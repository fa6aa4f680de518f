# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.action.serve_plan import doubtful_variables, plan_host
from ansible_collections.baremetal.inference.plugins.module_utils._plan import PlanError

SMOKE = {"recipe": "baremetal/gpt-oss-smoke"}


def planned(**wishes):
    """Plan one instance of the smoke model on a CPU host, from the bundled catalogue."""
    options = {
        "instances": {"chat": {**SMOKE, **wishes}},
        "release": "0.32.0",
        "accelerator": dict.fromkeys(("model", "stack", "generation", "vendor"), "cpu")
        | {"count": 1, "memory_mib": 8192},
        "site": {
            "weights_root": "/srv/models",
            "encodings_dir": "/srv/encodings",
            "cache_root": "/var/cache/vllm",
            "venv_root": "/opt/vllm",
            "drain_timeout": 60,
        },
        "recipe_path": [],
        "release_path": [],
        "weights_manifest_path": [],
    }
    return plan_host("h1", options)["chat"]


def test_what_the_collection_sets_itself_is_known_to_the_release():
    assert doubtful_variables(planned()) == []


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        (
            {"args": {"max-model-length": 1}},
            r"--max-model-length: vLLM 0\.32\.0 has no such flag; nearest: 'max-model-len'",
        ),
        ({"args": {"cuda-graph-sizes": 1}}, r"the last release here that has it is 0\.11\.0"),
        ({"args": {"max-model-len": "many"}}, 'found "many"'),
        ({"env": {"VLLM_USE_V1": "1"}}, r"VLLM_USE_V1: vLLM 0\.32\.0 does not read this variable"),
    ],
)
def test_what_the_release_does_not_know_is_refused(wishes, message):
    with pytest.raises(PlanError, match=f"vllm_instances.chat: .*{message}"):
        planned(**wishes)


def test_a_variable_that_nobody_is_known_to_read_is_doubted():
    (doubt,) = doubtful_variables(planned(env={"MY_OWN": "1"}))
    assert "vllm_instances.chat.env: MY_OWN" in doubt
