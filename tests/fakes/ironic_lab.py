# SPDX-License-Identifier: GPL-3.0-or-later
"""The real Ironic with the role's own configuration and lock, servers_off.py, and an inventory, on one machine."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import jinja2

from tests.fakes.redfish_server import authority
from tests.fakes.servers_off import BMC_PORT, PASSWORD, USERNAME, bmc_address

TOP = Path(__file__).resolve().parents[2]
ROLE = TOP / "roles/provisioner"
IRONIC_PASSWORD = "ironic-s3cret"
BUILD = "test-0001"
# Plays the part of ssh: it asks servers_off.py, and accepts a system only with the key in the file of known hosts.
SSH = """#!{python}
import json, sys, urllib.request
words = sys.argv[1:]
if "--" not in words:
    sys.exit(255)  # Ansible itself: the systems of servers_off.py answer nothing else
known = next(word.partition("=")[2] for word in words if word.startswith("UserKnownHostsFile="))
address = words[words.index("--") + 1]
system = json.load(urllib.request.urlopen("http://127.0.0.1:{control}/"))[address]["system"]
if not system or system["key"] not in open(known).read():
    sys.exit("Host key verification failed.") if system else sys.exit(255)
print(system["build"], "", system["order"], "", "status: done", sep="\\n")
"""


# Runs a playbook where the gateway of this machine is a HAProxy with two servers, and shows what it has drained.
# Nothing outside of the mount namespace sees it.
GATEWAY = """#!/bin/sh
set -eu
for place in /run/haproxy /var/lib/haproxy /etc/haproxy /usr/local/lib; do mount -t tmpfs none $place; done
cp {top}/roles/gateway/files/gateway-tool.py /usr/local/lib/
cat >/etc/haproxy/haproxy.cfg <<'CONFIG'
global
    stats socket /run/haproxy/admin.sock mode 600 level admin
    server-state-file /var/lib/haproxy/server-state
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    load-server-state-from-file global
backend chat
    server gpu-01--chat 127.0.0.1:9 id 1
    server gpu-02--chat 127.0.0.1:9 id 2
CONFIG
haproxy -f /etc/haproxy/haproxy.cfg -D -p /run/haproxy/pid
status=0; PYTHONPATH={top}/.collections "$@" || status=$?
echo "drained: $(cat /var/lib/haproxy/drained.json 2>/dev/null)"
kill $(cat /run/haproxy/pid)
exit $status
"""


def ironic_environment(cache: Path) -> Path:
    """Return the environment of the role's lock, made once."""
    lock = ROLE / "files/ironic.txt"
    path = cache / f"ironic-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if not (path / "complete").exists():
        uv = str(Path(sys.executable).parent / "uv")
        subprocess.run([uv, "venv", "-q", "--clear", str(path)], check=True)
        words = [uv, "pip", "install", "-q", "--python", str(path / "bin/python"), "--require-hashes", "-r", str(lock)]
        subprocess.run(words, check=True)
        (path / "bin/mkisofs").symlink_to("/usr/bin/xorrisofs")
        (path / "complete").touch()
    return path


def agent_environment(cache: Path) -> Path:
    """Return an environment with the ramdisk's agent, made once; its lock is for the Python of the ramdisk alone."""
    needed = ROLE / "files/agent.in"
    path = cache / f"agent-{hashlib.sha256(needed.read_bytes()).hexdigest()[:12]}"
    if not (path / "complete").exists():
        uv = str(Path(sys.executable).parent / "uv")
        subprocess.run([uv, "venv", "-q", "--clear", str(path)], check=True)
        subprocess.run(
            [uv, "pip", "install", "-q", "--python", str(path / "bin/python"), "-r", str(needed)], check=True
        )
        (path / "complete").touch()
    return path


