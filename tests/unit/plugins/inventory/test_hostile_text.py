# SPDX-License-Identifier: GPL-3.0-or-later
"""Text from outside that looks like a template: no source, no option and no release of Ansible may evaluate it.

`make matrix` runs this on each ansible-core that is supported.
"""

from __future__ import annotations

import csv
import io
import json
from unittest import mock

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.role_options import SERVING, specs_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.templates import as_template
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet import render
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_reader import HostReader, needed
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.plans import plan_fleet
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.spanning import spanning_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.reader import FleetReader
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.inventory_variables import (
    VARIABLES,
    InventoryVariables,
    KeptHostVariables,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory import source as inventory_source
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.candidates import NAMES
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.fleet_columns import refusal, value_problem
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.ask import Answer
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.chips import Chips

from tests.fakes.fleets import Said, observation
from tests.fakes.inventory_plugin import command, inventory_of, parse, write_source

HARDWARE = {"accelerator": "h200", "accelerator_count": 8}
SERVED = {"vllm_instances": {"chat": {"recipe": "openai/gpt-oss-120b"}}}
INSTANCE_KEYS = (
    "recipe", "model", "release", "variant", "preset", "features", "host", "port", "args", "env", "nodes", "prefill",
    "replicas", "devices", "served_model_names", "image", "adapters", "residents",
)  # fmt: skip
ALL_ROLES = (*SERVING, "gateway", "health", "mirror", "rollout")


@pytest.fixture(scope="module", autouse=True)
def role_templates(tmp_path_factory):
    """Templates that use every variable, in place of the role's, whose filters only a whole Ansible finds."""
    top = tmp_path_factory.mktemp("templates")
    names = [name for name in needed() if not name.startswith("__")]
    text = "{{ item }}" + "".join(f"{{{{ {name} | default('') }}}}\n" for name in names)
    for path in render.TEMPLATES.iterdir():
        (top / path.name).write_text(text)
    with mock.patch.object(render, "TEMPLATES", top):
        yield


@pytest.fixture
def harm(tmp_path):
    """The file that a template would write; the tests end with none."""
    path = tmp_path / "harm"
    yield path
    assert not path.exists(), "a text from outside was evaluated"


def hostile(harm):
    return f"{{{{ lookup('ansible.builtin.pipe', 'touch {harm}') }}}}"


def hostvars_of(inventory):
    """Return Ansible's own hostvars of an inventory."""
    loader = DataLoader()
    manager = InventoryManager(loader)
    manager._inventory = inventory
    return KeptHostVariables(HostVars(manager, VariableManager(loader, manager), loader))


def read_everything(hostvars, host):
    """Let Ansible and all readers of the collection read a host's variables, as its plays and playbooks do.

    Most hostile values are refused, each in a sentence of its own; only that is not judged here.
    """
    own = hostvars.raw_get(host)
    odd = [name for name, value in own.items() if "ansible.builtin.pipe" in str(value)]
    for name in odd:
        attempt(lambda name=name: Templar(DataLoader(), own).template(as_template(f"{{{{ {name} }}}}")))
    attempt(lambda: spanning_of([host], hostvars, DataLoader(), own.get("groups") or {}))
    attempt(lambda: InventoryVariables(hostvars, DataLoader(), [*VARIABLES, *odd])[host])
    attempt(lambda: FleetReader(hostvars, DataLoader()).host(host))
    fleet = plan_fleet([host], HostReader(hostvars, DataLoader()), plan_host)
    for group in fleet.groups:
        render.texts_of(group, render.RoleTemplates(DataLoader()))
    return fleet


def attempt(read):
    try:
        read()
    except Exception as exc:
        assert str(exc)


def of_kind(spec, text):
    """Return a hostile value of an option's type."""
    kind = spec.get("type", "str")
    if kind == "list":
        return [{"name": text, text: text}] if spec.get("elements") == "dict" else [text]
    if kind == "dict":
        keys = spec.get("options") or {}
        return {key: of_kind(entry, text) for key, entry in keys.items()} or {"name": text, text: {"name": text}}
    return text


def may_be_set(name, value):
    return not refusal(name) and not value_problem(name, value)


def test_every_option_of_every_role(tmp_path, harm):
    text = hostile(harm)
    values = {name: of_kind(spec, text) for role in ALL_ROLES for name, spec in specs_of(role).items()}
    values.update(dict.fromkeys(("ansible_host", "ansible_user", "note", "accelerator_bmc"), text))
    values["vllm_instances"] = {"chat": {"recipe": text, text: text}}
    values["vllm_secrets"] = {"chat": {text: text}}
    hosts = {name.replace("_", "-"): {**HARDWARE, **SERVED, name: value} for name, value in values.items()}
    for name in NAMES:
        hosts.pop(name.replace("_", "-"), None)
    for key in INSTANCE_KEYS:
        for number, value in enumerate((text, [text], {text: text}, {"max-model-len": text})):
            instance = {"recipe": "openai/gpt-oss-120b", key: value}
            hosts[f"instance-{key}-{number}"] = {**HARDWARE, "vllm_instances": {"chat": instance}}
    # What no fleet file may set can come from a service.
    service = tmp_path / "netbox.yml"
    service.write_text("---\nplugin: netbox.netbox.nb_inventory\n")
    closed = {host for host, own in hosts.items() if not all(may_be_set(*item) for item in own.items())}
    earlier = inventory_of({host: hosts[host] for host in closed}, str(service))
    files = {"fleet.json": json.dumps({"hosts": {host: own for host, own in hosts.items() if host not in closed}})}
    hostvars = hostvars_of(parse(write_source(tmp_path, files), earlier).inventory)
    planned = 0
    for host in hosts:
        planned += bool(read_everything(hostvars, host).groups)
        assert not harm.exists(), host
    assert planned > len(hosts) / 4, "too few of these values come as far as a plan"


@pytest.mark.parametrize(
    ("name", "value"),
    [("ansible_ssh_common_args", "-oProxyCommand='touch {}'"), ("ansible_host", "-oProxyCommand=touch {}"),
     ("ansible_ssh_executable", "{}.sh")],
)  # fmt: skip
def test_no_column_runs_anything_on_the_controller(name, value, tmp_path, harm):
    """Ansible itself would do as the table says."""
    script = tmp_path / "harm.sh"
    script.write_text(f"#!/bin/sh\ntouch {harm}\nexit 1\n")
    script.chmod(0o755)
    row = {"ansible_host": "192.0.2.1", name: value.format(harm)}
    source = write_source(tmp_path, {"fleet.csv": csv_text({"gpu-1": row})})
    done = command(tmp_path, "ansible", "-i", str(source), "all", "-m", "ping", "-T", "3")
    assert "fleet.csv:2: host 'gpu-1': " + name in done.stderr.replace("\n", " ")


def csv_text(hosts):
    columns = list(dict.fromkeys(key for values in hosts.values() for key in values))
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["name", *columns], *([name, *values.values()] for name, values in hosts.items())])
    return text.getvalue()


