# SPDX-License-Identifier: GPL-3.0-or-later
"""The service of a gateway that stores tokens, serves their counters and enforces budgets.

A thread for each instance reads all its records, whichever gateway served the request, so every gateway has all
figures, and none is lost with a gateway. How far it has read is stored in the same transaction, so a record counts
once. While the database is full or locked the records wait at the instances. A gap in the numbers of a process is
stored too.
"""

import os
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any, Mapping

from ..common.bounded_server_host import BoundedServer
from ..common.files_host import text_of
from ..common.loop_host import Loop
from ..common.passed_socket_host import listen
from .budget_map_host import BudgetMap
from .budgets import Budgets
from .counters import Counters
from .follow_host import PAUSE, Follower
from .record import INSTANCE
from .rights_host import Rights
from .store_host import Store

# Seconds for which a page is that of all who ask.
PAGE_EVERY = 1.0


class UsageService:
    """``config`` is that of gateway-usage.py."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.store = Store(config["database"], config["months"])
        self.counters = Counters(config["gateway"])
        self.making, self.made, self.made_at = threading.Lock(), b"", -PAGE_EVERY
        self.budgets = Budgets(config["budgets"])
        self.map = BudgetMap(self.budgets, config["map"], config["stats"])
        # A map of HAProxy, empty where there is no secret.
        keys = dict(line.split(" ", 1) for line in text_of(config["secret"]).splitlines() if " " in line)
        rights = Rights(os.path.dirname(config["map"]), config["gateway"], config["gateways"])
        common = (self.store, self.counters, self.budgets, rights, config.get("log", False))
        self.followers = [
            Follower(address, server, keys.get(f"{INSTANCE}:{server['name']}", ""), *common)
            for address, server in config["servers"].items()
        ]

    def start(self) -> None:
        """Start all loops, once the database tells what was used before."""
        before = Loop("budgets", self._load, PAUSE)
        while before.once():
            time.sleep(PAUSE)
        if self.budgets.limits:
            Loop("budgets", self.map.step, PAUSE).start()
        for each in self.followers:
            Loop(each.server, each.step, PAUSE).start()

    def _load(self) -> float:
        self.budgets.load(self.store.used, int(time.time()))
        return 0.0

    def page(self) -> bytes:
        """Return the page for Prometheus; it is made once a second at most, and all who ask get it."""
        with self.making:
            if time.monotonic() >= self.made_at + PAGE_EVERY:
                self.made, self.made_at = self.text().encode(), time.monotonic()
            return self.made

    def text(self) -> str:
        """Return a new page."""
        text = self.counters.text(not self.store.fault) + self.budgets.text(int(time.time()))
        if self.budgets.limits:
            text += "# TYPE inference_usage_budgets_timestamp_seconds gauge\n"
            text += f"inference_usage_budgets_timestamp_seconds {self.map.synced_at:.0f}\n"
        return text


class Page(BaseHTTPRequestHandler):
    """Answers Prometheus."""

    timeout = 5

    def do_GET(self) -> None:
        """Send the counters."""
        known = self.path == "/metrics/usage"
        body = self.server.usage.page() if known else b""  # type: ignore[attr-defined]
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        """Log nothing."""


def serve(config: Mapping[str, Any]) -> None:
    """Follow all instances until the unit stops."""
    service = UsageService(config)
    threading.Thread(target=service.start, daemon=True).start()
    with BoundedServer(("127.0.0.1", config["port"]), Page, bind_and_activate=False) as server:
        server.socket.close()
        server.socket = listen("127.0.0.1", config["port"])
        server.usage = service  # type: ignore[attr-defined]
        server.serve_forever()
