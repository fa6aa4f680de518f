# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of what a recipe cannot do alone, against the tables of vLLM's releases and this collection's recipes."""

from __future__ import annotations

import dataclasses
import re

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import known_names, load_recipe
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import (
    load_foreign,
    load_restrictions,
    load_table,
    releases,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.restricted_recipes import restricted_in

ALL = load_restrictions()
# Without the list of what recipes may set, which refuses every other name.
LIST = dataclasses.replace(ALL, allowed=None)
TABLES = [load_table(version) for version in releases()]
FLAGS = {name for table in TABLES for name in table.flags}
VARIABLES = {name for table in TABLES for name in table.env} | load_foreign(None).names

# What sounds as if it loaded code or opened something. A new release's names are on the list, or here with the reason.
SOUNDS = re.compile(
    r"(?i)(path|dir|folder|cls|class|plugin|host|addr|_ips?|url|endpoint|trust|dev_|server|import|root|cache|file|proxy"
    r"|hub|grpc|uds|insecure|redirect|resolver|master|headers|origin|middleware|secret|token(?!s|ize|i[sz]))(?![a-z])"
)
HARMLESS = {
    "host": "set by the instance alone",
    "trust-remote-code": "checked with the code of the weights",
    "hf-config-path": "configuration, which runs code only with trust-remote-code",
    "mm-encoder-fp8-scale-path": "reads numbers",
    "enable-request-id-headers": "answers with the client's own id",
    "enable-mamba-fine-grained-prefix-cache": "how a cache is divided",
    "enable-server-load-tracking": "a number",
    "master-port": "the address decides",
    "allow-deprecated-quantization": "a format of weights",
    "TIKTOKEN_ENCODINGS_BASE": "reads a vocabulary that is checked",
    "VLLM_TUNED_CONFIG_FOLDER": "reads numbers",
    "VLLM_BUILD_URL": "a text",
    "VLLM_DP_MASTER_PORT": "the address decides",
    "VLLM_ASSETS_CACHE_MODEL_CLEAN": "removes what it loaded",
    "VLLM_DISABLE_COMPILE_CACHE": "reads nothing",
    "VLLM_COMPILE_CACHE_SAVE_FORMAT": "a format",
    "ACLNN_CACHE_LIMIT": "a number",
    "ACL_OP_COMPILER_CACHE_MODE": "a choice",
    "HOST_CACHE_CAPACITY": "a number",
    "NCCL_PLUGIN_P2P": "a choice",
    "VLLM_V0_USE_OUTLINES_CACHE": "below VLLM_CACHE_ROOT",
    "VLLM_V1_USE_OUTLINES_CACHE": "below VLLM_CACHE_ROOT",
}


def on_the_list(name):
    found = LIST.of_env if name in VARIABLES else LIST.of_args
    return any(next(found({name: value}), None) for value in ("x", "0", "custom_class"))


def test_every_name_of_a_release_that_sounds_so_is_on_the_list_or_has_a_reason():
    sounding = {name for name in FLAGS | VARIABLES if SOUNDS.search(name)}
    unknown = {name for name in sounding if not on_the_list(name)} - set(HARMLESS)
    # Sizes, limits and choices of kernels.
    kinds = {name: table.flags[name]["kind"] for table in TABLES for name in table.flags}
    unknown = {name for name in unknown if kinds.get(name) not in ("integer", "number", "choice")}
    sizes = re.compile(
        r".*(_GIB|_MB|_HOURS|_LEN|CACHE_LAYOUT|INTERVAL|TOKEN_THRESHOLD|HYBRID_KV_CACHE|KVCACHE_SPACE"
        r"|CACHE_BY_BLOCK|FREE_TIMEOUT|FLOATING_TOLERANCE|_cache"
        r"|-cache-[a-z-]+|disable-[a-z-]+|-token-(threshold|ids).*)\Z"
    )
    assert not (left := sorted(name for name in unknown if not sizes.match(name))), ", ".join(left)


@pytest.mark.parametrize("kind", ["variables", "arguments"])
def test_a_plain_name_on_the_list_is_one_of_a_release_or_of_a_library(kind):
    names = [each.name.pattern for each in getattr(LIST, kind)]
    plain = {name for name in names if re.fullmatch(r"(VLLM_)?[\w-]+", name)}
    known = FLAGS if kind == "arguments" else VARIABLES
    own = {name for name in plain if name.startswith("VLLM_")} if kind == "variables" else plain
    assert own - known == set()


def test_the_names_of_the_finding_are_on_the_list():
    variables = [
        "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PATH",
        "BASH_ENV", "VLLM_PLUGINS", "VLLM_SERVER_DEV_MODE", "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "OPERATOR_GUARD",
        "RESIDENTS", "AVAILABILITY_DIRECTORY", "PREFILL_HOSTS", "HTTP_PROXY", "https_proxy", "ALL_PROXY",
        "HF_ENDPOINT", "SSL_CERT_FILE", "OPENSSL_CONF", "VLLM_API_KEY", "HF_TOKEN", "NCCL_NET_PLUGIN",
        "TRITON_PTXAS_PATH", "TRITON_CACHE_MANAGER", "NVIDIA_VISIBLE_DEVICES", "VLLM_LOGGING_CONFIG_PATH",
        "VLLM_ALLOW_INSECURE_SERIALIZATION", "RAY_ADDRESS", "OTEL_EXPORTER_OTLP_ENDPOINT", "HF_MODULES_CACHE",
    ]  # fmt: skip
    assert [name for name in variables if not next(LIST.of_env({name: "1"}), None)] == []
    offline = {"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "", "VLLM_NO_USAGE_STATS": "0", "OPERATOR_GUARD": ""}
    assert [each.name for each in LIST.of_env(offline)] == list(offline)
    arguments = [
        "allowed-local-media-path", "allowed-media-domains", "middleware", "tool-parser-plugin",
        "reasoning-parser-plugin", "worker-extension-cls", "worker-cls", "scheduler-cls", "logits-processors",
        "api-key", "ssl-keyfile", "download-dir", "uds", "config",
    ]  # fmt: skip
    assert [name for name in arguments if not next(LIST.of_args({name: "evil.Code"}), None)] == []
    inside = {
        "kv-transfer-config": {"kv_connector": "MultiConnector", "kv_connector_extra_config": {
            "connectors": [{"kv_connector_module_path": "evil"}]}},
        "ec-transfer-config": {"ec_connector_module_path": "evil"},
        "structured-outputs-config": {"reasoning_parser_plugin": "/x.py"},
        "hf-overrides": {"text_config": {"auto_map": {"AutoModel": "evil.Model"}}},
        "compilation-config": {"backend": "evil.compile"},
        "speculative-config": {"method": "custom_class"},
    }  # fmt: skip
    assert [each.path[0] for each in LIST.of_args(inside)] == list(inside)


@pytest.mark.parametrize(
    "args",
    [
        {"compilation-config": {"backend": "my-pkg.func"}},
        {"compilation-config": {"backend": "os.system "}},
        {"compilation-config": {"backend": [["os.system"]]}},
        {"compilation-config": '{"backend": "inductor\\n.x"}'},
        {"speculative-config": {"method": [["custom_class"]]}},
        {"spec-method": [["custom_class"]]},
        {"distributed-executor-backend": [["evil.Executor"]]},
        # Ray is a cluster without a password.
        {"distributed-executor-backend": "ray"},
        {"distributed-executor-backend": [" Ray"]},
        {"data-parallel-backend": "ray"},
    ],
)
def test_no_other_spelling_of_a_name_is_a_way_around(args):
    assert [each.path[0] for each in LIST.of_args(args)] == list(args)


def test_what_recipes_often_set_is_not_on_the_list():
    ordinary = {
        "VLLM_USE_V2_MODEL_RUNNER": "1", "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", "NCCL_NET_PLUGIN": "none",
        "NCCL_SOCKET_IFNAME": "eth0", "HF_HUB_OFFLINE": "1", "VLLM_SERVER_DEV_MODE": "0", "UCX_TLS": "all",
        "TORCH_BLAS_PREFER_HIPBLASLT": "1", "VLLM_ASCEND_ENABLE_PREFETCH_MLP": "1", "ASCEND_RT_VISIBLE_DEVICES": "0",
    }  # fmt: skip
    assert list(LIST.of_env(ordinary)) == []
    arguments = {
        "compilation-config": {"backend": "inductor", "cudagraph_mode": "FULL", "compile_ranges_endpoints": [1]},
        "hf-overrides": {"rope_parameters": {"rope_type": "yarn"}},
        "logits-processors": ["vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor"],
        "distributed-executor-backend": "mp", "speculative-config": {"method": "eagle3", "model": "org/draft"},
        "kv-transfer-config": {"kv_connector": "NixlConnector", "kv_connector_extra_config": {"engine_ttl": 0}},
        "attention-config": {"backend": "FLASHINFER"}, "additional-config": {"enable_cpu_binding": True},
    }  # fmt: skip
    assert list(LIST.of_args(arguments)) == []


def test_the_collection_s_own_recipes_need_no_permission_but_for_the_tools():
    for name in known_names("recipes", (".yaml", ".yml"), ()):
        found = list(restricted_in(load_recipe(name), TABLES[-1], ALL))
        assert {each.feature or "none" for each in found if each.name != "EXA_API_KEY"} <= {"tool_server"}, name


def test_libraries_and_compilers_that_the_report_named_are_on_the_list():
    variables = [
        "INTEL_JIT_PROFILER64", "INTEL_LIBITTNOTIFY64", "RDMAV_DRIVERS", "IBV_DRIVERS", "FI_PROVIDER_PATH",
        "NUMBA_CACHE_DIR",
        "TVM_LIBRARY_PATH",
        "LMCACHE_REMOTE_URL", "GCC_EXEC_PREFIX", "CCACHE_PREFIX", "UCX_GDB_COMMAND", "FORWARDED_ALLOW_IPS",
    ]  # fmt: skip
    assert [name for name in variables if not next(LIST.of_env({name: "/srv/models/x.so"}), None)] == []
    inside = [
        {"compilation-config": {"inductor_compile_config": {"cpp.cxx": ["/x"]}}},
        {"kv-transfer-config": {"kv_connector_extra_config": {"lmcache.remote_url": "lm://evil:1"}}},
        {"kv-transfer-config": {"kv_connector_extra_config": {"lmcache.runtime_plugin_locations": ["/x"]}}},
        {"additional-config": {"a.trust_remote_code": True}},
    ]
    assert [args for args in inside if not next(LIST.of_args(args), None)] == []
