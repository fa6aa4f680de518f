# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.contents import blob_id
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.trees_host import listed_names
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.write_host import Request, pin_model
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError

from tests.fakes.hub_server import sha256
from tests.fakes.tensors import safetensors
from tests.fakes.wheelhouse import served

COMMIT, OTHER = "c" * 40, "d" * 40
INDEX = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}).encode()
FILES = {
    "model-1.safetensors": safetensors(b"1" * 100_000),
    "model-2.safetensors": safetensors(b"2" * 3000),
    "config.json": b"{}",
    "model.safetensors.index.json": INDEX,
    "sub/a+b.txt": b"words",
}
REST = {".gitattributes": b"x", "README.md": b"x", "original/m.safetensors": b"x", ".cache/y.safetensors": b"y"}


def fill(directory, files=None):
    for name, content in (files or {**FILES, **REST}).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return directory


def contents(pinned):
    return {file.name: (file.size, file.sha256) for file in pinned.manifest.files}


def look(source, revision="", **requested):
    return pin_model(Request("org/name", str(source), revision, **requested), {})


EXPECTED = {name: (len(content), sha256(content)) for name, content in FILES.items()}


def test_a_directory_without_a_commit_gets_a_revision_of_its_files(tmp_path):
    first = look(fill(tmp_path / "one"))
    assert contents(first) == EXPECTED
    assert first.derived
    assert look(f"file://{fill(tmp_path / 'two')}").manifest == first.manifest
    (tmp_path / "two" / "README.md").write_text("for people alone")
    assert look(tmp_path / "two").manifest == first.manifest
    (tmp_path / "two" / "config.json").write_text("[]")
    assert look(tmp_path / "two").manifest.revision != first.manifest.revision


def test_a_directory_takes_the_commit_that_is_given(tmp_path):
    pinned = look(fill(tmp_path), COMMIT)
    assert (pinned.manifest.revision, pinned.derived) == (COMMIT, False)


@pytest.mark.parametrize("below", ["org/name", "name", "org/name/" + COMMIT, COMMIT, ""])
def test_the_model_is_found_below_the_directory(tmp_path, below):
    fill(tmp_path / below)
    pinned = look(tmp_path)
    assert contents(pinned) == EXPECTED
    assert pinned.manifest.revision == COMMIT or not below.endswith(COMMIT)


def test_several_revisions(tmp_path):
    for commit in (COMMIT, OTHER):
        fill(tmp_path / "org/name" / commit)
    assert look(tmp_path, OTHER).manifest.revision == OTHER
    for revision in ("", "main", "e" * 40):
        with pytest.raises(WeightsError, match=f"found the revisions {COMMIT}, {OTHER} and not"):
            look(tmp_path, revision)


@pytest.fixture
def cache(tmp_path):
    """What the hub's client keeps: files by their etag, revisions as links to them."""
    model = tmp_path / "hub" / "models--org--name"
    for commit in (COMMIT, OTHER):
        for name, content in FILES.items():
            etag = sha256(content) if name.endswith(".safetensors") else blob_id(content)
            blob = model / "blobs" / etag
            fill(model, {f"blobs/{etag}": content})
            link = model / "snapshots" / commit / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(blob, link.parent))
    fill(model, {"refs/main": COMMIT.encode(), "refs/v1": OTHER.encode()})
    fill(tmp_path, {"hub/version.txt": b"1"})
    return model


BY_NAME = [("", COMMIT), ("main", COMMIT), ("v1", OTHER), (OTHER, OTHER), (COMMIT, COMMIT)]


@pytest.mark.parametrize(
    ("above", "revision", "expected"),
    [
        *(("..", *case) for case in BY_NAME),
        *((".", *case) for case in BY_NAME),
        ("snapshots", OTHER, OTHER),
        (f"snapshots/{OTHER}", "", OTHER),
    ],
)
def test_the_cache_of_the_hubs_client(cache, above, revision, expected):
    pinned = look((cache / above).resolve(), revision)
    assert contents(pinned) == EXPECTED
    assert (pinned.manifest.revision, pinned.derived) == (expected, False)


@pytest.mark.parametrize("name", ["model-2.safetensors", "sub/a+b.txt"])
def test_a_damaged_cache(cache, name):
    path = cache / "snapshots" / COMMIT / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=r"is not what the hub's client downloaded .* download it again"):
        look(cache)


