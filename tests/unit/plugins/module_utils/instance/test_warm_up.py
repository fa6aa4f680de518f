# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance.warm_up import (
    GRAIN,
    Limits,
    Progress,
    completion,
    lengths,
    read_kept,
    steps,
)


@pytest.mark.parametrize(("bounds", "first", "last"), [
    ({}, (1, 1024), (512, 64)),
    ({"max_num_seqs": 8, "max_model_len": 131072}, (1, 1024), (8, 1024)),
    ({"max_num_seqs": 1, "max_model_len": 16}, (1, 7), (1, 7)),
    ({"max_num_seqs": 4096}, (1, 1024), (512, 64)),
])  # fmt: skip
def test_steps_stay_within_what_the_instance_takes(bounds, first, last):
    found = list(steps(Limits(**bounds)))
    assert (found[0], found[-1]) == (first, last)
    assert [at_once for at_once, _tokens in found] == sorted({at_once for at_once, _tokens in found})


@pytest.mark.parametrize(("bounds", "last"), [
    ({}, 8192), ({"max_num_batched_tokens": 2048}, 2048), ({"max_model_len": 1000}, 992), ({"max_model_len": 16}, 0),
    ({"max_num_batched_tokens": 65536}, 8192),
])  # fmt: skip
def test_lengths_cover_each_number_of_tokens_that_a_batch_can_have(bounds, last):
    found = lengths(Limits(**bounds))
    assert max(found, default=0) <= last
    grains = {-(-tokens // GRAIN) for tokens in found}
    assert grains == set(range(1, last // GRAIN + 1))
    if last == 8192:
        # Each quarter of the range comes early, and has lengths of each kind.
        assert {tokens // 2049 for tokens in found[19:27]} == {0, 1, 2, 3}
        kinds = {(tokens // 2049, tokens % 16 == 0, tokens % 4 == 0, tokens % 2) for tokens in found[19:]}
        assert len(kinds) == 4 * 4


def test_a_size_is_warm_when_it_gets_no_faster():
    progress = Progress(20.0)
    progress.add_step(4, 2.0)
    assert not progress.warm(4)
    progress.add_step(4, 1.0)
    assert not progress.warm(4)
    progress.add_step(4, 0.9)
    assert progress.warm(4) and progress.requests == 12
    assert "12 requests in " in progress.summary(
        "every size is warm"
    ) and "(4: 2.00 then 0.90 s; 0" in progress.summary("")


def test_a_size_that_takes_what_an_earlier_warm_up_ended_with_runs_once():
    first = Progress(20.0)
    for took in (2.0, 1.0, 0.9):
        first.add_step(4, took)
    first.add_step(16, 3.0)
    for took in (9.0, 5.0):
        first.add_step(64, took)
    known = read_kept(first.to_keep("one"), "one")
    # 16 ran once and 64 still got faster: both may have been slow.
    assert known == {4: 0.9} and read_kept(first.to_keep("one"), "other") == {}
    second = Progress(20.0, known=known)
    second.add_step(4, 1.0)
    assert second.warm(4)
    # Noise does not add up.
    assert read_kept(second.to_keep("one"), "one") == known
    assert second.as_before(4) and not second.as_before(16)
    # Nothing ran yet.
    assert not Progress(20.0, known=known).as_before(4)
    cold = Progress(20.0, known=known)
    cold.add_step(4, 1.5)
    cold.add_step(16, 0.1)
    assert not cold.warm(4) and not cold.warm(16)
    cold.add_step(4, 1.45)
    assert cold.warm(4) and read_kept(cold.to_keep("one"), "one") == {4: 1.45}


@pytest.mark.parametrize("text", [
    "", "[]", "{", '{"4": "x"}', '{"4": NaN}', '{"4": -1}', '{"x": 1}', '{"4": null}', '{"4": 1e999}', '{"4": [1]}',
    "[" * 50000,
])  # fmt: skip
def test_a_kept_file_that_says_something_else_counts_as_none(text):
    assert read_kept(text, "one") == read_kept(f'{{"engine": "one", "seconds": {text or 0}}}', "one") == {}


def test_a_request_of_random_tokens_alternates_between_greedy_and_random_sampling():
    first, second = (completion("m", 500, 8, number) for number in (0, 1))
    assert first["prompt"] != second["prompt"] and all(50 <= token < 500 for token in first["prompt"])
    assert (first["temperature"], second["temperature"]) == (0, 1)
