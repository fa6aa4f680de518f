# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines are those of HAProxy 2.6.12 and 3.0.11; tests/hostile/test_gateway_readers.py reads them from real ones."""

from __future__ import annotations

import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.readers import (
    BYTES_A_SECOND,
    ENDED,
    FREE,
    Answer,
    answers_of,
    judge,
    pressed,
    split_streams,
    unread_streams,
)

ROW = "{}: proto=tcpv4 src=127.0.0.1:51102 fe=chat be={} srv=gw--chat-1 ts=00 epoch=0x1 age=1m11s calls=6 rate=1 "
OLD = (
    "rq[f=488c8000h,i=0,an=8000h,rx=,wx=1s,ax=3s] rp[f=88040202h,i=64,an=4000000h,rx=,wx={},ax=] scf=[8,0h,fd=16] "
    "scb=[8,211h,fd=17] exp=3s rc=0 c_exp=\n"
)
NEW = (
    "rq[f=848000h,i=0,an=8000h,ax=3s] rp[f=80040001h,i=0,an=4000000h,ax=] scf=[8,1002h,fd=19,rex=,wex={}] "
    "scb=[8,1211h,fd=17,rex=,wex=4s] exp=3s rc=0 c_exp=\n"
)
ADMIN = "0x55c14e4c1070: proto=unix_stream src=unix:1 fe=GLOBAL be=<NONE> srv=<none> ts=00 epoch=0xe " + OLD.format(
    "9s"
)
DETAILS = """{stream}: [30/Nov/2026:18:11:55.424581] id={number} proto=tcpv4 source=127.0.0.1:51102
  flags=0x84a, conn_retries=0, conn_exp=<NEVER> conn_et=0x000 srv_conn={place}, pend_pos=(nil) waiting=0 epoch=0x1
  frontend=chat (id=8 mode=http), listener=? (id=1) addr=127.0.0.1:22218
"""
OLD_DETAILS = (
    DETAILS
    + """  scf=0x55910167eeb0 flags=0x00000000 state=EST endp=CONN,0x559101a273b0,0x02005001 sub=3
  req=0x55c14e5ed320 (f=0x488c8000 an=0x8000 pipe=0 tofwd=0 total=211)
      an_exp=3s rex=<NEVER> wex=<NEVER>
  res=0x55c14e5ed380 (f=0x88040202 an=0x4000000 pipe=0 tofwd=-1 total=65594)
      an_exp=<NEVER> rex=<NEVER> wex={unread}
      buf=0x5591017c0c08 data=0x559101a5c940 o=65472 p=65472 i=64 size=65536

"""
)
NEW_DETAILS = (
    DETAILS
    + """  scf=0x7fca35d4c9a0 flags=0x00001002 ioto=30s state=EST endp=CONN sub=3 rex=<NEVER> wex={unread} rto=24s
  scb=0x7fca35d4a420 flags=0x00001211 ioto=1h state=EST endp=CONN,0x7fca35dda7c0 sub=0 rex=<NEVER> wex=3s rto=59m54s
  req=0x7fca35dc7828 (f=0x848000 an=0x8000 tofwd=0 total=213)
      an_exp=4s buf=0x7fca35dc7830 data=(nil) o=0 p=0 i=0 size=0
  res=0x7fca35dc7870 (f=0x80040000 an=0x4000000 tofwd=-1 total=65594)
      an_exp=<NEVER> buf=0x7fca35dc7878 data=(nil) o=0 p=0 i=0 size=0

"""
)


def listed(text, services=("chat",)):
    return unread_streams(split_streams([text.encode()]), services)


def detailed(text, worker, streams):
    return list(answers_of(split_streams([text.encode()]), worker, streams))


@pytest.mark.parametrize("rest", [OLD, NEW])
def test_only_streams_with_a_place_and_something_to_read_for_their_clients_are_found(rest):
    wants = ROW.format("0x7f1", "chat") + rest.format("29s")
    waits = ROW.format("0x7f2", "chat") + rest.format("")
    other = ROW.format("0x7f3", "embed") + rest.format("2s")
    refused = wants.replace("0x7f1", "0x7f4").replace("srv=gw--chat-1", "srv=<none>")
    complete = wants.replace("0x7f1", "0x7f5").replace("scb=[8,", "scb=[10,")
    assert listed(refused + wants + waits + complete + other + ADMIN + "\n") == {"0x7f1": "chat"}
    assert listed(refused + complete + waits + wants) == {"0x7f1": "chat"}


@pytest.mark.parametrize("text", ["", "\n", "0x7f1: proto=", ROW * 3, "x" * 60_000, "0x1: proto= be= srv=" * 3_000])
def test_other_text_names_no_stream_and_takes_no_time(text):
    began = time.process_time()
    assert listed(text) == {} and detailed(text, "", {"0x7f1": "chat"}) == []
    assert time.process_time() - began < 2


def test_streams_are_split_wherever_the_parts_of_an_answer_end():
    text = "".join(ROW.format(f"0x7f{number}", "chat") + OLD.format("9s") for number in range(9)).encode()
    for size in (1, 2, 3, 300):
        parts = [text[at : at + size] for at in range(0, len(text), size)]
        assert list(unread_streams(split_streams(parts), {"chat"})) == [f"0x7f{number}" for number in range(9)]


def test_a_stream_without_end_is_an_error():
    with pytest.raises(ValueError, match="list of streams cannot be read"):
        list(split_streams([b"x" * 60_000, b"x" * 60_000]))


