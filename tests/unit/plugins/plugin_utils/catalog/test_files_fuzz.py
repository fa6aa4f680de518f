# SPDX-License-Identifier: GPL-3.0-or-later
"""Damaged recipes, releases, manifests, catalogues and fleets: a plan, or one sentence that names file or key.

Each case has its own seed, which the failure shows. FUZZ_SECONDS=60 runs each test for a minute.
"""

from __future__ import annotations

import copy
import random
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import AcceleratorError
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.places import CATALOG
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.yaml import load_yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.fleet_files import (
    FleetFileError,
    read_fleet,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.fleet_formats import FleetText
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

from tests.fakes.fuzz import cases

SITE = {
    "weights_root": "/srv/models",
    "encodings_dir": "/srv/encodings",
    "cache_root": "/var/cache/vllm",
    "venv_root": "/opt/vllm",
    "drain_timeout": 60,
}
# What people and broken tools write where something else is expected.
ODD = (
    None, True, False, 0, -1, 1.5, 10**30, float("inf"), float("nan"), "", " ", "x", "²", "9" * 5000, "--x", "a=b",
    "$HOME", "{{ x }}", "line\nline", [], {}, [None], [[]], {"x": 1}, {1: 2}, {None: None}, ["--x", "1"], [{"x": []}],
    "2026-11-23", ">=0.24", "~1", "default", "h200", "cuda",
)  # fmt: skip
FLEET = {"hosts": {"gpu-1": {"accelerator": "h200", "accelerator_count": 8, "cluster": "a"}, "gpu-2": None}}
# A recipe with every part that a plan reads.
RECIPE = {
    "meta": {"title": "x", "hardware": {"h200": "verified"}, "default_variant": {"h200": "default"}},
    "model": {
        "model_id": "org/model",
        "min_vllm_version": "0.11.0",
        "docker_image": {"nvidia": {"cu129": "a/b:1"}, "amd": "c/d:1"},
        "install": {"docker": {"note": "x"}, "pip": {"command": "y"}},
        "nightly_required": False,
        "context_length": 4096,
        "kv_cache_bytes_per_token": 1024,
        "base_args": ["--max-num-seqs", "8", "--compilation-config", '{"mode": 3}'],
        "base_env": {"NCCL_DEBUG": "INFO"},
        "rules": [
            {"when": {"vllm": ">=0.13", "count": ">=2"}, "unless": {"stack": "rocm"}, "extra_args": ["--dtype", "auto"]}
        ],
    },
    "dependencies": [{"note": "x", "command": "pip install y", "brand": ["Google"], "install_modes": ["docker"]}],
    "features": {
        "tools": {
            "args": ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"],
            "hardware": {"ampere": "unsupported"},
        },
        "spec": {"default_mode": "a", "modes": {"a": {"args": ["--seed", "1"], "variants": ["default"]}}},
        "replaced": {"args": ["--seed", "2"], "hardware_overrides": {"hopper": {"args": ["--seed", "3"]}}},
    },
    "opt_in_features": ["spec"],
    "hardware_opt_in_features": {"h200": ["replaced"]},
    "variants": {
        "default": {
            "precision": "bf16",
            "tp": {"h200": 2, "default": 1},
            "vram_minimum_gb": 72,
            "supported_hardware": ["h200", "mi300x", "xeon6"],
            "default_modes": {"spec": "a"},
            "hardware_overrides": {
                "h200": {"extra_args": ["--seed", "4"], "vram_minimum_gb": 80, "docker_image": "e/f:1"}
            },
        }
    },
    "presets": {
        "fast": {
            "tp": 4,
            "extra_args": ["--seed", "5"],
            "hardware_overrides": {"h200": {"extra_env": {"NCCL_DEBUG": "INFO"}}},
        }
    },
    "compatible_strategies": ["single_node_tp", "single_node_tep"],
    "default_strategy": "single_node_tp",
    "strategy_hardware": {"single_node_tp": {"h200": "supported"}},
    "strategy_overrides": {"single_node_tp": {"tp": 2, "vllm_args": ["--seed", "6"], "env": {"HCCL_BUFFSIZE": "1"}}},
    "hardware_overrides": {"hopper": {"extra_args": ["--seed", "7"], "install_note": "x"}},
    "release_fixes": [{"when": {"generation": ["hopper"]}, "extra_env": {"OMP_NUM_THREADS": "1"}}],
    "guards": [{"when": {"args": {"seed": ">=9"}, "env": {"D": "absent"}}, "warn": "careful"}],
    "known_issues": [{"symptom": "x", "advice": "y", "when": {"memory_gib": "<100"}}],
}  # fmt: skip
RELEASE = load_yaml((CATALOG / "releases" / "0.33.0.yml").read_text(encoding="utf-8"))
MANIFEST = {
    "repository": "org/model",
    "revision": "0" * 40,
    "precision": "bf16",
    "files": {
        "model.safetensors": {"size": 10**9, "sha256": "0" * 64},
        "config.json": {"size": 100, "sha256": "1" * 64},
    },
}  # fmt: skip
CATALOGUE = load_yaml((CATALOG / "accelerators" / "nvidia.yml").read_text(encoding="utf-8"))


def places(value, path=()):
    """Yield the path of everything in nested data."""
    for key, entry in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(entry, (*path, key))


def damaged(data, chance):
    """Return the text of a file with one to three mistakes in it."""
    data = copy.deepcopy(data)
    for _time in range(chance.randint(1, 3)):
        path = chance.choice(list(places(data)))
        around = data
        for key in path[:-1]:
            around = around[key]
        value, kind = around[path[-1]], chance.randrange(4)
        if kind == 0:
            del around[path[-1]]
        elif kind == 1 and isinstance(around, dict):
            around[chance.choice([f"{path[-1]}s", str(path[-1])[1:], 1, None, True, "x"])] = around.pop(path[-1])
        elif kind == 2 and isinstance(around, dict):
            around[path[-1]] = [copy.deepcopy(value)]
        else:
            around[path[-1]] = copy.deepcopy(chance.choice(ODD))
        if not data:
            break
    text = yaml.safe_dump(data, sort_keys=False)
    if chance.random() < 0.1:
        at = chance.randrange(len(text))
        text = text[:at] + chance.choice(["\t", "{", "- ", ": ", "\0", "*x ", "!x "]) + text[at + chance.randrange(3) :]
    return text


def planned(directory, chance):
    """Plan the recipe of a directory on one of several hosts."""
    wishes = {"recipe": "org/model"}
    if chance.random() < 0.3:
        wishes["preset"] = "fast"
    if chance.random() < 0.3:
        wishes["features"] = chance.choice([[], ["tools"], ["spec", "replaced"]])
    if chance.random() < 0.2:
        wishes["strategy"] = "single_node_tep"
    model = chance.choice(["h200", "h200", "h200", "mi300x", "cpu"])
    chips = declared_accelerator(load_catalogue(), model, 1 if model == "cpu" else 8, 256 if model == "cpu" else None)
    paths = {name: [str(directory / kind)] for name, kind in KINDS.items()}
    settings = {**SITE, **paths, "release": "own", "instances": {"chat": wishes}, "strict": chance.random() < 0.8}
    plan_host("host", chips, settings)


KINDS = {"recipe_path": "recipes", "release_path": "releases", "weights_manifest_path": "weights"}
FILES = {
    "recipes/org/model.yaml": RECIPE,
    "releases/own.yml": RELEASE,
    "weights/org/model.yml": MANIFEST,
}  # fmt: skip


def write(directory, **texts):
    for name, data in FILES.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = texts.get(name.split("/", maxsplit=1)[0]) or yaml.safe_dump(data, sort_keys=False)
        path.write_text(text, encoding="utf-8")


def test_the_files_are_right_before_they_are_damaged(tmp_path):
    write(tmp_path)
    chance = random.Random(0)
    for _time in range(20):
        planned(tmp_path, chance)


@pytest.mark.parametrize("kind", ["recipes", "releases", "weights"])
def test_a_damaged_file_of_a_plan_is_one_sentence_with_file_or_key(kind, tmp_path):
    wrong = []
    name = next(name for name in FILES if name.startswith(kind))
    for seed, chance in cases(kind, 40):
        text = damaged(FILES[name], chance)
        # A new directory each, because files are read once.
        directory = tmp_path / seed.replace("/", "-")
        write(directory, **{kind: text})
        try:
            planned(directory, chance)
        except PlanError as exc:
            if not names_a_place(str(exc), directory / name):
                wrong.append(f"{seed}: {exc}")
        except Exception as exc:
            wrong.append(f"{seed}: {type(exc).__name__}: {exc}\n{text}")
    assert not wrong, "\n".join(wrong[:5])


def names_a_place(message, path):
    """Return whether a message is one line that begins with a file, an instance, a recipe or the release."""
    # A lock that the release names lies beside it.
    known = (
        str(path),
        f"{path.parent}/requirements/",
        "vllm_instances.chat",
        "recipe ",
        "vllm_release",
        "vllm_strict",
        "no option table for vLLM",
    )
    # A text of two lines in a file is shown as it is.
    return "\n" not in message.replace("line\nline", "") and message.startswith(known)


def test_a_damaged_catalogue_of_accelerators_is_one_sentence_with_file_or_key(tmp_path):
    wrong = []
    for seed, chance in cases("catalogue", 10):
        directory = tmp_path / seed.replace("/", "-")
        directory.mkdir()
        (directory / "nvidia.yml").write_text(damaged(CATALOGUE, chance), encoding="utf-8")
        try:
            declared_accelerator(load_catalogue([str(directory)]), "h200", 8)
        except AcceleratorError as exc:
            if "\n" in str(exc) or not str(exc).startswith((str(directory), str(CATALOG), "nothing can be served on")):
                wrong.append(f"{seed}: {exc}")
        except Exception as exc:
            wrong.append(f"{seed}: {type(exc).__name__}: {exc}")
    assert not wrong, "\n".join(wrong[:5])


def test_a_damaged_fleet_is_one_sentence_with_file_and_line():
    wrong = []
    for seed, chance in cases("fleet", 40):
        text = damaged(FLEET, chance)
        try:
            read_fleet([FleetText(str(Path("/fleet.yml")), text.encode())])
        except FleetFileError as exc:
            if "\n" in str(exc) or not str(exc).startswith("/fleet.yml:"):
                wrong.append(f"{seed}: {exc}")
        except Exception as exc:
            wrong.append(f"{seed}: {type(exc).__name__}: {exc}\n{text}")
    assert not wrong, "\n".join(wrong[:5])
