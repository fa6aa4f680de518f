# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a model that its memory follows from, read from the excerpt of its config.json in its manifest.

The kinds of layers are those that vLLM itself distinguishes. A configuration with a kind that is not known here has no
shape: the caller then uses the numbers of the recipe.
"""

from dataclasses import dataclass
from typing import Any, Mapping

from ...module_utils.pinning.model_config import KEYS, problem_of

# Models whose attention caches one latent vector for all heads; others with kv_lora_rank cache full heads.
MLA_TYPES = frozenset(
    (
        *("axk1", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_mtp", "dots3_note"),
        *("glm_moe_dsa", "glm4_moe_lite", "kimi_k2", "kimi_linear", "longcat_flash", "pangu_ultra_moe"),
    )
)
# Models that read a text at once and keep nothing of it.
ENCODER_TYPES = frozenset(("bert", "roberta", "xlm-roberta", "modernbert", "nomic_bert", "new"))
# Models with an index of sparse attention beside heads, whose size their excerpt does not have.
_UNKNOWN_INDEX = ("minimax_m3", "qwen4_exp")

# The kinds by the names that config.json gives to layers.
_KINDS = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "window",
    "chunked_attention": "chunk",
    "linear_attention": "linear",
    "mamba": "mamba",
    "conv": "conv",
}
# The same in the letters of Nemotron-H; - and E are layers without a cache.
_LETTERS = {"*": "full", "M": "mamba", "-": "", "E": ""}
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
# Gate, up and down of an expert.
_MATRICES = 3
# The authors of a model choose the number, and each layer costs memory here. The largest models have some hundred.
_MOST_LAYERS = 10_000
_DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}


class UnknownShapeError(ValueError):
    """The configuration describes something that this file cannot compute; the message says what."""


@dataclass(frozen=True)
class Layers:
    """Layers of one kind: full, window, chunk, latent or state.

    ``heads`` and ``values`` are the key-value heads and the numbers (keys and values) of one token in each;
    ``extra_bytes`` is added for each token and layer, whatever the cache's format. ``span`` is the window or chunk in
    tokens. ``state_bytes`` is the size for one request in one layer, over all chips. ``packed`` are the bytes of a
    token in DeepSeek's own FP8 format. With ``page``, ``count`` groups of layers take blocks of ``block`` tokens and
    that many bytes, whatever the cache's format.
    """

    kind: str
    count: int
    heads: int = 0
    values: int = 0
    extra_bytes: int = 0
    span: int = 0
    state_bytes: int = 0
    packed: int = 0
    block: int = 16
    page: int = 0


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a model: ``context`` in tokens (0: unknown), ``element_bytes`` of a number in a plain cache.

    ``experts`` is the number of parameters of all routed experts, 0 for a model without, ``expert_width`` their width,
    ``expert_count`` their number in a layer.
    """

    hidden: int
    vocabulary: int
    context: int
    element_bytes: int
    layers: tuple[Layers, ...]
    experts: int = 0
    expert_width: int = 0
    expert_count: int = 0


def shape_of(config: Mapping[str, Any] | None) -> ModelShape | None:
    """Return the shape of a model, None where its configuration is missing or not fully understood."""
    found = _read(config or {})
    return found if isinstance(found, ModelShape) else None


def shape_problem(config: Mapping[str, Any]) -> str:
    """Return why a configuration has no shape, in words; empty where it has one."""
    found = _read(config)
    return found if isinstance(found, str) else ""


def _read(config: Mapping[str, Any]) -> ModelShape | str:
    try:
        # A manifest that somebody wrote may hold more than an excerpt does.
        read = {key: config[key] for key in KEYS if config.get(key) is not None}
        return "its configuration has invalid values" if any(map(problem_of, read.values())) else _shape(read)
    except UnknownShapeError as error:
        return str(error)
    except (TypeError, ValueError, KeyError, ArithmeticError):
        return "its configuration lacks sizes"


def _shape(config: Mapping[str, Any]) -> ModelShape:
    width = int(config.get("moe_intermediate_size") or config.get("intermediate_size") or 0)
    return ModelShape(
        hidden=int(config["hidden_size"]),
        vocabulary=int(config.get("vocab_size") or 0),
        context=int(config.get("max_position_embeddings") or 0),
        element_bytes=_DTYPES.get(str(config.get("dtype") or config.get("torch_dtype")), 2),
        layers=_layers(config),
        experts=_expert_layers(config) * experts_of(config) * _MATRICES * int(config["hidden_size"]) * width,
        expert_width=width,
        expert_count=experts_of(config),
    )


def experts_of(config: Mapping[str, Any]) -> int:
    """Return the number of routed experts of a layer, 0 for a model without."""
    return next((int(config[key]) for key in _EXPERTS if isinstance(config.get(key), int)), 0)


