# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import json
import os
import re
import socketserver
import threading
from http.server import BaseHTTPRequestHandler

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.containers.oci_index import OciError
from ansible_collections.baremetal.inference.plugins.module_utils.containers.push_host import find_images

from tests.fakes.wheelhouse import run_module

OLD = "sha256:" + "1" * 64
OCI = "application/vnd.oci.image"


class Registry(socketserver.ThreadingUnixStreamServer):
    """Takes, as a registry does, no blob that is not of its digest and no manifest without its parts."""

    daemon_threads = True

    def __init__(self, path):
        super().__init__(str(path), Handler)
        self.path, self.status = str(path), 200
        self.manifests, self.blobs, self.puts = {}, set(), []


class Handler(BaseHTTPRequestHandler):
    def address_string(self):
        return "socket"

    def say(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):
        self.say(self.server.status)

    def do_HEAD(self):
        kind, name = self.path.split("/")[-2:]
        if kind == "blobs":
            return self.say(200 if name in self.server.blobs else 404)
        # A registry that is not asked for an index answers with one platform's manifest, or with none.
        found = "application/vnd.oci.image.index.v1+json" in self.headers["Accept"] and self.server.manifests.get(name)
        return self.say(200, Docker_Content_Digest=found) if found else self.say(404)

    def do_POST(self):
        self.say(202, Location=f"http://localhost{self.path}id?_state=x%3D")

    def do_PUT(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        upload = re.search(r"/uploads/id\?_state=x%3D&digest=(sha256:[0-9a-f]{64})", self.path)
        self.server.puts.append((self.path.rpartition("/")[2], self.headers["Content-Type"]))
        if upload:
            self.server.blobs.add(digest)
            return self.say(201 if upload[1] == digest else 400)
        data = json.loads(content)
        parts = [*data.get("manifests", ()), *data.get("layers", ()), *([data["config"]] if "config" in data else ())]
        if any(part["digest"] not in {*self.server.blobs, *self.server.manifests} for part in parts):
            return self.say(400)
        self.server.manifests.update({self.path.rpartition("/")[2]: digest, digest: digest})
        return self.say(201)

    def log_message(self, *_args):
        pass


@pytest.fixture
def registry(tmp_path):
    with Registry(tmp_path / "socket") as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server
        server.shutdown()


def blob(layout, content):
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    digest = hashlib.sha256(data).hexdigest()
    (layout / "blobs/sha256").mkdir(parents=True, exist_ok=True)
    (layout / "blobs/sha256" / digest).write_bytes(data)
    return {"digest": f"sha256:{digest}", "size": len(data)}


def carry(root, repository, tag):
    """Write a layout of an image for two platforms that share a layer; return its directory and its digest."""
    layout = root / repository
    layer = blob(layout, b"layer")
    platforms = [blob(layout, {"config": blob(layout, {"n": n}), "layers": [layer]}) for n in (1, 2)]
    top = blob(layout, {"manifests": platforms})
    (layout / "oci-layout").write_text("{}")
    named = {**top, "annotations": {"org.opencontainers.image.ref.name": tag}}
    (layout / "index.json").write_text(json.dumps({"manifests": [named]}))
    return layout, top["digest"]


def run(tmp_path, registry, **more):
    return run_module("registry_images", root=str(tmp_path / "images"), socket=registry.path, **more)


def test_what_the_registry_lacks_is_pushed_with_all_platforms_and_its_digest(tmp_path, registry):
    _layout, digest = carry(tmp_path / "images", "vllm/vllm-openai", "v1")
    result = run(tmp_path, registry)
    assert result["changed"], result
    assert result["pushed"] == ["vllm/vllm-openai:v1"]
    assert registry.manifests["v1"] == digest
    assert len(registry.blobs) == 3
    kinds = [kind for _name, kind in registry.puts if kind != "application/octet-stream"]
    assert kinds == [f"{OCI}.manifest.v1+json"] * 2 + [f"{OCI}.index.v1+json"]
    assert registry.puts[-1][0] == "v1"
    assert len(registry.puts) == 6
    again = run(tmp_path, registry)
    assert (again["changed"], again["pushed"], len(registry.puts)) == (False, [], 6)


def test_a_tag_that_means_another_digest_now_is_pushed_and_shown(tmp_path, registry):
    _layout, digest = carry(tmp_path / "images", "a/b", "v1")
    registry.manifests["v1"] = OLD
    result = run(tmp_path, registry)
    assert result["diff"]["before"] == f"a/b:v1 {OLD}\n"
    assert result["diff"]["after"] == f"a/b:v1 {digest}\n"
    assert registry.manifests["v1"] == digest


def test_check_mode_pushes_nothing_and_needs_no_registry(tmp_path, registry):
    carry(tmp_path / "images", "a/b", "v1")
    for path in (registry.path, str(tmp_path / "none")):
        result = run_module("registry_images", root=str(tmp_path / "images"), socket=path, _ansible_check_mode=True)
        assert result["pushed"] == ["a/b:v1"], result
    assert registry.puts == []


def test_half_an_image_under_a_hidden_name_and_no_images_at_all_are_nothing(tmp_path):
    carry(tmp_path / "images", ".b.partial", "v1")
    for root in ("images", "absent"):
        result = run_module("registry_images", root=str(tmp_path / root), socket=str(tmp_path / "none"))
        assert (result["changed"], result["images"]) == (False, []), result


def test_a_bad_index_stops_before_the_first_push(tmp_path, registry):
    carry(tmp_path / "images", "a", "v1")
    (carry(tmp_path / "images", "b", "v1")[0] / "index.json").write_text("")
    message = run(tmp_path, registry)["msg"]
    assert message.startswith(f"{tmp_path}/images/b/index.json: not the index of an image layout")
    assert registry.puts == []


@pytest.mark.parametrize("content", [b"LAYER", b"longer than the layer"])
def test_a_layer_that_is_not_of_its_digest_is_refused(tmp_path, registry, content):
    layout, _digest = carry(tmp_path / "images", "a", "v1")
    (layout / "blobs/sha256" / hashlib.sha256(b"layer").hexdigest()).write_bytes(content)
    message = run(tmp_path, registry)["msg"]
    assert (
        "is damaged; copy the image there again" in message or "HTTP status 400 to PUT /v2/a/blobs/uploads" in message
    )
    assert registry.manifests == {}


def test_a_manifest_that_is_not_of_its_digest_is_not_pushed_under_the_tag(tmp_path, registry):
    layout, digest = carry(tmp_path / "images", "a", "v1")
    (layout / "blobs/sha256" / digest.partition(":")[2]).write_text(json.dumps({"layers": []}))
    assert run(tmp_path, registry)["msg"] == f"{layout}: {digest} is damaged; copy the image there again"
    assert registry.manifests == {}


def test_a_server_that_is_no_open_registry_is_named(tmp_path, registry):
    carry(tmp_path / "images", "a", "v1")
    registry.status = 401
    message = run(tmp_path, registry)["msg"]
    assert message == f"{registry.path}: HTTP status 401 for /v2/; expected a registry without a login"


def test_an_index_that_is_a_fifo_a_link_or_has_no_end_holds_nobody(tmp_path):
    layout, _digest = carry(tmp_path / "images", "a", "v1")
    index = layout / "index.json"
    (tmp_path / "secret").write_text('{"manifests": []}')
    for make in (os.mkfifo, lambda path: os.symlink(tmp_path / "secret", path)):
        index.unlink()
        make(index)
        with pytest.raises(OSError, match=r"index\.json"):
            find_images(str(tmp_path / "images"))
    index.unlink()
    with index.open("w") as file:
        file.truncate(12 << 30)
    with pytest.raises(OciError, match=r"index\.json has more than 16 MiB"):
        find_images(str(tmp_path / "images"))


def test_a_layer_that_is_a_fifo_or_a_link_is_not_read(tmp_path, registry):
    layout, _digest = carry(tmp_path / "images", "a", "v1")
    layer = layout / "blobs/sha256" / hashlib.sha256(b"layer").hexdigest()
    (tmp_path / "layer").write_bytes(b"layer")
    for make in (os.mkfifo, lambda path: os.symlink(tmp_path / "layer", path)):
        layer.unlink()
        make(layer)
        assert layer.name in run(tmp_path, registry)["msg"]
    assert registry.manifests == {}
