# SPDX-License-Identifier: GPL-3.0-or-later
"""Replicas that follow the load, under a real systemd: the role's own units and programs, with their confinement.

    pytest -m lab tests/integration/test_scale_unit.py

It needs podman and root. A real HAProxy with its agent is in front of one host: chat-2 stops and starts, and small
shares its chips with other, so it sleeps and wakes. vLLM is replaced by an engine behind the real middleware.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import h11
import pytest
import uvicorn
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.engine_secret import door_keys

from tests.fakes.gateways import KEY as CLIENT_KEY
from tests.fakes.gateways import client, gateway, until
from tests.fakes.gateways import plan as gateway_plan
from tests.integration import test_residents_unit as residents
from tests.integration.test_gateway_scale import Load, start_agent

pytestmark = [pytest.mark.long, pytest.mark.lab]

ROOT = Path(__file__).resolve().parents[2]
PORTS = {"chat": 8001, "chat-2": 8002, "small": 8003, "small-2": 8004, "other": 8005}
SHARING, SCALED = ("small", "other"), ("chat-2", "small")
SECRET = "s" * 40
VARIABLES = {
    **residents.VARIABLES,
    "vllm_secrets": {},
    "__vllm_config_dir": "/etc/vllm",
}
RENDER = residents.RENDER.replace('"availability")', '"availability", "vllm-scale")').replace(
    "print(json.dumps(found))",
    """
text = templates.render("vllm-scale.service.j2", {"name": "", "plan": {}}, variables)
unit = {"owner": "root", "group": "root", "mode": "0644", "text": text}
found["/etc/systemd/system/vllm-scale.service"] = unit
print(json.dumps(found))
""",
)
# An engine with metrics that needs no key; those with their own chips take none of the shared ones.
ENGINE = residents.ENGINE.replace(
    "sleeping_engine.SleepingEngine = Engine",
    """
    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            scope = {**scope, "headers": [(b"authorization", f"Bearer {sleeping_engine.KEY}".encode())]}
            if scope["path"] == "/metrics":
                text = "".join(f"vllm:num_requests_{name} {count}\\n" for name, count in
                               (("running", self.running), ("waiting", 0)))
                return await sleeping_engine.answer(send, text.encode())
            if scope["path"] == "/v1/chat/completions":
                scope["path"] = "/v1/completions"
        return await super().__call__(scope, receive, send)

class Own(Engine):
    def take_chips(self):
        pass

