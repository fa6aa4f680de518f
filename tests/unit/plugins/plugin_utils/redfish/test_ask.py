# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import logging
import subprocess
import sys
import time

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish import ask as _bmcs
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish import service as _redfish_http
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.ask import Bmc, Limits, ask_bmcs
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.chips import RedfishError
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.service import base_url

from tests.fakes.redfish_machines import ROOT, hgx, ilo, plain
from tests.fakes.redfish_server import (
    FAULTS,
    PASSWORD,
    USERNAME,
    Machine,
    RedfishServer,
    authority,
    bomb,
    read_mockup,
    write_mockup,
)

# What is said of each fault, with answers within 10 s.
REASONS = {
    "hang": "no answer within 10 s",
    "silent": "no answer within 10 s",
    "trickle": "no answer within 10 s",
    "trickle headers": "no answer within 10 s",
    "close": "closed the connection without an answer",
    "no http": "no TLS connection: ",
    "html": "no Redfish: /redfish/v1/ is not a JSON object but text/html",
    "cut": "no Redfish: /redfish/v1/ is not a JSON object",
    "list": "no Redfish: /redfish/v1/ is not a JSON object",
    "empty": "no Redfish: /redfish/v1/ is not a JSON object",
    "types": "/redfish/v1/: Systems is not a link",
    "huge": "an answer is larger than 2 MiB",
    "endless": "an answer is larger than 2 MiB",
    "bomb": "an answer is larger than 2 MiB",
    "deep": "no Redfish: /redfish/v1/ is not a JSON object",
    "redirects": "redirects endlessly",
    "elsewhere": "redirects to another service",
    "pages": "its lists lead to more than 500 documents",
    "many members": "/redfish/v1/Systems lists more than 1000 Members",
    "cycle": "/redfish/v1/Systems lists an entry that is not a system: it has no Id",
    "charset": "no Redfish: /redfish/v1/ is not a JSON object but text/plain",
    "much": "its answers have more than 8 MiB in all",
    "much packed": "its answers have more than 8 MiB in all",
    "parts": "its answers have more than 8 MiB in all",
}


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """Return a function that starts machines, by address, and returns the server and limits that trust it."""
    running = []

    def start(machines):
        ca_file, tls = authority(tmp_path_factory.mktemp("tls"), list(machines))
        server = RedfishServer(machines, tls)
        running.append(server)
        server.__enter__()
        return server, str(ca_file)

    yield start
    for server in running:
        server.__exit__()


def ask(server, ca_file, password=PASSWORD, **limits):
    bmcs = [Bmc(address, server.address(address), USERNAME, password) for address in server.machines]
    return ask_bmcs(bmcs, Limits(ca_file=ca_file, **limits))


class TestFaults:
    def test_all_have_a_reason_written_down(self):
        assert set(REASONS) == set(FAULTS)

    @pytest.mark.slow
    def test_each_is_one_reason_and_spoils_nobody_else(self, serve):
        bomb()
        machines = {f"127.11.0.{number}": Machine(plain(6), fault) for number, fault in enumerate(FAULTS, 1)}
        machines["127.11.1.1"] = Machine(hgx())
        server, ca_file = serve(machines)
        began = time.monotonic()
        answers = ask(server, ca_file, timeout=10, deadline=40)
        assert time.monotonic() - began < 90
        assert [answer.host for answer in answers] == list(machines)
        assert answers[-1].found is not None
        assert answers[-1].found.ids == {"10de:2335": 8}
        wrong = {
            fault: answer.reason
            for fault, answer in zip(FAULTS, answers)
            if answer.found or not (answer.reason or "").startswith(REASONS[fault])
        }
        assert not wrong

    @pytest.mark.parametrize("fault", ["much", "much packed", "parts"])
    def test_what_one_sends_in_all_is_bounded_because_one_loop_reads_all_of_them(self, serve, fault):
        server, ca_file = serve({"127.11.5.1": Machine(plain(), fault)})
        (answer,) = ask(server, ca_file, timeout=30, deadline=60)
        assert answer.reason == REASONS[fault]
        assert len(server.machines["127.11.5.1"].log) < 12

    @pytest.mark.parametrize(
        ("path", "fault", "said"),
        [
            ("/Systems", "html", "no Redfish: /redfish/v1/Systems is not a JSON object but text/html"),
            ("/Systems/Self/Processors", "cut", "no Redfish: /redfish/v1/Systems/Self/Processors is not a JSON object"),
            ("/Chassis/Self", 503, "answered /redfish/v1/Chassis/Self with HTTP 503"),
            ("/Systems", 403, "refused user 'admin' (403)"),
        ],
    )
    def test_deeper_down(self, serve, path, fault, said):
        server, ca_file = serve({"127.11.2.1": Machine(hgx(), faults={f"{ROOT}{path}": fault})})
        (answer,) = ask(server, ca_file)
        assert (answer.found, answer.reason) == (None, said)

    def test_a_service_that_cannot_expand_after_all(self, serve):
        documents = ilo()
        server, ca_file = serve({"127.11.3.1": Machine(documents)})
        real, machine = _redfish_http.Service._request, server.machines["127.11.3.1"]

        async def refusing(self, path):
            answer = await real(self, path)
            if "expand" in path:
                answer._status = 501
            return answer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_redfish_http.Service, "_request", refusing)
            (answer,) = ask(server, ca_file)
        assert answer.reason is None
        assert any("expand" in path for _method, path in machine.log)

    def test_nothing_listens_there(self, tmp_path):
        (answer,) = ask_bmcs([Bmc("a", "127.11.4.1:9", USERNAME, PASSWORD)], Limits(verify=False))
        assert answer.reason == "no connection: connection refused"

    def test_no_such_name(self):
        (answer,) = ask_bmcs([Bmc("a", "bmc.invalid", USERNAME, PASSWORD)], Limits(verify=False))
        assert answer.reason in ("its address is not known to the name service", "no answer within 4 s")


