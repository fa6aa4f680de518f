# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.target_host import Endpoint
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import InstanceError, Listening
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_host import (
    NotInstalledError,
    is_worker_in,
    listening_in,
    start_seconds_in,
)


def test_where_an_instance_of_this_host_listens(tmp_path):
    (tmp_path / "chat.yaml").write_text("port: 8001\n")
    assert listening_in(str(tmp_path), "chat") == Listening("127.0.0.1", 8001, False, False)
    (tmp_path / "chat.yaml").write_text("headless: true\n")
    assert listening_in(str(tmp_path), "chat") is None


@pytest.mark.parametrize(
    ("text", "said"), [(b"port: x\n", "port: found 'x'"), (b"\xff", "cannot be read: "), (None, "is not there")]
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, text, said):
    if text is not None:
        (tmp_path / "chat.yaml").write_bytes(text)
    with pytest.raises(InstanceError, match=f"{tmp_path}/chat.yaml:? .*{said}"):
        listening_in(str(tmp_path), "chat")


def test_a_host_without_the_instance_is_told_from_a_file_that_cannot_be_used(tmp_path):
    with pytest.raises(NotInstalledError, match="instance chat is not installed on this host"):
        listening_in(str(tmp_path), "chat")
    assert is_worker_in(str(tmp_path), "chat") is False
    (tmp_path / "chat.yaml").write_text("nonsense\n")
    with pytest.raises(InstanceError, match=f"{tmp_path}/chat.yaml: line 1"):
        is_worker_in(str(tmp_path), "chat")


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
        # What Python reads as a number.
        ("VLLM_ENGINE_READY_TIMEOUT_S=3_600\n", 3900),
        ("VLLM_ENGINE_READY_TIMEOUT_S=+3600\n", 3900),
        (f"VLLM_ENGINE_READY_TIMEOUT_S={10**12}\n", 1_000_299),
        ("VLLM_ENGINE_READY_TIMEOUT_S=-3600\n", 0),
    ],
)
def test_nobody_waits_shorter_than_the_unit_lets_an_instance_start(tmp_path, text, seconds):
    if text is not None:
        (tmp_path / "chat.env").write_text(text)
    (tmp_path / "chat.yaml").write_text("model: /m\nserved-model-name: [m]\nhost: 127.0.0.1\nport: 8000\n")
    assert start_seconds_in(str(tmp_path), "chat") == seconds
    params = {**OPTIONS, "config_dir": str(tmp_path), "ready_timeout": 963.0}
    assert Endpoint(params, lambda *_words: (0, "", ""), set()).params["ready_timeout"] == max(963.0, seconds)
