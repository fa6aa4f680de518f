# Copyright (c) 2026, the baremetal.inference authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of an installed instance."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.target_host import Endpoint
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.installed_host import start_seconds_in

OPTIONS = {
    "url": None, "model": None, "unit": None, "checks": None, "api_key": None, "api_key_file": None,
    "remote_prefill": False, "prompt": "x", "completion_prompt": "x", "expect": "", "max_tokens": 1,
    "request_timeout": 1.0, "journal_lines": 1, "instance": "chat",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, 0),
        ("A=1\n", 0),
        ("A=1\nVLLM_ENGINE_READY_TIMEOUT_S=3600\n", 3900),
        ("VLLM_ENGINE_READY_TIMEOUT_S=\n", 0),
    ],
)
def test_nobody_waits_shorter_than_the_unit_lets_an_instance_start(tmp_path, text, seconds):
    if text is not None:
        (tmp_path / "chat.env").write_text(text)
    (tmp_path / "chat.yaml").write_text("model: /m\nserved-model-name: [m]\nhost: 127.0.0.1\nport: 8000\n")
    assert start_seconds_in(str(tmp_path), "chat") == seconds
    params = {**OPTIONS, "config_dir": str(tmp_path), "ready_timeout": 963.0}
    assert Endpoint(params, lambda *_words: (0, "", ""), set()).params["ready_timeout"] == max(963.0, seconds)
