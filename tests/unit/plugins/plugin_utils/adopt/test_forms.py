# SPDX-License-Identifier: GPL-3.0-or-later
"""The forms in which people have a start of vLLM; tests/fixtures/commands.yml has those of public threads."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.forms import read_shell, read_start
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.shell import CommandError

UNIT = """
[Unit]
Description=x
[Service]
Environment=A=1 "B=2 3"
EnvironmentFile=-/etc/x.env
ExecStart=-/usr/bin/vllm serve ${B} \\
    --port 1
"""
COMPOSE = """
x-common: &common
  image: vllm/vllm-openai:latest
  environment: {A: true, B: null, C: "${C:-3}"}
services:
  web: {image: "nginx:1"}
  chat:
    <<: *common
    command: ["--model", "m", "--x", "$$y"]
    ports: [{target: 8000, published: 9000, host_ip: 127.0.0.1}]
    env_file: [{path: a.env}]
    mem_limit: 8g
    gpus: [{device_ids: ["1"]}]
"""


def test_a_variable_without_quotes_is_as_many_words_as_for_a_shell():
    text = (
        "MORE='--enforce-eager -tp 2' NONE= NAME='a b'\nvllm serve m $MORE $NONE ${MORE} --x \"$NAME\" --y=$NAME $OTHER"
    )
    more = ["--enforce-eager", "-tp", "2"]
    assert read_shell(text).words == ["m", *more, *more, "--x", "a b", "--y=a b", "\ue002OTHER"]
    unit = UNIT.replace("${B}", "$B")
    assert read_start(unit).words == ["2", "3", "--port", "1"]


def test_variables_do_not_make_a_command_as_long_as_the_memory():
    with pytest.raises(CommandError, match="the command with its variables is longer than 65,536 characters"):
        read_shell(f"A='{'x ' * 4000}'\nvllm serve m {'$A ' * 9}")


def test_a_unit_is_read_with_its_environment():
    start = read_start(UNIT)
    assert (start.form, start.words) == ("unit", ["2 3", "--port", "1"])
    assert start.env == {"A": "1", "B": "2 3"} and start.lost == ["EnvironmentFile=/etc/x.env"]


def test_a_unit_may_run_a_container():
    start = read_start(
        "[Service]\nEnvironment=HF_TOKEN=x\n"
        "ExecStart=/usr/bin/docker run -e HF_TOKEN -p 1:8000 vllm/vllm-openai --model m\n"
    )
    assert start.words == ["--model", "m"] and start.env == {"HF_TOKEN": "x"} and start.ports == ["1:8000"]


def test_a_compose_file_is_read_with_its_anchors():
    start = read_start(COMPOSE)
    assert start.words == ["--model", "m", "--x", "$y"] and start.chips == [1]
    assert start.env == {"A": "true", "B": None, "C": "3"}
    assert start.ports == ["127.0.0.1:9000:8000"] and start.lost == ["env_file a.env", "mem_limit"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("vllm serve m\n--port 1\n--seed 2", "line 2 begins with --port, but the line before it has no backslash"),
        ("vllm serve m \\\n --seed 2 \\\n\n --port 1", "line 4 begins with --port, but the line before it has no"),
        (
            "vllm serve m \\\n # --seed 2 \\\n --port 1",
            "line 3 begins with --port, but the line before it is a comment",
        ),
        ("docker run --gpus all\n -p 1:1 vllm/vllm-openai --model m", "line 2 begins with -p"),
        ("vllm serve m | tee x; --port 1", "--port begins a separate command"),
        ("bash -c 'vllm serve m\n--port 1'", "line 2 begins with --port"),
        ("docker run vllm/vllm-openai bash -c 'vllm serve m\n--port 1'", "line 2 begins with --port"),
        ("[Service]\nExecStart=vllm serve m\n  --port=1\n", "line 3 begins with --port,"),
        ("[Container]\nImage=vllm/vllm-openai\nExec=--model m\n  --port 1\n", "line 4 begins with --port"),
    ],
)
def test_a_flag_behind_a_line_without_a_backslash_is_not_lost(text, part):
    with pytest.raises(CommandError) as caught:
        read_start(text)
    assert part in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "[Service]\nEnvironment=A=1\nExecStart=/bin/bash -lc 'source /x/activate && exec vllm serve m --seed 1'\n",
        "sudo -u x A=1 bash -c 'vllm serve m --seed 1'",
        'A=1 screen -dmS x bash -c "vllm serve m --seed 1 2>&1 | tee log"',
        "export A=1\nsu - x -c 'vllm serve m --seed 1'",
        "docker run vllm/vllm-openai env A=1 bash -c 'vllm serve m --seed 1' name",
        "bash -c 'docker run -e A=1 vllm/vllm-openai --model=m --seed 1'",
    ],
)
def test_what_a_shell_starts_is_read_wherever_the_shell_runs(text):
    start = read_start(text)
    assert start.words[-2:] == ["--seed", "1"] and start.env == {"A": "1"}


@pytest.mark.parametrize(
    "text", ["uv run --with vllm==0.25.1 vllm serve m", "pip install -U 'vllm[audio]==0.25.1'\nvllm serve m"]
)
def test_the_version_of_a_package_is_no_variable(text):
    start = read_start(text)
    assert start.version == "0.25.1" and start.env == {}


def test_variables_that_are_exported_reach_only_what_follows():
    start = read_shell(
        "export A=1\nB=2\ndocker run -it -e C=$B quay.io/ascend/vllm-ascend:v1 bash\nexport D=4\nE=5 vllm serve $B"
    )
    assert start.env == {"C": "2", "D": "4", "E": "5"} and start.words == ["2"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "starts no vLLM that can be read: found no command"),
        ("vllm serve a\nvllm serve b", "found 2 commands that start vLLM"),
        ("services:\n  a:\n    image: [", "the compose file is not YAML: line"),
        ("services:\n  - image: x\n", "found a list, expected a mapping of services"),
        ('services:\n  a:\n    image: vllm/vllm-openai\n    command: "\'x"\n', "a quote that is never closed"),
        ("services:\n  a:\n    image: nginx\n", "found 'nginx', expected one of vLLM"),
        ("[Service]\nType=simple\n", "the unit starts no vLLM"),
        ("A=1 ollama run qwen3:8b", "found ollama, expected `vllm serve MODEL`"),
        ("cd /x && python3 -m sglang.launch_server --model-path m", "found sglang.launch_server, expected"),
        ('ssh root@192.0.2.1 "docker run vllm/vllm-openai --model m"', "found ssh, expected"),
        ("S3cretW0rd x", "found no command"),
        ("apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai\n", "a manifest of Kubernetes"),
    ],
)
def test_what_cannot_be_read_is_answered_in_one_sentence(text, part):
    with pytest.raises(CommandError) as caught:
        read_start(text)
    assert part in str(caught.value)


def test_a_service_that_does_not_exist_is_named():
    with pytest.raises(CommandError, match="has no service 'chta'; nearest: 'chat'"):
        read_start(COMPOSE, "chta")


def test_a_bomb_of_aliases_ends_soon():
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 30))]
    with pytest.raises(CommandError, match="not YAML"):
        read_start("services:\n  a: {image: x}\n" + "\n".join(lines))
