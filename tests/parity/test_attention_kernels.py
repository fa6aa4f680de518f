# SPDX-License-Identifier: GPL-3.0-or-later
"""The chips on which vLLM takes each kernel of attention, by its own classes: the groups with only_on or not_on."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import load_exclusive

from tests.parity.conftest import fetched
from tools.vllm.fetch_vllm_release import sources

CDNA = {"gfx90a": 2, "gfx942": 3, "gfx950": 4, "gfx1100": 0, "gfx1201": 0}
CAPABILITIES = {
    "sm70": (7, 0), "sm75": (7, 5), "sm80": (8, 0), "sm86": (8, 6), "sm87": (8, 7), "sm89": (8, 9), "sm90": (9, 0),
    "sm100": (10, 0), "sm103": (10, 3), "sm120": (12, 0), "sm121": (12, 1),
}  # fmt: skip
GROUPS = [
    group
    for group in load_exclusive()
    if {"only_on", "not_on"} & {*group} and {*group["settings"]} & {"attention-backend", "attention-config.backend"}
]


class Capability(NamedTuple):
    major: int
    minor: int


@pytest.fixture(scope="module")
def backends():
    """Return each class of vLLM below v1 and models, and its expression for the chips that it supports."""
    top = fetched(sources, "0.33.0") / "vllm"
    registry = (top / "v1/attention/backends/registry.py").read_text()
    paths = dict(re.findall(r'^    ([A-Z0-9_]+) = \(?\s*"([\w.]+)"', registry, re.M))
    found = {}
    for name, path in paths.items():
        module, _dot, wanted = path.rpartition(".")
        file = top.parent / f"{module.replace('.', '/')}.py"
        for node in ast.parse(file.read_text()).body if file.is_file() else ():
            if isinstance(node, ast.ClassDef) and node.name == wanted:
                own = [each for each in node.body if getattr(each, "name", "") == "supports_compute_capability"]
                parent = next((base.id for base in node.bases if isinstance(base, ast.Name)), "")
                found[name] = (own[0].body[-1].value if own else None, parent, wanted)
    name, module = "is_aiter_found_and_supported", ast.parse((top / "_aiter_ops.py").read_text())
    function = next(each for each in module.body if getattr(each, "name", "") == name)
    (found[name],) = [each for each in ast.walk(function) if isinstance(each, ast.Compare)]
    return found


def supports(backends, name, chip):
    expression, parent, _own = backends[name]
    if name.startswith("ROCM_AITER_MLA"):
        # These classes name no chips: what they call is AITER's, which vLLM registers where this holds.
        expression = backends["is_aiter_found_and_supported"]
    if expression is None:
        return supports(backends, next(each for each, entry in backends.items() if entry[2] == parent), chip)
    given = {
        "capability": Capability(*CAPABILITIES.get(chip, (0, 0))),
        "DeviceCapability": Capability,
        "get_cdna_version": lambda: CDNA[chip],
    }
    return bool(eval(compile(ast.Expression(expression), name, "eval"), given))


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: str(group["settings"]))
def test_vllm_takes_the_kernels_on_these_chips_alone(group, backends):
    (listed,) = group["settings"].values()
    chips = CDNA if group["stack"] == "rocm" else CAPABILITIES
    for name in listed if isinstance(listed, list) else [listed]:
        taken = [chip for chip in chips if supports(backends, name, chip)]
        assert taken == group.get("only_on", [chip for chip in chips if chip not in group.get("not_on", ())]), name
