# SPDX-License-Identifier: GPL-3.0-or-later
"""What an installed model does, and so which questions it can answer.

It follows from the model's own files and the arguments of the instance, by the rules with which vLLM chooses a runner.
A parity test compares the rules with the registry of vLLM 0.33.0.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Mapping, Sequence

CHAT = ("models", "chat", "chat_stream", "responses", "completions")
# vLLM's runners and tasks, in the words of the checks.
WRITE, EMBED, RERANK, CLASSIFY, POOL, TRANSCRIBE, REALTIME = (
    "write", "embedding", "rerank", "classify", "pooling", "transcription", "realtime",
)  # fmt: skip

# By the end of the architecture's name, in vLLM's order.
_SUFFIXES = (
    (("ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel"), WRITE),
    (("ForTextEncoding", "EmbeddingModel", "EmbedModel"), EMBED),
    (("Classification", "ClassificationModel", "ForJointSchema"), CLASSIFY),
    (("ForRanking",), RERANK),
    (("ForRewardModeling", "RewardModel", "ForRetrieval"), POOL),
    (("Model",), EMBED),
)
# Where the name's end says something else.
_BY_NAME = {
    **dict.fromkeys(
        (
            *("Qwen2_5OmniModel", "MiDashengLMModel", "UltravoxModel", "MossAudioModel"),
            *("ChatGLMModel", "OpenVLAForActionPrediction"),
        ),
        WRITE,
    ),
    **dict.fromkeys(("BertForMaskedLM", "RobertaForMaskedLM", "Terratorch"), EMBED),
    **dict.fromkeys(
        (
            *("HF_ColBERT", "ColBERTModernBertModel", "ColBERTJinaRobertaModel", "ColBERTLfm2Model"),
            *("ModernVBertModel", "ColQwen3", "OpsColQwen3Model", "ColQwen3_5", "Qwen3VLNemotronEmbedModel"),
            *("InternLM2ForRewardModel", "Qwen2ForRewardModel", "Qwen2ForProcessRewardModel", "JinaForRanking"),
        ),
        POOL,
    ),
    **dict.fromkeys(
        (
            *("WhisperForConditionalGeneration", "CohereAsrForConditionalGeneration"),
            *("FireRedASR2ForConditionalGeneration", "FunASRForConditionalGeneration"),
            *("MossTranscribeDiarizeForConditionalGeneration", "VibeVoiceAsrForConditionalGeneration"),
            # They answer chats about a sound, and next to nothing without one.
            *("Qwen3ASRForConditionalGeneration", "GlmAsrForConditionalGeneration"),
            *("GraniteSpeechForConditionalGeneration", "GraniteSpeechPlusForConditionalGeneration"),
        ),
        TRANSCRIBE,
    ),
    **dict.fromkeys(("VoxtralRealtimeGeneration", "Qwen3ASRRealtimeGeneration"), REALTIME),
}
# Models that chat, and transcribe as well.
_ALSO_TRANSCRIBE = frozenset(
    (
        *("VoxtralForConditionalGeneration", "Gemma3nForConditionalGeneration"),
        *("MoonshotKimiaForCausalLM", "Qwen3OmniMoeForConditionalGeneration"),
    )
)
# The options runner, convert and the older task. A reward is a vector of another meaning.
_BY_OPTION = {
    "generate": WRITE,
    "transcription": TRANSCRIBE,
    **dict.fromkeys(("embed", "embedding"), EMBED),
    "classify": CLASSIFY,
    "score": RERANK,
    "reward": POOL,
}
# Keys of a config.json that only a model with eyes has; the last one is Mistral's.
_EYES = ("vision_config", "vision_tower", "mm_vision_tower", "visual", "img_processor", "vision_encoder")
# Other tokenizers bring the form of a chat along; vLLM chooses one by itself for these architectures.
_PLAIN_TOKENIZERS = ("auto", "hf", "slow")
_WITH_TOKENIZER = frozenset(
    (
        *("DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM", "DeepseekV4ForConditionalGeneration"),
        *("DeepseekV41ForCausalLM", "InklingForCausalLM", "InklingForConditionalGeneration"),
        *("KimiK3ForConditionalGeneration", "MoonshotKimiaForCausalLM"),
    )
)


@dataclass(frozen=True)
class ModelFiles:
    """The parts of a model's directory that tell what it does; each is empty where its file is missing.

    config: config.json. mistral: params.json. tokenizer: tokenizer_config.json. modules: modules.json, which models of
    Sentence Transformers have. template: whether a separate file holds a chat template.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    mistral: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    modules: Sequence[Any] = ()
    template: bool = False

    @property
    def known(self) -> bool:
        """Whether the directory holds a model at all."""
        return bool(self.config or self.mistral)


