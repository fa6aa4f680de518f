# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import json
import sys

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.containers.layouts import wanted
from ansible_collections.baremetal.inference.plugins.module_utils.containers.oci_index import OciError

from tests.fakes.wheelhouse import run_module

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
# Answers as skopeo does, out of a directory: REPOSITORY/TAG names a manifest, blobs/ has everything by its digest.
SKOPEO = f"""#!{sys.executable}
import json, os, pathlib, sys
origin = pathlib.Path({{origin!r}})
with open(origin / "asked", "a") as log: log.write(" ".join(sys.argv[1:]) + "\\n")
def top(source):
    name = source.split("://", 1)[1].split("/", 1)[1]
    if "@" in name: return name.split("@")[1]
    place = origin / name.replace(":", "/")
    if not place.is_file(): sys.exit("reading manifest: https://user:secret@registry: manifest unknown")
    return place.read_text()
def blob(digest): return origin / "blobs" / digest.split(":")[1]
if sys.argv[1] == "inspect":
    sys.stdout.buffer.write(blob(top(sys.argv[-1])).read_bytes()); sys.exit()
source, (place, tag) = sys.argv[-2], sys.argv[-1][4:].rsplit(":", 1)
place = pathlib.Path(place); (place / "blobs/sha256").mkdir(parents=True, exist_ok=True)
left = int(os.environ.get("SKOPEO_BLOBS", 99))
def copy(digest, mime):
    global left
    data = blob(digest).read_bytes()
    if "manifest" in mime or "index" in mime:
        inner = json.loads(data)
        for one in inner.get("manifests") or [inner["config"], *inner["layers"]]: copy(one["digest"], one["mediaType"])
    target = place / "blobs/sha256" / digest.split(":")[1]
    if not target.exists():
        if not left: (place / "oci-put-blob1").write_bytes(b"half"); sys.exit("connection reset")
        left -= 1; target.write_bytes(data)
digest = top(source); copy(digest, {INDEX!r})
index = place / "index.json"
known = json.loads(index.read_text())["manifests"] if index.exists() else []
key = "org.opencontainers.image.ref.name"
entry = dict(mediaType={INDEX!r}, digest=digest, size=blob(digest).stat().st_size, annotations={{{{key: tag}}}})
others = [e for e in known if e["annotations"][key] != tag]
index.write_text(json.dumps(dict(schemaVersion=2, manifests=[*others, entry])))
(place / "oci-layout").write_text('{{{{"imageLayoutVersion": "1.0.0"}}}}')
"""


class Origin:
    """A registry of images of two platforms, and the skopeo that reaches it."""

    def __init__(self, path):
        self.path = path
        (path / "blobs").mkdir(parents=True)
        (path / "asked").touch()

    def _blob(self, data, mime):
        digest = hashlib.sha256(data).hexdigest()
        (self.path / "blobs" / digest).write_bytes(data)
        return {"mediaType": mime, "digest": f"sha256:{digest}", "size": len(data)}

    def put(self, name, tag, *layers):
        manifests = []
        for platform in ("amd64", "arm64"):
            config = self._blob(json.dumps({"architecture": platform}).encode(), "config")
            blobs = [self._blob(f"{platform} {layer}".encode(), "layer") for layer in layers]
            manifests.append(self._blob(json.dumps({"config": config, "layers": blobs}).encode(), MANIFEST))
        top = self._blob(json.dumps({"manifests": manifests}).encode(), INDEX)
        (self.path / name).mkdir(parents=True, exist_ok=True)
        (self.path / name / tag).write_text(top["digest"])
        return top["digest"]

    @property
    def asked(self):
        return (self.path / "asked").read_text().splitlines()

    @property
    def copies(self):
        return [line for line in self.asked if line.startswith("copy")]


