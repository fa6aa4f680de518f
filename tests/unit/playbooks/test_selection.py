# SPDX-License-Identifier: GPL-3.0-or-later
"""Every playbook with a selection that selects nothing: an error before any task, not a success."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from ansible.errors import AnsibleLookupError
from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.lookup.selected_hosts import LookupModule

from tests.fakes.inventory_plugin import TOP, command
from tests.fakes.outputs import squeezed

# rollout_waves.yml is a part of two others; its hosts are the result of the plan.
NAMES = sorted(path.name for path in (TOP / "playbooks").glob("*.yml") if path.name != "rollout_waves.yml")
TEXTS = {name: (TOP / "playbooks" / name).read_text() for name in NAMES}
LOOKUP = "lookup('baremetal.inference.selected_hosts', "
# Plays that may have no host, and why.
UNCHECKED = {
    ("rollout.yml", "Refuse a limit"): "it refuses -l; the next play checks the hosts",
    ("rollback.yml", "Refuse a limit"): "it refuses -l; the next play checks the hosts",
    ("rollout.yml", "Plan the waves"): "the controller, after the check of the hosts",
    ("rollback.yml", "Plan the waves"): "the controller, after the check of the hosts",
    ("rollback.yml", "Remind of the inventory"): "the controller, after the check of the hosts",
    ("rollout.yml", "Download everything to every host, while it serves"): "the result of the plan; often nothing",
    ("site.yml", "Set up the mirrors"): "a site may have no mirror",
    ("explain.yml", "Check what the gateways would serve"): "a site may have no gateway",
    ("status.yml", "Read what the hosts have installed"): "only for versions or starts; the next play checks it",
}
# What a run needs before it selects hosts.
NEEDED = {"mirror.yml": ("--check", "-e", "bundle_dir=/nowhere/disk")}
CHECK = "baremetal.inference.playbook_options"
INVENTORY = """
all:
  children:
    inference: {hosts: {gpu-1: {accelerator: h200}}}
    gateways: {hosts: {gw-1: {}}}
    mirrors: {hosts: {mirror-1: {}}}
    provisioner: {hosts: {prov-1: {}}}
    store: {hosts: {nas-1: {}}}
    empty: {}
