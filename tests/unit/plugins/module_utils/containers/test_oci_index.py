# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.containers.oci_index import (
    TAG_ANNOTATION,
    Image,
    OciError,
    listing,
    parse_index,
)

DIGEST = "sha256:" + "0" * 64


def index(tag="v1", digest=DIGEST):
    return json.dumps({"manifests": [{"digest": digest, "annotations": {TAG_ANNOTATION: tag}}]})


def test_every_tag_of_a_layout_is_an_image():
    text = json.dumps(
        {"manifests": [{"digest": DIGEST, "annotations": {TAG_ANNOTATION: tag}} for tag in ("v0.33.0", "latest")]}
    )
    images = parse_index(text, "/m/vllm/vllm-openai", "vllm/vllm-openai")
    assert [image.name for image in images] == ["vllm/vllm-openai:v0.33.0", "vllm/vllm-openai:latest"]
    assert images[0] == Image("/m/vllm/vllm-openai", "vllm/vllm-openai", "v0.33.0", DIGEST)


@pytest.mark.parametrize(
    ("text", "repository", "message"),
    [
        ("{", "a/b", "/m/x/index.json: not the index of an image layout"),
        ("[]", "a/b", "/m/x/index.json: not the index of an image layout"),
        ('{"manifests": ["x"]}', "a/b", "/m/x/index.json: not the index of an image layout"),
        (json.dumps({"manifests": [{"digest": DIGEST}]}), "a/b", "found the tag '', expected one like v0.33.0"),
        (index(tag="-x"), "a/b", "found the tag '-x'"),
        (index(digest="md5:1"), "a/b", "found the digest 'md5:1', expected sha256:..."),
        (index(), "A/b", "/m/x: 'A/b' cannot be the name of a repository"),
        (index(), ".", "/m/x: '.' cannot be the name of a repository"),
    ],
)
def test_a_layout_that_cannot_be_pushed_is_named(text, repository, message):
    with pytest.raises(OciError) as error:
        parse_index(text, "/m/x", repository)
    assert message in str(error.value)


def test_a_listing_leaves_out_what_has_no_digest():
    images = parse_index(index(), "/m/a", "a") + parse_index(index("v2"), "/m/b", "b")
    assert listing(images, {"a:v1": DIGEST, "b:v2": None}) == f"a:v1 {DIGEST}\n"
