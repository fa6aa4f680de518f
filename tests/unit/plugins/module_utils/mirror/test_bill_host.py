# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import tracemalloc
import zipfile

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.mirror.bill import Known
from ansible_collections.baremetal.inference.plugins.module_utils.mirror.bill_host import read_knowledge
from ansible_collections.baremetal.inference.plugins.module_utils.mirror.bundle import Content

NOTHING = Content(0, "0" * 64)
WHEEL = "wheels/tool-1-py3-none-any.whl"
COLLECTION = "controller/baremetal-inference-0.7.0.tar.gz"


def put(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def learn(root, path):
    kind, item = path.split("/")[:2]
    return read_knowledge(str(root), {kind: {item: {path: NOTHING}}})


def wheel(**members):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return data.getvalue()


def test_a_wheel_names_its_licence(tmp_path):
    text = "Metadata-Version: 2.4\nName: tool\nVersion: 1\nLicense-Expression: MIT\n\nLicense: of the text\n"
    put(tmp_path / WHEEL, wheel(**{"tool-1.dist-info/METADATA": text, "x/y.dist-info/METADATA": "License: X\n"}))
    assert learn(tmp_path, WHEEL) == {WHEEL: Known("MIT")}


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", wheel(), wheel(**{"a/b.dist-info/METADATA": "License: X"})])
def test_a_wheel_that_cannot_be_read_says_nothing(tmp_path, data):
    put(tmp_path / WHEEL, data)
    assert learn(tmp_path, WHEEL) == {WHEEL: Known()}


def test_fields_without_end_say_nothing(tmp_path):
    for text, expected in (
        (":\n" * (2 << 20), Known()),
        ("License: MIT\n\n" + ":\n" * (1 << 20), Known(licences=("MIT",))),
    ):
        put(tmp_path / WHEEL, wheel(**{"tool-1.dist-info/METADATA": text}))
        tracemalloc.start()
        assert learn(tmp_path, WHEEL) == {WHEEL: expected}
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
        tracemalloc.stop()


def test_a_collection_names_its_licence(tmp_path):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        text = json.dumps({"collection_info": {"license": ["GPL-3.0-or-later"]}}).encode()
        member = tarfile.TarInfo("MANIFEST.json")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    put(tmp_path / COLLECTION, data.getvalue())
    assert learn(tmp_path, COLLECTION) == {COLLECTION: Known("GPL-3.0-or-later")}
    put(tmp_path / COLLECTION, data.getvalue()[:40])
    assert learn(tmp_path, COLLECTION) == {COLLECTION: Known()}


def layout(root, labels):
    """Write the layout of an image with two platforms; return its digest."""

    def blob(data):
        text = json.dumps(data).encode()
        digest = hashlib.sha256(text).hexdigest()
        put(root / f"images/vllm/blobs/sha256/{digest}", text)
        return {"digest": f"sha256:{digest}", "size": len(text)}

    first = blob({"config": blob({"config": {"Labels": labels}}), "layers": []})
    top = blob({"manifests": [first, first]})
    entry = {**top, "annotations": {"org.opencontainers.image.ref.name": "v1"}}
    put(root / "images/vllm/index.json", json.dumps({"manifests": [entry]}).encode())
    return top["digest"]


@pytest.mark.parametrize(
    ("labels", "expected"), [({"org.opencontainers.image.licenses": "Apache-2.0"}, "Apache-2.0"), (None, "")]
)
def test_an_image_has_a_digest_and_perhaps_a_licence(tmp_path, labels, expected):
    digest = layout(tmp_path, labels)
    holds = {"images": {"vllm:v1": {"images/vllm/index.json": NOTHING}, "vllm": {}, "vllm:v2": {}}}
    assert read_knowledge(str(tmp_path), holds) == {"vllm:v1": Known(expected, (), digest), "vllm:v2": Known()}


def test_an_index_that_leads_elsewhere_says_nothing(tmp_path):
    entry = {"digest": "sha256:../../x", "annotations": {"org.opencontainers.image.ref.name": "v1"}}
    put(tmp_path / "images/vllm/index.json", json.dumps({"manifests": [entry]}).encode())
    assert read_knowledge(str(tmp_path), {"images": {"vllm:v1": {}}}) == {"vllm:v1": Known()}


def test_what_unpacks_without_end_or_is_a_fifo_says_nothing(tmp_path):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        member = tarfile.TarInfo("x")
        member.size = 64 << 20
        archive.addfile(member, io.BytesIO(bytes(member.size)))
    put(tmp_path / COLLECTION, data.getvalue())
    tracemalloc.start()
    assert learn(tmp_path, COLLECTION) == {COLLECTION: Known()}
    assert tracemalloc.get_traced_memory()[1] < 24 << 20
    tracemalloc.stop()
    for path in (COLLECTION, WHEEL):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).unlink(missing_ok=True)
        os.mkfifo(tmp_path / path)
        assert learn(tmp_path, path) == {path: Known()}
