# SPDX-License-Identifier: GPL-3.0-or-later
"""What the variables of remove.yml ask for."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.removal.request import (
    RemovalRequestError,
    parse_request,
)


def test_names_are_a_text_with_commas_or_a_list():
    assert parse_request({"instance": "chat, code,chat"}, []) == {
        "kind": "instance",
        "names": ["chat", "code"],
        "also": [],
    }
    assert parse_request({"model": ["a/b"]}, ["remove_model"]) == {"kind": "model", "names": ["a/b"], "also": []}
    assert parse_request({"everything": True}, []) == {"kind": "everything", "names": [], "also": []}


@pytest.mark.parametrize(
    ("options", "found"),
    [({}, "found none"), ({"instance": "a", "everything": True}, "found remove_instance and remove_everything")],
)
def test_exactly_one_thing_is_requested(options, found):
    with pytest.raises(RemovalRequestError, match=f"{found}, expected exactly one of remove_instance, remove_model"):
        parse_request(options, [])


def test_a_misspelt_variable_is_an_error_with_the_nearest_one():
    with pytest.raises(RemovalRequestError, match=r"remove_instances is not a variable .*nearest: 'remove_instance'"):
        parse_request({}, ["remove_instances", "vllm_instances"])


@pytest.mark.parametrize(
    ("kind", "name"),
    [("instance", "../etc"), ("instance", ""), ("model", "gpt-oss-20b"), ("model", "a/b@main"),
     ("environment", "latest"), ("environment", "0.32.0/.."), ("image", "vllm/vllm-openai"), ("image", "a b:1")],
)  # fmt: skip
def test_a_name_of_another_form_is_an_error(kind, name):
    with pytest.raises(RemovalRequestError, match=rf"remove_{kind} \(--{kind}\): found .*, expected a name such as"):
        parse_request({kind: [name]}, [])


@pytest.mark.parametrize("name", ["mirror:5000/vllm/vllm-openai:v0.33.0", "vllm:1", f"quay.io/a/b@sha256:{'0' * 64}"])
def test_references_of_images_are_accepted(name):
    assert parse_request({"image": name}, [])["names"] == [name]


def test_drivers_and_engines_go_with_everything_only():
    assert parse_request({"everything": True, "driver": True}, ["remove_driver"])["also"] == ["driver"]
    with pytest.raises(RemovalRequestError, match="found remove_driver with remove_instance, expected it with"):
        parse_request({"instance": "chat", "driver": True}, [])
