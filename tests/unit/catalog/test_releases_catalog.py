# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json
from pathlib import Path

import jsonschema
import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.adapters import UPDATING
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.venv import parse_lock
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_release
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import load_table, releases
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.yaml import load_yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.runtime import DEFAULT_RELEASES

CATALOG = Path(__file__).resolve().parents[3] / "catalog" / "releases"
SCHEMA = json.loads((CATALOG / "schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
FILES = {path.stem: load_yaml(path.read_text(encoding="utf-8")) for path in sorted(CATALOG.glob("*.yml"))}
CATALOGUE = load_catalogue()
DIGEST = "sha256:" + "0" * 64
# Releases whose code was read: tests/parity/test_runtime_lora.py.
RUNTIME_LORA = ("0.32.0", "0.33.0")
SITE = {
    "weights_root": "/srv/weights",
    "encodings_dir": "/srv/encodings",
    "cache_root": "/var/cache/vllm",
    "venv_root": "/opt/vllm",
    "drain_timeout": 30,
}


def plan(release, accelerator, requested, **more):
    chips = declared_accelerator(CATALOGUE, accelerator, 8)
    instances = {"chat": {"recipe": "openai/gpt-oss-20b", **requested}}
    return plan_host("host", chips, {**SITE, "release": release, "instances": instances, **more})["chat"]


@pytest.mark.parametrize("stack", DEFAULT_RELEASES)
def test_the_release_of_a_site_that_names_none_has_its_stack(stack):
    name = DEFAULT_RELEASES[stack]
    assert stack in FILES[name]["stacks"]
    # The role that installs the driver takes the same one.
    role = CATALOG.parents[1] / "roles" / stack / "defaults" / "main.yml"
    if role.exists():
        default = f"{stack}_release: \"{{{{ vllm_release | default('{name}', true) }}}}\""
        assert default in role.read_text(encoding="utf-8").splitlines()


def test_every_stack_of_the_catalogue_has_a_release():
    assert set(DEFAULT_RELEASES) == {stack for release in FILES.values() for stack in release["stacks"]}


@pytest.mark.parametrize("name", FILES)
def test_release_follows_the_schema_and_loads(name):
    VALIDATOR.validate(FILES[name])
    assert load_release(name)["vllm"] == FILES[name]["vllm"]


@pytest.mark.parametrize(
    "change",
    [
        {"vllm": "latest"},
        {"vllm": 0.33},
        {"more": 1},
        {"supports": ["async-scheduling"]},
        {"stacks": {}},
        {"stacks": {"tpu": {"runtime": "container", "image": "vllm/vllm-tpu:v0.33.0"}}},
        {"stacks": {"cuda": {"runtime": "container"}}},
        {"stacks": {"cuda": {"runtime": "container", "image": "vllm/vllm-openai"}}},
        {"stacks": {"cuda": {"runtime": "venv", "image": "vllm/vllm-openai:v0.33.0"}}},
        {"stacks": {"cuda": {"runtime": "container", "image": "a:b", "images": {"h100": "a:c"}, "digest": DIGEST}}},
    ],
)
def test_schema_refuses_what_is_no_release(change):
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**copy.deepcopy(FILES["0.33.0"]), **change})


@pytest.mark.parametrize("name", FILES)
def test_release_has_an_option_table_and_says_what_it_supports(name):
    assert FILES[name]["vllm"] in releases()
    table = load_table(FILES[name]["vllm"])
    *options, runtime_lora = SCHEMA["properties"]["supports"]["items"]["enum"]
    supported = FILES[name].get("supports", [])
    expected = [option for option in options if table.canonical(f"--{option}")]
    # No option: whether the prefix cache is right after a change is in the code of the release (tests/parity).
    assert supported == [*expected, *([runtime_lora] if FILES[name]["vllm"] in RUNTIME_LORA else [])]
    assert runtime_lora not in supported or UPDATING in table.env


def test_every_option_table_has_a_release():
    assert {data["vllm"] for data in FILES.values()} == set(releases())


@pytest.mark.parametrize("name", FILES)
def test_images_carry_the_version_and_are_for_known_hardware(name):
    known = {word for key, entry in CATALOGUE.models.items() for word in (key, entry.generation)}
    for stack in FILES[name]["stacks"].values():
        assert set(stack.get("images", {})) <= known
        for image in filter(None, (stack.get("image"), *stack.get("images", {}).values())):
            # AMD's images of the first day bear its date.
            assert f":v{FILES[name]['vllm']}" in image or image.startswith("rocm/vllm-dev:open-")


@pytest.mark.parametrize("name", FILES)
def test_every_cuda_stack_names_the_oldest_driver(name):
    cuda = FILES[name]["stacks"].get("cuda")
    if cuda:
        assert cuda["minimum_driver"] == ("580.65.06" if cuda["cuda"].startswith("13") else "570.26")


