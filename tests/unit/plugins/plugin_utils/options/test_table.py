# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import (
    load_foreign,
    load_table,
    other_tables,
    releases,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.table import (
    Doubt,
    Flag,
    Foreign,
    OptionTable,
    OptionTableError,
    Unknown,
)

UNQUOTED = "; write it as a number, without quotes"
TABLE = OptionTable.from_data(
    {
        "version": "2.0.0",
        "flags": {
            "config-x": {
                "kind": "json",
                "aliases": ["-cx"],
                "keys": {
                    "depth": "integer",
                    "eager": "boolean",
                    "ratio": "number",
                    "sizes": "list",
                    "name": "text",
                    "widths": {"kind": "list", "of": "integer"},
                    "order": {"kind": "list", "of": "text", "text": True},
                    "mode": {"kind": "choice", "values": ["fast_one", "slow", "1"], "any_case": True},
                    "version": {"kind": "choice", "values": [2, 3]},
                    "inner": {"kind": "json", "keys": {"fuse_rope": "boolean"}},
                    "rank": {"kind": "integer", "gt": 0, "le": 256},
                    "kernel": {"kind": "text", "known": ["FLASH", "TRITON"], "closed": True},
                },
            },
            "block-size": {"kind": "integer", "gt": 0, "step": 16},
            "closed": {"kind": "text", "known": ["awq", "fp8"], "closed": True, "words": ["auto"]},
            "folded": {"kind": "choice", "values": ["one_two"], "any_case": True, "dashes": True},
            "dtype": {"kind": "choice", "values": ["auto", "bfloat16"]},
            "allowed-origins": {"kind": "json"},
            "headless": {"kind": "switch"},
            "leaving": {"kind": "switch", "deprecated": "--leaving is deprecated. Use --headless."},
            "length": {"kind": "integer", "suffix": True, "ge": 1, "lt": 100000},
            "share": {"kind": "number", "gt": 0, "le": 1},
            "hf-token": {"kind": "text", "bare": True},
            "level": {"kind": "choice", "none": True, "values": [0, 1]},
            "max-model-len": {"kind": "integer", "suffix": True, "words": ["auto"]},
            "middleware": {"kind": "text", "repeat": True},
            "overrides": {"kind": "json", "text": True},
            "parser": {"kind": "text", "known": ["hermes", "openai"]},
            "plugin": {"kind": "text"},
            "registered": {"kind": "text", "known": ["hermes", "openai"], "plugin": "plugin"},
            "prefix-caching": {"kind": "switch", "negatable": True, "inverse": ["--disable-prefix-caching"]},
            "sizes": {"kind": "list", "of": "integer"},
            "tensor-parallel-size": {"kind": "integer", "aliases": ["-tp"]},
            "utilization": {"kind": "number", "aliases": ["--device-utilization"]},
        },
        "env": ["VLLM_CACHE_ROOT", "VLLM_USE_X"],
    }
)


def table(version, flags=(), env=()):
    return OptionTable.from_data(
        {"version": version, "flags": {name: {"kind": "text"} for name in flags}, "env": list(env)}
    )


@pytest.mark.parametrize(
    ("spelling", "flag"),
    [
        ("tensor-parallel-size", Flag("tensor-parallel-size")),
        ("--tensor-parallel-size", Flag("tensor-parallel-size")),
        ("--tensor_parallel_size", Flag("tensor-parallel-size")),
        ("tensor_parallel_size", Flag("tensor-parallel-size")),
        ("-tp", Flag("tensor-parallel-size")),
        ("tp", None),
        ("--device-utilization", Flag("utilization")),
        ("--no-prefix-caching", Flag("prefix-caching", off=True)),
        ("no-prefix-caching", Flag("prefix-caching", off=True)),
        ("--disable-prefix-caching", Flag("prefix-caching", off=True)),
        ("--no-disable-prefix-caching", Flag("prefix-caching")),
        ("--no-headless", None),
        ("-cx.inner.fuse_rope=True", Flag("config-x", ("inner", "fuse_rope"))),
        ("--config_x.inner.fuse_rope", Flag("config-x", ("inner", "fuse_rope"))),
        ("--config-x.sizes+", Flag("config-x", ("sizes",))),
        ("--prefix", None),
    ],
)
def test_canonical(spelling, flag):
    assert TABLE.canonical(spelling) == flag


def test_short_optimization_level_by_release():
    assert load_table("0.10.2").canonical("-O3") == Flag("compilation-config", ("level",))
    assert load_table("0.33.0").canonical("-O=2") == Flag("optimization-level")
    assert TABLE.canonical("-O3") is None


