# SPDX-License-Identifier: GPL-3.0-or-later
"""``-e OPTION=false`` is a text: every boolean of every playbook and role is cast where it is used."""

from __future__ import annotations

import re
from pathlib import Path

import jinja2
import pytest
import yaml
from ansible.errors import AnsibleError, AnsibleUndefinedVariable
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.booleans import strict_bool
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.role_options import (
    RoleOptionError,
    check_role_options,
    specs_of,
)
from jinja2 import nodes
from jinja2.nativetypes import NativeEnvironment

TOP = Path(__file__).resolve().parents[3]
ROLES = sorted(path.name for path in (TOP / "roles").iterdir())
OPTIONS = [(role, name) for role in ROLES for name, spec in specs_of(role).items() if spec.get("type") == "bool"]
# The playbooks' own booleans, with an expression that casts each.
PLAYBOOKS = {
    "bench_fresh": "false",
    "bench_shared": "false",
    "bench_shorten": "false",
    "bundle_evaluation": "false",
    "bundle_verify": "false",
    "check_all_reduce": "false",
    "drain_force": "false",
    "drift_fail": "false",
    "import_pin": "true",
    "pin_beside": "false",
    "provision_bmc_verify": "true",
    "deprovision_secure": "false",
    "power_cycle_allowed": "false",
    "provision_keep_node": "false",
    "provision_then_site": "false",
    "remove_container_engine": "false",
    "remove_driver": "false",
    "render_commands": "false",
    "remove_everything": "false",
    "site_container_runtime": "true",
    "site_drivers": "true",
    "site_health": "false",
    "site_host_tuning": "false",
    "site_monitoring": "false",
    "status_faults": "false",
    "status_starts": "false",
    "status_versions": "false",
    "tune_fresh": "false",
    "tune_stop": "false",
    "undrain_force": "false",
    "undrain_proof": "false",
}
CASTS = ("bool", "baremetal.inference.strict_bool")
PLACES = ("tasks", "handlers", "templates", "vars", "defaults")
FILES = sorted(
    path
    for top in [TOP / "playbooks", *(TOP / "roles" / role / place for role in ROLES for place in PLACES)]
    for path in top.rglob("*")
    # Prometheus has templates with the same braces.
    if path.is_file() and "monitoring" not in path.parts
)


def test_roles_and_playbooks_have_booleans():
    assert len(OPTIONS) > 25
    used = "\n".join(path.read_text() for path in FILES)
    found = set(re.findall(r"\b(\w+) \| default\((?:true|false)\)", used))
    roles = {name for _role, name in OPTIONS}
    internal = {
        "changes",
        "inference_awaits_mirror",
        "scrub_installed",
        "vllm_driver_changes",
        "vendor_stack_keep",
        "vendor_stack_resolve",
        "passed",
        "idle",
    }
    assert {name for name in found if not name.startswith("__")} - roles - internal <= set(PLAYBOOKS)
    assert all(re.search(rf"\b{name}\b", used) for name in PLAYBOOKS)


@pytest.mark.parametrize(("role", "name"), OPTIONS)
def test_a_role_accepts_texts_of_booleans_and_refuses_others(role, name):
    for value in ("false", "no", "0", "off", "true", "yes", "1", "on", True, False, 0, 1):
        assert check_role_options({"inventory_hostname": "gpu-1", name: value}, [role]) == []
    for value in ("maybe", "", 2, []):
        with pytest.raises(RoleOptionError, match=f"^gpu-1: {name}: found .*, expected true or false$"):
            check_role_options({"inventory_hostname": "gpu-1", name: value}, [role])


def test_a_template_is_rendered_before_it_is_judged():
    rendered = {"{{ a }}": "maybe", "{{ b }}": "off"}
    assert check_role_options({"vllm_verify": "{{ b }}"}, ["vllm"], rendered.__getitem__) == []
    with pytest.raises(RoleOptionError, match="vllm_verify: found 'maybe'"):
        check_role_options({"vllm_verify": "{{ a }}"}, ["vllm"], rendered.__getitem__)

    def undefined(_value):
        raise AnsibleUndefinedVariable("'c' is undefined")

    assert check_role_options({"vllm_verify": "{{ c }}"}, ["vllm"], undefined) == []


@pytest.mark.parametrize(
    ("role", "name", "value"),
    [
        ("gateway", "gateway_secret", "{{ c }}"),
        ("vllm", "vllm_verify", "{{ c }}"),
        ("vllm", "vllm_recipe_path", ["{{ c }}"]),
        ("weights", "weights_sources", [{"source": "hub", "token_file": "{{ c }}"}]),
    ],
)
def test_a_lookup_that_fails_is_one_sentence_with_the_option(role, name, value):
    def failed(_value):
        raise AnsibleError(
            "The lookup plugin 'file' failed:\n  Unable to access '/keys/gateway.secret': File not found."
        )

    with pytest.raises(RoleOptionError) as caught:
        check_role_options({"inventory_hostname": "gpu-1", name: value}, [role], failed)
    assert str(caught.value) == (
        f"gpu-1: {name}: The lookup plugin 'file' failed: Unable to access '/keys/gateway.secret': File not found."
    )


