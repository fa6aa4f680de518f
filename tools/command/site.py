# SPDX-License-Identifier: GPL-3.0-or-later
"""`inference init DIR` writes a site, after six questions or from flags; `inference lab` is the lab of a checkout."""

import argparse
import json
import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

from . import playbooks
from .playbooks import TABLE, TOP, CommandError, printable

RELEASES = {"cann": "0.30.0", "cpu": "0.32.0", "cuda": "0.33.0", "rocm": "0.33.0", "xpu": "0.33.0"}  # pinned in a site
TEMPLATE = TOP / "inventories/four-servers"  # a site to read, whose files init fills in
HOSTS, SERVED, CLIENTS = "hosts.yml", "group_vars/inference.yml", "group_vars/gateways.yml"
Addresses = list[tuple[str, str]]  # of hosts, each with its name
Answers = dict[str, list[str]]  # by flag
MOST_CHIPS = 1024  # of one server, as it says itself
Chips = tuple[str, int, str]  # of a server: their model, their number, and the stack that drives them


def lab(given: argparse.Namespace) -> int:
    """Build or remove the lab of `make demo`."""
    if not (TOP / "tools/demo.py").exists():
        raise CommandError("lab: only a checkout has a lab; clone the repository")
    return subprocess.run([sys.executable, TOP / "tools/demo.py", given.direction], check=False).returncode


def init(given: argparse.Namespace) -> int:
    """Write a site, and say what comes next."""
    directory = Path(given.dir)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise CommandError(f"{directory} exists and is not empty; name a new directory")
    answers = {flag: _answer(flag, question, given) for flag, question in TABLE["questions"].items()}
    servers, gateways = (
        [(text.partition("=")[0], text.rpartition("=")[2]) for text in answers[flag] if text != "none"]
        for flag in ("hosts", "gateway")
    )
    for name, address in (*servers, *gateways):
        # A gateway may be one of the servers, under the server's own name.
        other = next((one for one in servers if (one[0] == name) != (one[1] == address)), None)
        if other:
            raise CommandError(f"{name}={address} and {'='.join(other)}: one host has one name and one address")
    if given.teams and not gateways:
        raise CommandError("--teams: only a gateway has teams; name one with --gateway, or leave --teams out")
    known = dict.fromkeys(dict(servers), given.chips) if given.accelerators else None
    found = known or ({} if given.no_detect else detect(given, servers, answers["login"][0]))
    for path, text in (files := _files(answers, servers, gateways, found)).items():
        _write(directory / path, text)
    unknown = ", ".join(name for name, _address in servers if name not in found)
    if unknown:
        print(f"Not known yet: the accelerators of {unknown}; set accelerator and accelerator_count in hosts.yml")
    if 'vllm_wheel_index: ""' in files[SERVED]:
        print(TABLE["wheels"]["missing"])
    print(f"The site is {directory}. Next, {'add them, ' if unknown else ''}`cd {directory}`, then:\n{TABLE['next']}")
    return 0


def _answer(flag: str, question: dict[str, Any], given: argparse.Namespace) -> list[str]:
    """Return the parts of an answer; a person is asked again. Raises CommandError where a flag's is wrong."""
    default, answer = question["default"], getattr(given, flag)
    asks = answer is None and sys.stdin.isatty()
    reserved = {word for listed in question.get("reserved", ()) for word in TABLE["reserved"][listed]}
    while True:
        typed = input(f"{question['text']} [{default}]: ").strip() or None if asks else answer
        text = default if typed is None else typed
        parts = [part.strip() for part in text.split(",")] if question.get("is_list") else [text]
        names = [part.partition("=")[0] for part in parts]
        problem = next((f"{name} stands there twice" for name in names if names.count(name) > 1), "")
        for part, name in zip(parts, names):
            is_word = name.lower() in reserved and part != default
            if is_word or not re.fullmatch(question["pattern"], part, re.ASCII):
                what = ", a word that YAML or Ansible reads as something else" if is_word else ""
                problem = f"expected {question['expected']}, found {part!r}{what}"
        problem = problem or (try_model(given, text) if flag == "model" else "")
        if not problem:
            return parts
        if not asks:
            raise CommandError(f"--{flag}: {problem}" if text else f"--{flag} is missing: {problem}")
        print(problem)


def try_model(given: argparse.Namespace, model: str) -> str:
    """Return what `fit` has against the name of a model, and keep the chips of --accelerators: given.chips."""
    # Any chip will do where none is named: a recipe need not list one.
    asked = {"recipes": [model], "accelerators": given.accelerators or "cpu", **TABLE["catalogues"]}
    document = playbooks.run_ad_hoc(given, ["localhost", "-i", "localhost,"], "baremetal.inference.recipe_trial", asked)
    trials = document["results"].get("localhost", {}).get("trials", [])
    for trial in trials[:1]:
        given.chips = (trial["accelerator"], trial["accelerator_count"], trial["stack"])
    missing = "" if trials else "Ansible's answer has no trial of this model; -v shows what it ran"
    problem = [*(error["message"] for error in document["errors"]), document.get("problem") or missing][0]
    if problem.startswith("accelerators: "):
        raise CommandError(f"--{problem}")
    return str(problem)


