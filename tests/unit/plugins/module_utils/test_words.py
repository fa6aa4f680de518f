# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils._words import (
    env_line,
    merge,
    to_argv,
    to_config,
    words_to_args,
)


@pytest.mark.parametrize(
    ("words", "args"),
    [
        (["--max-model-len", "4096"], {"max-model-len": 4096}),
        (["--block-size=64"], {"block-size": 64}),
        (["--enforce-eager"], {"enforce-eager": True}),
        (["--gpu-memory-utilization", "0.95"], {"gpu-memory-utilization": 0.95}),
        (["--cudagraph-capture-sizes", "1", "2"], {"cudagraph-capture-sizes": [1, 2]}),
        (["--max_model_len", "1", "--max-model-len", "2"], {"max-model-len": 2}),
        (["--revision", "0123"], {"revision": "0123"}),
        (["--a.b_c", "x"], {"a.b_c": "x"}),
        ([], {}),
    ],
)
def test_words_become_args(words, args):
    assert words_to_args(words) == args


def test_word_without_a_flag_is_refused():
    with pytest.raises(ValueError, match="'4096' does not follow a flag"):
        words_to_args(["4096"])


def test_later_layer_wins_and_none_removes():
    assert merge({"a": 1, "b": 2}, {"a": 3, "b": None, "c": None}) == {"a": 3}


@pytest.mark.parametrize(("base", "top"), [({"no-x": True}, {"x": True}), ({"x": True}, {"no-x": True})])
def test_a_switch_and_its_negation_do_not_stand_together(base, top):
    assert merge(base, top) == top


def test_argv_holds_every_kind_of_value():
    args = {"model": "m", "a": True, "b": False, "c": {"k": [1]}, "d": ["x", "y"], "e": 0.5}
    assert to_argv(args) == [
        "vllm", "serve", "m", "--a", "--no-b", "--c", '{"k": [1]}', "--d", "x", "y", "--e", "0.5",
    ]  # fmt: skip


def test_config_holds_nested_values_as_json_text():
    assert to_config({"a": {"k": True}, "b": [1]}) == {"a": '{"k": true}', "b": [1]}


@pytest.mark.parametrize("value", ["1", "two words", 'a"b', "$HOME", "back\\slash", "`x`", "", "a=b", "#x", "'q'"])
def test_env_line_reads_back_as_it_was(value, tmp_path):
    """systemd's rules for double quotes are the shell's, so a shell has to read the same value."""
    line = env_line("NAME", value)
    file = tmp_path / "env"
    file.write_text(line + "\n")
    out = subprocess.run(["sh", "-c", f'. {file}; printf %s "$NAME"'], capture_output=True, text=True, check=True)
    assert out.stdout == value


def test_plain_value_stays_without_quotes():
    assert env_line("VLLM_ROCM_USE_AITER", "1") == "VLLM_ROCM_USE_AITER=1"


def test_value_of_two_lines_is_refused_without_showing_it():
    with pytest.raises(ValueError, match="NAME: the value has more than one line") as caught:
        env_line("NAME", "hush\nhush")
    assert "hush" not in str(caught.value)


def test_name_that_no_process_can_read_is_refused():
    with pytest.raises(ValueError, match="'A-B'"):
        env_line("A-B", "1")
