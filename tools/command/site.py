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
from typing import NamedTuple

from . import playbooks
from .hosts import printable
from .playbooks import TOP, CommandError

# Words that YAML does not read as text.
YAML_WORDS = "false|n|no|null|off|on|true|y|yes"
RESERVED = f"{YAML_WORDS}|all|gateways|inference|localhost|mirrors|none|ungrouped"
NAME = rf"(?!(?i:{RESERVED})(?![a-zA-Z0-9-]))[a-zA-Z]([a-zA-Z0-9-]{{0,61}}[a-zA-Z0-9])?"
HOST = re.compile(rf"(?P<name>{NAME})(=(?P<address>[0-9a-zA-Z.:-]{{1,253}}))?", re.ASCII)
GATE = re.compile(f"none|{HOST.pattern}", re.ASCII)
USER = re.compile(rf"(?!({YAML_WORDS})$)[a-z_][a-z0-9_-]{{0,31}}", re.ASCII)
MODEL = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
TEAM = re.compile(rf"(?!({YAML_WORDS})$)[a-z][a-z0-9-]{{0,30}}", re.ASCII)

# The collection's release for each stack, which a new site pins.
RELEASES = {"cann": "0.30.0", "cpu": "0.32.0", "cuda": "0.33.0", "rocm": "0.33.0", "xpu": "0.33.0"}
# The site to read, whose files init fills in.
TEMPLATE = TOP / "inventories/four-servers"
COMMON = ("group_vars/inference.yml",)
GATEWAY = ("group_vars/all.yml", "group_vars/gateways.yml", ".gitignore")
MOST_CHIPS = 1024  # of one server, as it says itself


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
    Question("gateway", "The gateway for clients, as NAME=ADDRESS, or none", "none", GATE, "none or NAME=ADDRESS"),
    Question("teams", "The teams; each gets its key", "product,research", TEAM, "names such as product", True),
)  # fmt: skip


def run_lab(given: argparse.Namespace) -> int:
    """Build or remove the lab of `make demo`."""
    program = TOP / "tools/demo.py"
    if not program.exists():
        raise CommandError("lab: only a checkout has a lab; clone the repository")
    return subprocess.run([sys.executable, str(program), given.direction], check=False).returncode


def init(given: argparse.Namespace) -> int:
    """Write a site, and say what comes next."""
    directory = Path(given.dir)
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
    gateway = [] if answers["gateway"] == ["none"] else [_host(answers["gateway"][0])]
    for flag, listed in (("hosts", [name for name, _address in servers]), ("teams", answers["teams"])):
        if len(set(listed)) != len(listed):
            raise CommandError(f"--{flag}: a name stands there twice")
    for name, address in (*servers, *gateway):
        # A gateway may be one of the servers, under the server's own name.
        other = next((one for one in servers if (one[0] == name) != (one[1] == address)), None)
        if other:
            raise CommandError(f"{name}={address} and {'='.join(other)}: one host has one name and one address")
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
        is_word = re.fullmatch(RESERVED, wrong.partition("=")[0], re.IGNORECASE)
        what = ", a word that YAML or Ansible reads as something else" if is_word else ""
        message = f"--{question.flag}: expected {question.expected}, found {wrong!r}{what}"
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
    """Return the files of the site by their names: those of inventories/four-servers, with the answers and new keys."""
    has_gateway = answers["gateway"] != ["none"]
    paths = (*COMMON, *(GATEWAY if has_gateway else ()))
    written = {path: (TEMPLATE / path).read_text(encoding="utf-8") for path in paths}
    releases = _releases(found)
    pinned = f'vllm_release: "{releases[0]}"' if len(releases) == 1 else "# vllm_release: see hosts.yml"
    text = re.sub('vllm_release: ".*"', pinned, written["group_vars/inference.yml"])
    text = text.replace("vllm_runtime: container", f"vllm_runtime: {answers['runtime'][0]}")
    text = text.replace("recipe: openai/gpt-oss-20b", f"recipe: {answers['model'][0]}")
    if not has_gateway:
        text = re.sub("    host: 0.0.0.0 .*", "    # It listens on loopback; a gateway needs host: 0.0.0.0.", text)
    written |= {"group_vars/inference.yml": text, "hosts.yml": _hosts(answers, servers, found)}
    if has_gateway:
        # The lines of the team product, once for each team.
        written["group_vars/gateways.yml"] = re.sub(
            r"(  product: .*\n)  research: .*\n",
            lambda lines: "".join(lines[1].replace("product", team) for team in answers["teams"]),
            written["group_vars/gateways.yml"],
        )
        names = ["gateway.secret", *(f"{team}.key" for team in answers["teams"])]
        written |= {f".keys/{name}": f"{secrets.token_hex(32)}\n" for name in names}
    return written


def _releases(found: dict[str, Chips]) -> list[str]:
    """Return the release of each stack of the servers; where no server answered, that of NVIDIA's and AMD's."""
    return sorted({RELEASES[chips.stack] for chips in found.values() if chips.stack in RELEASES}) or [RELEASES["cuda"]]


def _hosts(answers: dict[str, list[str]], servers: list[tuple[str, str]], found: dict[str, Chips]) -> str:
    lines = ["---", "# The machines of the site.", "all:", f"  vars: {{ansible_user: {answers['login'][0]}}}"]
    lines += ["inference:", "  hosts:"]
    for name, address in servers:
        known = found.get(name)
        chips = f", accelerator: {known.model}, accelerator_count: {known.number}" if known else ""
        if known and len(_releases(found)) > 1 and known.stack in RELEASES:
            chips += f', vllm_release: "{RELEASES[known.stack]}"'
        lines.append(f'    {name}: {{ansible_host: "{address}"{chips}}}')
        if not known:
            lines.append(f"    # What {name} has is not known: add accelerator and accelerator_count to its line.")
    if answers["gateway"] != ["none"]:
        name, address = _host(answers["gateway"][0])
        lines += ["gateways:", "  hosts:", f'    {name}: {{ansible_host: "{address}"}}']
    return "\n".join(lines) + "\n"


def _write(path: Path, text: str) -> None:
    """Write a new file; nobody else may read keys."""
    is_key = path.parent.name == ".keys"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if is_key else 0o755)
    path.touch(mode=0o600 if is_key else 0o644, exist_ok=False)
    path.write_text(text, encoding="utf-8")
