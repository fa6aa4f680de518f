# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of docs/operate/common-tasks.md as they are written, timed: two servers with a real vLLM and a gateway.

What is bounded is the work of the person: one command for a task, and the lines of the inventory that it needs. The
tests build on one another.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.rollout.site import CREW, FLEET, MODEL, TELL
from tests.unit.docs.test_common_tasks import COMMAND, SECTIONS

TOP = Path(__file__).resolve().parents[2]
HOME = Path(os.environ.get("LAB_HOME", TOP / ".lab")).resolve()
NAME = os.environ.get("LAB_NAME", "tasks")
PREFIX = os.environ.get("LAB_SUBNET_PREFIX", "10.87.245")
LAB = {**os.environ, "LAB_HOME": str(HOME), "LAB_NAME": NAME, "LAB_SUBNET_PREFIX": PREFIX, "ANSIBLE_NOCOLOR": "1"}
OTHER = "baremetal/gpt-oss-crew"
# The lines of the inventory that a task may need; a task that is not named needs none.
MOST_LINES = {"Add a GPU host": 1, "Serve another model": 2, "Upgrade on Friday": 1, "Take everything off a host": 1}

pytestmark = [
    pytest.mark.long,
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root"),
]


class Fleet:
    """The lab's hosts, the inventory of the site in a directory, and what a person does with them."""

    def __init__(self, top):
        self.inventory, self.files = top / "inventory", top / "files"
        self.lines = 0

    def write(self):
        """Write the inventory: one server, one gateway, and what the site has of its own."""
        variables = yaml.safe_load((TOP / "inventories/lab/group_vars/inference.yml").read_text())
        variables |= {
            "cluster": "lab",
            "vllm_recipe_path": [str(self.files / "recipes")],
            "vllm_release_path": [str(self.files / "releases")],
            "weights_manifest_path": [str(self.files / "manifests")],
            "rollout_state_dir": str(self.files / "rollouts"),
            "vllm_start_timeout": 1800,
            "rollout_watch": 3,
            # Two servers share the processors of one machine with each other and with their tests.
            "rollout_throughput_share": 0.05,
            "rollout_first_token_share": 0.05,
            "rollout_measure": {"streams": 2, "prompts": 4, "max_tokens": 16},
        }
        gateways = {
            "cluster": "lab",
            "gateway_ca_dir": str(self.files / "ca"),
            "gateway_clients": {"operators": {"sha256": ["a" * 64]}},
            "gateway_tokens": True,
            "gateway_teams": {"finance": {"tokens_per_day": 1_000_000}},
        }
        (self.inventory / "group_vars").mkdir(parents=True)
        shutil.copy(HOME / NAME / "inventory.json", self.inventory / "10-lab.json")
        groups = {"inference": {"hosts": {"cpu-12": None}}, "gateways": {"hosts": {"mirror": None}}}
        groups["mirrors"] = groups["gateways"]
        (self.inventory / "20-site.yml").write_text(yaml.safe_dump(groups, sort_keys=False))
        for group, content in (
            ("inference", variables),
            ("gateways", gateways),
            ("mirrors", {"mirror_listen": "0.0.0.0"}),
        ):
            (self.inventory / f"group_vars/{group}.yml").write_text(yaml.safe_dump(content, sort_keys=False))

    def add_model(self):
        """Give the site a second model: a recipe, a manifest, and weights on the mirror."""
        manifest = yaml.safe_load((HOME / f"made/manifests/{MODEL}.yml").read_text())
        source = HOME / "mirror/weights" / MODEL / manifest["revision"]
        target = HOME / "mirror/weights" / OTHER / manifest["revision"]
        # A killed run may have left it.
        shutil.rmtree(target.parent, ignore_errors=True)
        shutil.copytree(source, target)
        recipe = yaml.safe_load((TOP / f"catalog/recipes/{MODEL}.yaml").read_text())
        recipe["model"]["model_id"] = manifest["repository"] = OTHER
        for kind, content in (("recipes", recipe), ("manifests", manifest)):
            path = self.files / kind / f"{OTHER}.yml"
            path.parent.mkdir(parents=True)
            path.write_text(yaml.safe_dump(content))

    def add_release(self):
        """Give the site another release: the same vLLM from a lock of its own, so with a new environment."""
        stack = yaml.safe_load((TOP / "catalog/releases/0.32.0.yml").read_text())
        stack["stacks"] = {"cpu": {**stack["stacks"]["cpu"], "requirements": "friday.txt"}}
        (self.files / "releases/requirements").mkdir(parents=True)
        (self.files / "releases/friday.yml").write_text(yaml.safe_dump(stack))
        lock = (TOP / "catalog/releases/requirements/0.32.0-cpu-cp311-x86_64.txt").read_text()
        (self.files / "releases/requirements/friday.txt").write_text("# Friday\n" + lock)

    def edit(self, file, *changes):
        """Change a file of the inventory as a person does, and count the lines."""
        path = self.inventory / file
        before = path.read_text() if path.exists() else ""
        after = before
        for old, new in changes:
            assert old in after, after
            after = after.replace(old, new, 1)
        path.parent.mkdir(exist_ok=True)
        path.write_text(after)
        self.lines += sum(line.startswith("+ ") for line in difflib.ndiff(before.splitlines(), after.splitlines()))

    def play(self, *words):
        """Run a playbook at a terminal, as a person does; return what the terminal showed."""
        command = [str(Path(sys.executable).with_name("ansible-playbook")), *words]
        shown = ["script", "--quiet", "--return", "--command", shlex.join(command), "/dev/null"]
        done = subprocess.run(
            shown, check=False, cwd=TOP, env=LAB, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=3000
        )
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr
        return done.stdout

    def do(self, heading, host=""):
        """Run the only command of a task, with this host in place of the page's; print what the task took."""
        (command,) = COMMAND.findall(SECTIONS[heading])
        command = re.sub(r"\bgpu-a-\d+", host, command.replace("inventories/SITE", str(self.inventory)))
        began = time.monotonic()
        output = self.play(*shlex.split(command)[1:])
        lines, self.lines = self.lines, 0
        print(f"\n{heading}: 1 command, {lines} lines of the inventory, {time.monotonic() - began:.0f} s")
        assert lines <= MOST_LINES.get(heading, 0)
        return output

    def on(self, host, command):
        words = ["podman", "exec", f"bminf-{NAME}-{host}", "sh", "-c", command]
        return subprocess.run(words, check=False, capture_output=True, text=True).stdout.strip()

    def servers(self):
        """Return what the gateway says of each server of the service."""
        shown = self.on("mirror", f"python3 -c {shlex.quote(TELL)} 'show stat'")
        lines = [line.split(",") for line in shown.splitlines()]
        return {line[1]: line[17] for line in lines if line[:1] == ["chat"] and line[1] not in ("FRONTEND", "BACKEND")}

    def ask(self, key, model=MODEL):
        """Return what the gateway answers to a client."""
        body = {"model": model, "messages": [{"role": "user", "content": "Is the fleet ready?"}], "temperature": 0}
        request = urllib.request.Request(
            f"https://{PREFIX}.10/v1/chat/completions", json.dumps(body).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
        )  # fmt: skip
        trust = ssl.create_default_context(cafile=str(self.files / "ca/ca.crt"))
        handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
        with urllib.request.build_opener(*handlers).open(request, timeout=120) as answer:
            return json.load(answer)["choices"][0]["message"]["content"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """A site whose gateway has one server; a second host has only its operating system."""
    fleet = Fleet(tmp_path_factory.mktemp("site"))
    subprocess.run([TOP / "tools/lab/content.sh"], cwd=TOP, check=True, capture_output=True)
    fleet.add_model()
    fleet.add_release()
    subprocess.run([TOP / "bin/lab", "up", "mirror", "cpu-12", "cpu-12b"], env=LAB, check=True)
    try:
        fleet.write()
        fleet.play("-i", str(fleet.inventory), "site.yml")
        fleet.play("-i", str(fleet.inventory), "playbooks/gateway.yml")
        yield fleet
    finally:
        subprocess.run([TOP / "bin/lab", "down"], env=LAB, check=True)
        shutil.rmtree(HOME / "mirror/weights" / OTHER, ignore_errors=True)


@pytest.fixture(scope="module")
def key(fleet):
    """The key of the new team, as the terminal showed it."""
    with pytest.raises(urllib.error.HTTPError, match="401"):
        fleet.ask("unknown")
    (key,) = re.findall(r"^ *([0-9a-f]{64})\r?$", fleet.do("A new team with a key"), re.M)
    return key


@pytest.fixture(autouse=True)
def printed(capsys):
    """Let the times be seen."""
    with capsys.disabled():
        yield


def test_a_new_team_asks_at_once(fleet, key):
    assert fleet.ask(key) == FLEET


def test_a_host_is_added(fleet, key):
    process = fleet.on("cpu-12", "systemctl show -P MainPID vllm@chat")
    fleet.edit("20-site.yml", ("    cpu-12: null\n", "    cpu-12: null\n    cpu-12b: null\n"))
    fleet.do("Add a GPU host", "cpu-12b")
    assert set(fleet.servers()) == {"cpu-12--chat", "cpu-12b--chat"}
    assert all(state.startswith("UP") for state in fleet.servers().values())
    assert {fleet.ask(key) for _number in range(4)} == {FLEET}
    assert fleet.on("cpu-12", "systemctl show -P MainPID vllm@chat") == process


def test_another_model_is_served(fleet, key):
    changes = (
        (f"recipe: {MODEL}", f"recipe: {OTHER}"),
        (f"vllm_verify_expect: {FLEET}", f"vllm_verify_expect: {CREW}"),
    )
    fleet.edit("group_vars/inference.yml", *changes)
    fleet.do("Serve another model")
    assert {fleet.ask(key, OTHER) for _number in range(4)} == {CREW}


def test_an_upgrade_installs_a_new_release(fleet, key):
    hosts, served = ("cpu-12", "cpu-12b"), "cat /var/lib/vllm/chat/serve"
    before = {host: fleet.on(host, served) for host in hosts}
    fleet.edit("group_vars/inference.yml", ("vllm_release: 0.32.0", "vllm_release: friday"))
    fleet.do("Upgrade on Friday")
    assert {fleet.ask(key, OTHER) for _number in range(4)} == {CREW}
    # An environment is named after vLLM's version, which is the same, and its lock.
    after = {host: fleet.on(host, served) for host in hosts}
    assert all("exec /opt/vllm/0.32.0-cpu-" in text and text != before[host] for host, text in after.items()), after


def test_a_server_that_died_is_named_while_the_other_serves(fleet, key):
    fleet.on("cpu-12b", "systemctl stop vllm@chat")
    end = time.monotonic() + 60
    while not fleet.servers()["cpu-12b--chat"].startswith("DOWN"):
        assert time.monotonic() < end, fleet.servers()
        time.sleep(0.5)
    assert fleet.ask(key, OTHER) == CREW
    output = fleet.do("A chip died at 3 am")
    assert re.search(r"cpu-12b\b.*(DOWN|down)", output), output
    fleet.on("cpu-12b", "systemctl start vllm@chat")


def test_everything_is_taken_off_a_host(fleet, key):
    fleet.edit("host_vars/cpu-12b.yml", ("", "vllm_instances: {}\n"))
    fleet.do("Take everything off a host", "cpu-12b")
    places = "/etc/vllm* /opt/vllm* /srv/models/* /var/lib/vllm* /etc/systemd/system/vllm*"
    assert fleet.on("cpu-12b", f"ls -d {places} 2>/dev/null; id vllm 2>/dev/null") == ""
    assert {fleet.ask(key, OTHER) for _number in range(4)} == {CREW}
