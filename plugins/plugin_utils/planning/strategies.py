# SPDX-License-Identifier: GPL-3.0-or-later
"""Parallelism: the strategy, and how many and which chips an instance gets.

The names are those of vLLM's recipes: tp splits every layer over the chips, tep also the experts; dep runs the
attention once per chip and splits the experts; multi_node_* span hosts.
"""

from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence

from ...module_utils.common.spelling import nearest
from .divisions import Parallelism
from .hardware import Accelerator
from .inputs import PlanError

EXPERT = "--enable-expert-parallel"
TENSOR = "--tensor-parallel-size"
DATA = "--data-parallel-size"

# The arguments of each strategy before its size, and the flag for the size.
SINGLE_NODE: dict[str, tuple[list[str], str]] = {
    "single_node_tp": ([], TENSOR),
    "single_node_tep": ([EXPERT], TENSOR),
    "single_node_dep": ([EXPERT], DATA),
    # Attention once per chip; the experts are still split by tensors.
    "single_node_dpa_tp": ([TENSOR, "1"], DATA),
}
MULTI_NODE = ("multi_node_tp", "multi_node_tep", "multi_node_dep", "multi_node_tp_pp", "multi_node_tp_dp")
# Not one of these: planning/disaggregation.py.
DISAGGREGATED = "pd_cluster"
STRATEGIES = (*SINGLE_NODE, *MULTI_NODE, DISAGGREGATED)


@dataclass(frozen=True)
class Nodes:
    """The hosts that serve one instance together; ``rank`` is this host's number, ``head`` the first one's address.

    ``port`` is the TCP port of the first one at which the others meet it.
    """

    count: int = 1
    rank: int = 0
    head: str = ""
    port: int = 0


@dataclass(frozen=True)
class Sizes:
    """The parallelism of one instance on one host; ``chips`` is the number of its chips on this host."""

    words: list[str]
    chips: int
    tensor: int
    because: str | None = None
    env: dict[str, str] = field(default_factory=dict)


def compatible(recipe: Mapping[str, Any], accelerator: Accelerator, tp: Any = None) -> list[str]:
    """Return the strategies that the recipe offers on this hardware.

    A size (``tp``) that a variant names for this very chip offers single_node_tp, also where its generation has none.
    """
    listed = list(recipe.get("compatible_strategies") or ["single_node_tp"])
    gates = recipe.get("strategy_hardware") or {}
    granted = [name for name, gate in gates.items() if name not in listed and "supported" in (gate or {}).values()]
    offered = []
    for name in (*listed, *granted):
        gate = accelerator.pick(gates.get(name) or {})
        if gate != "unsupported" and (gate is not None or name in listed):
            offered.append(name)
    if isinstance(tp, Mapping) and {*accelerator.ids} & {*tp} and "single_node_tp" not in offered:
        offered.append("single_node_tp")
    return offered


def choose_strategy(
    recipe: Mapping[str, Any], accelerator: Accelerator, requested: str | None, nodes: int, where: str, tp: Any = None
) -> str:
    """Return the requested strategy, else the recipe's preferred one; ``tp`` is the size that the variant names.

    Raises PlanError for a strategy that the recipe does not list or that does not fit the number of hosts.
    """
    offered = compatible(recipe, accelerator, tp)
    model = recipe["model"]["model_id"]
    if requested is not None:
        if requested not in (*offered, DISAGGREGATED):
            hint = nearest(requested, offered) if offered else "it lists none for this hardware"
            raise PlanError(
                f"{where}.strategy: recipe {model} does not list {requested!r} for {accelerator.model}; {hint}"
            )
        strategy = requested
    else:
        strategy = _preferred(recipe, offered, nodes)
    _check_nodes(strategy, nodes, where)
    return strategy


def _preferred(recipe: Mapping[str, Any], offered: Sequence[str], nodes: int) -> str:
    default = recipe.get("default_strategy")
    if nodes > 1:
        sibling = str(default or "").replace("single_node_", "multi_node_")
        wanted = [sibling, "multi_node_tp", "multi_node_dep", "multi_node_tep", *MULTI_NODE]
    else:
        wanted = [str(default or ""), "single_node_tp", *SINGLE_NODE]
    for name in wanted:
        if name in offered:
            return name
    return offered[0] if offered else "single_node_tp"


def _check_nodes(strategy: str, nodes: int, where: str) -> None:
    if strategy == DISAGGREGATED:
        raise PlanError(
            f"{where}.strategy: {strategy} needs the hosts of both sides; expected prefill and decode, two lists of "
            "hosts of the inventory"
        )
    if strategy in MULTI_NODE and nodes < 2:
        raise PlanError(f"{where}.nodes: {strategy} spans hosts; expected a list of two or more hosts of the inventory")
    if strategy in SINGLE_NODE and nodes > 1:
        raise PlanError(f"{where}.nodes: {strategy} is for one host; expected no nodes, or a multi_node strategy")
    if strategy not in STRATEGIES:
        raise PlanError(f"{where}.strategy: {strategy!r} is unknown; {nearest(strategy, STRATEGIES)}")