@pytest.mark.parametrize(
    "args",
    [
        {"prefix-caching": True, "headless": True, "tensor-parallel-size": 2},
        {"prefix-caching": False},
        {"no-prefix-caching": True},
        {"-tp": "8"},
        {"max-model-len": "16k"},
        {"max-model-len": "1.5k"},
        {"max-model-len": "auto"},
        {"max-model-len": -1},
        {"utilization": 0.9},
        {"share": 1, "length": "16k", "block-size": 1},
        {"share": "0.92", "length": 1, "block-size": 1056},
        {"closed": "Auto", "folded": "One-Two"},
        {"closed": "FP8", "config-x": {"rank": 256, "kernel": "flash"}},
        {"utilization": "1"},
        {"dtype": "auto", "level": 1},
        {"level": "None"},
        {"hf-token": True},
        {"middleware": ["a.b", "c.d"]},
        {"sizes": [1, 2]},
        {"sizes": 4},
        {"allowed-origins": ["*"]},
        {"allowed-origins": '["*"]'},
        {"overrides": "a.py"},
        {"overrides": {"any": {"thing": 1}}},
        {"parser": "openai"},
        {"parser": "one_of_a_plugin"},
        {"registered": "hermes"},
        {"registered": "own", "plugin": "own.py"},
        {
            "config-x": {
                "depth": 1,
                "eager": "true",
                "ratio": 1,
                "sizes": [1],
                "mode": "FAST_one",
                "inner": {"fuse_rope": True},
            }
        },
        {"config-x": '{"inner": {"fuse_rope": false}}'},
        {"config-x": {"inner": "a short form", "depth": None}},
        # As pydantic reads JSON.
        *({"config-x": {"depth": value, "rank": value}} for value in ("1", " 1", "+1", "1_0", "1.0", 1.0, True)),
        *({"config-x": {"eager": value}} for value in (1, 1.0, "Y", "off")),
        *({"config-x": {"ratio": value}} for value in (" 1.5", "1_0.5", True)),
        {"config-x": {"mode": 1, "version": 2.0, "widths": ["1", 2.0], "order": "a,b"}},
        {"config-x": {"order": ["a"], "widths": [], "name": "1"}},
        {"-cx.inner.fuse_rope": True},
        {"-cx.inner.fuse_rope=True": None, "-cx.depth=3": True},
        {"unknown": None},
    ],
)
def test_good_arguments(args):
    assert TABLE.check_args(args) == []


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"headless": "yes"}, '--headless: expected true or false (a switch, it takes no value), found "yes"'),
        ({"headless": False}, "--headless: vLLM 2.0.0 has no --no-headless; leave it out"),
        (
            {"no-prefix-caching": False},
            "--no-prefix-caching: vLLM 2.0.0 has no --no-no-prefix-caching; write --prefix-caching: true",
        ),
        ({"tensor-parallel-size": "two"}, '--tensor-parallel-size: expected an integer, found "two"'),
        ({"tensor-parallel-size": "2k"}, '--tensor-parallel-size: expected an integer, found "2k"'),
        ({"-tp": True}, "-tp: expected an integer, found true"),
        ({"tensor-parallel-size": [2]}, "--tensor-parallel-size: expected an integer, found [2]"),
        ({"max-model-len": "1.5K"}, '--max-model-len: expected an integer (16k and 16K too) or auto, found "1.5K"'),
        ({"utilization": "90%"}, '--utilization: expected a number, found "90%"'),
        ({"dtype": "bfloat61"}, "--dtype: expected one of auto, bfloat16, found \"bfloat61\"; nearest: 'bfloat16'"),
        ({"level": 7}, "--level: expected one of 0, 1, found 7"),
        ({"sizes": [1, "b"]}, '--sizes: expected a list, each an integer, found [1, "b"]'),
        ({"parser": "opennai"}, "--parser: the types of vLLM 2.0.0 do not name 'opennai'; nearest: 'openai'"),
        ({"share": 95}, "--share: expected a number above 0 and of at most 1, found 95"),
        ({"share": "0"}, '--share: expected a number above 0 and of at most 1, found "0"'),
        (
            {"length": "100k"},
            '--length: expected an integer of at least 1 and below 100000 (16k and 16K too), found "100k"',
        ),
        ({"length": -5}, "--length: expected an integer of at least 1 and below 100000 (16k and 16K too), found -5"),
        ({"block-size": 7}, "--block-size: expected an integer above 0 (1, or a multiple of 16), found 7"),
        ({"block-size": 0}, "--block-size: expected an integer above 0 (1, or a multiple of 16), found 0"),
        ({"closed": ""}, '--closed: expected a text, found ""'),
        ({"closed": "awqq"}, "--closed: vLLM 2.0.0 has no 'awqq'; nearest: 'awq'"),
        (
            {"config-x": {"kernel": "FLASH4"}},
            "--config-x.kernel: no such value in vLLM 2.0.0: 'FLASH4'; nearest: 'FLASH'",
        ),
        ({"config-x": {"rank": 0}}, "--config-x.rank: expected an integer above 0 and of at most 256, found 0"),
        (
            {"leaving": True},
            "--leaving: deprecated in vLLM 2.0.0, which says: --leaving is deprecated. Use --headless.",
        ),
        ({"allowed-origins": "*"}, '--allowed-origins: expected a list (JSON), found "*"'),
        ({"allowed-origins": {"a": 1}}, '--allowed-origins: expected a list (JSON), found {"a": 1}'),
        ({"overrides": [2]}, "--overrides: expected a mapping (JSON), found [2]"),
        ({"overrides": True}, "--overrides: expected a mapping (JSON), found true"),
        ({"overrides": "-1"}, "--overrides: expected a mapping (JSON), found -1"),
        ({"overrides": float("inf")}, "--overrides: expected a mapping (JSON), found Infinity"),
        ({"plugin": {"a": 1}}, '--plugin: expected a text, found {"a": 1}'),
        ({"middleware": []}, "--middleware: expected a text, found []"),
        ({"middleware": [None]}, "--middleware: expected a text, found [null]"),
        ({"sizes": []}, "--sizes: expected a list, each an integer, found []"),
        ({"level": True}, "--level: expected one of 0, 1, found true"),
        (
            {"registered": 0},
            "--registered: vLLM 2.0.0 has no parser 0; known: hermes, openai; one of your own needs --plugin",
        ),
        ({"config-x": [1]}, "--config-x: expected a mapping (JSON), found [1]"),
        ({"config-x": {"dept": 1}}, "--config-x.dept: no such key in vLLM 2.0.0; nearest: 'depth'"),
        ({"config-x": {"depth": "{deep}"}}, '--config-x.depth: expected an integer, found "{deep}"'),
        ({"config-x": {"eager": "maybe"}}, '--config-x.eager: expected true or false, found "maybe"'),
        ({"config-x": {"mode": "fsat"}}, '--config-x.mode: expected one of fast_one, slow, 1, found "fsat"'),
        (
            {"config-x": {"mode": "FAST-one"}},
            """--config-x.mode: expected one of fast_one, slow, 1, found "FAST-one"; nearest: 'fast_one'""",
        ),
        ({"config-x": {"mode": "1"}}, '--config-x.mode: expected one of fast_one, slow, 1, found "1"' + UNQUOTED),
        ({"config-x": {"version": "2"}}, '--config-x.version: expected one of 2, 3, found "2"' + UNQUOTED),
        *(
            ({"config-x": {"depth": value}}, f"--config-x.depth: expected an integer, found {shown}")
            for value, shown in (
                ("1k", '"1k"'),
                (1.5, "1.5"),
                ("1.5", '"1.5"'),
                ("", '""'),
                ("9" * 50, f'"{"9" * 50}"'),
            )
        ),
        *(
            ({"config-x": {"name": value}}, f"--config-x.name: expected a text, found {shown}")
            for value, shown in ((1, "1"), (True, "true"), (["a"], '["a"]'), ({"a": 1}, '{"a": 1}'))
        ),
        ({"config-x": {"inner": 1}}, "--config-x.inner: expected a mapping (JSON), found 1"),
        ({"config-x": {"widths": [1, "x"]}}, '--config-x.widths: expected a list, each an integer, found [1, "x"]'),
        ({"config-x": {"widths": [None]}}, "--config-x.widths: expected a list, each an integer, found [null]"),
        ({"config-x": {"widths": "1,2"}}, '--config-x.widths: expected a list, each an integer, found "1,2"'),
        ({"config-x": {"order": [1]}}, "--config-x.order: expected a list, each a text, found [1]"),
        ({"config-x": {"sizes": 3}}, "--config-x.sizes: expected a list, found 3"),
        (
            {"-cx.inner.fuse_rop=True": True},
            "--config-x.inner.fuse_rop: no such key in vLLM 2.0.0; nearest: 'fuse_rope'",
        ),
        ({"--dtype.x": 1}, "--dtype.x: --dtype takes one of auto, bfloat16, it has no keys to set"),
        (
            {"tensor-parallel-size": 2, "-tp": 4},
            "-tp and --tensor-parallel-size set the same flag of vLLM; keep one of them",
        ),
        (
            {"prefix-caching": True, "disable-prefix-caching": True},
            "--disable-prefix-caching and --prefix-caching set the same flag of vLLM; keep one of them",
        ),
        (
            {"tensor-paralel-size": 2},
            "--tensor-paralel-size: vLLM 2.0.0 has no such flag; nearest: 'tensor-parallel-size'",
        ),
        # A short alias is no name in a file; its flag is.
        ({"tp": 2}, "--tp: vLLM 2.0.0 has no such flag; nearest: 'tensor-parallel-size'"),
        ({"cx": {}}, "--cx: vLLM 2.0.0 has no such flag; nearest: 'config-x'"),
        ({"zzz": 2}, "--zzz: vLLM 2.0.0 has no such flag; no flag has a similar name"),
    ],
)
def test_bad_arguments(args, problem):
    assert TABLE.check_args(args) == [problem]


