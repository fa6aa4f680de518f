# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime import names


@pytest.mark.parametrize(("packager", "distributions"), [("deb", "docker.io"), ("rpm", "moby-engine")])
def test_every_package_of_a_plan_is_read_once(packager, distributions):
    found = names.relevant_packages(packager)
    assert found == sorted(set(found))
    assert {*names.DOCKER_VENDOR, *names.TOOLKIT_PACKAGES, distributions, "podman", "crun", "apparmor"} <= set(found)
    other = set(names.DOCKER_OTHERS["rpm" if packager == "deb" else "deb"]) - set(names.DOCKER_OTHERS[packager])
    assert not other & set(found)


def test_what_docker_says_to_remove_is_none_of_its_own():
    for others in names.DOCKER_OTHERS.values():
        assert not set(others) & {*names.DOCKER_VENDOR, *names.TOOLKIT_PACKAGES}


def test_no_file_is_read_as_text_and_only_looked_for():
    assert not set(names.TEXT_FILES) & set(names.MARKER_FILES) and names.DAEMON_JSON not in names.TEXT_FILES
