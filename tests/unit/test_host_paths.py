# SPDX-License-Identifier: GPL-3.0-or-later
"""What hosts answer names no file of the controller and no other host, but where WHY says what bounds it."""

from __future__ import annotations

import pytest

from tests.fakes.controller_paths import (
    TOP,
    Use,
    answered,
    from_hosts,
    is_of_controller,
    names_in,
    read,
    tasks_of,
    uses,
)
from tests.fakes.controller_paths import files as task_files

ONE_OF_THREE = "playbooks/vars/site.yml compares the host's word with cuda, rocm and cann"
GATEWAY = "the item of a loop over gateways of the inventory, which Ansible itself writes into the result"
PLAN = "hostvars of localhost alone: the plan that the controller has made; its gateways are those of the inventory"
TUNING = "the controller's plan has apt or dnf; host_tuning gives what its host answers to reboot.yml only"
# The use: what bounds it. Facts and registered answers are those of hosts that may have been taken over.
SYSTEM = "a value of __container_runtime_systems; what the host calls its system is only the key"
WHY = {
    "playbooks/caches.yml | fetch | {{ caches_dir }}/.{{ inventory_hostname }}.{{ item.0.key }}.partial of "
    "{{ vllm_plan.plans | dict2items | zip(__caches_packed.results) }}": "the key of the controller's plan",
    "playbooks/remove.yml | delegate_to | {{ item }} of {{ __remove_gateways if __remove_plan.instances else [] }}": (
        "the answer decides only whether the gateways of the inventory are asked"
    ),
    "playbooks/remove.yml | delegate_to | {{ item.1 }} of {{ __remove_elsewhere }}": (
        "playbooks/vars/remove.yml takes hosts of the inventory only, and the task only reads"
    ),
    "playbooks/remove.yml | delegate_to | {{ item.item }} of {{ __remove_status.results }}": GATEWAY,
    "playbooks/tasks/drain_engines.yml | delegate_to | {{ item.host }} of {{ __drain_results "
    "| baremetal.inference.gateway_engines(inventory_hostname, __drain_inventory.instances) }}": (
        "hosts come from the inventory's instances; a gateway only says which of them it has"
    ),
    "playbooks/tasks/inspect.yml | include_role | baremetal.inference.{{ inference_stack }}": ONE_OF_THREE,
    "playbooks/tasks/install.yml | include_role | baremetal.inference.{{ inference_stack }}": ONE_OF_THREE,
    "playbooks/vars/site.yml | lookup | {{ lookup('ansible.builtin.vars', inference_stack ~ '_host', default={}) }}": (
        ONE_OF_THREE
    ),
    "roles/container_runtime/tasks/apply_plan.yml | include_tasks "
    "| packages_{{ __container_runtime_system.packager }}.yml": SYSTEM,
    "roles/container_runtime/tasks/fetch.yml | include_tasks "
    "| fetch_{{ __container_runtime_system.packager }}.yml": SYSTEM,
    "roles/monitoring/tasks/install.yml | include_tasks | {{ __monitoring_system.tasks }}": (
        "a value of __monitoring_systems; the host's family is only its key"
    ),
    "roles/rollout/tasks/close_wave.yml | delegate_to | {{ item }} "
    "of {{ hostvars.localhost.rollout_plan.gateways }}": PLAN,
    "roles/rollout/tasks/driver.yml | include_role | baremetal.inference.{{ inference_stack }}": ONE_OF_THREE,
    "roles/rollout/tasks/prefetch.yml | include_role | baremetal.inference.{{ inference_stack }}": ONE_OF_THREE,
    "roles/rollout/tasks/start_replicas.yml | delegate_to | {{ item }} of {{ groups.all "
    "| intersect(__rollout_stopped | map(attribute='hosts') | flatten) }}": (
        "hosts of the inventory, where the task starts replicas that their own inventory lets gateways start"
    ),
    "roles/rollout/tasks/start_replicas.yml | delegate_to | {{ item }} "
    "of {{ hostvars.localhost.rollout_plan.gateways }}": PLAN,
    "roles/rollout/tasks/start_replicas.yml | delegate_to | {{ item.item }} of {{ __rollout_scaled.results "
    "| selectattr('scale', 'defined') | list }}": GATEWAY,
    "roles/rollout/tasks/undo.yml | delegate_to | {{ item }} of {{ __rollout_turn.turn.gateways "
    "if __rollout_has_changed and __rollout_turn.turn.servers else [] }}": PLAN,
    "roles/rollout/tasks/undo.yml | delegate_to | {{ item }} of {{ __rollout_turn.turn.gateways "
    "if __rollout_turn.turn.servers | difference(__rollout_stranded) else [] }}": PLAN,
    "roles/vendor_stack/tasks/fetch.yml | include_tasks | fetch_{{ vendor_stack_host.manager }}.yml": TUNING,
    "roles/vendor_stack/tasks/install_packages.yml | include_tasks | install_{{ vendor_stack_host.manager }}.yml of "
    "{{ vendor_stack_host.batches }}": TUNING,
    "roles/vendor_stack/tasks/prepare.yml | include_tasks | install_{{ vendor_stack_host.manager }}.yml": TUNING,
    "roles/vendor_stack/tasks/restore.yml | include_tasks | install_{{ vendor_stack_host.manager }}.yml": TUNING,
    "roles/vllm/tasks/install.yml | lookup | {{ lookup('ansible.builtin.file', item.requirements) }} of "
    "{{ __vllm_venvs.results | selectattr('changed') | map(attribute='item') }}": (
        "the item of a loop over the controller's plan, which Ansible itself writes into the result"
    ),
    "roles/vllm/tasks/leave_gateways.yml | delegate_to | {{ item.item }} of {{ __vllm_known.results }}": GATEWAY,
}


