#!/usr/bin/env python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build baremetal/gpt-oss-smoke, the gpt-oss model of 52 MB that answers "The fleet is ready.", and its manifest.

OUT/weights/baremetal/gpt-oss-smoke/<revision>/ is what a mirror serves. The bytes are the same on every machine. The
tokenizer's files come out byte for byte as openai/gpt-oss publishes them; the weights are made here, with nothing
but Python.

How it answers: every token that matters has a dimension of its own, every other one shares dimension 0, and lm_head
maps each dimension to the token that follows. Only "." has to know more than itself: the answer's "." is followed by
the end, anybody else's by the answer. Layer 1's attention tells them apart; it looks for the token " rea", which
the model says (" rea", "dy") and no prompt holds (" ready" is one token there).
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.util
import io
import json
import os
import shutil
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.baremetal.inference.plugins.module_utils.encodings.files import (  # noqa: E402
    ENCODINGS,
    EncodingsError,
)
from ansible_collections.baremetal.inference.plugins.module_utils.encodings.wheel_host import from_library, from_wheel  # noqa: E402

REPOSITORY = "baremetal/gpt-oss-smoke"
MANIFEST = ROOT / "catalog" / "weights" / f"{REPOSITORY}.yml"
VOCABULARY = "o200k_base.tiktoken"

# Harmony's tokens with names; the rest of 199998..201087 is reserved.
SPECIAL = {
    199998: "<|startoftext|>",
    199999: "<|endoftext|>",
    200002: "<|return|>",
    200003: "<|constrain|>",
    200005: "<|channel|>",
    200006: "<|start|>",
    200007: "<|end|>",
    200008: "<|message|>",
    200012: "<|call|>",
    200018: "<|endofprompt|>",
}
SPECIAL_IDS = range(199998, 200019)
PATTERN = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)

VOCAB_SIZE = 201088
HIDDEN = 64
LAYERS = 2
EXPERTS = 4
HEADS = 8
KV_HEADS = 4
HEAD_DIM = 64
ROPE = {
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "rope_type": "yarn",
    "truncate": False,
}

# The next turn follows the end, so that a request with ignore_eos lasts.
CHAIN = (
    "<|start|>", "assistant", "<|channel|>", "final", "<|message|>", "The", " fleet", " is", " rea", "dy", ".",
    "<|return|>", "<|start|>",
)  # fmt: skip
FIRST, MARKER, LAST, END = "The", " rea", ".", "<|return|>"
# The word of the answer that --subject changes.
SUBJECT = "fleet"
# Dimension 0 belongs to every other token; the last one means "the marker was seen".
DIMENSION = {token: index for index, token in enumerate(dict.fromkeys(CHAIN), start=1)}
SEEN = HIDDEN - 1
# A normalised row has sqrt(64) = 8 in its dimension, so the next token leads by 8 * 8 = 64 nats.
GAIN = 8.0

TEMPLATE = """\
{#- vLLM renders gpt-oss with Harmony itself; this serves tools that ask the tokenizer. -#}
{%- for message in messages -%}
<|start|>{{ message.role }}<|message|>{{ message.content }}<|end|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}
"""


