# SPDX-License-Identifier: GPL-3.0-or-later
"""The bill of materials, held to the schema that CycloneDX publishes (tests/fixtures/cyclonedx, Apache License 2.0)."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.mirror.bill import (
    Known,
    read_metadata,
    render_bill,
    written_at,
)
from ansible_collections.baremetal.inference.plugins.module_utils.mirror.bundle import carried_holds, parse_holds

FIXTURE = Path(__file__).resolve().parents[4] / "fixtures/cyclonedx/bom-1.6.schema.json"
FILE = {"size": 3, "sha256": "0" * 64}
NOW, LATER = "2026-01-31T12:00:00Z", "2026-02-01T12:00:00Z"
TORCH = "wheels/torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl"
IMAGE = "vllm/vllm-openai:v0.33.0"
PLAIN = {
    "weights": {f"openai/gpt-oss-20b/{'a' * 40}": {f"weights/openai/gpt-oss-20b/{'a' * 40}/model.safetensors": FILE}},
    "encodings": {"o200k_base.tiktoken": {"encodings/o200k_base.tiktoken": FILE}},
    "wheels": {"one.txt": {TORCH: FILE}, "two.txt": {TORCH: FILE}},
    "images": {
        "vllm/vllm-openai": {"images/vllm/vllm-openai/index.json": FILE},
        IMAGE: {"images/vllm/vllm-openai/blobs/sha256/00": FILE},
    },
}
CARRIED = (
    "collection.bundle", "baremetal-inference-0.7.0.tar.gz", "ansible_core-2.19.14-py3-none-any.whl",
    "nginx_1.22.1-9+deb12u1_amd64.deb", "island/.vault",
)  # fmt: skip


def holds():
    found = parse_holds(PLAIN, "holds")
    content = next(iter(found["encodings"]["o200k_base.tiktoken"].values()))
    return {**found, **carried_holds({f"controller/{name}": content for name in CARRIED})}


def render(known=None, now=NOW, before=""):
    return render_bill(holds(), known or {}, "0.7.0", now, before)


def components(**known):
    return {component["bom-ref"]: component for component in json.loads(render(known))["components"]}


def check(bill):
    schema = json.loads(FIXTURE.read_text())
    # Neither a licence by its id nor a signature within the document is used.
    for name in ("spdx.schema.json", "jsf-0.82.schema.json"):
        assert name in FIXTURE.read_text()
    schema["definitions"]["license"]["properties"]["id"] = False
    schema["properties"]["signature"] = False
    schema["definitions"]["signature"] = False
    jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker()).validate(bill)


def test_it_fits_the_published_schema():
    known = {TORCH: Known(licences=("BSD-3-Clause",)), IMAGE: Known("Apache-2.0", (), f"sha256:{'b' * 64}")}
    check(json.loads(render(known)))


@pytest.mark.parametrize(
    "damage",
    [
        lambda bill: bill.update(specVersion=1.6),
        lambda bill: bill.update(serialNumber="7"),
        lambda bill: bill["components"][0].update(type="thing"),
        lambda bill: bill["components"][0].update(licences=[]),
        lambda bill: bill["components"][0].pop("name"),
    ],
)
def test_the_schema_finds_planted_mistakes(damage):
    bill = json.loads(render())
    damage(bill)
    with pytest.raises(jsonschema.ValidationError):
        check(bill)


def test_each_thing_is_named_as_its_users_know_it():
    image = Known("Apache-2.0", (), f"sha256:{'b' * 64}")
    found = components(**{IMAGE: image, TORCH: Known(licences=("BSD License",))})
    model = found[f"weights:openai/gpt-oss-20b/{'a' * 40}"]
    assert (model["type"], model["purl"]) == (
        "machine-learning-model",
        f"pkg:huggingface/openai/gpt-oss-20b@{'a' * 40}",
    )
    assert model["components"][0]["hashes"] == [{"alg": "SHA-256", "content": "0" * 64}]
    wheel = found[TORCH]
    assert (wheel["name"], wheel["version"]) == ("torch", "2.13.0+cpu")
    assert wheel["purl"].startswith("pkg:pypi/torch@2.13.0%2Bcpu?file_name=torch-")
    assert wheel["licenses"] == [{"license": {"name": "BSD License"}}]
    assert found[f"images:{IMAGE}"]["purl"] == f"pkg:oci/vllm-openai@sha256%3A{'b' * 64}?tag=v0.33.0"
    assert found[f"images:{IMAGE}"]["licenses"] == [{"expression": "Apache-2.0"}]
    assert found["encodings/o200k_base.tiktoken"]["type"] == "data"
    collection = found["controller/baremetal-inference-0.7.0.tar.gz"]
    assert (collection["name"], collection["version"]) == ("baremetal.inference", "0.7.0")
    package = found["controller/nginx_1.22.1-9+deb12u1_amd64.deb"]
    assert package["purl"] == "pkg:deb/debian/nginx@1.22.1-9%2Bdeb12u1?arch=amd64"
    assert found["controller/island/.vault"]["type"] == "file"


def test_a_file_of_two_locks_is_one_component_and_nothing_unknown_is_claimed():
    found = components()
    assert [ref for ref in found if ref.startswith("wheels/")] == [TORCH]
    assert "licenses" not in found[TORCH] and "purl" not in found[f"images:{IMAGE}"]


def test_every_file_is_in_it():
    text = render()
    for items in holds().values():
        for files in items.values():
            assert all(f'"{path}"' in text for path in files)


def test_the_same_content_is_the_same_text():
    first = render()
    assert render(now=LATER, before=first) == first
    changed = render({TORCH: Known("MIT")}, now=LATER, before=first)
    assert json.loads(changed)["metadata"]["timestamp"] == LATER
    assert json.loads(changed)["serialNumber"] != json.loads(first)["serialNumber"]
    assert json.loads(render(before="{"))["metadata"]["timestamp"] == NOW


def test_the_time_of_the_content_is_that_of_its_last_change():
    assert written_at(render(now="2026-01-31T12:00:00Z")) == 1769860800
    for damaged in ("", "{", "[]", '{"metadata": {"timestamp": "yesterday"}}', '{"metadata": 3}'):
        assert written_at(damaged) is None


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"license-expression": ["Apache-2.0 OR MIT"], "license": ["x"]}, Known("Apache-2.0 OR MIT")),
        (
            {"classifier": ["License :: OSI Approved :: MIT License", "Programming Language :: Python"]},
            Known("", ("MIT License",)),
        ),
        ({"classifier": ["License :: OSI Approved"], "license": ["BSD"]}, Known("", ("BSD",))),
        ({"license": ["Permission is hereby granted\nto any person"]}, Known()),
        ({"license": ["UNKNOWN"]}, Known()),
        ({}, Known()),
    ],
)
def test_the_licence_of_a_wheel(headers, expected):
    assert read_metadata(headers) == expected
