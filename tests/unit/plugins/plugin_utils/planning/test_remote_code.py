# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Code that comes with weights runs only with the site's permission."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

from tests.fakes.plans import plan, recipe

TRUSTING = recipe(model={"base_args": ["--trust-remote-code"]})


def manifests(*names):
    files = {name: {"size": 1, "sha256": "0" * 64} for name in ("model.safetensors", *names)}
    return {"org/model": {"repository": "org/model", "revision": "e" * 40, "files": files}}


def test_a_recipe_alone_cannot_allow_it():
    with pytest.raises(PlanError) as caught:
        plan(a_recipe=TRUSTING, manifests=manifests("modeling_x.py", "b.py", "c.py", "a.py"))
    assert str(caught.value) == (
        "vllm_instances.chat: the recipe sets --trust-remote-code, and the weights of org/model bring code that vLLM "
        "would run: a.py, b.py, c.py and 1 more; read these files, then allow them with vllm_instances.chat.args: "
        "{trust-remote-code: true}, or remove the flag with {trust-remote-code: null}"
    )


def test_the_site_allows_or_removes_it():
    code = manifests("modeling_x.py")
    assert plan({"args": {"trust-remote-code": True}}, a_recipe=TRUSTING, manifests=code).args["trust-remote-code"]
    removed = plan({"args": {"trust-remote-code": None}}, a_recipe=TRUSTING, manifests=code)
    assert "trust-remote-code" not in removed.args


def test_weights_without_code_are_not_affected():
    assert plan(a_recipe=TRUSTING, manifests=manifests()).args["trust-remote-code"] is True
    assert plan(a_recipe=TRUSTING, manifests={}).args["trust-remote-code"] is True
    assert "trust-remote-code" not in plan(a_recipe=recipe(), manifests=manifests("modeling_x.py")).args
