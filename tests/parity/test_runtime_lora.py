# SPDX-License-Identifier: GPL-3.0-or-later
"""What a release must have, so that adapters are loaded into a running engine (``supports: runtime-lora``)."""

from __future__ import annotations

import ast

import pytest

from tests.parity.conftest import fetched
from tests.parity.real import NEWEST
from tools.vllm.fetch_vllm_release import sources


@pytest.fixture(scope="module")
def vllm():
    """The Python files of the newest release."""
    return fetched(sources, NEWEST) / "vllm"


def function(path, name):
    """Return the source of a function or method."""
    text = path.read_text(encoding="utf-8")
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds) and node.name == name]
    return ast.get_source_segment(text, found[-1])


def test_the_prefix_cache_tells_adapters_of_one_name_apart(vllm):
    assert "lora_request.lora_path" in function(vllm / "v1/core/kv_cache_utils.py", "_gen_lora_extra_hash_keys")


def test_an_adapter_that_is_unloaded_stays_for_the_requests_that_run(vllm):
    text = function(vllm / "entrypoints/openai/models/serving.py", "unload_lora_adapter")
    assert "del self.lora_requests[lora_name]" in text and "remove_lora" not in text


def test_the_endpoints_and_their_fields_are_those_that_we_use(vllm):
    router = (vllm / "entrypoints/serve/lora/api_router.py").read_text(encoding="utf-8")
    protocol = (vllm / "entrypoints/serve/lora/protocol.py").read_text(encoding="utf-8")
    for text in ('"/v1/load_lora_adapter"', '"/v1/unload_lora_adapter"', "VLLM_ALLOW_RUNTIME_LORA_UPDATING"):
        assert text in router
    assert "lora_name: str" in protocol and "lora_path: str" in protocol
    assert "root=lora.path" in function(vllm / "entrypoints/openai/models/serving.py", "show_available_models")


def test_several_api_servers_are_refused(vllm):
    assert "num_api_servers > 1 and envs.VLLM_ALLOW_RUNTIME_LORA_UPDATING" in (
        vllm / "entrypoints/cli/serve.py"
    ).read_text(encoding="utf-8")
