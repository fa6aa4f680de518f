# SPDX-License-Identifier: GPL-3.0-or-later
"""What the files of an instance and of its model say."""

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.model_host import model_files, options_in
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.model_kind import ModelFiles
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import InstanceError


def test_the_files_of_a_model_are_read(tmp_path):
    for name, content in (("config", {"model_type": "llama"}), ("params", {"dim": 1}), ("modules", [{"type": "x"}])):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    (tmp_path / "tokenizer_config.json").write_text("{")
    found = model_files(str(tmp_path))
    assert found == ModelFiles({"model_type": "llama"}, {"dim": 1}, {}, [{"type": "x"}], False) and found.known
    (tmp_path / "chat_template.jinja").touch()
    assert model_files(str(tmp_path)).template


def test_a_model_by_name_is_not_looked_for_here(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    monkeypatch.chdir(tmp_path)
    assert model_files("") == ModelFiles() and not model_files(".").known


def test_the_arguments_of_an_instance(tmp_path):
    (tmp_path / "chat.yaml").write_text("model: /srv/x\nhf-overrides: '{\"num_labels\": 1}'\nheadless: true\n")
    assert options_in(str(tmp_path), "chat") == {
        "model": "/srv/x",
        "hf-overrides": '{"num_labels": 1}',
        "headless": "true",
    }
    assert options_in(str(tmp_path), "other") == {}
    (tmp_path / "chat.yaml").write_text("no key\n")
    with pytest.raises(InstanceError, match=r"chat.yaml: line 1"):
        options_in(str(tmp_path), "chat")
