# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.entry import ProvisionError
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.images import Provisioner
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.options import (
    BMC_SECONDS,
    read_jobs,
    read_settings,
    real_world,
    sleep_while,
    with_disks,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.record import Record

from tests.fakes.provision_entries import IMAGE, VALUES

SITE = Provisioner("https://10.0.0.5:6385", "", {"debian13": IMAGE})
OPTIONS = {
    "release": [], "bmc_username": "admin", "bmc_password": "s3cret", "ssh_keys": ["ssh-ed25519 AAAA me"],
    "username": "admin", "password": "p", "record": "/nowhere/provisioned.yml", "known_hosts": "~/known",
    "user": "root", "deadlines": {},
    "keep_node": False, "bmc_verify": True, "bmc_ca_file": "", "private_key": "",
}  # fmt: skip
OTHER = {**VALUES, "bmc": "10.1.0.12", "mac": "52:54:00:12:34:57", "address": "10.0.1.12/24", "root_serial": "OTHER"}


def jobs(hostvars, hosts=None, **options):
    return read_jobs(hosts or list(hostvars), hostvars, {**OPTIONS, **options}, SITE.image_of, {"a": Record("order1")})


def test_jobs_are_made_of_hosts_with_an_entry_their_account_and_their_record():
    own = {"accelerator_bmc_username": "root", "accelerator_bmc_password": "own", "ansible_host": "10.9.9.9"}
    found = jobs({"a": {"provision": VALUES, **own}, "b": {"provision": OTHER}, "c": {}}, release=["b"])
    assert [job.entry.host for job in found] == ["a", "b"]
    assert [(job.account.username, job.account.password) for job in found] == [("root", "own"), ("admin", "s3cret")]
    assert (found[0].record.order, found[1].record.order) == ("order1", "")
    assert found[0].names == ("10.0.1.11", "a", "10.9.9.9")
    assert [job.released for job in found] == [False, True]


def test_hosts_outside_of_the_run_are_compared_too():
    both = {"a": {"provision": VALUES}, "b": {"provision": {**OTHER, "bmc": "https://10.1.0.11"}}}
    with pytest.raises(ProvisionError, match=r"provision\.bmc: found https://10\.1\.0\.11 at the hosts a, b"):
        jobs(both, ["a"])


@pytest.mark.parametrize(
    ("variables", "options", "said"),
    [
        ({}, {}, "none of these hosts has the variable provision"),
        ({"provision": VALUES}, {"release": ["aa"]}, "provision_release: found 'aa', expected a host of this run"),
        (
            {"provision": VALUES},
            {"bmc_password": ""},
            "host 'a': no password for its BMC: set accelerator_bmc_password",
        ),
        ({"provision": {**VALUES, "image": "rhel"}}, {}, "the provisioner has no image 'rhel'"),
        ({"provision": {**VALUES, "mtu": 1}}, {}, "host 'a': provision.mtu: found 1"),
        (
            {"provision": VALUES, "provision_deadlnes": {"write": 5}},
            {},
            "host 'a': provision_deadlnes: no playbook reads it; nearest: 'provision_deadlines'",
        ),
    ],
)
def test_what_is_missing_is_named(variables, options, said):
    with pytest.raises(ProvisionError) as error:
        jobs({"a": variables}, **options)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ssh_keys": []}, "provision_ssh_keys: found none"),
        (
            {"ssh_keys": ["-----BEGIN OPENSSH PRIVATE KEY-----"]},
            "provision_ssh_keys: found a private key, expected public keys",
        ),
        ({"user": "root; reboot"}, "provision_user: found 'root; reboot'"),
    ],
)
def test_a_wrong_setting_is_refused_and_a_private_key_is_not_repeated(options, said):
    with pytest.raises(ProvisionError) as error:
        read_settings({**OPTIONS, **options}, SITE)
    assert said in str(error.value)
    assert "PRIVATE" not in str(error.value)


def test_a_run_ends_with_the_ansible_playbook_that_it_belongs_to():
    sleep_while(os.getppid(), 0)
    with pytest.raises(ProvisionError, match="ansible-playbook has ended"):
        sleep_while(os.getppid() + 1, 0)


def test_settings_and_the_world_take_the_options():
    settings = read_settings({**OPTIONS, "deadlines": {"write": 10}}, SITE)
    assert settings.deadlines["write"] == 10
    assert (settings.ironic.url, settings.bmc_ca) == ("https://10.0.0.5:6385", True)
    assert not str(settings.known_hosts).startswith("~")
    world = real_world(OPTIONS, print)
    assert world.ask_bmcs.keywords["limits"].deadline == BMC_SECONDS == 60


def test_a_link_of_another_user_to_the_known_hosts_is_refused_before_a_server_is_written(tmp_path, monkeypatch):
    link = tmp_path / "known"
    link.symlink_to("other")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    if os.getuid() == 0:
        os.lchown(link, 65534, 65534)
    with pytest.raises(ProvisionError, match=r"provision_known_hosts: .*/known is a link of another user"):
        read_settings({**OPTIONS, "known_hosts": str(link)}, SITE)


def test_a_ramdisk_that_cannot_wipe_is_refused_where_a_disk_would_be_wiped():
    hostvars = {"a": {"provision": VALUES}, "b": {"provision": OTHER}}
    # b has no record, so it would not be touched.
    with pytest.raises(ProvisionError, match=r"its ramdisk can wipe disks, expected it for a; run .*provisioner\.yml"):
        with_disks(jobs(hostvars), {}, secure=False, can_wipe=False)
    assert [job.disks for job in with_disks(jobs(hostvars), {"a": []}, False, False)] == [(), ("OTHER",)]
    with pytest.raises(ProvisionError, match="expected it for b"):
        with_disks(jobs(hostvars, release=["b"]), {"a": []}, secure=False, can_wipe=False)
    assert [job.disks for job in with_disks(jobs(hostvars), {}, False, True)] == [("S6CKNX0T",), ("OTHER",)]