def tensor_size(
    recipe: Mapping[str, Any],
    variant: Mapping[str, Any],
    preset: Mapping[str, Any],
    accelerator: Accelerator,
    candidates: Sequence[int],
    holds: Callable[[int], bool | None],
    too_small: Callable[[int], bool] = lambda _size: False,
) -> tuple[int, str]:
    """Return the tensor parallel size of ``single_node_tp``, one of ``candidates``, which ascend, and the reason.

    The size of the preset, else of the variant, else of the recipe, else the smallest that holds the model. ``holds``
    returns None where the memory is unknown. A size of the recipe is skipped where it is ``too_small``.
    """
    override = (recipe.get("strategy_overrides") or {}).get("single_node_tp") or {}
    for source, entries in (
        ("preset", preset.get("tp")),
        ("variant", variant.get("tp")),
        ("strategy_overrides", override.get("tp")),
    ):
        size = _named(entries, accelerator, too_small)
        if size is not None:
            # The number of a CPU's NUMA nodes is unknown here.
            if accelerator.stack == "cpu" or size in candidates:
                return size, f"tp of the recipe's {source}"
            smaller = max((each for each in candidates if each < size), default=1)
            return smaller, f"tp of the recipe's {source} is {size}, which this host or this model cannot have"
    suited = [size for size in candidates if holds(size)]
    if suited:
        return suited[0], "the smallest size that holds the model"
    if holds(candidates[-1]) is None:
        return candidates[-1], "the largest size: the recipe or the catalogue does not say what is needed"
    return candidates[-1], "the largest size, because the model needs more memory than a smaller one has"


def named_size(
    recipe: Mapping[str, Any], strategy: str, accelerator: Accelerator, too_small: Callable[[int], bool]
) -> int | None:
    """Return the number of chips that the recipe names for a strategy that takes all, None where it names none."""
    override = (recipe.get("strategy_overrides") or {}).get(strategy) or {}
    return _named(override.get("tp"), accelerator, too_small)


def _named(entries: Any, accelerator: Accelerator, too_small: Callable[[int], bool]) -> int | None:
    """Return the size that a recipe names, None for none, and for one that this hardware has too little memory for.

    A size for this very hardware counts all the same: a part of the model may be in the memory of the host.
    """
    size = accelerator.pick(entries)
    if not isinstance(size, int) or size < 1:
        return None
    exact = isinstance(entries, Mapping) and any(entries.get(name) is not None for name in accelerator.ids)
    return size if exact or not too_small(size) else None


def parallelism(strategy: str, chips: int, nodes: int) -> Parallelism:
    """Return the sizes of a strategy on ``chips`` chips of each of ``nodes`` hosts."""
    experts = strategy.endswith(("_tep", "_dep"))
    if strategy.endswith(("_dep", "_dpa_tp")):
        return Parallelism(data=chips * nodes, experts=experts)
    if strategy == "multi_node_tp_pp":
        return Parallelism(tensor=chips, pipeline=nodes)
    if strategy == "multi_node_tp_dp":
        return Parallelism(tensor=chips, data=nodes)
    return Parallelism(tensor=chips * nodes, experts=experts)


def sizes(strategy: str, tensor: int, chips: int, nodes: Nodes, because: str | None = None) -> Sizes:
    """Return the command words of a strategy: ``tensor`` is single_node_tp's size, ``chips`` that of the others."""
    if strategy in SINGLE_NODE:
        before, flag = SINGLE_NODE[strategy]
        size = tensor if strategy == "single_node_tp" else chips
        return Sizes([*before, flag, str(size)], size, size if flag == TENSOR else 1, because)
    rendezvous = ["--distributed-executor-backend", "mp", "--nnodes", str(nodes.count), "--node-rank", str(nodes.rank)]
    rendezvous += ["--master-addr", nodes.head, "--master-port", str(nodes.port)]
    if nodes.rank:
        rendezvous.append("--headless")
    total = chips * nodes.count
    if strategy == "multi_node_tp":
        return Sizes([TENSOR, str(total), *rendezvous], chips, total, because)
    if strategy == "multi_node_tep":
        return Sizes([EXPERT, TENSOR, str(total), *rendezvous], chips, total, because)
    if strategy == "multi_node_tp_pp":
        words = [TENSOR, str(chips), "--pipeline-parallel-size", str(nodes.count), *rendezvous]
        return Sizes(words, chips, chips, because)
    return _data_parallel(strategy, chips, nodes, because)


def _data_parallel(strategy: str, chips: int, nodes: Nodes, because: str | None) -> Sizes:
    if strategy == "multi_node_tp_dp":
        words, tensor, total, local = [TENSOR, str(chips)], chips, nodes.count, 1
    else:
        words, tensor, total, local = [EXPERT, "--data-parallel-hybrid-lb"], 1, chips * nodes.count, chips
    words += [DATA, str(total), "--data-parallel-size-local", str(local), "--data-parallel-address", nodes.head]
    words += ["--data-parallel-rpc-port", str(nodes.port)]
    if strategy == "multi_node_tp_dp" and not nodes.rank:
        # One API server balances over all hosts. From a start rank without --headless, 0 too, vLLM concludes that each
        # host has its own API server, and then refuses the others.
        return Sizes([*words, "--api-server-count", "1"], chips, tensor, because)
    words += ["--data-parallel-start-rank", str(nodes.rank * local)]
    words += ["--headless"] if strategy == "multi_node_tp_dp" else []
    return Sizes(words, chips, tensor, because)
