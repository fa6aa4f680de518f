# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.action.serve_plan import (
    ActionModule,
    accelerator,
    check_pinned,
    settings_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

SITE = {
    "weights_root": "/srv/models",
    "encodings_dir": "/srv/encodings",
    "cache_root": "/var/cache/vllm",
    "venv_root": "/opt/vllm",
    "drain_timeout": 60,
}
CPU = {**dict.fromkeys(("model", "stack", "generation", "vendor"), "cpu"), "count": 1, "memory_mib": 8192}
H200 = {"model": "h200", "count": 8, "memory_mib": 143771}
MI300X = {"model": "mi300x", "count": 8, "memory_mib": 196608}
OPTIONS = {
    "instances": {"chat": {"recipe": "baremetal/gpt-oss-smoke"}},
    "release": "0.32.0",
    "runtime": "",
    "python": "",
    "strict": True,
    "accelerator": CPU,
    "facts": {},
    "image": "",
    "registry": "",
    "secret_names": {},
    "fabric": {},
    "site": SITE,
    "recipe_path": [],
    "release_path": [],
    "weights_manifest_path": [],
    "accelerator_catalog_path": [],
}


class Task:
    """As much of a task as an action looks at before it connects."""

    async_val = 0
    check_mode = False
    diff = False
    environment = None

    def __init__(self, args):
        self.args = args
        self.action = "baremetal.inference.serve_plan"

    def get_path(self):
        return "/home/alice/play.yml:1"


class HostVars(dict):
    """Stands for Ansible's hostvars: variables by host."""

    raw_get = dict.__getitem__


def spanning(*play):
    """Return the result on h1 of two hosts that serve together, with these hosts in the play."""
    network = {"vllm_cluster_network": "10.0.0.0/24", "vllm_cluster_interface": "eth1"}
    hosts = HostVars({f"h{rank}": {**network, "ansible_host": f"10.0.0.{rank}"} for rank in (1, 2)})
    big = {"recipe": "baremetal/gpt-oss-smoke", "nodes": "pod", "strategy": "multi_node_tp"}
    nowhere = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    action = ActionModule(Task({**OPTIONS, "instances": {"big": big}}), nowhere, None, DataLoader(), None, None)
    groups = {"all": ["h1", "h2"], "pod": ["h2", "h1"]}
    return action.run(
        task_vars={
            "inventory_hostname": "h1",
            "hostvars": hosts,
            "groups": groups,
            "ansible_play_hosts_all": list(play),
        }
    )


def test_the_hosts_of_a_group_are_those_of_the_inventory():
    result = spanning("h1", "h2")
    assert result["groups"]["big"]["hosts"] == ["h2", "h1"]
    assert (result["groups"]["big"]["role"], result["groups"]["big"]["head_address"]) == ("worker", "10.0.0.2")
    # A worker listens on no port.
    assert (result["ports"], result["listens"]) == ({"big": 0}, {})
    assert result["asked"]["big"]["nodes"] == "pod"


def test_a_part_of_a_group_is_refused():
    with pytest.raises(
        AnsibleActionFail, match=r"vllm_instances[.]big spans hosts that this run leaves out: h2; a group"
    ):
        spanning("h1")


def run(**options):
    nowhere = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    action = ActionModule(Task({**OPTIONS, **options}), nowhere, None, None, None, None)
    return action.run(task_vars={"inventory_hostname": "h1"})


def test_the_plan_of_a_host_and_what_it_needs():
    result = run()
    assert result["changed"] is False
    assert result["asked"] == OPTIONS["instances"]
    assert list(result["plans"]) == ["chat"]
    assert result["plans"]["chat"]["host"] == "h1"
    assert result["models"] == ["baremetal/gpt-oss-smoke"]
    assert [venv["name"] for venv in result["venvs"]] == ["0.32.0-cpu"]
    assert (result["images"], result["warnings"]) == ([], [])
    assert (result["ports"], result["containers"]) == ({"chat": 8000}, {})
    assert result["listens"] == {"vllm_instances.chat.host": "127.0.0.1"}
    assert result["libraries"] == sorted(set(result["plans"]["chat"]["libraries"])) != []
    (venv,) = result["venvs"]
    python = f"{venv['path']}/bin/python"
    (use,) = result["encodings"]
    assert (use["directory"], use["python"], use["instances"]) == ("/srv/encodings", python, ["chat"])