def test_flag_of_another_release_says_when():
    others = [
        table("1.10.0", ["gone"]),
        table("1.9.0", ["gone"]),
        table("2.1.0", ["coming"]),
        table("2.2.0", ["coming"]),
    ]
    gone, coming = TABLE.check_args({"gone": "x", "coming": "x"}, others)
    assert "--gone: vLLM 2.0.0 has no such flag, the last release here that has it is 1.10.0;" in gone
    assert "--coming: vLLM 2.0.0 has no such flag, the first release here that has it is 2.1.0;" in coming


REPLACED = {
    "gone": {"instead": "--dtype", "since": "2.0.0"},
    "coming": {"instead": "never said before its time", "since": "2.1.0"},
    "config-x.old": {"instead": "depth"},
    "VLLM_GONE": {"instead": "--level"},
}


def test_what_stands_in_place_of_a_name_is_said_from_its_release_on():
    found = TABLE.check_args({"gone": 1, "coming": 1, "config-x": {"old": 1, "inner": {"old": 1}}}, (), REPLACED)
    assert found == [
        "--gone: vLLM 2.0.0 has no such flag; instead: --dtype",
        "--coming: vLLM 2.0.0 has no such flag; no flag has a similar name",
        "--config-x.old: no such key in vLLM 2.0.0, instead: depth; known: depth, eager, inner, kernel, mode, name, "
        "order, rank, ratio, sizes, version, widths",
        "--config-x.inner.old: no such key in vLLM 2.0.0; known: fuse_rope",
    ]
    assert TABLE.check_env(["VLLM_GONE"], FOREIGN, (), REPLACED) == [
        "VLLM_GONE: vLLM 2.0.0 does not read this variable; instead: --level"
    ]


