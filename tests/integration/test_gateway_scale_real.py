# SPDX-License-Identifier: GPL-3.0-or-later
"""Replicas that follow the load, with a real vLLM on this CPU: one that sleeps, one that starts, and their tokens.

A real HAProxy with its agent and the service of tokens, the door of a host, the drain of a stop, and the program of
instances that share chips. systemd is replaced. On a CPU vLLM's sleep mode frees no memory, but it refuses nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance import scale_door_host
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import Listening
from ansible_collections.baremetal.inference.plugins.module_utils.instance.drain_host import Drain
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.engine_secret import door_keys

from tests.fakes import sleeping_engine
from tests.fakes.gateways import HAPROXY, client, free_port, gateway, plan, until
from tests.fakes.usage_service import service, stored
from tests.integration.real_engines import RealEngine
from tests.integration.test_gateway_scale import SECRET, Load, start_agent
from tests.integration.test_gateway_usage import total
from tests.parity.conftest import fetched
from tools.tiny_models.build import write
from tools.tiny_models.families import FAMILIES
from tools.vllm.fetch_vllm_release import environment

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy"),
]

# chat-3 and other share chips; other is no replica of the service.
OWN, SHARING = ("chat-1", "chat-2"), ("chat-3", "other")
REPLICAS = (*OWN, "chat-3")
# A busy machine starts a vLLM in minutes.
HANGS = 1500.0
DOWN_AFTER = 20.0
COUNTERS = {"prompt": "vllm:prompt_tokens_total", "completion": "vllm:generation_tokens_total"}


class Host(sleeping_engine.Host):
    """A host with a real vLLM for each instance."""

    def __init__(self, top: Path) -> None:
        super().__init__(top)
        self.python = fetched(environment)
        write(FAMILIES["llama"](), top / "model")
        for name in (*OWN, *SHARING):
            self.add(name)
        for name in OWN:
            (top / f"etc/{name}.env").write_text('A="b"\n')
        self.orders: list[tuple[str, str, float]] = []
        # When each started last, and what those that have stopped had counted.
        self.started: dict[str, float] = {}
        self.counted = dict.fromkeys(COUNTERS, 0)

    def start(self, name: str) -> None:
        invocation = uuid.uuid4().hex
        self.unit(name, "activating", "start-pre", invocation)
        if name in SHARING:
            assert self.run_helper("acquire", "chips0", name, str(HANGS)).wait(HANGS) == 0
        self.unit(name, "activating", "start", invocation)
        run = self.top / "run" / name
        run.mkdir(exist_ok=True)
        directory = self.top / "engines" / name
        directory.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (directory / "run").symlink_to(run)
        sharing = {"RESIDENTS": "chips0", "OPERATOR_GUARD": "1", "VLLM_SERVER_DEV_MODE": "1"}
        words = ("--max-num-seqs", "2", "--max-model-len", "1024")
        engine = RealEngine(
            self.python, directory, self.top / "model", REPLICAS.index(name) if name in REPLICAS else 3, words,
            sharing if name in SHARING else {}, self.ports[name],
        )  # fmt: skip
        engine.wait(HANGS)
        self.engines[name] = engine
        self.started[name] = time.monotonic()
        self.unit(name, "active", "running", invocation)

    def stop(self, name: str) -> None:
        """Stop an instance as its unit does: drain it, then end vLLM."""
        self.unit(name, "deactivating", "stop", "")
        drain = Drain(Listening("127.0.0.1", self.ports[name]), str(self.top / "run" / name))
        drain.behind_gateway = lambda: True  # type: ignore[method-assign]
        assert drain.run(60, 3) == "Stopping: no request runs"
        engine = self.engines.pop(name)
        for kind, counter in COUNTERS.items():
            self.counted[kind] += engine.counter(counter)
        engine.process.terminate()
        engine.process.wait(HANGS)
        for path in (self.top / "run" / name).iterdir():
            path.unlink()
        self.unit(name, "inactive", "dead", "")

    def end(self) -> None:
        for engine in self.engines.values():
            engine.process.terminate()
        for engine in self.engines.values():
            engine.process.wait(60)
        self.engines = {}
        super().end()

    def show(self, names: Any, _properties: Any) -> dict[str, dict[str, str]]:
        """Return what systemd shows of units."""
        found = {}
        for name in names:
            lines = (self.top / "units" / name).read_text().splitlines()
            since = str(int(self.started.get(name, 0) * 1e6))
            found[name] = {**dict(line.split("=", 1) for line in lines), "ActiveEnterTimestampMonotonic": since}
        return found

    def systemctl(self, verb: str, name: str) -> None:
        self.orders.append((verb, name, time.monotonic()))
        threading.Thread(target=getattr(self, verb), args=(name,), daemon=True).start()

    def works(self, name: str) -> bool:
        """Return whether an engine has a request at the moment."""
        return name in self.engines and self.engines[name].counter("vllm:num_requests_running") > 0

    def tokens(self, kind: str) -> int:
        """Return the tokens of all replicas, as vLLM counts them."""
        running = sum(self.engines[name].counter(COUNTERS[kind]) for name in REPLICAS if name in self.engines)
        return self.counted[kind] + running


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    found = Host(tmp_path / "host")
    top = found.top
    (top / "stopped").mkdir()
    (top / "stopped/chat-2").touch()
    (top / "etc/scale.key").write_text(door_keys(SECRET, "gw"))
    for name, value in (("KEYS_FILE", "etc/scale.key"), ("RUN_DIR", "run"), ("STOPPED_DIR", "stopped")):
        monkeypatch.setattr(scale_door_host, name, str(top / value))
    monkeypatch.setattr(scale_door_host, "show_instances", found.show)
    monkeypatch.setattr(scale_door_host, "_systemctl", found.systemctl)
    try:
        yield found
    finally:
        found.end()


@contextlib.contextmanager
def site(host: Host, top: Path) -> Any:
    """Yield a gateway in front of the replicas."""
    config = {
        "host": "gw", "listen": "127.0.0.1", "port": 0,
        "instances": {name: {"resident": name in SHARING} for name in REPLICAS},
    }  # fmt: skip
    door = scale_door_host.Door(config)
    threading.Thread(target=door.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    scale = {"min": 1, "max": 3, "mode": "auto", "hosts": []}
    plans = {}
    for name in REPLICAS:
        more = {"instance": name, "scale": scale, "args": {"max-num-seqs": 2}, "models": ("m",)}
        plans[name] = plan(host.ports[name], **more, **({"residents": "chips0"} if name in SHARING else {}))
    port = free_port()
    options = {"admission": "auto", "teams": {"product": {"class": "gold"}}, "tokens": True, "tokens_port": port}
    (top / "gw").mkdir()
    more = {"plans": plans, "name": "gw", "secret": SECRET, "options": options}
    with gateway(top / "gw", [], [client(team="product")], **more) as running:
        doors = {"gw": f"127.0.0.1:{door.server_address[1]}"}
        behind = [Behind(host.ports[name]) for name in REPLICAS]
        with start_agent(running, doors, DOWN_AFTER, "gw"), service(top, "gw", behind, port):
            yield running
    door.shutdown()
    door.server_close()


class Behind:
    """A server of the gateway, as the service of tokens needs it."""

    def __init__(self, port: int) -> None:
        self.port = port


def test_a_real_vllm_wakes_and_starts_with_the_load_and_its_tokens_are_counted(host: Host, tmp_path: Path) -> None:
    host.serve()
    starts = [threading.Thread(target=host.start, args=(name,)) for name in ("chat-1", *SHARING)]
    for each in starts:
        each.start()
    for each in starts:
        each.join(HANGS)
    follow(host, tmp_path)


def follow(host: Host, tmp_path: Path) -> None:
    """Let the replicas of a host follow a load, and compare the tokens."""
    before = {kind: host.tokens(kind) for kind in COUNTERS}
    with site(host, tmp_path) as running:
        until((host.top / "run/chat-3/spare").exists, HANGS)
        # Another model gets the chips of the one that is not needed.
        body = json.dumps({"model": "m", "prompt": "x", "max_tokens": 1})
        assert host.ask("other", "POST", "/v1/completions", body, {"Content-Type": "application/json"})[0] == 200
        until(lambda: host.status("chat-3")["asleep"] is True and running.state("gw--chat-3").startswith("NOLB"))

        load_body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 200}
        asked = json.dumps({**load_body, "ignore_eos": True}).encode()
        began = time.monotonic()
        statuses: list[int] = []
        with Load(running, 8, body=asked) as load:
            until(lambda: host.works("chat-3"), HANGS)
            print(f"the replica that slept had a request after {time.monotonic() - began:.1f} s")
            until(lambda: host.orders, HANGS)
            until(lambda: host.works("chat-2"), HANGS)
            took, start = time.monotonic() - host.started["chat-2"], host.started["chat-2"] - host.orders[0][2]
            print(f"the one that was stopped {took:.1f} s after its start of {start:.1f} s")
        statuses += load.statuses
        # A load that rises and falls faster than a replica leaves changes nothing.
        orders, spare = list(host.orders), (host.top / "run/chat-3/spare").exists()
        for _tooth in range(4):
            with Load(running, 8, body=asked) as load:
                time.sleep(DOWN_AFTER / 4)
            statuses += load.statuses
            time.sleep(DOWN_AFTER / 4)
        assert host.orders == orders and not spare and not (host.top / "run/chat-3/spare").exists()
        # Then one leaves after the other.
        until(lambda: (host.top / "run/chat-3/spare").exists() and "chat-2" not in host.engines, HANGS)
        assert [order[:2] for order in host.orders] == [("start", "chat-2"), ("stop", "chat-2")]
        assert set(statuses) == {200}
        until(lambda: sum(row["requests"] for row in stored(tmp_path, "gw")) == len(statuses))
        for kind in COUNTERS:
            assert total(stored(tmp_path, "gw"), kind) == host.tokens(kind) - before[kind], kind
        print(f"{len(statuses)} requests, all answered, and {host.tokens('completion') - before['completion']} tokens")
