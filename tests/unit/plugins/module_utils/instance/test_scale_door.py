# SPDX-License-Identifier: GPL-3.0-or-later
"""What gateways and the door of a host say to each other, and which gateway decides."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance.scale_door import (
    FRESH,
    LEASE,
    Board,
    RefusedError,
    gateway_in,
    order_in,
    seal,
    unseal,
)

INSTANCES = {"chat": {"resident": False}, "small": {"resident": True}}


def test_a_line_is_good_for_one_nonce_and_with_the_right_secret() -> None:
    line = seal("new", "n1", {"gateway": "gw-a"})
    assert b"new" not in line
    # While the secret changes there are two.
    assert unseal(["new", "old"], "n1", line) == ("new", {"gateway": "gw-a"})
    for secrets, nonce, text in (
        (["other"], "n1", line),
        ([], "n1", line),
        (["new"], "n2", line),
        (["new"], "n1", line.replace(b"gw-a", b"gw-b")),
        (["new"], "n1", b"\xff\xfe\n"),
        (["new"], "n1", b"\n"),
    ):
        with pytest.raises(RefusedError, match="the proof is of another key"):
            unseal(secrets, nonce, text)


@pytest.mark.parametrize("text", ["[]", "1", "{", "[" * 60000])
def test_a_document_that_is_no_object_is_refused(text: str) -> None:
    proof = seal("s", "n", {}).split()[0].decode()
    assert unseal(["s"], "n", f"{proof} {{}}".encode()) == ("s", {})
    import ansible_collections.baremetal.inference.plugins.module_utils.instance.scale_door as door

    with pytest.raises(RefusedError, match=r"is not (a )?JSON"):
        unseal(["s"], "n", f"{door._proof('s', 'n', text)} {text}".encode())


def test_the_first_gateway_that_is_alive_decides() -> None:
    board = Board()
    assert board.take("gw-b", "chat", 0)
    # One with an earlier name takes over at once, and the other one notices.
    assert board.take("gw-a", "chat", 1)
    assert not board.take("gw-b", "chat", 2)
    # When it is silent, the next one follows within ten seconds.
    assert not board.take("gw-b", "chat", 1 + LEASE - 0.1)
    assert board.take("gw-b", "chat", 1 + LEASE)
    assert board.holder("chat") == "gw-b"
    assert LEASE + 2 * 2 <= 10


def test_reports_of_gateways_that_are_silent_are_forgotten_and_their_number_has_a_bound() -> None:
    board = Board()
    for number in range(16):
        board.report(f"gw-{number}", {"waiting": {}}, 0)
    with pytest.raises(RefusedError, match="16 other gateways report here already"):
        board.report("gw-16", {}, 1)
    board.report("gw-3", {"waiting": {"chat": 1}}, FRESH - 1)
    board.report("gw-16", {}, FRESH)
    assert list(board.reports) == ["gw-3", "gw-16"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"host": "gpu-a"}, "gateway: expected a name"),
        ({"gateway": "a\nb", "host": "gpu-a"}, "gateway: expected a name"),
        ({"gateway": ["gw"], "host": "gpu-a"}, "gateway: expected a name"),
        # It was made for another host, and somebody in between has passed it on.
        ({"gateway": "gw-a", "host": "gpu-b"}, "host: expected gpu-a"),
    ],
)
def test_a_request_names_its_gateway_and_this_host(document: dict[str, Any], message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        gateway_in(document, "gpu-a")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"verb": "kill", "instance": "chat"}, "verb: expected one of wake, start, sleep, stop"),
        ({"verb": ["stop"], "instance": "chat"}, "verb: expected one of"),
        ({"verb": "stop", "instance": "other"}, "instance: expected one with scale on this host"),
        ({"verb": "stop", "instance": ["chat"]}, "instance: expected one with scale on this host"),
        ({"verb": "stop"}, "instance: expected one with scale on this host"),
        ({"verb": "stop", "instance": "small"}, "verb: small sleeps and wakes"),
        ({"verb": "wake", "instance": "chat"}, "verb: chat stops and starts"),
    ],
)
def test_an_order_is_one_of_four_for_an_instance_of_the_file(document: dict[str, Any], message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        order_in(document, INSTANCES)
    assert order_in({}, INSTANCES) == ("", "")
    assert order_in({"verb": "sleep", "instance": "small"}, INSTANCES) == ("sleep", "small")
