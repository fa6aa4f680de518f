# SPDX-License-Identifier: GPL-3.0-or-later
"""A site as `inference init` writes it."""

from __future__ import annotations

import re

import pytest

from tests.fakes.inference_command import run
from tools.command.site import RELEASES

SERVERS = "gpu-a-01=192.0.2.10,gpu-a-02=192.0.2.11"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A site of two servers and a gateway; the accelerators are written in by hand, as its comment says."""
    directory = tmp_path_factory.mktemp("home") / "site"
    done = run("init", str(directory), "--hosts", SERVERS, "--gateway", "gw1=192.0.2.5", "--no-detect")
    assert done.returncode == 0, done.stderr
    hosts = directory / "hosts.yml"
    text = hosts.read_text(encoding="utf-8")
    assert text.count("has is not known") == 2
    assert f'vllm_release: "{RELEASES["cuda"]}"' in (directory / "group_vars/inference.yml").read_text()
    hosts.write_text(re.sub(r'(192.0.2.1\d")', r"\1, accelerator: h200, accelerator_count: 2", text), encoding="utf-8")
    return directory
