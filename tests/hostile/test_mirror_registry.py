# SPDX-License-Identifier: GPL-3.0-or-later
"""A user of the mirror's host wants to give the site other images: the registry and nginx with the role's own files."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.fakes import gateways, mirrors
from tests.fakes.gateways import until
from tests.fakes.mirrors import answer
from tests.fakes.wheelhouse import run_module

TOP = Path(__file__).resolve().parents[2]
PROGRAMS = ("docker-registry", "nginx")
pytestmark = [
    pytest.mark.skipif(
        not all(map(shutil.which, PROGRAMS)) and not os.environ.get("GATEWAY_REQUIRED"),
        reason="needs docker-registry and nginx",
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for other users"),
]
ATTACK = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
directory, path = os.path.split(sys.argv[1])[0], sys.argv[1]
for attack in (lambda: socket.socket(socket.AF_UNIX).connect(path), lambda: os.unlink(path),
               lambda: socket.socket(socket.AF_UNIX).bind(path + "2"),
               lambda: os.rename(directory, directory + "2"), lambda: os.listdir(sys.argv[2])):
    try:
        attack()
        print("done")
    except PermissionError:
        print("refused")
"""


def unit_settings():
    """Return the lines of the registry's drop-in as names and values."""
    lines = gateways.render("docker-registry.conf.j2", {"mirror_registry_storage": "/x"}, mirrors.ROLE).splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


@pytest.fixture
def mirror():
    """A registry as its unit starts it, and nginx in front of it."""
    unit, user, port = unit_settings(), pwd.getpwnam("docker-registry"), gateways.free_port()
    group = shutil._get_gid(unit["Group"])
    with mirrors.place() as place:
        run, storage = place / unit["RuntimeDirectory"], place / "storage"
        for directory, owner in ((run, group), (storage, user.pw_gid)):
            directory.mkdir()
            os.chown(directory, user.pw_uid, owner)
        run.chmod(int(unit["RuntimeDirectoryMode"], 8))
        storage.chmod(0o700)
        names = {
            "__mirror_registry_socket": run / "socket", "mirror_registry_storage": str(storage),
            "mirror_registry": True, "mirror_port": gateways.free_port(), "mirror_registry_port": port,
            "mirror_root": str(place),
        }  # fmt: skip
        (place / "config.yml").write_text(gateways.render("registry.yml.j2", names, mirrors.ROLE))
        identity = {"user": user.pw_uid, "group": group, "extra_groups": [], "umask": int(unit["UMask"], 8)}
        registry = mirrors.started("docker-registry", "serve", place / "config.yml", **identity)
        with registry, mirrors.nginx(place, **names):
            until(lambda: answer(port, "GET", "/v2/")[0] == 200)
            yield place, port


def test_root_pushes_and_clients_pull_what_was_carried(mirror):
    place, port = mirror
    layout = place / "images/org/tiny"
    program = TOP / "molecule/role_mirror/files/make_image.py"
    subprocess.run([sys.executable, program, layout], check=True)
    found = run_module("registry_images", root=str(place / "images"), socket=str(place / "docker-registry/socket"))
    assert found["pushed"] == ["org/tiny:1.0"], found
    top = json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]
    for blob in (layout / "blobs/sha256").iterdir():
        kind, name = ("manifests", "1.0") if top.endswith(blob.name) else ("blobs", f"sha256:{blob.name}")
        address = f"http://127.0.0.1:{port}/v2/org/tiny/{kind}/{name}"
        request = urllib.request.Request(address, headers={"Accept": "application/vnd.oci.image.manifest.v1+json"})
        with urllib.request.urlopen(request, timeout=5) as pulled:
            assert pulled.read() == blob.read_bytes()
    again = run_module("registry_images", root=str(place / "images"), socket=str(place / "docker-registry/socket"))
    assert (again["changed"], again["pushed"]) == (False, [])


def test_another_user_neither_pushes_nor_stands_in_for_the_registry(mirror):
    place, port = mirror
    attack = [sys.executable, "-c", ATTACK, str(place / "docker-registry/socket"), str(place / "storage")]
    done = subprocess.run(attack, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["refused"] * 5, done
    for method, path in (("POST", "blobs/uploads/"), ("PUT", "manifests/1"), ("DELETE", "manifests/1")):
        assert answer(port, method, f"/v2/org/tiny/{path}")[0] == 403


def test_the_registry_has_no_port(mirror):
    listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    assert "docker-registry" not in listening
