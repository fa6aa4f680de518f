# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.instance.preload import (
    command_of,
    config_of,
    directory_in,
    drafts_in,
    ranks_in,
    socket_directory,
    weight_settings,
)

HELD = {"files": {"org/model": {"a.safetensors": "a" * 64, "config.json": "b" * 64}}, "config": {"dtype": "auto"}}
DIRECTORY = socket_directory("chat", HELD)
CONFIG = f"""# Ansible managed
model: /srv/models/openai/gpt-oss-20b/abc
served-model-name:
- chat
host: 127.0.0.1
port: 8000
tensor-parallel-size: 4
max-num-seqs: 64
limit-mm-per-prompt: '{{"image": 1}}'
tool-call-parser: openai
chat-template: "{{{{ a }}}}\\
  continued: here"
kv-cache-dtype-skip-layers:
- '1'
- '2'
load-format: ipc_cache
model-loader-extra-config: '{{"socket_dir": "{DIRECTORY}"}}'
speculative-config: '{{"method": "eagle3"}}'
"""


def test_the_directory_is_named_after_all_that_is_held():
    other = {**HELD, "config": {"dtype": "bfloat16"}}
    assert len({DIRECTORY, socket_directory("chat", other), socket_directory("code", HELD)}) == 3
    assert socket_directory("chat", dict(reversed(HELD.items()))) == DIRECTORY


def test_a_socket_of_the_longest_name_fits():
    assert len(f"{DIRECTORY}/vllm_weight_cache_{'0' * 32}_draft.sock") <= 107


def test_the_program_reads_what_decides_how_weights_lie():
    assert config_of(CONFIG).splitlines() == [
        "model: /srv/models/openai/gpt-oss-20b/abc", "tensor-parallel-size: 4", "max-num-seqs: 64",
        "limit-mm-per-prompt: '{\"image\": 1}'", "kv-cache-dtype-skip-layers:", "- '1'", "- '2'",
        "speculative-config: '{\"method\": \"eagle3\"}'",
    ]  # fmt: skip


def test_the_directory_is_named_after_what_the_program_reads_but_for_sizes_of_the_engine():
    config = {**yaml.safe_load(CONFIG), "hf_overrides.a": 1}
    settings = weight_settings(config)
    read = yaml.safe_load(config_of(yaml.safe_dump(config)))
    assert {**read, **settings} == read and {*read} - {*settings} == {"max-num-seqs"}
    assert {*settings} >= {"hf_overrides.a", "model", "speculative-config"} and "port" not in settings


@pytest.mark.parametrize(("text", "held"), [
    (CONFIG, True), ("a: b\n", False), ("spec-method: mtp\n", True), ("speculative-config: '[]'\n", False),
    *((f"speculative-config: '{{\"method\": \"{name}\"}}'\n", held) for name, held in {
        "eagle": True, "mtp": True, "deepseek_mtp": True, "ngram": False, "draft_model": False, "dflash": False,
    }.items()),
])  # fmt: skip
def test_the_drafts_that_are_held_are_known_by_their_method(text, held):
    assert drafts_in(text) is held


def test_the_directory_is_read_from_the_configuration():
    assert directory_in(CONFIG) == DIRECTORY
    assert ranks_in(CONFIG) == 4 and ranks_in("model: a\n") == 1
    assert command_of("/run/x.yaml", DIRECTORY)[-1] == DIRECTORY


@pytest.mark.parametrize("text", [
    "", "model: a\n", CONFIG.replace("ipc_cache", "auto"), CONFIG.replace(DIRECTORY, "/tmp/evil"),
    CONFIG.replace(DIRECTORY, f"{DIRECTORY}/../x"), CONFIG.replace('{"socket_dir"', "{"), "- a\n", "x\n",
    "load-format: ipc_cache\nmodel-loader-extra-config: '[]'\n",
])  # fmt: skip
def test_other_configurations_name_none(text):
    assert directory_in(text) == ""
