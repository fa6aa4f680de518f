# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import re

import pytest

MIRROR = "http://127.0.0.1"
MODEL = f"{MIRROR}/weights/org/model"
REGISTRY = "http://127.0.0.1:5000/v2/org/tiny"


def test_a_wheel_is_found_through_the_index_as_a_client_finds_it(host):
    root = host.check_output("curl -fs %s/simple/", MIRROR)
    assert re.findall(r'href="([^"]+)"', root) == ["other/", "tiny-one/"]
    page = host.check_output("curl -fs %s/simple/tiny-one/", MIRROR)
    path, digest = re.search(r'href="\.\./\.\./([^"#]+)#sha256=([0-9a-f]{64})"', page).groups()
    assert 'data-requires-python="&gt;=3.8"' in page
    assert host.check_output("curl -fs %s/%s | sha256sum", MIRROR, path).split()[0] == digest
    assert "Name: tiny_one" in host.check_output("curl -fs %s/%s.metadata", MIRROR, path)


def test_a_range_is_served(host):
    assert host.check_output("curl -fs -r 2-4 %s/model.safetensors", MODEL) == "234"
    assert "206" in host.check_output("curl -fsi -r 2-4 %s/model.safetensors", MODEL).splitlines()[0]


def test_directories_are_listed_without_hidden_files(host):
    listing = host.check_output("curl -fs %s/", MODEL)
    assert "model.safetensors" in listing
    assert ".model.safetensors" not in listing


@pytest.mark.parametrize(
    "address", [f"{MODEL}/.model.safetensors", f"{MODEL}/model.safetensors.partial", f"{MIRROR}/simple/.wheels.json"]
)
def test_unfinished_and_hidden_files_are_not_served(host, address):
    assert host.run("curl -s -o /dev/null -w '%%{http_code}' %s", address).stdout == "404"


def test_nothing_can_be_written(host):
    assert host.run("curl -s -o /dev/null -w '%%{http_code}' -X PUT -d x %s/wheels/x", MIRROR).stdout == "403"


def test_the_version_is_not_told(host):
    assert re.search(r"(?m)^Server: nginx\r?$", host.check_output("curl -fsI %s/simple/", MIRROR))


def test_an_image_is_pulled_with_the_digest_that_was_carried(host):
    index = json.loads(host.file("/srv/mirror/images/org/tiny/index.json").content_string)
    digest = index["manifests"][0]["digest"]
    for name in (":1.0", f"@{digest}"):
        address = f"docker://127.0.0.1:5000/org/tiny{name}"
        manifest = host.check_output("skopeo inspect --raw --tls-verify=false %s | sha256sum", address)
        assert manifest.split()[0] == digest.removeprefix("sha256:")
    host.check_output("skopeo copy --src-tls-verify=false docker://127.0.0.1:5000/org/tiny:1.0 dir:$(mktemp -d)")


def test_a_client_cannot_push(host):
    for method, path in (("POST", "blobs/uploads/"), ("PUT", "manifests/1.0"), ("DELETE", "manifests/1.0")):
        assert host.run("curl -s -o /dev/null -w '%%{http_code}' -X %s %s/%s", method, REGISTRY, path).stdout == "403"


def test_no_other_user_reaches_the_registry_itself(host):
    assert "docker-registry" not in host.check_output("ss -Hltnp")
    assert host.check_output("curl -fs --unix-socket /run/docker-registry/socket http://registry/v2/") == "{}"
    for user, rc in (("nobody", 7), ("www-data", 0)):
        command = "runuser -u %s -- curl -s --unix-socket /run/docker-registry/socket http://registry/v2/"
        assert host.run(command, user).rc == rc
    assert host.file("/var/lib/docker-registry").mode == 0o700


def test_the_registry_runs_confined_and_starts_at_boot(host):
    service = host.service("docker-registry")
    assert service.is_running, host.check_output("journalctl -u docker-registry --no-pager -n 30")
    assert service.is_enabled
    assert host.check_output("systemctl show -P NoNewPrivileges docker-registry") == "yes"


@pytest.mark.parametrize("port", [80, 5000])
def test_it_listens_on_loopback_only(host, port):
    addresses = host.check_output(f"ss -Hltn 'sport = :{port}'")
    assert [line.split()[3] for line in addresses.splitlines()] == [f"127.0.0.1:{port}"]


def test_nginx_runs_confined_and_starts_at_boot(host):
    service = host.service("nginx")
    assert service.is_running, host.check_output("journalctl -u nginx --no-pager -n 30")
    assert service.is_enabled
    assert host.check_output("systemctl show -P NoNewPrivileges nginx") == "yes"


def test_nginx_can_be_reloaded_and_stopped_in_its_confinement(host):
    host.check_output("systemctl reload nginx")
    host.check_output("systemctl restart nginx")
    assert host.run("curl -fs --retry 5 --retry-connrefused %s/simple/", MIRROR).rc == 0


def test_the_connections_of_an_address_are_bounded(host):
    assert host.service("mirror-openings").is_enabled
    assert "tcp dport { 80, 5000 }" in host.check_output("nft list table inet mirror-openings")
    assert re.search(r"(?m)^\s*worker_connections 16384;", host.file("/etc/nginx/nginx.conf").content_string)
    pid = host.check_output("systemctl show --property MainPID --value nginx")
    limit = host.check_output("grep 'Max open files' /proc/%s/limits", pid)
    # As many as the host of the lab allows.
    assert int(limit.split()[3]) >= 16384
