# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

IRONIC = "https://127.0.0.1:6385"
CURL = "curl -s --cacert /etc/baremetal-provisioner/tls.crt"


def test_ironic_answers_its_account_and_nobody_else(host):
    status = f"{CURL} -o /dev/null -w '%{{http_code}}'"
    assert host.check_output(f"{status} {IRONIC}/v1/nodes") == "401"
    assert host.check_output(f"{status} -u admin:wrong {IRONIC}/v1/nodes") == "401"
    assert json.loads(host.check_output(f"{CURL} -u admin:molecule-s3cret {IRONIC}/v1/nodes")) == {"nodes": []}


def test_ironic_runs_as_its_user_and_its_secrets_are_its_own(host):
    assert host.service("baremetal-provisioner").is_running
    assert host.service("baremetal-provisioner").is_enabled
    assert host.check_output("ps -o user:20= -p $(systemctl show -P MainPID baremetal-provisioner)") == "provisioner"
    for path, mode in {
        "/var/lib/baremetal-provisioner": 0o700,
        "/etc/baremetal-provisioner/htpasswd": 0o640,
        "/etc/baremetal-provisioner/tls.key": 0o640,
        "/srv/provisioner": 0o2750,
    }.items():
        assert host.file(path).mode == mode, path
    assert host.file("/srv/provisioner").user == "root"
    assert host.run("runuser -u provisioner -g www-data -- touch /srv/provisioner/redfish/x").rc == 0
    assert "molecule-s3cret" not in host.check_output("cat /etc/baremetal-provisioner/*")


@pytest.mark.parametrize(
    ("section", "line"),
    [("conductor", "automated_clean = false"), ("conductor", "force_power_state_during_sync = false")],
)
def test_the_defaults_that_destroy_are_off(host, section, line):
    text = host.file("/etc/baremetal-provisioner/ironic.conf").content_string
    assert line in text.partition(f"[{section}]")[2].partition("\n[")[0]


def test_media_are_served_and_never_listed(host):
    host.check_output("install -o provisioner -g www-data -m 640 /etc/hostname /srv/provisioner/redfish/medium.iso")
    web = "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8090"
    assert host.check_output(f"{web}/redfish/medium.iso") == "200"
    assert host.check_output(f"{web}/") == "403"
    assert host.check_output(f"{web}/.hidden") == "404"
    assert host.check_output(f"{web}/redfish/medium.iso -X PUT -d x") == "403"


def test_what_it_offers_is_written_for_the_playbook(host):
    site = json.loads(host.file("/etc/baremetal-provisioner/site.json").content_string)
    assert site["url"] == IRONIC
    assert site["certificate"].startswith("-----BEGIN CERTIFICATE")
    assert list(site["images"]) == ["site"]


def test_ironic_comes_back_when_it_is_killed(host):
    host.check_output("systemctl kill --signal=KILL baremetal-provisioner && sleep 3")
    command = f"for _ in $(seq 60); do {CURL} -f {IRONIC}/ && exit; sleep 1; done; exit 1"
    assert host.run(command).rc == 0