class TestAccounts:
    def test_a_wrong_password_is_tried_once(self, serve):
        server, ca_file = serve({"127.12.0.1": Machine(hgx())})
        (answer,) = ask(server, ca_file, password="wrong")
        assert answer.reason == "refused user 'admin' (401)"
        machine = server.machines["127.12.0.1"]
        assert machine.logins == 0
        assert sum(1 for _method, path in machine.log if path.startswith(f"{ROOT}/Systems")) == 1

    def test_a_session_where_basic_authentication_is_off_and_it_is_given_back(self, serve):
        server, ca_file = serve({"127.12.1.1": Machine(hgx(), auth="session")})
        (answer,) = ask(server, ca_file)
        machine = server.machines["127.12.1.1"]
        assert (answer.reason, machine.logins, machine.sessions) == (None, 1, set())

    @pytest.mark.slow
    def test_a_session_that_was_being_made_when_the_time_was_over_is_given_back(self, serve, monkeypatch):
        # For a machine that does much else: the login begins late, or what gives it back does.
        monkeypatch.setattr(_redfish_http, "LOGOUT", 30.0)
        server, ca_file = serve({"127.12.2.1": Machine(hgx(), auth="session", login_delay=7)})
        (answer,) = ask(server, ca_file, timeout=20, deadline=6)
        machine = server.machines["127.12.2.1"]
        assert answer.reason == "did not answer all requests within 6 s"
        assert (machine.logins, machine.sessions) == (1, set())

    def test_a_wrong_password_of_a_session(self, serve):
        server, ca_file = serve({"127.12.3.1": Machine(hgx(), auth="session")})
        (answer,) = ask(server, ca_file, password="wrong")
        assert answer.reason == "refused user 'admin' (401)"

    def test_without_an_account(self, serve):
        server, ca_file = serve({"127.12.4.1": Machine(hgx(), auth="none"), "127.12.4.2": Machine(hgx())})
        bmcs = [Bmc(address, server.address(address)) for address in server.machines]
        free, closed = ask_bmcs(bmcs, Limits(ca_file=ca_file))
        assert free.found is not None
        assert closed.reason == "refused a question without an account (401)"

    @pytest.mark.slow
    def test_no_secret_in_reasons_representations_and_logs(self, serve, caplog):
        caplog.set_level(logging.DEBUG)
        machines = {f"127.13.0.{number}": Machine(plain(), fault) for number, fault in enumerate(FAULTS, 1)}
        machines.update({"127.13.1.1": Machine(plain()), "127.13.1.2": Machine(plain(), auth="session")})
        server, ca_file = serve(machines)
        said = repr(ask(server, ca_file, timeout=1, deadline=2)) + repr(ask(server, ca_file, password=f"{PASSWORD}!"))
        said += repr(Bmc("a", "b", USERNAME, PASSWORD)) + caplog.text
        said += repr(ask_bmcs([Bmc("a", f"https://{USERNAME}:{PASSWORD}@h", USERNAME, PASSWORD)], Limits()))
        assert PASSWORD not in said
        assert base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode().rstrip("=")[:-1] not in said


