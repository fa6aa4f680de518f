# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a fleet file, with the line where it is; test_fleet_files.py reads whole fleets."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.fleet_formats import (
    MOST_COLUMNS,
    READERS,
    FleetFileError,
    FleetHost,
    FleetText,
)


def read(suffix, data):
    data = data if isinstance(data, bytes) else data.encode()
    return READERS[suffix](FleetText(f"/fleet/x{suffix}", data))


def refusal(suffix, data):
    with pytest.raises(FleetFileError) as caught:
        read(suffix, data)
    return str(caught.value).removeprefix(f"/fleet/x{suffix}:")


ANY = [".yml", ".json", ".csv"]


@pytest.mark.parametrize("suffix", ANY)
def test_a_file_of_a_vault_or_of_another_encoding_is_named_with_its_line(suffix):
    assert refusal(suffix, "$ANSIBLE_VAULT;1.1;AES256\n6133\n").startswith("1: encrypted with ansible-vault, expected")
    assert refusal(suffix, b"name\nb\xfcro\n").startswith("2: not UTF-8; save it as UTF-8")


def test_a_byte_order_mark_is_no_part_of_the_first_column():
    assert read(".csv", b"\xef\xbb\xbfname,rack\na,1\n") == [FleetHost("a", {"rack": "1"}, "/fleet/x.csv", 2)]


@pytest.mark.parametrize("suffix", [".yml", ".json"])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"host": {}}', '1: found the key "host", expected \'hosts\''),
        ("[]", "1: found no mapping, expected 'hosts'"),
        ('{"hosts": {}, "hsots": {}}', '1: unknown key "hsots"; nearest: "hosts"'),
        ('{"hosts": ["a"]}', "1: hosts: expected a mapping of names to variables"),
        ('{"hosts": {"a": 1}}', "1: host 'a': expected variables, like accelerator: h200"),
        ('{"hosts": {"a": {}, "a": {}}}', "is there twice"),
    ],
)  # fmt: skip
def test_documents_hold_hosts_with_variables(suffix, text, problem):
    assert problem.replace('"', "'") in refusal(suffix, text).replace('"', "'")


@pytest.mark.parametrize(
    ("suffix", "text"),
    [(".yml", ""), (".yml", "hosts:\n"), (".json", "{}"), (".json", '{"hosts": null}'), (".csv", "")],
)
def test_an_empty_file_has_no_hosts(suffix, text):
    assert read(suffix, text) == []


def test_a_name_that_yaml_reads_as_a_number_needs_quotes():
    assert refusal(".yml", "hosts:\n  a:\n  12:\n").startswith(
        "3: found 12 as the name of a host, expected a text; put"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"hosts": {\n "a": {},\n "b": [}', "3: "),
        ('{"hosts": {"a": {"x": NaN}}}', "1: found NaN, expected a finite"),
        ("[" * 100_000, "1: nested deeper than"), ('{"hosts": {"a": {"x": ' + "1" * 5000 + "}}}", "1: "),
        ('{"hosts": {"a": {\n"x": 1,\n\n"\\u0078": 2}}}', "4: 'x' is there twice, first in line 2"),
    ],
)  # fmt: skip
def test_json_is_read_strictly_with_the_line_of_the_fault(text, problem):
    assert refusal(".json", text).startswith(problem)


def test_the_line_of_a_host_is_found_beside_equal_names_deeper_down():
    text = '{"hosts": {"a": {"b": {"b": 1}, "s": "{\\"b\\": {"},\n\n"b": {}}}'
    assert [str(host) for host in read(".json", text)] == ["/fleet/x.json:1", "/fleet/x.json:3"]
    assert [host.variables for host in read(".json", text)] == [{"b": {"b": 1}, "s": '{"b": {'}, {}]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("rack,gpu\n", "1: found the columns rack, gpu; expected one of them to be 'name'"),
        ("name,host\n", "1: found the columns name, host;"), ("name,x,x\n", "1: found the column 'x' twice"),
        ("name,,x\n", "1: found a column without a name"), ("\nname,x\na\n", "3: found 1 cells, expected 2 (name, x)"),
        ('name,note\na,"b\n,c"\nb,1,2\n', "4: found 3 cells"), ("name,x\n,1\n", "2: no name in this row"),
        ('name,x\na,"b"c\n', "2: "), ("na\x1bme,x\n", "1: found the columns na\\x1bme, x;"),
        (",".join(["name", *map(str, range(MOST_COLUMNS))]), f"1: found {MOST_COLUMNS + 1} columns, expected up to"),
    ],
)  # fmt: skip
def test_a_table_has_a_name_in_each_row_and_a_title_above_each_cell(text, problem):
    assert refusal(".csv", text).startswith(problem)


def test_numbers_of_a_table_are_those_of_variables_that_are_numbers():
    text = "host,accelerator_count,accelerator_memory_gib,ansible_port,rack\na,+8,1.5,1e3,08\nb, 8 ,x,22.5,\n"
    (one, other) = read(".csv", text)
    assert one.variables == {"accelerator_count": 8, "accelerator_memory_gib": 1.5, "ansible_port": "1e3", "rack": "08"}
    assert other.variables == {"accelerator_count": 8, "accelerator_memory_gib": "x", "ansible_port": "22.5"}


def test_a_digest_is_of_the_path_and_the_content():
    one = FleetText("/a", b"b")
    assert one.digest == FleetText("/a", b"b").digest and len(one.digest) == 32
    assert (
        len({one.digest, FleetText("/a", b"c").digest, FleetText("/ab", b"").digest, FleetText("/\udcff", b"").digest})
        == 4
    )
