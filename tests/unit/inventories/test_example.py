# SPDX-License-Identifier: GPL-3.0-or-later
"""The example inventory, rendered and explained by the very playbooks, without a connection to anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TOP = Path(__file__).resolve().parents[3]
INVENTORY = TOP / "inventories/example"
HOSTS = {
    "gpu-a-01", "gpu-a-02", "gpu-a-03", "gpu-b-01", "gpu-b-02", "gpu-c-01", "gpu-d-01", "cpu-a-01",
    "amd-a-01", "amd-a-02", "amd-b-01", "amd-c-01", "npu-a-01", "npu-b-01", "cpu-b-01",
}  # fmt: skip
SECRET = "a-secret-that-must-be-nowhere"

# The same file by ansible.builtin.template, from the same plan.
BY_TASK = """
- name: Render with tasks
  hosts: localhost
  connection: local
  gather_facts: false
  vars:
    vllm_user: vllm
    vllm_start_timeout: 900
    vllm_drain_timeout: 60
    vllm_stop_notice: 3
    vllm_warmup: true
    vllm_warmup_seconds: 20
    plans: {quick: "{{ lookup('file', plan) | from_json }}"}
  tasks:
    - name: Write the files
      ansible.builtin.template:
        src: "{{ templates }}/{{ template }}"
        dest: "{{ out }}/{{ template }}"
        mode: "0644"
      loop: "{{ plans | dict2items(key_name='name', value_name='plan') | product(names) }}"
      loop_control:
        loop_var: pair
      vars:
        item: "{{ pair[0] | combine({'start_seconds': 0}) }}"
        template: "{{ pair[1] }}"
