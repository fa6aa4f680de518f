# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.daemon_file import KEYS
from ansible_collections.baremetal.inference.plugins.plugin_utils.container_runtime.config_files import (
    FLAGS,
    cgroup_driver_of,
    mirror_urls,
    registries_text,
    storage_text,
)


@pytest.mark.parametrize(
    ("found", "driver"),
    [({}, ""), ({"exec-opts": ["a=b"]}, ""), ({"exec-opts": ["a=b", "native.cgroupdriver=systemd"]}, "systemd")],
)
def test_the_driver_of_cgroups(found, driver):
    assert cgroup_driver_of(found) == driver


def test_every_key_that_the_role_sets_is_read_from_the_host():
    assert sorted(FLAGS) == sorted(KEYS)


def test_a_mirror_without_tls_is_asked_over_http():
    assert mirror_urls(["a:5000", "b"], ["a:5000"]) == ["http://a:5000", "https://b"]


def test_podmans_registries():
    assert registries_text(["a:5000", "b"], ["a:5000"]).splitlines()[1:] == [
        "[[registry]]",
        'prefix = "docker.io"',
        'location = "docker.io"',
        "",
        "[[registry.mirror]]",
        'location = "a:5000"',
        "insecure = true",
        "",
        "[[registry.mirror]]",
        'location = "b"',
        "",
        "[[registry]]",
        'location = "a:5000"',
        "insecure = true",
    ]


STORAGE = [
    ('[storage]\ngraphroot = "/old"\n', '[storage]\ngraphroot = "/new"\n'),
    ('[storage]\n# graphroot = "/old"\nx = 1\n', '[storage]\ngraphroot = "/new"\n# graphroot = "/old"\nx = 1\n'),
    ('[other]\ngraphroot = "/o"\n', '[other]\ngraphroot = "/o"\n[storage]\ngraphroot = "/new"\n'),
    (
        "[storage]\n[storage.options]\ngraphroot = 1\n",
        '[storage]\ngraphroot = "/new"\n[storage.options]\ngraphroot = 1\n',
    ),
]


@pytest.mark.parametrize(("before", "after"), STORAGE)
def test_podmans_storage_keeps_all_else(before, after):
    assert storage_text(before, "/new") == after
    assert storage_text(after, "/new") == after


def test_podmans_storage_from_nothing():
    assert storage_text("", "/new").splitlines()[1:] == [
        "[storage]",
        'driver = "overlay"',
        'runroot = "/run/containers/storage"',
        'graphroot = "/new"',
    ]
