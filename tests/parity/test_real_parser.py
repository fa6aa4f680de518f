# SPDX-License-Identifier: GPL-3.0-or-later
"""The basis of the other tests here: the answers of the real command lines, with which the bundled tables agree."""

from __future__ import annotations

import logging
import re
import subprocess

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import (
    load_foreign,
    load_table,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.values import WORDS, is_port

from tests.fakes.wheelhouse import ROOT
from tests.parity.real import NEWEST, RELEASES, Refused
from tools.vllm.variables import getters_of, value_of

SERVER = ["python", "-m", "vllm.entrypoints.openai.api_server"]


@pytest.fixture(params=RELEASES)
def parser(request, real_parsers):
    return real_parsers[request.param]


def test_only_changed_arguments_are_returned(parser):
    assert parser.read(["vllm", "serve", "some/model"]) == {"model": "some/model"}
    assert parser.read([*SERVER, "--model", "some/model"]) == {"model": "some/model"}


def test_spellings_of_one_setting_read_alike(parser):
    expected = {"model": "m", "tensor_parallel_size": 2, "enable_prefix_caching": False, "block_size": 64}
    assert parser.read(["vllm", "serve", "m", "-tp", "2", "--no-enable-prefix-caching", "--block-size=64"]) == expected
    words = ["vllm", "serve", "m", "--tensor_parallel_size=2", "--block_size", "64", "--no_enable_prefix_caching"]
    assert parser.read(words) == expected


def test_json_is_parsed_as_vllm_parses_it(parser):
    dotted = parser.read(["vllm", "serve", "m", "-cc.cudagraph_mode=PIECEWISE", "-cc.custom_ops+", "+rms_norm"])
    whole = ["--compilation-config", '{"custom_ops": ["+rms_norm"], "cudagraph_mode": "PIECEWISE"}']
    assert dotted == parser.read(["vllm", "serve", "m", *whole])
    assert dotted["compilation_config"]["cudagraph_mode"] == "PIECEWISE"
    assert dotted["compilation_config"]["custom_ops"] == ["+rms_norm"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cuda-graph-sizes", "2048"], "unrecognized arguments: --cuda-graph-sizes"),
        (["--max-model-len", "long"], "argument --max-model-len: invalid"),
        (["--enable-auto-tool-choice"], "--enable-auto-tool-choice requires --tool-call-parser"),
        (["--compilation-config", '{"full_cuda_graph": true}'], "full_cuda_graph"),
    ],
)
def test_refusals_have_the_message_of_the_parser(parser, words, message):
    with pytest.raises(Refused) as caught:
        parser.read(["vllm", "serve", "m", *words])
    assert message in str(caught.value)


def test_a_refusal_does_not_end_the_process(parser):
    with pytest.raises(Refused):
        parser.read(["vllm", "serve", "m", "--help"])
    assert parser.read(["vllm", "serve", "m"]) == {"model": "m"}


def test_a_config_file_is_read_as_vllm_reads_it(parser):
    config = "stream-interval: 20\nno-enable-prefix-caching: true\nkv-cache-dtype: fp8\n"
    expected = {"model": "m", "stream_interval": 20, "enable_prefix_caching": False, "kv_cache_dtype": "fp8"}
    assert parser.read(["vllm", "serve", "m"], config) == expected
    assert parser.read(SERVER, "model: m\n" + config) == expected
    # The command line overrides the file.
    assert parser.read(["vllm", "serve", "m", "--stream-interval", "1"], config) == {
        name: value for name, value in expected.items() if name != "stream_interval"
    }


def test_false_in_a_config_file_is_lost_under_vllm_serve(parser):
    """The reason why this collection writes ``no-x: true`` into files."""
    config = "enable-prefix-caching: false\n"
    assert parser.read(["vllm", "serve", "m"], config) == {"model": "m"}
    assert parser.read([*SERVER, "--model", "m"], config) == {"model": "m", "enable_prefix_caching": False}


def test_the_bundled_table_agrees_with_the_real_parser(parser):
    """Older releases are checked with such tables only."""
    tool = [parser.python, ROOT / "tools" / "vllm" / "read_options.py", parser.version, "--real"]
    done = subprocess.run(tool, capture_output=True, text=True, check=True, env=parser.environ, cwd=parser.directory)
    real = yaml.safe_load(done.stdout[done.stdout.index("# What vLLM") :])
    ours = yaml.safe_load((ROOT / "catalog" / "options" / f"{parser.version}.yml").read_text(encoding="utf-8"))
    # The one flag whose choices depend on the platform: a CPU build leaves its accelerators out.
    for table in (real, ours):
        table["flags"].pop("mm-processor-device", None)
    assert real == ours


TEXTS = (
    "x",
    "",
    "yes",
    "on",
    "off",
    "TRUE",
    "1",
    "0",
    "7",
    "-1",
    " 7 ",
    "+7",
    "1_0",
    "0.5",
    "1e3",
    "inf",
    "true",
    "8000x",
    "tcp://a:1",
    "[]",
    "none",
)


def is_used(name, getter, entry, text):
    """Return whether vLLM makes of a text what it says: many functions take any text that they do not know for off."""
    found, other = value_of(name, getter, text), value_of(name, getter, "x")
    if not found or not other:
        return bool(found)
    if name.endswith(("_LEVEL", "_STREAM")):
        return found[0] in ("ext://sys.stderr", "ext://sys.stdout", *logging.getLevelNamesMapping())
    off = WORDS.get(entry["kind"]) or entry["values"]
    return found != other or (other == (False,) and text.lower() in off)


def test_vllm_and_the_plan_read_the_same_values_of_variables(parser):
    root = parser.directory if parser.version == NEWEST else next(parser.python.parents[1].glob("lib/*/site-packages"))
    getters, table = getters_of(root / "vllm" / "envs.py"), load_table(parser.version)
    # Some functions read files or other modules, and refuse for reasons that are not the value's form.
    # It refuses a port that is none only when it listens there.
    typed = {name: entry for name, entry in table.env.items() if entry["kind"] != "text" and not is_port(name, entry)}
    assert len(typed) > 180
    for name, entry in typed.items():
        choices = [*entry.get("values", ()), ",".join(entry.get("values", ()))]
        for text in {*TEXTS, *choices, *map(str.swapcase, choices)}:
            vllm = is_used(name, getters[name], entry, text)
            assert [not [*table.check_values({name: text})], name, text] == [vllm, name, text]


def test_the_chat_templates_of_the_newest_release_are_listed(upstream_recipes):
    site = upstream_recipes.parents[1]
    found = {str(path.relative_to(site)) for path in site.glob("examples/**/*.jinja")}
    assert {name for name in load_foreign("cuda").names_of("chat-template", NEWEST) if "/" in name} == found


def test_the_connectors_of_the_newest_release_are_listed(upstream_recipes):
    factory = upstream_recipes.parents[1] / "vllm" / "distributed" / "kv_transfer" / "kv_connector" / "factory.py"
    found = {*re.findall(r'register_connector\(\s*"(\w+)"', factory.read_text(encoding="utf-8"))}
    assert load_foreign("cuda").names_of("kv-transfer-config.kv_connector", NEWEST) == found
