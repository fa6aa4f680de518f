# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance.preload import (
    command_of,
    config_of,
    directory_in,
    ranks_in,
    socket_directory,
)

MANIFEST = {"files": {"a.safetensors": {"size": 1, "sha256": "a" * 64}, "config.json": {"size": 2, "sha256": "b" * 64}}}
DIRECTORY = socket_directory("chat", MANIFEST)
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


def test_the_directory_is_named_after_every_byte_of_the_weights():
    other = {"files": {**MANIFEST["files"], "config.json": {"size": 2, "sha256": "c" * 64}}}
    assert len({DIRECTORY, socket_directory("chat", other), socket_directory("code", MANIFEST)}) == 3
    assert socket_directory("chat", {"files": dict(reversed(MANIFEST["files"].items()))}) == DIRECTORY


def test_a_socket_of_the_longest_name_fits():
    assert len(f"{DIRECTORY}/vllm_weight_cache_{'0' * 32}_draft.sock") <= 107


def test_the_program_reads_what_decides_how_weights_lie():
    assert config_of(CONFIG).splitlines() == [
        "model: /srv/models/openai/gpt-oss-20b/abc", "tensor-parallel-size: 4", "max-num-seqs: 64",
        "limit-mm-per-prompt: '{\"image\": 1}'", "kv-cache-dtype-skip-layers:", "- '1'", "- '2'",
        "speculative-config: '{\"method\": \"eagle3\"}'",
    ]  # fmt: skip


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