def line_of(use: Use) -> str:
    return f"{use.file} | {use.key} | {' '.join(use.text.split())}"


def test_no_answer_of_a_host_names_a_file_of_the_controller_or_another_host():
    found = {line_of(use): from_hosts(use.text) for use in uses()}
    hostile = {line: names for line, names in found.items() if names}
    unknown = {line: sorted(names) for line, names in hostile.items() if line not in WHY}
    assert unknown == {}, "take the name from a list of the collection or the inventory, and say so in WHY"
    assert sorted(set(WHY) - set(hostile)) == [], "these are no part of an answer any more"


def test_what_a_gateway_answers_for_a_server_sets_no_fact_of_the_server():
    """A fact of a task that runs elsewhere would belong to the host of the task, and with run_once to all hosts."""
    tasks = [(path, task) for path in task_files() for task in tasks_of(read(path))]
    bare = [
        f"{path.relative_to(TOP)}: {task.get('name')}"
        for path, task in tasks
        if task.get("delegate_to", "localhost") != "localhost" and task.get("delegate_facts") is not True
    ]
    assert bare == [], "add delegate_facts: true"


def test_a_task_that_one_host_runs_for_all_asks_the_controller():
    """What it answers would be a fact of all."""
    tasks = [(path, task) for path in task_files() for task in tasks_of(read(path)) if task.get("run_once")]
    of_controller = {"assert", "debug", "fail", "set_fact", "include_tasks", "import_tasks"}
    bare = [
        f"{path.relative_to(TOP)}: {task.get('name')}"
        for path, task in tasks
        if "delegate_to" not in task
        for module in task
        if "." in module and module.rpartition(".")[2] not in of_controller and not is_of_controller(module)
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("package_{{ ansible_facts['os_family'] | lower }}.yml", {"ansible_facts"}),
        ("{{ item }} of {{ __caches_packed.results }}", {"__caches_packed"}),
        ("{{ __vllm_system_name }}", {"ansible_facts"}),
        ("{{ role_path }}/vars/main.yml", set()), ("{{ vllm_plan.models }} of {{ vllm_plan.venvs }}", set()),
        ("{{ hostvars[item].vllm_host_state }}", {"hostvars", "vllm_host_state"}),
        ("plain of ansible_facts", {"ansible_facts"}),
    ],
)  # fmt: skip
def test_answers_are_found_through_variables(text, names):
    assert from_hosts(text) == names


def test_what_counts_as_an_answer():
    assert {"vllm_host_state", "__weights_result"} & answered()
    assert not {"vllm_plan", "rollout_plan", "__gateway_certificate"} & answered()
    assert names_in("{{ a | b('c') }} d {% if e %}") == {"a", "b", "if", "e"}
