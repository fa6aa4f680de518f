# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian 13's own docker when its installation fails: a full disk, a power failure, a missing version."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.long
PACKAGES = "docker.io docker-cli containerd runc"
# A directory with files of docker.io only.
OWN = "/usr/share/docker.io"
# dpkg is killed as soon as it has begun to unpack.
CUT = """
dpkg --unpack /srv/cut/docker.io_*.deb & pid=$!
while kill -0 $pid 2>/dev/null; do
    dpkg-query -W -f '${db:Status-Status}' docker.io 2>/dev/null | grep -q half-installed && kill -9 $pid && break
done
wait
"""


def status(host, package="docker.io"):
    """Return dpkg's status of a package: installed, unpacked, half-installed, or empty."""
    return host.run("dpkg-query -W -f '${db:Status-Status}' %s", package).stdout


@pytest.fixture
def bare(engines):
    """A host without docker, with its package in a file; the role has to install docker again."""
    engine = engines["cpu-13", "docker"]
    host = engine.host
    host.check_output("mkdir -p /srv/cut && cd /srv/cut && (ls docker.io_*.deb || apt-get -qq download docker.io) >&2")
    host.check_output(f"apt-mark unhold {PACKAGES} && apt-get -qq -y remove {PACKAGES} >&2")
    assert status(host) != "installed"
    yield engine
    host.run("umount %s", OWN)


def check_repaired(engine, playbook):
    """Check that one run installs docker again, and that the next run changes nothing."""
    done = playbook(engine)
    assert done.rc == 0, done.output
    assert status(engine.host) == "installed"
    assert engine.info()["ServerVersion"].startswith("26.1")
    assert "docker.io" in engine.host.check_output("apt-mark showhold").split()
    assert engine.host.check_output("dpkg --audit") == ""
    again = playbook(engine)
    assert (again.rc, again.changed) == (0, 0), again.output


def test_a_power_failure_while_docker_is_unpacked(bare, playbook):
    bare.host.run(CUT)
    assert status(bare.host) == "half-installed"
    check_repaired(bare, playbook)


def test_a_power_failure_before_the_dependencies_of_docker_are_installed(bare, playbook):
    bare.host.check_output("dpkg --unpack /srv/cut/docker.io_*.deb >&2")
    assert (status(bare.host), status(bare.host, "containerd")) == ("unpacked", "config-files")
    check_repaired(bare, playbook)


def test_a_full_disk_is_reported_and_the_next_run_continues(bare, playbook):
    bare.host.check_output("mkdir -p %s && mount -t tmpfs -o size=4k tmpfs %s", OWN, OWN)
    full = playbook(bare)
    assert full.rc != 0
    assert "packages cannot be installed: docker.io, docker-cli; dpkg: error processing archive" in full.flat
    assert "No space left on device" in full.flat
    bare.host.check_output("umount %s", OWN)
    check_repaired(bare, playbook)


def test_a_missing_version_leaves_docker_running_and_held(engines, playbook):
    engine = engines["cpu-13", "docker"]
    daemon = engine.host.check_output("systemctl show -P MainPID docker.service")
    gone = playbook(engine, container_runtime_version="99.9", container_runtime_policy="install")
    assert gone.rc != 0
    assert "for container_runtime_version see apt-cache madison; no available installation candidate for" in gone.flat
    assert engine.host.check_output("systemctl show -P MainPID docker.service") == daemon
    assert "docker.io" in engine.host.check_output("apt-mark showhold").split()
