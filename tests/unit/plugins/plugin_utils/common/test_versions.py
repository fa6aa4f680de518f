# SPDX-License-Identifier: GPL-3.0-or-later
"""Both functions that compare versions, the hosts' and the controller's, agree."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common import versions as host_versions
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.versions import satisfies, sort_key

VERSIONS = ["0.10.2", "0.20.2rc1", "0.20.2", "0.32.0+cpu", "0.33.0", "580.65.06", "25.3.RC1", "1.0.dev2"]
SPECS = [">=0.20.2", "<0.20.2", "0.32.0", ">=0.24,<0.33", "!=0.33.0", ">=25.3", "==580.65.6"]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_controller_and_a_host_agree(version, spec):
    assert satisfies(version, spec) is host_versions.satisfies(version, spec)


def test_a_pre_release_comes_before_its_release():
    assert not satisfies("0.20.2rc1", ">=0.20.2")
    assert sort_key("0.20.2rc1") < sort_key("0.20.2")


def test_a_version_that_packaging_does_not_know_is_compared_by_its_numbers():
    assert satisfies("6.8.0-60-generic", ">=6.8")


@pytest.mark.parametrize("spec", ["nightly", ">=", "1.0 or so", ""])
def test_another_form_is_refused(spec):
    with pytest.raises(ValueError, match="expected a form like"):
        satisfies("1.0", spec)


def test_what_is_no_version_is_refused():
    with pytest.raises(ValueError, match="found 'nightly', expected a version"):
        sort_key("nightly")
