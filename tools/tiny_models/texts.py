# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokenizers of the tiny models: bytes and a few words for those that write, a few words for the one of embeddings."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from tools.smoke_model.tokens import BYTE_LETTERS, byte_level, flags

START, END, IMAGE = "<|im_start|>", "<|im_end|>", "<image>"
# What the processor of the model that takes pictures writes around one.
AROUND = ("<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
SPECIAL = (START, END, IMAGE, *AROUND)
TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}\
{% if part.type == 'text' %}{{ part.text }}{% else %}<image>{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}
"""


def writer_tokens(answer: Sequence[str]) -> dict[str, int]:
    """Return the id of each byte's letter, then of the special tokens, then of the words of the answer."""
    letters = [chr(BYTE_LETTERS[byte]) for byte in range(256)]
    return {token: number for number, token in enumerate((*letters, *SPECIAL, *answer))}


def writer_files(ids: Mapping[str, int]) -> dict[str, Any]:
    """Return tokenizer.json and tokenizer_config.json of a model that writes."""
    added = [(token, number) for token, number in ids.items() if number >= 256]
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": token, **flags(token in SPECIAL)} for token, number in added],
        "normalizer": None,
        "pre_tokenizer": byte_level(prefix_space=False, trim_offsets=True, regex=False),
        "post_processor": None,
        "decoder": byte_level(prefix_space=False, trim_offsets=True, regex=False),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for token, number in ids.items() if number < 256},
            "merges": [],
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": END,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
        "chat_template": TEMPLATE,
    }
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config}


def word_files(words: Sequence[str]) -> dict[str, Any]:
    """Return tokenizer.json and tokenizer_config.json of a model that reads whole words; the first five are special."""
    vocabulary = {word: number for number, word in enumerate(words)}
    special = [{"id": number, "content": word, **flags(True)} for word, number in list(vocabulary.items())[:5]]
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_special("[CLS]"), {"Sequence": {"id": "A", "type_id": 0}}, _special("[SEP]")],
            "pair": [
                _special("[CLS]"),
                {"Sequence": {"id": "A", "type_id": 0}},
                _special("[SEP]"),
                {"Sequence": {"id": "B", "type_id": 1}},
                _special("[SEP]"),
            ],
            "special_tokens": {
                word: {"id": word, "ids": [vocabulary[word]], "tokens": [word]} for word in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    }
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 128,
        **{f"{name}_token": token for name, token in names.items()},
    }
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config}


def _special(token: str) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": 0}}
