# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from tests.lab_host import connect


@pytest.fixture(scope="module")
def host(_testinfra_host: Any) -> Any:
    """Each host that molecule.yml names for its verifier."""
    return connect(_testinfra_host.backend.host)


@pytest.fixture(scope="module")
def through_ansible(_testinfra_host: Any) -> Any:
    """The same host for a module of Ansible's."""
    return _testinfra_host
