# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients in the files of a gateway and in its running HAProxy, which is played; no key is ever shown.

tests/integration does the same with the real HAProxy.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import hashlib
import itertools
import os
from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import maps_host
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.clients import (
    CLIENTS,
    RATES,
    RIGHTS,
    Client,
    maps_of,
    parse_map,
)
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.maps_host import (
    MapsError,
    client_lines,
    read_maps,
    update_maps,
)

GROUP = grp.getgrgid(os.getgid()).gr_name
OLD, NEW = (hashlib.sha256(key).hexdigest() for key in (b"old", b"new"))
ALICE, BOB = Client("alice", (OLD,), rate=60), Client("bob", (NEW,), rate=5, services=("chat",))


class Haproxy:
    """A running HAProxy with the maps of a directory; ``maps`` None: it does not run."""

    def __init__(self, directory):
        self.directory, self.maps, self.refuses, self.seen = directory, None, "", []

    def starts(self, clients, names=None):
        self.maps = {name: dict(found) for name, found in maps_of(clients).items() if not names or name in names}

    def ask(self, _socket, command):
        if self.maps is None:
            raise ConnectionRefusedError
        verb, _map, *words = command.split(None, 4)
        if verb == "show" and not words:
            return "".join(f"{n} ({self.directory}/{name}) pattern loaded\n" for n, name in enumerate(self.maps))
        entries = self.maps[os.path.basename(words[0])]
        if verb == "show":
            return "".join(f"0x55d0 {key} {value}\n" for key, value in entries.items()) + "\n"
        if self.refuses:
            return f"{self.refuses}\n"
        if verb == "del":
            del entries[words[1]]
        else:
            assert (verb == "set") is (words[1] in entries)
            entries[words[1]] = words[2]
        self.seen.append({name: dict(found) for name, found in self.maps.items()})
        return "\n"


@pytest.fixture
def haproxy(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    found = Haproxy(tmp_path)
    monkeypatch.setattr(maps_host, "ask_root", found.ask)
    return found


def update(haproxy, *clients, check=False, group=GROUP):
    return update_maps(maps_of(clients), str(haproxy.directory), "/nothing/here/admin.sock", group, check)


def test_without_a_running_haproxy_the_files_are_written_for_its_start(haproxy, tmp_path):
    outcome = update(haproxy, ALICE)
    assert (outcome.changed, outcome.running) == (True, False)
    assert read_maps(str(tmp_path)) == maps_of([ALICE])
    # Others on the host must not read who may use it.
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}
    assert update(haproxy, ALICE).changed is False


def test_a_running_haproxy_has_the_clients_at_once(haproxy, tmp_path):
    update(haproxy, ALICE)
    haproxy.starts([ALICE])
    outcome = update(haproxy, BOB)
    assert haproxy.maps == maps_of([BOB]) == read_maps(str(tmp_path))
    assert outcome.running and outcome.differences == {"added": ["bob"], "removed": ["alice"], "changed": []}
    assert (list(outcome.before), list(outcome.after)) == (["alice"], ["bob"])
    assert update(haproxy, BOB).changed is False


def test_no_key_is_ever_valid_without_the_limits_of_its_client(haproxy):
    update(haproxy, ALICE)
    haproxy.starts([ALICE])
    update(haproxy, Client("alice", (NEW,), rate=60), BOB)
    assert haproxy.seen
    for maps in haproxy.seen:
        for name in maps[CLIENTS].values():
            assert name in maps[RATES] and any(right.startswith(f"{name}:") for right in maps[RIGHTS])


def test_no_prefix_of_the_writes_leaves_a_key_without_the_limits_of_its_client(haproxy, tmp_path, monkeypatch):
    old, publish = replace(BOB, concurrent=1, ends=1, team="red"), maps_host.publish
    left = []

    def full(*arguments):
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        publish(*arguments)
        left.pop()

    monkeypatch.setattr(maps_host, "publish", full)
    for before, after in (([ALICE, old], [ALICE]), ([ALICE], [ALICE, old])):
        writes = itertools.count()
        while read_maps(str(tmp_path)) != maps_of(after):
            left[:] = [0] * 12
            update(haproxy, *before)
            left[:] = [0] * next(writes)
            with contextlib.suppress(MapsError):
                update(haproxy, *after)
            found = read_maps(str(tmp_path))
            if NEW in found[CLIENTS]:
                assert all(
                    found[name] == entries for name, entries in maps_of(before + after).items() if name != RIGHTS
                )


def test_a_new_key_of_a_client_is_valid_before_its_old_one_ends(haproxy):
    haproxy.starts([ALICE])
    update(haproxy, Client("alice", (NEW,), rate=60))
    assert all("alice" in maps[CLIENTS].values() for maps in haproxy.seen)
    assert haproxy.maps[CLIENTS] == {NEW: "alice"}


def test_check_mode_tells_and_changes_nothing(haproxy, tmp_path):
    update(haproxy, ALICE)
    haproxy.starts([ALICE])
    outcome = update(haproxy, ALICE, BOB, check=True)
    assert outcome.changed and outcome.differences["added"] == ["bob"]
    assert read_maps(str(tmp_path)) == maps_of([ALICE]) == haproxy.maps


def test_a_change_at_the_socket_is_reported_and_undone(haproxy):
    update(haproxy, ALICE)
    haproxy.starts([ALICE, BOB])
    outcome = update(haproxy, ALICE)
    assert outcome.changed and list(outcome.before) == ["alice"] and list(outcome.present) == ["alice", "bob"]
    assert haproxy.maps == maps_of([ALICE])


def test_a_haproxy_of_an_earlier_release_still_loses_a_key(haproxy):
    """It knows fewer maps until its next reload."""
    haproxy.starts([ALICE], names=(RATES, CLIENTS))
    assert update(haproxy, BOB).running
    assert haproxy.maps == {name: maps_of([BOB])[name] for name in (RATES, CLIENTS)}


def test_a_haproxy_that_uses_no_map_of_this_gateway_is_left_alone(haproxy, tmp_path):
    haproxy.maps = {}
    assert update(haproxy, ALICE).running is False
    assert read_maps(str(tmp_path)) == maps_of([ALICE])


def test_a_refusal_names_the_map_and_no_key(haproxy):
    haproxy.starts([])
    haproxy.refuses = "Out of memory.\nmore"
    with pytest.raises(MapsError, match=r"HAProxy refused add map for rights\.map: Out of memory\.$") as raised:
        update(haproxy, ALICE)
    assert OLD not in str(raised.value)


def test_a_map_that_cannot_be_read_or_written_is_named(haproxy, tmp_path):
    with pytest.raises(MapsError, match="the group no-such-group does not exist; install haproxy first"):
        update(haproxy, ALICE, group="no-such-group")
    (tmp_path / CLIENTS).write_bytes(b"\xff\xfe")
    with pytest.raises(MapsError, match=r"clients\.map: cannot be read: "):
        read_maps(str(tmp_path))
    (tmp_path / CLIENTS).unlink()
    (tmp_path / CLIENTS).mkdir()
    with pytest.raises(MapsError, match=r"clients\.map: cannot be read: "):
        update(haproxy, ALICE)


def test_a_diff_has_a_line_for_each_client_and_no_key(haproxy):
    text = client_lines(update(haproxy, ALICE, BOB).after)
    assert text.splitlines() == [
        "alice: keys 1, rate 60, concurrent any, services any, expires never",
        "bob: keys 1, rate 5, concurrent any, services chat, expires never",
    ]
    assert OLD not in text
    assert parse_map("# comment\n\nlonely\n") == {}
