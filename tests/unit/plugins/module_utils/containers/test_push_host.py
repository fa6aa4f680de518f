# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.fakes.wheelhouse import run_module

OLD, NEW = ("sha256:" + digit * 64 for digit in "12")


class Registry(ThreadingHTTPServer):
    """Answers for manifests (path below /v2/ -> digest) as a registry does; all else is a status."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.manifests = {}
        self.status = 200

    @property
    def address(self):
        return f"127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(self.server.status)
        self.end_headers()

    def do_HEAD(self):
        digest = self.server.manifests.get(self.path.removeprefix("/v2/"))
        # A registry that is not asked for an index answers with one platform's manifest, or with none.
        found = digest and "application/vnd.oci.image.index.v1+json" in self.headers["Accept"]
        self.send_response(200 if found else 404)
        if found:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()

    def log_message(self, *_args):
        pass


@pytest.fixture
def registry():
    with Registry() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """Put a skopeo first on PATH that notes its arguments, and fails where the file `broken` is."""
    directory = tmp_path / "bin"
    directory.mkdir()
    log = directory / "calls"
    log.touch()
    program = directory / "skopeo"
    program.write_text(
        f'#!/bin/sh\necho "$@" >>{log}\n[ ! -e {directory}/broken ] || {{ echo blob is short >&2; exit 1; }}\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return log


def carry(root, repository, tag, digest):
    layout = root / repository
    layout.mkdir(parents=True)
    (layout / "oci-layout").write_text("{}")
    named = {"digest": digest, "annotations": {"org.opencontainers.image.ref.name": tag}}
    (layout / "index.json").write_text(json.dumps({"manifests": [named]}))
    return layout


def test_what_the_registry_lacks_is_pushed_with_its_digest(tmp_path, registry, calls):
    layout = carry(tmp_path / "images", "vllm/vllm-openai", "v1", NEW)
    result = run_module("registry_images", root=str(tmp_path / "images"), registry=registry.address)
    assert result["changed"], result
    assert result["pushed"] == ["vllm/vllm-openai:v1"]
    assert calls.read_text() == (
        "copy --quiet --all --preserve-digests --dest-tls-verify=false "
        f"oci:{layout}:v1 docker://{registry.address}/vllm/vllm-openai:v1\n"
    )


def test_what_the_registry_has_is_left_alone(tmp_path, registry, calls):
    carry(tmp_path / "images", "a/b", "v1", NEW)
    registry.manifests["a/b/manifests/v1"] = NEW
    result = run_module("registry_images", root=str(tmp_path / "images"), registry=registry.address)
    assert (result["changed"], result["pushed"], calls.read_text()) == (False, [], "")


def test_a_tag_that_means_another_digest_now_is_pushed_and_shown(tmp_path, registry, calls):
    carry(tmp_path / "images", "a/b", "v1", NEW)
    registry.manifests["a/b/manifests/v1"] = OLD
    result = run_module("registry_images", root=str(tmp_path / "images"), registry=registry.address)
    assert result["diff"]["before"] == f"a/b:v1 {OLD}\n"
    assert result["diff"]["after"] == f"a/b:v1 {NEW}\n"
    assert calls.read_text().count("\n") == 1


def test_check_mode_pushes_nothing_and_needs_no_registry(tmp_path, registry, calls):
    carry(tmp_path / "images", "a/b", "v1", NEW)
    for address in (registry.address, "127.0.0.1:9"):
        result = run_module(
            "registry_images", root=str(tmp_path / "images"), registry=address, _ansible_check_mode=True
        )
        assert result["pushed"] == ["a/b:v1"], result
    assert calls.read_text() == ""


def test_half_an_image_under_a_hidden_name_and_no_images_at_all_are_nothing(tmp_path, calls):
    carry(tmp_path / "images", ".b.partial", "v1", NEW)
    for root in ("images", "absent"):
        result = run_module("registry_images", root=str(tmp_path / root), registry="127.0.0.1:9")
        assert (result["changed"], result["images"]) == (False, []), result


def test_a_bad_index_stops_before_the_first_push(tmp_path, registry, calls):
    carry(tmp_path / "images", "a", "v1", NEW)
    (carry(tmp_path / "images", "b", "v1", NEW) / "index.json").write_text("")
    message = run_module("registry_images", root=str(tmp_path / "images"), registry=registry.address)["msg"]
    assert message.startswith(f"{tmp_path}/images/b/index.json: not the index of an image layout")
    assert calls.read_text() == ""


def test_a_push_that_fails_says_what_skopeo_said(tmp_path, registry, calls):
    carry(tmp_path / "images", "a", "v1", NEW)
    calls.with_name("broken").touch()
    message = run_module("registry_images", root=str(tmp_path / "images"), registry=registry.address)["msg"]
    assert message.endswith(f"skopeo could not push a:v1 to {registry.address}: blob is short")


def test_a_server_that_is_no_open_registry_is_named(tmp_path, registry, calls):
    carry(tmp_path / "images", "a", "v1", NEW)
    registry.status = 401
    message = run_module("registry_images", root=str(tmp_path / "images"), registry=registry.address)["msg"]
    assert message == (
        f"http://{registry.address}/v2/: HTTP status 401 (Unauthorized); expected a registry without a login"
    )
