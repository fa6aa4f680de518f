# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables that only the plan can set, because other parts of it follow from them: chips, caches, addresses.

An instance that sets another value is refused; of caches its value counts, with a warning. A recipe's value has no
effect, and the plan warns of it.
"""

import re
from typing import Mapping

from ...module_utils.common.kinds import show_value
from ...module_utils.usage.record import PROOF_VARIABLE
from ..options.values import read_number
from .choices import Chosen
from .compose import Composed
from .hardware import Accelerator
from .inputs import PlanError

# What restricts a process or a container to chips, by stack.
VISIBLE = {
    "cann": ("ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES"),
    "cuda": ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    "rocm": (
        *("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
        *("GPU_DEVICE_ORDINAL", "AMD_VISIBLE_DEVICES"),
    ),
    "xpu": ("ZE_AFFINITY_MASK",),
}
# Where the hosts of an instance reach each other.
ADDRESSES = ("VLLM_HOST_IP", "HCCL_IF_IP", "VLLM_NIXL_SIDE_CHANNEL_HOST")
# What vLLM reads in place of its arguments where they request no data parallelism (config/parallel.py).
DATA_PARALLEL = tuple(f"VLLM_DP_{name}" for name in ("SIZE", "RANK", "RANK_LOCAL", "MASTER_IP", "MASTER_PORT"))
# Arguments with which vLLM starts, and answers nobody at the port of the instance (entrypoints/cli/serve.py).
UNANSWERED = {
    "api-server-count": "below 1 vLLM has no API server",
    "data-parallel-multi-port-external-lb": "vLLM listens at a port for each rank; use replicas",
    "grpc": "vLLM speaks gRPC in place of HTTP",
    "headless": "vLLM has no API server; the plan sets it on the hosts of `nodes` that need none",
    "uds": "vLLM listens at a socket of the file system in place of the port",
}
# Names of variables that say where something is written.
_WRITTEN = re.compile(r"(CACHE|_CACHE_(DIR|HOME|PATH|ROOT)|_JIT_DIR|_USER_DB_PATH|_WORKSPACE_BASE|_CONFIG_ROOT)\Z")
# The layers of a plan that are neither a recipe's nor an instance's.
OWN_LAYERS = ("collection", "group", "pd_cluster")


def reasons_of(
    entry: Chosen, accelerator: Accelerator, caches: Mapping[str, str], middleware: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables that only the plan sets, each with what to do instead, as the end of a sentence."""
    chips = f"the plan gives the instance its chips; name them in {entry.where}.chips"
    found = dict.fromkeys((*filter(None, [accelerator.visible_env]), *VISIBLE.get(accelerator.stack, ())), chips)
    if accelerator.numbers and accelerator.stack == "cuda" and entry.runtime != "container":
        found["CUDA_DEVICE_ORDER"] = "the plan numbers the chips of this host by their PCI addresses; leave it out"
    found |= dict.fromkeys(DATA_PARALLEL, f"it would change how many chips vLLM uses; set {entry.where}.args")
    found |= dict.fromkeys(caches, "vLLM can write there only, and only that is kept")
    found |= dict.fromkeys(
        (*middleware, PROOF_VARIABLE, "PREFILL_HOSTS"), "this collection's middleware reads it; leave the variable out"
    )
    if not entry.requested.get("residents"):
        found["RESIDENTS"] = (
            f"it follows from another key; name the instances that share chips in {entry.where}.residents"
        )
    if entry.group is not None:
        address = "the hosts of the instance reach each other there; change the address of the host in the inventory"
        found |= dict.fromkeys(ADDRESSES, address)
    return found


def cache_paths(env: Mapping[str, str], cache: str) -> dict[str, str]:
    """Return the variables that place another cache at a path, each with the directory in which it is kept."""
    return {name: cache for name, value in env.items() if _WRITTEN.search(name) and value.startswith("/")}


def check_place(
    entry: Chosen, composed: Composed, reasons: Mapping[str, str], computed: Mapping[str, str], cache: str
) -> tuple[set[str], list[str]]:
    """Return the variables that a recipe sets without effect, and the warnings.

    ``computed`` are the values of the plan, ``cache`` is the directory in which an instance may choose its own. Raises
    PlanError where the instance itself sets another value, or removes one.
    """
    ignored, warnings = set(), []
    for name, reason in reasons.items():
        steps = composed.history.get(f"env.{name}") or []
        mine = [step for step in steps if step.layer not in OWN_LAYERS]
        given = [step.value for step in steps if step not in mine]
        right, value = computed.get(name, given[-1] if given else None), composed.env.get(name)
        if not mine or value == right or str(value).startswith(f"{cache}/"):
            continue
        expected = "expected none" if right is None else f"expected {show_value(right)}"
        if name not in (entry.requested.get("env") or {}):
            ignored.add(name)
            warnings.append(f"{entry.where}: the recipe's {name} ({show_value(value)}) has no effect, because {reason}")
        elif value is not None and str(right).startswith(cache):
            warnings.append(f"{entry.where}.env.{name}: found {show_value(value)}, {expected}, because {reason}")
        else:
            raise PlanError(f"{entry.where}.env.{name}: found {show_value(value)}, {expected}, because {reason}")
    return ignored, warnings


def check_answers(entry: Chosen, composed: Composed) -> None:
    """Raise PlanError for an argument of a recipe or an instance with which nobody answers at its port."""
    strategy = f"strategy {entry.choice.strategy}"
    for name, reason in UNANSWERED.items():
        value, steps = composed.args.get(name), composed.history.get(name)
        served = name == "api-server-count" and (read_number(str(value)) or 0) >= 1
        # The words of a strategy are the plan's own.
        if steps and not served and value is not None and value is not False and steps[-1].layer != strategy:
            raise PlanError(
                f"{entry.where}.args.{name}: found {show_value(value)}, with which nobody answers at the port of the "
                f"instance, because {reason}; remove it, or a recipe's with the value null"
            )
