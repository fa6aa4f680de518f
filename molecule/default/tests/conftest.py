# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from serving_host import wait_active


@pytest.fixture
def serving(host):
    """The host that serves, with its unit active."""
    wait_active(host)
    return host
