# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import io
import json
import random
import zipfile

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.completeness import (
    CompletenessCheck,
    check_numbers,
    check_unfinished,
    content_problem,
)
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError

from tests.fakes.tensors import safetensors

DATA = bytes(range(1, 250)) * 100
WHOLE = safetensors(DATA)
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 4792272488\n"
PAGE = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n"


def header(length, text=b""):
    return length.to_bytes(8, "little") + text


def archive():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("archive/data.pkl", DATA)
    return out.getvalue()


COMPLETE = {
    "model-00001-of-00002.safetensors": WHOLE, "empty.safetensors": safetensors(b""), "a/b.safetensors": WHOLE,
    "zeros.safetensors": safetensors(bytes(100)), "model.gguf": b"GGUF\3" + bytes(19) + DATA,
    "pytorch_model.bin": archive(), "consolidated.00.pth": archive(),
    "old.pt": b"\x80\x02}q\x00.", "config.json": b"{}", "tokenizer.json": b"{}",
    "tokenizer_config.json": b"\xef\xbb\xbf{}", "vocab.json": b"{}", "tokenizer.model": b"x", "sub/empty": b"",
    "notes.txt": b"", "other.bin": b"anything", "notes.json": b"{'a': 1}", "index.html": PAGE,
    "__init__.py": b"", "model.safetensors.index.json": b"{}",
}  # fmt: skip


@pytest.mark.parametrize("name", COMPLETE)
def test_a_complete_file(name):
    assert content_problem(name, COMPLETE[name]) == ""


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("m.safetensors", POINTER, "is a pointer of Git LFS (135 bytes) in place of the file"),
        ("tokenizer.json", POINTER, "is a pointer of Git LFS"), ("anything.dat", POINTER, "is a pointer of Git LFS"),
        ("m.safetensors", b"", "is empty"), ("config.json", b"", "is empty"), ("tokenizer.model", b"", "is empty"),
        ("m.gguf", b"", "is empty"), ("m.safetensors", PAGE, "is a web page"), ("config.json", PAGE, "is a web page"),
        ("adapter_model.bin", PAGE, "is a web page"), ("model-00001-of-00002.bin", PAGE, "is a web page"),
        ("adapter_model.bin", bytes(5000), "does not begin as a file of PyTorch"), ("model.bin", b"", "is empty"),
        ("chat_template.jinja", PAGE, "is a web page"), ("merges.txt", b"", "is empty"),
        ("vocab.txt", PAGE, "is a web page"),
        ("m.gguf", b"\n  <html>", "is a web page"), ("m.safetensors", bytes(100_000), "has no header of safetensors"),
        ("m.safetensors", WHOLE[:7], "has no header"), ("m.safetensors", WHOLE[:60], "has no header"),
        ("m.safetensors", WHOLE[:-1], f"has {len(WHOLE) - 1} bytes, and its header describes {len(WHOLE)}"),
        ("m.safetensors", WHOLE + b"x", f"has {len(WHOLE) + 1} bytes, and its header describes"),
        ("m.safetensors", WHOLE[: len(WHOLE) // 2], "bytes, and its header describes"),
        ("m.safetensors", safetensors(bytes(10_000)), "has only zeros in place of its tensors"),
        ("m.safetensors", header(2**63), "has no header"), ("m.safetensors", header(3, b"{a}"), "cannot be read"),
        ("m.safetensors", header(2, b"[]"), "cannot be read"),
        ("m.safetensors", header(9, b'{"a": 1 }'), "cannot be read"),
        ("m.safetensors", header(100_000, b"[" * 100_000), "cannot be read"),
        *(
            ("m.safetensors", header(len(text), text), "cannot be read")
            for text in (
                json.dumps({"a": {"data_offsets": offsets}}).encode()
                for offsets in ([0], [1, 0], [-1, 1], [0, True], ["0", "1"], None, [0, 1.0])
            )
        ),
        ("m.gguf", bytes(5000), "does not begin as a file of GGUF"),
        ("pytorch_model-00001-of-00002.bin", archive()[:-40], "is a cut archive of PyTorch"),
        ("pytorch_model.bin", bytes(5000), "does not begin as a file of PyTorch"),
        ("tokenizer.json", b'{"model": {"vocab"', "is not JSON"), ("config.json", b"\x00" * 100, "is not JSON"),
        ("tokenizer.json", b"[" * 100_000, "is not JSON"), ("config.json", b"\xff\xfe", "is not JSON"),
    ],
)  # fmt: skip
def test_what_a_broken_download_leaves(name, content, problem):
    assert content_problem(name, content).startswith(problem) or problem in content_problem(name, content)


@pytest.mark.parametrize("name", COMPLETE)
def test_the_length_of_the_pieces_makes_no_difference(name):
    draw = random.Random(7)
    for content in (COMPLETE[name], COMPLETE[name][:-1]):
        check, begin = CompletenessCheck(name), 0
        while begin < len(content):
            length = draw.choice((1, 3, 500, 5000))
            check.feed(memoryview(content)[begin : begin + length])
            begin += length
        assert check.problem() == content_problem(name, content)


def test_downloads_that_have_not_ended():
    chosen = {"m.safetensors", "config.json"}
    for suffix in ("aria2", "incomplete", "partial", "part", "crdownload", "download", "tmp"):
        with pytest.raises(WeightsError, match=rf"o/n: found m\.safetensors\.{suffix}, so a download has not ended"):
            check_unfinished("o/n", [*chosen, f"m.safetensors.{suffix}"], chosen)
    check_unfinished("o/n", [*chosen, "other.bin.aria2"], chosen)


def shards(numbers, total):
    return {f"model-{number:05d}-of-{total:05d}.safetensors" for number in numbers}


def test_shards_are_counted_by_their_names():
    for numbers in (range(1, 4), range(4), range(3)):
        check_numbers("o/n", shards(numbers, 3) | {"model.safetensors"})
    with pytest.raises(WeightsError, match=r"model-00002-of-00003\.safetensors is missing"):
        check_numbers("o/n", shards((1, 3), 3))
    with pytest.raises(WeightsError, match=r"model-00003-of-00003\.safetensors is missing"):
        check_numbers("o/n", shards((1, 2), 3))
