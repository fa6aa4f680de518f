# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

REVISION = "0d7a1e6f4f5f0b1f6a3d0f6c5f0c8a1be2a1c0de"
MODEL = f"/srv/models/example/tiny/{REVISION}"


def test_model_is_there_as_it_was_pinned(host):
    assert host.file(f"{MODEL}/config.json").content_string == "{}"
    sha256 = host.file(f"{MODEL}/model.safetensors").sha256sum
    assert sha256 == "4d3ce487907df7c82875b924d841f0a3d576492e4d589b734abbd71d966151a8"
    stamp = json.loads(host.file(f"{MODEL}/.verified.json").content_string)
    assert stamp["files"]["model.safetensors"]["sha256"] == sha256


@pytest.mark.parametrize("path", ["/srv/models", "/srv/models/example", MODEL])
def test_directories_are_readable_for_every_instance(host, path):
    directory = host.file(path)
    assert (directory.user, directory.group, directory.mode) == ("root", "root", 0o755)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", ".verified.json"])
def test_files_are_readable_for_every_instance(host, name):
    file = host.file(f"{MODEL}/{name}")
    assert (file.user, file.group, file.mode) == ("root", "root", 0o644)


def test_nothing_is_left_beside_the_model(host):
    assert host.file("/srv/models/example/tiny").listdir() == [REVISION]


def test_wrong_input_has_published_nothing(host):
    assert not host.file(f"/srv/refused/example/tiny/{REVISION}").exists


def test_running_instance_still_has_its_directory(host):
    assert host.service("vllm@held").is_running
    assert host.file(f"/srv/models/example/held/{REVISION}/config.json").content_string == "damaged"
