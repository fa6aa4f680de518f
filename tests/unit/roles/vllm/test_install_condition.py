# SPDX-License-Identifier: GPL-3.0-or-later
"""When the role vllm installs, and asks about the encodings: a host that lacks nothing is passed over."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
import yaml

VARS = Path(__file__).resolve().parents[4] / "roles/vllm/vars/main.yml"
COMPLETE = {
    "vllm_host_state": {"has_user": True, "missing_libraries": [], "missing_packages": []},
    "vllm_plan": {"images": []},
    "vllm_image_pull": "missing",
    "vllm_group_firewall": "nftables",
    "__vllm_venvs": {"changed": False},
    "__vllm_images": {"changed": False},
    "__vllm_groups": {},
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),
        ({"__vllm_venvs": {"changed": True}}, True),
        ({"__vllm_groups": {"big": {}}}, True),
        ({"__vllm_groups": {"big": {}}, "vllm_group_firewall": "none"}, False),
    ],
)
def test_a_host_installs_what_it_lacks(changes, expected):
    assert render("__vllm_lacks_something", changes) == str(expected)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),
        ({"vllm_host_state": {"encodings_accepted": False}}, True),
        ({"__vllm_venvs": {"changed": True}}, True),
        ({"__vllm_pulled": {"changed": True}}, True),
        ({"vllm_plan": {"encodings": []}, "__vllm_venvs": {"changed": True}}, False),
        # The plan of a release before 0.5.0 has no encodings.
        ({"vllm_plan": {}, "vllm_host_state": {}}, False),
    ],
)
def test_new_libraries_are_asked_about_the_encodings(changes, expected):
    known = {"vllm_plan": {"encodings": ["o200k"]}, "vllm_host_state": {"encodings_accepted": True}}
    assert render("__vllm_encodings_due", {"__vllm_pulled": {"changed": False}, **known, **changes}) == str(expected)


def render(name, changes):
    environment = jinja2.Environment(autoescape=False)
    environment.tests["changed"] = lambda result: result["changed"]
    text = yaml.safe_load(VARS.read_text(encoding="utf-8"))[name]
    return environment.from_string(text).render({**COMPLETE, **changes})
