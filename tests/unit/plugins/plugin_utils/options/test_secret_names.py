# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.secret_names import is_secret


@pytest.mark.parametrize(
    "name",
    [
        *(
            "HF_TOKEN",
            "API_KEY",
            "db_password",
            "AWS_SECRET_ACCESS_KEY",
            "TOKEN",
            "OPENAI_APIKEY",
            "DB_PWD",
            "BASIC_AUTH",
        ),
        "OTEL_EXPORTER_OTLP_HEADERS",
    ],
)
def test_a_name_tells_a_secret(name):
    assert is_secret(name)
    assert is_secret(f"{name}_B64") and is_secret(f"MY_{name}2")


@pytest.mark.parametrize(
    "name",
    [
        "VLLM_MAX_NUM_BATCHED_TOKENS",
        "PWD",
        "HF_TOKEN_PATH",
        "SSL_KEY_FILE",
        "A_TOKEN_THRESHOLD",
        "TOKENIZERS_PARALLELISM",
    ],
)
def test_a_name_of_a_place_or_a_number_is_no_secret(name):
    assert not is_secret(name)