@pytest.fixture
def origin(tmp_path, monkeypatch):
    made = Origin(tmp_path / "origin")
    program = tmp_path / "bin/skopeo"
    program.parent.mkdir()
    program.write_text(SKOPEO.format(origin=str(made.path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return made


def run(tmp_path, *images, **arguments):
    return run_module("mirror_images", root=str(tmp_path / "disk"), images=list(images), **arguments)


def test_every_platform_is_copied_once(tmp_path, origin):
    digest = origin.put("org/app", "v1", "one", "two")
    check = run(tmp_path, "org/app:v1", _ansible_check_mode=True)
    assert (check["changed"], check["fetched"], check["holds"]) == (True, ["org/app:v1"], {})
    assert not (tmp_path / "disk").exists()
    result = run(tmp_path, "org/app:v1")
    held = result["holds"]["org/app:v1"]
    # An index, and for each platform a manifest, a config and two layers.
    assert len(held) == 9 and result["missing_bytes"] == sum(file["size"] for file in held.values())
    assert f"images/org/app/blobs/{digest.replace(':', '/')}" in held
    for path, file in {**held, **result["holds"]["org/app"]}.items():
        assert hashlib.sha256((tmp_path / "disk" / path).read_bytes()).hexdigest() == file["sha256"]
    again = run(tmp_path, "org/app:v1")
    assert not again["changed"] and again["holds"] == result["holds"] and len(origin.copies) == 1


def test_a_copy_that_broke_off_is_hidden_and_goes_on(tmp_path, origin, monkeypatch):
    origin.put("org/app", "v1", "one", "two")
    monkeypatch.setenv("SKOPEO_BLOBS", "3")
    result = run(tmp_path, "org/app:v1")
    assert result["failed"] and "run again to continue: connection reset" in result["msg"]
    assert not (tmp_path / "disk/images/org/app").exists()
    monkeypatch.delenv("SKOPEO_BLOBS")
    result = run(tmp_path, "org/app:v1")
    assert 0 < result["missing_bytes"] < sum(file["size"] for file in result["holds"]["org/app:v1"].values())
    assert [path.name for path in (tmp_path / "disk/images/org").iterdir()] == ["app"]
    assert not list((tmp_path / "disk").rglob("oci-put-blob*"))


def test_a_tag_that_has_moved_is_copied_again_and_another_tag_stays(tmp_path, origin):
    origin.put("org/app", "v1", "one")
    run(tmp_path, "org/app:v1")
    origin.put("org/app", "v1", "two")
    origin.put("org/app", "v2", "one")
    result = run(tmp_path, "org/app:v1", "org/app:v2")
    assert result["fetched"] == ["org/app:v1", "org/app:v2"]
    assert {"org/app", "org/app:v1", "org/app:v2"} == set(result["holds"])


def test_an_image_by_its_digest_is_not_asked_for_once_it_is_there(tmp_path, origin):
    image = f"org/app:v1@{origin.put('org/app', 'v1', 'one')}"
    assert run(tmp_path, image)["fetched"] == ["org/app:v1"]
    before = len(origin.asked)
    assert not run(tmp_path, image)["changed"]
    assert len(origin.asked) == before


def test_an_image_that_is_there_stays_while_its_registry_is_away(tmp_path, origin):
    origin.put("org/app", "v1", "one")
    run(tmp_path, "org/app:v1")
    (origin.path / "org/app/v1").unlink()
    result = run(tmp_path, "org/app:v1")
    assert not result["changed"] and "stays unchanged" in str(result["warnings"])
    assert "secret" not in json.dumps(result)


def test_an_unknown_image_is_an_error_before_any_is_copied(tmp_path, origin):
    origin.put("org/app", "v1", "one")
    result = run(tmp_path, "org/app:v1", "org/none:v1")
    assert result["failed"] and "cannot read docker://docker.io/org/none:v1" in result["msg"]
    assert "secret" not in result["msg"] and not origin.copies


@pytest.mark.parametrize(("data", "verify"), [(b"", "sizes"), (None, "full")])
def test_a_damaged_blob_is_copied_again(tmp_path, origin, data, verify):
    origin.put("org/app", "v1", "one")
    (path, file) = max(run(tmp_path, "org/app:v1")["holds"]["org/app:v1"].items(), key=lambda item: item[1]["sha256"])
    blob = tmp_path / "disk" / path
    blob.write_bytes(bytes(file["size"]) if data is None else data)
    assert run(tmp_path, "org/app:v1", verify=verify)["changed"]
    assert hashlib.sha256(blob.read_bytes()).hexdigest() == file["sha256"]


def test_without_skopeo(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run(tmp_path, "org/app:v1")
    if "failed" not in result:  # get_bin_path also looks where systems keep programs
        pytest.skip("skopeo is installed here")
    assert "skopeo" in result["msg"]


@pytest.mark.parametrize(
    ("image", "source", "name"),
    [
        ("app", "docker://docker.io/library/app:latest", "library/app:latest"),
        ("vllm/vllm-openai:v0.33.0", "docker://docker.io/vllm/vllm-openai:v0.33.0", "vllm/vllm-openai:v0.33.0"),
        ("quay.io/ascend/x:1", "docker://quay.io/ascend/x:1", "ascend/x:1"),
        ("mirror:5000/lab/x:1", "docker://mirror:5000/lab/x:1", "lab/x:1"),
        (f"a/b@sha256:{'0' * 64}", f"docker://docker.io/a/b@sha256:{'0' * 64}", "a/b:sha256-000000000000"),
        (f"a/b:1@sha256:{'0' * 64}", f"docker://docker.io/a/b@sha256:{'0' * 64}", "a/b:1"),
    ],
)
def test_names(image, source, name):
    found = wanted(image, {})
    assert (found.source, found.name) == (source, name)
    assert wanted(image, {image: "oci:/built:1"}).source == "oci:/built:1"


@pytest.mark.parametrize("image", ["UPPER/case:1", "a/b:t:u", "a/b@sha256:12", "a/../b:1", "a/b:-x"])
def test_names_that_no_registry_takes(image):
    with pytest.raises(OciError, match="expected REGISTRY/REPOSITORY:TAG"):
        wanted(image, {})


def test_two_images_of_one_name_on_the_mirror_are_refused_and_a_digest_speaks_for_its_tag(tmp_path, origin):
    digest = origin.put("org/app", "v1", "one")
    result = run(tmp_path, "org/app:v1", f"org/app:v1@{digest}")
    assert result["fetched"] == ["org/app:v1"] and result["holds"]
    assert not run(tmp_path, "org/app:v1", f"org/app:v1@{digest}")["changed"]
    other = f"org/app:v1@sha256:{'0' * 64}"
    for two in ([f"org/app:v1@{digest}", other], ["org/app:v1", "quay.io/org/app:v1"]):
        message = run(tmp_path, *two)["msg"]
        assert f"{two[0]} and {two[1]} are both org/app:v1 on the mirror" in message
    assert "cannot lie in one directory" in run(tmp_path, "org/app:v1", "org/app/sub:v1")["msg"]
