# SPDX-License-Identifier: GPL-3.0-or-later
"""The version of Huawei's runtime for docker, in the file that its installer writes last."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.ascend import installed_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("version=v7.1.RC1\narch=aarch64\nos=linux\n", "7.1.RC1"),
        ("arch=x86_64\nversion=6.0.0\n", "6.0.0"),
        ("", ""),
        ("version=\n", ""),
        ("old_version=v5.0\n", ""),
    ],
)
def test_the_version_that_is_installed(text, version):
    assert installed_version(text) == version
