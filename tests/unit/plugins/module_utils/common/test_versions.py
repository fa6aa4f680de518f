# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.versions import (
    at_least,
    newest,
    numbers_of,
    satisfies,
    upstream_version,
    version_key,
)

ASCENDING = [
    "0.9",
    "0.20.2.dev1",
    "0.20.2a1",
    "0.20.2rc1",
    "0.20.2rc2",
    "0.20.2",
    "0.20.10",
    "8.3.RC1",
    "8.3",
    "580.65.06",
]


def test_versions_ascend():
    assert sorted(set(ASCENDING), key=version_key) == ASCENDING


def test_what_is_missing_counts_as_0():
    assert version_key("0.24") == version_key("0.24.0")


@pytest.mark.parametrize(
    ("version", "spec", "expected"),
    [
        ("0.24.0", ">=0.24,<0.33", True),
        ("0.33.0", ">=0.24,<0.33", False),
        ("0.20.2rc1", ">=0.20.2", False),
        ("0.20.2rc1", "<0.20.2", True),
        ("0.32.0+cpu", "0.32.0", True),
        ("580.65.06", ">=580.65.6", True),
    ],
)
def test_satisfies(version, spec, expected):
    assert satisfies(version, spec) is expected


@pytest.mark.parametrize("spec", ["nightly", ">=", "", "~=1.0", "1.0 or so"])
def test_another_form_is_refused(spec):
    with pytest.raises(ValueError, match="expected a form like"):
        satisfies("1.0", spec)


def test_numbers_of():
    assert numbers_of("580.65.06") == (580, 65, 6)
    assert numbers_of("12.8+cu128") == (12, 8)


@pytest.mark.parametrize(
    ("package", "upstream"),
    [
        ("580.95.05-0ubuntu1", "580.95.05"),
        ("3:580.95.05-1.el9", "580.95.05"),
        ("550.163.01-2", "550.163.01"),
        ("580.159.04", "580.159.04"),
        ("535.261.03~bpo12+1", "535.261.03"),
    ],
)
def test_the_vendors_part_of_a_version(package, upstream):
    assert upstream_version(package) == upstream


def test_versions_are_compared_by_their_numbers():
    assert at_least("580.105.08-1", "580.95.05")
    assert at_least("580.65.06", "580.65.06")
    assert not at_least("580.65", "580.65.06")
    assert not at_least("3:575.57.08-1.el9", "580.65.06")
    assert newest(["580.95.05", "580.105.08", "580.65.06"]) == "580.105.08"


@pytest.mark.parametrize(
    "ascending",
    [
        ["8.3.RC1", "8.3.RC2", "8.3"],
        ["1:6.14.14.30100100-2193512.22.04", "1:6.14.14.30100100-2200000.22.04", "1:6.16.6.30200000-2000000.22.04"],
        ["580.95.05-1.el9", "580.95.05-2.el9", "3:575.57.08-1.el9"],
    ],
)
def test_the_newest_package_is_found_by_epoch_version_and_revision(ascending):
    for count in range(1, len(ascending) + 1):
        assert newest(list(reversed(ascending[:count]))) == ascending[count - 1]


def test_the_name_of_a_kernel_is_no_pre_release():
    assert at_least("6.14.0-31-generic", "6.14")
    assert version_key("6.8.0-31-generic") == version_key("6.8.0-31") > version_key("6.8.0")
