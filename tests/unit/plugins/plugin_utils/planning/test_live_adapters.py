# SPDX-License-Identifier: GPL-3.0-or-later
"""Which instances may change their adapters while they run."""

from __future__ import annotations

import pytest

from tests.fakes.plans import CPU, RELEASE, plan

ABLE = {**RELEASE, "supports": [*RELEASE["supports"], "runtime-lora"]}
UPDATING, GUARD = "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "OPERATOR_GUARD"


def variables(args, env=None, release=ABLE, **more):
    """Return the two variables in the plan of an instance."""
    found = plan({"args": args, "env": env or {}}, release=release, **more).env
    return found.get(UPDATING), found.get(GUARD)


@pytest.mark.parametrize("more", [{}, {"lora-modules": ["sql=/a"]}, {"api-server-count": 1}, {"data-parallel-size": 1}])
def test_an_instance_with_adapters_gets_the_endpoints_and_their_guard(more):
    assert variables({"enable-lora": True, **more}) == ("1", "1")


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"enable-lora": False},
        {"enable-lora": True, "api-server-count": 2},
        # vLLM starts an API server for each rank, and with the variable refuses to.
        {"enable-lora": True, "data-parallel-size": 2},
        {"enable-lora": True, "data-parallel-size": 2, "api-server-count": 1},
    ],
)
def test_others_do_not(args):
    assert variables(args) == (None, None)


def test_a_release_whose_prefix_cache_mixes_adapters_up_does_not():
    assert variables({"enable-lora": True}, release=RELEASE) == (None, None)


@pytest.mark.parametrize(("chosen", "expected"), [("1", "1"), ("0", "0"), (None, None)])
def test_the_choice_of_the_site_stays(chosen, expected):
    assert variables({"enable-lora": True}, {UPDATING: chosen}) == (expected, None)


def test_adapters_that_requests_load_are_not_unloaded():
    assert variables({"enable-lora": True}, {"VLLM_LORA_RESOLVER_CACHE_DIR": "/x"}) == (None, None)


def test_the_plan_says_why():
    found = plan({"args": {"enable-lora": True}}, release=ABLE)
    steps = [entry for entry in found.explain if entry["key"] == f"env.{GUARD}"]
    assert steps and "root on the host only" in str(steps) and found.warnings == plan({}, release=ABLE).warnings


def test_a_container_sees_the_adapters_of_the_future():
    args = {"enable-lora": True, "lora-modules": ["sql=/srv/models/org/lora/1", "own=/elsewhere/lora"]}
    found = plan({"args": args}, release=ABLE)
    other = plan(
        {"args": {**args, "lora-modules": ["sql=/srv/models/org/lora/2", "own=/elsewhere/lora"]}}, release=ABLE
    )
    assert "/srv/models:/srv/models:ro" in found.mounts and "/elsewhere/lora:/elsewhere/lora:ro" in found.mounts
    assert found.mounts == other.mounts and not [path for path in found.mounts if "/org/lora/" in path]
    one_each = plan({"args": args}, release=RELEASE).mounts
    assert (
        "/srv/models:/srv/models:ro" not in one_each and "/srv/models/org/lora/1:/srv/models/org/lora/1:ro" in one_each
    )


def test_a_virtual_environment_has_them_too():
    assert variables({"enable-lora": True}, accelerator=CPU, manifests={}) == ("1", "1")
