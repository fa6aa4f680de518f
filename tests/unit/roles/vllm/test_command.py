# SPDX-License-Identifier: GPL-3.0-or-later
"""The command of a plan, and what each runtime's unit, start script or container runs: the same words."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.explain import command_line

from tests.fakes import plans as fakes
from tests.fakes.plans import A3, H200, MI300X, RELEASE, TABLE, plan
from tests.unit.roles.vllm.test_templates import SETTINGS, VARIABLES, texts

CPU = replace(fakes.CPU, memory_mib=1 << 20)
PODMAN, QUADLET = {"engine": "podman", "quadlet": False}, {"engine": "podman"}
MODULE = {**RELEASE, "stacks": {**RELEASE["stacks"], "cpu": {**RELEASE["stacks"]["cpu"], "entrypoint": "module"}}}
SHELL = {
    **RELEASE,
    "stacks": {**RELEASE["stacks"], "cann": {**RELEASE["stacks"]["cann"],
                                             "entrypoint": ["bash", "-lc", 'exec vllm serve "$@"', "vllm"]}},
}  # fmt: skip
REQUESTED = {
    "args": {"compilation-config": {"mode": 3}, "caching": False, "lora-modules": ["a=/x", "b=/y"]},
    "env": {"FLAG": "a b", "PYTHONPATH": "/opt/mine"},
}
GROUP = {"nodes": ["h1", "h2"], "args": {}, "strategy": "multi_node_tp"}
CASES = {
    "docker": ({}, H200, {}, {}),
    "podman": (PODMAN, H200, {}, {}),
    "quadlet": (QUADLET, H200, {}, {}),
    "command of the image": ({}, MI300X, {}, {}),
    "shell of the image": (QUADLET, A3, {}, {"release": SHELL}),
    "environment": ({}, CPU, {}, {}),
    "module": ({}, CPU, {}, {"release": MODULE}),
}


def started(found):
    """Return the words that the unit starts vLLM with, from the first of vLLM's own on, and the variables by file."""
    serve, quadlet = found.get("/var/lib/vllm/chat/serve"), found.get("/etc/containers/systemd/vllm@chat.container")
    if serve:
        words = shlex.split(
            serve.partition("\nexec ")[2].replace('"$@"', "--config /etc/vllm/chat.yaml").replace("\\\n", "")
        )
    else:
        (line,) = re.findall(r"(?m)^Exec=(.*)$", quadlet)
        words = shlex.split(line)
    return words[words.index("--middleware") :]


def written(found):
    """Return the words of the file of arguments, as vLLM's own --config puts them into the command."""
    config = yaml.safe_load(found["/etc/vllm/chat.yaml"])
    yield str(config.pop("model"))
    for name, value in config.items():
        yield f"--{name}"
        if value is not True:
            yield from map(str, value if isinstance(value, list) else [value])


def by_flag(words):
    """Return each flag with its values, and what stands before the first flag, in the order of their names."""
    groups = [[]]
    for word in words:
        if word.startswith("--"):
            groups.append([])
        groups[-1].append(word)
    return sorted(groups)


@pytest.mark.parametrize("case", CASES)
def test_plan_explanation_unit_and_container_say_the_same_words(case):
    engine, accelerator, more, library = CASES[case]
    document = plan({**REQUESTED, **more}, accelerator, **library).as_dict()
    variables = {**VARIABLES, "__vllm_container": {**SETTINGS, **engine}}
    found = texts(json.dumps([document, variables]))
    words = started(found)
    assert words[-2:] == ["--config", "/etc/vllm/chat.yaml"]
    # vLLM puts the file's words, which are sorted there, in front of the others.
    assert document["argv"][-len(words[:-2]) :] == words[:-2] == document["middleware"]
    assert by_flag(["vllm", "serve", *written(found), *words[:-2]]) == by_flag(document["argv"])
    explained = shlex.split(command_line(document))
    assert explained[-len(document["argv"]) :] == document["argv"]
    assert dict(word.split("=", 1) for word in explained[1 : -len(document["argv"])]) == document["env"]
    variables_there = [line for line in found["/etc/vllm/chat.env"].splitlines() if line and line[0] != "#"]
    assert sorted(line.partition("=")[0] for line in variables_there) == sorted(document["env"])
    assert document["env"]["PYTHONPATH"] == "/usr/local/lib/vllm:/opt/mine"
    # Each flag of the command is one of the release, so that its parser accepts the words.
    flags = [word for word in document["argv"] if word.startswith("--")]
    assert [flag for flag in flags if TABLE.canonical(flag) is None] == ["--middleware"]


def test_the_start_script_is_one_exec():
    document = plan(None, CPU).as_dict()
    text = texts(json.dumps([document, {**VARIABLES, "__vllm_container": SETTINGS}]))["/var/lib/vllm/chat/serve"]
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines == [f'exec {shlex.join([*document["launch"], *document["middleware"]])} "$@"']
