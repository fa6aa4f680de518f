# SPDX-License-Identifier: GPL-3.0-or-later
"""A gateway on the loopback address: a real HAProxy with the role's template, in front of the servers of a test."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import weakref
from pathlib import Path
from typing import Any, Iterator

import jinja2
import yaml
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.clients import Client, map_text, maps_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.engine_secret import map_of_gateway
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.services import Backend, decide

TOP = Path(__file__).resolve().parents[2]
ROLE = TOP / "roles/gateway"
HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
KEY = "right-key-" + "0123456789abcdef" * 2


# Below the ephemeral ports of the kernel, each used once, and by one process of pytest-xdist.
_OWN = range(
    20000 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]),
    32000,
    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
)
_PORTS = iter(random.sample(_OWN, len(_OWN)))


def free_port() -> int:
    """Return a free port that no other test gets."""
    for port in _PORTS:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


# Seconds, for what hangs: a busy machine may take ten times as long as a quiet one.
HANGS = 120.0


@contextlib.contextmanager
def repeating(send, pause):
    """Call ``send`` again and again."""
    ended = threading.Event()

    def repeat():
        with contextlib.suppress(OSError):
            while not ended.wait(pause):
                send()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def until(condition: Any, seconds: float = HANGS) -> Any:
    """Wait for ``condition`` and return its value."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"not within {seconds} s: {condition}"
        time.sleep(0.05)


def early_in_a_minute(seconds: int) -> None:
    """Wait until so many seconds of a minute of the clock are left, by which requests of a client are counted."""
    left = 60 - time.time() % 60
    if left < seconds:
        time.sleep(left + 0.5)


def plan(port: int, host: str = "0.0.0.0", models: Any = ("baremetal/gpt-oss-smoke",), of: str = "chat", **more: Any):
    """Return the part of an instance's plan that a gateway reads."""
    return {
        "replica_of": of,
        "listen": {"host": host, "port": port},
        "argv": ["vllm", "serve"],
        "args": {},
        "secrets": [],
        "served_model_names": list(models),
        **more,
    }


def options(**more: Any) -> dict[str, Any]:
    """Return the options of a gateway on loopback without TLS."""
    return {
        "cluster": "", "port": 443, "services": {}, "min_available": 1, "listen": "127.0.0.1", "tls": "off",
        "insecure": False, "open": False, "clients": {"alice": {}}, "paths": [], "stats_port": 8404, "agent_port": 8405,
        "max_body": 64, "error_limit": 5, "models": {}, "inspect_kib": 64,
        "address": "", "interface": "", "tokens": False, "has_secret": True, "tokens_port": 8406, "teams": {},
        "admission": "off", "shares": {}, "certificate": "", "certificate_key": "", **more,
    }  # fmt: skip


