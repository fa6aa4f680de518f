# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.baremetal.inference.plugins.filter.roles import FilterModule

secret_names = FilterModule().filters()["secret_names"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "an empty text"), ("  ", "an empty text"), (None, "nothing"), (["a"], "a list"), ({}, "a mapping"),
        (True, "true or false"), ("a\nb", "a text of several lines"),
    ],
)  # fmt: skip
def test_a_value_that_is_no_key_has_a_problem_without_the_value(value, problem):
    assert secret_names({"chat": {"VLLM_API_KEY": value}}) == {"chat": {"VLLM_API_KEY": f"found {problem}"}}


def test_a_key_has_no_problem_and_is_not_in_the_result():
    assert secret_names({"chat": {"VLLM_API_KEY": "hidden"}}) == {"chat": {"VLLM_API_KEY": ""}}


def test_secrets_of_an_instance_that_are_not_a_mapping_are_refused_by_name():
    with pytest.raises(AnsibleFilterError, match=r"vllm_secrets.chat: found nothing"):
        secret_names({"chat": None})
