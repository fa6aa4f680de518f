# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import shutil

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import (
    BUNDLED,
    load_exclusive,
    load_foreign,
    load_replaced,
    load_table,
    other_tables,
    releases,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.table import (
    VARIABLE_KINDS,
    OptionTableError,
)

# What a key of a JSON flag may hold.
KEY_KINDS = ("boolean", "integer", "number", "text", "choice", "list", "json", "any")
# The releases that the project supports; a site may add tables of its own.
SUPPORTED = ("0.10.2", "0.11.0", "0.13.0", "0.17.1", "0.20.2", "0.23.0", "0.25.1", "0.32.0", "0.33.0")

# What was found by hand in the released wheels, one sign for each of COLUMNS: y has it, - has not.
COLUMNS = ("0.10.2", "0.11.0", "0.13.0", "0.17.1", "0.20.2", "0.23.0", "0.25.1", "0.33.0")
VARIABLES = """
VLLM_USE_V1 yy------
VLLM_USE_MODELSCOPE yyyyyyyy
VLLM_USE_TRTLLM_ATTENTION yyy-----
VLLM_USE_TRTLLM_DECODE_ATTENTION --------
VLLM_USE_TRTLLM_CONTEXT_ATTENTION --------
VLLM_USE_FLASHINFER_MXFP4_MOE --------
VLLM_USE_FLASHINFER_MXFP4_BF16_MOE --------
VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8 yyyyyy--
VLLM_USE_FLASHINFER_MOE_MXFP4_BF16 yyyyyy--
VLLM_MXFP4_USE_MARLIN yyyyyy--
VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB yyyyyyy-
VLLM_ROCM_USE_AITER yyyyyyyy
VLLM_ROCM_USE_AITER_MHA yyyyyyyy
VLLM_USE_AITER_UNIFIED_ATTENTION yy------
VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION --yyyyyy
VLLM_USE_AITER_TRITON_FUSED_SPLIT_QKV_ROPE --------
VLLM_USE_AITER_TRITON_FUSED_ADD_RMSNORM_PAD --------
VLLM_USE_AITER_TRITON_GEMM --------
VLLM_ROCM_QUICK_REDUCE_QUANTIZATION yyyyyyyy
VLLM_CPU_KVCACHE_SPACE yyyyyyyy
VLLM_CPU_OMP_THREADS_BIND yyyyyyyy
VLLM_API_KEY yyyyyyyy
VLLM_CACHE_ROOT yyyyyyyy
"""
FLAGS = """
--async-scheduling yyyyyyyy
--enable-prefix-caching yyyyyyyy
--cuda-graph-sizes yy------
--max-cudagraph-capture-size --yyyyyy
--cudagraph-capture-sizes --yyyyyy
--stream-interval --yyyyyy
--attention-backend --yyyyyy
--kv-cache-dtype yyyyyyyy
--compilation-config yyyyyyyy
-cc --yyyyyy
--block-size yyyyyyyy
--enable-expert-parallel yyyyyyyy
--speculative-config yyyyyyyy
--tool-server yyyyyyyy
--tool-call-parser yyyyyyyy
--enable-auto-tool-choice yyyyyyyy
--reasoning-parser yyyyyyyy
--moe-backend ---yyyyy
--linear-backend -----yyy
--quantization-config -----yyy
--performance-mode ---yyyyy
--optimization-level --yyyyyy
--nnodes --yyyyyy
--master-addr --yyyyyy
--data-parallel-size yyyyyyyy
--shutdown-timeout ----yyyy
--disable-log-requests yyy----y
--enable-log-requests yyyyyyyy
--kv-cache-memory-bytes yyyyyyyy
--fail-on-environ-validation ---yyyyy
--config yyyyyyyy
--disable-access-log-for-endpoints ---yyyyy
"""
# --quantization-config: a field of EngineArgs in 0.20, a flag from 0.23.
# --disable-log-requests: a deprecated flag until 0.13, and in 0.33 the other side of --enable-log-requests (every
# --enable-x got its --disable-x there); the real parsers of 0.10.2, 0.11.0 and 0.33.0 take it.


def cells(rows):
    for row in rows.split("\n"):
        if row:
            name, signs = row.split()
            for version, sign in zip(COLUMNS, signs, strict=True):
                yield name, version, sign == "y"


@pytest.mark.parametrize(("name", "version", "there"), list(cells(VARIABLES)))
def test_variables_that_were_found_by_hand(name, version, there):
    assert (name in load_table(version).env) is there


@pytest.mark.parametrize(("name", "version", "there"), list(cells(FLAGS)))
def test_flags_that_were_found_by_hand(name, version, there):
    assert (load_table(version).canonical(name) is not None) is there


# Since when and until when the compilation config knows a key.
@pytest.mark.parametrize(
    ("path", "has", "has_not"),
    [
        ("full_cuda_graph", ["0.10.2", "0.11.0"], ["0.13.0", "0.33.0"]),
        ("pass_config.enable_noop", ["0.10.2", "0.11.0"], ["0.17.1", "0.33.0"]),
        ("pass_config.enable_fi_allreduce_fusion", ["0.10.2", "0.11.0"], ["0.17.1", "0.33.0"]),
        ("pass_config.eliminate_noops", ["0.13.0", "0.33.0"], ["0.10.2", "0.11.0"]),
        ("pass_config.fuse_allreduce_rms", ["0.13.0", "0.33.0"], ["0.10.2", "0.11.0"]),
        ("pass_config.fuse_rope_kvcache", ["0.17.1", "0.20.2", "0.33.0"], ["0.10.2", "0.13.0"]),
    ],
)
def test_keys_of_the_compilation_config(path, has, has_not):
    full = ("compilation-config", *path.split("."))
    assert [version for version in has + has_not if load_table(version).has_key(full)] == has


def test_counts_that_were_found_by_hand():
    assert len(load_table("0.10.2").env) == 177
    assert len(load_table("0.33.0").env) == 318


def test_every_supported_release_has_a_table():
    assert set(SUPPORTED) <= set(releases())
    assert releases() == sorted(releases(), key=lambda name: [int(part) for part in name.split(".")])


def _kinds(entry):
    if isinstance(entry, str):
        yield entry
        return
    yield entry["kind"]
    for key in entry.get("keys", {}).values():
        yield from _kinds(key)


@pytest.mark.parametrize("version", releases())
def test_table_is_sorted_and_every_kind_is_known(version):
    data = yaml.safe_load((BUNDLED / f"{version}.yml").read_text())
    names = [name for kind in data["env"].values() for name in kind]
    assert len(names) == len(set(names)) and set(data["env"]) <= set(VARIABLE_KINDS)
    assert all(list(kind) == sorted(kind) for kind in data["env"].values())
    assert list(data["flags"]) == sorted(data["flags"])
    for entry in data["flags"].values():
        assert list(entry.get("keys", {})) == sorted(entry.get("keys", {}))
        assert {kind for key in entry.get("keys", {}).values() for kind in _kinds(key)} <= set(KEY_KINDS)
    assert load_table(version).version == version


def test_the_tables_stay_small():
    assert sum(path.stat().st_size for path in BUNDLED.glob("*.yml")) < 430_000


def test_unknown_release_says_which_there_are_and_how_to_make_one():
    with pytest.raises(OptionTableError) as caught:
        load_table("0.99.0")
    assert "no option table for vLLM 0.99.0" in str(caught.value)
    assert "there are 0.10.2, 0.11.0," in str(caught.value)
    assert "tools/vllm/read_options.py 0.99.0 > catalog/options/0.99.0.yml" in str(caught.value)


def test_a_release_is_no_path():
    with pytest.raises(OptionTableError, match=r"no option table for vLLM \.\./options/0\.33\.0"):
        load_table("../options/0.33.0")


def test_table_under_another_release_s_name_is_refused(tmp_path):
    shutil.copy(BUNDLED / "0.33.0.yml", tmp_path / "0.34.0.yml")
    with pytest.raises(OptionTableError, match=r"0\.34\.0\.yml: holds the table of vLLM 0\.33\.0, expected 0\.34\.0"):
        load_table("0.34.0", tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flags: [", "1.0.0.yml: not YAML"),
        ("version: 1.0.0\nflags: {}\n", "1.0.0.yml: expected a mapping with version, flags and env"),
        (
            "version: 1.0.0\nflags: {}\nenv: 1\n",
            "1.0.0.yml: expected flags to be a mapping and env to be one or a list",
        ),
        ("version: 1.0.0\nflags: {x: {kind: int}}\nenv: []\n", "1.0.0.yml: flags.x needs a kind, one of switch"),
    ],
)
def test_file_that_is_no_table(tmp_path, text, message):
    (tmp_path / "1.0.0.yml").write_text(text)
    with pytest.raises(OptionTableError, match=message):
        load_table("1.0.0", tmp_path)


def test_other_tables_are_all_but_one():
    assert {table.version for table in other_tables("0.33.0")} == set(releases()) - {"0.33.0"}


FOREIGN = """
HSA_NO_SCRATCH_RECLAIM rocm
AMDGCN_USE_BUFFER_OPS rocm
TRITON_HIP_PRESHUFFLE_SCALES rocm
HCCL_OP_EXPANSION_MODE cann
HCCL_BUFFSIZE cann
NPU_MEMORY_FRACTION cann
ASCEND_RT_VISIBLE_DEVICES cann
TASK_QUEUE_ENABLE cann
PYTORCH_NPU_ALLOC_CONF cann
OMP_NUM_THREADS cann
OMP_PROC_BIND cpu
TIKTOKEN_ENCODINGS_BASE cuda
CUDA_VISIBLE_DEVICES cuda
HIP_VISIBLE_DEVICES rocm
NCCL_DEBUG cuda
GLOO_SOCKET_IFNAME cpu
HF_HOME cuda
NCCL_ENABLE_TIMING cuda
NCCL_IBEXT_DISABLE cuda
NCCL_SHARP_DISABLE cuda
NCCL_UCX_TLS cuda
NCCL_IB_IS_GLOBAL cuda
SHARP_COLL_LOG_LEVEL cuda
OFI_NCCL_PROTOCOL cuda
OFI_NCCL_PROTOCOL rocm
FI_PROVIDER cuda
HCCL_EVENT_TIMEOUT cann
HCCL_ASYNC_ERROR_HANDLING cann
HCCL_DESYNC_DEBUG cann
HCCL_BLOCKING_WAIT cann
TORCH_HCCL_ZERO_COPY cann
ACL_DEVICE_SYNC_TIMEOUT cann
ACL_STREAM_TIMEOUT cann
ACL_OP_INIT_MODE cann
ACL_OP_COMPILER_CACHE_MODE cann
CPU_AFFINITY_CONF cann
P2P_HCCL_BUFFSIZE cann
MULTI_STREAM_MEMORY_REUSE cann
INF_NAN_MODE_ENABLE cann
STREAMS_PER_DEVICE cann
EXA_API_KEY cuda
PYTHON_EXECUTION_BACKEND cuda
"""


@pytest.mark.parametrize("row", FOREIGN.split("\n")[1:-1])
def test_foreign_variables_that_are_right(row):
    name, stack = row.split()
    assert load_foreign(stack).covers(name, "0.23.0")
    assert load_foreign().covers(name, "0.23.0")


def test_foreign_variable_of_another_stack_is_not_covered():
    assert not load_foreign("cuda").covers("HCCL_BUFFSIZE", "0.33.0")


# Names of the libraries for collectives: their stack, a release that reads them, and one that does not (None: none).
COLLECTIVES = [
    ("NCCL_IB_HCA", "cuda", "0.10.2", None),
    ("NCCL_DEBUG_SUBSYS", "cuda", "0.33.0", None),
    ("NCCL_CHECK_MODE", "cuda", "0.32.0", "0.25.1"),
    ("NCCL_IB_SUBNET_PREFIX_LEN", "cuda", "0.33.0", "0.32.0"),
    ("NCCL_SHM_USE_CUDA_MEMCPY", "cuda", "0.25.1", "0.33.0"),
    ("NCCL_MIN_NCHANNELS", "rocm", "0.17.1", None),
    ("NCCL_RINGS_REMAP", "rocm", "0.33.0", None),
    ("RCCL_P2P_BATCH_ENABLE", "rocm", "0.23.0", None),
    ("RCCL_MSCCL_ENABLE", "rocm", "0.23.0", "0.33.0"),
    ("RCCL_WARP_SPEED_ENABLE", "rocm", "0.33.0", "0.23.0"),
    ("HCCL_OP_RETRY_PARAMS", "cann", "0.30.0", None),
]


@pytest.mark.parametrize(("name", "stack", "release", "without"), COLLECTIVES)
def test_variables_of_collectives_by_release(name, stack, release, without):
    foreign = load_foreign(stack)
    assert load_table(release).check_env([name], foreign) == []
    if without:
        (problem,) = load_table(without).check_env([name], foreign)
        assert problem.endswith("is known to read it; that of another release does")


@pytest.mark.parametrize(
    ("name", "stack", "hint"),
    [
        ("NCCL_DEBUGG", "cuda", "nearest: 'NCCL_DEBUG'"),
        ("NCCL_SOCKET_IFNAM", "rocm", "nearest: 'NCCL_SOCKET_IFNAME'"),
        ("RCCL_MISSPELT", "rocm", "it may have no effect"),
        ("RCCL_MSCCL_FORCE_ENABLED", "rocm", "nearest: 'RCCL_MSCCL_FORCE_ENABLE'"),
        ("HCCL_BUFSIZE", "cann", "nearest: 'HCCL_BUFFSIZE'"),
        ("HCCL_DEBUG", "cuda", "nearest: 'NCCL_DEBUG'"),
        # Nobody reads it, and the nearest one is another setting.
        ("NCCL_TIMEOUT", "cuda", "it may have no effect"),
        ("NCCL_IBEXT_DISABLE", "rocm", "it may have no effect"),
        ("NCCL_SHARP_DISABLE", "rocm", "it may have no effect"),
    ],
)
def test_unknown_variables_of_collectives(name, stack, hint):
    (problem,) = load_table("0.23.0").check_env([name], load_foreign(stack))
    assert problem.startswith(f"{name}: neither vLLM 0.23.0 nor a library on this stack is known to read it; ")
    assert problem.endswith(hint)


def test_unknown_stack():
    with pytest.raises(OptionTableError, match="no foreign variables for the stack 'rocn'; nearest: 'rocm'"):
        load_foreign("rocn")


def test_foreign_names_and_prefixes_are_sorted_and_none_is_said_twice():
    data = yaml.safe_load((BUNDLED / "foreign.yml").read_text())
    assert set(data) == {"all", "cuda", "rocm", "cann", "cpu", "xpu"}
    for part in data.values():
        assert part["names"] == sorted(set(part["names"]))
        assert part["prefixes"] == sorted(set(part["prefixes"]))
        assert not [name for name in part["names"] if name.startswith(tuple(part["prefixes"]))]


# What is said in place of a name, and what excludes each other.


def test_every_name_that_has_a_successor_is_gone_from_then_on():
    """An entry that a release still has would be a lie: `since` is the first release here without the name."""
    for name, entry in load_replaced().items():
        assert set(entry) <= {"instead", "since", "becomes"}, name
        for version in releases():
            table = load_table(version)
            head, *keys = name.split(".")
            there = name in table.env or (table.has_key((head, *keys)) if keys else head in table.flags)
            since = [int(part) for part in str(entry.get("since", "0")).split(".")]
            if [int(part) for part in version.split(".")] >= since and name != "disable-log-requests":
                assert not there, f"{name} in {version}"


def names_of(settings):
    """Return the names of settings: texts, and mappings with the value that a setting has to have."""
    return [name for item in settings for name in ([item] if isinstance(item, str) else item)]


def test_every_setting_that_excludes_another_is_one_that_some_release_has():
    tables = [load_table(version) for version in releases()]
    for group in load_exclusive():
        assert group["because"]
        others = [*group.get("needs", []), *([group["at_most"]] if "at_most" in group else [])]
        assert len(group["settings"]) + len(others) + ("stack" in group) > 1
        for name in names_of([*names_of(group["settings"]), *others]):
            head, *keys = name.split(".")
            if keys:
                assert any(table.has_key((head, *keys)) for table in tables), name
            else:
                assert any(table.canonical(name) or name in table.env for table in tables), name


@pytest.mark.parametrize(
    ("load", "name", "text", "message"),
    [
        (load_replaced, "replaced", "[]", "replaced.yml: expected a mapping of names, each with instead"),
        (load_replaced, "replaced", "a: {since: 1}", "replaced.yml: expected a mapping of names, each with instead"),
        (load_exclusive, "exclusive", "{}", "exclusive.yml: expected a list of groups, each with settings and because"),
        (load_exclusive, "exclusive", "- {because: x}", "exclusive.yml: expected a list of groups, each with settings"),
        (load_foreign, "foreign", "[]", "foreign.yml: expected a mapping of stacks, each with names and prefixes"),
    ],
)
def test_a_file_beside_the_tables_that_is_none(tmp_path, load, name, text, message):
    (tmp_path / f"{name}.yml").write_text(text)
    with pytest.raises(OptionTableError, match=message):
        load(directory=tmp_path)


def test_a_file_beside_the_tables_that_is_missing(tmp_path):
    with pytest.raises(OptionTableError, match=r"replaced.yml: No such file or directory"):
        load_replaced(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RESIDENTS_WAIT", "soon"),
        ("RESIDENTS_WAIT", 0),
        ("OPERATOR_GUARD", "0"),
        ("SEQUENCES_PER_REQUEST", 0),
        ("SEQUENCES_PER_REQUEST", 2.5),
        ("SCHEMA_LENGTH_PER_REQUEST", 0),
    ],
)
def test_what_the_middleware_cannot_read_is_refused_with_every_stack(name, value):
    for stack in ("cuda", "rocm", "cann"):
        table, env = load_table("0.32.0"), load_foreign(stack).env
        (problem,) = table.check_values({name: value}, env)
        assert problem.startswith(f"{name}: expected ") and f"found {json.dumps(value)}" in problem
        assert list(table.check_values({"RESIDENTS_WAIT": 0.5, "OPERATOR_GUARD": "1"}, env)) == []
