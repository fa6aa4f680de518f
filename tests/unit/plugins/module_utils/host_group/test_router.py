# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.host_group.router import arguments_of


def test_every_prefill_host_and_the_own_decode_side_are_named():
    router = {"host": "::", "port": 8300, "metrics": 8301, "decode": "http://10.0.0.1:8000"}
    words = arguments_of({"prefill": ["10.0.0.3:8000", "[fd00::4]:8000"], "router": router})
    assert [word for word in words if word.startswith("http://")] == [
        "http://10.0.0.3:8000", "http://[fd00::4]:8000", "http://10.0.0.1:8000",
    ]  # fmt: skip
    options = dict(zip(words[5:-1:2], words[6::2]))
    assert (options["--host"], options["--port"], options["--prometheus-port"]) == ("::", "8300", "8301")
