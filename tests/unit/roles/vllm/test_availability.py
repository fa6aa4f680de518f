# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How an instance passes on that it is sick: the role's middleware in front of the HTTP server of vLLM."""

from __future__ import annotations

import http.client

import pytest

from tests.fakes.stopping_engine import stopping_engine


def answer(engine, path):
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=20)
    connection.request("GET", path)
    found = connection.getresponse()
    return found.status, found.getheader("unhealthy"), found.read()


def test_a_sick_instance_says_so_in_its_metrics_and_serves_on(tmp_path):
    with stopping_engine(tmp_path) as engine:
        assert answer(engine, "/metrics")[1] is None
        (tmp_path / "unhealthy").write_text("isolate_host xid 79 of 0000:5d:00.0: off the bus\n")
        status, reason, text = answer(engine, "/metrics")
        assert (status, reason) == (200, "isolate_host xid 79 of 0000:5d:00.0: off the bus")
        assert b"vllm:num_requests_running" in text
        # Whether it can be spared is for the gateway to decide.
        assert answer(engine, "/health")[:2] == (200, None)
        assert answer(engine, "/v1/models")[:2] == (200, None)
        (tmp_path / "unhealthy").unlink()
        assert answer(engine, "/metrics")[1] is None


@pytest.mark.parametrize("text", [b"a\r\nset-cookie: x", b"caf\xc3\xa9", b"x" * 1000])
def test_whatever_is_in_the_file_is_one_header(tmp_path, text):
    with stopping_engine(tmp_path) as engine:
        (tmp_path / "unhealthy").write_bytes(text)
        _status, reason, _text = answer(engine, "/metrics")
        assert len(reason) <= 200 and reason.isascii() and reason.isprintable()