@pytest.mark.parametrize("form", [OLD_DETAILS, NEW_DETAILS])
def test_an_answer_is_known_by_its_number_has_a_place_and_is_unread(form):
    text = "".join(
        form.format(stream=stream, number=number, place=place, unread=unread)
        for stream, number, place, unread in (
            ("0x7f1", 4, "0x55c14e529210", "29s"),
            ("0x7f2", 5, "(nil)", "29s"),
            ("0x7f3", 7, "0x5", "<NEVER>"),
            ("0x7f9", 6, "0x5", "29s"),
        )
    )
    found = detailed(f"{text}Session not found.\n\n", "12", dict.fromkeys(["0x7f1", "0x7f2", "0x7f3"], "chat"))
    assert found == [Answer("12", "0x7f1", 4, "127.0.0.1:51102", "chat", 65594)]


def row(name="gw--chat", status="UP", scur="1", slim="4", qcur="0", of="chat"):
    return {"pxname": of, "svname": name, "status": status, "scur": scur, "slim": slim, "qcur": qcur}


@pytest.mark.parametrize(("found", "full", "waits"), [
    (row(), False, False),
    (row(scur="4"), True, False),
    (row(scur="400", slim=""), False, False),
    (row("BACKEND", scur="500", slim="325"), False, False),
    (row("BACKEND", scur="9", qcur="1", slim="325"), True, True),
    (row(qcur="1"), True, True),
    (row(status="DRAIN"), True, True),
    (row(status="NOLB (agent)"), True, True),
    (row(status="no check"), False, False),
    (row(status="UP 1/3"), False, False),
    (row(status="DOWN", scur="0"), False, False),
])  # fmt: skip
def test_readers_matter_where_all_places_are_taken_and_are_ended_where_somebody_waits(found, full, waits):
    assert pressed([found], False) == (frozenset({"chat"} if full else ()), frozenset({"chat"} if waits else ()))


def test_a_replaced_worker_may_have_requests_at_a_server_that_leaves():
    assert pressed([row(status="MAINT", scur="0")], True).waits == {"chat"}
    assert pressed([row(scur="0")], True).full == frozenset()
    assert pressed([row(status="DOWN", scur="0")], True).waits == frozenset()
    assert pressed([row(status="DOWN", scur="1")], True).waits == {"chat"}


def test_a_server_that_is_drained_waits_for_the_requests_at_its_router():
    router = row("router:gw--chat", of="gateway:router:chat")
    assert pressed([router], False).full == frozenset()
    assert pressed([row(status="DRAIN", scur="0"), router], False).waits == {"chat"}
    line = ROW.format("0x7f1", "gateway:router:chat") + NEW.format("29s")
    assert listed(line) == {"0x7f1": "chat"}


def run(came, waits=("chat",)):
    """Look every five seconds; return when which answer was too slow, by the bytes that had come at each look."""
    looks, ended = {}, []
    for number, total in enumerate(came):
        answers = [] if total is None else [Answer("", "0x7f1", 4, "a:1", "chat", total)]
        looks, slow = judge(looks, answers, 5, waits)
        ended += [(5 * number, each.seconds, each.read) for each in slow]
        looks.update({each.answer.key: ENDED for each in slow})
    return ended


def test_a_client_that_reads_a_byte_now_and_then_has_thirty_seconds_once():
    assert run([65536 + number for number in range(40)]) == [(35, 35, 7)]


def test_each_piece_that_it_reads_is_one_more_second():
    half = BYTES_A_SECOND // 2 * 5
    ((at, _seconds, read),) = run([half * number for number in range(40)])
    assert at > FREE * 2 - 1 and read == half * at // 5


def test_a_client_that_reads_as_fast_as_that_keeps_its_answer():
    assert run([BYTES_A_SECOND * 5 * number for number in range(2000)]) == []


def test_large_pieces_with_long_pauses_count_as_what_they_are_together():
    """As the kernel gives them on: 50 kB/s look like 1.4 MB every 28 seconds."""
    assert run([1_400_000 * (5 * number // 28) for number in range(500)]) == []


def test_waiting_for_the_engine_does_not_count():
    assert run([100, 100, 100, 100, 100, 100, None] * 20) == []


def test_nobody_is_ended_where_nobody_waits_but_at_once_when_somebody_does():
    looks = {}
    for _look in range(20):
        looks, slow = judge(looks, [Answer("", "0x7f1", 4, "a:1", "chat", 7)], 5, ())
        assert slow == []
    assert judge(looks, [Answer("", "0x7f1", 4, "a:1", "chat", 7)], 5, {"chat"})[1][0].seconds == 100


def test_another_stream_at_the_same_address_begins_anew():
    looks, _slow = judge({}, [Answer("", "0x7f1", 4, "a:1", "chat", 7)], 0, {"chat"})
    for worker, number in (("", 5), ("12", 4)):
        after, slow = judge(looks, [Answer(worker, "0x7f1", number, "b:1", "chat", 7)], 100, {"chat"})
        assert slow == [] and list(after) == [(worker, "0x7f1", number)]


def test_what_was_ended_is_ended_once():
    looks, _slow = judge({}, [Answer("", "0x7f1", 4, "a:1", "chat", 7)], 0, {"chat"})
    looks, slow = judge(looks, [Answer("", "0x7f1", 4, "a:1", "chat", 7)], 31, {"chat"})
    assert len(slow) == 1
    looks[slow[0].answer.key] = ENDED
    assert judge(looks, [Answer("", "0x7f1", 4, "a:1", "chat", 7)], 500, {"chat"})[1] == []
