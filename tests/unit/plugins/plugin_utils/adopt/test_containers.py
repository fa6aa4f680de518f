# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of docker run and podman run."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.containers import (
    chips_of,
    read_run,
    run_command,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.shell import CommandError


@pytest.mark.parametrize(
    "words",
    ["-it --rm", "-itd", "-e A=1", "-eA=1", "-it -e A=1", "--env=A=1", "-dp 1:2", "--gpus all", "--pull always"],
)
def test_the_image_is_the_first_word_that_no_option_takes(words):
    start, command = read_run([*words.split(), "image", "--model", "m"], {})
    assert (start.image, command) == ("image", ["--model", "m"])


def test_options_are_sorted_by_what_becomes_of_them():
    words = "--network host --gpus device=1,3 --memory 8g --ipc=host --env-file x.env -e A -e B=2 -p 1:2"
    start, _command = read_run([*words.split(), "--entrypoint", "bash", "i"], {"A": "known"})
    assert start.host_network and start.chips == [1, 3] and start.ports == ["1:2"] and start.entrypoint == ["bash"]
    assert start.env == {"A": "known", "B": "2"}
    assert start.container == ["--network", "--gpus", "--ipc"] and start.lost == ["--memory", "--env-file x.env"]


@pytest.mark.parametrize(
    ("name", "value", "chips"),
    [
        ("gpus", "all", []),
        ("gpus", '"device=0,1"', [0, 1]),
        ("gpus", "2", []),
        ("device", "/dev/davinci7", [7]),
        ("device", "/dev/davinci_manager", []),
        ("device", "/dev/kfd", []),
        ("device", "nvidia.com/gpu=3", [3]),
        ("device", "nvidia.com/gpu=all", []),
    ],
)
def test_chips_are_named_in_three_ways(name, value, chips):
    assert chips_of(name, value) == chips


@pytest.mark.parametrize(
    ("text", "place"),
    [("sudo docker run x", 3), ("podman container run x", 3), ("vllm serve m", None), ("docker ps", None)],
)
def test_only_a_run_starts_a_container(text, place):
    assert run_command(text.split()) == place


@pytest.mark.parametrize(("words", "part"), [(["-e"], "the option -e is the last word"), (["--rm"], "found no image")])
def test_what_ends_too_early_is_named(words, part):
    with pytest.raises(CommandError, match=part):
        read_run(words, {})


def test_docker_compose_says_nothing_itself():
    with pytest.raises(CommandError, match="give that file"):
        run_command(["docker", "compose", "up"])