def test_the_environment_whose_flashinfer_compiles_its_sampler_is_named_once():
    chips = {
        **H200, "stack": "cuda", "generation": "hopper", "vendor": "nvidia", "compute_capability": "9.0",
        "driver_version": "580.159.04", "pythons": ["/usr/bin/python3.12"],
    }  # fmt: skip
    one = {"recipe": "baremetal/gpt-oss-smoke", "args": {"tensor-parallel-size": 1}}

    def found(**instances):
        made = run(
            accelerator=chips, runtime="venv", instances={name: {**one, **instances[name]} for name in instances}
        )
        return made["samplers"], made["venvs"]

    off = {"env": {"VLLM_USE_FLASHINFER_SAMPLER": "0"}}
    (sampler,), (venv,) = found(a={"chips": [0]}, b={"chips": [1], "port": 8001}, c={"chips": [2], "port": 8002, **off})
    assert (sampler["path"], sampler["compute_capability"]) == (venv["path"], "9.0")
    assert sorted(sampler["environment"]) == ["CUDA_HOME", "LIBRARY_PATH", "PATH"]
    assert sampler["environment"]["PATH"].startswith(f"{venv['path']}/bin:")
    assert found(c={"chips": [2], **off})[0] == []
    # Root runs no compiler that an instance names.
    assert found(c={"chips": [2], "env": {"CUDA_HOME": "/opt/cuda"}})[0] == []
    assert found(c={"chips": [2], "env": {"PATH": "/srv/bin"}})[0] == []
    assert run()["samplers"] == []


def test_instances_that_read_no_encodings_need_none():
    env = {"TIKTOKEN_ENCODINGS_BASE": None}
    assert run(instances={"chat": {"recipe": "baremetal/gpt-oss-smoke", "env": env}})["encodings"] == []
    assert run(instances={})["encodings"] == []


def test_images_and_draft_models_are_listed_once(tmp_path):
    draft = tmp_path / "RedHatAI" / "gpt-oss-20b-speculator.eagle3.yml"
    draft.parent.mkdir()
    revision, files = "ab" * 20, f"{{config.json: {{size: 2, sha256: {'cd' * 32}}}}}"
    draft.write_text(f"{{repository: RedHatAI/gpt-oss-20b-speculator.eagle3, revision: {revision}, files: {files}}}\n")
    instances = {
        "a": {"recipe": "openai/gpt-oss-20b", "replicas": 2},
        "b": {"recipe": "openai/gpt-oss-20b", "features": ["spec_decoding"], "port": 9000, "replicas": 1},
    }
    result = run(
        accelerator=H200,
        release="0.33.0",
        instances=instances,
        registry="mirror:5000",
        weights_manifest_path=[str(tmp_path)],
    )
    words = result["plans"]["b"]["config"]["speculative-config"]
    assert f'"model": "/srv/models/RedHatAI/gpt-oss-20b-speculator.eagle3/{revision}"' in words
    assert sorted(result["plans"]) == ["a", "a-2", "b"]
    assert result["images"] == ["mirror:5000/vllm/vllm-openai:v0.33.0"]
    assert result["venvs"] == []
    assert result["containers"] == {name: plan["container"] for name, plan in result["plans"].items()}
    assert result["ports"] == {"a": 8000, "a-2": 8001, "b": 9000}
    assert result["models"][0] == "RedHatAI/gpt-oss-20b-speculator.eagle3"
    assert result["models"][1:] == ["openai/gpt-oss-20b"]


def test_warnings_name_the_host_once_for_all_replicas():
    instances = {"chat": {"recipe": "openai/gpt-oss-20b", "env": {"MY_OWN": "1"}}}
    (warning,) = run(accelerator=H200, release="0.33.0", instances=instances)["warnings"]
    assert warning.startswith("h1: vllm_instances.chat.env: MY_OWN: neither vLLM 0.33.0 nor a library on this stack")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"instances": ["chat"]},
            "h1: vllm_instances: found a list, expected a mapping of names to instances, as in "
            "{chat: {recipe: openai/gpt-oss-20b}}",
        ),
        (
            {"instances": {"chat": {"recipe": "baremetal/gpt-oss-smoke", "args": {"max-model-length": 1}}}},
            "h1: vllm_instances.chat: --max-model-length: vLLM 0.32.0 has no such flag; nearest: 'max-model-len'",
        ),
        (
            {"accelerator": {"model": "h2000", "count": 8}},
            "h1: accelerator 'h2000' of the inventory is in no file of the catalogue; nearest: 'h200'",
        ),
        (
            {"accelerator": MI300X},
            "h1: vllm_release '0.32.0' does not support stack 'rocm' (accelerator 'mi300x'); it supports: cpu, cuda; "
            "set vllm_release: '0.33.0' for these hosts, or leave it out",
        ),
    ],
)
def test_what_cannot_be_served_names_the_host(options, message):
    with pytest.raises(AnsibleActionFail) as caught:
        run(**options)
    assert str(caught.value) == message


