# SPDX-License-Identifier: GPL-3.0-or-later
"""Arguments for a module that runs in the process of a test, with every supported ansible-core."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Iterator, Mapping
from unittest import mock

from ansible.module_utils import basic

try:
    from ansible.module_utils.testing import patch_module_args
except ImportError:  # ansible-core 2.18

    @contextlib.contextmanager
    def patch_module_args(args: Mapping[str, Any]) -> Iterator[None]:
        """Pass arguments to each AnsibleModule that is made in the context."""
        text = json.dumps({"ANSIBLE_MODULE_ARGS": args}).encode()
        with mock.patch.object(basic, "_ANSIBLE_ARGS", text):
            yield


__all__ = ["patch_module_args"]
