# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of the variables of a command."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.shell import interpolated
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.variables import sort_variables
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import (
    load_foreign,
    load_replaced,
    load_table,
    other_tables,
)


def sort(**env):
    return sort_variables(env, load_table("0.33.0"), load_foreign("cuda"), other_tables("0.33.0"), load_replaced())


def test_what_vllm_or_a_library_reads_is_kept():
    found = sort(NCCL_DEBUG="INFO", VLLM_LOGGING_LEVEL="DEBUG", OMP_NUM_THREADS="8")
    assert found.env == {"NCCL_DEBUG": "INFO", "VLLM_LOGGING_LEVEL": "DEBUG", "OMP_NUM_THREADS": "8"}
    assert not found.left_out and not found.notes


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("VLLM_USE_V1", "instead: nothing, there is only one engine"),
        ("VLLM_LOGING_LEVEL", "nearest: 'VLLM_LOGGING_LEVEL'"),
        ("HF_TOKEN", "give the token to pin_weights.yml"),
        ("CUDA_VISIBLE_DEVICES", "`chips` names them"),
        ("HF_HOME", "a directory of each instance"),
        ("HF_HUB_ENABLE_HF_TRANSFER", "hosts ask no hub"),
        ("https_proxy", "hosts ask no hub"),
        ("VLLM_HOST_IP", "span hosts"),
        ("DO_NOT_TRACK", "the collection sets it"),
    ],
)
def test_what_an_instance_does_not_set_is_left_out_with_the_reason(name, part):
    found = sort(**{name: "1"})
    assert found.left_out[0][0] == name and part in found.left_out[0][1]
    assert not found.env and not found.secrets


def test_jemalloc_is_loaded_by_the_images_for_ascend_and_by_a_command_s_own_word_elsewhere():
    given = {"LD_PRELOAD": "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2"}
    table, others = load_table("0.30.0"), other_tables("0.30.0")
    found = sort_variables(given, table, load_foreign("cann"), others, load_replaced())
    assert found.left_out == [("LD_PRELOAD", "the images of vllm-ascend load jemalloc themselves")]
    assert sort(**given).env == given


def test_a_variable_that_nothing_is_known_to_read_is_kept_with_a_remark():
    found = sort(SOMETHING="1")
    assert found.env == {"SOMETHING": "1"} and found.notes[0][0] == "SOMETHING"


def test_a_secret_that_nothing_is_known_to_read_is_kept_as_one_with_a_remark():
    found = sort(AWS_SECRET_ACCESS_KEY="s3cret", MYKEY="0ther", UCX_IB_PKEY="0x8001")
    assert found.secrets == ["AWS_SECRET_ACCESS_KEY", "MYKEY"] and found.env == {"UCX_IB_PKEY": "0x8001"}
    assert ("MYKEY", "neither vLLM 0.33.0 nor a library on this stack is known to read it; it may have no effect") in (
        found.notes
    )


def test_the_value_behind_a_name_that_is_none_is_not_shown():
    found = sort(**{"HF_TOKEN:s3cret": "", "API_TOKEN ": " s3cret", "A B": "1"})
    assert [name for name, _reason in found.left_out] == ["HF_TOKEN...", "API_TOKEN...", "A B"]


def test_secrets_are_names_only():
    found = sort(VLLM_API_KEY="s3cret", EXA_API_KEY=None)
    assert found.secrets == ["VLLM_API_KEY", "EXA_API_KEY"] and "s3cret" not in str(found)
    assert not sort(MY_CREDENTIALS="/etc/key.json", RAY_AUTH_MODE="token").secrets


def test_a_path_in_a_variable_is_noted():
    found = sort(LD_LIBRARY_PATH="/x/lib")
    assert ("LD_LIBRARY_PATH", "names /x/lib, a path of that machine; hosts need it there too") in found.notes


def test_values_that_only_that_machine_has_are_left_out():
    found = sort(NCCL_DEBUG=None, NCCL_IB_HCA=interpolated("$X"), OTEL_EXPORTER_OTLP_ENDPOINT="http://me:pass@host/")
    assert [name for name, _reason in found.left_out] == ["NCCL_DEBUG", "NCCL_IB_HCA", "OTEL_EXPORTER_OTLP_ENDPOINT"]
    assert "pass@" not in str(found)