@pytest.mark.parametrize(
    ("args", "kind"),
    [
        ({"zzz": 1}, Unknown),
        ({"config-x": {"zzz": 1}}, Unknown),
        ({"config-x.zzz": 1}, Unknown),
        ({"parser": "opennai"}, Doubt),
        ({"leaving": True}, Doubt),
        ({"closed": "of_a_plugin"}, Unknown),
        ({"config-x": {"kernel": "of_a_plugin"}}, Unknown),
        ({"share": 2}, str),
        ({"dtype": "opennai"}, str),
        ({"config-x": {"depth": "x"}}, str),
        ({"headless": False}, str),
        ({"headless": "x"}, str),
        ({"tensor-parallel-size": 2, "-tp": 4}, str),
    ],
)
def test_only_unknown_names_are_of_the_class_that_a_lenient_site_lets_pass(args, kind):
    assert [type(problem) for problem in TABLE.check_args(args)] == [kind]


def test_values_that_a_plugin_of_the_stack_registers_are_listed_with_its_variables():
    foreign = Foreign.from_data({"all": {}, "cann": {"values": ["ascend"]}}, "cann")
    args = {"closed": "ascend", "config-x": {"kernel": "ascend"}}
    assert TABLE.check_args(args, (), None, foreign.values) == []
    assert len(TABLE.check_args(args)) == 2


def test_only_variables_of_vllm_are_unknown_for_certain():
    assert [type(problem) for problem in TABLE.check_env(["VLLM_ZZZ", "ZZZ"], FOREIGN)] == [Unknown, str]


