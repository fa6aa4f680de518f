# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from serving_host import TOP, playbook

INVENTORIES = ("-i", str(TOP / ".config/molecule/inventory/role"))
REVISION = "0d7a1e6f4f5f0b1f6a3d0f6c5f0c8a1be2a1c0de"
MODEL = f"/srv/models/example/tiny/{REVISION}"


def test_model_is_there_as_it_was_pinned(host):
    assert host.file(f"{MODEL}/config.json").content_string == "{}"
    sha256 = host.file(f"{MODEL}/model.safetensors").sha256sum
    assert sha256 == "4d3ce487907df7c82875b924d841f0a3d576492e4d589b734abbd71d966151a8"
    stamp = json.loads(host.file(f"{MODEL}/.verified.json").content_string)
    assert stamp["files"]["model.safetensors"]["sha256"] == sha256


def test_model_that_only_the_controller_has_was_pushed_and_looked_at(host):
    directory = f"/srv/models/example/carried/{REVISION}"
    assert host.file(f"{directory}/sub/words.txt").content_string == "carried by a person"
    assert host.file(f"{directory}/.verified.json").exists
    assert set(host.file("/srv/models/example/carried").listdir()) - {".lock"} == {REVISION}


@pytest.mark.parametrize("path", ["/srv/models", "/srv/models/example", MODEL])
def test_directories_are_readable_for_every_instance(host, path):
    directory = host.file(path)
    assert (directory.user, directory.group, directory.mode) == ("root", "root", 0o755)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", ".verified.json"])
def test_files_are_readable_for_every_instance(host, name):
    file = host.file(f"{MODEL}/{name}")
    assert (file.user, file.group, file.mode) == ("root", "root", 0o644)


def test_nothing_is_left_beside_the_model(host):
    assert set(host.file("/srv/models/example/tiny").listdir()) - {".lock"} == {REVISION}


def test_wrong_input_has_published_nothing(host):
    assert not host.file(f"/srv/refused/example/tiny/{REVISION}").exists


def test_running_instance_still_has_its_directory(host):
    assert host.service("vllm@held").is_running
    assert host.file(f"/srv/models/example/held/{REVISION}/config.json").content_string == "damaged"


def test_old_revisions_have_gone_but_for_the_one_in_service(host):
    """weights_keep is 1: of the stamped ones the oldest stays, for an instance's symlink leads there."""
    assert host.service("vllm@kept").is_running
    assert host.file(f"/srv/models/example/kept/{'a' * 40}/config.json").content_string == "{}"
    found = set(host.file("/srv/models/example/kept").listdir()) - {".lock"}
    assert found == {REVISION, "a" * 40, "e" * 40}


def test_scrub_waits_for_its_time_at_idle_priority(host):
    assert host.service("weights-scrub.timer").is_running
    assert host.service("weights-scrub.timer").is_enabled
    assert "OnCalendar=Sun 03:00" in host.file("/etc/systemd/system/weights-scrub.timer").content_string.splitlines()
    shown = host.check_output(
        "systemctl show weights-scrub.service -p Nice,CPUSchedulingPolicy,IOSchedulingClass,CPUWeight"
    )
    # Numbers of the kernel: idle is 5 for the CPU and 3 for the disk.
    assert set(shown.splitlines()) == {"Nice=19", "CPUSchedulingPolicy=5", "IOSchedulingClass=3", "CPUWeight=idle"}


def test_scrub_has_found_the_lost_byte_and_then_none(host):
    journal = host.check_output("journalctl --unit weights-scrub.service --priority err --output cat --no-pager")
    damaged = {line.split(": ")[0] for line in journal.splitlines() if ": damaged: found " in line}
    assert damaged == {f"{MODEL}/model.safetensors"}
    report = json.loads(host.file("/var/lib/baremetal-inference/weights-scrub.json").content_string)
    assert (report["damaged"], report["skipped"]) == ({}, {})
    assert f"{MODEL}/model.safetensors" in report["checked"]
    assert host.check_output("systemctl show weights-scrub.service -p Result") == "Result=success"


def remove(through_ansible, **variables):
    """Run remove.yml on one host, without the instances that the lab's inventory declares; return status and output."""
    host = through_ansible.backend.host
    given = json.dumps({"vllm_instances": {}, **variables})
    done = playbook("playbooks/remove.yml", "-l", host, "-e", given, inventories=INVENTORIES)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_a_model_goes_unless_an_instance_uses_it(host, through_ansible):
    rc, said = remove(through_ansible, remove_model="example/kept")
    assert rc != 0 and "model example/kept: instance kept uses it" in said
    rc, said = remove(through_ansible, remove_model="example/carried")
    assert rc == 0 and "removed: model example/carried" in said, said
    assert not host.file("/srv/models/example/carried").exists
    rc, said = remove(through_ansible, remove_model="example/carried")
    assert rc == 0 and "changed=0" in said, said


@pytest.mark.long
def test_everything_goes_but_what_the_collection_did_not_publish(host, through_ansible):
    rc, said = remove(through_ansible, remove_instance="held,kept")
    assert rc == 0, said
    assert not host.service("vllm@held").is_running
    rc, said = remove(through_ansible, remove_everything=True)
    assert rc == 0, said
    left = "/etc/vllm /var/lib/vllm /var/cache/vllm /etc/systemd/system/vllm@.service /var/lib/baremetal-inference"
    scrub = "/etc/systemd/system/weights-scrub.timer /usr/local/lib/weights-scrub.py /srv/models/example/tiny"
    assert host.run(f"ls -d {left} {scrub}").stdout == ""
    assert host.run("systemctl is-enabled weights-scrub.timer").rc != 0
    assert host.file(f"/srv/models/example/held/{REVISION}/config.json").exists
    assert host.file(f"/srv/models/example/kept/{'e' * 40}").exists
    rc, said = remove(through_ansible, remove_everything=True)
    assert rc == 0 and "changed=0" in said, said