def detect(given: argparse.Namespace, servers: Addresses, user: str) -> dict[str, Chips]:
    """Ask the servers over SSH for their accelerators, and return those of the servers that answered."""
    print("Asking the servers for their accelerators ...", flush=True)
    own = {"init_hosts": dict(servers), "ansible_host": "{{ init_hosts[inventory_hostname] }}", "ansible_user": user}
    words = ["all", "--task-timeout", TABLE["patience"], "-i", ",".join([*dict(servers), ""]), "-e", json.dumps(own)]
    document = playbooks.run_ad_hoc(given, words, "baremetal.inference.accelerator_probe", TABLE["probe"])
    found = {}
    for name, result in document["results"].items():
        chips = result.get("accelerator")
        if isinstance(chips, dict) and re.fullmatch(r"[a-z0-9_]{1,40}", str(chips.get("model"))):
            number = count if isinstance(count := chips.get("count"), int) and 0 < count <= MOST_CHIPS else 1
            found[name] = str(chips["model"]), number, str(chips.get("stack"))
    for error in document["errors"]:
        print(f"{error['host']}: {printable(error['message'])[:300]}")
    return found


def _files(answers: Answers, servers: Addresses, gateways: Addresses, found: dict[str, Chips]) -> dict[str, str]:
    """Return the files of the site by their names: those of inventories/four-servers, with the answers and new keys."""
    paths = (HOSTS, SERVED, *([CLIENTS, "group_vars/all.yml", ".gitignore"] if gateways else []))
    written = {path: (TEMPLATE / path).read_text(encoding="utf-8") for path in paths}

    def change(path: str, pattern: str, new: str | Callable[[re.Match[str]], str]) -> None:
        written[path] = re.sub(pattern, new, written[path])

    # The release of each stack of the servers; where no server answered, that of NVIDIA's and AMD's.
    releases = sorted({RELEASES[chips[2]] for chips in found.values() if chips[2] in RELEASES}) or [RELEASES["cuda"]]
    change(HOSTS, "ansible_user: root", f"ansible_user: {answers['login'][0]}")
    change(HOSTS, "(    gpu-.*\n)+", "".join(_lines(*host, found.get(host[0]), len(releases) > 1) for host in servers))
    change(HOSTS, "    gw-1: .*", "".join(f'    {name}: {{ansible_host: "{address}"}}' for name, address in gateways))
    release = f'vllm_release: "{releases[0]}"' if len(releases) == 1 else "# vllm_release: see hosts.yml"
    change(SERVED, 'vllm_release: ".*"', release)
    if answers["runtime"] == ["venv"]:  # PyPI, whose address stands once in the collection, has no PyTorch for CPUs
        index = re.findall(r"wheel_index: (\S+)", (TOP / "roles/provisioner/defaults/main.yml").read_text("utf-8"))[0]
        lines = TABLE["wheels"]["cpu" if "cpu" in {chips[2] for chips in found.values()} else "public"]
        change(SERVED, "vllm_runtime: .*\n", f"vllm_runtime: venv\n{lines.replace('INDEX', index)}")
    change(SERVED, "recipe: openai/gpt-oss-20b", f"recipe: {answers['model'][0]}")
    if not gateways:
        change(HOSTS, "gateways:\n(.*\n)+", "")
        change(SERVED, "    host: 0.0.0.0 .*", "    # It listens on loopback; a gateway needs host: 0.0.0.0.")
        return written
    # The lines of the team product, once for each team.
    lines = r"(  product: .*\n)  research: .*\n"
    change(CLIENTS, lines, lambda found: "".join(found[1].replace("product", team) for team in answers["teams"]))
    names = ["gateway.secret", *(f"{team}.key" for team in answers["teams"])]
    return written | {f".keys/{name}": f"{secrets.token_hex(32)}\n" for name in names}


def _lines(name: str, address: str, chips: Chips | None, names_release: bool) -> str:
    """Return the lines of a server in hosts.yml."""
    if not chips:
        comment = f"    # What {name} has is not known: add accelerator and accelerator_count to its line."
        return f'    {name}: {{ansible_host: "{address}"}}\n{comment}\n'
    model, number, stack = chips
    release = f', vllm_release: "{RELEASES[stack]}"' if names_release and stack in RELEASES else ""
    return f'    {name}: {{ansible_host: "{address}", accelerator: {model}, accelerator_count: {number}{release}}}\n'


def _write(path: Path, text: str) -> None:
    """Write a new file; nobody else may read keys."""
    is_key = path.parent.name == ".keys"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if is_key else 0o755)
    path.touch(mode=0o600 if is_key else 0o644, exist_ok=False)
    path.write_text(text, encoding="utf-8")