FOREIGN = Foreign.from_data({"all": {"names": ["TZ", "OMP_NUM_THREADS"]}, "cuda": {"prefixes": ["NCCL_"]}}, "cuda")


def test_variables_that_somebody_reads():
    assert TABLE.check_env(["VLLM_CACHE_ROOT", "TZ", "NCCL_DEBUG"], FOREIGN) == []


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("VLLM_USE_Y", "VLLM_USE_Y: vLLM 2.0.0 does not read this variable; nearest: 'VLLM_USE_X'"),
        (
            "VLLM_GONE",
            "VLLM_GONE: vLLM 2.0.0 does not read this variable, the last release here that has it is 1.0.0; "
            "no variable of this release has a similar name",
        ),
        (
            "OMP_NUM_THREAD",
            "OMP_NUM_THREAD: neither vLLM 2.0.0 nor a library on this stack is known to read it; "
            "nearest: 'OMP_NUM_THREADS'",
        ),
        (
            "MY_SITE",
            "MY_SITE: neither vLLM 2.0.0 nor a library on this stack is known to read it; it may have no effect",
        ),
    ],
)
def test_variables_that_nobody_reads(name, problem):
    assert TABLE.check_env([name], FOREIGN, [table("1.0.0", env=["VLLM_GONE"])]) == [problem]


# The cases that the guides hold, against the bundled tables.


def test_cuda_graph_sizes_on_0_33():
    (problem,) = load_table("0.33.0").check_args({"cuda-graph-sizes": [2048]}, other_tables("0.33.0"))
    assert problem == (
        "--cuda-graph-sizes: vLLM 0.33.0 has no such flag, the last release here that has it is 0.11.0; "
        "nearest: 'cudagraph-capture-sizes'"
    )
    assert load_table("0.11.0").check_args({"cuda-graph-sizes": [2048]}) == []


@pytest.mark.parametrize("version", ["0.25.1", "0.32.0", "0.33.0"])
def test_flashinfer_moe_variable_is_gone_after_0_23(version):
    name = "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8"
    (problem,) = load_table(version).check_env([name], FOREIGN, other_tables(version))
    assert problem.startswith(
        f"{name}: vLLM {version} does not read this variable, the last release here that has it is 0.23.0; "
    )
    assert load_table("0.23.0").check_env([name], FOREIGN) == []


@pytest.mark.parametrize(
    ("version", "problems"),
    [
        ("0.10.2", []),
        ("0.11.0", []),
        (
            "0.33.0",
            [
                "--compilation-config.full_cuda_graph: no such key in vLLM 0.33.0, "
                "the last release here that has it is 0.11.0; nearest: 'cudagraph_mode'"
            ],
        ),
    ],
)
def test_full_cuda_graph_by_release(version, problems):
    args = {"compilation-config": {"full_cuda_graph": True}}
    found = load_table(version).check_args(args, other_tables(version))
    assert [problem.partition("; ")[0] for problem in found] == [problem.partition("; ")[0] for problem in problems]


@pytest.mark.parametrize(("version", "good"), [("0.13.0", False), ("0.17.1", True), ("0.33.0", True)])
def test_dotted_key_of_the_compilation_config(version, good):
    problems = load_table(version).check_args({"-cc.pass_config.fuse_rope_kvcache=True": True}, other_tables(version))
    if good:
        assert problems == []
    else:
        assert len(problems) == 1
        assert problems[0].startswith(
            "--compilation-config.pass_config.fuse_rope_kvcache: no such key in vLLM 0.13.0, "
            "the first release here that has it is 0.17.1; "
        )


def test_quantization_config_in_the_dotted_form_of_today():
    args = {"--quantization-config.moe.activation": "mxfp8", "moe-backend": "flashinfer_trtllm"}
    assert load_table("0.33.0").check_args(args) == []


def test_speculative_config_keys():
    good = {
        "speculative-config": {
            "model": "nvidia/gpt-oss-120b-Eagle3-v3",
            "method": "eagle3",
            "num_speculative_tokens": 3,
        }
    }
    assert load_table("0.33.0").check_args(good) == []
    (problem,) = load_table("0.33.0").check_args({"speculative-config": {"num_speculative_token": 3}})
    assert problem == (
        "--speculative-config.num_speculative_token: no such key in vLLM 0.33.0; nearest: 'num_speculative_tokens'"
    )