"""


def selections(text):
    """Return the pairs of option and default pattern of a playbook; the option is "" where there is none."""
    found = re.findall(rf"{re.escape(LOOKUP)}'(\w+)'(, '(\w*)')?", text)
    return {(first, default) if both else ("", first) for first, both, default in found}


def wrong(name):
    """Yield the runs of a playbook that select nothing: what to add to its command line, and what the error says."""
    pairs = selections(TEXTS[name])
    for option in sorted({option for option, _default in pairs if option}):
        told = f"{option}: no host or group of the inventory is called 'infrence'; nearest: 'inference'"
        yield ("-e", f"{option}=infrence"), told
    yield ("--tags", "vlm_run"), f"--tags vlm_run: no task of {name} has this tag; "
    patterns = {default for _option, default in pairs}
    if "localhost" in patterns:
        yield ("-l", "nas-1"), "-l nas-1: this playbook runs on the controller only; run it without -l"
    elif not {"all", ""} & patterns and not name.startswith("roll"):
        yield ("-l", "nas-1"), f"-l nas-1: none of these hosts is in '{patterns.pop()}', where this playbook runs"


RUNS = [(name, words, told) for name in NAMES for words, told in wrong(name)]
# The first of each playbook is in every run, all others in make long.
FIRST = {name: words for name, words, _told in reversed(RUNS)}
CASES = [
    pytest.param(*run, marks=[pytest.mark.long] * (FIRST[run[0]] != run[1]), id=f"{run[0]} {' '.join(run[1])}")
    for run in RUNS
]


@pytest.mark.parametrize(("name", "words", "told"), CASES)
def test_nothing_is_selected(tmp_path, name, words, told):
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    words = (f"playbooks/{name}", *words, *NEEDED.get(name, ()))
    done = command(tmp_path, "ansible-playbook", "-i", str(tmp_path / "hosts.yml"), *words)
    found = squeezed(done.stdout + done.stderr)
    assert done.returncode, found
    assert squeezed(told) in found
    assert "changed=1" not in found


@pytest.mark.parametrize("words, told", [
    (("site.yml", "--tags", "gateway_keys"), "no task of site.yml has this tag; known: cann_install, "),
    (("playbooks/site.yml", "--tags", "Vllm_run"), "nearest: 'vllm_run'"),
    (("baremetal.inference.site", "--tags", "vllm_run,cuda_instal"), "--tags cuda_instal: no task of site.yml"),
    (("playbooks/site.yml", "playbooks/gateway.yml", "--tags", "keys"), "no task of site.yml and gateway.yml has"),
    (("playbooks/site.yml", "--skip-tags", "vlm_run"), "--skip-tags vlm_run: no task has this tag"),
    # Nothing is wrong with these.
    (("playbooks/site.yml", "playbooks/gateway.yml", "--tags", "gateway_keys"), ""),
    (("playbooks/gateway.yml", "--tags", "always", "--tags", "weights_install"), ""),
    (("playbooks/site.yml", "--skip-tags", "weights_scrub,cuda_install"), ""),
    (("{home}/mine.yml", "--tags", "mine"), ""),
])  # fmt: skip
def test_a_tag_is_one_of_the_playbooks(tmp_path, words, told):
    """A playbook of somebody else may have any tag, also one in a file that it includes later."""
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    mine = [{"import_playbook": str(TOP / "playbooks/undrain.yml"), "tags": ["mine"]}]
    (tmp_path / "mine.yml").write_text(json.dumps(mine))
    words = [word.replace("{home}", str(tmp_path)) for word in words]
    done = command(tmp_path, "ansible-playbook", "-i", str(tmp_path / "hosts.yml"), "--list-hosts", *words)
    found = squeezed(done.stdout + done.stderr)
    assert (done.returncode == 0, squeezed(told) in found) == (not told, True), found


def test_every_playbook_is_tried():
    assert {name for name, _words, _told in RUNS} == set(NAMES)


def test_every_play_checks_its_hosts():
    plays = [
        (name, play["name"], play["hosts"]) for name in NAMES for play in yaml.safe_load(TEXTS[name]) if "hosts" in play
    ]
    unchecked = {(name, play) for name, play, hosts in plays if not hosts.startswith(f"{{{{ {LOOKUP}")}
    assert unchecked == set(UNCHECKED)


@pytest.mark.parametrize("playbook, name", [
    ("rollout.yml", "rollout_hosts"), ("explain.yml", "explain_hosts"), ("explain.yml", "target_host"),
    ("drain.yml", "drain_host"), ("site.yml", "site_hosts"), ("remove.yml", "remove_hosts"),
])  # fmt: skip
def test_a_former_name_is_refused(tmp_path, playbook, name):
    """Unread, it would leave the run without its limit."""
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    words = ("-i", str(tmp_path / "hosts.yml"), f"playbooks/{playbook}", "-e", f"{name}=gpu-1")
    done = command(tmp_path, "ansible-playbook", *words)
    told = f"-e {name}: no playbook has this option; nearest: 'target_hosts'"
    assert done.returncode and squeezed(told) in squeezed(done.stdout + done.stderr)
    assert "changed=" not in done.stdout.replace("changed=0", "")


def chosen(**variables):
    """Return what the selection of a play refuses, with these extra variables."""
    lookup = LookupModule(loader=DataLoader())
    groups = {"all": ["gpu-a-01", "gw-1"], "inference": ["gpu-a-01"], "ungrouped": []}
    try:
        lookup.run(["target_hosts", "inference"], {"groups": groups, **variables})
    except AnsibleLookupError as exc:
        return str(exc)
    return ""


@pytest.mark.parametrize(
    "name", ["taget_hosts", "tagret_hosts", "targethosts", "TARGET_HOSTS", "Target_Hosts", "target-hosts", "targe_hots"]
)
def test_a_misspelt_target_hosts_is_refused(name):
    assert chosen(**{name: "gpu-a-01"}) == f"-e {name}: no playbook has this option; nearest: 'target_hosts'"


@pytest.mark.parametrize("name, value", [
    ("limit", "gpu-a-01"), ("LIMIT", "inference"), ("hosts", "gpu-a-01,gw-1"),
])  # fmt: skip
def test_a_variable_that_would_limit_the_run_is_refused(name, value):
    told = f"-e {name}: no playbook has this option; use -l {value}, or -e target_hosts={value}"
    assert chosen(**{name: value}) == told


@pytest.mark.parametrize("variables", [
    {"inventory_hostname": "gpu-a-01", "limit": "gpu-a-01", "taget_hosts": "x"},  # a task, which sees the inventory's
    {"limit": "30"}, {"limit": 30}, {"hosts": ["gpu-a-01"]}, {"get_hosts": "x"}, {"all_hosts": "x"},
    {"my_target_hosts": "x"}, {"target": "gpu-a-01"}, {"ansible_limit": ""}, {"forget_hosts": "x"},
])  # fmt: skip
def test_variables_of_a_site_pass(variables):
    assert chosen(**variables) == ""


def test_gateways_are_all_set_up_or_limited(tmp_path):
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    run = ("ansible-playbook", "-i", str(tmp_path / "hosts.yml"), "playbooks/gateway.yml", "-e")
    done = command(tmp_path, *run, "target_hosts=gw-1")
    told = "target_hosts names a gateway, and this playbook sets up every gateway: limit it with -l gw-1"
    assert done.returncode and squeezed(told) in squeezed(done.stdout + done.stderr)
    # The servers of site.yml in the same run.
    assert "ok=3 " in command(tmp_path, *run, "target_hosts=gpu-1").stdout
    # Without one, which as an empty pattern would be all hosts.
    done = command(tmp_path, *run[:-1])
    found = squeezed(done.stdout + done.stderr)
    assert squeezed("target_hosts names") not in found and squeezed("is undefined") not in found


def test_a_group_without_hosts(tmp_path):
    (tmp_path / "hosts.yml").write_text("all: {hosts: {nas-1: {}}}")
    for name in ("health.yml", "gateway.yml"):
        found = command(tmp_path, "ansible-playbook", "-i", str(tmp_path / "hosts.yml"), f"playbooks/{name}")
        group = "gateways" if name == "gateway.yml" else "inference"
        assert found.returncode
        told = squeezed(f"no host of the inventory is in the group '{group}': put hosts into it")
        assert told in squeezed(found.stdout + found.stderr)


def test_hosts_may_be_a_list(tmp_path):
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    run = ("ansible-playbook", "-i", str(tmp_path / "hosts.yml"))
    done = command(tmp_path, *run, "playbooks/gateway.yml", "-e", '{"target_hosts": ["gpu-1", "gw-1"]}')
    assert squeezed("limit it with -l gpu-1,gw-1") in squeezed(done.stdout + done.stderr)
    assert "ok=3 " in command(tmp_path, *run, "playbooks/gateway.yml", "-e", '{"target_hosts": ["gpu-1"]}').stdout
    extra = '{"target_hosts": ["gpu-1", "nas-1"], "drain_event": "alertmanager"}'
    done = command(tmp_path, *run, "playbooks/drain.yml", "-e", extra)
    assert squeezed('"gpu-1,nas-1" of the event "alertmanager" is no host') in squeezed(done.stdout + done.stderr)


# The tasks of status.yml and of the role rollout in which the pattern is a list of hosts.
@pytest.mark.parametrize("file", ["playbooks/status.yml", "roles/rollout/tasks/plan.yml"])
def test_a_pattern_of_a_task_may_be_a_list(tmp_path, file):
    (expression,) = re.findall(r"""(?:__asked|hosts): "({{ query\(.*target_hosts.*\) }})\"""", (TOP / file).read_text())
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    for given in (["gpu-1", "nas-1:gw-1"], "gpu-1:nas-1:gw-1"):
        extra = json.dumps({"target_hosts": given})
        words = ("localhost", "-m", "ansible.builtin.debug", "-a", f"msg={expression}", "-e", extra)
        done = command(tmp_path, "ansible", "-i", str(tmp_path / "hosts.yml"), *words)
        assert sorted(re.findall(r"\b\w+-1\b", done.stdout)) == ["gpu-1", "gw-1", "nas-1"], done.stdout + done.stderr


@pytest.mark.parametrize("words, mirrors", [
    ((), {"mirror-1"}), (("target_hosts=gpu-1",), set()), (("target_hosts=gpu-1:mirror-1",), {"mirror-1"}),
])  # fmt: skip
def test_only_named_mirrors_are_set_up(tmp_path, words, mirrors):
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    extra = [word for text in words for word in ("-e", text)]
    run = ("ansible-playbook", "-i", str(tmp_path / "hosts.yml"), "playbooks/site.yml", "--list-hosts", *extra)
    plays = command(tmp_path, *run).stdout.split("play #")
    (play,) = [text for text in plays if "Set up the mirrors" in text]
    assert set(re.findall(r"^      (\S+)$", play, re.M)) == mirrors


@pytest.mark.parametrize("name", NAMES)
def test_options_are_checked_before_what_a_run_requires(name):
    """A misspelt option is named with the nearest one, in place of the sentence that one is missing."""
    kinds = [key for play in yaml.safe_load(TEXTS[name]) for task in play.get("tasks") or () for key in task]
    checked = kinds.index(CHECK) if CHECK in kinds else len(kinds)
    assert CHECK not in kinds or "ansible.builtin.assert" not in kinds[:checked]