def test_a_lenient_site():
    instances = {"chat": {"recipe": "baremetal/gpt-oss-smoke", "args": {"max-model-length": 1}}}
    (warning,) = run(instances=instances, strict=False)["warnings"]
    assert (
        warning == "h1: vllm_instances.chat: --max-model-length: vLLM 0.32.0 has no such flag; nearest: 'max-model-len'"
    )


def test_settings_are_the_module_s_options_under_the_names_of_a_site():
    settings = settings_of({**OPTIONS, "secret_names": {"chat": ["A"]}})
    assert settings["secrets"] == {"chat": ["A"]}
    assert settings["weights_root"] == "/srv/models"
    assert set(settings) == {
        "instances", "release", "runtime", "python", "strict", "image", "registry", "recipe_path", "release_path",
        "weights_manifest_path", "secrets", "fabric", *SITE,
    }  # fmt: skip


def test_every_option_has_a_type_and_the_site_s_are_required():
    assert set(ActionModule.ARGUMENT_SPEC) == set(OPTIONS)
    assert all(entry["required"] for entry in ActionModule.ARGUMENT_SPEC["site"]["options"].values())


@pytest.mark.parametrize(
    ("detected", "facts", "expected"),
    [
        (H200, {}, (143771, None, None, None)),
        ({**H200, "memory_mib": None}, {}, (141 * 1024, None, None, None)),
        (H200, {"driver_version": "580.1", "cuda_version": "13.0"}, (143771, "580.1", "13.0", None)),
        ({**H200, "driver_version": "570.1"}, {}, (143771, "570.1", None, None)),
        ({**H200, "driver_version": "570.1"}, {"driver_version": "580.1"}, (143771, "580.1", None, None)),
    ],
)
def test_detected_hardware_with_the_host_s_facts(detected, facts, expected):
    found = accelerator({**OPTIONS, "accelerator": detected, "facts": facts})
    assert (found.memory_mib, found.driver_version, found.cuda_version, found.mec_firmware) == expected
    assert found.count == 8


def test_weights_that_no_manifest_pins_are_refused_before_a_host_is_asked(tmp_path):
    plans = {"chat-2": {"replica_of": "chat", "models": ["openai/gpt-oss-20b", "example/draft"]}}
    words = r"^vllm_instances\.chat: no manifest of weights 'example/draft' in .*catalog/weights; known: "
    with pytest.raises(PlanError, match=words):
        check_pinned(plans, [str(tmp_path)])
    check_pinned({"chat": {"replica_of": "chat", "models": ["openai/gpt-oss-20b"]}}, [])


def test_a_secret_of_no_instance_is_refused_before_anything_changes():
    hosts = {"h1": {}, "h2": {"vllm_instances": {"embed": {}}}}

    def plan(secrets):
        nowhere = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
        action = ActionModule(Task({**OPTIONS, "secret_names": secrets}), nowhere, None, None, None, None)
        known = SimpleNamespace(raw_get=hosts.__getitem__)
        return action.run(task_vars={"inventory_hostname": "h1", "hostvars": known, "groups": {"all": list(hosts)}})

    assert list(plan({"chat": {"VLLM_API_KEY": ""}, "embed": {"VLLM_API_KEY": ""}})["plans"]) == ["chat"]
    with pytest.raises(AnsibleActionFail, match=r"^h1: vllm_secrets.chta: no host has an instance 'chta'.*'chat'"):
        plan({"chta": {"VLLM_API_KEY": ""}})
    with pytest.raises(AnsibleActionFail, match=r"^h1: vllm_secrets.chat.VLLM_API_KEY: found an empty text, expected"):
        plan({"chat": {"VLLM_API_KEY": "found an empty text"}})
    with pytest.raises(AnsibleActionFail, match=r"^h1: vllm_secrets.chat.VLLM_API_KY: .* nearest: 'VLLM_API_KEY'"):
        plan({"chat": {"VLLM_API_KY": ""}})


def test_a_misspelt_option_is_refused_where_the_hardware_was_detected_before():
    nowhere = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    action = ActionModule(Task(OPTIONS), nowhere, None, None, None, None)
    with pytest.raises(AnsibleActionFail, match=r"h1: weights_source is not an option of the role weights"):
        action.run(task_vars={"inventory_hostname": "h1", "weights_source": "x"})
