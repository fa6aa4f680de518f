# SPDX-License-Identifier: GPL-3.0-or-later
"""A state that is to come, prepared beside the one that is installed."""

from __future__ import annotations

import grp
import os
import pwd

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.slots.host import Slots
from ansible_collections.baremetal.inference.plugins.module_utils.slots.installed_host import Host
from ansible_collections.baremetal.inference.plugins.module_utils.slots.stage import stage
from ansible_collections.baremetal.inference.plugins.module_utils.slots.state import SlotError

USER, GROUP = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
TEXTS = {
    "/etc/vllm/chat.env": "A=1\n",
    "/etc/vllm/chat.yaml": "max-num-seqs: 8\n",
    "/etc/vllm/chat.secrets": "HF_TOKEN=planted\n",
    "/var/lib/vllm/chat/serve": '#!/bin/sh\nexec /opt/vllm/one/bin/python -m vllm "$@"\n',
    "/etc/systemd/system/vllm@.service": "[Service]\n",
}
FILES = [{"path": path, "mode": "0600", "owner": USER, "group": GROUP} for path in TEXTS]


@pytest.fixture
def host(tmp_path):
    return Host(str(tmp_path), lambda _engine, _ref: "sha256:abc")


def install(host, texts):
    """Write files as the role would."""
    for path, text in texts.items():
        os.makedirs(os.path.dirname(host.at(path)), exist_ok=True)
        with open(host.at(path), "w") as file:
            file.write(text)
        os.chmod(host.at(path), 0o600)
    os.makedirs(host.at("/var/lib/vllm/chat"), exist_ok=True)
    os.symlink("/srv/models/a", host.at("/var/lib/vllm/chat/model"))


def test_what_is_staged_has_the_name_that_it_will_have_when_it_is_installed(host):
    digest = stage(host, "chat", FILES, TEXTS, "/srv/models/a")
    slot = Slots(host, "chat").whole(digest)
    assert (slot.state.venv, slot.state.model, slot.kept_at) == ("/opt/vllm/one", "/srv/models/a", "")
    install(host, TEXTS)
    assert host.state("chat").digest == digest


def test_it_is_neither_good_nor_previous_and_nothing_that_is_installed_changes(host):
    install(host, TEXTS)
    before = host.state("chat")
    stage(host, "chat", FILES, {**TEXTS, "/etc/vllm/chat.yaml": "max-num-seqs: 9\n"}, "/srv/models/b")
    slots = Slots(host, "chat")
    assert (slots.good, slots.previous) == ("", "")
    assert host.state("chat") == before


def test_twice_is_once(host):
    assert stage(host, "chat", FILES, TEXTS, "/m") == stage(host, "chat", FILES, TEXTS, "/m")
    assert len(Slots(host, "chat").digests()) == 1


def test_secrets_are_for_root_alone(host):
    digest = stage(host, "chat", FILES, TEXTS, "/m")
    top = host.at(f"/var/lib/vllm/chat/slots/{digest}")
    assert os.stat(top).st_mode & 0o777 == 0o700
    assert os.stat(f"{top}/files/etc/vllm/chat.secrets").st_mode & 0o777 == 0o600


def test_check_mode_names_it_and_makes_nothing(host, tmp_path):
    assert len(stage(host, "chat", FILES, TEXTS, "/m", make=False)) == 16
    assert list(tmp_path.iterdir()) == []


def test_a_user_that_is_not_there_is_named(host):
    with pytest.raises(SlotError, match=r"/etc/vllm/chat\.env is to belong to nobody-here:"):
        stage(host, "chat", [{**FILES[0], "owner": "nobody-here"}], TEXTS, "/m")


def test_what_was_prepared_is_looked_at_whole_once_it_is_kept(host):
    digest = stage(host, "chat", FILES, TEXTS, "/srv/models/a")
    install(host, TEXTS)
    os.makedirs(host.at("/srv/models/a"))
    with open(host.at("/srv/models/a/.verified.json"), "w"):
        pass
    slots = Slots(host, "chat")
    with slots.locked():
        slots.keep(host.state("chat"), {}, None, 2)
    assert (slots.good, slots.whole(digest).stamped) == (digest, True)
