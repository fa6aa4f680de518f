# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.encodings.files import (
    EncodingsError,
    expected_files,
    newest_wheel,
)


def test_unknown_name_is_refused():
    with pytest.raises(EncodingsError, match=r"unknown encodings file 'p50k_base.tiktoken'; known files: cl100k_base"):
        expected_files(["p50k_base.tiktoken"])


def test_newest_wheel_of_an_index():
    page = """<a href="../../wheels/oss_harmony-0.0.9-cp38-abi3-linux_x86_64.whl#sha256=00">9</a>
        <a href="../../wheels/oss_harmony-0.0.11-cp38-abi3-linux_x86_64.whl#sha256=11">11</a>
        <a href="../../wheels/oss_harmony-0.0.12.tar.gz">source</a>"""
    found = newest_wheel(page, "http://mirror/simple/oss-harmony/")
    assert found.url == "http://mirror/wheels/oss_harmony-0.0.11-cp38-abi3-linux_x86_64.whl"


def test_index_without_a_wheel_is_named():
    with pytest.raises(
        EncodingsError, match="http://mirror/simple/oss-harmony/: no wheel of oss-harmony in this index"
    ):
        newest_wheel("<html></html>", "http://mirror/simple/oss-harmony/")
