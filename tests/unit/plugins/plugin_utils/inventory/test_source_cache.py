# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory's cache in files, written and read by Ansible's own plugin (jsonfile)."""

from __future__ import annotations

import pytest
from ansible.plugins.cache import CachePluginAdjudicator
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.source_cache import SCHEMA, SourceCache

DATA = {"gpu-1": ["h200", 8]}


class Plugin:
    """What an inventory plugin of Ansible gives: its cache, whether it is enabled, the key of a source."""

    def __init__(self, directory, enabled=True):
        self.cache = CachePluginAdjudicator("jsonfile", _uri=str(directory), _prefix="inv_", _timeout=0)
        self.enabled = enabled

    def get_option(self, name):
        return {"cache": self.enabled}[name]

    def get_cache_key(self, path):
        return f"source_{len(path)}"


@pytest.fixture
def source(tmp_path):
    """Return a function that opens the cache as a run does; ``warnings`` are those of all runs."""

    def open_it(read=True, enabled=True):
        plugin = Plugin(tmp_path, enabled)
        found = SourceCache(plugin, "site.yml", read, open_it.warnings.append)
        # Ansible writes what has changed when the plugin has parsed the source.
        return found, plugin.cache.set_cache

    open_it.warnings = []
    return open_it


def store(source, inputs, data=None, part="fleet"):
    cache, write = source()
    key = cache.key(part, inputs)
    cache.save(key, DATA if data is None else data)
    write()
    return key


def test_the_next_run_reads_what_was_stored(source):
    key = store(source, ["a"])
    cache, _write = source()
    assert cache.is_enabled
    assert cache.load(key, dict) == DATA
    assert cache.load(cache.key("fleet", ["b"]), dict) is None
    assert source.warnings == []


def test_other_inputs_other_parts_and_other_orders_have_other_keys(source):
    cache, _write = source()
    inputs = [("fleet", ["a", "b"]), ("fleet", ["b", "a"]), ("fleet", ["ab"]), ("fleet", []), ("redfish", ["a", "b"])]
    keys = [cache.key(part, each) for part, each in inputs]
    assert len(set(keys)) == len(keys)
    assert all(key.startswith(f"source_8_{part}_") for key, (part, _each) in zip(keys, inputs))
    assert cache.key("fleet", ["a", "b"]) == keys[0]


def test_new_data_of_a_part_replaces_its_old_data_only(source, tmp_path):
    redfish, old = store(source, ["x"], part="redfish"), store(source, ["a"])
    new = store(source, ["b"])
    cache, _write = source()
    assert [bool(cache.load(key, dict)) for key in (redfish, old, new)] == [True, False, True]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_flush_reads_nothing_and_stores_again(source):
    key = store(source, ["a"])
    cache, write = source(read=False)
    assert cache.load(key, dict) is None
    cache.save(key, {"gpu-2": 1})
    write()
    assert source()[0].load(key, dict) == {"gpu-2": 1}


def test_a_cache_that_is_not_enabled_holds_nothing(source, tmp_path):
    cache, write = source(enabled=False)
    key = cache.key("fleet", ["a"])
    cache.save(key, DATA)
    write()
    assert not cache.is_enabled and cache.load(key, dict) is None
    assert list(tmp_path.iterdir()) == []


def refuse(data):
    raise ValueError("not the data of this version")


@pytest.mark.parametrize(
    ("entry", "read", "problem"),
    [
        ({"schema": SCHEMA + 1, "data": "{}"}, dict, f"it has the schema {SCHEMA + 1}, expected {SCHEMA}"),
        ({"schema": SCHEMA}, dict, "'data'"),
        ({"data": "{}"}, dict, "'schema'"),
        ([1], dict, "list indices"),
        ({"schema": SCHEMA, "data": "{"}, dict, ""),
        ({"schema": SCHEMA, "data": "[" * 100_000}, dict, ""),
        ({"schema": SCHEMA, "data": "{}"}, refuse, "not the data of this version"),
    ],
)
def test_what_cannot_be_used_is_named_once_and_read_anew(source, tmp_path, entry, read, problem):
    cache, _write = source()
    key = cache.key("fleet", ["a"])
    plugin = Plugin(tmp_path)
    plugin.cache[key] = entry
    plugin.cache.set_cache()
    assert cache.load(key, read) is None
    (warning,) = source.warnings
    assert warning.startswith(f"inventory cache {key}: not read, rebuilt: ") and problem in warning


@pytest.mark.parametrize("content", ["{", "", "[1, 2]", "null", "5"])
def test_a_file_that_ansible_cannot_read_is_named(source, tmp_path, content):
    key = store(source, ["a"])
    (file,) = tmp_path.iterdir()
    file.write_text(content)
    cache, _write = source()
    assert cache.load(key, dict) is None
    (warning,) = source.warnings
    assert warning.startswith(f"inventory cache {key}: not read, rebuilt: ")
