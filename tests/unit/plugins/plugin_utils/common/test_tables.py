# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.common.tables import (
    by_name,
    hosts_in_words,
    table,
    wrapped,
)

LONG = "--compilation-config.pass_config.enable_fi_allreduce_fusion"


def characters(text):
    """All that is not a blank or a rule of a table, in no order: wrapping moves it about and loses nothing."""
    return sorted(character for character in text if character not in " \n-")


def test_no_line_is_wider_than_asked_and_nothing_is_cut():
    rows = [[LONG, '{"a": [1, 2, 3], "b": "' + "x" * 90 + '"}', "why " * 30], ["b", "1", ""]]
    text = table(("key", "value", "from"), rows, 70, "  ")
    assert max(len(line) for line in text.splitlines()) <= 70
    assert characters(text) == characters("keyvaluefrom" + "".join("".join(row) for row in rows))


def test_a_name_stays_whole_where_the_column_may_be_that_wide():
    rows = [[LONG, "value " * 20]]
    assert LONG in table(("key", "value"), rows, 100, whole=len(LONG))
    assert LONG not in table(("key", "value"), rows, 100, whole=len(LONG) - 1)


def test_a_long_word_is_broken_after_a_sign_that_parts_it():
    assert table(("k",), [["presets.throughput.rules"]], 20).splitlines()[2:] == ["presets.throughput.", "rules"]


def test_a_column_that_is_empty_everywhere_is_left_out():
    assert "instead" not in table(("key", "instead"), [["a", ""]], 40)
    assert table(("key",), [], 40) == ""


def test_further_lines_of_a_text_are_indented():
    assert wrapped("one two three four", 14, "  ", "- ") == "  one two\n  - three four"


def test_many_hosts_are_counted():
    hosts = [f"h{number}" for number in range(1000)]
    assert hosts_in_words(hosts, 2) == "h0, h1 and 998 more"
    assert hosts_in_words(hosts[:2], 2) == "h0, h1"
    assert hosts_in_words(["b", "a"]) == "b, a"


def test_hosts_are_sorted_with_their_numbers():
    assert by_name(["gpu-10", "amd-1", "gpu-9", "2"]) == ["2", "amd-1", "gpu-9", "gpu-10"]
