# SPDX-License-Identifier: GPL-3.0-or-later
"""The smoke model's tokenizer, in the files that openai/gpt-oss publishes."""

from __future__ import annotations

import base64
from typing import Any, Iterator, Mapping

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

TEMPLATE = """\
{#- vLLM renders gpt-oss with Harmony itself; this serves tools that ask the tokenizer. -#}
{%- for message in messages -%}
<|start|>{{ message.role }}<|message|>{{ message.content }}<|end|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}
"""


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
