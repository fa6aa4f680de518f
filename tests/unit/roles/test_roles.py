# SPDX-License-Identifier: GPL-3.0-or-later
"""What every role keeps to."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.baremetal.inference.plugins.module_utils.common.spelling import misspelt
from ansible_collections.baremetal.inference.plugins.module_utils.common.versions import version_key
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import clients
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.role_options import misspelt_options
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway import budgets, paths, routing, services
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.instances import INSTANCE_KEYS
from jinja2 import Environment, nodes

from tests.fakes.code_words import unread

TOP = Path(__file__).resolve().parents[3]
ROLES = sorted(path.name for path in (TOP / "roles").iterdir())
# Called by other roles, which have looked before.
INTERNAL = {"vendor_stack"}
# Reads the files of the role vllm itself, to plan for any host.
READS_THE_ROLE = TOP / "plugins/plugin_utils/fleet/host_reader.py"
# Declared in the inventory, by host; a default would declare something.
DECLARED = {
    "accelerator",
    "accelerator_count",
    "accelerator_cuda_version",
    "accelerator_driver_version",
    "accelerator_mec_firmware",
    "accelerator_memory_gib",
    "accelerator_partition",
}
# What `default` may give to a condition.
BOOLEANS = ("Const(value=True)", "Const(value=False)")
# Mappings of names, with the keys that the code accepts below each name.
KEYS_OF_NAMES = {
    ("vllm", "vllm_instances"): INSTANCE_KEYS,
    ("gateway", "gateway_clients"): clients.OPTIONS,
    ("gateway", "gateway_teams"): budgets.TEAM_OPTIONS,
    ("gateway", "gateway_services"): services.SERVICE_OPTIONS,
    ("gateway", "gateway_models"): routing.MODEL_OPTIONS,
}


def load(path):
    return yaml.safe_load(path.read_text()) or {}


@pytest.mark.parametrize("role", ROLES)
def test_defaults_and_argument_spec_name_the_same_options(role):
    defaults = load(TOP / "roles" / role / "defaults/main.yml")
    options = load(TOP / "roles" / role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    optional = {name for name, option in options.items() if not option.get("required")}
    assert set(defaults) == optional - DECLARED
    described = {name for name in defaults if is_template_of_another_type(defaults[name], options[name])}
    assert {name for name, value in defaults.items() if options[name].get("default") != value} == described
    assert [name for name in described if "default" in options[name]] == []


def is_template_of_another_type(value, option):
    """Return whether a default is a template where readers of the spec parse a value; its description gives it."""
    return isinstance(value, str) and "{{" in value and option["type"] in ("bool", "int", "float")


# Read by the controller's code, from the variables of other hosts too, so that no task passes them on.
READ_BY_CODE = {
    ("accelerator", "accelerator_cuda_version"),
    ("accelerator", "accelerator_driver_version"),
    ("accelerator", "accelerator_mec_firmware"),
    ("accelerator", "accelerator_memory_gib"),
    ("gateway", "gateway_host_address"),
    ("vllm", "vllm_cluster_address"),
    ("vllm", "vllm_cluster_interface"),
    ("vllm", "vllm_cluster_network"),
}


def words_of_role(role):
    """Return the words of a role's tasks, handlers, variables and templates, without comments and names of tasks."""
    files = [
        path for part in ("tasks", "handlers", "vars", "templates") for path in (TOP / "roles" / role / part).rglob("*")
    ]
    texts = [re.sub(r"(?m)^\s*(#|- name:|name: [A-Z]).*$", "", path.read_text()) for path in files if path.is_file()]
    return set(re.findall(r"\w+", "\n".join(texts)))


@pytest.mark.parametrize("role", ROLES)
def test_something_reads_every_option(role):
    entries = load(TOP / "roles" / role / "meta/argument_specs.yml")["argument_specs"].values()
    options = {name for entry in entries for name in entry.get("options", {})}
    by_code = {name for of, name in READ_BY_CODE if of == role}
    assert options - words_of_role(role) == by_code
    code = [path for tree in ("plugin_utils", "action") for path in sorted((TOP / "plugins" / tree).rglob("*.py"))]
    assert unread(by_code, code) == set()


def entry_points():
    for role in ROLES:
        for name, entry in load(TOP / "roles" / role / "meta/argument_specs.yml")["argument_specs"].items():
            yield pytest.param(entry, id=f"{role}-{name}")


@pytest.mark.parametrize("entry", list(entry_points()))
def test_every_entry_point_is_described(entry):
    assert entry["short_description"]
    assert entry["description"]


