# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.state import (
    StateError,
    read_kept_states,
    read_view,
)

# What HAProxy 2.6.12 answers to VIEW_COMMANDS: the first server is drained, the second one answers 503 to its check,
# the third one is stuck; three requests were answered, one had no key and one no such path.
ANSWER = (Path(__file__).resolve().parents[4] / "fixtures/haproxy/2.6.12.txt").read_text()


def test_states_checks_and_figures_of_servers():
    first, second, third = read_view(ANSWER).servers.values()
    assert (first.name, first.backend, first.address) == ("gw--chat-1", "chat", "127.0.0.1:40891")
    assert [(each.state, each.up, each.serves) for each in (first, second, third)] == [
        ("drain", True, False),
        ("ready", False, False),
        ("ready", False, False),
    ]
    assert first.why == "" and second.why == "L7STS: Service Unavailable"
    assert third.why == "L7STS: via agent : down (requests run and nothing has moved for 2 s)"
    assert {(each.requests, each.errors, each.sessions, each.queued) for each in (first, second, third)} == {
        (1, 0, 0, 0)
    }


def test_services_without_the_gateways_own_proxies():
    view = read_view(ANSWER)
    assert view.backends() == {"chat": {"ready": 0, "servers": 3, "queued": 0}}
    assert view.frontends == {
        "chat": {"requests": 5, "ok": 3, "client_errors": 2, "server_errors": 0, "denied": 0},
    }


def test_started_is_that_of_the_worker():
    view = read_view(ANSWER)
    assert view.started == f"{view.pid}-{view.started.partition('-')[2]}" and view.pid > 1
    assert read_view(ANSWER.replace(f"Pid: {view.pid}", "Pid: 7")).started != view.started
    assert read_view(ANSWER.replace("Start_time_sec: 17", "Start_time_sec: 18")).started != view.started


@pytest.mark.parametrize(
    ("admin", "weight", "state"),
    [(0, 1, "ready"), (1, 1, "maint"), (2, 1, "maint"), (4, 1, "maint"), (8, 1, "drain"), (9, 1, "maint"),
     (16, 1, "drain"), (32, 1, "maint"), (64, 1, "maint"), (0, 0, "drain")],
)  # fmt: skip
def test_what_was_asked_of_a_server(admin, weight, state):
    answer = ANSWER.replace("127.0.0.1 2 8 1 1", f"127.0.0.1 2 {admin} {weight} 1")
    server = read_view(answer).servers["gw--chat-1"]
    assert (server.state, server.weightless) == (state, weight == 0)
    states = answer[answer.index("\n1\n# be_id") + 1 : answer.index("\n# pxname")]
    assert read_kept_states(states)["gw--chat-1"] == state


@pytest.mark.parametrize("up", [("0", False), ("1", True), ("2", True), ("3", False)])
def test_what_the_checks_say(up):
    operation, expected = up
    answer = ANSWER.replace("127.0.0.1 2 8 1 1", f"127.0.0.1 {operation} 0 1 1")
    assert read_view(answer).servers["gw--chat-1"].serves is expected


def test_errors_are_those_of_the_server_alone():
    heading, line = (
        next(text for text in ANSWER.splitlines() if text.startswith(name)) for name in ("# px", "chat,gw--chat-1")
    )
    columns = heading[2:].split(",")
    fields = line.split(",")
    for number, name in enumerate(("hrsp_5xx", "econ", "eresp", "cli_abrt", "hrsp_4xx", "wretr", "wredis")):
        fields[columns.index(name)] = str(10**number)
    server = read_view(ANSWER.replace(line, ",".join(fields))).servers["gw--chat-1"]
    assert (server.errors, server.retries, server.redispatches) == (111, 10**5, 10**6)


def test_a_sick_server_that_stays_in_service_says_why():
    """As HAProxy 2.6.12 gives the agent's text: ``via agent : up (TEXT)``."""
    lines = ANSWER.splitlines()
    heading = next(line for line in lines if line.startswith("# pxname,"))
    line = next(line for line in lines if line.startswith("chat,gw--chat-1,"))
    fields = line.split(",")
    fields[heading[2:].split(",").index("last_agt")] = '"via agent : up (sick, and the service needs it: xid 64)"'
    server = read_view(ANSWER.replace(line, ",".join(fields))).servers["gw--chat-1"]
    assert (server.up, server.why) == (True, "sick, and the service needs it: xid 64")


