# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError, parse_manifest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.sources import (
    Access,
    file_address,
    parse_sources,
    request_headers,
)

REVISION = "6cee5e81ee83917806bbde320786a8fb61efebee"
MANIFEST = parse_manifest(
    {
        "repository": "openai/gpt-oss-20b",
        "revision": REVISION,
        "modelscope": {"repository": "openai-mirror/gpt-oss-20b"},
        "files": {"sub/config.json": {"size": 2, "sha256": "0" * 64}},
    }
)
PATH = f"openai/gpt-oss-20b/{REVISION}/sub/config.json"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("/media/disk", f"/media/disk/{PATH}"),
        ("file:///media/disk", f"file:///media/disk/{PATH}"),
        ("https://mirror/weights/", f"https://mirror/weights/{PATH}"),
        ({"source": "https://mirror/weights", "token_env": "T"}, f"https://mirror/weights/{PATH}"),
        ("hub", f"https://huggingface.co/openai/gpt-oss-20b/resolve/{REVISION}/sub/config.json"),
        (
            "hub:https://hub.example.com/",
            f"https://hub.example.com/openai/gpt-oss-20b/resolve/{REVISION}/sub/config.json",
        ),
        ("modelscope", "https://www.modelscope.cn/models/openai-mirror/gpt-oss-20b/resolve/master/sub/config.json"),
    ],
)
def test_each_source_has_an_address_for_a_file(entry, expected):
    (source,) = parse_sources([entry])
    assert file_address(source, MANIFEST, MANIFEST.files[0], Access()) == expected


def test_objects_have_the_address_that_the_controller_has_signed():
    (source,) = parse_sources([{"source": "s3://models/weights", "endpoint": "https://s3.example.com"}])
    access = Access(addresses={PATH: "https://s3.example.com/signed"})
    assert file_address(source, MANIFEST, MANIFEST.files[0], access) == "https://s3.example.com/signed"


def test_token_is_sent_as_bearer():
    hub, modelscope = parse_sources(["hub", "modelscope"])
    assert request_headers(hub, Access(token="secret")) == {"Authorization": "Bearer secret"}
    assert request_headers(modelscope, Access(token="secret"))["Cookie"] == "m_session_id=secret"
    assert request_headers(hub, Access()) == request_headers(modelscope, Access()) == {}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("hubb", "found 'hubb', expected an absolute path, .*; nearest: 'hub'"),
        ("weights", "found 'weights', expected an absolute path"),
        ("ftp://mirror/weights", "weights_sources: ftp://mirror/weights: scheme 'ftp' is not known"),
        ("https://me:word@mirror/", "a source with a user or password would show them in logs"),
        ("controller:weights", "found 'weights', expected an absolute path on the controller"),
        ("s3:///prefix", "found no bucket, expected s3://BUCKET/PREFIX"),
        ("hub:ftp://x", "scheme 'ftp' is not known"),
        ("https://mirror/weights?token=hush", "https://mirror/weights: found a query or a fragment"),
        ("hub:https://hub.example.com/#x", "https://hub.example.com/: found a query or a fragment"),
        ("s3://[bad/prefix", "found no bucket, expected s3://BUCKET/PREFIX"),
        ({"source": "s3://b", "endpoint": "https://[bad"}, r"https://\[bad: invalid host or port"),
        ({"source": "s3://b", "endpoint": "/disk"}, "endpoint: found '/disk', expected http:// or https://"),
        (7, "found 7, expected an absolute path"),
        ({"url": "hub"}, "found a mapping with url, expected a text or a mapping with 'source'"),
        ({"source": "hub", "token_fil": "x"}, "hub: unknown key 'token_fil'; nearest: 'token_file'"),
        ({"source": "controller:/x", "token_file": "x"}, "controller:/x: unknown key 'token_file'"),
        ({"source": "hub", "token_file": ""}, "hub: token_file: found '', expected a text"),
    ],
)
def test_what_is_no_source_is_named(entry, message):
    with pytest.raises(WeightsError, match=message) as error:
        parse_sources([entry])
    assert "word" not in str(error.value).replace("password", "")