VALUES = OptionTable.from_data(
    {
        "version": "1.0",
        "flags": {},
        "env": {
            "choice": {
                "VLLM_WAY": {"values": ["fork", "forkserver"]},
                "VLLM_CASE": {"values": ["High"], "any_case": True},
                "VLLM_LIST": {"values": ["a", "b"], "many": True},
            },
            "boolean": ["VLLM_FLAG"],
            "integer": ["VLLM_PORT", "VLLM_SECONDS"],
            "json": ["VLLM_JSON"],
            "one": ["VLLM_ONE"],
            "number": ["VLLM_SHARE"],
            "switch": ["VLLM_ON"],
            "text": ["VLLM_NAME"],
        },
    }
)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        *(("VLLM_PORT", port, f'expected the number of a port, found "{port}"') for port in ("x", "-1", "65536")),
        ("VLLM_SECONDS", "", 'expected an integer, found ""'),
        ("VLLM_SECONDS", 1.5, "expected an integer, found 1.5"),
        ("VLLM_SECONDS", "8" * 6000, f'expected an integer, found "{"8" * 199}...'),
        ("VLLM_ON", "true", 'expected 0 or 1, found "true"'),
        ("VLLM_SHARE", "half", 'expected a number, found "half"'),
        ("VLLM_JSON", "[" * 100_000, f'expected JSON, found "{"[" * 199}...'),
        ("VLLM_WAY", "forksever", "expected one of fork, forkserver, found \"forksever\"; nearest: 'forkserver'"),
        ("VLLM_WAY", "", 'expected one of fork, forkserver, found ""'),
        ("VLLM_LIST", "a,c", 'expected one of a, b, found "a,c"'),
        # vLLM takes each of these for off.
        *(("VLLM_FLAG", word, f'expected 0 or 1, found "{word}"') for word in ("yes", "on", "2", "", "y")),
        *(("VLLM_ONE", word, f'expected 0 or 1, found "{word}"') for word in ("true", "yes", "")),
    ],
)
def test_a_value_that_vllm_cannot_read_is_refused(name, value, problem):
    assert [*VALUES.check_values({name: value})] == [f"{name}: {problem}"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("VLLM_PORT", value) for value in ("8000", 8000, " 7 ", "1_000", None)),
        ("VLLM_SECONDS", -1),
        *(("VLLM_ON", value) for value in ("0", 1, "2")),
        *(("VLLM_SHARE", value) for value in ("0.5", 1, "1e3", "inf")),
        *(("VLLM_JSON", value) for value in ("{}", "[1]", 3)),
        *(("VLLM_CASE", value) for value in ("high", "HIGH")),
        *(("VLLM_LIST", value) for value in ("a", "a, b", "", ",")),
        *(("VLLM_FLAG", value) for value in ("0", 1, "True", "FALSE", "off")),
        *(("VLLM_ONE", value) for value in ("0", 1, "false", -1)),
        ("VLLM_NAME", "anything"),
        ("NCCL_DEBUG", "anything"),
    ],
)
def test_a_value_that_vllm_reads_passes(name, value):
    assert [*VALUES.check_values({name: value})] == []


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("VLLM_ASCEND_ENABLE_NZ", "on", "an integer"),
        ("VLLM_ASCEND_ENABLE_MLAPO", "true", "0 or 1"),
        ("VLLM_ASCEND_LLMDD_RPC_PORT", "70000", "the number of a port"),
        ("VLLM_ASCEND_ENABLE_BATCH_MEMCPY", "yes", "one of 0, 1"),
        ("MSMONITOR_USE_DAEMON", "yes", "0 or 1"),
        ("DYNAMIC_EPLB", "yes", "0 or 1"),
        ("EXPERT_MAP_RECORD", "1", "one of false, true"),
        ("FLA_USE_TMA", "true", "0 or 1"),
        ("VLLM_ROCM_USE_AITER", "yes", "0 or 1"),
        ("VLLM_SKIP_P2P_CHECK", "true", "0 or 1"),
        ("VLLM_DEBUG_LOG_API_SERVER_RESPONSE", "1", "one of 0, false, true"),
        ("VLLM_LOGGING_LEVEL", "verbose", "one of critical, debug, error, fatal, info, notset, warn, warning"),
        ("VLLM_LOGGING_STREAM", "stdout", "one of ext://sys.stderr, ext://sys.stdout"),
    ],
)
def test_a_value_that_the_release_or_its_plugin_cannot_use_is_refused(name, value, expected):
    (problem,) = load_table("0.23.0").check_values({name: value}, load_foreign("cann").env)
    assert problem.startswith(f'{name}: expected {expected}, found "{value}"')


