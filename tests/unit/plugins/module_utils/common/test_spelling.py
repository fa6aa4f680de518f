# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.spelling import (
    misspelt,
    nearest,
    not_a_number,
    slip,
)


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("H100", ["h100", "v100", "h200"], "nearest: 'h100'"),
        ("OpenAI/GPT-OSS-120B", ["openai/gpt-oss-120b", "openai/gpt-oss-20b"], "nearest: 'openai/gpt-oss-120b'"),
        ("vllm_api_kye", ["HF_TOKEN", "VLLM_API_KEY"], "nearest: 'VLLM_API_KEY'"),
        # Two spellings of one name: the first of them.
        ("chat", ["Chat", "CHAT"], "nearest: 'CHAT'"),
        ("dockr", ["docker", "podman"], "nearest: 'docker'"),
        # What begins so is nearer than what has as many letters in common.
        ("0.11", ["0.11.0", "0.17.1"], "nearest: '0.11.0'"),
        ("\u0441hat", ["chat"], "nearest: 'chat'; found '\u0441' in it, U+0441 CYRILLIC SMALL LETTER ES"),
        ("gr\u00f6\u00dfe", ["gr\u00f6sse"], "nearest: 'gr\u00f6sse'"),
        ("zzz", ["podman", "docker"], "known: docker, podman"),
        ("zzz", [], "known: none"),
        (4, [3, 44], "nearest: '44'"),
        ("mychip", [f"h{number}" for number in range(60)], "none of 60 names is near"),
    ],
)
def test_the_nearest_name_whatever_its_capitals(name, known, expected):
    assert nearest(name, known) == expected


def test_a_word_that_is_another_one_is_not_misspelt():
    assert misspelt("HF_TOKN", ["HF_TOKEN", "HF_HOME"]) == "HF_TOKEN"
    assert misspelt("S3_SECRET", ["HF_TOKEN", "HF_HOME"]) is None
    # Both are variables of their own.
    assert misspelt("http_proxy", ["HTTP_PROXY"]) is None


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("NCCL_DEBUGG", "NCCL_DEBUG"),
        ("NCCL_DEBGU", "NCCL_DEBUG"),
        ("NCCL_IB_DISBLE", "NCCL_IB_DISABLE"),
        ("NCCL_IBEXT_DISABLE", None),
        ("NCCL_SHARP_DISABLE", None),
        ("NCCL_TIMEOUT", None),
        ("ZZZ", None),
        ("", None),
    ],
)
def test_a_slip_is_two_letters_at_most(name, near):
    assert slip(name, ["NCCL_DEBUG", "NCCL_IB_DISABLE", "NCCL_IB_TIMEOUT", "NCCL_SHM_DISABLE"]) == near


def test_a_word_of_any_length_is_compared_soon():
    """The whole of it takes hours."""
    assert nearest("-a" * 500_000, ["a-a-a-a-" * 9, "b"]).startswith("known: ")
    assert misspelt("-a" * 500_000, ["a-a-a-a-" * 9, "b"]) is None
    assert slip("-a" * 500_000, ["a-a-a-a-" * 9, "-a" * 100]) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("8", "found the text '8', expected a number, without quotes"),
        (" 8 ", "found the text ' 8 ', expected a number, without quotes"),
        ("eight", "found 'eight', expected a number"),
        (None, "found nothing, expected a number"),
    ],
)
def test_digits_in_quotes_are_called_a_text(value, expected):
    assert not_a_number(value, "a number") == expected
