# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.fakes.engine import FakeEngine
from tests.fakes.wheelhouse import run_module

NAME = "mirror:5000/lab/vllm:1"
DIGEST = "sha256:" + "0" * 64
IMAGE = {"Id": "sha256:11", "RepoDigests": [f"mirror:5000/lab/vllm@{DIGEST}"]}


@pytest.fixture(params=["docker", "podman"])
def engine(request, tmp_path):
    return FakeEngine(tmp_path, request.param, registry={NAME: IMAGE})


def have(engine, image=NAME, **options):
    return run_module("container_image", engine=str(engine.command), image=image, **options)


def asked(engine, word):
    return [words for words in engine.state["asked"] if word in words]


def test_an_image_is_pulled_once(engine):
    first, second = have(engine), have(engine)
    assert first["changed"] and not second["changed"]
    assert first["id"] == second["id"] == "sha256:11"
    assert first["digest"] == DIGEST and first["repo_digests"] == IMAGE["RepoDigests"]
    assert first["diff"]["before"] == "" and first["diff"]["after"] == f"{NAME} sha256:11\n"
    assert len(asked(engine, "pull")) == 1


def test_check_mode_asks_the_registry_and_pulls_nothing(engine):
    result = have(engine, _ansible_check_mode=True)
    assert result["changed"] and result["id"] == ""
    assert asked(engine, "manifest") and not asked(engine, "pull")
    engine.change(registry={}, asked=[])
    assert "the registry has no such image" in have(engine, _ansible_check_mode=True)["msg"]
    assert have(engine, _ansible_check_mode=True, check_registry=False)["changed"]


def test_check_mode_leaves_a_registry_alone_for_an_image_that_is_there(engine):
    engine.change(store={NAME: IMAGE})
    assert not have(engine, _ansible_check_mode=True)["changed"]
    assert not asked(engine, "manifest")


def test_a_tag_is_asked_for_again_only_where_that_is_wanted(engine):
    engine.change(store={NAME: {"Id": "sha256:00", "RepoDigests": []}})
    assert not have(engine)["changed"]
    assert have(engine, pull="always")["changed"]
    assert not have(engine, pull="always")["changed"]


def test_an_image_that_nobody_has_is_an_error_with_names(engine):
    message = have(engine, image="mirror:5000/lab/vllm:2")["msg"]
    assert message.startswith("image mirror:5000/lab/vllm:2 is not available from registry mirror:5000: ")
    assert "no such image" in message


def test_a_registry_without_tls_is_the_engines_own_to_know(engine):
    engine.change(http=True)
    for check in (True, False):
        message = have(engine, _ansible_check_mode=check)["msg"]
        assert "the registry speaks plain HTTP; allow that in the engine's configuration" in message
    engine.change(insecure=True)
    assert have(engine, _ansible_check_mode=True)["changed"]
    assert have(engine)["changed"]


def test_a_login_comes_from_a_file_and_goes_nowhere_else(engine, tmp_path):
    engine.change(login="c2VjcmV0")
    assert "vllm_registry_auth_file" in have(engine)["msg"]
    login = tmp_path / "login.json"
    login.write_text('{"auths": {"mirror:5000": {"auth": "c2VjcmV0"}}}')
    result = have(engine, auth_file=str(login))
    assert result["changed"] and "c2VjcmV0" not in json.dumps(result)
    missing = have(engine, image="mirror:5000/x:1", auth_file="/nowhere.json")["msg"]
    assert missing == "auth_file /nowhere.json is not on this host; put the login for the registry there"


def test_an_archive_is_loaded_instead(engine, tmp_path):
    archive = tmp_path / "image.tar"
    archive.write_text(json.dumps({NAME: IMAGE}))
    assert have(engine, archive=str(archive), _ansible_check_mode=True)["changed"]
    assert not asked(engine, "load")
    assert have(engine, archive=str(archive))["changed"]
    assert not have(engine, archive=str(archive))["changed"]
    assert not asked(engine, "pull") and len(asked(engine, "load")) == 1


def test_an_archive_that_is_not_there_or_holds_something_else(engine, tmp_path):
    message = have(engine, archive="/nowhere.tar")["msg"]
    assert message == f"archive /nowhere.tar is not on this host; copy it there, or omit archive to pull {NAME}"
    archive = tmp_path / "image.tar"
    archive.write_text(json.dumps({NAME: IMAGE}))
    other = have(engine, image="mirror:5000/lab/other:1", archive=str(archive))["msg"]
    assert other == f"archive {archive} holds {NAME}, which is not mirror:5000/lab/other:1"


def test_an_archive_whose_digest_is_another_is_an_error(engine, tmp_path):
    archive = tmp_path / "image.tar"
    archive.write_text(json.dumps({NAME: IMAGE}))
    message = have(engine, image=f"mirror:5000/lab/vllm@sha256:{'f' * 64}", archive=str(archive))["msg"]
    assert "its digest differs, or the archive has none" in message


def test_a_daemon_that_is_down_is_not_an_image_that_is_missing(tmp_path):
    engine = FakeEngine(tmp_path, down=True)
    assert have(engine)["msg"].startswith("docker does not answer: Cannot connect to the Docker daemon")


def test_something_else_than_an_engine_is_refused():
    assert "expected docker or podman" in run_module("container_image", engine="/bin/sh", image=NAME)["msg"]


@pytest.fixture
def registry():
    """A registry without TLS that has one image, which is no list of manifests; returns its address."""

    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self):
            there = self.path == "/v2/lab/vllm/manifests/1" and "oci.image.manifest" in self.headers["Accept"]
            self.send_response(200 if there else 404)
            self.end_headers()

        def log_message(self, *_words):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()


def test_an_image_that_is_no_list_is_there_all_the_same(engine, registry):
    engine.change(single=True, insecure=True, registry_host=registry)
    assert have(engine, image=f"{registry}/lab/vllm:1", _ansible_check_mode=True)["changed"]
    message = have(engine, image=f"{registry}/lab/vllm:2", _ansible_check_mode=True)["msg"]
    assert message.startswith(f"image {registry}/lab/vllm:2 is not available from registry {registry}: ")


def test_docker_does_not_take_it_over_plain_http_unless_told_to(tmp_path, registry):
    docker = FakeEngine(tmp_path, "docker", registry={}, single=True)
    message = have(docker, image=f"{registry}/lab/vllm:1", _ansible_check_mode=True)["msg"]
    assert "the registry speaks plain HTTP; allow that in the engine's configuration" in message


def test_a_registry_that_cannot_be_asked_names_the_way_out(engine):
    engine.change(single=True)
    message = have(engine, image="127.0.0.1:1/lab/vllm:1", _ansible_check_mode=True)["msg"]
    assert "(HTTP status none; if it is there, set vllm_check_registry: false)" in message