def test_a_server_that_stops_in_order_says_so():
    """It answers 404, for which HAProxy 2.6.12 has L7OKC: no fault, and not a check that passed."""
    answer = ANSWER.replace("L7STS,", "L7OKC,").replace(",Service Unavailable,", ",Layer7 check conditionally passed,")
    assert answer != ANSWER
    assert read_view(answer).servers["gw--chat-2"].why == "stopping (systemctl stop or a reboot)"


def test_a_comma_in_what_a_check_says_moves_no_column():
    answer = ANSWER.replace(",Service Unavailable,", ',"Service ""x"", unavailable",')
    assert read_view(answer).servers["gw--chat-2"].why == 'L7STS: Service "x", unavailable'


def test_a_port_that_is_none_is_refused():
    with pytest.raises(StateError, match="srv_port: found 408911, expected a port up to 65535"):
        read_view(ANSWER.replace(" 40891 ", " 408911 "))


def test_an_address_with_colons():
    answer = ANSWER.replace("gw--chat-1 127.0.0.1", "gw--chat-1 fd00::5")
    assert read_view(answer).servers["gw--chat-1"].address == "[fd00::5]:40891"


@pytest.mark.parametrize("length", range(0, len(ANSWER) - 1, 97))
def test_half_an_answer_is_none(length):
    with pytest.raises(StateError, match=r"is incomplete|is invalid"):
        read_view(ANSWER[:length])


def test_an_answer_without_a_column_is_refused():
    with pytest.raises(StateError, match="eresp"):
        read_view(ANSWER.replace(",eresp,", ",x,"))
    with pytest.raises(StateError, match="Start_time_sec"):
        read_view(ANSWER.replace("Start_time_sec", "Start"))


@pytest.mark.parametrize("text", ["", "\n", "1\n", "1\n# be_id be_name\n4 chat\n", "nonsense\nmore\nlines"])
def test_a_kept_state_that_cannot_be_read_keeps_nothing(text):
    assert read_kept_states(text) == {}


def test_what_an_engine_says_is_shown_without_its_control_characters():
    answer = ANSWER.replace("Service Unavailable", "Gone\x1b]0;x\x07 \u202e" + "x" * 500)
    second = list(read_view(answer).servers.values())[1]
    assert second.why.startswith("L7STS: Gone?]0;x? ?xxx") and len(second.why) < 200


PIECES = (
    "",
    ",",
    '"',
    "\n",
    "\n\n",
    " ",
    "\0",
    "\x1b[31m",
    "\u0661",
    "\u00b2",
    "-1",
    "9" * 5000,
    "nan",
    "gw--chat-1",
    "0x08",
    "# be_id ",
)


def damaged(chosen, text):
    """Return a text with some of its parts cut, doubled, moved or replaced."""
    for _n in range(chosen.randint(1, 6)):
        at, length = chosen.randrange(len(text) + 1), chosen.choice((0, 1, 5, 200))
        part = text[at : at + length]
        text = text[:at] + chosen.choice((*PIECES, part * 2, part[::-1])) + text[at + length :]
    return text


def test_no_answer_of_haproxy_ends_in_a_traceback_or_shows_control_characters():
    chosen = random.Random(20261123)
    read = 0
    for _n in range(1500):
        text = damaged(chosen, ANSWER)
        try:
            view = read_view(text)
        except StateError as exc:
            assert str(exc).isprintable() and len(str(exc)) < 400, exc
            continue
        read += 1
        for server in view.servers.values():
            assert server.why.isprintable()
            assert (server.name + server.backend + server.host).isprintable()
    assert 100 < read < 1400
    for _n in range(500):
        states = read_kept_states(
            damaged(chosen, ANSWER[ANSWER.index("\n1\n# be_id") + 1 : ANSWER.index("\n# pxname")])
        )
        assert set(states.values()) <= {"ready", "drain", "maint"}
