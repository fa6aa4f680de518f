# SPDX-License-Identifier: GPL-3.0-or-later
"""A layout on a carried disk: what is too large to be an index or a manifest is not read."""

from __future__ import annotations

import hashlib
import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.containers import layouts_host
from ansible_collections.baremetal.inference.plugins.module_utils.containers.layouts import Blob, Wanted, blobs
from ansible_collections.baremetal.inference.plugins.module_utils.containers.oci_index import OciError


@pytest.fixture
def layout(tmp_path, monkeypatch):
    monkeypatch.setattr(layouts_host, "MOST_BYTES", 100)
    (tmp_path / "blobs/sha256").mkdir(parents=True)
    return layouts_host.Layout(str(tmp_path))


def test_an_index_without_end(layout, tmp_path):
    (tmp_path / "index.json").write_text('{"manifests": []}' + " " * 200)
    with pytest.raises(OciError, match=r"index.json has more than 0 MiB; copy the image there again"):
        layout.top(Wanted("a/b:1", "a/b:1", "a/b", "1", ""))


def test_a_manifest_without_end(layout, tmp_path):
    digest = "0" * 64
    (tmp_path / "blobs/sha256" / digest).write_bytes(b" " * 101)
    with pytest.raises(OciError, match=f"sha256:{digest} has more than 0 MiB"):
        layout.read(f"sha256:{digest}")
    (tmp_path / "blobs/sha256" / digest).write_bytes(b" " * 100)
    assert len(layout.read(f"sha256:{digest}")) == 100


def entry(number):
    return {"digest": f"sha256:{number:064}", "size": 1}


def test_an_image_without_end():
    top = Blob(entry(1)["digest"], 1, True)
    with pytest.raises(OciError, match="its image has more than 10000 blobs"):
        list(blobs(top, lambda _digest: json.dumps({"layers": [entry(n) for n in range(20_000)]}).encode()))


def test_what_many_manifests_name_is_read_once():
    read = []

    def manifest(digest):
        read.append(digest)
        layers = {"layers": [entry(9)]}
        return json.dumps(layers if int(digest[7:]) > 1 else {"manifests": [entry(2)] * 500 + [entry(3)]}).encode()

    found = [int(blob.digest[7:]) for blob in blobs(Blob(entry(1)["digest"], 1, True), manifest)]
    assert (found, len(read)) == ([9, 2, 3, 1], 3)


def put(tmp_path, content):
    data = json.dumps(content).encode()
    digest = hashlib.sha256(data).hexdigest()
    (tmp_path / "blobs/sha256" / digest).write_bytes(data)
    return {"digest": f"sha256:{digest}", "size": len(data)}


def test_what_many_manifests_name_is_looked_for_once(layout, tmp_path, monkeypatch):
    monkeypatch.setattr(layouts_host, "MOST_BYTES", 1 << 20)
    read, real = [], layouts_host.Layout.read
    monkeypatch.setattr(layouts_host.Layout, "read", lambda self, digest: read.append(digest) or real(self, digest))
    image = put(tmp_path, {"layers": [entry(9)]})
    top = put(tmp_path, {"manifests": [image] * 500 + [entry(7)]})
    found = [int(blob.digest[7:]) for blob in layout.lacks(Blob(top["digest"], top["size"], True))]
    assert (found, len(read)) == ([9, 7], 2)


def test_indexes_that_nest_without_end(layout, tmp_path, monkeypatch):
    monkeypatch.setattr(layouts_host, "MOST_BYTES", 1 << 20)
    top = put(tmp_path, {"manifests": []})
    for _depth in range(4):
        top = put(tmp_path, {"manifests": [top]})
    with pytest.raises(OciError, match="its manifests nest deeper than 3"):
        layout.lacks(Blob(top["digest"], top["size"], True))
