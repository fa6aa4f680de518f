# SPDX-License-Identifier: GPL-3.0-or-later
"""What docker and podman say of themselves, and the devices that CDI specifications describe."""

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.containers.engine_host import (
    cdi_files,
    cdi_kinds,
    read_docker,
    read_podman,
)


def engine(name, out="", rc=0, err="", version=""):
    """Return the arguments of a reader where only the engine ``name`` is installed."""

    def run(words):
        return (0, version or f"{name} version 1", "") if words[1:] == ["--version"] else (rc, out, err)

    return run, lambda asked: f"/usr/bin/{name}" if asked == name else None


def test_docker_says_its_version_and_where_it_reads_cdi():
    info = {"ServerVersion": "28.1.0", "CDISpecDirs": ["/etc/cdi"], "Runtimes": {}}
    found, whole = read_docker(*engine("docker", json.dumps(info)))
    assert (found.name, found.command, found.version) == ("docker", "/usr/bin/docker", "28.1.0")
    assert list(found.cdi_dirs) == ["/etc/cdi"] and whole == info


def test_podman_says_its_version_and_its_groups():
    info = {"version": {"Version": "5.4.2"}, "host": {"cgroupVersion": "v2"}}
    found, _whole = read_podman(*engine("podman", json.dumps(info)))
    assert (found.name, found.version, found.cgroup_v2) == ("podman", "5.4.2", True)


def test_podman_under_the_name_of_docker_is_no_docker():
    assert read_docker(*engine("docker", "{}", version="podman version 5.4.2")) is None


@pytest.mark.parametrize("read", [read_docker, read_podman])
def test_an_engine_that_is_not_installed_is_none(read):
    assert read(*engine("other")) is None


@pytest.mark.parametrize(("read", "name"), [(read_docker, "docker"), (read_podman, "podman")])
@pytest.mark.parametrize("out", ["", "[]", "{", "null", "[" * 100_000])
def test_an_engine_that_does_not_run_has_no_version_and_a_reason(read, name, out):
    found, whole = read(*engine(name, out, 1, "Cannot connect to the daemon\n"))
    assert (found.version, found.why, whole) == ("", "Cannot connect to the daemon", {})
    found, _whole = read(*engine(name, out, 125))
    assert found.why == "exit status 125"


def test_docker_without_its_daemon_says_why_itself():
    """It ends with status 0 then."""
    info = {"ServerErrors": ["permission denied", "is the daemon running?"]}
    found, _whole = read_docker(*engine("docker", json.dumps(info)))
    assert (found.version, found.why) == ("", "permission denied; is the daemon running?")


def test_the_devices_of_a_host_are_those_of_its_specifications(tmp_path):
    for name, text in {
        "b.yaml": "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\n",
        "a.json": '{"cdiVersion": "0.6.0", "kind": "amd.com/gpu"}',
        "damaged.yml": "\x00",
        "notes.txt": "kind: example.com/x\n",
    }.items():
        (tmp_path / name).write_text(text)
    places = [str(tmp_path / "missing"), str(tmp_path)]
    assert [path.rpartition("/")[2] for path in cdi_files(places)] == ["a.json", "b.yaml", "damaged.yml"]
    assert cdi_kinds(places) == ["amd.com/gpu", "nvidia.com/gpu"]
