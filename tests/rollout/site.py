# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab of the rollouts as the tests see it: its playbooks, its hosts, its gateway, and the load through that."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

TOP = Path(__file__).resolve().parents[2]
INVENTORY = TOP / ".config/molecule/inventory/rollout"
GATEWAY, HOSTS = "mirror", ("cpu-12", "cpu-12b", "cpu-12c")
OCTETS = {"mirror": 10, "cpu-12": 12, "cpu-12b": 14, "cpu-12c": 15}
FLEET, CREW = "The fleet is ready.", "The crew is ready."
HUB_TOKEN = "hf_plantedHubToken4c81e6"
MODEL = "baremetal/gpt-oss-smoke"
# What an instance is made of; a host that was left alone has the same of it.
FILES = "/etc/vllm/chat.* /var/lib/vllm/chat/serve /etc/systemd/system/vllm@.service"
TELL = """
import socket, sys
admin = socket.socket(socket.AF_UNIX)
admin.connect("/run/haproxy/admin.sock")
admin.sendall(sys.argv[1].encode() + b"\\n")
print(b"".join(iter(lambda: admin.recv(65536), b"")).decode(), end="")
"""


@dataclass(frozen=True)
class Host:
    """What a host runs: digest of the files of its instance, weights, process, and how often that was started."""

    files: str
    revision: str
    process: str
    starts: int

    def runs(self) -> tuple[str, str]:
        """Return what is served, whatever process serves it."""
        return self.files, self.revision


@dataclass(frozen=True)
class Run:
    """What became of a playbook."""

    code: int
    output: str
    seconds: float

    def said(self, text: str) -> bool:
        """Whether a text is in the output, however Ansible has broken its lines."""
        return re.sub(r"\s+", " ", text) in re.sub(r"\s+", " ", self.output)


