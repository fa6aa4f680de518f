# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that a host's engine works and can give its accelerators to containers; errors contain the remedy."""

from __future__ import annotations

import os
import re
from typing import Any, Sequence

from ..accelerator.partitions import mig_instances
from ..common.files_host import text_of
from ..containers.engine import CDI_DIRS, ENGINES, NVIDIA, ContainerError, gpus_by, has_quadlet
from ..containers.engine_host import HOOKS, Find, Run, cdi_files
from .ascend import INFO, LOG, PROGRAM, TITLE
from .facts import EngineState, HostState, RuntimePlanError
from .names import DAEMON_JSON, REFRESH_SERVICE, TOOLKIT_PACKAGES

# Device nodes of the drivers that containers get unchanged.
NODES = {"rocm": ("/dev/kfd", "/dev/dri"), "cann": ("/dev/davinci_manager", "/dev/hisi_hdc")}


def check(
    engine: str,
    stack: str,
    count: int,
    toolkit: str,
    host: HostState,
    find: Find,
    run: Run,
    partition: str = "",
    numbers: Sequence[int] = (),
) -> tuple[dict[str, Any], list[str]]:
    """Return the fact accelerator_container_runtime and warnings; raises RuntimePlanError with what to do.

    ``numbers`` are those of the chips where the host has others of the vendor too, else they are counted from 0.
    """
    state = host.engines.get(engine)
    if state is None or not state.version:
        raise RuntimePlanError(_silent(engine, state, run))
    warnings: list[str] = []
    gpus = ""
    if stack == "cuda":
        try:
            gpus = gpus_by(state, [f"{NVIDIA}=all"], host.cdi_kinds, any(map(find, HOOKS)))
        except ContainerError as exc:
            raise RuntimePlanError(f"{exc}{_driver(host)}") from exc
        if gpus == "cdi":
            texts = [text_of(path) for path in cdi_files(CDI_DIRS)]
            _check_devices(numbers or range(count), mig_instances(partition), texts)
            if host.unlinked:
                warnings.append(
                    f"{', '.join(host.unlinked)}: no link below /dev/char, so systemctl daemon-reload takes them from "
                    "running containers; nvidia-ctk system create-dev-char-symlinks --create-all makes the links"
                )
    for node in missing_nodes(stack, count):
        raise RuntimePlanError(
            f"{node} does not exist, and containers on {stack} need it; check that its driver is loaded"
        )
    if stack == "cann" and toolkit == "vendor":
        _check_ascend(state, host)
    other = next((name for name in ENGINES if name in host.engines), engine)
    if other != engine:
        warnings.append(
            f"{other} is also on this host, and the role vllm uses it by default: set container_runtime_engine: "
            f"{engine} in the inventory, which vllm_engine follows, or set vllm_engine: {engine}"
        )
    return {
        "engine": engine,
        "version": state.version,
        "toolkit": next((host.packages[name] for name in TOOLKIT_PACKAGES if name in host.packages), host.ascend),
        "gpus": gpus,
        "quadlet": has_quadlet(state),
        "storage": state.root,
    }, warnings


def missing_nodes(stack: str, count: int) -> list[str]:
    """Return device nodes that the drivers of a stack should have created but did not."""
    nodes = [*NODES.get(stack, ())]
    nodes += [f"/dev/davinci{index}" for index in range(count)] if stack == "cann" else []
    return [node for node in nodes if count and not os.path.exists(node)]


def listed_devices(text: str) -> set[int]:
    """Return the numbers of the whole chips that NVIDIA's CDI specification lists; YAML or JSON."""
    names = re.findall(r"""["']?\bname["']?\s*:\s*["']?(\d+)["']?\s*(?:[,}]|$)""", text, re.MULTILINE)
    return set(map(int, names))


def missing_libraries(texts: Sequence[str]) -> list[str]:
    """Return the libraries of the host that CDI specifications mount and that do not exist."""
    pattern = r"""hostPath["']?\s*:\s*["']?(/[^"'\s,}]+\.so[^"'\s,}]*)"""
    found = (path for text in texts for path in re.findall(pattern, text))
    return sorted({path for path in found if not os.path.exists(path)})


def _check_devices(chips: Sequence[int], parts: int, texts: Sequence[str]) -> None:
    """Raise RuntimePlanError where no CDI specification lists the chips, or the MIG instances of each (``parts``)."""
    own, count = [text for text in texts if NVIDIA in text], len(chips)
    listed = max((len(listed_devices(text) & set(chips)) for text in own), default=0)
    again = f"run systemctl restart {REFRESH_SERVICE}"
    # An instance of a chip with MIG is listed as 0:1.
    found = {name for text in own for name in re.findall(r"""name["']?\s*:\s*["']?(\d+:\d+)""", text)}
    if found and not parts:
        raise RuntimePlanError(
            "NVIDIA's CDI specification lists MIG instances, and plans take whole chips; set accelerator_partition of "
            f"the host, or switch MIG off and {again}"
        )
    wanted = {f"{chip}:{part}" for chip in chips for part in range(parts)}
    if wanted - found:
        raise RuntimePlanError(
            f"NVIDIA's CDI specification lists {len(wanted & found)} of {len(wanted)} MIG instances "
            f"(accelerator_partition); {again}, which does not happen by itself after a change of MIG"
        )
    if listed < count and not parts:
        raise RuntimePlanError(
            f"NVIDIA's CDI specification lists {listed} of {count} chips; {again}, and check nvidia-smi -L if that "
            "does not help"
        )
    missing = missing_libraries(own)
    if missing:
        raise RuntimePlanError(
            f"NVIDIA's CDI specification mounts {missing[0]}, which does not exist ({len(missing)} such libraries): "
            f"the driver changed after it was written; {again}"
        )


def _check_ascend(state: EngineState, host: HostState) -> None:
    """Raise RuntimePlanError where docker cannot start the Ascend Docker Runtime."""
    if not host.ascend:
        raise RuntimePlanError(
            f"the {TITLE} is incomplete ({INFO} or {PROGRAM} is missing); run the role container_runtime without "
            f"--tags, or with its install, and see {LOG}"
        )
    if "ascend" not in state.runtimes:
        raise RuntimePlanError(
            f"docker has the runtimes {', '.join(state.runtimes)}, and ascend is not among them although "
            f"{DAEMON_JSON} should name it; run systemctl reload docker"
        )


def _driver(host: HostState) -> str:
    if "cuda" in host.drivers:
        return f"; the driver is loaded, so see journalctl -u {REFRESH_SERVICE}"
    return "; the driver is not loaded (/proc/driver/nvidia is not there): install it first"


def _silent(engine: str, state: EngineState | None, run: Run) -> str:
    if state is None:
        return f"{engine} is not on this host; run the role container_runtime without --tags, or with its install"
    _rc, journal, _err = run(["journalctl", "-u", "docker.service", "-n", "5", "--no-pager", "-o", "cat"])
    last = " | ".join(journal.split("\n")).strip(" |") if engine == "docker" else ""
    more = f"; its journal ends with: {last}" if last else ""
    return f"{engine} does not answer ({state.why}){more}; see systemctl status {engine}"
