# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands in place of a name that is gone is accepted by the release, for every entry of replaced.yml."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.replacements import (
    describe,
    is_accepted,
    settings_instead,
    without_replaced,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import (
    load_foreign,
    load_replaced,
    load_table,
    other_tables,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.arguments import Setting

TABLE, REPLACED, FOREIGN = load_table("0.33.0"), load_replaced(), load_foreign("cuda")
# A value of each name that has words in its place; names without any need a person.
VALUES = {
    "VLLM_ATTENTION_BACKEND": "FLASHINFER",
    "VLLM_ALL2ALL_BACKEND": "deepep_low_latency",
    "VLLM_FLASH_ATTN_VERSION": "3",
    "compilation-config.level": "3",
    "compilation-config.use_cudagraph": "false",
    "cuda-graph-sizes": "1 2 4",
    "full-cuda-graph": "",
    "guided-decoding-backend": "xgrammar",
    "task": "embed",
    "override-pooler-config": '{"dimensions":8}',
    "speculative-model": "o/m",
    **dict.fromkeys(
        ("disable-mm-preprocessor-cache", "eplb-log-balancedness", "guided-decoding-disable-any-whitespace"), ""
    ),
    **dict.fromkeys(("num-redundant-experts", "eplb-window-size", "eplb-step-interval"), "8"),
    **dict.fromkeys(("num-speculative-tokens", "ngram-prompt-lookup-max", "ngram-prompt-lookup-min"), "4"),
    "speculative-draft-tensor-parallel-size": "1",
}
NAMES = [name for name, entry in REPLACED.items() if "becomes" in entry]


@pytest.mark.parametrize("name", NAMES)
def test_the_release_accepts_what_stands_in_place_of_a_name(name):
    value = VALUES.get(name, "1" if name.isupper() else "true")
    version = "0.30.0" if "until 0.30" in REPLACED[name]["instead"] else "0.33.0"
    found = settings_instead(name, value.split(), load_table(version), REPLACED)
    assert found and is_accepted(found, load_table(version), other_tables(version), FOREIGN), describe(found)


def test_an_older_release_keeps_the_name():
    assert settings_instead("cuda-graph-sizes", ["512"], load_table("0.11.0"), REPLACED) == []


def test_a_value_without_words_is_for_a_person():
    assert settings_instead("task", ["reward"], TABLE, REPLACED) == []
    assert settings_instead("swap-space", ["4"], TABLE, REPLACED) == []
    assert settings_instead("no-such-flag", ["4"], TABLE, REPLACED) == []


def test_keys_that_stay_are_kept():
    setting = Setting("compilation-config", (), {"level": 3, "pass_config": {"enable_noop": True, "x": 1}, "y": 2})
    rest, instead = without_replaced(setting, TABLE, REPLACED, bool)
    assert rest.value == {"pass_config": {"x": 1}, "y": 2}
    assert {name: describe([each]) for name, each in instead} == {
        "compilation-config.level": "--compilation-config.mode 3",
        "compilation-config.pass_config.enable_noop": "--compilation-config.pass_config.eliminate_noops true",
    }