@pytest.mark.parametrize(("release", "accelerator"), [("0.20.2", "ascend_950pr"), ("0.20.2", "ascend_310p")])
def test_an_atlas_that_no_image_is_built_for_gets_none(release, accelerator):
    with pytest.raises(PlanError, match=f"names no image for {accelerator}; it has ascend_.*; set vllm_image"):
        plan(release, accelerator, {"recipe": "baremetal/gpt-oss-smoke"})


# The image's own paths are in a file that is for people at a prompt.
ASCEND = ["/bin/bash", "-lc", 'PS1=x; . /root/.bashrc; exec vllm serve "$@"', "vllm"]


@pytest.mark.parametrize(
    ("release", "accelerator", "image", "before"),
    [
        ("0.33.0", "h200", "vllm/vllm-openai:v0.33.0", []),
        ("0.33.0", "mi300x", "vllm/vllm-openai-rocm:v0.33.0", []),
        ("0.23.0", "ascend_a2", "quay.io/ascend/vllm-ascend:v0.23.0", None),
        ("0.23.0", "ascend_a3", "quay.io/ascend/vllm-ascend:v0.23.0-a3", None),
        ("0.30.0", "ascend_a2", "quay.io/ascend/vllm-ascend:v0.30.0", None),
        ("0.30.0", "ascend_a3", "quay.io/ascend/vllm-ascend:v0.30.0-a3", None),
        ("0.20.2", "ascend_a3", "quay.io/ascend/vllm-ascend:v0.20.2rc1-a3", None),
        ("0.10.2", "mi325x", "rocm/vllm-dev:open-mi300-08052025", ["vllm", "serve"]),
        ("0.10.2", "mi350x", "rocm/vllm-dev:open-mi355-08052025", ["vllm", "serve"]),
        ("0.10.2", "r9700", "rocm/vllm-dev:open-r9700-08052025", ["vllm", "serve"]),
    ],
)
def test_container_is_the_one_for_the_hardware(release, accelerator, image, before):
    container = plan(release, accelerator, {})["container"]
    assert container["image"] == image
    assert container["command"] == (ASCEND if before is None else before)


@pytest.mark.parametrize(
    ("release", "accelerator", "tag"),
    [
        ("0.23.0", "ascend_950pr", "v0.23.0-a5"), ("0.30.0", "ascend_950pr", "v0.30.0-a5"),
        ("0.23.0", "ascend_310p", "v0.23.0-310p"), ("0.30.0", "ascend_310p", "v0.30.0-310p"),
    ],
)  # fmt: skip
def test_an_atlas_that_gpt_oss_does_not_run_on_has_its_image(release, accelerator, tag):
    assert plan(release, accelerator, {"recipe": "baremetal/gpt-oss-smoke"})["image"].endswith(f"vllm-ascend:{tag}")


def test_cpu_of_0_32_0_is_a_venv_and_a_container_on_wish():
    assert plan("0.32.0", "cpu", {})["image"] is None
    container = plan("0.32.0", "cpu", {"runtime": "container"})["container"]
    assert (container["image"], container["command"]) == ("vllm/vllm-openai-cpu:v0.32.0-x86_64", [])


LOCKS = [
    (name, stack, python, entry)
    for name in FILES
    for stack, found in load_release(name)["stacks"].items()
    if isinstance(found.get("requirements"), dict)
    for python, entry in found["requirements"].items()
]


def test_the_cuda_releases_have_a_lock_for_each_python():
    assert {(name, stack, python) for name, stack, python, _entry in LOCKS} == {
        (name, "cuda", python) for name in ("0.25.1", "0.32.0", "0.33.0") for python in ("3.11", "3.12", "3.13")
    }


@pytest.mark.parametrize(("name", "stack", "python", "entry"), LOCKS, ids=lambda value: str(value)[:8])
def test_a_lock_of_cuda_is_whole(name, stack, python, entry):
    lock = parse_lock(entry["requirements_text"])
    assert (lock.target.python, lock.target.machine) == (python, "x86_64")
    assert lock.pins["vllm"].version == name
    assert lock.pins["torch"].version == FILES[name]["stacks"][stack]["torch"]
    assert all(len(pin.hashes) == 1 and "+" not in pin.version for pin in lock.pins.values())
    assert "://" not in entry["requirements_text"]
    # FlashInfer's sources refuse an nvcc of another CUDA than that of the headers.
    parts = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-cuda-cccl", "nvidia-nvvm", "nvidia-cuda-runtime")
    assert {lock.pins[part].version.rpartition(".")[0] for part in parts} == {"13.0"}
    assert {"ninja", "flashinfer-python", "triton"} <= set(lock.pins)


def test_the_gpu_test_starts_with_what_the_catalogue_sets():
    """One visit measured starts without vLLM's startup plan, because its own release file did not have it."""
    site = CATALOG.parents[1] / "tests/gpu/site/releases/gpu-test.yml"
    tested = load_yaml(site.read_text())
    assert tested["stacks"]["cuda"]["env"] == FILES[tested["vllm"]]["stacks"]["cuda"]["env"]
