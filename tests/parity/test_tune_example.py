# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/operate/tune-gpt-oss-20b.yml: each of its variants is a plan of its own that vLLM reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.workloads import load_workloads
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import load_table
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.goal import parse_goal
from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.ready import check_lengths
from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.variants import (
    changed_instances,
    check_plans,
    parse_variants,
)

from tests.parity import seeds

EXAMPLE = yaml.safe_load((Path(__file__).resolve().parents[2] / "docs/operate/tune-gpt-oss-20b.yml").read_text())
INSTANCES = {"chat": {"recipe": "openai/gpt-oss-20b", "preset": "balanced", "chips": [0]}}
# 0.25.1 is what the machine of tests/gpu can run.
RELEASES = ("0.25.1", "0.32.0", "0.33.0")


def plans(chip, release):
    """Return the plan of each variant on a host with one chip."""
    accelerator = declared_accelerator(load_catalogue(), chip, 1)
    variants = parse_variants(EXAMPLE["tune_variants"], {})
    return {
        name: plan_host(
            "host",
            accelerator,
            {**seeds.SITE, "instances": changed_instances(INSTANCES, "chat", change), "release": release},
        )["chat"]
        for name, change in variants.items()
    }


@pytest.mark.parametrize("chip", ["h100", "h200"])
@pytest.mark.parametrize("release", RELEASES)
def test_at_least_30_different_plans_that_the_release_knows(chip, release):
    found = plans(chip, release)
    assert len(found) >= 31
    check_plans(found)
    check_lengths(found, load_workloads({})[parse_goal(EXAMPLE["tune_goal"]).workload])
    for plan in found.values():
        seeds.canonical(seeds.words_of(plan), load_table(plan["vllm_version"]))


@pytest.mark.parametrize("chip", ["h100", "h200"])
@pytest.mark.parametrize("release", RELEASES[1:])
def test_the_real_parser_reads_each_of_them(chip, release, real_parsers):
    for plan in plans(chip, release).values():
        parser = real_parsers[plan["vllm_version"]]
        assert parser.read(["vllm", "serve"], seeds.plan_config(plan)) == parser.read(seeds.words_of(plan))
