# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import (
    load_foreign,
    load_table,
    releases,
)
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
        *("PGPASSWORD", "PGPASS", "NGROK_AUTHTOKEN", "ROOTPASSWORD", "DB_PASS", "AWS_SECRETKEY", "PRIVATEKEY"),
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
        *("HF_HUB_DISABLE_IMPLICIT_TOKEN", "RAY_AUTH_MODE", "SSH_AUTH_SOCK", "MAX_TOKEN", "KEY_INDEX", "KEY_PREFIX"),
    ],
)
def test_a_name_of_a_place_or_a_number_is_no_secret(name):
    assert not is_secret(name)


@pytest.mark.parametrize("value", ["/etc/gcp/key.json", "/run/user/1/a.key", "4096", 4096, "0.5", "true", True, "off"])
def test_a_path_a_number_or_a_switch_is_no_secret(value):
    assert not is_secret("GOOGLE_APPLICATION_CREDENTIALS", value) and is_secret("GOOGLE_APPLICATION_CREDENTIALS")


@pytest.mark.parametrize("value", ["20261129", "1", "/bPxRfiCYEXAMPLEKEY", "/etc/x"])
def test_a_password_may_look_like_a_number_or_a_path(value):
    assert is_secret("DB_PASSWORD", value) and is_secret("VLLM_API_KEY", value)


@pytest.mark.parametrize("value", ["/bPxRfi/CYEXAMPLEKEY", "/etc/x y", "1a", "etc/x"])
def test_a_token_is_none_of_these(value):
    assert is_secret("HF_TOKEN", value)


def test_a_word_of_a_setting_hides_no_key():
    assert is_secret("ALLOWED_API_KEYS") and is_secret("MAX_API_KEY") and not is_secret("ALLOW_API_KEY", "1")


def test_of_all_names_of_vllm_only_the_secrets_tell_one():
    tables = [load_table(name) for name in releases()]
    names = {name for table in tables for name in (*table.env, *table.flags)} | load_foreign().names
    assert len(names) > 700 and {name for name in names if is_secret(name)} == {
        *("VLLM_API_KEY", "S3_SECRET_ACCESS_KEY", "EXA_API_KEY", "api-key", "hf-token")
    }
    spellings = {text.lstrip("-") for table in tables for text in table.spellings}
    assert {name for name in spellings if is_secret(name)} == {"api-key", "hf-token"}
