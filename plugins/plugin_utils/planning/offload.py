# SPDX-License-Identifier: GPL-3.0-or-later
"""What engines keep in the memory of the host, above all their KV cache: vLLM's own offloading.

vLLM 0.32.0 and 0.33.0 (v1/kv_offload/cpu) keep it in a file of /dev/shm on NVIDIA and Intel, one for each engine: of an
instance with data parallelism there are several engines, and those of a tensor parallel group share one.
"""

import math
from typing import Any, Iterator, Mapping

from ...module_utils.common.kinds import show_value
from ..options.values import decoded, read_number
from .choices import Chosen
from .compose import Composed, Layer
from .divisions import size_of
from .hardware import Accelerator
from .inputs import PlanError

KEY, HOST_GIB, AUTO = "kv_cache", "host_gib", "auto"
SIZE, CONNECTOR, OFFLOAD = "kv-offloading-size", "kv-transfer-config", "cpu-offload-gb"
GIB = 1024**3
# GiB of the host's memory that each chip takes, and those that each engine and each API server takes.
BY_CHIP, PICTURES = (OFFLOAD, "swap-space"), "mm-processor-cache-gb"
FLAGS = (SIZE, *BY_CHIP, PICTURES)
# What all instances of a host take together where host_gib is auto. /dev/shm has half of the memory.
SHARE = 0.4
# Engines exchange tensors through shared memory; vLLM's own instructions use --ipc=host.
SHM_GIB = 16
# Stacks on which vLLM can copy its cache to the host.
STACKS = ("cuda", "rocm", "xpu")


def offload_layers(entry: Chosen, composed: Composed, accelerator: Accelerator, chips: int) -> list[Layer]:
    """Return the size of the cache in the host's memory for a replica with so many chips. Raises PlanError."""
    requested = entry.requested.get(KEY)
    if requested is None:
        return []
    where = f"{entry.where}.{KEY}"
    reason = _reason_against(entry, composed, accelerator)
    if reason:
        raise PlanError(f"{where}: found {show_value(requested)}, and {reason}; remove {KEY}")
    engines, wanted = _engines(composed.args), requested[HOST_GIB]
    if wanted == AUTO:
        if accelerator.host_memory_mib is None:
            raise PlanError(
                f"{where}.{HOST_GIB}: found auto, and the memory of the host is not known here; run discover.yml, or "
                "write a number of GiB"
            )
        has = accelerator.host_memory_mib / 1024
        wanted = math.floor(has * SHARE * chips / accelerator.count)
        because = (
            f"{SHARE:.0%} of the host's {has:.0f} GiB are for the KV cache of all its chips, and the instance has "
            f"{chips} of {accelerator.count}"
        )
    else:
        because = f"{wanted:g} GiB of the host's memory, as the site says"
    size = wanted / engines if engines > 1 else wanted
    if wanted < engines:
        raise PlanError(f"{where}.{HOST_GIB}: {wanted:g} GiB are less than 1 GiB for each engine; remove {KEY}")
    because += f"; each of the {engines} engines has its part" if engines > 1 else ""
    return [Layer(KEY, {SIZE: math.floor(size) if engines > 1 else size}, {}, because)]


def _reason_against(entry: Chosen, composed: Composed, accelerator: Accelerator) -> str:
    reasons = {
        f"vLLM copies no KV cache of {accelerator.model} to the host": accelerator.stack not in STACKS,
        f"vLLM {entry.table.version} has no --{SIZE}": entry.table.canonical(f"--{SIZE}") is None,
        "the instance spans several hosts": entry.group is not None,
        "an instance with residents keeps its weights there while it sleeps": entry.requested.get("residents"),
        f"args set {SIZE} too": SIZE in composed.args,
        f"args set {CONNECTOR}, whose connector --{SIZE} would replace": CONNECTOR in composed.args,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _engines(args: Mapping[str, Any]) -> int:
    """Return the engines on this host, of an instance with data parallelism over several hosts its own."""
    return size_of(args, "data-parallel-size-local", size_of(args, "data-parallel-size"))


def cache_gib(args: Mapping[str, Any], chips: int) -> float:
    """Return the GiB of the host that the engines of an instance take for their KV cache."""
    engines = _engines(args)
    found = engines * _gib(args, SIZE)
    for extra in _extras(decoded(args.get(CONNECTOR))):
        found += chips * (read_number(str(extra.get("cpu_bytes_to_use_per_rank", 0))) or 0) / GIB
        if "cpu_bytes_to_use_per_rank" not in extra:
            found += engines * (read_number(str(extra.get("cpu_bytes_to_use", 0))) or 0) / GIB
    return found


def _extras(config: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the settings of a connector of vLLM, and of those that it joins."""
    extra = config.get("kv_connector_extra_config") if isinstance(config, Mapping) else None
    if isinstance(extra, Mapping):
        yield extra
        joined = extra.get("connectors")
        for each in joined if isinstance(joined, list) else ():
            yield from _extras(each)


def _gib(args: Mapping[str, Any], name: str) -> float:
    return read_number(str(args.get(name, 0))) or 0


def host_gib(args: Mapping[str, Any], chips: int) -> float:
    """Return the GiB of the host that an instance takes by its arguments."""
    processes = _engines(args) + max(1, _gib(args, "api-server-count"))
    found = cache_gib(args, chips) + chips * sum(_gib(args, name) for name in BY_CHIP)
    return found + processes * _gib(args, PICTURES)


def shm_size(args: Mapping[str, Any], chips: int) -> str:
    """Return the size of a container's /dev/shm."""
    pictures = _gib(args, PICTURES) if args.get("mm-processor-cache-type") == "shm" else 0
    return f"{SHM_GIB + math.ceil(cache_gib(args, chips) + pictures)}g"


def check_offload(args: Mapping[str, Mapping[str, Any]], chips: Mapping[str, int], accelerator: Accelerator) -> None:
    """Raise PlanError when instances keep more in the memory of the host than it has; its memory may be unknown.

    ``args`` and ``chips`` are those of each instance, replicas included.
    """
    for name, own in args.items():
        for flag in FLAGS:
            if _gib(own, flag) < 0:
                raise PlanError(f"vllm_instances.{name}.args.{flag}: found {show_value(own[flag])}, expected 0 or more")
    wanted = {name: host_gib(own, chips[name]) for name, own in args.items()}
    has = (accelerator.host_memory_mib or 0) / 1024
    if has and sum(wanted.values()) > has:
        parts = ", ".join(f"{name} {gib:g} GiB" for name, gib in sorted(wanted.items()) if gib)
        names = [flag for flag in FLAGS if any(_gib(own, flag) for own in args.values())]
        raise PlanError(
            f"vllm_instances: {' and '.join(names) or CONNECTOR} need {sum(wanted.values()):g} GiB of the host's "
            f"memory ({parts}), which has {has:.1f} GiB; lower them, or the number of replicas"
        )