class Site:
    """The lab that LAB_NAME and LAB_SUBNET_PREFIX name."""

    def __init__(self) -> None:
        self.name = os.environ["LAB_NAME"]
        self.prefix = os.environ["LAB_SUBNET_PREFIX"]
        self.home = Path(os.environ["LAB_HOME"])
        self.directory = self.home / self.name
        self.gateway = self.directory / "gateway"
        self.rollouts = self.directory / "rollouts"
        self._flag = self.directory / "flag"

    def is_up(self) -> bool:
        """Whether the lab is there, with its gateway."""
        words = ["podman", "exec", f"bminf-{self.name}-{GATEWAY}", "systemctl", "--quiet", "is-active", "haproxy"]
        return subprocess.run(words, check=False, capture_output=True).returncode == 0

    def bring_up(self) -> None:
        """Have the lab with everything that serves in it; where it is up already it is taken as it is."""
        if not self.is_up():
            subprocess.run([str(TOP / "tools/lab/content.sh")], check=True, cwd=TOP)
            subprocess.run([str(TOP / "bin/lab"), "up", GATEWAY, *HOSTS], check=True, cwd=TOP)
            for playbook in ("molecule/rollout/prepare.yml", "molecule/rollout/converge.yml"):
                run = self.play(playbook)
                assert run.code == 0, run.output
            self.until_up()

    def settle(self) -> None:
        """Have every host as the inventory says and in service; what was cut off before is ended."""
        run = self.rollout(rollout_busy="cut")
        assert run.code == 0, run.output
        self.until_up()

    # The controller

    def crew(self) -> dict[str, Any]:
        """Return the variables of the revision that says another sentence."""
        return {"weights_manifest_path": [str(self.home / "made/manifests")], "lab_sentence": CREW}

    def start(self, playbook: str, *options: str, **variables: Any) -> Playing:
        """Start a playbook."""
        command = [str(TOP / ".venv/bin/ansible-playbook"), "-i", str(INVENTORY), playbook]
        command += ["-e", json.dumps(variables), *options]
        said = self.directory / "said"
        said.mkdir(exist_ok=True)
        return Playing(command, said / f"{len(list(said.iterdir())):03d}-{Path(playbook).stem}.log")

    def play(self, playbook: str, *options: str, **variables: Any) -> Run:
        """Run a playbook to its end."""
        return self.start(playbook, *options, **variables).end(3600)

    def begin(self, *options: str, **variables: Any) -> Playing:
        """Start to roll out what the inventory and these variables say, with the flag as it is now."""
        variables["lab_args"] = {"max-num-seqs": self.flag(), **variables.get("lab_args", {})}
        return self.start("playbooks/rollout.yml", *options, **variables)

    def rollout(self, *options: str, **variables: Any) -> Run:
        """Do so, to its end."""
        return self.begin(*options, **variables).end(3600)

    def flag(self) -> int:
        """Return what max-num-seqs is meant to be; a test that changes it leaves it so."""
        return int(self._flag.read_text()) if self._flag.exists() else 16

    def change_flag(self) -> None:
        """Have it be another number."""
        self._flag.write_text(f"{16 + (self.flag() - 15) % 100}\n")

    def journal(self, number: int = -1) -> list[dict[str, Any]]:
        """Return the events of a rollout; the last one's unless told."""
        path = sorted(self.rollouts.glob("*/journal.jsonl"))[number]
        return [json.loads(line) for line in path.read_text().splitlines()]

    def journals(self) -> int:
        """Return how many rollouts there have been."""
        return len(list(self.rollouts.glob("*/journal.jsonl")))

    def report(self) -> dict[str, Any]:
        """Return the report of the last rollout."""
        report: dict[str, Any] = json.loads(sorted(self.rollouts.glob("*/report.json"))[-1].read_text())
        return report

    # The hosts

    def on(self, host: str, command: str, check: bool = True) -> str:
        """Run a command on a host past its network, which a test may have cut."""
        words = ["podman", "exec", f"bminf-{self.name}-{host}", "sh", "-c", command]
        return subprocess.run(words, check=check, capture_output=True, text=True).stdout.strip()

    def look(self, host: str) -> Host:
        """Return what a host runs."""
        return Host(
            self.on(host, f"sha256sum {FILES} | sha256sum"),
            self.on(host, "basename $(readlink -f /var/lib/vllm/chat/model)"),
            self.on(host, "systemctl show -P MainPID vllm@chat"),
            self.starts(host),
        )

    def looks(self) -> dict[str, Host]:
        """Return what each host runs."""
        return {host: self.look(host) for host in HOSTS}

    def starts(self, host: str) -> int:
        """Return how often systemd has started the instance, failed starts included."""
        return int(self.on(host, "journalctl -u vllm@chat --no-pager -o cat | grep -c '^Starting vllm@chat' || true"))

    def restarted(self, host: str) -> float:
        """Return the seconds from the last stop of the instance until its next start had ended."""
        lines = self.on(host, "journalctl -u vllm@chat --no-pager -o short-unix _PID=1").splitlines()
        stamps = [(float(line.split()[0]), line) for line in lines if line[:1].isdigit()]
        stopped = [at for at, line in stamps if "Stopping vllm@chat" in line]
        started = [at for at, line in stamps if "Started vllm@chat" in line]
        return started[-1] - stopped[-1]

    def ask(self, host: str) -> str:
        """Return what a host answers, asked past the gateway."""
        return self.chat(f"http://{self.prefix}.{OCTETS[host]}:8000")

    def chat(self, url: str, key: str = "", **more: Any) -> str:
        """Return an answer."""
        messages = [{"role": "user", "content": "Is the fleet ready?"}]
        body = json.dumps({"model": MODEL, "messages": messages, "temperature": 0, **more}).encode()
        request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
        if key:
            request.add_header("Authorization", f"Bearer {key}")
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if url.startswith("https"):
            handlers.append(urllib.request.HTTPSHandler(context=self.trust()))
        with urllib.request.build_opener(*handlers).open(request, timeout=120) as answer:
            return str(json.load(answer)["choices"][0]["message"]["content"])

    # The gateway

    @property
    def url(self) -> str:
        """Return the address of the gateway."""
        return f"https://{self.prefix}.{OCTETS[GATEWAY]}"

    def key(self) -> str:
        """Return the client's key."""
        return (self.gateway / "load.key").read_text().strip()

    def trust(self) -> ssl.SSLContext:
        """Return trust in the site's own CA alone."""
        return ssl.create_default_context(cafile=str(self.gateway / "ca/ca.crt"))

    def tell(self, command: str) -> str:
        """Say something to HAProxy as an admin does, by hand."""
        words = ["podman", "exec", f"bminf-{self.name}-{GATEWAY}", "python3", "-c", TELL, command]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    def servers(self) -> dict[str, str]:
        """Return what HAProxy says of each server: UP, DRAIN, DOWN, and so on."""
        lines = [line.split(",") for line in self.tell("show stat").splitlines() if line]
        status = lines[0].index("status")
        rows = {line[1]: line[status] for line in lines[1:] if line[0] == "chat"}
        return {host: rows[f"{host}--chat"] for host in HOSTS}

    def until_up(self, hosts: Sequence[str] = HOSTS, seconds: int = 120) -> None:
        """Wait until the gateway sends requests to these hosts."""
        self.until(lambda: all(self.servers()[host].startswith("UP") for host in hosts), seconds, self.servers)

    @staticmethod
    def until(condition: Any, seconds: float = 120, shown: Any = None) -> None:
        """Wait for something that is about to be."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, shown() if shown else f"not within {seconds} s"
            time.sleep(0.5)

    @contextlib.contextmanager
    def load(self, workers: int = 2, pause: float = 1.5) -> Iterator[Load]:
        """Have chats go through the gateway, plain and streamed by turns, until the block ends."""
        load = Load(self, workers, pause)
        try:
            load.wait(1)
            yield load
        finally:
            load.stop()


class Load:
    """tests/rollout/load.py while it runs, and what became of its requests."""

    def __init__(self, site: Site, workers: int, pause: float) -> None:
        self.path = site.directory / f"requests-{time.time():.0f}.jsonl"
        command = [
            sys.executable, str(TOP / "tests/rollout/load.py"), "--url", site.url, "--model", MODEL,
            "--ca", str(site.gateway / "ca/ca.crt"), "--key-file", str(site.gateway / "load.key"),
            "--out", str(self.path), "--workers", str(workers), "--pause", str(pause),
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the requests that have ended."""
        if not self.path.exists():
            return []
        text = self.path.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def wait(self, more: int, seconds: float = 600) -> None:
        """Wait until so many more requests have ended."""
        wanted = len(self.rows) + more
        Site.until(lambda: len(self.rows) >= wanted, seconds, self.process.poll)

    def stop(self) -> None:
        """End it as a person does; requests that run come to their end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.communicate(timeout=180)

    def failed(self) -> list[dict[str, Any]]:
        """Return the requests that failed or were cut."""
        return [row for row in self.rows if not row["ok"]]

    def texts(self, since: float = 0) -> set[str]:
        """Return the answers to requests that began after a time."""
        return {row["text"] for row in self.rows if row["ok"] and row["start"] >= since}

    def whole(self, least: int = 20) -> None:
        """See that there were requests, of both kinds, and that none of them failed."""
        kinds = Counter(row["kind"] for row in self.rows)
        assert self.failed() == []
        assert sum(kinds.values()) >= least and len(kinds) == 2, kinds


class Playing:
    """A playbook that runs, in a group of processes of its own; what it says stays in the lab's directory."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log, self.began = log, time.monotonic()
        environment = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"}
        with log.open("w") as output:
            print(os.environ.get("PYTEST_CURRENT_TEST", ""), *command, file=output, flush=True)
            self.process = subprocess.Popen(
                command, cwd=TOP, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def ended(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def end(self, seconds: float = 900) -> Run:
        """Wait for its end."""
        code = self.process.wait(timeout=seconds)
        return Run(code, self.log.read_text(), time.monotonic() - self.began)

    def kill(self) -> None:
        """End it and all that it has started at once, as a power cut of the controller does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def steps(journal: Sequence[Mapping[str, Any]], host: str) -> list[str]:
    """Return the steps of a host, in their order."""
    return [str(event["step"]) for event in journal if event["event"] == "step" and event["host"] == host]


def lasted(journal: Sequence[Mapping[str, Any]], host: str) -> dict[str, float]:
    """Return the seconds of each step of a host."""
    events = [event for event in journal if event["event"] == "step" and event["host"] == host]
    seconds: dict[str, float] = {}
    for event, following in zip(events, events[1:]):
        seconds[event["step"]] = seconds.get(event["step"], 0.0) + following["at"] - event["at"]
    return seconds