class TestCertificates:
    def test_an_unknown_authority_is_refused(self, serve):
        server, _ca_file = serve({"127.14.0.1": Machine(hgx())})
        (answer,) = ask(server, None)
        assert answer.reason.startswith("its TLS certificate is not trusted: unable to get local issuer certificate")
        assert server.machines["127.14.0.1"].log == []

    def test_a_certificate_of_another_host_is_refused(self, serve):
        server, ca_file = serve({"127.14.1.1": Machine(hgx())})
        (answer,) = ask_bmcs([Bmc("a", f"localhost:{server.port}", USERNAME, PASSWORD)], Limits(ca_file=ca_file))
        assert answer.found is None
        server.machines["127.14.1.1"].log.clear()
        (answer,) = ask_bmcs(
            [Bmc("a", f"https://127.14.1.1.:{server.port}", USERNAME, PASSWORD)], Limits(ca_file=ca_file)
        )
        assert answer.found is None

    def test_unless_told_not_to_look(self, serve):
        server, _ca_file = serve({"127.14.2.1": Machine(hgx())})
        (answer,) = ask(server, None, verify=False)
        assert answer.found is not None

    @pytest.mark.parametrize(("content", "why"), [(None, "No such file or directory"), ("x", "no PEM certificate")])
    def test_a_bad_file_of_authorities_is_named(self, tmp_path, content, why):
        file = tmp_path / "ca.pem"
        if content:
            file.write_text(content)
        with pytest.raises(RedfishError, match=f"ca.pem: cannot be read as certificates of an authority: {why}"):
            ask_bmcs([Bmc("a", "b", "c", "d")], Limits(ca_file=str(file)))


class TestTime:
    def test_many_wait_for_a_place(self, serve):
        machines = {f"127.15.0.{number}": Machine(plain(6)) for number in range(1, 31)}
        server, ca_file = serve(machines)
        answers = ask(server, ca_file, parallel=3)
        assert [answer.reason for answer in answers] == [None] * 30

    def test_the_deadline_holds_though_each_answer_is_in_time(self, serve):
        server, ca_file = serve({"127.15.1.1": Machine(plain(), delay=0.4)})
        began = time.monotonic()
        (answer,) = ask(server, ca_file, timeout=5, deadline=2)
        assert answer.reason == "did not answer all requests within 2 s"
        assert time.monotonic() - began < 60

    def test_a_name_look_up_that_hangs_does_not_keep_the_process(self):
        program = (
            "import socket, sys, time\n"
            "from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.ask import *\n"
            "socket.getaddrinfo = lambda *_args, **_words: time.sleep(60)\n"
            "print(ask_bmcs([Bmc('a', 'bmc.example', 'u', 'p')], Limits(timeout=1, deadline=2))[0].reason)\n"
        )
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=50,
            env={"PYTHONPATH": ":".join(sys.path)},
            check=False,
        )
        assert done.stdout.strip() == "no answer within 1 s", done.stderr
        assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("10.0.0.5", "https://10.0.0.5"),
        ("bmc-01.example:8443", "https://bmc-01.example:8443"),
        ("https://bmc-01/", "https://bmc-01"),
        ("2001:db8::1", "https://[2001:db8::1]"),
        ("[2001:db8::1]:444", "https://[2001:db8::1]:444"),
    ],
)
def test_addresses(address, url):
    assert base_url(address, with_password=True) == url


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("", "has no host name"),
        ("a b", "has no host name"),
        ("bmc:port", "is not a host, host:port or URL"),
        ("https://bmc/redfish/v1", "holds more than"),
        ("ftp://bmc", "holds more than"),
        ("http://bmc", "would send the password unencrypted"),
        ("https://root:calvin@bmc", "holds more than"),
    ],
)
def test_addresses_that_are_none(address, said):
    with pytest.raises(RedfishError, match=said) as raised:
        base_url(address, with_password=True)
    assert "calvin" not in str(raised.value)


def test_a_folder_in_dmtf_format_is_served(serve, tmp_path):
    write_mockup(tmp_path, hgx())
    server, ca_file = serve({"127.16.0.1": Machine(read_mockup(tmp_path))})
    (answer,) = ask(server, ca_file)
    assert answer.found is not None
    assert answer.found.ids["10de:2335"] == 8


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    _redfish_http.library.cache_clear()
    try:
        with pytest.raises(RedfishError, match=r"pip install 'redfish\[aiohttp\]'"):
            ask_bmcs([Bmc("a", "b", "c", "d")], Limits())
    finally:
        _redfish_http.library.cache_clear()


def test_nobody_to_ask():
    assert ask_bmcs([], Limits(ca_file="/nowhere")) == []
    assert _bmcs.Limits().parallel == 50
