# SPDX-License-Identifier: GPL-3.0-or-later
"""A firewall that drops packets delays no start: the real vLLM, with the variables of its plan, sends none.

It starts in a network of its own whose only way out swallows every packet, the name server's too. Needs root.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parity.conftest import fetched
from tools.tiny_models.build import write
from tools.tiny_models.families import FAMILIES
from tools.vllm.fetch_vllm_release import environment

pytestmark = pytest.mark.long

TOP = Path(__file__).resolve().parents[2]
# Packets leave through `out`; its other end is not their destination and drops them.
NETWORK = """
set -eu
echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
ip link set lo up
ip link add out type veth peer name drop
ip link set out up
ip link set drop up
ip address add 192.0.2.2/32 dev out
ip route add 192.0.2.1 dev out
ip neighbour add 192.0.2.1 lladdr 02:00:00:00:00:01 dev out nud permanent
ip route add default via 192.0.2.1
mount --bind "$1" /etc/resolv.conf
shift
exec "$@"
"""
# Prints how many packets have left before and after the health check answers, and after a name is asked for.
SERVE = """
import json, socket, subprocess, sys, time, urllib.request
def sent():
    shown = subprocess.check_output(["ip", "-s", "-j", "link", "show", "out"])
    return json.loads(shown)[0]["stats64"]["tx"]["packets"]
server = subprocess.Popen(sys.argv[1:], stdout=sys.stderr)
while server.poll() is None:
    try:
        urllib.request.urlopen("http://127.0.0.1:8000/health", timeout=5)
        break
    except OSError:
        time.sleep(1)
found = {"ended": server.poll(), "start": sent()}
try:
    socket.getaddrinfo("vllm.example", 443)
except OSError:
    pass
print(json.dumps({**found, "question": sent()}))
server.terminate()
server.wait(60)
"""


def planned_env(directory):
    """Return the variables that the plan of a CPU host gives vLLM."""
    inventory = directory / "hosts.yml"
    chat = {"recipe": "baremetal/gpt-oss-smoke", "release": "0.32.0"}
    hosts = {"cpu-1": {"accelerator": "cpu", "vllm_instances": {"chat": chat}}}
    inventory.write_text(json.dumps({"all": {"children": {"inference": {"hosts": hosts}}}}))
    playbook = [Path(sys.executable).with_name("ansible-playbook"), "-i", inventory, TOP / "playbooks/render.yml"]
    settings = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg")}
    subprocess.run([*playbook, "-e", f"render_dir={directory / 'plans'}"], cwd=TOP, env=settings, check=True)
    return json.loads((directory / "plans/cpu-1/chat/plan.json").read_text())["env"]


def test_a_start_sends_nothing(tmp_path):
    python = fetched(environment)
    write(FAMILIES["llama"](), tmp_path / "model")
    (tmp_path / "resolv.conf").write_text("nameserver 198.51.100.53\n")
    offline = {
        name: value for name, value in planned_env(tmp_path).items() if name.endswith(("OFFLINE", "TRACK", "STATS"))
    }
    assert len(offline) == 4
    words = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", tmp_path / "model", "--host", "127.0.0.1"]
    words += ["--port", "8000", "--dtype", "float32", "--enforce-eager", "--max-num-seqs", "4"]
    environ = {**os.environ, **offline, "HOME": str(tmp_path), "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    inside = ["unshare", "--net", "--mount", "sh", "-c", NETWORK, "sh", tmp_path / "resolv.conf"]
    done = subprocess.run(
        [str(word) for word in (*inside, python, "-c", SERVE, *words)],
        env=environ, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    found = json.loads(done.stdout or "{}")
    assert found.get("ended", 1) is None, done.stderr[-3000:]
    assert found["start"] == 0
    # The counter counts: a question to the name server does leave.
    assert found["question"] > 0