def expressions(path):
    """Yield the expressions of a file as pairs of text and whether the expression is the whole value of a key."""
    if path.suffix not in (".yml", ".yaml"):
        yield path.read_text(), False
        return
    pending = [("", yaml.safe_load(path.read_text()))]
    while pending:
        key, value = pending.pop()
        if isinstance(value, dict):
            pending += list(value.items())
        elif isinstance(value, list):
            pending += [(key, entry) for entry in value]
        elif isinstance(value, str) and key in ("when", "that", "changed_when", "failed_when", "until"):
            yield "{{ " + value + " }}", False
        elif isinstance(value, str) and "{" in value:
            yield value, True


def uncast(text, names):
    """Return the names that an expression uses without a cast."""
    tree = jinja2.Environment(autoescape=True).parse(text)
    found = []

    def visit(node, cast):
        if isinstance(node, nodes.Filter):
            cast = cast or node.name in CASTS
            if node.name not in (*CASTS, "default"):
                cast = False
        elif isinstance(node, nodes.Test) and node.name in ("defined", "undefined"):
            cast = True
        elif isinstance(node, nodes.Name) and node.name in names and not cast:
            found.append(node.name)
        elif isinstance(node, (nodes.Not, nodes.And, nodes.Or, nodes.CondExpr, nodes.Call)):
            cast = False
        for child in node.iter_child_nodes():
            visit(child, cast)

    visit(tree, False)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TOP)))
def test_each_use_of_a_boolean_is_cast(path):
    names = {name for _role, name in OPTIONS} | set(PLAYBOOKS)
    # A module casts its own options.
    handed_over = re.compile(r"\{\{ (\w+)( \| default\(\w+\))? \}\}\Z")
    for text, whole in expressions(path):
        # These say something to people, or keep a value as it is.
        if whole and (handed_over.match(text) or not re.search(r"\{[{%]", text)):
            continue
        assert uncast(text, names) == [], text


def test_a_use_without_a_cast_is_found():
    names = {"vllm_verify"}
    assert uncast("{{ plans if vllm_verify else [] }}", names) == ["vllm_verify"]
    assert uncast("{{ vllm_verify and restart }}", names) == ["vllm_verify"]
    assert uncast("{{ plans if vllm_verify | default(true) else [] }}", names) == ["vllm_verify"]
    assert uncast("{% if not vllm_verify %}{% endif %}", names) == ["vllm_verify"]
    assert uncast("{{ plans if vllm_verify | default(true) | bool else [] }}", names) == []
    assert uncast("{{ vllm_verify is defined }}", names) == []


def render(expression, **variables):
    environment = NativeEnvironment()
    environment.filters["baremetal.inference.strict_bool"] = strict_bool
    environment.filters["length"] = lambda entries: len(list(entries))
    environment.filters["intersect"] = lambda these, others: [entry for entry in these if entry in others]
    return environment.from_string(expression.strip()).render(variables)


@pytest.mark.parametrize("text", ["false", "no", "0", "off", False, 0])
def test_the_driver_is_left_alone(text):
    stack = yaml.safe_load((TOP / "playbooks/vars/site.yml").read_text())["inference_stack"]
    facts = {"accelerator_detected": {"stack": "cuda"}}
    assert render(stack, ansible_facts=facts) == "cuda"
    assert render(stack, ansible_facts=facts, site_drivers="yes") == "cuda"
    assert render(stack, ansible_facts=facts, site_drivers=text) in ("", None)
    engine = yaml.safe_load((TOP / "playbooks/vars/site.yml").read_text())["inference_needs_engine"]
    assert render(engine, site_container_runtime=text, vllm_plan={"plans": {}}) is False


@pytest.mark.parametrize(("name", "default"), PLAYBOOKS.items())
def test_a_playbook_refuses_what_is_no_boolean(name, default):
    uses = [
        line for path in (TOP / "playbooks").rglob("*.yml") for line in path.read_text().split("\n")
        if f"strict_bool('{name}')" in line
    ]  # fmt: skip
    assert uses
    cast = f"{{{{ {name} | default({default}) | baremetal.inference.strict_bool('{name}') }}}}"
    assert render(cast) is (default == "true")
    with pytest.raises(AnsibleError, match=f"{name}: found 'maybe', expected true or false"):
        render(cast, **{name: "maybe"})


@pytest.mark.parametrize(("value", "needed"), [("own", True), ("files", True), ("off", False), (False, False)])
def test_tls_is_off_with_and_without_quotes(value, needed):
    """YAML reads ``gateway_tls: off`` as false."""
    has_tls = yaml.safe_load((TOP / "roles/gateway/vars/main.yml").read_text())["__gateway_has_tls"]
    assert render(has_tls, gateway_tls=value) is needed


@pytest.mark.parametrize("path", sorted((TOP / "playbooks").glob("*.yml")), ids=lambda path: path.stem)
def test_options_are_checked_before_ansible_refuses_one_in_its_own_words(path):
    actions = {f"baremetal.inference.{action.stem}" for action in (TOP / "plugins/action").glob("*.py")}
    for play in yaml.safe_load(path.read_text(encoding="utf-8")):
        for task in play.get("tasks") or ():
            checks = actions & task.keys()
            if "strict_bool('" in str([value for key, value in task.items() if key in checks]):
                raise AssertionError(
                    f"{path.name}: {task['name']}: expected baremetal.inference.playbook_options before it"
                )
            if checks or "import_tasks" in str(task):
                return
