# SPDX-License-Identifier: GPL-3.0-or-later
"""`inference init DIR` writes a site, after six questions or from flags; `inference lab` is the lab of a checkout."""

from __future__ import annotations

import argparse
import json
import re
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from . import playbooks
from .hosts import printable
from .playbooks import TOP, CommandError

NAME = r"[a-zA-Z]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
# Groups of a site, and words that YAML does not read as text.
RESERVED = ("all", "false", "gateways", "inference", "localhost", "mirrors", "no", "none", "null", "off", "on", "true",
            "ungrouped", "yes", "y", "n")  # fmt: skip
HOST = re.compile(rf"(?P<name>{NAME})(=(?P<address>[0-9a-zA-Z.:-]{{1,253}}))?", re.ASCII)
USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}", re.ASCII)
MODEL = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
TEAM = re.compile(r"[a-z0-9][a-z0-9-]{0,30}", re.ASCII)


# The collection's release for each stack, which a new site pins.
RELEASES = {"cann": "0.30.0", "cpu": "0.32.0", "cuda": "0.33.0", "rocm": "0.33.0", "xpu": "0.33.0"}
# Chips of one server, as it says itself.
MOST_CHIPS = 1024


class Chips(NamedTuple):
    """The accelerators of a server: their model, their number, and the stack that drives them."""

    model: str
    number: int
    stack: str


class Question(NamedTuple):
    """A question of init: the flag that answers it, its default, and the pattern of each of its answers."""

    flag: str
    text: str
    default: str
    pattern: re.Pattern[str]
    expected: str
    is_list: bool = False


QUESTIONS = (
    Question("hosts", "The servers, as NAME=ADDRESS,...", "", HOST, "names such as gpu-a-01=192.0.2.10", True),
    Question("login", "The user to log in as, root or one with sudo", "root", USER, "a user such as root"),
    Question("model", "The recipe of the model", "openai/gpt-oss-20b", MODEL, "ORGANISATION/NAME"),
    Question("runtime", "vLLM in a container, or in a virtual environment (container or venv)", "container",
             re.compile("container|venv"), "container or venv"),
    Question("gateway", "The gateway for clients, as NAME=ADDRESS, or none", "none", HOST, "none or NAME=ADDRESS"),
    Question("teams", "The teams; each gets its key", "product,research", TEAM, "names such as product", True),
)  # fmt: skip
WORDS = ("init", "logs", "chat", "lab", "completion", *(f"--{question.flag}" for question in QUESTIONS))


def add_verbs(verbs: Any) -> None:
    """Add init and lab."""
    parser = verbs.add_parser("init", help="write a new site: six questions, or flags")
    parser.add_argument("directory", metavar="DIR", type=playbooks.some_text)
    for question in QUESTIONS:
        parser.add_argument(f"--{question.flag}", metavar="ANSWER", help=question.text)
    parser.add_argument(
        "--no-detect", action="store_true", help="do not ask the servers for their accelerators over SSH"
    )
    parser.set_defaults(verb="init", run=init, verbose=0)
    lab = verbs.add_parser(
        "lab", help="a mirror and a server on this machine, with a real vLLM: up, down (checkout only)"
    )
    lab.add_argument("direction", choices=("up", "down"))
    lab.set_defaults(verb="lab", run=run_lab)


def run_lab(given: argparse.Namespace) -> int:
    """Build or remove the lab of `make demo`."""
    program = TOP / "tools/demo.py"
    if not program.exists():
        raise CommandError("lab: only a checkout has a lab; clone the repository")
    return subprocess.run(
        [sys.executable, str(program), *(["down"] if given.direction == "down" else [])], check=False
    ).returncode


