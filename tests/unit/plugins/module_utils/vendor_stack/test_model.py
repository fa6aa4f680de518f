# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import (
    DkmsBuild,
    Host,
    Key,
    Module,
    Package,
    Repository,
    StackError,
    branch_of,
)


def test_the_branch_is_the_first_number():
    assert branch_of("580.159.04") == branch_of("580") == 580
    with pytest.raises(StackError, match="'latest' does not begin with a number"):
        branch_of("latest")


@pytest.mark.parametrize(("manager", "word"), [("apt", "nvidia-open=580.95.05-*"), ("dnf", "nvidia-open-580.95.05-*")])
def test_a_package_is_meant_in_the_managers_words(manager, word):
    assert Package("nvidia-open", "580.95.05-*").spec(manager) == word
    assert Package("dkms").spec(manager) == "dkms"


@pytest.mark.parametrize(
    ("distribution", "manager"),
    [("debian", "apt"), ("ubuntu", "apt"), ("rocky", "dnf"), ("ol", "dnf"), ("rhel", "dnf")],
)
def test_clones_take_their_packages_from_dnf(distribution, manager):
    assert Host(distribution, "9.6", "", "x86_64", "5.14.0", "5.14.0").manager == manager


def test_a_kernel_that_boots_next_counts_once():
    assert Host("debian", "12", "", "x86_64", "6.1.0-28-amd64", "6.1.0-28-amd64").kernels == ("6.1.0-28-amd64",)
    assert Host("ubuntu", "24.04", "", "x86_64", "a", "b").kernels == ("a", "b")
    assert Host("ubuntu", "24.04", "", "x86_64", "a", "b").major == "24"


def test_facts_survive_as_plain_data():
    host = Host(
        "ubuntu",
        "24.04",
        "noble",
        "x86_64",
        "a",
        "b",
        packages={"dkms": "3"},
        modules={"nvidia": Module("580.95.05", "AB")},
        dkms=(DkmsBuild("nvidia", "580.95.05", "a", "installed"),),
        holds=("nvidia-open",),
    )
    assert Host.from_dict(json.loads(json.dumps(host.as_dict()))) == host


def test_the_file_of_a_repository():
    key = Key("https://example.com/key.pub", "/etc/apt/keyrings/key.asc", "AB")
    file = Repository("cuda", "https://example.com/", key, ("trixie", "trixie-updates"), ("non-free",)).file("apt")
    assert file.path == "/etc/apt/sources.list.d/cuda.sources"
    assert file.content == (
        "Types: deb\nURIs: https://example.com/\nSuites: trixie trixie-updates\nComponents: non-free\n"
        "Signed-By: /etc/apt/keyrings/key.asc\n"
    )
    file = Repository("cuda", "https://example.com/", key).file("dnf")
    assert file.path == "/etc/yum.repos.d/cuda.repo"
    assert "gpgcheck=1\n" in file.content
    assert "gpgkey=file:///etc/apt/keyrings/key.asc\n" in file.content
