# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import io
import ipaddress
import json
import stat
import tarfile
from pathlib import Path

import pytest
import tomllib
import yaml

from tools.lab.plan import (
    Host,
    Lab,
    LabError,
    Recipe,
    apt_entries,
    apt_options,
    archive,
    certificates_of,
    choose,
    clashes,
    containers_conf,
    create_command,
    debian_sources,
    digest,
    known_hosts,
    network_options,
    next_step,
    parse_hosts,
    parse_lab,
    plain_inventory,
    routed,
    ssh_command,
)

TOP = Path(__file__).resolve().parents[4]
SHIPPED = yaml.safe_load((TOP / "inventories/lab/hosts.yml").read_text())
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

LAB = Lab("demo", "10.87.200", Path("/w/.lab"), Path("/w/.lab/cache"))
MIRROR = Host("mirror", 10, "bookworm", (("mirror", "/srv/mirror"),))
CPU = Host("cpu-12", 12, "bookworm")


def inventory(**hosts):
    return {"lab": {"vars": {}, "children": {"inference": {"hosts": hosts}}}}


def test_shipped_inventory_has_hosts_for_both_releases():
    hosts = parse_hosts(SHIPPED, "hosts.yml")
    assert {name: host.image for name, host in hosts.items()} == {
        "mirror": "bookworm",
        "cpu-12": "bookworm",
        "cpu-12b": "bookworm",
        "cpu-12c": "bookworm",
        "cpu-13": "trixie",
        "cuda-12": "bookworm",
        "rocm-13": "trixie",
        "cann-12": "bookworm",
    }
    assert hosts["mirror"].mounts == (("mirror", "/srv/mirror"),)


def test_lab_without_settings_is_the_inventorys():
    assert parse_lab({}, SHIPPED, Path("/w")) == LAB


def test_empty_settings_count_as_absent():
    # As `default(..., true)` in the inventory does.
    assert (
        parse_lab({"LAB_NAME": "", "LAB_SUBNET_PREFIX": "", "LAB_HOME": "", "LAB_CACHE": ""}, SHIPPED, Path("/w"))
        == LAB
    )


def test_settings_choose_another_lab():
    settings = {"LAB_NAME": "ci", "LAB_SUBNET_PREFIX": "10.1.2", "LAB_HOME": "/l", "LAB_CACHE": "/c"}
    lab = parse_lab(settings, SHIPPED, Path("/w"))
    assert (lab.subnet, lab.network, lab.directory, lab.cache) == ("10.1.2.0/24", "bminf-ci", Path("/l/ci"), Path("/c"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"LAB_NAME": "Demo"}, "LAB_NAME=Demo: use up to 21 lower-case letters"),
        ({"LAB_NAME": "../x"}, "LAB_NAME=../x"),
        ({"LAB_NAME": "cache"}, "but not cache, made, mirror"),
        ({"LAB_SUBNET_PREFIX": "10.87"}, "LAB_SUBNET_PREFIX=10.87: write the first three numbers"),
        ({"LAB_SUBNET_PREFIX": "10.87.300"}, "LAB_SUBNET_PREFIX=10.87.300"),
        ({"LAB_HOME": "/my lab"}, "OpenSSH takes no path with a space"),
    ],
)
def test_bad_setting_is_named(settings, message):
    with pytest.raises(LabError) as error:
        parse_lab(settings, SHIPPED, Path("/w"))
    assert message in str(error.value)


def test_variables_of_a_host_come_from_all_its_groups():
    groups = {
        "lab": {
            "children": {
                "a": {"hosts": {"one": None}},
                "b": {"hosts": {"one": {"lab_octet": 5, "lab_image": "trixie"}}},
                "c": None,
            }
        }
    }
    assert parse_hosts(groups, "x.yml") == {"one": Host("one", 5, "trixie")}


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ({"a": {"lab_image": "trixie"}}, "x.yml: host a: lab_octet is None"),
        ({"a": {"lab_image": "trixie", "lab_octet": 1}}, "lab_octet is 1; give it a number from 2 to 254"),
        ({"a": {"lab_octet": 9}}, "x.yml: host a: lab_image is None; give it a Debian release"),
        ({"a": {"lab_octet": 9, "lab_image": "Debian 12"}}, "lab_image is 'Debian 12'"),
        (
            {"a": {"lab_octet": 9, "lab_image": "trixie"}, "b": {"lab_octet": 9, "lab_image": "trixie"}},
            "x.yml: hosts a and b both have lab_octet 9",
        ),
    ],
)
def test_bad_host_is_named(hosts, message):
    with pytest.raises(LabError) as error:
        parse_hosts(inventory(**hosts), "x.yml")
    assert message in str(error.value)


def test_no_name_chooses_every_host():
    assert choose({"mirror": MIRROR, "cpu-12": CPU}, []) == [MIRROR, CPU]


