# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel changes under the driver: the next run mends that, or stops and says why."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.long
ON = ("cpu-12",)
OLD, NEW = "6.1.0-40-amd64", "6.1.0-41-amd64"


@pytest.fixture
def kernel(fleet, cleaned):
    """Have a kernel upgraded, as unattended upgrades do, without its headers."""
    fleet.run(f"apt-get -q -y install linux-image-{NEW}")
    cleaned.append(
        f"apt-get -q -y purge linux-image-{NEW} linux-headers-{NEW}; dkms remove nvidia/580.95.05 -k {NEW}; true"
    )


def test_headers_that_no_repository_has_stop_the_run(fleet, cleaned, kernel):
    fleet.mirror("--forget", f"linux-headers-{NEW}")
    fleet.run("apt-get -q update")
    try:
        assert fleet.play().fails_everywhere(f"linux-headers-{NEW}")
    finally:
        fleet.mirror()
        fleet.run("apt-get -q update")
    assert all("Driver Version: 580.95.05" in said for said in fleet.run("nvidia-smi").values())


def test_a_build_that_fails_shows_the_end_of_its_log_and_the_next_run_mends_it(fleet, cleaned, kernel):
    fleet.run(f"echo {NEW} >/var/lib/standin/build-fails")
    assert fleet.play().fails_everywhere(NEW, "error: implicit declaration of function", "Error 2")
    assert all("Driver Version: 580.95.05" in said for said in fleet.run("nvidia-smi").values())
    fleet.run("rm /var/lib/standin/build-fails")
    done = fleet.play()
    assert done.rc == 0, done.output
    for said in fleet.run("dkms status").values():
        assert f"nvidia/580.95.05, {NEW}, x86_64: installed" in said
    fleet.run(f"standin boot --kernel {NEW} && systemctl restart nvidia-persistenced")
    done = fleet.play()
    assert (done.rc, done.changed) == (0, 0), done.output
    fleet.run(f"standin boot --kernel {OLD} && systemctl restart nvidia-persistenced")
