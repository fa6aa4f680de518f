# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import subprocess

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.arguments import (
    Setting,
    env_line,
    lay,
    read_mapping,
    read_words,
    to_argv,
    to_config,
    to_mapping,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.table import OptionTable

TABLE = OptionTable.from_data(
    {
        "version": "2.0.0",
        "env": [],
        "flags": {
            "block-size": {"kind": "integer"},
            "capture-sizes": {"kind": "list", "of": "integer"},
            "compilation-config": {"kind": "json", "aliases": ["-cc", "-O"]},
            "eager": {"kind": "switch", "negatable": True},
            "headless": {"kind": "switch"},
            "log": {"kind": "switch", "inverse": ["--disable-log"]},
            "max-model-len": {"kind": "integer", "suffix": True},
            "origins": {"kind": "json"},
            "parser": {"kind": "text"},
            "revision": {"kind": "text"},
            "served-model-name": {"kind": "list", "of": "text"},
            "tensor-parallel-size": {"kind": "integer", "aliases": ["-tp"]},
            "utilization": {"kind": "number"},
        },
    }
)
LEVELS = OptionTable.from_data({"version": "3.0.0", "env": [], "flags": {"optimization-level": {"kind": "integer"}}})


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["--max-model-len", "4096"], [("max-model-len", (), 4096)]),
        (["--max-model-len", "16k"], [("max-model-len", (), "16k")]),
        (["--max_model_len=4096"], [("max-model-len", (), 4096)]),
        (["--max-model-len 4096"], [("max-model-len", (), 4096)]),
        (["-tp", 8], [("tensor-parallel-size", (), 8)]),
        (["--eager"], [("eager", (), True)]),
        (["--no-eager"], [("eager", (), False)]),
        (["--disable-log"], [("log", (), False)]),
        (["--eager", "--headless"], [("eager", (), True), ("headless", (), True)]),
        (["--utilization", "0.90"], [("utilization", (), 0.9)]),
        (["--utilization", "1"], [("utilization", (), 1)]),
        (["--utilization", "half"], [("utilization", (), "half")]),
        (["--capture-sizes", "1", "2"], [("capture-sizes", (), ["1", "2"])]),
        (["--revision", "0123"], [("revision", (), "0123")]),
        (["--revision", "1234"], [("revision", (), "1234")]),
        (["--parser="], [("parser", (), "")]),
        (["--block-size", "-1"], [("block-size", (), -1)]),
        (["--compilation-config", '{"level": 3}'], [("compilation-config", (), {"level": 3})]),
        (["-cc.pass_config.fuse=True"], [("compilation-config", ("pass_config", "fuse"), True)]),
        (["-cc.mode", "3"], [("compilation-config", ("mode",), 3)]),
        (["-O3"], [("compilation-config", ("level",), 3)]),
        # What the release does not have keeps its name, for the check to complain about.
        (["--a.b_c", "x"], [("a.b_c", (), "x")]),
        (["--new_flag", "7", "x"], [("new-flag", (), [7, "x"])]),
        (["--new-flag"], [("new-flag", (), True)]),
        ([], []),
    ],
)
def test_words_become_settings(words, settings):
    assert read_words(words, TABLE) == [Setting(*setting) for setting in settings]


def test_the_level_is_a_flag_of_its_own_where_the_release_has_it():
    assert read_words(["-O3"], LEVELS) == [Setting("optimization-level", (), 3)]


def test_a_word_without_a_flag_is_refused():
    with pytest.raises(
        ValueError, match="'4096' does not follow a flag; expected words like '--max-model-len', '4096'"
    ):
        read_words(["4096"], TABLE)


@pytest.mark.parametrize(
    ("args", "setting"),
    [
        ({"max-model-len": 4096}, ("max-model-len", (), 4096)),
        ({"no-eager": True}, ("eager", (), False)),
        ({"no-eager": False}, ("eager", (), True)),
        ({"no-eager": None}, ("eager", (), None)),
        ({"disable-log": True}, ("log", (), False)),
        ({"compilation-config": '{"a": 1}'}, ("compilation-config", (), {"a": 1})),
        ({"compilation-config": {"a": 1}}, ("compilation-config", (), {"a": 1})),
        ({"compilation-config.a.b": 1}, ("compilation-config", ("a", "b"), 1)),
        ({"compilation-config": None}, ("compilation-config", (), None)),
        ({"new": [1]}, ("new", (), [1])),
    ],
)
def test_a_mapping_becomes_settings(args, setting):
    assert read_mapping(args, TABLE) == [Setting(*setting)]


