# SPDX-License-Identifier: GPL-3.0-or-later
"""Root writes nothing where Ironic's user could have placed a link, and believes nothing that lies there."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
import yaml

from tests.fakes.inventory_plugin import TOP

ROLE = TOP / "roles/provisioner"
# build.sh, where one byte stands for each file that takes minutes.
BUILD = """
made() { for name in "$@"; do printf x >"$work/$name"; done; }
make_ramdisk() { made agent.kernel agent.initramfs; }
make_image() { made "$1.raw"; }
make_esp() { made esp.img; }
eval "$(sed -n '1,/^build_id=/p;/^images=/,$p' "$HERE/build.sh")"
"""
TASKS = [
    task for file in ("configure", "build", "run") for task in yaml.safe_load((ROLE / f"tasks/{file}.yml").read_text())
]
(DIRECTORIES,) = (task for task in TASKS if task["name"] == "configure | Create the directories")
OWN = [item["path"] for item in DIRECTORIES["loop"] if item["owner"] != "root"]


def test_root_writes_below_no_directory_of_ironics_user():
    of_root = [item["path"] for item in DIRECTORIES["loop"]] + [
        json.dumps(task)
        for task in TASKS
        # A tree is removed without following links. Ironic's user makes its database itself.
        if task is not DIRECTORIES and "become_user" not in task and '"state": "removed"' not in json.dumps(task)
    ]
    assert len(OWN) == 2
    assert [text for text in of_root if any(f"{path}/" in text for path in OWN)] == []


def test_directories_become_roots_before_root_builds_in_them():
    module = DIRECTORIES["ansible.builtin.file"]
    paths = [item["path"] for item in DIRECTORIES["loop"]]
    assert module["follow"] is False
    assert paths.index("{{ provisioner_http_root }}") < paths.index("{{ provisioner_http_root }}/redfish")
    assert "provisioner_build" in DIRECTORIES["tags"]
    (build,) = (task["ansible.builtin.command"]["argv"] for task in TASKS if task["name"].startswith("build | Make"))
    assert all(any(word == path or word.startswith(f"{path}/") for path in set(paths) - set(OWN)) for word in build[2:])


@pytest.fixture
def here(tmp_path):
    directory = tmp_path / "programs"
    directory.mkdir()
    (task,) = (task for task in TASKS if task["name"].startswith("build | Install the programs"))
    for item in task["loop"]:
        (directory / item["name"]).touch()
    (directory / "build.sh").write_bytes((ROLE / "files/build.sh").read_bytes())
    return directory


def build(here):
    values = dict.fromkeys(("MIRROR", "COMPONENTS", "PACKAGES", "UBUNTU_MIRROR", "INDEX"), "")
    words = ["bash", "-c", BUILD, "bash", str(here.parent / "work"), str(here.parent / "out")]
    environment = {"PATH": os.environ["PATH"], "HERE": str(here), **values}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_planted_links_are_replaced_and_never_followed(here):
    out, victim, below = (here.parent / name for name in ("out", "passwd", "units"))
    out.mkdir()
    below.mkdir()
    victim.write_text("root")
    names = ("agent.kernel", "agent.initramfs", "esp.img", "debian13.raw", "SHA256SUMS", "images.json")
    for name in names:
        (out / f".{name}.partial").symlink_to(below)
        (out / f"{name}.partial").symlink_to(victim)
        (out / name).symlink_to(below if name.startswith("agent") else victim)
    assert build(here) == "made\n"
    assert victim.read_text() == "root" and not list(below.iterdir())
    assert all((out / name).is_file() and not (out / name).is_symlink() for name in names)
    sums = (out / "SHA256SUMS").read_text()
    assert json.loads((out / "images.json").read_text())["images"]["debian13"]["sha256"] in sums
    assert subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=out, check=False).returncode == 0
    assert not (here.parent / "work").exists()
    assert build(here) == ""


@pytest.mark.parametrize("plant", ["link", "owner"])
def test_images_that_another_user_could_have_placed_are_made_again(here, plant):
    build(here)
    complete = here.parent / "out/images.json"
    if plant == "link":
        complete.rename(here.parent / "images.json")
        complete.symlink_to(here.parent / "images.json")
    elif os.geteuid():
        pytest.skip("only root can give a file away")
    else:
        os.chown(complete, 65534, 65534)
    assert build(here) == "made\n"
    assert not complete.is_symlink() and complete.stat().st_uid == os.geteuid()
