# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.client_lines import (
    NotEditableError,
    client_line,
    names_in,
    with_client,
    without_client,
)

DIGEST = "1" * 64
ENTRY = {"sha256": [DIGEST], "team": "finance", "models": ["chat", "gpt-5"], "rate": 60, "expires": "2027-03-31"}
LINE = f'reports: {{sha256: ["{DIGEST}"], team: finance, models: ["chat", "gpt-5"], rate: 60, expires: "2027-03-31"}}'
FILE = """---
# Ours.
gateway_port: 443   # as ever
gateway_clients:
    # The first.
    alice: {key_file: /etc/keys/alice.key}   # her own

    "bob":
        key_file: /etc/keys/bob.key
        # until he leaves
        rate: 60
    # The last.

# The rest.
gateway_tls: own
secret: !vault |
    $ANSIBLE_VAULT;1.1;AES256
    6162
"""


def test_a_new_client_stands_behind_the_others_and_nothing_else_changes():
    new = with_client(FILE, "reports", ENTRY)
    assert new == FILE.replace("        rate: 60\n", f"        rate: 60\n    {LINE}\n")
    assert names_in(new) == ["alice", "bob", "reports"]
    assert without_client(new, "reports") == FILE


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("alice", "    alice: {key_file: /etc/keys/alice.key}   # her own\n"),
        ("bob", FILE[FILE.index('    "bob"') : FILE.index("    # The last.")]),
    ],
)
def test_a_client_goes_with_all_of_its_lines(name, gone):
    assert without_client(FILE, name) == FILE.replace(gone, "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("gateway_clients: {}\n", f"gateway_clients:\n  {LINE}\n"),
        ("gateway_clients:   # none yet\nx: 1\n", f"gateway_clients:  # none yet\n  {LINE}\nx: 1\n"),
        ("a:\n  vars:\n    gateway_clients: ~", f"a:\n  vars:\n    gateway_clients:\n      {LINE}\n"),
        ("gateway_clients:\n  a: {b: 1}", f"gateway_clients:\n  a: {{b: 1}}\n  {LINE}\n"),
        ("gateway_clients:\r\n  a: 1\r\nb: 2\r\n", f"gateway_clients:\r\n  a: 1\r\n  {LINE}\r\nb: 2\r\n"),
    ],
)
def test_files_of_other_forms(old, new):
    assert with_client(old, "reports", ENTRY) == new


def test_the_last_client_leaves_an_empty_mapping():
    text = "gateway_clients:  # ours\n  a: {b: 1}\n\nc: 2\n"
    assert without_client(text, "a") == "gateway_clients: {}  # ours\n\nc: 2\n"


@pytest.mark.parametrize(
    "text",
    [
        "gateway_clients: {a: {b: 1}}\n", '{"gateway_clients": {"a": {}}}', "gateway_clients: &x\n  a: 1\n", "x: 1\n",
        "gateway_clients:\n  - a\n", "gateway_clients: |\n  a: 1\n",
        "gateway_clients:\n  a: 1\ngateway_clients:\n  a: 1\n",
        "gateway_clients:\n  a: 1\n---\nb: 1\n", "gateway_clients:\n  a: |\n    text\n  # end\n   x\n", "[", "",
        "x: |\n  gateway_clients:\n    a: 1\n", "gateway_clients: '{{ others }}'\n",
        "gateway_clients:\n  {a: 1,\n  b: 2}\n",
    ],
)  # fmt: skip
def test_what_cannot_be_edited_line_by_line_is_left_alone(text):
    with pytest.raises(NotEditableError):
        with_client(text, "reports", ENTRY)
    with pytest.raises(NotEditableError):
        without_client(text, "a")


def test_a_name_that_is_not_there_or_only_begins_like_another():
    text = "gateway_clients:\n  a: 1\n  a.b: 2\n  axb: 3\n"
    assert without_client(text, "a.b") == "gateway_clients:\n  a: 1\n  axb: 3\n"
    with pytest.raises(NotEditableError, match="has no line that begins with b"):
        without_client(text, "b")


def test_an_anchor_that_others_use_does_not_go():
    with pytest.raises(NotEditableError):
        without_client("gateway_clients:\n  a: &a {rate: 1}\n  b: {<<: *a}\n", "a")


@pytest.mark.parametrize("name", ["007", "null", "yes", "1e3", "2027-01-01", "a.b_c-d", "0x1f", "1_000", "True"])
def test_a_name_stays_a_text(name):
    line = client_line(name, {"sha256": ["0" * 64], "expires": "2027-03-31T18:00:00+02:00", "team": name})
    assert yaml.safe_load(line) == {name: {"sha256": ["0" * 64], "expires": "2027-03-31T18:00:00+02:00", "team": name}}
