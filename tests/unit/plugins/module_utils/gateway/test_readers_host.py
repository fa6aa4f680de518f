# SPDX-License-Identifier: GPL-3.0-or-later
"""What the service that ends slow readers asks of HAProxy and its master, and when it asks nothing."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import readers_host

from .test_readers import DETAILS, NEW, ROW

STAT = "# pxname,svname,status,scur,slim,qcur,\nchat,gw--chat-1,UP,{},4,0,\nchat,BACKEND,UP,9,99,{},\n\n"
PROCESSES = "#<PID> <type>\n1 master 0\n# workers\n2 worker 0 0d00h\n# old workers\n12 worker 1 0d00h\n# programs\n\n"


def given(answer):
    if isinstance(answer, Exception):
        raise answer
    return answer


class World:
    """HAProxy with a stream at each worker, and a clock."""

    def __init__(self, monkeypatch, tmp_path):
        self.now, self.stat, self.processes, self.asked = 0.0, STAT.format(4, 1), PROCESSES, []
        self.answer = "\n"
        monkeypatch.setattr(readers_host, "ask_root", self.ask)
        self.counter = tmp_path / "ended"
        self.readers = readers_host.Readers("admin", "master", str(self.counter), lambda: self.now)

    def ask(self, path, command, *_seconds):
        self.asked.append((path, command))
        if "show stat" in command:
            return given(self.stat)
        if "show proc" in command:
            return given(self.processes)
        if "shutdown" in command:
            return given(self.answer)
        stream, number = ("0x7f1", 4) if path == "admin" else ("0x7f2", 8)
        if "show sess 0x" in command:
            return DETAILS.format(stream=stream, number=number, place="0x1", pipe="")
        return ROW.format(stream, "chat") + NEW.format("9s") + "\n"

    def run(self, seconds, pause=5):
        end = self.now + seconds
        while self.now < end:
            assert self.readers.step() == readers_host.INTERVAL
            self.now += pause

    def ended(self):
        return [(path, command) for path, command in self.asked if "shutdown" in command]


@pytest.fixture
def world(monkeypatch, tmp_path):
    return World(monkeypatch, tmp_path)


def test_streams_of_both_workers_are_ended_and_counted(world, capsys):
    world.run(30)
    assert world.ended() == [] and world.counter.read_text() == "0\n"
    world.run(60)
    assert world.ended() == [("admin", "shutdown session 0x7f1"), ("master", "@!12 shutdown session 0x7f2;quit")]
    assert world.counter.read_text() == "2\n"
    line = "chat: ended the request of 127.0.0.1:51102, which read 0 bytes of the answer in 35 s while others waited"
    assert capsys.readouterr().out.count(line) == 2


@pytest.mark.parametrize("answer", [TimeoutError(), ConnectionResetError(), "No such session (use 'show sess').\n"])
def test_a_request_that_haproxy_did_not_end_is_not_counted_and_tried_again(world, answer, capsys):
    world.answer = answer
    world.run(40)
    assert len(world.ended()) == 2 and world.counter.read_text() == "0\n" and "ended" not in capsys.readouterr().out
    world.answer = "\n"
    world.run(5)
    assert len(world.ended()) == 4 and world.counter.read_text() == "2\n"
    world.run(60)
    assert len(world.ended()) == 4


def test_streams_are_listed_only_where_places_are_taken(world):
    world.stat = STAT.format(3, 0)
    world.run(100)
    assert not [command for _path, command in world.asked if "sess" in command]


def test_who_waits_after_a_while_gets_a_place_at_once(world):
    world.stat = STAT.format(4, 0)
    world.run(60)
    assert world.ended() == []
    world.stat = STAT.format(4, 1)
    world.run(5)
    assert len(world.ended()) == 2


def test_after_a_pause_each_answer_begins_anew(world):
    world.run(30)
    world.now += 60
    world.run(30)
    assert world.ended() == []


@pytest.mark.parametrize("fault", [ConnectionRefusedError(), FileNotFoundError()])
def test_without_haproxy_nothing_is_reported(world, fault):
    world.stat = fault
    world.run(20)


def test_without_a_socket_of_the_master_the_worker_is_watched_alone(world):
    world.processes = FileNotFoundError()
    world.run(60)
    assert world.ended() == [("admin", "shutdown session 0x7f1")]


def test_a_number_of_streams_is_asked_for_in_parts(world, monkeypatch):
    monkeypatch.setattr(readers_host, "_AT_ONCE", 2)
    streams = "".join(ROW.format(f"0x{number}", "chat") + NEW.format("9s") for number in range(1, 6))
    asked = []

    def ask(worker, commands):
        asked.append(commands)
        return streams if commands == ["show sess"] else ""

    monkeypatch.setattr(world.readers, "_ask", ask)
    assert list(world.readers._answers("", readers_host.Pressed(frozenset({"chat"}), frozenset()))) == []
    assert [len(each) for each in asked] == [1, 2, 2, 1] and asked[1] == ["show sess 0x1", "show sess 0x2"]
