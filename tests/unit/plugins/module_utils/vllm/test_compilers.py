# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.compilers import describe_missing, packages_of


@pytest.mark.parametrize(("missing", "manager", "packages"), [
    (["cc", "Python.h"], "apt", ["gcc", "libc6-dev", "python3.12-dev"]),
    (["c++"], "apt", ["g++"]),
    (["cc", "c++", "Python.h"], "dnf", ["gcc", "glibc-devel", "gcc-c++", "python3.12-devel"]),
    (["cc"], "zypper", []),
    ([], "apt", []),
])  # fmt: skip
def test_packages(missing, manager, packages):
    assert packages_of(missing, "/usr/bin/python3.12", manager) == packages


def test_the_message_names_what_is_missing_and_the_packages():
    assert describe_missing(["c++", "Python.h"], "/usr/bin/python3.12", "dnf") == (
        "vLLM compiles kernels at its first start and this host lacks a C++ compiler and Python's headers (Python.h); "
        "install the packages gcc-c++ python3.12-devel"
    )
    assert describe_missing(["Python.h"], "/opt/p/bin/python3.12", "apt").endswith(
        "install the packages python3.12-dev, the headers those of /opt/p/bin/python3.12"
    )
    assert describe_missing(["cc"], "/usr/bin/python3.12", "?").endswith("lacks a C compiler; install them")
