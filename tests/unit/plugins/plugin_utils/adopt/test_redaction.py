# SPDX-License-Identifier: GPL-3.0-or-later
"""No text that is printed holds a secret of the command."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.redaction import redact, secrets_of

SECRET = "s3cr3tw0rd"


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
        f"export AZURE_CONNECTION_STRING='AccountKey={SECRET};'",
    ],
)
def test_a_secret_is_found_in_every_form(text):
    assert SECRET not in redact({"a": [text, 1]}, text)["a"][0]


def test_other_words_stay():
    text = "vllm serve m --max-num-batched-tokens 8192 --tokenizer o/t --served-model-name key -e HF_TOKEN=$T"
    assert redact(text, text) == text and not secrets_of(text)