def test_a_kind_of_variables_that_nobody_knows_is_refused():
    with pytest.raises(OptionTableError, match=r"own\.yml: env\.integr: no such kind; nearest: 'integer'"):
        OptionTable.from_data({"version": "1.0", "flags": {}, "env": {"integr": ["A"]}}, "own.yml")


def test_a_parser_that_the_release_does_not_register_is_refused():
    newer = {"version": "3.0.0", "flags": {"registered": {"kind": "text", "known": ["kimi"]}}, "env": []}
    others = [OptionTable.from_data(newer)]
    assert TABLE.check_args({"registered": "herms"}) == [
        "--registered: vLLM 2.0.0 has no parser 'herms'; nearest: 'hermes'; one of your own needs --plugin"
    ]
    (problem,) = TABLE.check_args({"registered": "kimi"}, others)
    assert problem == (
        "--registered: vLLM 2.0.0 has no parser 'kimi', the first release here that has it is 3.0.0; known: hermes, "
        "openai; one of your own needs --plugin"
    )
    # A nightly build may have it.
    assert isinstance(problem, Unknown)


def test_a_variable_of_a_plugin_is_known_by_name_refused_if_misspelt_and_doubted_else():
    data = {"cann": {"names": ["VLLM_ASCEND_ENABLE_NZ", "VLLM_ASCEND_ENABLE_MLAPO"], "plugin": "VLLM_ASCEND_"}}
    foreign = Foreign.from_data(data, "cann")
    table = OptionTable.from_data({"version": "1.0", "flags": {}, "env": []})
    assert table.check_env(["VLLM_ASCEND_ENABLE_NZ"], foreign) == []
    (wrong,) = table.check_env(["VLLM_ASCEND_ENABLE_MLPAO"], foreign)
    assert not isinstance(wrong, (Doubt, Unknown)) and wrong.endswith("nearest: 'VLLM_ASCEND_ENABLE_MLAPO'")
    (newer,) = table.check_env(["VLLM_ASCEND_SOMETHING_ELSE"], foreign)
    assert isinstance(newer, Doubt)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"enable_cpu_bindin": True}, "--additional-config.enable_cpu_bindin: vLLM's plugin on this stack has no such"),
        ('{"weight_nz_mod": 1}', "nearest: 'weight_nz_mode'"),
        ({"something": 1}, "in any release that is known here"),
        ({"weight_nz_mode": 1, "eplb_config": {"x": 1}}, None),
        ("x", None),
        (None, None),
    ],
)
def test_a_key_of_the_plugin_is_checked(config, problem):
    keys = ["enable_cpu_binding", "eplb_config", "weight_nz_mode"]
    foreign = Foreign.from_data({"cann": {"listed": {"additional-config": {">=0.10.2": {"": keys}}}}}, "cann")
    found = list(foreign.check_keys({"additional-config": config}, "0.30.0"))
    assert (problem in found[0]) if problem else not found
    # A newer release of the plugin may have a key that nothing here is like.
    assert [isinstance(text, Doubt) for text in found] == ([problem.startswith("in any")] if problem else [])


def test_a_key_that_newer_releases_of_the_plugin_refuse_is_a_doubt_there():
    """AscendConfig of vllm-ascend 0.30.0rc2 has extra="forbid"; earlier ones read what they knew."""
    foreign = load_foreign("cann")
    config = {"weight_nz_mode": 1, "dynamic_eplb": True}
    assert not list(foreign.check_keys({"additional-config": config}, "0.23.0"))
    added = {"additional-config": {"enable_kvpp": True}}
    text = "--additional-config.{}: vLLM's plugin on this stack has no such key in release {}"
    for release in ("0.30.0rc2", "0.30.0"):
        (found,) = foreign.check_keys({"additional-config": config}, release)
        refuses = "; it refuses keys that it does not know"
        assert isinstance(found, Doubt) and found == text.format("dynamic_eplb", release) + refuses
        assert not list(foreign.check_keys(added, release))
    assert [*foreign.check_keys(added, "0.23.0")] == [text.format("enable_kvpp", "0.23.0")]


@pytest.mark.parametrize(
    ("name", "last", "later"),
    [
        ("FLASHCOMM1", "0.26.0", "0.30.0"),
        ("CONTEXT_PARALLEL", "0.20.2", "0.23.0"),
        ("PREFETCH_MLP", "0.13.0", "0.23.0"),
    ],
)
def test_a_variable_that_the_plugin_no_longer_reads_is_a_doubt(name, last, later):
    foreign, variable = load_foreign("cann"), f"VLLM_ASCEND_ENABLE_{name}"
    assert set(foreign.until) <= foreign.names
    assert table(version=last).check_env([variable], foreign) == []
    (found,) = table(version=later).check_env([variable], foreign)
    assert isinstance(found, Doubt)
    assert found == f"{variable}: vLLM's plugin on this stack does not read it in release {later}"


