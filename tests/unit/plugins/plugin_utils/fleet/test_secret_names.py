# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_reader import FleetError
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.secret_names import check_secret_names


class Reader:
    """Knows the instances of other hosts."""

    def __init__(self, **names):
        self.names, self.asked = names, []

    def names_elsewhere(self, wanted, hosts):
        self.asked.append((wanted, hosts))
        seen = {name for host in hosts for name in self.names.get(host, ())}
        return wanted - seen, seen


def check(secrets, instances=("chat",), reader=None, hosts=("h2",)):
    check_secret_names(secrets, instances, reader or Reader(h2={"code"}), list(hosts))


def test_secrets_of_this_host_or_another_are_used():
    check({"chat": {"VLLM_API_KEY": ""}, "code": {"HF_TOKEN": ""}})
    reader = Reader()
    check({"chat": {"VLLM_API_KEY": ""}}, reader=reader)
    assert reader.asked == [], "other hosts are read only where a name is none of this one"


def test_secrets_that_nothing_uses_are_refused_with_the_nearest_name():
    with pytest.raises(FleetError, match=r"vllm_secrets\.coed: no host has an instance 'coed', .*; nearest: 'code'"):
        check({"coed": {"VLLM_API_KEY": ""}, "zzz": {"X": ""}})


def test_the_nearest_instance_is_one_of_the_same_host():
    with pytest.raises(FleetError, match="nearest: 'chat'"):
        check({"chta": {"VLLM_API_KEY": ""}}, reader=Reader(h2={"Chat", "chtaa"}))


def test_a_value_with_a_problem_is_refused_without_the_value():
    with pytest.raises(
        FleetError, match=r"\Avllm_secrets\.chat\.VLLM_API_KEY: is empty, expected a text of one line\Z"
    ):
        check({"chat": {"VLLM_API_KEY": "is empty"}})
