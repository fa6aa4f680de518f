# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.scale_report_host import read_report

CHAT = {"mode": "auto", "min": 1, "max": 2, "replicas": {"serving": 1}, "waiting": 3, "last": "x" * 1000, "idle": ["b"]}
CHAT["hosts"] = ["gpu-b"]


def test_the_report_of_the_gateway_that_decides_is_read(tmp_path: Path) -> None:
    assert read_report(str(tmp_path)) == {}
    (tmp_path / "scale.json").write_text(json.dumps({"decides": True, "services": {"chat": CHAT}}))
    assert read_report(str(tmp_path)) == {"chat": {**CHAT, "last": "x" * 300}}
    (tmp_path / "scale.json").write_text(json.dumps({"decides": False, "services": {"chat": CHAT}}))
    assert read_report(str(tmp_path)) == {}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "[" * 50000, '{"decides": true, "services": 1}', '{"decides": true, "services": {"a": 1}}'],
)
def test_a_damaged_report_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "scale.json").write_text(text)
    assert read_report(str(tmp_path)) == {}


def test_a_link_or_a_fifo_of_the_agents_user_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(json.dumps({"decides": True, "services": {"chat": CHAT}}))
    (tmp_path / "scale.json").symlink_to(tmp_path / "elsewhere")
    assert read_report(str(tmp_path)) == {}
    (tmp_path / "scale.json").unlink()
    os.mkfifo(tmp_path / "scale.json")
    assert read_report(str(tmp_path)) == {}
