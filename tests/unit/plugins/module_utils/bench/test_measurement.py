# SPDX-License-Identifier: GPL-3.0-or-later
"""The command of a measurement, and what is refused before it runs."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.bench.measurement import (
    BenchError,
    Measurement,
    Target,
    bench_argv,
    limited_argv,
    measurement_of,
)

VENV = Target(
    "http://127.0.0.1:8000", "chat-model", "/var/lib/vllm/chat/model", ("/opt/vllm/e/bin/vllm", "bench", "serve")
)
CONTAINER = Target(
    "https://[::1]:8000",
    "m",
    "m",
    ("vllm", "bench", "serve"),
    ("--insecure",),
    ("/usr/bin/docker", "exec", "vllm-chat"),
)
RANDOM = {
    "dataset": "random",
    "input_tokens": 1024,
    "output_tokens": 512,
    "requests": 192,
    "concurrency": 64,
    "seed": 7,
}
PREFIX = {**RANDOM, "dataset": "prefix_repetition", "prefix_tokens": 768, "prefixes": 48}


def options(argv):
    """Return the options after `serve` with their values."""
    found, words = {}, argv[argv.index("serve") + 1 :]
    for number, word in enumerate(words):
        if word.startswith("--"):
            following = words[number + 1] if number + 1 < len(words) else "--"
            found[word] = None if following.startswith("--") else following
    return found


def test_random_prompts_of_one_length():
    argv = bench_argv(VENV, Measurement(**RANDOM), "/tmp/x", "result.json")
    assert argv[:3] == ["/opt/vllm/e/bin/vllm", "bench", "serve"]
    found = options(argv)
    assert found["--random-input-len"] == "1024" and found["--random-output-len"] == "512"
    assert found["--num-prompts"] == "192" and found["--max-concurrency"] == "64" and found["--seed"] == "7"
    assert found["--model"] == "chat-model" and found["--tokenizer"] == "/var/lib/vllm/chat/model"
    assert "--ignore-eos" in found and "--request-rate" not in found


def test_prompts_that_share_a_prefix():
    found = options(bench_argv(VENV, Measurement(**PREFIX), "/tmp/x", "r"))
    lengths = {key: value for key, value in found.items() if key.startswith("--prefix-repetition")}
    assert lengths == {
        "--prefix-repetition-prefix-len": "768",
        "--prefix-repetition-suffix-len": "256",
        "--prefix-repetition-num-prefixes": "48",
        "--prefix-repetition-output-len": "512",
    }


def test_requests_that_arrive_in_bursts():
    found = options(bench_argv(CONTAINER, Measurement(**RANDOM, request_rate=8.0, burstiness=0.2), "/tmp/x", "r"))
    assert (found["--request-rate"], found["--burstiness"]) == ("8", "0.2") and "--insecure" in found


def test_the_key_is_in_no_word():
    words = bench_argv(CONTAINER, Measurement(**RANDOM), "/tmp/x", "r")
    argv = limited_argv(CONTAINER, words, 90, {"OPENAI_API_KEY": "s3cret", "NO_PROXY": "*"})
    assert argv[:3] == ["/usr/bin/docker", "exec", "--env"]
    assert "s3cret" not in " ".join(argv) and "OPENAI_API_KEY" in argv and "NO_PROXY=*" in argv
    # The limit is within the container, after its name.
    assert argv[argv.index("vllm-chat") :][1:5] == ["timeout", "--kill-after=10", "90", "vllm"]


def test_in_a_virtual_environment_the_variables_are_no_words():
    argv = limited_argv(VENV, ["vllm", "bench"], 1.5, {"OPENAI_API_KEY": "s3cret"})
    assert argv == ["timeout", "--kill-after=10", "1.5", "vllm", "bench"]


@pytest.mark.parametrize("values", [RANDOM, PREFIX])
def test_a_valid_measurement(values):
    assert measurement_of(values) == Measurement(**values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"concurency": 3}, "unknown key 'concurency'; nearest: 'concurrency'"),
        ({"dataset": "randm"}, "dataset is 'randm'; nearest: 'random'"),
        ({"requests": 0}, "requests: found 0, expected a whole number from 1 up"),
        ({"output_tokens": "512"}, "output_tokens: found the text '512', expected a whole number from 1 up, without"),
        ({"seed": -1}, "seed: found -1"),
        ({"seed": 2**32}, "seed: found 4294967296, expected at most 4294967295"),
        ({**PREFIX, "prefix_tokens": 1024}, "prefix_tokens is 1024, expected less than input_tokens (1024)"),
        ({**PREFIX, "requests": 191}, "requests is 191, expected a multiple of prefixes (48)"),
        ({**PREFIX, "prefixes": 0}, "prefixes: found 0"),
    ],
)
def test_what_is_refused(change, message):
    with pytest.raises(BenchError) as caught:
        measurement_of({**RANDOM, **change})
    assert message in str(caught.value)


def test_a_missing_key_is_named():
    with pytest.raises(BenchError, match="measurement: seed is missing"):
        measurement_of({key: value for key, value in RANDOM.items() if key != "seed"})
