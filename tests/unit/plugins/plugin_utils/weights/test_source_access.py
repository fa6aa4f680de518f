# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens and signed addresses of sources; no message holds a secret."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import ManifestFile, WeightsError
from ansible_collections.baremetal.inference.plugins.module_utils.weights.sources import parse_sources
from ansible_collections.baremetal.inference.plugins.plugin_utils.weights.source_access import access_of

SECRET = "hf_secret12345"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI"}


class Model:
    """The part of a manifest that addresses need."""

    path, files = "org/m/rev", (ManifestFile("a.safetensors", 1, "0" * 64),)


def access(sources, environment=()):
    return access_of(parse_sources(sources), [Model()], dict(environment))


@pytest.fixture
def secret(tmp_path):
    """Write a private file; return what does."""

    def write(text=f"{SECRET}\n", mode=0o600):
        path = tmp_path / "token"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(mode)
        return str(path)

    return write


def test_each_source_gets_its_own_token_by_its_number(secret):
    sources = [
        "/srv",
        "hub",
        {"source": "https://site.example", "token_file": secret()},
        "modelscope",
        "controller:/srv",
    ]
    environment = {"HF_TOKEN": f" {SECRET}\n", "OTHER": "x"}
    assert access(sources, environment) == {"1": {"token": SECRET}, "2": {"token": SECRET}}
    assert access(sources[:1] + sources[3:], {"MODELSCOPE_API_TOKEN": "ms"}) == {"1": {"token": "ms"}}
    assert access([{"source": "hub", "token_env": "OTHER"}], environment) == {"0": {"token": "x"}}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"token_file": "/nowhere/t"}, "token_file: /nowhere/t on the controller cannot be read: No such file"),
        ({"token_env": "NONE"}, "token_env: NONE is not set on the controller"),
        ({"token_env": "SPACED"}, "the variable SPACED: found spaces, several lines or letters beyond ASCII"),
        ({"token_env": "NONE", "token_file": "x"}, "found token_file and token_env; keep one of them"),
    ],
)
def test_a_token_that_is_missing_or_cannot_be_one_is_refused(options, reason):
    with pytest.raises(WeightsError) as caught:
        access([{"source": "hub", **options}], {"SPACED": f"Bearer {SECRET}"})
    assert reason in str(caught.value) and SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        (SECRET, 0o644, r"can be read by everybody \(mode 0644\); chmod 600 it"), (" \n", 0o600, "is empty"),
        (b"\xff\xfe", 0o600, "cannot be read: it is not text"), (f"{SECRET}\nb", 0o600, "found spaces, several lines"),
    ],
)  # fmt: skip
def test_a_file_that_others_read_or_that_holds_no_token_is_refused(secret, text, mode, reason):
    with pytest.raises(WeightsError, match=reason) as caught:
        access([{"source": "hub", "token_file": secret(text, mode)}])
    assert SECRET not in str(caught.value)


def test_addresses_of_s3_are_signed_where_there_are_keys_and_never_hold_them(secret):
    source = {"source": "s3://bucket/models", "region": "eu-central-1"}
    plain = access([source])["0"]["addresses"]
    (address,) = plain.values()
    assert list(plain) == ["org/m/rev/a.safetensors"] and "X-Amz" not in address and "eu-central-1" in address
    signed = access([source], KEYS)["0"]["addresses"]["org/m/rev/a.safetensors"]
    assert signed.startswith(address) and "X-Amz-Signature=" in signed
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in signed
    profile = "[default]\naws_access_key_id = X\n[site]\naws_access_key_id = AKIASITE\naws_secret_access_key = y\n"
    named = access([{**source, "credentials_file": secret(profile), "profile": "site"}])["0"]["addresses"]
    assert "AKIASITE" in named["org/m/rev/a.safetensors"]


def test_a_profile_needs_a_file():
    with pytest.raises(WeightsError, match="found profile without credentials_file; name the file"):
        access([{"source": "s3://bucket/models", "profile": "site"}], KEYS)