class IronicLab:
    """Use it with ``with``; ``servers`` is a list of plans for servers_off.py.

    With ``images``, a directory that build.sh has made, the servers are those of qemu_server.py: they reach Ironic at
    ``address``, and their systems answer the real ssh with the key of ``login``.
    """

    def __init__(
        self, directory: Path, environment: Path, servers: list[dict[str, Any]], port: int = 26385,
        address: str = "127.0.0.1", images: Path | None = None, login: Path | None = None,
    ) -> None:  # fmt: skip
        self.address, self.images, self.login = address, images, login
        self.directory, self.environment, self.servers = directory, environment, servers
        self.port, self.http_port = port, port + 1
        self.control = 0
        # Words before the command of a playbook.
        self.wrapper: list[str] = []
        self._processes: list[subprocess.Popen[Any]] = []
        self.ironic: subprocess.Popen[Any] | None = None
        self._listener: http.server.ThreadingHTTPServer | None = None

    def fill_disk(self) -> None:
        """Leave no room for a medium on the disk of the provisioner."""
        with contextlib.suppress(OSError), (self.directory / "http/ballast").open("wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()

    def __enter__(self) -> IronicLab:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        for name in ("config", "state/tmp", "http", "bin", "inventory"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        # A disk of its own, as small as these media need it.
        size = "size=1G" if self.images else "size=64M"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", str(self.directory / "http")], check=True)
        addresses = ["127.0.0.1", self.address, *(server["address"] for server in self.servers)]
        addresses += [bmc_address(server["address"]) for server in self.servers]
        self.ca, _context = authority(self.directory, addresses)
        self._files()
        self._web()
        plan = {
            "certificate": str(self.directory / "server.pem"),
            "authority": str(self.ca),
            "servers": [{key: value for key, value in each.items() if key != "image"} for each in self.servers],
        }
        (self.directory / "plan.json").write_text(json.dumps(plan))
        module = "qemu_server" if self.images else "servers_off"
        words = [sys.executable, "-m", f"tests.fakes.{module}", str(self.directory / "plan.json")]
        bmcs = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=TOP)
        self._processes.append(bmcs)
        assert bmcs.stdout
        self.control = int(bmcs.stdout.readline())
        self.start_ironic()
        self._inventory()

    def __exit__(self, *_exc: object) -> None:
        self.kill_ironic()
        for process in self._processes:
            process.communicate(timeout=60)  # its input ends, so it switches its machines off
        if self._listener:
            self._listener.shutdown()
        subprocess.run(["umount", "--lazy", str(self.directory / "http")], check=True)

    def start_ironic(self) -> None:
        """Start Ironic and wait until it answers."""
        log = (self.directory / "ironic.log").open("ab")
        path = f"{self.environment / 'bin'}:{os.environ['PATH']}"
        self.ironic = subprocess.Popen(
            [str(self.environment / "bin/ironic"), "--config-file", str(self.directory / "config/ironic.conf")],
            stdout=log, stderr=log, env={**os.environ, "PATH": path}, start_new_session=True,
        )  # fmt: skip
        end = time.monotonic() + 900
        while time.monotonic() < end and self.ironic.poll() is None:
            with contextlib.suppress(OSError):
                context = __import__("ssl").create_default_context(cafile=str(self.directory / "config/tls.crt"))
                urllib.request.urlopen(f"https://{self.address}:{self.port}/", context=context, timeout=5).close()
                return
            time.sleep(0.3)
        raise AssertionError((self.directory / "ironic.log").read_text()[-3000:])

    def kill_ironic(self) -> None:
        """End all processes of Ironic as a crash would."""
        if self.ironic:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.ironic.pid, signal.SIGKILL)
            self.ironic.wait()

    def state(self) -> dict[str, Any]:
        """Return the state of all servers, by address."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.control}/") as answer:
            return dict(json.load(answer))

    def change(self, address: str, **body: Any) -> None:
        """Change a server: its fault, its power, how long a write takes."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.control}/{address}", data=json.dumps(body).encode(), method="POST"
        )
        urllib.request.urlopen(request).close()

    def add_gateway(self) -> None:
        """Give the hosts a chat and a gateway, for the playbooks that follow."""
        script = self.directory / "gateway.sh"
        script.write_text(GATEWAY.format(top=TOP))
        self.wrapper = ["unshare", "--mount", "sh", str(script)]
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        groups = {
            "inference": {"vars": {"vllm_instances": {"chat": {"recipe": "openai/gpt-oss-20b"}}}},
            "gateways": {"hosts": {"gw": local}},
        }
        (self.directory / "inventory/gateway.yml").write_text(json.dumps(groups))

    def play(self, *words: str, playbook: str = "provision.yml") -> subprocess.Popen[str]:
        """Start provision.yml, or another playbook."""
        return subprocess.Popen(
            [*self.wrapper, sys.executable, "-m", "ansible", "playbook", "-i", str(self.directory / "inventory"),
             str(TOP / "playbooks" / playbook), *words],
            cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            env={**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1",
                 "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}"},
        )  # fmt: skip

    def run(self, *words: str, playbook: str = "provision.yml") -> tuple[int, str]:
        """Run provision.yml, or another playbook; return its status and its output."""
        process = self.play(*words, playbook=playbook)
        output, _errors = process.communicate(timeout=900)
        return process.returncode, output

    def _files(self) -> None:
        config, http_root = self.directory / "config", self.directory / "http"
        values = {
            "ansible_managed": "a test", "provisioner_config_dir": str(config), "provisioner_port": self.port,
            "provisioner_state_dir": str(self.directory / "state"), "provisioner_address": self.address,
            "provisioner_http_root": str(http_root), "provisioner_hardware_types": ["redfish"],
            "provisioner_max_concurrent": 50, "provisioner_bmc_read_timeout": 15,
            "__provisioner_http_url": f"http://{self.address}:{self.http_port}",
            "__provisioner_url": f"https://{self.address}:{self.port}",
        }  # fmt: skip
        templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(ROLE / "templates"), undefined=jinja2.StrictUndefined
        )
        templates.filters["comment"] = lambda text: f"# {text}"
        for name in ("ironic.conf", "grub.template"):
            (config / name).write_text(templates.get_template(f"{name}.j2").render(values))
        pem = (self.directory / "server.pem").read_text()
        key, _end, chain = pem.partition("-----END PRIVATE KEY-----\n")
        (config / "tls.key").write_text(key + _end)
        (config / "tls.crt").write_text(chain + self.ca.read_text())
        python = str(self.environment / "bin/python")
        code = (
            "import bcrypt,sys; print('admin:' + bcrypt.hashpw(sys.stdin.read().encode(), bcrypt.gensalt(4)).decode())"
        )
        done = subprocess.run([python, "-c", code], input=IRONIC_PASSWORD, capture_output=True, text=True, check=True)
        (config / "htpasswd").write_text(done.stdout)
        dbsync = str(self.environment / "bin/ironic-dbsync")
        words = [dbsync, "--config-file", str(config / "ironic.conf"), "create_schema"]
        subprocess.run(words, check=True, capture_output=True)
        if self.images:
            for file in self.images.iterdir():
                (http_root / file.name).symlink_to(file)
            return
        for name in ("agent.kernel", "agent.initramfs", "esp.img"):
            (http_root / name).write_bytes(os.urandom(1 << 16))
        (http_root / "debian13.raw").write_bytes(b"BUILD=" + BUILD.encode() + b"\n" + bytes(1 << 16))

    def _web(self) -> None:
        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_words: Any) -> None:
                pass

        handler = functools.partial(Quiet, directory=str(self.directory / "http"))
        self._listener = http.server.ThreadingHTTPServer((self.address, self.http_port), handler)
        threading.Thread(target=self._listener.serve_forever, daemon=True).start()

    def _inventory(self) -> None:
        builds = {"debian13": {"build_id": BUILD}}
        if self.images:
            builds = json.loads((self.images / "images.json").read_text())["images"]
        site = {
            "url": f"https://{self.address}:{self.port}",
            "certificate": (self.directory / "config/tls.crt").read_text(),
            "bmc_ca": str(self.ca),
            "wipes": True,
            "images": {
                name: {
                    "url": f"http://{self.address}:{self.http_port}/{name}.raw",
                    "sha256": hashlib.sha256((self.directory / f"http/{name}.raw").read_bytes()).hexdigest(),
                    "build_id": build["build_id"],
                }
                for name, build in builds.items()
            },
        }
        (self.directory / "config/site.json").write_text(json.dumps(site))
        hosts = {
            f"gpu-{number:02d}": {
                "provision": {
                    "bmc": f"https://{bmc_address(server['address'])}:{BMC_PORT}", "mac": server["mac"],
                    "image": server.get("image", "debian13"),
                    "address": server.get("guest", {}).get("address", f"{server['address']}/8"),
                    "gateway": self.address, "root_serial": server["disks"][0],
                    "firmware": "set" if server.get("firmware") else "report",
                }
            }
            for number, server in enumerate(self.servers, 1)
        }  # fmt: skip
        variables = {
            "accelerator_bmc_username": USERNAME, "accelerator_bmc_password": PASSWORD,
            "provision_password": IRONIC_PASSWORD, "provision_ssh_keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 user"],
            "provision_bmc_ca_file": str(self.ca), "provision_known_hosts": str(self.directory / "known_hosts"),
            "provisioner_config_dir": str(self.directory / "config"),
        }  # fmt: skip
        if self.login:
            key = self.login.with_suffix(".pub").read_text()
            variables |= {"provision_ssh_keys": [key.strip()], "provision_private_key": str(self.login)}
        groups = {
            "all": {
                "vars": variables,
                "children": {
                    "inference": {"hosts": hosts},
                    "provisioner": {
                        "hosts": {"prov": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}}
                    },
                },
            }
        }
        (self.directory / "inventory/hosts.yml").write_text(json.dumps(groups))
        if self.login:
            return
        ssh = self.directory / "bin/ssh"
        ssh.write_text(SSH.format(python=sys.executable, control=self.control))
        ssh.chmod(0o755)