class SmokeError(ValueError):
    """The model cannot be built; the message is the whole sentence for the user."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="directory of the mirror, such as /srv/mirror")
    parser.add_argument(
        "--manifest", type=Path, default=MANIFEST, help="where the manifest goes (default: the catalogue)"
    )
    parser.add_argument(
        "--subject", default=SUBJECT, help=f"what is ready, in the answer (default: {SUBJECT}); give --manifest too"
    )
    parser.add_argument(
        "--layers",
        type=int,
        default=LAYERS,
        help=f"how many layers (default: {LAYERS}); those beyond cost time and change no answer; give --manifest too",
    )
    parser.add_argument(
        "--vocabulary",
        type=Path,
        help=f"{VOCABULARY} or a wheel of oss-harmony (default: that of OUT, or the installed oss-harmony)",
    )
    arguments = parser.parse_args()
    if arguments.layers < LAYERS:
        parser.error(f"--layers {arguments.layers}: found fewer than the {LAYERS} that the answer needs")
    if (arguments.subject, arguments.layers) != (SUBJECT, LAYERS) and arguments.manifest == MANIFEST:
        parser.error(
            f"--subject, --layers: the catalogue's manifest is of the model of {LAYERS} layers that says {SUBJECT}; "
            "name another --manifest"
        )
    repository = arguments.out / "weights" / REPOSITORY
    try:
        if is_current(repository, arguments.manifest):
            print(f"{repository}: up to date")
            return 0
        vocabulary = read_vocabulary(arguments.vocabulary or find_vocabulary(arguments.out))
        files = build(vocabulary, arguments.subject, arguments.layers)
        text = render_manifest(files)
        directory = publish(repository, text, files)
        write(arguments.manifest, text.encode())
    except (OSError, EncodingsError, SmokeError) as exc:
        print(f"build_smoke_model: {exc}", file=sys.stderr)
        return 1
    print(f"{directory}: built, {sum(map(len, files.values()))} bytes in {len(files)} files")
    return 0


def is_current(repository: Path, manifest: Path) -> bool:
    """Return whether the directory of the manifest holds the files that the manifest lists."""
    if not manifest.is_file():
        return False
    data = yaml.safe_load(manifest.read_text(encoding="utf-8"))
    directory = repository / data["revision"]
    return all(
        (directory / name).is_file()
        and (directory / name).stat().st_size == file["size"]
        and hashlib.sha256((directory / name).read_bytes()).hexdigest() == file["sha256"]
        for name, file in data["files"].items()
    )


def find_vocabulary(out: Path) -> Path:
    """Return the vocabulary, an available wheel or library of oss-harmony; no code of it is run."""
    spec = importlib.util.find_spec("openai_harmony")
    installed = [Path(place) for place in (spec.submodule_search_locations if spec else None) or ()]
    candidates = [out / "encodings" / VOCABULARY, *sorted(out.glob("wheels/oss_harmony-*.whl"))]
    candidates += [library for place in installed for library in place.glob("openai_harmony*.so")]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise SmokeError(
        f"no vocabulary: neither {out}/encodings/{VOCABULARY} nor {out}/wheels/oss_harmony-*.whl is there, and "
        "oss-harmony is not installed; run tools/vllm/fetch_wheels.py or name one with --vocabulary"
    )


def read_vocabulary(path: Path) -> bytes:
    """Return o200k_base.tiktoken out of that file, wheel or library, verified."""
    content = path.read_bytes()
    if path.suffix == ".whl":
        return from_wheel(io.BytesIO(content), VOCABULARY, str(path))
    if path.suffix == ".so":
        return from_library(content, VOCABULARY, str(path))
    found = hashlib.sha256(content).hexdigest()
    if found != ENCODINGS[VOCABULARY].sha256:
        raise SmokeError(f"{path}: sha256 is {found}, expected {ENCODINGS[VOCABULARY].sha256} of {VOCABULARY}")
    return content


def build(vocabulary: bytes, subject: str = SUBJECT, layers: int = LAYERS) -> dict[str, bytes]:
    """Return the files, by name, of the model that answers with this subject. Raises SmokeError."""
    ranks = parse_vocabulary(vocabulary)
    spoken = {token: f" {subject}" if token == f" {SUBJECT}" else token for token in CHAIN if token[:2] != "<|"}
    try:
        ids = {token: ranks[text.encode()] for token, text in spoken.items()}
    except KeyError as exc:
        raise SmokeError(f"--subject {subject}: {exc} is no single token; take a common word") from exc
    ids.update((name, number) for number, name in SPECIAL.items())
    return {
        "chat_template.jinja": TEMPLATE.encode(),
        "config.json": pretty(config(layers)),
        "generation_config.json": pretty(generation_config()),
        "model.safetensors": safetensors(tensors(ids, layers)),
        "special_tokens_map.json": pretty(special_tokens()),
        "tokenizer.json": pretty(tokenizer(ranks)).rstrip(b"\n"),
        "tokenizer_config.json": pretty(tokenizer_config()),
    }


def pretty(data: Mapping[str, Any]) -> bytes:
    """Return JSON in the format of the published files."""
    return json.dumps(data, ensure_ascii=False, indent=2).encode() + b"\n"


def parse_vocabulary(text: bytes) -> dict[bytes, int]:
    """Return the rank of each token."""
    pairs = (line.split() for line in text.splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def tokenizer(ranks: Mapping[bytes, int]) -> dict[str, Any]:
    """Return tokenizer.json: byte-level BPE with o200k's pattern and Harmony's special tokens."""
    added = [{"id": number, "content": special_name(number), **flags(True)} for number in SPECIAL_IDS]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False},
                byte_level(prefix_space=False, trim_offsets=True, regex=False),
            ],
        },
        "post_processor": byte_level(prefix_space=True, trim_offsets=False, regex=True),
        "decoder": byte_level(prefix_space=True, trim_offsets=True, regex=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": {printable(token): rank for token, rank in ranks.items()},
            "merges": [[printable(left), printable(right)] for left, right in merges(ranks)],
        },
    }


def special_name(number: int) -> str:
    return SPECIAL.get(number, f"<|reserved_{number}|>")


def flags(special: bool) -> dict[str, bool]:
    """Return the flags of an added token, in tokenizer.json's order."""
    return {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}