"""


def playbook(*options, **environment):
    """Run ansible-playbook as a user does; return the finished process."""
    command = [str(Path(sys.executable).with_name("ansible-playbook")), *options]
    given = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "FRA1_API_KEY": SECRET, **environment}
    return subprocess.run(command, cwd=TOP, env=given, capture_output=True, text=True, check=False)


def render(directory, *options):
    return playbook("-i", "inventories/example", "playbooks/render.yml", "-e", f"render_dir={directory}", *options)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    top = tmp_path_factory.mktemp("example")
    done = render(top)
    assert done.returncode == 0, done.stdout + done.stderr
    return top, done.stdout + done.stderr


@pytest.fixture(scope="module")
def plans(rendered):
    top, _output = rendered
    return {
        f"{path.parts[-3]}/{path.parts[-2]}": json.loads(path.read_text()) for path in sorted(top.rglob("plan.json"))
    }


@pytest.mark.slow
def test_a_checkout_has_no_inventory_of_its_own():
    """Without -i nothing runs, on the lab or elsewhere; what needs no host does not mention it."""
    done = playbook("site.yml")
    assert (done.returncode == 0, "no host: name an inventory with -i" in done.stdout + done.stderr) == (False, True)
    done = playbook("playbooks/fit.yml", "-e", "fit_accelerators=h200:8")
    assert (done.returncode, done.stderr) == (0, "")


def test_every_host_that_serves_has_a_plan(plans, rendered):
    assert {name.split("/")[0] for name in plans} == HOSTS
    # Mirrors and gateways are there for something else.
    assert "skipped because" not in rendered[1]


def test_a_plan_says_of_whom_it_is(plans):
    for name, plan in plans.items():
        assert f"{plan['host']}/{plan['instance']}" == name
        assert plan["argv"][:2] == ["vllm", "serve"]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("gpu-a-01/chat", ("h200", "cuda", "hopper", "0.33.0", "default", 2)),
        ("gpu-b-01/chat", ("h100", "cuda", "hopper", "0.33.0", "default", 8)),
        ("gpu-c-01/chat", ("b200", "cuda", "blackwell", "0.33.0", "default", 1)),
        ("gpu-d-01/chat", ("a100", "cuda", "ampere", "0.33.0", "default", 1)),
        ("amd-a-01/chat", ("mi300x", "rocm", "gfx942", "0.33.0", "default", 1)),
        ("amd-b-01/chat", ("mi355x", "rocm", "gfx950", "0.33.0", "amd_fp8", 8)),
        ("amd-c-01/chat", ("r9700", "rocm", "gfx1201", "0.33.0", "default", 4)),
        ("npu-a-01/chat", ("ascend_a2", "cann", "ascend_a2", "0.30.0", "bf16", 4)),
        ("npu-b-01/quick", ("ascend_a3", "cann", "ascend_a3", "0.20.2", "bf16", 2)),
        ("cpu-a-01/quick", ("cpu", "cpu", "cpu", "0.32.0", "default", 1)),
        ("cpu-b-01/quick", ("cpu", "cpu", "cpu", "0.33.0", "default", 1)),
    ],
)
def test_each_kind_of_hardware_gets_what_is_right_for_it(plans, name, wanted):
    plan = plans[name]
    found = tuple(plan[key] for key in ("accelerator", "stack", "generation", "vllm_version", "variant"))
    assert (*found, plan["args"]["tensor-parallel-size"]) == wanted


def test_replicas_are_pinned_and_beside_them_an_instance_of_its_own(plans):
    chips = {name: plan["chips"] for name, plan in plans.items() if name.startswith("gpu-a-01/")}
    assert chips == {
        "gpu-a-01/chat": [0, 1], "gpu-a-01/chat-2": [2, 3], "gpu-a-01/chat-3": [4, 5], "gpu-a-01/quick": [6, 7],
    }  # fmt: skip
    assert [plans[f"gpu-a-01/{name}"]["listen"]["port"] for name in ("chat", "chat-2", "chat-3")] == [8000, 8001, 8002]


def test_two_hosts_serve_one_instance(plans):
    ranks = [plans[f"{host}/chat"]["args"]["node-rank"] for host in ("gpu-b-01", "gpu-b-02")]
    assert ranks == [0, 1]
    assert plans["gpu-b-01/chat"]["args"]["master-addr"] == "10.1.2.1"
    assert [plans[f"{host}/chat"]["group"]["role"] for host in ("gpu-b-01", "gpu-b-02")] == ["head", "worker"]
    own = ("VLLM_HOST_IP", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX")
    assert [plans["gpu-b-02/chat"]["env"][name] for name in own] == ["10.1.2.2", "bond1", "mlx5_0,mlx5_1", "3"]


def test_features_presets_tools_and_the_sites_own_words_arrive(plans):
    assert plans["gpu-a-01/chat"]["args"]["speculative-config"]["method"] == "eagle3"
    assert plans["gpu-a-01/chat"]["args"]["tool-call-parser"] == "openai"
    assert plans["gpu-a-03/agents"]["args"]["tool-server"].startswith("tools-fra1.example.net:8001,")
    assert plans["gpu-a-01/chat"]["served_model_names"] == ["openai/gpt-oss-120b", "chat"]
    assert plans["gpu-d-01/chat"]["args"]["max-model-len"] == 65536
    # null took it away; the others have it from the recipe.
    assert "override-generation-config" not in plans["gpu-d-01/chat"]["args"]
    assert "override-generation-config" in plans["gpu-a-01/chat"]["args"]


def test_a_recipe_and_a_strategy_of_the_sites_own_are_taken(plans):
    plan = plans["gpu-c-01/house"]
    assert (plan["recipe"], plan["strategy"], plan["chips"]) == ("example/house-moe", "single_node_tep", [4, 5, 6, 7])
    assert plan["args"]["enable-expert-parallel"] is True


def test_old_firmware_gets_its_variable(plans):
    assert "HSA_NO_SCRATCH_RECLAIM" not in plans["amd-a-01/chat"]["env"]
    assert plans["amd-a-02/chat"]["env"]["HSA_NO_SCRATCH_RECLAIM"] == "1"


def test_images_come_from_the_clusters_registry(plans):
    assert plans["gpu-a-01/chat"]["image"] == "mirror-fra1:5000/vllm/vllm-openai:v0.33.0"
    assert plans["amd-a-01/chat"]["image"].startswith("vllm/vllm-openai-rocm:")
    assert plans["cpu-a-01/quick"]["image"] is None


def test_no_secret_is_rendered(rendered):
    top, output = rendered
    files = [path for path in top.rglob("*") if path.is_file()]
    assert not [path for path in files if SECRET in path.read_text() or path.suffix == ".secrets"]
    assert SECRET not in output


def test_the_files_lie_where_the_role_puts_them(rendered):
    files = rendered[0] / "gpu-a-01/chat-2/files"
    config = yaml.safe_load((files / "etc/vllm/chat-2.yaml").read_text())
    assert (config["port"], config["tensor-parallel-size"]) == (8001, 2)
    assert "HF_HUB_OFFLINE=1" in (files / "etc/vllm/chat-2.env").read_text().splitlines()
    assert list(files.rglob("*.service"))


def test_the_files_are_what_the_template_module_makes(rendered, tmp_path):
    top, _output = rendered
    found = {path.name: path for path in (top / "cpu-a-01/quick/files").rglob("*") if path.is_file()}
    written = {
        "instance.env.j2": "quick.env",
        "instance.yaml.j2": "quick.yaml",
        "serve.j2": "serve",
        "vllm@.service.j2": "vllm@.service",
    }
    (tmp_path / "play.yml").write_text(BY_TASK)
    names = {"names": list(written), "out": str(tmp_path), "templates": str(TOP / "roles/vllm/templates"),
             "plan": str(top / "cpu-a-01/quick/plan.json")}  # fmt: skip
    done = playbook(str(tmp_path / "play.yml"), "-e", json.dumps(names))
    assert done.returncode == 0, done.stdout + done.stderr
    for template, name in written.items():
        assert found[name].read_text() == (tmp_path / template).read_text()


def test_a_second_run_changes_nothing_and_a_limit_leaves_the_others_alone(rendered):
    top, _output = rendered
    before = {path: path.stat().st_mtime_ns for path in top.rglob("*") if path.is_file()}
    done = render(top, "-l", "cluster_hel1")
    assert "changed=0" in done.stdout and "changed=1" not in done.stdout
    assert {path: path.stat().st_mtime_ns for path in top.rglob("*") if path.is_file()} == before


def test_problems_of_hosts_are_shown_together_and_nothing_is_written(tmp_path):
    wrong = {"vllm_instances": {"chat": {"recipe": "openai/gpt-oss-12b"}}}
    done = render(tmp_path / "out", "-e", json.dumps(wrong))
    assert done.returncode == 2
    assert "nothing was written: 17 of 17 hosts cannot be planned." in done.stdout + done.stderr
    assert "nearest: 'openai/gpt-oss-120b'" in done.stdout + done.stderr
    assert not (tmp_path / "out").exists()


def test_a_missing_directory_is_one_error():
    done = playbook("-i", "inventories/example", "playbooks/render.yml")
    assert done.returncode == 2
    assert (
        "render_dir is missing: set it to the directory to write into, for example -e render_dir=DIR"
        in done.stdout + done.stderr
    )


def test_explain_tells_where_a_setting_comes_from():
    done = playbook(
        "-i", "inventories/example", "playbooks/explain.yml", "-e", "explain_instance=chat", "-l", "accel_h200"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = [line for line in done.stdout.splitlines() if not line.startswith("[WARNING]")]
    assert "chat on gpu-a-01, gpu-a-02" in table
    # The width of the columns follows from the other lines, so the cell may go on in the next one.
    assert any("tensor-parallel-size" in line and "strategy single_node_tp: tp of" in line for line in table)
    # The command is one line, so that a shell takes it.
    commands = [line for line in table if line.startswith("env ")]
    assert max(len(line) for line in table if line not in commands) <= 120
    assert commands and all(" vllm serve /srv/models/openai/gpt-oss-120b/" in line for line in commands)
    assert "quick on" not in done.stdout and SECRET not in done.stdout


def test_explain_as_json_is_a_document():
    done = playbook("-i", "inventories/example", "playbooks/explain.yml", "-e", "explain_format=json", "-l", "amd-a-01")
    document = done.stdout[done.stdout.index("\n[\n") : done.stdout.index("\n]\n") + 2]
    assert {tuple(entry["hosts"]) for entry in json.loads(document)} == {("amd-a-01",)}


def test_drift_names_what_is_of_no_use_any_more(tmp_path):
    guide = tmp_path / "guide.sh"
    guide.write_text("export VLLM_USE_V1=1\n")
    releases = ("-e", "drift_from=0.11.0", "-e", "drift_to=0.33.0", "-e", f"drift_command={guide}")
    done = playbook("playbooks/drift.yml", *releases)
    assert done.returncode == 0 and "VLLM_USE_V1 does nothing" in done.stdout
    failed = playbook("playbooks/drift.yml", *releases, "-e", "drift_fail=true")
    assert failed.returncode == 2
    assert "no longer works in vLLM 0.33.0: VLLM_USE_V1" in failed.stdout + failed.stderr
