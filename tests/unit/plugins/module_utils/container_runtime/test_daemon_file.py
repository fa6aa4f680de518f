# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.daemon_file import (
    describe_settings,
    merge_text,
    redact_output,
    redact_settings,
)
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.facts import RuntimePlanError

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
    assert json.loads(merge_text(json.dumps(SITE), settings)) == {
        "log-driver": "journald",
        "registry-mirrors": ["https://m:5000"],
        "exec-opts": ["other=1", "native.cgroupdriver=cgroupfs"],
        "runtimes": {"crun": {"path": "/usr/bin/crun"}, "nvidia": {"path": "nvidia-container-runtime"}},
        "features": {"buildkit": True, "cdi": True},
        "data-root": "/data",
    }


def test_a_file_that_says_it_already_keeps_its_bytes():
    text = '{ "features": {"cdi":true},\n\n "debug":false}'
    assert merge_text(text, {"features": {"cdi": True}}) == text
    assert merge_text(text, {}) == text


@pytest.mark.parametrize("before", ["", " \n"])
def test_a_new_daemon_json(before):
    assert merge_text(before, {"data-root": "/data"}) == '{\n  "data-root": "/data"\n}\n'


def test_writing_twice_changes_nothing():
    once = merge_text(json.dumps(SITE), {"data-root": "/data", "exec-opts": ["native.cgroupdriver=cgroupfs"]})
    assert merge_text(once, {"data-root": "/data", "exec-opts": ["native.cgroupdriver=cgroupfs"]}) == once


def test_a_value_of_the_inventory_is_a_text_like_any_other():
    given = type("TaggedText", (str,), {})("/data")
    assert merge_text('{"data-root": "/data"}', {"data-root": given}) == '{"data-root": "/data"}'
    with pytest.raises(RuntimePlanError, match="data-root: found a number, expected a text"):
        merge_text('{"data-root": 3}', {"data-root": given})


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ('{"debug": tru}', r"daemon\.json is not valid JSON: .*line 1 column 11.*; repair or remove it"),
        ('{"data-root": "/x", "features": "https://u:hunter2@m"}', "features: found a text, expected a mapping$"),
        ("[]", "found a list, expected a mapping of settings"),
        ('{"data-root": 3}', "data-root: found a number, expected a text"),
        ('{"data-root": "/x", "features": []}', r"features: found a list, expected a mapping"),
    ],
)
def test_a_file_that_docker_could_not_read_is_not_written_over(before, message):
    with pytest.raises(RuntimePlanError, match=message):
        merge_text(before, {"data-root": "/data", "features": {"cdi": True}})


def test_options_that_are_no_texts_are_refused():
    with pytest.raises(RuntimePlanError, match="exec-opts: found a number in the list, expected texts"):
        merge_text('{"exec-opts": [3]}', {"exec-opts": ["native.cgroupdriver=cgroupfs"]})


# What leaves the host.

SECRET = "hunter2"
SECRETIVE = {
    "proxies": {"http-proxy": f"http://reader:{SECRET}@proxy.example:3128"},
    "log-opts": {"splunk-token": SECRET},
    "data-root": "/data",
    "registry-mirrors": [f"https://reader:{SECRET}@old:5000", f"https://old:5000?token={SECRET}", "https://plain:5000"],
    "insecure-registries": [f"reader:{SECRET}@old", f"http://reader:{SECRET}/{SECRET} {SECRET}@old", "m:5000"],
    "exec-opts": ["native.cgroupdriver=systemd"],
    "runtimes": {
        "odd": SECRET,
        "site": {"path": "site", "runtimeArgs": [f"--token={SECRET}"], "options": {"x": SECRET}},
    },
    "features": {"buildkit": True},
}


def test_only_keys_of_the_role_are_shown_and_without_credentials():
    assert redact_settings(SECRETIVE) == {
        "data-root": "/data",
        "registry-mirrors": ["https://********@old:5000", "https://old:5000?********", "https://plain:5000"],
        "insecure-registries": ["********@old", "http://********@old", "m:5000"],
        "exec-opts": ["native.cgroupdriver=systemd"],
        "runtimes": {
            "odd": "********",
            "site": {"path": "site", "runtimeArgs": "********", "options": "********"},
        },
        "features": {"buildkit": True},
    }


def test_settings_of_the_role_are_shown_as_they_are_so_that_a_second_run_changes_nothing():
    settings = {
        "data-root": "/data/@docker",
        "registry-mirrors": ["http://m:5000"],
        "insecure-registries": ["m:5000"],
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": []}},
        "features": {"cdi": True},
    }
    assert redact_settings(settings) == settings


@pytest.mark.parametrize("before", [SECRET, f'{{"x": "{SECRET}" tru}}', json.dumps([SECRET]), json.dumps(SECRETIVE)])
def test_no_error_shows_a_value(before):
    with pytest.raises(RuntimePlanError, match=r"is not valid JSON|found a .*, expected a ") as caught:
        merge_text(before, {"registry-mirrors": "a text, where the file has a list"})
    assert SECRET not in str(caught.value)


def test_a_difference_shows_the_keys_that_are_set():
    text = json.dumps(SECRETIVE)
    assert json.loads(describe_settings(text, ["data-root", "features"])) == {
        "data-root": "/data",
        "features": {"buildkit": True},
    }
    assert SECRET not in describe_settings(text, list(SECRETIVE))
    assert describe_settings("", ["data-root"]) == ""


ODD = 'p\\w"d/1#2 3é'


@pytest.mark.parametrize(
    ("value", "output", "shown"),
    [
        ("http://u:hunter2@h", 'parse "http://u:hunter2@h": bad', 'parse "********": bad'),
        (f"http://u:{ODD}@h", f'parse "http://u:{ODD}@h"', 'parse "********"'),
        (f"http://u:{ODD}@h", json.dumps(f"http://u:{ODD}@h", ensure_ascii=False), '"********"'),
        ("http://u:p/w@h", 'invalid port ":p" after host', 'invalid port ":********" after host'),
        ("http://u:hunter2@h", "proxy http://u:hunter2@h:80/", "proxy ********:80/"),
        ("http://u:hunter2@h", "proxy https://u:hunter2@other", "proxy https://********@other"),
        ("to", "token to of", "token ******** of"),
        ("hunter2", "xhunter2x", "x********x"),
        ("/data", "cannot use /data", "cannot use /data"),
    ],
)
def test_what_docker_prints_of_its_file_is_shown_without_the_sites_values(value, output, shown):
    text = json.dumps({"x": [{"y": value}], "data-root": "/data"})
    assert redact_output(output, text, {"data-root": "/data"}) == shown
