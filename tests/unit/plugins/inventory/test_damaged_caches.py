# SPDX-License-Identifier: GPL-3.0-or-later
"""Caches that were cut short, are of another version or hold something else: said, not used, made anew."""

from __future__ import annotations

import json

import pytest

from tests.fakes.inventory_plugin import NAME, listed, parse, write_source
from tests.fakes.outputs import squeezed

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


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory):
    """List an inventory with a cache for each kind of damage three times: at first, after the damage, and again.

    Returns what was printed each time, and by kind the caches' files with their content before and after.
    """
    top = tmp_path_factory.mktemp("caches")
    caches = {kind: top / kind / "cache" for kind in WORN}
    sources = []
    for number, cache in enumerate(caches.values()):
        cache.parent.mkdir()
        fleet = {"fleet.csv": f"name,accelerator,accelerator_count\ngpu-{number},h200,8\n"}
        sources.append(write_source(cache.parent, fleet, cache_connection=str(cache), **CACHE))
    words = [word for source in sources[1:] for word in ("-i", str(source))]
    first = listed(sources[0], *words)
    before = {kind: contents(cache) for kind, cache in caches.items()}
    for kind, files in before.items():
        for path, content in files.items():
            path.write_bytes(WORN[kind](content))
    again = listed(sources[0], *words)
    after = {kind: contents(cache) for kind, cache in caches.items()}
    return (first, again, listed(sources[0], *words)), before, after


def contents(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_damaged_caches_stop_nobody(rebuilt):
    (first, again, last), _before, _after = rebuilt
    assert [done.returncode for done in (first, again, last)] == [0, 0, 0], first.stderr + again.stderr + last.stderr
    assert json.loads(again.stdout) == json.loads(first.stdout)
    assert len(json.loads(first.stdout)["accel_h200"]["hosts"]) == len(WORN)
    assert "cache" not in last.stderr.lower()


@pytest.mark.parametrize("kind", WORN)
def test_a_damaged_cache_is_named_and_built_anew(rebuilt, kind):
    (_first, again, _last), before, after = rebuilt
    assert before[kind] and after[kind] == before[kind]
    # Ansible puts words of its own before the key in the name of the file.
    (key,) = (path.name[path.name.index(NAME) :] for path in before[kind])
    told = squeezed(again.stderr)
    assert squeezed(f"inventory cache {key}: not read, rebuilt") in told or f"/{kind}/cache/" in told


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_discovery_cache_is_not_heard(tmp_path, kind):
    source = write_source(tmp_path, FLEET)
    cache = tmp_path / "discovery.json"
    cache.write_bytes(DAMAGE[kind](b'{"schema": 1, "hosts": {}}'))
    found = parse(source)
    assert found.groups["accel_h200"] == {"gpu-1"}
    assert [text for text in found.warnings if str(cache) in text]
