# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.sampler import (
    describe_failure,
    is_current,
    variables,
)


def test_the_compilation_writes_into_its_directory_and_asks_no_chip():
    found = variables({"PATH": "/env/bin", "HOME": "/root", "CUDA_VISIBLE_DEVICES": "0"}, "9.0", "/work")
    assert found == {
        "PATH": "/env/bin",
        "HOME": "/work",
        "FLASHINFER_WORKSPACE_BASE": "/work",
        "FLASHINFER_CUDA_ARCH_LIST": "9.0",
        "CUDA_VISIBLE_DEVICES": "",
    }


@pytest.mark.parametrize(
    ("library", "mark", "current"),
    [(True, "9.0\n", True), (True, None, True), (True, "8.9\n", False), (False, "9.0\n", False), (False, None, False)],
)
def test_a_library_for_other_chips_is_compiled_again(library, mark, current):
    assert is_current(library, mark, "9.0") is current


def test_a_failure_shows_the_last_three_lines():
    assert ": c / d / e; with " in describe_failure("/env", "a\nb\n\nc\nd\ne\n")
    assert ": it said nothing; with " in describe_failure("/env", " \n")