def _expert_layers(config: Mapping[str, Any]) -> int:
    """Return the number of layers that have experts."""
    if config.get("hybrid_override_pattern"):
        return str(config["hybrid_override_pattern"]).count("E")
    layers = int(config["num_hidden_layers"]) - int(config.get("first_k_dense_replace") or 0)
    return layers // int(config.get("decoder_sparse_step") or config.get("interleave_moe_layer_step") or 1)


def _layers(config: Mapping[str, Any]) -> tuple[Layers, ...]:
    if config.get("model_type") in ENCODER_TYPES:
        return ()
    if str(config.get("model_type")).startswith(_UNKNOWN_INDEX):
        raise UnknownShapeError("the index of its sparse attention")
    if config.get("compress_ratios"):
        return _compressed(config)
    names = _kinds(config)
    return tuple(_describe(kind, names.count(kind), config) for kind in dict.fromkeys(names) if kind)


def _kinds(config: Mapping[str, Any]) -> list[str]:
    """Return the kind of each layer, empty for one without a cache."""
    count = int(config["num_hidden_layers"])
    if not 0 < count <= _MOST_LAYERS:
        raise UnknownShapeError(f"{count} layers")
    linear = config.get("linear_attn_config")
    if isinstance(linear, Mapping):
        full = len(linear["full_attn_layers"])
        return ["full"] * full + ["linear"] * (count - full)
    if config.get("hybrid_override_pattern"):
        return [_known(_LETTERS, letter) for letter in str(config["hybrid_override_pattern"])]
    if config.get("layer_types"):
        kinds = [_known(_KINDS, str(name)) for name in config["layer_types"]]
        # Layers that reuse the cache of an earlier one are the last ones.
        kinds = kinds[: count - int(config.get("num_kv_shared_layers") or 0)]
        return ["full" if kind == "window" and not _window(config) else kind for kind in kinds]
    return _alternating(count, config)


def _alternating(count: int, config: Mapping[str, Any]) -> list[str]:
    """Return the kinds of a model that names a period instead of each layer."""
    for key, others in (("full_attention_interval", "linear"), ("sliding_window_pattern", "window")):
        period = config.get(key)
        if isinstance(period, int) and period > 0:
            return ["full" if number % period == 0 else others for number in range(1, count + 1)]
    if any(key in config for key in ("mamba_n_heads", "mamba_num_heads", "attn_type_list", "conv_L_cache")):
        raise UnknownShapeError("a hybrid model that does not name the kind of each layer")
    return ["window" if _window(config) else "full"] * count


def _known(kinds: Mapping[str, str], name: str) -> str:
    if name not in kinds:
        raise UnknownShapeError(f"a layer of the kind {name!r}")
    return kinds[name]


def _window(config: Mapping[str, Any]) -> int:
    """Return the sliding window in tokens, 0 where there is none or it holds the whole context."""
    window = config.get("sliding_window") or 0
    if config.get("use_sliding_window") is False or window >= (config.get("max_position_embeddings") or window + 1):
        return 0
    return int(window)


