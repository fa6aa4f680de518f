# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of the tiny models; tests/integration/test_tiny_models.py serves them."""

from __future__ import annotations

import json
import struct
import subprocess
import sys

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.model_config import excerpt_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.model_shape import shape_of

from tests.fakes.harmony import ROOT
from tools.tiny_models.build import write
from tools.tiny_models.families import FAMILIES, HIDDEN, READY
from tools.tiny_models.texts import END, writer_tokens

KINDS = {"llama": "full", "qwen3-moe": "full", "deepseek-v2": "latent", "idefics3": "full"}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_files_are_whole_and_the_same_each_time(tmp_path, name):
    for directory in ("a", "b"):
        write(FAMILIES[name](), tmp_path / directory)
    files = {path.relative_to(tmp_path / "a"): path.read_bytes() for path in (tmp_path / "a").rglob("*.*")}
    assert all((tmp_path / "b" / path).read_bytes() == content for path, content in files.items())
    data = (tmp_path / "a" / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert max(entry["data_offsets"][1] for key, entry in header.items() if key[:2] != "__") == len(data) - 8 - length
    shape = shape_of(excerpt_of((tmp_path / "a" / "config.json").read_bytes()))
    assert shape.hidden == HIDDEN and {layers.kind for layers in shape.layers} == {*[KINDS.get(name, "")]} - {""}


def test_the_answer_has_tokens_of_its_own():
    ids = writer_tokens(READY)
    assert len(set(ids.values())) == len(ids) == 256 + 6 + len(READY)
    assert [ids[word] for word in (END, *READY)] == [257, 262, 263, 264, 265]


def test_the_tool_builds_what_it_is_asked_for(tmp_path):
    command = [sys.executable, str(ROOT / "tools/tiny_models/build.py"), str(tmp_path), "qwen3-moe"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path}/qwen3-moe --enable-auto-tool-choice --tool-call-parser hermes\n"
    assert {path.name for path in tmp_path.iterdir()} == {"qwen3-moe"}
    wrong = subprocess.run([*command[:3], "gpt"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "NAME: found 'gpt', expected some of llama" in wrong.stderr
