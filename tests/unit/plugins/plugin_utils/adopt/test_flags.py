# SPDX-License-Identifier: GPL-3.0-or-later
"""The words behind vllm serve. tests/parity/test_adopt.py asks vLLM's own parser."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.flags import read_flags
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.shell import CommandError
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import load_table, other_tables

TABLE = load_table("0.33.0")


def read(*words):
    model, flags = read_flags(words, TABLE, other_tables("0.33.0"))
    return model, {given.name: given.settings[0].value for given in flags}


@pytest.mark.parametrize(
    ("words", "model", "flags"),
    [
        (["o/m", "-tp", "2"], "o/m", {"tensor-parallel-size": 2}),
        (["--enforce-eager", "o/m"], "o/m", {"enforce-eager": True}),
        (["--port", "1", "o/m"], "o/m", {"port": 1}),
        (["--model=o/m", "--max_model_len=8k"], "o/m", {"max-model-len": "8k"}),
        (["o/m", "--model", "o/m"], "o/m", {}),
        (["o/m", "--gpu-memory-util", "0.9"], "o/m", {"gpu-memory-utilization": 0.9}),
        # Each is in the entry once, and their number doubles nothing.
        (
            ["o/m", *(word for name in "abcdefghijklmnopqrstuvwxyz" for word in ("--middleware", f"m.{name}"))],
            "o/m",
            {"middleware": [f"m.{name}" for name in "abcdefghijklmnopqrstuvwxyz"]},
        ),
        (["o/m", "-O3"], "o/m", {"optimization-level": "3"}),
        (["-O", "3", "o/m"], "o/m", {"optimization-level": "3"}),
        (["-O3", "o/m"], "o/m", {"optimization-level": "3"}),
        (["-O=3", "o/m"], "o/m", {"optimization-level": "3"}),
        (["o/m", "--lora-modules", "a=b", "c=d"], "o/m", {"lora-modules": ["a=b", "c=d"]}),
        (["o/m", "-cc.cudagraph_mode=FULL"], "o/m", {"compilation-config": "FULL"}),
        (["o/m", "--max-model-len 4096"], "o/m", {"max-model-len": 4096}),
        # A flag of an older release takes as many words there.
        (["--swap-space", "4", "o/m"], "o/m", {"swap-space": 4}),
    ],
)
def test_each_flag_takes_its_values_and_no_more(words, model, flags):
    assert read(*words) == (model, flags)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["o/m", "--enforce-eager", "true"], "found 'true' behind --enforce-eager, a switch without a value"),
        (["--enable-chunked-prefill=False", "o/m"], "--no-enable-chunked-prefill for false"),
        (["o/m", "o/n"], "found 'o/n', which belongs to no flag"),
        (["o/m", "--model", "o/n"], "found two models"),
    ],
)
def test_a_word_too_many_is_named(words, part):
    with pytest.raises(CommandError) as caught:
        read(*words)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ["--model", "o/m", "s3cret"],
        ["o/m", "s3cret"],
        ["o/m", "--seed", "1", "wJalr/K7MDENGbPxRfiCYEXAMPLEKEYs3cret"],
    ],
)
def test_a_word_that_may_be_a_secret_is_not_shown(words):
    with pytest.raises(CommandError, match="a word that may be a secret") as caught:
        read(*words)
    assert "s3cret" not in str(caught.value)
