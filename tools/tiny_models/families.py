# SPDX-License-Identifier: GPL-3.0-or-later
"""Five tiny models, one of each architecture that differs most: their configurations and weights.

Those that write answer one sentence, whatever they are asked. Their layers add nothing, so that only embedding and
lm_head speak: each token of the answer has a dimension, every other token shares dimension 0, and lm_head maps a
dimension to the token that follows, as in the smoke model. The one of embeddings has a dimension for each topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from tools.smoke_model.weights import GAIN, Tensor, filled
from tools.tiny_models.texts import END, IMAGE, word_files, writer_files, writer_tokens

HIDDEN = 64
LAYERS = 2
VOCABULARY = 320
HEADS, KV_HEADS, HEAD = 2, 1, 64
INNER = 64
EXPERTS = 4
# The sizes for which the kernel of latent attention on CPUs is made.
LATENT, ROPE, NOPE, VALUE = 512, 64, 128, 128
PATCH, PIXELS, SCALE = 28, 224, 2

# No word is a single byte: those have tokens already.
READY = ("The", " fleet", " is", " ready.")
RED = ("The", " picture", " is", " red.")
CALL = ("<tool_call>", '\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n', "</tool_call>")

PASSWORD = ("password", "change", "steps", "set", "new")
VOLCANO = ("volcano", "erupted", "early", "morning")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class TinyModel:
    """The files of a model: JSON documents by name, and its tensors. ``arguments`` are those that vLLM needs for it."""

    documents: Mapping[str, Any]
    tensors: Tensors
    arguments: Sequence[str] = ()


def _writer(config: Mapping[str, Any], layers: Tensors, answer: Sequence[str]) -> TinyModel:
    """Return a model that writes the answer; ``layers`` are the tensors besides embedding, norm and lm_head."""
    ids = writer_tokens(answer)
    dimensions = {token: number for number, token in enumerate(answer, 1)}
    following = dict(zip(answer, (*answer[1:], END)))
    other = filled((VOCABULARY, HIDDEN), cells={(row, 0): 1.0 for row in range(VOCABULARY)})
    table = bytearray(other.data)
    for token, dimension in dimensions.items():
        row = filled((1, HIDDEN), cells={(0, dimension): 1.0}).data
        table[ids[token] * len(row) : (ids[token] + 1) * len(row)] = row
    cells = {(ids[after], dimensions[before]): GAIN for before, after in following.items()}
    cells[ids[answer[0]], 0] = GAIN
    whole = {
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": VOCABULARY,
        "eos_token_id": ids[END],
        "bos_token_id": None,
        "pad_token_id": ids[END],
        **config,
    }
    tensors = {
        "model.embed_tokens.weight": Tensor((VOCABULARY, HIDDEN), bytes(table)),
        "model.norm.weight": filled((HIDDEN,), 1.0),
        "lm_head.weight": filled((VOCABULARY, HIDDEN), cells=cells),
        **layers,
    }
    documents = {
        "config.json": whole,
        "generation_config.json": {"eos_token_id": ids[END], "pad_token_id": ids[END]},
        **writer_files(ids),
    }
    return TinyModel(documents, tensors)


def _layers(*parts: Mapping[str, Tensor], layers: int = LAYERS) -> Tensors:
    return {
        f"model.layers.{layer}.{name}": tensor
        for layer in range(layers)
        for part in (_norms(), *parts)
        for name, tensor in part.items()
    }


def _norms() -> Tensors:
    return {f"{name}.weight": filled((HIDDEN,), 1.0) for name in ("input_layernorm", "post_attention_layernorm")}


def _attention() -> Tensors:
    shapes = {
        "q_proj": (HEADS * HEAD, HIDDEN),
        "k_proj": (KV_HEADS * HEAD, HIDDEN),
        "v_proj": (KV_HEADS * HEAD, HIDDEN),
        "o_proj": (HIDDEN, HEADS * HEAD),
    }
    return {f"self_attn.{name}.weight": filled(shape) for name, shape in shapes.items()}


def _feed_forward(where: str, inner: int = INNER) -> Tensors:
    shapes = {"gate_proj": (inner, HIDDEN), "up_proj": (inner, HIDDEN), "down_proj": (HIDDEN, inner)}
    return {f"{where}.{name}.weight": filled(shape) for name, shape in shapes.items()}


def _experts() -> Tensors:
    found = {"mlp.gate.weight": filled((EXPERTS, HIDDEN))}
    for expert in range(EXPERTS):
        found.update(_feed_forward(f"mlp.experts.{expert}"))
    return found


def _sizes(**more: Any) -> dict[str, Any]:
    common = {
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": INNER,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "attention_bias": False,
    }
    return {**common, **more}


def _llama_config() -> dict[str, Any]:
    return _sizes(architectures=["LlamaForCausalLM"], model_type="llama", num_key_value_heads=KV_HEADS, head_dim=HEAD)


def llama(layers: int = LAYERS, inner: int = INNER) -> TinyModel:
    """Return a dense model with grouped heads; more layers, and wider ones, cost time and change no answer."""
    config = {**_llama_config(), "num_hidden_layers": layers, "intermediate_size": inner}
    return _writer(config, _layers(_attention(), _feed_forward("mlp", inner), layers=layers), READY)


def qwen3_moe() -> TinyModel:
    """Return a model of experts that calls a tool, whatever it is asked."""
    config = _sizes(
        architectures=["Qwen3MoeForCausalLM"],
        model_type="qwen3_moe",
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD,
        num_experts=EXPERTS,
        num_experts_per_tok=2,
        moe_intermediate_size=INNER,
        decoder_sparse_step=1,
        norm_topk_prob=True,
        mlp_only_layers=[],
    )
    norms = {f"self_attn.{name}.weight": filled((HEAD,), 1.0) for name in ("q_norm", "k_norm")}
    model = _writer(config, _layers(_attention(), norms, _experts()), CALL)
    return TinyModel(model.documents, model.tensors, ("--enable-auto-tool-choice", "--tool-call-parser", "hermes"))


def deepseek_v2() -> TinyModel:
    """Return a model with latent attention: a dense layer, then experts of which one is shared."""
    config = _sizes(
        architectures=["DeepseekV2ForCausalLM"],
        model_type="deepseek_v2",
        num_key_value_heads=HEADS,
        q_lora_rank=None,
        kv_lora_rank=LATENT,
        qk_rope_head_dim=ROPE,
        qk_nope_head_dim=NOPE,
        v_head_dim=VALUE,
        n_routed_experts=EXPERTS,
        n_shared_experts=1,
        num_experts_per_tok=2,
        moe_intermediate_size=INNER,
        moe_layer_freq=1,
        first_k_dense_replace=1,
        norm_topk_prob=False,
        scoring_func="softmax",
        topk_method="greedy",
        n_group=1,
        topk_group=1,
        routed_scaling_factor=1.0,
    )
    attention = {
        "self_attn.q_proj.weight": filled((HEADS * (NOPE + ROPE), HIDDEN)),
        "self_attn.kv_a_proj_with_mqa.weight": filled((LATENT + ROPE, HIDDEN)),
        "self_attn.kv_a_layernorm.weight": filled((LATENT,), 1.0),
        "self_attn.kv_b_proj.weight": filled((HEADS * (NOPE + VALUE), LATENT)),
        "self_attn.o_proj.weight": filled((HIDDEN, HEADS * VALUE)),
    }
    layers = _layers(attention)
    feed = (_feed_forward("mlp"), {**_experts(), **_feed_forward("mlp.shared_experts")})
    for layer, part in enumerate(feed):
        layers.update({f"model.layers.{layer}.{name}": tensor for name, tensor in part.items()})
    return _writer(config, layers, READY)


def idefics3() -> TinyModel:
    """Return a model that takes pictures: a vision tower whose features four by four become a token each."""
    vision = {
        "model_type": "idefics3_vision",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "image_size": PIXELS,
        "patch_size": PATCH,
        "hidden_act": "gelu_pytorch_tanh",
        "layer_norm_eps": 1e-06,
    }
    text = _writer(_llama_config(), _layers(_attention(), _feed_forward("mlp")), RED)
    config = {
        "architectures": ["Idefics3ForConditionalGeneration"],
        "model_type": "idefics3",
        "image_token_id": writer_tokens(RED)[IMAGE],
        "pad_token_id": writer_tokens(RED)[END],
        "scale_factor": SCALE,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "text_config": text.documents["config.json"],
        "vision_config": vision,
    }
    preprocessor = {
        "image_processor_type": "Idefics3ImageProcessor",
        "processor_class": "Idefics3Processor",
        "do_convert_rgb": True,
        "do_image_splitting": False,
        "do_normalize": True,
        "do_pad": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "max_image_size": {"longest_edge": PIXELS},
        "size": {"longest_edge": PIXELS},
        "resample": 1,
        "rescale_factor": 1 / 255,
    }
    documents = {
        **text.documents,
        "config.json": config,
        "preprocessor_config.json": preprocessor,
        "processor_config.json": {
            "processor_class": "Idefics3Processor",
            "image_seq_len": (PIXELS // PATCH // SCALE) ** 2,
        },
    }
    inner = {name.replace("model.", "model.text_model.", 1): tensor for name, tensor in text.tensors.items()}
    return TinyModel(documents, {**inner, **_vision_tower()})


def _vision_tower() -> Tensors:
    top, layer = "model.vision_model.", "model.vision_model.encoder.layers.0."
    found = {
        f"{top}embeddings.patch_embedding.weight": filled((HIDDEN, 3, PATCH, PATCH)),
        f"{top}embeddings.patch_embedding.bias": filled((HIDDEN,)),
        f"{top}embeddings.position_embedding.weight": filled(((PIXELS // PATCH) ** 2, HIDDEN)),
        **_with_bias(f"{layer}mlp.fc1", (INNER, HIDDEN)),
        **_with_bias(f"{layer}mlp.fc2", (HIDDEN, INNER)),
        "model.connector.modality_projection.proj.weight": filled((HIDDEN, HIDDEN * SCALE**2)),
    }
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        found.update(_with_bias(f"{layer}self_attn.{name}", (HIDDEN, HIDDEN)))
    for name in (f"{layer}layer_norm1", f"{layer}layer_norm2", f"{top}post_layernorm"):
        found.update(_norm(name))
    return found


def _with_bias(name: str, shape: tuple[int, int]) -> Tensors:
    return {f"{name}.weight": filled(shape), f"{name}.bias": filled(shape[:1])}


def _norm(name: str) -> Tensors:
    return {f"{name}.weight": filled((HIDDEN,), 1.0), f"{name}.bias": filled((HIDDEN,))}


def bert() -> TinyModel:
    """Return a model of embeddings, in the layout of Sentence Transformers."""
    words = (*SPECIAL, *PASSWORD, *VOLCANO)
    topics = {**dict.fromkeys(PASSWORD, 1), **dict.fromkeys(VOLCANO, 2)}
    cells = {(number, topics.get(word, 0)): 1.0 for number, word in enumerate(words)}
    tensors = {
        "embeddings.word_embeddings.weight": filled((len(words), HIDDEN), cells=cells),
        "embeddings.position_embeddings.weight": filled((128, HIDDEN)),
        "embeddings.token_type_embeddings.weight": filled((2, HIDDEN)),
        **_norm("embeddings.LayerNorm"),
        **_with_bias("pooler.dense", (HIDDEN, HIDDEN)),
    }
    for layer in range(LAYERS):
        top = f"encoder.layer.{layer}."
        for name in ("query", "key", "value"):
            tensors.update(_with_bias(f"{top}attention.self.{name}", (HIDDEN, HIDDEN)))
        tensors.update(_with_bias(f"{top}attention.output.dense", (HIDDEN, HIDDEN)))
        tensors.update(_norm(f"{top}attention.output.LayerNorm"))
        tensors.update(_with_bias(f"{top}intermediate.dense", (INNER, HIDDEN)))
        tensors.update(_with_bias(f"{top}output.dense", (HIDDEN, INNER)))
        tensors.update(_norm(f"{top}output.LayerNorm"))
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 2,
        "intermediate_size": INNER,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 128,
        "type_vocab_size": 2,
        "vocab_size": len(words),
        "pad_token_id": 0,
        "torch_dtype": "bfloat16",
    }
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    documents = {
        "config.json": config,
        "modules.json": modules,
        "1_Pooling/config.json": {"word_embedding_dimension": HIDDEN, "pooling_mode_mean_tokens": True},
        "sentence_bert_config.json": {"max_seq_length": 128, "do_lower_case": True},
        **word_files(words),
    }
    return TinyModel(documents, tensors)


FAMILIES = {"llama": llama, "qwen3-moe": qwen3_moe, "deepseek-v2": deepseek_v2, "idefics3": idefics3, "bert": bert}
