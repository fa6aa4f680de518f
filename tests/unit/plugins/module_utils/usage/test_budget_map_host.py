# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy's map of budgets that are used up."""

from __future__ import annotations

import socketserver
import threading

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.usage.budget_map_host import BudgetMap
from ansible_collections.baremetal.inference.plugins.module_utils.usage.budgets import Budgets

from tests.fakes.usage_records import NOW


class Socket(socketserver.StreamRequestHandler):
    def handle(self):
        command, _map, path, *words = self.rfile.readline().decode().split()
        assert path == "/over.map"
        found = self.server.map
        if command == "show":
            self.wfile.write("".join(f"0x1 {name} {value}\n" for name, value in found.items()).encode())
        elif command == "del":
            del found[words[0]]
        elif (command == "set") != (words[0] in found):
            # As HAProxy: it adds a second entry, or changes none.
            self.wfile.write(b"entry not found.\n" if command == "set" else b"'add map': a second entry.\n")
        else:
            found[words[0]] = words[1]


@pytest.fixture
def haproxy(tmp_path):
    server = socketserver.UnixStreamServer(str(tmp_path / "stats.sock"), Socket)
    server.map = {"bob": "1|client|bob|5|day"}
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def budgets():
    found = Budgets({"alice": {"day": 5}})
    found.load(lambda _since: [("alice", "", 9)], NOW)
    return found


def test_the_map_has_those_whose_budget_is_used_up_and_nobody_else(haproxy):
    found = BudgetMap(budgets(), "/over.map", haproxy.server_address)
    found.sync(NOW)
    assert list(haproxy.map) == ["alice"] and found.fault == "" and found.synced_at > 0


def test_what_the_map_says_of_an_owner_follows_the_budget(haproxy):
    haproxy.map["alice"] = "1|client|alice|4|day"
    found = BudgetMap(budgets(), "/over.map", haproxy.server_address)
    found.sync(NOW)
    assert found.fault == "" and haproxy.map == {"alice": budgets().over(NOW)["alice"]}


def test_a_haproxy_that_does_not_answer_is_reported_once(tmp_path, capsys):
    found = BudgetMap(budgets(), "/over.map", str(tmp_path / "none"))
    for _time in range(3):
        found.sync(NOW)
    assert capsys.readouterr().out.count("budgets are not enforced") == 1 and found.synced_at == 0
