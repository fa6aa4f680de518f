# SPDX-License-Identifier: GPL-3.0-or-later
"""The command of a plan, and what each runtime's unit, start script or container runs: the same words."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.explain import command_line

from tests.fakes import plans as fakes
from tests.fakes.plans import A3, H200, MI300X, RELEASE, TABLE, plan, recipe
from tests.unit.roles.vllm.test_templates import OF_GROUPS, SETTINGS, VARIABLES, texts

CPU = replace(fakes.CPU, memory_mib=1 << 20)
PODMAN, QUADLET = {"engine": "podman", "quadlet": False}, {"engine": "podman"}
MODULE = {**RELEASE, "stacks": {**RELEASE["stacks"], "cpu": {**RELEASE["stacks"]["cpu"], "entrypoint": "module"}}}
SHELL = {
    **RELEASE,
    "stacks": {**RELEASE["stacks"], "cann": {**RELEASE["stacks"]["cann"],
                                             "entrypoint": ["bash", "-lc", 'exec vllm serve "$@"', "vllm"]}},
}  # fmt: skip
# What the images of vLLM start by themselves.
IMAGE = ["vllm", "serve"]
REQUESTED = {
    "args": {"compilation-config": {"mode": 3}, "caching": False, "lora-modules": ["a=/x", "b=/y"]},
    "env": {"FLAG": "a b", "NCCL_DEBUG": 'say "it" \\ `id` $(id)', "PYTHONPATH": "/opt/mine"},
}
SPANS = {"nodes": ["h1", "h2"], "strategy": "multi_node_tp"}
RECIPE = recipe(compatible_strategies=["single_node_tp", "multi_node_tp", "multi_node_dep"])
CASES = {
    "docker": ({}, H200, {}, {}),
    "podman": (PODMAN, H200, {}, {}),
    "quadlet": (QUADLET, H200, {}, {}),
    "command of the image": ({}, MI300X, {}, {}),
    "shell of the image": (QUADLET, A3, {}, {"release": SHELL}),
    "shell of the image with docker": ({}, A3, {}, {"release": SHELL}),
    "environment": ({}, CPU, {}, {}),
    "environment of a build with another name": ({}, CPU, {}, {"release": MODULE}),
    "head of hosts": (QUADLET, H200, SPANS, {}),
    "worker of hosts": (PODMAN, H200, SPANS, {"host": "h2"}),
    "peer of hosts": ({}, H200, {**SPANS, "strategy": "multi_node_dep"}, {"host": "h2"}),
    "head in environments": ({}, CPU, SPANS, {"release": MODULE}),
}


def started(found):
    """Return the whole words that the host or the container starts, as its shells and container engines read them."""
    serve, quadlet = found.get("/var/lib/vllm/chat/serve"), found.get("/etc/containers/systemd/vllm@chat.container")
    if quadlet:
        arguments = [word for line in re.findall(r"(?m)^PodmanArgs=(.*)$", quadlet) for word in shlex.split(line)]
        entrypoint = [word.partition("=")[2] for word in arguments if word.startswith("--entrypoint=")]
        (line,) = re.findall(r"(?m)^Exec=(.*)$", quadlet)
        # systemd reads $$ as $, and %% as %.
        return [*(entrypoint or IMAGE), *shlex.split(line.replace("$$", "$").replace("%%", "%"))]
    command = serve.partition("\nexec ")[2].strip().removesuffix('"$@"').replace("\\\n", "")
    words = [*shlex.split(command), "--config", "/etc/vllm/chat.yaml"]
    if words[1] != "run":
        return words
    image = next(number for number, word in enumerate(words) if re.search(r"(vllm-openai|ascend/x).*:v2", word))
    entrypoint = [words[number + 1] for number in range(image) if words[number] == "--entrypoint"]
    return [*(entrypoint or IMAGE), *words[image + 1 :]]


def handed_on(words):
    """Return the words of vLLM: those that are started, or what the shell that is started hands on."""
    if words[0] != "bash":
        return words
    script = ["bash", "-c", words[2].replace("exec vllm", "printf '%s\\0' vllm"), *words[3:]]
    return subprocess.run(script, check=True, capture_output=True, text=True).stdout.split("\0")[:-1]


def variables(found, in_container):
    """Return what the file of variables gives vLLM: a container engine takes lines as they are, a shell reads them."""
    text = found["/etc/vllm/chat.env"]
    if in_container:
        return dict(line.split("=", 1) for line in text.splitlines() if line and line[0] != "#")
    script = 'set -a; eval "$0"; env -0'
    done = subprocess.run(["/bin/sh", "-c", script, text], env={}, check=True, capture_output=True, text=True)
    return {
        name: value for name, value in (line.split("=", 1) for line in done.stdout.split("\0")[:-1]) if name != "PWD"
    }


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
    engine, accelerator, more, place = CASES[case]
    document = plan({**REQUESTED, **more}, accelerator, RECIPE, **place).as_dict()
    assert ("group" in document) == ("hosts" in case.split() or case == "head in environments")
    found = texts(json.dumps([document, {**VARIABLES, **OF_GROUPS, "__vllm_container": {**SETTINGS, **engine}}]))
    words = started(found)
    given = [*document["middleware"], "--config", "/etc/vllm/chat.yaml"]
    start = words[: -len(given)]
    vllm = f"{document['venv']['path']}/bin/vllm" if document["venv"] else "vllm"
    assert words == [*start, *given] and handed_on(words) == [vllm, "serve", *given]
    # The plan names vLLM's program as its documentation does, and the explanation what is started.
    expected = [*start, *document["argv"][2:]]
    explained = shlex.split(command_line(document))
    assert document["argv"][:2] == ["vllm", "serve"] and explained[-len(expected) :] == expected
    assert dict(word.split("=", 1) for word in explained[1 : -len(expected)]) == document["env"]
    # vLLM puts the file's words, which are sorted there, in front of the others.
    assert document["argv"][-len(document["middleware"]) :] == document["middleware"]
    assert by_flag(["vllm", "serve", *written(found), *document["middleware"]]) == by_flag(document["argv"])
    assert variables(found, document["container"]) == document["env"]
    assert document["env"]["PYTHONPATH"].startswith("/usr/local/lib/vllm:/opt/mine")
    # Each flag of the command is one of the release, so that its parser accepts the words.
    flags = [word for word in document["argv"] if word.startswith("--")]
    assert [flag for flag in flags if TABLE.canonical(flag) is None] == ["--middleware"]


def test_a_build_with_another_name_finds_the_version_that_its_command_asks_for(tmp_path):
    document = plan(None, CPU, release=MODULE).as_dict()
    found = texts(json.dumps([document, {**VARIABLES, "__vllm_container": SETTINGS}]))
    (path,) = [path for path in found if path.endswith("/vllm.dist-info/METADATA")]
    assert str(Path(path).parents[1]) in document["env"]["PYTHONPATH"].split(":")
    (tmp_path / "vllm.dist-info").mkdir()
    (tmp_path / "vllm.dist-info/METADATA").write_text(found[path])
    assert [each.version for each in importlib.metadata.distributions(path=[str(tmp_path)])] == ["2.0.0+cpu"]


def test_the_start_script_is_one_exec():
    document = plan(None, CPU).as_dict()
    text = texts(json.dumps([document, {**VARIABLES, "__vllm_container": SETTINGS}]))["/var/lib/vllm/chat/serve"]
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines == [f'exec {shlex.join([*document["launch"], *document["middleware"]])} "$@"']