def laid(*settings):
    args = {}
    for setting in settings:
        args = lay(args, Setting(*setting))
    return args


def test_a_later_setting_wins_and_moves_to_the_end():
    args = laid(("a", (), 1), ("b", (), 2), ("a", (), 3))
    assert list(args.items()) == [("b", 2), ("a", 3)]


def test_none_takes_a_flag_away():
    assert laid(("a", (), 1), ("a", (), None)) == {}
    assert laid(("a", (), None)) == {}


def test_keys_of_json_are_set_one_by_one():
    assert laid(("j", (), {"a": 1, "p": {"x": 1}}), ("j", ("p", "y"), 2)) == {"j": {"a": 1, "p": {"x": 1, "y": 2}}}
    assert laid(("j", ("p", "y"), 2)) == {"j": {"p": {"y": 2}}}
    assert laid(("j", (), {"a": 1}), ("j", (), {"b": 1})) == {"j": {"b": 1}}


def test_a_key_that_is_set_moves_its_flag_to_the_end():
    assert list(laid(("j", (), {"a": 1}), ("b", (), 2), ("j", ("a",), 3))) == ["b", "j"]


def test_the_last_key_of_json_takes_the_flag_with_it():
    assert laid(("j", (), {"p": {"x": 1}}), ("j", ("p", "x"), None)) == {}
    assert laid(("j", (), {"a": 1, "p": {"x": 1}}), ("j", ("p", "x"), None)) == {"j": {"a": 1}}


def test_what_was_laid_before_is_left_as_it_was():
    before = {"j": {"p": {"x": 1}}}
    lay(before, Setting("j", ("p", "x"), 2))
    assert before == {"j": {"p": {"x": 1}}}


def test_a_switch_that_is_off_is_written_as_the_release_writes_it():
    args = {"eager": False, "log": False, "new": False, "block-size": 1}
    assert to_mapping(args, TABLE) == {"no-eager": True, "disable-log": True, "no-new": True, "block-size": 1}


def test_a_flag_that_cannot_be_off_keeps_its_name_for_the_check_to_say_so():
    assert to_mapping({"headless": False}, TABLE) == {"headless": False}
    (problem,) = TABLE.check_args(to_mapping({"headless": False}, TABLE))
    assert problem == "--headless: vLLM 2.0.0 has no --no-headless; leave it out"


ALL = {
    "model": "m",
    "eager": True,
    "log": False,
    "compilation-config": {"k": [1]},
    "served-model-name": ["x", "y"],
    "origins": ["*"],
    "utilization": 0.5,
    "parser": "",
}


def test_argv_holds_every_kind_of_value():
    assert to_argv(ALL, TABLE) == [
        "vllm", "serve", "m", "--eager", "--disable-log", "--compilation-config", '{"k": [1]}', "--served-model-name",
        "x", "y", "--origins", '["*"]', "--utilization", "0.5", "--parser", "",
    ]  # fmt: skip


def test_config_holds_nested_values_as_json_text():
    assert to_config(ALL, TABLE) == {
        "model": "m",
        "eager": True,
        "disable-log": True,
        "compilation-config": '{"k": [1]}',
        "served-model-name": ["x", "y"],
        "origins": '["*"]',
        "utilization": 0.5,
        "parser": "",
    }


def test_argv_reads_back_as_the_args_it_was_made_of():
    args = {}
    for setting in read_words(to_argv(ALL, TABLE)[3:], TABLE):
        args = lay(args, setting)
    assert {"model": "m", **args} == ALL


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
    with pytest.raises(ValueError, match="NAME: found a text of several lines") as caught:
        env_line("NAME", "hush\nhush")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("character", ["\0", "\x1b", "\x0b", "\x7f"])
def test_a_value_that_no_file_of_systemd_can_hold_is_refused_without_showing_it(character):
    with pytest.raises(ValueError, match="NAME: found a text with a control character") as caught:
        env_line("NAME", f"hush{character}")
    assert "hush" not in str(caught.value)


def test_name_that_no_process_can_read_is_refused():
    with pytest.raises(ValueError, match="found a name with '-' after 'A', expected letters, digits and '_'"):
        env_line("A-B", "1")
