# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.document import EvidenceError
from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.files import load_evidence

from tests.fakes.evidence import NAME, document


def write(directory, name, content):
    path = directory / f"{name}.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def test_the_bundled_evidence_is_read():
    assert {entry.accelerator for entry in load_evidence()} >= {"h200"}


def test_a_sites_file_replaces_the_bundled_one(tmp_path):
    bundled = next(entry for entry in load_evidence() if entry.name == NAME)
    write(tmp_path, NAME, document(source="ours"))
    found = load_evidence([str(tmp_path)])
    assert [entry.source for entry in found if entry.name == NAME] == ["ours"]
    assert bundled.source != "ours"
    assert len(found) == len(load_evidence())


def test_a_file_that_is_no_yaml(tmp_path):
    path = write(tmp_path, NAME, "a: [")
    with pytest.raises(EvidenceError, match=f"{path}: cannot be read"):
        load_evidence([str(tmp_path)])


def test_a_wrong_file_is_named(tmp_path):
    path = write(tmp_path, NAME, document(status="guessed"))
    with pytest.raises(
        EvidenceError, match=f"{path}: status: found 'guessed', expected measured, estimated or reported"
    ):
        load_evidence([str(tmp_path)])


def test_a_missing_directory(tmp_path):
    with pytest.raises(EvidenceError, match=f"evidence_path: {tmp_path}/x is not a directory on the controller"):
        load_evidence([f"{tmp_path}/x"])
