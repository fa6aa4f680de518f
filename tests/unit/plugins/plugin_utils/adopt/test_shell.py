# SPDX-License-Identifier: GPL-3.0-or-later
"""Words of a shell, with bash itself and shlex as the judges of quotes."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.shell import (
    CommandError,
    expand,
    interpolated,
    statements,
    unreadable,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TEXTS = [
    'vllm serve \'a b\' "c\'d" e\\ f g="h i"j',
    'echo \'{"a": [1, "x"]}\' "{\\"b\\": 2}"',
    "a --x=1 \\\n  --y 2",
    "a 'b\n c' d",
    "a # comment\nb",
    "a > out.log 2>&1 b",
]


@pytest.mark.parametrize("text", TEXTS)
def test_bash_splits_them_alike(text, tmp_path):
    ours = statements(text)
    script = "".join(f"printf '%s\\0' {part}\n" for part in [text.replace("# comment\nb", "")])
    done = subprocess.run(
        ["bash", "-c", script.replace("> out.log 2>&1", "")], capture_output=True, check=True, cwd=tmp_path
    )
    assert ours[0] == done.stdout.decode().split("\0")[:-1]


# A busy machine draws and runs examples slowly.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(alphabet="ab '\"\\$`{}=-\n\t", min_size=1, max_size=8), min_size=1, max_size=5))
def test_quoted_words_are_read_as_they_are(words):
    text = shlex.join(words)
    if "\\" not in text and "\n" not in text:
        assert statements(f"x {text}") == [["x", *words]]


def test_statements_end_where_those_of_a_shell_do():
    assert statements("a b; c && d | e\nf &") == [["a", "b"], ["c"], ["d"], ["e"], ["f"]]


@pytest.mark.parametrize("prompt", ["$ ", "root@host:~# ", "(env) ", "[user@host dir]$ ", "> "])
def test_a_prompt_is_no_word(prompt):
    found = statements(f"{prompt}vllm serve m")
    assert found[-1] == ["vllm", "serve", "m"]


def test_a_backslash_may_have_blanks_and_a_comment_behind_it():
    assert statements("docker run \\  \n --gpus all \\  # all of them\n image") == [
        ["docker", "run", "--gpus", "all", "image"]
    ]


def test_a_backslash_at_the_end_is_no_word():
    assert (
        statements("vllm serve m --x y \\") == statements("vllm serve m --x y") == [["vllm", "serve", "m", "--x", "y"]]
    )


def test_only_known_variables_are_replaced():
    (words,) = statements("a $X ${Y} '$X' \"${Z:-d}\" ${X}/x \\$X")
    assert [expand(word, {"X": "1"}) for word in words] == ["a", "1", words[2], "$X", "d", "1/x", "$X"]
    assert unreadable(words[2]) == "${Y}" and not unreadable(words[3])


@pytest.mark.parametrize(
    ("word", "part"), [("$(id)", "$(...)"), ("`id`", "`...`"), ("x-$(cat 'a b')", "$(...)"), ("$X", "$X")]
)
def test_what_only_a_shell_can_replace_is_never_run(word, part):
    (words,) = statements(f"a {word}")
    assert len(words) == 2 and unreadable(words[1]) == part


def test_a_compose_file_has_its_own_way_to_write_a_dollar():
    assert interpolated("$$x") == "$x" and unreadable(interpolated("${X}")) == "${X}"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a 'b", "the quote ' in line 1 is never closed"),
        ('a\nb "c', 'the quote " in line 2 is never closed'),
        ("a \u201cb\u201d", "some program has put in place"),
        ("vllm serve m \u2014model x", "some program has put in place"),
        ("a\x1b[0m", "control character"),
        ("a " * 40_000, "more than 65,536 bytes"),
    ],
)
def test_what_is_no_command_is_answered_in_one_sentence(text, part):
    with pytest.raises(CommandError) as caught:
        statements(text)
    assert part in str(caught.value)


def test_a_variable_that_doubles_itself_fills_no_memory():
    """Forty lines would be a word of 10 TB."""
    known = {"A": "x" * 10}
    with pytest.raises(CommandError, match="A and other variables in one word are longer than 8,192 characters"):
        for _line in range(40):
            known["A"] = expand(interpolated("$A$A"), known)
    assert len(known["A"]) <= 8_192
