# SPDX-License-Identifier: GPL-3.0-or-later
"""What has served is kept on the host, and the host goes back to it without anything from elsewhere."""

from __future__ import annotations

import json
import re

import pytest
from serving_host import SECRETS, chat, playbook

SLOTS = "/var/lib/vllm/chat/slots"
CHANGED = {"vllm_instances": {"chat": {"recipe": "baremetal/gpt-oss-smoke", "host": "0.0.0.0", "args": {}}}}
RESTORE = """
- hosts: inference
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: baremetal.inference.vllm, tasks_from: restore}
"""


def site(*options: str, **variables):
    done = playbook("site.yml", "--limit", "cpu-12", "-e", json.dumps(variables), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def with_length(length: int) -> dict:
    instance = {**CHANGED["vllm_instances"]["chat"], "args": {"max-model-len": length}}
    return {"vllm_instances": {"chat": instance}}


def changes(done) -> int:
    return sum(map(int, re.findall(r"changed=(\d+)", done.stdout)))


def starts(host) -> int:
    return int(host.check_output("journalctl -u vllm@chat --no-pager | grep -c 'Started vllm@chat'"))


def link(host, which: str) -> str:
    return host.check_output("readlink %s/%s || true", SLOTS, which)


@pytest.fixture
def restore(tmp_path):
    def restore(*options: str, **variables):
        (tmp_path / "restore.yml").write_text(RESTORE)
        return playbook(str(tmp_path / "restore.yml"), "-e", json.dumps(variables), "--diff", *options)

    return restore


def test_what_has_answered_is_kept_for_root_alone(serving):
    good = link(serving, "good")
    assert re.fullmatch(r"[0-9a-f]{16}", good)
    assert serving.check_output("find %s -type d ! -perm 0700; find %s -type f ! -perm 0600", SLOTS, SLOTS) == ""
    document = json.loads(serving.file(f"{SLOTS}/{good}/slot.json").content_string)
    assert document["plan"]["model"] == "baremetal/gpt-oss-smoke"
    assert document["model"] == serving.check_output("readlink /var/lib/vllm/chat/model")


@pytest.mark.long
def test_a_changed_flag_is_taken_back(serving, restore):
    good, config, before = link(serving, "good"), serving.file("/etc/vllm/chat.yaml").content_string, starts(serving)
    # As a run leaves it that ends between writing and restarting; the next one makes up for that, once.
    site(vllm_restart=False, **with_length(1500))
    assert (starts(serving), link(serving, "good")) == (before, good)
    site(**with_length(1500))
    assert "max-model-len: 1500" in serving.file("/etc/vllm/chat.yaml").content_string
    assert link(serving, "previous") == good != link(serving, "good")
    assert starts(serving) == before + 1
    done = restore("-vvv", vllm_restore_to="previous")
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert serving.file("/etc/vllm/chat.yaml").content_string == config
    assert starts(serving) == before + 2
    assert chat() == "The fleet is ready."
    assert [secret for secret in SECRETS if secret in output] == []
    # What is installed is what the inventory wants again, and good again.
    assert (changes(site()), starts(serving)) == (1, before + 2)
    assert link(serving, "good") == good


# What was started by hand since, as by the tests before these, may have run with other files.
@pytest.mark.long
def test_what_was_only_touched_is_not_restarted(serving):
    before = starts(serving)
    serving.check_output("touch /etc/vllm/chat.yaml")
    assert (changes(site()), starts(serving)) == (0, before)


@pytest.mark.long
def test_a_slot_that_somebody_has_changed_is_refused(serving, restore):
    previous = link(serving, "previous")
    copy = f"{SLOTS}/{previous}/files/etc/vllm/chat.yaml"
    serving.check_output("cp -p %s /root/kept.yaml && echo '#' >> %s", copy, copy)
    before = starts(serving)
    done = restore(vllm_restore_to="previous")
    serving.check_output("mv /root/kept.yaml %s", copy)
    output = re.sub(r"\s+", " ", done.stdout + done.stderr)
    assert done.returncode != 0, output
    assert f"the slot {previous} is damaged: {copy} has changed since it was kept (sha256)" in output
    assert starts(serving) == before