def init(given: argparse.Namespace) -> int:
    """Write a site, and say what comes next."""
    directory = Path(given.directory)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise CommandError(f"{directory} exists and is not empty; name a new directory")
    answers = {question.flag: _answer(question, getattr(given, question.flag)) for question in QUESTIONS}
    servers = [_host(text) for text in answers["hosts"]]
    _check(given, answers, servers)
    found = {} if given.no_detect else detect(given, servers, answers["login"][0])
    for name, text in files(answers, servers, found).items():
        _write(directory / name, text)
    unknown = ", ".join(name for name, _address in servers if name not in found)
    if unknown:
        print(f"Not known yet: the accelerators of {unknown}; set accelerator and accelerator_count in hosts.yml")
    print(f"The site is {directory}. Next, {'add them, ' if unknown else ''}`cd {directory}`, then:")
    print("  inference plan       what each server would run, without contacting it")
    print("  inference check      what apply would change")
    print("  inference apply      from the driver to an answered chat")
    return 0


def _check(given: argparse.Namespace, answers: dict[str, list[str]], servers: list[tuple[str, str]]) -> None:
    """Raise CommandError for answers that do not go together."""
    gateway = [] if answers["gateway"] == ["none"] else [_host(answers["gateway"][0])[0]]
    names = [name for name, _address in servers]
    for flag, listed in (("hosts", names), ("teams", answers["teams"])):
        if len(set(listed)) != len(listed):
            raise CommandError(f"--{flag}: a name stands there twice")
    taken = next((name for name in (*names, *gateway) if name.lower() in RESERVED), None)
    if taken:
        raise CommandError(f"{taken!r} cannot be the name of a host: Ansible or YAML reads it as something else")
    if given.teams and not gateway:
        raise CommandError("--teams: only a gateway has teams; name one with --gateway, or leave --teams out")


def _answer(question: Question, flag: str | None) -> list[str]:
    """Return the parts of an answer; a person is asked again. Raises CommandError where a flag's is wrong."""
    asks = flag is None and sys.stdin.isatty()
    while True:
        text = (input(f"{question.text} [{question.default}]: ").strip() or question.default) if asks else flag
        text = question.default if text is None else text
        parts = [part.strip() for part in text.split(",")] if question.is_list else [text]
        wrong = next((part for part in parts if not question.pattern.fullmatch(part)), None)
        if wrong is None:
            return parts
        message = f"--{question.flag}: expected {question.expected}, found {wrong!r}"
        if not asks:
            raise CommandError(message)
        print(message)


def _host(text: str) -> tuple[str, str]:
    found = HOST.fullmatch(text)
    assert found, "checked before"
    return found["name"], found["address"] or found["name"]


def detect(given: argparse.Namespace, servers: list[tuple[str, str]], user: str) -> dict[str, Chips]:
    """Ask the servers over SSH for their accelerators, and return those of the servers that answered."""
    hosts = {name: {"ansible_host": address, "ansible_user": user} for name, address in servers}
    print("Asking the servers for their accelerators ...", flush=True)
    with tempfile.TemporaryDirectory() as work:
        inventory = Path(work, "hosts.json")
        inventory.write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
        words = ["all", "-i", str(inventory), "-m", "baremetal.inference.accelerator_probe"]
        document = playbooks.run_ad_hoc(given, words)
    found = {}
    for name, result in (document.get("results") or {}).items():
        chips = result.get("accelerator")
        if isinstance(chips, dict) and re.fullmatch(r"[a-z0-9_]{1,40}", str(chips.get("model"))):
            count = chips.get("count")
            number = count if isinstance(count, int) and 0 < count <= MOST_CHIPS else 1
            found[name] = Chips(str(chips["model"]), number, str(chips.get("stack")))
    for error in document.get("errors") or ():
        print(f"{error['host']}: {printable(error['message'])[:300]}")
    return found


def files(answers: dict[str, list[str]], servers: list[tuple[str, str]], found: dict[str, Chips]) -> dict[str, str]:
    """Return the files of the site by their names. Keys are made here and are in no other file."""
    gateway = "" if answers["gateway"] == ["none"] else answers["gateway"][0]
    written = {
        "hosts.yml": _hosts(answers["login"][0], servers, found, gateway),
        "group_vars/inference.yml": _models(answers, _releases(found)),
    }
    if gateway:
        written["group_vars/gateways.yml"] = _gateways(answers["teams"])
        written[".gitignore"] = (
            "# The keys of clients, and the authority that signs the gateway's certificate.\n/.keys/\n/.ca/\n"
        )
        written |= {f".keys/{team}.key": f"{secrets.token_hex(32)}\n" for team in answers["teams"]}
    return written


