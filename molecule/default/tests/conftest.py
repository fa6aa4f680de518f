# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from serving_host import wait_active


@pytest.fixture
def serving(host):
    """The host that serves, with its unit active."""
    wait_active(host)
    return host
