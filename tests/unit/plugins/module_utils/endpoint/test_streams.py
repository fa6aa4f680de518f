# SPDX-License-Identifier: GPL-3.0-or-later
"""Server-sent events; whole streams are read from a server in test_client.py."""

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.streams import sse_events


def test_server_sent_events():
    lines = [b": ping", b"", b"event: x", b"data:a", b"data: b\r", b"\r", b"data: [DONE]", b"", b"data: cut"]
    found = sse_events([(float(number), line) for number, line in enumerate(lines)])
    assert found == [(5.0, "a\nb"), (7.0, "[DONE]")]