def _releases(found: dict[str, Chips]) -> list[str]:
    """Return the release of each stack of the servers; where no server answered, that of NVIDIA's and AMD's."""
    return sorted({RELEASES[chips.stack] for chips in found.values() if chips.stack in RELEASES}) or [RELEASES["cuda"]]


def _hosts(user: str, servers: list[tuple[str, str]], found: dict[str, Chips], gateway: str) -> str:
    lines = [
        "---",
        "# The machines of the site.",
        "all:",
        f"  vars: {{ansible_user: {user}}}",
        "inference:",
        "  hosts:",
    ]
    for name, address in servers:
        known = found.get(name)
        chips = f", accelerator: {known.model}, accelerator_count: {known.number}" if known else ""
        if known and len(_releases(found)) > 1 and known.stack in RELEASES:
            chips += f', vllm_release: "{RELEASES[known.stack]}"'
        lines.append(f'    {name}: {{ansible_host: "{address}"{chips}}}')
        lines += (
            [] if known else [f"    # What {name} has is not known: add accelerator and accelerator_count to its line."]
        )
    if gateway:
        name, address = _host(gateway)
        lines += ["gateways:", "  hosts:", f'    {name}: {{ansible_host: "{address}"}}']
    return "\n".join(lines) + "\n"


def _models(answers: dict[str, list[str]], releases: list[str]) -> str:
    model, runtime = answers["model"][0], answers["runtime"][0]
    listens = "    # It listens on loopback; a gateway needs host: 0.0.0.0."
    if answers["gateway"] != ["none"]:
        listens = "    host: 0.0.0.0 # the gateway must reach it; let no other network in"
    pinned = f'vllm_release: "{releases[0]}"' if len(releases) == 1 else "# vllm_release: see hosts.yml"
    return f"""\
---
# What is served. `inference plan` shows what becomes of it, on each kind of hardware.
# The release of vLLM stays until you change it here: `inference rollout` upgrades the servers one after the other.
{pinned}
vllm_runtime: {runtime}
vllm_instances:
  chat:
    recipe: {model}
{listens}
    port: 8000

# Weights come from Hugging Face, verified by sha256. A mirror or a disk stands here for servers without internet.
weights_sources: [hub]

# The driver may need one reboot; a server that works is not rebooted.
cuda_reboot_allowed: true
rocm_reboot_allowed: true
cann_reboot_allowed: true

# Sick chips leave service at the gateways; figures of chips and instances for Prometheus.
site_health: true
site_monitoring: true

# Of a rollout: one server first, then half of them, and one always serves.
rollout_waves: [1, "50%"]
rollout_min_available: 1
"""


def _gateways(teams: list[str]) -> str:
    clients = "\n".join(
        f'  {team}: {{key_file: "{{{{ inventory_dir }}}}/.keys/{team}.key", team: {team}}}' for team in teams
    )
    return f"""\
---
# One address with TLS and a key for each client. Clients get .ca/ca.crt and their key; `inference key add` makes more.
gateway_ca_dir: "{{{{ inventory_dir }}}}/.ca"
gateway_clients:
{clients}

# Tokens are counted by team. A budget: {{product: {{tokens_per_day: 5000000}}}}.
# Set gateway_secret for all hosts first: without it, anyone who reaches an instance can charge any client
# (docs/operate/rotate-a-key.md).
gateway_tokens: true
gateway_teams:
{chr(10).join(f"  {team}: {{}}" for team in teams)}
"""


def _write(path: Path, text: str) -> None:
    """Write a new file; nobody else may read keys."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if path.parent.name == ".keys" else 0o755)
    mode = 0o600 if path.suffix == ".key" else 0o644
    path.touch(mode=mode, exist_ok=False)
    path.write_text(text, encoding="utf-8")
