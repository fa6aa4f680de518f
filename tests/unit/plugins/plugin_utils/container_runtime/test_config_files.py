# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.facts import RuntimePlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.container_runtime.config_files import (
    cgroup_driver_of,
    daemon_text,
    mirror_urls,
    registries_text,
    storage_text,
)

SITE = {
    "log-driver": "journald",
    "registry-mirrors": ["https://old:5000"],
    "exec-opts": ["native.cgroupdriver=systemd", "other=1"],
    "runtimes": {"crun": {"path": "/usr/bin/crun"}},
    "features": {"buildkit": True},
}


def test_what_the_site_has_in_daemon_json_stays():
    settings = {
        "registry-mirrors": ["https://m:5000"],
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}},
        "features": {"cdi": True},
        "data-root": "/data",
    }
    assert json.loads(daemon_text(json.dumps(SITE), settings)) == {
        "log-driver": "journald",
        "registry-mirrors": ["https://m:5000"],
        "exec-opts": ["other=1", "native.cgroupdriver=cgroupfs"],
        "runtimes": {"crun": {"path": "/usr/bin/crun"}, "nvidia": {"path": "nvidia-container-runtime"}},
        "features": {"buildkit": True, "cdi": True},
        "data-root": "/data",
    }


def test_a_file_that_says_it_already_keeps_its_bytes():
    text = '{ "features": {"cdi":true},\n\n "debug":false}'
    assert daemon_text(text, {"features": {"cdi": True}}) == text
    assert daemon_text(text, {}) == text


@pytest.mark.parametrize("before", ["", " \n"])
def test_a_new_daemon_json(before):
    assert daemon_text(before, {"data-root": "/data"}) == '{\n  "data-root": "/data"\n}\n'


def test_writing_twice_changes_nothing():
    once = daemon_text(json.dumps(SITE), {"data-root": "/data", "exec-opts": ["native.cgroupdriver=cgroupfs"]})
    assert daemon_text(once, {"data-root": "/data", "exec-opts": ["native.cgroupdriver=cgroupfs"]}) == once


def test_a_value_of_the_inventory_is_a_text_like_any_other():
    given = type("TaggedText", (str,), {})("/data")
    assert daemon_text('{"data-root": "/data"}', {"data-root": given}) == '{"data-root": "/data"}'
    with pytest.raises(RuntimePlanError, match="data-root: found 3, expected a text"):
        daemon_text('{"data-root": 3}', {"data-root": given})


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ('{"debug": tru}', r"daemon\.json is not valid JSON: .*line 1 column 11.*; repair or remove it"),
        ("[]", "found list, expected an object of settings"),
        ('{"data-root": 3}', "data-root: found 3, expected a text"),
        ('{"data-root": "/x", "features": []}', r"features: found \[\], expected an object"),
    ],
)
def test_a_file_that_docker_could_not_read_is_not_written_over(before, message):
    with pytest.raises(RuntimePlanError, match=message):
        daemon_text(before, {"data-root": "/data", "features": {"cdi": True}})


@pytest.mark.parametrize(
    ("text", "driver"),
    [("", ""), ('{"exec-opts": ["a=b"]}', ""), ('{"exec-opts": ["a=b", "native.cgroupdriver=systemd"]}', "systemd")],
)
def test_the_driver_of_cgroups(text, driver):
    assert cgroup_driver_of(text) == driver


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