def test_unknown_host_is_told_with_the_nearest_name():
    with pytest.raises(LabError, match=r"no host cpu12; it has mirror, cpu-12\. Did you mean cpu-12\?"):
        choose({"mirror": MIRROR, "cpu-12": CPU}, ["cpu12"])


@pytest.mark.parametrize(
    ("state", "found", "step"),
    [
        (None, None, "create"),
        ("created", "same", "recreate"),
        ("configured", "same", "recreate"),
        ("initialized", "same", "recreate"),
        ("running", "other", "recreate"),
        ("running", None, "recreate"),
        ("running", "same", "keep"),
        ("exited", "same", "start"),
        ("stopped", "same", "start"),
        ("stopping", "same", "restart"),
        ("paused", "same", "restart"),
    ],
)
def test_next_step(state, found, step):
    assert next_step(state, found, "same") == step


def test_host_is_made_with_its_address_names_and_disk():
    command = create_command(LAB, MIRROR, "image")
    assert command[command.index("--name") + 1] == "bminf-demo-mirror"
    assert command[command.index("--network") + 1] == "bminf-demo:ip=10.87.200.10,mac=02:00:0a:57:c8:0a,alias=mirror"
    assert command[command.index("--volume") + 1] == "/w/.lab/mirror:/srv/mirror"
    assert command[command.index("image") :][:2] == ["image", "/bin/sh"]


def test_host_without_mounts_shares_nothing():
    command = create_command(LAB, CPU, "image")
    volumes = [command[index + 1] for index, word in enumerate(command) if word == "--volume"]
    # Without a colon it is a volume of this container alone, which goes with it.
    assert volumes == ["/var/lib/docker", "/var/lib/containers"]


@pytest.mark.parametrize(
    ("hard_limits", "limit"),
    [((4096, 96365), 4096), ((20000, 9000), 9000), ((-1, -1), 1048576), ((2000000, -1), 1048576)],
)
def test_containers_conf_asks_for_no_limit_above_the_controllers(hard_limits, limit):
    settings = tomllib.loads(containers_conf(hard_limits))
    assert settings["containers"]["default_ulimits"] == [f"nofile={limit}:{limit}", f"nproc={limit}:{limit}"]
    assert settings["engine"]["runtime"] == "runc"
    assert settings["network"]["network_backend"] == "netavark"


def test_clashes_names_who_uses_the_subnet():
    routes = json.loads(
        '[{"dst":"default","gateway":"192.0.2.1","dev":"eth0"},{"dst":"192.0.2.0/24","dev":"eth0"},'
        '{"dst":"10.87.0.0/16","dev":"wg0"},{"dst":"10.87.200.9","dev":"tun1"},{"type":"blackhole","dst":"10.87.200.0/30"}]'
    )
    assert clashes("10.87.200.0/24", routed(routes)) == ["interface tun1", "interface wg0"]
    assert clashes("10.86.200.0/24", routed(routes)) == []


def test_shipped_subnet_is_private():
    assert ipaddress.IPv4Network(LAB.subnet).is_private


def test_ssh_trusts_only_the_labs_keys():
    command = ssh_command(LAB, CPU)
    assert command[:3] == ["ssh", "-F", "none"]
    assert "StrictHostKeyChecking=yes" in command
    assert "UserKnownHostsFile=/w/.lab/demo/ssh/known_hosts" in command
    assert command[-1] == "root@10.87.200.12"


def test_known_hosts_leaves_comments_out():
    assert known_hosts(LAB, {CPU: "ssh-ed25519 AAAA cpu-12\n"}) == "10.87.200.12 ssh-ed25519 AAAA\n"


def test_plain_inventory_has_the_hosts_that_are_up_in_their_groups():
    listed = plain_inventory(SHIPPED, LAB, [CPU])
    assert listed["lab"]["hosts"] == {"cpu-12": {"ansible_host": "10.87.200.12"}}
    assert listed["lab"]["children"] == {
        "inference": {"hosts": {"cpu-12": {}}},
        "debian12": {"hosts": {"cpu-12": {}}},
    }
    assert "{{" not in json.dumps(listed)


def test_plain_inventory_says_what_the_shipped_one_says():
    shipped = SHIPPED["lab"]["vars"]["ansible_ssh_common_args"].replace("{{ lab_ssh }}", "/w/.lab/demo/ssh")
    plain = plain_inventory(SHIPPED, LAB, [CPU])["lab"]["vars"]["ansible_ssh_common_args"]
    assert sorted(shipped.replace('"', "").split()) == sorted(plain.split())


def test_archive_is_roots_with_narrow_modes():
    with tarfile.open(fileobj=io.BytesIO(archive({"/etc/ssh/key": ("secret", 0o600)}))) as tar:
        member = tar.getmember("etc/ssh/key")
        assert (member.uid, member.gid, stat.S_IMODE(member.mode)) == (0, 0, 0o600)
        assert tar.extractfile(member).read() == b"secret"


