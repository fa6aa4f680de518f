# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a GGUF file is at least, by the format's description (ggml, docs/gguf.md)."""

from __future__ import annotations

import struct

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.completeness import content_problem
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.gguf import last_tensor


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def listed(kind, items, packed):
    return struct.pack("<IIQ", 9, kind, items) + packed


ENTRIES = [
    text("general.architecture") + struct.pack("<I", 8) + text("llama"),
    text("general.alignment") + struct.pack("<II", 4, 64),
    text("llama.block_count") + struct.pack("<II", 4, 2),
    text("tokenizer.ggml.tokens") + listed(8, 2, text("a") + text("b")),
    text("tokenizer.ggml.scores") + listed(6, 2, struct.pack("<ff", 0.0, 1.0)),
    text("flag") + struct.pack("<IB", 7, 1),
]
TENSORS = [(b"one", 0), (b"two", 128)]


def header(entries=tuple(ENTRIES), tensors=tuple(TENSORS), version=3):
    found = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries)) + b"".join(entries)
    for name, offset in tensors:
        found += struct.pack("<Q", len(name)) + name + struct.pack("<IQQIQ", 2, 4, 8, 0, offset)
    return found


def whole():
    head = header()
    return head + b"\0" * (-len(head) % 64) + b"x" * 256


def test_the_last_tensor_begins_behind_the_header_and_what_is_before_it():
    assert last_tensor(header()) == -(-len(header()) // 64) * 64 + 128
    assert last_tensor(header(tensors=())) == 0
    assert content_problem("model.gguf", whole()) == ""


@pytest.mark.parametrize("cut", [3, 10, 40, len(header()) - 1, len(whole()) - 129])
def test_a_cut_file_is_found(cut):
    assert content_problem("model.gguf", whole()[:cut])


@pytest.mark.parametrize(
    "entry",
    [
        text("k") + listed(9, 1, listed(9, 1, b"")),
        text("k") + struct.pack("<I", 77),
        text("k") + listed(8, 2**62, b""),
        text("k") + listed(4, 2**62, b""),
        text("general.alignment") + struct.pack("<II", 4, 0),
    ],
)
def test_a_damaged_or_hostile_header_is_one_sentence(entry):
    assert "a header of GGUF that is cut or damaged" in content_problem("model.gguf", header((entry,)) + b"x" * 512)


def test_a_header_that_is_longer_than_what_is_kept_is_not_judged(monkeypatch):
    module = "ansible_collections.baremetal.inference.plugins.module_utils.pinning.completeness._LONGEST_GGUF"
    monkeypatch.setattr(module, 64)
    assert content_problem("model.gguf", whole()) == ""