def checks_for(options: Mapping[str, Any], files: ModelFiles) -> tuple[str, ...]:
    """Return the checks that fit an instance; ``options`` are the texts of its ``--config`` file, without nesting.

    A model whose files are not on the host is taken for one that chats.
    """
    files = replace(files, config={**files.config, **_json_option(options, "hf-overrides")})
    architecture = _architecture(files.config)
    kind = _kind(options, files, architecture)
    if kind == REALTIME:
        # Only a websocket serves it, and nobody sends it a file.
        return ("models",)
    if kind != WRITE:
        return ("models", kind)
    if not is_trained(options) or not _chats(options, files):
        return ("models", "completions")
    more = {
        "tool_call": _is_on(options, "enable-auto-tool-choice"),
        "image": _sees(options, files),
        TRANSCRIBE: architecture in _ALSO_TRANSCRIBE and not _is_on(options, "language-model-only"),
    }
    return (*CHAT, *(name for name, wanted in more.items() if wanted))


def is_trained(options: Mapping[str, Any]) -> bool:
    """Return whether the weights are the model's: random ones give answers without a meaning."""
    return options.get("load-format") != "dummy"


def _kind(options: Mapping[str, Any], files: ModelFiles, architecture: str) -> str:
    for name in ("convert", "task"):
        if options.get(name) in _BY_OPTION:
            return _narrowed(_BY_OPTION[str(options[name])], files)
    if options.get("runner") == "generate":
        return WRITE
    pooling = options.get("runner") == "pooling" or any(
        str(module.get("type", "")).endswith(".Pooling") for module in files.modules if isinstance(module, Mapping)
    )
    kind = kind_of(architecture)
    if pooling and kind in (WRITE, TRANSCRIBE):
        return EMBED
    return _narrowed(kind, files)


def kind_of(architecture: str) -> str:
    """Return what a model of this architecture does unless its arguments say otherwise."""
    if architecture in _BY_NAME:
        return _BY_NAME[architecture]
    return next((kind for ends, kind in _SUFFIXES if architecture.endswith(ends)), WRITE)


def _narrowed(kind: str, files: ModelFiles) -> str:
    """Return rerank for a classifier with one label: that is how vLLM serves it."""
    if kind != CLASSIFY:
        return kind
    config = files.config
    labels = config.get("num_labels")
    if config.get("is_original_qwen3_reranker") or config.get("method") == "from_2_way_softmax":
        # Yes and no of a text model become one number.
        labels = 1
    elif labels is None:
        named = config.get("id2label") or config.get("classifier_from_token")
        labels = len(named) if isinstance(named, (Mapping, list)) else None
    return RERANK if labels == 1 else CLASSIFY


def _architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def _chats(options: Mapping[str, Any], files: ModelFiles) -> bool:
    """Return whether the model has the form of a chat; a base model has none and refuses chats."""
    if not files.known or options.get("chat-template") or files.template or files.tokenizer.get("chat_template"):
        return True
    if options.get("tokenizer-mode", "auto") not in _PLAIN_TOKENIZERS or files.mistral:
        return True
    # vLLM has the form itself: for gpt-oss, and for some models that see.
    own = files.config.get("model_type") == "gpt_oss" or _architecture(files.config) in _WITH_TOKENIZER
    return own or _sees(options, files)


def _sees(options: Mapping[str, Any], files: ModelFiles) -> bool:
    """Return whether the model takes pictures."""
    if _is_on(options, "language-model-only"):
        return False
    if (
        _json_option(options, "limit-mm-per-prompt").get("image") == 0
        or options.get("limit-mm-per-prompt.image") == "0"
    ):
        return False
    own = files.config
    parts = [own, files.mistral, *(own[key] for key in ("thinker_config",) if isinstance(own.get(key), Mapping))]
    return any(part.get(key) for part in parts for key in _EYES)


def _is_on(options: Mapping[str, Any], name: str) -> bool:
    return str(options.get(name, "")).lower() == "true"


def _json_option(options: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the mapping that an option holds as JSON, empty for anything else."""
    try:
        found = json.loads(str(options.get(name) or "{}"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}
