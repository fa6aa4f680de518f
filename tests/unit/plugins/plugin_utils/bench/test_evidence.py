# SPDX-License-Identifier: GPL-3.0-or-later
"""The evidence of a benchmark."""

from __future__ import annotations

import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.evidence import (
    evidence,
    evidence_path,
    evidence_text,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.document import read_document

from tests.fakes.benches import INFO, PLAN, record
from tests.fakes.wheelhouse import ROOT


def test_everything_that_is_known():
    found = evidence(PLAN, INFO, "580.159.04", [record(joules=100)], "2026-11-23")
    order = (
        "status source date model weights release accelerator count preset plan argv env driver power_limit_watts "
        "start_seconds results scores raw_sha256"
    )
    assert list(found) == order.split()
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
    assert found["status"] == "measured" and found["source"] == f"baremetal.inference {version}"
    assert (found["weights"], found["count"], found["power_limit_watts"]) == (PLAN["revision"], 1, 700)
    assert len(found["results"]) == 1 and found["results"][0]["concurrency"] == 1
    assert evidence_path(found) == "openai/gpt-oss-20b/h200x1/0.25.1-2026-11-23.yml"
    assert yaml.safe_load(evidence_text(found)) == found
    read_document(yaml.safe_load(evidence_text(found)), evidence_path(found)[: -len(".yml")], "x.yml")


def test_what_is_not_known_is_left_out():
    plan = {**PLAN, "preset": None, "chips": [], "accelerator": "cpu", "args": {"load-format": "dummy"}}
    found = evidence(plan, {"start_seconds": None, "power_limit_watts": 0.0}, "", [record()], "2026-11-23")
    assert not {"preset", "driver", "power_limit_watts", "start_seconds"} & set(found)
    assert found["weights"] == "random" and found["count"] == 1 and found["scores"] == {}
