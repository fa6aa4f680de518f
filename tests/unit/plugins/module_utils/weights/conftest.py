# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights import scrub_run_host

from tests.fakes.weights_store import A, B, publish


@pytest.fixture
def root(tmp_path):
    """A store with two revisions."""
    for revision in (A, B):
        publish(tmp_path / "models", revision)
    return tmp_path / "models"


@pytest.fixture
def run(root, tmp_path, monkeypatch):
    """Run a scrub; returns the exit status and the report."""
    monkeypatch.setattr(scrub_run_host.signal, "signal", lambda *_: None)

    def run(bandwidth=0):
        status = scrub_run_host.scrub(str(root), str(tmp_path / "state/report.json"), bandwidth)
        return status, json.loads((tmp_path / "state/report.json").read_text())

    return run
