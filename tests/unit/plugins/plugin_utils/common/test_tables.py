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
    word = "presets.throughput.rules." * 3
    lines = table(("k",), [[word]], 20).splitlines()[2:]
    assert len(lines) > 3 and "".join(lines) == word and lines[0] == "presets.throughput."


def test_an_address_and_the_name_of_a_model_are_not_broken():
    """They are copied from the table, which is wider than asked where nothing else helps."""
    model, address = "organisation/a-model-with-a-name-of-35-chars", "https://chat.fra1.example.net:8443"
    rows = [["chat", model, address, "1 of 1", "gpu-1 down (L4CON: Connection refused) for 2 min"]]
    for width in (120, 80, 40):
        text = table(("service", "model", "address", "in service", "last change"), rows, width)
        assert model in text and address in text, width


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