DEB822 = f"""\
# A comment
Types: deb
URIs: http://deb.example/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib
Signed-By: {KEYRING}

Types: deb deb-src
URIs: https://deb.example/debian-security
Suites:
 bookworm-security
Components: main
Signed-By: {KEYRING}
"""


def test_sources_of_deb822_serve_both_releases():
    assert debian_sources(apt_entries(DEB822), "bookworm", "trixie") == [
        f"deb [signed-by={KEYRING}] http://deb.example/debian trixie main",
        f"deb [signed-by={KEYRING}] http://deb.example/debian trixie-updates main",
        f"deb [signed-by={KEYRING}] https://deb.example/debian-security trixie-security main",
    ]


def test_sources_of_one_line_format():
    text = (
        "# deb http://off.example/debian bookworm main\n"
        "deb-src http://src.example/debian bookworm main\n"
        f"deb [arch=amd64 signed-by={KEYRING}] http://a.example/debian/ bookworm main non-free-firmware # why\n"
        "deb http://b.example/debian bookworm-updates main\n"
    )
    assert debian_sources(apt_entries(text), "bookworm", "bookworm") == [
        f"deb [signed-by={KEYRING}] http://a.example/debian/ bookworm main",
        f"deb [signed-by={KEYRING}] http://b.example/debian bookworm-updates main",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "deb [signed-by=/usr/share/keyrings/other.gpg] https://apt.example bookworm main",
        "deb https://download.example/linux/debian bookworm stable",
        "deb https://apt.example nodistro main",
        "deb cdrom:[Debian]/ bookworm main",
        "deb file:/srv/debian bookworm main",
        "Types: deb\nEnabled: no\nURIs: http://a.example/debian\nSuites: bookworm\nComponents: main\n",
        "Types: deb-src\nURIs: http://a.example/debian\nSuites: bookworm\nComponents: main\n",
        "Types: deb\nURIs: http://a.example\nSuites: bookworm\nComponents: main\nSigned-By:\n -----BEGIN PGP\n .\n x\n",
        "",
    ],
)
def test_sources_that_are_not_debians_or_not_reachable_stay_out(text):
    assert debian_sources(apt_entries(text), "bookworm", "bookworm") == []


def test_apt_options_take_proxies_and_checks_only():
    dump = (
        'Acquire "";\nAcquire::http "";\nAcquire::http::Proxy "http://proxy.example:3128";\n'
        'Acquire::https::Proxy::deb.example "DIRECT";\nAcquire::Check-Valid-Until "false";\n'
        'Acquire::Languages:: "none";\nDPkg::Options:: "x";\n'
    )
    assert apt_options(dump) == [
        'Acquire::http::Proxy "http://proxy.example:3128"',
        'Acquire::https::Proxy::deb.example "DIRECT"',
        'Acquire::Check-Valid-Until "false"',
    ]


def test_certificates_of_a_bundle():
    one, two = (f"-----BEGIN CERTIFICATE-----\n{word}\n-----END CERTIFICATE-----" for word in ("AAA", "BBB"))
    assert certificates_of(f"# A comment\n{one}\n\n{two}\n") == [one, two]
    assert certificates_of("nothing") == []


RECIPE = Recipe("bookworm", ("deb x",), ("Acquire::Retries 1",), ("PEM",), "script")


@pytest.mark.parametrize(
    "changed",
    [
        {"release": "trixie"},
        {"sources": ()},
        {"apt_options": ()},
        {"certificates": ("PEM", "PEM2")},
        {"script": "other"},
    ],
)
def test_every_part_of_a_recipe_counts(changed):
    assert Recipe(**{**vars(RECIPE), **changed}).key != RECIPE.key
    assert Recipe(**vars(RECIPE)).key == RECIPE.key


def test_packages_count_too(monkeypatch):
    before = RECIPE.key
    monkeypatch.setattr("tools.lab.plan.PACKAGES", ["vim"])
    assert RECIPE.key != before


def test_digest_tells_splits_apart():
    assert digest("a", "bc") != digest("ab", "c")


def test_an_internal_lab_has_no_way_out_and_knows_its_hosts_by_name():
    lab = parse_lab({"LAB_INTERNAL": "1"}, SHIPPED, Path("/w"))
    command = create_command(lab, CPU, "image", [MIRROR, CPU])
    assert lab.internal and network_options(lab) == ("--internal", "--disable-dns")
    assert command[command.index("--dns") + 1] == "none"
    assert f"{MIRROR.name}:{lab.address(MIRROR)}" in command
    # podman refuses an alias on a network without names.
    assert not any("alias=" in word for word in command)


@pytest.mark.parametrize("value", ["", "0"])
def test_a_lab_has_a_way_out_unless_told(value):
    lab = parse_lab({"LAB_INTERNAL": value}, SHIPPED, Path("/w"))
    assert not lab.internal and network_options(lab) == ()
    assert "--add-host" not in create_command(lab, CPU, "image", [MIRROR])
