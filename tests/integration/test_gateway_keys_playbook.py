# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/gateway_keys.yml as a person runs it, at a terminal; /etc/haproxy is a directory of the test."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from tests.fakes.gateways import HANGS, HAPROXY, free_port

TOP = Path(__file__).resolve().parents[2]
BINDS = ("/etc/haproxy", "/run/haproxy", "/etc/systemd/system")
pytestmark = pytest.mark.skipif(
    HAPROXY is None or os.geteuid() != 0 or not all(Path(path).is_dir() for path in BINDS),
    reason="needs root, haproxy and its directories",
)
SYSTEMCTL = """#!/bin/sh
echo "$*" >> %s
printf 'Id=gateway-usage.service\\nLoadState=loaded\\nActiveState=active\\nSubState=running\\n'
"""
CLIENTS = """---
gateway_clients:
  # The first one.
  alice: {sha256: ["%s"]}
""" % ("a" * 64)


@pytest.fixture
def site(tmp_path):
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    chat = {"chat": {"recipe": "baremetal/gpt-oss-smoke", "host": "0.0.0.0", "port": 8000}}
    ports = {f"gateway_{name}": free_port() for name in ("port", "stats_port", "agent_port", "tokens_port")}
    groups = {
        "inference": {"hosts": {"cpu-1": {"accelerator": "cpu", "vllm_release": "0.32.0", "vllm_instances": chat}}},
        "gateways": {
            "hosts": {"gw": local},
            "vars": {
                **ports, "gateway_listen": "127.0.0.1", "gateway_tls": "off", "gateway_tokens": True,
                "gateway_teams": {"finance": {"tokens_per_day": 1000}},
            },
        },
    }  # fmt: skip
    (tmp_path / "site/group_vars").mkdir(parents=True)
    (tmp_path / "site/hosts.json").write_text(json.dumps({"all": {"children": groups}}))
    (tmp_path / "site/group_vars/gateways.yml").write_text(CLIENTS)
    for path in BINDS:
        (tmp_path / path.replace("/", "_")).mkdir()
    (tmp_path / "_etc_haproxy/maps").mkdir()
    (tmp_path / "_etc_haproxy/haproxy.cfg").write_text("/etc/haproxy/maps/over.map\n")
    (tmp_path / "_etc_systemd_system/gateway-usage.service").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(SYSTEMCTL % (tmp_path / "systemctl.log"))
    (tmp_path / "bin/systemctl").chmod(0o755)
    return tmp_path


def play(site, *words, terminal=True, **variables):
    """Run the playbook with its output in a pipe; return its status, this output and what the terminal shows."""
    mounts = " && ".join(f"mount --bind {site / path.replace('/', '_')} {path}" for path in BINDS)
    command = [
        "unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh", sys.executable, "-m", "ansible", "playbook",
        str(TOP / "playbooks/gateway_keys.yml"), "-i", str(site / "site"), "-e", json.dumps(variables), *words,
    ]  # fmt: skip
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("CI", "RUNNER_OMIT_EVENTS")},
        "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_LOCAL_TEMP": str(site / "tmp"), "ANSIBLE_NOCOLOR": "1",
        "PATH": f"{site / 'bin'}:{os.environ['PATH']}",
        "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_LOG_PATH": str(site / "ansible.log"),
    }  # fmt: skip
    ours, theirs = pty.openpty()
    shown = []

    def read():
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                return
            if not part:
                return
            shown.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    streams = {"stdin": theirs, "stderr": theirs} if terminal else {"stdin": subprocess.DEVNULL, "stderr": -2}
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=False, text=True, cwd=TOP, **streams)
    os.close(theirs)
    reader.join(HANGS)
    os.close(ours)
    return done.returncode, done.stdout, b"".join(shown).decode()


def known(site, name):
    path = site / "_etc_haproxy/maps" / name
    return path.read_text() if path.exists() else ""


def inventory(site):
    return (site / "site/group_vars/gateways.yml").read_text()


