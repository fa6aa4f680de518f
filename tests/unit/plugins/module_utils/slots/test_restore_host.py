# SPDX-License-Identifier: GPL-3.0-or-later
"""The way back to a kept state; test_host.py kills it at every step, test_work_host.py calls the module."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.slots.host import Slots
from ansible_collections.baremetal.inference.plugins.module_utils.slots.installed_host import Host
from ansible_collections.baremetal.inference.plugins.module_utils.slots.restore_host import (
    Engine,
    Restore,
    Service,
    lacking,
    stale,
)
from ansible_collections.baremetal.inference.plugins.module_utils.slots.state import Image, SlotError

from tests.fakes.systemd import FakeInstances, FakeSystemd

UNIT, REF = "vllm@chat.service", "mirror:5000/lab/vllm:1"
VENV = "0.32.0-cpu-aa"


class Store:
    """A store of images: ``ids`` by name. It answers ``docker``; ``down`` is why it does not."""

    def __init__(self, **ids):
        self.ids, self.containers, self.down, self.tagged = {REF: "sha256:11aa", **ids}, {}, "", []

    def run(self, words):
        if self.down:
            return 1, "", self.down
        if words[1:3] == ["image", "inspect"]:
            known = {**self.ids, **{each: each for each in self.ids.values()}}
            found = known.get(words[3])
            return (0, json.dumps([{"Id": found}]), "") if found else (1, "[]", f"No such image: {words[3]}")
        if words[1] == "inspect":
            found = self.containers.get(words[-1])
            return (0, f"{found}\n", "") if found else (1, "", "No such object")
        self.tagged.append(words[2:])
        self.ids[words[3]] = f"sha256:{words[2]}"
        return 0, "", ""


class World:
    """A host with an instance that was kept and runs."""

    def __init__(self, tmp_path):
        self.there, self.systemd = FakeInstances(tmp_path / "root"), FakeSystemd(tmp_path / "systemd.json")
        self.store = Store()
        self.slots = Slots(Host(str(self.there.root), self.engine.image_id), "chat")

    def run(self, words, **_options):
        if words[0] == "systemctl":
            return self.systemd(words)
        if words[0] == "docker":
            return self.store.run(words)
        raise FileNotFoundError(2, os.strerror(2), words[0])

    @property
    def engine(self):
        return Engine(self.run)

    def keep(self):
        with self.slots.locked():
            self.slots.keep(self.slots.host.state("chat"), {}, None, 2)
        # It has run since after its files were written.
        self.systemd.runs(UNIT)
        self.systemd.asked()
        return self.slots.whole(self.slots.good)

    def restore(self):
        return Restore(self.slots.host, self.slots, self.slots.whole(self.slots.good), self.service, self.engine)

    @property
    def service(self):
        return Service("chat", self.run)


@pytest.fixture
def world(tmp_path, monkeypatch):
    # Whether it reaches the disk, test_host.py asks.
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    return World(tmp_path)


def test_a_state_that_is_installed_and_runs_is_left_alone(world):
    world.there.template()
    world.keep()
    assert not world.restore().changed
    world.systemd(["systemctl", "stop", UNIT])
    assert world.restore().changed, "it does not run"


def test_the_way_back_restores_files_and_weights_and_starts_the_unit(world):
    world.there.template()
    world.keep()
    good = world.there.picture()
    world.there.template(flag="2", venv="0.33.0-cpu-bb", revision="b" * 40)
    way = world.restore()
    assert way.differences == [
        "/etc/vllm/chat.yaml", "/var/lib/vllm/chat/serve", "/var/lib/vllm/chat/model",
    ]  # fmt: skip
    way.run()
    assert world.there.picture() == good
    assert world.systemd.asked() == [
        f"stop {UNIT}", "daemon-reload", f"enable {UNIT}", f"reset-failed {UNIT}", f"start {UNIT}",
    ]  # fmt: skip


def test_the_unit_of_another_kind_leaves_and_starts_no_more_at_boot(world):
    world.there.unit("docker", REF)
    world.keep()
    unit = world.there.at("/etc/systemd/system/vllm@chat.service")
    good = unit.read_text()
    unit.unlink()
    world.there.quadlet(REF)
    world.there.template()
    way = world.restore()
    assert "/etc/containers/systemd/vllm@chat.container" in way.differences
    way.run()
    assert unit.read_text() == good
    assert not world.there.at("/etc/containers/systemd/vllm@chat.container").exists()


def test_a_unit_that_does_not_stop_keeps_its_files(world):
    world.there.template()
    world.keep()
    world.there.template(flag="2")
    world.systemd.change(broken=["stop"])
    before = world.there.picture()
    with pytest.raises(SlotError, match=f"systemctl stop {UNIT}: stop refused"):
        world.restore().run()
    assert world.there.picture() == before


def test_a_name_that_stands_for_another_image_gets_its_old_one_back(world):
    world.there.unit("docker", REF)
    world.keep()
    world.store.ids = {REF: "sha256:22bb", "old": "sha256:11aa"}
    way = world.restore()
    assert way.differences == [f"image {REF}"]
    way.run()
    assert world.store.tagged == [["11aa", REF]] and not world.restore().differences


def test_a_tag_that_is_refused_is_one_sentence(world):
    world.store.down = "no space"
    with pytest.raises(SlotError, match=r"^docker tag 11aa .*: no space$"):
        world.engine.tag(Image(REF, "sha256:11aa", "docker"))


def test_a_container_with_another_image_than_its_name_has_now_is_stale(world):
    world.there.unit("docker", REF)
    world.keep()

    def is_stale():
        return stale(world.slots.host, world.slots, world.slots.host.state("chat"), world.service, world.engine)

    # The engine does not know the container: nothing is said.
    assert not is_stale()
    world.store.containers["vllm-chat"] = "sha256:11aa"
    assert not is_stale()
    world.store.ids["new"] = world.store.containers["vllm-chat"] = "sha256:22bb"
    assert is_stale()
    # Its files are right, and the way back starts it again.
    assert world.restore().changed and not world.restore().differences


def test_a_host_that_has_everything_lacks_nothing(world):
    world.there.unit("docker", REF)
    assert lacking(world.slots.host, world.keep()) == []
    world.there.at("/etc/systemd/system/vllm@chat.service").unlink()
    world.there.template()
    assert lacking(world.slots.host, world.keep()) == []


WEIGHTS = f"/srv/models/example/tiny/{'a' * 40}"


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        (f"{WEIGHTS}/config.json", None, "config.json is not there; download that revision with the role weights"),
        (f"{WEIGHTS}/.verified.json", None, ".verified.json is not there; download that revision"),
        (f"{WEIGHTS}/.verified.json", "{", ".verified.json cannot be read"),
        (f"{WEIGHTS}/config.json", "{ }", "missing or incomplete; download that revision"),
        (f"/opt/vllm/{VENV}/bin/python", None, "bin/python is not there; set vllm_release back and run site.yml"),
    ],
)
def test_what_a_way_back_would_have_to_download_is_said_before_it(world, path, text, problem):
    world.there.template(venv=VENV)
    slot = world.keep()
    world.there.at(path).unlink()
    if text is not None:
        world.there.write(path, text)
    (found,) = lacking(world.slots.host, slot)
    assert problem in found


def test_an_image_that_the_store_has_lost_is_said_before_the_way_back(world):
    world.there.unit("docker", REF)
    slot = world.keep()
    world.store.ids = {REF: "sha256:22bb"}
    (found,) = lacking(world.slots.host, slot)
    assert found.startswith(f"image: the store of docker has no {REF} with the id sha256:11aa; pull or load it")
    # Under another name it is there, and can be tagged.
    world.store.ids["kept"] = "sha256:11aa"
    assert lacking(world.slots.host, slot) == []


def test_why_an_engine_has_no_image_is_known(world):
    engine = world.engine
    assert engine.image_id("docker", REF) == "sha256:11aa" and engine.trouble == ""
    world.store.down = "Cannot connect to the Docker daemon\n"
    assert engine.image_id("docker", REF) == "" and engine.trouble == "docker said: Cannot connect to the Docker daemon"
    assert engine.image_id("podman", REF) == ""
    assert engine.trouble == "podman cannot be run: No such file or directory"
    assert engine.running("podman", "chat") == engine.running("docker", "chat") == ""


@pytest.mark.parametrize(
    ("seen", "up", "enabled", "reload"),
    [
        ("LoadState=loaded\nActiveState=active\nUnitFileState=enabled", True, True, False),
        ("LoadState=loaded\nActiveState=activating\nSubState=start\nUnitFileState=generated", True, True, False),
        # Between two attempts nothing serves.
        ("LoadState=loaded\nActiveState=activating\nSubState=auto-restart", False, False, False),
        ("LoadState=loaded\nActiveState=failed\nUnitFileState=disabled", False, False, False),
        ("LoadState=loaded\nActiveState=active\nNeedDaemonReload=yes", True, False, True),
        ("LoadState=not-found\nActiveState=inactive", False, False, True),
    ],
)
def test_what_systemd_says_of_a_unit(seen, up, enabled, reload):
    service = Service("chat", lambda _words, **_options: (0, f"{seen}\n", ""))
    assert (service.is_up, service.is_enabled, service.needs_reload) == (up, enabled, reload)
    assert service.started is None


def test_a_systemd_that_does_not_answer_is_an_error_and_none_at_all_is_not():
    with pytest.raises(SlotError, match=f"systemctl show {UNIT}: Connection timed out"):
        Service("chat", lambda _words, **_options: (1, "", "Connection timed out\n"))

    def none(words, **_options):
        raise FileNotFoundError(2, os.strerror(2), words[0])

    assert not Service("chat", none).is_up and Service("chat", none).description == "unknown (unknown)"
