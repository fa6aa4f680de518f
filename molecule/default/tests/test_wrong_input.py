# SPDX-License-Identifier: GPL-3.0-or-later
"""Wrong input through site.yml, as a user meets it: one clear error, a failing exit, nothing changed.

One case for each part that refuses; what else each of them refuses is in the unit tests.
"""

from __future__ import annotations

import json
import re

import pytest
from serving_host import chat, playbook

SMOKE = {"recipe": "baremetal/gpt-oss-smoke"}


def run(**variables):
    """Run site.yml on the serving host with these variables on top."""
    if "vllm_instances" in variables:
        # Secrets of an instance that no host has any more are refused.
        variables = {"vllm_secrets": {}, **variables}
    return playbook("site.yml", "--limit", "cpu-12", "-e", json.dumps(variables))


def refused(done, *parts: str) -> None:
    """Assert that the run failed with all parts in its output and changed nothing."""
    output = done.stdout + done.stderr
    assert done.returncode != 0, output
    flat = re.sub(r"\s+", " ", output)
    for part in parts:
        assert part in flat, output
    assert re.findall(r"changed=(\d+)", done.stdout) in ([], ["0"]), output


@pytest.mark.parametrize(
    ("variables", "parts"),
    [
        ({"accelerator": "h200"}, ("cpu-12", "h200", "cpu")),
        (
            {"vllm_instances": {"a": SMOKE, "b": SMOKE}},
            ("vllm_instances.b.port: 8000 is the port of vllm_instances.a too",),
        ),
        ({"vllm_instances": {"a": {"recipe": "baremetal/gpt-oss-smok"}}}, ("nearest: 'baremetal/gpt-oss-smoke'",)),
        (
            {"vllm_instances": {"a": {**SMOKE, "args": {"max-model-length": 2048}}}},
            ("vllm_instances.a: --max-model-length: vLLM 0.32.0 has no such flag", "'max-model-len'"),
        ),
        (
            {"weights_source": ["x"]},
            ("weights_source is not an option of the role weights; nearest: 'weights_sources'",),
        ),
        ({"vllm_instances": "chat"}, ("vllm_instances", "mapping")),
        (
            {"vllm_secrets": {"chta": {"VLLM_API_KEY": "x"}}},
            ("vllm_secrets.chta: no host has an instance 'chta'", "nearest: 'chat'"),
        ),
        ({"vllm_verify": "maybe"}, ("vllm_verify: found 'maybe', expected true or false",)),
        ({"vllm_instances": {"a": {**SMOKE, "port": 22}}}, ("vllm_instances.a.port: 22 is the port of SSH too",)),
        (
            {"vllm_wheel_index": "http://mirror:81/simple/", "vllm_venv_root": "/opt/else"},
            ("http://mirror:81/simple/",),
        ),
        ({"weights_sources": ["http://mirror:81/weights"], "weights_root": "/srv/else"}, ("http://mirror:81/weights",)),
        (
            {"encodings_sources": ["http://mirror:81/encodings"], "encodings_dir": "/srv/else"},
            ("http://mirror:81/encodings",),
        ),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else "",
)
def test_refused_before_anything_changes(serving, variables, parts):
    refused(run(**variables), *parts)


def test_too_little_memory(serving, tmp_path):
    recipes = tmp_path / "baremetal"
    recipes.mkdir()
    recipe = "model: {model_id: baremetal/gpt-oss-smoke}\nvariants: {default: {vram_minimum_gb: 4000}}\n"
    (recipes / "huge.yaml").write_text(recipe)
    instances = {"chat": {"recipe": "baremetal/huge"}}
    refused(run(vllm_recipe_path=[str(tmp_path)], vllm_instances=instances), "too little memory", "3725.3 GiB")


def test_nothing_to_serve_on():
    done = playbook("site.yml", "-e", "target_hosts=nowhere")
    refused(done, "target_hosts: no host or group of the inventory is called 'nowhere'")


def test_weights_that_a_running_instance_uses_are_not_replaced(serving):
    config = serving.check_output("readlink -f /var/lib/vllm/chat/model") + "/config.json"
    serving.check_output("cp -p %s /root/config.json && echo >> %s", config, config)
    done = run()
    serving.check_output("mv /root/config.json %s", config)
    refused(done, "vllm@chat.service", "config.json", "stop")


@pytest.mark.long
def test_vllm_that_dies_while_starting_says_why(serving):
    done = run(vllm_instances={"bad": {**SMOKE, "port": 8010, "args": {"middleware": ["nowhere.Middleware"]}}})
    output = done.stdout + done.stderr
    assert done.returncode != 0, output
    assert "No module named 'nowhere'" in re.sub(r"\s+", " ", output)
    # The neighbour was not asked about and is served on; it is named as unlisted.
    assert "Not changed, though not in vllm_instances of cpu-12: chat" in re.sub(r"\s+", " ", output)
    assert chat() == "The fleet is ready."


def test_an_instance_that_is_not_listed_goes_when_asked_for(serving):
    done = playbook("site.yml", "--limit", "cpu-12", "-e", "vllm_remove_unlisted=true")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not serving.file("/etc/vllm/bad.yaml").exists
    assert not serving.service("vllm@bad").is_enabled
    assert chat() == "The fleet is ready."
