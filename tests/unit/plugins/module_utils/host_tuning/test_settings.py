# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.host_tuning.settings import (
    GRUB_FILE,
    LIMITS_FILE,
    SYSTEMD_FILE,
    TuningError,
    limit_files,
    wanted_of,
)

OFF = {
    "governor": "",
    "numa_balancing_off": False,
    "transparent_huge_pages": "",
    "acs_off": False,
    "persistence": False,
    "power_cap": 0,
    "limits": {},
    "iommu_pt": False,
}
WORDS = ("intel_iommu=on", "iommu=pt")


def test_nothing_is_requested_by_default():
    assert wanted_of(OFF, WORDS, False) == {}


def test_each_option_requests_one_setting():
    options = {
        "governor": "performance",
        "numa_balancing_off": True,
        "transparent_huge_pages": "madvise",
        "acs_off": True,
        "persistence": True,
        "power_cap": 300,
    }
    assert wanted_of({**OFF, **options}, (), False) == {
        "governor": {"": "performance"},
        "numa_balancing": {"": "0"},
        "transparent_huge_pages": {"": "madvise"},
        "acs": {"": "0000"},
        "persistence": {"": "Enabled"},
        "power_cap": {"": "300"},
    }


def test_kernel_arguments_are_a_file_or_an_argument_of_grubby():
    options = {**OFF, "iommu_pt": True}
    text = 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX intel_iommu=on iommu=pt"\n'
    assert wanted_of(options, WORDS, False) == {"iommu_pt": {GRUB_FILE: text}}
    assert wanted_of(options, WORDS, True) == {"iommu_pt": {"grubby": "intel_iommu=on iommu=pt"}}


def test_kernel_arguments_of_an_unknown_processor_are_refused():
    with pytest.raises(TuningError, match="host_tuning_iommu_pt: the host's processor is none of AuthenticAMD"):
        wanted_of({**OFF, "iommu_pt": True}, (), False)


def test_limits_are_written_for_logins_and_for_units():
    files = limit_files({"memlock": "unlimited", "stack": 65536, "nofile": 1048576})
    logins = [line for line in files[LIMITS_FILE].splitlines() if not line.startswith("#")]
    assert "* hard memlock unlimited" in logins and "root soft nofile 1048576" in logins and len(logins) == 12
    # PAM counts the stack in KiB; systemd takes bytes unless told otherwise.
    assert files[SYSTEMD_FILE].splitlines()[1:] == [
        "[Manager]", "DefaultLimitMEMLOCK=infinity", "DefaultLimitNOFILE=1048576", "DefaultLimitSTACK=65536K",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"memlok": 1}, "host_tuning_limits: 'memlok' is no limit; nearest: 'memlock'"),
        ({"nofile": -1}, "nofile: found -1, expected a whole number or unlimited"),
        ({"nofile": "many"}, "nofile: found 'many', expected a whole number or unlimited"),
        ({"nofile": True}, "nofile: found true"),
    ],
)
def test_limits_that_are_none_are_refused(limits, message):
    with pytest.raises(TuningError, match=message):
        limit_files(limits)