sleeping_engine.SleepingEngine = Engine if "RESIDENTS" in os.environ else Own
""",
).replace(", port)\n", ', port, "0.0.0.0")\n')
ENGINE = ENGINE.replace('assert os.environ["VLLM_SERVER_DEV_MODE"] == "1" and ', "assert ")


def plan(name: str) -> dict[str, Any]:
    """Return the plan of an instance, as far as its files need it."""
    found = residents.plan("a")
    env = {**found["env"], "HOME": f"/var/cache/vllm/{name}", "AVAILABILITY_DIRECTORY": f"/run/vllm/{name}"}
    shares = {"residents": "gpu0"} if name in SHARING else {}
    found = {key: value for key, value in found.items() if key != "residents"}
    if not shares:
        env = {key: value for key, value in env.items() if key not in ("RESIDENTS", "OPERATOR_GUARD")}
    return {
        **found, **shares, "instance": name, "replica_of": name.removesuffix("-2"), "env": env, "secrets": [],
        "config": {"host": "0.0.0.0", "port": PORTS[name]}, "launch": ["/usr/bin/python3", "/opt/engine.py", name],
    }  # fmt: skip


class Host(residents.Host):
    def install(self) -> None:
        command = [sys.executable, "-c", RENDER, str(ROOT / ".collections"), str(ROOT / "roles/vllm/files")]
        given = json.dumps([[plan(name) for name in PORTS], VARIABLES])
        done = subprocess.run(command, input=given, check=True, stdout=subprocess.PIPE, text=True)
        self.sh("useradd --system --home-dir /var/lib/vllm --shell /usr/sbin/nologin vllm")
        self.sh(f"python3 -c '{residents.WRITE}'", input=done.stdout)
        for package in (uvicorn, h11, click):
            place = Path(package.__file__).parent
            self.copy(place, f"/opt/site/{place.name}")
        self.copy(ROOT / "tests/fakes/sleeping_engine.py", "/opt/lab/tests/fakes/sleeping_engine.py")
        self.sh("cat > /opt/engine.py", input=ENGINE)
        chips = residents.CHIPS
        self.sh(f"mkdir -m 1777 {chips} {chips}/chips; install -m 666 /dev/null {chips}/faults")
        for name in PORTS:
            self.sh(f"mkdir -p /var/lib/vllm/{name}/model; echo '{{}}' > /var/lib/vllm/{name}/model/config.json")
            self.sh(f"echo 0.5 > {chips}/{name}.takes")
        instances = {name: {"resident": name in SHARING} for name in SCALED}
        config = {"host": "gw", "listen": "0.0.0.0", "instances": instances}
        self.sh("cat > /etc/vllm/scale.json", input=json.dumps(config))
        self.sh("umask 077; cat > /etc/vllm/scale.key", input=door_keys(SECRET, "gw"))
        self.sh("systemctl daemon-reload")
        self.sh("systemctl start vllm-scale " + " ".join(f"vllm@{name}" for name in PORTS))
        self.address = self.sh("hostname -I").split()[0]

    def state(self, name: str) -> str:
        return self.show(f"vllm@{name}", "ActiveState")

    def spare(self, name: str) -> bool:
        return self.sh(f"test -e /run/vllm/{name}/spare && echo yes || true") == "yes\n"

    def journal(self, *_units: str) -> str:
        return self.sh("journalctl -o short-precise --no-pager -n 200", check=False)


@pytest.fixture(scope="module")
def host() -> Any:
    lab = {**os.environ, "LAB_NAME": "scale", "LAB_SUBNET_PREFIX": "10.87.244"}
    subprocess.run([ROOT / "bin/lab", "up", "cpu-12"], env=lab, check=True)
    try:
        home = Path(os.environ.get("LAB_HOME", ROOT / ".lab"))
        found = Host("bminf-scale-cpu-12", {**lab, "CONTAINERS_CONF": str(home / "containers.conf")})
        found.install()
        yield found
    finally:
        subprocess.run([ROOT / "bin/lab", "down"], env=lab, check=True)


def test_replicas_stop_and_start_sleep_and_wake_with_the_load(host: Host, tmp_path: Path) -> None:
    scale = {"min": 1, "max": 2, "mode": "auto", "hosts": []}
    plans = {
        name: {
            **gateway_plan(
                PORTS[name], host.address, [service], service, instance=name, scale=scale, args={"max-num-seqs": 2}
            ),
            **({"residents": "gpu0"} if name in SHARING else {}),
        }
        for name, service in (("chat", "chat"), ("chat-2", "chat"), ("small", "small"), ("small-2", "small"))
    }
    with gateway(
        tmp_path, [], [client()], plans=plans, name="gw", secret=SECRET, options={"admission": "auto"}
    ) as running, start_agent(running, {"gw": f"{host.address}:8471"}, 6, fixed=("chat", "small-2")):
        # Nobody asks for anything: one of each leaves.
        until(lambda: host.state("chat-2") == "inactive" and host.spare("small"), 120)
        assert host.state("small") == "active"
        # Another model gets the chips of the one that is not needed.
        host.sh(f"echo x > {residents.CHIPS}/x")
        status = host.sh(
            "python3 -c 'import urllib.request as u; print(u.urlopen(u.Request("
            '"http://127.0.0.1:8005/v1/completions", b"x"), timeout=60).status)\''
        )
        assert status == "200\n"
        assert host.awake() == ["other"]

        began = time.monotonic()
        with Load(running, 5, "small") as load:
            until(lambda: host.awake() == ["small"] and int(running_requests(host, "small")) > 0)
            print(f"the replica that slept answered after {time.monotonic() - began:.1f} s")
        assert set(load.statuses) == {200}

        began = time.monotonic()
        with Load(running, 5, "chat") as load:
            until(lambda: int(running_requests(host, "chat-2")) > 0)
            print(f"the replica that was stopped answered after {time.monotonic() - began:.1f} s")
            # What a person does meanwhile counts.
        assert set(load.statuses) == {200}
        # And back, without a failed request.
        until(lambda: host.state("chat-2") == "inactive", 120)
        assert host.sh(f"cat {residents.CHIPS}/faults") == ""
        host.sh("systemctl start vllm@chat-2")
        until(lambda: host.state("chat-2") == "inactive", 120)


def running_requests(host: Host, name: str) -> str:
    """Return how many requests an engine has answered."""
    return host.sh(f"wc -l < {residents.CHIPS}/{name}.answered 2>/dev/null || echo 0").strip()


def test_the_confinement_of_the_door_is_in_force(host: Host) -> None:
    pid = host.show("vllm-scale", "MainPID")
    status = host.sh(f"cat /proc/{pid}/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    # CAP_SYS_ADMIN and CAP_DAC_OVERRIDE alone, no_new_privs, a filter of system calls.
    assert fields["CapEff"] == "0000000000200002"
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert "/etc" not in host.sh(
        f"nsenter -t {pid} -m sh -c 'for each in /etc /usr /run; do test -w $each && echo $each; done'"
    )
    assert CLIENT_KEY


PLAY = """
- hosts: cpu-12
  vars:
    gateway_secret: "{{ 'x' * 40 }}"
    vllm_plan: {scale: "{{ door if requested | bool else {} }}"}
    door: {host: gw, listen: 127.0.0.1, instances: {chat: {resident: false}}}
  tasks:
    - ansible.builtin.include_role: {name: baremetal.inference.vllm, tasks_from: scale}
"""
PLACES = (
    "/etc/systemd/system/vllm-scale.service", "/usr/local/lib/vllm-scale.py", "/usr/local/lib/vllm-scale",
    "/run/vllm-scale", "/etc/vllm/scale.key", "/etc/vllm/scale.json",
)  # fmt: skip


def test_the_role_installs_it_once_removes_all_of_it_and_check_mode_says_so(host: Host, tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text(PLAY)

    def play(requested: bool, *words: str) -> int:
        """Run the tasks of the role; return the number of changes."""
        command = [Path(sys.executable).parent / "ansible-playbook", "-i", ROOT / "inventories/lab/hosts.yml"]
        command += ["-l", "cpu-12", "-e", f"requested={requested}", *words, tmp_path / "play.yml"]
        lab = {"LAB_NAME": "scale", "LAB_SUBNET_PREFIX": "10.87.244", "ANSIBLE_NOCOLOR": "1"}
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **lab}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return int(done.stdout.rpartition("changed=")[2].split()[0])

    def there() -> list[str]:
        return [path for path in PLACES if host.sh(f"test -e {path} && echo yes || true")]

    play(False)
    for requested, paths, state in ((True, list(PLACES), "active"), (False, [], "inactive")):
        before = there()
        assert play(requested, "--check") > 0 and there() == before
        assert play(requested) > 0 and there() == paths
        assert host.show("vllm-scale", "ActiveState") == state
        assert play(requested) == play(requested, "--check") == 0