FORMATS = {
    "csv": csv_text,
    "json": lambda hosts: json.dumps({"hosts": hosts}),
    "yml": lambda hosts: json.dumps({"hosts": hosts}),
}
PLAIN_VALUES = ("vllm_user", "vllm_engine", "note")


def check(found, harm):
    """Read all hosts of an inventory; Ansible itself has their texts as they are."""
    hostvars = hostvars_of(found.inventory)
    for host in found.inventory.hosts:
        read_everything(hostvars, host)
        assert not harm.exists(), host
        own = hostvars.raw_get(host)
        for name in ("note", "composed", "accelerator_stale"):
            if name in own:
                assert Templar(DataLoader(), own).template(as_template(f"{{{{ {name} }}}}")) == hostile(harm)


@pytest.mark.parametrize("suffix", FORMATS)
def test_fleet_files_and_their_cache(suffix, tmp_path, harm):
    host = {**HARDWARE, **dict.fromkeys(PLAIN_VALUES, hostile(harm))}
    files = {f"fleet.{suffix}": FORMATS[suffix]({"gpu-1": host})}
    cache = {"cache": True, "cache_plugin": "jsonfile", "cache_connection": str(tmp_path / "cache")}
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.json").write_text(json.dumps(SERVED))
    source = write_source(tmp_path, files, compose={"composed": "note"}, **cache)
    for _time in range(2):
        check(parse(source, cache=True), harm)
    assert list((tmp_path / "cache").iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_what_decides_groups(name, tmp_path, harm):
    files = {"fleet.json": json.dumps({"hosts": {"gpu-1": {**HARDWARE, name: hostile(harm)}}})}
    attempt(lambda: check(parse(write_source(tmp_path, files)), harm))


def test_the_cache_of_discovery(tmp_path, harm):
    text = hostile(harm)
    seen = observation(Said({"h200": 8}))
    seen["cpu"] = dict.fromkeys(seen["cpu"], text) | {"numa_nodes": 1, "cores": 8, "threads": 16, "memory_mib": 9}
    seen["drivers"] = {"nvidia": text}
    entry = {"at": text, "observation": seen, "stale_reason": text, "stale_since": "2026-11-21T14:40:00Z"}
    (tmp_path / "discovery.json").write_text(json.dumps({"schema": 1, "hosts": {"gpu-1": entry}}))
    files = {"fleet.json": json.dumps({"hosts": {"gpu-1": {**SERVED, "note": text}}})}
    with mock.patch(f"{inventory_source.__name__}.Seen.discovered", lambda *_: {
        "accelerator_detected": {"model": text, "count": 8, "models": {text: 8}, "unknown": [{"name": text}]},
        "accelerator_stale": text, "accelerator_discovered_at": text,
    }):  # fmt: skip
        attempt(lambda: check(parse(write_source(tmp_path, files)), harm))
    check(parse(write_source(tmp_path, files)), harm)


def test_answers_of_bmcs(tmp_path, harm):
    text = hostile(harm)
    chips = Chips(ids={"10de:fffe": 2}, names={text: 3})
    files = {"fleet.json": json.dumps({"hosts": {"gpu-1": {"accelerator_bmc": "bmc", **SERVED, "note": text}}})}
    login = {"redfish": True, "redfish_username": "reader", "redfish_password": "secret"}
    with mock.patch(f"{inventory_source.__name__}.ask_bmcs", lambda bmcs, limits: [Answer("gpu-1", chips, None)]):
        check(parse(write_source(tmp_path, files, **login)), harm)


def test_cached_facts(tmp_path, harm):
    facts = {"accelerator_detected": {"model": "h200", "count": 8, "models": {"h200": 8}}, "fact": hostile(harm)}
    files = {"fleet.json": json.dumps({"hosts": {"gpu-1": dict(SERVED)}})}
    source = write_source(tmp_path, files, use_fact_cache=True, compose={"composed": "fact"}, strict=True)
    with mock.patch(f"{inventory_source.__name__}.CachedFacts.__init__", facts_of(facts)):
        check(parse(source), harm)


def facts_of(facts):
    def init(self, enabled, warn):
        self._cache, self._warn = mock.Mock(contains=lambda host: True, get=lambda host: facts), warn

    return init


@pytest.mark.parametrize("name", ["netbox.yml", "cloud.aws_ec2.yaml"])
def test_a_plugin_that_asks_a_service(name, tmp_path, harm):
    (tmp_path / name).write_text("---\nplugin: netbox.netbox.nb_inventory\nplurals: false\n")
    texts = {
        "note": hostile(harm),
        "vllm_user": hostile(harm),
        "custom_fields": {"chip": "h200", "text": hostile(harm)},
    }
    inventory = inventory_of({"gpu-1": {**texts, **SERVED}}, str(tmp_path / name))
    compose = {"accelerator": "custom_fields.chip", "composed": "custom_fields.text"}
    check(parse(write_source(tmp_path, {}, compose=compose, strict=True), inventory), harm)


@pytest.mark.parametrize("playbook", ["render.yml", "explain.yml", "fleet.yml"])
def test_playbooks_with_the_templates_of_the_role(playbook, tmp_path, harm):
    files = {"fleet.csv": csv_text({"gpu-1": {**HARDWARE, **dict.fromkeys(("vllm_user", "note"), hostile(harm))}})}
    source = write_source(tmp_path, files)
    extra = {**SERVED, "render_dir": str(tmp_path / "rendered"), "fleet_page": str(tmp_path / "fleet.html")}
    words = ("ansible-playbook", "-i", str(source), f"playbooks/{playbook}", "-e", json.dumps(extra))
    done = command(tmp_path, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    if playbook == "render.yml":
        assert str(harm) in (tmp_path / "rendered/gpu-1/chat/files/etc/systemd/system/vllm@chat.service").read_text()
