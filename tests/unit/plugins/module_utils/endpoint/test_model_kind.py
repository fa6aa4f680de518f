# SPDX-License-Identifier: GPL-3.0-or-later
"""Which checks fit a model, from its files and the arguments of its instance."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.model_kind import (
    CHAT,
    ModelFiles,
    checks_for,
)

TOKENIZER = {"chat_template": "{% for message in messages %}"}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
QWEN_VL = {"architectures": ["Qwen3VLForConditionalGeneration"], "vision_config": {"depth": 2}}
POOLING = [{"type": "sentence_transformers.models.Pooling"}]


def chat(config, **more):
    return ModelFiles(config=config, tokenizer=TOKENIZER, **more)


@pytest.mark.parametrize(
    ("files", "options", "checks"),
    [
        (chat(LLAMA), {}, CHAT),
        (ModelFiles(), {"model": "org/model"}, CHAT),
        (ModelFiles(), {"enable-auto-tool-choice": "true"}, (*CHAT, "tool_call")),
        (chat(LLAMA), {"enable-auto-tool-choice": "true"}, (*CHAT, "tool_call")),
        (chat(LLAMA), {"load-format": "dummy"}, ("models", "completions")),
        # A base model has no form of a chat.
        (ModelFiles(config=LLAMA), {}, ("models", "completions")),
        (ModelFiles(config=LLAMA), {"chat-template": "x.jinja"}, CHAT),
        (ModelFiles(config=LLAMA), {"tokenizer-mode": "mistral"}, CHAT),
        (ModelFiles(config=LLAMA, template=True), {}, CHAT),
        (ModelFiles(config={"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss"}), {}, CHAT),
        (ModelFiles(config={"architectures": ["DeepseekV32ForCausalLM"]}), {}, CHAT),
        (chat(QWEN_VL), {}, (*CHAT, "image")),
        (chat(QWEN_VL), {"language-model-only": "true"}, CHAT),
        (chat(QWEN_VL), {"limit-mm-per-prompt": '{"image": 0}'}, CHAT),
        (chat(QWEN_VL), {"limit-mm-per-prompt": '{"image": 1}'}, (*CHAT, "image")),
        (ModelFiles(mistral={"dim": 64, "vision_encoder": {"image_size": 1540}}), {}, (*CHAT, "image")),
        (ModelFiles(mistral={"dim": 64}), {}, CHAT),
        (chat({"architectures": ["BertModel"]}), {}, ("models", "embedding")),
        (chat(LLAMA, modules=POOLING), {}, ("models", "embedding")),
        (chat(LLAMA, modules=POOLING), {"runner": "generate"}, CHAT),
        (chat(LLAMA), {"runner": "pooling"}, ("models", "embedding")),
        (chat(LLAMA), {"convert": "embed"}, ("models", "embedding")),
        (chat(LLAMA), {"task": "score"}, ("models", "rerank")),
        (chat({"architectures": ["XLMRobertaForSequenceClassification"], "num_labels": 1}), {}, ("models", "rerank")),
        (
            chat({"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}),
            {},
            ("models", "rerank"),
        ),
        (chat({"architectures": ["BertForSequenceClassification"]}), {}, ("models", "classify")),
        (
            chat(LLAMA),
            {"hf-overrides": '{"architectures": ["Qwen3ForSequenceClassification"], "classifier_from_token": ["no"]}'},
            ("models", "rerank"),
        ),
        (chat({"architectures": ["Qwen2ForRewardModel"]}), {}, ("models", "pooling")),
        (chat({"architectures": ["WhisperForConditionalGeneration"]}), {}, ("models", "transcription")),
        (chat({"architectures": ["VoxtralRealtimeGeneration"]}), {}, ("models",)),
        (chat({"architectures": ["VoxtralForConditionalGeneration"]}), {}, (*CHAT, "transcription")),
        (chat({"architectures": "Llama"}), {}, CHAT),
        (chat(LLAMA), {"hf-overrides": "{"}, CHAT),
    ],
)
def test_the_checks_fit_the_model(files, options, checks):
    assert checks_for(options, files) == checks
