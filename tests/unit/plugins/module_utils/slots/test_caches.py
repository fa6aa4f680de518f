# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import copy
import json
import tarfile

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.slots.caches import (
    Archive,
    CacheError,
    check_member,
    find_archive,
    identity_of,
    key_of,
)

PLAN = {
    "instance": "chat", "vllm_version": "0.33.0", "model": "openai/gpt-oss-20b", "revision": "a" * 40,
    "args": {"max-num-seqs": 64}, "env": {"VLLM_CACHE_ROOT": "/var/cache/vllm/chat/vllm"}, "accelerator": "h200",
    "chips": [0], "listen": {"host": "127.0.0.1", "port": 8000}, "host": "gpu-1",
}  # fmt: skip
HOST = {"driver": "nvidia 580.159.04", "machine": "x86_64", "processor": "b" * 64, "system": "ID=debian VERSION_ID=13"}
KEY = "0123456789abcdef" * 2
ARCHIVE = Archive(KEY, 10, "c" * 64, 20)


def key(plan=None, software="0.33.0-cuda-abc", host=None):
    return key_of(identity_of(plan or PLAN, software, host or HOST))


@pytest.mark.parametrize("changes", [
    {"instance": "code"}, {"vllm_version": "0.32.0"}, {"model": "other/model"}, {"revision": "d" * 40},
    {"args": {"max-num-seqs": 65}}, {"env": {}}, {"accelerator": "h100"}, {"chips": [0, 1]},
])  # fmt: skip
def test_another_plan_has_another_archive(changes):
    assert key({**PLAN, **changes}) != key()


@pytest.mark.parametrize("name", HOST)
def test_another_host_has_another_archive(name):
    assert key(host={**HOST, name: "other"}) != key()


def test_another_lock_or_image_has_another_archive():
    assert key(software="0.33.0-cuda-abd") != key()


def test_where_an_equal_instance_listens_does_not_matter():
    assert (
        key({**copy.deepcopy(PLAN), "listen": {"host": "10.0.0.1", "port": 1}, "host": "gpu-2", "chips": [3]}) == key()
    )


def test_the_archive_is_found_by_its_manifest():
    other = Archive("f" * 32, 1, "c" * 64, 2).manifest({})
    assert find_archive([other, ARCHIVE.manifest({"driver": "x"})], KEY) == ARCHIVE
    assert find_archive([other], KEY) is None
    assert json.loads(other)["made_from"] == {}


def test_manifests_that_differ_are_refused():
    with pytest.raises(CacheError, match="found 2 that differ"):
        find_archive([ARCHIVE.manifest({}), Archive(KEY, 11, "c" * 64, 20).manifest({})], KEY)


@pytest.mark.parametrize("text", [
    "", "[", "[]", "{}", '{"version": 2}',
    *(json.dumps({**json.loads(ARCHIVE.manifest({})), **wrong}) for wrong in (
        {"key": "../../etc"}, {"key": 7}, {"size": -1}, {"size": True}, {"unpacked": 1 << 50}, {"sha256": "c" * 63},
        {"version": 2},
    )),
])  # fmt: skip
def test_a_damaged_manifest_is_refused(text):
    with pytest.raises(CacheError, match="a manifest of a cache"):
        find_archive([text], KEY)


def member(name, kind=tarfile.REGTYPE):
    found = tarfile.TarInfo(name)
    found.type = kind
    return found


def test_files_of_the_parts_are_accepted():
    for name in ("vllm/torch_compile_cache/a/b.py", "triton/x", ".cache/flashinfer/0.7/90a/y.so", "torchinductor/z"):
        check_member(member(name))


@pytest.mark.parametrize("found", [
    member("huggingface/x"), member("vllm"), member("vllm/../usage"), member("/vllm/x"), member("vllm//x"),
    member("vllm/./x"), member("vllmx/y"), member(".cache/other/x"), member("vllm/x", tarfile.SYMTYPE),
    member("vllm/x", tarfile.LNKTYPE), member("vllm/x", tarfile.FIFOTYPE), member("vllm/x", tarfile.CHRTYPE),
    member("vllm/x", tarfile.DIRTYPE),
])  # fmt: skip
def test_everything_else_is_refused(found):
    with pytest.raises(CacheError, match="expected only files"):
        check_member(found)
