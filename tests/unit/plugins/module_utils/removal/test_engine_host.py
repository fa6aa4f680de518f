# SPDX-License-Identifier: GPL-3.0-or-later
"""Images and containers as docker and podman answer."""

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.removal.engine_host import Engines
from ansible_collections.baremetal.inference.plugins.module_utils.removal.model import RemovalError, StoredImage

ENTRY = {"Id": "sha256:11aa", "RepoTags": ["vllm:1"], "RepoDigests": None, "Size": 5}


def engines(answers):
    """Return Engines on a host with docker alone, which gives these answers by the first words of a command."""

    def run(words, **_options):
        if words[0] != "docker":
            raise FileNotFoundError(2, "No such file", words[0])
        return next((answer for begin, answer in answers.items() if " ".join(words[1:]).startswith(begin)), (0, "", ""))

    return Engines(run)


def test_an_image_has_its_names_its_size_and_its_containers():
    found = engines(
        {
            "image ls": (0, "sha256:11aa\n", ""),
            "image inspect": (0, json.dumps([ENTRY]), ""),
            "ps": (0, "vllm-chat\n", ""),
        }
    ).images()
    assert found == [StoredImage("docker", "sha256:11aa", ("vllm:1",), 5, ("vllm-chat",))]


def test_a_host_without_engines_has_no_images():
    assert engines({}).images() == []


def test_an_engine_that_does_not_answer_is_remembered_and_is_no_empty_store():
    found = engines({"image ls": (1, "", "Cannot connect to the Docker daemon")})
    assert found.images() == []
    assert found.trouble == {"docker": "docker image ls: Cannot connect to the Docker daemon"}


def test_the_containers_of_instances_are_known_by_their_ids():
    assert engines({"ps": (0, "c0ffee vllm-chat\nbeef mine\n", "")}).containers() == {"c0ffee": "chat"}


def test_what_has_gone_already_is_no_error_and_what_stays_is():
    engines({"image rm": (1, "", "Error: No such image: vllm:1")}).remove_image("docker", "vllm:1")
    with pytest.raises(RemovalError, match="docker image rm vllm:1: conflict"):
        engines({"image rm": (1, "", "conflict: image is being used")}).remove_image("docker", "vllm:1")