def note(directory, name, commit, etag):
    fill(directory, {f".cache/huggingface/download/{name}.metadata": f"{commit}\n{etag}\n1712656091.1\n".encode()})


def test_a_local_directory_of_the_hubs_client(tmp_path):
    fill(tmp_path, FILES)
    for name, content in FILES.items():
        note(tmp_path, name, COMMIT, sha256(content) if name.endswith(".safetensors") else blob_id(content))
    assert look(tmp_path).manifest.revision == COMMIT
    with pytest.raises(WeightsError, match=f"revision: found {OTHER}, but .* holds revision {COMMIT}"):
        look(tmp_path, OTHER)
    with pytest.raises(WeightsError, match="a directory has no branches and tags"):
        look(tmp_path, "main")
    note(tmp_path, "model-1.safetensors", OTHER, sha256(FILES["model-1.safetensors"]))
    assert look(tmp_path).derived
    (tmp_path / "config.json").write_text('{"edited": 1}')
    with pytest.raises(WeightsError, match=r"config\.json is not what the hub's client downloaded"):
        look(tmp_path)


def test_directories_that_hold_no_model(tmp_path):
    with pytest.raises(WeightsError, match=r"the directory is empty; expected the files of org/name"):
        look(tmp_path)
    with pytest.raises(WeightsError, match="nothing: No such file or directory; expected a directory"):
        look(tmp_path / "nothing")
    fill(tmp_path, {"x.bin": b"x"})
    with pytest.raises(WeightsError, match="Not a directory; expected a directory"):
        look(tmp_path / "x.bin")
    with pytest.raises(WeightsError, match=r"org/name: found no \*\.safetensors .* \(the model has \.bin\)"):
        look(tmp_path)


def test_half_a_model_is_refused_before_it_is_read(tmp_path):
    fill(tmp_path)
    (tmp_path / "model-2.safetensors").unlink()
    os.truncate(tmp_path / "model-1.safetensors", 10**12)
    with pytest.raises(WeightsError, match=r"model-2\.safetensors of the 2 shards .* is missing"):
        look(tmp_path)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 100000\n"
