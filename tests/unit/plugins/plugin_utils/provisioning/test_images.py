# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.entry import ProvisionError
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.images import (
    Image,
    made_images,
    read_provisioner,
)

from tests.fakes.provision_entries import entry

IMAGE = {"url": "http://10.0.0.5:8080/debian13.raw", "sha256": "ab" * 32, "build_id": "20261128-4f1c"}
SITE = {"url": "https://10.0.0.5:6385/", "certificate": "PEM", "bmc_ca": "/etc/bmc.pem", "images": {"debian13": IMAGE}}


def read(**change):
    return read_provisioner(json.dumps({**SITE, **change}))


def test_the_file_of_a_provisioner_is_read():
    found = read()
    assert (found.url, found.certificate, found.bmc_ca) == ("https://10.0.0.5:6385", "PEM", "/etc/bmc.pem")
    assert found.image_of(entry()) == Image("debian13", IMAGE["url"], IMAGE["sha256"], IMAGE["build_id"])


def test_an_image_that_is_not_there_is_refused_with_the_nearest():
    with pytest.raises(ProvisionError, match="has no image 'debain13'; nearest: 'debian13'"):
        read().image_of(entry(image="debain13"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"images": []}, "is not the file that the role provisioner writes"),
        ({"certificate": None}, "certificate: found nothing"),
        ({"bmc_ca": 7}, "bmc_ca: found 7"),
        ({"url": "ftp://10.0.0.5"}, "url: found 'ftp://10.0.0.5'"),
        ({"url": "https://admin:x@10.0.0.5"}, "expected a URL without a user"),
        ({"images": {"debian13": []}}, "images.debian13: found []"),
        ({"images": {"debian13": {**IMAGE, "sha256": "abc"}}}, "images.debian13.sha256: found 'abc'"),
        ({"images": {"debian13": {**IMAGE, "build_id": "a b"}}}, "images.debian13.build_id: found 'a b'"),
        ({"images": {"debian13": {**IMAGE, "url": "file:///etc/passwd"}}}, "images.debian13.url"),
        ({"images": {"debian13": {**IMAGE, "url": "http://[::1"}}}, "images.debian13.url"),
        ({"images": {"debian13": {**IMAGE, "format": "vmdk"}}}, "images.debian13.format: found 'vmdk', expected raw"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused(change, said):
    with pytest.raises(ProvisionError) as error:
        read(**change)
    assert said in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "x" * 300_000])
def test_what_is_no_such_file_is_refused(text):
    with pytest.raises(ProvisionError, match="is not the file"):
        read_provisioner(text)


def test_the_images_that_a_provisioner_has_made_are_read():
    made = {"debian13": {"build_id": "2026-ab", "sha256": "ab" * 32}}
    assert made_images(json.dumps({"description": "x", "images": made})) == made
    assert made_images("") == {}


@pytest.mark.parametrize("text", ["[]", "{", "{}", '{"images": []}', "[" * 100_000, " " * 300_000 + '{"images": {}}'])
def test_what_is_no_list_of_made_images_is_refused_in_one_sentence(text):
    with pytest.raises(ProvisionError, match=r"images.json: is not the file that the role provisioner writes; run"):
        made_images(text)


def test_a_ramdisk_wipes_disks_only_where_the_file_says_so():
    assert [read(**change).wipes for change in ({}, {"wipes": False}, {"wipes": "true"}, {"wipes": True})] == [
        False, False, False, True,
    ]  # fmt: skip