def render(template: str, variables: dict[str, Any], role: Path = ROLE) -> str:
    """Render a template of a role with plain Jinja."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(role / "templates"), trim_blocks=True, keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined, autoescape=False,
    )  # fmt: skip
    environment.filters["comment"] = lambda text: f"# {text}"
    environment.filters["to_json"] = json.dumps
    environment.filters["bool"] = boolean
    environment.filters["regex_replace"] = lambda text, pattern, new: re.sub(pattern, new, text)
    return environment.get_template(template).render(ansible_managed="Ansible managed", **variables)


def program(name: str, *arguments: Any) -> tuple[list[Any], dict[str, str]]:
    """Return the command of a program of the role, and the environment where it finds the collection."""
    environ = {**os.environ, "PYTHONPATH": str(TOP / ".collections")}
    return [sys.executable, ROLE / "files" / f"{name}.py", *arguments], environ


def run_program(name: str, *arguments: Any) -> None:
    """Run a program of the role."""
    command, environ = program(name, *arguments)
    subprocess.run(command, env=environ, check=True)


class RunningGateway:
    """A running HAProxy with its paths and ports."""

    def __init__(self, directory: Path, ports: list[int], clients: list[Client], **more: Any) -> None:
        self.directory, self.clients, self.more = directory, clients, more
        self.ports = ports
        self.port, self.stats_port = free_port(), free_port()
        self.agent_port = more.pop("agent_port", None) or free_port()
        constants = yaml.safe_load((ROLE / "vars/main.yml").read_text())
        self.paths = {
            **constants["__gateway_paths"],
            **{name: str(directory / name) for name in ("maps", "secret", "socket", "stats", "state")},
            # HAProxy takes 97 characters for a socket, and the directories of tests may be longer.
            "chroot": tempfile.mkdtemp(prefix="gw-"),
        }
        weakref.finalize(self, shutil.rmtree, self.paths["chroot"], ignore_errors=True)
        self.paths["certificate"] = str(directory / "gateway.pem")
        for name in ("settle", "refuse", "hanging", "body", "admission", "await"):
            self.paths[name] = str(ROLE / f"files/gateway-{name}.lua")
        self.constants = {**constants, "__gateway_paths": self.paths}
        body = str(more.get("variables", {}).get("gateway_max_body", 64))
        for refusal in self.constants["__gateway_refusals"].values():
            for name, value in (
                ("gateway_max_body", body),
                ("__gateway_head_bytes", str(constants["__gateway_head_bytes"])),
            ):
                refusal[3] = refusal[3].replace(f"{{{{ {name} }}}}", value)
        self.log = directory / "haproxy.log"
        self.process: Any = None
        # HAProxy enters it as a user of its own.
        Path(self.paths["chroot"]).chmod(0o755)
        Path(self.paths["chroot"], "routed").mkdir()
        self.write()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def write(self) -> None:
        """Write configuration and maps."""
        more = {"port": self.port, "stats_port": self.stats_port, "agent_port": self.agent_port}
        requested = options(**{**more, **self.more.get("options", {})})
        plans = self.more.get("plans") or {f"chat-{n}": plan(p) for n, p in enumerate(self.ports, 1)}
        decided = decide(self.more.get("name", "gw"), [Backend("gw", "127.0.0.1", plans)], requested)
        variables = {
            "gateway_timeout": 3600, "gateway_max_body": 64, "gateway_slowstart": 0, "gateway_check_interval": 1,
            "gateway_inspect_kib": requested["inspect_kib"],
            "gateway_open": requested["open"], "gateway_tls": requested["tls"],
            "gateway_admission": requested["admission"],
            "gateway_access_log": "text", "__gateway_host": {"memory_kib": 2 * 1024 * 1024},
            "gateway_tokens": requested["tokens"], "gateway_tokens_port": requested["tokens_port"],
            "gateway_stats_listen": "127.0.0.1", "gateway_stats_port": self.stats_port,
            "gateway_agent_port": self.agent_port, **self.more.get("variables", {}),
        }  # fmt: skip
        (self.directory / "haproxy.cfg").write_text(
            render("haproxy.cfg.j2", {**self.constants, **variables, "__gateway_plan": decided})
        )
        maps = self.directory / "maps"
        maps.mkdir(exist_ok=True)
        for name, entries in maps_of(self.clients).items():
            (maps / name).write_text(map_text(entries))
        (maps / "over.map").touch()
        # As the role writes it.
        (self.directory / "secret").write_text(map_of_gateway(self.more.get("secret", ""), decided))
        self.decided = decided

    def check(self) -> str:
        """Return HAProxy's output for the configuration, which must be valid."""
        done = subprocess.run(
            [HAPROXY, "-c", "-f", str(self.directory / "haproxy.cfg")], check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    def start(self) -> None:
        with self.log.open("ab") as log:
            words = [HAPROXY, "-W", "-S", str(self.directory / "master"), "-f", str(self.directory / "haproxy.cfg")]
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        until(self.answers)

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self.tell("show info"))
        return False

    def stop(self) -> None:
        if self.process:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(HANGS)
            self.process = None

    def tell(self, command: str) -> str:
        """Return the answer to a command on the admin socket."""
        with socket.socket(socket.AF_UNIX) as admin:
            admin.settimeout(HANGS)
            admin.connect(self.paths["socket"])
            admin.sendall(command.encode() + b"\n")
            return b"".join(iter(lambda: admin.recv(65536), b"")).decode()

    def state(self, server: str) -> str:
        """Return HAProxy's name for the state of a server: UP, DOWN, DRAIN ..."""
        return self.stat(server, "status")

    def stat(self, server: str, name: str) -> str:
        """Return one of HAProxy's counters of a server."""
        return {row["svname"]: row[name] for row in self.stats()}[server]

    def stats(self) -> list[dict[str, str]]:
        """Return HAProxy's counters of the servers of chat, and of it as a whole."""
        rows = csv.DictReader(self.tell("show stat").removeprefix("# ").splitlines())
        return [row for row in rows if row["pxname"] == "chat"]

    def save(self) -> None:
        """Save the server states as the unit does before a reload and a stop."""
        config = str(self.directory / "haproxy.cfg")
        run_program("gateway-tool", "save", self.paths["socket"], self.paths["state"], config)

    def reload(self) -> None:
        """Save the server states and reload, as the unit does."""
        self.save()
        run_program("gateway-tool", "replace", self.paths["socket"], str(self.process.pid))

    def ask(self, method: str, path: str, key: str | None = None, body: bytes | None = None, **headers: str):
        """Return status, headers and body of an answer."""
        given = {"Authorization": f"Bearer {key}"} if key else {}
        if method == "POST" and body is None:
            body = json.dumps({"model": "m", "messages": []}).encode()
        request = urllib.request.Request(f"{self.url}{path}", body, {**given, **headers}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code, dict(exc.headers), exc.read()


def client(name: str = "alice", key: str = KEY, **limits: int) -> Client:
    return Client(name, (hashlib.sha256(key.encode()).hexdigest(),), **limits)


@contextlib.contextmanager
def gateway(directory: Path, ports: list[int], clients: Any = None, **more: Any) -> Iterator[RunningGateway]:
    found = RunningGateway(directory, ports, [client()] if clients is None else clients, **more)
    found.check()
    found.start()
    try:
        yield found
    finally:
        found.stop()


__all__ = [
    "HANGS", "HAPROXY", "KEY", "RunningGateway", "client", "early_in_a_minute", "gateway", "options", "os", "plan",
    "render", "until",
]  # fmt: skip
