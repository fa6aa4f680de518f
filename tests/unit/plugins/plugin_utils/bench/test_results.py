# SPDX-License-Identifier: GPL-3.0-or-later
"""What a benchmark leaves: a summary with the host, evidence without it, a page, and the notes of slow chips."""

from __future__ import annotations

import json

import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.evidence import evidence
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.records import Records
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.results import write_results

from tests.fakes.benches import INFO, PLAN, record


def test_evidence_names_no_host_and_the_summary_does(tmp_path):
    found = [record(concurrency=step) for step in (1, 64)]
    document = evidence(PLAN, INFO, "580.159.04", found, "2026-11-23")
    records = Records(str(tmp_path), "gpu-a-01", "chat", "0" * 64)
    with records.opened():
        written = write_results(records, found, ["a note"], {"host": "gpu-a-01", "instance": "chat", **document}, None)
    directory = records.directory
    summary = json.loads((directory / "summary.json").read_text())
    assert (summary["host"], summary["instance"], summary["notes"][0]) == ("gpu-a-01", "chat", "a note")
    assert yaml.safe_load((directory / "evidence.yml").read_text()) == json.loads(json.dumps(document))
    assert written.values["directory"] == str(directory) and written.values["page"] in written.lines[0]
    assert f"catalog/evidence/{written.values['evidence_path']}" in written.lines[1]