def test_without_a_plugin_any_key_is_accepted():
    assert not list(Foreign(frozenset(), ()).check_keys({"additional-config": {"x": 1}}, "1.0"))


@pytest.mark.parametrize(
    "args",
    [
        {"kv-cache-dtype": "int8"},
        {"attention-config.indexer_kv_dtype": "int8"},
        {"attention-config": {"indexer_kv_dtype": "int8"}},
    ],
)
def test_a_choice_that_the_plugin_for_ascend_adds(args):
    # vllm_ascend/patch/platform of 0.30.0rc2 widens both types, and its guides for DeepSeek-V4 and GLM-5.2 set them.
    table = load_table("0.30.0")
    assert table.check_args(args, added=load_foreign("cann").values) == []
    (problem,) = table.check_args(args, added=load_foreign("cuda").values)
    assert "expected one of auto" in problem
    assert len(table.check_args({"kv-cache-dtype": ["int8"]}, added=load_foreign("cann").values)) == 1


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            {"kv_connector": "NixlConector"},
            "has no connector 'NixlConector'; nearest: 'NixlConnector'; one of your own",
        ),
        ('{"kv_connector": "P2pNcclConnector"}', "vLLM 0.33.0 has no connector 'P2pNcclConnector'"),
        ({"kv_connector": "Own", "kv_connector_module_path": "own.module"}, None),
        ({"kv_connector": "MultiConnector"}, None),
        ({}, None),
        (5, None),
    ],
)
def test_a_connector_is_one_of_the_release(config, problem):
    found = [*load_foreign("cuda").check_keys({"kv-transfer-config": config}, "0.33.0")]
    assert [problem in text and isinstance(text, Unknown) for text in found] == ([True] if problem else [])


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"optimization-level": 7}, "--optimization-level: expected one of 0, 1, 2, 3, found 7"),
        ({"optimization-level": "O3"}, "--optimization-level: expected one of 0, 1, 2, 3"),
        ({"mamba-backend": "tritn"}, "--mamba-backend: expected one of cpu, flashinfer, triton"),
        ({"compilation-config": {"mode": 5}}, "--compilation-config.mode: expected one of NONE, STOCK_TORCH_COMPILE"),
        ({"compilation-config": {"cudagraph_mode": "FULLY"}}, 'found "FULLY"'),
        ({"compilation-config": {"cudagraph_mode": "full-and-piecewise"}}, "nearest: 'FULL_AND_PIECEWISE'"),
        ({"compilation-config": {"mode": "VLLM-COMPILE"}}, "nearest: 'VLLM_COMPILE'"),
        ({"compilation-config": {"mode": "3"}}, 'found "3"; write it as a number, without quotes'),
        ({"attention-config": {"flash_attn_version": "3"}}, 'found "3"; write it as a number, without quotes'),
        ({"attention-config": {"flash_attn_version": "5"}}, 'expected one of 2, 3, 4, found "5"'),
        ({"compilation-config": {"mode": "9" * 5000}}, "expected one of"),
        ({"moe-backend": "Deep-GEMM", "kernel-config": {"linear_backend": "FlashInfer-CUTLASS"}}, None),
        ({"compilation-config": {"mode": "vllm_compile", "cudagraph_mode": "full_and_piecewise"}}, None),
        ({"compilation-config": {"mode": 3, "cudagraph_mode": 2}, "optimization-level": 3, "-O3": None}, None),
    ],
)
def test_enumerations_of_the_release(args, problem):
    found = load_table("0.33.0").check_args(args)
    assert [problem in text for text in found] == ([True] if problem else [])


@pytest.mark.parametrize("release", releases())
@pytest.mark.parametrize("name, value, is_right", [
    ("gpu-memory-utilization", 95, False), ("gpu-memory-utilization", 0, False), ("gpu-memory-utilization", 0.95, True),
    ("max-num-seqs", 0, False), ("max-num-seqs", 1, True), ("max-num-batched-tokens", -1, False),
    ("max-model-len", -5, False), ("max-model-len", "16k", True),
])  # fmt: skip
def test_every_release_has_limits_of_what_the_fit_believes(release, name, value, is_right):
    assert (load_table(release).check_args({name: value}) == []) is is_right
