# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import struct
from array import array

import pytest

from tests.fakes.gguf import F32, Q4_1, Q8_0, f32, gguf, q4_1, q8_0
from tools.real_models.gguf import GgufError, read_gguf, round_to_bfloat16

META = {"general.architecture": "llama", "n": 7, "x": 0.5, "yes": True, "words": ["a", "é"], "kinds": [3, 1]}


def numbers(data):
    """Return the numbers of a bfloat16 tensor."""
    return [struct.unpack("<f", b"\0\0" + data[at : at + 2])[0] for at in range(0, len(data), 2)]


def test_metadata_and_shapes_are_read():
    found = read_gguf(gguf(META, {"t": ((2, 3), F32, f32([1, 2, 3, 4, 5, 6]))}))
    assert found.metadata == META
    assert found.tensors["t"].shape == (2, 3)
    assert numbers(found.tensors["t"].bfloat16()) == [1, 2, 3, 4, 5, 6]


def test_the_order_of_the_weights_in_a_block():
    weights = [*range(16), *reversed(range(16))]
    data = q4_1(0.5, -1.0, weights) + q4_1(0.25, 0.0, weights)
    found = read_gguf(gguf(META, {"first": ((1,), F32, f32([9])), "t": ((2, 32), Q4_1, data)})).tensors["t"]
    assert numbers(found.bfloat16()) == [0.5 * weight - 1 for weight in weights] + [0.25 * weight for weight in weights]


def test_signed_bytes_with_a_scale():
    weights = [-128, 127, *range(30)]
    found = read_gguf(gguf(META, {"t": ((32,), Q8_0, q8_0(0.5, weights))})).tensors["t"]
    assert numbers(found.bfloat16()) == [0.5 * weight for weight in weights]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0x3F800000, 0x3F80), (0x3F808000, 0x3F80), (0x3F808001, 0x3F81), (0x3F818000, 0x3F82), (0xBF818000, 0xBF82),
        (0x3FFFFFFF, 0x4000), (0x80000000, 0x8000), (0x00000001, 0x0000),
    ],
)  # fmt: skip
def test_numbers_are_rounded_to_the_nearest_and_ties_to_the_even_one(number, expected):
    found = round_to_bfloat16(array("f", struct.pack("<2I", number, number)))
    assert struct.unpack("<2H", found) == (expected, expected)


WHOLE = gguf(META, {"t": ((32,), Q8_0, q8_0(1.0, range(32)))})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GGML" + WHOLE[4:], "found b'GGML' at its start, expected b'GGUF'"),
        (WHOLE[:4] + b"\2" + WHOLE[5:], "found version 2, expected 3"),
        (WHOLE[:40], "it ends at byte 40, within its header"),
        (WHOLE[:-31], f"tensor t ends at {len(WHOLE) - 30}, but the file has {len(WHOLE) - 31} bytes"),
        (
            gguf(META, {"t": ((32,), 12, b"")}),
            r"tensor t: found kind 12, expected one of 0 \(F32\), 3 \(Q4_1\), 8",
        ),
        (gguf(META, {"t": ((33,), Q8_0, b"")}), "tensor t: found rows of 33, expected a multiple of 32"),
    ],
)
def test_a_damaged_or_other_file_is_refused(data, message):
    with pytest.raises(GgufError, match=message):
        read_gguf(data)