DAMAGE = {
    "a clone without Git LFS": ({"model-1.safetensors": POINTER}, "is a pointer of Git LFS"),
    "a pointer of the index": ({"model.safetensors.index.json": POINTER}, "is a pointer of Git LFS"),
    "a cut shard": ({"model-2.safetensors": FILES["model-2.safetensors"][:-100]}, "bytes, and its header describes"),
    "an empty shard": ({"model-2.safetensors": b""}, "model-2.safetensors is empty"),
    "a shard of zeros": ({"model-1.safetensors": bytes(100_000)}, "has no header of safetensors"),
    "a page as a shard": ({"model-1.safetensors": b"<!doctype html><html></html>"}, "is a web page"),
    "a page as a config": ({"config.json": b"<html></html>"}, "config.json is a web page"),
    "a cut config": ({"config.json": b'{"a": '}, "config.json is not JSON"),
    "aria2 at work": ({"model-1.safetensors.aria2": b"x"}, "so a download has not ended"),
    "the hub's client at work": ({"model-1.safetensors.incomplete": b"x"}, "so a download has not ended"),
    "curl at work": ({"model-2.safetensors.partial": b"x"}, "so a download has not ended"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("way", ["disk", "http"])
def test_damage_is_not_pinned(tmp_path, python_server, damage, way):
    files, problem = DAMAGE[damage]
    fill(tmp_path / COMMIT)
    fill(tmp_path / COMMIT, files)
    with pytest.raises(WeightsError) as caught:
        look(tmp_path / COMMIT if way == "disk" else f"{python_server}/{COMMIT}")
    assert problem in str(caught.value)


def test_a_shard_that_no_index_names_and_that_is_missing(tmp_path):
    one = {"model-00001-of-00002.safetensors": FILES["model-1.safetensors"], "config.json": b"{}"}
    with pytest.raises(WeightsError, match=r"model-00002-of-00002\.safetensors is missing"):
        look(fill(tmp_path, one))
    assert look(tmp_path, include=["*.safetensors"]).manifest.files


def test_a_directory_that_leads_to_itself(tmp_path):
    fill(tmp_path / "there")
    (tmp_path / "there" / "sub" / "loop").symlink_to(tmp_path / "there")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    assert contents(look(tmp_path / "link")) == EXPECTED


@pytest.mark.parametrize("name", ["sub/key.txt", "tokenizer.json", "linked/key.txt"])
def test_a_link_on_a_disk_publishes_nothing_that_others_cannot_read(tmp_path, name):
    """What is pinned is copied to every host, where everybody reads it, and to mirrors."""
    secret = tmp_path / "root/key.txt"
    fill(tmp_path, {"root/key.txt": b'{"the": "key"}'})
    model = fill(tmp_path / "disk")
    if name.startswith("linked"):
        (model / "linked").symlink_to(secret.parent)
    else:
        (model / name).symlink_to(secret)
    assert name in contents(look(model))
    secret.chmod(0o600)
    with pytest.raises(WeightsError, match=r"key\.txt, which only its owner can read; expected weights"):
        look(model)
    # A file of the disk itself may have any mode.
    shutil.copy(secret, tmp_path / "disk/own.json")
    (model / name.partition("/")[0]).unlink() if name.startswith("linked") else (model / name).unlink()
    assert "own.json" in contents(look(model))


@pytest.fixture
def python_server(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with served(tmp_path) as (url, _asked):
        yield url


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_directory_that_python_serves(tmp_path, python_server, slash):
    fill(tmp_path / "weights/org/name" / COMMIT)
    pinned = look(f"{python_server}/weights{slash}")
    assert contents(pinned) == EXPECTED
    assert pinned.manifest.revision == COMMIT
    assert look(f"{python_server}/weights/org/name/{COMMIT}{slash}").manifest == pinned.manifest


def test_servers_that_hold_no_model(tmp_path, python_server):
    with pytest.raises(WeightsError, match="the directory is empty"):
        look(python_server)
    with pytest.raises(WeightsError, match=r"nothing/: HTTP 404, expected a listing of the directory"):
        look(f"{python_server}/nothing")


@pytest.mark.skipif(not shutil.which("nginx"), reason="no nginx here")
@pytest.mark.parametrize("form", ["html", "json"])
def test_a_directory_that_nginx_serves(tmp_path, monkeypatch, form):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    fill(tmp_path / "root/org/name" / COMMIT)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    conf = tmp_path / "nginx.conf"
    temporary = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    conf.write_text(
        f"daemon off; pid {tmp_path}/pid; error_log stderr; worker_processes 1; user root; events {{}}\n"
        f"http {{ access_log off; {temporary} server {{ listen 127.0.0.1:{port}; root {tmp_path}/root;\n"
        f"location / {{ autoindex on; autoindex_format {form}; autoindex_exact_size off; }} }} }}\n"
    )
    nginx = subprocess.Popen(["nginx", "-c", str(conf)], stderr=subprocess.DEVNULL)
    try:
        for _attempt in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        pinned = look(f"http://127.0.0.1:{port}/")
    finally:
        nginx.terminate()
        nginx.wait()
    assert contents(pinned) == EXPECTED
    assert pinned.manifest.revision == COMMIT


@pytest.mark.parametrize(
    ("href", "name"),
    [
        ("a.json", "a.json"),
        ("sub/", "sub/"),
        ("./a.json", "a.json"),
        ("/weights/x/a.json", "a.json"),
        ("http://h/weights/x/a%2Bb%20c", "a+b c"),
        ("../", None),
        ("/", None),
        ("/weights/", None),
        ("?C=N;O=D", None),
        ("#top", None),
        ("sub/deep/file", None),
        ("http://other/weights/x/a.json", None),
        ("../../etc/passwd", None),
        ("javascript:alert(1)", None),
    ],
)
def test_links_of_a_listing(href, name):
    body = f"<html><a name='top'>x</a><a href='{href}'>some name</a>".encode()
    assert listed_names(body, "text/html", "http://h/weights/x/") == ({name} if name else set())


def test_a_listing_with_a_declaration_that_nobody_knows():
    assert listed_names(b"<![x]><a href='a.json'>a</a><![", "text/html", "http://h/x/") == {"a.json"}


def test_json_that_is_no_listing():
    with pytest.raises(WeightsError, match="other JSON than nginx's listing"):
        listed_names(b'{"error": "x"}', "application/json", "http://h/x/")
