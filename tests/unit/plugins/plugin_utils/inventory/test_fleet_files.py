# SPDX-License-Identifier: GPL-3.0-or-later
"""Fleet files as they come; what is wrong with them is in tests of the plugin (test_bad_input)."""

from __future__ import annotations

import os

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory import fleet_files as _fleet_files
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.fleet_files import (
    FleetFileError,
    FleetText,
    find_files,
    is_host_name,
    kept_fleet,
    load_text,
    read_fleet,
)


def hosts_of(name, text):
    hosts, warnings = read_fleet([FleetText(f"/fleet/{name}", text.encode())])
    assert warnings == []
    return {host.name: host.variables for host in hosts}


def test_a_table_types_what_are_numbers_and_leaves_the_rest():
    text = "name,accelerator_count,accelerator_memory_gib,rack,ansible_port\na,8,141.5,007,2222\nb,x,,1e3,\n"
    assert hosts_of("fleet.csv", text) == {
        "a": {"accelerator_count": 8, "accelerator_memory_gib": 141.5, "rack": "007", "ansible_port": 2222},
        "b": {"accelerator_count": "x", "rack": "1e3"},
    }


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separators_of_spreadsheets(separator):
    rows = [["name", "rack", "note"], ["a", "r 1", f'"x{separator} ""y"""'], [" b ", "", ""]]
    text = "\r\n".join(separator.join(row) for row in rows)
    assert hosts_of("fleet.csv", text) == {"a": {"rack": "r 1", "note": f'x{separator} "y"'}, "b": {}}


def test_empty_rows_are_none():
    assert hosts_of("fleet.csv", "\nname,rack\n\na,1\n,\n  ,\n") == {"a": {"rack": "1"}}


def test_lines_are_found_in_every_form():
    texts = [
        FleetText("/fleet/a.csv", b"name,x\n\na,1\nb,2\n"),
        FleetText("/fleet/b.json", b'{"hosts": {\n "c": {"d": 1},\n\n "d": {}, "\\u00e9": {}}}'),
        FleetText("/fleet/c.yml", b"hosts:\n\n  e: {c: 1}\n  f:\n"),
    ]
    with pytest.raises(FleetFileError, match=r"^/fleet/b\.json:4: found 'é'"):
        read_fleet(texts)
    hosts, _warnings = read_fleet([texts[0], FleetText(texts[1].path, texts[1].data.replace(b"\\u00e9", b"g"))])
    assert {host.name: host.line for host in hosts} == {"a": 3, "b": 4, "c": 2, "d": 4, "g": 4}
    hosts, _warnings = read_fleet([texts[2]])
    assert [str(host) for host in hosts] == ["/fleet/c.yml:3", "/fleet/c.yml:4"]


def test_a_variable_that_was_perhaps_meant_otherwise():
    text = FleetText("/fleet/a.csv", b"name,acelerator,rack\na,h200,1\nb,h200,1\n")
    _hosts, warnings = read_fleet([text])
    assert len(warnings) == 1
    assert "/fleet/a.csv:2" in warnings[0]
    assert "nearest: 'accelerator'" in warnings[0]


@pytest.mark.parametrize("name", ["gpu-1", "gpu_1", "gpu-1.fra.example.com", "10.0.0.1", "fe80::1", "_x", "7"])
def test_names_of_hosts(name):
    assert is_host_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "a b", "-a", "a-", ".a", "a,b", "gpu[01:08]", "a:22", "!a", "a*", "all", "ungrouped", "a\n", "ä", "{{ a }}",
     "../a", "a" * 254, "fe80::1%eth0"],
)  # fmt: skip
def test_what_are_none(name):
    assert not is_host_name(name)


def test_files_are_found_once_and_in_order(tmp_path):
    for name in ("b.csv", "a.csv", "c.yml"):
        (tmp_path / name).touch()
    found, warnings = find_files(["c.yml", "*.csv", "a.csv", "*.json", "no.yml"], str(tmp_path))
    assert [os.path.basename(name) for name in found] == ["c.yml", "a.csv", "b.csv", "no.yml"]
    assert warnings == [f"fleet_files: no file matches {tmp_path}/*.json"]


def test_a_pipe_does_not_hold_up_the_run(tmp_path):
    os.mkfifo(tmp_path / "fleet.csv")
    with pytest.raises(FleetFileError, match="expected a file"):
        load_text(str(tmp_path / "fleet.csv"))


def test_a_file_that_grows_without_end_is_not_read_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(_fleet_files, "LARGEST", 2**20)
    (tmp_path / "fleet.csv").write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(FleetFileError, match="larger than 1 MiB"):
        load_text(str(tmp_path / "fleet.csv"))


def test_the_digest_tells_files_and_contents_apart():
    digests = {FleetText(path, data).digest for path in ("/a", "/b") for data in (b"1", b"2")}
    assert len(digests) == 4


def test_hosts_from_the_cache_are_those_that_went_in():
    hosts, _warnings = read_fleet([FleetText("/fleet/a.csv", b"name,rack\na,1\n")])
    again, warnings = kept_fleet([[[host.name, host.variables, host.file, host.line] for host in hosts], ["w"]])
    assert [(host.name, host.variables, str(host)) for host in again] == [("a", {"rack": "1"}, "/fleet/a.csv:2")]
    assert warnings == ["w"]


@pytest.mark.parametrize(
    "data", [None, {}, [], [[]], [[["a"]], []], [[["a", 1, "f", 2]], []], [[["a", {}, "f", "x"]], []]]
)
def test_anything_else_in_the_cache(data):
    with pytest.raises((TypeError, ValueError)):
        kept_fleet(data)
