# SPDX-License-Identifier: GPL-3.0-or-later
"""The option --help describes a tool and does nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import demo
from tools.vllm import fetch_vllm_release

TOOLS = Path(__file__).resolve().parents[3] / "tools"
PROGRAMS = [path for path in sorted(TOOLS.rglob("*.py")) if "__main__" in path.read_text()]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(TOOLS)))
def test_every_tool_reads_its_arguments(path):
    text = path.read_text()
    assert ".parse_args(" in text or '"--help"' in text


@pytest.mark.parametrize("tool", [demo, fetch_vllm_release])
def test_help_starts_nothing(tool, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tool", "--help"])
    monkeypatch.setattr(demo, "PHASES", ())
    monkeypatch.setattr(fetch_vllm_release, "environment", lambda: pytest.fail("fetches"))
    with pytest.raises(SystemExit) as ended:
        tool.main()
    assert ended.value.code == 0
    assert "usage: tool" in capsys.readouterr().out
