# SPDX-License-Identifier: GPL-3.0-or-later
"""What the service that ends slow readers asks of HAProxy and its master, and when it asks nothing."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import readers_host

from .test_readers import NEW, NEW_DETAILS, ROW

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
        self.answer, self.streams, self.look_takes = "\n", 1, 0
        # The number of the stream of each worker, and of another one that has its address a moment later.
        self.numbers, self.later = {"admin": 4, "master": 8}, {}
        monkeypatch.setattr(readers_host, "ask_root", self.ask)
        monkeypatch.setattr(readers_host, "ask_root_in_parts", self.ask_in_parts)
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
        raise AssertionError(command)

    def ask_in_parts(self, path, command, seconds):
        self.asked.append((path, command))
        stream = "0x7f1" if path == "admin" else "0x7f2"
        streams = [stream, *(f"0x8{number:x}" for number in range(1, self.streams))]
        if "show sess 0x" in command or "show sess all" in command:
            number = self.numbers[path]
            self.numbers.update(self.later)
            text = "".join(
                NEW_DETAILS.format(stream=each, number=number, place="0x1", unread="9s")
                for each in streams
                if f"{each};" in f"{command};" or "all" in command
            )
        else:
            self.now += self.look_takes
            text = "".join(ROW.format(each, "chat") + NEW.format("9s") for each in streams)
        yield f"{text}\n".encode()

    def run(self, seconds):
        end = self.now + seconds
        while self.now < end:
            began = self.now
            pause = self.readers.step()
            assert pause == max(readers_host.INTERVAL, self.now - began)
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


def test_a_pause_counts_as_ten_seconds(world):
    world.run(20)
    world.now += 600
    world.run(5)
    assert world.ended() == []
    world.run(10)
    assert len(world.ended()) == 2


def test_slow_looks_end_slow_readers_too(world):
    """As many streams as make a look take 20 seconds; HAProxy rests for as long."""
    world.look_takes, world.processes = 20, FileNotFoundError()
    world.run(160)
    assert world.ended() == [] and len(world.asked) == 4 * 4
    world.run(40)
    assert len(world.ended()) == 1


@pytest.mark.parametrize("fault", [TimeoutError(), ConnectionResetError(), OSError()])
def test_a_look_that_fails_forgets_nothing(world, fault):
    world.run(20)
    stat, world.stat = world.stat, fault
    with pytest.raises(OSError):
        world.readers.step()
    world.now += 10
    world.stat = stat
    world.run(15)
    assert len(world.ended()) == 2


@pytest.mark.parametrize("fault", [TimeoutError(), ValueError()])
def test_a_replaced_worker_that_does_not_answer_once_keeps_its_time_and_stops_nobody_elses(world, monkeypatch, fault):
    ask, failing = readers_host.ask_root_in_parts, [True]

    def ask_in_parts(path, command, seconds):
        if path == "master" and failing:
            raise fault
        return ask(path, command, seconds)

    world.run(20)
    monkeypatch.setattr(readers_host, "ask_root_in_parts", ask_in_parts)
    world.processes = TimeoutError()
    world.run(20)
    assert [path for path, _command in world.ended()] == ["admin"]
    failing.clear()
    world.run(25)
    assert [path for path, _command in world.ended()] == ["admin", "master"]


def test_another_request_at_the_address_of_a_slow_one_is_not_ended(world):
    """Its client ended the slow one after the look that found it, and HAProxy gave the address to the next stream."""
    world.run(35)
    world.later = {"admin": 5, "master": 9}
    world.run(30)
    assert world.ended() == [] and world.counter.read_text() == "0\n"


def test_a_client_that_has_read_meanwhile_is_not_ended(world, monkeypatch):
    """Between the look and the end."""
    world.run(35)
    details, now = world.ask_in_parts, "total=99999999)"

    def faster(path, command, seconds):
        yield from (part.replace(b"total=65594)", now.encode()) for part in details(path, command, seconds))

    monkeypatch.setattr(readers_host, "ask_root_in_parts", faster)
    world.run(5)
    assert world.ended() == []


@pytest.mark.parametrize("fault", [ConnectionRefusedError(), FileNotFoundError()])
def test_without_haproxy_nothing_is_reported(world, fault):
    world.stat = fault
    world.run(20)


def test_without_a_socket_of_the_master_the_worker_is_watched_alone(world):
    world.processes = FileNotFoundError()
    world.run(60)
    assert world.ended() == [("admin", "shutdown session 0x7f1")]


@pytest.mark.parametrize(("streams", "last"), [(50, "show sess 0x831"), (51, "show sess all")])
def test_a_look_asks_for_some_streams_one_by_one_and_for_many_at_once(world, streams, last):
    world.streams, world.processes = streams, FileNotFoundError()
    world.run(5)
    (_admin, listing), (_admin, details) = world.asked[2:]
    assert listing == "show sess" and details.split(";")[-1] == last


def test_a_look_ends_requests_for_some_seconds_and_the_next_one_goes_on(world, monkeypatch):
    world.streams, world.processes = 8, FileNotFoundError()
    shut = world.readers._shut

    def slowly(answer):
        world.now += 2
        return shut(answer)

    monkeypatch.setattr(world.readers, "_shut", slowly)
    world.run(40)
    assert len(world.ended()) == 3 and world.counter.read_text() == "3\n"
    world.run(20)
    assert len(world.ended()) == 8
