# SPDX-License-Identifier: GPL-3.0-or-later
"""Among how many chips a model can be divided, by the rules of vLLM 0.33.0.

Attention heads: ModelConfig.verify_with_parallel_config. Key-value heads: QKVParallelLinear. Widths: FusedMoEConfig and
the linear layers. Vocabulary: VocabParallelEmbedding. Mamba: MambaMixer2. The numbers are those of the manifest.
"""

import re
from dataclasses import dataclass, replace
from typing import Any, Iterator, Mapping

from .inputs import PlanError, Serves, always
from .model_shape import experts_of

# VocabParallelEmbedding adds entries up to a multiple of this.
VOCABULARY_STEP = 64
# Sizes up to here are tried for the message.
MOST_CHIPS = 1024
# A number of heads may have many divisors.
MOST_TRIED = 32


@dataclass(frozen=True)
class Parallelism:
    """The sizes of one instance over all its hosts; ``experts`` says whether whole experts are spread over chips."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    experts: bool = False


@dataclass(frozen=True)
class Division:
    """The parts of a model that its chips share; ``config`` is empty where no manifest has it."""

    config: Mapping[str, Any]

    @property
    def known(self) -> bool:
        """Whether the number of attention heads is known, which vLLM checks first."""
        return bool(self._number("num_attention_heads"))

    def problem(self, sizes: Parallelism) -> str | None:
        """Return why vLLM cannot start with these sizes, None where it can, or where nothing is known of the model."""
        return next(self._problems(sizes), None)

    def possible(self, size: int, sizes: Parallelism) -> bool:
        """Return whether a size may be chosen: without the model's heads only a power of two, which divides nearly all.

        Experts are spread evenly, because some kernels and loaders of vLLM take no remainder.
        """
        if not self.known:
            return size & (size - 1) == 0
        even = not sizes.experts or self._experts() % (sizes.tensor * sizes.data) == 0
        return even and self.problem(sizes) is None

    def _problems(self, sizes: Parallelism) -> Iterator[str]:
        tensor, world = sizes.tensor, sizes.tensor * sizes.data
        for count, what in self._parts():
            if count % tensor:
                yield f"the model's {count} {what} cannot be divided among {tensor} chips"
        for heads in self._key_value_heads():
            if heads % tensor and tensor % heads:
                yield f"the model's {heads} key-value heads can neither be divided among nor repeated on {tensor} chips"
        width, experts = self._expert_width(), self._experts()
        if experts and not sizes.experts and width % world:
            yield f"the width of the model's experts ({width}) cannot be divided among {world} chips"
        if self.known and sizes.experts and not experts:
            yield "the model has no experts, so expert parallelism is impossible"
        if experts and sizes.experts and world > experts:
            yield f"the model has {experts} experts, fewer than the {world} chips that share them"
        # GptOss checks it also with expert parallelism, and over the stages of a pipeline.
        if self.config.get("model_type") == "gpt_oss" and width % (world * sizes.pipeline):
            yield f"the width of the model's experts ({width}) cannot be divided among {world * sizes.pipeline} chips"
        layers = self._number("num_hidden_layers")
        if layers and sizes.pipeline > layers:
            yield f"the model has {layers} layers, fewer than the {sizes.pipeline} stages of the pipeline"

    def context_problem(self, context: int, tensor: int, prefill: int) -> str:
        """Return which size vLLM expects for the parallel context of decoding, empty where it accepts ``context``."""
        if tensor % context and prefill == 1:
            return f"a divisor of tensor-parallel-size, which is {tensor}"
        heads = min(self._key_value_heads(), default=0)
        if context == 1 or not heads:
            return ""
        # ModelConfig.verify_with_parallel_config: each chip of a context has its copy of a key-value head.
        if context > tensor // heads:
            return (
                f"1 for the model's {heads} key-value heads and tensor-parallel-size {tensor}"
                if tensor < 2 * heads
                else f"at most {tensor // heads} for the model's {heads} key-value heads"
            )
        queries = self._number("num_attention_heads") // heads
        return (
            f"a divisor of the model's {queries} attention heads for each key-value head" if queries % context else ""
        )

    def _parts(self) -> Iterator[tuple[int, str]]:
        """Yield the counts that a tensor parallel size must divide, 0 for parts that the model does not have."""
        yield self._number("num_attention_heads"), "attention heads"
        for key in ("linear_num_key_heads", "linear_num_value_heads"):
            yield self._number(key), "heads of linear attention"
        mamba = self._number("mamba_num_heads", "mamba_n_heads")
        yield mamba, "Mamba heads"
        groups = self._number("n_groups", "mamba_n_groups") if mamba else 0
        yield (0 if groups == 1 else groups), "Mamba groups"
        yield (0 if self._experts() else self._number("intermediate_size")), "numbers of a layer (intermediate_size)"
        vocabulary = -(-self._number("vocab_size") // VOCABULARY_STEP) * VOCABULARY_STEP
        yield vocabulary, "entries of the padded vocabulary"

    def _key_value_heads(self) -> list[int]:
        if self.config.get("kv_lora_rank"):
            return []
        found = (self._number(key) for key in ("num_key_value_heads", "num_global_key_value_heads"))
        return [heads for heads in found if heads]

    def _expert_width(self) -> int:
        return self._number("moe_intermediate_size", "intermediate_size")

    def _experts(self) -> int:
        return experts_of(self.config)

    def _number(self, *keys: str) -> int:
        """Return the first of these that is a positive number, else 0."""
        found = (self.config.get(key) for key in keys)
        numbers = (value for value in found if isinstance(value, int) and not isinstance(value, bool))
        return next((number for number in numbers if number > 0), 0)


def size_of(args: Mapping[str, Any], name: str, default: int = 1) -> int:
    """Return a size among the arguments; the table of the release judges invalid numbers."""
    text = str(args.get(name, default))
    return int(text) if re.fullmatch("0*[1-9][0-9]{0,17}", text) else default


def check_sizes(args: Mapping[str, Any], config: Mapping[str, Any], where: str, serves: Serves = always) -> None:
    """Raise PlanError where vLLM cannot start with the sizes among the arguments, of a recipe or of an instance."""
    tensor, data = size_of(args, "tensor-parallel-size"), size_of(args, "data-parallel-size")
    sizes = Parallelism(tensor, size_of(args, "pipeline-parallel-size"), data, bool(args.get("enable-expert-parallel")))
    division = Division(config)
    problem = division.problem(sizes)
    if problem:
        sizes_of = range(1, min(2 * tensor, MOST_CHIPS) + 1)
        able = [size for size in sizes_of if division.problem(replace(sizes, tensor=size)) is None][:MOST_TRIED]
        able = [size for size in able if serves(args={"tensor-parallel-size": size})]
        way_out = f"; possible tensor-parallel-size: {', '.join(map(str, able))}" if able else ""
        raise PlanError(f"{where}: vLLM cannot start with {_describe(sizes)}: {problem}{way_out}")
    local = size_of(args, "data-parallel-size-local", data)
    if local > data:
        raise PlanError(
            f"{where}: data-parallel-size-local is {local}, expected at most data-parallel-size, which is {data}"
        )
    context = size_of(args, "decode-context-parallel-size")
    expected = division.context_problem(context, tensor, size_of(args, "prefill-context-parallel-size"))
    if expected:
        raise PlanError(f"{where}: decode-context-parallel-size is {context}, expected {expected}")


def size_doubts(args: Mapping[str, Any], config: Mapping[str, Any], where: str) -> list[str]:
    """Return a warning for a size that only vLLM can judge, because nobody knows the model's heads here."""
    size = size_of(args, "tensor-parallel-size")
    if Division(config).known or size & (size - 1) == 0:
        return []
    return [
        f"{where}: tensor-parallel-size is {size}, and no manifest has the model's attention heads; vLLM starts only "
        "if their number can be divided by it"
    ]


def _describe(sizes: Parallelism) -> str:
    words = [f"tensor-parallel-size {sizes.tensor}"]
    words += [f"pipeline-parallel-size {sizes.pipeline}"] if sizes.pipeline > 1 else []
    words += [f"data-parallel-size {sizes.data}"] if sizes.data > 1 else []
    return ", ".join(words) + (" and enable-expert-parallel" if sizes.experts else "")
