# SPDX-License-Identifier: GPL-3.0-or-later
"""Adopted commands, judged by vLLM's own parser: the plan passes what the command passed.

The commands are those of public threads (tests/fixtures/commands.yml), of the seed documents, and all of the guides in
upstream's recipes.
"""

from __future__ import annotations

import re

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.answer import AdoptRequest, adopted_plan
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.flags import read_flags
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.shell import CommandError
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import load_table, other_tables

from tests.fakes.commands import commands
from tests.parity import seeds
from tests.parity.real import NEWEST, Refused

# What only the plan sets, or what clients see the same by another way.
PLACES = {"model", "host", "port", "served_model_name", "api_key", "hf_token"}
COLLECTION = {"fail_on_environ_validation", "shutdown_timeout", "middleware"}
# The name of the collection's own servers, which is random.
RANDOM = re.compile(r"'engine_id': '[0-9a-f-]{36}'")
# What vLLM 0.11 said of the key that it then removed, and 0.10 of the flag.
RENAMED = {
    '"full_cuda_graph": true': '"cudagraph_mode": "FULL"',
    "--guided-decoding-backend": "--structured-outputs-config.backend",
}
# The default, which the entry writes down.
DEFAULTS = {"tensor_parallel_size": 1}


def comparable(namespace, left_out):
    found = {**DEFAULTS, **{name: RANDOM.sub("", str(value)) for name, value in namespace.items()}}
    return {name: str(value) for name, value in found.items() if name not in PLACES | COLLECTION | left_out}


def differences(parser, text, **options):
    """Return in what a command and the plan of its entry differ, None where there is no plan. Raises CommandError."""
    start, adopted, compared = adopted_plan(AdoptRequest(release=NEWEST, **options), text)
    if compared.plan is None:
        return None
    left_out = {word for word, _reason in adopted.left_out if word.startswith("-")}
    try:
        expected = parser.read(["vllm", "serve", *start.words])
    except Refused:
        _model, flags = read_flags(start.words, load_table(NEWEST), other_tables(NEWEST))
        kept = [word for given in flags if given.flag not in left_out for word in (given.flag, *given.values)]
        for old, new in RENAMED.items():
            kept = [word.replace(old, new) for word in kept]
        expected = parser.read(["vllm", "serve", "m", *kept])
    names = {word.lstrip("-").replace("-", "_") for word in left_out}
    planned = comparable(parser.read(list(compared.plan["argv"])), names)
    expected = comparable(expected, names)
    return {
        name: (expected.get(name), planned.get(name))
        for name in {**expected, **planned}
        if expected.get(name) != planned.get(name)
    }


@pytest.mark.parametrize("entry", [pytest.param(entry, id=entry["source"]) for entry in commands() if "as" in entry])
def test_a_command_of_a_public_thread_means_the_same(entry, real_parsers):
    options = dict(entry["options"])
    if "davinci" in entry["text"]:
        # Its flags are those of every stack; the newest release has none for Ascend.
        options["accelerator"] = "h100:8"
    assert differences(real_parsers[NEWEST], entry["text"], **options) == {}


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, id=seed.id) for seed in seeds.load()[1] if "--config" not in seed.command]
)
def test_a_seed_means_the_same(seed, real_parsers):
    # Some examples leave the model out.
    text = seed.command.replace("...", "openai/gpt-oss-120b")
    assert differences(real_parsers[NEWEST], text, accelerator="b200:8") in ({}, None)


def test_the_commands_of_upstreams_guides_mean_the_same(upstream_recipes, real_parsers):
    read, planned, refused, different = 0, 0, [], {}
    for path in sorted(upstream_recipes.rglob("*.yaml")):
        guide = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader).get("guide") or ""
        for number, block in enumerate(re.findall(r"```\w*\n(.*?)```", guide, re.S)):
            if not re.search(r"vllm serve|api_server|docker run|podman run|services:", block):
                continue
            try:
                found = differences(real_parsers[NEWEST], block, accelerator="h200:8")
            except CommandError as exc:
                refused.append(f"{path.stem}: {exc}")
                continue
            read += 1
            planned += found is not None
            different.update({f"{path.stem} {number}": found} if found else {})
    assert not different
    assert not [text for text in refused if "\n" in text]
    assert read >= 540 and planned >= 500 and len(refused) <= 45, refused