@pytest.mark.parametrize(("role", "option"), KEYS_OF_NAMES)
def test_the_keys_below_a_name_are_documented(role, option):
    spec = load(TOP / "roles" / role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert set(spec[option]["options"]["<name>"]["options"]) == set(KEYS_OF_NAMES[role, option])
    # Ansible itself checks none of them: the code does, with the nearest name.
    found = ArgumentSpecValidator({option: spec[option]}).validate({option: {"chat": {"recpe": "a/b"}}})
    assert found.error_messages == []


def test_the_keys_of_a_path_are_documented():
    spec = load(TOP / "roles/gateway/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert set(spec["gateway_paths"]["options"]) == set(paths.KEYS)


@pytest.mark.parametrize("role", ROLES)
def test_every_default_has_a_comment_above_it(role):
    lines = (TOP / "roles" / role / "defaults/main.yml").read_text().splitlines()
    for number, line in enumerate(lines):
        if line[:1].isalpha():
            assert lines[number - 1].startswith("#"), line


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_a_readme_and_a_preflight(role):
    assert (TOP / "roles" / role / "README.md").is_file()
    assert (TOP / "roles" / role / "tasks/preflight.yml").is_file() is (role not in INTERNAL)


def test_no_role_takes_what_an_inventory_says_for_what_was_seen():
    """The inventory plugin sets a short accelerator_detected; what a role needs is the fact of that name."""
    for path in sorted((TOP / "roles").glob("*/tasks/*.yml")):
        for line in path.read_text().splitlines():
            named = line.count("accelerator_detected")
            assert named == line.count("ansible_facts.accelerator_detected"), f"{path.relative_to(TOP)}: {line.strip()}"


@pytest.mark.parametrize("role", ROLES)
def test_what_is_private_to_a_role_is_named_nowhere_else(role):
    """``__ROLE_*`` and ``__ROLE`` belong to the role's own files; what others may read has a public name."""
    private = re.compile(rf"\b__{role}(_\w+|\b)")
    others = [path for path in (TOP / "roles").glob("*/*/*") if path.parts[-3] != role]
    for path in [*others, *(TOP / "playbooks").rglob("*")]:
        if path.is_file():
            found = {match.group() for match in private.finditer(path.read_text())}
            assert found == set(), path.relative_to(TOP)


def test_what_a_role_gives_to_others_is_no_misspelt_option():
    """A second run of the role in the same play has these variables."""
    text = "".join(path.read_text() for path in (TOP / "roles").rglob("tasks/*.yml"))
    given = set(re.findall(r"^ +register: ([a-z]\w+)$", text, re.M))
    for facts in re.findall(r"^ +ansible\.builtin\.set_fact:\n((?: {4,}.+\n)+)", text, re.M):
        given |= set(re.findall(r"^ +([a-z]\w+):", facts, re.M))
    assert "gateway_served" in given and "vllm_group_changed" in given
    assert misspelt_options(frozenset(given), tuple(ROLES)) == []


def private_names(source):
    """Return the names of roles' private variables that are texts of a plugin."""
    texts = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return {text for text in texts if re.fullmatch(rf"__({'|'.join(ROLES)})(_\w+)?", str(text))}


def test_a_plugin_that_reads_what_is_private_to_a_role_runs_in_that_role_only():
    found = {path: private_names(path.read_text()) for path in (TOP / "plugins").rglob("*.py")}
    assert found.pop(READS_THE_ROLE)
    read = {path: names for path, names in found.items() if names}
    assert {path.stem for path in read} == {"group_report", "rollout_plan"}, "a plugin of a role, or a public name?"
    tasks = [path for top in ("roles", "playbooks") for path in (TOP / top).rglob("*.yml")]
    for plugin, names in read.items():
        users = [path for path in tasks if f"baremetal.inference.{plugin.stem}:" in path.read_text()]
        assert users, plugin
        for path in users:
            role = path.relative_to(TOP).parts[1]
            assert all(re.fullmatch(rf"__{role}(_\w+)?", name) for name in names), f"{plugin.stem} in {path}"


def test_a_private_name_in_a_plugin_is_found():
    assert private_names('A, B = "__gateway_plan", "vllm_plan"\n"""Of __vllm_state."""') == {"__gateway_plan"}


def test_what_is_private_to_the_playbooks_is_named_in_no_role():
    defined = {name for path in (TOP / "playbooks/vars").glob("*.yml") for name in yaml.safe_load(path.read_text())}
    private = {name for name in defined if name.startswith("__")}
    assert private
    for path in (TOP / "roles").glob("*/*/*"):
        if path.is_file():
            assert private.intersection(re.findall(r"\b__\w+", path.read_text())) == set(), path.relative_to(TOP)


def unguarded(tasks, outer=""):
    """Return the names of the tasks that update the package index with --check, too."""
    found = []
    for task in tasks:
        guard = f"{outer} {task.get('when', '')}"
        if (task.get("ansible.builtin.apt") or {}).get("update_cache") and "not ansible_check_mode" not in guard:
            found.append(task["name"])
        for part in ("block", "rescue", "always"):
            found += unguarded(task.get(part) or [], guard)
    return found


def test_check_mode_updates_no_package_index():
    for path in sorted((TOP / "roles").glob("*/tasks/*.yml")):
        assert unguarded(load(path) or []) == [], path.relative_to(TOP)


def test_an_update_in_check_mode_is_found():
    update = {"name": "update", "ansible.builtin.apt": {"update_cache": True}}
    assert unguarded([update, {"block": [update]}, {"when": ["not ansible_check_mode"], "block": [update]}]) == [
        "update",
        "update",
    ]


def test_every_module_is_in_the_action_group():
    group = load(TOP / "meta/runtime.yml")["action_groups"]["all"]
    assert group == sorted(path.stem for path in (TOP / "plugins/modules").glob("*.py"))


def test_nothing_was_added_after_the_version_of_the_collection():
    version = load(TOP / "galaxy.yml")["version"]
    releases = load(TOP / "changelogs/changelog.yaml")["releases"]
    assert version in releases or version_key(version) > max(map(version_key, releases))
    for path in sorted((TOP / "plugins").rglob("*.py")):
        added = re.findall(r"(?m)^ *version_added: \"?([0-9.]+)", path.read_text())
        assert max(map(version_key, added), default=version_key("0")) <= version_key(version), path.relative_to(TOP)


def test_a_slip_of_the_pen_is_told_from_another_word():
    known = {"vllm_instances", "vllm_release", "weights_sources"}
    assert misspelt("vllm_instance", known) == "vllm_instances"
    assert misspelt("vllm_dashboard_url", known) is None


def conditions(document):
    """Yield every condition of the tasks in a document."""
    for entry in document if isinstance(document, list) else [document]:
        if isinstance(entry, dict):
            for key, value in entry.items():
                if key in ("when", "until", "failed_when", "changed_when"):
                    yield from value if isinstance(value, list) else [value]
                yield from conditions(value)
        elif isinstance(entry, list):
            yield from conditions(entry)


def results_of(expression):
    """Yield the parts of an expression of which one becomes its value."""
    for attribute in ("left", "right") if isinstance(expression, (nodes.And, nodes.Or)) else ("expr1", "expr2"):
        if hasattr(expression, attribute) and not isinstance(expression, nodes.Compare):
            yield from results_of(getattr(expression, attribute))
    if not isinstance(expression, (nodes.And, nodes.Or, nodes.CondExpr)):
        yield expression


def test_conditions_are_booleans():
    """ansible-core 2.19 refuses a list or a text, and only when the task is reached."""
    found = []
    for path in sorted([*(TOP / "roles").rglob("tasks/*.yml"), *(TOP / "playbooks").rglob("*.yml")]):
        for condition in conditions(load(path)):
            (output,) = Environment().parse("{{" + str(condition) + "}}").body
            for part in results_of(output.nodes[0]):
                of_bool = isinstance(part, nodes.Filter) and (
                    part.name.endswith("bool") or (part.name == "default" and str(part.args[0]) in BOOLEANS)
                )
                if isinstance(part, (nodes.Filter, nodes.List, nodes.Concat, nodes.Add)) and not of_bool:
                    found.append(f"{path.relative_to(TOP)}: {condition}")
    assert found == []


def test_an_instance_leaves_its_gateways_before_it_is_removed():
    tasks = yaml.safe_load((TOP / "roles/vllm/tasks/remove.yml").read_text())
    included = [task.get("ansible.builtin.include_tasks") for task in tasks]
    assert included.index("leave_gateways.yml") < included.index("unit.yml")
    assert "when" not in tasks[included.index("leave_gateways.yml")]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("mirror/tasks/configure.yml", "{{ not item.startswith(mirror_root ~ '/') }}"),
        ("monitoring/tasks/install.yml", False),
    ],
)
def test_no_directory_gets_a_mode_through_a_link_of_another_user(file, expected):
    modules = [task.get("ansible.builtin.file", {}) for task in load(TOP / "roles" / file)]
    assert [module.get("follow") for module in modules if module.get("state") == "directory"] == [expected]
