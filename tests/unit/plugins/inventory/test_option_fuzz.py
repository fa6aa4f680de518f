# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of accelerators.yml that nobody should write: each is accepted, or refused with the file and the option.

FUZZ_SECONDS=60 runs each test for a minute.
"""

from __future__ import annotations

import json

import pytest
from ansible.errors import AnsibleParserError

from tests.fakes.fuzz import cases
from tests.fakes.inventory_plugin import NAME, parse, plugin, write_source

VALUES = (
    None, True, False, 0, -1, 3, 1.5, 10**30, "", "x", "maybe", "no", "a\0b", "{{ x }}", "{% if %}", "*", "../*", [],
    [None], [1], ["x"], [["x"]], [{}], {}, {"a": "b"}, {"a": None}, {"": "{{"}, [{"key": "x"}], [{"prefix": 1}],
    "./x/y",
)  # fmt: skip
# A cache plugin that is missing is Ansible's own affair.
LEFT_OUT = {"plugin", "cache_plugin", "cache_connection"}
FLEETS = {"fleet.csv": "name,accelerator\ngpu-1,h200\n", "fleet.yml": "hosts:\n  gpu-2: {accelerator: h200}\n"}


def names():
    return sorted(set(plugin().option_definitions) - LEFT_OUT)


def options_of(chance, known):
    """Return a few options, some of them misspelt."""
    chosen = {}
    for name in chance.sample(known, chance.randint(1, 3)):
        letters = list(name)
        if chance.random() < 0.2:
            letters.insert(chance.randrange(len(letters)), chance.choice("abz_ "))
        chosen["".join(letters)] = chance.choice(VALUES)
    return chosen


def test_no_option_raises_anything_but_an_error_with_the_file(tmp_path):
    known, refused, count = names(), 0, 0
    for case, chance in cases("options", 60):
        count += 1
        options = options_of(chance, known)
        source = write_source(tmp_path, FLEETS)
        source.write_text(json.dumps({"plugin": NAME, "fleet_files": list(FLEETS), **options}))
        try:
            parse(source)
        except AnsibleParserError as error:
            refused += 1
            assert str(tmp_path) in str(error) or any(name in str(error) for name in options), (case, options, error)
        except Exception as error:
            pytest.fail(f"FUZZ_CASE={case}: {options!r} raised {error!r}")
    assert 0 < refused < count


def test_no_damaged_fleet_file_raises_anything_but_an_error_with_its_line(tmp_path):
    for case, chance in cases("fleet-files", 60):
        name, text = chance.choice(sorted(FLEETS.items()))
        content = bytearray(text.encode())
        for _change in range(chance.randint(1, 4)):
            at = chance.randrange(len(content))
            content[at : at + chance.randint(0, 3)] = (
                bytes(
                    chance.choice(b"\0\t\n ,;:\"'{}[]&*!|>%@`#-?_a0\xc3\xff") for _byte in range(chance.randint(0, 3))
                )
                or b" "
            )
        source = write_source(tmp_path, {name: bytes(content)})
        try:
            parse(source)
        except AnsibleParserError as error:
            assert f"{tmp_path}/{name}" in str(error), (case, content, error)
        except Exception as error:
            pytest.fail(f"FUZZ_CASE={case}: {bytes(content)!r} raised {error!r}")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fleet_file": ["fleet.csv"]}, "unknown option 'fleet_file'; nearest: 'fleet_files'"),
        ({"foo": 1}, "unknown option 'foo'; known: "),
        ({"redfish": "maybe"}, "redfish: found 'maybe', expected true or false"),
        ({"fleet_files": ["accelerators.yml"]}, "fleet_files: found 'accelerators.yml', which is this file itself"),
        ({"fleet_files": ["./x/../accelerators.yml"]}, "which is this file itself"),
    ],
)
def test_one_clear_error(tmp_path, options, words):
    source = write_source(tmp_path, {})
    source.write_text(json.dumps({"plugin": NAME, **options}))
    with pytest.raises(AnsibleParserError) as caught:
        parse(source)
    assert f"{source}: {words}" in str(caught.value) or words in str(caught.value)
    assert str(source) in str(caught.value)


def test_a_glob_that_matches_the_source_leaves_it_out(tmp_path):
    write_source(tmp_path, FLEETS)
    source = tmp_path / "accelerators.yml"
    source.write_text(json.dumps({"plugin": NAME, "fleet_files": ["*.yml"]}))
    assert parse(source).groups["accel_h200"] == {"gpu-2"}


@pytest.mark.parametrize("text", ["[]", "- plugin: x", "plugin", "5", "", "a: \\xff", '{"plugin": null}'])
def test_a_source_that_is_no_mapping(tmp_path, text):
    source = tmp_path / "accelerators.yml"
    source.write_text(text)
    with pytest.raises(AnsibleParserError):
        parse(source)
