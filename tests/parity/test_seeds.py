# SPDX-License-Identifier: GPL-3.0-or-later
"""Every command line of the seed documents, and the plan that is the same to the vLLM that reads it."""

from __future__ import annotations

import itertools

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_manifest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import load_foreign, load_table
from ansible_collections.baremetal.inference.plugins.plugin_utils.drift.report import NOTHING, Side, drift
from ansible_collections.baremetal.inference.plugins.plugin_utils.drift.uses import command_uses
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

from tests.parity import seeds
from tests.parity.real import NEWEST, RELEASES, Refused
from tests.parity.seeds_page import PAGE, page

DOCUMENTS, SEEDS = seeds.load()
CASES = [
    pytest.param(seed, ours, accelerator, release, id=f"{seed.id}-{accelerator}-{release}")
    for seed in SEEDS
    for ours in seed.ours
    for accelerator, release in itertools.product(ours.accelerators, ours.releases)
]
PLANNED = [case for case in CASES if not case.values[1].refused]
REAL = [case for case in PLANNED if case.values[3] in RELEASES]


def different(one, other):
    """Return the keys in which two mappings differ, with both values."""
    return {key: (one.get(key), other.get(key)) for key in {**one, **other} if one.get(key) != other.get(key)}


@pytest.mark.parametrize(("seed", "ours", "accelerator", "release"), PLANNED)
def test_our_words_mean_what_the_seeds_mean(seed, ours, accelerator, release):
    table = load_table(release)
    plan = seeds.plan(ours, accelerator, release)
    found = different(seeds.canonical(seeds.words_of(plan), table), seeds.canonical(seed.words, table))
    assert set(found) == set(ours.lacks), found


@pytest.mark.parametrize(("seed", "ours", "accelerator", "release"), PLANNED)
def test_our_environment_holds_what_the_release_reads_of_the_seeds(seed, ours, accelerator, release):
    plan = seeds.plan(ours, accelerator, release)
    read, unread = seeds.read_variables(seed, release, accelerator)
    own = seeds.own_variables(plan, read)
    for name in seeds.FILE_LOCATIONS:
        assert (name in plan["env"]) >= (name in read)
        read.pop(name, None)
    assert own == {**read, **ours.more_env}
    assert not set(unread) & set(plan["env"])


@pytest.mark.parametrize(("seed", "ours", "accelerator", "release"), REAL)
def test_a_real_parser_reads_both_alike(seed, ours, accelerator, release, real_parsers):
    parser = real_parsers[release]
    plan = seeds.plan(ours, accelerator, release)
    expected = seeds.namespace(parser, seed.words, aside=ours.lacks)
    assert seeds.namespace(parser, seeds.words_of(plan)) == expected
    # The unit hands over a file.
    assert seeds.namespace(parser, ["vllm", "serve"], seeds.plan_config(plan)) == expected


@pytest.mark.parametrize("release", RELEASES)
def test_config_files_of_the_seeds_are_expanded_as_vllm_does_it(release, real_parsers):
    parser = real_parsers[release]
    checked = 0
    for seed in SEEDS:
        if seed.config and not refusal(parser, seed):
            assert parser.read(seed.command_words, seed.config_text) == parser.read(seed.words), seed.id
            checked += 1
    assert checked >= 6


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_default_to_our_comparison_is_default_to_vllm(release, real_parsers):
    words = ["--tensor-parallel-size", "1", "--shutdown-timeout", "0", "--no-enforce-eager"]
    assert len(words) == 2 * len(seeds.DEFAULTS) - 1
    assert seeds.namespace(real_parsers[release], ["vllm", "serve", "m", *words]) == {}


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.id)
def test_every_seed_is_planned_in_its_own_release_and_in_those_that_still_take_it(seed, real_parsers):
    planned = {release for ours in seed.ours if not ours.refused for release in ours.releases}
    assert seed.release in planned
    for release, parser in real_parsers.items():
        assert (release in planned) != bool(refusal(parser, seed))


def refusal(parser, seed):
    """Return the words with which a real parser refuses a seed, None where it takes it."""
    try:
        parser.read(seed.words)
    except Refused as exc:
        return str(exc)
    return None


@pytest.mark.parametrize(("seed", "ours", "accelerator", "release"), [case for case in CASES if case.values[1].refused])
def test_what_cannot_be_served_is_refused_with_the_reason(seed, ours, accelerator, release):
    with pytest.raises(PlanError, match=ours.refused):
        seeds.plan(ours, accelerator, release)


@pytest.mark.parametrize("seed", [seed for seed in SEEDS if seed.env], ids=lambda seed: seed.id)
def test_the_drift_report_names_the_variables_that_do_nothing(seed):
    accelerator = seed.ours[0].accelerators[0]
    foreign = load_foreign(seeds.accelerator_stack(accelerator))
    uses = command_uses("".join(f"export {name}='{value}'\n" for name, value in seed.env.items()), seed.id)
    for release in (seed.release, NEWEST):
        older, newer = (Side(load_table(version), foreign) for version in (seed.release, release))
        rows = drift(uses, older, newer, {})
        reported = {row["setting"] for row in rows if row["effect"] == NOTHING}
        assert reported == set(seeds.read_variables(seed, release, accelerator)[1])


def test_a_revision_that_a_seed_pins_is_pinned_by_a_manifest_of_the_site(tmp_path):
    (seed,) = (seed for seed in SEEDS if seed.id == "modal")
    revision = seed.words[seed.words.index("--revision") + 1]
    ours, model = seed.ours[0], seed.words[2]
    manifest = {**load_manifest(model), "revision": revision}
    path = tmp_path / f"{model}.yml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(manifest), encoding="utf-8")
    plan = seeds.plan(ours, "b200", seed.release, weights_manifest_path=[str(tmp_path)])
    assert plan["revision"] == revision
    assert plan["argv"][2].endswith(f"/{model}/{revision}")


def test_served_names_follow_the_instance():
    for seed in SEEDS:
        for ours in seed.ours:
            names = ours.instance.get("served_model_names")
            if names:
                plan = seeds.plan(ours, ours.accelerators[0], ours.releases[0])
                at = seed.words.index("--served-model-name") + 1
                assert seed.words[at : at + len(names)] == names == plan["served_model_names"]


def test_the_page_in_the_docs_is_current():
    """Made by: python -m tests.parity.seeds_page"""
    assert PAGE.read_text(encoding="utf-8") == page(DOCUMENTS, SEEDS)
