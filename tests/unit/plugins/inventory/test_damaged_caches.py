# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Caches that were cut short, are of another version or hold something else: said, not used, made anew."""

from __future__ import annotations

import json

import pytest

from tests.fakes.inventory_plugin import listed, parse, write_source

FLEET = {"fleet.csv": "name,accelerator,accelerator_count\ngpu-1,h200,8\n"}
CACHE = {"cache": True, "cache_plugin": "ansible.builtin.jsonfile"}


def wrapped(content):
    """Return what Ansible's jsonfile keeps of an entry."""
    return json.dumps({"__payload__": content}).encode()


# What may have happened to a file of jsonfile.
WORN = {
    "cut short": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "bytes": lambda content: b"\xff\xfe\x00" * 20,
    "another shape": lambda content: wrapped("[1, 2]"),
    "another version": lambda content: wrapped('{"schema": 999, "data": "[]"}'),
    "a version without one": lambda content: wrapped('{"data": "[]"}'),
    "nothing in it": lambda content: wrapped('{"schema": 1}'),
    "no hosts": lambda content: wrapped('{"schema": 1, "data": "null"}'),
    "text for hosts": lambda content: wrapped('{"schema": 1, "data": "[5, 6]"}'),
    "hosts cut short": lambda content: wrapped('{"schema": 1, "data": "[[[\\"gpu-1\\"]], []]"}'),
    "null": lambda content: wrapped("null"),
}
# And to the answers of a discovery.
DAMAGE = {
    "cut short": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "bytes": lambda content: b"\xff\xfe\x00" * 20,
    "another shape": lambda content: b"[1, 2]",
    "another version": lambda content: b'{"schema": 999, "hosts": {}}',
    "a text": lambda content: b'"x"',
    "null": lambda content: b"null",
    "numbers for hosts": lambda content: b'{"schema": 1, "hosts": 5}',
}


@pytest.mark.parametrize("kind", WORN)
def test_a_damaged_cache_is_built_anew(tmp_path, kind):
    connection = tmp_path / "cache"
    source = write_source(tmp_path, FLEET, cache_connection=str(connection), **CACHE)
    first = listed(source)
    assert first.returncode == 0, first.stderr
    kept = {path: path.read_bytes() for path in connection.rglob("*") if path.is_file()}
    assert kept
    for path, content in kept.items():
        path.write_bytes(WORN[kind](content))
    again = listed(source)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout) == json.loads(first.stdout)
    assert "cache" in again.stderr.lower(), again.stderr
    assert {path: path.read_bytes() for path in kept} == kept
    assert "cache" not in listed(source).stderr.lower()


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_discovery_cache_is_not_heard(tmp_path, kind):
    source = write_source(tmp_path, FLEET)
    cache = tmp_path / "discovery.json"
    cache.write_bytes(DAMAGE[kind](b'{"schema": 1, "hosts": {}}'))
    found = parse(source)
    assert found.groups["accel_h200"] == {"gpu-1"}
    assert [text for text in found.warnings if str(cache) in text]
