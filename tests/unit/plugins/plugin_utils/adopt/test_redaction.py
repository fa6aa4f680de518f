# SPDX-License-Identifier: GPL-3.0-or-later
"""No text that is printed holds a secret of the command."""

from __future__ import annotations

import re
import tracemalloc

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt import redaction
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.redaction import redact, secrets_of

SECRET = "s3cr3tw0rd"


def test_a_secret_that_begins_as_another_one_leaves_no_end_of_it():
    text = f"A_TOKEN={SECRET} B_TOKEN={SECRET}tail"
    assert "tail" not in redact(text, text)


def test_a_variable_in_place_of_a_secret_and_a_value_as_short_as_a_word_are_shown():
    text = "docker run -e HF_TOKEN=$HUB_TOKEN -e VLLM_API_KEY='{{ vault_key }}' -e MY_PASSWORD=run i"
    assert redact(text, text) == text


@pytest.mark.parametrize(
    "text",
    [
        f"vllm serve m --api-key {SECRET}",
        f"vllm serve m --api_key={SECRET} --port 1",
        f"docker run -e HF_TOKEN={SECRET} i",
        f"docker run --env 'VLLM_API_KEY={SECRET}' i",
        f'export MY_PASSWORD="{SECRET}"',
        f"environment:\n  HF_TOKEN: {SECRET}\n",
        f'environment: {{"HF_TOKEN": "{SECRET}"}}',
        f"command:\n  - --api-key\n  - {SECRET}\n",
        f'command: ["--api-key", "{SECRET}"]',
        f'Environment="HF_TOKEN={SECRET}"',
        f"--hf-token hf_{SECRET}",
        f"--otlp-traces-endpoint http://me:{SECRET}@host/x",
        f'--model-loader-extra-config \'{{"aws_secret_access_key":"{SECRET}"}}\'',
        f'--additional-config \'{{"authorization":"Bearer {SECRET}"}}\'',
        f"--otlp-headers 'Authorization: Basic {SECRET}'",
        f"docker run -e GITHUB_PAT={SECRET} -e PGPASS={SECRET} -e SESSION_COOKIE={SECRET} i",
        f"export SSH_KEY_B64={SECRET} TLS_KEY_PEM={SECRET} TOKEN2={SECRET}",
        f"accessToken: {SECRET}",
        f"--client-secret-b64 {SECRET}",
        f"ngrok --authtoken {SECRET}",
        f"proxy --mytoken {SECRET}",
        f"export PGPASSWORD={SECRET} DB_PASS_2={SECRET}2",
        f"docker run -e HF_TOKEN {SECRET.title()} vllm/vllm-openai",
        f"docker run --env 'HF_TOKEN' '{SECRET}' vllm/vllm-openai",
        f"docker run -e HF_TOKEN:{SECRET} vllm/vllm-openai",
        f"FROM vllm/vllm-openai\nENV HF_TOKEN {SECRET}",
        f"docker run -e MYKEY={SECRET} i",
        f"vllm serve m --kv-transfer-config.kv_connector_extra_config.redis_password {SECRET}",
        f"export AZURE_CONNECTION_STRING='AccountKey={SECRET};'",
    ],
)
def test_a_secret_is_found_in_every_form(text):
    assert SECRET not in redact({"a": [text, 1]}, text)["a"][0]


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m --max-num-batched-tokens 8192 --tokenizer o/t --served-model-name key -e HF_TOKEN=$T",
        "vllm serve --return-tokens-as-token-ids openai/gpt-oss-120b",
        "vllm serve --allow-credentials openai/gpt-oss-120b",
        "vllm serve --enable-request-id-headers openai/gpt-oss-120b",
        "docker run -e HF_TOKEN vllm/vllm-openai:v0.33.0 --model m",
        "docker exec -e HF_TOKEN vllm vllm serve m",
        "docker run -e GOOGLE_APPLICATION_CREDENTIALS=/etc/gcp/key.json -e MAX_TOKEN_LEN=4096 -e RAY_AUTH_MODE=token i",
    ],
)
def test_other_words_stay(text):
    assert redact(text, text) == text and not secrets_of(text)


@pytest.mark.parametrize("text", ["key=" * 16000, "--key=/" * 9000, "key=abcdefg " * 5000])
def test_a_command_of_nothing_but_names_takes_little(text):
    tracemalloc.start()
    found = sum(map(len, secrets_of(text)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found < 4 * len(text) and peak < 64 * len(text)


def test_the_secrets_of_a_command_are_looked_for_once(monkeypatch):
    calls = []
    monkeypatch.setattr(redaction, "secrets_of", lambda command: calls.append(command) or {SECRET})
    assert SECRET not in str(redact({"a": [SECRET] * 9, "b": SECRET}, "command")) and calls == ["command"]


@pytest.mark.parametrize("text", ["export MY_KEY={}", "environment: HF_TOKEN={}", "vllm serve m --api-key '{}'"])
def test_a_long_secret_is_masked_to_its_end(text):
    secret = "".join(f"x{number}y" for number in range(300))
    assert not re.search(r"x\d+y", redact(text.format(secret), text.format(secret)))