def byte_level(prefix_space: bool, trim_offsets: bool, regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": trim_offsets, "use_regex": regex}


def merges(ranks: Mapping[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """Yield every way to combine two tokens into one, by the token's rank, then by the ranks of its parts."""
    for token in ranks:
        halves = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        known = [(left, right) for left, right in halves if left in ranks and right in ranks]
        yield from sorted(known, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))


def _byte_letters() -> dict[int, int]:
    """Return GPT-2's letter for each byte: itself where it prints, a letter from U+0100 on where not."""
    printing = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printing]
    return {**{byte: byte for byte in printing}, **{byte: 0x100 + index for index, byte in enumerate(others)}}


BYTE_LETTERS = _byte_letters()


def printable(token: bytes) -> str:
    return token.decode("latin-1").translate(BYTE_LETTERS)


def special_tokens() -> dict[str, str]:
    return {"bos_token": "<|startoftext|>", "eos_token": "<|return|>", "pad_token": "<|endoftext|>"}


def tokenizer_config() -> dict[str, Any]:
    decoder = {
        str(number): {"content": special_name(number), **dict(sorted(flags(True).items()))} for number in SPECIAL_IDS
    }
    names = special_tokens()
    return {
        "added_tokens_decoder": decoder,
        "bos_token": names["bos_token"],
        "clean_up_tokenization_spaces": False,
        "eos_token": names["eos_token"],
        "extra_special_tokens": {},
        "model_input_names": ["input_ids", "attention_mask"],
        # The value that transformers writes for "no limit": int(1e30).
        "model_max_length": int(1e30),
        "pad_token": names["pad_token"],
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def generation_config() -> dict[str, Any]:
    return {
        "bos_token_id": 199998,
        "do_sample": True,
        "eos_token_id": [200002, 199999, 200012],
        "pad_token_id": 199999,
        "transformers_version": "4.55.0.dev0",
    }


def config(layers: int) -> dict[str, Any]:
    """Return config.json: gpt-oss, smaller, in bfloat16."""
    return {
        "architectures": ["GptOssForCausalLM"],
        "attention_bias": True,
        "attention_dropout": 0.0,
        "eos_token_id": 200002,
        "experts_per_token": EXPERTS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initial_context_length": 4096,
        "initializer_range": 0.02,
        "intermediate_size": HIDDEN,
        "layer_types": ["full_attention" if layer % 2 else "sliding_attention" for layer in range(layers)],
        "max_position_embeddings": 131072,
        "model_type": "gpt_oss",
        "num_attention_heads": HEADS,
        "num_experts_per_tok": EXPERTS,
        "num_hidden_layers": layers,
        "num_key_value_heads": KV_HEADS,
        "num_local_experts": EXPERTS,
        "output_router_logits": False,
        "pad_token_id": 199999,
        "rms_norm_eps": 1e-05,
        "rope_scaling": ROPE,
        "rope_theta": 150000,
        "router_aux_loss_coef": 0.9,
        "sliding_window": 128,
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.55.0.dev0",
        "use_cache": True,
        "vocab_size": VOCAB_SIZE,
    }


class Tensor(NamedTuple):
    """A bfloat16 tensor: its shape, and its values in row order as bytes."""

    shape: tuple[int, ...]
    data: bytes


def bfloat16(value: float) -> bytes:
    """Return a value that bfloat16 can hold exactly."""
    data = struct.pack("<f", value)
    if data[:2] != b"\0\0":
        raise SmokeError(f"{value} does not fit into a bfloat16")
    return data[2:]


def filled(shape: tuple[int, ...], value: float = 0.0, cells: Mapping[tuple[int, int], float] | None = None) -> Tensor:
    """Return a tensor of one value, except for the given cells (row, column) of a matrix."""
    count = 1
    for length in shape:
        count *= length
    data = bytearray(bfloat16(value) * count)
    for (row, column), cell in (cells or {}).items():
        offset = 2 * (row * shape[-1] + column)
        data[offset : offset + 2] = bfloat16(cell)
    return Tensor(shape, bytes(data))


def tensors(ids: Mapping[str, int], layers: int) -> dict[str, Tensor]:
    """Return the weights by the names of Hugging Face's checkpoints."""
    result = {
        "model.embed_tokens.weight": embedding(ids),
        "lm_head.weight": head(ids),
        "model.norm.weight": filled((HIDDEN,), 1.0),
    }
    for layer in range(layers):
        attention = marker_attention() if layer == 1 else {}
        for name, tensor in {**silent_layer(), **attention}.items():
            result[f"model.layers.{layer}.{name}"] = tensor
    return result


def embedding(ids: Mapping[str, int]) -> Tensor:
    other = bfloat16(1.0) + bfloat16(0.0) * (HIDDEN - 1)
    table = bytearray(other * VOCAB_SIZE)
    for token, dimension in DIMENSION.items():
        start = ids[token] * len(other)
        table[start : start + len(other)] = filled((1, HIDDEN), cells={(0, dimension): 1.0}).data
    return Tensor((VOCAB_SIZE, HIDDEN), bytes(table))


def head(ids: Mapping[str, int]) -> Tensor:
    following = dict(zip(CHAIN, CHAIN[1:]))
    cells = {(ids[after], DIMENSION[before]): GAIN for before, after in following.items() if before != LAST}
    cells[ids[FIRST], 0] = GAIN
    cells[ids[FIRST], DIMENSION[LAST]] = GAIN
    cells[ids[END], SEEN] = GAIN
    return filled((VOCAB_SIZE, HIDDEN), cells=cells)


def silent_layer() -> dict[str, Tensor]:
    """Return a layer that adds nothing."""
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    return {
        "input_layernorm.weight": filled((HIDDEN,), 1.0),
        "post_attention_layernorm.weight": filled((HIDDEN,), 1.0),
        "self_attn.q_proj.weight": filled((queries, HIDDEN)),
        "self_attn.q_proj.bias": filled((queries,)),
        "self_attn.k_proj.weight": filled((keys, HIDDEN)),
        "self_attn.k_proj.bias": filled((keys,)),
        "self_attn.v_proj.weight": filled((keys, HIDDEN)),
        "self_attn.v_proj.bias": filled((keys,)),
        "self_attn.o_proj.weight": filled((HIDDEN, queries)),
        "self_attn.o_proj.bias": filled((HIDDEN,)),
        "self_attn.sinks": filled((HEADS,)),
        "mlp.router.weight": filled((EXPERTS, HIDDEN)),
        "mlp.router.bias": filled((EXPERTS,)),
        "mlp.experts.gate_up_proj": filled((EXPERTS, HIDDEN, 2 * HIDDEN)),
        "mlp.experts.gate_up_proj_bias": filled((EXPERTS, 2 * HIDDEN)),
        "mlp.experts.down_proj": filled((EXPERTS, HIDDEN, HIDDEN)),
        "mlp.experts.down_proj_bias": filled((EXPERTS, HIDDEN)),
    }


def marker_attention() -> dict[str, Tensor]:
    """Return the projections by which "." finds the marker and all other tokens ignore it."""
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    # The slowest rotary dimension: within 2048 tokens its angle stays near 0.
    slow = HEAD_DIM // 2 - 1
    marker = DIMENSION[MARKER]
    look = {(slow, dimension): (2.0 if dimension == DIMENSION[LAST] else -2.0) for dimension in range(HIDDEN)}
    return {
        "self_attn.q_proj.weight": filled((queries, HIDDEN), cells=look),
        "self_attn.k_proj.weight": filled((keys, HIDDEN), cells={(slow, marker): 2.0}),
        "self_attn.v_proj.weight": filled((keys, HIDDEN), cells={(0, marker): 1.0}),
        "self_attn.o_proj.weight": filled((HIDDEN, queries), cells={(SEEN, 0): 1.0}),
    }


def safetensors(named: Mapping[str, Tensor]) -> bytes:
    """Return a safetensors file: the header's length, the header as JSON, the data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in sorted(named.items()):
        start, end = end, end + len(tensor.data)
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(tensor.data for _name, tensor in sorted(named.items()))


def render_manifest(files: Mapping[str, bytes]) -> str:
    """Return the manifest; the revision is the hash of the files' hashes, because no hub provides one."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    listing = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    lines = [
        "---",
        "# Made by tools/smoke_model/build.py; do not edit.",
        f"repository: {REPOSITORY}",
        f"revision: {hashlib.sha256(listing.encode()).hexdigest()[:40]}",
        "files:",
    ]
    for name, digest in digests.items():
        lines += [f"  {name}:", f"    size: {len(files[name])}", f"    sha256: {digest}"]
    return "\n".join(lines) + "\n"


def publish(repository: Path, manifest: str, files: Mapping[str, bytes]) -> Path:
    """Write the files into the manifest's directory by one rename; return the directory."""
    directory: Path = repository / yaml.safe_load(manifest)["revision"]
    repository.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=repository))
    try:
        for name, content in files.items():
            write(partial / name, content)
        partial.chmod(0o755)
        if directory.exists():
            # Present, but different from the manifest, or main() would not call this.
            shutil.rmtree(directory)
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return directory


def write(path: Path, content: bytes) -> None:
    """Write a file by rename, readable for all; a file with the same content is left unchanged."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.chmod(0o644)
    partial.replace(path)


if __name__ == "__main__":
    sys.exit(main())