def test_a_key_is_made_listed_and_ended(site):
    made = {"gateway_keys_make": "reports", "gateway_keys_team": "finance", "gateway_keys_expires": "2099-03-31"}
    rc, said, shown = play(site, "--check", "--diff", **made)
    assert rc == 0 and "(sha256 of the new key)" in said and "+reports: keys 1" in said, said + shown
    assert "reports would be added" in said
    assert inventory(site) == CLIENTS and known(site, "clients.map") == ""
    rc, said, shown = play(site, "--diff", "-vvv", **made)
    assert rc == 0, said + shown
    (key,) = re.findall(r"^ {4}([0-9a-f]{64})\r?$", shown, re.M)
    digest = hashlib.sha256(key.encode()).hexdigest()
    assert yaml.safe_load(inventory(site))["gateway_clients"]["reports"] == {
        "sha256": [digest], "team": "finance", "expires": "2099-03-31",
    }  # fmt: skip
    assert inventory(site).startswith(CLIENTS)
    assert f"{digest} reports" in known(site, "clients.map") and "reports 4078684800" in known(site, "ends.map")
    # On the terminal alone.
    texts = [said, (site / "ansible.log").read_text()]
    texts += [
        path.read_text() for top in ("site", "_etc_haproxy") for path in (site / top).rglob("*") if path.is_file()
    ]
    assert [text for text in texts if key in text] == []
    rc, said, shown = play(site)
    assert rc == 0 and re.search(r"reports +finance +all +1 +2099-03-31", said), said + shown
    assert "changed=0" in said
    rc, said, shown = play(site, **made)
    assert rc and "gateway_clients has reports already" in said + shown
    rc, said, shown = play(site, "--check", gateway_keys_end="reports")
    assert rc == 0 and digest in known(site, "clients.map") and digest in inventory(site), said + shown
    rc, said, shown = play(site, gateway_keys_end="reports")
    assert rc == 0 and inventory(site) == CLIENTS and "reports" not in known(site, "clients.map"), said + shown


def test_the_command_that_makes_a_key_puts_the_budgets_into_force(site):
    made = {"gateway_keys_make": "reports", "gateway_keys_team": "finance", "gateway_keys_tokens_per_month": 5000}
    (site / "_etc_haproxy/haproxy.cfg").write_text("")
    rc, said, shown = play(site, **made)
    assert rc and "gw does not limit tokens yet; run playbooks/gateway.yml first" in said + shown
    assert inventory(site) == CLIENTS and known(site, "clients.map") == ""
    (site / "_etc_haproxy/haproxy.cfg").write_text("/etc/haproxy/maps/over.map\n")
    rc, said, shown = play(site, **made)
    assert rc == 0, said + shown
    service = json.loads((site / "_etc_haproxy/gateway-usage.json").read_text())
    assert service["budgets"] == {"@finance": {"day": 1000}, "reports": {"month": 5000}}
    assert "restart gateway-usage.service" in (site / "systemctl.log").read_text()
    assert "tokens_per_month: 5000" in inventory(site)
    # A key without new budgets restarts nothing.
    (site / "systemctl.log").write_text("")
    rc, said, shown = play(site, gateway_keys_make="batch", gateway_keys_team="finance")
    assert rc == 0 and "restart" not in (site / "systemctl.log").read_text(), said + shown


def test_without_a_terminal_the_client_makes_its_key(site):
    rc, said, _shown = play(site, terminal=False, gateway_keys_make="reports")
    assert rc and "this run has no terminal" in said and "`inference key add NAME` takes the same -e" in said, said
    assert inventory(site) == CLIENTS
    digest = hashlib.sha256(b"own").hexdigest()
    rc, said, _shown = play(site, terminal=False, gateway_keys_make="reports", gateway_keys_sha256=digest)
    assert rc == 0 and f"{digest} reports" in known(site, "clients.map") and digest in inventory(site), said


def test_nothing_is_made_where_the_gateway_would_refuse_it_and_a_line_is_shown_where_no_file_has_the_clients(site):
    rc, said, shown = play(site, gateway_keys_make="reports", gateway_keys_team="fnance")
    assert rc and "--team TEAM`): gateway_teams has no 'fnance'; nearest: 'finance'" in said + shown
    rc, said, shown = play(site, gateway_keys_make="reports", gateway_keys_models="gpt")
    assert rc and "gateway_clients.reports.models: no service accepts 'gpt'" in said + shown
    assert inventory(site) == CLIENTS and known(site, "clients.map") == ""
    rc, said, shown = play(site, "-e", "gateway_keys_tem=finance", gateway_keys_make="reports")
    assert rc and "nearest: 'gateway_keys_team'" in said + shown
    (site / "site/host_vars").mkdir()
    (site / "site/host_vars/gw.yml").write_text(CLIENTS)
    rc, said, shown = play(site, gateway_keys_make="reports", gateway_keys_models="baremetal/gpt-oss-smoke")
    assert rc == 0 and "2 files of the inventory set gateway_clients. Add this line to it" in said, said + shown
    assert re.search(r'reports: \{sha256: \["[0-9a-f]{64}"\], models: \["baremetal/gpt-oss-smoke"\]\}', said)
    assert "reports" in known(site, "clients.map")