def _describe(kind: str, count: int, config: Mapping[str, Any]) -> Layers:
    if kind in _STATES:
        return Layers("state", count, state_bytes=_STATES[kind](config))
    if config.get("kv_lora_rank"):
        return _latent(count, config)
    heads = int(config.get("num_key_value_heads") or config["num_attention_heads"])
    head = int(config.get("head_dim") or int(config["hidden_size"]) // int(config["num_attention_heads"]))
    if kind == "full" and config.get("global_head_dim"):
        head = int(config["global_head_dim"])
        heads = int(config.get("num_global_key_value_heads") or heads)
    span = {"window": _window(config), "chunk": config.get("attention_chunk_size")}.get(kind, 0)
    if kind == "chunk" and not span:
        raise UnknownShapeError("chunked attention without attention_chunk_size")
    return Layers(kind, count, heads, head + int(config.get("v_head_dim") or head), span=int(span or 0))


def _compressed(config: Mapping[str, Any]) -> tuple[Layers, ...]:
    """Return the caches of DeepSeek V4, which compresses 4 or 128 tokens into one, as vLLM 0.33.0 packs them.

    vllm/models/deepseek_v4 has the caches, get_kv_cache_groups of vllm/v1/core/kv_cache_planning.py their groups. All
    groups take blocks of one pool, so a block is as large as the largest group needs. Releases before 0.28 padded them:
    up to 5 % more.
    """
    ratios = config["compress_ratios"][: int(config["num_hidden_layers"])]
    fine, coarse = ratios.count(4), ratios.count(128)
    if config.get("model_type") != "deepseek_v4" or not fine or set(ratios) - {0, 1, 4, 128}:
        raise UnknownShapeError("compress_ratios: caches of compressed tokens")
    head, index, rotary = int(config["head_dim"]), int(config["index_head_dim"]), int(config["qk_rope_head_dim"])
    # A state has its part without positions in FP8, the other one in BF16, and eight bytes of scales.
    state = head + rotary + 8
    attention = fine * _paged(64 * state) + coarse * _paged(2 * state) + fine * _paged(64 * (index + 4))
    # What is not compressed yet is kept in FP32, twice where the groups of four tokens overlap.
    pending_fine = fine * (_paged(4 * 4 * head * 4) + _paged(4 * 4 * index * 4))
    pending_coarse = coarse * _paged(8 * 2 * head * 4)
    windows = -(-len(ratios) // _repeats(len(ratios), fine, coarse))
    page = max(attention, pending_fine, pending_coarse, -(-len(ratios) // windows) * _paged(64 * state))
    return (
        Layers("full", 1, block=256, page=page),
        Layers("window", windows, span=int(config["sliding_window"]), block=64, page=page),
        Layers("window", 1, span=8, block=4, page=page),
        *((Layers("window", 1, span=128, block=8, page=page),) if coarse else ()),
    )


def _paged(size: int) -> int:
    """Return the bytes of a block with the padding that FlashMLA needs."""
    return -(-size // 576) * 576


def _repeats(layers: int, fine: int, coarse: int) -> int:
    """Return the layers of a group of windows: the largest number with the least padding, at least ``fine``."""
    counts = [layers, fine, coarse]
    return min(range(fine, layers + 1), key=lambda size: (sum(-count % size for count in counts), -size))


def _latent(count: int, config: Mapping[str, Any]) -> Layers:
    """Return the layers of multi-head latent attention; sparse attention adds an index of fp8 keys and their scale."""
    if config.get("model_type") not in MLA_TYPES:
        raise UnknownShapeError("kv_lora_rank of a model that may not cache the latent vector")
    index, latent = int(config.get("index_head_dim") or 0), int(config["kv_lora_rank"])
    rotary = int(config["qk_rope_head_dim"])
    kept = _index_layers(int(config["num_hidden_layers"]), config)
    # FlashMLA's sparse kernels keep the rotary part in BF16 and scales of 128 numbers each in FP32.
    packed = latent + latent // 32 + 2 * rotary if index else 0
    return Layers(
        "latent", count, 1, latent + rotary, extra_bytes=round((index + 4) * kept) if index else 0, packed=packed
    )


def _index_layers(count: int, config: Mapping[str, Any]) -> float:
    """Return the share of layers with a separate index: GLM-5.2's others take that of a layer before them."""
    pattern, every = config.get("index_topk_pattern"), int(config.get("index_topk_freq") or 1)
    if isinstance(pattern, str) and pattern:
        return 1 - pattern.count("S") / len(pattern)
    first = int(config.get("index_skip_topk_offset") or 2) - 1
    return sum(max(number - first, 0) % every == 0 for number in range(count)) / count


def _mamba2(config: Mapping[str, Any]) -> int:
    """Return the bytes of a Mamba-2 layer's state, with the names of Nemotron-H or of Granite and Bamba."""
    heads = int(config.get("mamba_num_heads") or config["mamba_n_heads"])
    head = int(config.get("mamba_head_dim") or config["mamba_d_head"])
    state = int(config.get("ssm_state_size") or config["mamba_d_state"])
    groups = int(config.get("n_groups") or config.get("mamba_n_groups") or 1)
    kernel = int(config.get("conv_kernel") or config.get("mamba_d_conv") or 4)
    convolution = (heads * head + 2 * groups * state) * (kernel - 1)
    return 2 * convolution + _state_element(config) * heads * head * state


def _gated_delta(config: Mapping[str, Any]) -> int:
    """Return the bytes of a layer of linear attention: gated delta nets of Qwen, and Kimi's."""
    kimi = config.get("linear_attn_config")
    if isinstance(kimi, Mapping):
        heads, head = int(kimi["num_heads"]), int(kimi["head_dim"])
        kernel = int(kimi.get("short_conv_kernel_size") or 4)
        return 2 * 3 * heads * head * (kernel - 1) + 4 * heads * head * head
    keys = int(config["linear_num_key_heads"]) * int(config["linear_key_head_dim"])
    values = int(config["linear_num_value_heads"]) * int(config["linear_value_head_dim"])
    convolution = (2 * keys + values) * (int(config.get("linear_conv_kernel_dim") or 4) - 1)
    return 2 * convolution + _state_element(config) * values * int(config["linear_key_head_dim"])


def _short_convolution(config: Mapping[str, Any]) -> int:
    return 2 * int(config["hidden_size"]) * (int(config["conv_L_cache"]) - 1)


def _state_element(config: Mapping[str, Any]) -> int:
    return _DTYPES.get(str(config.get("mamba_ssm_cache_dtype") or config.get("mamba_ssm_dtype")), 2)


_STATES = {"mamba": _mamba2, "linear": _gated_delta, "conv": _short_convolution}
